# SPDX-License-Identifier: Apache-2.0
"""Devices: loading the drivers, the list of what there is, and choosing from it by a selector.

This module alone loads drivers: `cpu_driver` by name, the others by the entry-point group `nn_runtime.drivers`, each
only when a selector asks for it. A selector is a comma list of the devices that may be used: estimated times and the
first run choose among them, the order decides between equals. Each item is `cpu`, a device's full name, or
`driver[:platform[:type[:device]]]` where platform and device are an index or a case-insensitive part of slug, name,
vendor or version, and `driver:*` means all. The module itself may be called, so that `nn_runtime.devices()` works
whether or not the submodule has been imported before.
"""

from __future__ import annotations

import functools
import importlib
import logging
import os
import sys
import threading
import types
from typing import TYPE_CHECKING

from nn_runtime import vlog
from nn_runtime.answers import checked_unusable, name_of
from nn_runtime.checks import check_kind, shown
from nn_runtime.device import REFERENCE_NAME, RUNTIME_FEATURE_LEVEL, Device
from nn_runtime.errors import BadData, MalformedSelector, NNError, UnavailableDevice, UnmatchedSelector
from nn_runtime.failures import answered
from nn_runtime.hal.interfaces import DeviceDescription, DiagnosingModule, Diagnosis, UnusableDevice
from nn_runtime.hal.kinds import of_kind
from nn_runtime.hal.types import HalError
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nn_runtime.hal.interfaces import IDevice

ENTRY_POINT_GROUP = "nn_runtime.drivers"
DEFAULT_SELECTOR = "opencl,cpu"
SELECTOR_ARGUMENT = "device="
"""What the errors of a selector call the argument that it came by."""
DRIVER_HOST_VARIABLE = "NNRT_DRIVER_HOST"
_CPU = "cpu"
"""What selectors call the reference device."""
_MOST_DIGITS = 10
_loading = threading.RLock()
"""Held while a driver is loaded: two threads that did so at once would have two objects for each of its devices."""

_log = logging.getLogger("nn_runtime.manager")


def _after_fork() -> None:
    """Free the lock in a child: a thread of the parent may have held it, and does not exist here."""
    global _loading
    _loading = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@dataclass(frozen=True)
class Selection:
    """Devices in the order of the selector; `strict`: nothing else may be used (no CPU fallback).

    `passed_over`: items of the selector that match no usable device.
    """

    devices: tuple[Device, ...]
    strict: bool
    passed_over: tuple[str, ...] = ()


@dataclass(frozen=True)
class DriverListing:
    """What one driver offers: usable devices, best first, and the others with their reasons."""

    driver: str
    devices: tuple[Device, ...]
    unusable: tuple[UnusableDevice, ...]
    failure: str = ""
    """Why the driver itself could not be loaded."""


def runtime_feature_level() -> int:
    """Return the highest feature level of this runtime."""
    return RUNTIME_FEATURE_LEVEL


def devices() -> list[Device]:
    """Return every usable device of every driver, the CPU's last; warn of drivers that cannot be loaded."""
    offered = [listing(driver) for driver in driver_names()]
    for one in offered:
        if one.failure:
            _log.warning("%s", one.failure)
    return [*(device for one in offered for device in one.devices), reference_device()]


def find_device(name: str) -> Device:
    """Return the first device of a selector, a name as a rule, loading as few drivers as possible.

    Raises UnavailableDevice.
    """
    return select(name).devices[0]


def driver_names() -> list[str]:
    """Return the names of the installed drivers beside the CPU's."""
    return sorted(_entry_points())


def reference_device() -> Device:
    """Return the CPU device `nnapi-reference`; raises UnavailableDevice where its process cannot be started."""
    with _loading:
        return _loaded_reference()


def listing(driver: str) -> DriverListing:
    """Load a driver by its entry point and return what it offers; a failure is reported in the listing."""
    with _loading:
        return _loaded(driver)


@functools.cache
def _loaded_reference() -> Device:
    vlog.read_tags()
    if drivers_are_hosted():
        try:
            return Device(_usable(_hosted("cpu_driver.driver:devices"))[0])
        except HalError as error:
            raise UnavailableDevice(f"{REFERENCE_NAME}: {error}") from error
    module = importlib.import_module("cpu_driver.driver")
    return Device(module.devices()[0])


@functools.cache
def _loaded(driver: str) -> DriverListing:
    vlog.read_tags()
    entry = _entry_points().get(driver)
    if entry is None:
        known = ", ".join([_CPU, *driver_names()])
        problem = f"nothing follows {_CPU!r}" if driver == _CPU else f"no driver {driver!r} is installed"
        hint = f"; opencl::{driver} means devices of that type" if driver in (_CPU, "gpu", "accelerator") else ""
        return DriverListing(driver, (), (), f"{problem}; there are: {known}{hint}")
    are_hosted = drivers_are_hosted()
    try:
        offered = list(_hosted(entry.value) if are_hosted else entry.load()())
    except (Exception, SystemExit) as error:  # a module that exits as it is imported must not end the application
        return DriverListing(driver, (), (), f"driver {driver} could not be loaded: {type(error).__name__}: {error}")
    usable: list[Device] = []
    unusable: list[UnusableDevice] = []
    for item in offered:
        found = _registered(driver, item, usable)
        if isinstance(found, Device):
            usable.append(found)
        elif found is not None:
            unusable.append(found)
    return DriverListing(driver, tuple(usable), tuple(unusable))


def drivers_are_hosted() -> bool:
    """Tell whether drivers are to run in processes of their own (NNRT_DRIVER_HOST); raises MalformedSelector."""
    setting = os.environ.get(DRIVER_HOST_VARIABLE, "")
    if setting not in ("", "process"):
        raise MalformedSelector(
            DRIVER_HOST_VARIABLE, f"wanted 'process', or nothing for drivers in this process, got {setting!r}"
        )
    return bool(setting)


def _hosted(entry: str) -> list[IDevice | UnusableDevice]:
    from nn_runtime.hal.remote import hosted  # of no use to others

    return hosted(entry)


def _usable(offered: Sequence[IDevice | UnusableDevice]) -> list[IDevice]:
    return [item for item in offered if not isinstance(item, UnusableDevice)]


def diagnosis(driver: str) -> Diagnosis | None:
    """Return what a driver says of this machine, examined anew; None where it is not there or has nothing to say."""
    entry = _entry_points().get(driver)
    if entry is None:
        return None
    try:
        module = importlib.import_module(entry.module)
    except (Exception, SystemExit) as error:
        _log.info("driver %s could not be asked: %s: %s", driver, type(error).__name__, error)
        return None
    if not isinstance(module, DiagnosingModule):
        return None
    diagnose: Callable[[], Diagnosis] = module.diagnose
    return answered(lambda: of_kind(Diagnosis, diagnose(), "diagnose"), None, f"driver {driver}: diagnose")


def distribution_of(driver: str) -> str:
    """Return the name of the package that an installed driver is part of."""
    entry = _entry_points()[driver]
    return entry.dist.name if entry.dist is not None else entry.module.partition(".")[0]


def _registered(
    driver: str, item: IDevice | UnusableDevice, usable: Sequence[Device]
) -> Device | UnusableDevice | None:
    """Return what an item of a driver's list is to the runtime; None for a second device of a name."""
    try:
        if isinstance(item, UnusableDevice):
            _log.info("driver %s: %s cannot be used: %s", driver, item.name, item.reason)
            return checked_unusable(item)
        device = Device(item)
    except (NNError, HalError) as error:
        _log.warning("driver %s: %s", driver, error)
        return UnusableDevice(_name_or_kind(item), str(error))
    if device.name == REFERENCE_NAME or any(other.name == device.name for other in usable):
        _log.warning("driver %s: a second device called %s is ignored", driver, device.name)
        return None
    _log.debug("driver %s: %s, version %s", driver, device.name, device.version)
    return device


def _name_or_kind(item: IDevice | UnusableDevice) -> str:
    try:
        return name_of(item)
    except HalError:
        return shown(item)


@functools.cache
def _entry_points() -> dict[str, importlib.metadata.EntryPoint]:
    import importlib.metadata  # slow to import, and not needed for the CPU alone

    return {entry.name: entry for entry in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)}


def selector_in_force(selector: str | None = None) -> str:
    """Return the selector to use: the argument, else NNRT_DEVICE, else PYOPENCL_CTX, else `opencl,cpu`."""
    return _in_force(selector)[1]


def _in_force(selector: str | None) -> tuple[str, str]:
    """Return where the selector to use comes from, and itself; raises BadData for what is no string."""
    if selector is not None:
        check_kind("device selector", selector, str)
    if selector:
        return SELECTOR_ARGUMENT, selector
    text = os.environ.get("NNRT_DEVICE", "")
    if text:
        return "NNRT_DEVICE", text
    context = os.environ.get("PYOPENCL_CTX", "")
    if context:
        platform, _, device = context.partition(":")
        return f"PYOPENCL_CTX={context}", f"opencl:{platform}::{device.partition(',')[0]},cpu"
    return "the default", DEFAULT_SELECTOR


def select(selector: str | None = None) -> Selection:
    """Return the devices a selector names (see `selector_in_force`); loads only the drivers it names.

    A name that begins with no driver's is looked for among the devices of all drivers.

    An item that matches nothing is passed over (with a warning, but for an installed driver that has no device here),
    unless nothing matches at all: then UnmatchedSelector says what there is and why the rest cannot
    be used. Raises MalformedSelector for bad syntax. Without `cpu` in the list the selection is strict.
    """
    source, text = _in_force(selector)
    items = [item.strip() for item in text.split(",")]
    if not all(items):
        raise MalformedSelector(
            source, f"device selector {text!r}: an item is empty; wanted e.g. 'opencl,cpu' or 'opencl:pocl'"
        )
    chosen: list[Device] = []
    missing: list[str] = []
    for item in items:
        try:
            found = _match(item)
        except MalformedSelector:
            raise
        except BadData as error:
            raise MalformedSelector(source, str(error)) from error
        chosen += [device for device in found if device not in chosen]
        if not found:
            missing.append(item)
    if not chosen:
        likely = "".join(dict.fromkeys(map(_likely, missing)))
        raise UnmatchedSelector(source, _nothing_matches(text, missing) + likely + _advice(missing))
    for item in missing:
        is_usual = item.lower() in _entry_points() and not listing(item.lower()).failure
        level = logging.INFO if is_usual else logging.WARNING
        taken = ", ".join(device.name for device in chosen)
        _log.log(level, "%s: %s; taken: %s", source, _nothing_matches(item, [item]), taken)
    return Selection(tuple(chosen), not any(device.is_reference for device in chosen), tuple(missing))


def _match(item: str) -> list[Device]:
    if item.lower() in (_CPU, REFERENCE_NAME):
        return [reference_device()]
    driver = _driver_of(item)
    offered = listing(driver).devices
    by_name = [device for device in offered if device.name.lower() == item.lower()]
    if by_name or not _is_pattern(item, driver):
        return by_name
    matches = _Pattern.parse(item).filter([(device, device.description) for device in offered])
    return matches if item.endswith(":*") else matches[:1]


def _driver_of(item: str) -> str:
    """Return the driver that an item means: `opencl:pocl` and `opencl-pocl-0` both mean `opencl`.

    Where the full name of a device does not begin with its driver's, every driver is asked for its devices.
    """
    head = item.lower().partition(":")[0]
    known = _entry_points()
    first = head.partition("-")[0]
    for driver in (head, first):
        if driver in known:
            return driver
    return next((driver for driver in known if any(one.name.lower() == head for one in listing(driver).devices)), first)


def _is_pattern(item: str, driver: str) -> bool:
    """Tell `opencl:pocl` from the full name `opencl-pocl-0`."""
    return item.lower().partition(":")[0] == driver


@dataclass(frozen=True)
class _Pattern:
    platform: str
    type: str
    device: str

    @classmethod
    def parse(cls, item: str) -> _Pattern:
        parts = item.lower().split(":")[1:]
        if len(parts) > 3:
            raise BadData(f"device selector item {item!r}: wanted driver[:platform[:type[:device]]]")
        parts = [part.strip() for part in parts] + [""] * (3 - len(parts))
        kinds = ("", "*", "all", "cpu", "gpu", "accelerator")
        if parts[1] not in kinds:
            raise BadData(f"device selector item {item!r}: type must be cpu, gpu or accelerator, got {parts[1]!r}")
        return cls(*parts)

    def filter(self, offered: Sequence[tuple[Device, DeviceDescription | None]]) -> list[Device]:
        """Return what matches, in the order given; a device index counts what platform and type leave."""
        left = [pair for pair in offered if self._platform_fits(pair[0].name, pair[1]) and self._type_fits(pair[0])]
        if _is_index(self.device):
            return [device for device, _ in left[int(self.device) : int(self.device) + 1]]
        return [device for device, description in left if self._device_fits(device.name, description)]

    def _platform_fits(self, name: str, description: DeviceDescription | None) -> bool:
        if self.platform in ("", "*"):
            return True
        if description is None:
            return self.platform in name
        if _is_index(self.platform):
            return int(self.platform) == description.platform_index
        texts = (
            description.slug,
            description.platform_name,
            description.platform_vendor,
            description.platform_version,
            name,
        )
        return any(self.platform in text.lower() for text in texts)

    def _type_fits(self, device: Device) -> bool:
        return self.type in ("", "*", "all") or device.type.name.lower() == self.type

    def _device_fits(self, name: str, description: DeviceDescription | None) -> bool:
        if self.device in ("", "*"):
            return True
        if description is None:
            return self.device in name
        texts = (description.device_name, description.device_vendor, description.device_version, name)
        return any(self.device in text.lower() for text in texts)

    def fits_unusable(self, item: UnusableDevice) -> bool:
        """Tell whether a device that cannot be used is one that the selector may have meant."""
        kind = self.type in ("", "*", "all") or item.description.type.name.lower() == self.type
        by_device = _is_index(self.device) or self._device_fits(item.name, item.description)
        return kind and by_device and self._platform_fits(item.name, item.description)


def _is_index(text: str) -> bool:
    """Tell a number from a part of a name; one of very many digits is no index, and Python does not convert it."""
    return text.isdecimal() and len(text) < _MOST_DIGITS


def _nothing_matches(text: str, items: Sequence[str]) -> str:
    """Say what there is, and why what was meant cannot be used."""
    there: list[str] = []
    problems: list[str] = []
    meant = dict.fromkeys(_driver_of(item) for item in items)
    every = [] if all(driver in _entry_points() for driver in meant) else _entry_points()
    for driver in dict.fromkeys([*meant, *every]):
        found = listing(driver)
        there += [_label(device) for device in found.devices]
        if found.failure:
            problems.append(found.failure)
    for item in items:
        problems += [f"{other.name} cannot be used: {other.reason}" for other in _unusable_meant(item)]
    there.append(f"{REFERENCE_NAME} (cpu)")
    reasons = "; ".join(dict.fromkeys(problems))
    return f"device selector {text!r} matches no usable device; there is: {', '.join(there)}" + (
        f"; {reasons}" if reasons else ""
    )


def _likely(item: str) -> str:
    """Return what is meant by a platform without its driver (`pocl`), or by a type in a platform's place; else ""."""
    head, _, kind = item.lower().partition(":")
    if head in _entry_points():
        return f"; {head}::{kind} means devices of that type" if kind in ("cpu", "gpu", "accelerator") else ""
    for driver in _entry_points():
        if _Pattern(head, "", "").filter([(device, device.description) for device in listing(driver).devices]):
            return f"; did you mean {driver}:{item}?"
    return ""


def _advice(items: Sequence[str]) -> str:
    """Say what is wrong and how to mend it, where a driver that was asked for has no usable device.

    Where it has others, the reason is told already; how to mend it is left to `nnrt doctor`.
    """
    drivers = [driver for driver in dict.fromkeys(_driver_of(item) for item in items) if not listing(driver).devices]
    diagnoses = [found for found in map(diagnosis, drivers) if found is not None]
    problems = [f"{problem.what} (mend: {problem.remedy})" for found in diagnoses for problem in found.problems]
    says_more = bool(diagnoses) or any(map(_unusable_meant, items))
    return "".join(f"; {text}" for text in (*problems, "nnrt doctor says more")) if says_more else ""


def _unusable_meant(item: str) -> list[UnusableDevice]:
    driver = _driver_of(item)
    unusable = listing(driver).unusable
    if not _is_pattern(item, driver):
        return [other for other in unusable if other.name == item.lower()]
    pattern = _Pattern.parse(item)
    return [other for other in unusable if pattern.fits_unusable(other)]


def _label(device: Device) -> str:
    description = device.description
    return f"{device.name} ({description.device_name}, {device.type.name})" if description else device.name


class _CallableModule(types.ModuleType):
    """The module `nn_runtime.devices` in its second role, as the function of the same name."""

    __call__ = staticmethod(devices)


sys.modules[__name__].__class__ = _CallableModule
