# SPDX-License-Identifier: Apache-2.0
"""One step of a plan: a model prepared on a device, and the executor that calls the driver and checks its reply."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from nn_runtime.caching import prepare_cached, step_token
from nn_runtime.errors import BadData, NNError, error_of
from nn_runtime.hal.interfaces import (
    CreatesReusableExecutions,
    ExecutionProfile,
    ReportsProfile,
    TakesCompilationAttributes,
    TakesExecutionAttributes,
)
from nn_runtime.hal.types import (
    RESULT_OF_STATUS,
    UNKNOWN_DURATION,
    BufferToken,
    DataLocation,
    ErrorStatus,
    ExecutionPreference,
    ExecutionResult,
    HalError,
    Priority,
    Request,
    RequestArgument,
)
from nn_runtime.observe import trace
from nn_runtime.operand import has_unknown_dimensions, merge_dimensions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nn_runtime.caching import CacheInfo
    from nn_runtime.devices import Device
    from nn_runtime.hal.interfaces import (
        Attributes,
        CacheRequest,
        IBuffer,
        IBurstContext,
        IExecution,
        IFencedExecutionCallback,
        IPreparedModel,
    )
    from nn_runtime.hal.memory import SharedMemory
    from nn_runtime.hal.types import Model, Operand, OutputShape
    from nn_runtime.operand import Array, Dimensions

R = TypeVar("R")

_log = logging.getLogger("nn_runtime.execution")
_log_compilation = logging.getLogger("nn_runtime.compilation")


@dataclass(frozen=True)
class Argument:
    """A model's input or output as an execution binds it.

    `dimensions`: what model and caller know, 0 and () for what is not known. The bytes are `length` ones of `pointer`,
    or of `pool` from `offset`. Neither: omitted. `buffer` is the driver's object behind a token in place of a pool.
    """

    dimensions: Dimensions = ()
    pointer: Array | None = None
    pool: SharedMemory | BufferToken | None = None
    offset: int = 0
    length: int = 0
    padding: int = 0
    buffer: IBuffer | None = None

    @property
    def omitted(self) -> bool:
        """Whether the argument has no value."""
        return self.pointer is None and self.pool is None


@dataclass(frozen=True)
class StepProfile:
    """Times of one step's run in ns of `time.perf_counter_ns`, and the driver's rows where it reports them.

    `operations`: original indices, to which the `operations` of the rows' indices lead.
    """

    device: str
    operations: tuple[int, ...]
    start_ns: int
    end_ns: int
    rows: ExecutionProfile | None


@dataclass(frozen=True)
class RunOptions:
    """How one execution is to run: times to measure, absolute deadline, loop timeout; where profiles are collected.

    `bursts`: channels of the steps that have one. `attributes`: of vendor extensions.
    """

    measure: bool = False
    deadline_ns: int | None = None
    loop_timeout_ns: int | None = None
    profile: list[StepProfile] | None = None
    bursts: Mapping[Step, IBurstContext] | None = None
    attributes: Attributes = ()


def error_of_hal(error: HalError, where: str) -> NNError:
    """Return the NDK's error for a driver's one (SURFACE section c)."""
    shapes = tuple(shape.dimensions for shape in error.output_shapes)
    code = RESULT_OF_STATUS.get(error.status, RESULT_OF_STATUS[ErrorStatus.GENERAL_FAILURE])
    return error_of(code, f"{where}: {error}", shapes)


def request_of(model: Model, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> Request:
    """Return the request that binds arguments to the inputs and outputs of a model; equal pools are listed once."""
    pools: list[SharedMemory | BufferToken] = []
    main = model.main
    return Request(
        tuple(_request_argument(main.operands[i], a, pools) for i, a in zip(main.input_indexes, inputs, strict=True)),
        tuple(_request_argument(main.operands[i], a, pools) for i, a in zip(main.output_indexes, outputs, strict=True)),
        tuple(pools),
    )


def _request_argument(operand: Operand, argument: Argument, pools: list[SharedMemory | BufferToken]) -> RequestArgument:
    if argument.omitted:
        return RequestArgument(has_no_value=True)
    dimensions = () if argument.dimensions == operand.dimensions else argument.dimensions
    if argument.pointer is not None:
        location = DataLocation(length=argument.length, padding=argument.padding, pointer=argument.pointer)
        return RequestArgument(False, location, dimensions)
    pool = argument.pool
    at = next((i for i, other in enumerate(pools) if other is pool or (_is_token(pool) and other == pool)), -1)
    if at < 0 and pool is not None:
        at = len(pools)
        pools.append(pool)
    return RequestArgument(False, DataLocation(at, argument.offset, argument.length, argument.padding), dimensions)


def _is_token(pool: SharedMemory | BufferToken | None) -> bool:
    return isinstance(pool, BufferToken)


@dataclass(frozen=True)
class PrepareOptions:
    """What a compilation asks of every prepared model; `cache` says where to keep it.

    `attributes`: of vendor extensions, by name and code.
    """

    preference: ExecutionPreference = ExecutionPreference.FAST_SINGLE_ANSWER
    priority: Priority = Priority.MEDIUM
    cache: CacheInfo | None = None
    attributes: Attributes = ()


def prepare(
    device: Device,
    model: Model,
    options: PrepareOptions,
    deadline_ns: int | None,
    operations: Sequence[tuple[int, int]] = (),
) -> tuple[IPreparedModel, bytes | None]:
    """Prepare a model on a device, from its cache where that is possible; return it and its cache token, if any.

    `operations` as in `step_token`. A foreign exception of the driver becomes GENERAL_FAILURE. Raises HalError.
    """

    def from_model(cache: CacheRequest | None) -> IPreparedModel:
        if options.attributes and isinstance(hal, TakesCompilationAttributes):
            return hal.prepare_model_with_attributes(
                model, options.preference, options.priority, deadline_ns, cache, options.attributes
            )
        return hal.prepare_model(model, options.preference, options.priority, deadline_ns, cache)

    hal = device.hal
    started = time.perf_counter_ns()
    token = None
    try:
        if options.cache is not None and any(device.cache_files):
            token = step_token(
                options.cache, device, options.preference, options.priority, operations, options.attributes
            )
            prepared = prepare_cached(
                device,
                options.cache,
                token,
                lambda cache: _guarded(lambda: hal.prepare_model_from_cache(deadline_ns, cache)),
                from_model,
            )
        else:
            prepared = from_model(None)
    except HalError:
        raise
    except Exception as error:
        raise HalError(ErrorStatus.GENERAL_FAILURE, f"prepare_model: {type(error).__name__}: {error}") from error
    ended = time.perf_counter_ns()
    if trace.current is not None:
        count = len(model.main.operations)
        trace.current.add(trace.DRIVER, "PC", f"{device.name} prepare", started, ended, operations=count)
    _log_compilation.debug(
        "%s prepared %d operations in %.1f ms", device.name, len(model.main.operations), (ended - started) / 1e6
    )
    return prepared, token


def _guarded(call: Callable[[], R]) -> R:
    """Call a driver; its foreign exceptions become HalError(GENERAL_FAILURE)."""
    try:
        return call()
    except HalError:
        raise
    except Exception as error:
        raise _foreign(error) from error


def _foreign(error: Exception) -> HalError:
    return HalError(ErrorStatus.GENERAL_FAILURE, f"the driver failed with {type(error).__name__}: {error}")


class Step:
    """Part of a plan on one device: a prepared model, and which operands of the whole model it reads and writes."""

    def __init__(
        self,
        device: Device,
        model: Model,
        prepared: IPreparedModel,
        original_operations: Sequence[int],
        inputs: Sequence[int],
        outputs: Sequence[int],
        cache_token: bytes | None = None,
    ) -> None:
        """`original_operations`: each operation as the user numbered it in the main model.

        `inputs`, `outputs`: slots of the plan's operands. `cache_token`: under which it is kept in the cache, if it is.
        """
        self.device = device
        self.model = model
        self.prepared = prepared
        self.original_operations = tuple(original_operations)
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.cache_token = cache_token
        self._output_operands = tuple(model.main.operands[i] for i in model.main.output_indexes)
        self._lock = threading.Lock()
        self._on_reference: Step | None = None
        self._accepted: tuple[Request, ExecutionResult, ExecutionResult] | None = None
        """The last request, the reply, and that as it was checked: drivers may give the same reply again."""

    def bind(self, request: Request, options: RunOptions) -> IExecution | None:
        """Return the request bound by the driver, where it offers that, for `execute` with such options."""
        if options.attributes or not isinstance(self.prepared, CreatesReusableExecutions):
            return None
        prepared = self.prepared
        try:
            return _guarded(
                lambda: prepared.create_reusable_execution(request, options.measure, options.loop_timeout_ns)
            )
        except HalError as error:
            _log.debug("no reusable execution on %s: %s", self.device.name, error)
            return None

    def execute(self, request: Request, options: RunOptions, execution: IExecution | None = None) -> ExecutionResult:
        """Run the driver, with what `bind` returned for the request if given, and check its reply.

        The shapes returned are complete (one per output) unless every output was fully specified. Raises HalError
        alone.
        """
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("step on %s: %d operations", self.device.name, len(self.original_operations))
        try:
            if options.profile is not None or trace.current is not None:
                result = self._call_observed(request, options, execution)
            elif execution is not None and not options.bursts:
                result = execution.execute_synchronously(options.deadline_ns)
            else:
                result = self._call_plain(request, options)
        except HalError as error:
            if error.output_shapes or error.status == ErrorStatus.OUTPUT_INSUFFICIENT_SIZE:
                raise self._checked_failure(error, request) from error
            raise
        except Exception as error:
            raise _foreign(error) from error
        accepted = self._accepted
        if accepted is not None and accepted[1] is result and accepted[0] is request:
            return accepted[2]
        checked = self._checked_result(result, request, options.measure)
        self._accepted = request, result, checked
        return checked

    def execute_fenced(
        self, request: Request, wait_for: Sequence[int], options: RunOptions, duration_after_fence_ns: int | None
    ) -> tuple[int | None, IFencedExecutionCallback]:
        """Start the driver after the fences; return its fence (None when done) and the callback. Raises HalError."""
        started = time.perf_counter_ns()
        fence, callback = _guarded(
            lambda: self.prepared.execute_fenced(
                request,
                wait_for,
                options.measure,
                options.deadline_ns,
                options.loop_timeout_ns,
                duration_after_fence_ns,
            )
        )
        if trace.current is not None:
            name = f"{self.device.name} fenced"
            trace.current.add(trace.DRIVER, "PE", name, started, time.perf_counter_ns())
        return (None if fence is None or fence < 0 else fence), callback

    def open_burst(self) -> IBurstContext | None:
        """Return a burst channel; None for the CPU device, or where the driver gives none: it then runs normally."""
        if self.device.is_reference:
            return None
        try:
            return _guarded(self.prepared.configure_execution_burst)
        except HalError as error:
            _log.debug("no burst on %s: %s", self.device.name, error)
            return None

    def _call_plain(self, request: Request, options: RunOptions) -> ExecutionResult:
        if options.attributes and isinstance(self.prepared, TakesExecutionAttributes):
            return self.prepared.execute_with_attributes(
                request, options.measure, options.deadline_ns, options.loop_timeout_ns, options.attributes
            )
        burst = options.bursts.get(self) if options.bursts else None
        call = self.prepared.execute_synchronously if burst is None else burst.execute
        return call(request, options.measure, options.deadline_ns, options.loop_timeout_ns)

    def _call_observed(self, request: Request, options: RunOptions, execution: IExecution | None) -> ExecutionResult:
        """Call the driver for a profile or a trace: with its own profiling on, if that changes nothing else."""
        start = time.perf_counter_ns()
        rows: ExecutionProfile | None = None
        plain = options.measure or options.attributes or options.bursts
        if not plain and execution is not None:
            result, rows = execution.execute_profiled(options.deadline_ns)
        elif not plain and isinstance(self.prepared, ReportsProfile):
            result, rows = self.prepared.execute_profiled(request, options.deadline_ns, options.loop_timeout_ns)
        else:
            result = self._call_plain(request, options)
        end = time.perf_counter_ns()
        if options.profile is not None:
            options.profile.append(StepProfile(self.device.name, self.original_operations, start, end, rows))
        if trace.current is not None:
            trace.current.add_execution(self.device.name, self.original_operations, start, end, rows)
        return result

    def _checked_result(self, result: ExecutionResult, request: Request, measure: bool) -> ExecutionResult:
        shapes, timing = result.output_shapes, result.timing
        if shapes:
            self._check_shapes(shapes, request)
            if not all(shape.is_sufficient for shape in shapes):
                raise HalError(ErrorStatus.GENERAL_FAILURE, "the driver reported success with an insufficient output")
        elif any(
            not argument.has_no_value
            and has_unknown_dimensions(operand.type, merge_dimensions(operand.dimensions, argument.dimensions))
            for operand, argument in zip(self._output_operands, request.outputs, strict=True)
        ):
            raise HalError(ErrorStatus.GENERAL_FAILURE, "the driver left out the shape of an output that needs one")
        if not measure:
            return ExecutionResult(shapes)
        known = UNKNOWN_DURATION not in (timing.time_on_device_ns, timing.time_in_driver_ns)
        if known and timing.time_on_device_ns > timing.time_in_driver_ns:
            raise HalError(ErrorStatus.GENERAL_FAILURE, f"the driver's time on the device exceeds its own: {timing}")
        return result

    def _checked_failure(self, error: HalError, request: Request) -> HalError:
        """Drop shapes that do not belong to the status; a reply that breaks the rules is a GENERAL_FAILURE."""
        if error.status != ErrorStatus.OUTPUT_INSUFFICIENT_SIZE:
            return HalError(error.status, error.message)
        try:
            self._check_shapes(error.output_shapes, request)
        except HalError as broken:
            return broken
        if all(shape.is_sufficient for shape in error.output_shapes):
            return HalError(ErrorStatus.GENERAL_FAILURE, "the driver reported insufficient size but names no output")
        return error

    def _check_shapes(self, shapes: tuple[OutputShape, ...], request: Request) -> None:
        if len(shapes) != len(self._output_operands):
            raise HalError(
                ErrorStatus.GENERAL_FAILURE,
                f"the driver reported {len(shapes)} output shapes of {len(self._output_operands)}",
            )
        for at, (shape, operand, argument) in enumerate(
            zip(shapes, self._output_operands, request.outputs, strict=True)
        ):
            try:
                known = merge_dimensions(operand.dimensions, argument.dimensions)
                merge_dimensions(known, shape.dimensions)
            except BadData as error:
                raise HalError(ErrorStatus.GENERAL_FAILURE, f"the driver's shape of output {at}: {error}") from error

    def on_reference(self, reference: Device, options: PrepareOptions) -> Step:
        """Return the same step prepared on the CPU reference device, for partial fallback; raises HalError."""
        with self._lock:
            if self._on_reference is None:
                prepared, _ = prepare(reference, self.model, options, None)
                self._on_reference = Step(
                    reference, self.model, prepared, self.original_operations, self.inputs, self.outputs
                )
            return self._on_reference

    def close(self) -> None:
        """Free the prepared model."""
        self.prepared.close()
        if self._on_reference is not None:
            self._on_reference.close()
