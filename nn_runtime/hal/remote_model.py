# SPDX-License-Identifier: Apache-2.0
"""Prepared models and bursts in the process of their driver.

A model of a driver that died is prepared again, on the one started anew, at its next execution. Requests are kept in
the process as long as the application keeps them, so that one that is executed again costs one short message.
"""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, cast

from nn_runtime.errors import BadData, ResourceExhausted
from nn_runtime.hal import fences
from nn_runtime.hal.plain import check_sizes_known, execute_after_fences, timing_since_launch
from nn_runtime.hal.relocation import Relocation
from nn_runtime.hal.remote_channel import MOST_DESCRIPTORS, PASSES_DESCRIPTORS
from nn_runtime.hal.types import BufferToken, ErrorStatus, ExecutionResult, HalError, OutputShape, Timing
from nn_runtime.operand import check_refined, merge_dimensions
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nn_runtime.hal.interfaces import Attributes, ExecutionProfile, IFencedExecutionCallback, IPreparedModel
    from nn_runtime.hal.memory import SharedMemory
    from nn_runtime.hal.remote_process import HostProcess
    from nn_runtime.hal.types import Operand, Request


class HasTokens(Protocol):
    """The device of a prepared model, as far as that needs it."""

    name: str

    def living_token(self, token: int) -> int:
        """Return what the driver calls a buffer now, by the token given out."""


@dataclass(frozen=True)
class Placed:
    """A prepared model in a process: our number of it there, and the optional methods that it has."""

    host: HostProcess
    number: int
    abilities: tuple[str, ...]


class _KeptRequest:
    """A request that the driver's process knows by a number."""

    def __init__(self, device: HasTokens, host: HostProcess, request: Request, output_types: Sequence[int]) -> None:
        arguments = (*request.inputs, *request.outputs)
        has_pointers = any(argument.location.pointer is not None for argument in arguments)
        self.relocation = Relocation(request, output_types) if has_pointers else None
        sent = request if self.relocation is None else self.relocation.request
        pools = [
            BufferToken(device.living_token(pool.value)) if isinstance(pool, BufferToken) else host.pool_number(pool)
            for pool in sent.pools
        ]
        self.number = host.new_number()
        host.call("keep_request", self.number, replace(sent, pools=()), pools)
        self._finalizer = weakref.finalize(self, host.forget, self.number)
        self._finalizer.atexit = False


class RemotePreparedModel:
    """A prepared model in the process of its driver (IPreparedModel and what else the driver's has)."""

    def __init__(
        self,
        device: HasTokens,
        outputs: Sequence[Operand],
        placed: Placed,
        again: Callable[[], Placed] | None,
    ) -> None:
        """`outputs`: of the model, () where they are not known. `again`: prepares on a driver started anew."""
        self.device = device
        self._outputs = outputs
        self._output_types = [operand.type for operand in outputs]
        self._again = again
        self._lock = threading.Lock()
        self._place(placed)
        for ability in placed.abilities:
            setattr(self, ability, getattr(self, f"_{ability}"))

    def execute_synchronously(
        self, request: Request, measure: bool, deadline_ns: int | None, loop_timeout_ns: int | None
    ) -> ExecutionResult:
        """Execute on the driver."""
        placed = self.living()
        return self.execute_by(placed.host, placed.number, request, (measure, deadline_ns, loop_timeout_ns, None))[0]

    def execute_fenced(
        self,
        request: Request,
        wait_for: Sequence[int],
        measure: bool,
        deadline_ns: int | None,
        loop_timeout_ns: int | None,
        duration_after_fence_ns: int | None,
    ) -> tuple[int | None, IFencedExecutionCallback]:
        """Execute on the driver after fences; arrays in the request are copied by a thread of this process."""
        if any(fence < 0 for fence in wait_for):
            raise HalError(ErrorStatus.INVALID_ARGUMENT, "a fence to wait for is empty")
        check_sizes_known(self._outputs, request)
        too_many = len(wait_for) > MOST_DESCRIPTORS
        if not PASSES_DESCRIPTORS or not fences.HAS_EVENTFD or too_many or _has_pointers(request):
            return self._fenced_here(request, wait_for, measure, deadline_ns, loop_timeout_ns, duration_after_fence_ns)
        placed = self.living()
        host = placed.host
        kept = self._kept(host, request)
        callback = host.new_number()
        arguments = (kept.number, callback, measure, deadline_ns, loop_timeout_ns, duration_after_fence_ns)
        has_fence, given = host.call_with_descriptors("execute_fenced", placed.number, arguments, tuple(wait_for))
        fence = given[0] if has_fence else None
        if fence is not None:
            try:
                host.watch_fence(fence)
            except ResourceExhausted as error:
                fences.close(fence)
                raise HalError(ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, f"{self.device.name}: {error}") from error
        return fence, _RemoteFencedCallback(host, callback)

    def configure_execution_burst(self) -> RemoteBurst:
        """Open a burst on the driver."""
        placed = self.living()
        burst = placed.host.new_number()
        placed.host.call("open_burst", placed.number, burst)
        return RemoteBurst(self, placed.host, burst)

    def close(self) -> None:
        """Free it on the driver."""
        if self._released.detach() is not None:
            placed = self._placed
            with contextlib.suppress(HalError):
                placed.host.call("close", placed.number)

    def prepare_again_by(self, prepare: Callable[[], IPreparedModel]) -> None:
        """Keep how to prepare it where the driver dies (PreparesAgain)."""

        def again() -> Placed:
            made = cast("RemotePreparedModel", prepare())
            made._released.detach()
            return made._placed

        self._again = again

    def living(self) -> Placed:
        """Return where it is, prepared again if the driver has died; raises HalError."""
        placed = self._placed
        if not placed.host.dead:
            return placed
        with self._lock:
            if self._placed.host.dead:
                if self._again is None:
                    raise HalError(ErrorStatus.DEAD_OBJECT, f"{self.device.name}: the process of the driver is dead")
                placed = self._again()
                self._released.detach()
                self._place(placed)
            return self._placed

    def execute_by(
        self,
        host: HostProcess,
        number: int,
        request: Request,
        how: tuple[bool, int | None, int | None, Attributes | str | None],
    ) -> tuple[ExecutionResult, ExecutionProfile | None]:
        """Execute a request by an object of the process; `how`: measure, deadline, loop timeout, extra."""
        kept = self._kept(host, request)
        relocation = kept.relocation
        if relocation is None:
            return _decoded(host.call("execute", number, kept.number, *how))
        if not relocation.lock.acquire(blocking=False):
            kept = _KeptRequest(self.device, host, request, self._output_types)
            relocation = cast("Relocation", kept.relocation)
            relocation.lock.acquire()
        try:
            relocation.copy_in()
            result, profile = _decoded(host.call("execute", number, kept.number, *how))
            relocation.copy_out(result)
        finally:
            relocation.lock.release()
        return result, profile

    def _execute_profiled(
        self, request: Request, deadline_ns: int | None, loop_timeout_ns: int | None
    ) -> tuple[ExecutionResult, ExecutionProfile]:
        placed = self.living()
        how = (False, deadline_ns, loop_timeout_ns, "profile")
        result, profile = self.execute_by(placed.host, placed.number, request, how)
        return result, cast("ExecutionProfile", profile)

    def _execute_with_attributes(
        self,
        request: Request,
        measure: bool,
        deadline_ns: int | None,
        loop_timeout_ns: int | None,
        attributes: Attributes,
    ) -> ExecutionResult:
        placed = self.living()
        how = (measure, deadline_ns, loop_timeout_ns, attributes)
        return self.execute_by(placed.host, placed.number, request, how)[0]

    def _place(self, placed: Placed) -> None:
        self._requests: dict[int, tuple[weakref.ref[Request], _KeptRequest]] = {}
        self._released = weakref.finalize(self, placed.host.forget, placed.number)
        self._released.atexit = False
        self._placed = placed  # last: another thread that sees it finds the rest

    def _kept(self, host: HostProcess, request: Request) -> _KeptRequest:
        key = id(request)
        requests = self._requests
        known = requests.get(key)
        if known is not None and known[0]() is request:
            return known[1]
        kept = _KeptRequest(self.device, host, request, self._output_types)
        requests[key] = weakref.ref(request, lambda _gone: requests.pop(key, None)), kept
        return kept

    def _fenced_here(
        self,
        request: Request,
        wait_for: Sequence[int],
        measure: bool,
        deadline_ns: int | None,
        loop_timeout_ns: int | None,
        duration_ns: int | None,
    ) -> tuple[int | None, IFencedExecutionCallback]:
        """Wait for the fences and execute in a thread that signals a fence of our own."""
        self.living()
        launched_ns = time.monotonic_ns()

        def execute(deadline_ns: int | None) -> tuple[Timing, Timing]:
            result = self.execute_synchronously(request, measure, deadline_ns, loop_timeout_ns)
            _check_known(self._outputs, request, result.output_shapes)
            timing = result.timing
            return timing_since_launch(timing, launched_ns, time.monotonic_ns()), timing

        return execute_after_fences(self.device.name, wait_for, deadline_ns, duration_ns, execute)


class _RemoteFencedCallback:
    """Times of a fenced execution, asked of the driver's process."""

    def __init__(self, host: HostProcess, number: int) -> None:
        self._host = host
        self._number = number
        weakref.finalize(self, host.forget, number).atexit = False

    def get_execution_info(self) -> tuple[Timing, Timing]:
        """Ask the driver."""
        return cast("tuple[Timing, Timing]", self._host.call("execution_info", self._number))


class RemoteBurst:
    """A burst in the process of its driver (IBurstContext)."""

    def __init__(self, prepared: RemotePreparedModel, host: HostProcess, number: int) -> None:
        """Keep the numbers."""
        self._prepared = prepared
        self._host = host
        self._number = number
        self._released = weakref.finalize(self, host.forget, number)
        self._released.atexit = False

    def execute(
        self, request: Request, measure: bool, deadline_ns: int | None, loop_timeout_ns: int | None
    ) -> ExecutionResult:
        """Execute one request; without the burst if its driver has died since."""
        if self._host.dead:
            return self._prepared.execute_synchronously(request, measure, deadline_ns, loop_timeout_ns)
        how = (measure, deadline_ns, loop_timeout_ns, None)
        return self._prepared.execute_by(self._host, self._number, request, how)[0]

    def free_memory(self, memory: SharedMemory) -> None:
        """Let the driver forget what it keeps for a memory."""
        with contextlib.suppress(HalError):
            self._host.call("free_memory", self._number, self._host.pool_number(memory))

    def close(self) -> None:
        """End the burst."""
        if self._released.detach() is not None:
            with contextlib.suppress(HalError):
                self._host.call("close", self._number)


def _decoded(reply: object) -> tuple[ExecutionResult, ExecutionProfile | None]:
    """Return a result and, where it was profiled, the profile."""
    if reply is None:
        return _NOTHING, None
    parts = cast("tuple[Any, ...]", reply)
    if len(parts) == 2:
        return _decoded(parts[0])[0], parts[1]
    shapes, on_device_ns, in_driver_ns = parts
    outputs = tuple(OutputShape(dimensions, sufficient) for dimensions, sufficient in shapes)
    return ExecutionResult(outputs, Timing(on_device_ns, in_driver_ns)), None


def _check_known(outputs: Sequence[Operand], request: Request, shapes: Sequence[OutputShape]) -> None:
    """Raise HalError(GENERAL_FAILURE) where a driver tells shapes other than those that were known before."""
    if not outputs or not shapes:
        return
    if len(shapes) != len(outputs):
        message = f"the driver reported {len(shapes)} output shapes of {len(outputs)}"
        raise HalError(ErrorStatus.GENERAL_FAILURE, message)
    for at, (operand, argument, shape) in enumerate(zip(outputs, request.outputs, shapes, strict=True)):
        try:
            check_refined(merge_dimensions(operand.dimensions, argument.dimensions), shape.dimensions)
        except BadData as error:
            raise HalError(ErrorStatus.GENERAL_FAILURE, f"the driver's shape of output {at}: {error}") from error


def _has_pointers(request: Request) -> bool:
    return any(argument.location.pointer is not None for argument in (*request.inputs, *request.outputs))


_NOTHING = ExecutionResult()
