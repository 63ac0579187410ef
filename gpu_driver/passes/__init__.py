# SPDX-License-Identifier: Apache-2.0
"""What a subgraph becomes before it is lowered: fewer operations with the same results. Nothing here calls OpenCL.

Constants are folded first (`constant_folding.py`, on the device). Then operations that change nothing, layout round
trips, repetitions and results that nobody reads go, convolutions read images before they are padded or spread over
batches, and activations and constants added or multiplied are taken over by the operation before them, what prepares
indices and dequantises rows by lookups, what dequantises terms by sums; parts of transposed tensors are cut out of
their sources, operations on groups of few numbers are done on longer rows. Real numbers that are left between 8-bit
tensors become tables then (`tables.py`, on the device), after which all this is done once more. What these passes
cannot see, because it depends on sizes of a run or on the device, is up to `fusion.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_driver.passes.convolutions import take_images
from gpu_driver.passes.folding import fold_neighbours
from gpu_driver.passes.graph import Graph, Rewritten
from gpu_driver.passes.groups import split_groups
from gpu_driver.passes.identities import remove_identities, remove_unread
from gpu_driver.passes.lookups import extend_lookups
from gpu_driver.passes.reductions import sum_bytes
from gpu_driver.passes.repetitions import remove_repetitions
from gpu_driver.passes.slices import slice_sources
from gpu_driver.passes.transposes import remove_round_trips

if TYPE_CHECKING:
    from nn_runtime.hal.types import Model


__all__ = ["Rewritten", "simplified"]


def simplified(model: Model, before: Rewritten) -> Rewritten:
    """Return a subgraph of a model with what can be left out left out."""
    graph = Graph(model, before)
    changed = True
    while changed:
        changed = remove_round_trips(graph)
        changed |= remove_identities(graph)
        changed |= remove_unread(graph)
        changed |= remove_repetitions(graph)
        changed |= take_images(graph)
    fold_neighbours(graph)
    extend_lookups(graph)
    sum_bytes(graph)
    slice_sources(graph)
    split_groups(graph)
    return graph.rewritten()
