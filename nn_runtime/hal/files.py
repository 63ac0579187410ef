# SPDX-License-Identifier: Apache-2.0
"""Files written to a temporary name and renamed, so that a reader, or a full disk, sees all or nothing."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
import tempfile
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_NEW = ".nnrt-new-"
"""How the names of files begin that are not whole yet."""
_ABANDONED_SECONDS = 3600.0
LEAST_ROOM_BYTES = 16 << 20
"""Free for a folder of caches that is worth using."""
_READ = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
"""Opening a pipe does not wait for its writer."""


def read_file(path: Path) -> bytes:
    """Return the bytes of a regular file; raises OSError, for anything else too."""
    with open(path, "rb", opener=lambda name, _flags: os.open(name, _READ)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return file.read()


def write_file(path: Path, data: bytes) -> None:
    """Write a whole file under its name in one step, its folder too where that is missing; raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=_NEW)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise
    _remove_abandoned(path.parent)


@contextlib.contextmanager
def result_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for what the user asked for: it takes its name when it is whole, and what was there stays till then.

    What is no plain file (a pipe, /dev/stdout), or lies where no other can be made, is written as it comes. The OSError
    of a failure names the path.
    """
    target = path.resolve()  # the file behind a link
    try:
        if _is_written_in_place(path, target):
            with path.open("wb") as stream:
                yield stream
            return
        temporary = target.with_name(_NEW + secrets.token_hex(8))
        try:
            with temporary.open("xb") as stream:
                yield stream
            if target.exists():
                shutil.copymode(target, temporary)
            temporary.replace(target)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _is_written_in_place(path: Path, target: Path) -> bool:
    if Path("/dev") in path.absolute().parents:  # where /dev/stdout may be a file that a shell has open
        return True
    return path.exists() and not (path.is_file() and os.access(target.parent, os.W_OK))


def why_unwritable(directory: Path) -> str | None:
    """Return why no file can be made in a folder, made if missing, in the system's words; None where one can.

    Little room is a reason, too: what is compiled for a network takes a few megabytes.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=directory, prefix=_NEW):
            free = shutil.disk_usage(directory).free
    except OSError as error:
        return error.strerror or str(error)
    return None if free >= LEAST_ROOM_BYTES else f"{os.strerror(errno.ENOSPC)}: {free >> 10} KiB are free"


def why_unwritable_file(path: Path) -> str | None:
    """Return why a file cannot be written in a folder that is there, in the system's words; None where it can."""
    try:
        if path.exists():
            return None if os.access(path, os.W_OK) else os.strerror(errno.EACCES)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=_NEW):
            return None
    except OSError as error:
        return error.strerror or str(error)


def _remove_abandoned(directory: Path) -> None:
    """Remove what killed processes left half written; what is younger may still be written by a live one."""
    oldest = time.time() - _ABANDONED_SECONDS
    for left in directory.glob(f"{_NEW}*"):
        with contextlib.suppress(OSError):  # another process may have been faster
            if left.lstat().st_mtime < oldest:
                left.unlink()
