# SPDX-License-Identifier: Apache-2.0
"""Operations that others before them do already are left out; what is alike in all but one thing stays."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pytest

from gpu_driver.passes.graph import Graph as Passes
from gpu_driver.passes.graph import Rewritten
from gpu_driver.passes.repetitions import remove_repetitions
from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.operand import ChannelQuant, dtype_of
from tests.gpu_driver.graphs import Graph
from tests.gpu_driver.passes.simplifying import operations_left, random_floats, results
from tests.gpu_driver.test_control_flow import Outer

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_driver.driver import Device

DIMS = (3, 5)
CODES, INT32 = OperandCode.TENSOR_QUANT8_ASYMM, OperandCode.TENSOR_INT32
SIGNED, CHANNELS = OperandCode.TENSOR_QUANT8_ASYMM_SIGNED, OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL


def number(graph: Graph, value: float) -> int:
    return graph.constant(np.full(1, value, np.float32))


def sum_of(graph: Graph, first: int, second: int, fuse: FuseCode = FuseCode.NONE) -> int:
    made = graph.temporary(DIMS)
    graph.operation(OperationCode.ADD, [first, second, graph.integer(fuse)], made)
    return made


def exponential(graph: Graph, source: int) -> int:
    made = graph.temporary(DIMS)
    graph.operation(OperationCode.EXP, [source], made)
    return made


def difference(graph: Graph, first: int, second: int) -> None:
    graph.operation(OperationCode.SUB, [first, second, graph.integer(FuseCode.NONE)], graph.output(DIMS))


def test_what_is_made_twice_is_made_once(opencl_device: Device) -> None:
    """Operation by operation: constants have the same data in operands of their own."""
    graph = Graph()
    source = graph.input(DIMS)
    first, second = (exponential(graph, sum_of(graph, source, number(graph, 0.5))) for _ in range(2))
    third = sum_of(graph, second, number(graph, 1.0))
    difference(graph, first, third)
    assert operations_left(graph.model()).count("EXP") == 1
    data = random_floats(*DIMS)
    (result,) = results(opencl_device, graph.model(), [data])
    np.testing.assert_allclose(result, np.full(DIMS, -1.0), atol=1e-5)


def test_a_profile_names_all_that_one_operation_does() -> None:
    graph = Graph()
    source = graph.input(DIMS)
    difference(graph, exponential(graph, source), exponential(graph, source))
    model = graph.model()
    passes = Passes(model, Rewritten.of(model.main))
    assert remove_repetitions(passes)
    assert not remove_repetitions(passes)
    assert passes.rewritten().origins == ((0, 1), (2,))


def of_numbers(graph: Graph, source: int) -> tuple[int, int]:
    return sum_of(graph, source, number(graph, 1)), sum_of(graph, source, number(graph, 2))


def of_activations(graph: Graph, source: int) -> tuple[int, int]:
    one = number(graph, 1)
    return sum_of(graph, source, one), sum_of(graph, source, one, FuseCode.RELU)


def of_sources(graph: Graph, source: int) -> tuple[int, int]:
    other = graph.input(DIMS)
    return exponential(graph, source), exponential(graph, other)


def of_operations(graph: Graph, source: int) -> tuple[int, int]:
    made = graph.temporary(DIMS)
    graph.operation(OperationCode.TANH, [source], made)
    return exponential(graph, source), made


def of_long_constants(graph: Graph, source: int) -> tuple[int, int]:
    """Which are not compared element by element."""
    made = []
    for _ in range(2):
        weights = graph.constant(np.ones((DIMS[1], 300), np.float32))
        bias = graph.constant(np.zeros(DIMS[1], np.float32))
        found = graph.temporary(DIMS)
        wide = graph.temporary((DIMS[0], 300))
        multiples = graph.constant(np.array([1, 60], np.int32))
        graph.operation(OperationCode.TILE, [source, multiples], wide)
        graph.operation(OperationCode.FULLY_CONNECTED, [wide, weights, bias, graph.integer(0)], found)
        made.append(found)
    return made[0], made[1]


DIFFERENT = [of_numbers, of_activations, of_sources, of_operations, of_long_constants]


@pytest.mark.parametrize("build", DIFFERENT, ids=lambda build: build.__name__)
def test_what_differs_is_made(build: Callable[[Graph, int], tuple[int, int]]) -> None:
    graph = Graph()
    first, second = build(graph, graph.input(DIMS))
    difference(graph, first, second)
    before = graph.model()
    names = [OperationCode(operation.type).name for operation in before.main.operations]
    left = operations_left(before)
    for code in {operation.type for operation in before.main.operations} - {OperationCode.TILE, OperationCode.TANH}:
        assert left.count(OperationCode(code).name) == names.count(OperationCode(code).name)


def test_other_scales_are_other_results() -> None:
    graph = Graph()
    source = graph.input(DIMS)
    for scale in (0.5, 0.25):
        codes = graph.temporary(DIMS, CODES, scale, 128)
        graph.operation(OperationCode.QUANTIZE, [source], codes)
        graph.operation(OperationCode.DEQUANTIZE, [codes], graph.output(DIMS))
    assert operations_left(graph.model()).count("QUANTIZE") == 2


def test_outputs_of_the_model_are_all_made(opencl_device: Device) -> None:
    graph = Graph()
    source = graph.input(DIMS)
    for _ in range(2):
        graph.operation(OperationCode.EXP, [source], graph.output(DIMS))
    again = exponential(graph, source)
    graph.operation(OperationCode.NEG, [again], graph.output(DIMS))
    assert operations_left(graph.model()) == ["EXP", "EXP", "NEG"]
    data = random_floats(*DIMS)
    for found, sign in zip(results(opencl_device, graph.model(), [data]), (1, 1, -1), strict=True):
        np.testing.assert_allclose(found, sign * np.exp(data.astype(np.float64)), 1e-6)


def test_an_operation_of_an_output_is_made_with_all_that_it_makes(opencl_device: Device) -> None:
    """Though another one makes all of it, too."""
    graph = Graph()
    source, made = graph.input(DIMS), (DIMS[0], 2)
    _, first = pair = graph.temporary(made), graph.temporary(made, INT32)
    graph.operation(OperationCode.TOPK_V2, [source, graph.integer(2)], *pair)
    _, second = pair = graph.output(made), graph.temporary(made, INT32)
    graph.operation(OperationCode.TOPK_V2, [source, graph.integer(2)], *pair)
    none = graph.integer(FuseCode.NONE)
    graph.operation(OperationCode.ADD, [first, second, none], graph.output(made, INT32))
    assert operations_left(graph.model()).count("TOPK_V2") == 2
    data = random_floats(*DIMS)
    values, indices = results(opencl_device, graph.model(), [data])
    order = np.argsort(-data, axis=1)[:, :2]
    np.testing.assert_array_equal(values, np.take_along_axis(data, order, 1))
    np.testing.assert_array_equal(indices, 2 * order)


def test_random_numbers_are_drawn_anew() -> None:
    graph = Graph()
    seeds, logits = graph.constant(np.array([1, 2], np.int32)), graph.input((1, 4))
    for _ in range(2):
        drawn = graph.temporary((1, 3), INT32)
        graph.operation(OperationCode.RANDOM_MULTINOMIAL, [logits, graph.integer(3), seeds], drawn)
        graph.operation(OperationCode.ABS, [drawn], graph.output((1, 3), INT32))
    assert operations_left(graph.model()).count("RANDOM_MULTINOMIAL") == 2


def test_branches_are_taken_each_by_itself() -> None:
    """What is inside, as random numbers, may differ."""
    inner = Graph()
    inner.operation(OperationCode.EXP, [inner.input(DIMS)], inner.output(DIMS))
    graph = Outer()
    flag, source, branch = graph.input((1,), OperandCode.TENSOR_BOOL8), graph.input(DIMS), graph.model_operand(0)
    made = [graph.temporary(DIMS) for _ in range(2)]
    for one in made:
        graph.operation(OperationCode.IF, [flag, branch, branch, source], one)
    difference(graph, *made)
    model = replace(graph.model(), referenced=(inner.model().main,))
    assert not remove_repetitions(Passes(model, Rewritten.of(model.main)))


Quantised: TypeAlias = "tuple[OperandCode, float, int, ChannelQuant | None]"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((CODES, 0.5, 3, None), (CODES, 0.25, 3, None)),
        ((CODES, 0.5, 3, None), (CODES, 0.5, 4, None)),
        ((CODES, 0.5, 3, None), (SIGNED, 0.5, 3, None)),
        *(
            ((CHANNELS, 0.0, 0, ChannelQuant((0.5, 0.25), 0)), (CHANNELS, 0.0, 0, other))
            for other in (ChannelQuant((0.5, 0.125), 0), ChannelQuant((0.5, 0.25), 1))
        ),
    ],
    ids=["scale", "zero point", "type", "scales of channels", "channels"],
)
def test_the_same_bytes_may_be_other_numbers(first: Quantised, second: Quantised) -> None:
    graph = Graph()
    for code, scale, zero_point, channels in (first, second):
        data = np.array([[1, 2], [3, 4]], dtype_of(code))
        codes = graph.constant(data, code, scale, zero_point, channels)
        made = graph.temporary(data.shape)
        graph.operation(OperationCode.DEQUANTIZE, [codes], made)
        graph.operation(OperationCode.NEG, [made], graph.output(data.shape))
    model = graph.model()
    assert not remove_repetitions(Passes(model, Rewritten.of(model.main)))


def test_the_same_bytes_may_be_a_row_or_a_column(opencl_device: Device) -> None:
    graph = Graph()
    source, numbers = graph.input((3, 3)), np.arange(3, dtype=np.float32)
    made = [graph.temporary((3, 3)) for _ in range(2)]
    for dims, one in zip(((1, 3), (3, 1)), made, strict=True):
        operands = [source, graph.constant(numbers.reshape(dims)), graph.integer(FuseCode.NONE)]
        graph.operation(OperationCode.ADD, operands, one)
    graph.operation(OperationCode.SUB, [*made, graph.integer(FuseCode.NONE)], graph.output((3, 3)))
    (result,) = results(opencl_device, graph.model(), [np.zeros((3, 3), np.float32)])
    np.testing.assert_array_equal(result, numbers - numbers[:, np.newaxis])


def test_other_types_are_other_results() -> None:
    graph = Graph()
    source = graph.input(DIMS)
    for code in (INT32, OperandCode.TENSOR_FLOAT16):
        made = graph.temporary(DIMS, code)
        graph.operation(OperationCode.CAST, [source], made)
        graph.operation(OperationCode.CAST, [made], graph.output(DIMS))
    model = graph.model()
    assert not remove_repetitions(Passes(model, Rewritten.of(model.main)))


def test_other_zero_points_are_other_results() -> None:
    graph = Graph()
    source = graph.input(DIMS)
    for zero_point in (127, 128):
        codes = graph.temporary(DIMS, CODES, 0.5, zero_point)
        graph.operation(OperationCode.QUANTIZE, [source], codes)
        graph.operation(OperationCode.DEQUANTIZE, [codes], graph.output(DIMS))
    assert operations_left(graph.model()).count("QUANTIZE") == 2


def test_a_sum_is_no_mean() -> None:
    """What passes have made of one operation is not what its type and operands say."""
    graph = Graph()
    source, axes = graph.input(DIMS), graph.constant(np.array([1], np.int32))
    made = [graph.temporary((3, 1)) for _ in range(2)]
    for one in made:
        graph.operation(OperationCode.MEAN, [source, axes, graph.integer(1)], one)
    graph.operation(OperationCode.SUB, [*made, graph.integer(FuseCode.NONE)], graph.output((3, 1)))
    model = graph.model()
    before = Rewritten(model.main, ((0,), (1,), (2,)), sums=frozenset({1}))
    assert not remove_repetitions(Passes(model, before))


def test_a_lookup_that_counts_from_the_end_is_another() -> None:
    graph = Graph()
    source, indices = graph.input(DIMS), graph.input((4,), INT32)
    made = [graph.temporary((4, DIMS[1])) for _ in range(2)]
    for one in made:
        graph.operation(OperationCode.GATHER, [source, graph.integer(0), indices], one)
    graph.operation(OperationCode.SUB, [*made, graph.integer(FuseCode.NONE)], graph.output((4, DIMS[1])))
    model = graph.model()
    before = Rewritten(model.main, ((0,), (1,), (2,)), from_end=frozenset({1}))
    assert not remove_repetitions(Passes(model, before))


def test_other_tables_are_other_results() -> None:
    graph = Graph()
    source = graph.input(DIMS, CODES, 0.5, 128)
    made = [graph.temporary(DIMS, CODES, 0.5, 128) for _ in range(2)]
    for one in made:
        graph.operation(OperationCode.DEQUANTIZE, [source], one)
    graph.operation(OperationCode.MAXIMUM, made, graph.output(DIMS, CODES, 0.5, 128))
    model = graph.model()
    tables = {0: np.arange(256, dtype=np.uint8), 1: np.arange(256, dtype=np.uint8)[::-1]}
    before = Rewritten(model.main, ((0,), (1,), (2,)), tables=tables)
    assert not remove_repetitions(Passes(model, before))
