# SPDX-License-Identifier: Apache-2.0
"""Memory of files, arrays and hardware buffers (AOSP TestMemory and TestAHardwareBuffer groups)."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.errors import BadData, BadState, OperationFailed, UnexpectedNull, Unmappable
from nn_runtime.execution import Execution
from nn_runtime.hal.memory import HardwareBuffer, HardwareBufferFormat, HardwareBufferUsage, SharedMemory
from nn_runtime.hal.types import BufferToken
from nn_runtime.memory import Memory
from nn_runtime.model import Model
from nn_runtime.operand import OperandType
from nn_runtime.testing.sample_drivers import NullDevice, SampleDevice
from tests.nn_runtime.descriptors import needs_descriptors, open_descriptors
from tests.nn_runtime.graphs import FLOAT, add, add_model, chain_model, finished, numbers, run, tensor

if TYPE_CHECKING:
    from pathlib import Path

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


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((0, READ, 0), "size must be > 0 and offset >= 0, got 0 and 0"),
        ((8, READ, -1), "size must be > 0 and offset >= 0, got 8 and -1"),
        ((8, 0, 0), "prot must be .* or both, got 0"),
        ((8, 4, 0), "prot must be .* or both, got 4"),
        ((8, READ | 8, 0), "prot must be .* or both, got 9"),
    ],
)
def test_what_of_a_file_cannot_be_memory(arguments: tuple[int, int, int], reason: str) -> None:
    size, prot, offset = arguments
    with tempfile.TemporaryFile() as file:
        file.truncate(16)
        with pytest.raises(BadData, match=reason):
            Memory.from_fd(size, prot, file.fileno(), offset)


@pytest.mark.parametrize("dims", [(-1,), (2, -1), (-1, -2)])
def test_no_dimension_of_an_array_is_left_open(dims: tuple[int, ...]) -> None:
    with (
        Memory.from_array(np.zeros(16, np.uint8)) as memory,
        pytest.raises(BadData, match=r"memory: dimensions must be >= 0, got \[.*-"),
    ):
        memory.to_array(np.uint8, dims)


def test_an_array_of_objects_is_no_memory() -> None:
    with pytest.raises(BadData, match="memory from array: wanted a numpy array of numbers, got object"):
        Memory.from_array(np.array([object()]))


@pytest.mark.parametrize("closed", ["source", "destination"])
def test_closed_memory_is_not_copied(closed: str) -> None:
    memories = {what: Memory.from_array(np.zeros(4, np.uint8)) for what in ("source", "destination")}
    memories[closed].close()
    with pytest.raises(BadState, match=f"memory copy: the {closed} is closed"):
        Memory.copy(memories["source"], memories["destination"])


def test_a_drivers_buffer_is_closed_once() -> None:
    class Buffer:
        closings = 0

        def copy_to(self, destination: SharedMemory) -> None:
            raise NotImplementedError

        def copy_from(self, source: SharedMemory, dimensions: tuple[int, ...]) -> None:
            raise NotImplementedError

        def close(self) -> None:
            self.closings += 1

    buffer = Buffer()
    with Memory(None, buffer, 7) as memory:
        assert memory.pool == BufferToken(7)
    memory.close()
    assert buffer.closings == 1


def test_a_bad_descriptor() -> None:
    with pytest.raises(Unmappable, match="cannot be duplicated"):
        Memory.from_fd(8, READ, 10**6, 0)


@needs_descriptors
def test_descriptors_of_what_cannot_be_mapped(tmp_path: Path) -> None:
    path = tmp_path / "bytes"
    path.write_bytes(bytes(16))
    before = open_descriptors()
    cases = [
        ((path, os.O_RDONLY), READ | WRITE, "open for reading alone, and prot asks to write, too"),
        ((path, os.O_RDONLY), WRITE, "open for reading alone, and prot asks to write, too"),
        ((path, os.O_WRONLY), WRITE, "open for writing alone, and prot asks to read, too"),
        ((tmp_path, os.O_RDONLY), READ, "a directory cannot be mapped"),
    ]
    for opened, prot, message in cases:
        fd = os.open(*opened)
        with pytest.raises(Unmappable, match=f"memory from fd: .*{message}"):
            Memory.from_fd(8, prot, fd, 0)
        os.close(fd)
    ends = os.pipe()
    with pytest.raises(Unmappable, match="a pipe cannot be mapped"):
        Memory.from_fd(8, READ, ends[0], 0)
    for fd in ends:
        os.close(fd)
    assert open_descriptors() == before


def test_memory_of_nothing_is_refused() -> None:
    with pytest.raises(UnexpectedNull, match="memory: the shared memory is None"):
        Memory(None)


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


ALL_USAGES = HardwareBufferUsage.CPU_READ | HardwareBufferUsage.CPU_WRITE | HardwareBufferUsage.GPU_DATA_BUFFER


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


def test_bad_hardware_buffers() -> None:
    for sizes in ((0, 1, 1), (4, 2, 1), (4, 1, 2)):
        with pytest.raises(BadData, match="hardware buffer"):
            HardwareBuffer(*sizes)
    with pytest.raises(UnexpectedNull):
        Memory.from_hardware_buffer(None)  # type: ignore[arg-type]
    for usage in (HardwareBufferUsage.GPU_DATA_BUFFER, HardwareBufferUsage.CPU_READ, HardwareBufferUsage.CPU_WRITE):
        with pytest.raises(Unmappable, match="usage"):
            Memory.from_hardware_buffer(HardwareBuffer(4, usage=usage))


@pytest.mark.parametrize(("code", "pixel_bytes"), [(1, 4), (2, 4), (3, 3), (4, 2), (0x16, 8), (0x2B, 4)])
def test_formats_of_hardware_buffers(code: int, pixel_bytes: int) -> None:
    """Numbers of AHardwareBuffer_Format, whose names say how many bits each part of a pixel has."""
    with HardwareBuffer(3, 5, 2, HardwareBufferFormat(code)) as buffer:
        assert buffer.size_bytes == 3 * 5 * 2 * pixel_bytes
        assert buffer.lock().size == buffer.size_bytes


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
