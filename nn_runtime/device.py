# SPDX-License-Identifier: Apache-2.0
"""A device as the runtime sees it, whatever driver is behind it."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from nn_runtime import extensions
from nn_runtime.codes import DeviceTypeCode, FeatureLevel
from nn_runtime.errors import BadData, OperationFailed, UnexpectedNull
from nn_runtime.hal.interfaces import DescribesDevice, DeviceDescription
from nn_runtime.hal.types import MAXIMUM_CACHE_FILES, DeviceStatus, HalError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.hal.interfaces import IDevice
    from nn_runtime.hal.types import Capabilities, Extension

REFERENCE_NAME = "nnapi-reference"
RUNTIME_FEATURE_LEVEL = FeatureLevel.LEVEL_8

_log = logging.getLogger("nn_runtime.manager")


class Device:
    """One device as the runtime sees it: the driver's IDevice with its constant answers kept."""

    def __init__(self, hal: IDevice) -> None:
        """Wrap a driver's device; raises OperationFailed if it cannot answer the queries of discovery."""
        self.hal = hal
        self.name = hal.name
        self.is_reference = self.name == REFERENCE_NAME
        try:
            self.version = hal.get_version_string()
            self.type = DeviceTypeCode(hal.get_type())
            self._feature_level = hal.get_feature_level()
            self.cache_files = hal.get_number_of_cache_files_needed()
        except Exception as error:
            raise OperationFailed(f"device {self.name}: it does not answer its queries: {error}") from error
        if not all(0 <= count <= MAXIMUM_CACHE_FILES for count in self.cache_files):
            needs = f"{self.cache_files[0]} and {self.cache_files[1]}"
            raise OperationFailed(
                f"device {self.name}: it needs {needs} cache files, at most {MAXIMUM_CACHE_FILES} of each are allowed"
            )
        extensions.add_device(self)

    def __repr__(self) -> str:
        return f"<Device {self.name} {self.type.name} {self.version!r}>"

    @property
    def feature_level(self) -> int:
        """Highest feature level of the models it takes, at most the runtime's."""
        return min(self._feature_level, RUNTIME_FEATURE_LEVEL)

    @functools.cached_property
    def capabilities(self) -> Capabilities:
        """The driver's performance table."""
        return self.hal.get_capabilities()

    @functools.cached_property
    def description(self) -> DeviceDescription | None:
        """Strings of platform and vendor, where the driver tells them."""
        return self.hal.description() if isinstance(self.hal, DescribesDevice) else None

    @functools.cached_property
    def extensions(self) -> tuple[Extension, ...]:
        """Vendor extensions of the device; none where its records break the rules."""
        try:
            return extensions.checked(self.hal.get_supported_extensions())
        except Exception as error:
            _log.warning("%s: its extensions are ignored: %s", self.name, error)
            return ()

    def wait(self) -> None:
        """Return when the device is up; raises OperationFailed if it is not."""
        try:
            status = self.hal.get_status()
        except HalError as error:
            raise OperationFailed(f"device {self.name}: {error}") from error
        if status == DeviceStatus.OFFLINE:
            raise OperationFailed(f"device {self.name} is offline")

    def extension_support(self, name: str) -> bool:
        """Tell whether the device supports a vendor extension."""
        return any(extension.name == name for extension in self.extensions)


def check_device_list(call: str, devices: Sequence[Device]) -> None:
    """Check that a list of devices is neither empty nor names one twice; raises UnexpectedNull, BadData."""
    if isinstance(devices, (Device, str)) or not (devices is None or isinstance(devices, Iterable)):
        raise BadData(f"{call}: wanted a list of devices, got {devices!r}")
    if devices is None or any(device is None for device in devices):
        raise UnexpectedNull(f"{call}: a device is None")
    for device in devices:
        if not isinstance(device, Device):
            raise BadData(f"{call}: wanted devices such as those of nn_runtime.devices(), got {device!r}")
    if not devices:
        raise BadData(f"{call}: the list of devices is empty")
    names = [device.name for device in devices]
    for name in names:
        if names.count(name) > 1:
            raise BadData(f"{call}: the list of devices names {name} twice")
