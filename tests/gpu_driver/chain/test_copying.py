# SPDX-License-Identifier: Apache-2.0
"""Operations that move elements as steps of a chain: what numpy makes of the same data, whatever the order of tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpu_driver import chain
from gpu_driver.chain.kinds import Function
from gpu_driver.launch import Launch
from gpu_driver.lowering import Lowering
from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.operand import dtype_of
from tests.gpu_driver.chain.running import simulate_groups
from tests.gpu_driver.graphs import Graph, request
from tests.gpu_driver.profiles import CPU_PROFILE
from tests.gpu_driver.running import prepare, run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_driver.driver import Device
    from nn_runtime.operand import Array, Dimensions

FLOAT, HALF = OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_FLOAT16
QUANT8, SIGNED = OperandCode.TENSOR_QUANT8_ASYMM, OperandCode.TENSOR_QUANT8_ASYMM_SIGNED
TYPES = [FLOAT, HALF, QUANT8, SIGNED]
SCALE, ZERO = 0.5, {QUANT8: 9, SIGNED: -9}
DIMS = (2, 6, 8, 24)
CHANNELWISE = [Function.PRELU, Function.MUL, Function.PRELU, Function.ADD]


class Moves:
    """A model of operations that move elements, and what numpy makes of its input."""

    def __init__(self, code: OperandCode, dims: Dimensions, seed: int) -> None:
        self.graph, self.code = Graph(), code
        self.rng = np.random.default_rng(seed)
        self.quantisation = (0.0, 0) if code in (FLOAT, HALF) else (SCALE, ZERO[code])
        self.source = self._numbers(dims)
        self.tensors = [(self.graph.input(dims, code, *self.quantisation), self.source)]
        self.results: list[Array] = []

    def _numbers(self, dims: Dimensions) -> Array:
        dtype = dtype_of(self.code)
        if self.code in (FLOAT, HALF):
            return self.rng.normal(size=dims).astype(dtype)
        return self.rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, dims).astype(dtype)

    def integers(self, *values: int | Sequence[int]) -> int:
        return self.graph.constant(np.array(values, np.int32))

    def add(self, code: OperationCode, inputs: Sequence[int], *results: Array) -> None:
        made = [self.graph.temporary(one.shape, self.code, *self.quantisation) for one in results]
        self.graph.operation(code, inputs, *made)
        self.tensors += zip(made, results, strict=True)

    def draw(self) -> None:
        """Add an operation on one or some of the tensors."""
        at = int(self.rng.integers(len(self.tensors)))
        names = "transpose", "pad", "concatenate", "slice", "strided", "split", "mirror", "reverse", "blocks", "keep"
        getattr(self, f"draw_{self.rng.choice(names)}")(*self.tensors[at])

    def draw_transpose(self, tensor: int, data: Array) -> None:
        order = self.rng.permutation(data.ndim)
        self.add(OperationCode.TRANSPOSE, [tensor, self.integers(*order)], data.transpose(order))

    def draw_pad(self, tensor: int, data: Array) -> None:
        amounts = self.rng.integers(0, 3, (data.ndim, 2)) * self.rng.integers(0, 2, (data.ndim, 1))
        padded = np.pad(data, amounts, constant_values=self.quantisation[1])
        self.add(OperationCode.PAD, [tensor, self.integers(*amounts.tolist())], padded)

    def draw_concatenate(self, tensor: int, data: Array) -> None:
        axis = int(self.rng.integers(data.ndim))
        others = [one for one in self.tensors if _fits(one[1], data, axis)]
        parts = [(tensor, data), *(others[int(self.rng.integers(len(others)))] for _ in range(self.rng.integers(1, 4)))]
        joined = np.concatenate([one for _, one in parts], axis)
        if joined.size < 100_000:
            operands = [*(one for one, _ in parts), self.graph.integer(axis)]
            self.add(OperationCode.CONCATENATION, operands, joined)

    def draw_slice(self, tensor: int, data: Array) -> None:
        begins = [int(self.rng.integers(size)) for size in data.shape]
        sizes = [int(self.rng.integers(1, size - begin + 1)) for begin, size in zip(begins, data.shape, strict=True)]
        taken = data[tuple(slice(begin, begin + size) for begin, size in zip(begins, sizes, strict=True))]
        self.add(OperationCode.SLICE, [tensor, self.integers(*begins), self.integers(*sizes)], taken)

    def draw_strided(self, tensor: int, data: Array) -> None:
        steps = [int(self.rng.integers(1, 3)) for _ in data.shape]
        vectors = [0] * data.ndim, data.shape, steps
        masks = [self.graph.integer(0) for _ in range(3)]
        operands = [tensor, *(self.integers(*one) for one in vectors), *masks]
        self.add(OperationCode.STRIDED_SLICE, operands, data[tuple(slice(None, None, step) for step in steps)])

    def draw_split(self, tensor: int, data: Array) -> None:
        axes = [axis for axis, size in enumerate(data.shape) if size % 2 == 0]
        if axes:
            axis = int(self.rng.choice(axes))
            operands = [tensor, self.graph.integer(axis), self.graph.integer(2)]
            self.add(OperationCode.SPLIT, operands, *np.split(data, 2, axis))

    def draw_mirror(self, tensor: int, data: Array) -> None:
        amounts = np.array([[int(self.rng.integers(0, min(3, size))) for _ in range(2)] for size in data.shape])
        operands = [tensor, self.integers(*amounts.tolist()), self.graph.integer(0)]
        self.add(OperationCode.MIRROR_PAD, operands, np.pad(data, amounts, "reflect"))

    def draw_reverse(self, tensor: int, data: Array) -> None:
        axis = int(self.rng.integers(data.ndim))
        self.add(OperationCode.REVERSE, [tensor, self.integers(axis)], np.flip(data, axis))

    def draw_space(self, tensor: int, data: Array) -> None:
        b, h, w, d = data.shape
        if d % 4 == 0:
            blocks = data.reshape(b, h, w, 2, 2, d // 4).transpose(0, 1, 3, 2, 4, 5).reshape(b, 2 * h, 2 * w, d // 4)
            self.add(OperationCode.DEPTH_TO_SPACE, [tensor, self.graph.integer(2)], blocks)
        elif h % 2 == w % 2 == 0:
            blocks = data.reshape(b, h // 2, 2, w // 2, 2, d).transpose(0, 1, 3, 2, 4, 5)
            blocks = blocks.reshape(b, h // 2, w // 2, 4 * d)
            self.add(OperationCode.SPACE_TO_DEPTH, [tensor, self.graph.integer(2)], blocks)

    def draw_blocks(self, tensor: int, data: Array) -> None:
        (self.draw_space if self.rng.integers(2) else self.draw_batch)(tensor, data)

    def draw_batch(self, tensor: int, data: Array) -> None:
        b, h, w, d = data.shape
        if h % 2 == w % 2 == 0:
            blocks = data.reshape(b, h // 2, 2, w // 2, 2, d).transpose(2, 4, 0, 1, 3, 5)
            operands = [tensor, self.integers(2, 2), self.integers([0, 0], [0, 0])]
            self.add(OperationCode.SPACE_TO_BATCH_ND, operands, blocks.reshape(4 * b, h // 2, w // 2, d))
        elif b % 4 == 0:
            image = data.reshape(2, 2, b // 4, h, w, d).transpose(2, 3, 0, 4, 1, 5).reshape(b // 4, 2 * h, 2 * w, d)
            self.add(OperationCode.BATCH_TO_SPACE_ND, [tensor, self.integers(2, 2)], image)

    def draw_keep(self, tensor: int, data: Array) -> None:
        self.add(OperationCode.RELU, [tensor], np.maximum(data, np.asarray(self.quantisation[1], data.dtype)))

    def finish(self, count: int = 4) -> None:
        """Make outputs of the last tensors, as they are."""
        for tensor, data in self.tensors[-count:]:
            output = self.graph.output(data.shape, self.code, *self.quantisation)
            operands = [tensor, *(self.integers(*one) for one in ([0] * data.ndim, data.shape))]
            self.graph.operation(OperationCode.SLICE, operands, output)
            self.results.append(data)


def _fits(one: Array, other: Array, axis: int) -> bool:
    return one.ndim == other.ndim and np.delete(one.shape, axis).tolist() == np.delete(other.shape, axis).tolist()


def drawn(code: OperandCode, dims: Dimensions, seed: int) -> Moves:
    moves = Moves(code, dims, seed)
    while len(moves.tensors) < 9:
        moves.draw()
    moves.finish()
    return moves


def check(device: Device, moves: Moves) -> None:
    outputs = [np.empty_like(one, order="C") for one in moves.results]
    run(prepare(device, moves.graph.model()), request([moves.source], outputs))
    for one, expected in zip(outputs, moves.results, strict=True):
        np.testing.assert_array_equal(one, expected)


def launches_of(moves: Moves) -> list[Launch]:
    lowering = Lowering(moves.graph.model(), CPU_PROFILE)
    return [one for one in lowering.lower(0, lowering.static_inputs()).commands if isinstance(one, Launch)]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("dims", [DIMS, (1, 4, 6, 7), (1, 12, 2, 1040), (3, 2, 4, 1)], ids=str)
@pytest.mark.parametrize("code", TYPES, ids=lambda code: code.name)
def test_moved_elements_are_where_numpy_moves_them(
    opencl_device: Device, code: OperandCode, dims: Dimensions, seed: int
) -> None:
    check(opencl_device, drawn(code, dims, seed))


@pytest.mark.parametrize(("groups", "queues"), [(1, 3), (2, 5), (4, 2)])
def test_any_number_of_groups_and_queues(
    opencl_device: Device, monkeypatch: pytest.MonkeyPatch, groups: int, queues: int
) -> None:
    """Steps that write parts of one tensor, and who reads it, wait for each other."""
    simulate_groups(monkeypatch, groups, queues)
    for seed in range(20):
        check(opencl_device, drawn(SIGNED, (2, 16, 40, 64), seed))


@pytest.mark.parametrize("groups", [1, 3])
def test_rows_that_are_read_in_another_order_are_waited_for(
    opencl_device: Device, monkeypatch: pytest.MonkeyPatch, groups: int
) -> None:
    """The first rows of a block of the batch come from everywhere in the picture."""
    simulate_groups(monkeypatch, groups, 4)
    moves = Moves(FLOAT, (1, 32, 32, 32), 1)
    for _ in range(4):
        moves.draw_batch(*moves.tensors[-1])
        moves.draw_keep(*moves.tensors[-1])
    moves.finish(1)
    for _ in range(20):
        check(opencl_device, moves)


def test_moves_of_rows_are_steps() -> None:
    steps = [step.kind for seed in range(20) for one in launches_of(drawn(FLOAT, DIMS, seed)) for step in one.steps]
    assert {chain.Kind.COPY, chain.Kind.FILL, chain.Kind.TURN} <= set(steps)


@pytest.mark.parametrize("size", [(4, 4), (9, 13), (3, 5), (40, 41)], ids=str)
@pytest.mark.parametrize("order", [(0, 2, 3, 1), (0, 3, 1, 2)], ids=["channels last", "channels first"])
@pytest.mark.parametrize("depth", [2, 3, 4, 5, 8])
@pytest.mark.parametrize("code", TYPES, ids=lambda code: code.name)
def test_pictures_in_another_layout(
    opencl_device: Device, code: OperandCode, depth: int, order: tuple[int, ...], size: tuple[int, int]
) -> None:
    """Few channels, and numbers of pixels that are and are not multiples of a vector's."""
    is_first = order == (0, 2, 3, 1)
    moves = Moves(code, (2, depth, *size) if is_first else (2, *size, depth), 5)
    tensor, data = moves.tensors[0]
    moves.add(OperationCode.TRANSPOSE, [tensor, moves.integers(*order)], data.transpose(order))
    for _ in range(3):
        moves.draw_keep(*moves.tensors[-1])
    moves.finish()
    kinds = [step.kind for launch in launches_of(moves) for step in launch.steps]
    assert chain.Kind.TURN in kinds
    check(opencl_device, moves)


def test_padded_and_joined_tensors_are_one_launch(opencl_device: Device) -> None:
    """As residual blocks of face detectors have them: PAD of channels, and heads joined at the end."""
    moves = Moves(FLOAT, (1, 8, 8, 32), 1)
    (tensor, data), amounts = moves.tensors[0], [[0, 0], [0, 0], [0, 0], [0, 16]]
    moves.add(OperationCode.PAD, [tensor, moves.integers(*amounts)], np.pad(data, amounts))
    padded, wide = moves.tensors[-1]
    moves.add(OperationCode.ADD, [padded, padded, moves.graph.integer(FuseCode.RELU)], np.maximum(wide + wide, 0))
    parts = moves.tensors[-1], (padded, wide)
    joined = np.concatenate([one for _, one in parts], 3)
    moves.add(OperationCode.CONCATENATION, [*(one for one, _ in parts), moves.graph.integer(3)], joined)
    moves.finish()
    (launch,) = launches_of(moves)
    assert [step.kind for step in launch.steps].count(chain.Kind.FILL) == 1
    assert len(launch.steps) >= 5
    check(opencl_device, moves)


@pytest.mark.parametrize("depth", [1, 3, 8, 15, 16, 24, 40, 100, 240, 256, 257, 400, 480, 600, 1680, 1712])
@pytest.mark.parametrize("code", [FLOAT, HALF], ids=lambda code: code.name)
def test_rows_of_channels_are_repeated(opencl_device: Device, code: OperandCode, depth: int) -> None:
    """PRELU, products and sums with a number for each channel, of pixels that no vector divides."""
    dims = (1, 7, 11, depth)
    moves = Moves(code, dims, depth)
    dtype, (tensor, data) = dtype_of(code), moves.tensors[0]
    alpha, factor, term = (moves.rng.uniform(-1, 1, depth).astype(dtype) for _ in range(3))
    constants = [moves.graph.constant(one, code) for one in (alpha, factor, term)]
    none = moves.graph.integer(FuseCode.NONE)
    moves.add(OperationCode.PRELU, [tensor, constants[0]], np.where(data >= 0, data, data * alpha))
    moves.add(OperationCode.MUL, [moves.tensors[-1][0], constants[1], none], moves.tensors[-1][1] * factor)
    moves.add(OperationCode.PRELU, [moves.tensors[-1][0], tensor], _rectified(moves.tensors[-1][1], data))
    moves.add(OperationCode.ADD, [moves.tensors[-1][0], constants[2], none], moves.tensors[-1][1] + term)
    moves.finish(1)
    (launch,) = launches_of(moves)
    step, *_ = launch.steps
    assert [one.function for one in step.program] == [Function.LOAD, *CHANNELWISE]
    assert (step.values["at_once"] > 0) == (depth <= 256 or depth in (400, 480, 1680))  # of whole vectors
    check(opencl_device, moves)


@pytest.mark.parametrize("depth", [1, 3, 8, 15, 16, 24, 100, 256, 257, 336])
@pytest.mark.parametrize("vectors", [1, 8, 9])
@pytest.mark.parametrize("code", [FLOAT, HALF], ids=lambda code: code.name)
def test_rows_that_operations_make_are_repeated(
    opencl_device: Device, code: OperandCode, vectors: int, depth: int
) -> None:
    """Products with a number for each channel that another operation makes, as squeeze-and-excite has them."""
    moves = Moves(code, (2, 6, 7, depth), depth)
    (tensor, data), none = moves.tensors[0], moves.graph.integer(FuseCode.NONE)
    for at in range(vectors):
        begins, sizes = (0, at % 6, at % 7, 0), (1, 1, 1, depth)
        operands = [tensor, moves.integers(*begins), moves.integers(*sizes)]
        row = data[:1, begins[1], begins[2]].reshape(sizes)
        moves.add(OperationCode.SLICE, operands, row)
    rows = moves.tensors[1:]
    now = tensor, data
    for at, (row, numbers) in enumerate(rows):
        operands = [row, now[0]] if at % 2 else [now[0], row]
        moves.add(OperationCode.ADD if at % 3 else OperationCode.MUL, [*operands, none],
                  now[1] + numbers if at % 3 else now[1] * numbers)  # fmt: skip
        now = moves.tensors[-1]
    moves.finish(1)
    check(opencl_device, moves)


def _rectified(data: Array, alpha: Array) -> Array:
    return np.where(data >= 0, data, data * alpha)
