# SPDX-License-Identifier: Apache-2.0
"""Oracles of the operations that move elements: codes as stored, but where parts have scales of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperationCode
from tests.operations.oracles.layer import Layer, at_least_one_axis, real, stored

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.operations.oracles.layer import Array, Oracle


def _moved(function: Callable[[Layer, Array], Array]) -> Oracle:
    return lambda layer: [function(layer, layer.raw("input"))]


def _of_image(function: Callable[[Layer, Array], Array]) -> Oracle:
    return lambda layer: [layer.laid_out(function(layer, layer.image(layer.raw("input"))))]


def _squeezed(layer: Layer, source: Array) -> Array:
    return at_least_one_axis(source.squeeze(tuple(layer.integers("axes"))))


def _filled(layer: Layer) -> list[Array]:
    return [np.full(layer.integers("dims"), layer.raw("value").reshape(-1)[0])]


def _transposed(layer: Layer, source: Array) -> Array:
    return np.transpose(source, layer.integers("perm"))


def _sliced(layer: Layer, source: Array) -> Array:
    bounds = zip(layer.integers("begin"), layer.integers("size"), source.shape, strict=True)
    return source[tuple(slice(begin, whole if size < 0 else begin + size) for begin, size, whole in bounds)]


def _strided(layer: Layer, source: Array) -> Array:
    """A slice of Python's has the same meaning; None stands for a bound that a mask leaves out."""
    begin_mask, end_mask, shrunk = (layer.integer(f"{name}_mask") for name in ("begin", "end", "shrink_axis"))
    picked: list[slice | int] = []
    bounds = zip(*(layer.integers(name) for name in ("begin", "end", "strides")), strict=True)
    for axis, (begin, end, stride) in enumerate(bounds):
        if shrunk >> axis & 1:
            picked.append(begin)
        else:
            first, last = begin_mask >> axis & 1, end_mask >> axis & 1
            picked.append(slice(None if first else begin, None if last else end, stride))
    return at_least_one_axis(np.asarray(source[tuple(picked)]))


def _padded(layer: Layer, source: Array) -> Array:
    given = layer.raw("pad_value").reshape(-1)[0] if "pad_value" in layer.inputs else layer.value("input").zero_point
    return np.pad(source, layer.raw("paddings"), constant_values=given)


def _mirrored(layer: Layer, source: Array) -> Array:
    """Index by index: REFLECT (0) leaves out the border element, SYMMETRIC (1) repeats it."""
    for axis, (before, after) in enumerate(layer.raw("paddings").tolist()):
        size, repeats = source.shape[axis], layer.integer("mode")
        head = np.arange(before, 0, -1) - repeats
        tail = size - 2 - np.arange(after) + repeats
        source = source.take(np.concatenate([head, np.arange(size), tail]), axis=axis)
    return source


def _joined(layer: Layer) -> list[Array]:
    name = next(name for name in layer.inputs if name != "axis")
    return [np.concatenate([real(part) for part in layer.inputs[name]], axis=layer.integer("axis"))]


def _packed(layer: Layer) -> list[Array]:
    name = next(name for name in layer.inputs if name != "axis")
    return [np.stack([stored(part) for part in layer.inputs[name]], axis=layer.integer("axis"))]


def _split(layer: Layer) -> list[Array]:
    return np.split(layer.raw("input"), layer.integer("num_splits"), axis=layer.integer("axis"))


def _tiled(layer: Layer, source: Array) -> Array:
    for axis, times in enumerate(layer.integers("multiples")):
        source = source.take(np.arange(source.shape[axis] * times) % source.shape[axis], axis=axis)
    return source


def _gathered(layer: Layer, source: Array) -> Array:
    return source.take(layer.raw("indices"), axis=layer.integer("axis"))


def _looked_up(layer: Layer) -> list[Array]:
    return [layer.raw("values")[layer.raw("lookups")]]


def _hashed(layer: Layer) -> list[Array]:
    """Rows by key; a miss is all bytes 0."""
    values = layer.raw("values")
    row = {key: i for i, key in enumerate(layer.integers("keys"))}
    found = [row.get(key) for key in layer.integers("lookups")]
    rows = [np.zeros_like(values[0]) if i is None else values[i] for i in found]
    return [np.stack(rows), np.array([i is not None for i in found], np.int64)]


def _depth_to_space(layer: Layer, source: Array) -> Array:
    block = layer.integer("block_size")
    batches, height, width, depth = source.shape
    cells = source.reshape(batches, height, width, block, block, depth // block**2)
    return np.reshape(cells.transpose(0, 1, 3, 2, 4, 5), (batches, height * block, width * block, -1))


def _space_to_depth(layer: Layer, source: Array) -> Array:
    """The places of a block, row by row, one behind another in depth."""
    block = layer.integer("block_size")
    return np.concatenate([source[:, y::block, x::block] for y in range(block) for x in range(block)], axis=3)


def _space_to_batch(layer: Layer, source: Array) -> Array:
    """The places of a block, row by row, one behind another in the batch."""
    rows, columns = layer.integers("block_shape")
    paddings = [(0, 0), *layer.raw("paddings").tolist(), (0, 0)]
    padded = np.pad(source, paddings, constant_values=layer.value("input").zero_point)
    return np.concatenate([padded[:, y::rows, x::columns] for y in range(rows) for x in range(columns)])


def _batch_to_space(layer: Layer, source: Array) -> Array:
    rows, columns = layer.integers("block_shape")
    batches, height, width, depth = source.shape
    result = np.empty((batches // (rows * columns), height * rows, width * columns, depth), source.dtype)
    for place, part in enumerate(np.split(source, rows * columns)):
        result[:, place // columns :: rows, place % columns :: columns] = part
    return result


def _shuffled(layer: Layer, source: Array) -> Array:
    """out[k * groups + g] = in[g * (size / groups) + k]."""
    axis, groups = layer.integer("axis"), layer.integer("num_groups")
    size = source.shape[axis]
    at = np.arange(size)
    result: Array = source.take(at % groups * (size // groups) + at // groups, axis=axis)
    return result


FAMILIES: dict[str, dict[OperationCode, Oracle]] = {
    "reshape": {
        OperationCode.RESHAPE: _moved(lambda layer, source: source.reshape(layer.integers("shape"))),
        OperationCode.SQUEEZE: _moved(_squeezed),
        OperationCode.EXPAND_DIMS: _moved(lambda layer, source: np.expand_dims(source, layer.integer("axis"))),
        OperationCode.FILL: _filled,
        OperationCode.RANK: _moved(lambda _layer, source: np.array(source.ndim)),
    },
    "transpose": {
        OperationCode.TRANSPOSE: _moved(_transposed),
        OperationCode.REVERSE: _moved(lambda layer, source: np.flip(source, tuple(layer.integers("axis")))),
    },
    "slice": {OperationCode.SLICE: _moved(_sliced), OperationCode.STRIDED_SLICE: _moved(_strided)},
    "pad": {
        OperationCode.PAD: _moved(_padded),
        OperationCode.PAD_V2: _moved(_padded),
        OperationCode.MIRROR_PAD: _moved(_mirrored),
    },
    "concatenation": {
        OperationCode.CONCATENATION: _joined,
        OperationCode.PACK: _packed,
        OperationCode.SPLIT: _split,
    },
    "tile": {OperationCode.TILE: _moved(_tiled)},
    "gather": {
        OperationCode.GATHER: _moved(_gathered),
        OperationCode.EMBEDDING_LOOKUP: _looked_up,
        OperationCode.HASHTABLE_LOOKUP: _hashed,
    },
    "space": {
        OperationCode.DEPTH_TO_SPACE: _of_image(_depth_to_space),
        OperationCode.SPACE_TO_DEPTH: _of_image(_space_to_depth),
        OperationCode.SPACE_TO_BATCH_ND: _of_image(_space_to_batch),
        OperationCode.BATCH_TO_SPACE_ND: _of_image(_batch_to_space),
        OperationCode.CHANNEL_SHUFFLE: _moved(_shuffled),
    },
}
