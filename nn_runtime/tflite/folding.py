# SPDX-License-Identifier: Apache-2.0
"""Shape arithmetic: operators on integer constants are computed at conversion, and shapes are constants.

Exporters write the shape of a tensor with an open size as SHAPE, STRIDED_SLICE, PACK and the like; all shapes are known
when a network is converted.
"""

from __future__ import annotations

import math
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.operators import Kind
from nn_runtime.tflite.tensor_reader import MAX_RANK
from nn_runtime.tflite.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from nn_runtime.operand import Array, Dimensions
    from nn_runtime.tflite.operator import Operator
    from nn_runtime.tflite.terms import Term

Fold: TypeAlias = "Callable[[Operator], Array | list[Array]]"
"""A list where the operator has several outputs."""

_MAX_FOLDED = 1 << 20
_FOLDS: dict[int, Fold] = {}
FOLDED_KINDS = {
    BuiltinOperator.SHAPE: Kind(1),
    BuiltinOperator.RANK: Kind(1),
    BuiltinOperator.RANGE: Kind(3, 2),
    BuiltinOperator.BROADCAST_ARGS: Kind(2),
}
"""Operators that are computed at import, if at all; `operators/shape.py` has the ranges of real numbers."""


def fold(op: Operator) -> list[Array] | None:
    """Return the results of an operator on known integers, as int32; None for any other. Raises BadData."""
    function = _FOLDS.get(op.code)
    if function is None or not _is_shape_arithmetic(op):
        return None
    found = function(op)
    results = found if isinstance(found, list) else [found]
    if any(array.ndim > MAX_RANK for array in results):
        op.fail(f"integer constants must have rank {MAX_RANK} at most, got {results[0].ndim}")
    op.spend(sum(array.size for array in results))
    return [np.asarray(array).astype(np.int32) for array in results]


def new_shape(op: Operator) -> list[int]:
    """Return the shape that a RESHAPE asks for, in which one size may be -1; [0] is an old file's option for rank 0."""
    if op.optional(1) is not None:
        return op.by_dimension(1, "shape")
    shape = op.integer_options("new_shape")
    if shape == [0]:
        return []
    if len(shape) > MAX_RANK:
        op.fail(f"new_shape must have {MAX_RANK} elements at most, got {len(shape)}")
    return shape


def known_shape(op: Operator, shape: Sequence[int], count: int) -> tuple[int, ...]:
    """Return a shape of `count` elements with the size that is -1 filled in."""
    rest = math.prod(size for size in shape if size != -1)
    known = tuple(count // rest if size == -1 and rest else size for size in shape)
    fits = min(known, default=0) >= 0 and math.prod(known) == count
    if not fits or list(shape).count(-1) > 1:
        op.fail(f"{count} elements cannot have shape {list(shape)}")
    return known


def squeezed_shape(op: Operator, shape: Dimensions) -> list[int]:
    """Return a shape without the sizes 1 that a SQUEEZE drops."""
    axes = {op.axis(axis, len(shape)) for axis in op.integer_options("squeeze_dims")}
    if any(shape[axis] != 1 for axis in axes):
        op.fail(f"squeeze_dims must name sizes 1 of {list(shape)}, got {sorted(axes)}")
    axes = axes or {axis for axis, size in enumerate(shape) if size == 1}
    return [size for axis, size in enumerate(shape) if axis not in axes]


def expanded_shape(op: Operator, shape: Dimensions) -> list[int]:
    """Return a shape with the size 1 that an EXPAND_DIMS puts in."""
    axis = op.axis(op.integer(1, "axis"), len(shape) + 1)
    return [*shape[:axis], 1, *shape[axis:]]


def split_sizes(op: Operator, shape: Dimensions) -> tuple[int, list[int]]:
    """Return the axis of a SPLIT_V and the size of each part along it."""
    axis = op.axis(op.integer(2, "axis"), len(shape))
    sizes = op.integers(1, "size_splits")
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = shape[axis] - sum(sizes) - 1
    if len(sizes) != op.output_count or min(sizes, default=0) < 0 or sum(sizes) != shape[axis]:
        op.fail(f"size_splits must be {op.output_count} sizes of sum {shape[axis]}, got {sizes}")
    return axis, sizes


def part_count(op: Operator) -> int:
    """Return the number of parts of a SPLIT, which has an output for each."""
    count = op.option("num_splits")
    op.check_output_count(count)
    return count


class Computed(NamedTuple):
    """Where the run says that an axis begins: the place, how far behind it the end is (0: one element), the stride."""

    begin: Term
    reach: int
    stride: int


class Slices(NamedTuple):
    """What a STRIDED_SLICE takes: begin, end, stride of every axis, the axes it drops, and where it puts new ones.

    Begins and ends count from the front; an end of -1 is past it. `new`: places in the result, in rising order.
    `computed`: of axes from which the run takes the elements first; the places are those in what it took.
    """

    places: list[tuple[int, int, int]]
    dropped: set[int]
    new: list[int]
    computed: dict[int, Computed]

    def result_shape(self, taken: Sequence[int]) -> list[int]:
        """Return the shape of the result of what was taken along every axis."""
        shape = [size for axis, size in enumerate(taken) if axis not in self.dropped]
        for place in self.new:
            shape.insert(place, 1)
        return shape


def strided_slices(op: Operator, shape: Dimensions) -> Slices:
    """Return what a STRIDED_SLICE takes of a shape."""
    begins, ends, strides = op.terms(1, "begin"), op.terms(2, "end"), op.by_dimension(3, "strides")
    ellipses, news, shrinks = (_marked(op, name) for name in ("ellipsis_mask", "new_axis_mask", "shrink_axis_mask"))
    given = range(len(begins))
    own = [entry for entry in given if entry not in ellipses and entry not in news]
    if not len(begins) == len(ends) == len(strides) or len(own) > len(shape):
        lengths = f"{len(begins)}, {len(ends)}, {len(strides)}"
        op.fail(f"begin, end and strides must have one length of at most {len(shape)}, got {lengths}")
    if len(ellipses & set(given)) > 1:
        op.fail(f"one ellipsis is supported at most, got {len(ellipses & set(given))}")
    if 0 in strides:
        op.fail(f"strides must not be 0, got {strides}")
    found = Slices([(0, size, 1) for size in shape], set(), [], {})
    axis = 0
    for entry in given:
        if entry in ellipses:
            axis += len(shape) - len(own)
        elif entry in news:
            found.new.append(axis - len(found.dropped) + len(found.new))
        else:
            first = None if op.option("begin_mask") >> entry & 1 else begins[entry]
            last = None if entry in shrinks or op.option("end_mask") >> entry & 1 else ends[entry]
            if first is not None and first.source is not None:
                reach = 0 if entry in shrinks else _reach(op, first, last, strides[entry], shape[axis])
                found.computed[axis] = Computed(first, reach, strides[entry])
                found.places[axis] = (0, len(range(0, reach, strides[entry])), 1)
            else:
                found.places[axis] = _place(op, first, last, strides[entry], shape[axis])
            if entry in shrinks:
                start = found.places[axis][0]
                found.places[axis] = (start, start + 1, 1)
                found.dropped.add(axis)
            axis += 1
    return found


def _reach(op: Operator, begin: Term, end: Term | None, stride: int, size: int) -> int:
    """Return how far behind a begin that the run computes the end of a slice is."""
    if end is None or (op.option("offset") and end.source is not None):
        op.fail("end (input 2) must be given, and a constant as an offset, where the run computes begin (input 1)")
    is_as_much_more = (begin.source, begin.element) == (end.source, end.element)
    if not is_as_much_more and not op.option("offset"):
        op.fail("end (input 2) must be as much more than begin (input 1) in every run, where the run computes both")
    reach = end.number if op.option("offset") else end.number - begin.number
    if stride < 0 or not 0 < reach <= size:
        op.fail(f"from where the run says 1 to {size} elements must be taken, forwards, got {reach} by {stride}")
    return reach


def _place(op: Operator, first: Term | None, last: Term | None, stride: int, size: int) -> tuple[int, int, int]:
    """Return begin, end and stride of an axis, counted from the front."""
    if last is not None and last.source is not None:
        op.fail("end (input 2) must be a constant where the run does not compute begin")
    begin, end = (None if bound is None else bound.number for bound in (first, last))
    start, stop, _ = slice(begin, end, stride).indices(size)
    if op.option("offset") and end is not None:  # the end counts from where the slice begins
        stop = max(-1, min(start + end, size))
    return start, stop, stride


def _marked(op: Operator, name: str) -> set[int]:
    """Return the numbers of the bits that an option has."""
    return {bit for bit in range(MAX_RANK) if op.option(name) >> bit & 1}


def gather_batches(op: Operator, shape: Dimensions, chosen: Dimensions, axis: int) -> int:
    """Return how many leading dimensions the input of a GATHER shares with its indices."""
    given = op.option("batch_dims")
    count = given + len(chosen) if given < 0 else given
    if not 0 <= count <= min(axis, len(chosen)) or shape[:count] != chosen[:count]:
        shapes = f"{list(shape)} and {list(chosen)}"
        op.fail(f"batch_dims must be dimensions before axis {axis} that {shapes} share, got {given}")
    return count


def _folds(*codes: int) -> Callable[[Fold], Fold]:
    """Register the numpy form of an operator on integer constants."""

    def register(function: Fold) -> Fold:
        _FOLDS.update(dict.fromkeys(codes, function))
        return function

    return register


def _is_shape_arithmetic(op: Operator) -> bool:
    """Tell whether an operator works on known integers, not too many: SHAPE and RANK always do."""
    if op.code in (BuiltinOperator.SHAPE, BuiltinOperator.RANK):
        return True
    if not (op.output_count and op.input_count) or op.output_tensor().type not in (TensorType.INT32, TensorType.INT64):
        return False
    if op.option("fused_activation_function"):
        return False
    if not all(op.is_constant(position) for position in range(op.input_count)):
        return False
    return all(array.dtype == np.int32 for array in _arrays(op)) and sum(map(np.size, _arrays(op))) <= _MAX_FOLDED


def _arrays(op: Operator) -> Iterable[Array]:
    return (op.array(position, f"input {position}") for position in range(op.input_count))


@_folds(BuiltinOperator.SHAPE)
def _fold_shape(op: Operator) -> Array:
    return np.array(op.input(0, "input").shape or (), np.int32)


@_folds(BuiltinOperator.RANK)
def _fold_rank(op: Operator) -> Array:
    return np.array(op.input(0, "input").rank, np.int32)


@_folds(BuiltinOperator.PACK)
def _fold_pack(op: Operator) -> Array:
    arrays = list(_arrays(op))
    if len({array.shape for array in arrays}) != 1:
        op.fail("the inputs must have one shape")
    return np.stack(arrays, op.axis(op.option("axis"), arrays[0].ndim + 1))


@_folds(BuiltinOperator.CONCATENATION)
def _fold_concatenation(op: Operator) -> Array:
    arrays = list(_arrays(op))
    axis = op.axis(op.option("axis"), arrays[0].ndim)
    if len({(*array.shape[:axis], -1, *array.shape[axis + 1 :]) for array in arrays}) != 1:
        op.fail(f"the inputs must have one shape but for axis {axis}, got {[list(array.shape) for array in arrays]}")
    return np.concatenate(arrays, axis)


@_folds(BuiltinOperator.STRIDED_SLICE)
def _fold_strided_slice(op: Operator) -> Array:
    data = op.array(0, "input")
    slices = strided_slices(op, data.shape)
    taken = data[tuple(slice(begin, None if end < 0 else end, stride) for begin, end, stride in slices.places)]
    if any(taken.shape[axis] != 1 for axis in slices.dropped):
        op.fail("an axis that is dropped must have one element")
    return taken.reshape(slices.result_shape(taken.shape))


@_folds(BuiltinOperator.CAST)
def _fold_cast(op: Operator) -> Array:
    return op.array(0, "input")


@_folds(BuiltinOperator.NEG)
def _fold_neg(op: Operator) -> Array:
    return -op.array(0, "input")


@_folds(BuiltinOperator.UNSORTED_SEGMENT_PROD)
def _fold_unsorted_segment_prod(op: Operator) -> Array:
    """Keras finds the sizes of merged dimensions by it."""
    data, places, count = op.array(0, "data"), op.array(1, "segment_ids"), op.integer(2, "num_segments")
    if places.shape != data.shape[: places.ndim] or (places.size and int(places.max()) >= count):
        op.fail(f"segment_ids (input 1) must be below {count}, of a shape that {list(data.shape)} begins with")
    if not 0 <= count <= _MAX_FOLDED:
        op.fail(f"at most {_MAX_FOLDED} integer constants are computed, got {count} segments")
    result = np.ones((count, *data.shape[places.ndim :]), np.int32)
    np.multiply.at(result, places[places >= 0], data[places >= 0])
    return result


@_folds(BuiltinOperator.RESHAPE)
def _fold_reshape(op: Operator) -> Array:
    """Give the file's shape where nothing else says one."""
    data = op.array(0, "input")
    shape = new_shape(op)
    if not shape and op.optional(1) is None:
        shape = list(op.output_tensor().shape)
    return data.reshape(known_shape(op, shape, data.size))


@_folds(BuiltinOperator.SQUEEZE)
def _fold_squeeze(op: Operator) -> Array:
    data = op.array(0, "input")
    return data.reshape(squeezed_shape(op, data.shape))


@_folds(BuiltinOperator.EXPAND_DIMS)
def _fold_expand_dims(op: Operator) -> Array:
    data = op.array(0, "input")
    return data.reshape(expanded_shape(op, data.shape))


@_folds(BuiltinOperator.SPLIT_V)
def _fold_split_v(op: Operator) -> list[Array]:
    data = op.array(0, "value")
    axis, sizes = split_sizes(op, data.shape)
    return np.split(data, np.cumsum(sizes)[:-1], axis)


@_folds(BuiltinOperator.SPLIT)
def _fold_split(op: Operator) -> list[Array]:
    data = op.array(1, "value")
    axis = op.axis(op.integer(0, "axis"), data.ndim)
    count = part_count(op)
    if data.shape[axis] % count:
        op.fail(f"{data.shape[axis]} integer constants cannot be split into {count} equal parts")
    return np.split(data, count, axis)


@_folds(BuiltinOperator.UNPACK)
def _fold_unpack(op: Operator) -> list[Array]:
    data = op.array(0, "value")
    axis = op.axis(op.option("axis"), data.ndim)
    if data.shape[axis] != op.output_count:
        op.fail(f"needs {data.shape[axis]} outputs, one for each index of axis {axis}, got {op.output_count}")
    return list(np.moveaxis(data, axis, 0))


@_folds(BuiltinOperator.GATHER)
def _fold_gather(op: Operator) -> Array:
    data, indices = op.array(0, "params"), op.array(1, "indices")
    axis = op.axis(op.option("axis"), data.ndim)
    batches = gather_batches(op, data.shape, indices.shape, axis)
    shape = (*data.shape[:axis], *indices.shape[batches:], *data.shape[axis + 1 :])
    if math.prod(shape) > _MAX_FOLDED:
        op.fail(f"at most {_MAX_FOLDED} integer constants are computed, got {list(shape)}")
    if indices.size and not 0 <= int(indices.min()) <= int(indices.max()) < data.shape[axis]:
        op.fail(f"indices (input 1) must be in [0, {data.shape[axis]})")
    if 0 in shape:
        return np.zeros(shape, np.int32)
    count, between = math.prod(data.shape[:batches]), math.prod(data.shape[batches:axis])
    blocks = data.reshape(count, between, data.shape[axis], -1)
    own = indices.reshape(count, 1, -1)
    return blocks[np.arange(count)[:, None, None], np.arange(between)[:, None], own].reshape(shape)


@_folds(BuiltinOperator.SLICE)
def _fold_slice(op: Operator) -> Array:
    data, begins, sizes = op.array(0, "input"), op.by_dimension(1, "begin"), op.by_dimension(2, "size")
    places = list(zip(begins, sizes, data.shape, strict=False))
    bounds = [(begin, whole if size == -1 else begin + size, whole) for begin, size, whole in places]
    fits = len(begins) == len(sizes) == data.ndim and all(0 <= begin <= end <= whole for begin, end, whole in bounds)
    if not fits:
        op.fail(f"begin and size must fit {list(data.shape)}, got {begins} and {sizes}")
    return data[tuple(slice(begin, end) for begin, end, _ in bounds)]


@_folds(BuiltinOperator.RANGE)
def _fold_range(op: Operator) -> Array:
    start, limit, delta = (op.integer(at, name) for at, name in enumerate(("start", "limit", "delta")))
    if delta == 0 or len(range(start, limit, delta)) > _MAX_FOLDED:
        op.fail(f"a range must have at most {_MAX_FOLDED} elements, got {start} to {limit} by {delta}")
    return np.arange(start, limit, delta, dtype=np.int32)


@_folds(BuiltinOperator.BROADCAST_ARGS)
def _fold_broadcast_args(op: Operator) -> Array:
    first, second = op.by_dimension(0, "shape0"), op.by_dimension(1, "shape1")
    aligned = zip_longest(reversed(first), reversed(second), fillvalue=1)
    pairs = list(aligned)[::-1]
    if any(one != other and 1 not in (one, other) for one, other in pairs):
        op.fail(f"the shapes must go together, got {first} and {second}")
    return np.array([other if one == 1 else one for one, other in pairs], np.int32)


def _of_pairs(function: np.ufunc) -> Fold:
    """Return the fold of a function of two integers."""

    def fold_pairs(op: Operator) -> Array:
        first, second = op.array(0, "input0"), op.array(1, "input1")
        try:
            shape = np.broadcast_shapes(first.shape, second.shape)
        except ValueError:
            op.fail(f"the shapes must go together, got {list(first.shape)} and {list(second.shape)}")
        if math.prod(shape) > _MAX_FOLDED:
            op.fail(f"at most {_MAX_FOLDED} integer constants are computed, got {list(shape)}")
        if function in (np.floor_divide, np.mod) and not second.all():
            op.fail("input1 (input 1) must not be 0")
        with np.errstate(over="ignore"):  # -2^31 / -1 wraps, like other results
            result: Array = function(first, second)
        return result

    return fold_pairs


_FOLDS.update(
    {
        BuiltinOperator.ADD: _of_pairs(np.add),
        BuiltinOperator.SUB: _of_pairs(np.subtract),
        BuiltinOperator.MUL: _of_pairs(np.multiply),
        BuiltinOperator.MAXIMUM: _of_pairs(np.maximum),
        BuiltinOperator.MINIMUM: _of_pairs(np.minimum),
        BuiltinOperator.FLOOR_DIV: _of_pairs(np.floor_divide),
        BuiltinOperator.FLOOR_MOD: _of_pairs(np.mod),
    }
)


@_folds(BuiltinOperator.REDUCE_PROD)
def _fold_reduce_prod(op: Operator) -> Array:
    data = op.array(0, "input")
    axes = tuple(sorted({op.axis(axis, data.ndim) for axis in op.integers(1, "axes")}))
    result: Array = np.prod(data, axes, dtype=np.int32, keepdims=True)
    return result if op.option("keep_dims") else result.squeeze(axes)
