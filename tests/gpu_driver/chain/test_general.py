# SPDX-License-Identifier: Apache-2.0
"""Chains of element-wise operations, means, transposes and products: one launch, and what the CPU driver gives."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import kernels_cl
from gpu_driver import chain
from gpu_driver.chain import elementwise
from gpu_driver.chain import step as chain_step
from gpu_driver.chain.kinds import From, Function
from gpu_driver.chain.memory import BUFFERS
from gpu_driver.chain.readings import walk_of
from gpu_driver.launch import Launch
from gpu_driver.lowering import Lowering
from nn_runtime.codes import FuseCode, OperandCode, OperationCode, PaddingCode
from nn_runtime.devices import find_device
from nn_runtime.operand import dtype_of
from tests.gpu_driver.chain.running import simulate_groups
from tests.gpu_driver.graphs import Graph, request
from tests.gpu_driver.profiles import CPU_PROFILE
from tests.gpu_driver.running import prepare, run

if TYPE_CHECKING:
    from gpu_driver.driver import Device
    from nn_runtime.operand import Array, Dimensions

FLOAT, HALF = OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_FLOAT16
QUANT8, SIGNED = OperandCode.TENSOR_QUANT8_ASYMM, OperandCode.TENSOR_QUANT8_ASYMM_SIGNED
ADD, SUB, MUL, MEAN = OperationCode.ADD, OperationCode.SUB, OperationCode.MUL, OperationCode.MEAN
ABS, EXP, LOG = OperationCode.ABS, OperationCode.EXP, OperationCode.LOG
POOLS = {
    OperationCode.MAX_POOL_2D: chain.Kind.GREATEST,
    OperationCode.AVERAGE_POOL_2D: chain.Kind.AVERAGE,
}
RSQRT, SQRT, HARD_SWISH = OperationCode.RSQRT, OperationCode.SQRT, OperationCode.HARD_SWISH
LOGISTIC, TANH, RELU6, NEG = OperationCode.LOGISTIC, OperationCode.TANH, OperationCode.RELU6, OperationCode.NEG
MAXIMUM, MINIMUM, PRELU = OperationCode.MAXIMUM, OperationCode.MINIMUM, OperationCode.PRELU
TYPES = [FLOAT, HALF, QUANT8, SIGNED]
SHAPES = [(3, 40), (2, 5, 16), (1, 9, 33), (2, 3, 7, 20), (1, 4, 300), (1, 1, 1, 5), (30, 3)]
TOLERANCE = {FLOAT: 2e-5, HALF: 2e-2}


class Network:
    """Draws operations on tensors of one shape."""

    def __init__(self, code: OperandCode, dims: Dimensions, seed: int) -> None:
        self.graph = Graph()
        self.code, self.dims = code, dims
        self.rng = np.random.default_rng(seed)
        self.scale = 0.0 if code in (FLOAT, HALF) else 0.03
        self.zero = {QUANT8: 120, SIGNED: -7}.get(code, 0)
        self.tensors = [self.graph.input(dims, code, self.scale, self.zero) for _ in range(2)]

    def result(self, dims: Dimensions, scale: float | None = None, zero: int | None = None) -> int:
        scale = self.scale * self.rng.uniform(0.7, 2.0) if scale is None else scale
        return self.graph.temporary(dims, self.code, float(np.float32(scale)), self.zero if zero is None else zero)

    def values(self, dims: Dimensions) -> Array:
        if self.scale:
            info = np.iinfo(dtype_of(self.code))
            return self.rng.integers(info.min, info.max + 1, dims).astype(dtype_of(self.code))
        return self.rng.uniform(-1, 1, dims).astype(dtype_of(self.code))

    def constant(self, dims: Dimensions) -> int:
        return self.graph.constant(self.values(dims), self.code, self.scale, self.zero)

    def pair(self, code: OperationCode, first: int, second: int) -> int:
        output = self.result(self.dims)
        fuse = self.graph.integer(self.rng.choice([FuseCode.NONE, FuseCode.NONE, FuseCode.RELU, FuseCode.RELU1]))
        self.graph.operation(code, [first, second, fuse], output)
        return output

    def single(self, code: OperationCode, source: int) -> int:
        operand = self.graph.model().main.operands[source]
        fixed = {LOGISTIC: (1 / 256, -128 if self.code == SIGNED else 0), TANH: (1 / 128, 128 * (self.code == QUANT8))}
        kept = operand.scale, operand.zero_point
        output = self.result(self.dims, *(fixed.get(code, kept) if self.scale else kept))
        self.graph.operation(code, [source], output)
        return output

    def centred(self, source: int) -> int:
        """A tensor less the means of its rows."""
        operand = self.graph.model().main.operands[source]
        means = self.graph.temporary((*self.dims[:-1], 1), self.code, operand.scale, operand.zero_point)
        axis = self.graph.constant(np.array([-1], np.int32))
        self.graph.operation(MEAN, [source, axis, self.graph.integer(1)], means)
        return self.pair(SUB, source, means)

    def draw(self) -> None:
        """Add an operation on what there is."""
        first, second = self.rng.choice(self.tensors, 2)
        code = [ADD, SUB, MUL][self.rng.integers(3)]
        kind = self.rng.integers(5)
        if kind == 0:
            made = self.pair(code, int(first), int(second))
        elif kind == 1:
            dims = [self.dims, self.dims[-1:], (1,), (*self.dims[:-1], 1)][self.rng.integers(4)]
            operands = [int(first), self.constant(dims)]
            made = self.pair(code, *operands[:: self.rng.choice([1, -1])])
        elif kind == 2:
            made = self.centred(int(first))
        else:
            made = self.single([LOGISTIC, TANH, RELU6][self.rng.integers(3)], int(first))
        self.tensors.append(made)

    def finish(self) -> None:
        """Make outputs of the last tensors."""
        for tensor in self.tensors[-2:]:
            output = self.graph.output(self.dims, self.code, self.scale, self.zero)
            zero = self.constant((1,))
            self.graph.operation(ADD, [tensor, zero, self.graph.integer(FuseCode.NONE)], output)

    def data(self) -> list[Array]:
        return [self.values(self.dims) for _ in range(2)]


def drawn(code: OperandCode, dims: Dimensions, seed: int) -> Network:
    network = Network(code, dims, seed)
    for _ in range(10):
        network.draw()
    network.finish()
    return network


def launch_of(graph: Graph, cores: int = 2) -> Launch:
    lowering = Lowering(graph.model(), replace(CPU_PROFILE, compute_units=cores))
    (launch,) = lowering.lower(0, lowering.static_inputs()).commands
    assert isinstance(launch, Launch)
    return launch


def answers(device: Any, graph: Graph, data: list[Array], outputs: list[tuple[Dimensions, Any]]) -> list[Array]:
    results = [np.empty(dims, dtype) for dims, dtype in outputs]
    run(prepare(device, graph.model()), request(data, results))
    return results


def check(device: Device, network: Network) -> None:
    data = network.data()
    outputs = [(network.dims, dtype_of(network.code))] * 2
    wanted = answers(find_device("nnapi-reference").hal, network.graph, data, outputs)
    for one, expected in zip(answers(device, network.graph, data, outputs), wanted, strict=True):
        if network.scale:
            assert np.array_equal(one, expected)
        else:
            tolerance = TOLERANCE[network.code]
            np.testing.assert_allclose(one.astype(np.float32), expected.astype(np.float32), tolerance, tolerance)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("dims", SHAPES, ids=str)
@pytest.mark.parametrize("code", TYPES, ids=lambda code: code.name)
def test_drawn_operations_give_what_the_cpu_driver_gives(
    opencl_device: Device, code: OperandCode, dims: Dimensions, seed: int
) -> None:
    check(opencl_device, drawn(code, dims, seed))


def test_drawn_operations_are_one_launch() -> None:
    for seed in range(10):
        assert launch_of(drawn(FLOAT, (2, 5, 16), seed).graph).steps


@pytest.mark.parametrize(("groups", "queues"), [(1, 3), (2, 5), (4, 2)])
def test_any_number_of_groups_and_queues(
    opencl_device: Device, monkeypatch: pytest.MonkeyPatch, groups: int, queues: int
) -> None:
    """Tasks wait for all that they read: the same bits in every order."""
    simulate_groups(monkeypatch, groups, queues)
    for seed in range(10):
        check(opencl_device, drawn(SIGNED, (2, 64, 272), seed))


def chained(*operations: tuple[OperationCode, str], dims: Dimensions = (4, 32)) -> Graph:
    """Operations one after the other; `x` is the input, `c` a constant, the rest of one tensor."""
    graph = Graph()
    source = now = graph.input(dims)
    numbers = np.linspace(0.5, 2, dims[-1], dtype=np.float32)
    for at, (code, other) in enumerate(operations):
        is_last = at == len(operations) - 1
        following = graph.output(dims) if is_last else graph.temporary(dims)
        operands = [now]
        if other:
            operands.append({"x": source, "c": graph.constant(numbers)}[other[-1]])
            operands = operands[::-1] if other.startswith("-") else operands
            operands.append(graph.integer(FuseCode.NONE))
        graph.operation(code, operands, following)
        now = following
    return graph


def test_operations_that_feed_each_other_are_one_step() -> None:
    graph = chained((MUL, "x"), (MUL, "c"), (SUB, "-x"), (TANH, ""), (ADD, "c"), (MUL, "x"))
    (step,) = launch_of(graph).steps
    assert step.residual is None
    assert [one.function for one in step.program] == [
        *(Function.LOAD, Function.MUL, Function.MUL, Function.SUB),
        *(Function.TANH, Function.ADD, Function.MUL),
    ]
    assert [one.operand for one in step.program] == [
        *(From.SOURCE, From.VALUE, From.CONSTANT, From.VALUE),
        *(From.NOTHING, From.CONSTANT, From.VALUE),
    ]
    assert sorted(step.operations) == list(range(6))


@pytest.mark.parametrize("code", [FLOAT, HALF], ids=lambda code: code.name)
def test_every_function_of_real_numbers(opencl_device: Device, code: OperandCode) -> None:
    """Functions one after the other, such that each has numbers it is made for; products keep their inputs apart."""
    network = Network(code, (5, 70), 9)
    graph, (x, y) = network.graph, network.tensors
    size = network.single(ABS, network.pair(ADD, x, network.constant((70,))))
    one = graph.constant(np.ones(1, dtype_of(code)), code)
    some = network.pair(ADD, size, one)
    singles = [network.single(which, some) for which in (EXP, LOG, RSQRT, SQRT, NEG, HARD_SWISH, OperationCode.SIN)]
    elu = graph.temporary(network.dims, code)
    graph.operation(OperationCode.ELU, [x, graph.real(0.7) if code == FLOAT else graph.half(0.7)], elu)
    extremes = [graph.temporary(network.dims, code) for _ in range(2)]
    for which, made in zip((OperationCode.MAXIMUM, OperationCode.MINIMUM), extremes, strict=True):
        graph.operation(which, [x, y], made)
    quotient = network.pair(OperationCode.DIV, y, some)
    total = elu
    for tensor in (*singles, *extremes, quotient):
        total = network.pair(ADD, total, network.single(TANH, tensor))
    network.tensors = [total, quotient]
    network.finish()
    check(opencl_device, network)


def test_sizes_are_those_of_the_kernels() -> None:
    source = kernels_cl.source("chain.cl")
    numbers: dict[str, list[int]] = {}
    for name, value in re.findall(r"#define (\w+) (\d+)\b", source):
        numbers.setdefault(name, []).append(int(value))
    assert numbers["REGISTERS"] == [elementwise.REGISTERS]
    assert numbers["COPIED_WIDTHS"] == [elementwise._COPIED_WIDTHS]
    assert numbers["WIDTH"] == [elementwise.WIDTH, elementwise._WIDTH_OF_BYTES]


def test_fields_of_an_instruction_are_those_of_the_kernel() -> None:
    text = re.search(r"typedef struct \{([^}]*)\} Instruction;", kernels_cl.source("chain.cl"))
    assert text is not None
    fields = re.findall(r"(\w+)(?:\[(\d)\])?(?=[,;])", re.sub(r"//.*", "", text[1]))
    assert sum(int(count or 1) for _, count in fields) == elementwise.WORDS
    parts = {"zeros": ["zero0", "zero1", "zero_out"]}
    parts |= {f"factor{which}": [f"multiplier{which}", f"exponent{which}"] for which in ("0", "1", "_out")}
    names = [part for name, _ in fields for part in parts.get(name, [name])]
    assert tuple(names) == elementwise._FIELDS


def test_what_another_operation_reads_is_a_step_of_its_own() -> None:
    graph = Graph()
    first, second = graph.temporary((4, 32)), graph.temporary((4, 32))
    graph.operation(TANH, [graph.input((4, 32))], first)
    graph.operation(NEG, [first], second)
    graph.operation(LOGISTIC, [second], graph.output((4, 32)))
    graph.operation(RELU6, [first], graph.output((4, 32)))
    assert [len(step.program) - 1 for step in launch_of(graph).steps] == [1, 2, 1]


def gelu(network: Network, x: int) -> int:
    """GELU as exporters write it, x / 2 * (1 + tanh(x + x^3)): x is read four times."""
    half, one = network.constant((1,)), network.constant((1,))
    cube = network.pair(MUL, network.pair(MUL, x, x), x)
    wave = network.single(TANH, network.pair(ADD, x, network.pair(MUL, cube, half)))
    return network.pair(MUL, network.pair(MUL, x, half), network.pair(ADD, wave, one))


def normalised(network: Network, x: int) -> int:
    """The end of a layer's normalisation, of rows with factors and means of their own: three tensors are read."""
    rows = (*network.dims[:-1], 1)
    scale, mean = (network.graph.input(rows, network.code, network.scale, network.zero) for _ in range(2))
    weighted = network.pair(MUL, scale, network.constant(network.dims[-1:]))
    shift = network.pair(SUB, network.constant(network.dims[-1:]), network.pair(MUL, mean, weighted))
    return network.pair(ADD, network.pair(MUL, x, weighted), shift)


@pytest.mark.parametrize("dims", [(4, 40), (3, 530), (2, 3, 512), (300, 16), (1, 7)], ids=str)
@pytest.mark.parametrize("code", TYPES, ids=lambda code: code.name)
def test_values_that_are_read_more_than_once_stay_in_a_step(
    opencl_device: Device, code: OperandCode, dims: Dimensions
) -> None:
    network = Network(code, dims, 3)
    x, y = network.tensors
    network.tensors = [gelu(network, network.pair(ADD, x, y)), x]
    network.finish()
    programs = [step.program for step in launch_of(network.graph).steps]
    assert len(programs) == 2
    most = 10 if network.scale else 9  # the last of real products and the zero added to it are one
    assert max(sum(one.function != Function.LOAD for one in program) for program in programs) == most
    check(opencl_device, network)


@pytest.mark.parametrize("dims", [(4, 40), (3, 530), (2, 3, 512), (1, 6, 6, 20)], ids=str)
@pytest.mark.parametrize("code", TYPES, ids=lambda code: code.name)
def test_three_tensors_are_read_by_a_step(opencl_device: Device, code: OperandCode, dims: Dimensions) -> None:
    network = Network(code, dims, 4)
    x, y = network.tensors
    network.tensors = [normalised(network, x), y]
    network.finish()
    first, second = sorted(launch_of(network.graph).steps, key=lambda step: len(step.program))
    assert first.third is None
    assert second.third is not None
    assert sum(one.function != Function.LOAD for one in second.program) == 6
    rows = (*dims[:-1], 1)
    data = [network.values(shape) for shape in (dims, dims, rows, rows)]
    network.data = lambda: data  # type: ignore[method-assign]
    check(opencl_device, network)


def test_a_fourth_tensor_takes_another_step(opencl_device: Device) -> None:
    network = Network(FLOAT, (5, 48), 6)
    inputs = [*network.tensors, *(network.graph.input(network.dims) for _ in range(2))]
    total = inputs[0]
    for tensor in inputs[1:]:
        total = network.pair(ADD, total, tensor)
    network.tensors = [total, inputs[0]]
    network.finish()
    steps = launch_of(network.graph).steps
    assert sorted(sum(one.function != Function.LOAD for one in step.program) for step in steps) == [1, 2, 2]
    data = [network.values(network.dims) for _ in inputs]
    network.data = lambda: data  # type: ignore[method-assign]
    check(opencl_device, network)


@pytest.mark.parametrize("code", [FLOAT, SIGNED], ids=["float32", "signed"])
def test_values_that_wait_for_the_end_need_no_buffers_of_their_own(opencl_device: Device, code: OperandCode) -> None:
    """As an unrolled loop leaves them: more at a time than a launch has buffers, all of them its own."""
    network = Network(code, (5, 48), 7)
    x, y = network.tensors
    waiting = [network.centred(network.pair(MUL, x, network.constant((48,)))) for _ in range(2 * BUFFERS)]
    total = y
    for tensor in waiting:
        total = network.pair(ADD, total, tensor)
    network.tensors = [total, x]
    network.finish()
    assert len(launch_of(network.graph).steps) > 2 * BUFFERS
    check(opencl_device, network)


def test_a_fifth_value_takes_another_step(opencl_device: Device) -> None:
    """Values that all wait for the last of them: there is room for four."""
    network = Network(FLOAT, (5, 48), 6)
    x, _ = network.tensors
    total = network.single(ABS, x)
    waiting = [network.single(NEG, network.pair(MUL, total, network.constant((48,)))) for _ in range(4)]
    for tensor in waiting:
        total = network.pair(SUB, total, tensor)
    network.tensors = [total, x]
    network.finish()
    steps = launch_of(network.graph).steps
    assert 3 <= len(steps) < 8
    assert max(one.target for step in steps for one in step.program) == elementwise.REGISTERS - 1
    check(opencl_device, network)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("code", [FLOAT, HALF], ids=lambda code: code.name)
@pytest.mark.parametrize(("rows", "depth", "columns"), [(128, 32, 48), (9, 17, 33), (5, 40, 20), (21, 16, 8)])
def test_attention(
    opencl_device: Device, code: OperandCode, rows: int, depth: int, columns: int, transposed: bool
) -> None:
    """A product of transposed tensors, a factor and a softmax: one launch where numbers are float32."""
    graph, heads, rng = Graph(), 3, np.random.default_rng(1)
    shapes = (1, rows, heads, depth), (1, columns, heads, depth)
    parts = []
    for dims in shapes:
        b, s, h, d = dims
        part = graph.temporary((b, h, s, d), code)
        order = graph.constant(np.array([0, 2, 1, 3], np.int32))
        graph.operation(OperationCode.TRANSPOSE, [graph.input(dims, code), order], part)
        parts.append(part)
    if not transposed:
        parts[1], before = graph.temporary((1, heads, depth, columns), code), parts[1]
        order = graph.constant(np.array([0, 1, 3, 2], np.int32))
        graph.operation(OperationCode.TRANSPOSE, [before, order], parts[1])
    dims = (1, heads, rows, columns)
    scores, scaled, output = graph.temporary(dims, code), graph.temporary(dims, code), graph.output(dims, code)
    graph.operation(OperationCode.BATCH_MATMUL, [*parts, graph.flag(False), graph.flag(transposed)], scores)
    factor = graph.constant(np.array([0.3], dtype_of(code)), code)
    graph.operation(MUL, [scores, factor, graph.integer(FuseCode.NONE)], scaled)
    beta = graph.real(1.0) if code == FLOAT else graph.half(1.0)
    graph.operation(OperationCode.SOFTMAX, [scaled, beta], output)
    if code == FLOAT and transposed:
        kinds = [step.kind for step in launch_of(graph).steps]
        product = [chain.Kind.PACK, chain.Kind.MULTIPLY] if rows > 12 else [chain.Kind.MULTIPLY_FEW]
        assert sorted(kinds) == sorted([*[chain.Kind.COPY] * 2, *product])
    data = [rng.normal(size=one).astype(dtype_of(code)) for one in shapes]
    pairs = [answers(device, graph, data, [(dims, dtype_of(code))]) for device in
             (find_device("nnapi-reference").hal, opencl_device)]  # fmt: skip
    np.testing.assert_allclose(*(one.astype(np.float32) for (one,) in pairs), atol=1e-5 if code == FLOAT else 5e-3)


@pytest.mark.parametrize("dims", [(1, 8, 64), (8, 64), (2, 4, 64), (3, 2, 5, 16)], ids=str)
def test_softmax_of_any_shape_is_in_the_launch(opencl_device: Device, dims: Dimensions) -> None:
    network = Network(FLOAT, dims, 4)
    made = network.pair(ADD, *network.tensors)
    for _ in range(2):
        shares = network.result(dims)
        network.graph.operation(OperationCode.SOFTMAX, [network.centred(made), network.graph.real(1.0)], shares)
        made = network.single(ABS, shares)
    network.tensors += [shares, made]
    network.finish()
    launch_of(network.graph)
    check(opencl_device, network)


def test_softmax_of_other_rows_than_a_product_makes(opencl_device: Device) -> None:
    graph, rows = Graph(), (1, 3, 4, 32)
    left, right = (1, 3, 8, 20), (1, 3, 16, 20)
    scores, turned, shares, same = (graph.temporary(one) for one in ((1, 3, 8, 16), rows, rows, rows))
    operands = graph.input(left), graph.input(right), graph.flag(False), graph.flag(True)
    graph.operation(OperationCode.BATCH_MATMUL, operands, scores)
    graph.operation(OperationCode.RESHAPE, [scores, graph.constant(np.array(rows, np.int32))], turned)
    graph.operation(OperationCode.SOFTMAX, [turned, graph.real(1.0)], shares)
    graph.operation(ABS, [shares], same)
    graph.operation(ADD, [same, shares, graph.integer(FuseCode.NONE)], graph.output(rows))
    launch_of(graph)
    data = [np.random.default_rng(1).uniform(-1, 1, one).astype(np.float32) for one in (left, right)]
    (result,) = answers(opencl_device, graph, data, [(rows, np.dtype(np.float32))])
    powers = np.exp((data[0].astype(np.float64) @ data[1].swapaxes(2, 3)).reshape(rows))
    np.testing.assert_allclose(result, 2 * powers / powers.sum(axis=-1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("rows", [8, 11])
def test_rows_of_a_product_are_written_by_one_task(opencl_device: Device, rows: int) -> None:
    """Tiles are moved back at a matrix's end; another task's rows may have become something else by then."""
    graph, heads, columns = Graph(), 3, 8192
    dims, narrow = (1, heads, rows, columns), (1, heads, rows, 1)
    left, right = graph.input(narrow), graph.input((1, heads, columns, 1))
    product, means, sums, shares, same = (graph.temporary(one) for one in (dims, narrow, dims, dims, dims))
    line = graph.constant(np.random.default_rng(0).uniform(-1, 1, columns).astype(np.float32))
    axis = graph.constant(np.array([-1], np.int32))
    graph.operation(OperationCode.BATCH_MATMUL, [left, right, graph.flag(False), graph.flag(True)], product)
    graph.operation(MEAN, [product, axis, graph.integer(1)], means)
    graph.operation(ADD, [means, line, graph.integer(FuseCode.NONE)], sums)  # may lie where the product was
    graph.operation(OperationCode.SOFTMAX, [sums, graph.real(1.0)], shares)
    graph.operation(ABS, [shares], same)
    graph.operation(ADD, [same, sums, graph.integer(FuseCode.NONE)], graph.output(dims))
    data = [np.random.default_rng(1).uniform(-1, 1, one).astype(np.float32) for one in (narrow, (1, heads, columns, 1))]
    results = [(dims, np.dtype(np.float32))]
    (wanted,) = answers(find_device("nnapi-reference").hal, graph, data, results)
    prepared, result = prepare(opencl_device, graph.model()), np.empty(dims, np.float32)
    for _ in range(100):
        run(prepared, request(data, [result]))
        np.testing.assert_allclose(result, wanted, atol=1e-5)


@pytest.mark.parametrize("axes", [(1, 2), (2,), (1,), (0, 1)], ids=str)
@pytest.mark.parametrize("dims", [(2, 9, 11, 20), (1, 40, 3, 16), (3, 5, 64, 1)], ids=str)
@pytest.mark.parametrize("code", TYPES, ids=lambda code: code.name)
def test_means_in_a_chain(opencl_device: Device, code: OperandCode, dims: Dimensions, axes: tuple[int, ...]) -> None:
    network = Network(code, dims, 3)
    kept = tuple(1 if at in axes else size for at, size in enumerate(dims))
    last = network.pair(MUL, *network.tensors)
    operand = network.graph.model().main.operands[last]
    means = network.graph.temporary(kept, code, operand.scale, operand.zero_point)
    list_of_axes = network.graph.constant(np.array(axes, np.int32))
    network.graph.operation(MEAN, [last, list_of_axes, network.graph.integer(1)], means)
    network.tensors += [network.pair(SUB, last, means), network.pair(ADD, last, means)]
    network.finish()
    check(opencl_device, network)


@pytest.mark.parametrize("size", [9, 184, 200])
def test_whole_pictures_weighed_alike(opencl_device: Device, size: int) -> None:
    """As means of chains, unless numbers on the way need more than 32 bits: 200 * 200 * 255 * 255 do."""
    graph, depth, scale = Graph(), 16, 1 / 255
    dims, result, product_scale = (1, size, size, depth), (1, 1, 1, depth), float(np.float32(scale) * np.float32(1e-5))
    weights = graph.constant(np.full(dims, 255, np.uint8), QUANT8, 1e-5, 0)
    bias = graph.constant(np.zeros(depth, np.int32), OperandCode.TENSOR_INT32, product_scale)
    numbers = map(graph.integer, (PaddingCode.VALID, 1, 1, 1, FuseCode.NONE))
    operands = [graph.input(dims, QUANT8, scale, 255), weights, bias, *numbers]
    graph.operation(OperationCode.DEPTHWISE_CONV_2D, operands, graph.output(result, QUANT8, 0.05, 200))
    data = [np.random.default_rng(0).integers(255 - np.arange(depth) % 4, 256, dims).astype(np.uint8)]
    results = [(result, np.dtype(np.uint8))]
    (wanted,) = answers(find_device("nnapi-reference").hal, graph, data, results)
    np.testing.assert_array_equal(answers(opencl_device, graph, data, results)[0], wanted)


def test_fields_of_tables() -> None:
    one = int(np.float32(1.5).view(np.int32))
    assert elementwise.words({"b": 1.5, "a": 7, "d": np.float32(1.5)}, ("a", "b", "c", "d")) == [7, one, 0, one]
    with pytest.raises(ValueError, match=r"no field .* is called chunks"):
        elementwise.words({"chunks": 1}, chain_step.VALUES)


def test_walks_of_broadcast_operands() -> None:
    """Every element of the output finds the one that numpy's broadcasting gives."""
    output = (3, 2, 4)
    for dims in itertools.product((1, 3), (1, 2), (1, 4)):
        walk = walk_of(dims, output)
        numbers = np.arange(np.prod(dims)).reshape(dims)
        rows, columns = np.arange(6)[:, np.newaxis], np.arange(4)
        assert walk is not None
        found = rows // walk.divide % walk.modulo * walk.depth + columns * walk.step
        assert np.array_equal(numbers.ravel()[found], np.broadcast_to(numbers, output).reshape(6, 4))
    assert walk_of((2, 1, 3, 4), (2, 5, 3, 4)) is None


@pytest.mark.parametrize("window", [(2, 2, 1), (3, 2, 1), (3, 1, 1), (5, 3, 2)], ids=str)
@pytest.mark.parametrize("dims", [(1, 9, 11, 20), (1, 28, 15, 64), (1, 5, 64, 16), (1, 8, 9, 7)], ids=str)
@pytest.mark.parametrize("operation", POOLS, ids=lambda operation: operation.name)
@pytest.mark.parametrize("code", TYPES, ids=lambda code: code.name)
def test_windows_in_a_chain(
    opencl_device: Device, code: OperandCode, operation: OperationCode, dims: Dimensions, window: tuple[int, int, int]
) -> None:
    size, stride, padding = window
    network = Network(code, dims, 5)
    last = network.pair(SUB, *network.tensors)
    operand = network.graph.model().main.operands[last]
    _, height, width, depth = dims
    rows, columns = ((extent + 2 * padding - size) // stride + 1 for extent in (height, width))
    network.dims = (1, rows, columns, depth)
    output = network.result(network.dims, operand.scale, operand.zero_point)
    numbers = (*[padding] * 4, stride, stride, size, size, FuseCode.RELU1)
    network.graph.operation(operation, [last, *(network.graph.integer(n) for n in numbers)], output)
    network.tensors = [network.pair(MUL, output, output), output]
    network.finish()
    assert POOLS[operation] in [step.kind for step in launch_of(network.graph).steps]
    data = [network.values(dims) for _ in range(2)]
    network.data = lambda: data  # type: ignore[method-assign]
    check(opencl_device, network)


@pytest.mark.parametrize("is_wrong", [False, True], ids=["numbers", "NaN"])
@pytest.mark.parametrize(("dims", "axes"), [((1, 126, 32), [1]), ((3, 7, 5, 24), [1, 2]), ((40, 33), [0])], ids=str)
@pytest.mark.parametrize("code", TYPES, ids=lambda code: code.name)
def test_greatest_of_rows_in_a_chain(
    opencl_device: Device, code: OperandCode, dims: tuple[int, ...], axes: list[int], is_wrong: bool
) -> None:
    network = Network(code, dims, 5)
    last = network.pair(SUB, *network.tensors)
    operand = network.graph.model().main.operands[last]
    network.dims = tuple(size for axis, size in enumerate(dims) if axis not in axes)
    output = network.result(network.dims, operand.scale, operand.zero_point)
    numbers = network.graph.constant(np.array(axes, np.int32)), network.graph.flag(False)
    network.graph.operation(OperationCode.REDUCE_MAX, [last, *numbers], output)
    network.tensors = [network.pair(MUL, output, output), output]
    network.finish()
    assert chain.Kind.GREATEST in [step.kind for step in launch_of(network.graph).steps]
    data = [network.values(dims) for _ in range(2)]
    if is_wrong and data[0].dtype.kind == "f":
        data[0].reshape(-1)[::37] = np.nan
        data[0].reshape(-1)[1::41] = np.inf
    network.data = lambda: data  # type: ignore[method-assign]
    check(opencl_device, network)


@pytest.mark.parametrize("code", TYPES, ids=lambda code: code.name)
@pytest.mark.parametrize("operand", ["tensor", "scalar", "row", "same"])
@pytest.mark.parametrize("operation", [ADD, SUB, MUL, MAXIMUM, MINIMUM, PRELU])
def test_every_pair_in_a_chain(
    opencl_device: Device, operation: OperationCode, operand: str, code: OperandCode
) -> None:
    """Each operation of two tensors after a sum of what all are made of, before a product with the other input."""
    network = Network(code, (3, 5, 48), 2)
    first, second = network.tensors
    total = network.pair(ADD, first, second)
    quantisation = network.graph.model().main.operands[total].scale
    others = {"tensor": second, "same": total}
    other = others[operand] if operand in others else network.constant((1,) if operand == "scalar" else (48,))
    fuse = [] if operation in (MAXIMUM, MINIMUM, PRELU) else [network.graph.integer(FuseCode.NONE)]
    made = network.result(network.dims, quantisation)
    network.graph.operation(operation, [total, other, *fuse], made)
    network.tensors = [network.pair(MUL, made, second), network.pair(SUB, made, first)]
    network.finish()
    check(opencl_device, network)


@pytest.mark.parametrize("code", [QUANT8, SIGNED], ids=lambda code: code.name)
def test_what_makes_of_a_byte_another_is_a_table(opencl_device: Device, code: OperandCode) -> None:
    """A product with its own sigmoid, a sum with a number and a bound are one look up."""
    network = Network(code, (3, 5, 48), 4)
    first, second = network.tensors
    product = network.pair(MUL, first, network.single(LOGISTIC, first))
    bounded = network.single(RELU6, network.pair(ADD, product, network.constant((1,))))
    network.tensors = [network.pair(SUB, network.single(TANH, bounded), first), network.pair(ADD, bounded, second)]
    network.finish()
    programs = [[one.function for one in step.program] for step in launch_of(network.graph).steps]
    assert programs[0] == [Function.LOAD, Function.TABLE]
    check(opencl_device, network)
