# SPDX-License-Identifier: Apache-2.0
"""Work sizes: a few fixed local sizes (each one is compiled anew by PoCL), global sizes rounded up to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.launch import WorkSize


def round_up(value: int, multiple: int) -> int:
    """Return the least multiple of `multiple` that is >= value (and >= multiple)."""
    return max(1, -(-value // multiple)) * multiple


def linear(count: int, device: DeviceProfile) -> tuple[WorkSize, WorkSize]:
    """Return (global, local) for `count` items of one dimension, rounded up; extra items must return."""
    local = min(device.tuning.elementwise_local, device.max_work_group_size)
    return (round_up(count, local),), (local,)


def rows(inner: int, outer: int, device: DeviceProfile) -> tuple[WorkSize, WorkSize]:
    """Return (global, local) for items (inner, outer), inner rounded up."""
    local = min(device.tuning.elementwise_local, device.max_work_group_size)
    return (round_up(inner, local), max(1, outer)), (local, 1)
