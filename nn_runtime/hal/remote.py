# SPDX-License-Identifier: Apache-2.0
"""Drivers in a process of their own: whatever becomes of the driver, the application goes on.

`hosted("gpu_driver.driver:devices")` starts a child process that loads the driver, and returns its devices as stand-ins
that behave alike. Set NNRT_DRIVER_HOST=process and the runtime loads every driver so. Shared memory goes over by file
descriptor; arrays of the application are copied through shared memory that is kept with the request.

A call whose driver dies fails with DEAD_OBJECT at once. The next call to a device starts the driver anew, once; if it
then says other things of itself than before, the device stays dead. A prepared model of a dead driver is prepared again
at its next execution (one from cache files only if `prepare_again_by` said how), and a buffer allocated again at its
next use, empty. Fences die with the driver: pending ones signal an error.
"""

from __future__ import annotations

import logging
import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from nn_runtime.codes import DeviceTypeCode
from nn_runtime.hal.interfaces import UnusableDevice
from nn_runtime.hal.remote_buffer import Allocation, RemoteBuffer
from nn_runtime.hal.remote_channel import PASSES_DESCRIPTORS
from nn_runtime.hal.remote_model import Placed, RemotePreparedModel
from nn_runtime.hal.remote_process import Service
from nn_runtime.hal.types import DeviceStatus, ErrorStatus, HalError
from nn_runtime.hal.versions.conversion import without_pointers
from nn_runtime.operand import EXTENSION_TYPES
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nn_runtime.hal.costs import CostTable
    from nn_runtime.hal.interfaces import (
        Attributes,
        CacheRequest,
        DeviceDescription,
        IBuffer,
        IDevice,
        IPreparedModel,
        OperationSupport,
    )
    from nn_runtime.hal.remote_process import HostProcess
    from nn_runtime.hal.types import (
        BufferDesc,
        BufferRole,
        Capabilities,
        ExecutionPreference,
        Extension,
        Model,
        Priority,
    )

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
            reason = f"it does not answer its queries: {item['failure']}"
            _log.warning("%s: %s: %s", entry, item["name"], reason)
            devices.append(UnusableDevice(str(item["name"]), reason))
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
        """Prepare on the driver, from cache files."""
        files, place = _cache_arguments(cache)

        def prepare(host: HostProcess) -> Placed:
            number = host.new_number()
            abilities, _ = host.call_with_descriptors(
                "prepare_from_cache", self._index, (number, deadline_ns, place), files
            )
            return Placed(host, number, tuple(cast("Sequence[str]", abilities)))

        return RemotePreparedModel(self, (), self.retried(prepare), None)

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
            numbers = [prepared.living().number for prepared in models]
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

    def _prepare_on(self, host: HostProcess, model: Model, options: _Options) -> Placed:
        """Prepare a model without pointers."""
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
        return Placed(host, number, tuple(cast("Sequence[str]", abilities)))

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
        options = _Options(preference, priority, deadline_ns, cache, attributes)
        placed = self.retried(lambda host: self._prepare_on(host, sent, options))
        later = replace(options, deadline_ns=None, cache=None)

        def again() -> Placed:
            return self.retried(lambda host: self._prepare_on(host, sent, later))

        outputs = [sent.main.operands[i] for i in sent.main.output_indexes]
        return RemotePreparedModel(self, outputs, placed, again)

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
class _Options:
    """What a prepared model was prepared with, beside the model."""

    preference: ExecutionPreference
    priority: Priority
    deadline_ns: int | None
    cache: CacheRequest | None
    attributes: Attributes | None


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
