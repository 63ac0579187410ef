# SPDX-License-Identifier: Apache-2.0
"""Models made invalid in one place, after VTS' ValidateModel: a driver must refuse each with INVALID_ARGUMENT.

`drawn_mutations` draws some of the mutations of a valid HAL model by seed, spread over all kinds; `refusal_problem`
tells whether a device refuses one as it must, in `get_supported_operations` and in `prepare_model`. A mutation that
happens to be legal (an optional argument removed, an operand that may have the other type too) is left out:
`legal_mutations` says where.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode, OperationCode, operand_type_name, operation_name
from nn_runtime.hal.types import (
    CONSTANT_LIFETIMES,
    DataLocation,
    ErrorStatus,
    ExecutionPreference,
    HalError,
    Model,
    Operand,
    OperandLifeTime,
    Operation,
    Priority,
    Subgraph,
)
from nn_runtime.operand import ELEMENT_TYPES, ChannelQuant, dtype_of, is_tensor
from nn_runtime.testing.legal_mutations import are_legal_inputs, are_legal_outputs, is_legal_type, may_be_omitted
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nn_runtime.hal.interfaces import IDevice

_BAD_OPERAND_TYPES = (max(code for code in OperandCode if code < OperandCode.OEM_SCALAR) + 1, 9999, 10002)
_BAD_OPERATION_TYPES = (max(OperationCode) + 1, 9999, 10001)
_BAD_ENUM_VALUES = (-1, 3)


@dataclass(frozen=True)
class Mutation:
    """One way to make a model invalid: its kind, what it does, and the model with preference and priority."""

    kind: str
    what: str
    make: Callable[[], Model]
    preference: int = ExecutionPreference.FAST_SINGLE_ANSWER
    priority: int = Priority.MEDIUM

    @property
    def changes_model(self) -> bool:
        """Whether the model itself is invalid, not only an argument beside it."""
        return self.kind not in ("preference", "priority")


def mutations(model: Model) -> list[Mutation]:
    """Return every mutation of a valid model's main subgraph that is not legal."""
    found: list[Mutation] = []
    for family in (
        _orders,
        _operand_types,
        _ranks,
        _scales,
        _zero_points,
        _lifetimes,
        _boundaries,
        _second_writers,
        _removed_writers,
        _argument_types,
        _operation_types,
        _operand_indexes,
        _removed_operands,
        _removed_operations,
        _removed_arguments,
        _added_arguments,
        _arguments_beside,
    ):
        found += family(model)
    return found


def drawn_mutations(model: Model, seed: int, count: int = 40) -> list[Mutation]:
    """Return up to `count` mutations, drawn by seed, one of each kind in turn."""
    rng = np.random.default_rng(seed)
    kinds: dict[str, list[Mutation]] = {}
    for mutation in mutations(model):
        kinds.setdefault(mutation.kind, []).append(mutation)
    for group in kinds.values():
        rng.shuffle(group)
    drawn: list[Mutation] = []
    while kinds and len(drawn) < count:
        for kind in list(kinds):
            drawn.append(kinds[kind].pop())
            if not kinds[kind]:
                del kinds[kind]
    return drawn[:count]


def refusal_problem(device: IDevice, mutation: Mutation) -> str:
    """Return how a device fails to refuse a mutation ("" if it does): it accepts, crashes, or gives another status."""
    model = mutation.make()
    label = f"{mutation.kind}: {mutation.what}"
    if mutation.changes_model:
        problem = _problem(lambda: device.get_supported_operations(model))
        if problem:
            return f"{label}: get_supported_operations {problem}"
    # Wrong numbers are the point.
    preference, priority = mutation.preference, mutation.priority
    problem = _problem(lambda: device.prepare_model(model, preference, priority, None, None))  # type: ignore[arg-type]
    return f"{label}: prepare_model {problem}" if problem else ""


def _problem(call: Callable[[], object]) -> str:
    try:
        call()
    except HalError as error:
        refused = error.status == ErrorStatus.INVALID_ARGUMENT
        return "" if refused else f"gave {error.status.name}: {error}"
    except Exception as error:
        return f"crashed: {type(error).__name__}: {error}"
    return "accepted it"


def _with_main(
    model: Model, operands: tuple[Operand, ...] | None = None, operations: tuple[Operation, ...] | None = None
) -> Model:
    main = model.main
    main = replace(main, operands=main.operands if operands is None else operands)
    return replace(model, main=replace(main, operations=main.operations if operations is None else operations))


def _with_operand(model: Model, index: int, operand: Operand) -> Model:
    operands = model.main.operands
    return _with_main(model, (*operands[:index], operand, *operands[index + 1 :]))


def _with_operation(model: Model, index: int, operation: Operation) -> Model:
    operations = model.main.operations
    return _with_main(model, None, (*operations[:index], operation, *operations[index + 1 :]))


def _replaced(items: tuple[int, ...], at: int, item: int) -> tuple[int, ...]:
    return (*items[:at], item, *items[at + 1 :])


def _without(items: tuple[int, ...], at: int) -> tuple[int, ...]:
    return items[:at] + items[at + 1 :]


def _label(model: Model, at: int) -> str:
    return f"operation {at} {operation_name(model.main.operations[at].type)}"


def _orders(model: Model) -> Iterator[Mutation]:
    """Move an operation before the one that writes what it reads."""
    operations = model.main.operations
    writers = {operand: at for at, operation in enumerate(operations) for operand in operation.outputs}
    for at, operation in enumerate(operations):
        for writer in sorted({writers[i] for i in operation.inputs if i in writers}):
            moved = (*operations[:writer], operation, *operations[writer:at], *operations[at + 1 :])
            what = f"{_label(model, at)} before operation {writer}"
            yield Mutation("execution order", what, partial(_with_main, model, None, moved))


def _changed_operand(kind: str, model: Model, index: int, operand: Operand, what: str) -> Mutation:
    return Mutation(kind, f"operand {index} {what}", partial(_with_operand, model, index, operand))


def _operand_types(model: Model) -> Iterator[Mutation]:
    for i, operand in enumerate(model.main.operands):
        for code in _BAD_OPERAND_TYPES:
            yield _changed_operand("operand type", model, i, replace(operand, type=code), f"of type {code}")


def _ranks(model: Model) -> Iterator[Mutation]:
    for i, operand in enumerate(model.main.operands):
        if operand.type in ELEMENT_TYPES and not is_tensor(operand.type):
            yield _changed_operand("operand rank", model, i, replace(operand, dimensions=(1,)), "scalar of rank 1")


def _scales(model: Model) -> Iterator[Mutation]:
    for i, operand in enumerate(model.main.operands):
        element = ELEMENT_TYPES.get(operand.type)
        quantized = element is not None and element.zero_point_range is not None
        bias = operand.type == OperandCode.TENSOR_INT32
        scale = 0.0 if quantized else -1.0 if bias else 1.0
        yield _changed_operand("operand scale", model, i, replace(operand, scale=scale), f"with scale {scale}")


def _zero_points(model: Model) -> Iterator[Mutation]:
    for i, operand in enumerate(model.main.operands):
        element = ELEMENT_TYPES.get(operand.type)
        bounds = element.zero_point_range if element else None
        for zero_point in (1,) if bounds is None else (bounds[0] - 1, bounds[1] + 1):
            changed = replace(operand, zero_point=zero_point)
            yield _changed_operand("operand zero point", model, i, changed, f"with zero point {zero_point}")


def _lifetimes(model: Model) -> Iterator[Mutation]:
    """Give an operand any lifetime under which it lacks a writer or data, has one too many, or is not listed."""
    for i, operand in enumerate(model.main.operands):
        for lifetime in OperandLifeTime:
            if lifetime == operand.lifetime or not _breaks(model, i, lifetime):
                continue
            length = operand.location.length if lifetime in CONSTANT_LIFETIMES else 0
            changed = replace(operand, lifetime=lifetime, location=DataLocation(length=length))
            yield _changed_operand("operand lifetime", model, i, changed, f"a {lifetime.name}")


def _breaks(model: Model, index: int, lifetime: OperandLifeTime) -> bool:
    """Tell whether an operand cannot have another lifetime."""
    operand = model.main.operands[index]
    if lifetime in CONSTANT_LIFETIMES and operand.lifetime in CONSTANT_LIFETIMES:
        return False  # the data may well be found there too
    if lifetime == OperandLifeTime.NO_VALUE and operand.lifetime in CONSTANT_LIFETIMES:
        return any(
            not may_be_omitted(model, operation, at)
            for operation in model.main.operations
            for at, used in enumerate(operation.inputs)
            if used == index
        )
    return True


def _boundaries(model: Model) -> Iterator[Mutation]:
    main = model.main
    for kind, indexes in (("inputs", main.input_indexes), ("outputs", main.output_indexes)):
        changes = [(f"without {at}", _without(indexes, at)) for at in range(len(indexes))]
        changes += [("with an operand that is not there", (*indexes, len(main.operands)))]
        changes += [("with an operand twice", (*indexes, indexes[0]))] if indexes else []
        for what, changed in changes:
            yield Mutation("boundary", f"{kind} {what}", partial(_with_boundary, model, kind, changed))


def _with_boundary(model: Model, kind: str, indexes: tuple[int, ...]) -> Model:
    main = model.main
    if kind == "inputs":
        return replace(model, main=replace(main, input_indexes=indexes))
    return replace(model, main=replace(main, output_indexes=indexes))


def _second_writers(model: Model) -> Iterator[Mutation]:
    main = model.main
    for at, operation in enumerate(main.operations):
        for k, output in enumerate(operation.outputs):
            for i in range(len(main.operands)):
                # Reading what it writes is as wrong as writing what others write or give.
                if i != output:
                    changed = replace(operation, outputs=_replaced(operation.outputs, k, i))
                    yield _changed_operation("second writer", model, at, changed, f"writes operand {i}")


def _changed_operation(kind: str, model: Model, at: int, operation: Operation, what: str) -> Mutation:
    return Mutation(kind, f"{_label(model, at)} {what}", partial(_with_operation, model, at, operation))


def _removed_writers(model: Model) -> Iterator[Mutation]:
    """Let an operation write a new operand in place of one that is needed."""
    main = model.main
    for at, operation in enumerate(main.operations):
        for k, output in enumerate(operation.outputs):
            changed = replace(operation, outputs=_replaced(operation.outputs, k, len(main.operands)))
            temporary = replace(main.operands[output], lifetime=OperandLifeTime.TEMPORARY_VARIABLE)
            make = partial(_with_main, _with_operation(model, at, changed), (*main.operands, temporary))
            yield Mutation("writer removed", f"{_label(model, at)} does not write operand {output}", make)


def _argument_types(model: Model) -> Iterator[Mutation]:
    """Give an operand of an operation every other type, valid in itself, with data of the right size."""
    for at, operation in enumerate(model.main.operations):
        for what, indexes in (("input", operation.inputs), ("output", operation.outputs)):
            for k, index in enumerate(indexes):
                for code in _illegal_types(model, index):
                    text = f"{_label(model, at)}: {what} {k} is a {operand_type_name(code)}"
                    changed = _retyped(model.main.operands[index], code)
                    yield Mutation("argument type", text, partial(_with_operand, model, index, changed))


def _illegal_types(model: Model, index: int) -> list[int]:
    """Return the types that an operand must not have where it stands; none for an omitted one."""
    operand = model.main.operands[index]
    if operand.lifetime == OperandLifeTime.NO_VALUE:
        return []
    types = (*ELEMENT_TYPES, OperandCode.MODEL)
    return [code for code in types if code != operand.type and not is_legal_type(model, index, code)]


def _retyped(operand: Operand, code: int) -> Operand:
    """Return an operand of another type, complete in itself."""
    element = ELEMENT_TYPES.get(code)
    dims = (operand.dimensions or (1,)) if is_tensor(code) else ()
    scale, zero_point, quant = 0.0, 0, None
    if element is not None and element.zero_point_range is not None:
        low, high = element.zero_point_range
        scale, zero_point = operand.scale or 1.0, min(max(operand.zero_point, low), high)
    if code == OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL:
        channel_dim = next((axis for axis, size in enumerate(dims) if size), 0)
        dims = dims if dims[channel_dim] else (1,)
        quant = ChannelQuant((1.0,) * dims[channel_dim], channel_dim)
    changed = replace(operand, type=code, dimensions=dims, scale=scale, zero_point=zero_point, channel_quant=quant)
    if operand.lifetime not in CONSTANT_LIFETIMES or element is None:
        return changed
    data = np.zeros(dims, dtype_of(code))
    return replace(changed, lifetime=OperandLifeTime.POINTER, location=DataLocation(length=data.nbytes, pointer=data))


def _operation_types(model: Model) -> Iterator[Mutation]:
    for at, operation in enumerate(model.main.operations):
        for code in _BAD_OPERATION_TYPES:
            yield _changed_operation("operation type", model, at, replace(operation, type=code), f"of code {code}")


def _operand_indexes(model: Model) -> Iterator[Mutation]:
    for at, operation in enumerate(model.main.operations):
        for index in (len(model.main.operands), -1, 2**32 - 1):
            for k in range(len(operation.inputs)):
                changed = replace(operation, inputs=_replaced(operation.inputs, k, index))
                yield _changed_operation("operand index", model, at, changed, f"reads operand {index}")
            for k in range(len(operation.outputs)):
                changed = replace(operation, outputs=_replaced(operation.outputs, k, index))
                yield _changed_operation("operand index", model, at, changed, f"writes operand {index}")


def _removed_operands(model: Model) -> Iterator[Mutation]:
    """Remove an operand that is used, with every use of it."""
    main = model.main
    for index in range(len(main.operands)):
        users = [operation for operation in main.operations if index in (*operation.inputs, *operation.outputs)]
        if users and not all(_is_legal_without(model, operation, index) for operation in users):
            yield Mutation("operand removed", f"operand {index}", partial(_without_operand, model, index))


def _is_legal_without(model: Model, operation: Operation, index: int) -> bool:
    changed = _dropped(operation, index, shift=False)
    return are_legal_outputs(operation, changed) and (
        changed.inputs == operation.inputs or are_legal_inputs(model, changed)
    )


def _dropped(operation: Operation, index: int, shift: bool) -> Operation:
    """Return an operation without uses of an operand; `shift` counts later operands down."""

    def kept(items: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(i - (shift and i > index) for i in items if i != index)

    return replace(operation, inputs=kept(operation.inputs), outputs=kept(operation.outputs))


def _without_operand(model: Model, index: int) -> Model:
    main = model.main

    def kept(items: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(i - (i > index) for i in items if i != index)

    graph = Subgraph(
        _without_item(main.operands, index),
        tuple(_dropped(operation, index, shift=True) for operation in main.operations),
        kept(main.input_indexes),
        kept(main.output_indexes),
    )
    return replace(model, main=graph)


def _without_item(operands: tuple[Operand, ...], at: int) -> tuple[Operand, ...]:
    return operands[:at] + operands[at + 1 :]


def _removed_operations(model: Model) -> Iterator[Mutation]:
    operations = model.main.operations
    for at in range(len(operations)):
        rest = operations[:at] + operations[at + 1 :]
        yield Mutation("operation removed", _label(model, at), partial(_with_main, model, None, rest))


def _removed_arguments(model: Model) -> Iterator[Mutation]:
    for at, operation in enumerate(model.main.operations):
        for k in range(len(operation.inputs)):
            changed = replace(operation, inputs=_without(operation.inputs, k))
            if not are_legal_inputs(model, changed):
                yield _changed_operation("operation input removed", model, at, changed, f"without input {k}")
        for k in range(len(operation.outputs)):
            changed = replace(operation, outputs=_without(operation.outputs, k))
            yield _changed_operation("operation output removed", model, at, changed, f"without output {k}")


def _added_arguments(model: Model) -> Iterator[Mutation]:
    """Let an operation read or write a new INT32 operand, an input or output of the model."""
    main = model.main
    new = len(main.operands)
    given, taken = (
        (*main.operands, Operand(OperandCode.INT32, lifetime=lifetime))
        for lifetime in (OperandLifeTime.SUBGRAPH_INPUT, OperandLifeTime.SUBGRAPH_OUTPUT)
    )
    for at, operation in enumerate(main.operations):
        more = replace(operation, inputs=(*operation.inputs, new))
        changed = _with_main(_with_operation(model, at, more), given)
        if not are_legal_inputs(changed, more):
            make = partial(_with_boundary, changed, "inputs", (*main.input_indexes, new))
            yield Mutation("operation input added", _label(model, at), make)
        more = replace(operation, outputs=(*operation.outputs, new))
        changed = _with_main(_with_operation(model, at, more), taken)
        make = partial(_with_boundary, changed, "outputs", (*main.output_indexes, new))
        yield Mutation("operation output added", _label(model, at), make)


def _arguments_beside(model: Model) -> Iterator[Mutation]:
    for value in _BAD_ENUM_VALUES:
        yield Mutation("preference", str(value), lambda: model, preference=value)
        yield Mutation("priority", str(value), lambda: model, priority=value)
