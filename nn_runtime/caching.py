# SPDX-License-Identifier: Apache-2.0
"""Compilation caching on the runtime's side: tokens, files, and who opens them when (SURFACE section h)."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from nn_runtime.checks import check_kind, shown
from nn_runtime.errors import BadData
from nn_runtime.hal.interfaces import CacheRequest
from nn_runtime.hal.model_format import model_digest
from nn_runtime.hal.types import HalError
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from nn_runtime.device import Device
    from nn_runtime.hal.interfaces import Attributes, IPreparedModel
    from nn_runtime.hal.types import ExecutionPreference, Model, Priority

_MODEL_FILE, _DATA_FILE = "1", "2"
_SAFELY = getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""A link that somebody has planted is not written through, and a pipe not waited for."""

_log = logging.getLogger("nn_runtime.compilation")


@dataclass(frozen=True)
class CacheInfo:
    """Where an application keeps a compilation, and its own token for it."""

    directory: Path
    token: bytes


def token_of(model: Model, name: str | None) -> bytes:
    """Return the token of an application that has none of its own: of all that a model says, and of a name, if any.

    Raises BadData for a name that is no string.
    """
    digest = model_digest(model)
    if name is None:
        return digest
    check_kind("model_token", name, str)
    return hashlib.sha256(digest + name.encode()).digest()


def path_of(what: str, directory: str | os.PathLike[str]) -> Path:
    """Return a folder's path; raises BadData for what is no path, or an empty one: it would mean the present folder."""
    if isinstance(directory, str) and not directory:
        raise BadData(f"{what}: the path is empty")
    try:
        path = Path(directory)
    except TypeError:
        raise BadData(f"{what}: wanted a path, got {shown(directory)}") from None
    if "\0" in str(path):
        raise BadData(f"{what}: a path has no null characters, got {str(path)!r}")
    return path


def made_directory(directory: str | os.PathLike[str]) -> Path | None:
    """Return a directory, made if it was missing, None where that is not possible; raises BadData for no path."""
    path = path_of("cache_dir", directory)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        _log.warning("no compilation cache in %s: wanted a folder, got a file", path)
        return None
    except OSError as error:
        _log.warning("no compilation cache in %s: %s", path, error.strerror or error)
        return None
    return path


def step_token(
    info: CacheInfo,
    device: Device,
    preference: ExecutionPreference,
    priority: Priority,
    operations: Sequence[tuple[int, ...]] = (),
    attributes: Attributes = (),
) -> bytes:
    """Return the 32-byte token of a step: the application's, hashed with all that decides what is prepared.

    `operations`: how one gets to every operation of a compound plan's step from the main model, none for a simple plan.
    """
    hashed = hashlib.sha256(info.token)
    for path in operations:
        hashed.update(b"".join(number.to_bytes(4, "little") for number in (len(path), *path)))
    hashed.update(device.name.encode() + b"\0")
    hashed.update(device.version.encode() + b"\0")
    hashed.update(int(preference).to_bytes(4, "little") + int(priority).to_bytes(4, "little"))
    hashed.update(attribute_bytes(attributes))
    return hashed.digest()


def attribute_bytes(attributes: Attributes) -> bytes:
    """Return attributes of a compilation as bytes to hash, other ones for other attributes."""
    return b"".join(
        name.encode() + b"\0" + code.to_bytes(2, "little") + len(data).to_bytes(8, "little") + data
        for name, code, data in attributes
    )


def file_paths(info: CacheInfo, token: bytes, kind: str, count: int) -> list[Path]:
    """Return the files of a token: 64 letters (each byte its low, then its high half from 'A'), kind, number."""
    letters = "".join(chr(ord("A") + (byte & 15)) + chr(ord("A") + (byte >> 4)) for byte in token)
    return [info.directory / f"{letters}{kind}{number}" for number in range(count)]


def prepare_cached(
    device: Device,
    info: CacheInfo,
    token: bytes,
    from_cache: Callable[[CacheRequest], IPreparedModel],
    from_model: Callable[[CacheRequest | None], IPreparedModel],
) -> IPreparedModel:
    """Prepare from the files if all are there and the driver accepts them, else from the model, for it to save.

    The descriptors are closed afterwards: a driver duplicates what it keeps. Raises HalError.
    """
    with _opened(device, info, token, create=False) as cache:
        if cache is not None:
            try:
                prepared = from_cache(cache)
                _log.debug("%s accepts its cache: nothing is prepared from the model", device.name)
                return prepared
            except HalError as error:
                _log.debug("%s does not accept its cache: %s", device.name, error)
    with _opened(device, info, token, create=True) as cache:
        return from_model(cache)


@contextlib.contextmanager
def _opened(device: Device, info: CacheInfo, token: bytes, create: bool) -> Iterator[CacheRequest | None]:
    """Open all files for reading and writing; None if one cannot be opened."""
    flags = os.O_RDWR | _SAFELY | (os.O_CREAT if create else 0)
    models, data = device.cache_files
    with contextlib.ExitStack() as stack:
        try:
            model_files = _open_all(stack, file_paths(info, token, _MODEL_FILE, models), flags)
            data_files = _open_all(stack, file_paths(info, token, _DATA_FILE, data), flags)
        except OSError as error:
            if create:
                _log.warning(
                    "no compilation cache for %s in %s: %s", device.name, info.directory, error.strerror or error
                )
            yield None
            return
        yield CacheRequest(model_files, data_files, token)


def _open_all(stack: contextlib.ExitStack, paths: Sequence[Path], flags: int) -> tuple[int, ...]:
    """Return descriptors of all files, which the stack will close; raises OSError."""
    opened = []
    for path in paths:
        opened.append(os.open(path, flags, 0o600))
        stack.callback(os.close, opened[-1])
        if not stat.S_ISREG(os.fstat(opened[-1]).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
    return tuple(opened)
