# SPDX-License-Identifier: Apache-2.0
"""Resource variables, which streaming networks keep between runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.operators import converts

if TYPE_CHECKING:
    from nn_runtime.tflite.operator import Operator


@converts(BuiltinOperator.CALL_ONCE, inputs=0, outputs=0)
def _call_once(op: Operator) -> None:
    """The first values of variables: the subgraph is run here and now, so it must assign constants."""
    op.initialise("init_subgraph_index")


@converts(BuiltinOperator.VAR_HANDLE, inputs=0)
def _var_handle(op: Operator) -> None:
    """The handle of the variable that the options name."""
    op.make_handle()


@converts(BuiltinOperator.READ_VARIABLE, inputs=1)
def _read_variable(op: Operator) -> None:
    """(handle)."""
    op.result_of_same_quantization(op.read_resource(0))


@converts(BuiltinOperator.ASSIGN_VARIABLE, inputs=2, outputs=0)
def _assign_variable(op: Operator) -> None:
    """(handle, value): a variable keeps its type and shape."""
    op.assign_resource(0, op.input(1, "value"))
