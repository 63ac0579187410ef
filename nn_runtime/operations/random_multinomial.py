# SPDX-License-Identifier: Apache-2.0
"""RANDOM_MULTINOMIAL, and the counter-based random numbers that it draws with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FeatureLevel, OperandCode, OperationCode
from nn_runtime.operations.signature import (
    INT32,
    INT32_TENSOR,
    Definition,
    Input,
    OperationView,
    Output,
    Variant,
    define,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from nn_runtime.operand import Dimensions

_ROUNDS = 10
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def philox_words(seed: int, seed2: int, blocks: int) -> npt.NDArray[np.uint32]:
    """Return the first `blocks` * 4 random words of the Philox 4x32-10 generator for a pair of seeds.

    Key: `seed`; counter: the block in its lower 64 bits, `seed2` above (seeds as 64-bit two's complement).
    Source: Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (2011).
    """
    key = [seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF]
    counters = np.arange(blocks, dtype=np.uint64)
    words = [counters & _LOW, counters >> _HALF]
    words += [np.full(blocks, seed2 >> shift & 0xFFFFFFFF, np.uint64) for shift in (0, 32)]
    for _ in range(_ROUNDS):
        first, second = words[0] * _MULTIPLIERS[0], words[2] * _MULTIPLIERS[1]
        words = [
            second >> _HALF ^ words[1] ^ np.uint64(key[0]),
            second & _LOW,
            first >> _HALF ^ words[3] ^ np.uint64(key[1]),
            first & _LOW,
        ]
        key = [(word + step) & 0xFFFFFFFF for word, step in zip(key, _KEY_STEPS, strict=True)]
    return np.stack(words, axis=-1).astype(np.uint32).reshape(-1)


def uniform_doubles(seed: int, seed2: int, count: int) -> npt.NDArray[np.float64]:
    """Return `count` random numbers in [0, 1), of two words each: 20 bits of the first above 32 of the second."""
    words = philox_words(seed, seed2, -(-count // 2)).astype(np.uint64).reshape(-1, 2)[:count]
    mantissas = (words[:, 0] & np.uint64(0xFFFFF)) << _HALF | words[:, 1]
    return mantissas.astype(np.float64) * np.float64(2.0**-52)


def _prepare(op: OperationView) -> tuple[Dimensions, ...]:
    dims, samples = op.dimensions("logits"), op.int_value("samples")
    if len(dims) != 2 or 0 in dims:
        op.fail("logits", "must have rank 2 and no size 0", list(dims))
    if samples < 1:
        op.fail("samples", "must be > 0", samples)
    if op.dimensions("seeds") != (2,):
        op.fail("seeds", "must have dimensions [2]", list(op.dimensions("seeds")))
    return ((dims[0], samples),)


define(
    Definition(
        OperationCode.RANDOM_MULTINOMIAL,
        (
            Variant(
                (
                    Input("logits", rank=(2, 2)),
                    Input("samples", INT32),
                    Input("seeds", INT32_TENSOR, rank=(1, 1)),
                )
            ),
        ),
        (Output("output", INT32_TENSOR, rank=(2, 2)),),
        {
            OperandCode.TENSOR_FLOAT32: FeatureLevel.HAL_1_2,
            OperandCode.TENSOR_FLOAT16: FeatureLevel.HAL_1_2,
        },
        _prepare,
    )
)
