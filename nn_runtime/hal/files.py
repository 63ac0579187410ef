# SPDX-License-Identifier: Apache-2.0
"""Files that several processes share: written to a temporary name and renamed, so that a reader sees all or nothing."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import tempfile
import time
from pathlib import Path

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
