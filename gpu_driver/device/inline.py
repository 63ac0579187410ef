# SPDX-License-Identifier: Apache-2.0
"""Models that are computed by the thread that asks, on devices that can: to wake others would take longer.

PoCL hands every launch to threads of its own, and sleeps until they are done: 40 us for one launch, 4 for each more,
as measured on two cores (docs/decisions/0010-inline-device.md). Its device `basic` does not.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from nn_runtime.codes import OperationCode
from nn_runtime.hal.costs import ANY_OPERATION, OTHER_TYPES, CostTable, OperationCost, operation_estimates
from nn_runtime.hal.types import CONSTANT_LIFETIMES, OperandLifeTime
from nn_runtime.hal.views import operation_view
from nn_runtime.operand import has_unknown_dimensions
from nn_runtime.operations.pooling import pooling_geometry

if TYPE_CHECKING:
    from gpu_driver.device_profile import DeviceProfile
    from nn_runtime.hal.types import Model

_POOLING = (OperationCode.AVERAGE_POOL_2D, OperationCode.L2_POOL_2D, OperationCode.MAX_POOL_2D)
MOST_NS = 60_000
"""Time of one thread for a model up to which it is not worth waking others, however many."""
_ELEMENT_NS = 0.5
_ONE_THREAD = CostTable(
    0, 0, 0, 0, 0, {ANY_OPERATION: {OTHER_TYPES: OperationCost(0, 0, element_ns=_ELEMENT_NS, multiply_add_ns=0.02)}}
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
    return sum(operation_estimates(model, _ONE_THREAD)) + _window_ns(model) <= MOST_NS


def _window_ns(model: Model) -> float:
    """Return the time of the windows of pooling, which estimates do not know of; endless where a run brings sizes."""
    total = 0
    for subgraph in (model.main, *model.referenced):
        for at, operation in enumerate(subgraph.operations):
            if operation.type in _POOLING:
                _, *sizes = (subgraph.operands[i].lifetime for i in operation.inputs)
                if not CONSTANT_LIFETIMES.issuperset(sizes):
                    return math.inf
                window = pooling_geometry(operation_view(model, subgraph, operation, at))
                pixels = window.filter_height * window.filter_width
                total += math.prod(window.output_dimensions) * pixels
    return total * _ELEMENT_NS


def one_thread(profile: DeviceProfile) -> DeviceProfile:
    """Return the profile of the inline device of a device."""
    return replace(profile, compute_units=1, identity=f"{profile.identity}-inline")
