# SPDX-License-Identifier: Apache-2.0
"""Device memory as arguments of executions (AOSP ExecutionDeviceMemory group)."""

from __future__ import annotations

import numpy as np
import pytest

from nn_runtime.codes import OperationCode
from nn_runtime.errors import BadData, OperationFailed
from nn_runtime.execution import Execution
from nn_runtime.hal.types import ErrorStatus
from nn_runtime.memory import Memory
from nn_runtime.memory_desc import MemoryDesc
from nn_runtime.testing.sample_drivers import SampleDevice
from tests.nn_runtime.graphs import add_model, chain_model, finished, numbers, tensor
from tests.nn_runtime.memories import device_memory_between


def test_a_result_stays_on_the_device() -> None:
    device, first, second, memory = device_memory_between()
    assert memory.buffer is not None
    assert len(device.record.allocations) == 1
    output = np.zeros((2, 3), np.float32)
    second.set_input_from_memory(0, memory)
    second.set_output(0, output)
    first.set_input(0, numbers(2, 3))
    first.set_output_from_memory(0, memory)
    first.compute()
    second.compute()
    wanted = np.maximum(numbers(2, 3), 0)
    np.testing.assert_array_equal(output, wanted)
    np.testing.assert_array_equal(memory.to_array(np.float32, (2, 3)), wanted)


def test_misuse_of_device_memory() -> None:
    _, first, second, memory = device_memory_between()
    with pytest.raises(BadData, match="used whole"):
        first.set_input_from_memory(0, memory, 0, 24)
    other = Execution(finished(add_model((2, 3)), [SampleDevice("sample")]))
    with pytest.raises(BadData, match="input 0: this device memory was made for other compilations, not for this use"):
        other.set_input_from_memory(0, memory)
    second.set_input_from_memory(0, memory)
    second.set_output(0, numbers(2, 3))
    with pytest.raises(OperationFailed, match="input 0: the device memory has no data yet"):
        second.compute()


def test_a_failed_run_spoils_its_output() -> None:
    device, first, second, memory = device_memory_between()
    Memory.copy(Memory.from_array(numbers(2, 3)), memory)
    first.set_input(0, numbers(2, 3))
    first.set_output_from_memory(0, memory)
    device.script.execute = ErrorStatus.GENERAL_FAILURE
    with pytest.raises(OperationFailed):
        first.compute()
    second.set_input_from_memory(0, memory)
    second.set_output(0, numbers(2, 3))
    with pytest.raises(OperationFailed, match="no data"):
        second.compute()
    with pytest.raises(BadData, match="no data"):
        Memory.copy(memory, Memory.from_array(numbers(2, 3)))


def test_dimensions_known_only_after_the_run() -> None:
    _, first, second, memory = device_memory_between(dims=(0, 3))
    first.set_input(0, numbers(4, 3), tensor(4, 3))
    first.set_output_from_memory(0, memory)
    first.compute()
    assert memory.size_bytes == 48
    output = np.zeros(12, np.float32)
    second.set_input_from_memory(0, memory, operand_type=tensor(4, 3))
    second.set_output(0, output)
    second.compute()
    np.testing.assert_array_equal(output.reshape(4, 3), np.maximum(numbers(4, 3), 0))
    with pytest.raises(BadData, match="not known"):
        Memory.copy(Memory.from_array(numbers(4, 3)), memory)


def test_dynamic_device_memory_takes_results_of_other_sizes() -> None:
    device = SampleDevice("sample")
    compilation = finished(chain_model([OperationCode.RELU], (0, 3)), [device])
    desc = MemoryDesc()
    desc.add_output_role(compilation, 0, 1.0)
    desc.finish()
    memory = Memory.from_desc(desc)
    assert memory.buffer is not None
    for rows in (4, 2, 5):
        execution = Execution(compilation)
        execution.set_input(0, numbers(rows, 3), tensor(rows, 3))
        execution.set_output_from_memory(0, memory)
        execution.compute()
        assert memory.size_bytes == 12 * rows
        np.testing.assert_array_equal(memory.to_array(np.float32, (rows, 3)), np.maximum(numbers(rows, 3), 0))


def test_dynamic_device_memory_cannot_take_what_the_cpu_makes_in_its_place() -> None:
    device = SampleDevice("sample")
    compilation = finished(chain_model([OperationCode.RELU], (0, 3)), [device], fallback=True)
    desc = MemoryDesc()
    desc.add_output_role(compilation, 0, 1.0)
    desc.finish()
    execution = Execution(compilation)
    execution.set_input(0, numbers(4, 3), tensor(4, 3))
    execution.set_output_from_memory(0, Memory.from_desc(desc))
    device.script.execute = ErrorStatus.GENERAL_FAILURE
    with pytest.raises(OperationFailed, match=r"device memory of shape \[0, 3\] cannot go to the CPU"):
        execution.compute()


def test_dynamic_device_memory_takes_every_shape_within_its_own() -> None:
    """The input's dimensions must be those of the last output (AOSP ExecutionDeviceMemory, dynamic shape)."""
    _, first, second, memory = device_memory_between(dims=(0, 3))
    for execution in (first, second):
        execution.set_reusable(True)
    with pytest.raises(BadData, match="contradict"):
        first.set_output_from_memory(0, memory, operand_type=tensor(4, 2))
    first.set_input(0, numbers(4, 3), tensor(4, 3))
    first.set_output_from_memory(0, memory)
    second.set_output(0, np.zeros(12, np.float32))
    with pytest.raises(BadData, match="must be known"):
        second.set_input_from_memory(0, memory)
    second.set_input_from_memory(0, memory, operand_type=tensor(2, 3))
    first.compute()
    with pytest.raises(OperationFailed, match=r"holds \[4, 3\], the input is \[2, 3\]"):
        second.compute()
