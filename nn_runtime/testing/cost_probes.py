# SPDX-License-Identifier: Apache-2.0
"""What each kind of operation costs on a device, drawn at random for every operation with a rule: the rows of a table.

For the tables that ship: whoever has a device fits one of those to it (`cost_calibration.py`), quicker and less
disturbed by what else a machine does. An operation's cost is that of each further copy of it in a model, less that of
its outputs: all are outputs of the model, as drivers leave out what nobody reads.
"""

from __future__ import annotations

import contextlib
import statistics
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.errors import NNError
from nn_runtime.hal.costs import CostTable, OperationCost, operation_work, type_class
from nn_runtime.network import Network
from nn_runtime.operand import size_bytes
from nn_runtime.operations import definition, definitions
from nn_runtime.testing.conformance import FinishRefused, ndk_model
from nn_runtime.testing.cost_calibration import in_turn
from nn_runtime.testing.cost_fit import Sample, fit, with_any
from nn_runtime.testing.drawing import Limit, Rejected, Value, rules
from nn_runtime.testing.product_probes import product_nodes
from nn_runtime.testing.random_graph import Node, RandomGraph, Size, draw_node, example_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nn_runtime.device import Device
    from nn_runtime.operand import Array
    from nn_runtime.session import Session

COPIES = 8
"""Of an operation in a model that tells its cost."""
ROUNDS = 3
RUN_ROUNDS = 31
_LIMITS = (Limit(4, 32), Limit(1000, 2**11), Limit(10, 2**13), Limit(1000, 2**15), Limit(256, 2**17), Limit(512, 2**18))
"""Of the tensors drawn, from next to nothing to what is worth a launch."""
_DYNAMIC_ELEMENTS = 2**14
_ATTEMPTS = 60
_BIG = 2**18


def probed(device: Device, counted: Callable[[int], Iterator[int]]) -> CostTable:
    """Measure runs and every kind of operation that has a rule, and return a table.

    `counted` is called with the number of kinds and iterated once for each, for a progress bar.
    """
    run = _run_costs(device)
    kinds = _kinds()
    operations: dict[str, dict[str, OperationCost]] = {}
    for at in counted(len(kinds)):
        code, name, data_type = kinds[at]
        samples = list(_samples(device, run, code, data_type))
        if samples:
            operations.setdefault(OperationCode(code).name, {})[name] = fit(samples)
    return replace(run, operations=with_any(operations))


def _kinds() -> list[tuple[int, str, int]]:
    """Return (code, class of data type, data type) of everything there is a rule for."""
    found: dict[tuple[int, str], int] = {}
    for code in sorted(rules()):
        if code in definitions():
            for data_type in sorted(definition(code).data_types):
                found.setdefault((code, type_class(data_type)), data_type)
    return [(code, name, data_type) for (code, name), data_type in found.items()]


def _samples(device: Device, run: CostTable, code: int, data_type: int) -> Iterator[Sample]:
    """Return what could be measured of an operation: what a device does not take is not placed on it."""
    rng = np.random.default_rng([code, data_type])
    for limit in _LIMITS:
        node = _drawn(rng, code, data_type, limit)
        if node is not None:
            yield from _sample(device, run, node, False)
            if limit.elements < _DYNAMIC_ELEMENTS:
                yield from _sample(device, run, node, True)
    for node in product_nodes(code, data_type):
        yield from _sample(device, run, node, False)


def _drawn(rng: np.random.Generator, code: int, data_type: int, limit: Limit) -> Node | None:
    for _ in range(_ATTEMPTS):
        try:
            node = draw_node(rng, code, data_type, (), limit)
        except (Rejected, NNError):
            continue
        if all(0 not in value.dimensions for value in node.outputs):
            return node
    return None


def _sample(device: Device, run: CostTable, node: Node, dynamic: bool) -> Iterator[Sample]:
    """Measure what each further copy of an operation costs, by models of one and of COPIES that run in turn."""
    try:
        with (
            _session(device, _copies(node, 1, dynamic)) as one,
            _session(device, _copies(node, COPIES, dynamic)) as more,
        ):
            arrays = [value.array for value in _copies(node, 1, dynamic).inputs if value.array is not None]
            runs = [partial(one.run, arrays), partial(more.run, arrays)]
            in_turn(runs, 1)
            times = in_turn(runs, ROUNDS)
    except (NNError, FinishRefused):
        return
    differences = [(b - a) / (COPIES - 1) for a, b in zip(*times, strict=True)]
    shapes = ([value.dimensions for value in part] for part in (node.inputs, node.outputs))
    sizes = [size_bytes(value.type, value.dimensions) for value in node.outputs]
    outputs = run.output_ns * len(sizes) + run.byte_ns * sum(sizes)
    yield Sample(operation_work(node.code, *shapes), dynamic, max(0.0, statistics.median(differences) - outputs))


def _copies(node: Node, count: int, dynamic: bool) -> RandomGraph:
    inputs = node.inputs if any(_is_input(value) for value in node.inputs) else _with_input(node.inputs)
    nodes = [Node(node.code, inputs, tuple(replace(value) for value in node.outputs)) for _ in range(count)]
    return RandomGraph(0, Size.SINGLE, tuple(nodes), tuple(value for node in nodes for value in node.outputs), dynamic)


@contextlib.contextmanager
def _session(device: Device, graph: RandomGraph) -> Iterator[Session]:
    with Network.from_model(ndk_model(example_of(graph))) as network, network.compile([device]) as session:
        yield session


def _is_input(value: Value) -> bool:
    return not value.omitted and not value.constant


def _with_input(inputs: tuple[Value, ...]) -> tuple[Value, ...]:
    """Return inputs of which the first is no constant: a model needs an input."""
    return (replace(inputs[0], constant=False), *inputs[1:])


def _run_costs(device: Device) -> CostTable:
    """Return what a run costs, and each argument and byte of it, by TANH models of different forms."""
    forms = [
        _chains(1, 1, 1),
        _chains(1, 1 + COPIES, 1),
        _chains(COPIES, 1, COPIES),
        _chains(COPIES, 1, 1),
        _chains(1, 1, 1, _BIG),
        _chains(1, 2, 1, _BIG),
    ]
    with contextlib.ExitStack() as stack:
        sessions = [stack.enter_context(_session(device, form)) for form in forms]
        inputs = [[value.array for value in form.inputs if value.array is not None] for form in forms]
        runs = [partial(session.run, arrays) for session, arrays in zip(sessions, inputs, strict=True)]
        in_turn(runs, 1)
        one, longer, both, wide, big, bigger = map(statistics.median, in_turn(runs, RUN_ROUNDS))
    operation = max(0.0, longer - one) / COPIES
    output_ns = max(0.0, wide - one - operation * (COPIES - 1)) / (COPIES - 1)
    input_ns = max(0.0, both - wide) / (COPIES - 1)
    byte_ns = max(0.0, big - (bigger - big) - (one - operation)) / (2 * 4 * _BIG)
    run_ns = max(0.0, one - operation - input_ns - output_ns)
    figures = (round(run_ns), round(input_ns), round(input_ns / 2), round(output_ns), round(byte_ns, 4))
    return CostTable(*figures, {}, source="measured")


def _chains(chains: int, length: int, sources: int, elements: int = 16) -> RandomGraph:
    """Return `chains` rows of `length` TANHs on `sources` inputs."""
    data: Array = np.linspace(-1, 1, elements, dtype=np.float32)
    inputs = [Value(OperandCode.TENSOR_FLOAT32, (elements,), array=data) for _ in range(sources)]
    nodes, outputs = [], []
    for chain in range(chains):
        value = inputs[chain % sources]
        for _ in range(length):
            made = Value(OperandCode.TENSOR_FLOAT32, (elements,), array=data)
            nodes.append(Node(OperationCode.TANH, (value,), (made,)))
            value = made
        outputs.append(value)
    return RandomGraph(0, Size.SINGLE, tuple(nodes), tuple(outputs))
