# SPDX-License-Identifier: Apache-2.0
"""IF and WHILE: operations over referenced models, whose boundaries must agree with the operation's operands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import FeatureLevel, OperandCode, OperationCode, operand_type_name
from nn_runtime.errors import BadData
from nn_runtime.operand import ELEMENT_TYPES, EXTENSION_TYPES, merge_dimensions
from nn_runtime.operations.signature import (
    Definition,
    Input,
    OperationView,
    Output,
    Variant,
    define,
    only,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nn_runtime.operand import Dimensions, OperandView, SubgraphView

_MODEL = only(OperandCode.MODEL)


def _any_type(_data_type: int) -> Iterable[int]:
    return (*ELEMENT_TYPES, *EXTENSION_TYPES)


def _check_if(op: OperationView) -> FeatureLevel:
    _check_condition(op, op.inputs[0], "condition (input 0)")
    for name in ("then_model", "else_model"):
        branch = op.input(name).subgraph()
        if branch is not None:
            _check_boundary(op, f"inputs of {name}", branch.inputs, op.inputs[3:])
            _check_boundary(op, f"outputs of {name}", branch.outputs, op.outputs)
    return FeatureLevel.HAL_1_3


def _check_while(op: OperationView) -> FeatureLevel:
    arguments = op.inputs[2:]
    condition, body = op.input("cond_model").subgraph(), op.input("body_model").subgraph()
    if condition is not None:
        _check_boundary(op, "inputs of cond_model", condition.inputs, arguments)
        _check_condition(op, _only_output(op, condition), "output of cond_model")
    if body is not None:
        _check_boundary(op, "inputs of body_model", body.inputs, arguments)
        if not len(op.outputs) <= len(body.outputs) <= len(arguments):
            raise BadData(
                f"{op.label}: body_model must have {len(op.outputs)} to {len(arguments)} outputs, "
                f"got {len(body.outputs)}"
            )
        _check_boundary(op, "outputs of body_model", body.outputs, arguments[: len(body.outputs)])
        _check_boundary(op, "outputs", op.outputs, body.outputs[: len(op.outputs)])
    return FeatureLevel.HAL_1_3


def _only_output(op: OperationView, condition: SubgraphView) -> OperandView:
    if len(condition.outputs) != 1:
        raise BadData(f"{op.label}: cond_model must have one output, got {len(condition.outputs)}")
    return condition.outputs[0]


def _check_condition(op: OperationView, operand: OperandView, name: str) -> None:
    if operand.type != OperandCode.TENSOR_BOOL8 or operand.dimensions != (1,):
        got = f"{operand_type_name(operand.type)} {list(operand.dimensions or ())}"
        raise BadData(f"{op.label}: {name} must be TENSOR_BOOL8 [1], got {got}")


def _check_boundary(op: OperationView, what: str, inner: Sequence[OperandView], outer: Sequence[OperandView]) -> None:
    """Check that two lists of operands agree in type, quantisation and known dimensions."""
    if len(inner) != len(outer):
        raise BadData(f"{op.label}: {what}: wanted {len(outer)}, got {len(inner)}")
    for i, (first, second) in enumerate(zip(inner, outer, strict=True)):
        for field in ("type", "scale", "zero_point", "channel_quant"):
            if getattr(first, field) != getattr(second, field):
                got, wanted = getattr(first, field), getattr(second, field)
                raise BadData(f"{op.label}: {what}: operand {i} must have {field} {wanted}, got {got}")
        try:
            merge_dimensions(first.dimensions or (), second.dimensions or ())
        except BadData as error:
            raise BadData(f"{op.label}: {what}: operand {i}: {error}") from error


def _prepare(op: OperationView) -> tuple[Dimensions, ...]:
    """Return the outputs' dimensions where the model gives them all: a referenced model may give others."""
    declared = [output.dimensions for output in op.outputs]
    known = tuple(dims for dims in declared if dims is not None and 0 not in dims)
    if len(known) != len(declared):
        raise BadData(f"{op.label}: the dimensions of the outputs are known only when it has run")
    return known


define(
    Definition(
        OperationCode.IF,
        (
            Variant(
                (
                    Input("condition"),
                    Input("then_model", _MODEL),
                    Input("else_model", _MODEL),
                    Input("argument", _any_type),
                ),
                repeated="argument",
            ),
            Variant((Input("condition"), Input("then_model", _MODEL), Input("else_model", _MODEL))),
        ),
        (Output("output", _any_type),),
        {OperandCode.TENSOR_BOOL8: FeatureLevel.HAL_1_3},
        _prepare,
        _check_if,
        repeated_output=True,
    )
)

define(
    Definition(
        OperationCode.WHILE,
        (
            Variant(
                (
                    Input("cond_model", _MODEL),
                    Input("body_model", _MODEL),
                    Input("argument", _any_type),
                ),
                repeated="argument",
            ),
        ),
        (Output("output", _any_type),),
        {OperandCode.MODEL: FeatureLevel.HAL_1_3},
        _prepare,
        _check_while,
        repeated_output=True,
    )
)
