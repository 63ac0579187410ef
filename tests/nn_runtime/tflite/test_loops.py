# SPDX-License-Identifier: Apache-2.0
"""Loops as TensorFlow's converter leaves them of recurrent layers: a counter, a state, a list written item by item."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest

import nn_runtime as nn
from nn_runtime.errors import BadData
from nn_runtime.tflite.loops import rounds_of
from nn_runtime.tflite.model_builder import MAX_UNROLLED
from nn_runtime.tflite.reader import read
from nn_runtime.tflite.types import TensorType
from tests.nn_runtime.tflite.operator_file import (
    Graph,
    Step,
    Tensor,
    boolean,
    constant,
    int32,
    random_inputs,
    real,
    write_graphs,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.device import Device
    from nn_runtime.network import Network

WHILE = Step("WHILE", [0, 1, 2, 3], [4, 5, 6, 7], "WhileOptions", {"CondSubgraphIndex": 1, "BodySubgraphIndex": 2})


@dataclass
class Loop:
    """state += x[i]; list[i] = state, for i from `start` (None: an input) to `limit`; x and list [steps, 1, 2].

    kind: makes the tensors. packed: whether bounds of slices are made by PACK in place of CONCATENATION.
    """

    steps: int = 4
    start: int | None = 0
    limit: int = 4
    packed: bool = False

    def file(self) -> tuple[bytes, list[Tensor]]:
        counter = int32() if self.start is None else constant(np.int32(self.start))
        whole = real(self.steps, 1, 2)
        tensors = [counter, whole, real(1, 2), whole, int32(), whole, real(1, 2), whole]
        fed = [0, 1, 2, 3] if self.start is None else [1, 2, 3]
        main = Graph(tensors, [WHILE], fed, [4, 5, 6])
        condition = Graph(
            [int32(), whole, real(1, 2), whole, constant(np.int32(self.limit)), boolean()],
            [Step("LESS", [0, 4], [5])],
            [0, 1, 2, 3],
            [5],
        )
        return write_graphs([main, condition, self._body()]), [tensors[at] for at in fed]

    def _body(self) -> Graph:
        """(i, list, state, x) -> (i + 1, list, state, x)."""
        whole, one = real(self.steps, 1, 2), real(1, 2)
        tensors = [
            *(int32(), whole, one, whole),
            *(constant(np.int32(1)), int32(), one, one),  # 4 .. 7: one, i + 1, x[i], the new state
            *(constant([1]), int32(1), int32(1)),  # 8 .. 10: a shape, i and i + 1 under it
            *(
                constant([-1, -1]),
                constant([0, 0]),
                int32(3),
                int32(3),
            ),  # 11 .. 14: bounds of front and rest
            *(constant([0, 0, 0]), constant([-1, -1, -1]), real(1, 1, 2), real(1, 1, 2)),  # 15 .. 18: front, rest
            *(constant([1, 1, 2]), real(1, 1, 2), whole),  # 19 .. 21: the item's shape, the item, the new list
            *(constant(np.int32(-1)), constant(np.int32(0))),
        ]
        join = ("ConcatenationOptions", {"Axis": 0})
        bounds = [
            Step("RESHAPE", [0, 8], [9]),
            Step("CONCATENATION", [9, 11], [13], *join),
            Step("RESHAPE", [5, 8], [10]),
            Step("CONCATENATION", [10, 12], [14], *join),
        ]
        if self.packed:
            pack = ("PackOptions", {"ValuesCount": 3, "Axis": 0})
            bounds = [Step("PACK", [0, 22, 22], [13], *pack), Step("PACK", [5, 23, 23], [14], *pack)]
        steps = [
            Step("GATHER", [3, 0], [6], "GatherOptions"),
            Step("ADD", [2, 6], [7], "AddOptions"),
            Step("ADD", [0, 4], [5], "AddOptions"),
            *bounds,
            Step("SLICE", [1, 15, 13], [17], "SliceOptions"),
            Step("SLICE", [1, 14, 16], [18], "SliceOptions"),
            Step("RESHAPE", [7, 19], [20]),
            Step("CONCATENATION", [17, 20, 18], [21], *join),
        ]
        return Graph(tensors, steps, [0, 1, 2, 3], [5, 21, 7, 3])


def names_of(network: Network, device: Device) -> list[str]:
    with network.compile(device) as session:
        return [row.name for row in session.explain().operations]


@pytest.mark.parametrize(
    "loop",
    [Loop(), Loop(packed=True), Loop(start=1, limit=3), Loop(steps=7, limit=7), Loop(start=None), Loop(limit=0)],
    ids=str,
)
def test_a_list_is_written_item_by_item(loop: Loop, device: Device) -> None:
    file, fed = loop.file()
    inputs = random_inputs(fed)
    start = loop.start
    if start is None:
        start = 1
        inputs[0] = np.array(start, np.int32)
    kept, state, x = inputs[-3:]
    wanted = kept.copy()
    for i in range(start, loop.limit):
        state = state + x[i]
        wanted[i] = state
    with nn.load(file).compile(device) as session:
        count, found, last = session.run(inputs)
    assert (count.shape, int(count)) == ((), max(loop.limit, start))
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    np.testing.assert_allclose(last, state, rtol=1e-6)


def test_a_loop_of_known_rounds_is_operations_like_any(reference_device: Device) -> None:
    names = names_of(nn.load(Loop().file()[0]), reference_device)
    assert names.count("ADD") == 4
    assert names.count("CONCATENATION") == 1
    assert "WHILE" not in names


@pytest.mark.parametrize("loop", [Loop(start=None), Loop(steps=MAX_UNROLLED, limit=MAX_UNROLLED)], ids=str)
def test_others_stay_loops(loop: Loop, reference_device: Device) -> None:
    """Rounds that only the run knows, or too many."""
    assert names_of(nn.load(loop.file()[0]), reference_device) == ["WHILE"]


@pytest.mark.parametrize(("at", "number"), [(4, 2), (15, 1), (12, 1), (16, 1), (11, 1)])
def test_what_is_no_assignment_is_refused_as_before(at: int, number: int) -> None:
    """The rest begins two items on, front or rest at another place or column, or end at another one."""
    loop = Loop(start=None)
    graph = loop._body()
    data = graph.tensors[at].data
    assert data is not None
    data.reshape(-1)[-1] = number
    loop._body = lambda: graph  # type: ignore[method-assign]
    with pytest.raises(BadData, match=r"operator 0 WHILE: subgraph 2: operator .* SLICE: size"):
        nn.load(loop.file()[0])


@pytest.mark.parametrize("other", ["rest of x", "activation", "two items"])
def test_what_looks_much_like_an_assignment_is_refused(other: str) -> None:
    loop = Loop(start=None)
    graph = loop._body()
    if other == "rest of x":
        graph.steps[8].inputs = [3, *graph.steps[8].inputs[1:]]
    elif other == "activation":
        graph.steps[10].values = {"Axis": 0, "FusedActivationFunction": 1}
    else:
        graph.tensors = [*graph.tensors[:20], real(2, 1, 2), *graph.tensors[21:]]
    loop._body = lambda: graph  # type: ignore[method-assign]
    with pytest.raises(BadData, match=r"operator 0 WHILE: subgraph 2: operator .* SLICE: size"):
        nn.load(loop.file()[0])


@pytest.mark.parametrize("form", ["axis from the last", "one plus the counter"])
def test_other_forms_of_an_assignment(form: str, device: Device) -> None:
    loop = Loop()
    graph = loop._body()
    if form == "axis from the last":
        graph.steps[10].values = {"Axis": -3}
    else:
        graph.steps[2].inputs = [4, 0]
    loop._body = lambda: graph  # type: ignore[method-assign]
    file, fed = loop.file()
    inputs = random_inputs(fed)
    with nn.load(file).compile(device) as session:
        found = session.run(inputs)[1]
    np.testing.assert_allclose(found, inputs[1] + np.cumsum(inputs[2], 0), rtol=1e-6)


@pytest.mark.parametrize("code", ["SLICE", "CONCATENATION", "ADD", "RESHAPE"])
@pytest.mark.parametrize("count", [0, 1, 4])
def test_operators_with_other_inputs_than_theirs_are_refused(code: str, count: int) -> None:
    """Each operator of the body that is one of an assignment, with inputs left out or repeated."""
    for at, step in enumerate(Loop(start=None)._body().steps):
        if step.code == code and len(step.inputs) != count and (code, count) != ("RESHAPE", 1):  # it may have one
            loop = Loop(start=None)
            graph = loop._body()
            graph.steps[at].inputs = [*step.inputs, *step.inputs[:1] * 4][:count]
            loop._body = lambda graph=graph: graph  # type: ignore[method-assign,misc]
            with pytest.raises(BadData, match="operator 0 WHILE: subgraph 2: "):
                nn.load(loop.file()[0])


def test_constants_of_other_sizes_are_not_packed() -> None:
    tensors = [real(3), constant([1.0, 2.0, 3.0]), constant([1.0, 2.0]), real(2, 3)]
    file = write_graphs([Graph(tensors, [Step("PACK", [1, 2], [3], "PackOptions", {"ValuesCount": 2})], [0], [3])])
    with pytest.raises(BadData, match=r"operator 0 PACK: \[2\] cannot have the shape \[1, 3\]"):
        nn.load(file)


COUNT, STEP, FLAG = int32(), constant(np.int32(1)), boolean()
UP = Graph([COUNT, STEP, COUNT], [Step("ADD", [0, 1], [2], "AddOptions")], [0], [2])


def below(limit: Tensor) -> Graph:
    return Graph([COUNT, limit, FLAG], [Step("LESS", [0, 1], [2])], [0], [2])


BELOW_5 = below(constant(np.int32(5)))
UP_TO_ALL = Graph([COUNT, constant(np.int32(2**31 - 1)), FLAG], [Step("LESS_EQUAL", [0, 1], [2])], [0], [2])
NOT_5_OR_MORE = Graph(
    [COUNT, constant(np.int32(5)), FLAG, FLAG],
    [Step("GREATER_EQUAL", [0, 1], [2]), Step("LOGICAL_NOT", [2], [3])],
    [0],
    [3],
)
UP_TO_6 = Graph(UP.tensors, [Step("ADD", [0, 1], [2], "AddOptions", {"FusedActivationFunction": 3})], [0], [2])
RESHAPED = Graph(
    [COUNT, STEP, int32(1), constant([1]), COUNT],
    [Step("RESHAPE", [0, 3], [2], "ReshapeOptions"), Step("ADD", [2, 1], [4], "AddOptions")],
    [0],
    [4],
)
SHIFTED = Graph([COUNT, constant(np.int32(1 << 30)), COUNT], [Step("MUL", [0, 1], [2], "MulOptions")], [0], [2])
ABOVE_MINUS_5 = Graph([COUNT, constant(np.int32(-5)), FLAG], [Step("GREATER", [0, 1], [2])], [0], [2])
FAR_DOWN = Graph([COUNT, constant(np.int32(-(2**31))), COUNT], UP.steps, [0], [2])
AT_LEAST_1 = Graph(UP.tensors, [Step("MAXIMUM", [0, 1], [2], "MaximumMinimumOptions")], [0], [2])
QUANTISED = constant(np.array(5, np.int8), 0.5, 0)


@pytest.mark.parametrize(
    ("condition", "body", "start", "rounds"),
    [
        (BELOW_5, UP, 0, 5),
        (BELOW_5, UP, 5, 0),
        (BELOW_5, UP, -1, None),  # one more than asked for
        (BELOW_5, UP, None, None),
        (NOT_5_OR_MORE, UP, 1, 4),
        (BELOW_5, RESHAPED, 2, 3),
        (BELOW_5, UP_TO_6, 0, None),
        (below(constant([5, 5])), UP, 0, None),
        (below(QUANTISED), UP, 0, None),
        (below(constant(np.float32(5))), UP, 0, None),
        (BELOW_5, SHIFTED, 2, None),  # 2^31 does not fit into 32 bits
        (BELOW_5, SHIFTED, 1, 1),
        (below(constant(np.int32(2**31 - 1))), UP, 2**31 - 2, 1),
        (UP_TO_ALL, UP, 2**31 - 2, None),  # integers come round, so that it never ends
        (ABOVE_MINUS_5, FAR_DOWN, 0, 1),
        (ABOVE_MINUS_5, FAR_DOWN, -1, None),  # nor does -1 - 2^31
        (BELOW_5, Graph([COUNT, COUNT], [Step("RESHAPE", [], [1])], [0], [1]), 0, None),
        (BELOW_5, AT_LEAST_1, 0, None),
    ],
)
def test_rounds_are_counted_where_all_is_known(
    condition: Graph, body: Graph, start: int | None, rounds: int | None
) -> None:
    model = read(write_graphs([Graph([COUNT], [], [0], [0]), condition, body]))
    assert rounds_of(model, 1, 2, [start], 5) == rounds


def test_what_constants_make_is_made_once(device: Device, reference_device: Device) -> None:
    """A state to which a loop adds DEQUANTIZE(halves), in more rounds than it may have where each makes them anew."""
    rounds, halves = MAX_UNROLLED // 2, np.array([[0.5, -2.0]], np.float16)
    tensors = [constant(np.int32(0)), real(1, 2), int32(), real(1, 2)]
    loop = Step("WHILE", [0, 1], [2, 3], "WhileOptions", {"CondSubgraphIndex": 1, "BodySubgraphIndex": 2})
    less = [int32(), real(1, 2), constant(np.int32(rounds)), boolean()]
    body = [int32(), real(1, 2), constant(np.int32(1)), int32(), constant(halves), real(1, 2), real(1, 2)]
    steps = [
        Step("DEQUANTIZE", [4], [5]),
        Step("ADD", [1, 5], [6], "AddOptions"),
        Step("ADD", [0, 2], [3], "AddOptions"),
    ]
    file = write_graphs(
        [
            Graph(tensors, [loop], [1], [2, 3]),
            Graph(less, [Step("LESS", [0, 2], [3])], [0, 1], [3]),
            Graph(body, steps, [0, 1], [3, 6]),
        ]
    )
    network = nn.load(file)
    assert names_of(network, reference_device)[:rounds] == ["ADD"] * rounds
    assert len({operation.inputs[1] for operation in network.model.hal.main.operations[:rounds]}) == 1
    with network.compile(device) as session:
        count, state = session.run([np.array([[1.0, 3.0]], np.float32)])
    assert int(count) == rounds
    np.testing.assert_allclose(state, [[1 + rounds / 2, 3 - 2 * rounds]], rtol=1e-6)


def sum_of(rounds: int, made: Sequence[Tensor], *steps: Step, loops: int = 1) -> bytes:
    """Add tensor 5 of the body, which the steps make of tensor 4 and others, in so many rounds of so many loops."""
    tensors, calls = [constant(np.int32(0)), real(1, 2)], []
    for at in range(loops):
        tensors += [int32(), real(1, 2)]
        values = {"CondSubgraphIndex": 1, "BodySubgraphIndex": 2}
        calls.append(Step("WHILE", [0, 2 * at + 1], [2 * at + 2, 2 * at + 3], "WhileOptions", values))
    less = Graph([int32(), real(1, 2), constant(np.int32(rounds)), boolean()], [Step("LESS", [0, 2], [3])], [0, 1], [3])
    last = 4 + len(made)
    body = Graph(
        [int32(), real(1, 2), constant(np.int32(1)), int32(), *made, real(1, 2)],
        [*steps, Step("ADD", [0, 2], [3], "AddOptions"), Step("ADD", [1, 5], [last], "AddOptions")],
        [0, 1],
        [3, last],
    )
    return write_graphs([Graph(tensors, calls, [1], [2 * loops + 1]), less, body])


@pytest.mark.parametrize(
    ("made", "steps"),
    [
        ([constant([[0.5, -2.0]]), real(1, 2)], [Step("NEG", [4], [5])]),
        (
            [constant([[2.25, -1.75]]), real(1, 2), Tensor(TensorType.COMPLEX64, (1, 2)), constant([1, 2])],
            [Step("RFFT2D", [4, 7], [6]), Step("REAL", [6], [5])],
        ),
    ],
    ids=["a constant of each round", "transform"],
)
def test_what_is_made_of_constants_in_every_round(
    made: Sequence[Tensor], steps: Sequence[Step], reference_device: Device
) -> None:
    file = sum_of(3, made, *steps)
    data = made[0].data
    assert data is not None
    added = -data if steps[0].code == "NEG" else np.fft.rfft(data).real
    with nn.load(file).compile(reference_device) as session:
        np.testing.assert_allclose(session.run([np.array([[1, 2]], np.float32)])[0], [[1, 2]] + 3 * added, rtol=1e-6)


def test_loops_share_what_may_be_unrolled(reference_device: Device) -> None:
    """Of two loops whose rounds have two operators each there is room for one alone."""
    file = sum_of(MAX_UNROLLED // 4 + 1, [constant([[1.0, 2.0]]), constant([[0.5, 1.0]])], loops=2)
    assert names_of(nn.load(file), reference_device).count("WHILE") == 1
