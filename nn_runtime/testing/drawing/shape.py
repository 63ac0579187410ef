# SPDX-License-Identifier: Apache-2.0
"""Operations that move elements about: reshaping, slicing, padding, joining."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.operand import FLOAT_TYPES, element_count
from nn_runtime.testing.drawing import REPEATED, Drawn, Result, draws
from nn_runtime.testing.tolerances import MEDIUM, STRICT

if TYPE_CHECKING:
    from nn_runtime.testing.drawing import Drawing, Value

_NCHW_AXES = (2, 3)
_NHWC_AXES = (1, 2)


def _axis(d: Drawing, rank: int) -> int:
    """Return an axis, sometimes counted from the end."""
    axis = int(d.rng.integers(rank))
    return axis - rank if d.chance(0.3) else axis


def _divisors(size: int) -> list[int]:
    return [count for count in range(1, size + 1) if size % count == 0]


@draws(OperationCode.RESHAPE, criterion=STRICT, exact=True)
def _reshape(d: Drawing) -> Drawn:
    source = d.tensor()
    left, shape = element_count(source.dimensions), []
    for _ in range(int(d.rng.integers(1, 4))):
        shape.append(d.choice(_divisors(left)))
        left //= shape[-1]
    shape.append(left)
    d.rng.shuffle(shape)
    if d.chance(0.3):
        shape[int(d.rng.integers(len(shape)))] = -1
    return Drawn({"input": source, "shape": d.constant(shape)}, (d.same(source),))


@draws(OperationCode.SQUEEZE, criterion=STRICT, exact=True)
def _squeeze(d: Drawing) -> Drawn:
    source = d.tensor(where=lambda value: 1 in value.dimensions)
    axes = [axis for axis, size in enumerate(source.dimensions) if size == 1]
    kept = axes[: d.integer(1, len(axes))]
    return Drawn({"input": source, "axes": d.constant(kept)}, (d.same(source),))


@draws(OperationCode.EXPAND_DIMS, criterion=STRICT, exact=True)
def _expand_dims(d: Drawing) -> Drawn:
    source = d.tensor((1, 3))
    return Drawn({"input": source, "axis": _axis(d, len(source.dimensions) + 1)}, (d.same(source),))


@draws(OperationCode.TRANSPOSE, criterion=STRICT, exact=True)
def _transpose(d: Drawing) -> Drawn:
    source = d.tensor()
    permutation = d.constant(d.rng.permutation(len(source.dimensions)))
    return Drawn({"input": source, "perm": permutation}, (d.same(source),))


@draws(OperationCode.TILE, criterion=STRICT, exact=True)
def _tile(d: Drawing) -> Drawn:
    source = d.tensor()
    multiples = d.constant([d.integer(1, 4) for _ in source.dimensions])
    return Drawn({"input": source, "multiples": multiples}, (d.same(source),))


@draws(OperationCode.PAD, OperationCode.PAD_V2, OperationCode.MIRROR_PAD, criterion=STRICT, exact=True)
def _pad(d: Drawing) -> Drawn:
    source = d.tensor()
    most = [size - 1 if d.code == OperationCode.MIRROR_PAD else 4 for size in source.dimensions]
    paddings = d.constant([[d.integer(0, min(4, size)), d.integer(0, min(4, size))] for size in most])
    if d.code == OperationCode.MIRROR_PAD:
        return Drawn({"input": source, "paddings": paddings, "mode": int(d.rng.integers(2))}, (d.same(source),))
    if d.code == OperationCode.PAD:
        return Drawn({"input": source, "paddings": paddings}, (d.same(source),))
    value = d.number(-2, 2) if d.data_type in FLOAT_TYPES else source.zero_point
    return Drawn({"input": source, "paddings": paddings, "pad_value": value}, (d.same(source),))


@draws(OperationCode.REVERSE, criterion=STRICT, exact=True)
def _reverse(d: Drawing) -> Drawn:
    source = d.tensor()
    axis = int(d.rng.integers(len(source.dimensions)))
    return Drawn({"input": source, "axis": d.constant([axis])}, (d.same(source),))


@draws(OperationCode.SLICE, criterion=STRICT, exact=True)
def _slice(d: Drawing) -> Drawn:
    source = d.tensor()
    begins = [d.integer(0, size - 1) for size in source.dimensions]
    sizes = [
        -1 if d.chance(0.2) else d.integer(1, size - begin)
        for begin, size in zip(begins, source.dimensions, strict=True)
    ]
    return Drawn({"input": source, "begin": d.constant(begins), "size": d.constant(sizes)}, (d.same(source),))


@draws(OperationCode.STRIDED_SLICE, criterion=STRICT, exact=True)
def _strided_slice(d: Drawing) -> Drawn:
    source = d.tensor()
    begins, ends, strides, shrunk = [], [], [], 0
    for axis, size in enumerate(source.dimensions):
        first, last = sorted((int(d.rng.integers(size)), int(d.rng.integers(size))))
        backwards = d.chance(0.3)
        if d.chance(0.15):
            begins.append(first)
            ends.append(first + 1)
            strides.append(1)
            shrunk |= 1 << axis
            continue
        # One before the first element cannot be said but by a mask: -1 counts from the end.
        begins.append(last if backwards else first)
        ends.append(first - 1 - size if backwards else last + 1)
        strides.append((-1 if backwards else 1) * d.integer(1, 3))
    masks = [0 if shrunk else int(d.rng.integers(2 ** len(begins))) * d.chance(0.3) for _ in range(2)]
    return Drawn(
        {
            "input": source,
            "begin": d.constant(begins),
            "end": d.constant(ends),
            "strides": d.constant(strides),
            "begin_mask": masks[0],
            "end_mask": masks[1],
            "shrink_axis_mask": shrunk,
        },
        (d.same(source),),
    )


@draws(OperationCode.CONCATENATION, criterion=MEDIUM, exact=True)
def _concatenation(d: Drawing) -> Drawn:
    first = d.tensor()
    axis = int(d.rng.integers(len(first.dimensions)))
    parts = [first]
    for _ in range(d.integer(0, 2)):
        size = max(1, d.integer(1, max(1, min(d.limit.dimension, 2 * first.dimensions[axis]))))
        dims = (*first.dimensions[:axis], size, *first.dimensions[axis + 1 :])
        parts.append(d.like(first, dims=dims) if d.chance() else d.new(dims))
    same = all(part.scale == first.scale and part.zero_point == first.zero_point for part in parts)
    output = d.same(first) if same else d.scaled(*_joint_span(parts))
    return Drawn({REPEATED: parts, "axis": axis}, (output,))


def _joint_span(parts: list[Value]) -> tuple[float, float]:
    return min(part.span[0] for part in parts), max(part.span[1] for part in parts)


@draws(OperationCode.PACK, criterion=STRICT, exact=True)
def _pack(d: Drawing) -> Drawn:
    first = d.tensor((1, 3))
    parts = [first, *(d.like(first) for _ in range(d.integer(0, 2)))]
    return Drawn({REPEATED: parts, "axis": int(d.rng.integers(len(first.dimensions) + 1))}, (d.same(first),))


@draws(OperationCode.SPLIT, criterion=STRICT, exact=True)
def _split(d: Drawing) -> Drawn:
    source = d.tensor()
    axis = _axis(d, len(source.dimensions))
    count = d.choice([count for count in _divisors(source.dimensions[axis]) if count <= 5])
    return Drawn({"input": source, "axis": axis, "num_splits": count}, (d.same(source),) * count)


@draws(OperationCode.GATHER, criterion=STRICT, exact=True)
def _gather(d: Drawing) -> Drawn:
    source = d.tensor((1, 3))
    axis = _axis(d, len(source.dimensions))
    indices = d.rng.integers(0, source.dimensions[axis], d.dims(1, 2, greatest=10), dtype=np.int32)
    return Drawn({"input": source, "axis": axis, "indices": d.constant(indices)}, (d.same(source),))


@draws(OperationCode.FILL, criterion=STRICT, exact=True)
def _fill(d: Drawing) -> Drawn:
    tensor_of = {
        OperandCode.FLOAT16: OperandCode.TENSOR_FLOAT16,
        OperandCode.FLOAT32: OperandCode.TENSOR_FLOAT32,
        OperandCode.INT32: OperandCode.TENSOR_INT32,
    }
    code = d.choice(list(tensor_of)) if d.data_type not in tensor_of else OperandCode(d.data_type)
    value = d.constant(np.asarray(d.number(-9, 9)), code)
    return Drawn({"dims": d.constant(d.dims()), "value": value}, (Result(tensor_of[code]),))


@draws(OperationCode.RANK, criterion=STRICT, exact=True)
def _rank(d: Drawing) -> Drawn:
    if d.data_type == OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL:
        d.reject()
    return Drawn({"input": d.tensor()}, (Result(OperandCode.INT32),))


@draws(OperationCode.CHANNEL_SHUFFLE, criterion=STRICT, exact=True)
def _channel_shuffle(d: Drawing) -> Drawn:
    source = d.tensor()
    axis = _axis(d, len(source.dimensions))
    groups = d.choice(_divisors(source.dimensions[axis]))
    return Drawn({"input": source, "num_groups": groups, "axis": axis}, (d.same(source),))


@draws(OperationCode.DEPTH_TO_SPACE, OperationCode.SPACE_TO_DEPTH, criterion=STRICT, exact=True)
def _depth_space(d: Drawing) -> Drawn:
    source, nchw = d.tensor((4, 4)), d.chance(0.3)
    dims = source.dimensions
    if d.code == OperationCode.SPACE_TO_DEPTH:
        height, width = (dims[axis] for axis in (_NCHW_AXES if nchw else _NHWC_AXES))
        blocks = _divisors(math.gcd(height, width))
    else:
        blocks = [block for block in range(1, 11) if dims[1 if nchw else 3] % (block * block) == 0]
    return Drawn({"input": source, "block_size": d.choice(blocks), "layout": nchw}, (d.same(source),))


@draws(OperationCode.SPACE_TO_BATCH_ND, criterion=STRICT, exact=True)
def _space_to_batch(d: Drawing) -> Drawn:
    source, nchw = d.tensor((4, 4)), d.chance(0.3)
    blocks, paddings = [], []
    for axis in _NCHW_AXES if nchw else _NHWC_AXES:
        block, before = d.integer(1, 3), d.integer(0, 2)
        blocks.append(block)
        paddings.append((before, -(source.dimensions[axis] + before) % block))
    return Drawn(
        {"input": source, "block_shape": d.constant(blocks), "paddings": d.constant(paddings), "layout": nchw},
        (d.same(source),),
    )


@draws(OperationCode.BATCH_TO_SPACE_ND, criterion=STRICT, exact=True)
def _batch_to_space(d: Drawing) -> Drawn:
    source, nchw = d.tensor((4, 4)), d.chance(0.3)
    first = d.choice([size for size in _divisors(source.dimensions[0]) if size <= 8])
    second = d.choice(_divisors(source.dimensions[0] // first))
    return Drawn({"input": source, "block_shape": d.constant([first, second]), "layout": nchw}, (d.same(source),))
