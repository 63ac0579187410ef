# SPDX-License-Identifier: Apache-2.0
"""The driver's files on disk, and the one format of everything compiled that it keeps in files.

A folder that cannot be written is no error: everything works without it. Files that somebody else opened (NNAPI
compilation caching) come as descriptors: they are locked while they are written, and read in one go.

What is compiled is run, so it matters who wrote it. A file is taken only if nobody but this user and the system's
administrator can write to it, and if the SHA-256 in front of its content fits what was read: the bytes that were
checked are those that are used. That finds damage of every kind, and files left by other users. It does not stop
someone who can write as this user, who could change this program too; a keyed checksum would not either, since the key
would have to lie where this user can read it.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import logging
import os
import shutil
import stat
import tempfile
import time
from typing import TYPE_CHECKING

from nn_runtime.hal.files import write_file

try:
    import fcntl
except ImportError:  # not on Windows: writers may then mix, which the checksum finds
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LOG = logging.getLogger(__name__)
_MAGIC = b"NNRT\x01"
_DIGEST_BYTES = hashlib.sha256().digest_size
_HEADER_BYTES = len(_MAGIC) + _DIGEST_BYTES
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
_POLL_SECONDS = 0.005
_OPEN = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)  # a pipe would make us wait


class Unusable(Exception):
    """A file that is not to be used, and why."""


def try_write(path: Path, data: bytes) -> bool:
    """Write a whole file; False (and a log line) where that is not possible."""
    try:
        write_file(path, data)
    except OSError as error:
        _LOG.info("cannot write %s (%s): going on without it", path, error)
        return False
    return True


def folder_of_process(prefix: str) -> str:
    """A new temporary folder that nobody else can write to; it goes when this process ends. Raises OSError."""
    folder, process = tempfile.mkdtemp(prefix=prefix), os.getpid()

    def remove() -> None:
        if os.getpid() == process:  # not in a forked child, which ends too
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder


def seal(payload: bytes) -> bytes:
    """The payload behind a magic number and its SHA-256: the one format of all binary cache files."""
    return _MAGIC + hashlib.sha256(payload).digest() + payload


def unseal(data: bytes) -> bytes | None:
    """The payload of `seal`, or None for anything damaged, cut short or foreign."""
    payload = data[_HEADER_BYTES:]
    if data[: len(_MAGIC)] != _MAGIC or digest_of(data) != hashlib.sha256(payload).digest():
        return None
    return payload


def digest_of(sealed: bytes) -> bytes:
    """The SHA-256 that `seal` put before the payload."""
    return sealed[len(_MAGIC) : _HEADER_BYTES]


def read_trusted(path: Path) -> bytes | None:
    """The bytes of a file that only this user or the administrator can have written, or None (and a log line)."""
    try:
        fd = os.open(path, _OPEN)
        try:
            return read_descriptor(fd)
        finally:
            os.close(fd)
    except FileNotFoundError:
        return None
    except (OSError, Unusable) as error:
        _LOG.info("%s is not used: %s", path, error)
        return None


def read_descriptor(fd: int, limit_bytes: int | None = None) -> bytes:
    """All bytes of an open file, whatever its position; raises Unusable for one that is not to be trusted, OSError."""
    state = os.fstat(fd)
    _check_trust(state)
    if limit_bytes is not None and state.st_size > limit_bytes:
        raise Unusable(f"it has {state.st_size} bytes, more than {limit_bytes}")
    os.lseek(fd, 0, os.SEEK_SET)
    parts = []
    left = state.st_size
    while left > 0 and (part := os.read(fd, left)):
        parts.append(part)
        left -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def is_read_write(fd: int) -> bool:
    """Whether a descriptor is open for reading and writing; True where the system does not tell."""
    if fcntl is None:
        return True
    try:
        return bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR)
    except (OSError, ValueError, OverflowError):  # the last two: no number of a descriptor
        return False


def rewrite_descriptor(fd: int, data: bytes) -> None:
    """Make the data all that an open file holds; raises OSError, and then leaves it empty."""
    os.lseek(fd, 0, os.SEEK_SET)
    os.ftruncate(fd, 0)
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(fd, view) :]
    except OSError:
        os.ftruncate(fd, 0)
        raise


@contextlib.contextmanager
def locked(fd: int, *, exclusive: bool, wait_seconds: float) -> Iterator[bool]:
    """Hold a lock on an open file against other users of this module; yields whether it was got in time.

    Where the system or the file system has no such locks, it counts as got.
    """
    if fcntl is None:
        yield True
        return
    wanted = (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB
    end = time.monotonic() + wait_seconds
    got = False
    while not got:
        try:
            fcntl.flock(fd, wanted)
        except BlockingIOError:
            if time.monotonic() >= end:
                break
            time.sleep(_POLL_SECONDS)
            continue
        except OSError as error:
            _LOG.debug("descriptor %d cannot be locked (%s)", fd, error)
        got = True
    try:
        yield got
    finally:
        if got:
            with contextlib.suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_UN)


def _check_trust(state: os.stat_result) -> None:
    if not stat.S_ISREG(state.st_mode):
        raise Unusable("it is no regular file")
    if not hasattr(os, "geteuid"):
        return
    if state.st_uid not in (0, os.geteuid()):
        raise Unusable(f"it belongs to user {state.st_uid}")
    if state.st_mode & _OTHERS_MAY_WRITE and state.st_nlink:  # a file without a name is found by nobody
        raise Unusable(f"others may write to it (mode {stat.S_IMODE(state.st_mode):o})")
