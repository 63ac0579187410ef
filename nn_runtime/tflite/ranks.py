# SPDX-License-Identifier: Apache-2.0
"""Operations on tensors of more than four dimensions, which NNAPI has not, as the same operations on four at most.

Neighbouring dimensions that an operation treats alike are one dimension to it, and those of size 1 are none: turning
the last two of [1, 28, 28, 2, 58] is turning those of [784, 2, 58]. What still has too many is done in turns, an axis
or a block of axes at a time. An operand of such a tensor has the dimensions of `operand_dimensions`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.errors import BadData
from nn_runtime.operand import is_tensor
from nn_runtime.tflite.booleans import as_booleans, as_integers
from nn_runtime.tflite.values import MAX_DIMENSIONS, Value, constant, int32, int32_vector

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nn_runtime.operand import Dimensions
    from nn_runtime.tflite.graph_builder import GraphBuilder

_Rule: TypeAlias = "Callable[[_Operation], list[Value]]"
_Groups: TypeAlias = "list[range]"
"""Neighbouring dimensions that become one; dimensions of size 1 may be in none."""


def is_beyond(code: OperationCode, inputs: Sequence[Value]) -> bool:
    """Tell whether an operation takes or makes a tensor of too many dimensions."""
    if code in (OperationCode.IF, OperationCode.WHILE):
        return False  # they hand operands on as they are
    ranks = [value.rank for value in inputs if is_tensor(value.type)]
    if code == OperationCode.GATHER:
        ranks.append(inputs[0].rank + max(inputs[2].rank, 1) - 1)
    elif code == OperationCode.PACK:
        ranks = [rank + 1 for rank in ranks]
    elif code in (OperationCode.RESHAPE, OperationCode.FILL):
        ranks.append(_numbers(inputs[0 if code == OperationCode.FILL else 1]).size)
    return max(ranks, default=0) > MAX_DIMENSIONS


def emit_beyond(
    builder: GraphBuilder, code: OperationCode, inputs: Sequence[Value], results: Sequence[Value]
) -> list[Value]:
    """Append what does an operation on tensors of any rank; raises BadData for one that has no such form."""
    for value in inputs:
        if value.data is not None and not value.data.size:
            raise BadData(f"{code.name}: an empty input of shape {list(value.shape or ())} is not supported")
    rule = _RULES.get(code)
    if rule is None:
        shapes = [list(value.shape or ()) for value in inputs if value.rank > MAX_DIMENSIONS]
        raise BadData(f"{code.name}: at most {MAX_DIMENSIONS} dimensions are supported, got {shapes[0]}")
    return rule(_Operation(builder, code, list(inputs), list(results)))


@dataclass
class _Operation:
    """An operation as it is asked for, and the means to append another in its place."""

    builder: GraphBuilder
    code: OperationCode
    inputs: list[Value]
    results: list[Value]

    @property
    def shape(self) -> Dimensions:
        """The shape of the first input."""
        return self.inputs[0].shape or ()

    def emit(
        self, changed: dict[int, Value], shapes: Sequence[Dimensions], code: OperationCode | None = None
    ) -> list[Value]:
        """Append the operation with some inputs changed; return its outputs under these shapes."""
        inputs = [changed.get(position, value) for position, value in enumerate(self.inputs)]
        outputs = self.builder.emit(self.code if code is None else code, inputs, self.results)
        return [self.under(value, shape) for value, shape in zip(outputs, shapes, strict=True)]

    def under(self, value: Value, shape: Sequence[int]) -> Value:
        """Return a value under another shape of as many elements."""
        return self.builder.reshaped(value, tuple(shape))

    def again(self, *inputs: Value) -> list[Value]:
        """Append the operation with other inputs, whatever their ranks."""
        return self.builder.emit(self.code, inputs, self.results)

    def fail(self, reason: str) -> BadData:
        """Return the error of an operation that cannot be."""
        return BadData(f"{self.code.name}: {reason}")


def _numbers(value: Value) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Return the integers of a constant; raises BadData."""
    if value.data is None:
        raise BadData("shapes, axes and bounds must be constants")
    return np.asarray(value.data, np.int64)


def _number(value: Value) -> int:
    return int(_numbers(value).reshape(-1)[0])


def _per_dimension(operation: _Operation, position: int) -> list[int]:
    """Return an input that has a number for each dimension of the first."""
    numbers = [int(number) for number in _numbers(operation.inputs[position]).reshape(-1)]
    if len(numbers) != len(operation.shape):
        raise operation.fail(f"input {position} must have {len(operation.shape)} elements, got {len(numbers)}")
    return numbers


def _axis(operation: _Operation, axis: int) -> int:
    rank = len(operation.shape)
    if not -rank <= axis < rank:
        raise operation.fail(f"axis must be in [{-rank}, {rank}), got {axis}")
    return axis % rank


def _around(shape: Dimensions, axis: int) -> Dimensions:
    """Return a shape as [before, axis, after]."""
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


def _runs(kinds: Sequence[object]) -> _Groups:
    """Return the groups of neighbours of one kind; None is a dimension of size 1, which goes with any."""
    groups: _Groups = []
    last: object = None
    for axis, kind in enumerate(kinds):
        if groups and (kind is None or last is None or kind == last):
            groups[-1] = range(groups[-1].start, axis + 1)
        else:
            groups.append(range(axis, axis + 1))
        last = last if kind is None else kind
    return groups


@dataclass(frozen=True)
class _Block:
    """Neighbouring dimensions that become one: of those with anything to do, `axis` alone, and behind it whole ones."""

    size: int
    axis: int
    rest: int
    """Elements behind each index of the axis."""


def _blocks(shape: Dimensions, touched: Sequence[bool]) -> list[_Block]:
    """Return blocks that begin at touched dimensions; what comes before the first is one too, unless its size is 1."""
    starts = [axis for axis, is_touched in enumerate(touched) if is_touched]
    if not starts or math.prod(shape[: starts[0]]) > 1:
        starts = [0, *starts]
    stops = [*starts[1:], len(shape)]
    return [
        _Block(math.prod(shape[start:stop]), start, math.prod(shape[start + 1 : stop]))
        for start, stop in zip(starts, stops, strict=True)
    ]


def _sizes(shape: Dimensions, groups: _Groups) -> Dimensions:
    return tuple(math.prod(shape[axis] for axis in group) for group in groups)


def _first_alone(touched: Sequence[bool]) -> tuple[set[int], set[int]]:
    """Return the first touched axis, and the others."""
    first, *others = (axis for axis, is_touched in enumerate(touched) if is_touched)
    return {first}, set(others)


def _elementwise(operation: _Operation) -> list[Value]:
    """One function of elements, broadcast or not."""
    tensors = {position: value for position, value in enumerate(operation.inputs) if is_tensor(value.type)}
    shapes = [value.shape or () for value in tensors.values()]
    try:
        whole = np.broadcast_shapes(*shapes)
    except ValueError:
        raise operation.fail(f"shapes {', '.join(str(list(shape)) for shape in shapes)} do not go together") from None
    aligned = [(1,) * (len(whole) - len(shape)) + shape for shape in shapes]
    kinds = [None if size == 1 else tuple(shape[axis] == 1 for shape in aligned) for axis, size in enumerate(whole)]
    groups = _runs(kinds)
    if len(groups) > MAX_DIMENSIONS:
        repeated = {position: _repeated(operation, value, whole) for position, value in tensors.items()}
        return operation.again(*(repeated.get(at, value) for at, value in enumerate(operation.inputs)))
    changed = {
        position: operation.under(value, _sizes(shape, groups))
        for (position, value), shape in zip(tensors.items(), aligned, strict=True)
    }
    return operation.emit(changed, [whole])


def _repeated(operation: _Operation, value: Value, whole: Dimensions) -> Value:
    """Return a tensor broadcast to a shape."""
    shape = (1,) * (len(whole) - value.rank) + (value.shape or ())
    if shape == whole:
        return value
    multiples = int32_vector([size // own for own, size in zip(shape, whole, strict=True)])
    source = as_integers(operation.builder, operation.under(value, shape))
    tiled = operation.builder.emit(OperationCode.TILE, [source, multiples], [replace(source, shape=None, data=None)])[0]
    return as_booleans(operation.builder, tiled) if value.type == OperandCode.TENSOR_BOOL8 else tiled


def _along_axis(position: int | None, dropped: bool = False) -> _Rule:
    """Return the rule of what is done along an axis, the last one without a position; the result may lack it."""

    def rule(operation: _Operation) -> list[Value]:
        shape = operation.shape
        given = -1 if position is None else _number(operation.inputs[position])
        axis = _axis(operation, given)
        before, size, after = _around(shape, axis)
        changed = {
            0: operation.under(operation.inputs[0], (before, size) if position is None else (before, size, after))
        }
        if position is not None:
            like = operation.inputs[position]
            changed[position] = int32(1) if not is_tensor(like.type) else int32_vector([1])
        result = (*shape[:axis], *shape[axis + 1 :]) if dropped else shape
        return operation.emit(changed, [result])

    return rule


def _largest(operation: _Operation) -> list[Value]:
    """TOPK_V2: (input, k) along the last axis."""
    *rest, size = operation.shape
    result = (*rest, _number(operation.inputs[1]))
    return operation.emit({0: operation.under(operation.inputs[0], (math.prod(rest), size))}, [result, result])


def _concatenation(operation: _Operation) -> list[Value]:
    """(inputs ..., axis): what lies behind the axis belongs to it."""
    *tensors, last = operation.inputs
    axis = _axis(operation, _number(last))
    shapes = [value.shape or () for value in tensors]
    rests = {(*shape[:axis], *shape[axis + 1 :]) for shape in shapes}
    if len(rests) > 1 or any(len(shape) != len(shapes[0]) for shape in shapes):
        raise operation.fail(f"the inputs must agree but for axis {axis}, got {[list(shape) for shape in shapes]}")
    before = math.prod(shapes[0][:axis])
    changed = {
        position: operation.under(value, (before, math.prod(value.shape or ()) // before))
        for position, value in enumerate(tensors)
    }
    changed[len(tensors)] = int32(1)
    joined = sum(shape[axis] for shape in shapes)
    return operation.emit(changed, [(*shapes[0][:axis], joined, *shapes[0][axis + 1 :])])


def _split(operation: _Operation) -> list[Value]:
    """(input, axis, count)."""
    shape, count = operation.shape, _number(operation.inputs[2])
    axis = _axis(operation, _number(operation.inputs[1]))
    if count < 1 or shape[axis] % count:
        raise operation.fail(f"axis {axis} of size {shape[axis]} cannot be split in {count}")
    before, size, after = _around(shape, axis)
    changed = {0: operation.under(operation.inputs[0], (before, size * after)), 1: int32(1)}
    return operation.emit(changed, [(*shape[:axis], size // count, *shape[axis + 1 :])] * count)


def _pack(operation: _Operation) -> list[Value]:
    """(axis, inputs ...) of one shape."""
    axis, tensors = _number(operation.inputs[0]), operation.inputs[1:]
    shape = tensors[0].shape or ()
    if any(value.shape != tensors[0].shape for value in tensors) or not 0 <= axis <= len(shape):
        raise operation.fail(f"the inputs must have one shape, got {[list(value.shape or ()) for value in tensors]}")
    rows = math.prod(shape[:axis]), math.prod(shape[axis:])
    changed = {position: operation.under(value, rows) for position, value in enumerate(tensors, 1)}
    return operation.emit({0: int32(1), **changed}, [(*shape[:axis], len(tensors), *shape[axis:])])


def _gather(operation: _Operation) -> list[Value]:
    """(input, axis, indices)."""
    shape, indices = operation.shape, operation.inputs[2]
    axis = _axis(operation, _number(operation.inputs[1]))
    chosen = indices.dimensions if indices.rank <= MAX_DIMENSIONS else indices.shape
    changed = {
        0: operation.under(operation.inputs[0], _around(shape, axis)),
        1: int32(1),
        2: operation.under(indices, (math.prod(chosen or ()),)),
    }
    return operation.emit(changed, [(*shape[:axis], *(chosen or ()), *shape[axis + 1 :])])


def _reduction(operation: _Operation) -> list[Value]:
    """(input, axes, whether they are kept): reduced and kept dimensions are in turn one each."""
    source, shape = operation.inputs[0], operation.shape
    axes = {_axis(operation, int(axis)) for axis in _numbers(operation.inputs[1]).reshape(-1)}
    is_kept = bool(_number(operation.inputs[2]))
    groups = _runs([None if size == 1 else axis in axes for axis, size in enumerate(shape)])
    result = [1 if axis in axes else size for axis, size in enumerate(shape)]
    if not is_kept:
        result = [size for axis, size in enumerate(result) if axis not in axes] or [1]
    reduced = [number for number, group in enumerate(groups) if any(axis in axes and shape[axis] > 1 for axis in group)]
    if not reduced:
        return [operation.under(source, result)]
    if len(groups) > MAX_DIMENSIONS:  # some of the axes now, the others after them
        now = set(groups[reduced[0]])
        kept = replace(operation.inputs[2], data=np.ones((), operation.inputs[2].data.dtype))  # type: ignore[union-attr]
        source = operation.again(source, int32_vector(sorted(axes & now)), kept)[0]
        source = operation.again(source, int32_vector(sorted(axes - now)), kept)[0]
        return [operation.under(source, result)]
    changed = {0: operation.under(source, _sizes(shape, groups)), 1: int32_vector(reduced)}
    return operation.emit(changed, [tuple(result)])


def _tile(operation: _Operation) -> list[Value]:
    """(input, multiples)."""
    source, multiples = operation.inputs[0], _per_dimension(operation, 1)
    if min(multiples) < 1:
        raise operation.fail(f"multiples must be >= 1, got {multiples}")
    touched = [multiple != 1 for multiple in multiples]
    blocks = _blocks(operation.shape, touched)
    if len(blocks) > MAX_DIMENSIONS:
        now, later = _first_alone(touched)
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


def _slice(operation: _Operation) -> list[Value]:
    """(input, begin, size); a size -1 goes to the end."""
    source, shape = operation.inputs[0], operation.shape
    begins, sizes = _per_dimension(operation, 1), _per_dimension(operation, 2)
    sizes = [whole - begin if size == -1 else size for begin, size, whole in zip(begins, sizes, shape, strict=True)]
    for begin, size, whole in zip(begins, sizes, shape, strict=True):
        if begin < 0 or size < 0 or begin + size > whole:
            raise operation.fail(f"begin {begins} and size {sizes} are not within {list(shape)}")
    touched = [size != whole for size, whole in zip(sizes, shape, strict=True)]
    blocks = _blocks(shape, touched)
    if len(blocks) > MAX_DIMENSIONS:
        for axes in _first_alone(touched):
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


def _strided_slice(operation: _Operation) -> list[Value]:
    """(input, begin, end, strides, masks of begin, end and dropped axes): whole steps by SLICE, others axis by axis."""
    source, shape = operation.inputs[0], operation.shape
    begin_mask, end_mask, dropped = (_number(value) for value in operation.inputs[4:7])
    bounds = zip(*(_per_dimension(operation, position) for position in (1, 2, 3)), strict=True)
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
    source = operation.builder.emit(
        OperationCode.SLICE, [source, int32_vector(begins), int32_vector(sizes)], operation.results
    )[0]
    for axis, indices in enumerate(taken):
        if not plain[axis]:
            source = _every(operation, source, axis, indices)
    return [operation.under(source, [len(one) for axis, one in enumerate(taken) if not dropped >> axis & 1] or [1])]


def _every(operation: _Operation, source: Value, axis: int, indices: range) -> Value:
    """Return the indices of one axis by STRIDED_SLICE."""
    shape = source.shape or ()
    before, size, after = _around(shape, axis)
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


def _pad(operation: _Operation) -> list[Value]:
    """PAD, PAD_V2: (input, [before, after] by dimension, ...)."""
    source, shape, rest = operation.inputs[0], operation.shape, operation.inputs[2:]
    amounts = _paddings(operation)
    touched = [any(pair) for pair in amounts]
    blocks = _blocks(shape, touched)
    if len(blocks) > MAX_DIMENSIONS:
        for axes in _first_alone(touched):
            chosen = [pair if axis in axes else [0, 0] for axis, pair in enumerate(amounts)]
            source = operation.again(source, _pairs(chosen), *rest)[0]
        return [source]
    borders = [[amount * block.rest for amount in amounts[block.axis]] for block in blocks]
    changed = {
        0: operation.under(source, [block.size for block in blocks]),
        1: _pairs(borders),
    }
    return operation.emit(changed, [_padded(shape, amounts)])


def _mirror_pad(operation: _Operation) -> list[Value]:
    """(input, [before, after] by dimension, mode): padded dimensions stay alone."""
    shape, amounts = operation.shape, _paddings(operation)
    kinds = [(axis if any(pair) else None if shape[axis] == 1 else "whole") for axis, pair in enumerate(amounts)]
    groups = _runs(kinds)
    if len(groups) > MAX_DIMENSIONS:
        raise operation.fail(f"paddings {amounts} of {list(shape)} are not supported")
    borders = [next((amounts[axis] for axis in group if any(amounts[axis])), [0, 0]) for group in groups]
    changed = {
        0: operation.under(operation.inputs[0], _sizes(shape, groups)),
        1: _pairs(borders),
    }
    return operation.emit(changed, [_padded(shape, amounts)])


def _paddings(operation: _Operation) -> list[list[int]]:
    amounts = _numbers(operation.inputs[1])
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


def _transpose(operation: _Operation) -> list[Value]:
    """(input, permutation): axes that stay side by side are one; of more than four, one at a time goes to its place."""
    source, shape = operation.inputs[0], operation.shape
    order = _per_dimension(operation, 1)
    if sorted(order) != list(range(len(shape))):
        raise operation.fail(f"wanted a permutation of {len(shape)} axes, got {order}")
    result = [shape[axis] for axis in order]
    groups: _Groups = []
    for axis in (axis for axis in order if shape[axis] > 1):
        if groups and all(size == 1 for size in shape[groups[-1].stop : axis]) and axis >= groups[-1].stop:
            groups[-1] = range(groups[-1].start, axis + 1)
        else:
            groups.append(range(axis, axis + 1))
    present = sorted(groups, key=lambda group: group.start)
    if len(groups) <= MAX_DIMENSIONS:
        changed = {
            0: operation.under(source, _sizes(shape, present) or (1,)),
            1: int32_vector([present.index(group) for group in groups] or [0]),
        }
        return operation.emit(changed, [tuple(result)])
    for place, group in enumerate(groups):
        at = present.index(group)
        if at != place:
            parts = present[:place], present[place:at], present[at : at + 1], present[at + 1 :]
            sizes = [math.prod(_sizes(shape, part)) for part in parts]
            turned = {0: operation.under(source, sizes), 1: int32_vector([0, 2, 1, 3])}
            source = operation.emit(turned, [(sizes[0], sizes[2], sizes[1], sizes[3])])[0]
            present = [*parts[0], *parts[2], *parts[1], *parts[3]]
    return [operation.under(source, result)]


def _reshape(operation: _Operation) -> list[Value]:
    """(input, shape): where the operand's dimensions stay, no operation at all."""
    source, wanted = operation.inputs[0], [int(size) for size in _numbers(operation.inputs[1])]
    count, known = math.prod(operation.shape), math.prod(size for size in wanted if size != -1)
    shape = [count // known if size == -1 and known else size for size in wanted]
    if math.prod(shape) != count or wanted.count(-1) > 1:
        raise operation.fail(f"{list(operation.shape)} cannot have the shape {wanted}")
    return [operation.under(source, shape)]


def _fill(operation: _Operation) -> list[Value]:
    """(shape, number)."""
    shape = tuple(int(size) for size in _numbers(operation.inputs[0]))
    if min(shape) < 1:
        raise operation.fail(f"sizes must be >= 1, got {list(shape)}")
    return operation.emit({0: int32_vector([math.prod(shape)])}, [shape])


_ELEMENTWISE = (
    "ABS ADD CAST DEQUANTIZE DIV ELU EQUAL EXP FLOOR GREATER GREATER_EQUAL HARD_SWISH LESS LESS_EQUAL LOG LOGICAL_AND "
    "LOGICAL_NOT LOGICAL_OR LOGISTIC MAXIMUM MINIMUM MUL NEG NOT_EQUAL POW PRELU QUANTIZE RELU RELU1 RELU6 RSQRT "
    "SELECT SIN SQRT SUB TANH"
)
_REDUCTIONS = "MEAN REDUCE_ALL REDUCE_ANY REDUCE_MAX REDUCE_MIN REDUCE_PROD REDUCE_SUM"
_RULES: dict[OperationCode, _Rule] = {
    **{OperationCode[name]: _elementwise for name in _ELEMENTWISE.split()},
    **{OperationCode[name]: _reduction for name in _REDUCTIONS.split()},
    OperationCode.ARGMAX: _along_axis(1, dropped=True),
    OperationCode.ARGMIN: _along_axis(1, dropped=True),
    OperationCode.CONCATENATION: _concatenation,
    OperationCode.FILL: _fill,
    OperationCode.GATHER: _gather,
    OperationCode.L2_NORMALIZATION: _along_axis(None),
    OperationCode.LOG_SOFTMAX: _along_axis(2),
    OperationCode.MIRROR_PAD: _mirror_pad,
    OperationCode.PACK: _pack,
    OperationCode.PAD: _pad,
    OperationCode.PAD_V2: _pad,
    OperationCode.RESHAPE: _reshape,
    OperationCode.REVERSE: _along_axis(1),
    OperationCode.SLICE: _slice,
    OperationCode.SOFTMAX: _along_axis(None),
    OperationCode.SPLIT: _split,
    OperationCode.STRIDED_SLICE: _strided_slice,
    OperationCode.TILE: _tile,
    OperationCode.TOPK_V2: _largest,
    OperationCode.TRANSPOSE: _transpose,
}
