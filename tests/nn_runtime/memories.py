# SPDX-License-Identifier: Apache-2.0
"""Device memory of small models, and shared memory to copy to and from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.execution import Execution
from nn_runtime.memory import Memory
from nn_runtime.memory_desc import MemoryDesc
from nn_runtime.model import Model
from nn_runtime.operand import ChannelQuant, OperandType
from nn_runtime.testing.sample_drivers import SampleDevice
from tests.nn_runtime.graphs import FLOAT, chain_model, finished, numbers, scalar, tensor

if TYPE_CHECKING:
    from nn_runtime.compilation import Compilation
    from nn_runtime.operand import Array


def memory_between(compilation: Compilation) -> Memory:
    """Device memory for the output of one execution and the input of another."""
    desc = MemoryDesc()
    desc.add_output_role(compilation, 0, 1.0)
    desc.add_input_role(compilation, 0, 1.0)
    desc.finish()
    return Memory.from_desc(desc)


def one_after_the_other(compilation: Compilation, memory: Memory, output: Array) -> tuple[Execution, Execution]:
    """Two executions of a model of one input: from numbers into the memory, from there into the output."""
    first, second = Execution(compilation), Execution(compilation)
    first.set_input(0, numbers(2, 3))
    first.set_output_from_memory(0, memory)
    second.set_input_from_memory(0, memory)
    second.set_output(0, output)
    return first, second


def device_memory_between(dims: tuple[int, ...] = (2, 3)) -> tuple[SampleDevice, Execution, Execution, Memory]:
    """Two executions of a RELU, with device memory that is the output of one and the input of the other."""
    device = SampleDevice("sample")
    compilation = finished(chain_model([OperationCode.RELU], dims), [device])
    return device, Execution(compilation), Execution(compilation), memory_between(compilation)


def device_memory(dims: tuple[int, ...], wanted: tuple[int, ...] = (), code: int = FLOAT, scale: float = 0.0) -> Memory:
    """Device memory for input 0 of a RELU."""
    model = Model()
    x, y = (model.add_operand(tensor(*dims, code=code, scale=scale)) for _ in range(2))
    model.add_operation(OperationCode.RELU, [x], [y])
    model.identify_inputs_and_outputs([x], [y])
    model.finish()
    desc = MemoryDesc()
    desc.add_input_role(finished(model, [SampleDevice("sample")]), 0, 1.0)
    desc.set_dimensions(wanted)
    desc.finish()
    return Memory.from_desc(desc)


def shared(floats: int, code: type = np.float32) -> Memory:
    return Memory.from_array(np.arange(floats, dtype=code))


def per_channel(scales: tuple[float, ...], channel_dim: int = 0) -> Compilation:
    """A convolution whose per-channel filter is an input."""
    model = Model()
    quant = OperandCode.TENSOR_QUANT8_ASYMM
    image = model.add_operand(tensor(1, 2, 2, 1, code=quant, scale=0.5))
    weights = OperandType(OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL, (2, 1, 1, 1), 0.0, 0,
                          ChannelQuant(scales, channel_dim))  # fmt: skip
    filters, bias = model.add_operand(weights), model.add_operand(tensor(2, code=OperandCode.TENSOR_INT32))
    result = model.add_operand(tensor(1, 2, 2, 2, code=quant, scale=1.0))
    model.add_operation(
        OperationCode.CONV_2D, [image, filters, bias, *(scalar(model, value) for value in (2, 1, 1, 0))], [result]
    )
    model.identify_inputs_and_outputs([image, filters, bias], [result])
    model.finish()
    return finished(model, [], fallback=True)
