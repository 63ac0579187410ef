# SPDX-License-Identifier: Apache-2.0
"""IF, WHILE and CASE, the subgraphs of which become referenced models; composites, of which they become a part."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.values import Value, int32_vector

if TYPE_CHECKING:
    from nn_runtime.tflite.operator import Operator


@converts(BuiltinOperator.IF, inputs=None, outputs=None)
def _if(op: Operator) -> None:
    """(condition, arguments ...): both branches must give the same shapes."""
    condition = op.reshape(op.input(0, "condition"), (1,))
    arguments = [op.input(position, "argument") for position in range(1, op.input_count)]
    same = range(len(arguments))
    branches = [op.refer(f"{name}_subgraph_index", arguments, same) for name in ("then", "else")]
    _call(op, OperationCode.IF, [condition, *branches, *arguments], branches[0])


@converts(BuiltinOperator.WHILE, inputs=None, outputs=None)
def _while(op: Operator) -> None:
    """(arguments ...): they keep their shapes. A loop of few rounds, whose count is known, is unrolled."""
    arguments = [op.input(position, "argument") for position in range(op.input_count)]
    rounds = op.rounds(arguments)
    if rounds is not None and op.output_count == len(arguments):
        for position, value in enumerate(op.unroll(arguments, rounds)):
            op.result(op.made(value), position)
        return
    body = op.subgraph("body_subgraph_index")
    same = [at for at, (given, result) in enumerate(zip(body.inputs, body.outputs, strict=False)) if given == result]
    models = [op.refer(f"{name}_subgraph_index", arguments, same) for name in ("cond", "body")]
    _call(op, OperationCode.WHILE, [*models, *arguments], models[1])


@converts(BuiltinOperator.STABLEHLO_COMPOSITE, inputs=None, outputs=None)
def _composite(op: Operator) -> None:
    """(arguments ...): a name for what a subgraph computes; its operators take the composite's place."""
    arguments = [op.input(position, "argument") for position in range(op.input_count)]
    for position, value in enumerate(op.inline("decomposition_subgraph_index", arguments)):
        op.result_of_same_quantization(op.made(value), position)


@converts(BuiltinOperator.STABLEHLO_CASE, inputs=None, outputs=None)
def _case(op: Operator) -> None:
    """(index, arguments ...): calls the subgraph of this number, and the last one for a number that none has."""
    index = op.reshape(op.input(0, "index"), (1,))
    arguments = [op.input(position, "argument") for position in range(1, op.input_count)]
    count = len(op.integer_options("branch_subgraph_indices"))
    if index.type != OperandCode.TENSOR_INT32 or not count:
        op.fail(f"must have an INT32 index and subgraphs, got {OperandCode(index.type).name} and {count} subgraphs")
    last = int32_vector([count - 1])
    below = op.emit(OperationCode.MINIMUM, [index, last], index)
    is_none = op.emit(OperationCode.LESS, [index, int32_vector([0])], Value(OperandCode.TENSOR_BOOL8))
    known = op.emit(OperationCode.SELECT, [is_none, last, below], index)
    results = op.choose("branch_subgraph_indices", known, arguments)
    op.check_output_count(len(results))
    for position, value in enumerate(results):
        op.result(op.made(value), position)


def _call(op: Operator, code: OperationCode, inputs: list[Value], model: Value) -> None:
    if model.referenced is None or len(model.referenced.outputs) != op.output_count:
        op.fail(f"the subgraph must have {op.output_count} outputs")
    results = op.call(code, inputs, [replace(output, data=None) for output in model.referenced.outputs])
    for position, result in enumerate(results):
        op.result(result, position)
