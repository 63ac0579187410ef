# SPDX-License-Identifier: Apache-2.0
"""Slices at places, gaps between elements, windows: STABLEHLO_GATHER, STABLEHLO_PAD, DILATE, REDUCE_WINDOW."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.tflite.types import TensorType
from tests.nn_runtime.tflite.operator_cases import Case
from tests.nn_runtime.tflite.operator_file import Tensor, boolean, constant, int8, int32, int64, real, uint8

if TYPE_CHECKING:
    from collections.abc import Sequence

ADD, MUL, MINIMUM, MAXIMUM, ALL, ANY = range(1, 7)
INFINITY = float("inf")


def slices(
    operand: Tensor,
    indices: Tensor,
    result: Tensor,
    offsets: list[int],
    collapsed: list[int],
    axes: list[int],
    sizes: list[int],
    vector: int = 1,
    name: str = "",
) -> Case:
    values: dict[str, int | Sequence[int]] = {
        "OffsetDims": offsets,
        "CollapsedSliceDims": collapsed,
        "StartIndexMap": axes,
        "IndexVectorDim": vector,
        "SliceSizes": sizes,
    }
    return Case("STABLEHLO_GATHER", [operand, indices], [result], "StablehloGatherOptions", values, name=name)


def padded(source: Tensor, value: Tensor, low: list[int], high: list[int], between: list[int], name: str = "") -> Case:
    values: dict[str, Sequence[int]] = {
        "EdgePaddingLow": low,
        "EdgePaddingHigh": high,
        "InteriorPadding": between,
    }
    return Case("STABLEHLO_PAD", [source, value], [source], "StablehloPadOptions", values, name=name)


def wide(numbers: Sequence[int]) -> Tensor:
    return Tensor(TensorType.INT64, (len(numbers),), data=np.array(numbers, np.int64))


def reduced(
    source: Tensor,
    initial: Tensor,
    function: int,
    sizes: Sequence[int],
    strides: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    name: str = "",
) -> Case:
    ones = [1] * len(sizes)
    windows = [wide(sizes), wide(strides or ones), wide(dilations or ones)]
    values = {"ReduceFunction": function}
    return Case("REDUCE_WINDOW", [source, initial, *windows], [source], "ReduceWindowOptions", values, name=name)


def short(*shape: int) -> Tensor:
    return Tensor(TensorType.INT16, shape)


def byte(*shape: int) -> Tensor:
    return Tensor(TensorType.UINT8, shape)


def signed_byte(*shape: int) -> Tensor:
    return Tensor(TensorType.INT8, shape)


def number(kind: TensorType, value: float) -> Tensor:
    return Tensor(kind, (), data=np.array(value, kind.dtype))


SEVEN = number(TensorType.FLOAT32, 7)
VOLUME = real(3, 4, 2)
TABLE = constant([[0, 2], [9, 1], [-3, 5]])
ROWS = ([1], [0], [0], [1, 3])
CASES = [
    # Slices at places
    *(
        slices(kind(5, 3), indices, kind(4, 3), *ROWS, name=name)
        for kind in (real, int32, int64, boolean, lambda *shape: int8(0.1, 3, *shape))
        for indices, name in ((int32(4, 1), "rows"), (constant([[4], [0], [7], [-1]]), "known rows"))
    ),
    slices(real(5, 3), int64(4, 1), real(4, 3), *ROWS, name="by INT64"),
    slices(real(5, 3), constant([[1], [2]]), real(2, 3), *ROWS, name="neighbours"),
    slices(real(5, 3), constant([2]), real(3), [0], [0], [0], [1, 3], vector=0, name="one row"),
    slices(real(5, 3), constant([[4, 1], [0, 9]]), real(2), [], [0, 1], [0, 1], [1, 1], name="elements"),
    slices(real(5, 3), int32(2), real(), [], [0, 1], [0, 1], [1, 1], vector=0, name="an element"),
    slices(VOLUME, int32(2), real(2, 2, 2), [0, 1, 2], [], [0, 1], [2, 2, 2], vector=0, name="a block"),
    slices(VOLUME, int32(3, 2), real(3, 2, 2), [1, 2], [0], [1, 0], [1, 2, 2], name="turned axes"),
    slices(VOLUME, TABLE, real(3, 2, 1), [1, 2], [0], [0, 1], [1, 2, 1], name="parts of rows"),
    slices(VOLUME, int32(2, 3), real(3, 4, 1), [1, 2], [0], [0, 2], [1, 4, 1], vector=0, name="vectors first"),
    slices(VOLUME, int32(2, 5, 2), real(2, 3, 5, 2), [1, 3], [1], [0, 1], [3, 1, 2], vector=2, name="places between"),
    slices(VOLUME, int32(5, 1), real(4, 5, 2), [0, 2], [0], [0], [1, 4, 2], name="places in the middle"),
    slices(VOLUME, constant([[0], [2]]), real(4, 2, 2), [0, 1], [0], [0], [1, 4, 2], name="places at the end"),
    slices(
        real(1, 9, 2, 3, 2), int32(4, 1), real(1, 4, 2, 3, 2), [0, 2, 3, 4], [1], [1], [1, 1, 2, 3, 2], name="rank 5"
    ),
    # Gaps
    *(
        Case("DILATE", [kind(2, 3, 2), constant([2, 1, 3]), number(kind(1).type, value)], [kind(1)])
        for kind in (real, int32, int64, boolean, short, byte)
        for value in (0, 1)
    ),
    Case("DILATE", [int8(0.1, 3, 4), constant([3]), constant(np.int8(-7), 0.1, 3)], [int8(0.1, 3, 1)], name="scale"),
    Case("DILATE", [real(3), constant([4]), real()], [real(1)], name="of the run"),
    Case("DILATE", [boolean(3), constant([4]), boolean()], [boolean(1)], name="of the run"),
    Case("DILATE", [real(2, 1, 2, 3, 2, 2), constant([2, 3, 1, 2, 1, 2]), SEVEN], [real(1)], name="rank 6"),
    Case("DILATE", [real(2, 3), constant([1, 1]), SEVEN], [real(1)], name="without gaps"),
    *(
        padded(kind(3, 4), number(kind(1).type, 1), low, high, between, name=name)
        for kind in (real, int32, boolean, signed_byte)
        for low, high, between, name in (
            ([1, 0], [2, 3], [0, 0], "around"),
            ([0, 1], [1, 0], [2, 1], "between"),
            ([-1, -2], [0, -1], [1, 2], "cut off"),
            ([-2, 1], [3, -4], [0, 2], "all"),
            ([-4, 0], [3, 0], [0, 0], "beyond"),
        )
    ),
    padded(uint8(0.1, 3, 3, 4), constant(np.uint8(9), 0.1, 3), [1, -1], [0, 2], [0, 1], name="scale"),
    padded(real(3, 4), real(), [1, -1], [0, 2], [0, 1], name="of the run"),
    padded(int64(3), number(TensorType.INT64, -5), [1], [0], [2]),
    padded(real(2, 1, 3, 2, 4), SEVEN, [1, 0, -1, 0, 2], [0, 1, 2, 0, 0], [1, 0, 2, 0, 0], name="rank 5"),
    # Windows
    *(
        reduced(kind(5, 6), number(kind(1).type, value), function, [2, 3], [2, 1], [1, 2], name=f"{function}")
        for function, value in ((ADD, 0), (MUL, 1), (MINIMUM, 9), (MAXIMUM, -9))
        for kind in (real, int32, int64)
    ),
    *(
        reduced(Tensor(kind, (5, 6)), number(kind, 3), function, [2, 3], name=f"{function}")
        for function in (ADD, MUL, MINIMUM, MAXIMUM)
        for kind in (TensorType.INT8, TensorType.UINT8, TensorType.INT16)
    ),
    *(
        reduced(boolean(5, 6), number(TensorType.BOOL, value), function, [2, 2], name=f"{function} {value}")
        for function in (ADD, MUL, MINIMUM, MAXIMUM, ALL, ANY)
        for value in (0, 1)
    ),
    *(
        reduced(kind(1, 7, 8, 3), initial, function, [1, 3, 2, 1], [1, 2, 2, 1], name=f"{function} of images")
        for kind, function, initial in (
            (real, MAXIMUM, number(TensorType.FLOAT32, -INFINITY)),
            (real, ADD, number(TensorType.FLOAT32, 0)),
            (signed_byte, MAXIMUM, number(TensorType.INT8, -128)),
        )
    ),
    reduced(real(7), real(), ADD, [3], name="from a number of the run"),
    reduced(real(2, 1, 6, 2, 3), number(TensorType.FLOAT32, 0), ADD, [1, 1, 3, 1, 2], name="rank 5"),
]  # fmt: skip

ZERO = number(TensorType.FLOAT32, 0)
REFUSALS = {
    "slices beyond the operand": (
        slices(real(5, 3), int32(4, 1), real(4, 3), [1], [0], [0], [1, 4]),
        r"operator 0 STABLEHLO_GATHER: slice_sizes must be 1 to \[5, 3\], got \[1, 4\]",
    ),
    "axes that are collapsed": (
        slices(real(5, 3), int32(4, 1), real(4, 3), [1], [0], [0], [2, 3]),
        r"operator 0 STABLEHLO_GATHER: collapsed_slice_dims must have slices of size 1, got \[0\]",
    ),
    "axes of an index": (
        slices(real(5, 3), int32(4, 2), real(4, 3), *ROWS),
        r"operator 0 STABLEHLO_GATHER: start_indices .* must be integers with 1 along index_vector_dim 1, got ",
    ),
    "one axis twice": (
        slices(real(5, 3), int32(4, 2), real(4, 3), [1], [0], [0, 0], [1, 3]),
        r"operator 0 STABLEHLO_GATHER: start_index_map must be different axes of 2, got \[0, 0\]",
    ),
    "axes of the result": (
        slices(real(5, 3), int32(4, 1), real(4, 3), [2], [0], [0], [1, 3]),
        r"operator 0 STABLEHLO_GATHER: offset_dims must be 1 rising axes of 2, got \[2\]",
    ),
    "indices of real numbers": (
        slices(real(5, 3), real(4, 1), real(4, 3), *ROWS),
        "operator 0 STABLEHLO_GATHER: start_indices .* must be integers .*, got TENSOR_FLOAT32",
    ),
    "no gap": (
        Case("DILATE", [real(2, 3), constant([1, 0]), ZERO], [real(1)]),
        r"operator 0 DILATE: dilations \(input 1\) must be 2 numbers >= 1, got \[1, 0\]",
    ),
    "several numbers in a gap": (
        Case("DILATE", [real(2, 3), constant([1, 2]), real(2)], [real(1)]),
        r"operator 0 DILATE: the padding value must be one TENSOR_FLOAT32, got TENSOR_FLOAT32 \[2\]",
    ),
    "nothing left": (
        padded(real(3), ZERO, [-2], [-1], [0]),
        r"operator 0 STABLEHLO_PAD: an empty input or result is not supported, got \[3\] and \[0\]",
    ),
    "gap below 0": (
        padded(real(3), ZERO, [0], [0], [-1]),
        r"operator 0 STABLEHLO_PAD: interior_padding must be >= 0, got \[-1\]",
    ),
    "edges of other axes": (
        padded(real(3), ZERO, [0, 1], [0], [1]),
        r"operator 0 STABLEHLO_PAD: edge_padding_low must be 1 numbers, got \[0, 1\]",
    ),
    "more integers around than are placed": (
        padded(int32(3), number(TensorType.INT32, 0), [1 << 21], [0], [0]),
        "operator 0 STABLEHLO_PAD: more than 1048576 elements of TENSOR_INT32 are not supported",
    ),
    "logic of numbers": (
        reduced(real(5), ZERO, ALL, [2]),
        "operator 0 REDUCE_WINDOW: reduce_function must be 1 to 4, or of BOOL 5 or 6, got 5",
    ),
    "windows of other axes": (
        reduced(real(5), ZERO, ADD, [2, 2]),
        r"operator 0 REDUCE_WINDOW: window_dimensions \(input 2\) must be 1 for each of 1 axes, .*, got \[2, 2\]",
    ),
    "more integers than are taken one by one": (
        reduced(short((1 << 31) - 1), number(TensorType.INT16, 0), ADD, [2]),
        "operator 0 REDUCE_WINDOW: more than 1048576 elements of TENSOR_INT32 are not supported",
    ),
    "beginning of another type": (
        reduced(real(5), number(TensorType.INT32, 0), ADD, [2]),
        r"operator 0 REDUCE_WINDOW: initial value \(input 1\) must be one TENSOR_FLOAT32, got TENSOR_INT32 \[\]",
    ),
}
