# SPDX-License-Identifier: Apache-2.0
"""A driver behind one version of the HAL, as VTS calls it, in every way; checks what holds for every call."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from nn_runtime.codes import FeatureLevel
from nn_runtime.hal import fences
from nn_runtime.hal.types import (
    CACHE_TOKEN_BYTES,
    DataLocation,
    ErrorStatus,
    ExecutionPreference,
    Operand,
    Priority,
)
from nn_runtime.hal.versions import serve, v1_0, v1_1, v1_2, v1_3
from nn_runtime.hal.versions.channel import Channel
from nn_runtime.hal.versions.packets import deserialize_result, serialize_request
from nn_runtime.hal.versions.served_model import (
    ServedFencedCallback,
    ServedPreparedModel10,
    ServedPreparedModel12,
    ServedPreparedModel13,
)
from nn_runtime.hal.versions.server import Served11, Served12, Served13

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.hal.interfaces import IDevice
    from nn_runtime.hal.memory import SharedMemory
    from nn_runtime.hal.types import Model, OutputShape, Request, Subgraph
    from nn_runtime.hal.versions.conversion import VersionedModel

VERSIONS = (FeatureLevel.HAL_1_0, FeatureLevel.HAL_1_1, FeatureLevel.HAL_1_2, FeatureLevel.HAL_1_3)
CACHING_VERSIONS = VERSIONS[2:]
ANSWER_S = 120.0
"""A callback that has not been notified after so many seconds never will be."""
NO_TIMING = v1_2.Timing()


class Way(Enum):
    """How an execution is called."""

    ASYNCHRONOUS = "asynchronous"
    SYNCHRONOUS = "synchronous"
    BURST = "burst"
    FENCED = "fenced"


def ways_of(version: int) -> tuple[Way, ...]:
    """Return the ways to execute that a version has."""
    if version < FeatureLevel.HAL_1_2:
        return (Way.ASYNCHRONOUS,)
    return tuple(Way) if version >= FeatureLevel.HAL_1_3 else (Way.ASYNCHRONOUS, Way.SYNCHRONOUS, Way.BURST)


@dataclass(frozen=True)
class CacheFiles:
    """Handles of cache files, with the token."""

    model: tuple[int, ...] = ()
    data: tuple[int, ...] = ()
    token: bytes = bytes(CACHE_TOKEN_BYTES)


@dataclass(frozen=True)
class Preparation:
    """What a preparation gave: status of the launch, status by callback, and the prepared model."""

    launch: int
    status: int
    prepared: ServedPreparedModel10 | None


@dataclass(frozen=True)
class Outcome:
    """What an execution gave."""

    status: int
    shapes: tuple[OutputShape, ...]
    timing: v1_2.Timing


class Heard:
    """A callback of every version: keeps what it is notified of."""

    def __init__(self) -> None:
        self._results: list[tuple[Any, ...]] = []
        self._heard = threading.Event()

    def notify(self, *result: Any) -> None:
        self._results.append(result)
        self._heard.set()

    notify_1_2 = notify_1_3 = notify

    def wait(self) -> tuple[Any, ...]:
        """Return the only notification."""
        assert self._heard.wait(ANSWER_S), "the callback is never notified"
        assert len(self._results) == 1, f"the callback is notified {len(self._results)} times"
        return self._results[0]


class Client:
    """The calls of one version on one driver."""

    def __init__(self, device: IDevice, version: int) -> None:
        self.version = version
        self.driver = serve(device, version)

    def supported(self, model: VersionedModel) -> tuple[int, Sequence[bool]]:
        """Ask by the version's own method."""
        driver = self.driver
        if isinstance(driver, Served13):
            assert isinstance(model, v1_3.Model)
            return driver.get_supported_operations_1_3(model)
        if isinstance(driver, Served12):
            assert isinstance(model, v1_2.Model)
            return driver.get_supported_operations_1_2(model)
        if isinstance(driver, Served11):
            assert isinstance(model, v1_1.Model)
            return driver.get_supported_operations_1_1(model)
        assert isinstance(model, v1_0.Model)
        return driver.get_supported_operations(model)

    def prepare(
        self,
        model: VersionedModel,
        preference: int = ExecutionPreference.FAST_SINGLE_ANSWER,
        priority: int = Priority.MEDIUM,
        deadline_ns: int | None = None,
        files: CacheFiles | None = None,
    ) -> Preparation:
        """Prepare by the version's own method and wait."""
        heard, driver, given = Heard(), self.driver, files or CacheFiles()
        # Numbers that are no preference or priority are the point of some tests.
        wanted: Any = preference
        if isinstance(driver, Served13):
            assert isinstance(model, v1_3.Model)
            rank: Any = priority
            launch = driver.prepare_model_1_3(
                model, wanted, rank, deadline_ns, given.model, given.data, given.token, heard
            )
        elif isinstance(driver, Served12):
            assert isinstance(model, v1_2.Model)
            launch = driver.prepare_model_1_2(model, wanted, given.model, given.data, given.token, heard)
        elif isinstance(driver, Served11):
            assert isinstance(model, v1_1.Model)
            launch = driver.prepare_model_1_1(model, wanted, heard)
        else:
            assert isinstance(model, v1_0.Model)
            launch = driver.prepare_model(model, heard)
        return _checked(launch, heard)

    def prepare_from_cache(self, files: CacheFiles) -> Preparation:
        """Prepare from cache files by the version's own method and wait."""
        heard, driver = Heard(), self.driver
        assert isinstance(driver, Served12)
        if isinstance(driver, Served13):
            launch = driver.prepare_model_from_cache_1_3(None, files.model, files.data, files.token, heard)
        else:
            launch = driver.prepare_model_from_cache(files.model, files.data, files.token, heard)
        return _checked(launch, heard)

    def prepared(self, model: Model) -> ServedPreparedModel10 | None:
        """Return a prepared model; None where the driver does not take all of it, as it may."""
        given = form(model, self.version)
        status, answers = self.supported(given)
        assert status == ErrorStatus.NONE
        assert len(answers) == len(model.main.operations)
        found = self.prepare(given)
        assert found.launch == ErrorStatus.NONE
        if not all(answers) and found.status != ErrorStatus.NONE:
            assert found.prepared is None
            return None
        assert found.status == ErrorStatus.NONE, found
        assert found.prepared is not None
        return found.prepared


def _checked(launch: int, heard: Heard) -> Preparation:
    status, prepared = heard.wait()
    if launch != ErrorStatus.NONE:
        assert status == launch
    assert (prepared is None) == (status != ErrorStatus.NONE)
    return Preparation(launch, status, prepared)


def form(model: Model, version: int) -> VersionedModel:
    """Return a model in a version's form, however wrong it is."""
    main = _graph(model.main)
    boundary = (main.operations, main.input_indexes, main.output_indexes, model.operand_values, model.pools)
    relaxed = model.relax_computation_float32_to_float16
    if version >= FeatureLevel.HAL_1_3:
        referenced = tuple(map(_graph, model.referenced))
        return v1_3.Model(main, referenced, model.operand_values, model.pools, relaxed, model.extension_name_to_prefix)
    if version >= FeatureLevel.HAL_1_2:
        return v1_2.Model(main.operands, *boundary, relaxed, model.extension_name_to_prefix)
    operands = tuple(
        v1_0.Operand(o.type, o.dimensions, o.number_of_consumers, o.scale, o.zero_point, o.lifetime, o.location)
        for o in main.operands
    )
    if version >= FeatureLevel.HAL_1_1:
        return v1_1.Model(operands, *boundary, relaxed)
    return v1_0.Model(operands, *boundary)


def _graph(graph: Subgraph) -> v1_3.Subgraph:
    used = [index for operation in graph.operations for index in operation.inputs]
    operands = tuple(_operand(operand, used.count(i)) for i, operand in enumerate(graph.operands))
    return v1_3.Subgraph(operands, graph.operations, graph.input_indexes, graph.output_indexes)


def _operand(o: Operand, consumers: int) -> v1_2.Operand:
    extra = o.extension_data if o.channel_quant is None else o.channel_quant
    return v1_2.Operand(o.type, o.dimensions, consumers, o.scale, o.zero_point, o.lifetime, o.location, extra)


def execute(
    prepared: ServedPreparedModel10,
    request: Request,
    way: Way,
    measure: bool = False,
    deadline_ns: int | None = None,
    loop_timeout_ns: int | None = None,
) -> Outcome:
    """Execute in one way; checks what holds for every execution."""
    timed = v1_2.MeasureTiming(measure)
    if way == Way.FENCED:
        outcome = _fenced(prepared, request, timed, deadline_ns, loop_timeout_ns)
    elif way == Way.BURST:
        with BurstEnd(prepared, request.pools) as burst:  # type: ignore[arg-type]
            outcome = burst.execute(request, measure)
    elif way == Way.SYNCHRONOUS:
        outcome = _synchronous(prepared, request, timed, deadline_ns, loop_timeout_ns)
    else:
        outcome = _asynchronous(prepared, request, timed, deadline_ns, loop_timeout_ns)
    if outcome.status not in (ErrorStatus.NONE, ErrorStatus.OUTPUT_INSUFFICIENT_SIZE):
        assert outcome.shapes == ()
    if not measure or outcome.status != ErrorStatus.NONE:
        assert outcome.timing == NO_TIMING
    elif v1_2.UNKNOWN_TIME not in (outcome.timing.time_on_device, outcome.timing.time_in_driver):
        assert outcome.timing.time_on_device <= outcome.timing.time_in_driver
    return outcome


def _asynchronous(
    prepared: ServedPreparedModel10,
    request: Request,
    timed: v1_2.MeasureTiming,
    deadline_ns: int | None,
    loop_timeout_ns: int | None,
) -> Outcome:
    heard = Heard()
    if isinstance(prepared, ServedPreparedModel13):
        launch = prepared.execute_1_3(request, timed, deadline_ns, loop_timeout_ns, heard)
    elif isinstance(prepared, ServedPreparedModel12):
        launch = prepared.execute_1_2(request, timed, heard)
    else:
        launch = prepared.execute(request, heard)
    status, *rest = heard.wait()
    if launch != ErrorStatus.NONE:
        assert status == launch
    shapes, timing = rest or ((), NO_TIMING)
    return Outcome(status, tuple(shapes), timing)


def _synchronous(
    prepared: ServedPreparedModel10,
    request: Request,
    timed: v1_2.MeasureTiming,
    deadline_ns: int | None,
    loop_timeout_ns: int | None,
) -> Outcome:
    assert isinstance(prepared, ServedPreparedModel12)
    if isinstance(prepared, ServedPreparedModel13):
        status, shapes, timing = prepared.execute_synchronously_1_3(request, timed, deadline_ns, loop_timeout_ns)
    else:
        status, shapes, timing = prepared.execute_synchronously(request, timed)
    return Outcome(status, tuple(shapes), timing)


def _fenced(
    prepared: ServedPreparedModel10,
    request: Request,
    timed: v1_2.MeasureTiming,
    deadline_ns: int | None,
    loop_timeout_ns: int | None,
) -> Outcome:
    """Execute fenced; where a fence comes back, start once more after it, which fails if the first does."""
    status, fence, callback = _started(prepared, request, (), timed, deadline_ns, loop_timeout_ns)
    if callback is None:
        return Outcome(status, (), NO_TIMING)
    if fence is not None:
        again, later, other = _started(prepared, request, (fence,), timed, deadline_ns, loop_timeout_ns)
        for fd in filter(None, (fence, later)):
            assert fences.wait(fd, ANSWER_S) != fences.FenceStatus.PENDING
            fences.close(fd)
        failed = callback.get_execution_info()[0] != ErrorStatus.NONE
        assert failed == (other is None or other.get_execution_info()[0] != ErrorStatus.NONE), again
    status, launched, _since_fences = callback.get_execution_info()
    return Outcome(status, (), launched)


def _started(
    prepared: ServedPreparedModel10, request: Request, wait_for: Sequence[int], *how: Any
) -> tuple[int, int | None, ServedFencedCallback | None]:
    assert isinstance(prepared, ServedPreparedModel13)
    status, fence, callback = prepared.execute_fenced(request, wait_for, *how, None)
    assert (callback is None) == (status != ErrorStatus.NONE)
    assert fence is None or callback is not None
    return status, fence, callback


class BurstEnd:
    """The client's end of a burst: pool i of the requests is the memory of slot i."""

    def __init__(self, prepared: ServedPreparedModel10, pools: Sequence[SharedMemory], results: int = 1024) -> None:
        assert isinstance(prepared, ServedPreparedModel12)
        self._pools = pools
        self._requests, self._results = Channel(), Channel(results)
        status, context = prepared.configure_execution_burst(self, self._requests, self._results)
        assert status == ErrorStatus.NONE
        assert context is not None
        self.context = context

    def __enter__(self) -> BurstEnd:
        return self

    def __exit__(self, *_error: object) -> None:
        self.context.close()

    def get_memories(self, slots: Sequence[int]) -> tuple[int, Sequence[SharedMemory]]:
        """Return the memories of slots (IBurstCallback)."""
        if any(not 0 <= slot < len(self._pools) for slot in slots):
            return ErrorStatus.INVALID_ARGUMENT, ()
        return ErrorStatus.NONE, [self._pools[slot] for slot in slots]

    def packet(self, request: Request, measure: bool) -> list[bytes]:
        """Return the packet of a request."""
        return serialize_request(request, measure, range(len(request.pools)))

    def answer(self, packet: Sequence[bytes]) -> list[bytes]:
        """Send a packet and return the one that comes back."""
        assert self._requests.write(packet)
        answer = self._results.read()
        assert answer is not None
        return answer

    def execute(self, request: Request, measure: bool) -> Outcome:
        """Execute a request."""
        return outcome_of(self.answer(self.packet(request, measure)))


def outcome_of(packet: Sequence[bytes]) -> Outcome:
    """Return what a packet of results says."""
    return Outcome(*deserialize_result(packet))


def everywhere(pool: int, length: int = 0) -> DataLocation:
    """Return the location of a whole pool: no length for a buffer token."""
    return DataLocation(pool_index=pool, length=length)
