# SPDX-License-Identifier: Apache-2.0
"""How each operator of a .tflite file is converted: one function an operator, one file a family, loaded from here.

A function checks what its operator needs and emits NNAPI operations; their own validation does the rest.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from nn_runtime.tflite.operator import Operator

    Conversion: TypeAlias = Callable[[Operator], None]


@dataclass(frozen=True)
class Kind:
    """What is known of a kind of operator: the most inputs that it has (None: any number), the newest version.

    A version stands for types, ranks and options that came with it, as the kernels of LiteRT 2.3 are registered. Types
    and options are in the file and checked by themselves; what a version after the known ones means is not.
    """

    inputs: int | None
    version: int = 1


_kinds: dict[int | str, Kind] = {}
_conversions: dict[int | str, Conversion] = {}


def converts(code: int | str, *, inputs: int | None, version: int = 1) -> Callable[[Conversion], Conversion]:
    """Register a conversion for an operator, a builtin code or the name of a custom one, and its `Kind`."""

    def register(conversion: Conversion) -> Conversion:
        if code in _conversions:
            raise ValueError(f"operator {code} has two conversions")
        _conversions[code] = conversion
        _kinds[code] = Kind(inputs, version)
        return conversion

    return register


def conversion_of(code: int | str) -> Conversion | None:
    """Return the conversion of a builtin code or custom name, or None."""
    _load_families()
    return _conversions.get(code)


def kind_of(code: int | str) -> Kind | None:
    """Return what is known of a builtin code or custom name, or None."""
    _load_families()
    return _kinds.get(code)


def converted_operators() -> list[int]:
    """Return the codes of the builtin operators that have a conversion."""
    _load_families()
    return sorted(code for code in _conversions if isinstance(code, int))


@functools.cache
def _load_families() -> None:
    package = importlib.import_module(__name__)
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{__name__}.{module.name}")
