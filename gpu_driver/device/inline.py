# SPDX-License-Identifier: Apache-2.0
"""Models that are computed by the thread that asks, on devices that can: to wake others would take longer.

PoCL hands every launch to threads of its own, and sleeps until they are done: 40 us for one launch, 4 for each more,
as measured on two cores (docs/decisions/0010-inline-device.md). Its device `basic` does not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from nn_runtime.hal.costs import ANY_OPERATION, OTHER_TYPES, CostTable, OperationCost, operation_estimates
from nn_runtime.hal.types import OperandLifeTime
from nn_runtime.operand import has_unknown_dimensions

if TYPE_CHECKING:
    from gpu_driver.device_profile import DeviceProfile
    from nn_runtime.hal.types import Model

MOST_NS = 60_000
"""Time of one thread for a model up to which it is not worth waking others, however many."""
_ONE_THREAD = CostTable(
    0, 0, 0, 0, 0, {ANY_OPERATION: {OTHER_TYPES: OperationCost(0, 0, element_ns=0.5, multiply_add_ns=0.02)}}
)
"""What work takes one thread at most: 50 G multiply-adds a second are half of what convolutions reach on one core."""


def is_small(model: Model) -> bool:
    """Whether all sizes of a model are known, and one thread computes it in no time."""
    operands = (operand for subgraph in (model.main, *model.referenced) for operand in subgraph.operands)
    if any(
        has_unknown_dimensions(operand.type, operand.dimensions)
        for operand in operands
        if operand.lifetime != OperandLifeTime.NO_VALUE
    ):
        return False
    return sum(operation_estimates(model, _ONE_THREAD)) <= MOST_NS


def one_thread(profile: DeviceProfile) -> DeviceProfile:
    """Return the profile of the inline device of a device."""
    return replace(profile, compute_units=1, identity=f"{profile.identity}-inline")
