# SPDX-License-Identifier: Apache-2.0
"""Operations on tensors of more than four dimensions, which NNAPI has not, as the same operations on four at most.

Neighbouring dimensions that an operation treats alike are one dimension to it, and those of size 1 are none: turning
the last two of [1, 28, 28, 2, 58] is turning those of [784, 2, 58]. What still has too many is done in turns, an axis
or a block of axes at a time. An operand of such a tensor has the dimensions of `operand_dimensions`.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from nn_runtime.codes import CONTROL_FLOW, OperationCode
from nn_runtime.errors import BadData
from nn_runtime.operand import is_tensor
from nn_runtime.tflite.ranks.along import (
    along_axis,
    concatenation,
    elementwise,
    gather,
    largest,
    pack,
    reduction,
    split,
)
from nn_runtime.tflite.ranks.moving import fill, mirror_pad, pad, reshape, take, take_strided, tile, transpose
from nn_runtime.tflite.ranks.operation import Operation, Rule, numbers_of
from nn_runtime.tflite.values import MAX_DIMENSIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.tflite.model_builder import ModelBuilder
    from nn_runtime.tflite.values import Value


def emit(builder: ModelBuilder, code: OperationCode, inputs: Sequence[Value], results: Sequence[Value]) -> list[Value]:
    """Append what does an operation on tensors of any rank; raises BadData for one that has no such form."""
    for value in inputs:
        if value.data is not None and not value.data.size:
            raise BadData(f"{code.name}: an empty input of shape {list(value.shape or ())} is not supported")
    if not _is_beyond(code, inputs):
        return builder.append(code, inputs, results)
    rule = _RULES.get(code)
    if rule is None:
        shapes = [list(value.shape or ()) for value in inputs if value.rank > MAX_DIMENSIONS]
        raise BadData(f"{code.name}: at most {MAX_DIMENSIONS} dimensions are supported, got {shapes[0]}")
    return rule(Operation(builder, functools.partial(emit, builder), code, list(inputs), list(results)))


def _is_beyond(code: OperationCode, inputs: Sequence[Value]) -> bool:
    """Tell whether an operation takes or makes a tensor of too many dimensions."""
    if code in CONTROL_FLOW:
        return False  # they hand operands on as they are
    ranks = [value.rank for value in inputs if is_tensor(value.type)]
    if code == OperationCode.GATHER:
        ranks.append(inputs[0].rank + max(inputs[2].rank, 1) - 1)
    elif code == OperationCode.PACK:
        ranks = [rank + 1 for rank in ranks]
    elif code in (OperationCode.RESHAPE, OperationCode.FILL):
        ranks.append(numbers_of(inputs[0 if code == OperationCode.FILL else 1]).size)
    return max(ranks, default=0) > MAX_DIMENSIONS


_ELEMENTWISE = (
    "ABS ADD CAST DEQUANTIZE DIV ELU EQUAL EXP FLOOR GREATER GREATER_EQUAL HARD_SWISH LESS LESS_EQUAL LOG LOGICAL_AND "
    "LOGICAL_NOT LOGICAL_OR LOGISTIC MAXIMUM MINIMUM MUL NEG NOT_EQUAL POW PRELU QUANTIZE RELU RELU1 RELU6 RSQRT "
    "SELECT SIN SQRT SUB TANH"
)
_REDUCTIONS = "MEAN REDUCE_ALL REDUCE_ANY REDUCE_MAX REDUCE_MIN REDUCE_PROD REDUCE_SUM"
_RULES: dict[OperationCode, Rule] = {
    **{OperationCode[name]: elementwise for name in _ELEMENTWISE.split()},
    **{OperationCode[name]: reduction for name in _REDUCTIONS.split()},
    OperationCode.ARGMAX: along_axis(1, dropped=True),
    OperationCode.ARGMIN: along_axis(1, dropped=True),
    OperationCode.CONCATENATION: concatenation,
    OperationCode.FILL: fill,
    OperationCode.GATHER: gather,
    OperationCode.L2_NORMALIZATION: along_axis(None),
    OperationCode.LOG_SOFTMAX: along_axis(2),
    OperationCode.MIRROR_PAD: mirror_pad,
    OperationCode.PACK: pack,
    OperationCode.PAD: pad,
    OperationCode.PAD_V2: pad,
    OperationCode.RESHAPE: reshape,
    OperationCode.REVERSE: along_axis(1),
    OperationCode.SLICE: take,
    OperationCode.SOFTMAX: along_axis(None),
    OperationCode.SPLIT: split,
    OperationCode.STRIDED_SLICE: take_strided,
    OperationCode.TILE: tile,
    OperationCode.TOPK_V2: largest,
    OperationCode.TRANSPOSE: transpose,
}
