# SPDX-License-Identifier: Apache-2.0
"""Models that are computed by the calling thread, on devices that can: to wake others would take longer.

PoCL hands every launch to threads of its own, and sleeps until they are done, which takes 80 us and more on two cores
(docs/decisions/0010-inline-device.md). Its device `basic` does not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpu_driver.device.one_thread_time import launch_count, one_thread_ns
from nn_runtime.hal.types import OperandLifeTime
from nn_runtime.operand import has_unknown_dimensions

if TYPE_CHECKING:
    from gpu_driver.device_profile import DeviceProfile
    from nn_runtime.hal.types import Model

WAKE_NS = 100_000
"""What it takes at least to have threads compute something."""
_LAUNCH_WAKES = 0.025
"""What a launch of threads after the first costs more than one in the calling thread, in such times."""


def is_small(model: Model, threads: int, *, quantizes_inputs: bool = False) -> bool:
    """Whether all sizes of a model are known, and one thread computes it before so many could be woken and done."""
    operands = [operand for subgraph in (model.main, *model.referenced) for operand in subgraph.operands]
    if any(
        has_unknown_dimensions(operand.type, operand.dimensions)
        for operand in operands
        if operand.lifetime != OperandLifeTime.NO_VALUE
    ):
        return False
    wakes = 1 + _LAUNCH_WAKES * launch_count(model.main)
    alone = one_thread_ns(model, quantizes_inputs=quantizes_inputs)
    return alone <= WAKE_NS * wakes * max(2, threads) / (max(2, threads) - 1)


def one_thread(profile: DeviceProfile) -> DeviceProfile:
    """Return the profile of the inline device of a device."""
    return replace(profile, compute_units=1, identity=f"{profile.identity}-inline")
