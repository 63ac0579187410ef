# SPDX-License-Identifier: Apache-2.0
"""Devices for tests.

`SampleDevice` computes by another device but takes only some operations and fails as told; `NullDevice` computes
nothing, for measuring the runtime's own time.
"""

from __future__ import annotations

import os
from dataclasses import field
from typing import TYPE_CHECKING, NoReturn, TypeVar

from nn_runtime.codes import DeviceTypeCode, FeatureLevel, operation_name
from nn_runtime.devices import reference_device
from nn_runtime.hal.capabilities import uniform
from nn_runtime.hal.interfaces import ExplainsOperations, OperationSupport
from nn_runtime.hal.plain import PlainBurst, execute_after_fences
from nn_runtime.hal.types import (
    Capabilities,
    DeviceStatus,
    ErrorStatus,
    ExecutionResult,
    HalError,
    PerformanceInfo,
    Timing,
)
from nn_runtime.hal.validation import validate_model
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from nn_runtime.hal.interfaces import (
        CacheRequest,
        IBuffer,
        IBurstContext,
        IDevice,
        IFencedExecutionCallback,
        IPreparedModel,
    )
    from nn_runtime.hal.memory import SharedMemory
    from nn_runtime.hal.types import (
        BufferDesc,
        BufferRole,
        ExecutionPreference,
        Extension,
        Model,
        OutputShape,
        Priority,
        Request,
    )

T = TypeVar("T")


def uniform_capabilities(exec_time: float, power_usage: float) -> Capabilities:
    """Return `uniform` capabilities."""
    return uniform(PerformanceInfo(exec_time, power_usage))


@dataclass
class Script:
    """What a sample device does instead of working; may be changed at any time."""

    prepare: ErrorStatus | None = None
    execute: ErrorStatus | None = None
    output_shapes: tuple[OutputShape, ...] = ()
    """Reported with the status that `execute` tells to fail with."""
    allocate: ErrorStatus | None = None
    crash: Exception | None = None
    """Raised by an execution as it is: a driver's foreign exception."""
    result: ExecutionResult | None = None
    """Returned by an execution in place of the true one."""
    timing: Timing | None = None
    """Reported by a measured execution."""
    fenced_timing: Timing | None = None
    """Reported of a measured fenced execution in a thread, since its fences signalled; else as `timing`."""
    cache_files: tuple[int, int] = (0, 0)
    """Numbers of model and data cache files that the device says it needs."""
    from_cache: ErrorStatus | None = None
    """Why it cannot prepare from cache files though their content is its own."""
    asynchronous_fences: bool = False
    """Fenced executions run in a thread and return a fence, instead of running before they return."""
    extensions: tuple[Extension, ...] = ()


KEPT = 100
"""How many entries of a kind a record keeps, so that a device that is used for long does not grow."""


class Recent(list[T]):
    """A list of the last `KEPT` things that were appended."""

    def append(self, item: T) -> None:
        """Add at the end, and let the oldest go."""
        super().append(item)
        del self[:-KEPT]


@dataclass
class Record:
    """What a sample device was last asked for."""

    models: Recent[Model] = field(default_factory=Recent)
    requests: Recent[Request] = field(default_factory=Recent)
    deadlines_ns: Recent[int | None] = field(default_factory=Recent)
    preferences: Recent[tuple[ExecutionPreference, Priority]] = field(default_factory=Recent)
    allocations: Recent[tuple[list[BufferRole], list[BufferRole]]] = field(default_factory=Recent)
    caches: Recent[tuple[str, CacheRequest | None]] = field(default_factory=Recent)
    """How each prepared model was asked for: "model" or "cache", with the files."""
    bursts: Recent[SampleBurst] = field(default_factory=Recent)
    fenced: Recent[tuple[int, int | None]] = field(default_factory=Recent)
    """Number of fences to wait for and duration after them, of each fenced execution."""


class SampleDevice:
    """A device that takes the operations it is told to, computes them by another device, and follows a script."""

    def __init__(
        self,
        name: str,
        operations: Collection[int] | None = None,
        capabilities: Capabilities | None = None,
        estimates_ns: Mapping[int, int] | None = None,
        feature_level: int = FeatureLevel.HAL_1_3,
        inner: IDevice | None = None,
        version: str = "sample",
    ) -> None:
        """`operations`: codes it takes (all: None); `estimates_ns`: time per code; `inner`: who computes (the CPU)."""
        self._version = version
        self.name = name
        self.operations = operations
        self.script = Script()
        self.record = Record()
        self._capabilities = capabilities or uniform_capabilities(0.5, 0.5)
        self._estimates_ns = estimates_ns or {}
        self._feature_level = feature_level
        self._inner = inner or reference_device().hal
        self._kept: dict[bytes, tuple[Model, ExecutionPreference, Priority]] = {}

    def get_capabilities(self) -> Capabilities:
        """Return the table given."""
        return self._capabilities

    def get_version_string(self) -> str:
        """Return the version given."""
        return self._version

    def get_type(self) -> DeviceTypeCode:
        """Return OTHER."""
        return DeviceTypeCode.OTHER

    def get_feature_level(self) -> int:
        """Return the level given."""
        return self._feature_level

    def get_status(self) -> DeviceStatus:
        """Return AVAILABLE."""
        return DeviceStatus.AVAILABLE

    def get_supported_extensions(self) -> Sequence[Extension]:
        """Return those of the script."""
        return self.script.extensions

    def get_number_of_cache_files_needed(self) -> tuple[int, int]:
        """Return those of the script."""
        return self.script.cache_files

    def explain_operations(self, model: Model) -> Sequence[OperationSupport]:
        """Refuse what is not on the list, and what the inner device refuses."""
        inner = self._inner
        if isinstance(inner, ExplainsOperations):
            answers = inner.explain_operations(model)
        else:
            answers = [OperationSupport(yes) for yes in inner.get_supported_operations(model)]
        return [
            self._answer(operation.type, answer)
            for operation, answer in zip(model.main.operations, answers, strict=True)
        ]

    def get_supported_operations(self, model: Model) -> Sequence[bool]:
        """Return one bool per operation."""
        return [answer.supported for answer in self.explain_operations(model)]

    def prepare_model(
        self,
        model: Model,
        preference: ExecutionPreference,
        priority: Priority,
        deadline_ns: int | None,
        cache: CacheRequest | None,
    ) -> SamplePreparedModel:
        """Prepare on the inner device, or fail as the script says."""
        if self.script.prepare is not None:
            raise HalError(self.script.prepare, f"{self.name}: told to fail at prepare")
        self.record.models.append(model)
        self.record.preferences.append((preference, priority))
        self.record.deadlines_ns.append(deadline_ns)
        self.record.caches.append(("model", cache))
        inner = self._inner.prepare_model(model, preference, priority, deadline_ns, None)
        if cache is not None and self._save(cache):
            self._kept[cache.token] = model, preference, priority
        return SamplePreparedModel(self, inner)

    def prepare_model_from_cache(self, deadline_ns: int | None, cache: CacheRequest) -> SamplePreparedModel:
        """Prepare a model that this object has prepared under the token before, if the files are as it left them."""
        self.record.caches.append(("cache", cache))
        if self.script.from_cache is not None:
            raise HalError(self.script.from_cache, f"{self.name}: told to fail at prepare from cache")
        if cache.token not in self._kept or not self._is_intact(cache):
            raise HalError(ErrorStatus.GENERAL_FAILURE, f"{self.name}: the cache is not usable")
        model, preference, priority = self._kept[cache.token]
        return SamplePreparedModel(self, self._inner.prepare_model(model, preference, priority, deadline_ns, None))

    def allocate(
        self,
        desc: BufferDesc,
        prepared_models: Sequence[IPreparedModel],
        input_roles: Sequence[BufferRole],
        output_roles: Sequence[BufferRole],
    ) -> tuple[IBuffer, int]:
        """Allocate on the inner device, or fail as the script says."""
        if self.script.allocate is not None:
            raise HalError(self.script.allocate, f"{self.name}: told to fail at allocate")
        inner_models = [model.inner for model in prepared_models if isinstance(model, SamplePreparedModel)]
        if len(inner_models) != len(prepared_models):
            raise HalError(ErrorStatus.INVALID_ARGUMENT, f"{self.name}: a prepared model of another device")
        self.record.allocations.append((list(input_roles), list(output_roles)))
        return self._inner.allocate(desc, inner_models, input_roles, output_roles)

    def close(self) -> None:
        """Nothing is held."""

    def _save(self, cache: CacheRequest) -> bool:
        """Seal the files; return whether that was possible: a failure to save is silent."""
        if not self._has_its_files(cache):
            return False
        try:
            for fd in (*cache.model_files, *cache.data_files):
                _rewrite(fd, self._seal(cache.token))
        except OSError:
            return False
        return True

    def _is_intact(self, cache: CacheRequest) -> bool:
        try:
            contents = [_content(fd) for fd in (*cache.model_files, *cache.data_files)]
        except OSError:
            return False
        return self._has_its_files(cache) and all(content == self._seal(cache.token) for content in contents)

    def _has_its_files(self, cache: CacheRequest) -> bool:
        return (len(cache.model_files), len(cache.data_files)) == self.script.cache_files

    def _seal(self, token: bytes) -> bytes:
        return b"sample cache of " + self.name.encode() + token

    def _answer(self, code: int, answer: OperationSupport) -> OperationSupport:
        if self.operations is not None and code not in self.operations:
            return OperationSupport(False, f"{operation_name(code)} is not on the list")
        return OperationSupport(answer.supported, answer.reason, self._estimates_ns.get(code))


class SamplePreparedModel:
    """A model on a sample device."""

    def __init__(self, device: SampleDevice, inner: IPreparedModel) -> None:
        """Wrap the inner device's one."""
        self.device = device
        self.inner = inner

    def execute_synchronously(
        self, request: Request, measure: bool, deadline_ns: int | None, loop_timeout_ns: int | None
    ) -> ExecutionResult:
        """Execute on the inner device, or do as the script says."""
        script = self.device.script
        self.device.record.requests.append(request)
        if script.crash is not None:
            raise script.crash
        if script.execute is not None:
            raise HalError(script.execute, f"{self.device.name}: told to fail at execute", script.output_shapes)
        if script.result is not None:
            return script.result
        result = self.inner.execute_synchronously(request, measure, deadline_ns, loop_timeout_ns)
        if measure and script.timing is not None:
            return ExecutionResult(result.output_shapes, script.timing)
        return result

    def execute_fenced(
        self,
        request: Request,
        wait_for: Sequence[int],
        measure: bool,
        deadline_ns: int | None,
        loop_timeout_ns: int | None,
        duration_after_fence_ns: int | None,
    ) -> tuple[int | None, IFencedExecutionCallback]:
        """Execute on the inner device, in a thread if the script says so, or fail as it says."""
        self.device.record.fenced.append((len(wait_for), duration_after_fence_ns))
        if not self.device.script.asynchronous_fences:
            if self.device.script.execute is not None:
                raise HalError(self.device.script.execute, f"{self.device.name}: told to fail at execute")
            return self.inner.execute_fenced(
                request, wait_for, measure, deadline_ns, loop_timeout_ns, duration_after_fence_ns
            )

        def execute(deadline_ns: int | None) -> tuple[Timing, Timing]:
            launched = self.execute_synchronously(request, measure, deadline_ns, loop_timeout_ns).timing
            fenced = self.device.script.fenced_timing if measure else None
            return launched, fenced or launched

        return execute_after_fences(self.device.name, wait_for, deadline_ns, duration_after_fence_ns, execute)

    def configure_execution_burst(self) -> IBurstContext:
        """Return a burst that records what it is asked for."""
        burst = SampleBurst(self)
        self.device.record.bursts.append(burst)
        return burst

    def close(self) -> None:
        """Close the inner one."""
        self.inner.close()


class SampleBurst(PlainBurst):
    """A burst that records the requests and the memories to forget."""

    def __init__(self, prepared: SamplePreparedModel) -> None:
        """Start without a record."""
        super().__init__(prepared)
        self.requests: Recent[Request] = Recent()
        self.freed: Recent[SharedMemory] = Recent()
        self.closed = False

    def execute(
        self, request: Request, measure: bool, deadline_ns: int | None, loop_timeout_ns: int | None
    ) -> ExecutionResult:
        """Execute as usual."""
        self.requests.append(request)
        return super().execute(request, measure, deadline_ns, loop_timeout_ns)

    def free_memory(self, memory: SharedMemory) -> None:
        """Record it."""
        self.freed.append(memory)

    def close(self) -> None:
        """Record it."""
        self.closed = True


def _rewrite(fd: int, content: bytes) -> None:
    os.ftruncate(fd, 0)
    os.lseek(fd, 0, os.SEEK_SET)
    os.write(fd, content)


def _content(fd: int) -> bytes:
    os.lseek(fd, 0, os.SEEK_SET)
    return os.read(fd, 1 << 20)


class NullDevice(SampleDevice):
    """A device that takes every operation and computes nothing: outputs of known size keep what they held."""

    def explain_operations(self, model: Model) -> Sequence[OperationSupport]:
        """Take all."""
        validate_model(model)
        return [OperationSupport(True)] * len(model.main.operations)

    def prepare_model(
        self,
        model: Model,
        preference: ExecutionPreference,
        priority: Priority,
        deadline_ns: int | None,
        cache: CacheRequest | None,
    ) -> SamplePreparedModel:
        """Prepare nothing."""
        return SamplePreparedModel(self, _NullPreparedModel())


class _NullPreparedModel:
    def execute_synchronously(
        self, request: Request, measure: bool, deadline_ns: int | None, loop_timeout_ns: int | None
    ) -> ExecutionResult:
        return ExecutionResult()

    def execute_fenced(
        self,
        request: Request,
        wait_for: Sequence[int],
        measure: bool,
        deadline_ns: int | None,
        loop_timeout_ns: int | None,
        duration_after_fence_ns: int | None,
    ) -> NoReturn:
        raise HalError(ErrorStatus.GENERAL_FAILURE, "a null device has no fences")

    def configure_execution_burst(self) -> NoReturn:
        raise HalError(ErrorStatus.GENERAL_FAILURE, "a null device has no bursts")

    def close(self) -> None:
        pass
