# SPDX-License-Identifier: Apache-2.0
"""Fit a table of costs to a device: whole random graphs, and products of the sizes that networks have, are timed."""

from __future__ import annotations

import statistics
import time
from functools import partial
from typing import TYPE_CHECKING

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.devices import reference_device
from nn_runtime.errors import NNError
from nn_runtime.network import Network
from nn_runtime.testing.conformance import FinishRefused, ndk_model
from nn_runtime.testing.cost_fit import GraphSample, adjusted
from nn_runtime.testing.product_probes import product_nodes
from nn_runtime.testing.random_graph import RandomGraph, Size, example_of, generate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from nn_runtime.device import Device
    from nn_runtime.hal.costs import CostTable

GRAPHS = 300
"""Random graphs, from FIRST_SEED on."""
FIRST_SEED = 1_000_000
ROUNDS = 7
SLICE_SECONDS = 0.001
SLOW_SECONDS = 0.02
"""Runs that take longer are timed in three rounds alone."""
_PRODUCTS = (
    OperationCode.CONV_2D,
    OperationCode.DEPTHWISE_CONV_2D,
    OperationCode.FULLY_CONNECTED,
    OperationCode.BATCH_MATMUL,
)
_PRODUCT_TYPES = (OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_QUANT8_ASYMM_SIGNED)


def calibrated(device: Device, table: CostTable, counted: Callable[[int], Iterator[int]]) -> CostTable:
    """Return a table scaled to what a device takes: the costs of operations relative to each other stay.

    `counted` is called with the number of graphs and iterated once for each, for a progress bar.
    """
    products = [
        RandomGraph(0, Size.SINGLE, (node,), node.outputs)
        for code in _PRODUCTS
        for data_type in _PRODUCT_TYPES
        for node in product_nodes(code, data_type)
    ]
    samples = []
    for at in counted(GRAPHS + len(products)):
        graph = _random_graph(FIRST_SEED + at) if at < GRAPHS else products[at - GRAPHS]
        sample = None if graph is None else _measured(device, graph)
        if sample is not None:
            samples.append(sample)
    return adjusted(table, samples)


def in_turn(runs: Sequence[Callable[[], object]], rounds: int) -> list[list[float]]:
    """Return the times in ns of each run in each round: medians of slices. They have run before."""
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for found, run in zip(times, runs, strict=True):
            found.append(slice_ns(run))
    return times


def slice_ns(run: Callable[[], object]) -> float:
    """Return the median time of the later half of runs in a slice; the earlier ones find threads and caches cold."""
    found: list[int] = []
    end = time.perf_counter() + SLICE_SECONDS
    while not found or time.perf_counter() < end:
        start = time.perf_counter_ns()
        run()
        found.append(time.perf_counter_ns() - start)
    return statistics.median(found[len(found) // 2 :])


def _random_graph(seed: int) -> RandomGraph | None:
    """Return the graph of a seed, None where it found too few operations."""
    try:
        return generate(seed, list(Size)[seed % len(Size)], reference_device().hal)
    except RuntimeError:
        return None


def _measured(device: Device, graph: RandomGraph) -> GraphSample | None:
    """Return the median time of a graph, None where the device does not take it."""
    try:
        model = ndk_model(example_of(graph))
        with Network.from_model(model) as network, network.compile([device]) as session:
            run = partial(session.run, [value.array for value in graph.inputs if value.array is not None])
            run()
            (times,) = in_turn([run], 3 if slice_ns(run) > SLOW_SECONDS * 1e9 else ROUNDS)
            return GraphSample(model.hal, statistics.median(times))
    except (NNError, FinishRefused):
        return None
