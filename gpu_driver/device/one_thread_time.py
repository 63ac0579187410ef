# SPDX-License-Identifier: Apache-2.0
"""An estimate of what a model takes one thread of a CPU, to tell small models from others (inline.py)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.errors import BadData
from nn_runtime.hal.costs import (
    ANY_OPERATION,
    OTHER_TYPES,
    CostTable,
    OperationCost,
    operation_estimates,
    operation_work,
    type_class,
)
from nn_runtime.hal.types import CONSTANT_LIFETIMES
from nn_runtime.hal.views import operation_view
from nn_runtime.operand import element_count, size_bytes
from nn_runtime.operations.pooling import pooling_geometry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nn_runtime.hal.types import Model, Operand, Operation, Subgraph

    _Rates = tuple[float, float]
    """Of most types, and of 8-bit ones."""

_LEAST_CUT_NS = 1_000
"""An operation that takes less is done by one thread anyway (`least_task_flops`), however many there are of them."""
_ARGUMENT_BYTE_NS, _CONSTANT_BYTE_NS = 0.005, 0.045
"""Of arguments only what reading them takes one thread more: to hand them over takes every way as long."""
_KEPT_BYTES = 1 << 20
"""Of constants: what is more comes from memory in every run."""
_ELEMENT_NS: Mapping[_Rates, tuple[OperationCode, ...]] = {
    (0.1, 0.1): (OperationCode.RELU, OperationCode.RELU1, OperationCode.RELU6, OperationCode.HARD_SWISH,
                 OperationCode.PAD, OperationCode.PAD_V2, OperationCode.SELECT, OperationCode.LOGICAL_AND,
                 OperationCode.LOGICAL_OR),
    (0.1, 0.3): (OperationCode.ADD, OperationCode.SUB, OperationCode.MUL, OperationCode.MAXIMUM, OperationCode.MINIMUM,
                 OperationCode.EQUAL, OperationCode.NOT_EQUAL, OperationCode.GREATER, OperationCode.GREATER_EQUAL,
                 OperationCode.LESS, OperationCode.LESS_EQUAL),
    (0.1, 0.6): (OperationCode.PRELU,),
    (0.3, 0.1): (OperationCode.LOGISTIC, OperationCode.ELU, OperationCode.EXP, OperationCode.SQRT, OperationCode.RSQRT),
    (0.3, 0.15): (OperationCode.SLICE, OperationCode.STRIDED_SLICE, OperationCode.TILE),
    (0.15, 0.15): (OperationCode.GATHER, OperationCode.LOG),
    (0.3, 0.4): (OperationCode.DIV,),
    (0.25, 0.1): (OperationCode.TANH,),
    (0.05, 0.1): (OperationCode.CONCATENATION,),
    (0.0, 0.0): (OperationCode.RESHAPE, OperationCode.SQUEEZE, OperationCode.EXPAND_DIMS),
    (0.5, 0.6): (OperationCode.SOFTMAX,),
    (0.15, 0.25): (OperationCode.RESIZE_BILINEAR,),
    (1.5, 1.5): (OperationCode.FILL,),
    (0.2, 0.1): (OperationCode.ARGMAX, OperationCode.ARGMIN),
    (0.8, 0.8): (OperationCode.SIN,),
    (3.0, 3.0): (OperationCode.HEATMAP_MAX_KEYPOINT,),
    (5.0, 5.0): (OperationCode.TOPK_V2,),
    (0.3, 2.0): (OperationCode.L2_NORMALIZATION,),
    (0.5, 0.5): (OperationCode.CHANNEL_SHUFFLE, OperationCode.REVERSE, OperationCode.LOG_SOFTMAX),
    (10, 10): (OperationCode.INSTANCE_NORMALIZATION,),
    (2.2, 2.2): (OperationCode.POW,),
    (20, 20): (OperationCode.ROI_ALIGN, OperationCode.ROI_POOLING, OperationCode.GENERATE_PROPOSALS,
               OperationCode.BOX_WITH_NMS_LIMIT, OperationCode.DETECTION_POSTPROCESSING),
    (150, 150): (OperationCode.LOCAL_RESPONSE_NORMALIZATION,),
}  # fmt: skip
_OTHER_ELEMENT_NS = (0.15, 0.1)
_MULTIPLY_ADD_NS: Mapping[_Rates, tuple[OperationCode, ...]] = {
    (0.013, 0.006): (OperationCode.CONV_2D, OperationCode.FULLY_CONNECTED, OperationCode.TRANSPOSE_CONV_2D),
    (0.02, 0.085): (OperationCode.BATCH_MATMUL,),
    (0.03, 0.025): (OperationCode.DEPTHWISE_CONV_2D,),
    (0.02, 0.015): (OperationCode.GROUPED_CONV_2D,),
}
_QUANTIZING = (OperationCode.CONV_2D, OperationCode.FULLY_CONNECTED, OperationCode.TRANSPOSE_CONV_2D)
"""Products whose inputs may become bytes in every run."""
_PRODUCTS = frozenset(code for codes in _MULTIPLY_ADD_NS.values() for code in codes)
_OTHER_MULTIPLY_ADD_NS = (0.013, 0.013)
_OF_PRODUCTS_ELEMENT_NS = (0.03, 0.0)
_TABLES = (OperationCode.GATHER, OperationCode.EMBEDDING_LOOKUP, OperationCode.HASHTABLE_LOOKUP)
"""A run takes a few rows of their constants."""
_WINDOW_NS: Mapping[OperationCode, float] = {
    OperationCode.MAX_POOL_2D: 0.025, OperationCode.AVERAGE_POOL_2D: 0.05, OperationCode.L2_POOL_2D: 0.05,
}  # fmt: skip
_REDUCTIONS = (OperationCode.MEAN, OperationCode.REDUCE_ALL, OperationCode.REDUCE_ANY, OperationCode.REDUCE_MAX,
               OperationCode.REDUCE_MIN, OperationCode.REDUCE_PROD, OperationCode.REDUCE_SUM)  # fmt: skip
_REDUCED_ROW_NS, _REDUCED_LANE_NS, _REDUCED_TERM_NS = 70, 2, 0.2
"""Of an output of a reduction by itself; of one beside others, and of its terms."""
_ARGUMENT_ROW_NS, _ARGUMENT_TERM_NS = 5, 1.3
"""Of a row of ARGMAX; of its terms where they are no row of vectors."""
_SOFTMAX_ROW_NS, _SOFTMAX_COLUMN_NS = 8, 15
_LANES = 16
_NARROW_NS = {"float16": 15.0, "quant8": 4.0, "float32": 3.0, OTHER_TYPES: 3.0}
"""Of an element where kernels find fewer than _LANES side by side, by class of type."""
_NARROW_MOVE_NS = 0.1
"""The same of operations that only move elements."""
_INTEGER_QUOTIENT_NS = 1.2
_MOVES = (OperationCode.BATCH_TO_SPACE_ND, OperationCode.CHANNEL_SHUFFLE, OperationCode.DEPTH_TO_SPACE,
          OperationCode.GATHER, OperationCode.MIRROR_PAD, OperationCode.REVERSE, OperationCode.SLICE,
          OperationCode.SPACE_TO_BATCH_ND, OperationCode.SPACE_TO_DEPTH, OperationCode.SPLIT,
          OperationCode.STRIDED_SLICE, OperationCode.TILE, OperationCode.TRANSPOSE)  # fmt: skip
_NARROW_JOIN_NS = 1.0
"""Of an element that CONCATENATION puts between others."""
_NARROW_RESIZE_NS = {"float16": 1.0, "quant8": 1.0, "float32": 0.5, OTHER_TYPES: 0.5}
_RESIZES = (OperationCode.RESIZE_BILINEAR, OperationCode.RESIZE_NEAREST_NEIGHBOR)
_NARROW_POOLING, _NARROW_WINDOW, _NARROW_MATMUL = 5, 0.2, 3
"""How many times as much it is of an element of pooling, of each of its windows, and of an element of BATCH_MATMUL."""
_NARROW_DEPTHWISE_NS = {"float16": 5.0, "quant8": 1.2, "float32": 0.9, OTHER_TYPES: 0.9}
"""Of a lane of depthwise convolutions, most of which are empty."""
_NEIGHBOURS_EMPTY: Mapping[int, float] = {OperationCode.CONV_2D: 0.4, OperationCode.TRANSPOSE_CONV_2D: 0.1}
"""Part of the lanes that few channels leave empty, where filters are wider than a pixel."""
_NARROW_PIXEL_NS = 10
"""Of a pixel, or row, of products with filters that make few channels."""
_REPEATED_NS, _MULTIPLIED_NS = 1.2, 4.0
"""Of depthwise convolutions with several channels for one: an element; a multiply-add where a run brings filters."""
_FLAT = frozenset((
    OperationCode.ABS, OperationCode.CAST, OperationCode.DEQUANTIZE, OperationCode.ELU, OperationCode.EXP,
    OperationCode.EXPAND_DIMS, OperationCode.FLOOR, OperationCode.HARD_SWISH, OperationCode.LOG,
    OperationCode.LOGISTIC, OperationCode.NEG, OperationCode.PAD, OperationCode.PAD_V2, OperationCode.QUANTIZE,
    OperationCode.RELU, OperationCode.RELU1, OperationCode.RELU6, OperationCode.RESHAPE, OperationCode.RSQRT,
    OperationCode.SELECT, OperationCode.SIN, OperationCode.SQRT, OperationCode.SQUEEZE, OperationCode.TANH,
))  # fmt: skip
"""Operations to whose kernels elements of equal shapes, or whole rows, are one row."""
_OF_TWO = (OperationCode.ADD, OperationCode.SUB, OperationCode.MUL, OperationCode.DIV, OperationCode.MAXIMUM,
           OperationCode.MINIMUM)  # fmt: skip


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
        **{code.name: _rows((0.0, 0.0), (0.0, 0.0)) for code in (*_WINDOW_NS, *_REDUCTIONS)},
    },
)
"""What work takes one thread (decision 0010)."""
_ON_BYTES = replace(
    _ONE_THREAD,
    operations={
        **_ONE_THREAD.operations,
        **{code.name: {OTHER_TYPES: _ONE_THREAD.operations[code.name]["quant8"]} for code in _QUANTIZING},
    },
)
"""The same where products quantise their inputs."""


def one_thread_ns(model: Model, *, quantizes_inputs: bool = False) -> float:
    """Return an estimate for a model of known sizes, but for what no other thread would take a part of.

    quantizes_inputs: products may be computed on bytes (hal/dynamic_quantization). Infinite for models that preparation
    refuses.
    """
    table = _ON_BYTES if quantizes_inputs else _ONE_THREAD
    try:
        seen = operation_estimates(model, table)
        estimates = [one + _unseen_ns(model, model.main, at) for at, one in enumerate(seen)]
        inner = sum(_unseen_ns(model, graph, at) for graph in model.referenced for at in range(len(graph.operations)))
    except BadData:
        return math.inf
    work_ns = sum(one for one in estimates if one >= _LEAST_CUT_NS) + inner
    weights = sum(_weight_bytes(graph, quantizes_inputs) for graph in (model.main, *model.referenced))
    return work_ns + table.run_ns_of(model) + _CONSTANT_BYTE_NS * max(0, weights - _KEPT_BYTES)


def _weight_bytes(graph: Subgraph, quantizes_inputs: bool) -> int:
    """Return the bytes of the constants that a run reads as a whole."""
    read = {i for one in graph.operations if one.type not in _TABLES for i in one.inputs}
    on_bytes = {one.inputs[1] for one in graph.operations if quantizes_inputs and one.type in _QUANTIZING}
    constants = [i for i in read if graph.operands[i].lifetime in CONSTANT_LIFETIMES]
    return sum(
        element_count(graph.operands[i].dimensions)
        if i in on_bytes
        else size_bytes(graph.operands[i].type, graph.operands[i].dimensions)
        for i in constants
    )


def _unseen_ns(model: Model, graph: Subgraph, at: int) -> float:
    """Return the time of an operation that estimates do not know of; raises BadData, also where a run brings sizes.

    Windows of pooling; rows; and what is too narrow for vectors.
    """
    operation = graph.operations[at]
    if not operation.outputs:
        return 0.0
    output = graph.operands[operation.outputs[0]]
    elements = math.prod(output.dimensions)
    narrow = _narrow_ns(operation, output) if math.prod(output.dimensions[-1:]) < _LANES else 0.0
    if operation.type in _WINDOW_NS:
        return _pooling_ns(model, graph, at, narrow) + _NARROW_POOLING * narrow * elements
    if operation.type in (OperationCode.SOFTMAX, OperationCode.LOG_SOFTMAX):
        view = operation_view(model, graph, operation, at)
        rank = len(output.dimensions)
        if view.axis("axis", rank, default=-1) < rank - 1:
            return _SOFTMAX_COLUMN_NS * elements
        return _SOFTMAX_ROW_NS * math.prod(output.dimensions[:-1])
    if operation.type in (OperationCode.ARGMAX, OperationCode.ARGMIN):
        terms = element_count(graph.operands[operation.inputs[0]].dimensions)
        axis = operation_view(model, graph, operation, at).axis("axis", len(output.dimensions) + 1)
        is_row = axis == len(output.dimensions) and terms >= _LANES * elements
        return _ARGUMENT_ROW_NS * elements if is_row else _ARGUMENT_TERM_NS * terms
    if operation.type in _REDUCTIONS:
        terms = math.prod(graph.operands[operation.inputs[0]].dimensions)
        return min(_REDUCED_ROW_NS * elements, _REDUCED_LANE_NS * elements + _REDUCED_TERM_NS * terms)
    if operation.type in _PRODUCTS:
        return _multiplied_ns(model, graph, at, narrow)
    if operation.type == OperationCode.DIV and output.type == OperandCode.TENSOR_INT32:
        return _INTEGER_QUOTIENT_NS * elements
    return 0.0 if _is_flat(graph, operation) else narrow * elements


def _narrow_ns(operation: Operation, output: Operand) -> float:
    """Return what an element takes more where fewer than _LANES are side by side."""
    if operation.type in _MOVES:
        return _NARROW_MOVE_NS
    if operation.type == OperationCode.CONCATENATION:
        return _NARROW_JOIN_NS
    return (_NARROW_RESIZE_NS if operation.type in _RESIZES else _NARROW_NS)[type_class(output.type)]


def _pooling_ns(model: Model, graph: Subgraph, at: int, narrow: float) -> float:
    operation = graph.operations[at]
    window = pooling_geometry(operation_view(model, graph, operation, at))
    rate = _WINDOW_NS[OperationCode(operation.type)]
    return (
        (rate + _NARROW_WINDOW * narrow)
        * math.prod(window.output_dimensions)
        * window.filter_height
        * window.filter_width
    )


def _multiplied_ns(model: Model, graph: Subgraph, at: int, narrow: float) -> float:
    """Return what products take more that have few channels side by side, or that make several of each channel."""
    operation = graph.operations[at]
    output = graph.operands[operation.outputs[0]]
    elements = element_count(output.dimensions)
    if operation.type == OperationCode.BATCH_MATMUL:
        return _NARROW_MATMUL * narrow * elements
    if operation.type != OperationCode.DEPTHWISE_CONV_2D:
        return _few_channels_ns(model, graph, at)
    image, filters = (graph.operands[i] for i in operation.inputs[:2])
    dims = filters.dimensions
    kind, depth = type_class(output.type), output.dimensions[-1]
    fills_lanes = kind == "quant8" and 2 * depth == _LANES  # by several pixels
    element_ns = _NARROW_DEPTHWISE_NS[kind] * _LANES / depth if depth < _LANES and not fills_lanes else 0.0
    if len(image.dimensions) == 4 and len(dims) == 4 and dims[-1] not in (image.dimensions[1], image.dimensions[3]):
        is_constant = filters.lifetime in CONSTANT_LIFETIMES
        element_ns += _REPEATED_NS if is_constant else _MULTIPLIED_NS * math.prod(dims[1:3])
    return element_ns * elements


def _few_channels_ns(model: Model, graph: Subgraph, at: int) -> float:
    operation = graph.operations[at]
    dims, outputs = ([graph.operands[i].dimensions for i in some] for some in (operation.inputs, operation.outputs))
    depth = outputs[0][-1] if outputs[0] else 1
    if operation.type == OperationCode.GROUPED_CONV_2D:
        depth //= max(1, operation_view(model, graph, operation, at).int_value("num_groups"))
    if depth >= _LANES:
        return 0.0
    row = _ONE_THREAD.cost_of(operation.type, graph.operands[operation.inputs[0]].type)
    multiply_adds = operation_work(operation.type, dims, outputs).multiply_adds
    pixels = element_count(outputs[0]) // max(1, depth)
    empty = _LANES / max(1, depth) - 1
    if operation.type in _NEIGHBOURS_EMPTY and dims[1][2] > 1:  # neighbours fill most of them (neighbours.py)
        empty *= _NEIGHBOURS_EMPTY[operation.type]
    return row.multiply_add_ns * multiply_adds * empty + _NARROW_PIXEL_NS * pixels


def _is_flat(graph: Subgraph, operation: Operation) -> bool:
    """Whether all elements are one row: of two tensors where the smaller is one element, or the last dimension."""
    if operation.type not in _OF_TWO:
        return operation.type in _FLAT
    dims = graph.operands[operation.outputs[0]].dimensions
    sizes = (1, math.prod(dims), math.prod(dims[-1:]))
    return all(math.prod(graph.operands[i].dimensions) in sizes for i in operation.inputs[:2])
