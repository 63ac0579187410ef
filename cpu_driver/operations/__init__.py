# SPDX-License-Identifier: Apache-2.0
"""One function per operation, one file per family, which `nn_runtime.families` lists.

A function takes the operation with every input's array known and returns its output arrays (any shape of the right
size: the caller reshapes to the computed dimensions) in the outputs' dtypes. Float16 data is computed in float32 and
narrowed once at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.families import FAMILIES, Families

if TYPE_CHECKING:
    from collections.abc import Callable

    from nn_runtime.codes import OperationCode
    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView

    Function = Callable[[OperationView], tuple[Array, ...]]

_functions: dict[int, Function] = {}
_families = Families(__name__, FAMILIES)


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
    _families.load(code)
    return _functions.get(code)
