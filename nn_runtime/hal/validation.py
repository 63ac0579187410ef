# SPDX-License-Identifier: Apache-2.0
"""Checks that every driver makes of what reaches it: models, requests, preferences (SURFACE section m).

Violations raise HalError(INVALID_ARGUMENT) naming the subgraph's operand, operation or request argument.
"""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from nn_runtime import operations
from nn_runtime.codes import (
    EXTENSION_PREFIX_SHIFT,
    OEM_OPERATION,
    FeatureLevel,
    OperandCode,
    is_extension_code,
    operand_type_name,
    operation_name,
)
from nn_runtime.errors import BadData, NNError
from nn_runtime.hal.memory import PROT_READ, PROT_WRITE, HardwareBuffer
from nn_runtime.hal.types import (
    CONSTANT_LIFETIMES,
    MAX_EXTENSION_PREFIX,
    WRITTEN_LIFETIMES,
    BufferToken,
    DataLocation,
    ErrorStatus,
    ExecutionPreference,
    HalError,
    OperandLifeTime,
    Priority,
    check_extension_name,
)
from nn_runtime.hal.views import operation_view
from nn_runtime.operand import (
    ELEMENT_TYPES,
    OperandType,
    check_channel_quant,
    check_operand_type,
    check_refined,
    has_unknown_dimensions,
    is_tensor,
    size_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nn_runtime.hal.memory import SharedMemory
    from nn_runtime.hal.types import Model, Operand, Operation, Request, RequestArgument, Subgraph
    from nn_runtime.operand import Array, Dimensions

    P = ParamSpec("P")
    R = TypeVar("R")

_FEATURE_LEVELS: dict[int, FeatureLevel] = {
    OperandCode.BOOL: FeatureLevel.HAL_1_2,
    OperandCode.TENSOR_QUANT16_SYMM: FeatureLevel.HAL_1_2,
    OperandCode.TENSOR_FLOAT16: FeatureLevel.HAL_1_2,
    OperandCode.TENSOR_BOOL8: FeatureLevel.HAL_1_2,
    OperandCode.FLOAT16: FeatureLevel.HAL_1_2,
    OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL: FeatureLevel.HAL_1_2,
    OperandCode.TENSOR_QUANT16_ASYMM: FeatureLevel.HAL_1_2,
    OperandCode.TENSOR_QUANT8_SYMM: FeatureLevel.HAL_1_2,
    OperandCode.TENSOR_QUANT8_ASYMM_SIGNED: FeatureLevel.HAL_1_3,
    OperandCode.MODEL: FeatureLevel.HAL_1_3,
}
"""Feature level that brought an operand type, where later than HAL 1.0."""

_NOWHERE = DataLocation()


def _invalid_argument(function: Callable[P, R]) -> Callable[P, R]:
    """Turn BadData of the checks inside into HalError(INVALID_ARGUMENT), other NNErrors into GENERAL_FAILURE."""

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except BadData as error:
            raise HalError(ErrorStatus.INVALID_ARGUMENT, str(error)) from error
        except NNError as error:
            raise HalError(ErrorStatus.GENERAL_FAILURE, str(error)) from error

    return checked


def validate_model(model: Model) -> FeatureLevel:
    """Check a model with its referenced subgraphs; return the least feature level that understands it.

    A model cannot change, so the same object is checked only once.
    """
    known = _checked_models.get(id(model))
    if known is not None and known[0]() is model:
        return known[1]
    level = _checked_model(model)
    key = id(model)
    _checked_models[key] = weakref.ref(model, lambda _gone: _checked_models.pop(key, None)), level
    return level


_checked_models: dict[int, tuple[weakref.ref[Model], FeatureLevel]] = {}
"""What was found of the models that are alive and passed, by identity."""


@_invalid_argument
def _checked_model(model: Model) -> FeatureLevel:
    _check_pools(model.pools)
    _check_extensions(model.extension_name_to_prefix)
    graphs = (model.main, *model.referenced)
    names = ("", *(f"referenced model {i}: " for i in range(len(model.referenced))))
    levels = [FeatureLevel.HAL_1_0]  # the permission to relax float32 asks nothing of a driver
    if model.extension_name_to_prefix:
        levels.append(FeatureLevel.HAL_1_2)
    for graph, name in zip(graphs, names, strict=True):
        levels.extend(_checked_operands(model, graph, name))
    _check_no_cycles(model)
    for graph, name in zip(graphs, names, strict=True):
        _check_boundary(graph, name)
        _check_order(graph, name)
        levels.extend(_checked_operation(model, graph, i, name) for i in range(len(graph.operations)))
    return max(levels)


@_invalid_argument
def validate_request(
    model: Model, request: Request, allow_unspecified_output: bool = True, *, takes_formats: bool = False
) -> None:
    """Check a request against its model. `allow_unspecified_output` is False for fenced executions.

    Hardware buffers of other formats than BLOB are a GENERAL_FAILURE, unless the driver `takes_formats`.
    """
    _check_pools([pool for pool in request.pools if not isinstance(pool, BufferToken)])
    if any(isinstance(pool, BufferToken) and pool.value <= 0 for pool in request.pools):
        raise BadData("request: a buffer token must be > 0")
    main = model.main
    for kind, arguments, indexes in (
        ("input", request.inputs, main.input_indexes),
        ("output", request.outputs, main.output_indexes),
    ):
        if len(arguments) != len(indexes):
            raise BadData(f"request: needs {len(indexes)} {kind}s, got {len(arguments)}")
        unspecified = kind == "output" and allow_unspecified_output
        for i, (argument, index) in enumerate(zip(arguments, indexes, strict=True)):
            _check_argument(f"request: {kind} {i}", main.operands[index], argument, request, unspecified)
    if not takes_formats:
        _check_plain(request)


def level_of_type(operand: Operand) -> FeatureLevel:
    """Return the least feature level that knows an operand's type, and unknown ranks where its rank is unknown."""
    if is_extension_code(operand.type):
        return FeatureLevel.HAL_1_2
    if is_tensor(operand.type) and not operand.dimensions and operand.lifetime != OperandLifeTime.NO_VALUE:
        return FeatureLevel.HAL_1_2
    return _FEATURE_LEVELS.get(operand.type, FeatureLevel.HAL_1_0)


def validate_preference(preference: int) -> None:
    """Check an execution preference."""
    if preference not in ExecutionPreference.__members__.values():
        raise HalError(ErrorStatus.INVALID_ARGUMENT, f"execution preference must be 0 to 2, got {preference}")


def validate_priority(priority: int) -> None:
    """Check a priority."""
    if priority not in Priority.__members__.values():
        raise HalError(ErrorStatus.INVALID_ARGUMENT, f"priority must be 0 to 2, got {priority}")


def _check_pools(pools: Sequence[SharedMemory]) -> None:
    for i, pool in enumerate(pools):
        if pool.size_bytes <= 0:
            raise BadData(f"pool {i}: size must be > 0 bytes, got {pool.size_bytes}")
        if pool.prot & ~(PROT_READ | PROT_WRITE):
            raise BadData(f"pool {i}: protection must be READ and WRITE alone, got {pool.prot}")


def _check_extensions(prefixes: Mapping[str, int]) -> None:
    for name, prefix in prefixes.items():
        check_extension_name(name)
        if not 0 < prefix <= MAX_EXTENSION_PREFIX:
            raise BadData(f"extension {name}: prefix must be 1 to {MAX_EXTENSION_PREFIX}, got {prefix}")
    if len(set(prefixes.values())) != len(prefixes):
        raise BadData(f"extension prefixes must differ, got {dict(prefixes)}")


def _checked_operands(model: Model, graph: Subgraph, where: str) -> list[FeatureLevel]:
    if not graph.operands or not graph.operations:
        raise BadData(f"{where}a model needs at least one operand and one operation")
    levels = []
    for i, operand in enumerate(graph.operands):
        label = f"{where}operand {i}"
        try:
            levels.append(_checked_type(model, operand))
        except BadData as error:
            raise BadData(f"{label}: {error}") from error
        _check_value(model, operand, label)
    return levels


def _checked_type(model: Model, operand: Operand) -> FeatureLevel:
    if is_extension_code(operand.type):
        if operand.type >> EXTENSION_PREFIX_SHIFT not in model.extension_name_to_prefix.values():
            raise BadData(f"{operand_type_name(operand.type)}: the model lists no extension with that prefix")
        if operand.scale or operand.zero_point or operand.channel_quant:
            raise BadData(f"{operand_type_name(operand.type)}: scale, zero point and per-channel scales must be 0")
        return FeatureLevel.HAL_1_2
    if operand.extension_data is not None:
        raise BadData(f"{operand_type_name(operand.type)} takes no extension data")
    description = OperandType(
        operand.type, operand.dimensions, operand.scale, operand.zero_point, operand.channel_quant
    )
    check_operand_type(description)
    if operand.type == OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL or operand.channel_quant is not None:
        check_channel_quant(description)
    return level_of_type(operand)


def _check_value(model: Model, operand: Operand, label: str) -> None:
    """Check lifetime and location by the lifetime table of SURFACE (d)."""
    lifetime, location = operand.lifetime, operand.location
    if (operand.type == OperandCode.MODEL) != (lifetime == OperandLifeTime.SUBGRAPH):
        raise BadData(f"{label}: type MODEL and lifetime SUBGRAPH go together, got {operand_type_name(operand.type)}")
    if min(location.pool_index, location.offset, location.length, location.padding) < 0:
        raise BadData(f"{label}: location must not be negative, got {location}")
    if lifetime == OperandLifeTime.SUBGRAPH:
        _check_subgraph_location(model, location, label)
    elif lifetime in CONSTANT_LIFETIMES:
        _check_constant(model, operand, label)
    elif location != _NOWHERE or location.pointer is not None:
        raise BadData(f"{label}: a {OperandLifeTime(lifetime).name} has no location, got {location}")


def _check_subgraph_location(model: Model, location: DataLocation, label: str) -> None:
    if location.pool_index or location.length or location.pointer is not None:
        raise BadData(f"{label}: the location of a MODEL operand is its index alone, got {location}")
    if location.offset >= len(model.referenced):
        raise BadData(f"{label}: there are {len(model.referenced)} referenced models, got index {location.offset}")


def _check_constant(model: Model, operand: Operand, label: str) -> None:
    location = operand.location
    given = location.length
    if operand.lifetime == OperandLifeTime.POINTER:
        if location.pointer is None or location.pool_index or location.offset:
            raise BadData(f"{label}: a POINTER needs an array, in pool 0 at offset 0")
        if not location.pointer.flags.c_contiguous:
            raise BadData(f"{label}: the array must be C-contiguous")
        given = location.pointer.nbytes
    elif operand.lifetime == OperandLifeTime.CONSTANT_COPY:
        if location.pool_index:
            raise BadData(f"{label}: a CONSTANT_COPY has pool 0, got {location.pool_index}")
        _check_range(location, len(model.operand_values), label)
    else:
        _check_pool_range(location, model.pools, label)
    if is_extension_code(operand.type) or operand.type == OperandCode.OEM_SCALAR:
        return
    if has_unknown_dimensions(operand.type, operand.dimensions):
        raise BadData(f"{label}: a constant needs all its dimensions, got {list(operand.dimensions)}")
    wanted = size_bytes(operand.type, operand.dimensions)
    if given != wanted:
        kind = f"{operand_type_name(operand.type)} {list(operand.dimensions)}"
        raise BadData(f"{label}: a constant {kind} has {wanted} bytes, got {given}")


def _check_range(location: DataLocation, size: int, label: str) -> None:
    end = location.offset + location.length + location.padding
    if end > size:
        raise BadData(f"{label}: bytes {location.offset} to {end} are outside the {size} there are")


def _check_pool_range(location: DataLocation, pools: Sequence[SharedMemory], label: str) -> None:
    if location.pool_index >= len(pools):
        raise BadData(f"{label}: there are {len(pools)} pools, got index {location.pool_index}")
    _check_range(location, pools[location.pool_index].size_bytes, label)


def _check_no_cycles(model: Model) -> None:
    """Check that no referenced model refers to itself, directly or not; unreferenced ones count too."""
    references = [
        {operand.location.offset for operand in graph.operands if operand.lifetime == OperandLifeTime.SUBGRAPH}
        for graph in model.referenced
    ]
    acyclic: set[int] = set()
    remaining = set(range(len(references)))
    while remaining:
        leaves = {i for i in remaining if references[i] <= acyclic}
        if not leaves:
            raise BadData(f"referenced models {sorted(remaining)} refer to each other in a cycle")
        acyclic |= leaves
        remaining -= leaves


def _check_boundary(graph: Subgraph, where: str) -> None:
    for kind, indexes, lifetime in (
        ("inputs", graph.input_indexes, OperandLifeTime.SUBGRAPH_INPUT),
        ("outputs", graph.output_indexes, OperandLifeTime.SUBGRAPH_OUTPUT),
    ):
        outside = [i for i in indexes if not 0 <= i < len(graph.operands)]
        if outside:
            raise BadData(f"{where}{kind}: operand {outside[0]} does not exist, there are {len(graph.operands)}")
        if len(set(indexes)) != len(indexes):
            raise BadData(f"{where}{kind}: {list(indexes)} has an operand twice")
        with_lifetime = {i for i, operand in enumerate(graph.operands) if operand.lifetime == lifetime}
        if with_lifetime != set(indexes):
            odd = min(with_lifetime ^ set(indexes))
            raise BadData(f"{where}{kind}: operand {odd} must be listed exactly if its lifetime is {lifetime.name}")


def _check_order(graph: Subgraph, where: str) -> None:
    """Check that every operand is written once, before it is read."""
    known = [operand.lifetime not in WRITTEN_LIFETIMES for operand in graph.operands]
    for i, operation in enumerate(graph.operations):
        label = f"{where}operation {i} {operation_name(operation.type)}"
        for operand in (*operation.inputs, *operation.outputs):
            if not 0 <= operand < len(known):
                raise BadData(f"{label}: operand {operand} does not exist, there are {len(known)}")
        for operand in operation.inputs:
            if not known[operand]:
                raise BadData(f"{label}: reads operand {operand} before it is written")
        for operand in operation.outputs:
            if known[operand]:
                lifetime = graph.operands[operand].lifetime
                what = "written before" if lifetime in WRITTEN_LIFETIMES else f"a {OperandLifeTime(lifetime).name}"
                raise BadData(f"{label}: writes operand {operand}, which is {what}")
            known[operand] = True
    if not all(known):
        raise BadData(f"{where}operand {known.index(False)} is never written")


def _checked_operation(model: Model, graph: Subgraph, index: int, where: str) -> FeatureLevel:
    operation = graph.operations[index]
    if operation.type == OEM_OPERATION:
        return FeatureLevel.HAL_1_0
    if is_extension_code(operation.type):
        return _checked_extension(model, operation, f"{where}operation {index}")
    try:
        return operations.validate(operation_view(model, graph, operation, index))
    except BadData as error:
        raise BadData(f"{where}{error}") from error


def _checked_extension(model: Model, operation: Operation, label: str) -> FeatureLevel:
    if operation.type >> EXTENSION_PREFIX_SHIFT not in model.extension_name_to_prefix.values():
        raise BadData(f"{label} {operation_name(operation.type)}: the model lists no extension with that prefix")
    return FeatureLevel.HAL_1_2


def _check_plain(request: Request) -> None:
    special = {i for i, pool in enumerate(request.pools) if isinstance(pool, HardwareBuffer) and not pool.is_blob}
    for kind, arguments in (("input", request.inputs), ("output", request.outputs)) if special else ():
        for i, argument in enumerate(arguments):
            location = argument.location
            if not argument.has_no_value and location.pointer is None and location.pool_index in special:
                got = request.pools[location.pool_index]
                message = f"{kind} {i}: wanted plain memory, or a hardware buffer of format BLOB, got a {got}"
                raise HalError(ErrorStatus.GENERAL_FAILURE, message)


def _check_argument(
    label: str, operand: Operand, argument: RequestArgument, request: Request, unspecified: bool
) -> None:
    location = argument.location
    if argument.has_no_value:
        if location != _NOWHERE or location.pointer is not None or argument.dimensions:
            raise BadData(f"{label}: an argument without value has neither location nor dimensions")
        return
    dims = _argument_dimensions(label, operand, argument, unspecified)
    if min(location.pool_index, location.offset, location.length, location.padding) < 0:
        raise BadData(f"{label}: location must not be negative, got {location}")
    length = _argument_length(label, location, request.pools)
    if length is None or operand.type not in ELEMENT_TYPES or operand.type == OperandCode.OEM_SCALAR:
        return
    if not has_unknown_dimensions(operand.type, dims) and length != size_bytes(operand.type, dims):
        kind = f"{operand_type_name(operand.type)} {list(dims)}"
        raise BadData(f"{label}: {kind} has {size_bytes(operand.type, dims)} bytes, got {length}")


def _argument_dimensions(label: str, operand: Operand, argument: RequestArgument, unspecified: bool) -> Dimensions:
    given = argument.dimensions
    if given and not is_tensor(operand.type) and not is_extension_code(operand.type):
        raise BadData(f"{label}: {operand_type_name(operand.type)} is a scalar, got dimensions {list(given)}")
    if any(size < 0 for size in given):
        raise BadData(f"{label}: dimensions must not be negative, got {list(given)}")
    if given:
        try:
            check_refined(operand.dimensions, given)
        except BadData as error:
            raise BadData(f"{label}: {error}") from error
    dims = given or operand.dimensions
    if not unspecified and has_unknown_dimensions(operand.type, dims):
        raise BadData(f"{label}: all dimensions must be known, got {list(dims)}")
    return dims


def _argument_length(label: str, location: DataLocation, pools: Sequence[SharedMemory | BufferToken]) -> int | None:
    """Return the bytes given without padding; None for a buffer that is used whole, whose size the driver knows."""
    if location.pointer is not None:
        return _pointer_length(label, location.pointer, location)
    if location.pool_index >= len(pools):
        raise BadData(f"{label}: there are {len(pools)} pools, got index {location.pool_index}")
    pool = pools[location.pool_index]
    if isinstance(pool, BufferToken):
        if location.offset or location.length or location.padding:
            raise BadData(f"{label}: a buffer token is used whole: offset, length, padding must be 0, got {location}")
        return None
    if isinstance(pool, HardwareBuffer) and not pool.is_blob:
        if location.offset or location.length or location.padding:
            raise BadData(f"{label}: a hardware buffer of format {pool.format.name} is used whole, got {location}")
        return None
    if location.length == 0:
        raise BadData(f"{label}: length must be > 0")
    _check_range(location, pool.size_bytes, label)
    return location.length


def _pointer_length(label: str, pointer: Array, location: DataLocation) -> int:
    if not pointer.flags.c_contiguous:
        raise BadData(f"{label}: the array must be C-contiguous")
    length = location.length or pointer.nbytes - location.padding
    if length < 0 or length + location.padding > pointer.nbytes:
        raise BadData(f"{label}: {length} bytes and {location.padding} of padding do not fit {pointer.nbytes}")
    return length
