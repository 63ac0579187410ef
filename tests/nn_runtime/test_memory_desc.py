# SPDX-License-Identifier: Apache-2.0
"""Descriptors of device memory: roles that go together, and what is made of them (AOSP MemoryDesc groups)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.errors import BadData, BadState, OperationFailed
from nn_runtime.execution import Execution
from nn_runtime.hal.types import ErrorStatus
from nn_runtime.memory import Memory
from nn_runtime.memory_desc import MemoryDesc
from nn_runtime.model import Model
from nn_runtime.operand import OperandType
from nn_runtime.testing.sample_drivers import SampleDevice
from tests.nn_runtime.graphs import FLOAT, add_model, chain_model, finished, numbers, tensor
from tests.nn_runtime.memories import per_channel

if TYPE_CHECKING:
    from nn_runtime.compilation import Compilation


def test_roles_of_a_descriptor() -> None:
    compilation = finished(add_model((2, 3)), [SampleDevice("sample")])
    desc = MemoryDesc()
    for frequency in (0.0, -1.0, 1.1):
        with pytest.raises(BadData, match="frequency of input 0"):
            desc.add_input_role(compilation, 0, frequency)
    with pytest.raises(BadData, match="input 2 is out of range, the model has 2"):
        desc.add_input_role(compilation, 2, 1.0)
    with pytest.raises(BadData, match="at least one role"):
        desc.finish()
    desc.add_input_role(compilation, 0, 1.0)
    with pytest.raises(BadData, match="there already"):
        desc.add_input_role(compilation, 0, 0.5)
    other = finished(add_model((2, 4)), [SampleDevice("sample")])
    with pytest.raises(BadData, match=r"output 0: dimensions \[2, 4\] contradict \[2, 3\]"):
        desc.add_output_role(other, 0, 1.0)
    with pytest.raises(BadData, match="contradict"):
        desc.set_dimensions((2, 3, 1))
    desc.set_dimensions((2, 0))
    with pytest.raises(BadState, match="not finished"):
        Memory.from_desc(desc)
    desc.finish()
    for state in ("finished", "closed"):
        for call in (
            desc.finish,
            lambda: desc.set_dimensions((2, 3)),
            lambda: desc.add_input_role(compilation, 1, 1.0),
        ):
            with pytest.raises(BadState, match=f"it is {state}"):
                call()
        desc.close()
    with pytest.raises(BadState, match="the descriptor is closed"):
        Memory.from_desc(desc)


def test_metadata_of_roles_must_agree() -> None:
    """AOSP MemoryDesc OperandMetadata, ExtraParams, SetDimensions, SetScalarDimensions."""
    quant = OperandCode.TENSOR_QUANT8_ASYMM

    def relu(code: int, scale: float = 0.0, zero_point: int = 0, dims: tuple[int, ...] = (2, 3)) -> Compilation:
        model = Model()
        x, y = (model.add_operand(tensor(*dims, code=code, scale=scale, zero_point=zero_point)) for _ in range(2))
        model.add_operation(OperationCode.RELU, [x], [y])
        model.identify_inputs_and_outputs([x], [y])
        model.finish()
        return finished(model, [SampleDevice("sample")])

    base = relu(quant, 0.5, 10)
    for other in (relu(FLOAT), relu(quant, 0.25, 10), relu(quant, 0.5, 11), relu(quant, 0.5, 10, (2, 4)),
                  relu(quant, 0.5, 10, (2, 3, 1))):  # fmt: skip
        desc = MemoryDesc()
        desc.add_input_role(base, 0, 1.0)
        with pytest.raises(BadData, match="output 0"):
            desc.add_output_role(other, 0, 1.0)
    desc = MemoryDesc()
    desc.add_input_role(base, 0, 1.0)
    desc.add_output_role(relu(quant, 0.5, 10, (0, 3)), 0, 0.5)
    desc.add_output_role(relu(quant, 0.5, 10, ()), 0, 0.5)
    for bad in ((3, 2), (2, 3, 1), (1,)):
        with pytest.raises(BadData):
            desc.set_dimensions(bad)
    desc.set_dimensions((2, 3))
    desc.set_dimensions((0, 0))
    desc.set_dimensions(())


@pytest.mark.parametrize("before", [True, False])
def test_scalars_have_no_dimensions(before: bool) -> None:
    model = Model()
    x, y = (model.add_operand(tensor(2)) for _ in range(2))
    fuse = model.add_operand(OperandType(OperandCode.INT32))
    model.add_operation(OperationCode.ADD, [x, x, fuse], [y])
    model.identify_inputs_and_outputs([x, fuse], [y])
    model.finish()
    compilation = finished(model, [], fallback=True)
    desc = MemoryDesc()
    if before:
        desc.set_dimensions((1,))
        with pytest.raises(BadData, match="scalar"):
            desc.add_input_role(compilation, 1, 1.0)
    else:
        desc.add_input_role(compilation, 1, 1.0)
        desc.set_dimensions(())
        with pytest.raises(BadData, match="scalar"):
            desc.set_dimensions((1,))


def test_per_channel_scales_of_roles_must_agree() -> None:
    desc = MemoryDesc()
    desc.add_input_role(per_channel((0.5, 0.25)), 1, 1.0)
    desc.add_input_role(per_channel((0.5, 0.25)), 1, 1.0)
    with pytest.raises(BadData, match="channel_quant"):
        desc.add_input_role(per_channel((0.5, 0.125)), 1, 1.0)


def test_one_explicit_compilation_among_the_roles_rules_shared_memory_out() -> None:
    device = SampleDevice("sample")
    device.script.allocate = ErrorStatus.GENERAL_FAILURE
    desc = MemoryDesc()
    for fallback in (True, False):
        desc.add_input_role(finished(chain_model([OperationCode.RELU]), [device], fallback), 0, 1.0)
    desc.finish()
    with pytest.raises(OperationFailed, match="not possible on the devices"):
        Memory.from_desc(desc)


def test_a_compilation_closed_before_the_memory_is_made_asks_nothing_of_its_device() -> None:
    device = SampleDevice("sample")
    compilation = finished(chain_model([OperationCode.RELU]), [device])
    desc = MemoryDesc()
    desc.add_input_role(compilation, 0, 1.0)
    desc.finish()
    compilation.close()
    memory = Memory.from_desc(desc)
    assert memory.shared is not None
    assert memory.size_bytes == 24
    assert not device.record.allocations


@pytest.mark.parametrize("fallback", [False, True])
@pytest.mark.parametrize("dims", [(2, 3), (0, 3)])
def test_shared_memory_takes_over_only_without_explicit_devices_and_with_known_size(
    fallback: bool, dims: tuple[int, ...]
) -> None:
    device = SampleDevice("sample")
    device.script.allocate = ErrorStatus.GENERAL_FAILURE
    compilation = finished(chain_model([OperationCode.RELU], dims), [device], fallback)
    desc = MemoryDesc()
    desc.add_input_role(compilation, 0, 1.0)
    desc.finish()
    if not fallback or 0 in dims:
        with pytest.raises(OperationFailed, match="device memory"):
            Memory.from_desc(desc)
        return
    memory = Memory.from_desc(desc)
    assert memory.shared is not None
    Memory.copy(Memory.from_array(numbers(2, 3)), memory)
    execution, output = Execution(compilation), np.zeros((2, 3), np.float32)
    execution.set_input_from_memory(0, memory)
    execution.set_output(0, output)
    execution.compute()
    np.testing.assert_array_equal(output, np.maximum(numbers(2, 3), 0))


def test_an_argument_of_two_devices_goes_to_neither() -> None:
    devices = [SampleDevice("adds", {OperationCode.RELU}), SampleDevice("multiplies", {OperationCode.TANH})]
    compilation = finished(_two_readers(), devices, fallback=True)
    desc = MemoryDesc()
    desc.add_input_role(compilation, 0, 1.0)
    desc.finish()
    assert Memory.from_desc(desc).shared is not None
    assert not any(device.record.allocations for device in devices)


def _two_readers() -> Model:
    model = Model()
    x, a, b = (model.add_operand(tensor(2, 3)) for _ in range(3))
    model.add_operation(OperationCode.RELU, [x], [a])
    model.add_operation(OperationCode.TANH, [x], [b])
    model.identify_inputs_and_outputs([x], [a, b])
    model.finish()
    return model
