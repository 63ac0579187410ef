# SPDX-License-Identifier: Apache-2.0
"""Changes of a model that leave it legal: what VTS' ValidateModel skips, and what the specification adds to that.

The tables name the operations that may take another number of arguments or another type at all; elsewhere every change
is a mutation that a driver has to refuse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.errors import BadData
from nn_runtime.hal.views import operation_view
from nn_runtime.operations import definition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nn_runtime.hal.types import Model, Operation

VARIABLE_INPUTS = frozenset(
    {
        OperationCode.AVERAGE_POOL_2D,
        OperationCode.BATCH_TO_SPACE_ND,
        OperationCode.CONCATENATION,
        OperationCode.CONV_2D,
        OperationCode.DEPTHWISE_CONV_2D,
        OperationCode.DEPTH_TO_SPACE,
        OperationCode.L2_NORMALIZATION,
        OperationCode.L2_POOL_2D,
        OperationCode.LOCAL_RESPONSE_NORMALIZATION,
        OperationCode.LSTM,
        OperationCode.MAX_POOL_2D,
        OperationCode.PACK,
        OperationCode.RESIZE_BILINEAR,
        OperationCode.RESIZE_NEAREST_NEIGHBOR,
        OperationCode.SOFTMAX,
        OperationCode.SPACE_TO_BATCH_ND,
        OperationCode.SPACE_TO_DEPTH,
    }
)
"""Operations with an optional tail, or an input that may occur any number of times."""

VARIABLE_OUTPUTS = frozenset(
    {
        OperationCode.BIDIRECTIONAL_SEQUENCE_LSTM,
        OperationCode.BIDIRECTIONAL_SEQUENCE_RNN,
        OperationCode.UNIDIRECTIONAL_SEQUENCE_LSTM,
        OperationCode.UNIDIRECTIONAL_SEQUENCE_RNN,
    }
)
"""Operations that may leave out state outputs, or merge two."""

ANY_OUTPUTS = frozenset({OperationCode.SPLIT, OperationCode.WHILE})
"""SPLIT: the number of splits is a value, checked when it runs. WHILE: it gives the first results of its body."""

_FLOATS = frozenset({OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_FLOAT16})
_QUANT8 = frozenset({OperandCode.TENSOR_QUANT8_ASYMM, OperandCode.TENSOR_QUANT8_ASYMM_SIGNED})
_INT32 = OperandCode.TENSOR_INT32
_PER_CHANNEL = OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL
_CASTABLE = frozenset({*_FLOATS, _INT32, OperandCode.TENSOR_QUANT8_ASYMM})
_COMPARED = frozenset({*_FLOATS, *_QUANT8, _INT32})
_ANY_TENSOR = frozenset(code for code in OperandCode if code.name.startswith("TENSOR_") and code < 10000)

_INPUT_TYPES: Mapping[tuple[int, int], frozenset[OperandCode]] = {
    (OperationCode.ARGMAX, 0): _COMPARED,
    (OperationCode.ARGMIN, 0): _COMPARED,
    (OperationCode.AXIS_ALIGNED_BBOX_TRANSFORM, 1): _QUANT8,
    (OperationCode.CAST, 0): _CASTABLE,
    (OperationCode.DEQUANTIZE, 0): _QUANT8 | {OperandCode.TENSOR_QUANT8_SYMM, _PER_CHANNEL},
    (OperationCode.LSH_PROJECTION, 1): _ANY_TENSOR,
    (OperationCode.QUANTIZE, 0): _FLOATS,
    (OperationCode.RANDOM_MULTINOMIAL, 0): _FLOATS,
    (OperationCode.RANK, 0): _ANY_TENSOR,
    **dict.fromkeys(
        (
            (OperationCode.CONV_2D, 1),
            (OperationCode.DEPTHWISE_CONV_2D, 1),
            (OperationCode.GROUPED_CONV_2D, 1),
            (OperationCode.TRANSPOSE_CONV_2D, 1),
        ),
        _QUANT8 | {_PER_CHANNEL},
    ),
}
"""Types that an input may have whatever the types of the others: by operation and input."""

_LAYOUT_OR_STRIDE: Mapping[tuple[int, int], int] = {
    (OperationCode.CONV_2D, 10): 7,
    (OperationCode.DEPTHWISE_CONV_2D, 11): 8,
}
"""By operation and number of inputs the input that tells implicit padding with dilations from explicit padding."""

_OUTPUT_TYPES: Mapping[int, frozenset[OperandCode]] = {
    OperationCode.CAST: _CASTABLE,
    OperationCode.DEQUANTIZE: _FLOATS,
    OperationCode.QUANTIZE: _QUANT8,
}
"""Types that an output may have whatever the types of the inputs."""

_COMPARISONS = frozenset(
    {
        OperationCode.EQUAL,
        OperationCode.GREATER,
        OperationCode.GREATER_EQUAL,
        OperationCode.LESS,
        OperationCode.LESS_EQUAL,
        OperationCode.NOT_EQUAL,
    }
)


def are_legal_inputs(model: Model, operation: Operation) -> bool:
    """Tell whether an operation may have the number and kinds of inputs that it has."""
    if operation.type not in VARIABLE_INPUTS:
        return False
    try:
        return bool(operation_view(model, model.main, operation).arguments)
    except BadData:
        return False


def are_legal_outputs(before: Operation, after: Operation) -> bool:
    """Tell whether an operation may have lost the outputs that it has lost."""
    if before.outputs == after.outputs:
        return True
    if before.type in VARIABLE_OUTPUTS:
        return len(after.outputs) in definition(before.type).output_counts
    return before.type in ANY_OUTPUTS and bool(after.outputs)


def is_legal_type(model: Model, index: int, code: int) -> bool:
    """Tell whether an operand of the main model may have another type, as far as each of its uses is concerned."""
    uses = [operation for operation in model.main.operations if index in (*operation.inputs, *operation.outputs)]
    return all(_allows(operation, index, code) for operation in uses)


def may_be_omitted(model: Model, operation: Operation, at: int) -> bool:
    """Tell whether an input of an operation is optional."""
    return operation_view(model, model.main, operation).arguments[at].omittable


def _allows(operation: Operation, index: int, code: int) -> bool:
    if operation.type in _COMPARISONS and index not in operation.outputs:
        return set(operation.inputs) == {index} and code in {*_COMPARED, OperandCode.TENSOR_BOOL8}
    if index in operation.outputs and code not in _OUTPUT_TYPES.get(operation.type, ()):
        return False
    places = [at for at, used in enumerate(operation.inputs) if used == index]
    if places == [_LAYOUT_OR_STRIDE.get((operation.type, len(operation.inputs)))]:
        return code in (OperandCode.BOOL, OperandCode.INT32)
    return all(code in _INPUT_TYPES.get((operation.type, at), ()) for at in places)
