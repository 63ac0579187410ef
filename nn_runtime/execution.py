# SPDX-License-Identifier: Apache-2.0
"""One use of a compilation: arguments, run, results (SURFACE sections a and f)."""

from __future__ import annotations

import contextlib
import threading
import time
from enum import Enum, auto
from typing import TYPE_CHECKING

from nn_runtime import extensions
from nn_runtime.arguments import Parameter
from nn_runtime.codes import DurationCode
from nn_runtime.compilation import check_duration, deadline_after
from nn_runtime.errors import (
    BadData,
    BadState,
    NNError,
    OperationFailed,
    OutputInsufficientSize,
    UnexpectedNull,
    error_of,
)
from nn_runtime.event import Event, FenceEvent
from nn_runtime.hal.plain import wait_for_fences
from nn_runtime.hal.types import (
    DEFAULT_LOOP_TIMEOUT_NS,
    MAXIMUM_LOOP_TIMEOUT_NS,
    RESULT_OF_STATUS,
    STATUS_OF_RESULT,
    UNKNOWN_DURATION,
    HalError,
    Timing,
)
from nn_runtime.numeric import whole
from nn_runtime.observe import trace
from nn_runtime.operand import has_unknown_dimensions, is_tensor
from nn_runtime.run import bind
from nn_runtime.step import Argument, RunOptions, error_of_hal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from nn_runtime.burst import Burst
    from nn_runtime.compilation import Compilation
    from nn_runtime.fallback import FencedOutcome
    from nn_runtime.hal.interfaces import Attributes, IBurstContext, IFencedExecutionCallback
    from nn_runtime.memory import Domain, Memory
    from nn_runtime.operand import Array, Dimensions, OperandType
    from nn_runtime.plan import Plan
    from nn_runtime.run import Run
    from nn_runtime.step import Step, StepProfile


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
        """Raises UnexpectedNull, or BadState unless the compilation is finished."""
        if compilation is None:
            raise UnexpectedNull("execution: the compilation is None")
        self._compilation = compilation
        self._plan: Plan = compilation.finished_plan("execution")
        main = self._plan.model.main
        self._output_operands = tuple(main.operands[i] for i in main.output_indexes)
        self._inputs: list[Argument | None] = [None] * len(main.input_indexes)
        self._outputs: list[Argument | None] = [None] * len(main.output_indexes)
        self._input_memories: dict[int, Memory] = {}
        self._output_memories: dict[int, Memory] = {}
        self._state = _State.PREPARATION
        self._lock = threading.Lock()
        self._run: Run | None = None
        self._options: RunOptions | None = None
        """Those of a run with nothing special."""
        self._reusable = False
        self._padding_enabled = False
        self._measure = False
        self._timeout_ns = 0
        self._loop_timeout_ns = DEFAULT_LOOP_TIMEOUT_NS
        self._attributes: Attributes = ()
        self._error: NNError | None = None
        self._dimensions: tuple[Dimensions, ...] = ()
        self._timing = Timing()
        self._callback: IFencedExecutionCallback | None = None

    def set_input(self, index: int, array: Array | None, operand_type: OperandType | None = None) -> None:
        """Bind an array as input `index`, None to omit it; `operand_type` completes unknown dimensions.

        Raises BadState once started or if bound already; BadData for a wrong index, dtype, layout or length.
        """
        parameter = self._open_parameter(True, index)
        self._inputs[index] = parameter.bind_array(array, operand_type, self._padding_enabled)

    def set_output(self, index: int, array: Array | None, operand_type: OperandType | None = None) -> None:
        """Bind an array that takes output `index`; it may be larger only where the dimensions are not known.

        Raises as `set_input`.
        """
        parameter = self._open_parameter(False, index)
        self._outputs[index] = parameter.bind_array(array, operand_type, self._padding_enabled)

    def set_input_from_memory(
        self, index: int, memory: Memory, offset: int = 0, length: int = 0, operand_type: OperandType | None = None
    ) -> None:
        """Bind bytes of a memory as input `index`; device memory is used whole (offset and length 0)."""
        parameter = self._open_parameter(True, index)
        self._inputs[index] = parameter.bind_memory(memory, offset, length, operand_type, self._padding_enabled)
        self._input_memories[index] = memory

    def set_output_from_memory(
        self, index: int, memory: Memory, offset: int = 0, length: int = 0, operand_type: OperandType | None = None
    ) -> None:
        """Bind bytes of a memory to take output `index`; device memory is used whole (offset and length 0)."""
        parameter = self._open_parameter(False, index)
        self._outputs[index] = parameter.bind_memory(memory, offset, length, operand_type, self._padding_enabled)
        self._output_memories[index] = memory

    def set_measure_timing(self, measure: bool) -> None:
        """Ask for times; raises BadData unless compiled for exactly one explicit device, BadState once started."""
        self._check_one_device("set_measure_timing")
        self._check_preparation("set_measure_timing")
        self._measure = bool(measure)

    def set_timeout(self, duration_ns: int) -> None:
        """Limit the time of a compute, 0 for no limit; raises as `set_measure_timing`."""
        self._check_one_device("set_timeout")
        self._check_preparation("set_timeout")
        check_duration("set_timeout", duration_ns)
        self._timeout_ns = duration_ns

    def add_extension_attribute(self, name: str, code: int, data: bytes) -> None:
        """Say something to a vendor's driver about how to execute; raises as `Compilation.add_extension_attribute`."""
        if name is None or data is None:
            raise UnexpectedNull("add_extension_attribute: the name or the data is None")
        self._check_one_device("add_extension_attribute")
        self._check_preparation("add_extension_attribute")
        self._attributes = extensions.with_attribute(self._attributes, name, code, data)

    def set_loop_timeout(self, duration_ns: int) -> None:
        """Limit the time of each WHILE, at most `maximum_loop_timeout()`; raises BadState once started."""
        self._check_preparation("set_loop_timeout")
        check_duration("set_loop_timeout", duration_ns)
        self._loop_timeout_ns = min(duration_ns, MAXIMUM_LOOP_TIMEOUT_NS)

    def set_reusable(self, reusable: bool) -> None:
        """Allow several computes, one after the other; raises BadState once started."""
        self._check_preparation("set_reusable")
        self._reusable = bool(reusable)

    def enable_input_and_output_padding(self, enable: bool) -> None:
        """Allow arguments longer than their data; raises BadState once an argument is bound or started."""
        self._check_preparation("enable_input_and_output_padding")
        if any(argument is not None for argument in (*self._inputs, *self._outputs)):
            raise BadState("enable_input_and_output_padding: an input or output is bound already")
        self._padding_enabled = bool(enable)

    def compute(self) -> None:
        """Run and return when done; raises BadState, BadData if an argument is not bound, or the run's error."""
        self._finish_run(self._start(), deadline_after(self._timeout_ns) if self._timeout_ns else None)

    def compute_profiled(self) -> list[StepProfile]:
        """Run as `compute` with the drivers' profiling on; return what each step reports, in order."""
        profile: list[StepProfile] = []
        self._finish_run(self._start(), self._deadline(), profile)
        return profile

    def start_compute(self) -> Event:
        """Start a run; return the event whose `wait` raises its error. Raises BadState, BadData as `compute`."""
        return self._in_thread(self._start(), self._deadline())

    def start_compute_with_dependencies(self, events: Sequence[Event], duration: int = 0) -> Event:
        """Start a run after some events, of at most `duration` ns after them (0 for no limit).

        Events with a sync fence are handed to the driver, others waited for on the spot. The execution counts as
        computing until the event returned has been waited for. Raises UnexpectedNull; BadData for a duration without
        exactly one explicit device, or an output whose dimensions are not known; BadState; the run's error.
        """
        if events is None or any(event is None for event in events):
            raise UnexpectedNull("start_compute_with_dependencies: an event is None")
        check_duration("start_compute_with_dependencies", duration)
        for event in events:
            if event.fence is None:
                with contextlib.suppress(NNError):
                    event.wait()
        if duration:
            self._check_one_device("start_compute_with_dependencies: a duration")
        run = self._start(check_device_inputs=False)
        deadline_ns = self._deadline()
        with self._completed_by_failure():
            try:
                self._check_outputs_specified()
                waited_for = [event.fence for event in events if event.fence is not None]
                outcome = self._start_fenced(run, waited_for, deadline_ns, duration or None)
            except NNError as error:
                passed = _passed_hal(error)
                if passed is error:
                    raise
                raise passed from error
        if outcome is None:
            return self._in_thread(run, deadline_ns)
        return FenceEvent(outcome.fence, lambda succeeded: self._finish_fenced(outcome, succeeded))

    def burst_compute(self, burst: Burst) -> None:
        """Run as `compute`; raises BadData for a burst of another compilation, BadState if the burst is in use."""
        if burst is None:
            raise UnexpectedNull("burst_compute: the burst is None")
        if burst.compilation is not self._compilation:
            raise BadData("burst_compute: the burst belongs to another compilation")
        with burst.in_use():
            run = self._start()
            for memory in (*self._input_memories.values(), *self._output_memories.values()):
                memory.used_by(burst)
            self._finish_run(run, self._deadline(), bursts=burst.channels)

    def get_duration(self, code: int) -> int | None:
        """Return a time of the last run in ns, None if unknown; raises BadState unless measured and successful."""
        if code not in DurationCode.__members__.values():
            raise BadData(f"get_duration: code must be 0 to 3, got {code}")
        self._check_completed("get_duration")
        if self._error is not None:
            raise BadState(f"get_duration: the execution failed: {self._error}")
        if not self._measure:
            raise BadState("get_duration: times were not measured")
        launched, fenced = self._times()
        timing = fenced if code in (DurationCode.FENCED_ON_HARDWARE, DurationCode.FENCED_IN_DRIVER) else launched
        on_hardware = code in (DurationCode.ON_HARDWARE, DurationCode.FENCED_ON_HARDWARE)
        duration = timing.time_on_device_ns if on_hardware else timing.time_in_driver_ns
        return None if duration == UNKNOWN_DURATION else duration

    def get_output_operand_rank(self, index: int) -> int:
        """Return the rank of an output of the last run; raises as `get_output_operand_dimensions`."""
        return len(self._result_dimensions("get_output_operand_rank", index))

    def get_output_operand_dimensions(self, index: int) -> Dimensions:
        """Return the dimensions of an output of the last run, the true ones also if it was too small.

        Raises BadState before the end or after another failure, BadData for a wrong index or a scalar.
        """
        dims = self._result_dimensions("get_output_operand_dimensions", index)
        if not is_tensor(self._output_operands[index].type):
            raise BadData(f"output {index}: a scalar has no dimensions")
        return dims

    def close(self) -> None:
        """Let arguments and temporaries go; ignored while computing."""
        with self._lock:
            if self._state != _State.COMPUTING:
                self._run = None
                self._inputs = [None] * len(self._inputs)
                self._outputs = [None] * len(self._outputs)
                self._input_memories.clear()
                self._output_memories.clear()
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
        if self._state != _State.COMPLETED:
            how = "is closed" if self._state == _State.CLOSED else "has not completed"
            raise BadState(f"{call}: the execution {how}")

    def _open_parameter(self, is_input: bool, index: int) -> Parameter:
        """Return an input or output that may be bound now; raises BadState, BadData."""
        what, bound = ("input", self._inputs) if is_input else ("output", self._outputs)
        self._check_preparation(f"{what} {index}")
        if not 0 <= whole(what, index) < len(bound):
            raise BadData(f"{what} {index} is out of range, the model has {len(bound)} {what}s")
        if bound[index] is not None:
            raise BadState(f"{what} {index} is bound already")
        main = self._plan.model.main
        operand = main.operands[(main.input_indexes if is_input else main.output_indexes)[index]]
        return Parameter(self._compilation, is_input, index, operand)

    def _start(self, check_device_inputs: bool = True) -> Run:
        """Go from preparation (or completed and reusable) to computing; bind at the first time."""
        with self._lock:
            if self._state == _State.CLOSED:
                raise BadState("compute: the execution is closed")
            if self._state == _State.COMPUTING:
                raise BadState("compute: the execution is computing")
            if self._state == _State.COMPLETED and not self._reusable:
                raise BadState("compute: the execution has completed and is not reusable")
            self._state = _State.COMPUTING
        try:
            self._compilation.finished_plan("compute")
            if self._input_memories or self._output_memories:
                self._check_memories_open()
            if self._run is None:
                self._run = self._bound_run()
            if check_device_inputs and self._input_memories:
                self._check_device_inputs()
            return self._run
        except BaseException as error:
            self._complete_failed(error)
            raise

    @contextlib.contextmanager
    def _completed_by_failure(self) -> Iterator[None]:
        """Complete with the error of what is done inside, if it fails."""
        try:
            yield
        except BaseException as error:
            self._complete_failed(error)
            raise

    def _complete_failed(self, error: BaseException) -> None:
        foreign = OperationFailed(f"execution: {type(error).__name__}: {error}")
        self._complete(error if isinstance(error, NNError) else foreign)

    def _bound_run(self) -> Run:
        for what, arguments in (("input", self._inputs), ("output", self._outputs)):
            for index, argument in enumerate(arguments):
                if argument is None:
                    raise BadData(f"compute: {what} {index} is not bound")
        inputs = [argument for argument in self._inputs if argument is not None]
        outputs = [argument for argument in self._outputs if argument is not None]
        return bind(self._plan, inputs, outputs, is_reusable=self._reusable)

    def _check_memories_open(self) -> None:
        for what, memories in (("input", self._input_memories), ("output", self._output_memories)):
            for index, memory in memories.items():
                if memory.domain is not None and memory.is_closed:
                    raise BadState(f"compute: the device memory of {what} {index} is closed")

    def _check_device_inputs(self) -> None:
        for index, domain in _domains(self._input_memories):
            argument = self._inputs[index]
            if argument is not None:
                domain.check_input(index, argument.dimensions)

    def _deadline(self) -> int | None:
        """Return the deadline of a run that starts now."""
        return deadline_after(self._timeout_ns)

    def _finish_run(
        self,
        run: Run,
        deadline_ns: int | None,
        profile: list[StepProfile] | None = None,
        bursts: Mapping[Step, IBurstContext] | None = None,
    ) -> None:
        """Run and complete; raises the run's error."""
        tracer = trace.current
        started_ns = 0 if tracer is None else time.perf_counter_ns()
        options = self._options
        if options is None or deadline_ns is not None or profile is not None or bursts:
            options = RunOptions(self._measure, deadline_ns, self._loop_timeout_ns, profile, bursts, self._attributes)
            if deadline_ns is None and profile is None and not bursts:
                self._options = options
        try:
            outcome = run.execute(options)
            self._dimensions = outcome.dimensions
            self._timing = outcome.timing
            self._callback = None
            if self._output_memories:
                self._mark_device_outputs()
        except BaseException as error:
            self._complete_failed(error)
            raise
        finally:
            if tracer is not None:
                tracer.add(trace.RUNTIME, "PE", "compute", started_ns, time.perf_counter_ns())
        self._complete(None)

    def _in_thread(self, run: Run, deadline_ns: int | None) -> Event:
        event = Event()
        worker = threading.Thread(
            target=self._run_asynchronously, args=(event, run, deadline_ns), name="nn_runtime.execution"
        )
        worker.start()
        return event

    def _run_asynchronously(self, event: Event, run: Run, deadline_ns: int | None) -> None:
        """Run in the worker thread; an asynchronous result passes through the HAL's status and back."""
        try:
            self._finish_run(run, deadline_ns)
        except NNError as error:
            event.signal(_passed_hal(error))
        except BaseException as error:
            event.signal(OperationFailed(f"execution: {type(error).__name__}: {error}"))
            raise
        else:
            event.signal(None)

    def _start_fenced(
        self, run: Run, waited_for: Sequence[int], deadline_ns: int | None, duration_ns: int | None
    ) -> FencedOutcome | None:
        """Start the plan's steps; with temporaries of unknown size only wait for the fences and return None."""
        if not run.can_be_fenced:
            try:
                wait_for_fences(waited_for, deadline_ns)
            except HalError as error:
                raise error_of_hal(error, "execution") from error
            return None
        options = RunOptions(self._measure, deadline_ns, self._loop_timeout_ns)
        return run.execute_fenced(options, waited_for, duration_ns)

    def _finish_fenced(self, outcome: FencedOutcome, succeeded: bool) -> NNError | None:
        """Complete a fenced run whose fence has signalled, and return its error."""
        error: NNError | None = None
        self._dimensions = outcome.dimensions
        self._timing, self._callback = Timing(), outcome.callback
        try:
            if not succeeded:
                raise _fenced_error(outcome.callback)
            self._mark_device_outputs()
        except NNError as failure:
            error = failure
        self._complete(error)
        return error

    def _check_outputs_specified(self) -> None:
        for index, (operand, argument) in enumerate(zip(self._output_operands, self._outputs, strict=True)):
            specified = argument is None or argument.omitted
            if not specified and argument is not None and has_unknown_dimensions(operand.type, argument.dimensions):
                raise BadData(f"output {index}: a fenced execution needs its dimensions, by operand_type")

    def _times(self) -> tuple[Timing, Timing]:
        """Return the times since the launch and since the fences; raises BadState if the driver does not tell."""
        if self._callback is None:
            return self._timing, self._timing
        try:
            return self._callback.get_execution_info()
        except HalError as error:
            raise BadState(f"get_duration: {error}") from error

    def _mark_device_outputs(self) -> None:
        for index, domain in _domains(self._output_memories):
            domain.written(self._dimensions[index])

    def _complete(self, error: NNError | None) -> None:
        self._error = error
        if error is not None:
            self._timing, self._callback = Timing(), None
            self._dimensions = error.shapes if isinstance(error, OutputInsufficientSize) else ()
            for _, domain in _domains(self._output_memories):
                domain.spoiled()
        self._state = _State.COMPLETED

    def _result_dimensions(self, call: str, index: int) -> Dimensions:
        self._check_completed(call)
        if not 0 <= whole(call, index) < len(self._output_operands):
            raise BadData(f"{call}: output {index} is out of range, the model has {len(self._output_operands)}")
        if self._error is not None and not isinstance(self._error, OutputInsufficientSize):
            raise BadState(f"{call}: the execution failed: {self._error}")
        return self._dimensions[index] if index < len(self._dimensions) else ()


def _domains(memories: Mapping[int, Memory]) -> Iterator[tuple[int, Domain]]:
    """Return what is device memory among the memories of some arguments, by the index of the argument."""
    return ((index, memory.domain) for index, memory in memories.items() if memory.domain is not None)


def _passed_hal(error: NNError) -> NNError:
    """Return an error as it is after a way through the HAL's status and back."""
    code = RESULT_OF_STATUS[STATUS_OF_RESULT[error.code]]
    shapes = error.shapes if isinstance(error, OutputInsufficientSize) else ()
    return error if code == error.code else error_of(code, str(error), shapes)


def _fenced_error(callback: IFencedExecutionCallback | None) -> NNError:
    """Return the error behind a fence that signalled one, which the callback knows."""
    if callback is not None:
        try:
            callback.get_execution_info()
        except HalError as error:
            return _passed_hal(error_of_hal(error, "fenced execution"))
    return OperationFailed("fenced execution: its sync fence signalled an error")
