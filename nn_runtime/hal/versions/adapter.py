# SPDX-License-Identifier: Apache-2.0
"""Drivers of HAL 1.0 to 1.3 as canonical ones (SURFACE, "Adapting old drivers").

`adapt` finds the version of a driver by the methods that it has. A driver that raises `callbacks.ServiceDied` counts as
dead (DEAD_OBJECT), any other exception as a GENERAL_FAILURE. A driver that dies while a callback is awaited says so
through `LinksToDeath`, if it has that.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from nn_runtime.codes import DeviceTypeCode, FeatureLevel
from nn_runtime.hal.interfaces import OperationSupport
from nn_runtime.hal.types import CACHE_TOKEN_BYTES, MAXIMUM_CACHE_FILES, ErrorStatus, HalError
from nn_runtime.hal.validation import validate_preference, validate_priority
from nn_runtime.hal.versions import v1_0, v1_1, v1_2, v1_3
from nn_runtime.hal.versions.adapted_buffer import AdaptedBuffer
from nn_runtime.hal.versions.adapted_model import (
    AdaptedPreparedModel,
    AdaptedPreparedModel12,
    AdaptedPreparedModel13,
)
from nn_runtime.hal.versions.callbacks import PreparedModelCallback, checked, guarded
from nn_runtime.hal.versions.conversion import canonical_capabilities, convert_to
from nn_runtime.hal.versions.deaths import Deaths, launched
from nn_runtime.hal.versions.slicing import slice_of
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.hal.interfaces import CacheRequest, IBuffer, IPreparedModel
    from nn_runtime.hal.types import (
        BufferDesc,
        BufferRole,
        Capabilities,
        DeviceStatus,
        ExecutionPreference,
        Extension,
        Model,
        Priority,
    )
    from nn_runtime.hal.versions.conversion import VersionedCapabilities

_log = logging.getLogger("nn_runtime.driver")

UNKNOWN_VERSION = "UNKNOWN"


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


@dataclass(frozen=True)
class _Preparation:
    """How a model is to be prepared, as far as a version can be told."""

    preference: ExecutionPreference
    priority: Priority
    deadline_ns: int | None
    cache: CacheRequest | None

    @property
    def handles(self) -> tuple[Sequence[int], Sequence[int], bytes]:
        """The cache files of the model and of data, and the token."""
        if self.cache is None:
            return (), (), bytes(CACHE_TOKEN_BYTES)
        return self.cache.model_files, self.cache.data_files, self.cache.token


class AdaptedDevice:
    """A driver of HAL 1.0 as a canonical device (IDevice, ExplainsOperations); later versions derive from it."""

    version = FeatureLevel.HAL_1_0

    def __init__(self, driver: v1_0.IDevice, name: str, synchronous: bool = True) -> None:
        """Keep the driver."""
        self.name = name
        self.synchronous = synchronous
        self._driver = driver
        self.deaths = Deaths(driver)

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
        sliced = part.model
        status, reply = guarded(lambda: self._ask_supported(sliced), "get_supported_operations")
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
        callback = PreparedModelCallback()
        wanted = _Preparation(preference, priority, deadline_ns, cache)
        launched(self.deaths, callback, lambda: self._prepare(model, wanted, callback), "prepare_model")
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

    def _ask_supported(self, model: Model) -> tuple[int, Sequence[bool]]:
        return self._driver.get_supported_operations(convert_to(model, FeatureLevel.HAL_1_0))

    def _prepare(self, model: Model, wanted: _Preparation, callback: PreparedModelCallback) -> int:
        converted = convert_to(model, FeatureLevel.HAL_1_0)
        return self._driver.prepare_model(converted, callback)

    def _wrapped(self, prepared: v1_0.IPreparedModel, model: Model | None) -> AdaptedPreparedModel:
        return AdaptedPreparedModel(prepared, model, self.deaths)


class _Device11(AdaptedDevice):
    """A driver of HAL 1.1."""

    version = FeatureLevel.HAL_1_1

    def __init__(self, driver: v1_1.IDevice, name: str, synchronous: bool) -> None:
        super().__init__(driver, name, synchronous)
        self._driver_1_1 = driver

    def _ask_capabilities(self) -> tuple[int, VersionedCapabilities]:
        return self._driver_1_1.get_capabilities_1_1()

    def _ask_supported(self, model: Model) -> tuple[int, Sequence[bool]]:
        return self._driver_1_1.get_supported_operations_1_1(convert_to(model, FeatureLevel.HAL_1_1))

    def _prepare(self, model: Model, wanted: _Preparation, callback: PreparedModelCallback) -> int:
        converted = convert_to(model, FeatureLevel.HAL_1_1)
        return self._driver_1_1.prepare_model_1_1(converted, wanted.preference, callback)


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

    def _ask_supported(self, model: Model) -> tuple[int, Sequence[bool]]:
        return self._driver_1_2.get_supported_operations_1_2(convert_to(model, FeatureLevel.HAL_1_2))

    def _prepare(self, model: Model, wanted: _Preparation, callback: PreparedModelCallback) -> int:
        converted = convert_to(model, FeatureLevel.HAL_1_2)
        return self._driver_1_2.prepare_model_1_2(converted, wanted.preference, *wanted.handles, callback)

    def _wrapped(self, prepared: v1_0.IPreparedModel, model: Model | None) -> AdaptedPreparedModel:
        if isinstance(prepared, _Prepared12):
            return AdaptedPreparedModel12(prepared, model, self.deaths, self.synchronous)
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
        models = [model.driver_1_3 for model in prepared_models if isinstance(model, AdaptedPreparedModel13)]
        if len(models) != len(prepared_models):
            raise HalError(ErrorStatus.INVALID_ARGUMENT, "allocate: a prepared model is not of this device")
        status, buffer, token = guarded(
            lambda: self._driver_1_3.allocate(desc, models, input_roles, output_roles), "allocate"
        )
        checked(status, "allocate")
        if buffer is None or token <= 0:
            raise HalError(ErrorStatus.GENERAL_FAILURE, "allocate: the driver reported success without a buffer")
        return AdaptedBuffer(buffer), token

    def _prepare_from_cache(self, deadline_ns: int | None, cache: CacheRequest, callback: PreparedModelCallback) -> int:
        return self._driver_1_3.prepare_model_from_cache_1_3(
            deadline_ns, cache.model_files, cache.data_files, cache.token, callback
        )

    def _ask_capabilities(self) -> tuple[int, VersionedCapabilities]:
        return self._driver_1_3.get_capabilities_1_3()

    def _ask_supported(self, model: Model) -> tuple[int, Sequence[bool]]:
        return self._driver_1_3.get_supported_operations_1_3(convert_to(model, FeatureLevel.HAL_1_3))

    def _prepare(self, model: Model, wanted: _Preparation, callback: PreparedModelCallback) -> int:
        converted = convert_to(model, FeatureLevel.HAL_1_3)
        return self._driver_1_3.prepare_model_1_3(
            converted, wanted.preference, wanted.priority, wanted.deadline_ns, *wanted.handles, callback
        )

    def _wrapped(self, prepared: v1_0.IPreparedModel, model: Model | None) -> AdaptedPreparedModel:
        if isinstance(prepared, _Prepared13):
            return AdaptedPreparedModel13(prepared, model, self.deaths, self.synchronous)
        return super()._wrapped(prepared, model)


@runtime_checkable
class _Prepared12(v1_2.IPreparedModel, Protocol):
    """What tells a prepared model of HAL 1.2."""


@runtime_checkable
class _Prepared13(v1_3.IPreparedModel, Protocol):
    """What tells a prepared model of HAL 1.3."""
