# SPDX-License-Identifier: Apache-2.0
"""Arrays stored as sparse constants."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tests.nn_runtime.tflite.operator_file import Tensor, constant
from tests.nn_runtime.tflite.tflite_file import LevelSpec, SparsitySpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Array = npt.NDArray[Any]


def sparse_values(dtype: npt.DTypeLike, *shape: int) -> Array:
    """Return an array of which about a third is not 0."""
    rng = np.random.default_rng(3)
    kept = rng.integers(0, 3, shape) == 0
    return (kept * (rng.integers(1, 100, shape))).astype(dtype)


def sparse(
    array: Array,
    compressed: Sequence[int],
    order: Sequence[int] | None = None,
    blocks: Mapping[int, int] | None = None,
    bits: tuple[int, int] = (32, 32),
    scale: float | Sequence[float] = (),
) -> Tensor:
    """Return an array as a sparse constant; `compressed` lists the SPARSE_CSR levels, `blocks` sizes by axis."""
    blocks = {} if blocks is None else blocks
    rank = array.ndim
    order = range(rank + len(blocks)) if order is None else order
    # Every blocked axis becomes two, the second one is a dimension from `rank` on.
    split = [size for axis, whole in enumerate(array.shape) for size in _parts(whole, blocks.get(axis))]
    places: dict[int, int] = {}
    for axis in range(rank):
        places[axis] = len(places)
        if axis in blocks:
            places[rank + list(blocks).index(axis)] = len(places)
    nodes = [array.reshape(split).transpose([places[dimension] for dimension in order])]
    levels = []
    for at in range(len(order)):
        if at not in compressed:
            levels.append(LevelSpec(nodes[0].shape[0] if nodes else 0))
            nodes = [node[i] for node in nodes for i in range(len(node))]
            continue
        listed = [[i for i in range(len(node)) if node[i].any()] for node in nodes]
        segments = [0, *np.cumsum([len(indices) for indices in listed])]
        levels.append(LevelSpec(0, segments, [i for indices in listed for i in indices], bits))
        nodes = [node[i] for node, indices in zip(nodes, listed, strict=True) for i in indices]
    stored = replace(constant(np.array(nodes, array.dtype), scale), shape=array.shape)
    return replace(stored, sparsity=SparsitySpec(list(order), list(blocks), levels))


def _parts(whole: int, block: int | None) -> list[int]:
    return [whole] if block is None else [whole // block, block]
