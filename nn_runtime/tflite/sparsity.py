# SPDX-License-Identifier: Apache-2.0
"""Sparse constants of a .tflite file, made dense when they are read: no operand of NNAPI is sparse.

The format is that of `SparsityParameters` in schema.fbs, after Chou et al., "Format Abstraction for Sparse Tensor
Algebra Compilers" (2018): a tree with one level for each dimension in traversal order, blocks last. A DENSE level has
every index; for each entry of the level above, a SPARSE_CSR level lists those that are there. The stored values are the
leaves.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from nn_runtime.tflite.decoder import TfliteError
from nn_runtime.tflite.types import TfliteLevel, TfliteSparsity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.tflite.decoder import Record

Offsets: TypeAlias = npt.NDArray[np.int64]

_DENSE, _SPARSE_CSR = 0, 1


def read_sparsity(record: Record, shape: Sequence[int], where: str) -> TfliteSparsity:
    """Check how a constant of a shape is stored; raises TfliteError for order, blocks or sizes that do not fit."""
    rank, order, blocked = len(shape), record.integers("traversal_order"), record.integers("block_map")
    if 0 in shape or not shape:
        raise TfliteError(f"{where}: a sparse constant must have elements and a rank, got {list(shape)}")
    if len(set(blocked)) != len(blocked) or not all(0 <= axis < rank for axis in blocked):
        raise TfliteError(f"{where}: block_map must list different dimensions below {rank}, got {_shown(blocked)}")
    count = rank + len(blocked)
    if sorted(order[:rank]) != list(range(rank)) or sorted(order[rank:]) != list(range(rank, count)):
        wanted = f"0 to {rank - 1}, then {rank} to {count - 1}" if blocked else f"0 to {rank - 1}"
        raise TfliteError(f"{where}: traversal_order must list {wanted}, each once, got {_shown(order)}")
    dimensions = record.records("dim_metadata")
    if len(dimensions) != count:
        raise TfliteError(f"{where}: needs dim_metadata for {count} dimensions, got {len(dimensions)}")
    levels = tuple(_level(dimension, f"{where}: dim_metadata {i}") for i, dimension in enumerate(dimensions))
    sizes = _level_sizes(order, blocked, levels, shape, where)
    for at, (level, size) in enumerate(zip(levels, sizes, strict=True)):
        if level.indices is None and level.size != size:
            raise TfliteError(f"{where}: dim_metadata {at}: dense_size must be {size}, got {level.size}")
    return TfliteSparsity(order, blocked, levels)


def dense(
    sparsity: TfliteSparsity, values: npt.NDArray[np.generic], shape: Sequence[int], where: str
) -> npt.NDArray[np.generic]:
    """Return stored values [n] as an array of a shape, zero where none is; raises TfliteError if they do not fit."""
    levels, order, blocked = sparsity.levels, sparsity.traversal_order, sparsity.block_map
    sizes = _level_sizes(order, blocked, levels, shape, where)
    _check_counts(levels, len(values), where)
    strides = _strides(sparsity, shape)
    offsets = np.zeros(1, np.int64)
    for at, (level, size) in enumerate(zip(levels, sizes, strict=True)):
        offsets = _expanded(offsets, level, size, strides[order[at]], f"{where}: dim_metadata {at}")
    result = np.zeros(math.prod(shape), values.dtype)
    taken = np.zeros(result.size, np.bool_)
    taken[offsets] = True
    if np.count_nonzero(taken) != offsets.size:
        raise TfliteError(f"{where}: array_indices name one element twice")
    result[offsets] = values
    return result.reshape(tuple(shape))


def _level(record: Record, where: str) -> TfliteLevel:
    form = record.number("format")
    if form == _DENSE:
        return TfliteLevel(record.number("dense_size"), None, None)
    if form != _SPARSE_CSR:
        raise TfliteError(f"{where}: format must be {_DENSE} (DENSE) or {_SPARSE_CSR} (SPARSE_CSR), got {form}")
    segments = _vector(record.record("array_segments"), f"{where}: array_segments")
    indices = _vector(record.record("array_indices"), f"{where}: array_indices")
    if not segments.size or segments[0] != 0 or segments[-1] != indices.size or np.any(np.diff(segments) < 0):
        raise TfliteError(
            f"{where}: array_segments must rise from 0 to {indices.size}, got {_shown(segments.tolist())}"
        )
    return TfliteLevel(0, segments, indices)


def _vector(record: Record | None, where: str) -> Offsets:
    if record is None:
        raise TfliteError(f"{where} are missing")
    return record.numbers("values").astype(np.int64)


def _level_sizes(
    order: Sequence[int], blocked: Sequence[int], levels: Sequence[TfliteLevel], shape: Sequence[int], where: str
) -> list[int]:
    """Return the size of the dimension of each level: of blocks, and of what there is of blocks."""
    rank = len(shape)
    blocks = {}
    for at, dimension in enumerate(order[rank:], start=rank):
        axis, size = blocked[dimension - rank], levels[at].size
        if size <= 0 or shape[axis] % size:  # 0 is the size of SPARSE_CSR
            got = f"{size}" if levels[at].indices is None else "SPARSE_CSR"
            raise TfliteError(f"{where}: dim_metadata {at}: a block must be DENSE and divide {shape[axis]}, got {got}")
        blocks[axis] = size
    outer = [shape[axis] // blocks.get(axis, 1) for axis in order[:rank]]
    return outer + [blocks[blocked[dimension - rank]] for dimension in order[rank:]]


def _strides(sparsity: TfliteSparsity, shape: Sequence[int]) -> list[int]:
    """Return how many elements apart neighbours are, by dimension: the tensor's, then those inside blocks."""
    rank = len(shape)
    strides = [math.prod(shape[axis + 1 :]) for axis in range(rank)]
    inside = [strides[axis] for axis in sparsity.block_map]
    for at, dimension in enumerate(sparsity.traversal_order[rank:], start=rank):
        strides[sparsity.block_map[dimension - rank]] *= sparsity.levels[at].size
    return strides + inside


def _check_counts(levels: Sequence[TfliteLevel], value_count: int, where: str) -> None:
    """Require entries as many as segments and values say, before there is memory for any of them."""
    count = 1
    for at, level in enumerate(levels):
        if level.indices is None or level.segments is None:
            count *= level.size
            continue
        if level.segments.size != count + 1:
            raise TfliteError(
                f"{where}: dim_metadata {at}: needs {count + 1} array_segments, got {level.segments.size}"
            )
        count = level.indices.size
    if count != value_count:
        raise TfliteError(f"{where}: needs {count} values by its dim_metadata, got {value_count}")


def _expanded(offsets: Offsets, level: TfliteLevel, size: int, stride: int, where: str) -> Offsets:
    """Return where the entries of a level, which has some, lie, from where those of the level above do."""
    if level.indices is None or level.segments is None:
        return (offsets[:, np.newaxis] + stride * np.arange(size, dtype=np.int64)).reshape(-1)
    if not 0 <= level.indices.min() <= level.indices.max() < size:
        found = f"{level.indices.min()} to {level.indices.max()}"
        raise TfliteError(f"{where}: array_indices must be 0 to {size - 1}, got {found}")
    found_offsets: Offsets = np.repeat(offsets, np.diff(level.segments)) + stride * level.indices
    return found_offsets


def _shown(numbers: Sequence[int]) -> str:
    listed = ", ".join(str(number) for number in numbers[:8])
    return f"[{listed}{', ...' if len(numbers) > 8 else ''}]"
