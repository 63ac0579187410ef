# SPDX-License-Identifier: Apache-2.0
"""NNAPI compilation caching: a prepared model in two files that the application keeps (SURFACE section h).

The model file holds the model's structure, the binaries of its programs and the digest of the data file; the data file
holds the constants. Both are sealed as the driver's own cache files are (`cache_files`, which says what the checksum
stops and what it cannot), and say for which token, format, package, device, driver, OpenCL versions and CPU they were
made. A binary is found by a key that also covers the kernel's source.

What is kept is the model, not its launches: packing and planning again costs a tenth of a second, and so nothing but a
binary is believed that preparing an application's model would not check. The files are read once, and what was read
is what is checked and used.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import struct
from importlib import metadata
from typing import TYPE_CHECKING

from gpu_driver import cache_files
from gpu_driver.preparation import Preparation
from nn_runtime.errors import NNError
from nn_runtime.hal.model_format import pack_model, unpack_model
from nn_runtime.hal.types import CACHE_TOKEN_BYTES, ErrorStatus, ExecutionPreference, HalError, Priority
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpu_driver.device_profile import DeviceProfile
    from nn_runtime.hal.interfaces import CacheRequest
    from nn_runtime.hal.types import Model

FILES = (1, 1)
"""Number of model files and of data files."""
MAX_MODEL_FILE_BYTES = 512 << 20

_LOG = logging.getLogger(__name__)
_FORMAT = 3
_LENGTH = struct.Struct("<I")
_READ_WAIT_SECONDS = 1.0


@dataclass(frozen=True)
class Compiled:
    """What preparing needs. binaries: of programs, by `Program.key`."""

    model: Model
    how: Preparation
    binaries: Mapping[str, bytes]


def check_request(cache: CacheRequest) -> None:
    """Check files and token; raises HalError: INVALID_ARGUMENT for wrong numbers, GENERAL_FAILURE for the access."""
    given = len(cache.model_files), len(cache.data_files)
    if given != FILES:
        raise HalError(ErrorStatus.INVALID_ARGUMENT, f"cache: wanted {FILES} model and data files, got {given}")
    if len(cache.token) != CACHE_TOKEN_BYTES:
        raise HalError(ErrorStatus.INVALID_ARGUMENT, f"cache: the token must have {CACHE_TOKEN_BYTES} bytes")
    for fd in (*cache.model_files, *cache.data_files):
        if not cache_files.is_read_write(fd):
            raise HalError(ErrorStatus.GENERAL_FAILURE, f"cache: descriptor {fd} is not open for reading and writing")


def save(cache: CacheRequest, profile: DeviceProfile, compiled: Compiled) -> bool:
    """Write both files; whether that was possible. Nothing is raised: a cache that fails costs time later, no more."""
    try:
        check_request(cache)
        document, constants = pack_model(compiled.model)
        header = _header(cache.token, profile)
        data = cache_files.seal(_joined({**header, "kind": "data"}, [constants]))
        described = {
            **header,
            "kind": "model",
            "data": cache_files.digest_of(data).hex(),
            "priority": int(compiled.how.priority),
            "preference": int(compiled.how.preference),
            "quantizes_inputs": int(compiled.how.quantizes_inputs),
            "model": document,
            "programs": [[key, _digest(binary)] for key, binary in compiled.binaries.items()],
        }
        model = cache_files.seal(_joined(described, list(compiled.binaries.values())))
        (model_fd,), (data_fd,) = cache.model_files, cache.data_files
        with cache_files.locked(model_fd, exclusive=True, wait_seconds=0.0) as is_mine:
            if not is_mine:
                _LOG.debug("compilation cache: another process is writing it")
                return False
            cache_files.rewrite_descriptor(data_fd, data)
            cache_files.rewrite_descriptor(model_fd, model)
    except OSError as error:
        _LOG.warning("compilation cache: not written: %s", error.strerror or error)
        return False
    except (HalError, NNError, MemoryError) as error:
        _LOG.info("compilation cache: not written: %s", error)
        return False
    return True


def load(cache: CacheRequest, profile: DeviceProfile) -> Compiled:
    """Return what the files hold; raises HalError(GENERAL_FAILURE) unless they are as they were written, for this."""
    try:
        return _loaded(cache, profile)
    except (cache_files.Unusable, ValueError, OSError, MemoryError) as error:
        raise HalError(ErrorStatus.GENERAL_FAILURE, f"{profile.name}: compilation cache: {error}") from error


def _loaded(cache: CacheRequest, profile: DeviceProfile) -> Compiled:
    (model_fd,), (data_fd,) = cache.model_files, cache.data_files
    with cache_files.locked(model_fd, exclusive=False, wait_seconds=_READ_WAIT_SECONDS) as is_quiet:
        if not is_quiet:
            raise cache_files.Unusable("another process is writing it")
        sealed_model = cache_files.read_descriptor(model_fd, MAX_MODEL_FILE_BYTES)
        sealed_data = cache_files.read_descriptor(data_fd, profile.global_mem_bytes)
    header, binaries = _checked(sealed_model, "model", cache.token, profile)
    if header.get("data") != cache_files.digest_of(sealed_data).hex():
        raise cache_files.Unusable("model and data file do not belong together")
    _, parts = _checked(sealed_data, "data", cache.token, profile)
    model = unpack_model(header.get("model"), b"".join(parts))
    how = Preparation(
        ExecutionPreference(_number(header, "preference")),
        Priority(_number(header, "priority")),
        bool(_number(header, "quantizes_inputs")),
    )
    return Compiled(model, how, _programs(header.get("programs"), binaries))


def _number(header: Mapping[str, object], name: str) -> int:
    value = header.get(name)
    if type(value) is not int:
        raise cache_files.Unusable(f"its header has no {name}")
    return value


def _programs(rows: object, binaries: Sequence[bytes]) -> dict[str, bytes]:
    """Return the binaries by key, each the one that its row means: OpenCL implementations crash on part of one."""
    if not isinstance(rows, list) or len(rows) != len(binaries):
        raise cache_files.Unusable("its header does not name the programs")
    found: dict[str, bytes] = {}
    for row, binary in zip(rows, binaries, strict=True):
        if not isinstance(row, list) or len(row) != 2 or row[1] != _digest(binary):
            raise cache_files.Unusable("a program is not the one that its header names")
        found[str(row[0])] = binary
    return found


def _digest(binary: bytes) -> str:
    return hashlib.sha256(binary).hexdigest()


def _header(token: bytes, profile: DeviceProfile) -> dict[str, object]:
    """Return what must be equal when a file is written and read."""
    return {
        "format": _FORMAT,
        "package": _package_version(),
        "device": profile.name,
        "version": profile.device_version,
        "driver": profile.driver_version,
        "identity": profile.identity,
        "token": token.hex(),
    }


@functools.cache
def _package_version() -> str:
    try:
        return metadata.version("nn-runtime-opencl")
    except metadata.PackageNotFoundError:  # run from its sources
        return ""


def _checked(sealed: bytes, kind: str, token: bytes, profile: DeviceProfile) -> tuple[dict[str, object], list[bytes]]:
    """Return header and parts of a file's content; raises Unusable, ValueError."""
    payload = cache_files.unseal(sealed)
    if payload is None:
        raise cache_files.Unusable(f"the {kind} file is {'damaged' if sealed else 'empty'}")
    header, parts = _split(payload)
    for name, wanted in {**_header(token, profile), "kind": kind}.items():
        if header.get(name) != wanted:
            raise cache_files.Unusable(f"the {kind} file is for another {name}: {header.get(name)!r:.80}")
    return header, parts


def _joined(header: dict[str, object], parts: Sequence[bytes]) -> bytes:
    """Return a header, the lengths of the parts in it, and the parts."""
    text = json.dumps({**header, "lengths": [len(part) for part in parts]}).encode()
    return b"".join([_LENGTH.pack(len(text)), text, *parts])


def _split(payload: bytes) -> tuple[dict[str, object], list[bytes]]:
    """Return header and parts; raises ValueError."""
    try:
        (length,) = _LENGTH.unpack_from(payload)
        at = _LENGTH.size + length
        header = json.loads(payload[_LENGTH.size : at])
        parts = []
        for size in header["lengths"]:
            if not 0 <= size <= len(payload) - at:
                raise ValueError("a part lies outside of the file")
            parts.append(payload[at : at + size])
            at += size
        if at != len(payload):
            raise ValueError("the parts are not all of the file")
    except (struct.error, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"no cache file: {type(error).__name__}: {error}") from error
    return header, parts
