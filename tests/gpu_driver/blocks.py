# SPDX-License-Identifier: Apache-2.0
"""Blocks as networks have them, drawn at random and put together, for tests of everything that joins operations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from nn_runtime.codes import FuseCode, OperandCode, OperationCode, PaddingCode
from nn_runtime.operand import element_count
from tests.gpu_driver.graphs import Graph

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from nn_runtime.hal.types import Model
    from nn_runtime.operand import Array, Dimensions

FLOAT, CODES = OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_QUANT8_ASYMM_SIGNED
SCALE, ZERO = float(np.float32(0.05)), -7
"""Of every tensor of bytes that nothing else is said of."""
_Thing = TypeVar("_Thing")
_SHARES = 1 / 256, -128
_TANGENTS = 1 / 128, 0
_LARGEST = 20_000
_EPSILON = 0.1
"""Added to variances, so that rounding errors stay what they are."""
_Op = OperationCode
_FUNCTIONS = (_Op.RELU, _Op.RELU6, _Op.LOGISTIC, _Op.TANH, _Op.HARD_SWISH, _Op.PRELU)
_REAL_FUNCTIONS = (*_FUNCTIONS, _Op.ELU, _Op.ABS, _Op.NEG)
_ACTIVATIONS = (FuseCode.NONE, FuseCode.NONE, FuseCode.RELU, FuseCode.RELU6)


@dataclass(frozen=True)
class Tensor:
    """An operand of a graph; scale and zero point are 0 of real numbers."""

    index: int
    dims: Dimensions
    scale: float
    zero_point: int

    @property
    def rank(self) -> int:
        return len(self.dims)


class Blocks:
    """Grows a graph by blocks that each read what one before made, mostly the last."""

    def __init__(self, seed: int, code: OperandCode) -> None:
        self.names: list[str] = []
        """Of the blocks, in order."""
        self.inputs: list[Array] = []
        self._code = code
        self._is_real = code == FLOAT
        self._rng = np.random.default_rng(seed)
        self._graph = Graph()
        self._made: list[Tensor] = []
        self._read: set[int] = set()

    def model(self, operations: int) -> Model:
        """Return a model of at least so many operations."""
        rank = self._one_of((2, 3, 4, 4))
        self._made.append(self._input((self._below(3), *(self._below(15) for _ in range(rank - 2)), self._below(33))))
        last = self._made[0]
        while self._graph.operation_count < operations:
            source = last if self._rng.random() < 0.85 else self._one_of(self._made)
            block = self._one_of(self._blocks(source.rank))
            last = block(source)
            self.names.append(block.__name__.lstrip("_"))
            self._made.append(last)
        for tensor in self._made[1:]:
            if tensor == last or tensor.index not in self._read or self._rng.random() < 0.1:
                self._graph.turn_into_output(tensor.index)
        return self._graph.model()

    def _blocks(self, rank: int) -> Sequence[Callable[[Tensor], Tensor]]:
        anywhere = (
            *(self._function, self._affine, self._sum, self._reduction, self._softmax, self._normalization),
            *(self._turned, self._part, self._gathered, self._joined, self._twice),
        )
        if rank == 4:
            return (
                *(*anywhere, self._convolution, self._convolution, self._depthwise, self._excitation, self._dilated),
                *(self._shuffled, self._pooled, self._resized, self._padded, self._product),
            )
        return (*anywhere, self._product, self._attention, self._dense) if rank in (2, 3) else anywhere

    # Blocks, each of one tensor.

    def _function(self, x: Tensor) -> Tensor:
        code = self._one_of(_REAL_FUNCTIONS if self._is_real else _FUNCTIONS)
        if code == _Op.PRELU:
            return self._add(code, [x, self._constant((x.dims[-1],))], x.dims)
        if code == _Op.ELU:
            return self._add(code, [x, self._graph.real(1.0)], x.dims)
        if code in (_Op.RELU, _Op.RELU6):
            return self._add(code, [x], x.dims, like=x)
        return self._add(code, [x], x.dims, {_Op.LOGISTIC: _SHARES, _Op.TANH: _TANGENTS}.get(code))

    def _affine(self, x: Tensor) -> Tensor:
        """Numbers, or one for each channel, multiplied and added, as of a batch normalisation."""
        for code in self._one_of(((_Op.MUL, _Op.ADD), (_Op.ADD, _Op.MUL), (_Op.SUB,), (_Op.MUL,))):
            x = self._pair(code, *self._swapped(x, self._constant((self._one_of((1, x.dims[-1])),))))
        return x

    def _sum(self, x: Tensor) -> Tensor:
        """The sum, product or difference with an earlier tensor, of the same shape or one that is repeated."""
        fits = [
            other
            for other in self._made
            if other.rank == x.rank and all(a in (1, b) for a, b in zip(other.dims, x.dims, strict=True))
        ]
        return self._pair(self._one_of((_Op.ADD, _Op.ADD, _Op.MUL, _Op.SUB)), *self._swapped(x, self._one_of(fits)))

    def _reduction(self, x: Tensor) -> Tensor:
        axes = self._one_of(([x.rank - 1], [0], list(range(1, x.rank))[:2] or [0], [max(0, x.rank - 2)]))
        code = self._one_of((_Op.MEAN, _Op.MEAN, _Op.REDUCE_SUM, _Op.REDUCE_MAX) if self._is_real else (_Op.MEAN,))
        return self._reduced(code, x, axes, like=x)

    def _softmax(self, x: Tensor) -> Tensor:
        return self._add(_Op.SOFTMAX, [x, self._graph.real(1.0)], x.dims, _SHARES)

    def _normalization(self, x: Tensor) -> Tensor:
        """Rows, or the pixels of each channel, less their mean, by their deviation."""
        if not self._is_real:
            return self._affine(x)
        axes = [1, 2] if x.rank == 4 and self._rng.random() < 0.3 else [x.rank - 1]
        centred = self._pair(_Op.SUB, x, self._reduced(_Op.MEAN, x, axes), FuseCode.NONE)
        variance = self._reduced(_Op.MEAN, self._pair(_Op.MUL, centred, centred, FuseCode.NONE), axes)
        enlarged = self._pair(_Op.ADD, variance, self._number(_EPSILON), FuseCode.NONE)
        if self._rng.random() < 0.5:
            return self._pair(_Op.DIV, centred, self._add(_Op.SQRT, [enlarged], enlarged.dims))
        return self._affine(self._pair(_Op.MUL, centred, self._add(_Op.RSQRT, [enlarged], enlarged.dims)))

    def _turned(self, x: Tensor) -> Tensor:
        """Axes in another order, and mostly in a third one or back again, at once or behind a function."""
        first, other = (self._rng.permutation(x.rank) for _ in range(2))
        turned = self._transposed(x, first)
        turned = self._function(turned) if self._rng.random() < 0.6 else turned
        second = self._one_of((None, np.argsort(first), np.argsort(first), other))
        return turned if second is None else self._transposed(turned, second)

    def _part(self, x: Tensor) -> Tensor:
        begin = [int(self._rng.integers(0, size)) for size in x.dims]
        sizes = tuple(self._below(size - first + 1) for size, first in zip(x.dims, begin, strict=True))
        return self._add(_Op.SLICE, [x, *map(self._integers, (begin, sizes))], sizes, like=x)

    def _gathered(self, x: Tensor) -> Tensor:
        axis, count = int(self._rng.integers(x.rank)), self._below(8)
        places = self._rng.integers(0, x.dims[axis], count).astype(np.int32)
        indices = self._integers(places)
        if self._rng.random() < 0.5:
            indices = self._graph.input((count,), OperandCode.TENSOR_INT32)
            self.inputs.append(places)
        dims = (*x.dims[:axis], count, *x.dims[axis + 1 :])
        return self._add(_Op.GATHER, [x, self._graph.integer(axis), indices], dims, like=x)

    def _joined(self, x: Tensor) -> Tensor:
        """Itself and an earlier one behind each other, of which some are gathered half of the time."""
        axis = int(self._rng.integers(x.rank))
        fits = [
            other
            for other in self._made
            if self._cut(other.dims, axis) == self._cut(x.dims, axis)
            and (other.scale, other.zero_point) == (x.scale, x.zero_point)
        ]
        other = self._one_of(fits) if fits else x
        dims = (*x.dims[:axis], x.dims[axis] + other.dims[axis], *x.dims[axis + 1 :])
        if element_count(dims) > _LARGEST:
            return self._part(x)
        both = self._add(_Op.CONCATENATION, [x, other, self._graph.integer(axis)], dims, like=x)
        return both if self._rng.random() < 0.5 else self._gathered(both)

    def _twice(self, x: Tensor) -> Tensor:
        """The same made twice, and added."""
        state = self._rng.bit_generator.state
        first = self._function(x)
        self._rng.bit_generator.state = state
        return self._pair(_Op.ADD, first, self._function(x))

    def _convolution(self, x: Tensor) -> Tensor:
        x = self._padded(x) if self._rng.random() < 0.2 else x
        stride, dilation = self._one_of(((1, 1), (1, 1), (2, 1), (1, 2)))
        return self._convolved(x, self._below(40), self._one_of((1, 1, 3, 5)), stride, dilation)

    def _depthwise(self, x: Tensor) -> Tensor:
        b, h, w, c = x.dims
        taps, stride = self._one_of((2, 3, 3, 5, 7)), self._one_of((1, 1, 2))
        weights, bias = self._weights((1, taps, taps, c), c, taps * taps, x)
        numbers = [PaddingCode.SAME, stride, stride, 1, self._one_of(_ACTIVATIONS)]
        inputs = [x, weights, bias, *map(self._graph.integer, numbers)]
        return self._add(_Op.DEPTHWISE_CONV_2D, inputs, (b, -(-h // stride), -(-w // stride), c))

    def _excitation(self, x: Tensor) -> Tensor:
        """Channels multiplied by what their means say."""
        narrow = self._convolved(self._reduced(_Op.MEAN, x, [1, 2], like=x), self._below(12))
        wide = self._convolved(narrow, x.dims[3])
        return self._pair(_Op.MUL, x, self._add(_Op.LOGISTIC, [wide], wide.dims, _SHARES), FuseCode.NONE)

    def _dilated(self, x: Tensor) -> Tensor:
        """A depthwise convolution of every second pixel, written by batches."""
        b, h, w, c = x.dims
        ends = h % 2, w % 2
        rows, columns = (h + ends[0]) // 2, (w + ends[1]) // 2
        block, borders = self._integers([2, 2]), self._integers([[0, ends[0]], [0, ends[1]]])
        spread = self._add(_Op.SPACE_TO_BATCH_ND, [x, block, borders], (4 * b, rows, columns, c), like=x)
        weights, bias = self._weights((1, 3, 3, c), c, 9, spread)
        numbers = map(self._graph.integer, (PaddingCode.SAME, 1, 1, 1, FuseCode.RELU))
        made = self._add(_Op.DEPTHWISE_CONV_2D, [spread, weights, bias, *numbers], spread.dims)
        return self._add(_Op.BATCH_TO_SPACE_ND, [made, block], (b, 2 * rows, 2 * columns, c), like=made)

    def _shuffled(self, x: Tensor) -> Tensor:
        """Channels of groups in turn."""
        c = x.dims[3]
        groups = next((count for count in (4, 3, 2) if c % count == 0), 1)
        rows = element_count(x.dims) // c
        apart = self._transposed(self._reshaped(x, (rows, groups, c // groups)), [0, 2, 1])
        return self._reshaped(apart, x.dims)

    def _pooled(self, x: Tensor) -> Tensor:
        b, h, w, c = x.dims
        size, stride = self._one_of((2, 3)), self._one_of((1, 2))
        numbers = map(self._graph.integer, (PaddingCode.SAME, stride, stride, size, size, FuseCode.NONE))
        code = self._one_of((_Op.MAX_POOL_2D, _Op.AVERAGE_POOL_2D))
        return self._add(code, [x, *numbers], (b, -(-h // stride), -(-w // stride), c), like=x)

    def _resized(self, x: Tensor) -> Tensor:
        b, _, _, c = x.dims
        height, width = self._below(20), self._below(20)
        code = self._one_of((_Op.RESIZE_BILINEAR, _Op.RESIZE_NEAREST_NEIGHBOR))
        numbers = *map(self._graph.integer, (width, height)), self._graph.flag(False)
        return self._add(code, [x, *numbers], (b, height, width, c), like=x)

    def _padded(self, x: Tensor) -> Tensor:
        edges = [(0, 0), *((self._below(3) - 1, self._below(3) - 1) for _ in range(x.rank - 2)), (0, 0)]
        dims = tuple(size + sum(edge) for size, edge in zip(x.dims, edges, strict=True))
        return self._add(_Op.PAD, [x, self._integers(edges)], dims, like=x)

    def _product(self, x: Tensor) -> Tensor:
        """Rows by an earlier tensor's, or by a constant's; then a number times all."""
        fits = [y for y in self._made if y.rank == x.rank and y.dims[:-2] == x.dims[:-2] and y.dims[-1] == x.dims[-1]]
        other = self._one_of(fits) if fits else self._constant((*x.dims[:-2], self._below(20), x.dims[-1]))
        made = self._matmul(x, other, True)
        return self._pair(_Op.MUL, made, self._constant((1,)), FuseCode.NONE)

    def _attention(self, x: Tensor) -> Tensor:
        """Heads of queries, keys and values of rows; their shares of values side by side."""
        rows, depth = element_count(x.dims) // x.dims[-1], x.dims[-1]
        heads, size = self._below(4), self._one_of((4, 8, 9, 16, 17))
        flat = self._reshaped(x, (rows, depth))
        apart = [self._reshaped(self._fully_connected(flat, heads * size), (1, rows, heads, size)) for _ in range(3)]
        queries, keys, values = (self._transposed(part, [0, 2, 1, 3]) for part in apart)
        scores = self._pair(_Op.MUL, self._matmul(queries, keys, True), self._constant((1,)), FuseCode.NONE)
        if self._rng.random() < 0.5:
            scores = self._pair(_Op.ADD, scores, self._constant((1, 1, rows, rows)), FuseCode.NONE)
        mixed = self._transposed(self._matmul(self._softmax(scores), values, False), [0, 2, 1, 3])
        return self._reshaped(self._fully_connected(self._reshaped(mixed, (rows, heads * size)), depth), x.dims)

    def _dense(self, x: Tensor) -> Tensor:
        made = self._fully_connected(x, self._below(48))
        return self._reshaped(made, (*x.dims[:-1], made.dims[1]))

    # What blocks are made of.

    def _convolved(self, x: Tensor, depth: int, taps: int = 1, stride: int = 1, dilation: int = 1) -> Tensor:
        b, h, w, c = x.dims
        weights, bias = self._weights((depth, taps, taps, c), depth, taps * taps * c, x)
        numbers = [PaddingCode.SAME, stride, stride, self._one_of(_ACTIVATIONS)]
        inputs = [x, weights, bias, *map(self._graph.integer, numbers), self._graph.flag(False)]
        inputs += [self._graph.integer(dilation)] * 2
        return self._add(_Op.CONV_2D, inputs, (b, -(-h // stride), -(-w // stride), depth))

    def _fully_connected(self, x: Tensor, units: int) -> Tensor:
        weights, bias = self._weights((units, x.dims[-1]), units, x.dims[-1], x)
        activation = self._graph.integer(self._one_of(_ACTIVATIONS))
        dims = element_count(x.dims) // x.dims[-1], units
        return self._add(_Op.FULLY_CONNECTED, [x, weights, bias, activation], dims)

    def _matmul(self, x: Tensor, y: Tensor, is_turned: bool) -> Tensor:
        flags = self._graph.flag(False), self._graph.flag(is_turned)
        return self._add(_Op.BATCH_MATMUL, [x, y, *flags], (*x.dims[:-1], y.dims[-2 if is_turned else -1]))

    def _pair(self, code: OperationCode, x: Tensor, y: Tensor, activation: FuseCode | None = None) -> Tensor:
        chosen = self._one_of(_ACTIVATIONS) if activation is None else activation
        return self._add(code, [x, y, self._graph.integer(chosen)], np.broadcast_shapes(x.dims, y.dims))

    def _reduced(self, code: OperationCode, x: Tensor, axes: Sequence[int], like: Tensor | None = None) -> Tensor:
        dims = tuple(1 if axis in axes else size for axis, size in enumerate(x.dims))
        keep = self._graph.integer(1) if code == _Op.MEAN else self._graph.flag(True)
        return self._add(code, [x, self._integers(axes), keep], dims, like=like)

    def _transposed(self, x: Tensor, order: Sequence[int] | npt.NDArray[np.int64]) -> Tensor:
        return self._add(_Op.TRANSPOSE, [x, self._integers(order)], tuple(x.dims[axis] for axis in order), like=x)

    def _reshaped(self, x: Tensor, dims: Dimensions) -> Tensor:
        return self._add(_Op.RESHAPE, [x, self._integers(dims)], dims, like=x)

    def _add(
        self,
        code: OperationCode,
        inputs: Sequence[Tensor | int],
        dims: Dimensions,
        quantization: tuple[float, int] | None = None,
        like: Tensor | None = None,
    ) -> Tensor:
        """Add an operation, whose result has a quantisation, or that of another tensor."""
        scale, zero_point = (like.scale, like.zero_point) if like else quantization or (SCALE, ZERO)
        scale, zero_point = (0.0, 0) if self._is_real else (scale, zero_point)
        output = self._graph.temporary(dims, self._code, scale, zero_point)
        operands = [one.index if isinstance(one, Tensor) else one for one in inputs]
        self._read |= set(operands)
        self._graph.operation(code, operands, output)
        return Tensor(output, tuple(dims), scale, zero_point)

    def _input(self, dims: Dimensions) -> Tensor:
        scale, zero_point = (0.0, 0) if self._is_real else (SCALE, ZERO)
        self.inputs.append(self._values(dims))
        return Tensor(self._graph.input(dims, self._code, scale, zero_point), dims, scale, zero_point)

    def _constant(self, dims: Dimensions) -> Tensor:
        scale, zero_point = (0.0, 0) if self._is_real else (SCALE, ZERO)
        index = self._graph.constant(self._values(dims), self._code, scale, zero_point)
        return Tensor(index, dims, scale, zero_point)

    def _number(self, number: float) -> Tensor:
        return Tensor(self._graph.constant(np.full(1, number, np.float32)), (1,), 0.0, 0)

    def _integers(self, values: object) -> int:
        return self._graph.constant(np.array(values, np.int32))

    def _weights(self, dims: Dimensions, depth: int, products: int, x: Tensor) -> tuple[int, int]:
        """Return weights and bias for sums of so many products, which stay near 1."""
        if self._is_real:
            weights = self._rng.standard_normal(dims) / np.sqrt(products)
            bias = self._rng.standard_normal(depth)
            return self._graph.constant(weights.astype(np.float32)), self._graph.constant(bias.astype(np.float32))
        scale = float(np.float32(0.02 / np.sqrt(products)))
        weights = self._rng.integers(-127, 127, dims, np.int8, endpoint=True)
        bias = self._rng.integers(-500, 500, depth).astype(np.int32)
        bias_scale = float(np.float32(x.scale) * np.float32(scale))
        return (
            self._graph.constant(weights, self._code, scale),
            self._graph.constant(bias, OperandCode.TENSOR_INT32, bias_scale),
        )

    def _values(self, dims: Dimensions) -> Array:
        if self._is_real:
            return self._rng.standard_normal(dims).astype(np.float32)
        return self._rng.integers(-128, 127, dims, np.int8, endpoint=True)

    def _swapped(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return (x, y) if self._rng.random() < 0.7 else (y, x)

    def _one_of(self, things: Sequence[_Thing]) -> _Thing:
        return things[int(self._rng.integers(len(things)))]

    def _below(self, limit: int) -> int:
        """Return a number from 1 to less than a limit that is more than 1."""
        return int(self._rng.integers(1, limit))

    @staticmethod
    def _cut(dims: Dimensions, axis: int) -> Dimensions:
        return (*dims[:axis], *dims[axis + 1 :])
