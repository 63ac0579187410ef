# SPDX-License-Identifier: Apache-2.0
"""Copies between shared and device memory (AOSP ExecutionDeviceMemory and TestMemory groups)."""

from __future__ import annotations

import tempfile

import numpy as np
import pytest

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.errors import BadData, OperationFailed, Unmappable
from nn_runtime.hal.types import ErrorStatus, HalError
from nn_runtime.memory import Memory
from nn_runtime.memory_desc import MemoryDesc
from nn_runtime.testing.sample_drivers import SampleDevice
from tests.nn_runtime.graphs import chain_model, finished, numbers
from tests.nn_runtime.memories import device_memory, device_memory_between, per_channel, shared

READ = 1


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


def test_data_survives_shared_device_device_shared() -> None:
    a, b = device_memory_between()[-1], device_memory_between()[-1]
    start, end = Memory.from_array(numbers(2, 3)), Memory.from_array(np.zeros((2, 3), np.float32))
    for source, target in ((start, a), (a, b), (b, end)):
        Memory.copy(source, target)
    np.testing.assert_array_equal(end.to_array(np.float32, (2, 3)), numbers(2, 3))
    with pytest.raises(BadData, match="bytes"):
        Memory.copy(Memory.from_array(numbers(2, 4)), a)
    wide = device_memory_between(dims=(2, 4))[-1]
    Memory.copy(Memory.from_array(numbers(2, 4)), wide)
    with pytest.raises(BadData, match="contradict"):
        Memory.copy(wide, a)


@pytest.mark.parametrize("source", ["shared", "device"])
@pytest.mark.parametrize(
    ("dims", "fits"), [((6, 4), True), ((0, 4), False), ((6, 0), False), ((), False), ((6, 1), False), ((4, 6), True)]
)
def test_what_may_be_copied_into_device_memory(source: str, dims: tuple[int, ...], fits: bool) -> None:
    """From shared memory of 24 floats only into memory of known, fitting dimensions.

    From device memory [6, 4] into any that they refine.
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


def test_copies_between_scales_of_channels() -> None:
    memories = []
    for scales in ((0.5, 0.25), (0.5, 0.25), (0.5, 0.125)):
        desc = MemoryDesc()
        desc.add_input_role(per_channel(scales), 1, 1.0)
        desc.finish()
        memories.append(Memory.from_desc(desc))
    source, same, other = memories
    Memory.copy(shared(2, np.int8), source)
    Memory.copy(source, same)
    with pytest.raises(BadData, match=r"different operand types: channel_quant of the destination .*0\.125.*, of the"):
        Memory.copy(source, other)


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
