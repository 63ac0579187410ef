# SPDX-License-Identifier: Apache-2.0
"""A subgraph of a model with its segments, lowered and built as its shapes get known; shared by all executions."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

import pyopencl as cl

from gpu_driver.device.errors import hal_error
from gpu_driver.execution.compiled_segment import CompiledSegment
from gpu_driver.execution.execution_context import ExecutionContext
from gpu_driver.kernel import Packed
from gpu_driver.launch import Launch
from gpu_driver.lowering import Known, Lowering
from nn_runtime.hal.types import HalError

if TYPE_CHECKING:
    from collections.abc import Collection

    from gpu_driver.device.context import DeviceContext
    from gpu_driver.device.device_memory import DeviceBuffer
    from gpu_driver.device.programs import Program
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.passes import Rewritten
    from nn_runtime.hal.types import Model
    from nn_runtime.operand import Array

MAX_SEGMENTS = 32
"""Lowered segments kept for shapes known only at run time."""


class CompiledGraph:
    """One subgraph on a device. `static` is the segment that is all of it, whatever the inputs, if there is one.

    `subgraph`: what is left of it; operands have the indices that they have in the model.
    """

    def __init__(
        self, device: DeviceContext, model: Model, graph: Rewritten, profile: DeviceProfile, *, warmed: bool = True
    ) -> None:
        """Lower for a profile of the device, pack, build and warm what the model alone fixes; raises HalError.

        What runs only once need not be warmed.
        """
        self.device = device
        self.lowering = Lowering(model, profile, graph)
        self.subgraph = subgraph = self.lowering.subgraph
        self._is_warmed = warmed
        self.parameters = self.lowering.shape_inputs()
        self.input_places = {operand: i for i, operand in enumerate(subgraph.input_indexes)}
        self.output_places = {operand: i for i, operand in enumerate(subgraph.output_indexes)}
        self._lock = threading.Lock()
        """Guards segments and constants; nothing slow is done, and no other lock taken, while it is held."""
        self._segments: OrderedDict[object, CompiledSegment] = OrderedDict()
        self._constants: dict[int, DeviceBuffer] = {}
        self._closed = False
        self._compiling = threading.Lock()
        self.static = self._prepare_static()

    def compiled(self, start: int, known: Known) -> CompiledSegment:
        """Return the lowered, built and warmed segment from `start`, from the cache where it was needed before."""
        key = (
            start,
            tuple(known.dimensions.get(i) for i in self.subgraph.input_indexes),
            tuple((i, value.tobytes()) for i, value in known.values.items()),
            known.omitted,
            known.found,
        )
        found = self._kept_segment(key)
        if found is not None:
            return found
        with self._compiling:
            return self._kept_segment(key) or self._compile(key, start, known)

    def constant(self, operand: int) -> tuple[Array, DeviceBuffer] | None:
        """Return a constant that control flow or the outputs name, uploaded when it is first asked for; else None."""
        constant = self.lowering.constant(operand)
        if constant is None:
            return None
        with self._lock:
            found = self._constants.get(operand)
        if found is None:
            found = self.device.constant(Packed(constant))
            with self._lock:
                if not self._closed:
                    self._constants[operand] = found
        return constant, found

    @property
    def segments(self) -> set[CompiledSegment]:
        """The segments that are kept."""
        with self._lock:
            return set(self._segments.values())

    def close(self) -> None:
        """Let go of the segments; executions that run keep theirs."""
        with self._lock:
            self._closed = True
            self._segments.clear()
            self._constants.clear()
            self.static = None

    def _prepare_static(self) -> CompiledSegment | None:
        known = self.lowering.static_inputs()
        try:
            compiled = self.compiled(0, known)
        except HalError:
            if not self.lowering.has_omittable_inputs():
                raise
            return None  # there is none with every input; executions that omit some tell what they have
        segment = compiled.segment
        is_whole = segment.stop == self.lowering.operation_count and segment.measured is None
        return compiled if is_whole else None

    def _kept_segment(self, key: object) -> CompiledSegment | None:
        with self._lock:
            found = self._segments.get(key)
            if found is not None:
                self._segments.move_to_end(key)
            return found

    def _compile(self, key: object, start: int, known: Known) -> CompiledSegment:
        try:
            compiled = CompiledSegment(self.device, self.lowering.lower(start, known))
            if self._is_warmed:
                warm_up(ExecutionContext(self.device), compiled, self.device.queue)
        except cl.Error as error:
            raise hal_error(error, "preparation") from error
        with self._lock:
            if not self._closed:
                self._segments[key] = compiled
            if len(self._segments) > MAX_SEGMENTS:
                self._segments.popitem(last=False)
        return compiled


def warm_up(context: ExecutionContext, compiled: CompiledSegment, queue: cl.CommandQueue) -> None:
    """Enqueue each (kernel, local size) of freshly built programs once, on its smallest launch, then keep them.

    PoCL compiles a kernel at its first enqueue, and its binaries hold what was compiled before they were read. The
    kernels run on zeros: what memory happens to hold could be indices out of bounds.
    """
    fresh = compiled.fresh_programs()
    if not fresh:
        return
    bound = context.segment(compiled)
    boundary = {operand: context.boundary(operand, size) for operand, size in compiled.boundary.items()}
    context.clear(queue)
    bound.enqueue(queue, boundary, None, _smallest_launches(compiled, fresh))
    queue.finish()
    for program in fresh:
        compiled.device.programs.keep(program)


def _smallest_launches(compiled: CompiledSegment, programs: Collection[Program]) -> list[int]:
    """Return where the smallest launch of each (kernel, local size) of some programs stands."""
    smallest: dict[tuple[int, str, tuple[int, ...]], tuple[int, int]] = {}
    for at, (command, program) in enumerate(zip(compiled.segment.commands, compiled.programs, strict=True)):
        if program in programs and isinstance(command, Launch):
            key = (id(program), command.kernel.name, command.local_size)
            size = math.prod(command.global_size)
            smallest[key] = min(smallest.get(key, (size, at)), (size, at))
    return [at for _, at in smallest.values()]
