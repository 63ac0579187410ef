# SPDX-License-Identifier: Apache-2.0
"""The ADD behind a convolution: part of its step where it fits, else an operation of its own, with the same results."""

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
