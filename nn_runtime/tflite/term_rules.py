# SPDX-License-Identifier: Apache-2.0
"""What operators on few integers say of their results where the run computes them: sums, and parts put together.

What is known of all inputs is computed at import instead (`folding`).
"""

from __future__ import annotations

import math
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.tensor_reader import MAX_RANK
from nn_runtime.tflite.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.tflite.operator import Operator
    from nn_runtime.tflite.terms import Term

_JOINING = (BuiltinOperator.PACK, BuiltinOperator.CONCATENATION)
_RESHAPING = (BuiltinOperator.RESHAPE, BuiltinOperator.EXPAND_DIMS, BuiltinOperator.SQUEEZE)
_SIGNS = {BuiltinOperator.ADD: 1, BuiltinOperator.SUB: -1}
_CODES = frozenset({*_JOINING, *_RESHAPING, *_SIGNS})
_INT32 = np.iinfo(np.int32)


def note_terms(op: Operator) -> None:
    """Take down what an operator that is converted says of the integers of its output."""
    if op.code not in _CODES or op.option("fused_activation_function"):
        return
    tensor = op.output_tensor()
    if tensor.type not in (TensorType.INT32, TensorType.INT64) or tensor.is_variable:
        return
    result = op.output_value()
    if result.data is not None or result.rank > 1 or math.prod(result.shape or ()) > MAX_RANK:
        return
    count = 1 if op.code in _RESHAPING else op.input_count
    inputs = [op.known_terms(position) for position in range(count)]
    found = _sums(inputs, _SIGNS[op.code]) if op.code in _SIGNS else list(chain.from_iterable(inputs))
    if found and len(found) == math.prod(result.shape or ()):
        op.keep_terms(found)


def _sums(inputs: Sequence[Sequence[Term]], sign: int) -> list[Term]:
    """Return sums (or differences) of integers, of which one is known; none where that is not so."""
    first, second = inputs
    if len(first) != len(second):
        first, second = ([*part] * max(len(first), len(second)) if len(part) == 1 else part for part in (first, second))
    found = []
    for one, other in zip(first, second, strict=False):
        if other.source is not None and sign == 1:
            one, other = other, one
        number = one.number + sign * other.number
        if other.source is not None or not _INT32.min <= number <= _INT32.max:
            return []
        found.append(one._replace(number=number))
    return found
