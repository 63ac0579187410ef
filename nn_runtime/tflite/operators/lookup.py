# SPDX-License-Identifier: Apache-2.0
"""Rows of tables by index, key or hash."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.operators.places import SUM, combined_at_computed_places, combined_at_known_places
from nn_runtime.tflite.values import Value, constant, int32, int32_vector, real

if TYPE_CHECKING:
    from nn_runtime.tflite.operator import Operator

_PROJECTIONS = {1: 3, 2: 2}
"""NNAPI's kind of projection by TFLite's: SPARSE is its newer form, DENSE."""
_SUM, _MEAN, _BY_ROOT = range(3)
"""What becomes of weighted rows: their sum, and that divided by the weights' sum or the root of their squares' sum."""


@converts(BuiltinOperator.EMBEDDING_LOOKUP, inputs=2, version=5)
def _embedding_lookup(op: Operator) -> None:
    """(lookups, values): quantised values of a real result are made real."""
    values, wanted = op.input(1, "value"), op.prototype()
    if values.data is not None and values.type != wanted.type and wanted.type == OperandCode.TENSOR_FLOAT32:
        values = real(values)
    op.result_of_same_quantization(op.emit(OperationCode.EMBEDDING_LOOKUP, [op.input(0, "lookup"), values], values))


@converts(BuiltinOperator.HASHTABLE_LOOKUP, inputs=3, outputs=2)
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


@converts(BuiltinOperator.EMBEDDING_LOOKUP_SPARSE, inputs=5)
def _embedding_lookup_sparse(op: Operator) -> None:
    """(ids, indices, dense shape, weights, values): weighted rows, combined where all indices but the last agree."""
    ids, indices = op.input(0, "ids"), op.input(1, "indices")
    weights, table, shape = op.input(3, "weights"), op.input(4, "value"), op.integers(2, "dense_shape")
    count, outer, rest = math.prod(ids.shape or ()), shape[:-1], (table.shape or ())[1:]
    combiner = op.option("combiner")
    if combiner not in (_SUM, _MEAN, _BY_ROOT):
        op.fail(f"combiner must be 0 (SUM), 1 (MEAN) or 2 (SQRTN), got {combiner}")
    if ids.rank != 1 or weights.shape != ids.shape or indices.shape != (count, len(shape)) or not rest:
        shapes = ", ".join(str(list(value.shape or ())) for value in (ids, indices, weights, table))
        op.fail(f"ids, indices, weights and value must be [n], [n, {len(shape)}], [n] and [rows, ...], got {shapes}")
    if min(shape) < 1:
        op.fail(f"dense_shape (input 2) must be of sizes > 0, got {shape}")
    reals = Value(OperandCode.TENSOR_FLOAT32)
    flat = op.reshape(table, (-1, math.prod(rest)))
    weight = op.reshape(weights, (count, 1))
    rows = op.emit(OperationCode.GATHER, [flat, int32(0), ids], reals)
    rows = op.emit(OperationCode.MUL, [rows, weight, int32(FuseCode.NONE)], reals)
    if combiner == _SUM:
        result = _summed(op, rows, indices, outer)
    else:
        if combiner == _BY_ROOT:
            weight = op.emit(OperationCode.MUL, [weight, weight, int32(FuseCode.NONE)], reals)
        ones = constant(op.filled(weight, 1, np.float32))
        parts = _summed(op, op.emit(OperationCode.CONCATENATION, [rows, weight, ones, int32(1)], reals), indices, outer)
        result, total, number = (
            op.emit(OperationCode.SLICE, [parts, int32_vector([0, at]), int32_vector([-1, size])], reals)
            for at, size in ((0, math.prod(rest)), (math.prod(rest), 1), (math.prod(rest) + 1, 1))
        )
        one = constant(np.ones((1, 1), np.float32))
        is_empty = op.emit(OperationCode.LESS, [number, one], Value(OperandCode.TENSOR_BOOL8))
        divisor = op.emit(OperationCode.SQRT, [total], reals) if combiner == _BY_ROOT else total
        divisor = op.emit(OperationCode.SELECT, [is_empty, op.broadcast(one, divisor.shape or ()), divisor], reals)
        result = op.emit(OperationCode.DIV, [result, divisor, int32(FuseCode.NONE)], reals)
    op.result(op.reshape(result, (*outer, *rest)))


def _summed(op: Operator, rows: Value, indices: Value, outer: list[int]) -> Value:
    """Return [places, ...]: the sums of rows whose indices, all but the last, are those of a place."""
    places, count = math.prod(outer), (rows.shape or (0,))[0]
    if indices.data is not None or not outer:
        numbers = np.zeros(count, np.int64)
        for axis, size in enumerate(outer):
            given = np.asarray(indices.data)[:, axis]
            if given.min() < 0 or given.max() >= size:
                op.fail(f"indices (input 1) must be within {outer}, got {given.min()} to {given.max()} in axis {axis}")
            numbers = numbers * size + given
        return combined_at_known_places(op, rows, numbers, places, SUM)
    columns = [
        op.emit(OperationCode.SLICE, [indices, int32_vector([0, axis]), int32_vector([-1, 1])], indices)
        for axis in range(len(outer))
    ]
    place = columns[0]
    for size, column in zip(outer[1:], columns[1:], strict=True):
        before = op.emit(OperationCode.MUL, [place, int32_vector([size]), int32(FuseCode.NONE)], indices)
        place = op.emit(OperationCode.ADD, [before, column, int32(FuseCode.NONE)], indices)
    return combined_at_computed_places(op, rows, op.reshape(place, (count,)), places, SUM)
