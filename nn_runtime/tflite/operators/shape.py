# SPDX-License-Identifier: Apache-2.0
"""The same elements under another shape or in another order."""

from __future__ import annotations

@converts(BuiltinOperator.RESHAPE)
def _reshape(op: Operator) -> None:
    """(input, new shape or none): the shape is a constant, or an option."""
    source = op.input(0, "input")
    shape = op.integers(1, "shape") if op.optional(1) is not None else op.integer_options("new_shape")
    _reshaped(op, source, shape)


def _reshaped(op: Operator, source: Value, shape: Sequence[int]) -> None:
    if source.channel_quant is not None:
        op.fail("a per-channel quantised input is not supported")
    op.result_of_same_quantization(op.emit(OperationCode.RESHAPE, [source, int32_vector(shape or [1])], source))


@converts(BuiltinOperator.SQUEEZE)
def _squeeze(op: Operator) -> None:
    """(input); no dimensions means every one of size 1."""
    source = op.input(0, "input")
    shape = source.shape or ()
    axes = {op.axis(axis, len(shape)) for axis in op.integer_options("squeeze_dims")}
    if any(shape[axis] != 1 for axis in axes):
        op.fail(f"squeeze_dims must name sizes 1 of {list(shape)}, got {sorted(axes)}")
    axes = axes or {axis for axis, size in enumerate(shape) if size == 1}
    _reshaped(op, source, [size for axis, size in enumerate(shape) if axis not in axes])


@converts(BuiltinOperator.EXPAND_DIMS)
def _expand_dims(op: Operator) -> None:
    """(input, axis)."""
    source = op.input(0, "input")
    shape = list(source.shape or ())
    shape.insert(op.axis(op.integer(1, "axis"), len(shape) + 1), 1)
    _reshaped(op, source, shape)


@converts(BuiltinOperator.TRANSPOSE)
def _transpose(op: Operator) -> None:
    """(input, permutation)."""
    source = op.input(0, "input")
    order = int32_vector(op.integers(1, "perm"))
    op.result_of_same_quantization(op.emit(OperationCode.TRANSPOSE, [source, order], source))


