# SPDX-License-Identifier: Apache-2.0
"""Memory: files, arrays, device memory, copies (AOSP MemoryDesc, ExecutionDeviceMemory and TestMemory groups)."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.errors import BadData, BadState, OperationFailed, UnexpectedNull, Unmappable
from nn_runtime.execution import Execution
from nn_runtime.hal.memory import HardwareBuffer, HardwareBufferFormat, HardwareBufferUsage
from nn_runtime.hal.types import ErrorStatus, HalError
from nn_runtime.memory import Memory
from nn_runtime.memory_desc import MemoryDesc
from nn_runtime.model import Model
from nn_runtime.operand import ChannelQuant, OperandType
from nn_runtime.testing.sample_drivers import NullDevice, SampleDevice
from tests.nn_runtime.descriptors import needs_descriptors, open_descriptors
from tests.nn_runtime.graphs import FLOAT, add, add_model, chain_model, finished, numbers, run, scalar, tensor

if TYPE_CHECKING:
    from nn_runtime.compilation import Compilation

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


@pytest.mark.parametrize("place", ["input", "output", "constant"])
def test_a_file_that_was_cut_short_is_an_error_and_not_the_end_of_the_process(place: str) -> None:
    page = 4096
    with tempfile.TemporaryFile() as file:
        file.truncate(page)
        memory = Memory.from_fd(page, READ | WRITE, file.fileno(), 0)
        model = Model()
        operands = [model.add_operand(OperandType(FLOAT, (page // 4,))) for _ in range(3)]
        fuse = model.add_operand(OperandType(OperandCode.INT32))
        model.set_operand_value(fuse, 0)
        model.set_operand_value_from_memory(operands[1], memory, 0, page)
        model.add_operation(OperationCode.ADD, [operands[0], operands[1], fuse], [operands[2]])
        model.identify_inputs_and_outputs([operands[0]], [operands[2]])
        model.finish()
        if place == "constant":
            execution = Execution(finished(model, [SampleDevice("sample")]))
        else:
            execution = Execution(finished(chain_model([OperationCode.RELU], (page // 4,)), [SampleDevice("sample")]))
        execution.set_reusable(True)
        data = np.zeros(page // 4, np.float32)
        if place == "input":
            execution.set_input_from_memory(0, memory, 0, page)
        else:
            execution.set_input(0, data)
        if place == "output":
            execution.set_output_from_memory(0, memory, 0, page)
        else:
            execution.set_output(0, data.copy())
        execution.compute()
        file.truncate(0)
        with pytest.raises(Unmappable, match="4096 bytes at offset 0 cannot be mapped: the file has 0 bytes now"):
            execution.compute()
        with pytest.raises(Unmappable, match="the file has 0 bytes now"):
            Memory.copy(memory, Memory.from_array(np.zeros(page, np.uint8)))
        with pytest.raises(Unmappable, match="the file has 0 bytes now"):
            finished(model, [SampleDevice("sample")])


def test_an_output_needs_memory_that_can_be_written() -> None:
    execution = Execution(finished(chain_model([OperationCode.RELU], (4,)), [SampleDevice("sample")]))
    with tempfile.TemporaryFile() as file:
        file.truncate(16)
        memory = Memory.from_fd(16, READ, file.fileno(), 0)
    with pytest.raises(BadData, match="output 0: the memory is read-only: it was made without PROT_WRITE"):
        execution.set_output_from_memory(0, memory, 0, 16)


def test_a_bad_descriptor() -> None:
    with pytest.raises(Unmappable, match="cannot be duplicated"):
        Memory.from_fd(8, READ, 10**6, 0)


def test_shared_copies_need_equal_sizes() -> None:
    source, target = Memory.from_array(np.arange(4)), Memory.from_array(np.zeros(4, np.int64))
    Memory.copy(source, target)
    assert target.to_array(np.int64, (4,)).tolist() == [0, 1, 2, 3]
    with pytest.raises(BadData, match="source has 32 bytes, the destination 4"):
        Memory.copy(source, Memory.from_array(np.zeros(1, np.float32)))


def test_memory_that_is_only_read_takes_no_copy() -> None:
    with tempfile.TemporaryFile() as file:
        file.truncate(16)
        target = Memory.from_fd(16, READ, file.fileno(), 0)
    with pytest.raises(Unmappable, match="memory copy: the destination was mapped without PROT_WRITE"):
        Memory.copy(shared(4), target)
    assert target.to_array(np.float32, (4,)).tolist() == [0, 0, 0, 0]


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


@needs_descriptors
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


def test_memory_of_a_blob_is_plain_bytes() -> None:
    """Constants, inputs and outputs (AOSP TestAHardwareBuffer)."""
    buffer = HardwareBuffer(48)
    buffer.lock()[:] = np.arange(12, dtype=np.float32).view(np.uint8)
    memory = Memory.from_hardware_buffer(buffer)
    assert memory.size_bytes == 48
    model = Model()
    x, w, y = (model.add_operand(tensor(2)) for _ in range(3))
    with pytest.raises(BadData, match="outside the memory of 48"):
        model.set_operand_value_from_memory(w, memory, 44, 8)
    model.set_operand_value_from_memory(w, memory, 8, 8)
    add(model, x, w, y)
    model.identify_inputs_and_outputs([x], [y])
    model.finish()
    target = Memory.from_hardware_buffer(HardwareBuffer(8, usage=ALL_USAGES))
    execution = Execution(finished(model, [], fallback=True))
    with pytest.raises(BadData, match="cannot be implied"):
        execution.set_input_from_memory(0, memory)
    with pytest.raises(BadData, match="outside"):
        execution.set_input_from_memory(0, memory, 44, 8)
    execution.set_input_from_memory(0, memory, 40, 8)
    execution.set_output_from_memory(0, target, 0, 8)
    execution.compute()
    assert target.to_array(np.float32, (2,)).tolist() == [12, 14]


ALL_USAGES = HardwareBufferUsage.CPU_READ | HardwareBufferUsage.CPU_WRITE | HardwareBufferUsage.GPU_DATA_BUFFER


def test_memory_of_nothing_is_refused() -> None:
    with pytest.raises(UnexpectedNull, match="memory: the shared memory is None"):
        Memory(None)


def test_bad_hardware_buffers() -> None:
    for sizes in ((0, 1, 1), (4, 2, 1), (4, 1, 2)):
        with pytest.raises(BadData, match="hardware buffer"):
            HardwareBuffer(*sizes)
    with pytest.raises(UnexpectedNull):
        Memory.from_hardware_buffer(None)  # type: ignore[arg-type]
    with pytest.raises(Unmappable, match="usage"):
        Memory.from_hardware_buffer(HardwareBuffer(4, usage=HardwareBufferUsage.GPU_DATA_BUFFER))


def test_another_format_is_used_whole_by_a_driver_that_takes_it() -> None:
    buffer = HardwareBuffer(2, 3, format=HardwareBufferFormat.R8G8B8A8_UNORM)
    assert buffer.lock().nbytes == buffer.size_bytes == 24
    buffer.lock()[:] = numbers(2, 3).reshape(-1).view(np.uint8)
    memory, plain = Memory.from_hardware_buffer(buffer), Memory.from_array(numbers(2, 3))
    model = Model()
    index = model.add_operand(tensor(2, 3))
    with pytest.raises(
        BadData,
        match=r"operand 0 .*: a constant: wanted plain bytes, .*, got a hardware buffer",
    ):
        model.set_operand_value_from_memory(index, memory, 0, 24)
    for source, target, what in ((memory, plain, "source"), (plain, memory, "destination")):
        with pytest.raises(Unmappable, match=f"the {what}: wanted plain bytes, format BLOB, got a hardware buffer"):
            Memory.copy(source, target)

    def bound(device: SampleDevice, **where: int) -> Execution:
        execution = Execution(finished(chain_model([OperationCode.RELU]), [device]))
        execution.set_input_from_memory(0, memory, **where)
        execution.set_output(0, np.zeros((2, 3), np.float32))
        return execution

    with pytest.raises(BadData, match="used whole"):
        bound(SampleDevice("plain"), length=24)
    with pytest.raises(
        OperationFailed,
        match=r"input 0: wanted plain memory, .* of format R8G8B8A8_UNORM, 2 x 3 x 1",
    ):
        bound(SampleDevice("plain")).compute()
    device = NullDevice("taking")
    bound(device).compute()
    (request,) = device.record.requests
    assert request.pools == (buffer,)
    assert request.inputs[0].location.length == 0


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


@pytest.mark.parametrize("source", ["shared", "device"])
@pytest.mark.parametrize(
    ("dims", "fits"), [((6, 4), True), ((0, 4), False), ((6, 0), False), ((), False), ((6, 1), False), ((4, 6), True)]
)
def test_what_may_be_copied_into_device_memory(source: str, dims: tuple[int, ...], fits: bool) -> None:
    """From shared memory of 24 floats only into memory of known, fitting dimensions; from device memory [6, 4] into

    any that they refine.
    """
    target = device_memory(dims)
    start = shared(24)
    if source == "device":
        start = device_memory((6, 4))
        Memory.copy(shared(24), start)
        fits = dims in ((6, 4), (0, 4), (6, 0), ())
    if fits:
        Memory.copy(start, target)
        assert target.size_bytes == 96
        back = Memory.from_array(np.zeros(24, np.float32))
        Memory.copy(target, back)
        assert (back.to_array(np.float32, (24,)) == np.arange(24)).all()
    else:
        with pytest.raises(BadData):
            Memory.copy(start, target)
        with pytest.raises(BadData, match="no data"):
            Memory.copy(target, shared(24))


@pytest.mark.parametrize("floats", [23, 25])
def test_copies_need_the_exact_size(floats: int) -> None:
    memory = device_memory((6, 4))
    with pytest.raises(BadData, match="bytes"):
        Memory.copy(shared(floats), memory)
    Memory.copy(shared(24), memory)
    with pytest.raises(BadData, match="bytes"):
        Memory.copy(memory, shared(floats))


def test_copies_between_types_and_from_nothing() -> None:
    memory = device_memory((6, 4))
    for empty in (device_memory((6, 4)), device_memory((0, 4))):
        with pytest.raises(BadData, match="no data"):
            Memory.copy(empty, memory)
        with pytest.raises(BadData, match="no data"):
            Memory.copy(empty, shared(24))
    Memory.copy(shared(24), memory)
    with pytest.raises(BadData, match="different operand types"):
        Memory.copy(memory, device_memory((6, 4), code=OperandCode.TENSOR_FLOAT16))
    Memory.copy(memory, memory)
    same = device_memory((6, 4))
    Memory.copy(same, same)


def test_copies_between_scales() -> None:
    """The same bytes would be other numbers."""
    source, same, other = (
        device_memory((6, 4), code=OperandCode.TENSOR_QUANT8_ASYMM, scale=scale) for scale in (0.5, 0.5, 0.25)
    )
    Memory.copy(shared(24, np.uint8), source)
    Memory.copy(source, same)
    with pytest.raises(BadData, match="different operand types"):
        Memory.copy(source, other)


def test_copies_between_per_channel_scales() -> None:
    source, same, other = (filter_memory(scales) for scales in ((0.5, 0.25), (0.5, 0.25), (0.5, 0.125)))
    Memory.copy(shared(2, np.int8), source)
    Memory.copy(source, same)
    with pytest.raises(BadData, match="different operand types"):
        Memory.copy(source, other)


def test_a_copy_tells_its_dimensions_wherever_the_source_lies() -> None:
    """Memory from a descriptor that no device could allocate is shared, and has dimensions all the same."""
    device = SampleDevice("sample")
    device.script.allocate = ErrorStatus.GENERAL_FAILURE
    desc = MemoryDesc()
    desc.add_input_role(finished(chain_model([OperationCode.RELU], (3, 4)), [device], fallback=True), 0, 1.0)
    desc.finish()
    source, target = Memory.from_desc(desc), device_memory((0, 4))
    assert source.shared is not None
    assert target.buffer is not None
    Memory.copy(shared(12), source)
    Memory.copy(source, target)
    assert target.size_bytes == 48
    assert (target.to_array(np.float32, (3, 4)) == np.arange(12).reshape(3, 4)).all()


def test_a_copy_that_is_refused_takes_the_data_away() -> None:
    """As one that fails on the way does (AOSP MemoryDesc MemoryCopying)."""
    wide, empty = device_memory((0, 4)), device_memory((6, 4))
    Memory.copy(device_with_data((3, 4)), wide)
    for source in (shared(23), empty, wide):
        target = device_with_data((6, 4))
        with pytest.raises(BadData):
            Memory.copy(source, target)
        with pytest.raises(BadData, match="no data"):
            Memory.copy(target, shared(24))
        Memory.copy(shared(24), target)
        Memory.copy(target, shared(24))


def device_with_data(dims: tuple[int, int]) -> Memory:
    memory = device_memory(dims)
    Memory.copy(shared(dims[0] * dims[1]), memory)
    return memory


def test_dynamic_device_memory_takes_copies_of_other_sizes() -> None:
    target = device_memory((0, 4))
    for rows in (6, 3):
        source = device_memory((rows, 4))
        Memory.copy(shared(4 * rows), source)
        Memory.copy(source, target)
        assert target.size_bytes == 16 * rows
        assert (target.to_array(np.float32, (4 * rows,)) == np.arange(4 * rows)).all()


def test_a_failed_copy_takes_the_data_away() -> None:
    memory = device_memory((0, 4))
    wide = device_memory((3, 4))
    Memory.copy(shared(12), wide)
    Memory.copy(wide, memory)
    assert memory.domain is not None
    assert memory.domain.current == (3, 4)
    assert memory.buffer is not None

    def fail(*_arguments: object) -> None:
        raise HalError(ErrorStatus.GENERAL_FAILURE, "told to fail")

    memory.buffer.copy_from = fail  # type: ignore[method-assign]
    with pytest.raises(OperationFailed, match="told to fail"):
        Memory.copy(wide, memory)
    with pytest.raises(BadData, match="no data"):
        Memory.copy(memory, shared(12))


def test_dynamic_device_memory_takes_every_shape_within_its_own() -> None:
    """The input's dimensions must be those of the last output (AOSP ExecutionDeviceMemory, dynamic shape)."""
    _, first, second, memory = _between(dims=(0, 3))
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


def filter_memory(scales: tuple[float, ...]) -> Memory:
    """Device memory for the filter of `per_channel`."""
    desc = MemoryDesc()
    desc.add_input_role(per_channel(scales), 1, 1.0)
    desc.finish()
    return Memory.from_desc(desc)


def test_per_channel_scales_of_roles_must_agree() -> None:
    desc = MemoryDesc()
    desc.add_input_role(per_channel((0.5, 0.25)), 1, 1.0)
    desc.add_input_role(per_channel((0.5, 0.25)), 1, 1.0)
    with pytest.raises(BadData, match="channel_quant"):
        desc.add_input_role(per_channel((0.5, 0.125)), 1, 1.0)
