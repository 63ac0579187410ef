# SPDX-License-Identifier: Apache-2.0
"""Vendor extensions: which there are, and the prefixes under which this process knows them (SURFACE section j)."""

from __future__ import annotations

import itertools
import threading
import weakref
from typing import TYPE_CHECKING, Protocol

from nn_runtime.codes import EXTENSION_PREFIX_SHIFT
from nn_runtime.errors import BadData
from nn_runtime.hal.types import MAX_EXTENSION_PREFIX, check_extension_name
from nn_runtime.numeric import whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nn_runtime.hal.interfaces import Attributes
    from nn_runtime.hal.types import Extension

_MAX_CODE = 2**EXTENSION_PREFIX_SHIFT - 1

_lock = threading.Lock()
_numbers = itertools.count(1)
_prefixes: dict[str, int] = {}
_names: dict[int, str] = {}


class HasExtensions(Protocol):
    """A device, as far as extensions are concerned."""

    @property
    def name(self) -> str:
        """Name of the device."""

    @property
    def extensions(self) -> Sequence[Extension]:
        """Vendor extensions of the device."""


_devices: weakref.WeakSet[HasExtensions] = weakref.WeakSet()


def add_device(device: HasExtensions) -> None:
    """Let a device's extensions be known for as long as the device is in use."""
    with _lock:
        _devices.add(device)


def checked(extensions: Iterable[Extension]) -> tuple[Extension, ...]:
    """Return a device's extensions; raises BadData for a bad name, a type without size, or a name given twice."""
    found = tuple(extensions)
    for extension in found:
        check_extension_name(extension.name)
        for code, (_, size_bytes) in extension.operand_types.items():
            if not 0 <= code <= _MAX_CODE or size_bytes <= 0:
                wanted = f"wanted a code of 0 to {_MAX_CODE} and a size > 0"
                raise BadData(f"extension {extension.name}: {wanted}, got {code} of {size_bytes} bytes")
    names = [extension.name for extension in found]
    twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if twice is not None:
        raise BadData(f"extension {twice}: it is listed twice")
    return found


def operand_type(device: HasExtensions, name: str, code: int) -> int:
    """Return the code of an extension's operand type for models of this process; raises BadData."""
    extension = _extension(device, name)
    code = whole(f"extension {name}: operand type", code)
    if code not in extension.operand_types:
        raise BadData(f"extension {name}: it has no operand type {code}")
    from nn_runtime.operand import register_extension_type  # numpy, which a list of devices does not need

    full = _prefix(name) << EXTENSION_PREFIX_SHIFT | code
    register_extension_type(full, *extension.operand_types[code])
    return full


def operation_type(device: HasExtensions, name: str, code: int) -> int:
    """Return the code of an extension's operation for models of this process; raises BadData."""
    _extension(device, name)
    code = whole(f"extension {name}: operation", code)
    if not 0 <= code <= _MAX_CODE:
        raise BadData(f"extension {name}: an operation is 0 to {_MAX_CODE}, got {code}")
    return _prefix(name) << EXTENSION_PREFIX_SHIFT | code


def with_attribute(attributes: Attributes, name: str, code: int, data: bytes) -> Attributes:
    """Return sorted attributes with one more; raises BadData for an unknown extension, or if it is there already."""
    if not any(extension.name == name for device in _in_use() for extension in device.extensions):
        raise BadData(f"extension attribute: no device has an extension {name!r}")
    code = whole(f"extension attribute {name}: code", code)
    if not 0 <= code <= _MAX_CODE:
        raise BadData(f"extension attribute {name}: a code is 0 to {_MAX_CODE}, got {code}")
    if any((name, code) == (known, number) for known, number, _ in attributes):
        raise BadData(f"extension attribute {name} {code}: it is there already")
    return tuple(sorted((*attributes, (name, code, data))))


def is_known(code: int) -> bool:
    """Tell whether a code has the prefix of an extension that has been asked for."""
    return code >> EXTENSION_PREFIX_SHIFT in _names


def name_to_prefix(codes: Iterable[int]) -> dict[str, int]:
    """Return the extensions that operand and operation codes belong to."""
    prefixes = sorted({code >> EXTENSION_PREFIX_SHIFT for code in codes} & _names.keys())
    return {_names[prefix]: prefix for prefix in prefixes}


def _in_use() -> list[HasExtensions]:
    with _lock:
        return list(_devices)


def _extension(device: HasExtensions, name: str) -> Extension:
    """Return a device's extension; one of which devices give different records is disabled for all."""
    own = next((extension for extension in device.extensions if extension.name == name), None)
    if own is None:
        raise BadData(f"device {device.name} has no extension {name!r}")
    for other in _in_use():
        if any(extension.name == name and extension != own for extension in other.extensions):
            raise BadData(f"extension {name} is disabled: {device.name} and {other.name} define it differently")
    return own


def _prefix(name: str) -> int:
    with _lock:
        if name not in _prefixes:
            number = next(_numbers)
            if number > MAX_EXTENSION_PREFIX:
                raise BadData(f"extension {name}: all {MAX_EXTENSION_PREFIX} prefixes are taken")
            _prefixes[name], _names[number] = number, name
        return _prefixes[name]
