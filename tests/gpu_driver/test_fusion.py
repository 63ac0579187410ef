# SPDX-License-Identifier: Apache-2.0
"""What follows a convolution, an ADD or bounds: part of its step where it fits, else an operation of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpu_driver.lowering import Lowering
from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.devices import find_device
from nn_runtime.operand import dtype_of
from tests.gpu_driver.graphs import Graph, request
from tests.gpu_driver.profiles import CPU_PROFILE, GPU_PROFILE
from tests.gpu_driver.running import discrete, prepare, run

if TYPE_CHECKING:
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.driver import Device
    from nn_runtime.hal.types import Model
    from nn_runtime.operand import Array, Dimensions

FLOAT, QUANT8 = OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_QUANT8_ASYMM
SCALE, ZERO = 0.05, 120
BATCHES, HEIGHT, WIDTH, DEPTH = 2, 5, 6, 8


@dataclass(frozen=True)
class Block:
    """CONV_2D 3 x 3, to which another input is added; or what is as that in all but one thing."""

    code: OperandCode = FLOAT
    other: Dimensions = (BATCHES, HEIGHT, WIDTH, DEPTH)
    activation: FuseCode = FuseCode.NONE
    """Of the convolution; that of the ADD is RELU6."""
    constants: int = 2
    """How many of filter and bias the model has; the others come with the run."""
    nchw: bool = False
    sum_scale: float = 2 * SCALE
    is_depthwise: bool = False
    is_product: bool = False
    """Whether MUL takes the place of ADD."""
    is_doubled: bool = False
    """Whether what the convolution makes is added to itself."""

    def model(self) -> tuple[Model, list[Array]]:
        """Return the model and its inputs."""
        rng, graph, inputs = np.random.default_rng(2), Graph(), []
        is_real = self.code == FLOAT

        def drawn(dims: Dimensions, code: OperandCode) -> Array:
            if code == OperandCode.TENSOR_INT32:
                return rng.integers(-900, 900, dims).astype(np.int32)
            return rng.uniform(-1, 1, dims).astype(np.float32) if is_real else rng.integers(0, 256, dims, np.uint8)

        def tensor(dims: Dimensions, code: OperandCode, scale: float, zero: int, is_constant: bool) -> int:
            data, quantised = drawn(dims, code), (0.0, 0) if is_real else (float(np.float32(scale)), zero)
            if is_constant:
                return graph.constant(data, code, *quantised)
            inputs.append(data)
            return graph.input(dims, code, *quantised)

        def in_layout(dims: Dimensions) -> Dimensions:
            return tuple(dims[axis] for axis in (0, 3, 1, 2)) if self.nchw else dims

        dims = in_layout((BATCHES, HEIGHT, WIDTH, DEPTH))
        filters = (1 if self.is_depthwise else DEPTH, 3, 3, DEPTH)
        bias_scale = float(np.float32(SCALE) * np.float32(0.01))
        operands = [
            tensor(dims, self.code, SCALE, ZERO, False),
            tensor(filters, self.code, 0.01, 130, self.constants > 0),
            tensor((DEPTH,), self.code if is_real else OperandCode.TENSOR_INT32, bias_scale, 0, self.constants > 1),
        ]
        multiplier = [1] if self.is_depthwise else []
        operands += [graph.integer(one) for one in (1, 1, 1, 1, 1, 1, *multiplier, self.activation)]
        operands.append(graph.flag(self.nchw))
        made = graph.temporary(dims, self.code, 0.0 if is_real else 0.07, 0 if is_real else 90)
        kind = OperationCode.DEPTHWISE_CONV_2D if self.is_depthwise else OperationCode.CONV_2D
        graph.operation(kind, operands, made)
        added = made if self.is_doubled else tensor(in_layout(self.other), self.code, SCALE, ZERO, False)
        output = graph.output(dims, self.code, 0.0 if is_real else self.sum_scale, 0 if is_real else 100)
        code = OperationCode.MUL if self.is_product else OperationCode.ADD
        graph.operation(code, [made, added, graph.integer(FuseCode.RELU6)], output)
        return graph.model(), inputs


APART = {
    "a row of channels": Block(other=(1, 1, 1, DEPTH)),
    "one picture": Block(other=(1, HEIGHT, WIDTH, DEPTH)),
    "an activation before": Block(activation=FuseCode.RELU),
    "a depthwise one": Block(is_depthwise=True),
    "a product": Block(is_product=True),
    "itself": Block(is_doubled=True),
    "bytes and themselves": Block(QUANT8, is_doubled=True),
    "channels of bytes": Block(QUANT8, other=(1, 1, 1, DEPTH)),
    "a filter of the run": Block(QUANT8, constants=0),
    "a bias of the run": Block(QUANT8, constants=1),
    "channels first": Block(QUANT8, nchw=True),
    "a coarse sum": Block(QUANT8, sum_scale=50.0),
    "a product of bytes": Block(QUANT8, is_product=True),
}
JOINED = {
    "floats": Block(),
    "a filter of the run": Block(constants=0),
    "channels first": Block(nchw=True),
}
JOINED_IN_CHAINS = {
    "bytes": Block(QUANT8),
    "bytes with an activation before": Block(QUANT8, activation=FuseCode.RELU),
}


def is_joined(block: Block, profile: DeviceProfile) -> bool:
    """Whether the tensor between is nowhere; constants of the model are not folded."""
    model, _ = block.model()
    lowering = Lowering(model, profile)
    segment = lowering.lower(0, lowering.static_inputs())
    between = model.main.operations[0].outputs[0]
    return between not in segment.operands


def check(device: Device, block: Block) -> None:
    model, inputs = block.model()
    output = model.main.operands[model.main.output_indexes[0]]
    results = []
    for driver in (find_device("nnapi-reference").hal, device):
        results.append(np.zeros(output.dimensions, dtype_of(output.type)))
        run(prepare(driver, model), request(inputs, [results[-1]]))  # type: ignore[arg-type]
    if block.code == FLOAT:
        np.testing.assert_allclose(results[1], results[0], rtol=1e-5, atol=1e-5)
    else:
        np.testing.assert_array_equal(results[1], results[0])


@pytest.mark.parametrize("block", APART.values(), ids=APART)
def test_what_stays_apart(opencl_device: Device, block: Block) -> None:
    check(opencl_device, block)
    check(discrete(opencl_device), block)


@pytest.mark.parametrize("block", [*JOINED.values(), *JOINED_IN_CHAINS.values()], ids=[*JOINED, *JOINED_IN_CHAINS])
def test_what_is_one(opencl_device: Device, block: Block) -> None:
    assert is_joined(block, CPU_PROFILE)
    assert is_joined(block, GPU_PROFILE) == (block.code == FLOAT)
    check(opencl_device, block)
    check(discrete(opencl_device), block)


MAXIMUM, MINIMUM = OperationCode.MAXIMUM, OperationCode.MINIMUM


@dataclass(frozen=True)
class Bounded:
    """A convolution of real numbers, and what bounds its results one after the other: an operation and a constant."""

    bounds: tuple[tuple[OperationCode, Array], ...]
    kind: OperationCode = OperationCode.CONV_2D
    code: OperandCode = FLOAT
    activation: FuseCode = FuseCode.NONE
    has_residual: bool = False
    depth: int = DEPTH
    is_read_between: bool = False
    """Whether what is between the convolution and its bounds is a result, too."""

    def graph(self) -> tuple[Model, list[Array], Array]:
        """Return the model, its inputs and what it makes of them."""
        rng, graph = np.random.default_rng(5), Graph()
        dtype = dtype_of(self.code)
        is_depthwise = self.kind == OperationCode.DEPTHWISE_CONV_2D
        dims, result_dims = (BATCHES, HEIGHT, WIDTH, self.depth), (BATCHES, HEIGHT, WIDTH, DEPTH)
        x, filters = (rng.integers(-8, 9, shape).astype(dtype) for shape in (dims, (DEPTH, 1, 1, self.depth)))
        if is_depthwise:
            filters = filters[:1, :, :, :DEPTH]
        source = graph.input(dims, self.code)
        window = [graph.integer(one) for one in (0, 0, 0, 0, 1, 1, *([1] if is_depthwise else []), self.activation)]
        operands = [source, *(graph.constant(one, self.code) for one in (filters, np.ones(DEPTH, dtype))), *window]
        inputs = [x]
        expected = x * filters[0, 0, 0] if is_depthwise else x @ filters[:, 0, 0].T
        expected = expected.astype(np.float64) + 1
        if self.activation == FuseCode.RELU:
            expected = np.maximum(expected, 0)
        made = graph.output(result_dims, self.code) if self.is_read_between else graph.temporary(result_dims, self.code)
        graph.operation(self.kind, operands, made)
        if self.has_residual:
            inputs.append(rng.integers(-8, 9, result_dims).astype(dtype))
            added = graph.temporary(result_dims, self.code)
            other = graph.input(result_dims, self.code)
            graph.operation(OperationCode.ADD, [made, other, graph.integer(FuseCode.NONE)], added)
            made, expected = added, expected + inputs[-1]
        for at, (code, number) in enumerate(self.bounds):
            is_last = at == len(self.bounds) - 1
            bounded = (graph.output if is_last else graph.temporary)(result_dims, self.code)
            pair = [made, graph.constant(number.astype(dtype), self.code)]
            graph.operation(code, pair if at % 2 == 0 else pair[::-1], bounded)
            expected = (np.maximum if code == MAXIMUM else np.minimum)(expected, number)
            made = bounded
        return graph.model(), inputs, expected


def number(value: float) -> Array:
    return np.array([value], np.float32)


BOUNDED = {
    "both": Bounded(((MAXIMUM, number(-5)), (MINIMUM, number(7)))),
    "the greatest first": Bounded(((MINIMUM, number(7)), (MAXIMUM, number(-5)))),
    "one": Bounded(((MINIMUM, number(3)),)),
    "bounds that leave one number": Bounded(((MAXIMUM, number(9)), (MINIMUM, number(2)))),
    "behind an activation": Bounded(((MINIMUM, number(7)), (MAXIMUM, number(-5))), activation=FuseCode.RELU),
    "above an activation": Bounded(((MAXIMUM, number(2)),), activation=FuseCode.RELU),
    "below an activation": Bounded(((MINIMUM, number(-2)),), activation=FuseCode.RELU),
    "behind an ADD": Bounded(((MAXIMUM, number(-5)), (MINIMUM, number(7))), has_residual=True),
    "depthwise": Bounded(((MAXIMUM, number(-5)), (MINIMUM, number(7))), OperationCode.DEPTHWISE_CONV_2D),
    "few channels": Bounded(((MAXIMUM, number(-5)), (MINIMUM, number(7))), depth=3),
    "halves": Bounded(((MAXIMUM, number(-5)), (MINIMUM, number(7))), code=OperandCode.TENSOR_FLOAT16),
    "an infinity": Bounded(((MAXIMUM, number(-np.inf)), (MINIMUM, number(np.inf)))),
}
BOUNDED_APART = {
    "a number for each channel": Bounded(((MINIMUM, np.arange(DEPTH, dtype=np.float32)),)),
    "no number": Bounded(((MINIMUM, number(np.nan)),)),
    "what others read": Bounded(((MINIMUM, number(3)),), is_read_between=True),
}


def check_bounded(device: Device, bounded: Bounded) -> None:
    model, inputs, expected = bounded.graph()
    outputs = [model.main.operands[index] for index in model.main.output_indexes]
    results = [np.zeros(one.dimensions, dtype_of(one.type)) for one in outputs]
    run(prepare(device, model), request(inputs, results))
    if not np.isnan(expected).any():
        np.testing.assert_array_equal(results[-1], expected)


def command_count(bounded: Bounded, profile: DeviceProfile) -> int:
    model, _, _ = bounded.graph()
    lowering = Lowering(model, profile)
    return len(lowering.lower(0, lowering.static_inputs()).commands)


@pytest.mark.parametrize("bounded", BOUNDED.values(), ids=BOUNDED)
def test_bounds_are_those_of_the_convolution(opencl_device: Device, bounded: Bounded) -> None:
    for profile in (CPU_PROFILE, GPU_PROFILE):
        assert command_count(bounded, profile) == 1
    for device in (opencl_device, discrete(opencl_device)):
        check_bounded(device, bounded)


@pytest.mark.parametrize("bounded", BOUNDED_APART.values(), ids=BOUNDED_APART)
def test_bounds_that_stay_apart(opencl_device: Device, bounded: Bounded) -> None:
    for profile in (CPU_PROFILE, GPU_PROFILE):
        assert command_count(bounded, profile) == 2
    for device in (opencl_device, discrete(opencl_device)):
        check_bounded(device, bounded)
