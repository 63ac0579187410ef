# SPDX-License-Identifier: Apache-2.0
"""A device as the runtime sees it, whatever driver is behind it."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING

from nn_runtime import extensions
from nn_runtime.answers import answers_of, checked_description, name_of
from nn_runtime.checks import check_kind
from nn_runtime.codes import FeatureLevel
from nn_runtime.errors import BadData, OperationFailed, UnexpectedNull
from nn_runtime.failures import answered, error_of_hal, guarded
from nn_runtime.hal.interfaces import DescribesDevice, DeviceDescription, ReportsStatistics, TakesUnknownSizes
from nn_runtime.hal.types import DeviceStatus, ErrorStatus, HalError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nn_runtime.hal.interfaces import IDevice
    from nn_runtime.hal.types import Extension

REFERENCE_NAME = "nnapi-reference"
RUNTIME_FEATURE_LEVEL = FeatureLevel.LEVEL_8


class Device:
    """One device as the runtime sees it: the driver's IDevice with its constant answers kept."""

    def __init__(self, hal: IDevice) -> None:
        """Wrap a driver's device; raises OperationFailed if it cannot answer the queries of discovery."""
        self.hal = hal
        self.name = "without a name"
        try:
            self.name = name_of(hal)
            answers = answers_of(hal)
        except HalError as error:
            raise OperationFailed(f"device {self.name}: it does not answer its queries: {error}") from error
        self.is_reference = self.name == REFERENCE_NAME
        self.version = answers.version
        self.type = answers.type
        self.capabilities = answers.capabilities
        """The driver's performance table."""
        self.cache_files = answers.cache_files
        self._feature_level = answers.feature_level
        extensions.add_device(self)

    def __repr__(self) -> str:
        return f"<Device {self.name} {self.type.name} {self.version!r}>"

    @property
    def feature_level(self) -> int:
        """Highest feature level of the models it takes, at most the runtime's."""
        return min(self._feature_level, RUNTIME_FEATURE_LEVEL)

    @functools.cached_property
    def description(self) -> DeviceDescription | None:
        """Strings of platform and vendor, where the driver tells them."""
        hal = self.hal
        if not isinstance(hal, DescribesDevice):
            return None
        return answered(lambda: checked_description(hal.description()), None, f"{self.name}: description")

    @functools.cached_property
    def extensions(self) -> tuple[Extension, ...]:
        """Vendor extensions of the device; none where its records break the rules."""
        return answered(
            lambda: extensions.checked(self.hal.get_supported_extensions()),
            (),
            f"{self.name}: its extensions are ignored: get_supported_extensions",
        )

    @functools.cached_property
    def takes_unknown_sizes(self) -> bool:
        """Whether it takes IF and WHILE with operands of unknown size, as the CPU device does."""
        hal = self.hal
        if self.is_reference or not isinstance(hal, TakesUnknownSizes):
            return self.is_reference
        return answered(lambda: bool(hal.takes_unknown_sizes()), False, f"{self.name}: takes_unknown_sizes")

    def statistics(self) -> Mapping[str, int | float]:
        """Return what the driver counts of the device in this process; empty where it does not."""
        hal = self.hal
        if not isinstance(hal, ReportsStatistics):
            return {}
        return answered(lambda: dict(hal.statistics()), {}, f"{self.name}: statistics")

    def wait(self) -> None:
        """Return when the device is up; raises OperationFailed if it is not, DeadObject if its service died."""
        try:
            status = guarded(lambda: DeviceStatus(self.hal.get_status()), "get_status")
        except HalError as error:
            if error.status == ErrorStatus.DEAD_OBJECT:
                raise error_of_hal(error, f"device {self.name}") from error
            raise OperationFailed(f"device {self.name}: {error}") from error
        if status == DeviceStatus.OFFLINE:
            raise OperationFailed(f"device {self.name} is offline")

    def extension_support(self, name: str) -> bool:
        """Tell whether the device supports a vendor extension; raises UnexpectedNull, BadData for what is no name."""
        check_kind("extension_support: the name", name, str)
        return any(extension.name == name for extension in self.extensions)


def checked_devices(call: str, devices: Iterable[Device]) -> tuple[Device, ...]:
    """Return a list of devices that is neither empty nor names one twice; raises UnexpectedNull, BadData."""
    if isinstance(devices, (Device, str)) or not (devices is None or isinstance(devices, Iterable)):
        raise BadData(f"{call}: wanted a list of devices, got {devices!r}")
    try:
        found = None if devices is None else tuple(devices)
    except TypeError:  # an array without dimensions
        raise BadData(f"{call}: wanted a list of devices, got {devices!r}") from None
    if found is None or any(device is None for device in found):
        raise UnexpectedNull(f"{call}: a device is None")
    for device in found:
        if not isinstance(device, Device):
            raise BadData(f"{call}: wanted devices such as those of nn_runtime.devices(), got {device!r}")
    if not found:
        raise BadData(f"{call}: the list of devices is empty")
    names = [device.name for device in found]
    for name in names:
        if names.count(name) > 1:
            raise BadData(f"{call}: the list of devices names {name} twice")
    return found
