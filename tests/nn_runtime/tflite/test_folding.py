# SPDX-License-Identifier: Apache-2.0
"""Integers that are known at conversion, against what LiteRT computes when it runs, and bounds of what is made."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import nn_runtime as nn
from nn_runtime.errors import BadData
from nn_runtime.tflite.types import TensorType
from tests.nn_runtime.tflite.operator_file import (
    Step,
    Tensor,
    constant,
    int32,
    random_inputs,
    real,
    reference,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.device import Device

GRID = constant(np.arange(6).reshape(2, 3))
GATHER, SPLIT_V, RESHAPE = "GatherOptions", "SplitVOptions", "ReshapeOptions"
Folded = tuple["Sequence[Tensor]", Step, "Sequence[Tensor]"]
FOLDED: dict[str, Folded] = {
    "SPLIT_V": (
        [GRID, constant([1, -1]), constant(np.int32(1))],
        Step("SPLIT_V", [0, 1, 2], [3, 4], SPLIT_V, {"NumSplits": 2}),
        [int32(2, 1), int32(2, 2)],
    ),
    "SPLIT": (
        [constant(np.int32(0)), GRID],
        Step("SPLIT", [0, 1], [2, 3], "SplitOptions", {"NumSplits": 2}),
        [int32(1, 3), int32(1, 3)],
    ),
    "UNPACK": (
        [GRID],
        Step("UNPACK", [0], [1, 2, 3], "UnpackOptions", {"Num": 3, "Axis": -1}),
        [int32(2), int32(2), int32(2)],
    ),
    "RESHAPE": ([GRID, constant([3, -1])], Step("RESHAPE", [0, 1], [2], RESHAPE), [int32(3, 2)]),
    "RESHAPE by an option": ([GRID], Step("RESHAPE", [0], [1], RESHAPE, {"NewShape": (6,)}), [int32(6)]),
    "SQUEEZE": (
        [constant(np.arange(3).reshape(1, 3, 1))],
        Step("SQUEEZE", [0], [1], "SqueezeOptions", {"SqueezeDims": (0,)}),
        [int32(3, 1)],
    ),
    "EXPAND_DIMS": ([GRID, constant(np.int32(-2))], Step("EXPAND_DIMS", [0, 1], [2]), [int32(2, 1, 3)]),
    "CONCATENATION": (
        [GRID, constant([[7], [8]]), GRID],
        Step("CONCATENATION", [0, 1, 2], [3], "ConcatenationOptions", {"Axis": -1}),
        [int32(2, 7)],
    ),
    "ADD": (
        [constant(np.array([[1], [20]])), constant([[3, 4, 5]])],
        Step("ADD", [0, 1], [2], "AddOptions"),
        [int32(2, 3)],
    ),
    "GATHER": ([GRID, constant([[2, 0]])], Step("GATHER", [0, 1], [2], GATHER, {"Axis": 1}), [int32(2, 1, 2)]),
    "GATHER by batch": (
        [constant(np.arange(24).reshape(2, 3, 4)), constant([[3], [1]])],
        Step("GATHER", [0, 1], [2], GATHER, {"Axis": 2, "BatchDims": 1}),
        [int32(2, 3, 1)],
    ),
    "BROADCAST_ARGS": ([constant([4, 1, 3]), constant([5, 1])], Step("BROADCAST_ARGS", [0, 1], [2]), [int32(3)]),
    "BROADCAST_ARGS of INT64": (
        [Tensor(TensorType.INT64, (2,), data=np.array([1, 0]))] * 2,
        Step("BROADCAST_ARGS", [0, 1], [2]),
        [Tensor(TensorType.INT64, (2,))],
    ),
    "STRIDED_SLICE with a new axis": (
        [GRID, *(constant([bound] * 3) for bound in (1, 2, 1))],
        Step("STRIDED_SLICE", [0, 1, 2, 3], [4], "StridedSliceOptions", {"NewAxisMask": 2, "EllipsisMask": 1}),
        [int32(2, 1, 1)],
    ),
    "NEG": ([GRID], Step("NEG", [0], [1]), [int32(2, 3)]),
    "FLOOR_MOD": ([GRID, constant(np.int32(-4))], Step("FLOOR_MOD", [0, 1], [2]), [int32(2, 3)]),
    "REDUCE_PROD over an axis named twice": (
        [GRID, constant([1, -1])],
        Step("REDUCE_PROD", [0, 1], [2], "ReducerOptions", {"KeepDims": True}),
        [int32(2, 1)],
    ),
    "SLICE": (
        [GRID, constant([1, 0]), constant([-1, 2])],
        Step("SLICE", [0, 1, 2], [3], "SliceOptions"),
        [int32(1, 2)],
    ),
    "FLOOR_DIV beyond 32 bits": (
        [constant([-(2**31)]), constant([-1])],
        Step("FLOOR_DIV", [0, 1], [2]),
        [int32(1)],
    ),
    "UNSORTED_SEGMENT_PROD": (
        [constant(np.arange(1, 9).reshape(4, 2)), constant([2, 0, -1, 2]), constant(np.int32(4))],
        Step("UNSORTED_SEGMENT_PROD", [0, 1, 2], [3], version=1),
        [int32(4, 2)],
    ),
    "MUL": ([GRID, constant(np.int32(-2))], Step("MUL", [0, 1], [2], "MulOptions"), [int32(2, 3)]),
}


@pytest.mark.parametrize("name", FOLDED)
def test_integers_have_the_values_that_litert_computes(name: str, reference_device: Device) -> None:
    inputs, step, outputs = FOLDED[name]
    first = len(inputs)
    results = range(first, first + len(outputs))
    tensors = [*inputs, *outputs, real(2), real(2)]
    source = len(tensors) - 2
    steps = [step, Step("RELU", [source], [source + 1])]
    file = write(tensors, steps, [source], [*results, source + 1])
    data = random_inputs([real(2)])
    network = nn.load(file)
    with network.compile(reference_device) as session:
        for result, expected in zip(session.run(data), reference(file, data), strict=True):
            np.testing.assert_array_equal(result, expected)
            assert result.dtype == expected.dtype


@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (0, 0)])
def test_nothing_is_gathered_of_nothing(shape: tuple[int, ...], reference_device: Device) -> None:
    indices = np.zeros(3 if shape[0] else 0, np.int32)
    tensors = [constant(np.zeros(shape, np.int32)), constant(indices), int32(indices.size, shape[1]), int32(2)]
    steps = [
        Step("GATHER", [0, 1], [2], GATHER),
        Step("SHAPE", [2], [3], "ShapeOptions", {"OutType": 2}),
        Step("RELU", [4], [5]),
    ]
    file = write([*tensors, real(1), real(1)], steps, [4], [3, 5])
    with nn.load(file).compile(reference_device) as session:
        np.testing.assert_array_equal(session.run(random_inputs([real(1)]))[0], [indices.size, shape[1]])


def frames() -> bytes:
    """Return a file that cuts rows [1, n] into overlapping frames of 4 every 2, as exporters write it for open n.

    SHAPE, then SPLIT_V into leading sizes, the last one, and what follows it: nothing.
    """
    zero, one, two = (constant(np.int32(number)) for number in range(3))
    tensors = [
        *(real(1, 1), zero, one, two, constant([1, 1, 0]), constant([-1])),  # 0 to 5
        *(int32(2), int32(1), int32(1), int32(0)),  # 6 shape, 7 leading sizes, 8 length, 9 the rest
        *(int32(), int32(), int32(1), constant([0, 0]), int32(2), constant([1, 1])),  # 10 n, 11 pairs, 12 [-1] ..
        *(int32(), int32(1), int32(1, 1), constant([[0, 1, 2, 3]]), int32(1, 4)),  # 16 count, 17 range, 18, 19, 20
        *(int32(), constant([-1, 1]), real(1, 1, 4), constant(np.zeros(0, np.int32))),  # 21 to 24
    ]
    steps = [
        Step("SHAPE", [0], [6], "ShapeOptions", {"OutType": 2}),
        Step("SPLIT_V", [6, 4, 1], [7, 8, 9], SPLIT_V, {"NumSplits": 3}),
        Step("RESHAPE", [8, 24], [10], RESHAPE),
        Step("FLOOR_DIV", [10, 3], [11]),
        Step("SUB", [11, 2], [16], "SubOptions"),
        Step("RANGE", [1, 16, 2], [17]),
        Step("RESHAPE", [17, 22], [18], RESHAPE),
        Step("MUL", [18, 3], [12], "MulOptions"),
        Step("ADD", [12, 19], [20], "AddOptions"),
        Step("GATHER", [0, 20], [23], "GatherOptions", {"Axis": 1}),
    ]
    return write(tensors, steps, [0], [23])


@pytest.mark.parametrize("length", [1, 5, 300])
def test_positions_of_a_row_whose_length_is_open(length: int, reference_device: Device) -> None:
    """SHAPE, the last size of it as a real number, and a RANGE up to that, as positional encodings begin."""
    zero, one = (constant(np.float32(number)) for number in range(2))
    tensors = [
        *(real(1, 1), constant([1]), constant([2]), constant([1]), zero, one),  # 0 to 5
        *(int32(2), int32(), real(), real(1), real(1, 1)),  # 6 shape, 7 length, 8 as a real number, 9 range, 10 sum
    ]
    steps = [
        Step("SHAPE", [0], [6], "ShapeOptions", {"OutType": 2}),
        Step("STRIDED_SLICE", [6, 1, 2, 3], [7], "StridedSliceOptions", {"ShrinkAxisMask": 1}),
        Step("CAST", [7], [8], "CastOptions"),
        Step("RANGE", [4, 8, 5], [9]),
        Step("ADD", [0, 9], [10], "AddOptions"),
    ]
    file, row = write(tensors, steps, [0], [10]), np.zeros((1, length), np.float32)
    with nn.load(file, shapes={0: row.shape}).compile(reference_device) as session:
        result = session.run(row)[0]
    np.testing.assert_array_equal(result, [np.arange(length)])
    np.testing.assert_array_equal(reference(file, [row])[0], result)


@pytest.mark.parametrize("length", [4, 11, 64])
def test_frames_of_a_row_whose_length_is_open(length: int, reference_device: Device) -> None:
    row = np.random.default_rng(2).uniform(-1, 1, (1, length)).astype(np.float32)
    expected = np.lib.stride_tricks.sliding_window_view(row, 4, axis=1)[:, ::2]
    network = nn.load(frames(), shapes={0: (1, length)})
    assert len(network.model.hal.main.operations) == 1
    with network.compile(reference_device) as session:
        np.testing.assert_array_equal(session.run(row)[0], expected)
    np.testing.assert_array_equal(reference(frames(), [row])[0], expected)


def split(outputs: Sequence[int], *steps: Step) -> bytes:
    """Return a file that splits its input [2, 4] into [2, 3], nothing and [2, 1]: tensors 3 to 5; 6 is [2, 4]."""
    tensors = [real(2, 4), constant([3, 0, 1]), constant(np.int32(1)), real(2, 3), real(2, 0), real(2, 1), real(2, 4)]
    parts = Step("SPLIT_V", [0, 1, 2], [3, 4, 5], SPLIT_V, {"NumSplits": 3})
    return write(tensors, [parts, *steps], [0], outputs)


@pytest.mark.parametrize(
    "file",
    [split([3, 5]), split([5, 6], Step("CONCATENATION", [4, 5, 4, 3], [6], "ConcatenationOptions", {"Axis": 1}))],
)
def test_parts_without_elements(file: bytes, reference_device: Device) -> None:
    """That nobody reads, or that are put together with others."""
    data = random_inputs([real(2, 4)])
    with nn.load(file).compile(reference_device) as session:
        for result, expected in zip(session.run(data), reference(file, data), strict=True):
            np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (split([6], Step("RELU", [4], [6])), r"operator 1 RELU: an empty input of shape \[2, 0\]"),
        (split([4]), r"operator 0 SPLIT_V: an empty result of shape \[2, 0\] is not supported"),
        (
            write([real(2), Tensor(TensorType.FLOAT32, (0, 4), data=np.zeros((0, 4), np.float32))], [], [0], [1]),
            r"output 't1', a constant: an empty result of shape \[0, 4\] is not supported",
        ),
        (
            split([6], Step("CONCATENATION", [4, 4], [6], "ConcatenationOptions", {"Axis": 1})),
            r"operator 1 CONCATENATION: an empty input of shape \[2, 0\] is not supported",
        ),
    ],
)
def test_nothing_is_computed_of_parts_without_elements(file: bytes, message: str) -> None:
    with pytest.raises(BadData, match=message):
        nn.load(file)


def known(inputs: Sequence[Tensor], step: Step, *results: Tensor) -> bytes:
    """Return a file with one operator on constants."""
    tensors = [*inputs, *results, real(1), real(1)]
    return write(tensors, [step, Step("RELU", [len(tensors) - 2], [len(tensors) - 1])], [len(tensors) - 2], [])


def sliced(begin: list[int], end: list[int], strides: list[int], **masks: int) -> bytes:
    """Return a file with a STRIDED_SLICE of the grid."""
    step = Step("STRIDED_SLICE", [0, 1, 2, 3], [4], "StridedSliceOptions", masks)
    return known([GRID, constant(begin), constant(end), constant(strides)], step, int32(1))


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (
            known([GRID, constant([4, -1])], Step("RESHAPE", [0, 1], [2], RESHAPE), int32(6)),
            r"RESHAPE: 6 elements cannot have shape \[4, -1\]",
        ),
        (
            known([GRID, constant([-1, -1])], Step("RESHAPE", [0, 1], [2], RESHAPE), int32(6)),
            r"6 elements cannot have shape \[-1, -1\]",
        ),
        (
            known([GRID, constant([-2, -3])], Step("RESHAPE", [0, 1], [2], RESHAPE), int32(6)),
            r"6 elements cannot have shape \[-2, -3\]",
        ),
        (
            known([GRID, constant([0, -1])], Step("RESHAPE", [0, 1], [2], RESHAPE), int32(6)),
            r"6 elements cannot have shape \[0, -1\]",
        ),
        (
            known([constant([7]), constant([-1, -1])], Step("RESHAPE", [0, 1], [2], RESHAPE), int32(1)),
            r"1 elements cannot have shape \[-1, -1\]",
        ),
        (
            known([constant(np.ones((1,) * 8, np.int32))], Step("PACK", [0], [1], "PackOptions"), int32(1)),
            "PACK: integer constants must have rank 8 at most, got 9",
        ),
        (
            known([GRID, constant([1] * 70 + [6])], Step("RESHAPE", [0, 1], [2], RESHAPE), int32(6)),
            r"RESHAPE: shape \(input 1\) must have 8 elements at most, got 71",
        ),
        (
            known([GRID], Step("UNPACK", [0], [1], "UnpackOptions", {"Num": 1}), int32(3)),
            "UNPACK: needs 2 outputs, one for each index of axis 0, got 1",
        ),
        (
            known(
                [GRID, constant([2, 2]), constant(np.int32(1))],
                Step("SPLIT_V", [0, 1, 2], [3], SPLIT_V),
                int32(2, 2),
            ),
            r"SPLIT_V: size_splits must be 1 sizes of sum 3, got \[2, 2\]",
        ),
        (
            known(
                [GRID, constant(np.zeros(0, np.int32)), constant(np.int32(1))],
                Step("SPLIT_V", [0, 1, 2], [3], SPLIT_V),
                int32(2, 3),
            ),
            r"SPLIT_V: size_splits must be 1 sizes of sum 3, got \[\]",
        ),
        (
            known(
                [GRID, constant([[1]])],
                Step("CONCATENATION", [0, 1], [2], "ConcatenationOptions", {"Axis": 1}),
                int32(2, 4),
            ),
            r"CONCATENATION: the inputs must have one shape but for axis 1, got \[\[2, 3\], \[1, 1\]\]",
        ),
        (
            known([GRID, constant([1, 2])], Step("ADD", [0, 1], [2], "AddOptions"), int32(2, 3)),
            r"ADD: the shapes must go together, got \[2, 3\] and \[2\]",
        ),
        (
            known([GRID], Step("SQUEEZE", [0], [1], "SqueezeOptions", {"SqueezeDims": (0,)}), int32(3)),
            r"SQUEEZE: squeeze_dims must name sizes 1 of \[2, 3\], got \[0\]",
        ),
        (
            known(
                [GRID, constant([-2, 5]), constant(np.int32(1))],
                Step("SPLIT_V", [0, 1, 2], [3, 4], SPLIT_V),
                *(int32(2, 3), int32(2, 3)),
            ),
            r"SPLIT_V: size_splits must be 2 sizes of sum 3, got \[-2, 5\]",
        ),
        (
            known([GRID, constant([1])], Step("SPLIT", [1, 0], [2], "SplitOptions", {"NumSplits": 3}), int32(2, 1)),
            "SPLIT: must have 3 outputs, got 1",
        ),
        (
            known([GRID, constant(np.zeros(0, np.int32)), constant([1])], Step("SPLIT_V", [0, 1, 2], [], SPLIT_V)),
            r"SPLIT_V: size_splits must be 0 sizes of sum 3, got \[\]",
        ),
        (
            known(
                [GRID, constant([1])],
                Step("SPLIT", [1, 0], [2, 3], "SplitOptions", {"NumSplits": 2}),
                int32(2, 1),
                int32(2, 1),
            ),
            "SPLIT: 3 integer constants cannot be split into 2 equal parts",
        ),
        (
            known([GRID, constant([1, 2])], Step("PACK", [0, 1], [2], "PackOptions"), int32(2)),
            "PACK: the inputs must have one shape",
        ),
        (known([], Step("CONCATENATION", [], [0]), int32(2)), r"CONCATENATION: values \(input 0\) is missing"),
        (
            sliced([0, 0, 0], [1, 1, 1], [1, 1, 1]),
            "begin, end and strides must have one length of at most 2, got 3, 3, 3",
        ),
        (sliced([0], [1, 1], [1]), "begin, end and strides must have one length of at most 2, got 1, 2, 1"),
        (sliced([0, 0], [1, 1], [1, 0]), r"strides must not be 0, got \[1, 0\]"),
        (sliced([0, 0], [1, 1], [1, 1], EllipsisMask=3), "one ellipsis is supported at most, got 2"),
        (sliced([2], [3], [1], ShrinkAxisMask=1), "an axis that is dropped must have one element"),
        *(
            (
                known([GRID, constant(begin), constant(size)], Step("SLICE", [0, 1, 2], [3], "SliceOptions"), int32(1)),
                rf"SLICE: begin and size must fit \[2, 3\], got \{begin} and \{size}",
            )
            for begin, size in (
                *(([0], [1]), ([0, 0], [1]), ([-1, 0], [1, 1]), ([0, 0], [-2, 1])),
                *(([1, 0], [2, 1]), ([0, 4], [1, -1]), ([2**31 - 1, 0], [2**31 - 1, 1])),
            )
        ),
        *(
            (
                known([constant(np.int32(at)) for at in bounds], Step("RANGE", [0, 1, 2], [3]), int32(1)),
                rf"RANGE: a range must have at most 1048576 elements, got {bounds[0]} to {bounds[1]} by {bounds[2]}",
            )
            for bounds in ((0, 4, 0), (0, 1048577, 1), (2**31 - 1, -(2**31), -2))
        ),
        *(
            (
                known(
                    [GRID, constant(places), constant(np.int32(count))],
                    Step("UNSORTED_SEGMENT_PROD", [0, 1, 2], [3], version=1),
                    int32(1),
                ),
                message,
            )
            for places, count, message in (
                ([0, 1, 1], 4, r"segment_ids \(input 1\) must be below 4, of a shape that \[2, 3\] begins with"),
                ([0, 4], 4, r"segment_ids \(input 1\) must be below 4"),
                ([0, 1], (1 << 20) + 1, "at most 1048576 integer constants are computed, got 1048577 segments"),
                ([-3, -4], -2, "at most 1048576 integer constants are computed, got -2 segments"),
            )
        ),
        *(
            (
                known([GRID, constant([[2], [0]])], Step(code, [0, 1], [2]), int32(2, 3)),
                rf"{code}: input1 \(input 1\) must not be 0",
            )
            for code in ("FLOOR_DIV", "FLOOR_MOD")
        ),
        (
            known(
                [constant(np.zeros((2000, 1), np.int32)), constant(np.zeros(2000, np.int32))],
                Step("ADD", [0, 1], [2], "AddOptions"),
                int32(2),
            ),
            r"ADD: at most 1048576 integer constants are computed, got \[2000, 2000\]",
        ),
        (
            known(
                [constant(np.zeros((1, 2000), np.int32)), constant(np.zeros(2000, np.int32))],
                Step("GATHER", [0, 1], [2], GATHER),
                int32(2),
            ),
            r"GATHER: at most 1048576 integer constants are computed, got \[2000, 2000\]",
        ),
        (
            known([GRID, constant([3])], Step("GATHER", [0, 1], [2], GATHER, {"Axis": 1}), int32(2)),
            r"GATHER: indices \(input 1\) must be in \[0, 3\)",
        ),
    ],
)
def test_integers_that_make_no_sense_are_refused(file: bytes, message: str) -> None:
    with pytest.raises(BadData, match=message):
        nn.load(file)


def growing(steps: int) -> bytes:
    """Double a vector of four integers again and again."""
    grown = [constant(np.arange(4, dtype=np.int32)), *[int32(4)] * steps, real(1), real(1)]
    double = [Step("CONCATENATION", [at, at], [at + 1], "ConcatenationOptions") for at in range(steps)]
    return write(grown, [*double, Step("RELU", [steps + 1], [steps + 2])], [steps + 1], [steps + 2])


def long_join(count: int) -> bytes:
    """Join an input of a million integers with itself."""
    step = Step("CONCATENATION", [0] * count, [1], "ConcatenationOptions")
    return write([int32(1, 1 << 20), int32(1)], [step], [0], [1])


def wide_border() -> bytes:
    """Put a million integers around each of five dimensions."""
    tensors = [int32(1, 1, 1, 1, 1), constant([[1 << 20, 0]] * 5), int32(1)]
    return write(tensors, [Step("PAD", [0, 1], [2], "PadOptions")], [0], [2])


def large_ranges(count: int) -> bytes:
    """Make many vectors of a million integers."""
    tensors: list[Any] = [constant(np.int32(0)), constant(np.int32(1)), constant(np.int32(1 << 20)), real(1), real(1)]
    steps = [Step("RANGE", [0, 2, 1], [5 + at]) for at in range(count)]
    return write([*tensors, *[int32(1)] * count], [*steps, Step("RELU", [3], [4])], [3], [4])


def large_zeros(count: int) -> bytes:
    """Make many tensors of zeros of an input's shape."""
    shape = (1, 1 << 20)
    steps = [Step("ZEROS_LIKE", [0], [1 + at]) for at in range(count)]
    return write([real(*shape)] * (count + 1), steps, [0], [count])


def large_transforms(count: int) -> bytes:
    """Ask for many matrices of waves."""
    tensors = [real(1, 1024), constant([1, 1 << 20])]
    bins, steps = (1 << 19) + 1, []
    for _ in range(count):
        transform = len(tensors)
        tensors += [Tensor(TensorType.COMPLEX64, (1, bins)), real(1, bins)]
        steps += [Step("RFFT2D", [0, 1], [transform]), Step("REAL", [transform], [transform + 1])]
    return write(tensors, steps, [0], [3])


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (growing(60), "operator 18 CONCATENATION: more than 1048576 elements of TENSOR_INT32 are not supported"),
        (long_join(600), "operator 0 CONCATENATION: more than 1048576 elements of TENSOR_INT32 are not supported"),
        (wide_border(), "operator 0 PAD: more than 1048576 elements of TENSOR_INT32 are not supported"),
        (large_ranges(100), "operator 64 RANGE: more than 67108864 elements of constants that are not in the file"),
        (large_zeros(100), "operator 64 ZEROS_LIKE: more than 67108864 elements of constants"),
        (large_transforms(20), "operator 25 REAL: more than 67108864 elements of constants"),
    ],
)
def test_small_files_cannot_ask_for_much_memory(file: bytes, message: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(BadData, match=message):
            nn.load(file)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 30


LONG = constant(np.full(100_000, 2**31 - 1, np.int32))


@pytest.mark.parametrize(
    "file",
    [
        write([real(6), LONG, real(6)], [Step("RESHAPE", [0, 1], [2], RESHAPE)], [0], [2]),
        write([real(6), LONG, real(6)], [Step("TILE", [0, 1], [2])], [0], [2]),
        write([real(6), LONG, real(6)], [Step("BROADCAST_TO", [0, 1], [2])], [0], [2]),
        write([real(6), LONG, real(6)], [Step("TRANSPOSE", [0, 1], [2])], [0], [2]),
        write([real(6), LONG, real(6)], [Step("SLICE", [0, 1, 1], [2])], [0], [2]),
        write([real(6), LONG, real(6)], [Step("STRIDED_SLICE", [0, 1, 1, 1], [2], "StridedSliceOptions")], [0], [2]),
        write([real(), LONG, real(6)], [Step("FILL", [1, 0], [2])], [0], [2]),
        write([real(6), real(6)], [Step("RESHAPE", [0], [1], RESHAPE, {"NewShape": [2**31 - 1] * 100_000})], [0], [1]),
    ],
)
def test_shapes_of_many_dimensions_are_refused_at_once(file: bytes) -> None:
    """Their product alone would take minutes."""
    with pytest.raises(BadData, match=r"must have 8 elements at most, got 100000"):
        nn.load(file)
