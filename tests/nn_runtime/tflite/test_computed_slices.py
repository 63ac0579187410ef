# SPDX-License-Identifier: Apache-2.0
"""SLICE and STRIDED_SLICE that begin where the run says, against LiteRT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import nn_runtime as nn
from nn_runtime.errors import BadData, OperationFailed
from tests.nn_runtime.tflite.operator_cases import Case
from tests.nn_runtime.tflite.operator_file import (
    Graph,
    Step,
    Tensor,
    boolean,
    constant,
    int8,
    int32,
    int64,
    random_inputs,
    real,
    reference,
    write,
    write_graphs,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.device import Device

OPTIONS = "StridedSliceOptions"
X = np.arange(24, dtype=np.float32).reshape(6, 4)


def assert_as_litert(file: bytes, inputs: Sequence[Any], device: Device) -> None:
    with nn.load(file).compile(device) as session:
        result = session.run(list(inputs))[0]
    np.testing.assert_array_equal(result, reference(file, inputs)[0])


@pytest.mark.parametrize(
    ("source", "size", "begins"),
    [
        (real(6, 4), (2, 3), [(0, 0), (4, 1), (2, 0)]),
        (int8(0.1, 3, 6, 4), (2, 1), [(4, 3)]),
        (int32(6, 4), (1, 4), [(5, 0)]),
        (boolean(6, 4), (5, 2), [(1, 2)]),
        (real(2, 3, 2, 4, 2), (1, 2, 2, 3, 2), [(1, 1, 0, 1, 0)]),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", [int32, int64])
def test_the_place_of_a_slice_may_be_computed(
    source: Tensor, size: tuple[int, ...], begins: Sequence[tuple[int, ...]], kind: Any, reference_device: Device
) -> None:
    result = Tensor(source.type, size, source.scale, source.zero_point)
    whole = kind(len(size))
    sizes = Tensor(whole.type, whole.shape, data=np.array(size, whole.type.dtype))
    file, _ = Case("SLICE", [source, whole, sizes], [result], "SliceOptions").file()
    for begin in begins:
        data = [*random_inputs([source]), np.array(begin, whole.type.dtype)]
        assert_as_litert(file, data, reference_device)


@pytest.mark.parametrize("begin", [(5, 0), (-1, 0), (0, 3), (100, 0)])
def test_a_computed_slice_that_leaves_the_input_fails(begin: tuple[int, int], device: Device) -> None:
    file, _ = Case("SLICE", [real(6, 4), int32(2), constant([2, 2])], [real(2, 2)], "SliceOptions").file()
    with nn.load(file).compile(device) as session, pytest.raises(OperationFailed, match="GATHER: indices"):
        session.run([X, np.array(begin, np.int32)])


def of_vectors(
    *vectors: Step, size: Sequence[int], values: dict[str, int] | None = None, strides: Sequence[int] = (1, 1)
) -> bytes:
    """Return a file that slices rows of X: from tensor 4 up to tensor 5, which are made of the input 1."""
    tensors = [real(6, 4), int32(), constant(np.int32(2)), int32(), int32(2), int32(2)]
    more = [constant(np.int32(0)), constant(np.int32(4)), constant(strides), real(*size)]
    step = Step("STRIDED_SLICE", [0, 4, 5, 8], [9], OPTIONS, values or {})
    return write([*tensors, *more], [*vectors, step], [0, 1], [9])


def pack(first: int, second: int, result: int) -> Step:
    return Step("PACK", [first, second], [result], "PackOptions", {"ValuesCount": 2})


NEXT_BUT_ONE = Step("ADD", [1, 2], [3], "AddOptions")
BEFORE_LAST = Step("SUB", [1, 2], [3], "SubOptions")
ROWS = [NEXT_BUT_ONE, pack(1, 6, 4), pack(3, 7, 5)]


@pytest.mark.parametrize(
    ("file", "firsts"),
    [
        (of_vectors(*ROWS, size=(2, 4)), [0, 1, 4, -3, -6]),
        (of_vectors(BEFORE_LAST, pack(3, 6, 4), pack(1, 7, 5), size=(2, 4)), [2, 6, -1, -4]),
        (of_vectors(*ROWS, size=(1, 4), strides=[2, 1]), [0, 4, 5, -3]),
        (of_vectors(*ROWS, size=(2, 2), strides=[1, 2]), [3]),
        (of_vectors(*ROWS, size=(4,), values={"ShrinkAxisMask": 1}), [0, 5, -1, -6, -9]),
        (of_vectors(*ROWS, size=(2,), values={"ShrinkAxisMask": 2}), [3, -3]),
        (of_vectors(*ROWS, size=(2, 1, 4), values={"NewAxisMask": 2}), [0, 4]),
        (of_vectors(*ROWS, size=(6, 4), values={"BeginMask": 1, "EndMask": 1}), [0, 9]),
    ],
    ids=["rows", "rows before", "every second", "columns", "one row", "one column", "new axis", "masked"],
)
def test_a_slice_of_known_length_may_begin_anywhere(
    file: bytes, firsts: Sequence[int], reference_device: Device
) -> None:
    for first in firsts:
        assert_as_litert(file, [X, np.array(first, np.int32)], reference_device)


@pytest.mark.parametrize("first", [5, 6, -1, -2, -7])
def test_a_slice_that_would_be_shorter_fails(first: int, device: Device) -> None:
    file = of_vectors(*ROWS, size=(2, 4))
    with nn.load(file).compile(device) as session, pytest.raises(OperationFailed, match="GATHER: indices"):
        session.run([X, np.array(first, np.int32)])


def test_ends_may_be_offsets(reference_device: Device) -> None:
    tensors = [real(6, 4), int32(2), constant([2, 3]), constant([1, 1])]
    file, _ = Case("STRIDED_SLICE", tensors, [real(2, 3)], OPTIONS, {"Offset": True}).file()
    assert_as_litert(file, [X, np.array([3, 1], np.int32)], reference_device)


def test_vectors_may_be_made_in_other_ways(reference_device: Device) -> None:
    """x[i : i + 2] by RESHAPE, EXPAND_DIMS and CONCATENATION of vectors."""
    numbers = [constant(np.int32(2)), int32(), constant([1]), int32(1), constant(np.int32(0)), int32(1), constant([0])]
    tensors = [real(6, 4), int32(), *numbers, int32(2), int32(2), constant([1, 1]), real(2, 4)]
    steps = [
        Step("ADD", [2, 1], [3], "AddOptions"),
        Step("RESHAPE", [1, 4], [5]),
        Step("EXPAND_DIMS", [3, 6], [7]),
        Step("CONCATENATION", [5, 8], [9], "ConcatenationOptions"),
        Step("CONCATENATION", [7, 8], [10], "ConcatenationOptions"),
        Step("STRIDED_SLICE", [0, 9, 10, 11], [12], OPTIONS, {"EndMask": 2}),
    ]
    assert_as_litert(write(tensors, steps, [0, 1], [12]), [X, np.array(3, np.int32)], reference_device)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (of_vectors(*ROWS, size=(1, 4), values={"EndMask": 1}), r"end \(input 2\) must be given"),
        (of_vectors(*ROWS, size=(1, 4), values={"BeginMask": 1}), r"end \(input 2\) must be a constant where"),
        (of_vectors(NEXT_BUT_ONE, pack(1, 6, 4), pack(7, 7, 5), size=(1, 4)), "as much more than begin"),
        (of_vectors(NEXT_BUT_ONE, pack(3, 6, 4), pack(1, 7, 5), size=(1, 4)), "1 to 6 elements .* got -2 by 1"),
        (of_vectors(*ROWS, size=(2, 4), strides=[-1, 1]), "1 to 6 elements .* forwards, got 2 by -1"),
        (
            Case("SLICE", [real(6, 4), int32(2), constant([2, -1])], [real(2, 4)], "SliceOptions").file()[0],
            r"size \(input 2\) must be 1 to \[6, 4\] where the run computes begin, got \[2, -1\]",
        ),
        (
            Case("SLICE", [real(6, 4), real(2), constant([2, 1])], [real(2, 1)], "SliceOptions").file()[0],
            r"begin \(input 1\) must be 8 integers at most, got TENSOR_FLOAT32 \[2\]",
        ),
    ],
)
def test_lengths_that_only_the_run_knows_are_refused(file: bytes, message: str) -> None:
    with pytest.raises(BadData, match=message):
        nn.load(file)


def loop(kept: int) -> bytes:
    """Return a file that adds up rows of X until their number is that of the input; their size is handed round."""
    arguments = [int32(), real(1, 4), real(6, 4), int32(2), int32()]
    less = Graph([*arguments, boolean()], [Step("LESS", [0, 4], [5])], range(5), [5])
    tensors = [*arguments, constant(np.int32(0)), int32(2), real(1, 4), real(1, 4), constant(np.int32(1)), int32()]
    steps = [
        pack(0, 5, 6),
        Step("SLICE", [2, 6, 3], [7], "SliceOptions"),
        Step("ADD", [1, 7], [8], "AddOptions"),
        Step("ADD", [0, 9], [10], "AddOptions"),
    ]
    body = Graph(tensors, steps, range(5), [10, 8, 2, kept, 4])
    outer = [real(6, 4), int32(), constant(np.int32(0)), constant(np.zeros((1, 4), np.float32)), constant([1, 4])]
    step = Step(
        "WHILE", [2, 3, 0, 4, 1], range(5, 10), "WhileOptions", {"CondSubgraphIndex": 1, "BodySubgraphIndex": 2}
    )
    return write_graphs([Graph([*outer, *arguments], [step], [0, 1], [6]), less, body])


def test_a_size_that_a_loop_hands_on_is_known_in_it(reference_device: Device) -> None:
    for rounds in (0, 1, 5):
        assert_as_litert(loop(3), [X, np.array(rounds, np.int32)], reference_device)


def test_a_size_that_a_loop_changes_is_not_known_in_it() -> None:
    with pytest.raises(BadData, match=r"subgraph 2: operator 1 SLICE: size \(input 2\) must be a constant"):
        nn.load(loop(6))
