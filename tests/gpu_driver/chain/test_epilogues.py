# SPDX-License-Identifier: Apache-2.0
"""Element-wise operations done by the tasks of the product before them: the answers of each operation on its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpu_driver import chain
from gpu_driver.chain.kinds import Kind
from gpu_driver.launch import Launch
from gpu_driver.lowering import Lowering
from gpu_driver.tuning_values import Tuning
from nn_runtime.codes import FuseCode, OperandCode, OperationCode
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
TYPES = [FLOAT, HALF, QUANT8, SIGNED]
TOLERANCE = {FLOAT: 2e-5, HALF: 3e-2}
CONV, DEPTHWISE, FULL = OperationCode.CONV_2D, OperationCode.DEPTHWISE_CONV_2D, OperationCode.FULLY_CONNECTED
SWISH = "swish"
TENSOR_SCALE, WEIGHT_SCALE = 0.03, 0.008


class Network:
    """Products with element-wise operations after them."""

    def __init__(self, code: OperandCode, dims: Dimensions, seed: int = 1) -> None:
        self.graph, self.code = Graph(), code
        self.rng = np.random.default_rng(seed)
        self.is_real = code in (FLOAT, HALF)
        self.zero = {QUANT8: 121, SIGNED: -5}.get(code, 0)
        self.source = self.values(dims)
        self.now, self.dims = self.graph.input(dims, code, self.scale(TENSOR_SCALE), self.zero), dims

    def scale(self, scale: float) -> float:
        return 0.0 if self.is_real else scale

    def values(self, dims: Dimensions) -> Array:
        dtype = dtype_of(self.code)
        if self.is_real:
            return self.rng.uniform(-1, 1, dims).astype(dtype)
        return self.rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, dims).astype(dtype)

    def tensor(self, dims: Dimensions) -> int:
        self.dims = dims
        self.now = self.graph.temporary(dims, self.code, self.scale(TENSOR_SCALE), self.zero)
        return self.now

    def constant(self, dims: Dimensions, terms: int = 1) -> int:
        """Numbers of at most 1, or so small that sums of so many products are as large as what goes in."""
        data = self.values(dims)
        scale = WEIGHT_SCALE * terms**-0.5
        if self.is_real:
            return self.graph.constant((data * terms**-0.5).astype(data.dtype), self.code)
        return self.graph.constant(data, self.code, float(np.float32(scale)), self.zero)

    def bias(self, depth: int, weights: int) -> int:
        if self.is_real:
            return self.graph.constant(self.values((depth,)), self.code)
        data = self.rng.integers(-900, 900, depth).astype(np.int32)
        scale = np.float32(TENSOR_SCALE) * np.float32(self.graph.model().main.operands[weights].scale)
        return self.graph.constant(data, OperandCode.TENSOR_INT32, float(scale))

    def product(self, kind: OperationCode, depth: int, *, filter_size: int = 1, stride: int = 1) -> None:
        """Add CONV_2D, DEPTHWISE_CONV_2D or FULLY_CONNECTED, with implicit padding SAME."""
        graph, source = self.graph, self.now
        none, same = graph.integer(FuseCode.NONE), graph.integer(1)
        if kind == FULL:
            columns = self.dims[-1]
            weights = self.constant((depth, columns), columns)
            operands = [source, weights, self.bias(depth, weights), none]
            graph.operation(FULL, operands, self.tensor((self.dims[0], depth)))
            return
        batches, height, width, channels = self.dims
        filters = (depth, filter_size, filter_size, channels) if kind == CONV else (1, filter_size, filter_size, depth)
        terms = filters[1] * filters[2] * (channels if kind == CONV else 1)
        weights = self.constant(filters, terms)
        operands = [source, weights, self.bias(depth, weights), same]
        operands += [graph.integer(stride), graph.integer(stride)]
        operands += [none] if kind == CONV else [graph.integer(1), none]
        graph.operation(kind, operands, self.tensor((batches, -(-height // stride), -(-width // stride), depth)))

    def follow(self, code: OperationCode | str, other: int | None = None) -> None:
        """Add an operation with a number for each channel, with another tensor, or with none."""
        source, dims = self.now, self.dims
        none = self.graph.integer(FuseCode.NONE)
        if code == SWISH:
            made = self.graph.temporary(dims, self.code, self.scale(1 / 256), -128 if self.code == SIGNED else 0)
            self.graph.operation(OperationCode.LOGISTIC, [source], made)
            self.graph.operation(OperationCode.MUL, [source, made, none], self.tensor(dims))
            return
        operands = [source, self.constant(dims[-1:]) if other is None else other]
        operands += [] if code == OperationCode.PRELU else [none]
        self.graph.operation(OperationCode(code), operands, self.tensor(dims))

    def padded(self, tensor: int, dims: Dimensions, depth: int, before: int = 0) -> int:
        """Add a PAD of channels, so many of them before the others, which is left beside the last tensor."""
        made = self.graph.temporary((*dims[:-1], depth), self.code, self.scale(TENSOR_SCALE), self.zero)
        amounts = [[0, 0]] * (len(dims) - 1) + [[before, depth - dims[-1] - before]]
        self.graph.operation(OperationCode.PAD, [tensor, self.graph.constant(np.array(amounts, np.int32))], made)
        return made

    def finish(self) -> None:
        output = self.graph.output(self.dims, self.code, self.scale(TENSOR_SCALE), self.zero)
        operands = [self.now, self.constant((1,)), self.graph.integer(FuseCode.NONE)]
        self.graph.operation(OperationCode.ADD, operands, output)

    @property
    def steps(self) -> list[chain.Step]:
        lowering = Lowering(self.graph.model(), CPU_PROFILE)
        commands = lowering.lower(0, lowering.static_inputs()).commands
        return [step for one in commands if isinstance(one, Launch) for step in one.steps]

    def check(self, device: Device) -> None:
        wanted, made = (np.empty(self.dims, dtype_of(self.code)) for _ in range(2))
        for driver, output in ((find_device("nnapi-reference").hal, wanted), (device, made)):
            run(prepare(driver, self.graph.model()), request([self.source], [output]))
        if not self.is_real:
            np.testing.assert_array_equal(made, wanted)
            return
        tolerance = TOLERANCE[self.code]
        np.testing.assert_allclose(made.astype(np.float32), wanted.astype(np.float32), tolerance, tolerance)


def residual_block(code: OperandCode, dims: Dimensions, depth: int, *, filter_size: int = 3) -> Network:
    """Products of three kinds, each with something after it, the last with what went in."""
    network = Network(code, dims)
    network.product(CONV, depth)
    network.follow(OperationCode.PRELU)
    entry = network.now
    network.product(DEPTHWISE, depth, filter_size=3)
    network.follow(SWISH)
    network.product(CONV, depth, filter_size=filter_size)
    network.follow(OperationCode.ADD, entry)
    network.follow(OperationCode.PRELU)
    network.finish()
    return network


@pytest.mark.parametrize("depth", [1, 7, 8, 16, 24, 40, 64, 100, 128, 260])
@pytest.mark.parametrize("code", TYPES, ids=lambda code: code.name)
def test_products_and_what_follows(opencl_device: Device, code: OperandCode, depth: int) -> None:
    residual_block(code, (2, 9, 13, 24), depth).check(opencl_device)


@pytest.mark.parametrize("size", [1, 2, 5, 33])
@pytest.mark.parametrize("code", [FLOAT, SIGNED], ids=lambda code: code.name)
def test_pictures_of_any_size(opencl_device: Device, code: OperandCode, size: int) -> None:
    residual_block(code, (1, size, size, 20), 48).check(opencl_device)


@pytest.mark.parametrize("rows", [1, 3, 40])
@pytest.mark.parametrize("code", TYPES, ids=lambda code: code.name)
def test_tasks_of_some_channels(opencl_device: Device, code: OperandCode, rows: int) -> None:
    """A FULLY_CONNECTED of few rows is cut by channels: each task has a part of every row."""
    network = Network(code, (rows, 300))
    network.product(FULL, 1000)
    network.follow(OperationCode.MUL)
    network.follow(SWISH)
    network.product(FULL, 700)
    network.follow(OperationCode.ADD)
    network.finish()
    network.check(opencl_device)


@pytest.mark.parametrize(("groups", "queues"), [(1, 3), (2, 5), (4, 2)])
@pytest.mark.parametrize("code", [FLOAT, QUANT8], ids=lambda code: code.name)
def test_any_number_of_groups_and_queues(
    opencl_device: Device, monkeypatch: pytest.MonkeyPatch, code: OperandCode, groups: int, queues: int
) -> None:
    simulate_groups(monkeypatch, groups, queues)
    for depth in (24, 64, 96, 200):
        residual_block(code, (1, 24, 40, 24), depth, filter_size=2).check(opencl_device)


def test_what_follows_is_no_step_of_its_own() -> None:
    steps = residual_block(FLOAT, (1, 9, 13, 24), 32).steps
    assert [step.kind for step in steps] == [Kind.CONVOLVE, Kind.DEPTHWISE, Kind.WINOGRAD, Kind.ELEMENTWISE]
    steps = residual_block(SIGNED, (1, 9, 13, 24), 64).steps
    assert all(step.epilogue is not None for step in steps)
    assert [operation for step in steps for operation in step.operations] == list(range(9))


def test_blocks_that_overlap_belong_to_one_task() -> None:
    """The last 16 of 40 channels begin in the block before: were that another task's, some would be done twice."""
    network = Network(FLOAT, (1, 9, 13, 40))
    network.product(DEPTHWISE, 40, filter_size=3)
    network.follow(OperationCode.PRELU)
    network.finish()
    (step,) = network.steps
    assert step.epilogue is not None
    tasks = chain.tasks_of(step, 8, Tuning(least_task_flops=1000))
    assert len(tasks) > 4
    assert {task.channels for task in tasks} == {(0, 48)}


@pytest.mark.parametrize("operation", [OperationCode.MAXIMUM, OperationCode.MINIMUM], ids=lambda code: code.name)
@pytest.mark.parametrize("code", TYPES, ids=lambda code: code.name)
def test_greatest_and_least_of_two_products(opencl_device: Device, code: OperandCode, operation: OperationCode) -> None:
    network = Network(code, (1, 5, 6, 16))
    source, dims = network.now, network.dims
    made = []
    for _ in range(2):
        network.now, network.dims = source, dims
        network.product(CONV, 32)
        made.append(network.now)
    network.graph.operation(operation, made, network.tensor(network.dims))
    network.finish()
    assert len(network.steps) == 2
    network.check(opencl_device)


def test_what_others_read_too_stays() -> None:
    network = Network(FLOAT, (1, 9, 13, 16))
    network.product(CONV, 32)
    made = network.now
    network.follow(OperationCode.PRELU)
    network.product(CONV, 32)
    network.follow(OperationCode.ADD, made)
    network.finish()
    first, *_ = network.steps
    assert first.epilogue is None


def test_what_the_model_gives_too_stays(opencl_device: Device) -> None:
    rng, graph = np.random.default_rng(4), Graph()
    source, weights, bias, slopes = (
        rng.standard_normal(dims).astype(np.float32) for dims in ((40, 16), (32, 16), (32,), (32,))
    )
    product, bent = graph.output((40, 32)), graph.output((40, 32))
    operands = [graph.input((40, 16)), graph.constant(weights), graph.constant(bias), graph.integer(FuseCode.NONE)]
    graph.operation(FULL, operands, product)
    graph.operation(OperationCode.PRELU, [product, graph.constant(slopes)], bent)
    results = [np.full((40, 32), np.nan, np.float32) for _ in range(2)]
    run(prepare(opencl_device, graph.model()), request([source], results))
    wanted = source.astype(np.float64) @ weights.T + bias
    np.testing.assert_allclose(results[0], wanted, 1e-5, 1e-5)
    np.testing.assert_allclose(results[1], np.where(wanted < 0, wanted * slopes, wanted), 1e-5, 1e-5)


@pytest.mark.parametrize("axis", [1, 2, 3], ids=str)
@pytest.mark.parametrize("depth", [1, 20])
@pytest.mark.parametrize("code", TYPES, ids=lambda code: code.name)
def test_a_softmax_over_any_axis(opencl_device: Device, code: OperandCode, depth: int, axis: int) -> None:
    """What comes after the axis may be of size one."""
    network = Network(code, (2, 5, 7, 12))
    network.product(CONV, depth)
    graph, source, dims = network.graph, network.now, network.dims
    scale, zero = (0.0, 0) if network.is_real else (1 / 256, -128 if code == SIGNED else 0)
    output = graph.output(dims, code, scale, zero)
    beta = graph.half(1.0) if code == HALF else graph.real(1.0)
    graph.operation(OperationCode.SOFTMAX, [source, beta, graph.integer(axis)], output)
    network.check(opencl_device)


@pytest.mark.parametrize("code", TYPES, ids=lambda code: code.name)
def test_a_product_waits_for_what_is_added_to_it(opencl_device: Device, code: OperandCode) -> None:
    """As face detectors have it: what is added is made of something else between the product and the ADD."""
    network = Network(code, (1, 20, 24, 24))
    network.product(CONV, 24)
    for depth in (32, 48):
        entry, dims = network.now, network.dims
        network.product(DEPTHWISE, dims[-1], filter_size=3)
        network.product(CONV, depth)
        network.follow(OperationCode.ADD, network.padded(entry, dims, depth))
    network.finish()
    joined = [step for step in network.steps if step.epilogue is not None]
    assert [step.kind for step in joined] == [Kind.CONVOLVE] * 2
    assert Kind.ELEMENTWISE not in [step.kind for step in network.steps]
    network.check(opencl_device)


@pytest.mark.parametrize("code", TYPES, ids=lambda code: code.name)
def test_a_product_waits_for_what_waited_itself(opencl_device: Device, code: OperandCode) -> None:
    """The sum of a product and a PAD behind it, to which the product between the two is added."""
    network = Network(code, (1, 20, 24, 24))
    entry, dims = network.now, network.dims
    made = []
    for _ in range(2):
        network.now, network.dims = entry, dims
        network.product(CONV, 32)
        made.append(network.now)
    network.now = made[0]
    network.follow(OperationCode.ADD, network.padded(entry, dims, 32))
    apart = network.padded(entry, dims, 32, before=1)  # or both sums would be one step
    network.follow(OperationCode.ADD, made[1])
    network.product(CONV, 32)
    network.follow(OperationCode.ADD, apart)
    network.finish()
    joined = [step.operations for step in network.steps if step.epilogue is not None]
    assert joined[:2] == [(0, 3), (1, 5)]
    network.check(opencl_device)


def test_a_third_tensor_beside_a_product_takes_another_step(opencl_device: Device) -> None:
    network = Network(FLOAT, (1, 9, 13, 32))
    entry = network.now
    others = []
    for _ in range(2):
        network.product(DEPTHWISE, 32, filter_size=3)
        others.append(network.now)
    network.product(CONV, 32)
    network.follow(OperationCode.ADD, entry)
    for other in others:
        network.follow(OperationCode.MUL, other)
    network.product(DEPTHWISE, 32)
    network.finish()
    assert Kind.ELEMENTWISE in [step.kind for step in network.steps]
    network.check(opencl_device)


def test_what_a_product_makes_may_be_the_third_tensor(opencl_device: Device) -> None:
    network = Network(FLOAT, (1, 9, 13, 32))
    entry, none = network.now, network.graph.integer(FuseCode.NONE)
    factors = []
    for _ in range(2):
        network.now = entry
        network.product(DEPTHWISE, 32, filter_size=3)
        factors.append(network.now)
    network.now = entry
    network.product(CONV, 32)
    made = network.now
    network.graph.operation(OperationCode.MUL, [*factors, none], product := network.tensor(network.dims))
    network.graph.operation(OperationCode.SUB, [product, made, none], network.tensor(network.dims))
    network.product(DEPTHWISE, 32)
    network.finish()
    assert (2, 3, 4) in [step.operations for step in network.steps]
    network.check(opencl_device)


def test_means_of_what_a_product_makes_take_another_step(opencl_device: Device) -> None:
    """Where a task has a part of the channels, no task has all of a row."""
    network = Network(FLOAT, (3, 300))
    network.product(FULL, 480)
    graph, source, none = network.graph, network.now, network.graph.integer(FuseCode.NONE)
    axis = graph.constant(np.array([1], np.int32))
    graph.operation(OperationCode.MEAN, [source, axis, graph.integer(1)], mean := network.tensor((3, 1)))
    graph.operation(OperationCode.SUB, [source, mean, none], network.tensor((3, 480)))
    network.finish()
    assert [step.kind for step in network.steps] == [Kind.CONVOLVE, Kind.ELEMENTWISE]
    network.check(opencl_device)
