# SPDX-License-Identifier: Apache-2.0
"""STABLEHLO_COMPOSITE: a subgraph's operators in place of a name for them, against LiteRT's results."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from flatbuffers import flexbuffers

import nn_runtime as nn
from nn_runtime.errors import BadData
from nn_runtime.tflite import read
from nn_runtime.tflite.model_builder import MAX_INLINED
from tests.nn_runtime.tflite.operator_file import (
    Graph,
    Step,
    boolean,
    constant,
    int32,
    random_inputs,
    real,
    reference,
    write_graphs,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.device import Device


def composite(inputs: Sequence[int], outputs: Sequence[int], subgraph: int) -> Step:
    values = {
        "Name": "my.block",
        "DecompositionSubgraphIndex": subgraph,
        "CompositeAttributes": bytes(flexbuffers.Dumps({"epsilon": 0.5})),  # without any LiteRT reads no such file
    }
    return Step("STABLEHLO_COMPOSITE", inputs, outputs, "StableHLOCompositeOptions", values)


def scaled_root() -> Graph:
    """x, w -> w / sqrt(mean of x^2), x itself, a constant."""
    tensors = [
        *(real(2, 3), real(3), real(2, 3), constant([1]), real(2, 1), real(2, 1), real(2, 3)),
        constant([1.0, 2.0]),
    ]
    steps = [
        Step("MUL", [0, 0], [2], "MulOptions"),
        Step("MEAN", [2, 3], [4], "ReducerOptions", {"KeepDims": True}),
        Step("RSQRT", [4], [5]),
        Step("MUL", [5, 1], [6], "MulOptions"),
    ]
    return Graph(tensors, steps, [0, 1], [6, 0, 7])


def doubled(callee: int) -> Graph:
    """x, w -> two results of another composite, added, and its third."""
    tensors = [real(2, 3), real(3), real(2, 3), real(2, 3), real(2), real(2, 3)]
    return Graph(
        tensors, [composite([0, 1], [2, 3, 4], callee), Step("ADD", [2, 3], [5], "AddOptions")], [0, 1], [5, 4]
    )


def main(*steps: Step) -> Graph:
    """x, w -> what the steps make of them; tensors 2 to 4 are of x's shape, 5 and 6 of the constant's."""
    tensors = [real(2, 3), constant([1.0, -2.0, 0.5]), *[real(2, 3)] * 3, real(2), real(2)]
    return Graph(tensors, steps, [0], sorted({index for step in steps for index in step.outputs}))


CASES = {
    "one": [main(composite([0, 1], [2, 3, 5], 1)), scaled_root()],
    "nested": [main(composite([0, 1], [2, 5], 1)), doubled(2), scaled_root()],
    "called twice": [
        main(composite([0, 1], [2, 5], 1), composite([2, 1], [3, 6], 1)),
        doubled(2),
        scaled_root(),
    ],
}


@pytest.mark.parametrize("name", CASES)
def test_composites(name: str, device: Device) -> None:
    file = write_graphs(CASES[name])
    inputs = random_inputs([real(2, 3)])
    with nn.load(file).compile(device) as session:
        for result, expected in zip(session.run(inputs), reference(file, inputs), strict=True):
            np.testing.assert_allclose(result, expected, rtol=2e-6)


def test_shapes_follow_those_of_the_arguments(reference_device: Device) -> None:
    file = write_graphs(CASES["one"])
    inputs = random_inputs([real(2, 3)])
    inputs = [np.tile(inputs[0], (3, 1))]
    with nn.load(file, shapes={0: (6, 3)}).compile(reference_device) as session:
        for result, expected in zip(session.run(inputs), reference(file, inputs), strict=True):
            np.testing.assert_allclose(result, expected, rtol=2e-6)


def test_shape_arithmetic_goes_through_a_composite(reference_device: Device) -> None:
    """The shape that a RESHAPE takes is what a composite makes of a constant."""
    tensors = [real(2, 3), constant([2]), int32(1), real(6)]
    inner = Graph([int32(1), constant([3]), int32(1)], [Step("MUL", [0, 1], [2], "MulOptions")], [0], [2])
    file = write_graphs([Graph(tensors, [composite([1], [2], 1), Step("RESHAPE", [0, 2], [3])], [0], [3]), inner])
    data = np.arange(6, dtype=np.float32)
    with nn.load(file).compile(reference_device) as session:
        np.testing.assert_array_equal(session.run(data.reshape(2, 3))[0], data)


REFUSED_BY_READER = {
    "must have 2 inputs, as subgraph 1 has, got 1": [main(composite([0], [2, 3, 5], 1)), scaled_root()],
    "must have 3 outputs, as subgraph 1 has, got 2": [main(composite([0, 1], [2, 3], 1)), scaled_root()],
    "input 0 must be BOOL, got FLOAT32": [main(composite([0], [2], 1)), Graph([boolean(2, 3)], [], [0], [0])],
    "output 0 must be INT32, got FLOAT32": [
        main(composite([0], [2], 1)),
        Graph([real(2, 3), int32(2, 3)], [Step("CAST", [0], [1], "CastOptions")], [0], [1]),
    ],
    "decomposition_subgraph_index must be 0 to 1, got 2": [main(composite([0, 1], [2, 3, 5], 2)), scaled_root()],
    "subgraph 0: calls must nest at most 32 deep": [main(composite([0, 1], [2, 5], 1)), doubled(1)],
    "builtin options must be StableHLOCompositeOptions, got AddOptions": [
        main(Step("STABLEHLO_COMPOSITE", [0, 1], [2, 3, 5], "AddOptions")),
        scaled_root(),
    ],
}


@pytest.mark.parametrize("message", REFUSED_BY_READER)
def test_what_does_not_fit_its_subgraph_is_refused(message: str) -> None:
    with pytest.raises(BadData, match=message):
        read(write_graphs(REFUSED_BY_READER[message]))


def test_an_argument_that_is_left_out_is_named() -> None:
    with pytest.raises(BadData, match=r"operator 0 STABLEHLO_COMPOSITE: argument \(input 1\) is missing"):
        nn.load(write_graphs([main(composite([0, -1], [2, 3, 5], 1)), scaled_root()]))


def test_an_argument_of_a_graph_without_tensors_is_left_out() -> None:
    with pytest.raises(BadData, match=r"argument \(input 0\) is missing"):
        nn.load(write_graphs([Graph([], [composite([-1], [], 1)], [], []), Graph([real(3)], [], [0], [])]))


def test_what_cannot_be_converted_is_named_with_its_subgraphs() -> None:
    inner = Graph([real(2, 3), real(2, 3)], [Step("UNIQUE", [0], [1])], [0], [1])
    outer = Graph([real(2, 3), real(2, 3)], [composite([0], [1], 2)], [0], [1])
    where = "operator 0 STABLEHLO_COMPOSITE: "
    with pytest.raises(BadData, match=f"{where}subgraph 1: {where}subgraph 2: operator 0 UNIQUE: no NNAPI operation"):
        nn.load(write_graphs([main(composite([0], [2], 1)), outer, inner]))


def test_calls_that_double_at_every_level_are_refused() -> None:
    """20 subgraphs, each calling the next twice, would be a million operators."""
    graphs = [
        Graph(
            [real(3), real(3), real(3)],
            [composite([0], [1], level + 1), composite([1], [2], level + 1)],
            [0],
            [2],
        )
        for level in range(20)
    ]
    leaf = Graph([real(3), real(3)], [Step("RELU", [0], [1])], [0], [1])
    with pytest.raises(BadData, match=f"more than {MAX_INLINED} operators in composites"):
        nn.load(write_graphs([*graphs, leaf]))
