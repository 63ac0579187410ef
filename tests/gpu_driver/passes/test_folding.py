# SPDX-License-Identifier: Apache-2.0
"""What operations take over from those after them and a SOFTMAX from those before it, and what they leave alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from tests.gpu_driver.graphs import Graph
from tests.gpu_driver.passes.simplifying import operations_left, random_floats, reshape, results, transpose

if TYPE_CHECKING:
    import numpy.typing as npt

    from gpu_driver.driver import Device
    from nn_runtime.operand import Array

PADDING_VALID = 2


@pytest.mark.parametrize("is_given", [False, True], ids=["constant", "with the request"])
@pytest.mark.parametrize("is_nchw", [False, True], ids=["NHWC", "NCHW"])
def test_terms_of_columns_as_many_as_channels(opencl_device: Device, is_nchw: bool, is_given: bool) -> None:
    """The ADD stays where the last axis is not the channels, or where nobody knows that at preparation."""
    graph = Graph()
    image, filters, addend = random_floats(1, 4, 4, 4), random_floats(4, 1, 1, 4, seed=1), random_floats(4, seed=2)
    weights, bias = graph.constant(filters), graph.constant(np.zeros(4, np.float32))
    one, none = graph.integer(1), graph.integer(FuseCode.NONE)
    source = graph.input(image.shape)
    layout = graph.input((), OperandCode.BOOL) if is_given else graph.flag(is_nchw)
    product = graph.temporary(image.shape)
    parameters = [graph.integer(PADDING_VALID), one, one, none, layout]
    graph.operation(OperationCode.CONV_2D, [source, weights, bias, *parameters], product)
    graph.operation(OperationCode.ADD, [product, graph.constant(addend), none], graph.output(image.shape))
    assert operations_left(graph.model()) == (["CONV_2D", "ADD"] if is_nchw or is_given else ["CONV_2D"])
    (result,) = results(opencl_device, graph.model(), [image, np.array(is_nchw)] if is_given else [image])
    equation = "bihw,oi->bohw" if is_nchw else "bhwi,oi->bhwo"
    wanted = np.einsum(equation, image.astype(np.float64), filters.reshape(4, 4)) + addend
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)


def product(graph: Graph, code: OperationCode, activation: int) -> tuple[int, npt.NDArray[np.float64], Array]:
    """An operation with weights of [2, 4, 4, 4]: its output, what that should be, and the input's values."""
    image = random_floats(2, 4, 4, 4)
    source, one = graph.input(image.shape), graph.integer(1)
    bias = random_floats(4, seed=2)
    by_window = [graph.integer(PADDING_VALID), one, one]
    if code == OperationCode.DEPTHWISE_CONV_2D:
        weights, parameters = random_floats(1, 1, 1, 4, seed=1), [*by_window, one, activation]
        wanted = image.astype(np.float64) * weights[0, 0, 0]
    elif code == OperationCode.FULLY_CONNECTED:
        weights, parameters = random_floats(4, 4, seed=1), [activation]
        wanted = image.astype(np.float64) @ weights.T
    else:
        weights, parameters = random_floats(4, 1, 1, 4, seed=1), [*by_window, activation]
        wanted = image.astype(np.float64) @ weights[:, 0, 0].T
    output = graph.temporary((32, 4) if code == OperationCode.FULLY_CONNECTED else image.shape)
    graph.operation(code, [source, graph.constant(weights), graph.constant(bias), *parameters], output)
    return output, wanted + bias, image


PRODUCTS = (OperationCode.CONV_2D, OperationCode.DEPTHWISE_CONV_2D, OperationCode.FULLY_CONNECTED)


@pytest.mark.parametrize("code", PRODUCTS, ids=lambda code: code.name)
@pytest.mark.parametrize("size", [1, 4], ids=["one number", "by channel"])
def test_a_normalisation_behind_reshapes_is_taken_over(opencl_device: Device, code: OperationCode, size: int) -> None:
    """MUL, RESHAPE, ADD and RELU6, as a batch normalisation that a converter left behind."""
    graph = Graph()
    none = graph.integer(FuseCode.NONE)
    output, wanted, image = product(graph, code, none)
    dims = wanted.shape if code != OperationCode.FULLY_CONNECTED else (32, 4)
    factors, terms = 3 * random_floats(size, seed=3), random_floats(1, size, seed=4)
    scaled, added = graph.temporary(dims), graph.temporary((8, 4, 4))
    graph.operation(OperationCode.MUL, [graph.constant(factors), output, none], scaled)
    flat = graph.temporary((8, 4, 4))
    graph.operation(OperationCode.RESHAPE, [scaled, graph.constant(np.array((8, 4, 4), np.int32))], flat)
    graph.operation(OperationCode.ADD, [flat, graph.constant(terms), none], added)
    graph.operation(OperationCode.RELU6, [added], graph.output((8, 4, 4)))
    assert operations_left(graph.model()) == [code.name, "RESHAPE"]
    (result,) = results(opencl_device, graph.model(), [image])
    wanted = np.clip(wanted * factors + terms.reshape(-1), 0, 6).reshape(8, 4, 4)
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("reason", ["activation", "rows", "range", "reader", "channels"])
def test_factors_that_are_not_of_the_channels_stay(opencl_device: Device, reason: str) -> None:
    """Behind an activation, one for each row, beyond float32, of a result read twice, behind a reshape of channels."""
    graph = Graph()
    none = graph.integer(FuseCode.NONE)
    activation = graph.integer(FuseCode.RELU) if reason == "activation" else none
    output, wanted, image = product(graph, OperationCode.CONV_2D, activation)
    if reason == "activation":
        wanted = np.maximum(wanted, 0)
    factors = random_floats(4, 1, seed=3) if reason == "rows" else random_floats(4, seed=3)
    if reason == "range":
        factors[:] = 1e38 * 3.4
    dims = wanted.shape
    if reason == "channels":
        dims = (2, 4, 8, 2)
        flat = graph.temporary(dims)
        graph.operation(OperationCode.RESHAPE, [output, graph.constant(np.array(dims, np.int32))], flat)
        output, wanted, factors = flat, wanted.reshape(dims), factors[:2]
    graph.operation(OperationCode.MUL, [output, graph.constant(factors), none], graph.output(dims))
    if reason == "reader":
        graph.operation(OperationCode.TANH, [output], graph.output(dims))
    assert "MUL" in operations_left(graph.model())
    if reason != "range":
        result = results(opencl_device, graph.model(), [image])[0]
        np.testing.assert_allclose(result, wanted * factors, rtol=1e-5, atol=1e-5)


def test_terms_that_make_a_column_wider_stay(opencl_device: Device) -> None:
    """As many as there are channels, but added to each number of a column that a reshape makes."""
    graph = Graph()
    none = graph.integer(FuseCode.NONE)
    source, weights, bias = random_floats(3, 4), random_floats(4, 4, seed=1), random_floats(4, seed=2)
    terms, made, column = random_floats(4, seed=3), graph.temporary((3, 4)), graph.temporary((12, 1))
    constants = graph.constant(weights), graph.constant(bias)
    graph.operation(OperationCode.FULLY_CONNECTED, [graph.input((3, 4)), *constants, none], made)
    reshape(graph, made, (12, 1), column)
    graph.operation(OperationCode.ADD, [column, graph.constant(terms), none], graph.output((12, 4)))
    assert operations_left(graph.model()) == ["FULLY_CONNECTED", "RESHAPE", "ADD"]
    (result,) = results(opencl_device, graph.model(), [source])
    wanted = (source.astype(np.float64) @ weights.T + bias).reshape(12, 1) + terms
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("code", "left"), [(OperationCode.ADD, 1), (OperationCode.MUL, 2)])
def test_weights_that_a_run_brings_take_over_terms_alone(opencl_device: Device, code: OperationCode, left: int) -> None:
    graph = Graph()
    source, weights, bias, numbers = (
        random_floats(*dims, seed=at) for at, dims in enumerate([(3, 4), (4, 4), (4,), (4,)])
    )
    none, made = graph.integer(FuseCode.NONE), graph.temporary((3, 4))
    operands = graph.input((3, 4)), graph.input((4, 4)), graph.constant(bias)
    graph.operation(OperationCode.FULLY_CONNECTED, [*operands, none], made)
    graph.operation(code, [made, graph.constant(numbers), none], graph.output((3, 4)))
    assert len(operations_left(graph.model())) == left
    (result,) = results(opencl_device, graph.model(), [source, weights])
    wanted = source.astype(np.float64) @ weights.T + bias
    wanted = wanted + numbers if code == OperationCode.ADD else wanted * numbers
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("code", PRODUCTS, ids=lambda code: code.name)
@pytest.mark.parametrize(
    ("following", "bias", "number", "left"),
    [
        (OperationCode.ADD, 3e38, 3e38, 2), (OperationCode.ADD, -np.inf, np.inf, 2),
        (OperationCode.ADD, 3e38, -3e38, 1),
        (OperationCode.MUL, 1e-20, 1e-20, 2), (OperationCode.MUL, 1e20, 1e20, 2), (OperationCode.MUL, 0, np.inf, 2),
        (OperationCode.MUL, 0, 0, 1), (OperationCode.MUL, 1e-20, 1e10, 1),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("error")
def test_constants_that_float32_does_not_hold_stay(
    code: OperationCode, following: OperationCode, bias: float, number: float, left: int
) -> None:
    graph = Graph()
    one, none = graph.integer(1), graph.integer(FuseCode.NONE)
    dims = (3, 4) if code == OperationCode.FULLY_CONNECTED else (1, 3, 1, 4)
    weights = np.ones({4: (1, 1, 1, 4), 2: (4, 4)}[len(dims)], np.float32)
    if code == OperationCode.CONV_2D:
        weights = np.ones((4, 1, 1, 4), np.float32)
    windows = [] if code == OperationCode.FULLY_CONNECTED else [graph.integer(PADDING_VALID), one, one]
    windows += [one] if code == OperationCode.DEPTHWISE_CONV_2D else []
    constants = graph.constant(weights), graph.constant(np.full(4, bias, np.float32))
    output = graph.temporary(dims)
    graph.operation(code, [graph.input(dims), *constants, *windows, none], output)
    numbers = graph.constant(np.full(4, number, np.float32))
    graph.operation(following, [output, numbers, none], graph.output(dims))
    assert len(operations_left(graph.model())) == left


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


def test_a_softmax_leaves_a_factor_with_which_beta_would_be_nothing(opencl_device: Device) -> None:
    graph = scaled_softmax(OperationCode.MUL, [1e-30], beta=1e-30)
    assert operations_left(graph.model()) == ["MUL", "SOFTMAX"]
    (result,) = results(opencl_device, graph.model(), [random_floats(3, 20)])
    np.testing.assert_allclose(result, np.full((3, 20), 1 / 20), rtol=1e-5, atol=1e-7)


def test_a_softmax_leaves_a_factor_that_adds_a_dimension(opencl_device: Device) -> None:
    graph = Graph()
    scaled = graph.temporary((1, 2, 3))
    operands = [graph.input((2, 3)), graph.constant(np.full((1, 1, 1), 0.5, np.float32)), graph.integer(FuseCode.NONE)]
    graph.operation(OperationCode.MUL, operands, scaled)
    graph.operation(OperationCode.SOFTMAX, [scaled, graph.real(1.0)], graph.output((1, 2, 3)))
    assert operations_left(graph.model()) == ["MUL", "SOFTMAX"]
    values = random_floats(2, 3)
    (result,) = results(opencl_device, graph.model(), [values])
    np.testing.assert_allclose(result[0], softmax(0.5 * values.astype(np.float64)), rtol=1e-5, atol=1e-7)


def test_a_softmax_leaves_factors_that_others_read_or_that_bound() -> None:
    graph = Graph()
    source, scaled, bounded = graph.input((3, 20)), graph.temporary((3, 20)), graph.temporary((3, 20))
    half = graph.constant(np.array([0.5], np.float32))
    graph.operation(OperationCode.MUL, [source, half, graph.integer(FuseCode.NONE)], scaled)
    graph.operation(OperationCode.SOFTMAX, [scaled, graph.real(1.0)], graph.output((3, 20)))
    graph.operation(OperationCode.MUL, [scaled, half, graph.integer(FuseCode.RELU)], bounded)
    graph.operation(OperationCode.SOFTMAX, [bounded, graph.real(1.0)], graph.output((3, 20)))
    assert operations_left(graph.model()) == ["MUL", "SOFTMAX", "MUL", "SOFTMAX"]


class Attention:
    """SOFTMAX of products of queries and keys [2, 5, 4], both scaled and moved before, as PyTorch's exporter has it."""

    def __init__(self, factors: tuple[float, float]) -> None:
        self.graph = graph = Graph()
        self.values = [random_floats(5, 2, 4), random_floats(5, 2, 4, seed=1)]
        self.moved = []
        for factor in factors:
            scaled, turned = graph.temporary((5, 2, 4)), graph.temporary((2, 5, 4))
            operands = [graph.input((5, 2, 4)), graph.constant(np.array([factor], np.float32))]
            graph.operation(OperationCode.MUL, [*operands, graph.integer(FuseCode.NONE)], scaled)
            transpose(graph, scaled, (1, 0, 2), turned)
            self.moved.append(turned)

    def finish(self, first: int, second: int) -> None:
        graph, product, scores = self.graph, self.graph.temporary((2, 5, 5)), self.graph.temporary((1, 2, 5, 5))
        graph.operation(OperationCode.BATCH_MATMUL, [first, second, graph.flag(False), graph.flag(True)], product)
        reshape(graph, product, (1, 2, 5, 5), scores)
        graph.operation(OperationCode.SOFTMAX, [scores, graph.real(1.0)], graph.output((1, 2, 5, 5)))

    def check(self, device: Device, first: Array, second: Array) -> None:
        (result,) = results(device, self.graph.model(), self.values)
        scores = np.einsum("qhd,khd->hqk", first.astype(np.float64), second.astype(np.float64))
        np.testing.assert_allclose(result[0], softmax(scores), rtol=1e-5, atol=1e-7)


def test_a_softmax_takes_over_factors_of_queries_and_keys(opencl_device: Device) -> None:
    attention = Attention((0.5, 0.25))
    attention.finish(*attention.moved)
    assert "MUL" not in operations_left(attention.graph.model())
    attention.check(opencl_device, 0.5 * attention.values[0], 0.25 * attention.values[1])


def test_a_negative_factor_stays_beside_one_that_goes(opencl_device: Device) -> None:
    attention = Attention((-0.5, 0.25))
    attention.finish(*attention.moved)
    assert operations_left(attention.graph.model()).count("MUL") == 1
    attention.check(opencl_device, -0.5 * attention.values[0], 0.25 * attention.values[1])


def test_a_factor_of_both_operands_counts_twice(opencl_device: Device) -> None:
    """What a product reads twice stays as it is."""
    attention = Attention((0.5, 0.25))
    attention.finish(attention.moved[0], attention.moved[0])
    assert operations_left(attention.graph.model()).count("MUL") == 1
    attention.check(opencl_device, 0.5 * attention.values[0], 0.5 * attention.values[0])


def test_a_factor_before_thousands_of_moves(opencl_device: Device) -> None:
    """No depth of a model is one of the interpreter's stack."""
    graph = Graph()
    now = graph.temporary((4, 5))
    operands = [graph.input((4, 5)), graph.constant(np.array([0.5], np.float32)), graph.integer(FuseCode.NONE)]
    graph.operation(OperationCode.MUL, operands, now)
    for place in range(3000):
        dims = (5, 4) if place % 2 else (4, 5)
        after = graph.temporary(dims[::-1])
        reshape(graph, now, dims[::-1], after)
        now = after
    graph.operation(OperationCode.SOFTMAX, [now, graph.real(1.0)], graph.output((4, 5)))
    assert "MUL" not in operations_left(graph.model())
    values = random_floats(4, 5)
    (result,) = results(opencl_device, graph.model(), [values])
    np.testing.assert_allclose(result, softmax(0.5 * values.astype(np.float64)), rtol=1e-5, atol=1e-7)
