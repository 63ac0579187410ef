# SPDX-License-Identifier: Apache-2.0
"""Tensors of more than four dimensions: results are those of numpy, and nothing moves that need not."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import nn_runtime as nn
from nn_runtime.errors import BadData
from nn_runtime.tflite.types import TensorType
from nn_runtime.tflite.values import operand_dimensions
from tests.nn_runtime.tflite.operator_cases import Case
from tests.nn_runtime.tflite.operator_file import (
    Array,
    Graph,
    Step,
    Tensor,
    boolean,
    constant,
    int8,
    int32,
    random_inputs,
    real,
    write,
    write_graphs,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nn_runtime.device import Device
    from nn_runtime.network import Network

ROUNDS = 12
"""Random shapes an operator is tried on."""
Random = np.random.Generator


@dataclass
class Example:
    """An operator on inputs (constants have data), and the function of its fed inputs that it is."""

    code: str
    inputs: Sequence[Tensor]
    function: Callable[..., Array | Sequence[Array]]
    options: str = "NONE"
    values: Mapping[str, Any] = field(default_factory=dict)

    def check(self, device: Device) -> None:
        fed = [tensor for tensor in self.inputs if tensor.data is None]
        inputs = random_inputs(fed)
        wanted = self.function(*(array.astype(np.float64) if array.dtype.kind == "f" else array for array in inputs))
        arrays = [wanted] if isinstance(wanted, np.ndarray) else list(wanted)
        outputs = [_like(array, fed[0]) for array in arrays]
        file, _ = Case(self.code, self.inputs, outputs, self.options, self.values).file()
        with nn.load(file).compile(device) as session:
            for result, expected in zip(session.run(inputs), arrays, strict=True):
                assert result.shape == expected.shape
                np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def _like(array: Array, fed: Tensor) -> Tensor:
    """Return the output that holds an array: real, boolean, integers as the input has them."""
    if array.dtype.kind == "f":
        return real(*array.shape)
    if array.dtype.kind == "b":
        return boolean(*array.shape)
    is_bytes = array.dtype == np.int8
    return Tensor(
        fed.type if is_bytes else TensorType.INT32, array.shape, fed.scale if is_bytes else (), fed.zero_point
    )


def _shape(rng: Random, rank: int | None = None) -> tuple[int, ...]:
    """Return five or six sizes, some of them 1."""
    rank = int(rng.integers(5, 7)) if rank is None else rank
    return tuple(int(size) for size in rng.choice([1, 1, 2, 3, 4], rank))


def _source(rng: Random, shape: Sequence[int]) -> Tensor:
    """Return an input of any type that only moves."""
    kinds = (real(*shape), real(*shape), int8(0.5, 3, *shape), int32(*shape), boolean(*shape))
    return kinds[int(rng.integers(len(kinds)))]


def transpose(rng: Random) -> Example:
    shape = _shape(rng)
    order = [int(axis) for axis in rng.permutation(len(shape))]
    return Example("TRANSPOSE", [_source(rng, shape), constant(order)], lambda x: x.transpose(order))


def reshape(rng: Random) -> Example:
    shape = _shape(rng)
    wanted = [int(size) for size in rng.permutation(shape)]
    return Example("RESHAPE", [_source(rng, shape), constant(wanted)], lambda x: x.reshape(wanted), "ReshapeOptions")


def add(rng: Random) -> Example:
    """Broadcast from runs of dimensions, the second one possibly of a lower rank."""
    shape = _shape(rng)
    first, last = sorted(int(at) for at in rng.integers(0, len(shape) + 1, 2))
    other = [size if first <= axis < last else 1 for axis, size in enumerate(shape)]
    if rng.integers(2):
        other = other[first:] or [1]
    return Example("ADD", [real(*shape), real(*other)], lambda x, y: x + y, "AddOptions")


def select_by_crossed_shapes(rng: Random) -> Example:
    """More runs of dimensions than four."""
    shape = [2, 3, 2, 3, int(rng.integers(2, 4)), 2]
    other = [size if axis % 2 else 1 for axis, size in enumerate(shape)]
    tensors = [boolean(*other), real(*shape), real(1, *shape[1:])]
    return Example("SELECT_V2", tensors, lambda c, x, y: np.where(c, x, y))


def multiply_crossed_shapes(rng: Random) -> Example:
    shape = [2, 3, 2, 3, int(rng.integers(2, 4)), 2]
    other = [size if axis % 2 else 1 for axis, size in enumerate(shape)]
    return Example("MUL", [real(*shape), real(*other)], lambda x, y: x * y, "MulOptions")


def crossed_comparison(rng: Random) -> Example:
    shape = [2, 3, 2, 3, int(rng.integers(2, 4)), 2]
    other = [size if axis % 2 else 1 for axis, size in enumerate(shape)]
    return Example("LOGICAL_OR", [boolean(*shape), boolean(*other)], lambda x, y: x | y)


def logistic(rng: Random) -> Example:
    return Example("LOGISTIC", [real(*_shape(rng))], lambda x: 1 / (1 + np.exp(-x)))


def greater(rng: Random) -> Example:
    shape = _shape(rng)
    return Example("GREATER", [real(*shape), real(shape[-1])], lambda x, y: x > y)


def logical_and(rng: Random) -> Example:
    shape = _shape(rng)
    return Example("LOGICAL_AND", [boolean(*shape), boolean(*shape)], lambda x, y: x & y)


def select(rng: Random) -> Example:
    shape = _shape(rng)
    row = (1,) * (len(shape) - 1) + shape[-1:]
    tensors = [boolean(*shape), real(*shape), real(*row)]
    return Example("SELECT_V2", tensors, lambda c, x, y: np.where(c, x, y))


def concatenation(rng: Random) -> Example:
    shape = _shape(rng)
    axis = int(rng.integers(len(shape)))
    other = [size + 1 if at == axis else size for at, size in enumerate(shape)]
    return Example(
        "CONCATENATION",
        [real(*shape), real(*other)],
        lambda x, y: np.concatenate([x, y], axis),
        "ConcatenationOptions",
        {"Axis": axis},
    )


def pack(rng: Random) -> Example:
    shape = _shape(rng, int(rng.integers(4, 6)))
    axis = int(rng.integers(len(shape) + 1))
    kind = real if rng.integers(2) else int32
    options = {"ValuesCount": 2, "Axis": axis}
    return Example("PACK", [kind(*shape), kind(*shape)], lambda x, y: np.stack([x, y], axis), "PackOptions", options)


def split(rng: Random) -> Example:
    shape = list(_shape(rng))
    axis = int(rng.integers(len(shape)))
    shape[axis] = 6
    inputs = [constant(np.int32(axis)), _source(rng, shape)]
    return Example("SPLIT", inputs, lambda x: np.split(x, 3, axis), "SplitOptions", {"NumSplits": 3})


def unpack(rng: Random) -> Example:
    shape = list(_shape(rng))
    axis = int(rng.integers(len(shape)))
    shape[axis] = 3
    return Example(
        "UNPACK",
        [_source(rng, shape)],
        lambda x: [np.take(x, at, axis) for at in range(3)],
        "UnpackOptions",
        {"Num": 3, "Axis": axis},
    )


def gather(rng: Random) -> Example:
    shape = _shape(rng)
    axis = int(rng.integers(len(shape)))
    indices = rng.integers(0, shape[axis], (2, 3)).astype(np.int32)
    inputs = [_source(rng, shape), constant(indices)]
    return Example("GATHER", inputs, lambda x: np.take(x, indices, axis), "GatherOptions", {"Axis": axis})


def gather_more_than_four(rng: Random) -> Example:
    indices = rng.integers(0, 3, (2, 1, 2)).astype(np.int32)
    return Example("GATHER", [real(3, 2, 4), constant(indices)], lambda x: x[indices], "GatherOptions")


def mean(rng: Random) -> Example:
    return _reduction(rng, "MEAN", np.mean)


def reduce_max(rng: Random) -> Example:
    return _reduction(rng, "REDUCE_MAX", np.max)


def _reduction(rng: Random, code: str, function: Callable[..., Array]) -> Example:
    shape = _shape(rng)
    axes = tuple(axis for axis in range(len(shape)) if rng.integers(2)) or (1,)
    keeps = bool(rng.integers(2))
    inputs = [real(*shape), constant(list(axes))]

    def reduced(x: Array) -> Array:
        return np.asarray(function(x, axes, keepdims=keeps))

    return Example(code, inputs, reduced, "ReducerOptions", {"KeepDims": keeps})


def arg_max(rng: Random) -> Example:
    shape = _shape(rng)
    axis = int(rng.integers(len(shape)))
    inputs = [real(*shape), constant(np.int32(axis))]
    return Example("ARG_MAX", inputs, lambda x: x.argmax(axis).astype(np.int32), "ArgMaxOptions", {"OutputType": 2})


def softmax(rng: Random) -> Example:
    def function(x: Array) -> Array:
        powers: Array = np.exp(x - x.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True)

    return Example("SOFTMAX", [real(*_shape(rng))], function, "SoftmaxOptions", {"Beta": 1.0})


def tile(rng: Random) -> Example:
    shape = _shape(rng)
    multiples = rng.choice([1, 1, 2, 3], len(shape)).astype(np.int32)
    return Example("TILE", [_source(rng, shape), constant(multiples)], lambda x: np.tile(x, multiples))


def broadcast_to(rng: Random) -> Example:
    shape = _shape(rng)
    given = [size if rng.integers(2) else 1 for size in shape]
    return Example("BROADCAST_TO", [real(*given), constant(list(shape))], lambda x: np.broadcast_to(x, shape))


def slice_(rng: Random) -> Example:
    shape = _shape(rng)
    bounds = [sorted(int(at) for at in rng.choice(size + 1, 2, replace=False)) for size in shape]
    begins, sizes = [begin for begin, _ in bounds], [end - begin for begin, end in bounds]
    part = tuple(slice(begin, end) for begin, end in bounds)
    inputs = [_source(rng, shape), constant(begins), constant(sizes)]
    return Example("SLICE", inputs, lambda x: x[part], "SliceOptions")


def strided_slice(rng: Random) -> Example:
    shape = _shape(rng)
    strides = [int(stride) for stride in rng.choice([1, 1, 2, -1], len(shape))]
    begins = [size - 1 if stride < 0 else 0 for size, stride in zip(shape, strides, strict=True)]
    dropped = int(rng.integers(len(shape)))
    strides[dropped], begins[dropped] = 1, 0
    ends = [
        begin + 1 if axis == dropped else size for axis, (begin, size) in enumerate(zip(begins, shape, strict=True))
    ]
    part = tuple(0 if axis == dropped else slice(None, None, stride) for axis, stride in enumerate(strides))
    open_ends = sum(1 << axis for axis in range(len(shape)) if axis != dropped)
    options = {"EndMask": open_ends, "ShrinkAxisMask": 1 << dropped}
    inputs = [_source(rng, shape), constant(begins), constant(ends), constant(strides)]
    return Example("STRIDED_SLICE", inputs, lambda x: x[part], "StridedSliceOptions", options)


def pad(rng: Random) -> Example:
    shape = _shape(rng)
    amounts = rng.choice([0, 0, 1, 2], (len(shape), 2)).astype(np.int32)
    inputs = [real(*shape) if rng.integers(2) else int32(*shape), constant(amounts)]
    return Example("PAD", inputs, lambda x: np.pad(x, amounts.tolist()), "PadOptions")


def mirror_pad(rng: Random) -> Example:
    shape = [1, 2, *(int(size) for size in rng.choice([1, 3, 4], 3))]
    axis = int(rng.integers(2, 5))
    shape[axis] = 4
    amounts = np.zeros((5, 2), np.int32)
    amounts[axis] = 2, 1
    inputs = [real(*shape), constant(amounts)]
    return Example("MIRROR_PAD", inputs, lambda x: np.pad(x, amounts.tolist(), "reflect"), "MirrorPadOptions")


def reverse(rng: Random) -> Example:
    shape = _shape(rng)
    axis = int(rng.integers(len(shape)))
    return Example("REVERSE_V2", [_source(rng, shape), constant([axis])], lambda x: np.flip(x, axis))


def batch_matmul(rng: Random) -> Example:
    leading = _shape(rng, 3)
    inputs = [real(*leading, 2, 3), real(*leading[1:], 3, 4)]
    return Example("BATCH_MATMUL", inputs, lambda x, y: x @ y, "BatchMatMulOptions")


EXAMPLES = (
    *(select_by_crossed_shapes, multiply_crossed_shapes, crossed_comparison),
    *(transpose, reshape, add, logistic, greater, logical_and, select, concatenation, pack, split, unpack),
    *(gather, gather_more_than_four, mean, reduce_max, arg_max, softmax, tile, broadcast_to, slice_, strided_slice),
    *(pad, mirror_pad, reverse, batch_matmul),
)


@pytest.mark.parametrize("make", EXAMPLES)
def test_results_are_those_of_numpy(make: Callable[[Random], Example], reference_device: Device) -> None:
    for seed in range(ROUNDS):
        make(np.random.default_rng(seed)).check(reference_device)


def _shuffle(groups: int) -> Network:
    """ShuffleNet's exchange of channels between groups: [1, 8, 8, 12]."""
    each = 12 // groups
    tensors = [
        *(real(1, 8, 8, 12), constant([1, 8, 8, groups, each]), real(1, 8, 8, groups, each)),
        *(constant([0, 1, 2, 4, 3]), real(1, 8, 8, each, groups), constant([1, 8, 8, 12]), real(1, 8, 8, 12)),
    ]
    steps = [Step("RESHAPE", [0, 1], [2]), Step("TRANSPOSE", [2, 3], [4]), Step("RESHAPE", [4, 5], [6])]
    return nn.load(write(tensors, steps, [0], [6]))


def test_channels_are_shuffled_by_one_transposition(device: Device) -> None:
    network = _shuffle(3)
    x = np.arange(768, dtype=np.float32).reshape(1, 8, 8, 12)
    wanted = x.reshape(1, 8, 8, 3, 4).swapaxes(3, 4).reshape(x.shape)
    with network.compile(device) as session:
        np.testing.assert_array_equal(session.run(x)[0], wanted)
        names = [row.name for row in session.explain().operations]
    assert [name for name in names if name != "RESHAPE"] == ["TRANSPOSE"]


def test_inputs_and_outputs_have_the_shapes_of_the_file(device: Device) -> None:
    shape = (2, 3, 1, 4, 5)
    network = nn.load(Case("NEG", [real(*shape)], [real(*shape)]).file()[0])
    assert (network.inputs[0].shape, network.outputs[0].shape) == (shape, shape)
    x = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    with network.compile(device) as session:
        np.testing.assert_array_equal(session.run(x)[0], -x)
        with pytest.raises(BadData, match=r"wanted float32 \[2, 3, 1, 4, 5\], got float32 \[6, 1, 4, 5\]"):
            session.run(x.reshape(operand_dimensions(shape)))


def test_a_called_subgraph_takes_and_gives_any_rank(reference_device: Device) -> None:
    shape = (2, 1, 3, 2, 2)
    main = Graph(
        [boolean(), real(*shape), real(*shape)],
        [Step("IF", [0, 1], [2], "IfOptions", {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 2})],
        [0, 1],
        [2],
    )
    branches = [Graph([real(*shape), real(*shape)], [Step(code, [0], [1])], [0], [1]) for code in ("NEG", "ABS")]
    x = np.linspace(-1, 1, math.prod(shape), dtype=np.float32).reshape(shape)
    with nn.load(write_graphs([main, *branches])).compile(reference_device) as session:
        for condition, wanted in ((True, -x), (False, np.abs(x))):
            np.testing.assert_array_equal(session.run([np.array(condition), x])[0], wanted)


def test_what_has_no_form_of_four_dimensions_is_named() -> None:
    shape, borders = (3, 2, 3, 2, 3), constant([[1, 1], [0, 0], [1, 1], [0, 0], [1, 1]])
    case = Case("MIRROR_PAD", [real(*shape), borders], [real(5, 2, 5, 2, 5)], "MirrorPadOptions")
    with pytest.raises(BadData, match=r"operator 0 MIRROR_PAD: paddings .* of \[3, 2, 3, 2, 3\] are not supported"):
        nn.load(case.file()[0])


EMPTY = constant(np.zeros((0, 1, 2, 1, 2), np.float32))
REFUSED = {
    "TRANSPOSE": ([EMPTY, constant([0, 2, 1, 3, 4])], "an empty input of shape [0, 1, 2, 1, 2] is not supported"),
    "MEAN": ([EMPTY, constant([0])], "an empty input of shape [0, 1, 2, 1, 2] is not supported"),
    "CONCATENATION": ([EMPTY, EMPTY], "an empty input of shape [0, 1, 2, 1, 2] is not supported"),
    "MUL": ([EMPTY, real(1, 3, 1, 3, 2)], "an empty input of shape [0, 1, 2, 1, 2] is not supported"),
    "PAD": (
        [real(2, 3, 2, 2, 3), constant([[1 << 30, 0], *[[0, 0]] * 4])],
        "must fit in 32 bits, got [38654705664, 0]",
    ),
    "FILL": ([constant([-1, -1, 2, 2, 2]), constant(np.float32(1))], "sizes must be >= 1, got [-1, -1, 2, 2, 2]"),
    "TILE": ([real(2, 3, 2, 2, 3), constant([1, 0, 1, 1, 1])], "multiples must be >= 1, got [1, 0, 1, 1, 1]"),
}


@pytest.mark.parametrize("code", REFUSED)
def test_what_has_no_result_is_refused_in_the_shapes_of_the_file(code: str) -> None:
    inputs, reason = REFUSED[code]
    options = {"CONCATENATION": "ConcatenationOptions", "MEAN": "ReducerOptions"}.get(code, "NONE")
    case = Case(code, inputs, [real(2, 3, 2, 2, 3)], options, {"Axis": 1} if code == "CONCATENATION" else {})
    with pytest.raises(BadData, match=f"operator 0 {code}: .*{re.escape(reason)}"):
        nn.load(case.file()[0])
