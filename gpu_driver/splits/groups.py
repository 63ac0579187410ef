# SPDX-License-Identifier: Apache-2.0
"""Work splits of kernels whose groups each do a whole task (a batch, a list): one work-item a group on CPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_driver.splits.vectors import c_type

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperand
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.launch import WorkSize

_GROUP = 256
_MANY_TERMS = 32

Defines = tuple[tuple[str, "str | int"], ...]
"""As in `Kernel`."""


def group_size(device: DeviceProfile) -> int:
    """Return the work-items of a group."""
    return 1 if device.is_cpu else min(_GROUP, device.max_work_group_size)


def share_outputs(outputs: int, terms: int, device: DeviceProfile, multiple: int = 1) -> bool:
    """Tell whether so few outputs have so many terms that they keep a GPU busy only if a group shares each.

    multiple: what the work-items of a group must be a multiple of.
    """
    shares = group_size(device) > 1 and group_size(device) % multiple == 0
    return shares and outputs <= device.tuning.shared_outputs and terms >= _MANY_TERMS


def group_defines(device: DeviceProfile) -> Defines:
    """Return the define GROUP of common/types.h, where a group is more than one work-item."""
    group = group_size(device)
    return (("GROUP", group),) if group > 1 else ()


def typed_group(operand: BoundOperand, device: DeviceProfile) -> Defines:
    """Return the defines T and GROUP."""
    return ("T", c_type(operand)), *group_defines(device)


def one_group_each(tasks: int, device: DeviceProfile) -> tuple[WorkSize, WorkSize]:
    """Return (global, local) for one group per task."""
    group = group_size(device)
    return (group, tasks), (group, 1)
