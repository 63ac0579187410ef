# SPDX-License-Identifier: Apache-2.0
"""What takes, repeats, surrounds and orders elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperationCode
from nn_runtime.tflite.ranks.operation import (
    Groups,
    Operation,
    around,
    blocks_of,
    first_alone,
    number_of,
    numbers_of,
    per_dimension,
    runs,
    sizes_of,
)
from nn_runtime.tflite.values import MAX_DIMENSIONS, Value, constant, int32, int32_vector

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.operand import Dimensions


def tile(operation: Operation) -> list[Value]:
    """(input, multiples)."""
    source, multiples = operation.inputs[0], per_dimension(operation, 1)
    if min(multiples) < 1:
        raise operation.fail(f"multiples must be >= 1, got {multiples}")
    touched = [multiple != 1 for multiple in multiples]
    blocks = blocks_of(operation.shape, touched)
    if len(blocks) > MAX_DIMENSIONS:
        now, later = first_alone(touched)
        for axes in (now, later):
            chosen = [multiple if axis in axes else 1 for axis, multiple in enumerate(multiples)]
            source = operation.again(source, int32_vector(chosen))[0]
        return [source]
    changed = {
        0: operation.under(source, [block.size for block in blocks]),
        1: int32_vector([multiples[block.axis] for block in blocks]),
    }
    shape = [size * multiple for size, multiple in zip(operation.shape, multiples, strict=True)]
    return operation.emit(changed, [tuple(shape)])


def take(operation: Operation) -> list[Value]:
    """(input, begin, size); a size -1 goes to the end."""
    source, shape = operation.inputs[0], operation.shape
    begins, sizes = per_dimension(operation, 1), per_dimension(operation, 2)
    sizes = [whole - begin if size == -1 else size for begin, size, whole in zip(begins, sizes, shape, strict=True)]
    for begin, size, whole in zip(begins, sizes, shape, strict=True):
        if begin < 0 or size < 0 or begin + size > whole:
            raise operation.fail(f"begin {begins} and size {sizes} are not within {list(shape)}")
    touched = [size != whole for size, whole in zip(sizes, shape, strict=True)]
    blocks = blocks_of(shape, touched)
    if len(blocks) > MAX_DIMENSIONS:
        for axes in first_alone(touched):
            start = [begin if axis in axes else 0 for axis, begin in enumerate(begins)]
            taken = [size if axis in axes else -1 for axis, size in enumerate(sizes)]
            source = operation.again(source, int32_vector(start), int32_vector(taken))[0]
        return [source]
    changed = {
        0: operation.under(source, [block.size for block in blocks]),
        1: int32_vector([begins[block.axis] * block.rest if touched[block.axis] else 0 for block in blocks]),
        2: int32_vector([sizes[block.axis] * block.rest if touched[block.axis] else block.size for block in blocks]),
    }
    return operation.emit(changed, [tuple(sizes)])


def take_strided(operation: Operation) -> list[Value]:
    """(input, begin, end, strides, masks of begin, end and dropped axes): whole steps by SLICE, others axis by axis."""
    source, shape = operation.inputs[0], operation.shape
    begin_mask, end_mask, dropped = (number_of(value) for value in operation.inputs[4:7])
    bounds = zip(*(per_dimension(operation, position) for position in (1, 2, 3)), strict=True)
    taken = [
        range(shape[axis])[
            slice(None if begin_mask >> axis & 1 else begin, None if end_mask >> axis & 1 else end, stride)
        ]
        for axis, (begin, end, stride) in enumerate(bounds)
    ]
    if any(not indices or (dropped >> axis & 1 and len(indices) > 1) for axis, indices in enumerate(taken)):
        raise operation.fail(f"an empty result, or several indices of a dropped axis, of {list(shape)}")
    plain = [indices.step == 1 or len(indices) == 1 for indices in taken]
    begins = [indices[0] if is_plain else 0 for indices, is_plain in zip(taken, plain, strict=True)]
    sizes = [len(indices) if is_plain else -1 for indices, is_plain in zip(taken, plain, strict=True)]
    within = [source, int32_vector(begins), int32_vector(sizes)]
    source = operation.append(OperationCode.SLICE, within, operation.results)[0]
    for axis, indices in enumerate(taken):
        if not plain[axis]:
            source = _every(operation, source, axis, indices)
    return [operation.under(source, [len(one) for axis, one in enumerate(taken) if not dropped >> axis & 1] or [1])]


def _every(operation: Operation, source: Value, axis: int, indices: range) -> Value:
    """Return the indices of one axis by STRIDED_SLICE."""
    shape = source.shape or ()
    before, size, after = around(shape, axis)
    past_front = indices.step < 0 and indices[-1] + indices.step < 0
    end = indices[-1] + (1 if indices.step > 0 else -1)
    changed = {
        0: operation.under(source, (before, size, after)),
        1: int32_vector([0, indices[0], 0]),
        2: int32_vector([before, end, after]),
        3: int32_vector([1, indices.step, 1]),
        4: int32(0),
        5: int32(2 if past_front else 0),
        6: int32(0),
    }
    return operation.emit(changed, [(*shape[:axis], len(indices), *shape[axis + 1 :])])[0]


def pad(operation: Operation) -> list[Value]:
    """PAD, PAD_V2: (input, [before, after] by dimension, ...)."""
    source, shape, rest = operation.inputs[0], operation.shape, operation.inputs[2:]
    amounts = _paddings(operation)
    touched = [any(pair) for pair in amounts]
    blocks = blocks_of(shape, touched)
    if len(blocks) > MAX_DIMENSIONS:
        for axes in first_alone(touched):
            chosen = [pair if axis in axes else [0, 0] for axis, pair in enumerate(amounts)]
            source = operation.again(source, _pairs(chosen), *rest)[0]
        return [source]
    borders = [[amount * block.rest for amount in amounts[block.axis]] for block in blocks]
    changed = {
        0: operation.under(source, [block.size for block in blocks]),
        1: _pairs(borders),
    }
    return operation.emit(changed, [_padded(shape, amounts)])


def mirror_pad(operation: Operation) -> list[Value]:
    """(input, [before, after] by dimension, mode): padded dimensions stay alone."""
    shape, amounts = operation.shape, _paddings(operation)
    kinds = [(axis if any(pair) else None if shape[axis] == 1 else "whole") for axis, pair in enumerate(amounts)]
    groups = runs(kinds)
    if len(groups) > MAX_DIMENSIONS:
        raise operation.fail(f"paddings {amounts} of {list(shape)} are not supported")
    borders = [next((amounts[axis] for axis in group if any(amounts[axis])), [0, 0]) for group in groups]
    changed = {
        0: operation.under(operation.inputs[0], sizes_of(shape, groups)),
        1: _pairs(borders),
    }
    return operation.emit(changed, [_padded(shape, amounts)])


def _paddings(operation: Operation) -> list[list[int]]:
    amounts = numbers_of(operation.inputs[1])
    if amounts.shape != (len(operation.shape), 2):
        raise operation.fail(f"paddings must be [{len(operation.shape)}, 2], got {list(amounts.shape)}")
    found: list[list[int]] = amounts.tolist()
    return found


def _pairs(amounts: Sequence[Sequence[int]]) -> Value:
    """Return [before, after] by dimension as a constant; raises BadData for what 32 bits cannot hold."""
    flat = int32_vector([amount for pair in amounts for amount in pair])
    return constant(np.asarray(flat.data, np.int32).reshape(-1, 2))


def _padded(shape: Dimensions, amounts: Sequence[Sequence[int]]) -> Dimensions:
    return tuple(size + sum(pair) for size, pair in zip(shape, amounts, strict=True))


def transpose(operation: Operation) -> list[Value]:
    """(input, permutation): axes that stay side by side are one; of more than four, one at a time goes to its place."""
    source, shape = operation.inputs[0], operation.shape
    order = per_dimension(operation, 1)
    if sorted(order) != list(range(len(shape))):
        raise operation.fail(f"wanted a permutation of {len(shape)} axes, got {order}")
    result = [shape[axis] for axis in order]
    groups: Groups = []
    for axis in (axis for axis in order if shape[axis] > 1):
        if groups and all(size == 1 for size in shape[groups[-1].stop : axis]) and axis >= groups[-1].stop:
            groups[-1] = range(groups[-1].start, axis + 1)
        else:
            groups.append(range(axis, axis + 1))
    present = sorted(groups, key=lambda group: group.start)
    if len(groups) <= MAX_DIMENSIONS:
        changed = {
            0: operation.under(source, sizes_of(shape, present) or (1,)),
            1: int32_vector([present.index(group) for group in groups] or [0]),
        }
        return operation.emit(changed, [tuple(result)])
    for place, group in enumerate(groups):
        at = present.index(group)
        if at != place:
            parts = present[:place], present[place:at], present[at : at + 1], present[at + 1 :]
            sizes = [math.prod(sizes_of(shape, part)) for part in parts]
            turned = {0: operation.under(source, sizes), 1: int32_vector([0, 2, 1, 3])}
            source = operation.emit(turned, [(sizes[0], sizes[2], sizes[1], sizes[3])])[0]
            present = [*parts[0], *parts[2], *parts[1], *parts[3]]
    return [operation.under(source, result)]


def reshape(operation: Operation) -> list[Value]:
    """(input, shape): where the operand's dimensions stay, no operation at all."""
    source, wanted = operation.inputs[0], [int(size) for size in numbers_of(operation.inputs[1])]
    count, known = math.prod(operation.shape), math.prod(size for size in wanted if size != -1)
    shape = [count // known if size == -1 and known else size for size in wanted]
    if math.prod(shape) != count or wanted.count(-1) > 1:
        raise operation.fail(f"{list(operation.shape)} cannot have the shape {wanted}")
    return [operation.under(source, shape)]


def fill(operation: Operation) -> list[Value]:
    """(shape, number)."""
    shape = tuple(int(size) for size in numbers_of(operation.inputs[0]))
    if min(shape) < 1:
        raise operation.fail(f"sizes must be >= 1, got {list(shape)}")
    return operation.emit({0: int32_vector([math.prod(shape)])}, [shape])
