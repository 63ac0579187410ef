# SPDX-License-Identifier: Apache-2.0
"""Devices made up."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from gpu_driver.discovery.platforms import FoundDevice
from nn_runtime.codes import DeviceTypeCode

if TYPE_CHECKING:
    import pyopencl as cl


def made_up_device(
    slug: str, driver_version: str, library: str, type_: DeviceTypeCode = DeviceTypeCode.CPU
) -> FoundDevice:
    """Return a usable device that nothing stands behind."""
    return FoundDevice(
        slug, 0, "name", "version", library, "device", "vendor", driver_version, "OpenCL 3.0", type_,
        True, None, (), (), "identity", cast("cl.Device", None),
    )  # fmt: skip
