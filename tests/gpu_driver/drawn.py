# SPDX-License-Identifier: Apache-2.0
"""Networks of convolutions one after the other, drawn at random, for tests of chains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FuseCode, OperandCode, OperationCode, PaddingCode
from tests.gpu_driver.graphs import Graph

if TYPE_CHECKING:
    from nn_runtime.operand import Array, Dimensions

CONV, DEPTHWISE, ADD, RESHAPE, FULLY = (
    OperationCode.CONV_2D,
    OperationCode.DEPTHWISE_CONV_2D,
    OperationCode.ADD,
    OperationCode.RESHAPE,
    OperationCode.FULLY_CONNECTED,
)
FLOAT, QUANT8, SIGNED, BIAS = (
    OperandCode.TENSOR_FLOAT32,
    OperandCode.TENSOR_QUANT8_ASYMM,
    OperandCode.TENSOR_QUANT8_ASYMM_SIGNED,
    OperandCode.TENSOR_INT32,
)
SCALES = {FLOAT: 0.0, QUANT8: float(np.float32(0.05)), SIGNED: float(np.float32(0.05))}
ZEROS = {FLOAT: 0, QUANT8: 120, SIGNED: -7}


class Network:
    """Draws convolutions one after the other."""

    def __init__(self, code: OperandCode, dims: Dimensions, seed: int, wide_channels: int = 0) -> None:
        self.graph = Graph()
        self.wide_channels = wide_channels
        self.bias_range = 500
        self.weights_zero = ZEROS[code]
        self.outliers = 1.0  # of the weights, that may be more than signed bytes less their zero point
        self.code = code
        self.dims = dims
        self._scale = SCALES[code]
        self._rng = np.random.default_rng(seed)
        self.last = self.graph.input(dims, code, SCALES[code], ZEROS[code])

    def operand(self, dims: Dimensions, *, is_output: bool = False, scale: float = 1.0) -> int:
        make = self.graph.output if is_output else self.graph.temporary
        self._scale = float(np.float32(scale * SCALES[self.code]))
        return make(dims, self.code, self._scale, ZEROS[self.code])

    def convolve(self, depth: int, taps: int = 1, stride: int = 1, *, is_output: bool = False) -> int:
        b, h, w, depth_in = self.dims
        return self._step(
            CONV, (depth, taps, taps, depth_in), (b, -(-h // stride), -(-w // stride), depth), stride, is_output
        )

    def depthwise(self, taps: int = 3, stride: int = 1, *, is_output: bool = False) -> int:
        b, h, w, depth = self.dims
        return self._step(
            DEPTHWISE, (1, taps, taps, depth), (b, -(-h // stride), -(-w // stride), depth), stride, is_output
        )

    def plus(self, other: int, *, is_output: bool = False) -> int:
        output = self.operand(self.dims, is_output=is_output, scale=1.7)
        self.graph.operation(ADD, [self.last, other, self.graph.integer(FuseCode.RELU)], output)
        self.last = output
        return output

    def reshape(self, dims: Dimensions) -> int:
        output = self.operand(dims, scale=self._scale / SCALES[self.code] if self._scale else 1.0)
        self.graph.operation(RESHAPE, [self.last, self.graph.constant(np.array(dims, np.int32))], output)
        self.last, self.dims = output, dims
        return output

    def fully(self, units: int) -> int:
        weights, bias = self._constants((units, self.dims[-1]), units)
        output = self.operand((self.dims[0], units), is_output=True)
        self.graph.operation(FULLY, [self.last, weights, bias, self.graph.integer(FuseCode.NONE)], output)
        self.last, self.dims = output, (self.dims[0], units)
        return output

    def data(self) -> Array:
        return self._values(self.graph.model().main.operands[0].dimensions)

    def _step(self, code: int, filter_dims: Dimensions, dims: Dimensions, stride: int, is_output: bool) -> int:
        weights, bias = self._constants(filter_dims, dims[-1])
        output = self.operand(dims, is_output=is_output)
        activated = code == DEPTHWISE  # as in MobileNet V2: then 8-bit sums below 0 need no rounding
        numbers = [PaddingCode.SAME, stride, stride, *([1, FuseCode.RELU] if activated else [FuseCode.NONE])]
        self.graph.operation(code, [self.last, weights, bias, *map(self.graph.integer, numbers)], output)
        self.last, self.dims = output, dims
        return output

    def _constants(self, dims: Dimensions, depth: int) -> tuple[int, int]:
        """Draw weights and bias; those of 3 x 3 filters are signed bytes less the usual zero point, if narrow."""
        fan_in = np.prod(dims) / depth
        if self.code == FLOAT:
            weights = self._rng.standard_normal(dims).astype(np.float32) / np.float32(np.sqrt(fan_in))
            bias = self._rng.standard_normal(depth).astype(np.float32)
            return self.graph.constant(weights), self.graph.constant(bias)
        scale = float(np.float32(0.02 / np.sqrt(fan_in)))
        whole = self._rng.integers(-self.bias_range, self.bias_range, depth).astype(np.int32)
        weights = self._values(dims)
        if self.outliers < 1:
            info, zero = np.iinfo(weights.dtype), self.weights_zero
            inside = np.clip(weights, max(info.min, zero - 128), min(info.max, zero + 127)).astype(weights.dtype)
            weights = np.where(self._rng.random(dims) < self.outliers, weights, inside)
        if dims[1:3] == (3, 3) and self.weights_zero == ZEROS[self.code]:
            narrow = weights[..., self.wide_channels :]
            narrow[...] = np.minimum(narrow, min(ZEROS[self.code] + 127, np.iinfo(weights.dtype).max))
        return (
            self.graph.constant(weights, self.code, scale, self.weights_zero),
            self.graph.constant(whole, BIAS, float(np.float32(scale) * np.float32(self._scale))),
        )

    def _values(self, dims: Dimensions) -> Array:
        if self.code == FLOAT:
            return self._rng.standard_normal(dims).astype(np.float32)
        info = np.iinfo(np.uint8 if self.code == QUANT8 else np.int8)
        return self._rng.integers(info.min, info.max, dims, info.dtype, endpoint=True)


def inverted_residuals(code: OperandCode, batches: int = 1) -> Network:
    """Blocks as of MobileNet V2, with sizes that are no multiples of anything, and a reshape."""
    network = Network(code, (batches, 19, 17, 3), 5)
    network.convolve(24, 3, 2)
    skipped = network.last
    for stride in (1, 1, 2):
        network.convolve(67)
        network.depthwise(3, stride)
        network.convolve(24)
        if stride == 1:
            skipped = network.plus(skipped)
    network.depthwise(5)
    network.convolve(9, 3)
    b, h, w, depth = network.dims
    network.reshape((b, h * w * depth))
    network.fully(33)
    return network


def convolutions_with_work_memory(code: OperandCode, batches: int = 1) -> Network:
    """In float, on up to three cores, a convolution joined with the depthwise one behind it, and two by Winograd."""
    network = Network(code, (batches, 42, 11, 16), 6)
    network.convolve(48)
    network.depthwise()
    network.convolve(32)
    skipped = network.last
    network.convolve(32, 3)
    network.plus(skipped)
    network.convolve(40, 3)
    network.convolve(5, is_output=True)
    return network


def attention(code: OperandCode, rows: int = 15) -> Network:
    """Scaled products of rows, their SOFTMAX, and products with these; then sums of rows."""
    network = Network(code, (2, rows, 20), 7)
    graph, scored = network.graph, (2, rows, rows)

    def made(kind: OperationCode, operands: list[int], dims: Dimensions, *, is_output: bool = False) -> int:
        output = network.operand(dims, is_output=is_output)
        graph.operation(kind, operands, output)
        return output

    x = network.last  # no element-wise steps on long rows: an interpreter knows address spaces apart, they do not
    products = made(OperationCode.BATCH_MATMUL, [x, x, graph.flag(False), graph.flag(True)], scored)
    factor = graph.constant(np.full(1, 0.25, np.float32))
    scaled = made(OperationCode.MUL, [products, factor, graph.integer(FuseCode.NONE)], scored)
    shares = made(OperationCode.SOFTMAX, [scaled, graph.real(1.0)], scored)
    mixed = made(OperationCode.BATCH_MATMUL, [shares, x, graph.flag(False), graph.flag(False)], network.dims)
    axes = graph.constant(np.array([2], np.int32))
    network.dims = (2, rows, 1)
    made(OperationCode.MEAN, [mixed, axes, graph.integer(1)], network.dims, is_output=True)
    return network


def attention_of_few_rows(code: OperandCode) -> Network:
    """The same by right sides as they are."""
    return attention(code, 5)
