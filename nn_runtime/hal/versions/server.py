# SPDX-License-Identifier: Apache-2.0
"""A canonical device behind the interface of an older version: what a driver of HAL 1.0 to 1.3 looks like.

For drivers that are to be reached through an older interface, and for testing what becomes of them. Asynchronous calls
run in a thread of their own and keep to the callback protocol.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

from nn_runtime.codes import FeatureLevel
from nn_runtime.hal.interfaces import CacheRequest
from nn_runtime.hal.types import ErrorStatus, ExecutionPreference, HalError, Priority
from nn_runtime.hal.validation import validate_model, validate_preference, validate_priority
from nn_runtime.hal.versions import v1_0, v1_1, v1_2, v1_3
from nn_runtime.hal.versions.compliance import minimum_level
from nn_runtime.hal.versions.conversion import capabilities_to, status_to, to_canonical
from nn_runtime.hal.versions.served_buffer import ServedBuffer
from nn_runtime.hal.versions.served_model import (
    ServedPreparedModel10,
    ServedPreparedModel12,
    ServedPreparedModel13,
    in_thread,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nn_runtime.hal.interfaces import IDevice, IPreparedModel
    from nn_runtime.hal.types import (
        BufferDesc,
        BufferRole,
        DeviceStatus,
        Extension,
        Model,
    )
    from nn_runtime.hal.versions.conversion import VersionedModel

T = TypeVar("T")
_log = logging.getLogger("nn_runtime.driver")
_NO_TIMING = v1_2.Timing()


def serve(device: IDevice, version: int) -> Served10:
    """Return a device at a version's interface (a FeatureLevel, HAL 1.0 to 1.3)."""
    kinds = {
        FeatureLevel.HAL_1_0: Served10,
        FeatureLevel.HAL_1_1: Served11,
        FeatureLevel.HAL_1_2: Served12,
        FeatureLevel.HAL_1_3: Served13,
    }
    return kinds[FeatureLevel(version)](device)


class Served10:
    """A device of HAL 1.0 (v1_0.IDevice)."""

    version = FeatureLevel.HAL_1_0

    def __init__(self, device: IDevice) -> None:
        """Keep the device."""
        self.device = device

    def get_capabilities(self) -> tuple[int, v1_0.Capabilities]:
        """Return status and figures."""
        return ErrorStatus.NONE, capabilities_to(self.device.get_capabilities(), FeatureLevel.HAL_1_0)

    def get_supported_operations(self, model: v1_0.Model) -> tuple[int, Sequence[bool]]:
        """Return status and one bool per operation."""
        return self._supported(model)

    def prepare_model(self, model: v1_0.Model, callback: v1_0.IPreparedModelCallback) -> int:
        """Launch a preparation."""
        return self._launch(model, ExecutionPreference.FAST_SINGLE_ANSWER, Priority.MEDIUM, None, None, callback.notify)

    def get_status(self) -> DeviceStatus:
        """Return whether the device can take work."""
        return self.device.get_status()

    def _supported(self, model: VersionedModel) -> tuple[int, Sequence[bool]]:
        try:
            return ErrorStatus.NONE, list(self.device.get_supported_operations(self._checked(model)))
        except HalError as error:
            return self._status(error), ()

    def _checked(self, model: VersionedModel) -> Model:
        """Return a valid model of this version; raises HalError(INVALID_ARGUMENT)."""
        canonical = to_canonical(model)
        validate_model(canonical)
        if minimum_level(canonical) > self.version:
            raise HalError(ErrorStatus.INVALID_ARGUMENT, f"{self.version.name} has no such models")
        return canonical

    def _launch(
        self,
        model: VersionedModel,
        preference: ExecutionPreference,
        priority: Priority,
        deadline_ns: int | None,
        cache: CacheRequest | None,
        notify: Callable[[int, v1_0.IPreparedModel | None], None],
    ) -> int:
        try:
            canonical = self._checked(model)
            validate_preference(preference)
            validate_priority(priority)
        except HalError as error:
            notify(self._status(error), None)
            return self._status(error)
        return self._start(
            lambda: self.device.prepare_model(canonical, preference, priority, deadline_ns, cache), canonical, notify
        )

    def _start(
        self,
        prepare: Callable[[], IPreparedModel],
        model: Model | None,
        notify: Callable[[int, v1_0.IPreparedModel | None], None],
    ) -> int:
        def run() -> None:
            try:
                prepared = self._wrapped(prepare(), model)
            except HalError as error:
                notify(self._status(error), None)
            except Exception as error:
                _log.warning("preparation failed with %s: %s", type(error).__name__, error)
                notify(ErrorStatus.GENERAL_FAILURE, None)
            else:
                notify(ErrorStatus.NONE, prepared)

        return in_thread(run, lambda: notify(ErrorStatus.GENERAL_FAILURE, None))

    def _wrapped(self, prepared: IPreparedModel, model: Model | None) -> v1_0.IPreparedModel:
        return ServedPreparedModel10(prepared, self.version, model)

    def _status(self, error: HalError) -> int:
        return status_to(error.status, self.version)


class Served11(Served10):
    """A device of HAL 1.1 (v1_1.IDevice)."""

    version = FeatureLevel.HAL_1_1

    def get_capabilities_1_1(self) -> tuple[int, v1_1.Capabilities]:
        """Return status and figures."""
        return ErrorStatus.NONE, capabilities_to(self.device.get_capabilities(), FeatureLevel.HAL_1_1)

    def get_supported_operations_1_1(self, model: v1_1.Model) -> tuple[int, Sequence[bool]]:
        """Return status and one bool per operation."""
        return self._supported(model)

    def prepare_model_1_1(
        self, model: v1_1.Model, preference: ExecutionPreference, callback: v1_0.IPreparedModelCallback
    ) -> int:
        """Launch a preparation."""
        return self._launch(model, preference, Priority.MEDIUM, None, None, callback.notify)


class Served12(Served11):
    """A device of HAL 1.2 (v1_2.IDevice)."""

    version = FeatureLevel.HAL_1_2

    def get_version_string(self) -> tuple[int, str]:
        """Return status and the driver's version."""
        return ErrorStatus.NONE, self.device.get_version_string()

    def get_type(self) -> tuple[int, int]:
        """Return status and kind of the device."""
        return ErrorStatus.NONE, self.device.get_type()

    def get_supported_extensions(self) -> tuple[int, Sequence[Extension]]:
        """Return status and the vendor extensions."""
        return ErrorStatus.NONE, self.device.get_supported_extensions()

    def get_number_of_cache_files_needed(self) -> tuple[int, int, int]:
        """Return status and the numbers of model and data cache files."""
        return (ErrorStatus.NONE, *self.device.get_number_of_cache_files_needed())

    def get_capabilities_1_2(self) -> tuple[int, v1_2.Capabilities]:
        """Return status and figures."""
        return ErrorStatus.NONE, capabilities_to(self.device.get_capabilities(), FeatureLevel.HAL_1_2)

    def get_supported_operations_1_2(self, model: v1_2.Model) -> tuple[int, Sequence[bool]]:
        """Return status and one bool per operation."""
        return self._supported(model)

    def prepare_model_1_2(
        self,
        model: v1_2.Model,
        preference: ExecutionPreference,
        model_cache: Sequence[int],
        data_cache: Sequence[int],
        token: bytes,
        callback: v1_2.IPreparedModelCallback,
    ) -> int:
        """Launch a preparation."""
        cache = _cache(model_cache, data_cache, token)
        return self._launch(model, preference, Priority.MEDIUM, None, cache, callback.notify_1_2)

    def prepare_model_from_cache(
        self,
        model_cache: Sequence[int],
        data_cache: Sequence[int],
        token: bytes,
        callback: v1_2.IPreparedModelCallback,
    ) -> int:
        """Launch a preparation from cache files alone."""
        cache = CacheRequest(tuple(model_cache), tuple(data_cache), token)
        return self._start(lambda: self.device.prepare_model_from_cache(None, cache), None, callback.notify_1_2)

    def _wrapped(self, prepared: IPreparedModel, model: Model | None) -> v1_0.IPreparedModel:
        return ServedPreparedModel12(prepared, self.version, model)


class Served13(Served12):
    """A device of HAL 1.3 (v1_3.IDevice)."""

    version = FeatureLevel.HAL_1_3

    def get_capabilities_1_3(self) -> tuple[int, v1_3.Capabilities]:
        """Return status and figures."""
        return ErrorStatus.NONE, capabilities_to(self.device.get_capabilities(), FeatureLevel.HAL_1_3)

    def get_supported_operations_1_3(self, model: v1_3.Model) -> tuple[int, Sequence[bool]]:
        """Return status and one bool per operation of the main graph."""
        return self._supported(model)

    def prepare_model_1_3(
        self,
        model: v1_3.Model,
        preference: ExecutionPreference,
        priority: Priority,
        deadline_ns: int | None,
        model_cache: Sequence[int],
        data_cache: Sequence[int],
        token: bytes,
        callback: v1_3.IPreparedModelCallback,
    ) -> int:
        """Launch a preparation."""
        cache = _cache(model_cache, data_cache, token)
        return self._launch(model, preference, priority, deadline_ns, cache, callback.notify_1_3)

    def prepare_model_from_cache_1_3(
        self,
        deadline_ns: int | None,
        model_cache: Sequence[int],
        data_cache: Sequence[int],
        token: bytes,
        callback: v1_3.IPreparedModelCallback,
    ) -> int:
        """Launch a preparation from cache files alone."""
        cache = CacheRequest(tuple(model_cache), tuple(data_cache), token)
        return self._start(lambda: self.device.prepare_model_from_cache(deadline_ns, cache), None, callback.notify_1_3)

    def allocate(
        self,
        desc: BufferDesc,
        prepared_models: Sequence[v1_3.IPreparedModel],
        input_roles: Sequence[BufferRole],
        output_roles: Sequence[BufferRole],
    ) -> tuple[int, v1_3.IBuffer | None, int]:
        """Return status, buffer and token."""
        models = [model.inner for model in prepared_models if isinstance(model, ServedPreparedModel13)]
        if len(models) != len(prepared_models):
            return ErrorStatus.INVALID_ARGUMENT, None, 0
        try:
            buffer, token = self.device.allocate(desc, models, input_roles, output_roles)
        except HalError as error:
            return self._status(error), None, 0
        return ErrorStatus.NONE, ServedBuffer(buffer), token

    def _wrapped(self, prepared: IPreparedModel, model: Model | None) -> v1_0.IPreparedModel:
        return ServedPreparedModel13(prepared, self.version, model)


def _cache(model_cache: Sequence[int], data_cache: Sequence[int], token: bytes) -> CacheRequest | None:
    """Return the cache handles; None for none at all."""
    if not model_cache and not data_cache:
        return None
    return CacheRequest(tuple(model_cache), tuple(data_cache), token)
