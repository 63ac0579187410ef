# SPDX-License-Identifier: Apache-2.0
"""Operations on constants: computed at preparation, unless what they make is large or no function of them."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpu_driver.passes.constants import ALWAYS_BYTES, constant_part, foldable
from gpu_driver.passes.graph import Graph as Working
from gpu_driver.passes.graph import Rewritten
from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.hal.interfaces import CacheRequest
from nn_runtime.hal.types import CACHE_TOKEN_BYTES, ExecutionPreference, HalError, Model, Priority, Subgraph
from nn_runtime.operand import ChannelQuant
from tests.gpu_driver.graphs import Graph, request
from tests.gpu_driver.passes.simplifying import launches_on, random_floats, reshape, results, transpose
from tests.gpu_driver.running import fresh, prepare, run
from tests.gpu_driver.test_control_flow import Outer

if TYPE_CHECKING:
    from gpu_driver.driver import Device
    from nn_runtime.operand import Array

QUANT8, INT32 = OperandCode.TENSOR_QUANT8_ASYMM, OperandCode.TENSOR_INT32
SCALE, ZERO_POINT = 0.02, 120


def folded(model: Model) -> list[int]:
    return foldable(Working(model, Rewritten.of(model.main)))


def product(graph: Graph, source: int, weights: int, units: int, output: int) -> None:
    bias = graph.constant(np.arange(units, dtype=np.float32))
    graph.operation(OperationCode.FULLY_CONNECTED, [source, weights, bias, graph.integer(FuseCode.NONE)], output)


def quantised_weights(units: int = 40, depth: int = 24) -> tuple[Model, Array, Array]:
    """FULLY_CONNECTED with weights that are stored in 8 bit; with those bytes, and the input."""
    codes = np.random.default_rng(1).integers(0, 256, (units, depth)).astype(np.uint8)
    graph = Graph()
    source, weights, output = graph.input((3, depth)), graph.temporary((units, depth)), graph.output((3, units))
    graph.operation(OperationCode.DEQUANTIZE, [graph.constant(codes, QUANT8, SCALE, ZERO_POINT)], weights)
    product(graph, source, weights, units, output)
    return graph.model(), codes, random_floats(3, depth)


def expected(codes: Array, source: Array) -> Array:
    weights = SCALE * (codes.astype(np.float64) - ZERO_POINT)
    return source.astype(np.float64) @ weights.T + np.arange(len(codes))


def test_weights_that_are_dequantised_are_packed_weights(opencl_device: Device) -> None:
    model, codes, source = quantised_weights()
    assert launches_on(opencl_device, model) == 1
    (result,) = results(opencl_device, model, [source])
    np.testing.assert_allclose(result, expected(codes, source), rtol=1e-5, atol=1e-5)


def test_what_is_folded_is_what_a_run_would_give(opencl_device: Device) -> None:
    """The same operations on a constant and on an input with its data."""
    data = np.random.default_rng(2).integers(-128, 128, (4, 3, 2, 5)).astype(np.int8)

    def network(is_constant: bool) -> Model:
        graph = Graph()
        code = OperandCode.TENSOR_QUANT8_ASYMM_SIGNED
        source = graph.constant(data, code, 0.1, 3) if is_constant else graph.input(data.shape, code, 0.1, 3)
        factor = graph.input((1,))
        turned = graph.temporary((5, 2, 3, 4), code, 0.1, 3)
        real, curved = graph.temporary((5, 2, 3, 4)), graph.temporary((5, 2, 3, 4))
        transpose(graph, source, (3, 2, 1, 0), turned)
        graph.operation(OperationCode.DEQUANTIZE, [turned], real)
        graph.operation(OperationCode.TANH, [real], curved)
        output = graph.output((5, 2, 3, 4))
        graph.operation(OperationCode.MUL, [curved, factor, graph.integer(FuseCode.NONE)], output)
        return graph.model()

    one = np.ones(1, np.float32)
    assert launches_on(opencl_device, network(True)) == 1
    assert launches_on(opencl_device, network(False)) > 1
    (constant,) = results(opencl_device, network(True), [one])
    (computed,) = results(opencl_device, network(False), [data, one])
    assert np.array_equal(constant, computed)
    np.testing.assert_allclose(constant, np.tanh(0.1 * (data.T.astype(np.float64) - 3)), atol=1e-6)


def test_a_product_of_constants_is_made_without_a_chain(opencl_device: Device) -> None:
    """As the first step of a loop that is unrolled: its program would be compiled for one run."""
    state, weights, source = random_floats(2, 16), random_floats(16, 16, seed=1), random_floats(2, 16, seed=2)
    graph = Graph()
    made, output, none = graph.temporary((2, 16)), graph.output((2, 16)), graph.integer(FuseCode.NONE)
    product(graph, graph.constant(state), graph.constant(weights), 16, made)
    graph.operation(OperationCode.ADD, [graph.input((2, 16)), made, none], output)
    model = graph.model()
    assert all(program.source_name != "chain.cl" for program in prepare(opencl_device, model).programs)
    (result,) = results(opencl_device, model, [source])
    wanted = source + state.astype(np.float64) @ weights.T + np.arange(16)
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)


def test_per_channel_weights_of_a_convolution(opencl_device: Device) -> None:
    codes = np.random.default_rng(3).integers(-127, 128, (8, 1, 1, 6)).astype(np.int8)
    scales = tuple(0.01 * (1 + i) for i in range(8))
    graph = Graph()
    source, weights, output = graph.input((1, 5, 5, 6)), graph.temporary((8, 1, 1, 6)), graph.output((1, 5, 5, 8))
    stored = graph.constant(codes, OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL, channel_quant=ChannelQuant(scales, 0))
    graph.operation(OperationCode.DEQUANTIZE, [stored], weights)
    numbers = [graph.integer(value) for value in (0, 0, 0, 0, 1, 1, 0)]
    bias = graph.constant(np.zeros(8, np.float32))
    graph.operation(OperationCode.CONV_2D, [source, weights, bias, *numbers], output)
    data = random_floats(1, 5, 5, 6)
    assert launches_on(opencl_device, graph.model()) == 1
    (result,) = results(opencl_device, graph.model(), [data])
    wanted = data.astype(np.float64) @ (codes.reshape(8, 6) * np.array(scales)[:, None]).T
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)


def test_a_shape_computed_from_constants_is_known(opencl_device: Device) -> None:
    """RESHAPE to a part of constant numbers, whose length is computed first."""
    graph = Graph()
    source, size, shape = graph.input((2, 6)), graph.temporary((1,), INT32), graph.temporary((2,), INT32)
    one, none = graph.constant(np.ones(1, np.int32)), graph.integer(FuseCode.NONE)
    graph.operation(OperationCode.ADD, [one, one, none], size)
    available = graph.constant(np.array([7, 2, 6, 5], np.int32))
    graph.operation(OperationCode.SLICE, [available, one, size], shape)
    flat, output = graph.temporary((0, 0)), graph.output((6, 2))
    reshape(graph, source, (12,), made := graph.temporary((12,)))
    graph.operation(OperationCode.RESHAPE, [made, shape], flat)
    transpose(graph, flat, (1, 0), output)
    assert launches_on(opencl_device, graph.model()) == 1
    data = random_floats(2, 6)
    (result,) = results(opencl_device, graph.model(), [data])
    assert np.array_equal(result, data.T)


@pytest.mark.parametrize(("multiple", "is_folded"), [(2**10, True), (2**12, False)])
def test_a_small_constant_does_not_become_a_large_one(multiple: int, is_folded: bool) -> None:
    graph = Graph()
    count = 16 * multiple
    source, tiled, output = graph.input((count,)), graph.temporary((count,)), graph.output((count,))
    multiples = graph.constant(np.array([multiple], np.int32))
    graph.operation(OperationCode.TILE, [graph.constant(np.zeros(16, np.float32)), multiples], tiled)
    graph.operation(OperationCode.ADD, [source, tiled, graph.integer(FuseCode.NONE)], output)
    assert (4 * count <= ALWAYS_BYTES) is is_folded
    assert folded(graph.model()) == ([0] if is_folded else [])


@pytest.mark.parametrize(("multiple", "is_folded"), [(4, True), (5, False)])
def test_a_large_constant_may_become_four_times_as_large(multiple: int, is_folded: bool) -> None:
    """What two constants of 40 kB are made into counts by both, however many operations are between."""
    half = 10_000
    dims = (2 * half * multiple,)
    graph = Graph()
    joined, tiled = graph.temporary((2 * half,)), graph.temporary(dims)
    parts = [graph.constant(np.full(half, value, np.float32)) for value in (1, 2)]
    graph.operation(OperationCode.CONCATENATION, [*parts, graph.integer(0)], joined)
    graph.operation(OperationCode.TILE, [joined, graph.constant(np.array([multiple], np.int32))], tiled)
    graph.operation(OperationCode.ADD, [graph.input(dims), tiled, graph.integer(FuseCode.NONE)], graph.output(dims))
    assert folded(graph.model()) == ([0, 1] if is_folded else [0])


def test_an_operation_whose_sizes_contradict_stays() -> None:
    """Were it run at preparation, its failure would leave the others to every execution."""
    graph = Graph()
    wrong, right = graph.temporary((5,)), graph.temporary((4,))
    ones = graph.constant(np.ones(4, np.float32))
    graph.operation(OperationCode.TANH, [ones], wrong)
    graph.operation(OperationCode.TANH, [ones], right)
    none = graph.integer(FuseCode.NONE)
    graph.operation(OperationCode.ADD, [graph.input((5,)), wrong, none], graph.output((5,)))
    graph.operation(OperationCode.ADD, [graph.input((4,)), right, none], graph.output((4,)))
    assert folded(graph.model()) == [1]


def test_what_folded_operations_alone_read_is_not_kept() -> None:
    graph = Graph()
    first, second, bent = (graph.temporary((4,)) for _ in range(3))
    graph.operation(OperationCode.TANH, [graph.constant(np.ones(4, np.float32))], first)
    graph.operation(OperationCode.EXP, [first], second)
    graph.operation(OperationCode.ABS, [graph.input((4,))], bent)
    graph.operation(OperationCode.ADD, [bent, second, graph.integer(FuseCode.NONE)], graph.output((4,)))
    model = graph.model()
    working = Working(model, Rewritten.of(model.main))
    assert constant_part(working, foldable(working)).output_indexes == (second,)


def test_an_omitted_operand_is_a_constant_too(opencl_device: Device) -> None:
    graph = Graph()
    squeezed, output = graph.temporary((4,)), graph.output((4,))
    data = random_floats(1, 4, 1)
    graph.operation(OperationCode.SQUEEZE, [graph.constant(data), graph.omitted(INT32)], squeezed)
    graph.operation(OperationCode.ADD, [graph.input((4,)), squeezed, graph.integer(FuseCode.NONE)], output)
    assert folded(graph.model()) == [0]
    (result,) = results(opencl_device, graph.model(), [np.ones(4, np.float32)])
    np.testing.assert_allclose(result, 1 + data.reshape(4), rtol=1e-6)


def test_random_numbers_and_outputs_are_made_every_time() -> None:
    graph = Graph()
    logits, seeds = graph.constant(np.zeros((1, 4), np.float32)), graph.constant(np.array([1, 2], np.int32))
    drawn, output = graph.temporary((1, 8), INT32), graph.output((1, 8), INT32)
    graph.operation(OperationCode.RANDOM_MULTINOMIAL, [logits, graph.integer(8), seeds], drawn)
    graph.operation(OperationCode.ADD, [drawn, drawn, graph.integer(FuseCode.NONE)], output)
    same = graph.output((1, 4))
    graph.operation(OperationCode.TANH, [logits], same)
    assert folded(graph.model()) == []


def test_the_body_of_a_loop_is_folded_too(opencl_device: Device) -> None:
    """Ten times x + tanh(constant)."""
    body, condition, main = Graph(), Graph(), Outer()
    count, value = body.input((1,), INT32), body.input((1, 4))
    data = random_floats(1, 4)
    bent = body.temporary((1, 4))
    body.operation(OperationCode.TANH, [body.constant(data)], bent)
    one = body.constant(np.ones(1, np.int32))
    none = body.integer(FuseCode.NONE)
    body.operation(OperationCode.ADD, [count, one, none], body.output((1,), INT32))
    body.operation(OperationCode.ADD, [value, bent, none], body.output((1, 4)))
    now, _ = condition.input((1,), INT32), condition.input((1, 4))
    limit = condition.constant(np.array([10], np.int32))
    condition.operation(OperationCode.LESS, [now, limit], condition.output((1,), OperandCode.TENSOR_BOOL8))
    start = main.constant(np.zeros(1, np.int32))
    source = main.input((1, 4))
    subgraphs = [main.model_operand(0), main.model_operand(1)]
    turns, output = main.output((1,), INT32), main.output((1, 4))
    main.operation(OperationCode.WHILE, [*subgraphs, start, source], turns, output)
    model = Model(main.subgraph(), (condition.model().main, body.model().main))
    prepared = prepare(opencl_device, model)
    assert [len(graph.subgraph.operations) for graph in prepared._referenced.values()] == [1, 2]
    result = [np.zeros(1, np.int32), np.zeros((1, 4), np.float32)]
    first = random_floats(1, 4, seed=5)
    run(prepared, request([first], result))
    np.testing.assert_allclose(result[1], first + 10 * np.tanh(data.astype(np.float64)), rtol=1e-5)


def test_an_operation_that_fails_stays(opencl_device: Device) -> None:
    """GATHER beyond its end: preparation succeeds, and the execution says why it cannot."""
    graph = Graph()
    indices, taken, output = graph.temporary((1,), INT32), graph.temporary((1,)), graph.output((3,))
    number, none = graph.constant(np.array([4], np.int32)), graph.integer(FuseCode.NONE)
    graph.operation(OperationCode.ADD, [number, number, none], indices)
    graph.operation(OperationCode.GATHER, [graph.constant(np.zeros(3, np.float32)), graph.integer(0), indices], taken)
    graph.operation(OperationCode.ADD, [graph.input((3,)), taken, none], output)
    assert folded(graph.model()) == [0, 1]
    prepared = prepare(opencl_device, graph.model())
    with pytest.raises(HalError, match=r"GATHER.*indices"):
        run(prepared, request([np.zeros(3, np.float32)], [np.zeros(3, np.float32)]))


def test_a_cached_model_is_folded_again_without_a_build(opencl_device: Device) -> None:
    model, codes, source = quantised_weights()
    with tempfile.TemporaryFile() as model_file, tempfile.TemporaryFile() as data_file:
        cache = CacheRequest((model_file.fileno(),), (data_file.fileno(),), bytes(CACHE_TOKEN_BYTES))
        preference = ExecutionPreference.FAST_SINGLE_ANSWER
        opencl_device.prepare_model(model, preference, Priority.MEDIUM, None, cache)
        device = fresh(opencl_device)
        prepared = device.prepare_model_from_cache(None, cache)
        assert device.statistics()["programs_built"] == 0
        result = np.zeros((3, len(codes)), np.float32)
        run(prepared, request([source], [result]))
    np.testing.assert_allclose(result, expected(codes, source), rtol=1e-5, atol=1e-5)


def test_labels_are_those_of_the_model() -> None:
    """Of what is left, origins are numbers before folding."""
    model, _, _ = quantised_weights()
    graph = Working(model, Rewritten.of(model.main))
    graph.remove(0)
    assert graph.rewritten().origins == ((1,),)
    assert isinstance(graph.rewritten().subgraph, Subgraph)


def test_a_profile_names_what_is_folded_and_what_is_left_out(opencl_device: Device) -> None:
    graph = Graph()
    bent, same, output = graph.temporary((4,)), graph.temporary((4,)), graph.output((4,))
    graph.operation(OperationCode.TANH, [graph.constant(np.ones(4, np.float32))], bent)
    ones = graph.constant(np.ones(1, np.int32))
    graph.operation(OperationCode.TILE, [graph.input((4,)), ones], same)
    graph.operation(OperationCode.ADD, [same, bent, graph.integer(FuseCode.NONE)], output)
    asked = request([np.ones(4, np.float32)], [np.zeros(4, np.float32)])
    prepared = prepare(opencl_device, graph.model())
    reusable = prepared.create_reusable_execution(asked, False, None)
    assert reusable is not None
    for _, profile in (prepared.execute_profiled(asked, None, None), reusable.execute_profiled(None)):
        rows = [(row.operations, row.kernel, row.end_ns - row.start_ns) for row in profile.rows if row.operations]
        assert rows[:2] == [((0,), "folded at preparation", 0), ((1,), "left out", 0)]
        assert [operations for operations, _, _ in rows[2:]] == [(2,)]
