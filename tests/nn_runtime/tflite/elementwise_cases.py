# SPDX-License-Identifier: Apache-2.0
"""Functions of one or two elements, comparisons, logic, selection, activations, normalisations, reductions, types."""

from __future__ import annotations

import numpy as np

from nn_runtime.tflite.types import TensorType
from tests.nn_runtime.tflite.operator_cases import RELU, RELU6, RELU_N1_TO_1, SIGN_BIT, TANH, Case
from tests.nn_runtime.tflite.operator_file import Tensor, boolean, constant, int8, int32, int64, real, uint8

SHORT = (TensorType.INT16, TensorType.UINT16)
DIVISORS = np.array([7, -3, 2, 1, -5])
BEYOND = np.array([70000.0, -70000.0, 40000.0, -40000.0, 3.0, -3.0, 32767.0], np.float32)
POSITIVE = constant(np.linspace(0.1, 3, 10).reshape(2, 5))
UNARY = ("ABS", "NEG", "EXP", "SIN", "COS", "FLOOR", "CEIL", "SQUARE")
BUCKETS = "BucketizeOptions"
GRID = np.linspace(0.01, 1, 40, dtype=np.float32)
LARGE = constant(np.array([32767, -32768, 20000, -20000, 9000, 5, 0, -1, 12345], np.int16))
COMPARISONS = ("EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL")

CASES = [
    Case("ADD", [int64(2, 5), int64(2, 5)], [int64(2, 5)], "AddOptions", name="INT64"),
    Case("MUL", [int32(2, 5), constant([[3], [-4]])], [int32(2, 5)], "MulOptions"),
    *(
        Case(code, [kind(2, 9), kind(9)], [kind(2, 9)], f"{code.title()}Options", {"FusedActivationFunction": fused})
        for code in ("ADD", "SUB", "MUL")
        for fused in (RELU, RELU_N1_TO_1, RELU6)
        for kind in (int32, int64)
    ),
    *(
        Case("ADD", [kind(2, 9), kind(9)], [kind(2, 9)], "AddOptions", {"FusedActivationFunction": fused}, name=name)
        for fused, name in ((TANH, "TANH"), (SIGN_BIT, "SIGN_BIT"), (6, "unknown"))
        for kind in (real, int32, lambda *shape: uint8(0.1, 128, *shape))
    ),
    *(
        Case(code, [Tensor(TensorType.INT16, (2, 9)), LARGE], [Tensor(TensorType.INT16, (2, 9))], options, values)
        for code, options in (("ADD", "AddOptions"), ("MUL", "MulOptions"))
        for values in ({}, {"FusedActivationFunction": RELU})
    ),
    Case("DIV", [int32(2, 3), constant([2, -3, 1])], [int32(2, 3)], "DivOptions", {"FusedActivationFunction": RELU6}),
    Case("ADD_N", [real(2, 5), real(2, 5), real(2, 5)], [real(2, 5)], "AddNOptions"),
    Case("FLOOR_DIV", [int32(2, 9), constant([7, -3, 2, 1, -1, 4, 5, -8, 9])], [int32(2, 9)], "FloorDivOptions"),
    Case("FLOOR_DIV", [real(2, 3), constant([2.0, -3.0, 0.5])], [real(2, 3)], "FloorDivOptions"),
    Case("FLOOR_MOD", [int32(2, 9), constant([7, -3, 2, 1, -1, 4, 5, -8, 9])], [int32(2, 9)], "FloorModOptions"),
    Case("FLOOR_MOD", [real(40, 3), constant([0.7, -0.3, 2.5])], [real(40, 3)], "FloorModOptions"),
    Case("FLOOR_MOD", [real(3, 1), constant(GRID)], [real(3, 40)], "FloorModOptions", name="broadcast"),
    Case("FLOOR_MOD", [real(40, 9), real(9)], [real(40, 9)], "FloorModOptions", name="of the run"),
    Case("FLOOR_MOD", [real(5), real(4, 1)], [real(4, 5)], "FloorModOptions", name="of the run, broadcast"),
    *(
        Case(code, [Tensor(kind, (2, 5)), constant(DIVISORS.astype(kind.dtype))], [Tensor(kind, (2, 5))])
        for code in ("FLOOR_MOD", "FLOOR_DIV")
        for kind in (TensorType.INT8, TensorType.INT16)
    ),
    Case("SQUARED_DIFFERENCE", [real(2, 5), real(2, 1)], [real(2, 5)], "SquaredDifferenceOptions"),
    Case(
        "SQUARED_DIFFERENCE",
        [int8(0.05, 3, 2, 50), int8(0.05, 3, 2, 50)],
        [int8(0.3, -100, 2, 50)],
        "SquaredDifferenceOptions",
        steps=1,
    ),
    *(
        Case(code, [kind(2, 5), kind(5)], [kind(2, 5)], "MaximumMinimumOptions")
        for code in ("MAXIMUM", "MINIMUM")
        for kind in (real, int32, lambda *shape: int8(0.1, 3, *shape), lambda *shape: uint8(0.1, 3, *shape))
    ),
    Case("ATAN2", [real(2, 50), real(2, 50)], [real(2, 50)], "ATan2Options"),
    Case("POW", [POSITIVE, real(2, 5)], [real(2, 5)], "PowOptions"),
    *(
        Case("POW", [real(2, 5), constant(np.full(shape, exponent, np.float32))], [real(2, 5)], "PowOptions", name=name)
        for shape, exponent, name in (
            ((), 2, "square"),
            ((1, 1), 2, "square of a matrix"),
            ((1,), 3, "cube"),
            ((), 1, "itself"),
            ((), 14, "14"),
            ((), -1, "inverse"),
        )
    ),
    *(
        Case("POW", [POSITIVE, constant(np.float32(power))], [real(2, 5)], "PowOptions", name=f"{power}")
        for power in (0.5, -0.5, 1.5, 40)
    ),
    *(
        Case("POW", [int32(2, 5), constant(exponents)], [int32(2, 5)], "PowOptions", name=name)
        for exponents, name in (
            (np.int32(0), "0"),
            (np.int32(1), "1"),
            (np.int32(2), "2"),
            (np.int32(5), "5"),
            ([0, 1, 2, 3, 9], "several"),
        )
    ),
    Case("POW", [real(5), constant(np.full((1, 1), 2, np.float32))], [real(1, 5)], "PowOptions", name="2, of rank 2"),
    Case("POW", [int32(5), constant([[2], [3]])], [int32(2, 5)], "PowOptions", name="broadcast"),
    Case("POW", [int32(), constant(np.int32(3))], [int32()], "PowOptions", name="of a scalar"),
    *(
        Case(code, [kind(2, 50), other(2, 50)], [boolean(2, 50)], name=kind(1).type.name)
        for code in COMPARISONS
        for kind, other in (
            (real, real),
            (int32, int32),
            (lambda *shape: int8(0.1, 3, *shape), lambda *shape: int8(0.1, 3, *shape)),
        )
    ),
    Case("EQUAL", [boolean(2, 5), boolean(2, 5)], [boolean(2, 5)], name="BOOL"),
    Case("LESS", [uint8(0.1, 3, 2, 50), uint8(0.05, 90, 2, 50)], [boolean(2, 50)], name="two scales"),
    Case("LOGICAL_AND", [boolean(2, 5), boolean(5)], [boolean(2, 5)], "LogicalAndOptions"),
    Case("LOGICAL_OR", [boolean(2, 5), boolean(2, 5)], [boolean(2, 5)], "LogicalOrOptions"),
    Case("LOGICAL_NOT", [boolean(2, 5)], [boolean(2, 5)], "LogicalNotOptions"),
    *(
        Case(code, [real(2, 5)], [real(2, 5)])
        for code in ("ABS", "NEG", "EXP", "SIN", "COS", "FLOOR", "CEIL", "SQUARE")
    ),
    *(Case(code, [real(2, 50)], [real(2, 50)], name="NaN below 0") for code in ("LOG", "SQRT", "RSQRT")),
    Case("ABS", [int32(2, 5)], [int32(2, 5)]),
    Case("ABS", [int8(0.1, 3, 2, 90)], [int8(0.1, 3, 2, 90)], steps=1),
    Case("NEG", [int32(2, 5)], [int32(2, 5)]),
    Case("RSQRT", [int8(0.05, -128, 2, 90)], [int8(0.02, -128, 2, 90)], steps=1),
    Case("EXP", [int8(0.02, 3, 2, 90)], [int8(0.05, -128, 2, 90)], steps=1),
    Case("LOG", [int8(0.02, -128, 2, 90)], [int8(0.04, 80, 2, 90)], steps=1),
    *(Case(code, [real(2, 90)], [real(2, 90)]) for code in ("SIGN", "ROUND")),
    Case("SIGN", [int32(2, 90)], [int32(2, 90)]),
    Case("BUCKETIZE", [real(2, 3, 30)], [int32(2, 3, 30)], BUCKETS, {"Boundaries": [-3.5, -0.25, -0.25, 2.0]}),
    Case("BUCKETIZE", [int32(90)], [int32(90)], BUCKETS, {"Boundaries": [-4.5, 0.0, 7.0]}, name="of INT32"),
    Case("BUCKETIZE", [int64()], [int32()], BUCKETS, {"Boundaries": [-4.5, 0.0, 7.0]}, name="of INT64"),
    *(
        Case("CUMSUM", [kind(2, 7, 3), constant(np.int32(axis))], [kind(2, 7, 3)], "CumsumOptions", values, name=name)
        for kind in (real, int32, int64)
        for axis, values, name in (
            (1, {}, ""),
            (0, {"Exclusive": True}, "exclusive"),
            (-1, {"Reverse": True}, "reverse"),
            (1, {"Exclusive": True, "Reverse": True}, "exclusive, reverse"),
        )
    ),
    *(
        Case(
            "CUMSUM",
            [kind(2, 1, 2, 4, 3), constant(np.int32(3))],
            [kind(2, 1, 2, 4, 3)],
            "CumsumOptions",
            name="rank 5",
        )
        for kind in (real, int32)
    ),
    *(
        Case(
            "CUMSUM", [kind(3, 1), constant(np.int32(1))], [kind(3, 1)], "CumsumOptions", {"Exclusive": True}, name="0"
        )
        for kind in (real, int32)
    ),
    *(
        Case("FAKE_QUANT", [real(2, 90)], [real(2, 90)], "FakeQuantOptions", {**values, "NumBits": bits}, name=name)
        for values, bits, name in (
            ({"Min": -3.1, "Max": 2.7}, 8, "8 bits"),
            ({"Min": 0.0, "Max": 6.0}, 4, "4 bits"),
            ({"Min": -1.0, "Max": 0.5}, 2, "2 bits"),
            ({"Min": -8.0, "Max": 0.0}, 16, "16 bits"),
        )
    ),
    # Selection
    Case("SELECT", [boolean(2, 5), real(2, 5), real(2, 5)], [real(2, 5)], "SelectOptions"),
    Case("SELECT", [boolean(2), int8(0.1, 3, 2, 5), int8(0.1, 3, 2, 5)], [int8(0.1, 3, 2, 5)], "SelectOptions"),
    Case("SELECT_V2", [boolean(2, 1), real(1, 5), constant(np.float32(2))], [real(2, 5)], "SelectV2Options"),
    Case("SELECT_V2", [boolean(5), int32(2, 5), int32(2, 1)], [int32(2, 5)], "SelectV2Options"),
    Case("SELECT_V2", [boolean(5), boolean(2, 5), boolean(2, 1)], [boolean(2, 5)], "SelectV2Options"),
    Case(
        "ONE_HOT",
        [int32(2, 3), constant(np.int32(4)), constant(np.float32(2)), constant(np.float32(-1))],
        [real(2, 4, 3)],
        "OneHotOptions",
        {"Axis": 1},
    ),
    # Activations and normalisations
    Case("RELU_0_TO_1", [real(2, 9)], [real(2, 9)]),
    Case("RELU_0_TO_1", [int8(0.02, 3, 2, 90)], [int8(0.02, 3, 2, 90)]),
    Case("RELU_0_TO_1", [uint8(0.02, 103, 2, 90)], [uint8(0.004, 0, 2, 90)], name="rescaling"),
    Case("RELU_0_TO_1", [int8(0.02, 3, 2, 90)], [int8(0.003, -128, 2, 90)], name="rescaling below 1"),
    Case("ELU", [real(2, 9)], [real(2, 9)]),
    Case("ELU", [int8(0.05, 3, 2, 90)], [int8(0.04, -90, 2, 90)], steps=1),
    Case("PRELU", [real(1, 2, 3, 4), constant([[[0.3, -0.2, 1.5, 0.0]]])], [real(1, 2, 3, 4)]),
    Case(
        "PRELU",
        [uint8(0.1, 120, 1, 2, 3, 4), constant(np.array([[[3, 90, 200, 255]]], np.uint8), 0.02, 100)],
        [uint8(0.12, 110, 1, 2, 3, 4)],
    ),
    Case("LEAKY_RELU", [int8(0.1, 3, 2, 90)], [int8(0.08, -20, 2, 90)], "LeakyReluOptions", {"Alpha": 0.0}, name="0"),
    Case("LEAKY_RELU", [real(2, 9)], [real(2, 9)], "LeakyReluOptions", {"Alpha": 0.3}),
    Case("LEAKY_RELU", [int8(0.1, 3, 2, 90)], [int8(0.08, -20, 2, 90)], "LeakyReluOptions", {"Alpha": 0.3}),
    Case(
        "LEAKY_RELU", [uint8(0.1, 30, 2, 90)], [uint8(0.2, 20, 2, 90)], "LeakyReluOptions", {"Alpha": -0.3}, name="<0"
    ),
    Case("GELU", [real(2, 9)], [real(2, 9)], "GeluOptions", {"Approximate": True}),
    Case("GELU", [real(2, 90)], [real(2, 90)], "GeluOptions", name="exact"),
    Case("GELU", [int8(0.05, 3, 2, 90)], [int8(0.03, -90, 2, 90)], "GeluOptions", {"Approximate": True}, steps=1),
    Case("GELU", [uint8(0.05, 130, 2, 90)], [uint8(0.03, 30, 2, 90)], "GeluOptions", steps=1, name="exact"),
    Case("LOG_SOFTMAX", [real(2, 9)], [real(2, 9)], "LogSoftmaxOptions"),
    Case("LOG_SOFTMAX", [int8(0.1, 3, 2, 9)], [int8(16 / 256, 127, 2, 9)], "LogSoftmaxOptions", steps=1),
    Case("L2_NORMALIZATION", [real(2, 3, 9)], [real(2, 3, 9)], "L2NormOptions"),
    Case("L2_NORMALIZATION", [int8(0.1, 3, 200, 9)], [int8(1 / 128, 0, 200, 9)], "L2NormOptions"),
    Case("L2_NORMALIZATION", [uint8(0.1, 3, 300, 3)], [uint8(1 / 128, 128, 300, 3)], "L2NormOptions"),
    Case(
        "LOCAL_RESPONSE_NORMALIZATION",
        [real(1, 2, 3, 9)],
        [real(1, 2, 3, 9)],
        "LocalResponseNormalizationOptions",
        {"Radius": 2, "Bias": 1.5, "Alpha": 0.3, "Beta": 0.7},
        usual_kernels=True,
    ),
    # Reductions
    Case("SUM", [real(2, 3, 4), constant([0, -1])], [real(3)], "ReducerOptions"),
    Case(
        "SUM",
        [int8(0.1, 3, 2, 3, 4), constant([1])],
        [int8(0.2, 5, 2, 4)],
        "ReducerOptions",
        steps=1,
        usual_kernels=True,
    ),
    *(
        Case(code, [int32(3, 5, 4), constant(axes)], [int32(*shape)], "ReducerOptions", {"KeepDims": keeps}, name=name)
        for code in ("SUM", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN", "MEAN")
        for axes, shape, keeps, name in (
            ([-1], (3, 5), False, "the last axis"),
            ([0, 2], (1, 5, 1), True, "two axes"),
            ([2, 1, 0], (), False, "all axes"),
        )
    ),
    Case("SUM", [int64(3, 5), constant([1])], [int64(3)], "ReducerOptions"),
    Case("DIV", [int32(7, 9), constant([-7, -3, -2, -1, 1, 2, 3, 5, 1000])], [int32(7, 9)], "DivOptions"),
    Case("REDUCE_PROD", [real(2, 3, 4), constant([1])], [real(2, 1, 4)], "ReducerOptions", {"KeepDims": True}),
    Case("REDUCE_MAX", [real(2, 3, 4), constant([1, 2])], [real(2)], "ReducerOptions"),
    Case("REDUCE_MAX", [int8(0.1, 3, 2, 3, 4), constant([1])], [int8(0.1, 3, 2, 4)], "ReducerOptions"),
    Case("REDUCE_MIN", [uint8(0.1, 3, 2, 3, 4), constant([0])], [uint8(0.1, 3, 3, 4)], "ReducerOptions"),
    Case("REDUCE_MIN", [real(2, 3), constant([0, 1])], [real()], "ReducerOptions", name="to a scalar"),
    Case("REDUCE_ANY", [boolean(2, 3, 4), constant([1])], [boolean(2, 4)], "ReducerOptions"),
    Case("REDUCE_ALL", [boolean(2, 3, 2), constant([-1])], [boolean(2, 3)], "ReducerOptions"),
    *(
        Case(code, [boolean(3, 2, 4), constant([1])], [boolean(3, 4)], "ReducerOptions")
        for code in ("SUM", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN")
    ),
    Case("ARG_MIN", [real(3, 9), constant(np.int32(-1))], [int32(3)], "ArgMinOptions", {"OutputType": 2}),
    Case("ARG_MAX", [int8(0.1, 3, 3, 9), constant(np.int32(0))], [int32(9)], "ArgMaxOptions", {"OutputType": 2}),
    Case("ARG_MAX", [boolean(3, 9), constant(np.int32(1))], [int32(3)], "ArgMaxOptions", {"OutputType": 2}),
    # Types
    *(
        Case("CAST", [kind(5, 6)], [Tensor(short, (5, 6))], "CastOptions", name=f"from {kind(1).type.name}")
        for kind in (real, int32, int64, boolean, lambda *shape: int8(0.1, 3, *shape))
        for short in SHORT
    ),
    *(
        Case("CAST", [constant(numbers)], [Tensor(short, (7,))], "CastOptions", name=f"of {numbers.dtype} beyond")
        for numbers in (BEYOND, BEYOND.astype(np.int32))
        for short in SHORT
    ),
    *(
        Case("CAST", [Tensor(short, (5, 6))], [to(5, 6)], "CastOptions", name=f"to {to(1).type.name}")
        for short in SHORT
        for to in (real, int32, int64, boolean, lambda *shape: Tensor(TensorType.UINT8, shape))
    ),
    Case("CAST", [int64(5, 6)], [real(5, 6)], "CastOptions", name="from INT64"),
    Case("CAST", [int64(5, 6)], [int32(5, 6)], "CastOptions", name="from INT64"),
    Case("CAST", [boolean(5, 6)], [real(5, 6)], "CastOptions", name="from BOOL"),
    Case("CAST", [boolean(5, 6)], [int64(5, 6)], "CastOptions", name="from BOOL"),
    Case("CAST", [int32(5, 6)], [boolean(5, 6)], "CastOptions", name="to BOOL"),
    Case("CAST", [real(5, 6)], [int64(5, 6)], "CastOptions", name="to INT64"),
    Case("CAST", [int8(0.1, 3, 5, 6)], [int32(5, 6)], "CastOptions", name="from INT8"),
    Case("CAST", [int32(5, 6)], [Tensor(TensorType.UINT8, (5, 6))], "CastOptions", name="from INT32"),
    Case("CAST", [int8(0.1, 3, 5, 6)], [Tensor(TensorType.UINT8, (5, 6))], "CastOptions", name="from INT8"),
    Case("CAST", [uint8(0.1, 3, 5, 6)], [real(5, 6)], "CastOptions", name="from UINT8"),
    *(
        Case("CAST", [kind(5, 6)], [int8(0.1, 3, 5, 6)], "CastOptions", name=f"from {kind(1).type.name}")
        for kind in (real, int32, int64, boolean, lambda *shape: uint8(0.1, 3, *shape))
    ),
]
