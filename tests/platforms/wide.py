# SPDX-License-Identifier: Apache-2.0
"""Operations long enough for the kernels that take whole vectors, tiles or groups of the work: our cases are shorter.

Random numbers; the CPU driver's function says what is right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nn_runtime.codes import FuseCode, OperationCode
from tests.gpu_driver.graphs import Graph, request
from tests.gpu_driver.operations.compare import (
    ALL,
    FLOAT16,
    FLOAT32,
    INT32,
    SIGNED,
    Scalar,
    Value,
    check,
    constant,
    like,
    random_tensor,
)
from tests.gpu_driver.running import prepare, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nn_runtime.device import Device
    from nn_runtime.operand import Dimensions

SCALES = 0.05, 0.1, 0.03
"""Of the bytes x, y and of what becomes of them."""
INDICES = Value(INT32, np.empty(0, np.int32))


class Wide(NamedTuple):
    """One operation with its operands; outputs give types and quantisations."""

    code: OperationCode
    inputs: tuple[Value | Scalar, ...]
    outputs: tuple[Value, ...]

    @property
    def name(self) -> str:
        """Operation, type and dimensions of the first input."""
        first = self.inputs[0]
        return f"{self.code.name} {first.type} {first.data.shape}" if isinstance(first, Value) else self.code.name

    def check(self, device: Device) -> None:
        """Compare with the CPU driver's function; raises AssertionError."""
        check(device, self.code, self.inputs, *self.outputs)


class FunctionOfTwoBytes(NamedTuple):
    """(x - y)^2 between DEQUANTIZE and QUANTIZE, which becomes a table of pairs; int8 x and y, which is broadcast."""

    x: Dimensions
    y: Dimensions

    @property
    def name(self) -> str:
        """What it is, and the dimensions."""
        return f"a function of two bytes {self.x} {self.y}"

    def check(self, device: Device) -> None:
        """Compare with the function's value; raises AssertionError."""
        graph = Graph()
        none = graph.integer(FuseCode.NONE)
        reals = []
        for dims, scale in zip((self.x, self.y), SCALES, strict=False):
            reals.append(graph.temporary(dims))
            graph.operation(OperationCode.DEQUANTIZE, [graph.input(dims, SIGNED, scale)], reals[-1])
        difference, square = graph.temporary(self.x), graph.temporary(self.x)
        graph.operation(OperationCode.SUB, [*reals, none], difference)
        graph.operation(OperationCode.MUL, [difference, difference, none], square)
        graph.operation(OperationCode.QUANTIZE, [square], graph.output(self.x, SIGNED, SCALES[2]))
        draw = np.random.default_rng(0)
        x, y = (draw.integers(-128, 128, dims).astype(np.int8) for dims in (self.x, self.y))
        result = np.zeros(self.x, np.int8)
        run(prepare(device.hal, graph.model()), request([x, y], [result]))  # type: ignore[arg-type]
        wanted = (SCALES[0] * x.astype(np.float64) - SCALES[1] * y.astype(np.float64)) ** 2 / SCALES[2]
        difference_of_codes = np.abs(result - np.minimum(wanted, 127)).max()
        assert difference_of_codes <= 0.5 + 1e-4, f"{self.name}: off by {difference_of_codes}"


def functions_of_two_bytes() -> Iterator[FunctionOfTwoBytes]:
    """Yield what rows of vectors are made of, and rows that are too short for one."""
    for x, y in (((4, 33), (4, 33)), ((2, 16, 16), (2, 1, 16)), ((5, 3), (5, 1)), ((7,), (7,))):
        yield FunctionOfTwoBytes(x, y)


def operations() -> Iterator[Wide]:
    """Yield every operation in every type."""
    for data_type in ALL:
        for depth in (16, 33):
            image = random_tensor(data_type, (1, 4, 5, depth))
            pooling = 1, 0, 1, 1, 2, 1, 3, 2, int(FuseCode.NONE)
            yield Wide(OperationCode.AVERAGE_POOL_2D, (image, *pooling), (image,))
            yield Wide(OperationCode.MAX_POOL_2D, (image, *pooling), (image,))
            if data_type in (FLOAT32, FLOAT16):
                yield Wide(OperationCode.L2_POOL_2D, (image, *pooling), (image,))
            yield Wide(OperationCode.RESIZE_BILINEAR, (image, 3, 7, False), (image,))
            yield Wide(OperationCode.RESIZE_NEAREST_NEIGHBOR, (image, 3, 7, False), (image,))
            yield Wide(OperationCode.MEAN, (image, constant([1, 2]), 0), (image,))
            yield Wide(OperationCode.REDUCE_MAX, (image, constant([1, 2]), False), (image,))
        long = random_tensor(data_type, (3, 257))
        yield Wide(OperationCode.MEAN, (long, constant([1]), 1), (long,))
        yield Wide(OperationCode.REDUCE_MIN, (long, constant([1]), True), (long,))
        short = random_tensor(data_type, (35, 7))
        yield Wide(OperationCode.MEAN, (short, constant([1]), 1), (short,))
        yield Wide(OperationCode.REDUCE_MAX, (short, constant([1]), True), (short,))
        yield Wide(OperationCode.ARGMAX, (long, 1), (INDICES,))
        yield from (Wide(OperationCode.TOPK_V2, (long, k), (long, INDICES)) for k in (5, 100))
        rows = random_tensor(data_type, (5, 4, 18))
        yield Wide(OperationCode.SLICE, (rows, constant([1, 0, 3]), constant([4, 4, 9])), (rows,))
        for count in (2, 3, 4, 8):
            for dims in ((5, count, 19), (5, 19, count)):
                lines = random_tensor(data_type, dims)
                yield Wide(OperationCode.TRANSPOSE, (lines, constant([0, 2, 1])), (lines,))
        few, many = random_tensor(data_type, (2, 68), spread=0.5), random_tensor(data_type, (33, 20), spread=0.5)
        for source in (few, many):
            depth = source.data.shape[1]
            weights = random_tensor(data_type, (35, depth), 1, spread=0.5)
            biases = np.zeros(35, np.int32 if source.scale else source.data.dtype)
            bias = Value(INT32 if source.scale else data_type, biases, source.scale * weights.scale)
            output = like(source, source.scale * 10)
            yield Wide(OperationCode.FULLY_CONNECTED, (source, weights, bias, int(FuseCode.NONE)), (output,))
        image, weights = random_tensor(data_type, (1, 4, 5, 6)), random_tensor(data_type, (1, 3, 3, 6), 1, spread=0.5)
        biases = np.zeros(6, np.int32 if image.scale else image.data.dtype)
        bias = Value(INT32 if image.scale else data_type, biases, image.scale * weights.scale)
        window = 1, 0, 1, 1, 2, 1, 1, int(FuseCode.NONE)
        output = like(image, image.scale * 10)
        yield Wide(OperationCode.DEPTHWISE_CONV_2D, (image, weights, bias, *window), (output,))
    for data_type in (FLOAT32, FLOAT16):
        rows = random_tensor(data_type, (5, 37))
        yield Wide(OperationCode.L2_NORMALIZATION, (rows,), (rows,))
        sequence = random_tensor(data_type, (9, 3, 5), spread=0.5)
        matrices = (random_tensor(data_type, dims, 1, spread=0.5) for dims in ((17, 5), (17, 17), (17,), (3, 17)))
        cell = (sequence, *matrices, int(FuseCode.RELU6), 1)
        yield Wide(OperationCode.UNIDIRECTIONAL_SEQUENCE_RNN, cell, (sequence,))
    for data_type in (FLOAT32, FLOAT16, SIGNED, INT32):
        for count, depth, adjoined in ((9, 7, False), (9, 7, True), (2, 21, True), (14, 21, True), (14, 7, False)):
            left = random_tensor(data_type, (2, count, depth), 1, spread=0.5)
            right = random_tensor(data_type, (2, 33, depth) if adjoined else (2, depth, 33), 2, spread=0.5)
            yield Wide(OperationCode.BATCH_MATMUL, (left, right, False, adjoined), (like(left, left.scale * 3),))
