# SPDX-License-Identifier: Apache-2.0
"""Programs of element-wise operations that make of a byte another: a table says what, however long they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpu_driver.chain.kinds import From, Function

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_driver.chain.step import Instruction
    from nn_runtime.operand import Array


def table_of(program: Sequence[Instruction], dtype: np.dtype[np.generic]) -> Array | None:
    """Return the codes that a program makes of all 256, by their bits; None where it reads more than one code.

    dtype: of the codes, uint8 or int8.
    """
    every: Array = np.arange(256, dtype=np.uint8).view(dtype).astype(np.int64)
    values: dict[int, Array] = {}
    made = every
    for one in program:
        other = _other(one, every, values)
        if other is None:
            return None
        if one.function == Function.LOAD:
            made = other
        else:
            own = values[one.start]
            made_now = _made(one, other, own, dtype) if one.reversed else _made(one, own, other, dtype)
            if made_now is None:
                return None
            made = made_now
        values[one.target] = made
    result: Array = made.astype(dtype)
    return result


def _other(one: Instruction, every: Array, values: dict[int, Array]) -> Array | None:
    """Return the codes that an instruction reads beside its own; None where that is no code of the same element."""
    if one.operand == From.NOTHING:
        return every
    if one.operand == From.VALUE:
        return values[one.other]
    if one.operand == From.CONSTANT and one.constant is not None and one.constant.size == 1:
        return np.full(256, one.constant.reshape(()), np.int64)
    return every if one.operand == From.SOURCE and one.walk is not None and one.walk.is_plain else None


def _made(one: Instruction, a: Array, b: Array, dtype: np.dtype[np.generic]) -> Array | None:
    if one.function == Function.TABLE and one.constant is not None:
        looked_up: Array = one.constant.reshape(-1)[a.astype(dtype).view(np.uint8)].astype(np.int64)
        return looked_up
    return None if one.exact is None else one.exact(a, b)
