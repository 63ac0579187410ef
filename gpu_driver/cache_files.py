# SPDX-License-Identifier: Apache-2.0
"""The driver's folder on disk: where it is, and files that many processes may write at once.

Every file is written to a temporary name and renamed, so a reader sees a whole file or none. A folder that
cannot be written is no error: writing returns False and everything works without it.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import tempfile
from pathlib import Path

_LOG = logging.getLogger(__name__)
_MAGIC = b"NNRT\x01"
_HEADER_BYTES = len(_MAGIC) + hashlib.sha256().digest_size


def cache_directory() -> Path:
    """The folder of every cache: NNRT_CACHE_DIR, else the user's cache folder of this system."""
    chosen = os.environ.get("NNRT_CACHE_DIR")
    if chosen:
        return Path(chosen)
    import platformdirs  # 16 ms to import; not needed with the variable set

    return Path(platformdirs.user_cache_dir("nnrt", appauthor=False))


def read_file(path: Path) -> bytes | None:
    """The bytes of a file, or None when it is absent or cannot be read."""
    try:
        return path.read_bytes()
    except OSError:
        return None


def write_atomic(path: Path, data: bytes) -> bool:
    """Write a whole file under its final name in one step. False (and a log line) where that is not possible."""
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        Path(temporary).replace(path)
    except OSError as error:
        _LOG.info("cannot write %s (%s): going on without it", path, error)
        if temporary:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
        return False
    return True


def is_writable(directory: Path) -> bool:
    """Whether a file can be made in the folder (which is made too where it is missing)."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=directory, prefix=".new-"):
            return True
    except OSError:
        return False


def seal(payload: bytes) -> bytes:
    """The payload behind a magic number and its SHA-256: the one format of all binary cache files."""
    return _MAGIC + hashlib.sha256(payload).digest() + payload


def unseal(data: bytes) -> bytes | None:
    """The payload of `seal`, or None for anything damaged, cut short or foreign."""
    payload = data[_HEADER_BYTES:]
    if data[: len(_MAGIC)] != _MAGIC or data[len(_MAGIC) : _HEADER_BYTES] != hashlib.sha256(payload).digest():
        return None
    return payload
