# SPDX-License-Identifier: Apache-2.0
"""EMBEDDING_LOOKUP, HASHTABLE_LOOKUP."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.testing.drawing import Drawn, Result, Value, draws
from nn_runtime.testing.tolerances import STRICT

if TYPE_CHECKING:
    from nn_runtime.operand import Array
    from nn_runtime.testing.drawing import Drawing


def _indices(values: Array) -> Value:
    array = np.ascontiguousarray(values, np.int32)
    return Value(OperandCode.TENSOR_INT32, array.shape, array=array)


@draws(OperationCode.EMBEDDING_LOOKUP, criterion=STRICT, exact=True)
def _embedding(d: Drawing) -> Drawn:
    values = d.tensor((2, 4))
    lookups = _indices(d.rng.integers(0, values.dimensions[0], d.integer(1, 20)))
    return Drawn({"lookups": lookups, "values": values}, (d.same(values),))


@draws(OperationCode.HASHTABLE_LOOKUP, criterion=STRICT, exact=True)
def _hashtable(d: Drawing) -> Drawn:
    values = d.tensor((2, 4))
    rows = values.dimensions[0]
    keys = np.sort(d.rng.choice(4 * rows, rows, replace=False))
    lookups = _indices(d.rng.integers(0, 4 * rows, d.integer(1, 20)))
    hits = Result(OperandCode.TENSOR_QUANT8_ASYMM, 1.0, 0)
    return Drawn({"lookups": lookups, "keys": _indices(keys), "values": values}, (d.same(values), hits))
