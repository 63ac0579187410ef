# SPDX-License-Identifier: Apache-2.0
"""Small models that tell what a device's runs and operations cost, drawn at random for every operation with a rule.

`measure_costs` times them and fits a `CostTable`. An operation's cost is that of one more copy of it in a model, so the
cost of the run itself, which is measured first, hardly matters.
"""

from __future__ import annotations

import functools
import statistics
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.devices import reference_device
from nn_runtime.errors import NNError
from nn_runtime.hal.costs import CostTable, OperationCost, Work, operation_work, type_class
from nn_runtime.network import Network
from nn_runtime.operations import definition, definitions
from nn_runtime.testing.conformance import FinishRefused, ndk_model
from nn_runtime.testing.cost_fit import GraphSample, Sample, adjusted, completed, fit
from nn_runtime.testing.drawing import Limit, Rejected, Value, rules
from nn_runtime.testing.product_probes import product_nodes
from nn_runtime.testing.random_graph import Node, RandomGraph, Size, draw_node, example_of, generate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from nn_runtime.devices import Device
    from nn_runtime.operand import Array

FIRST_SEED = 1_000_000
GRAPHS = 90
"""Random graphs from that seed on, by which the table is adjusted."""
COPIES = 8
"""Of an operation in a model that tells its cost."""
SLICE_SECONDS = 0.004
MINIMUM_RUNS = 7
_LIMITS = (
    Limit(4, 32),
    Limit(10, 2**10),
    Limit(1000, 2**13),
    Limit(10, 2**13),
    Limit(1000, 2**13),
    Limit(1000, 2**15),
    Limit(1000, 2**15),
    Limit(256, 2**17),
    Limit(512, 2**18),
)
"""Of the tensors drawn, from next to nothing to what is worth a launch."""
_DYNAMIC_ELEMENTS = 2**14
_ATTEMPTS = 60
_BIG = 2**18


def measure_costs(device: Device, base: CostTable | None, counted: Callable[[int], Iterator[int]]) -> CostTable:
    """Measure a device and return its table; rows of operations that have no rule come from `base`, scaled.

    `counted` is called with the number of probes and iterated once for each, for a progress bar.
    """
    run = _run_costs(device)
    kinds = _kinds()
    operations: dict[str, dict[str, OperationCost]] = {}
    graphs: list[GraphSample] = []
    for at in counted(len(kinds) + GRAPHS):
        if at < len(kinds):
            code, name, data_type = kinds[at]
            samples = list(_samples(device, run, code, data_type))
            if samples:
                operations.setdefault(OperationCode(code).name, {})[name] = fit(samples)
        else:
            graphs += graph_samples(device, [FIRST_SEED + at])
    return adjusted(replace(run, operations=completed(operations, base)), graphs)


def graph_samples(device: Device, seeds: Iterable[int]) -> list[GraphSample]:
    """Measure random graphs on a device."""
    found = []
    for seed in seeds:
        try:
            graph = generate(seed, list(Size)[seed % len(Size)], reference_device().hal)
            model = ndk_model(example_of(graph))
            with Network.from_model(model) as network, network.compile([device]) as session:
                arrays = [value.array for value in graph.inputs if value.array is not None]
                duration_ns = median_ns(functools.partial(session.run, arrays))
                found.append(GraphSample(model.hal, duration_ns))
        except (NNError, RuntimeError):
            continue
    return found


def _kinds() -> list[tuple[int, str, int]]:
    """Return (code, class of data type, data type) of everything there is a rule for."""
    found: dict[tuple[int, str], int] = {}
    for code in sorted(rules()):
        if code in definitions():
            for data_type in sorted(definition(code).data_types):
                found.setdefault((code, type_class(data_type)), data_type)
    return [(code, name, data_type) for (code, name), data_type in found.items()]


def _samples(device: Device, run: CostTable, code: int, data_type: int) -> Iterator[Sample]:
    rng = np.random.default_rng([code, data_type])
    for limit in _LIMITS:
        node = _drawn(rng, code, data_type, limit)
        if node is None:
            continue
        for dynamic in (False, True) if limit.elements < _DYNAMIC_ELEMENTS else (False,):
            try:
                yield _sample(device, run, node, dynamic)
            except (NNError, FinishRefused):
                continue  # what the device does not take is not placed on it
    for node in product_nodes(code, data_type):
        try:
            yield _sample(device, run, node, False)
        except (NNError, FinishRefused):
            continue


def _drawn(rng: np.random.Generator, code: int, data_type: int, limit: Limit) -> Node | None:
    for _ in range(_ATTEMPTS):
        try:
            node = draw_node(rng, code, data_type, (), limit)
        except (Rejected, NNError):
            continue
        if all(0 not in value.dimensions for value in node.outputs):
            return node
    return None


def _sample(device: Device, run: CostTable, node: Node, dynamic: bool) -> Sample:
    inputs = node.inputs if any(_is_input(value) for value in node.inputs) else _with_input(node.inputs)
    nodes = [Node(node.code, inputs, tuple(replace(value) for value in node.outputs)) for _ in range(COPIES)]
    graph = RandomGraph(0, Size.SINGLE, tuple(nodes), nodes[-1].outputs, dynamic)
    duration_ns, step_ns, work = _timed(device, run, graph)
    return Sample(work, dynamic, max(0.0, duration_ns - step_ns) / len(nodes))


def _is_input(value: Value) -> bool:
    return not value.omitted and not value.constant


def _with_input(inputs: tuple[Value, ...]) -> tuple[Value, ...]:
    """Return inputs of which the first is no constant: a model needs an input."""
    return (replace(inputs[0], constant=False), *inputs[1:])


def _timed(device: Device, run: CostTable, graph: RandomGraph) -> tuple[float, float, Work]:
    """Return the time of a run, its part that is no operation's, and the size of the first operation."""
    model = ndk_model(example_of(graph))
    main = model.hal.main
    with Network.from_model(model) as network, network.compile([device]) as session:
        arrays = [value.array for value in graph.inputs]
        duration_ns = median_ns(lambda: session.run([array for array in arrays if array is not None]))
    node = graph.nodes[0]
    shapes = ([value.dimensions for value in part] for part in (node.inputs, node.outputs))
    return duration_ns, run.step_ns(main, main.input_indexes, main.output_indexes), operation_work(node.code, *shapes)


def median_ns(run: Callable[[], object]) -> float:
    """Return the median time of runs over SLICE_SECONDS, after two that do not count."""
    run()
    run()
    times: list[int] = []
    end = time.perf_counter() + SLICE_SECONDS
    while len(times) < MINIMUM_RUNS or time.perf_counter() < end:
        start = time.perf_counter_ns()
        run()
        times.append(time.perf_counter_ns() - start)
    return statistics.median(times)


def _run_costs(device: Device) -> CostTable:
    """Return what a run costs, and each argument and byte of it, by RELU models of different forms."""
    nothing = CostTable(0, 0, 0, 0, 0, {})

    def duration(chains: int, length: int, sources: int, elements: int = 16) -> float:
        return statistics.median(
            _timed(device, nothing, _chains(chains, length, sources, elements))[0] for _ in range(5)
        )

    one = duration(1, 1, 1)
    operation = max(0.0, duration(1, 1 + COPIES, 1) - one) / COPIES
    both = duration(COPIES, 1, COPIES) - operation * (COPIES - 1) - one
    outputs = duration(COPIES, 1, 1) - operation * (COPIES - 1) - one
    output_ns = max(0.0, outputs / (COPIES - 1))
    input_ns = max(0.0, both / (COPIES - 1) - output_ns)
    big, bigger = duration(1, 1, 1, _BIG), duration(1, 2, 1, _BIG)
    size_bytes = 2 * 4 * _BIG
    byte_ns = max(0.0, big - (bigger - big) - (one - operation)) / size_bytes
    run_ns = max(0.0, one - operation - input_ns - output_ns)
    figures = (round(run_ns), round(input_ns), round(input_ns / 2), round(output_ns), round(byte_ns, 4))
    return CostTable(*figures, {}, source="measured")


def _chains(chains: int, length: int, sources: int, elements: int) -> RandomGraph:
    """Return `chains` rows of `length` RELUs on `sources` inputs."""
    data: Array = np.linspace(-1, 1, elements, dtype=np.float32)
    inputs = [Value(OperandCode.TENSOR_FLOAT32, (elements,), array=data) for _ in range(sources)]
    nodes, outputs = [], []
    for chain in range(chains):
        value = inputs[chain % sources]
        for _ in range(length):
            made = Value(OperandCode.TENSOR_FLOAT32, (elements,), array=data)
            nodes.append(Node(OperationCode.RELU, (value,), (made,)))
            value = made
        outputs.append(value)
    return RandomGraph(0, Size.SINGLE, tuple(nodes), tuple(outputs))
