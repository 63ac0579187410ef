# SPDX-License-Identifier: Apache-2.0
"""Drivers in a process of their own: whatever becomes of the driver, the application goes on.

`hosted("gpu_driver.driver:devices")` starts a child process that loads the driver, and returns its devices as stand-ins
that behave alike. Set NNRT_DRIVER_HOST=process and the runtime loads every driver so. Shared memory goes over by file
descriptor; arrays of the application are copied through shared memory that is kept with the request.

A call whose driver dies fails with DEAD_OBJECT at once. The next call to a device starts the driver anew, once; if it
then says other things of itself than before, the device stays dead. A prepared model of a dead driver is prepared again
at its next execution, and a buffer allocated again at its next use, empty. Fences die with the driver: pending ones
signal an error.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import weakref
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from nn_runtime.codes import DeviceTypeCode
from nn_runtime.hal import fences
from nn_runtime.hal.interfaces import UnusableDevice
from nn_runtime.hal.plain import execute_after_fences, timing_since_launch
from nn_runtime.hal.relocation import Relocation
from nn_runtime.hal.remote_buffer import Allocation, RemoteBuffer
from nn_runtime.hal.remote_channel import PASSES_DESCRIPTORS
from nn_runtime.hal.remote_process import HostProcess, Service
from nn_runtime.hal.types import (
    BufferToken,
    DeviceStatus,
    ErrorStatus,
    ExecutionResult,
    HalError,
    OutputShape,
    Timing,
)
from nn_runtime.hal.versions.conversion import without_pointers
from nn_runtime.operand import EXTENSION_TYPES, has_unknown_dimensions, merge_dimensions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeAlias

    from nn_runtime.hal.costs import CostTable
    from nn_runtime.hal.interfaces import (
        Attributes,
        CacheRequest,
        DeviceDescription,
        ExecutionProfile,
        IBuffer,
        IDevice,
        IFencedExecutionCallback,
        IPreparedModel,
        OperationSupport,
    )
    from nn_runtime.hal.memory import SharedMemory
    from nn_runtime.hal.types import (
        BufferDesc,
        BufferRole,
        Capabilities,
        ExecutionPreference,
        Extension,
        Model,
        Priority,
        Request,
    )

    _Placed: TypeAlias = tuple["HostProcess", int, Sequence[str]]

T = TypeVar("T")

_log = logging.getLogger("nn_runtime.driver")


def hosted(entry: str) -> list[IDevice | UnusableDevice]:
    """Start a process for a driver (`module:function`) and return its devices; raises HalError if it cannot be loaded.

    The process ends when all its devices are closed, or with this one.
    """
    service = Service(entry)
    offered = service.host().offered
    devices: list[IDevice | UnusableDevice] = []
    for at, item in enumerate(offered):
        if isinstance(item, UnusableDevice):
            devices.append(item)
        elif "failure" in item:
            _log.warning("%s: %s does not answer its queries: %s", entry, item["name"], item["failure"])
        else:
            devices.append(RemoteDevice(service, at, item))
    service.close_unless_used()
    return devices


class RemoteDevice:
    """A device whose driver runs in another process (IDevice, ExplainsOperations and what else the driver has)."""

    def __init__(self, service: Service, index: int, constants: Mapping[str, Any]) -> None:
        """`index`: place in the driver's list; `constants`: its answers that never change."""
        self.name: str = constants["name"]
        self.service = service
        self._index = index
        self._constants = dict(constants)
        self._checked_host: HostProcess | None = service.host()
        self._is_open = True
        self._buffers: weakref.WeakValueDictionary[int, RemoteBuffer] = weakref.WeakValueDictionary()
        service.use()
        # What is looked for with isinstance must be there only where the driver has it.
        offered: dict[str, Callable[..., Any]] = {}
        if constants["description"] is not None:
            offered["description"] = self._description
        if constants["statistics"]:
            offered["statistics"] = self._statistics
        if constants["unknown_sizes"] is not None:
            offered["takes_unknown_sizes"] = self._takes_unknown_sizes
        if constants["costs"]:
            offered["cost_table"] = self._cost_table
        if constants["attributes"]:
            offered["prepare_model_with_attributes"] = self._prepare
        for name, method in offered.items():
            setattr(self, name, method)

    def get_capabilities(self) -> Capabilities:
        """Return the driver's figures."""
        return cast("Capabilities", self._constants["capabilities"])

    def get_version_string(self) -> str:
        """Return the driver's version."""
        return cast("str", self._constants["version"])

    def get_type(self) -> DeviceTypeCode:
        """Return the kind of the device."""
        return DeviceTypeCode(self._constants["type"])

    def get_feature_level(self) -> int:
        """Return the driver's feature level."""
        return cast("int", self._constants["feature_level"])

    def get_status(self) -> DeviceStatus:
        """Ask the driver, started anew if it is dead."""
        return DeviceStatus(cast("int", self.call("status", lambda _host: ())))

    def get_supported_extensions(self) -> Sequence[Extension]:
        """Return the driver's extensions."""
        return cast("Sequence[Extension]", self._constants["extensions"])

    def get_number_of_cache_files_needed(self) -> tuple[int, int]:
        """Return the driver's numbers."""
        return cast("tuple[int, int]", self._constants["cache_files"])

    def explain_operations(self, model: Model) -> Sequence[OperationSupport]:
        """Ask the driver."""
        sent = without_pointers(model)
        return cast("Sequence[OperationSupport]", self.call("explain", lambda host: _model_arguments(host, sent)))

    def get_supported_operations(self, model: Model) -> Sequence[bool]:
        """Ask the driver."""
        return [answer.supported for answer in self.explain_operations(model)]

    def prepare_model(
        self,
        model: Model,
        preference: ExecutionPreference,
        priority: Priority,
        deadline_ns: int | None,
        cache: CacheRequest | None,
    ) -> RemotePreparedModel:
        """Prepare on the driver."""
        return self._prepare(model, preference, priority, deadline_ns, cache, None)

    def prepare_model_from_cache(self, deadline_ns: int | None, cache: CacheRequest) -> RemotePreparedModel:
        """Prepare on the driver, from cache files; not prepared again if the driver dies."""
        files, place = _cache_arguments(cache)

        def prepare(host: HostProcess) -> _Placed:
            number = host.new_number()
            abilities, _ = host.call_with_descriptors(
                "prepare_from_cache", self._index, (number, deadline_ns, place), files
            )
            return host, number, cast("Sequence[str]", abilities)

        return RemotePreparedModel(self, None, None, *self.retried(prepare))

    def allocate(
        self,
        desc: BufferDesc,
        prepared_models: Sequence[IPreparedModel],
        input_roles: Sequence[BufferRole],
        output_roles: Sequence[BufferRole],
    ) -> tuple[IBuffer, int]:
        """Allocate on the driver."""
        models = [prepared for prepared in prepared_models if isinstance(prepared, RemotePreparedModel)]
        if len(models) != len(prepared_models) or any(prepared.device is not self for prepared in models):
            raise HalError(ErrorStatus.INVALID_ARGUMENT, f"{self.name}: a prepared model of another device")

        def attempt(host: HostProcess) -> Allocation:
            numbers = [prepared.living()[1] for prepared in models]
            number = host.new_number()
            token = host.call("allocate", self._index, number, desc, numbers, tuple(input_roles), tuple(output_roles))
            return Allocation(host, number, cast("int", token))

        buffer = RemoteBuffer(lambda: self.retried(attempt))
        self._buffers[buffer.token] = buffer
        return buffer, buffer.token

    def living_token(self, token: int) -> int:
        """Return what the driver calls a buffer now, by the token given out; one that is not ours stays as it is."""
        buffer = self._buffers.get(token)
        return token if buffer is None else buffer.living().token

    def close(self) -> None:
        """Let the driver go; its process ends with the last of its devices."""
        if self._is_open:
            self._is_open = False
            self.service.leave()

    def call(self, method: str, arguments: Callable[[HostProcess], tuple[object, ...]]) -> object:
        """Call the device, once more if the driver was or is found dead; raises HalError."""
        return self.retried(lambda host: host.call(method, self._index, *arguments(host)))

    def retried(self, attempt: Callable[[HostProcess], T]) -> T:
        """Try with the driver's process; if it dies of it, once more with a new one."""
        host = self._living_host()
        try:
            return attempt(host)
        except HalError as error:
            if error.status != ErrorStatus.DEAD_OBJECT or not host.dead:
                raise
        return attempt(self._living_host())

    def prepare_on(self, host: HostProcess, model: Model, options: PrepareArguments) -> _Placed:
        """Prepare a model without pointers; return process, number and abilities of the prepared model."""
        files, place = _cache_arguments(options.cache)
        number = host.new_number()
        arguments = (
            number,
            *_model_arguments(host, model),
            options.preference,
            options.priority,
            options.deadline_ns,
            place,
            options.attributes,
        )
        abilities, _ = host.call_with_descriptors("prepare", self._index, arguments, files)
        return host, number, cast("Sequence[str]", abilities)

    def _prepare(
        self,
        model: Model,
        preference: ExecutionPreference,
        priority: Priority,
        deadline_ns: int | None,
        cache: CacheRequest | None,
        attributes: Attributes | None,
    ) -> RemotePreparedModel:
        sent = without_pointers(model)
        options = PrepareArguments(preference, priority, deadline_ns, cache, attributes)
        found = self.retried(lambda host: self.prepare_on(host, sent, options))
        return RemotePreparedModel(self, sent, replace(options, deadline_ns=None, cache=None), *found)

    def _description(self) -> DeviceDescription:
        return cast("DeviceDescription", self._constants["description"])

    def _takes_unknown_sizes(self) -> bool:
        return cast("bool", self._constants["unknown_sizes"])

    def _cost_table(self) -> CostTable:
        return cast("CostTable", self.call("costs", lambda _host: ()))

    def _statistics(self) -> Mapping[str, int | float]:
        return cast("Mapping[str, int | float]", self.call("statistics", lambda _host: ()))

    def _living_host(self) -> HostProcess:
        """Return the driver's process; one started anew must say what the first one said."""
        host = self.service.living_host()
        if host is not self._checked_host:
            offered = host.offered[self._index] if self._index < len(host.offered) else None
            if offered != self._constants:
                raise HalError(
                    ErrorStatus.DEAD_OBJECT, f"{self.name}: the driver died and came back as another; it is not used"
                )
            self._checked_host = host
        return host


@dataclass(frozen=True)
class PrepareArguments:
    """What a prepared model was prepared with, beside the model."""

    preference: ExecutionPreference
    priority: Priority
    deadline_ns: int | None
    cache: CacheRequest | None
    attributes: Attributes | None


class _KeptRequest:
    """A request that the driver's process knows by a number."""

    def __init__(self, device: RemoteDevice, host: HostProcess, request: Request, output_types: Sequence[int]) -> None:
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
        device: RemoteDevice,
        model: Model | None,
        options: PrepareArguments | None,
        host: HostProcess,
        number: int,
        abilities: Sequence[str],
    ) -> None:
        """`model` and `options` are not known where it was prepared from cache."""
        self.device = device
        self._model = model
        self._options = options
        self._lock = threading.Lock()
        main = model.main if model is not None else None
        self._outputs = [main.operands[i] for i in main.output_indexes] if main is not None else []
        self._output_types = [operand.type for operand in self._outputs]
        self._place(host, number)
        for ability in abilities:
            setattr(self, ability, getattr(self, f"_{ability}"))

    def execute_synchronously(
        self, request: Request, measure: bool, deadline_ns: int | None, loop_timeout_ns: int | None
    ) -> ExecutionResult:
        """Execute on the driver."""
        host, number = self.living()
        return self.execute_by(host, number, request, (measure, deadline_ns, loop_timeout_ns, None))[0]

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
        self._check_all_known(request)
        if not PASSES_DESCRIPTORS or not fences.HAS_EVENTFD or _has_pointers(request):
            return self._fenced_here(request, wait_for, measure, deadline_ns, loop_timeout_ns, duration_after_fence_ns)
        host, number = self.living()
        kept = self._kept(host, request)
        callback = host.new_number()
        arguments = (kept.number, callback, measure, deadline_ns, loop_timeout_ns, duration_after_fence_ns)
        has_fence, given = host.call_with_descriptors("execute_fenced", number, arguments, tuple(wait_for))
        fence = given[0] if has_fence else None
        if fence is not None:
            host.watch_fence(fence)
        return fence, _RemoteFencedCallback(host, callback)

    def configure_execution_burst(self) -> RemoteBurst:
        """Open a burst on the driver."""
        host, number = self.living()
        burst = host.new_number()
        host.call("open_burst", number, burst)
        return RemoteBurst(self, host, burst)

    def close(self) -> None:
        """Free it on the driver."""
        if self._released.detach() is not None:
            with contextlib.suppress(HalError):
                self._host.call("close", self._number)

    def living(self) -> tuple[HostProcess, int]:
        """Return the driver's process and our number there, prepared again if the driver has died; raises HalError."""
        if not self._host.dead:
            return self._host, self._number
        with self._lock:
            if self._host.dead:
                model, options = self._model, self._options
                if model is None or options is None:
                    raise HalError(ErrorStatus.DEAD_OBJECT, f"{self.device.name}: the process of the driver is dead")
                host, number, _ = self.device.retried(lambda host: self.device.prepare_on(host, model, options))
                self._released.detach()
                self._place(host, number)
            return self._host, self._number

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
        host, number = self.living()
        result, profile = self.execute_by(host, number, request, (False, deadline_ns, loop_timeout_ns, "profile"))
        return result, cast("ExecutionProfile", profile)

    def _execute_with_attributes(
        self,
        request: Request,
        measure: bool,
        deadline_ns: int | None,
        loop_timeout_ns: int | None,
        attributes: Attributes,
    ) -> ExecutionResult:
        host, number = self.living()
        return self.execute_by(host, number, request, (measure, deadline_ns, loop_timeout_ns, attributes))[0]

    def _place(self, host: HostProcess, number: int) -> None:
        self._host, self._number = host, number
        self._requests: dict[int, tuple[weakref.ref[Request], _KeptRequest]] = {}
        self._released = weakref.finalize(self, host.forget, number)
        self._released.atexit = False

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
            timing = self.execute_synchronously(request, measure, deadline_ns, loop_timeout_ns).timing
            return timing_since_launch(timing, launched_ns, time.monotonic_ns()), timing

        return execute_after_fences(self.device.name, wait_for, deadline_ns, duration_ns, execute)

    def _check_all_known(self, request: Request) -> None:
        for operand, argument in zip(self._outputs, request.outputs, strict=False):
            dims = merge_dimensions(operand.dimensions, argument.dimensions)
            if not argument.has_no_value and has_unknown_dimensions(operand.type, dims):
                raise HalError(ErrorStatus.INVALID_ARGUMENT, "a fenced execution needs outputs of known size")


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


def _model_arguments(host: HostProcess, model: Model) -> tuple[object, ...]:
    """Return a model without pointers as it is sent: the model, its pools, and the extension types that it uses."""
    codes = {operand.type for graph in (model.main, *model.referenced) for operand in graph.operands}
    known = {code: EXTENSION_TYPES[code] for code in codes if code in EXTENSION_TYPES}
    types = {code: (element.is_tensor, element.dtype.itemsize) for code, element in known.items()}
    return replace(model, pools=()), [host.pool_number(pool) for pool in model.pools], types


def _cache_arguments(cache: CacheRequest | None) -> tuple[tuple[int, ...], tuple[int, bytes] | None]:
    """Return the descriptors of cache files, and how many of them are model files, with the token."""
    if cache is None or not PASSES_DESCRIPTORS:
        return (), None
    return (*cache.model_files, *cache.data_files), (len(cache.model_files), cache.token)


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


def _has_pointers(request: Request) -> bool:
    return any(argument.location.pointer is not None for argument in (*request.inputs, *request.outputs))


_NOTHING = ExecutionResult()
