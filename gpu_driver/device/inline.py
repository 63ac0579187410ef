# SPDX-License-Identifier: Apache-2.0
"""Models that are computed by the calling thread, on devices that can: to wake others would take longer.

PoCL hands every launch to threads of its own, and sleeps until they are done, which takes 80 us and more on two cores
(docs/decisions/0010-inline-device.md). Its device `basic` does not.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from nn_runtime.codes import OperationCode
from nn_runtime.hal.costs import ANY_OPERATION, OTHER_TYPES, CostTable, OperationCost, operation_estimates
from nn_runtime.hal.types import CONSTANT_LIFETIMES, OperandLifeTime
from nn_runtime.hal.views import operation_view
from nn_runtime.operand import has_unknown_dimensions, size_bytes
from nn_runtime.operations.pooling import pooling_geometry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpu_driver.device_profile import DeviceProfile
    from nn_runtime.hal.types import Model

    _Rates = tuple[float, float]
    """Of most types, and of 8-bit ones."""

WAKE_NS = 80_000
"""What it takes at least to have threads compute something."""
LEAST_CUT_NS = 1_000
"""An operation that takes less is done by one thread anyway (`least_task_flops`), however many there are of them."""
_ARGUMENT_BYTE_NS, _CONSTANT_BYTE_NS = 0.03, 0.045
_KEPT_BYTES = 1 << 20
"""Of constants: what is more comes from memory in every run."""
_ELEMENT_NS: Mapping[_Rates, tuple[OperationCode, ...]] = {
    (0.1, 0.1): (OperationCode.RELU, OperationCode.RELU1, OperationCode.RELU6, OperationCode.HARD_SWISH),
    (0.1, 0.3): (OperationCode.ADD, OperationCode.SUB, OperationCode.MUL, OperationCode.MAXIMUM, OperationCode.MINIMUM),
    (0.1, 0.6): (OperationCode.PRELU,),
    (0.3, 0.1): (OperationCode.LOGISTIC, OperationCode.ELU, OperationCode.EXP, OperationCode.SQRT, OperationCode.RSQRT),
    (0.3, 0.15): (OperationCode.SLICE, OperationCode.STRIDED_SLICE, OperationCode.GATHER, OperationCode.TILE),
    (0.3, 0.4): (OperationCode.DIV,),
    (0.5, 0.1): (OperationCode.TANH,),
    (0.5, 0.5): (OperationCode.CHANNEL_SHUFFLE, OperationCode.REVERSE),
    (0.5, 2.2): (OperationCode.SOFTMAX,),
    (0.7, 1.0): (OperationCode.RESIZE_BILINEAR,),
    (0.7, 1.5): (OperationCode.EQUAL, OperationCode.NOT_EQUAL, OperationCode.GREATER, OperationCode.GREATER_EQUAL,
                 OperationCode.LESS, OperationCode.LESS_EQUAL, OperationCode.SELECT),
    (1.5, 1.5): (OperationCode.LOGICAL_AND, OperationCode.LOGICAL_OR, OperationCode.FILL, OperationCode.LOG),
    (2.0, 0.8): (OperationCode.ARGMAX, OperationCode.ARGMIN),
    (2.1, 2.1): (OperationCode.SIN,),
    (3.0, 3.0): (OperationCode.HEATMAP_MAX_KEYPOINT, OperationCode.L2_NORMALIZATION),
    (10, 10): (OperationCode.INSTANCE_NORMALIZATION,),
    (11, 11): (OperationCode.POW,),
    (16, 16): (OperationCode.LOG_SOFTMAX,),
    (20, 20): (OperationCode.ROI_ALIGN, OperationCode.ROI_POOLING, OperationCode.GENERATE_PROPOSALS,
               OperationCode.BOX_WITH_NMS_LIMIT, OperationCode.DETECTION_POSTPROCESSING),
    (40, 15): (OperationCode.TOPK_V2,),
    (150, 150): (OperationCode.LOCAL_RESPONSE_NORMALIZATION,),
}  # fmt: skip
_OTHER_ELEMENT_NS = (0.15, 0.1)
_MULTIPLY_ADD_NS: Mapping[_Rates, tuple[OperationCode, ...]] = {
    (0.013, 0.006): (OperationCode.CONV_2D, OperationCode.FULLY_CONNECTED, OperationCode.TRANSPOSE_CONV_2D),
    (0.02, 0.085): (OperationCode.BATCH_MATMUL,),
    (0.03, 0.025): (OperationCode.DEPTHWISE_CONV_2D,),
    (0.035, 0.055): (OperationCode.GROUPED_CONV_2D,),
}
_OTHER_MULTIPLY_ADD_NS = (0.013, 0.013)
_OF_PRODUCTS_ELEMENT_NS = (0.03, 0.0)
_TABLES = (OperationCode.GATHER, OperationCode.EMBEDDING_LOOKUP, OperationCode.HASHTABLE_LOOKUP)
"""A run takes a few rows of their constants."""
_POOLING = (OperationCode.AVERAGE_POOL_2D, OperationCode.L2_POOL_2D, OperationCode.MAX_POOL_2D)
_WINDOW_NS = 0.08
_ROW_NS = 8
"""Of SOFTMAX, beside its elements."""


def _rows(element_ns: _Rates, multiply_add_ns: _Rates) -> dict[str, OperationCost]:
    most, of_bytes = (OperationCost(0, 0, *rates) for rates in zip(element_ns, multiply_add_ns, strict=True))
    return {**dict.fromkeys(("float32", "float16", OTHER_TYPES), most), "quant8": of_bytes}


_ONE_THREAD = CostTable(
    *(0, 0, 0, 0),
    _ARGUMENT_BYTE_NS,
    {
        ANY_OPERATION: _rows(_OTHER_ELEMENT_NS, _OTHER_MULTIPLY_ADD_NS),
        **{code.name: _rows(rates, _OTHER_MULTIPLY_ADD_NS) for rates, codes in _ELEMENT_NS.items() for code in codes},
        **{
            code.name: _rows(_OF_PRODUCTS_ELEMENT_NS, rates)
            for rates, codes in _MULTIPLY_ADD_NS.items()
            for code in codes
        },
        **{code.name: _rows((0.0, 0.0), (0.0, 0.0)) for code in _POOLING},
    },
)
"""What work takes one thread (decision 0010)."""


def is_small(model: Model, threads: int) -> bool:
    """Whether all sizes of a model are known, and one thread computes it before so many could be woken and done."""
    operands = [operand for subgraph in (model.main, *model.referenced) for operand in subgraph.operands]
    if any(
        has_unknown_dimensions(operand.type, operand.dimensions)
        for operand in operands
        if operand.lifetime != OperandLifeTime.NO_VALUE
    ):
        return False
    return one_thread_ns(model) <= WAKE_NS * max(2, threads) / (max(2, threads) - 1)


def one_thread_ns(model: Model) -> float:
    """Return an estimate for a model of known sizes, but for what no other thread would take a part of."""
    work_ns = sum(one for one in operation_estimates(model, _ONE_THREAD) if one >= LEAST_CUT_NS)
    read = {i for one in model.main.operations if one.type not in _TABLES for i in one.inputs}
    constants = [model.main.operands[i] for i in read if model.main.operands[i].lifetime in CONSTANT_LIFETIMES]
    constant_bytes = sum(size_bytes(operand.type, operand.dimensions) for operand in constants)
    moved_ns = _ONE_THREAD.run_ns_of(model) + _CONSTANT_BYTE_NS * max(0, constant_bytes - _KEPT_BYTES)
    return work_ns + moved_ns + _unseen_ns(model)


def _unseen_ns(model: Model) -> float:
    """Return the time that estimates do not know of: windows of pooling, endless where a run brings sizes, and rows."""
    total = 0.0
    for subgraph in (model.main, *model.referenced):
        for at, operation in enumerate(subgraph.operations):
            if operation.type == OperationCode.SOFTMAX:
                total += _ROW_NS * math.prod(subgraph.operands[operation.inputs[0]].dimensions[:-1])
            elif operation.type in _POOLING:
                _, *sizes = (subgraph.operands[i].lifetime for i in operation.inputs)
                if not CONSTANT_LIFETIMES.issuperset(sizes):
                    return math.inf
                window = pooling_geometry(operation_view(model, subgraph, operation, at))
                pixels = window.filter_height * window.filter_width
                total += _WINDOW_NS * math.prod(window.output_dimensions) * pixels
    return total


def one_thread(profile: DeviceProfile) -> DeviceProfile:
    """Return the profile of the inline device of a device."""
    return replace(profile, compute_units=1, identity=f"{profile.identity}-inline")
