# SPDX-License-Identifier: Apache-2.0
"""Models that are computed by the calling thread, on devices that can: to wake others would take longer.

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
MOST_NS = 100_000
"""Estimate up to which it is not worth waking others: two take half the time, and 40 us. Estimates are rather high."""
LEAST_CUT_NS = 1_000
"""An operation that takes less is done by one thread anyway (`least_task_flops`), however many there are of them."""
_ELEMENT_NS, _MULTIPLY_ADD_NS, _WINDOW_NS = 0.45, 0.012, 0.15
"""Of most operations: 0.1 to 0.7 for each element, products of matrices 0.003 to 0.012 for each multiply-add."""
_SLOW_ELEMENT_NS = {
    **dict.fromkeys((OperationCode.EQUAL, OperationCode.NOT_EQUAL, OperationCode.GREATER, OperationCode.LESS), 1.2),
    **dict.fromkeys((OperationCode.GREATER_EQUAL, OperationCode.LESS_EQUAL, OperationCode.SELECT), 1.2),
    **dict.fromkeys((OperationCode.LOGICAL_AND, OperationCode.LOGICAL_OR), 1.2),
    **dict.fromkeys((OperationCode.SIN, OperationCode.LOG), 1.4),
    **dict.fromkeys((OperationCode.DIV, OperationCode.FILL, OperationCode.RESIZE_BILINEAR), 2.0),
    **dict.fromkeys((OperationCode.ARGMAX, OperationCode.ARGMIN, OperationCode.L2_NORMALIZATION), 3.0),
    OperationCode.SOFTMAX: 3.8,
    OperationCode.HEATMAP_MAX_KEYPOINT: 5.5,
    OperationCode.POW: 8.5,
    OperationCode.INSTANCE_NORMALIZATION: 10,
    OperationCode.LOG_SOFTMAX: 16,
    **dict.fromkeys((OperationCode.ROI_ALIGN, OperationCode.ROI_POOLING, OperationCode.GENERATE_PROPOSALS), 20),
    **dict.fromkeys((OperationCode.BOX_WITH_NMS_LIMIT, OperationCode.DETECTION_POSTPROCESSING), 20),
    OperationCode.TOPK_V2: 40,
    OperationCode.LOCAL_RESPONSE_NORMALIZATION: 140,
}
_PRODUCTS_NS = {
    OperationCode.CONV_2D: (0.1, _MULTIPLY_ADD_NS),
    OperationCode.FULLY_CONNECTED: (0.1, _MULTIPLY_ADD_NS),
    OperationCode.DEPTHWISE_CONV_2D: (0.2, 0.05),
    OperationCode.GROUPED_CONV_2D: (_ELEMENT_NS, 0.035),
    OperationCode.BATCH_MATMUL: (_ELEMENT_NS, 0.045),
}


def _cost(element_ns: float, multiply_add_ns: float) -> dict[str, OperationCost]:
    return {OTHER_TYPES: OperationCost(0, 0, element_ns, multiply_add_ns)}


_ONE_THREAD = CostTable(
    *(0, 0, 0, 0, 0),
    {
        ANY_OPERATION: _cost(_ELEMENT_NS, _MULTIPLY_ADD_NS),
        **{code.name: _cost(ns, _MULTIPLY_ADD_NS) for code, ns in _SLOW_ELEMENT_NS.items()},
        **{code.name: _cost(*ns) for code, ns in _PRODUCTS_NS.items()},
    },
)
"""What work takes one thread, as benchmarks/cost_tables.py found on PoCL's device without threads (decision 0010)."""


def is_small(model: Model) -> bool:
    """Whether all sizes of a model are known, and one thread computes in no time what others could take a part of."""
    operands = (operand for subgraph in (model.main, *model.referenced) for operand in subgraph.operands)
    if any(
        has_unknown_dimensions(operand.type, operand.dimensions)
        for operand in operands
        if operand.lifetime != OperandLifeTime.NO_VALUE
    ):
        return False
    estimates = operation_estimates(model, _ONE_THREAD)
    return sum(one for one in estimates if one >= LEAST_CUT_NS) + _window_ns(model) <= MOST_NS


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
    return total * _WINDOW_NS


def one_thread(profile: DeviceProfile) -> DeviceProfile:
    """Return the profile of the inline device of a device."""
    return replace(profile, compute_units=1, identity=f"{profile.identity}-inline")
