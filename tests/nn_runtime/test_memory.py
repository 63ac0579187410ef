# SPDX-License-Identifier: Apache-2.0
"""Memory: files, arrays, device memory, copies (AOSP MemoryDesc, ExecutionDeviceMemory and TestMemory groups)."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest

from nn_runtime.codes import OperationCode
from nn_runtime.errors import BadData, BadState, OperationFailed, Unmappable
from nn_runtime.execution import Execution
from nn_runtime.hal.types import ErrorStatus
from nn_runtime.memory import Memory, MemoryDesc
from nn_runtime.model import Model
from nn_runtime.testing.sample_drivers import SampleDevice
from tests.nn_runtime.graphs import add, add_model, chain_model, finished, numbers, run, tensor

READ, WRITE = 1, 2


def test_a_mapped_file_at_any_offset() -> None:
    with tempfile.TemporaryFile() as file:
        file.write(np.arange(10, dtype=np.float32).tobytes())
        file.flush()
        memory = Memory.from_fd(24, READ, file.fileno(), 8)
    with memory:
        assert memory.size_bytes == 24
        assert memory.to_array(np.float32, (2, 3)).tolist() == [[2, 3, 4], [5, 6, 7]]
        with pytest.raises(BadData, match="needs 40 bytes, the memory has 24"):
            memory.to_array(np.float32, (10,))


def test_a_bad_descriptor() -> None:
    with pytest.raises(Unmappable, match="cannot be duplicated"):
        Memory.from_fd(8, READ, 10**6, 0)


def test_shared_copies_need_equal_sizes() -> None:
    source, target = Memory.from_array(np.arange(4)), Memory.from_array(np.zeros(4, np.int64))
    Memory.copy(source, target)
    assert target.to_array(np.int64, (4,)).tolist() == [0, 1, 2, 3]
    with pytest.raises(BadData, match="source has 32 bytes, the destination 4"):
        Memory.copy(source, Memory.from_array(np.zeros(1, np.float32)))


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
    for call in (desc.finish, lambda: desc.set_dimensions((2, 3)), lambda: desc.add_input_role(compilation, 1, 1.0)):
        with pytest.raises(BadState, match="finished"):
            call()


def _between(first: int = 0, dims: tuple[int, ...] = (2, 3)) -> tuple[SampleDevice, Execution, Execution, Memory]:
    """Two executions of a RELU, with device memory that is the output of one and the input of the other."""
    device = SampleDevice("sample")
    compilation = finished(chain_model([OperationCode.RELU], dims), [device])
    desc = MemoryDesc()
    desc.add_output_role(compilation, 0, 1.0)
    desc.add_input_role(compilation, 0, 1.0)
    desc.finish()
    return device, Execution(compilation), Execution(compilation), Memory.from_desc(desc)


def test_a_result_stays_on_the_device() -> None:
    device, first, second, memory = _between()
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
    _, first, second, memory = _between()
    with pytest.raises(BadData, match="used whole"):
        first.set_input_from_memory(0, memory, 0, 24)
    other = Execution(finished(add_model((2, 3)), [SampleDevice("sample")]))
    with pytest.raises(BadData, match="not for this use"):
        other.set_input_from_memory(0, memory)
    second.set_input_from_memory(0, memory)
    second.set_output(0, numbers(2, 3))
    with pytest.raises(OperationFailed, match="input 0: the device memory has no data yet"):
        second.compute()


def test_a_failed_run_spoils_its_output() -> None:
    device, first, second, memory = _between()
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


def test_data_survives_shared_device_device_shared() -> None:
    a, b = _between()[-1], _between()[-1]
    start, end = Memory.from_array(numbers(2, 3)), Memory.from_array(np.zeros((2, 3), np.float32))
    for source, target in ((start, a), (a, b), (b, end)):
        Memory.copy(source, target)
    np.testing.assert_array_equal(end.to_array(np.float32, (2, 3)), numbers(2, 3))
    with pytest.raises(BadData, match="bytes"):
        Memory.copy(Memory.from_array(numbers(2, 4)), a)
    wide = _between(dims=(2, 4))[-1]
    Memory.copy(Memory.from_array(numbers(2, 4)), wide)
    with pytest.raises(BadData, match="contradict"):
        Memory.copy(wide, a)


def test_dimensions_known_only_after_the_run() -> None:
    _, first, second, memory = _between(dims=(0, 3))
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


def open_descriptors() -> int:
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.is_dir() else 0


def test_many_runs_over_mapped_memory_leak_nothing() -> None:
    compilation = finished(add_model((2, 3)), [], fallback=True)
    descriptors = open_descriptors()
    for _ in range(50):
        with Memory.from_array(numbers(2, 3)) as memory, Execution(compilation) as execution:
            execution.set_input_from_memory(0, memory, 0, 24)
            execution.set_input(1, numbers(2, 3))
            execution.set_output(0, np.zeros((2, 3), np.float32))
            execution.compute()
    assert open_descriptors() <= descriptors + 2
    run(compilation, [numbers(2, 3)] * 2, [(2, 3)])


def test_a_closed_memory_lives_on_in_the_model_that_uses_it() -> None:
    model = Model()
    x, w, y = (model.add_operand(tensor(2)) for _ in range(3))
    with Memory.from_array(np.array([1, 2], np.float32)) as memory:
        model.set_operand_value_from_memory(w, memory, 0, 8)
    add(model, x, w, y)
    model.identify_inputs_and_outputs([x], [y])
    model.finish()
    (result,) = run(finished(model, [], fallback=True), [np.zeros(2, np.float32)], [(2,)])
    assert result.tolist() == [1, 2]
