# SPDX-License-Identifier: Apache-2.0
"""Conversion of models, capabilities, status and timing between the canonical form and the versions of the HAL.

Downwards nothing is lost silently: a model that a version cannot express is refused with the reason. The permission to
relax float32 alone is dropped for HAL 1.0 (with a line in the log), since without it a driver is only stricter.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, TypeVar, overload

import numpy as np

from nn_runtime.codes import FeatureLevel, OperandCode
from nn_runtime.hal import types as hal
from nn_runtime.hal.capabilities import WORST, lookup
from nn_runtime.hal.memory import SharedMemory
from nn_runtime.hal.types import ErrorStatus, HalError, OperandLifeTime
from nn_runtime.hal.versions import v1_0, v1_1, v1_2, v1_3
from nn_runtime.hal.versions.capabilities import types_of
from nn_runtime.hal.versions.compliance import minimum_level, request_level, without_dead_operands
from nn_runtime.operand import ChannelQuant

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal

_log = logging.getLogger("nn_runtime.driver")

VersionedModel = v1_0.Model | v1_1.Model | v1_2.Model | v1_3.Model
VersionedCapabilities = v1_0.Capabilities | v1_2.Capabilities
Old = TypeVar("Old", v1_0.Operand, v1_2.Operand)

_KNOWN_STATUS = frozenset(int(status) for status in v1_3.ErrorStatus)
_NANOSECONDS = 1000
_ALIGNMENT = 64


@overload
def convert_to(model: hal.Model, version: Literal[FeatureLevel.HAL_1_0]) -> v1_0.Model: ...
@overload
def convert_to(model: hal.Model, version: Literal[FeatureLevel.HAL_1_1]) -> v1_1.Model: ...
@overload
def convert_to(model: hal.Model, version: Literal[FeatureLevel.HAL_1_2]) -> v1_2.Model: ...
@overload
def convert_to(model: hal.Model, version: Literal[FeatureLevel.HAL_1_3]) -> v1_3.Model: ...
@overload
def convert_to(model: hal.Model, version: int) -> VersionedModel: ...
def convert_to(model: hal.Model, version: int) -> VersionedModel:
    """Return a valid model in a version's form.

    Raises HalError(INVALID_ARGUMENT) with the reason where the version cannot express it, or where it is not valid.
    """
    level = minimum_level(model)
    if level > version:
        reason = f"the model needs {level.name}, {FeatureLevel(version).name} cannot express it"
        raise HalError(ErrorStatus.INVALID_ARGUMENT, reason)
    model = without_pointers(without_dead_operands(model))
    if version >= FeatureLevel.HAL_1_3:
        return v1_3.Model(
            _subgraph(model.main),
            tuple(_subgraph(graph) for graph in model.referenced),
            model.operand_values,
            model.pools,
            model.relax_computation_float32_to_float16,
            dict(model.extension_name_to_prefix),
        )
    main, relaxed = model.main, model.relax_computation_float32_to_float16
    boundary = (main.operations, main.input_indexes, main.output_indexes, model.operand_values, model.pools)
    if version >= FeatureLevel.HAL_1_2:
        return v1_2.Model(_operands_1_2(main), *boundary, relaxed, dict(model.extension_name_to_prefix))
    operands = _operands_1_0(main)
    if version >= FeatureLevel.HAL_1_1:
        return v1_1.Model(operands, *boundary, relaxed)
    if relaxed:
        _log.info("HAL 1.0 knows no relaxed float32: the permission is dropped, the driver computes exactly")
    return v1_0.Model(operands, *boundary)


def to_canonical(model: VersionedModel) -> hal.Model:
    """Return a version's model in the canonical form; raises HalError(INVALID_ARGUMENT) for wrong consumer counts.

    What else may be wrong with it is left to `validate_model`.
    """
    if isinstance(model, v1_3.Model):
        return hal.Model(
            _canonical_graph(model.main),
            tuple(_canonical_graph(graph) for graph in model.referenced),
            model.operand_values,
            model.pools,
            model.relax_computation_float32_to_float16,
            dict(model.extension_name_to_prefix),
        )
    graph = v1_3.Subgraph(
        tuple(
            operand
            if isinstance(operand, v1_2.Operand)
            else v1_2.Operand(
                operand.type,
                operand.dimensions,
                operand.number_of_consumers,
                operand.scale,
                operand.zero_point,
                operand.lifetime,
                operand.location,
            )
            for operand in model.operands
        ),
        model.operations,
        model.input_indexes,
        model.output_indexes,
    )
    relaxed = isinstance(model, v1_1.Model) and model.relax_computation_float32_to_float16
    prefixes = dict(model.extension_name_to_prefix) if isinstance(model, v1_2.Model) else {}
    return hal.Model(_canonical_graph(graph), (), model.operand_values, model.pools, relaxed, prefixes)


def without_pointers(model: hal.Model) -> hal.Model:
    """Return a model whose POINTER constants lie in a new pool, for drivers that cannot follow pointers."""
    graphs = (model.main, *model.referenced)
    pointers = [
        operand for graph in graphs for operand in graph.operands if operand.lifetime == OperandLifeTime.POINTER
    ]
    if not pointers:
        return model
    arrays = [operand.location.pointer for operand in pointers]
    sizes = [0 if array is None else -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT for array in arrays]
    pool = SharedMemory.create(max(1, sum(sizes)))
    moved: dict[int, hal.Operand] = {}
    offset = 0
    for operand, array, size in zip(pointers, arrays, sizes, strict=True):
        if array is None:
            continue
        pool.array()[offset : offset + array.nbytes] = array.reshape(-1).view(np.uint8)
        location = hal.DataLocation(len(model.pools), offset, array.nbytes)
        moved[id(operand)] = _relocated(operand, OperandLifeTime.CONSTANT_REFERENCE, location)
        offset += size
    main, *referenced = (
        hal.Subgraph(
            tuple(moved.get(id(operand), operand) for operand in graph.operands),
            graph.operations,
            graph.input_indexes,
            graph.output_indexes,
        )
        for graph in graphs
    )
    return hal.Model(
        main,
        tuple(referenced),
        model.operand_values,
        (*model.pools, pool),
        model.relax_computation_float32_to_float16,
        model.extension_name_to_prefix,
    )


def check_request(model: hal.Model, request: hal.Request, version: int) -> None:
    """Raise HalError(INVALID_ARGUMENT) unless a version can express a request for a model."""
    level = request_level(model, request)
    if level > version:
        reason = f"the request needs {level.name}, {FeatureLevel(version).name} cannot express it"
        raise HalError(ErrorStatus.INVALID_ARGUMENT, reason)


def canonical_capabilities(reply: VersionedCapabilities) -> hal.Capabilities:
    """Return a version's figures in the canonical form (SURFACE, "Adapting old drivers")."""
    if isinstance(reply, v1_0.Capabilities):
        quantized, floating = reply.quantized8_performance, reply.float32_performance
        relaxed = reply.relaxed_float32_to_float16_performance if isinstance(reply, v1_1.Capabilities) else floating
        table: dict[int, hal.PerformanceInfo] = dict.fromkeys(_AS_QUANTIZED, quantized)
        table.update(dict.fromkeys(_AS_FLOAT, floating))
        return hal.Capabilities(table, relaxed, relaxed, WORST, WORST)
    control = (
        (reply.if_performance, reply.while_performance) if isinstance(reply, v1_3.Capabilities) else (WORST, WORST)
    )
    return hal.Capabilities(
        {entry.type: entry.info for entry in reply.operand_performance},
        reply.relaxed_float32_to_float16_performance_scalar,
        reply.relaxed_float32_to_float16_performance_tensor,
        *control,
    )


@overload
def capabilities_to(table: hal.Capabilities, version: Literal[FeatureLevel.HAL_1_0]) -> v1_0.Capabilities: ...
@overload
def capabilities_to(table: hal.Capabilities, version: Literal[FeatureLevel.HAL_1_1]) -> v1_1.Capabilities: ...
@overload
def capabilities_to(table: hal.Capabilities, version: Literal[FeatureLevel.HAL_1_2]) -> v1_2.Capabilities: ...
@overload
def capabilities_to(table: hal.Capabilities, version: Literal[FeatureLevel.HAL_1_3]) -> v1_3.Capabilities: ...
def capabilities_to(table: hal.Capabilities, version: int) -> VersionedCapabilities:
    """Return the figures in a version's form: of the types that it knows."""
    floating = lookup(table, OperandCode.TENSOR_FLOAT32)
    quantized = lookup(table, OperandCode.TENSOR_QUANT8_ASYMM)
    if version < FeatureLevel.HAL_1_1:
        return v1_0.Capabilities(floating, quantized)
    if version < FeatureLevel.HAL_1_2:
        return v1_1.Capabilities(floating, quantized, table.relaxed_float32_to_float16_tensor)
    known = sorted(code for code in table.operand_performance if code in types_of(version))
    entries = tuple(v1_2.OperandPerformance(code, table.operand_performance[code]) for code in known)
    relaxed = (table.relaxed_float32_to_float16_scalar, table.relaxed_float32_to_float16_tensor)
    if version < FeatureLevel.HAL_1_3:
        return v1_2.Capabilities(*relaxed, entries)
    return v1_3.Capabilities(*relaxed, entries, table.if_performance, table.while_performance)


def canonical_status(status: int) -> ErrorStatus:
    """Return a driver's status; GENERAL_FAILURE for a number that no version knows."""
    return ErrorStatus(status) if status in _KNOWN_STATUS else ErrorStatus.GENERAL_FAILURE


def status_to(status: ErrorStatus, version: int) -> int:
    """Return a status as a version knows it: later ones become GENERAL_FAILURE (deadlines, resources: 1.3)."""
    known: Sequence[int] = tuple(v1_3.ErrorStatus if version >= FeatureLevel.HAL_1_3 else v1_0.ErrorStatus)
    return int(status) if status in known else int(ErrorStatus.GENERAL_FAILURE)


def canonical_timing(timing: v1_2.Timing) -> hal.Timing:
    """Return a driver's microseconds as nanoseconds; a known time is at most the greatest but one."""
    return hal.Timing(_nanoseconds(timing.time_on_device), _nanoseconds(timing.time_in_driver))


def timing_to_1_2(timing: hal.Timing) -> v1_2.Timing:
    """Return nanoseconds as whole microseconds."""
    times = (timing.time_on_device_ns, timing.time_in_driver_ns)
    return v1_2.Timing(*(t if t == hal.UNKNOWN_DURATION else t // _NANOSECONDS for t in times))


def _nanoseconds(microseconds: int) -> int:
    if microseconds >= v1_2.UNKNOWN_TIME:
        return hal.UNKNOWN_DURATION
    return min(max(0, microseconds) * _NANOSECONDS, hal.UNKNOWN_DURATION - 1)


def _consumers(graph: hal.Subgraph) -> Counter[int]:
    return Counter(index for operation in graph.operations for index in operation.inputs)


def _operands_1_0(graph: hal.Subgraph) -> tuple[v1_0.Operand, ...]:
    count = _consumers(graph)
    return tuple(
        v1_0.Operand(o.type, o.dimensions, count[i], o.scale, o.zero_point, o.lifetime, o.location)
        for i, o in enumerate(graph.operands)
    )


def _operands_1_2(graph: hal.Subgraph) -> tuple[v1_2.Operand, ...]:
    count = _consumers(graph)
    return tuple(
        v1_2.Operand(
            o.type,
            o.dimensions,
            count[i],
            o.scale,
            o.zero_point,
            o.lifetime,
            o.location,
            o.extension_data if o.channel_quant is None else o.channel_quant,
        )
        for i, o in enumerate(graph.operands)
    )


def _subgraph(graph: hal.Subgraph) -> v1_3.Subgraph:
    return v1_3.Subgraph(_operands_1_2(graph), graph.operations, graph.input_indexes, graph.output_indexes)


def _canonical_graph(graph: v1_3.Subgraph) -> hal.Subgraph:
    operands = tuple(
        hal.Operand(
            o.type,
            o.dimensions,
            o.scale,
            o.zero_point,
            o.lifetime,
            o.location,
            o.extra_params if isinstance(o.extra_params, ChannelQuant) else None,
            o.extra_params if isinstance(o.extra_params, bytes) else None,
        )
        for o in graph.operands
    )
    made = hal.Subgraph(operands, graph.operations, graph.input_indexes, graph.output_indexes)
    count = _consumers(made)
    for i, operand in enumerate(graph.operands):
        if operand.number_of_consumers != count[i]:
            reason = f"operand {i}: it says that {operand.number_of_consumers} inputs name it, {count[i]} do"
            raise HalError(ErrorStatus.INVALID_ARGUMENT, reason)
    return made


def _relocated(operand: hal.Operand, lifetime: OperandLifeTime, location: hal.DataLocation) -> hal.Operand:
    return hal.Operand(
        operand.type,
        operand.dimensions,
        operand.scale,
        operand.zero_point,
        lifetime,
        location,
        operand.channel_quant,
        operand.extension_data,
    )


_AS_QUANTIZED = (
    OperandCode.INT32,
    OperandCode.UINT32,
    OperandCode.TENSOR_INT32,
    OperandCode.TENSOR_QUANT8_ASYMM,
    OperandCode.OEM_SCALAR,
    OperandCode.TENSOR_OEM_BYTE,
)
_AS_FLOAT = (OperandCode.FLOAT32, OperandCode.TENSOR_FLOAT32)
