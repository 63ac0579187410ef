# SPDX-License-Identifier: Apache-2.0
"""Reductions over axes."""

from __future__ import annotations

@converts(BuiltinOperator.MEAN)
def _mean(op: Operator) -> None:
    """(input, axes). TFLite's quantised mean rounds and may rescale, which NNAPI's does not."""
    source = op.input(0, "input")
    shape = source.shape or ()
    axes = sorted({op.axis(axis, len(shape)) for axis in op.integers(1, "axes")})
    wanted = op.prototype()
    if source.type != wanted.type:
        op.fail(f"the output must have the type of the input, got {op.output_tensor().type.name}")
    if not source.is_quantized:
        op.result(op.emit(OperationCode.MEAN, [source, *_reduction(op, axes)]))
    elif axes == [1, 2] and len(shape) == 4 and fits_mean_filter(source, wanted):
        op.result(_mean_by_convolution(op, source))
    else:
        op.result(op.through_float(OperationCode.MEAN, [source], _reduction(op, axes)))


def _reduction(op: Operator, axes: Sequence[int]) -> list[Value]:
    return [int32_vector(axes), int32(op.option("keep_dims"))]


def _mean_by_convolution(op: Operator, source: Value) -> Value:
    batches, _, _, depth = source.shape or (1, 1, 1, 1)
    window = [int32(PaddingCode.VALID), int32(1), int32(1), int32(1), int32(FuseCode.NONE)]
    weights, bias = mean_filter(source, op.prototype())
    result = op.emit(OperationCode.DEPTHWISE_CONV_2D, [source, weights, bias, *window])
    return result if op.option("keep_dims") else op.reshape(result, (batches, depth))


@converts(BuiltinOperator.ARG_MAX)
def _arg_max(op: Operator) -> None:
    """(input, axis); an INT64 result is computed in 32 bits."""
    source = op.input(0, "input")
    if op.output_tensor().type not in (TensorType.INT32, TensorType.INT64):
        op.fail(f"the output must be INT32 or INT64, got {op.output_tensor().type.name}")
    axis = op.axis(op.integer(1, "axis"), len(source.shape or ()))
    op.result(op.emit(OperationCode.ARGMAX, [source, int32(axis)]))
