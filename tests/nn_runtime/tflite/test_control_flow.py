# SPDX-License-Identifier: Apache-2.0
"""IF and WHILE of a file against LiteRT's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import nn_runtime as nn
from nn_runtime.errors import BadData
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
    reference,
    write_graphs,
)

if TYPE_CHECKING:
    from nn_runtime.device import Device

IF, WHILE = "IfOptions", "WhileOptions"


def branch(code: str) -> Graph:
    """x, y -> x (code) y, and x itself."""
    return Graph(
        [real(2, 3), real(3), real(2, 3)], [Step(code, [0, 1], [2], f"{code.capitalize()}Options")], [0, 1], [2, 0]
    )


@pytest.mark.parametrize("condition", [False, True])
@pytest.mark.parametrize("shape", [(), (1,)])
def test_if(condition: bool, shape: tuple[int, ...], reference_device: Device) -> None:
    tensors = [boolean(*shape), real(2, 3), constant([1.0, 2.0, -3.0]), real(2, 3), real(2, 3)]
    step = Step("IF", [0, 1, 2], [3, 4], IF, {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 2})
    file = write_graphs([Graph(tensors, [step], [0, 1], [3, 4]), branch("ADD"), branch("MUL")])
    inputs = [np.full(shape, condition), *random_inputs([tensors[1]])]
    with nn.load(file).compile(reference_device) as session:
        for result, expected in zip(session.run(inputs), reference(file, inputs), strict=True):
            np.testing.assert_array_equal(result, expected)


def counting(limit: int) -> list[Graph]:
    """i, x -> while i < limit: i += 1, x *= 2."""
    condition = Graph(
        [int32(), real(2, 3), constant(np.int32(limit)), boolean()], [Step("LESS", [0, 2], [3])], [0, 1], [3]
    )
    body = Graph(
        [int32(), real(2, 3), constant(np.int32(1)), constant(np.float32(2)), int32(), real(2, 3)],
        [Step("ADD", [0, 2], [4], "AddOptions"), Step("MUL", [1, 3], [5], "MulOptions")],
        [0, 1],
        [4, 5],
    )
    return [condition, body]


@pytest.mark.parametrize("limit", [0, 1, 7])
def test_while(limit: int, reference_device: Device) -> None:
    tensors = [int32(), real(2, 3), int32(), real(2, 3)]
    step = Step("WHILE", [0, 1], [2, 3], WHILE, {"CondSubgraphIndex": 1, "BodySubgraphIndex": 2})
    file = write_graphs([Graph(tensors, [step], [0, 1], [2, 3]), *counting(limit)])
    inputs = [np.array(0, np.int32), *random_inputs([tensors[1]])]
    with nn.load(file).compile(reference_device) as session:
        count, result = session.run(inputs)
    wanted_count, wanted = reference(file, inputs)
    assert count == wanted_count == limit
    assert count.shape == ()
    np.testing.assert_array_equal(result, wanted)


def test_loop_in_a_branch(reference_device: Device) -> None:
    """The loop's counter is a constant, and the other branch gives its inputs back."""
    tensors = [boolean(), real(2, 3), real(2, 3)]
    step = Step("IF", [0, 1], [2], IF, {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 4})
    loop = Step("WHILE", [1, 0], [2, 3], WHILE, {"CondSubgraphIndex": 2, "BodySubgraphIndex": 3})
    then = Graph([real(2, 3), constant(np.int32(0)), int32(), real(2, 3)], [loop], [0], [3])
    otherwise = Graph([real(2, 3)], [], [0], [0])
    file = write_graphs([Graph(tensors, [step], [0, 1], [2]), then, *counting(3), otherwise])
    network = nn.load(file)
    data = random_inputs([tensors[1]])[0]
    with network.compile(reference_device) as session:
        for condition, wanted in ((True, data * 8), (False, data)):
            inputs = [np.array(condition), data]
            np.testing.assert_array_equal(session.run(inputs)[0], wanted)
            np.testing.assert_array_equal(reference(file, inputs)[0], wanted)


def test_branches_are_converted_for_each_shape(reference_device: Device) -> None:
    tensors = [boolean(), real(2, 3), real(4), real(2, 3), real(4)]
    branches = {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 2}
    steps = [Step("IF", [0, source], [source + 2], IF, branches) for source in (1, 2)]
    inner = [Graph([real(1), real(1)], [Step(code, [0], [1])], [0], [1]) for code in ("NEG", "ABS")]
    file = write_graphs([Graph(tensors, steps, [0, 1, 2], [3, 4]), *inner])
    inputs = random_inputs(tensors[:3])
    with nn.load(file).compile(reference_device) as session:
        for result, expected in zip(session.run(inputs), reference(file, inputs), strict=True):
            np.testing.assert_array_equal(result, expected)


def test_a_branch_that_gives_a_result_twice(reference_device: Device) -> None:
    tensors = [boolean(), real(3), real(3), real(3)]
    step = Step("IF", [0, 1], [2, 3], IF, {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 2})
    inner = [Graph([real(3), real(3)], [Step(code, [0], [1])], [0], [1, 1]) for code in ("NEG", "ABS")]
    data = np.array([1, -2, 3], np.float32)
    with nn.load(write_graphs([Graph(tensors, [step], [0, 1], [2, 3]), *inner])).compile(reference_device) as session:
        for condition, wanted in ((True, -data), (False, abs(data))):
            for result in session.run([np.array(condition), data]):
                np.testing.assert_array_equal(result, wanted)


def test_a_branch_with_a_variable_tensor_is_refused() -> None:
    tensors = [boolean(), real(3), real(3)]
    step = Step("IF", [0, 1], [2], IF, {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 1})
    memory = Tensor(TensorType.FLOAT32, (3,), is_variable=True)
    inner = Graph([real(3), memory, real(3)], [Step("ADD", [0, 1], [2], "AddOptions")], [0], [2])
    with pytest.raises(BadData, match="operator 0 IF: subgraph 1: has variable tensors, which only the main subgraph"):
        nn.load(write_graphs([Graph(tensors, [step], [0, 1], [2]), inner]))


def test_branches_with_other_numbers_of_outputs_are_refused() -> None:
    step = Step("IF", [0, 1], [2], IF, {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 1})
    inner = Graph([real(3)], [], [0], [0, 0])
    with pytest.raises(BadData, match="operator 0 IF: the subgraph must have 1 outputs"):
        nn.load(write_graphs([Graph([boolean(), real(3), real(3)], [step], [0, 1], [2]), inner]))


def test_branches_of_two_shapes_are_refused() -> None:
    tensors = [boolean(), real(2, 3), real(2, 3)]
    step = Step("IF", [0, 1], [2], IF, {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 2})
    row = Graph([real(2, 3), constant([6]), real(6)], [Step("RESHAPE", [0, 1], [2])], [0], [2])
    file = write_graphs([Graph(tensors, [step], [0, 1], [2]), Graph([real(2, 3)], [], [0], [0]), row])
    with pytest.raises(BadData, match=r"operator 0 IF: .*outputs of else_model"):
        nn.load(file)


def test_what_cannot_be_converted_is_named_with_its_subgraph() -> None:
    tensors = [boolean(), real(3), real(3)]
    step = Step("IF", [0, 1], [2], IF, {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 1})
    inner = Graph([real(3), real(3)], [Step("UNIQUE", [0], [1])], [0], [1])
    with pytest.raises(BadData, match="operator 0 IF: subgraph 1: operator 0 UNIQUE: no NNAPI operation"):
        nn.load(write_graphs([Graph(tensors, [step], [0, 1], [2]), inner]))


def test_calls_that_double_at_every_level_are_refused() -> None:
    """20 subgraphs, each calling the next in both branches, would be a million models."""
    tensors = [boolean(), real(3), real(3)]
    graphs = [
        Graph(
            [Tensor(tensor.type, tensor.shape) for tensor in tensors],
            [Step("IF", [0, 0, 1], [2], IF, {"ThenSubgraphIndex": level + 1, "ElseSubgraphIndex": level + 1})],
            [0, 1],
            [2],
        )
        for level in range(20)
    ]
    leaf = Graph([boolean(), real(3), real(3)], [Step("RELU", [1], [2])], [0, 1], [2])
    with pytest.raises(BadData, match="more than 256 subgraphs are called"):
        nn.load(write_graphs([*graphs, leaf]))
