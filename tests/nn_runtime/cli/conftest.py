# SPDX-License-Identifier: Apache-2.0
"""Drivers that are not there: the commands see what a test says is installed."""

from __future__ import annotations

import importlib
import sys
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING

import pytest

from nn_runtime.codes import DeviceTypeCode
from nn_runtime.hal.interfaces import DeviceDescription, UnusableDevice

if TYPE_CHECKING:
    import types
    from collections.abc import Callable, Iterator

runtime_devices = importlib.import_module("nn_runtime.devices")


@pytest.fixture
def no_drivers(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, EntryPoint]]:
    """Start with the CPU alone; what is put in the dict is installed."""
    entries: dict[str, EntryPoint] = {}
    monkeypatch.setattr(runtime_devices, "_entry_points", lambda: entries)
    for name in ("NNRT_DEVICE", "PYOPENCL_CTX"):
        monkeypatch.delenv(name, raising=False)
    runtime_devices._loaded.cache_clear()
    yield entries
    runtime_devices._loaded.cache_clear()


@pytest.fixture
def install_driver(
    no_drivers: dict[str, EntryPoint], monkeypatch: pytest.MonkeyPatch
) -> Callable[[types.ModuleType], None]:
    """Return a function that installs a module as the driver `opencl`."""

    def install(module: types.ModuleType) -> None:
        monkeypatch.setitem(sys.modules, module.__name__, module)
        no_drivers["opencl"] = EntryPoint("opencl", f"{module.__name__}:devices", runtime_devices.ENTRY_POINT_GROUP)

    return install


def unusable_device(reason: str) -> UnusableDevice:
    """Return a device that is there and cannot be used."""
    description = DeviceDescription(
        "broken", 0, "Broken Platform", "vendor", "OpenCL 1.2", "Broken GPU", "vendor", "OpenCL 1.2 driver 0",
        DeviceTypeCode.GPU,
    )  # fmt: skip
    return UnusableDevice("opencl-broken-0", reason, description)
