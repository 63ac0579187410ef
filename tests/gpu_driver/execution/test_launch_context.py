# SPDX-License-Identifier: Apache-2.0
"""A launch in one context: memory that is cut into images, and what is left of it where that fails. Needs no device."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from gpu_driver.execution.launch_context import LaunchContext
from gpu_driver.kernel import Images, Kernel, Scratch
from gpu_driver.launch import Launch

if TYPE_CHECKING:
    import pyopencl as cl

    from gpu_driver.device.programs import Program
    from gpu_driver.execution.compiled_segment import CompiledSegment

Part = tuple["Memory", int, int]


class Memory:
    """A buffer that is cut as long as the device has room for parts."""

    room = 1 << 10

    def get_sub_region(self, origin: int, size: int, _flags: int) -> Part:
        if not self.room:
            raise MemoryError
        self.room -= 1
        return self, origin, size


class Setting:
    """A launch of two images, and what its kernel is given."""

    def __init__(self) -> None:
        self.given: list[Part] = []
        kernel = SimpleNamespace(set_arg=lambda _, value: self.given.append(value))
        launch = Launch(Kernel("any.cl", "any"), (Images(Scratch(16), 2),), (1,), (1,))
        program = cast("Program", SimpleNamespace(kernel=lambda _: kernel))
        device = SimpleNamespace(enqueue_persistent=None)
        self.context = LaunchContext(launch, program, cast("CompiledSegment", SimpleNamespace(device=device)), None)

    def set(self, memory: Memory) -> None:
        buffer = cast("cl.Buffer", memory)
        self.context.set_memory(0, buffer, buffer, 32)

    def enqueue(self, monkeypatch: pytest.MonkeyPatch) -> list[Part]:
        monkeypatch.setattr("pyopencl.enqueue_nd_range_kernel", lambda *_: None)
        self.given.clear()
        self.context.enqueue(cast("cl.CommandQueue", None), None, in_stages=False)
        return self.given


def test_a_launch_is_enqueued_for_each_image(monkeypatch: pytest.MonkeyPatch) -> None:
    setting, memory = Setting(), Memory()
    setting.set(memory)
    assert setting.enqueue(monkeypatch) == [(memory, 32, 8), (memory, 40, 8)]


@pytest.mark.parametrize("room", [0, 1])
def test_memory_that_could_not_be_cut_is_cut_the_next_time(monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    setting, before, memory = Setting(), Memory(), Memory()
    setting.set(before)
    memory.room = room
    with pytest.raises(MemoryError):
        setting.set(memory)
    memory.room = 2
    setting.set(memory)
    assert setting.enqueue(monkeypatch) == [(memory, 32, 8), (memory, 40, 8)]
