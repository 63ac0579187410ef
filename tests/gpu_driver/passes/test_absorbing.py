# SPDX-License-Identifier: Apache-2.0
"""What convolutions take over from the addition after them, and what they leave alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from tests.gpu_driver.graphs import Graph
from tests.gpu_driver.passes.simplifying import operations_left, random_floats, results

if TYPE_CHECKING:
    import numpy.typing as npt

    from gpu_driver.driver import Device

PADDING_VALID = 2


@pytest.mark.parametrize("is_nchw", [False, True], ids=["NHWC", "NCHW"])
def test_a_layout_that_comes_with_the_request(opencl_device: Device, is_nchw: bool) -> None:
    """Which axis the channels are is not known at preparation: the ADD stays."""
    graph = Graph()
    image, filters, addend = random_floats(1, 4, 4, 4), random_floats(4, 1, 1, 4, seed=1), random_floats(4, seed=2)
    weights, bias = graph.constant(filters), graph.constant(np.zeros(4, np.float32))
    one, none = graph.integer(1), graph.integer(FuseCode.NONE)
    source, layout = graph.input(image.shape), graph.input((), OperandCode.BOOL)
    product = graph.temporary(image.shape)
    parameters = [graph.integer(PADDING_VALID), one, one, none, layout]
    graph.operation(OperationCode.CONV_2D, [source, weights, bias, *parameters], product)
    graph.operation(OperationCode.ADD, [product, graph.constant(addend), none], graph.output(image.shape))
    assert operations_left(graph.model()) == ["CONV_2D", "ADD"]
    (result,) = results(opencl_device, graph.model(), [image, np.array(is_nchw)])
    equation = "bihw,oi->bohw" if is_nchw else "bhwi,oi->bhwo"
    wanted = np.einsum(equation, image.astype(np.float64), filters.reshape(4, 4)) + addend
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)


def scaled_softmax(code: OperationCode, numbers: list[float], *, beta: float = 1.0, is_first: bool = False) -> Graph:
    """SOFTMAX of an input [3, 20] with which something is done by constants before, one after the other."""
    graph = Graph()
    now = graph.input((3, 20))
    for number in numbers:
        scaled = graph.temporary((3, 20))
        operands = [now, graph.constant(np.array([number], np.float32))]
        graph.operation(code, [*operands[:: -1 if is_first else 1], graph.integer(FuseCode.NONE)], scaled)
        now = scaled
    graph.operation(OperationCode.SOFTMAX, [now, graph.real(beta)], graph.output((3, 20)))
    return graph


def softmax(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    powers = np.exp(values - values.max(axis=-1, keepdims=True))
    shares: npt.NDArray[np.float64] = powers / powers.sum(axis=-1, keepdims=True)
    return shares


@pytest.mark.parametrize(
    ("code", "numbers", "is_first", "factor"),
    [
        (OperationCode.MUL, [0.25], False, 0.25),
        (OperationCode.MUL, [0.25, 3.0], True, 0.75),
        (OperationCode.DIV, [8.0], False, 0.125),
    ],
)
def test_a_softmax_takes_over_factors(
    opencl_device: Device, code: OperationCode, numbers: list[float], is_first: bool, factor: float
) -> None:
    graph = scaled_softmax(code, numbers, beta=1.5, is_first=is_first)
    assert operations_left(graph.model()) == ["SOFTMAX"]
    values = 10 * random_floats(3, 20)
    (result,) = results(opencl_device, graph.model(), [values])
    np.testing.assert_allclose(result, softmax(1.5 * factor * values.astype(np.float64)), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("code", "number", "is_first"),
    [
        (OperationCode.MUL, -0.5, False),  # beta must be positive
        (OperationCode.MUL, 0.0, False),
        (OperationCode.DIV, 0.0, False),
        (OperationCode.DIV, 2.0, True),  # a number divided by the input
        (OperationCode.MUL, 3e38, False),  # with beta more than float32 holds
        (OperationCode.ADD, 2.0, False),
    ],
)
def test_a_softmax_leaves_what_is_no_positive_factor(code: OperationCode, number: float, is_first: bool) -> None:
    graph = scaled_softmax(code, [number], beta=2.0, is_first=is_first)
    assert operations_left(graph.model()) == [code.name, "SOFTMAX"]


def test_a_softmax_leaves_factors_that_others_read_or_that_bound() -> None:
    graph = Graph()
    source, scaled, bounded = graph.input((3, 20)), graph.temporary((3, 20)), graph.temporary((3, 20))
    half = graph.constant(np.array([0.5], np.float32))
    graph.operation(OperationCode.MUL, [source, half, graph.integer(FuseCode.NONE)], scaled)
    graph.operation(OperationCode.SOFTMAX, [scaled, graph.real(1.0)], graph.output((3, 20)))
    graph.operation(OperationCode.MUL, [scaled, half, graph.integer(FuseCode.RELU)], bounded)
    graph.operation(OperationCode.SOFTMAX, [bounded, graph.real(1.0)], graph.output((3, 20)))
    assert operations_left(graph.model()) == ["MUL", "SOFTMAX", "MUL", "SOFTMAX"]
