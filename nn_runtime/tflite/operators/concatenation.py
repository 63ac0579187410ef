# SPDX-License-Identifier: Apache-2.0
"""Joining tensors and taking them apart."""

from __future__ import annotations

@converts(BuiltinOperator.CONCATENATION)
def _concatenation(op: Operator) -> None:
    """(inputs ...)."""
    if op.activation() != FuseCode.NONE:
        op.fail("a fused activation is not supported")
    tensors = [op.input(position, "values") for position in range(op.input_count)]
    axis = op.axis(op.option("axis"), len(op.input(0, "values").shape or ()))
    op.result(op.emit(OperationCode.CONCATENATION, [*tensors, int32(axis)]))


@converts(BuiltinOperator.PACK)
def _pack(op: Operator) -> None:
    """(inputs ...) of one shape: each gets an axis of size 1, then they are concatenated."""
    shape = op.input(0, "values").shape or ()
    axis = op.axis(op.option("axis"), len(shape) + 1)
    expanded = (*shape[:axis], 1, *shape[axis:])
    tensors = [op.reshape(op.input(position, "values"), expanded) for position in range(op.input_count)]
    op.result(op.emit(OperationCode.CONCATENATION, [*tensors, int32(axis)]))


def _split_evenly(op: Operator, source: Value, axis: int) -> list[Value]:
    count = op.output_count
    return op.emit_many(OperationCode.SPLIT, [source, int32(axis), int32(count)], [source] * count)


@converts(BuiltinOperator.SPLIT)
def _split(op: Operator) -> None:
    """(axis, input)."""
    source = op.input(1, "value")
    axis = op.axis(op.integer(0, "axis"), len(source.shape or ()))
    for position, part in enumerate(_split_evenly(op, source, axis)):
        op.result_of_same_quantization(part, position)


@converts(BuiltinOperator.UNPACK)
def _unpack(op: Operator) -> None:
    """(input): split along an axis, which is then dropped."""
    source = op.input(0, "value")
    shape = source.shape or ()
    axis = op.axis(op.option("axis"), len(shape))
    if shape[axis] != op.output_count:
        op.fail(f"needs {shape[axis]} outputs, one for each index of axis {axis}, got {op.output_count}")
    rest = (*shape[:axis], *shape[axis + 1 :])
    for position, part in enumerate(_split_evenly(op, source, axis)):
        op.result_of_same_quantization(op.reshape(part, rest or (1,)), position)


@converts(BuiltinOperator.SPLIT_V)
def _split_v(op: Operator) -> None:
    """(input, sizes, axis): one SLICE an output; one size may be -1."""
    source = op.input(0, "value")
    shape = source.shape or ()
    axis = op.axis(op.integer(2, "axis"), len(shape))
    sizes = op.integers(1, "size_splits")
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = shape[axis] - sum(sizes) - 1
    if len(sizes) != op.output_count or min(sizes) < 0 or sum(sizes) != shape[axis]:
        op.fail(f"size_splits must be {op.output_count} sizes of sum {shape[axis]}, got {sizes}")
    begin = 0
    for position, size in enumerate(sizes):
        begins, taken = [0] * len(shape), list(shape)
        begins[axis], taken[axis] = begin, size
        part = op.emit(OperationCode.SLICE, [source, int32_vector(begins), int32_vector(taken)], source)
        op.result_of_same_quantization(part, position)
        begin += size


