# SPDX-License-Identifier: Apache-2.0
"""Rows of tables by index, key or hash."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.values import Value, int32, real

if TYPE_CHECKING:
    from nn_runtime.tflite.operator import Operator

_PROJECTIONS = {1: 3, 2: 2}
"""NNAPI's kind of projection by TFLite's: SPARSE is its newer form, DENSE."""


@converts(BuiltinOperator.EMBEDDING_LOOKUP, inputs=2, version=5)
def _embedding_lookup(op: Operator) -> None:
    """(lookups, values): quantised values of a real result are made real."""
    values, wanted = op.input(1, "value"), op.prototype()
    if values.data is not None and values.type != wanted.type and wanted.type == OperandCode.TENSOR_FLOAT32:
        values = real(values)
    op.result_of_same_quantization(op.emit(OperationCode.EMBEDDING_LOOKUP, [op.input(0, "lookup"), values], values))


@converts(BuiltinOperator.HASHTABLE_LOOKUP, inputs=3)
def _hashtable_lookup(op: Operator) -> None:
    """(lookups, keys, values): values of the keys, and where there was one."""
    inputs = [op.input(at, name) for at, name in enumerate(("lookup", "key", "value"))]
    hits = replace(op.prototype(1), scale=1.0, zero_point=0)
    result, found = op.emit_many(OperationCode.HASHTABLE_LOOKUP, inputs, [inputs[2], hits])
    op.result_of_same_quantization(result)
    op.result(found, 1)


@converts(BuiltinOperator.LSH_PROJECTION, inputs=3)
def _lsh_projection(op: Operator) -> None:
    """(hash functions, input, weights or none)."""
    kind = op.option("type")
    if kind not in _PROJECTIONS:
        op.fail(f"type must be 1 (SPARSE) or 2 (DENSE), got {kind}")
    weights = op.optional(2)
    if weights is None:
        weights = Value(OperandCode.TENSOR_FLOAT32, (0,), omitted=True)
    inputs = [op.input(0, "hash"), op.input(1, "input"), weights, int32(_PROJECTIONS[kind])]
    op.result(op.emit(OperationCode.LSH_PROJECTION, inputs))
