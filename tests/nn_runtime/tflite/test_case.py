# SPDX-License-Identifier: Apache-2.0
"""STABLEHLO_CASE against LiteRT: a choice among any number of subgraphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import flatbuffers
import numpy as np
import pytest

import nn_runtime as nn
from nn_runtime.errors import BadData
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.decoder import TfliteError
from tests.nn_runtime.tflite.operator_file import Graph, Step, Tensor, constant, int32, real, reference, write_graphs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.device import Device

X = np.array([1.0, -10.0], np.float32)
_STAND_IN = {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 1}


def times(number: float) -> Graph:
    """x, y -> number * x, and y itself."""
    tensors = [real(2), real(2), constant([number]), real(2)]
    return Graph(tensors, [Step("MUL", [0, 2], [3], "MulOptions")], [0, 1], [3, 1])


def as_case(graphs: Sequence[Graph], branches: Sequence[int]) -> bytes:
    """Return a file in which CASE stands for the IF, by LiteRT's schema: the package `tflite` has no such operator."""
    litert = pytest.importorskip("ai_edge_litert.schema_py_generated")
    model = litert.ModelT.InitFromObj(litert.Model.GetRootAs(write_graphs(graphs), 0))
    for code in model.operatorCodes:
        if code.builtinCode == BuiltinOperator.IF:
            code.builtinCode, code.deprecatedBuiltinCode = BuiltinOperator.STABLEHLO_CASE, 127
    (operator,) = model.subgraphs[0].operators
    operator.builtinOptionsType, operator.builtinOptions = 0, None
    operator.builtinOptions2Type = litert.BuiltinOptions2.StablehloCaseOptions
    operator.builtinOptions2 = litert.StablehloCaseOptionsT(list(branches))
    builder = flatbuffers.Builder()
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def case(branches: int, index: Tensor, *, named: Sequence[int] | None = None) -> bytes:
    """index, x, y -> (number of the branch + 2) * x, y."""
    fed = [0, 1, 2] if index.data is None else [1, 2]
    step = Step("IF", [0, 1, 2], [3, 4], "IfOptions", _STAND_IN)
    main = Graph([index, real(2), real(2), real(2), real(2)], [step], fed, [3, 4])
    graphs = [main, *(times(number + 2.0) for number in range(branches))]
    return as_case(graphs, range(1, branches + 1) if named is None else named)


@pytest.mark.parametrize("shape", [(), (1,)])
@pytest.mark.parametrize("branches", [1, 2, 3, 6])
def test_results_are_those_of_litert(branches: int, shape: tuple[int, ...], device: Device) -> None:
    """Also for the numbers that no branch has."""
    file = case(branches, int32(*shape))
    with nn.load(file).compile(device) as session:
        for number in (-(2**31), -1, *range(branches + 1), 2**31 - 1):
            inputs = [np.full(shape, number, np.int32), X, X + 1]
            wanted = reference(file, inputs)
            np.testing.assert_array_equal(wanted[0], X * ((number if 0 <= number < branches else branches - 1) + 2))
            for result, expected in zip(session.run(inputs), wanted, strict=True):
                np.testing.assert_array_equal(result, expected)


def test_a_known_index(device: Device) -> None:
    with nn.load(case(3, constant(np.int32(1)))).compile(device) as session:
        np.testing.assert_array_equal(session.run([X, X + 1])[0], X * 3)


def test_a_branch_that_reads_nothing(device: Device) -> None:
    alone = Graph([real(2), real(2), constant([4.0, -4.0]), real(2)], [Step("ABS", [2], [3])], [0, 1], [3, 1])
    step = Step("IF", [0, 1, 2], [3, 4], "IfOptions", _STAND_IN)
    main = Graph([int32(), real(2), real(2), real(2), real(2)], [step], [0, 1, 2], [3, 4])
    file = as_case([main, times(2.0), alone, times(3.0)], [1, 2, 3])
    with nn.load(file).compile(device) as session:
        for number, wanted in ((0, X * 2), (1, [4, 4]), (2, X * 3)):
            np.testing.assert_array_equal(session.run([np.int32(number), X, X + 1])[0], wanted)


def test_every_output_of_a_branch_is_one_of_the_case() -> None:
    step = Step("IF", [0, 1, 2], [3], "IfOptions", _STAND_IN)
    main = Graph([int32(), real(2), real(2), real(2)], [step], [0, 1, 2], [3])
    with pytest.raises(BadData, match="STABLEHLO_CASE: must have 2 outputs, got 1"):
        nn.load(as_case([main, times(2.0), times(3.0)], [1, 2]))


@pytest.mark.parametrize(
    ("file", "error", "message"),
    [
        (lambda: case(2, real()), BadData, "must have an INT32 index and subgraphs, got TENSOR_FLOAT32 and 2"),
        (lambda: case(2, int32(), named=[]), BadData, "must have an INT32 index and subgraphs, got TENSOR_INT32 and 0"),
        (lambda: case(2, int32(), named=[1, 3]), TfliteError, "branch_subgraph_indices must be 0 to 2, got 3"),
        (lambda: case(2, int32(), named=[1, 0]), TfliteError, "calls must nest"),
        (lambda: case(2, int32(), named=[1, 2] * 129), BadData, "more than 256 subgraphs are called"),
    ],
    ids=["type", "none", "outside", "itself", "too many"],
)  # fmt: skip
def test_what_is_refused(file: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        nn.load(file())  # type: ignore[operator]
