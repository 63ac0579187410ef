# SPDX-License-Identifier: Apache-2.0
"""Bits of integers, and StableHLO's functions of two elements."""

from __future__ import annotations

import numpy as np

from nn_runtime.tflite.types import TensorType
from tests.nn_runtime.tflite.operator_cases import Case
from tests.nn_runtime.tflite.operator_file import Tensor, boolean, constant, int8, int32, int64, real, uint8

SHORT = TensorType.INT16
WIDE = np.array([0, -1, 2**31 - 1, -(2**31), 0x12345678, -0x12345678, 1 << 30, -(1 << 30)], np.int32)
PLACES = np.array([0, 1, 5, 7, 3, 2, 6, 4], np.int32)


def plain(kind: TensorType, *shape: int) -> Tensor:
    return Tensor(kind, shape)


CASES = [
    *(
        Case(code, [plain(kind, 4, 9), plain(kind, 4, 9)], [plain(kind, 4, 9)])
        for code in ("BITWISE_XOR", "STABLEHLO_AND", "STABLEHLO_ADD", "STABLEHLO_MULTIPLY")
        for kind in (TensorType.INT8, TensorType.UINT8, SHORT, TensorType.UINT16, TensorType.INT32)
    ),
    *(
        Case(code, [constant(WIDE), constant(np.roll(WIDE, 3))], [int32(8)], name="wide")
        for code in ("BITWISE_XOR", "STABLEHLO_AND", "STABLEHLO_ADD", "STABLEHLO_MULTIPLY")
    ),
    Case("BITWISE_XOR", [int32(4, 9), constant([[1], [-1], [77], [-77]])], [int32(4, 9)], name="broadcast"),
    Case("BITWISE_XOR", [int32(), int32()], [int32()], name="of scalars"),
    Case("STABLEHLO_AND", [int64(4, 9), int64(4, 9)], [int64(4, 9)]),
    Case("STABLEHLO_AND", [int32(2, 1, 2, 1, 9), int32(2, 1, 2, 1, 9)], [int32(2, 1, 2, 1, 9)], name="rank 5"),
    *(
        Case(f"STABLEHLO_{name}", [boolean(4, 9), boolean(4, 9)], [boolean(4, 9)])
        for name in ("AND", "ADD", "MULTIPLY", "MAXIMUM", "MINIMUM")
    ),
    *(
        Case(f"STABLEHLO_{name}", [kind(4, 9), kind(4, 9)], [kind(4, 9)])
        for name in ("ADD", "MULTIPLY", "MAXIMUM", "MINIMUM")
        for kind in (real, int64)
    ),
    *(
        Case(f"STABLEHLO_{name}", [int8(0.1, 3, 4, 9), int8(0.2, 5, 4, 9)], [int8(0.3, 7, 4, 9)], name="with scales")
        for name in ("ADD", "MULTIPLY", "MAXIMUM", "MINIMUM", "AND")
    ),
    *(Case(f"STABLEHLO_{name}", [int32(), int32()], [int32()], name="of scalars") for name in ("ADD", "MAXIMUM")),
    *(
        Case("RIGHT_SHIFT", [plain(kind, 9, 8), plain(kind, 9, 8)], [plain(kind, 9, 8)])
        for kind in (TensorType.INT8, TensorType.UINT8, SHORT, TensorType.UINT16, TensorType.INT32)
    ),
    Case("RIGHT_SHIFT", [constant(WIDE), int32(8)], [int32(8)], name="wide"),
    Case("RIGHT_SHIFT", [constant(WIDE), constant(np.full(8, 31, np.int32))], [int32(8)], name="of the sign"),
    Case("RIGHT_SHIFT", [int32(9, 8), constant(PLACES)], [int32(9, 8)], name="broadcast"),
    *(
        Case("STABLEHLO_SHIFT_LEFT", [plain(kind, 9, 8), constant(places)], [plain(kind, 9, 8)])
        for kind in (TensorType.INT8, SHORT, TensorType.INT32)
        for places in (np.tile(PLACES, (9, 1)).astype(kind.dtype),)
    ),
    Case("STABLEHLO_SHIFT_LEFT", [int32(8), constant(np.full(8, 31, np.int32))], [int32(8)], name="to the sign"),
    *(
        Case("BITCAST", [plain(source, 9, 8)], [plain(result, 9, 8)])
        for source, result in (
            (TensorType.INT8, TensorType.UINT8),
            (TensorType.UINT8, TensorType.INT8),
            (TensorType.BOOL, TensorType.UINT8),
            (TensorType.INT32, TensorType.INT32),
            (TensorType.FLOAT32, TensorType.FLOAT32),
            (SHORT, SHORT),
        )
    ),
    Case("BITCAST", [uint8(0.1, 3, 9, 8)], [int8(0.3, -7, 9, 8)], name="with scales"),
]

REFUSALS = {
    "bits of real numbers": (
        Case("BITWISE_XOR", [real(3), real(3)], [real(3)]),
        "operator 0 BITWISE_XOR: both inputs must be of integers, got TENSOR_FLOAT32",
    ),
    "more bits than there is memory for": (
        Case("BITWISE_XOR", [int32(1 << 10, 1 << 10), int32(1 << 10, 1 << 10)], [int32(1)]),
        r"operator 0 BITWISE_XOR: at most 524288 elements of 32 bits are supported, got \[1024, 1024\]",
    ),
    "bits of real numbers as integers": (
        Case("BITCAST", [real(3)], [int32(3)]),
        "operator 0 BITCAST: from a type to itself, or from bytes to bytes, is supported, got TENSOR_FLOAT32 to INT32",
    ),
    "two shapes": (
        Case("STABLEHLO_ADD", [real(2, 3), real(3)], [real(2, 3)]),
        r"operator 0 STABLEHLO_ADD: rhs \(input 1\) must be TENSOR_FLOAT32 \[2, 3\] as lhs, got TENSOR_FLOAT32 \[3\]",
    ),
}
