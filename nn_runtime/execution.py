# SPDX-License-Identifier: Apache-2.0
"""One use of a compilation: arguments, run, results (SURFACE sections a and f)."""

from __future__ import annotations

import contextlib
import copy
import threading
import time
from enum import Enum, auto
from typing import TYPE_CHECKING

from nn_runtime import extensions
from nn_runtime.arguments import Arguments, check_apart
from nn_runtime.burst import Burst
from nn_runtime.checks import check_kind, copied_bytes, flag, listed
from nn_runtime.codes import DurationCode
from nn_runtime.compilation import Compilation, checked_duration, deadline_after
from nn_runtime.errors import (
    BadData,
    BadState,
    NNError,
    OperationFailed,
    OutputInsufficientSize,
    ResourceExhausted,
    forget_frames,
)
from nn_runtime.event import Event, FenceEvent
from nn_runtime.failures import error_of_hal, passed_hal
from nn_runtime.fenced_run import FencedRun
from nn_runtime.hal import fences
from nn_runtime.hal.interrupts import pass_interrupt
from nn_runtime.hal.latch import Latch
from nn_runtime.hal.plain import wait_for_fences
from nn_runtime.hal.types import (
    DEFAULT_LOOP_TIMEOUT_NS,
    MAXIMUM_LOOP_TIMEOUT_NS,
    HalError,
)
from nn_runtime.memory import Memory
from nn_runtime.numeric import whole
from nn_runtime.observe import trace
from nn_runtime.operand import is_tensor
from nn_runtime.outcome import FencedOutcome, Outcome, duration_ns
from nn_runtime.requests import OtherMemory
from nn_runtime.run import bind
from nn_runtime.step import RunOptions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nn_runtime.hal.interfaces import Attributes, IBurstContext
    from nn_runtime.operand import Array, Dimensions, OperandType
    from nn_runtime.plan import Plan
    from nn_runtime.run import Run
    from nn_runtime.step import Step, StepProfile

_DURATIONS = frozenset(DurationCode)


def default_loop_timeout() -> int:
    """Return how long a WHILE may run unless set otherwise, in ns."""
    return DEFAULT_LOOP_TIMEOUT_NS


def maximum_loop_timeout() -> int:
    """Return the longest time a WHILE may run, in ns."""
    return MAXIMUM_LOOP_TIMEOUT_NS


class _State(Enum):
    PREPARATION = auto()
    COMPUTING = auto()
    COMPLETED = auto()
    CLOSED = auto()


class Execution:
    """Arguments bound to a compilation, computed once or, if reusable, one time after the other.

    Arrays are C-contiguous, of the operand's dtype, and held until the execution is closed. An output array is bytes:
    the dense result fills its first bytes.
    """

    def __init__(self, compilation: Compilation) -> None:
        """Raises UnexpectedNull, BadData, or BadState unless the compilation is finished."""
        check_kind("execution: the compilation", compilation, Compilation)
        self._compilation = compilation
        self._plan: Plan = compilation.finished_plan("execution")
        self._inputs = Arguments(self._plan, is_input=True)
        self._outputs = Arguments(self._plan, is_input=False)
        self._state = _State.PREPARATION
        self._lock = threading.Lock()
        self._run: Run | None = None
        self._options: RunOptions | None = None
        """Those of a run with nothing special."""
        self._reusable = False
        self._padding_enabled = False
        self._measure = False
        self._timeout_ns = 0
        self._loop_timeout_ns: int | None = None
        """None for the default, which drivers know: not every way to reach them can carry one."""
        self._attributes: Attributes = ()
        self._outcome: Outcome | FencedOutcome | None = None
        """Of the last run, unless it failed: then `_error` is there, a copy that came through no function."""
        self._error: NNError | None = None
        self._fenced: FencedRun | None = None
        """A fenced run that is not completed."""
        self._call: object | None = None
        """The call that computes, and completes the execution however it ends; or the same fenced run."""
        self._plan.used_by(self)

    @property
    def is_computing(self) -> bool:
        """Whether a run has started and not completed."""
        self._poll_left_run()
        return self._state == _State.COMPUTING

    def set_input(self, index: int, array: Array | None, operand_type: OperandType | None = None) -> None:
        """Bind an array as input `index`, None to omit it; `operand_type` completes unknown dimensions.

        Raises BadState once started or if bound already; BadData for a wrong index, dtype, layout or length.
        """
        self._check_preparation(f"input {index}")
        self._inputs.bind_array(index, array, operand_type, self._padding_enabled)

    def set_output(self, index: int, array: Array | None, operand_type: OperandType | None = None) -> None:
        """Bind an array that takes output `index`.

        It may be larger only where the dimensions are not known, or padding is enabled. A run raises BadData where it
        overlaps another argument, or a constant of the model that lies in a memory.

        Raises as `set_input`.
        """
        self._check_preparation(f"output {index}")
        self._outputs.bind_array(index, array, operand_type, self._padding_enabled)

    def set_input_from_memory(
        self, index: int, memory: Memory, offset: int = 0, length: int = 0, operand_type: OperandType | None = None
    ) -> None:
        """Bind bytes of a memory as input `index`; device memory is used whole (offset and length 0)."""
        check_kind(f"input {index}: the memory", memory, Memory)
        self._check_preparation(f"input {index}")
        self._inputs.bind_memory(index, memory, offset, length, operand_type, self._padding_enabled)

    def set_output_from_memory(
        self, index: int, memory: Memory, offset: int = 0, length: int = 0, operand_type: OperandType | None = None
    ) -> None:
        """Bind bytes of a memory to take output `index`; device memory is used whole (offset and length 0)."""
        check_kind(f"output {index}: the memory", memory, Memory)
        self._check_preparation(f"output {index}")
        self._outputs.bind_memory(index, memory, offset, length, operand_type, self._padding_enabled)

    def set_measure_timing(self, measure: bool) -> None:
        """Ask for times; raises BadData unless compiled for exactly one explicit device, BadState once started."""
        self._check_one_device("set_measure_timing")
        self._check_preparation("set_measure_timing")
        self._measure = flag("set_measure_timing", measure)

    def set_timeout(self, duration_ns: int) -> None:
        """Limit the time of a compute, 0 for no limit; raises as `set_measure_timing`.

        The CPU driver looks at the clock before each operation. The OpenCL driver looks before it starts and, where
        shapes are open or the model has IF or WHILE, before each part; what the device was given is computed to its
        end. So a compute may take longer than the limit and still return well.
        """
        self._check_one_device("set_timeout")
        self._check_preparation("set_timeout")
        self._timeout_ns = checked_duration("set_timeout", duration_ns)

    def add_extension_attribute(self, name: str, code: int, data: bytes) -> None:
        """Say something to a vendor's driver about how to execute; raises as `Compilation.add_extension_attribute`."""
        check_kind("add_extension_attribute: the name", name, str)
        own = copied_bytes("add_extension_attribute: the data", data)
        self._check_one_device("add_extension_attribute")
        self._check_preparation("add_extension_attribute")
        self._attributes = extensions.with_attribute(self._attributes, name, code, own)

    def set_loop_timeout(self, duration_ns: int) -> None:
        """Limit the time of each WHILE, at most `maximum_loop_timeout()`; raises BadState once started."""
        self._check_preparation("set_loop_timeout")
        self._loop_timeout_ns = min(checked_duration("set_loop_timeout", duration_ns), MAXIMUM_LOOP_TIMEOUT_NS)

    def set_reusable(self, reusable: bool) -> None:
        """Allow several computes, one after the other; raises BadState once started."""
        self._check_preparation("set_reusable")
        self._reusable = flag("set_reusable", reusable)

    def enable_input_and_output_padding(self, enable: bool) -> None:
        """Allow arguments longer than their data; raises BadState once an argument is bound or started."""
        self._check_preparation("enable_input_and_output_padding")
        if self._inputs.any_bound or self._outputs.any_bound:
            raise BadState("enable_input_and_output_padding: an input or output is bound already")
        self._padding_enabled = flag("enable_input_and_output_padding", enable)

    @property
    def takes_other_memory(self) -> bool:
        """Whether a run can have other memory than the arguments'; known after the first one."""
        return self._run is not None and self._run.takes_other_memory

    def compute(self, other: OtherMemory | None = None, *, timeout_ns: int = 0) -> None:
        """Run and return when done; raises BadState, BadData if an argument is not bound, or the run's error.

        `other`, where `takes_other_memory`: arrays for this run in the place of those bound, as TakesOtherMemory says.
        `timeout_ns`: of this run, on any devices; 0 for that of `set_timeout`.
        """
        if other is not None:
            check_kind("compute: other", other, OtherMemory)
        if timeout_ns:
            timeout_ns = checked_duration("compute", timeout_ns)
        timeout_ns = timeout_ns or self._timeout_ns
        call = object()
        try:
            self._finish_run(self._start(call), deadline_after(timeout_ns) if timeout_ns else None, other=other)
        except BaseException as error:
            self._fail(call, error)
            raise

    def compute_profiled(self, other: OtherMemory | None = None) -> list[StepProfile]:
        """Run as `compute` with the drivers' profiling on; return what each step reports, in order."""
        if other is not None:
            check_kind("compute_profiled: other", other, OtherMemory)
        profile: list[StepProfile] = []
        call = object()
        try:
            self._finish_run(self._start(call), self._deadline(), profile, other=other)
        except BaseException as error:
            self._fail(call, error)
            raise
        return profile

    def start_compute(self) -> Event:
        """Start a run; return the event whose `wait` raises its error. Raises BadState, BadData as `compute`."""
        call = object()
        try:
            return self._in_thread(call, self._start(call), self._deadline())
        except BaseException as error:
            self._fail(call, error)
            raise

    def start_compute_with_dependencies(self, events: Sequence[Event], duration: int = 0) -> Event:
        """Start a run after some events, of at most `duration` ns after them (0 for no limit).

        Events with a sync fence are handed to the driver, others waited for on the spot. The execution counts as
        computing until the event returned has been waited for. Raises UnexpectedNull; BadState; BadData for a duration
        without exactly one explicit device, or an output whose dimensions are not known; OperationFailed where the
        fence of an event tells of a failure already; the run's error.

        A plan with temporaries of unknown size waits for all events and then starts as `start_compute` does, whatever
        the duration.
        """
        name = "start_compute_with_dependencies"
        events = listed(f"{name}: event", events, Event)
        duration = checked_duration(name, duration)
        for event in events:
            if event.fence is None:
                with contextlib.suppress(NNError):
                    event.wait()
        waited_for = [event.fence for event in events if event.fence is not None]
        if self._plan.has_dynamic_temporaries:
            _wait_for(waited_for)
            return self.start_compute()
        call = object()
        try:
            run = self._start(call, check_device_inputs=False)
            deadline_ns = self._deadline()
            if duration:
                self._check_one_device(f"{name}: a duration")
            self._outputs.check_specified()
            if any(fences.wait(fence, 0) == fences.FenceStatus.FAILED for fence in waited_for):
                raise OperationFailed(f"{name}: an event to wait for has failed already")
            options = RunOptions(self._measure, deadline_ns, self._loop_timeout_ns, attributes=self._attributes)
            outcome = run.execute_fenced(options, waited_for, duration or None)
            started = FencedRun(outcome, self._finish_fenced)
            event = FenceEvent(outcome.fence, started)
            self._fenced, self._call = started, started
        except BaseException as error:
            self._fail(call, error)
            raise
        for _, domain in self._outputs.domains():
            domain.begun(started)
        return event

    def burst_compute(self, burst: Burst) -> None:
        """Run as `compute` by a burst of the same compilation; raises UnexpectedNull, BadData, BadState if in use."""
        check_kind("burst_compute: the burst", burst, Burst)
        if burst.compilation is not self._compilation:
            raise BadData("burst_compute: the burst belongs to another compilation")
        call = Latch()
        try:
            burst.begin(call)
            run = self._start(call)
            for memory in (*self._inputs.memories.values(), *self._outputs.memories.values()):
                memory.used_by(burst)
            self._finish_run(run, self._deadline(), bursts=burst.channels)
            burst.end(call)
        except BaseException as error:
            self._fail(call, error)
            burst.end(call)
            raise

    def get_duration(self, code: int) -> int | None:
        """Return a time of the last run in ns, None if unknown; raises BadState unless measured and successful."""
        if whole("get_duration", code) not in _DURATIONS:
            raise BadData(f"get_duration: code must be 0 to 3, got {code}")
        self._check_completed("get_duration")
        if self._outcome is None:
            raise BadState(f"get_duration: the execution failed: {self._error}")
        if not self._measure:
            raise BadState("get_duration: times were not measured")
        return duration_ns(self._outcome.times(), code)

    def get_output_operand_rank(self, index: int) -> int:
        """Return the rank of an output of the last run; raises as `get_output_operand_dimensions`."""
        return len(self._result_dimensions("get_output_operand_rank", index))

    def get_output_operand_dimensions(self, index: int) -> Dimensions:
        """Return the dimensions of an output of the last run, the true ones also if it was too small.

        Raises BadState before the end or after another failure, BadData for a wrong index or a scalar.
        """
        dims = self._result_dimensions("get_output_operand_dimensions", index)
        if not is_tensor(self._outputs.operands[index].type):
            raise BadData(f"output {index}: a scalar has no dimensions")
        return dims

    def close(self) -> None:
        """Let arguments and temporaries go; ignored while computing."""
        self._poll_left_run()
        with self._lock:
            if self._state != _State.COMPUTING:
                self._run = None
                self._inputs.clear()
                self._outputs.clear()
                self._state = _State.CLOSED

    def __enter__(self) -> Execution:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _check_preparation(self, call: str) -> None:
        if self._state != _State.PREPARATION:
            how = "is closed" if self._state == _State.CLOSED else "has been started"
            raise BadState(f"{call}: the execution {how}")

    def _check_one_device(self, call: str) -> None:
        if not self._compilation.has_one_explicit_device:
            raise BadData(f"{call}: the compilation must be for exactly one device, named explicitly")

    def _check_completed(self, call: str) -> None:
        self._poll_left_run()
        if self._state != _State.COMPLETED:
            how = "is closed" if self._state == _State.CLOSED else "has not completed"
            raise BadState(f"{call}: the execution {how}")

    def _start(self, call: object, check_device_inputs: bool = True) -> Run:
        """Go from preparation (or completed and reusable) to computing; bind at the first time.

        Whoever calls this calls `_fail` with whatever is raised here or afterwards: interrupts may come anywhere.
        """
        self._poll_left_run()
        computing = _State.COMPUTING
        with self._lock:
            if self._state == _State.CLOSED:
                raise BadState("compute: the execution is closed")
            if self._state == _State.COMPUTING:
                raise BadState("compute: the execution is computing")
            if self._state == _State.COMPLETED and not self._reusable:
                raise BadState("compute: the execution has completed and is not reusable")
            self._state, self._call = computing, call
        self._compilation.finished_plan("compute")
        if self._inputs.memories or self._outputs.memories:
            self._inputs.check_open()
            self._outputs.check_open()
        for pool in self._plan.files:
            pool.check_length()
        if self._run is None:
            inputs, outputs = self._inputs.all_bound(), self._outputs.all_bound()
            check_apart(self._plan.model, inputs, outputs)
            self._run = bind(self._plan, inputs, outputs, is_reusable=self._reusable)
        if check_device_inputs and self._inputs.memories:
            self._inputs.check_data()
        return self._run

    def _fail(self, call: object, error: BaseException) -> None:
        """Complete with the error of a call, if it began to compute and nobody goes on with it."""
        with self._lock:
            if self._call is not call:
                return
            self._call = None
        self._complete_failed(error)

    def _deadline(self) -> int | None:
        """Return the deadline of a run that starts now."""
        return deadline_after(self._timeout_ns)

    def _finish_run(
        self,
        run: Run,
        deadline_ns: int | None,
        profile: list[StepProfile] | None = None,
        bursts: Mapping[Step, IBurstContext] | None = None,
        other: OtherMemory | None = None,
    ) -> None:
        """Run and complete; raises the run's error, with which the caller completes."""
        tracer = trace.current
        started_ns = 0 if tracer is None else time.perf_counter_ns()
        options = self._options
        if options is None or deadline_ns is not None or profile is not None or bursts:
            options = RunOptions(self._measure, deadline_ns, self._loop_timeout_ns, profile, bursts, self._attributes)
            if deadline_ns is None and profile is None and not bursts:
                self._options = options
        try:
            outcome = run.execute(options, other)
            if self._outputs.memories:
                self._mark_device_outputs(outcome)
        finally:
            if tracer is not None:
                tracer.add(trace.RUNTIME, "PE", "compute", started_ns, time.perf_counter_ns())
        self._complete(outcome)

    def _in_thread(self, call: object, run: Run, deadline_ns: int | None) -> Event:
        event = Event()
        worker = threading.Thread(
            target=self._run_asynchronously, args=(event, call, run, deadline_ns), name="nn_runtime.execution"
        )
        try:
            worker.start()
        except RuntimeError as error:
            pass_interrupt(error)
            raise ResourceExhausted(f"start_compute: no thread can be started: {error}") from error
        return event

    def _run_asynchronously(self, event: Event, call: object, run: Run, deadline_ns: int | None) -> None:
        """Run in the worker thread; an asynchronous result passes through the HAL's status and back."""
        own_call = object()
        event.begin()
        with self._lock:
            if self._call is not call:  # an interrupt came as this thread was started
                return
            self._call = own_call
        try:
            self._finish_run(run, deadline_ns)
        except NNError as error:
            self._fail(own_call, error)
            event.signal(passed_hal(error))
        except BaseException as error:
            self._fail(own_call, error)
            event.signal(OperationFailed(f"execution: {type(error).__name__}: {error}"))
            raise
        else:
            event.signal(None)

    def _finish_fenced(self, run: FencedRun, succeeded: bool) -> NNError | None:
        """Complete a fenced run whose fence has signalled, unless that is done, and return its error."""
        if self._call is not run:
            return self._error
        self._fenced = None
        try:
            if not succeeded:
                raise run.outcome.failure()
            self._mark_device_outputs(run.outcome, run)
        except NNError as error:
            self._complete_failed(error, run)
            return error
        self._complete(run.outcome)
        return None

    def _poll_left_run(self) -> None:
        """Complete a fenced run whose event was dropped, if its fence has signalled."""
        run = self._fenced
        if run is not None and run.is_left:
            run.poll()

    def _mark_device_outputs(self, outcome: Outcome | FencedOutcome, run: FencedRun | None = None) -> None:
        for index, domain in self._outputs.domains():
            domain.written(outcome.dimensions[index], run)

    def _complete(self, outcome: Outcome | FencedOutcome) -> None:
        completed = _State.COMPLETED
        self._outcome, self._error = outcome, None
        self._state, self._call = completed, None
        if self._plan.is_closed:
            self._plan.free_unused()

    def _complete_failed(self, error: BaseException, run: FencedRun | None = None) -> None:
        forget_frames(error)
        foreign = OperationFailed(f"execution: {type(error).__name__}: {error}")
        self._outcome, self._error = None, copy.copy(error) if isinstance(error, NNError) else foreign
        for _, domain in self._outputs.domains():
            domain.spoiled(run)
        completed = _State.COMPLETED
        self._state, self._call = completed, None
        if self._plan.is_closed:
            self._plan.free_unused()

    def _result_dimensions(self, call: str, index: int) -> Dimensions:
        self._check_completed(call)
        if self._outcome is not None:
            shapes = self._outcome.dimensions
        elif isinstance(self._error, OutputInsufficientSize):
            shapes = self._error.shapes
        else:
            raise BadState(f"{call}: the execution failed: {self._error}")
        count = len(self._outputs.operands)
        index = whole(call, index)
        if not 0 <= index < count:
            raise BadData(f"{call}: output {index} is out of range, the model has {count}")
        return shapes[index] if index < len(shapes) else ()


def _wait_for(fences: Sequence[int]) -> None:
    try:
        wait_for_fences(fences, None)
    except HalError as error:
        raise error_of_hal(error, "execution") from error
