# SPDX-License-Identifier: Apache-2.0
"""Drivers of HAL 1.0 to 1.3 as canonical ones (SURFACE, "Adapting old drivers").

`adapt` finds the version of a driver by the methods that it has. A driver that raises `callbacks.ServiceDied` counts as
dead (DEAD_OBJECT), any other exception as a GENERAL_FAILURE. A driver that dies while a callback is awaited says so
through `LinksToDeath`, if it has that.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import TYPE_CHECKING, NoReturn, Protocol, TypeVar, runtime_checkable

from nn_runtime.codes import DeviceTypeCode, FeatureLevel
from nn_runtime.hal.fences import FenceStatus, wait
from nn_runtime.hal.interfaces import OperationSupport
from nn_runtime.hal.plain import FinishedFencedExecution, PlainBurst, earlier_deadline, wait_for_fences
from nn_runtime.hal.relocation import Relocator
from nn_runtime.hal.types import (
    CACHE_TOKEN_BYTES,
    MAXIMUM_CACHE_FILES,
    ErrorStatus,
    ExecutionResult,
    HalError,
    Timing,
)
from nn_runtime.hal.validation import validate_preference, validate_priority
from nn_runtime.hal.versions import v1_0, v1_1, v1_2, v1_3
from nn_runtime.hal.versions.burst import BurstClient
from nn_runtime.hal.versions.callbacks import ExecutionCallback, PreparedModelCallback, checked, checked_reply, guarded
from nn_runtime.hal.versions.conversion import (
    canonical_capabilities,
    canonical_timing,
    check_request,
    convert_to,
)
from nn_runtime.hal.versions.slicing import slice_of
from nn_runtime.operand import has_unknown_dimensions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from nn_runtime.hal.interfaces import CacheRequest, IBuffer, IBurstContext, IFencedExecutionCallback, IPreparedModel
    from nn_runtime.hal.memory import SharedMemory
    from nn_runtime.hal.types import (
        BufferDesc,
        BufferRole,
        Capabilities,
        DeviceStatus,
        ExecutionPreference,
        Extension,
        Model,
        OutputShape,
        Priority,
        Request,
    )
    from nn_runtime.hal.versions.callbacks import OnceCallback
    from nn_runtime.hal.versions.conversion import VersionedCapabilities, VersionedModel
    from nn_runtime.operand import Dimensions

T = TypeVar("T")

_log = logging.getLogger("nn_runtime.driver")

UNKNOWN_VERSION = "UNKNOWN"


@runtime_checkable
class LinksToDeath(Protocol):
    """Optional: a driver's proxy that tells when the service behind it dies."""

    def link_to_death(self, recipient: Callable[[], None]) -> None:
        """Call `recipient` once the service has died."""

    def unlink_to_death(self, recipient: Callable[[], None]) -> None:
        """Forget a recipient."""


def adapt(driver: v1_0.IDevice, name: str, synchronous: bool = True) -> AdaptedDevice:
    """Return a driver of any version as a canonical device.

    `synchronous`: whether drivers of HAL 1.2 and later are executed so, or by callback as those before. Raises
    HalError: INVALID_ARGUMENT without a name or a driver, else where the driver cannot be watched (`LinksToDeath`).
    """
    if not name or driver is None:
        raise HalError(ErrorStatus.INVALID_ARGUMENT, "adapt: a name and a driver are needed")
    if isinstance(driver, _Methods13):
        return _Device13(driver, name, synchronous)
    if isinstance(driver, _Methods12):
        return _Device12(driver, name, synchronous)
    if isinstance(driver, _Methods11):
        return _Device11(driver, name, synchronous)
    return AdaptedDevice(driver, name, synchronous)


@runtime_checkable
class _Methods13(v1_3.IDevice, Protocol):
    """What tells a driver of HAL 1.3."""


@runtime_checkable
class _Methods12(v1_2.IDevice, Protocol):
    """What tells a driver of HAL 1.2."""


@runtime_checkable
class _Methods11(v1_1.IDevice, Protocol):
    """What tells a driver of HAL 1.1."""


class _Deaths:
    """Wakes the callbacks that are awaited when the service behind a driver dies."""

    def __init__(self, driver: object) -> None:
        self._lock = threading.Lock()
        self._waiting: list[OnceCallback[object]] = []
        self._died = False
        self.link(driver)

    def link(self, driver: object) -> None:
        """Hear of the death of one more object of the driver, where it can tell; raises HalError."""
        if isinstance(driver, LinksToDeath):
            guarded(lambda: driver.link_to_death(self._notify), "link_to_death")

    def unlink(self, driver: object) -> None:
        """Hear of the death of an object no more."""
        if isinstance(driver, LinksToDeath):
            driver.unlink_to_death(self._notify)

    @contextlib.contextmanager
    def awaiting(self, callback: OnceCallback[T]) -> Iterator[None]:
        waiting: list[OnceCallback[T]] = self._waiting  # type: ignore[assignment]
        with self._lock:
            waiting.append(callback)
            if self._died:
                callback.notify_as_dead()
        try:
            yield
        finally:
            with self._lock:
                waiting.remove(callback)

    def _notify(self) -> None:
        with self._lock:
            self._died = True
            for callback in self._waiting:
                callback.notify_as_dead()


class AdaptedDevice:
    """A driver of HAL 1.0 as a canonical device (IDevice, ExplainsOperations); later versions derive from it."""

    version = FeatureLevel.HAL_1_0

    def __init__(self, driver: v1_0.IDevice, name: str, synchronous: bool = True) -> None:
        """Keep the driver."""
        self.name = name
        self.synchronous = synchronous
        self._driver = driver
        self.deaths = _Deaths(driver)

    def get_capabilities(self) -> Capabilities:
        """Return the driver's figures, with those that its version lacks filled in."""
        status, reply = guarded(self._ask_capabilities, "get_capabilities")
        checked(status, "get_capabilities")
        return canonical_capabilities(reply)

    def get_version_string(self) -> str:
        """Return UNKNOWN: the version cannot say."""
        return UNKNOWN_VERSION

    def get_type(self) -> DeviceTypeCode:
        """Return UNKNOWN: the version cannot say."""
        return DeviceTypeCode.UNKNOWN

    def get_feature_level(self) -> int:
        """Return the version."""
        return self.version

    def get_status(self) -> DeviceStatus:
        """Return what the driver says."""
        return guarded(self._driver.get_status, "get_status")

    def get_supported_extensions(self) -> Sequence[Extension]:
        """Return none: the version knows none."""
        return ()

    def get_number_of_cache_files_needed(self) -> tuple[int, int]:
        """Return none: the version has no caching."""
        return 0, 0

    def explain_operations(self, model: Model) -> Sequence[OperationSupport]:
        """Ask about the slice of the model that the version can express."""
        part = slice_of(model, self.version)
        newer = OperationSupport(False, f"{self.version.name} cannot express it")
        answers = [newer] * len(model.main.operations)
        if part.model is None:
            return answers
        converted = convert_to(part.model, self.version)
        status, reply = guarded(lambda: self._ask_supported(converted), "get_supported_operations")
        checked(status, "get_supported_operations")
        if len(reply) != len(part.operations):
            reason = f"the driver answered for {len(reply)} of {len(part.operations)} operations"
            _log.warning("%s: %s", self.name, reason)
            return [OperationSupport(False, reason)] * len(answers)
        for at, yes in zip(part.operations, reply, strict=True):
            answers[at] = OperationSupport(bool(yes), "" if yes else "not supported")
        return answers

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
    ) -> AdaptedPreparedModel:
        """Prepare a model that the version can express; what it does not know of the rest is dropped."""
        validate_preference(preference)
        validate_priority(priority)
        converted = convert_to(model, self.version)
        callback = PreparedModelCallback()
        launched(
            self.deaths,
            callback,
            lambda: self._prepare(converted, preference, priority, deadline_ns, cache, callback),
            "prepare_model",
        )
        return self._wrapped(callback.wait(), model)

    def prepare_model_from_cache(self, deadline_ns: int | None, cache: CacheRequest) -> AdaptedPreparedModel:
        """Refuse: the version has no caching."""
        raise HalError(ErrorStatus.GENERAL_FAILURE, f"{self.version.name} has no compilation caching")

    def allocate(
        self,
        desc: BufferDesc,
        prepared_models: Sequence[IPreparedModel],
        input_roles: Sequence[BufferRole],
        output_roles: Sequence[BufferRole],
    ) -> tuple[IBuffer, int]:
        """Refuse: the version has no memory domains."""
        raise HalError(ErrorStatus.GENERAL_FAILURE, f"{self.version.name} has no memory domains")

    def close(self) -> None:
        """Watch the driver no more."""
        self.deaths.unlink(self._driver)

    def _ask_capabilities(self) -> tuple[int, VersionedCapabilities]:
        return self._driver.get_capabilities()

    def _ask_supported(self, model: VersionedModel) -> tuple[int, Sequence[bool]]:
        if not isinstance(model, v1_0.Model):
            _wrong_form()
        return self._driver.get_supported_operations(model)

    def _prepare(
        self,
        model: VersionedModel,
        preference: ExecutionPreference,
        priority: Priority,
        deadline_ns: int | None,
        cache: CacheRequest | None,
        callback: PreparedModelCallback,
    ) -> int:
        if not isinstance(model, v1_0.Model):
            _wrong_form()
        return self._driver.prepare_model(model, callback)

    def _wrapped(self, prepared: v1_0.IPreparedModel, model: Model | None) -> AdaptedPreparedModel:
        return AdaptedPreparedModel(self, prepared, model)


def launched(deaths: _Deaths, callback: OnceCallback[T], launch: Callable[[], int], what: str) -> None:
    """Launch an asynchronous call and wait for its callback; raises the HalError of the launch.

    A launch that fails counts even if the callback is never notified.
    """
    with deaths.awaiting(callback):
        checked(guarded(launch, what), f"launching {what}")
        with contextlib.suppress(HalError):
            callback.wait()


class _Device11(AdaptedDevice):
    """A driver of HAL 1.1."""

    version = FeatureLevel.HAL_1_1

    def __init__(self, driver: v1_1.IDevice, name: str, synchronous: bool) -> None:
        super().__init__(driver, name, synchronous)
        self._driver_1_1 = driver

    def _ask_capabilities(self) -> tuple[int, VersionedCapabilities]:
        return self._driver_1_1.get_capabilities_1_1()

    def _ask_supported(self, model: VersionedModel) -> tuple[int, Sequence[bool]]:
        if not isinstance(model, v1_1.Model):
            _wrong_form()
        return self._driver_1_1.get_supported_operations_1_1(model)

    def _prepare(
        self,
        model: VersionedModel,
        preference: ExecutionPreference,
        priority: Priority,
        deadline_ns: int | None,
        cache: CacheRequest | None,
        callback: PreparedModelCallback,
    ) -> int:
        if not isinstance(model, v1_1.Model):
            _wrong_form()
        return self._driver_1_1.prepare_model_1_1(model, preference, callback)


class _Device12(_Device11):
    """A driver of HAL 1.2."""

    version = FeatureLevel.HAL_1_2

    def __init__(self, driver: v1_2.IDevice, name: str, synchronous: bool) -> None:
        super().__init__(driver, name, synchronous)
        self._driver_1_2 = driver

    def get_version_string(self) -> str:
        """Return what the driver says."""
        status, text = guarded(self._driver_1_2.get_version_string, "get_version_string")
        checked(status, "get_version_string")
        if not text:
            raise HalError(ErrorStatus.GENERAL_FAILURE, "get_version_string: it is empty")
        return text

    def get_type(self) -> DeviceTypeCode:
        """Return what the driver says."""
        status, code = guarded(self._driver_1_2.get_type, "get_type")
        checked(status, "get_type")
        if code not in DeviceTypeCode.__members__.values() or code == DeviceTypeCode.UNKNOWN:
            raise HalError(ErrorStatus.GENERAL_FAILURE, f"get_type: {code} is no type of device")
        return DeviceTypeCode(code)

    def get_supported_extensions(self) -> Sequence[Extension]:
        """Return what the driver says."""
        status, extensions = guarded(self._driver_1_2.get_supported_extensions, "get_supported_extensions")
        checked(status, "get_supported_extensions")
        return extensions

    def get_number_of_cache_files_needed(self) -> tuple[int, int]:
        """Return what the driver says, at most 32 each."""
        status, *counts = guarded(self._driver_1_2.get_number_of_cache_files_needed, "cache files needed")
        checked(status, "cache files needed")
        model_files, data_files = counts
        if not (0 <= model_files <= MAXIMUM_CACHE_FILES and 0 <= data_files <= MAXIMUM_CACHE_FILES):
            raise HalError(ErrorStatus.GENERAL_FAILURE, f"cache files needed: {counts}, at most 32 are allowed")
        return model_files, data_files

    def prepare_model_from_cache(self, deadline_ns: int | None, cache: CacheRequest) -> AdaptedPreparedModel:
        """Prepare from cache files."""
        callback = PreparedModelCallback()
        launched(
            self.deaths,
            callback,
            lambda: self._prepare_from_cache(deadline_ns, cache, callback),
            "prepare_model_from_cache",
        )
        return self._wrapped(callback.wait(), None)

    def _prepare_from_cache(self, deadline_ns: int | None, cache: CacheRequest, callback: PreparedModelCallback) -> int:
        return self._driver_1_2.prepare_model_from_cache(cache.model_files, cache.data_files, cache.token, callback)

    def _ask_capabilities(self) -> tuple[int, VersionedCapabilities]:
        return self._driver_1_2.get_capabilities_1_2()

    def _ask_supported(self, model: VersionedModel) -> tuple[int, Sequence[bool]]:
        if not isinstance(model, v1_2.Model):
            _wrong_form()
        return self._driver_1_2.get_supported_operations_1_2(model)

    def _prepare(
        self,
        model: VersionedModel,
        preference: ExecutionPreference,
        priority: Priority,
        deadline_ns: int | None,
        cache: CacheRequest | None,
        callback: PreparedModelCallback,
    ) -> int:
        if not isinstance(model, v1_2.Model):
            _wrong_form()
        return self._driver_1_2.prepare_model_1_2(model, preference, *_handles(cache), callback)

    def _wrapped(self, prepared: v1_0.IPreparedModel, model: Model | None) -> AdaptedPreparedModel:
        if isinstance(prepared, _Prepared12):
            return _PreparedModel12(self, prepared, model)
        return super()._wrapped(prepared, model)


class _Device13(_Device12):
    """A driver of HAL 1.3."""

    version = FeatureLevel.HAL_1_3

    def __init__(self, driver: v1_3.IDevice, name: str, synchronous: bool) -> None:
        super().__init__(driver, name, synchronous)
        self._driver_1_3 = driver

    def allocate(
        self,
        desc: BufferDesc,
        prepared_models: Sequence[IPreparedModel],
        input_roles: Sequence[BufferRole],
        output_roles: Sequence[BufferRole],
    ) -> tuple[IBuffer, int]:
        """Allocate on the driver."""
        models = [model.driver_1_3 for model in prepared_models if isinstance(model, _PreparedModel13)]
        if len(models) != len(prepared_models):
            raise HalError(ErrorStatus.INVALID_ARGUMENT, "allocate: a prepared model is not of this device")
        status, buffer, token = guarded(
            lambda: self._driver_1_3.allocate(desc, models, input_roles, output_roles), "allocate"
        )
        checked(status, "allocate")
        if buffer is None or token <= 0:
            raise HalError(ErrorStatus.GENERAL_FAILURE, "allocate: the driver reported success without a buffer")
        return _AdaptedBuffer(buffer), token

    def _prepare_from_cache(self, deadline_ns: int | None, cache: CacheRequest, callback: PreparedModelCallback) -> int:
        return self._driver_1_3.prepare_model_from_cache_1_3(
            deadline_ns, cache.model_files, cache.data_files, cache.token, callback
        )

    def _ask_capabilities(self) -> tuple[int, VersionedCapabilities]:
        return self._driver_1_3.get_capabilities_1_3()

    def _ask_supported(self, model: VersionedModel) -> tuple[int, Sequence[bool]]:
        if not isinstance(model, v1_3.Model):
            _wrong_form()
        return self._driver_1_3.get_supported_operations_1_3(model)

    def _prepare(
        self,
        model: VersionedModel,
        preference: ExecutionPreference,
        priority: Priority,
        deadline_ns: int | None,
        cache: CacheRequest | None,
        callback: PreparedModelCallback,
    ) -> int:
        if not isinstance(model, v1_3.Model):
            _wrong_form()
        return self._driver_1_3.prepare_model_1_3(model, preference, priority, deadline_ns, *_handles(cache), callback)

    def _wrapped(self, prepared: v1_0.IPreparedModel, model: Model | None) -> AdaptedPreparedModel:
        if isinstance(prepared, _Prepared13):
            return _PreparedModel13(self, prepared, model)
        return super()._wrapped(prepared, model)


@runtime_checkable
class _Prepared12(v1_2.IPreparedModel, Protocol):
    """What tells a prepared model of HAL 1.2."""


@runtime_checkable
class _Prepared13(v1_3.IPreparedModel, Protocol):
    """What tells a prepared model of HAL 1.3."""


class AdaptedPreparedModel:
    """A prepared model of HAL 1.0 or 1.1: asynchronous, without shapes and timing."""

    version = FeatureLevel.HAL_1_0

    def __init__(self, device: AdaptedDevice, driver: v1_0.IPreparedModel, model: Model | None) -> None:
        """`model` is not known where it was prepared from cache."""
        self._device = device
        device.deaths.link(driver)
        self._driver = driver
        self.model = model
        main = model.main if model is not None else None
        outputs = [main.operands[i] for i in main.output_indexes] if main is not None else []
        self._output_operands = tuple(outputs)
        self._relocator = Relocator([operand.type for operand in outputs])

    def execute_synchronously(
        self, request: Request, measure: bool, deadline_ns: int | None, loop_timeout_ns: int | None
    ) -> ExecutionResult:
        """Execute, with the arrays of the request in shared memory."""
        self.check(request)
        return self.relocated(request, lambda moved: self._execute(moved, measure, deadline_ns, loop_timeout_ns))

    def relocated(self, request: Request, execute: Callable[[Request], ExecutionResult]) -> ExecutionResult:
        """Call `execute` with a request without pointers, between the copies in and out."""
        relocation = self._relocator.of(request)
        if relocation is None:
            return execute(request)
        if not relocation.lock.acquire(blocking=False):
            relocation = self._relocator.fresh(request)
            relocation.lock.acquire()
        try:
            relocation.copy_in()
            result = execute(relocation.request)
            relocation.copy_out(result)
        finally:
            relocation.lock.release()
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
        """Wait for the fences, then execute: the version has no fences."""
        self._check_all_known(request)
        wait_for_fences(wait_for, deadline_ns)
        deadline_ns = earlier_deadline(deadline_ns, duration_after_fence_ns)
        result = self.execute_synchronously(request, measure, deadline_ns, loop_timeout_ns)
        return None, FinishedFencedExecution(result.timing, result.timing)

    def configure_execution_burst(self) -> IBurstContext:
        """Return a burst that executes as usual: the version has none."""
        return PlainBurst(self)

    def close(self) -> None:
        """Watch the driver's object no more; it goes with this one."""
        self._device.deaths.unlink(self._driver)

    def _execute(
        self, request: Request, measure: bool, deadline_ns: int | None, loop_timeout_ns: int | None
    ) -> ExecutionResult:
        callback = ExecutionCallback()
        launched(self._device.deaths, callback, lambda: self._driver.execute(request, callback), "execute")
        shapes, _timing = callback.wait()
        return ExecutionResult(shapes)

    def check(self, request: Request) -> None:
        """Raise HalError(INVALID_ARGUMENT) unless the version can express a request."""
        if self.model is not None:
            check_request(self.model, request, self.version)

    def _check_all_known(self, request: Request) -> None:
        for operand, argument in zip(self._output_operands, request.outputs, strict=False):
            dims = argument.dimensions or operand.dimensions
            if not argument.has_no_value and has_unknown_dimensions(operand.type, dims):
                raise HalError(ErrorStatus.INVALID_ARGUMENT, "a fenced execution needs outputs of known size")


class _PreparedModel12(AdaptedPreparedModel):
    """A prepared model of HAL 1.2."""

    version = FeatureLevel.HAL_1_2

    def __init__(self, device: AdaptedDevice, driver: v1_2.IPreparedModel, model: Model | None) -> None:
        super().__init__(device, driver, model)
        self._driver_1_2 = driver

    def configure_execution_burst(self) -> IBurstContext:
        """Open a burst on the driver."""
        return BurstClient(self, self._driver_1_2)

    def _execute(
        self, request: Request, measure: bool, deadline_ns: int | None, loop_timeout_ns: int | None
    ) -> ExecutionResult:
        if self._device.synchronous:
            return _result(guarded(lambda: self._call(request, measure, deadline_ns, loop_timeout_ns), "execute"))
        callback = ExecutionCallback()

        def launch() -> int:
            return self._launch(request, measure, deadline_ns, loop_timeout_ns, callback)

        launched(self._device.deaths, callback, launch, "execute")
        return ExecutionResult(*callback.wait())

    def _launch(
        self,
        request: Request,
        measure: bool,
        deadline_ns: int | None,
        loop_timeout_ns: int | None,
        callback: ExecutionCallback,
    ) -> int:
        return self._driver_1_2.execute_1_2(request, v1_2.MeasureTiming(measure), callback)

    def _call(
        self, request: Request, measure: bool, deadline_ns: int | None, loop_timeout_ns: int | None
    ) -> tuple[int, Sequence[OutputShape], v1_2.Timing]:
        return self._driver_1_2.execute_synchronously(request, v1_2.MeasureTiming(measure))


class _PreparedModel13(_PreparedModel12):
    """A prepared model of HAL 1.3."""

    version = FeatureLevel.HAL_1_3

    def __init__(self, device: AdaptedDevice, driver: v1_3.IPreparedModel, model: Model | None) -> None:
        super().__init__(device, driver, model)
        self.driver_1_3 = driver

    def execute_fenced(
        self,
        request: Request,
        wait_for: Sequence[int],
        measure: bool,
        deadline_ns: int | None,
        loop_timeout_ns: int | None,
        duration_after_fence_ns: int | None,
    ) -> tuple[int | None, IFencedExecutionCallback]:
        """Start a fenced execution on the driver; with arrays in the request it ends before the call returns."""
        self.check(request)
        if any(fence < 0 for fence in wait_for):
            raise HalError(ErrorStatus.INVALID_ARGUMENT, "a fence to wait for is empty")
        self._check_all_known(request)

        def start(moved: Request) -> tuple[int | None, IFencedExecutionCallback]:
            status, fence, callback = guarded(
                lambda: self.driver_1_3.execute_fenced(
                    moved,
                    wait_for,
                    v1_2.MeasureTiming(measure),
                    deadline_ns,
                    loop_timeout_ns,
                    duration_after_fence_ns,
                ),
                "execute_fenced",
            )
            checked(status, "execute_fenced")
            if callback is None:
                raise HalError(ErrorStatus.GENERAL_FAILURE, "execute_fenced: the driver gave no callback")
            return fence, _AdaptedFencedCallback(callback)

        if all(argument.location.pointer is None for argument in (*request.inputs, *request.outputs)):
            return start(request)
        times: list[IFencedExecutionCallback] = []

        def run(moved: Request) -> ExecutionResult:
            fence, callback = start(moved)
            if fence is not None and wait(fence) == FenceStatus.FAILED:
                raise HalError(ErrorStatus.GENERAL_FAILURE, "the fenced execution failed")
            times.append(callback)
            return ExecutionResult()

        self.relocated(request, run)
        return None, times[0]

    def _launch(
        self,
        request: Request,
        measure: bool,
        deadline_ns: int | None,
        loop_timeout_ns: int | None,
        callback: ExecutionCallback,
    ) -> int:
        return self.driver_1_3.execute_1_3(request, v1_2.MeasureTiming(measure), deadline_ns, loop_timeout_ns, callback)

    def _call(
        self, request: Request, measure: bool, deadline_ns: int | None, loop_timeout_ns: int | None
    ) -> tuple[int, Sequence[OutputShape], v1_2.Timing]:
        return self.driver_1_3.execute_synchronously_1_3(
            request, v1_2.MeasureTiming(measure), deadline_ns, loop_timeout_ns
        )


class _AdaptedFencedCallback:
    """Times of a fenced execution of HAL 1.3."""

    def __init__(self, driver: v1_3.IFencedExecutionCallback) -> None:
        self._driver = driver

    def get_execution_info(self) -> tuple[Timing, Timing]:
        """Ask the driver."""
        status, launched_timing, fenced_timing = guarded(self._driver.get_execution_info, "get_execution_info")
        checked(status, "get_execution_info")
        return canonical_timing(launched_timing), canonical_timing(fenced_timing)


class _AdaptedBuffer:
    """A driver-managed buffer of HAL 1.3."""

    def __init__(self, driver: v1_3.IBuffer) -> None:
        self._driver: v1_3.IBuffer | None = driver

    def copy_to(self, destination: SharedMemory) -> None:
        """Copy the whole buffer out."""
        driver = self._open()
        checked(guarded(lambda: driver.copy_to(destination), "copy_to"), "copy_to")

    def copy_from(self, source: SharedMemory, dimensions: Dimensions) -> None:
        """Fill the whole buffer."""
        driver = self._open()
        checked(guarded(lambda: driver.copy_from(source, dimensions), "copy_from"), "copy_from")

    def close(self) -> None:
        """Let the driver's object go."""
        self._driver = None

    def _open(self) -> v1_3.IBuffer:
        if self._driver is None:
            raise HalError(ErrorStatus.INVALID_ARGUMENT, "the buffer is closed")
        return self._driver


def _result(reply: tuple[int, Sequence[OutputShape], v1_2.Timing]) -> ExecutionResult:
    shapes, timing = checked_reply(*reply)
    return ExecutionResult(shapes, timing)


def _handles(cache: CacheRequest | None) -> tuple[Sequence[int], Sequence[int], bytes]:
    if cache is None:
        return (), (), bytes(CACHE_TOKEN_BYTES)
    return cache.model_files, cache.data_files, cache.token


def _wrong_form() -> NoReturn:
    raise HalError(ErrorStatus.GENERAL_FAILURE, "the model was converted to another version's form")
