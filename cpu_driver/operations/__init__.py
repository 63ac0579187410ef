# SPDX-License-Identifier: Apache-2.0
"""One function per operation, one file per family, loaded from this folder.

A function takes the operation with every input's array known and returns its output arrays (any shape of the right
size: the caller reshapes to the computed dimensions) in the outputs' dtypes. Float16 data is computed in float32 and
narrowed once at the end.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from nn_runtime.codes import OperationCode
    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView

    Function = Callable[[OperationView], tuple[Array, ...]]

_functions: dict[int, Function] = {}


def computes(*codes: OperationCode) -> Callable[[Function], Function]:
    """Register a function for operations; raises ValueError if one has a function already."""

    def register(function: Function) -> Function:
        for code in codes:
            if code in _functions:
                raise ValueError(f"{code.name} has two functions")
            _functions[code] = function
        return function

    return register


def function_of(code: int) -> Function | None:
    """Return the function of an operation, or None."""
    _load_families()
    return _functions.get(code)


@functools.cache
def _load_families() -> None:
    package = importlib.import_module(__name__)
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{__name__}.{module.name}")
