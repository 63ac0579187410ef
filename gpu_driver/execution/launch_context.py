# SPDX-License-Identifier: Apache-2.0
"""One launch's kernel object in one context, its arguments set, and how it is enqueued."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyopencl as cl

from gpu_driver.bound import BoundOperand
from gpu_driver.execution.recorded import Clocked
from gpu_driver.kernel import Fault, Images, Packed, RandomSeed, Scratch, Zeroed, int32

if TYPE_CHECKING:
    from gpu_driver.device.device_memory import DeviceBuffer
    from gpu_driver.device.programs import Program
    from gpu_driver.execution.compiled_segment import CompiledSegment
    from gpu_driver.execution.recorded import Recorded
    from gpu_driver.kernel import Argument, Scalar
    from gpu_driver.launch import Clock, Launch
    from nn_runtime.operand import Array


class LaunchContext:
    """A launch's kernel object, with the memory that is its own. Not for two threads at once."""

    def __init__(self, launch: Launch, program: Program, compiled: CompiledSegment, fault: cl.Buffer | None) -> None:
        """Make the kernel object and set its constant and scalar arguments; `fault`: what a Fault stands for."""
        self.launch = launch
        self._device = compiled.device
        self.kernel = program.kernel(launch.kernel.name)
        self.seeds = [i for i, argument in enumerate(launch.arguments) if isinstance(argument, RandomSeed)]
        """Arguments that every run sets anew."""
        self._progress: DeviceBuffer | None = None
        """What its Zeroed argument stands for."""
        self._stamps: Array | None = None
        """When its tasks began and ended, of a launch that is enqueued once, where the host sees it."""
        self._parts: dict[int, list[cl.Buffer]] = {}
        """Of every argument that is one image after the other."""
        self._cut: dict[int, cl.Buffer] = {}
        """What those are parts of."""
        self._images = [i for i, argument in enumerate(launch.arguments) if isinstance(argument, Images)]
        for i, argument in enumerate(launch.arguments):
            value = fault if isinstance(argument, Fault) else self._lasting_value(argument, compiled)
            if value is not None:
                self.kernel.set_arg(i, value)

    @property
    def reads_images(self) -> bool:
        """Whether it is enqueued for every image apart."""
        return bool(self._images)

    def set_memory(self, i: int, buffer: cl.Buffer, whole: cl.Buffer, offset: int) -> None:
        """Set an argument to a buffer, which lies at `offset` of a whole one."""
        argument = self.launch.arguments[i]
        if not isinstance(argument, Images):
            self.kernel.set_arg(i, buffer)
        elif self._cut.get(i) is not buffer:
            self.forget_parts(i)  # those of another memory are none of this one's, should it not be cut
            self._parts[i] = _parts(argument, whole, offset)
            self._cut[i] = buffer

    def forget_parts(self, i: int) -> None:
        """Let go of the memory of an argument, if it is cut into images."""
        self._parts.pop(i, None)
        self._cut.pop(i, None)

    def forget_memory(self) -> None:
        """Let go of the parts of memory that may be given back."""
        self._parts.clear()
        self._cut.clear()

    def enqueue(self, queue: cl.CommandQueue, events: list[Recorded] | None, *, in_stages: bool) -> cl.Event:
        """Enqueue it, for every image, record it where a list is given, and return its last event.

        With `in_stages` its tasks, or else its stages, have their times.
        """
        launch = self.launch
        if in_stages and events is not None and launch.clock is not None:
            return self._enqueue_clocked(queue, launch.clock, events)
        if in_stages and events is not None and launch.stages and not self._images:
            return self._enqueue_stages(queue, events)
        for image in range(launch.repeats):
            event = self._enqueue_image(queue, image)
            if events is not None:
                events.append((launch, event))
        return event

    def _enqueue_image(self, queue: cl.CommandQueue, image: int) -> cl.Event:
        """Enqueue it once, on one part of each of its Images."""
        for i in self._images:
            self.kernel.set_arg(i, self._parts[i][image])
        enqueue = self._device.enqueue_persistent if self.launch.is_persistent else cl.enqueue_nd_range_kernel
        return enqueue(queue, self.kernel, self.launch.global_size, self.launch.local_size)

    def _enqueue_clocked(self, queue: cl.CommandQueue, clock: Clock, events: list[Recorded]) -> cl.Event:
        """Enqueue it to tell the times of its tasks, and reading them, for every image."""
        event: cl.Event
        if self._stamps is not None:
            event = self._enqueue_image(queue, 0)
            events.append((Clocked(self.launch, self._stamps, are_shared=True), event))
            return event
        if self._progress is None:
            raise TypeError(f"{self.launch.kernel.name} has a clock, but no memory for its times")
        for image in range(self.launch.repeats):
            data = np.empty(self._progress.size_bytes, np.uint8)
            events.append((Clocked(self.launch, clock.stamps(data)), self._enqueue_image(queue, image)))
            event = self._progress.read(queue, data)
        return event

    def _enqueue_stages(self, queue: cl.CommandQueue, events: list[Recorded]) -> cl.Event:
        """Enqueue the stages one by one, so that each has its times."""
        launch, kernel = self.launch, self.kernel
        try:
            for stage in launch.stages:
                kernel.set_arg(0, int32(stage.first))
                kernel.set_arg(1, int32(stage.last))
                event = cl.enqueue_nd_range_kernel(queue, kernel, launch.global_size, launch.local_size)
                events.append((stage, event))
        finally:  # whatever interrupts them: later runs do all stages
            kernel.set_arg(0, int32(launch.stages[0].first))
            kernel.set_arg(1, int32(launch.stages[-1].last))
        return event

    def _lasting_value(self, argument: Argument, compiled: CompiledSegment) -> cl.Buffer | Scalar | None:
        """Return what an argument is set to once for all; None for one that later runs or arenas set."""
        if isinstance(argument, BoundOperand | Packed):
            return compiled.constant_of(argument)
        if isinstance(argument, Zeroed):
            self._progress, seen = compiled.device.zeros(argument.size_bytes)
            if seen is not None and self.launch.clock is not None and self.launch.repeats == 1:
                self._stamps = self.launch.clock.stamps(seen)
            return self._progress.handle
        return None if isinstance(argument, Scratch | Images | RandomSeed | Fault) else argument


def _parts(argument: Images, buffer: cl.Buffer, offset: int) -> list[cl.Buffer]:
    """Return the parts of a memory that lies in a buffer, in the order of the images."""
    size = argument.size_bytes  # flags 0: those of the buffer, which may be for reading only
    return [buffer.get_sub_region(offset + at * size, size, 0) for at in range(argument.count)]
