# SPDX-License-Identifier: Apache-2.0
"""Chains of convolutions: what is put together, what tasks wait for, and the same bits as the CPU driver's."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import kernels_cl
from gpu_driver import chain
from gpu_driver.chain import launches
from gpu_driver.convolution import packing
from gpu_driver.kernel import Kernel, Packed, Scratch
from gpu_driver.launch import Launch
from gpu_driver.lowering import Lowering
from gpu_driver.tuning_values import Tuning
from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.devices import find_device
from nn_runtime.quantization import multiply_by_quantized_multiplier
from tests.gpu_driver.drawn import FLOAT, QUANT8, RESHAPE, SIGNED, Network, inverted_residuals
from tests.gpu_driver.graphs import request
from tests.gpu_driver.profiles import CPU_PROFILE
from tests.gpu_driver.running import prepare, run

if TYPE_CHECKING:
    from gpu_driver.chain.tiles import Tiles
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.driver import Device
    from nn_runtime.operand import Array, Dimensions


def launch_of(network: Network, cores: int = 4) -> Launch:
    lowering = Lowering(network.graph.model(), replace(CPU_PROFILE, compute_units=cores))
    commands = lowering.lower(0, lowering.static_inputs()).commands
    assert len(commands) == 1
    assert isinstance(commands[0], Launch)
    return commands[0]


def tables_of(launch: Launch) -> tuple[Array, Array, Array, Array]:
    """Return steps, tasks, starts and waits as the kernel takes them."""
    tables = [argument.data for argument in launch.arguments if isinstance(argument, Packed)]
    return tables[0], tables[1], tables[2], tables[3]


def test_fields_of_a_step_are_those_of_the_kernel() -> None:
    text = re.search(r"typedef struct \{([^}]*)\} Step;", kernels_cl.source("chain.cl"))
    assert text is not None
    names = re.findall(r"(\w+)(?=[,;])", re.sub(r"//.*", "", text[1]))
    ours = {"depth_in": "input_depth", "depth_out": "output_depth", "out_height": "output_height"}
    ours |= {"out_width": "output_width", "height": "input_height", "width": "input_width"}
    assert tuple(ours.get(name, name) for name in names) == chain.STEP_FIELDS


def test_a_network_is_one_launch_with_a_stage_for_every_step() -> None:
    launch = launch_of(inverted_residuals(FLOAT))
    assert len(launch.stages) == len(launch.steps) == 13
    assert all(before.last == after.first for before, after in pairwise(launch.stages))
    assert sum(stage.flops for stage in launch.stages) == launch.flops
    assert {stage.name for stage in launch.stages} == {"chain:convolve", "chain:depthwise"}
    covered = [operation for stage in launch.stages for operation in stage.operations]
    assert sorted(covered) == sorted(launch.operations)


@pytest.mark.parametrize("code", [FLOAT, QUANT8])
def test_a_run_whose_constants_one_buffer_does_not_take_is_cut(code: OperandCode) -> None:
    network = inverted_residuals(code)
    whole = launch_of(network)
    largest = max(step.constants[0].nbytes for step in whole.steps)
    lowering = Lowering(network.graph.model(), replace(CPU_PROFILE, compute_units=4, max_alloc_bytes=3 * largest // 2))
    parts = lowering.lower(0, lowering.static_inputs()).commands
    assert 1 < len(parts) < len(whole.steps)
    covered = []
    for part in parts:
        assert isinstance(part, Launch)
        covered += part.operations
        assert all(one.size_bytes <= 3 * largest // 2 for one in part.arguments if isinstance(one, Packed | Scratch))
    assert sorted(covered) == sorted(whole.operations)


def test_filters_whose_transforms_one_buffer_does_not_take_are_not_transformed() -> None:
    network = Network(FLOAT, (1, 24, 24, 64), 0)
    network.convolve(64, 3, is_output=True)
    for limit, kind in ((1 << 20, chain.Kind.WINOGRAD), (1 << 19, chain.Kind.CONVOLVE)):
        lowering = Lowering(network.graph.model(), replace(CPU_PROFILE, max_alloc_bytes=limit))
        (launch,) = lowering.lower(0, lowering.static_inputs()).commands
        assert isinstance(launch, Launch)
        assert [step.kind for step in launch.steps] == [kind]


def test_own_memory_is_used_again() -> None:
    launch = launch_of(inverted_residuals(FLOAT))
    own = next(argument for argument in launch.arguments if isinstance(argument, Scratch))
    sizes = sorted(step.output.size_bytes for step in launch.steps)
    assert own.size_bytes < sum(sizes[-4:])


def test_what_an_outsider_reads_is_not_in_own_memory() -> None:
    network = Network(FLOAT, (1, 4, 4, 16), 0)
    first = network.convolve(16, is_output=True)
    network.convolve(16, is_output=True)
    launch = launch_of(network)
    assert first in {argument.index for argument in launch.arguments if hasattr(argument, "index")}


@pytest.mark.parametrize("cores", [1, 2, 3, 12, 64])
@pytest.mark.parametrize("code", [FLOAT, QUANT8])
def test_tasks_are_all_of_a_step_and_equal_parts_for_the_cores(code: OperandCode, cores: int) -> None:
    launch = launch_of(inverted_residuals(code, 2), cores)
    for step, tuning in product(launch.steps, (Tuning(), Tuning(least_task_flops=1000, bands=4))):
        tasks = chain.tasks_of(step, cores, tuning)
        pixels, depth = step.output_shape
        written = np.zeros((pixels, depth), int)
        for task in tasks:
            assert written[slice(*task.pixels), slice(*task.channels)].size
            written[slice(*task.pixels), slice(*task.channels)] += 1
        assert (written == 1).all()
        assert all(0 <= task.queue < cores for task in tasks)
        assert [task.queue for task in tasks] == sorted(task.queue for task in tasks)


def test_a_core_has_the_same_part_of_the_picture_in_every_step() -> None:
    network = Network(FLOAT, (1, 28, 28, 32), 0)
    network.convolve(192)
    network.depthwise()
    network.convolve(64, is_output=True)
    launch = launch_of(network, 2)
    for step in launch.steps:
        mine = [task for task in chain.tasks_of(step, 2) if task.queue == 0]
        assert max(task.pixels[1] for task in mine) == 28 * 28 // 2


@pytest.mark.parametrize("cores", [2, 4])
def test_a_core_has_channels_of_its_own_where_weights_are_many(cores: int) -> None:
    """What a core reads of 2 MB of weights, nobody else reads; 128 KB everybody reads, for pixels of his own."""
    network = Network(FLOAT, (1, 12, 16, 512), 0)
    network.convolve(1024)
    network.convolve(32, is_output=True)
    many, few = (chain.tasks_of(step, cores) for step in launch_of(network, cores).steps)
    for task in many:
        assert task.pixels == (0, 12 * 16)
        assert all(
            other.queue == task.queue
            for other in many
            if other.channels[0] < task.channels[1] and task.channels[0] < other.channels[1]
        )
    assert {task.channels for task in few} == {(0, 32)}


@pytest.mark.parametrize("cores", [1, 2, 12])
def test_starts_say_where_the_tasks_of_a_queue_and_step_lie(cores: int) -> None:
    launch = launch_of(inverted_residuals(QUANT8), cores)
    _, rows, starts, _ = tables_of(launch)
    assert starts.shape == (launch.global_size[0], len(launch.steps) + 1)
    covered = 0
    for queue, positions in enumerate(starts.tolist()):
        for step, (first, last) in enumerate(pairwise(positions)):
            tasks = [task for task in chain.tasks_of(launch.steps[step], cores) if task.queue == queue]
            assert rows[first:last, :5].tolist() == [[step, *task.x, *task.y] for task in tasks]
            covered += last - first
    assert covered == len(rows)


@pytest.mark.parametrize("batches", [1, 3])
@pytest.mark.parametrize("cores", [1, 2, 12])
@pytest.mark.parametrize("code", [FLOAT, QUANT8])
def test_tasks_wait_for_everything_that_they_read_and_overwrite(code: OperandCode, batches: int, cores: int) -> None:
    check_waits(launch_of(inverted_residuals(code, batches), cores), cores)


@pytest.mark.parametrize("cores", [1, 2, 12])
def test_turned_matrices_wait_for_all_that_used_their_memory(cores: int) -> None:
    launch = launch_of(turned(), cores)
    assert chain.Kind.TURN in [step.kind for step in launch.steps]
    check_waits(launch, cores)


@pytest.mark.parametrize("cores", [2, 12])
def test_single_pixels_with_a_border_wait_for_those_beside_which_they_lie(cores: int) -> None:
    network = Network(FLOAT, (1, 20, 20, 16), 7)
    first = network.convolve(16)
    weights, bias = network._constants((16, 1, 1, 16), 16)
    numbers = [network.graph.integer(one) for one in (3, 3, 3, 3, 1, 1, FuseCode.NONE)]
    output = network.operand((1, 26, 26, 16), is_output=True)
    network.graph.operation(OperationCode.CONV_2D, [first, weights, bias, *numbers], output)
    launch = launch_of(network, cores)
    assert [step.output_shape for step in launch.steps] == [(400, 16), (676, 16)]
    check_waits(launch, cores)


def turned() -> Network:
    """A picture whose sides change places, into memory that a convolution beside it has done with."""
    network = Network(FLOAT, (1, 100, 200, 4), 5)
    first = network.convolve(4)
    network.convolve(4, 3)
    network.convolve(32, 5, is_output=True)
    swapped = network.operand((1, 200, 100, 4))
    order = network.graph.constant(np.array([0, 2, 1, 3], np.int32), OperandCode.TENSOR_INT32)
    network.graph.operation(OperationCode.TRANSPOSE, [first, order], swapped)
    network.last, network.dims = swapped, (1, 200, 100, 4)
    network.convolve(4, 3, is_output=True)
    return network


def check_waits(launch: Launch, cores: int) -> None:
    table, rows, _, waits = tables_of(launch)
    order = np.argsort(rows[:, 0], kind="stable")  # of the steps: every task must wait for earlier ones only
    numbers = np.argsort(order)
    tasks = [task for step in launch.steps for task in chain.tasks_of(step, cores)]
    assert len(tasks) == len(rows)
    written: list[tuple[tuple[int, int], Array]] = []  # (place in memory, which elements) of every task before
    read: list[tuple[tuple[int, int], Array]] = []
    dependencies: list[set[int]] = []
    steps = [int(rows[place][0]) for place in order]
    for at, (task, place) in enumerate(zip(tasks, order, strict=True)):
        row = rows[place]
        step = launch.steps[row[0]]
        fields = dict(zip(chain.STEP_FIELDS, table[row[0]].tolist(), strict=True))
        assert (*task.x, *task.y) == tuple(row[1:5])
        waited = {int(numbers[other]) for other in waits[row[7] : row[8]]}
        assert all(other < at for other in waited)
        source = (fields["src"], fields["src_offset"] * 64)
        output = (fields["dst"], fields["dst_offset"] * 64)
        reads, writes = elements_read(step, task), elements_written(step, task)
        needed = {i for i, done in enumerate(written) if overlap(done, (source, reads))}
        if step.residual is not None:
            other = (fields["residual"], fields["residual_offset"] * 64)
            needed |= {i for i, done in enumerate(written) if overlap(done, (other, writes))}
        same = {i for i in range(len(written)) if steps[i] == steps[at]}
        needed |= {i for i, done in enumerate(read) if overlap(done, (output, writes))} - same
        needed |= {i for i, done in enumerate(written) if overlap(done, (output, writes))} - same
        reached = set(waited)
        for other in sorted(waited, reverse=True):
            reached |= dependencies[other]
        assert needed <= reached, (at, sorted(needed - reached))
        written.append((output, writes))
        read.append((source, reads))
        dependencies.append(reached)


def overlap(first: tuple[tuple[int, int], Array], second: tuple[tuple[int, int], Array]) -> bool:
    """Whether two sets of bytes have one in common; a set: (buffer, offset) and offsets from there, one byte each."""
    (buffer0, offset0), bytes0 = first
    (buffer1, offset1), bytes1 = second
    return buffer0 == buffer1 and bool(np.isin(bytes0 + offset0, bytes1 + offset1).any())


def elements_written(step: chain.Step, task: chain.Task) -> Array:
    pixels, depth = step.output_shape
    if step.kind == chain.Kind.TURN:
        return np.arange(pixels * depth)  # parts of them, anywhere
    numbers = np.arange(pixels * depth).reshape(pixels, depth)
    first = task.channels[0]
    if step.kind == chain.Kind.DEPTHWISE and depth >= 16:
        first = min(first, depth - 16)
    return numbers[slice(*task.pixels), first : task.channels[1]].ravel()


def elements_read(step: chain.Step, task: chain.Task) -> Array:
    if step.reads is not None:
        return np.arange(step.reads.rows * step.reads.depth)
    g = step.geometry
    numbers = np.arange(g.batches * g.input_height * g.input_width * g.input_depth)
    image = numbers.reshape(g.batches, g.input_height, g.input_width, g.input_depth)
    pixels = np.arange(*task.pixels)
    b, rest = np.divmod(pixels, g.output_height * g.output_width)
    oy, ox = np.divmod(rest, g.output_width)
    first = task.channels[0] if step.kind == chain.Kind.DEPTHWISE else 0
    if step.kind == chain.Kind.DEPTHWISE and g.input_depth >= 16:
        first = min(first, g.input_depth - 16)
    last = task.channels[1] if step.kind == chain.Kind.DEPTHWISE else g.input_depth
    found = []
    for fy in range(g.filter_height):
        for fx in range(g.filter_width):
            y = oy * g.stride_height - g.padding_top + fy * g.dilation_height
            x = ox * g.stride_width - g.padding_left + fx * g.dilation_width
            inside = (y >= 0) & (y < g.input_height) & (x >= 0) & (x < g.input_width)
            found.append(image[b[inside], y[inside], x[inside], first:last].ravel())
    return np.unique(np.concatenate(found))


def test_a_task_knows_the_weights_of_the_next_product_in_its_queue() -> None:
    launch = launch_of(inverted_residuals(FLOAT), 3)
    table, rows, starts, _ = tables_of(launch)
    for first, last in zip(starts[:, 0].tolist(), starts[:, -1].tolist(), strict=True):
        for at in range(first, last):
            products = [row for row in rows[at + 1 : last] if launch.steps[row[0]].kind == chain.Kind.CONVOLVE]
            if not products:
                assert rows[at, 5:7].tolist() == [0, 0]
                continue
            step, block = int(products[0][0]), int(products[0][3])
            depth = launch.steps[step].constants[0].shape[1]  # lines of 64 bytes for every 16 channels
            begin = int(table[step, chain.STEP_FIELDS.index("weights")])
            assert rows[at, 5:7].tolist() == [begin + 2 * block * depth, 2 * depth]


@pytest.mark.parametrize(("size", "lines"), [(3, 12), (5, 40)])
@pytest.mark.parametrize(("zero_point", "weight", "fits"), [(0, 254, True), (0, 255, False), (255, 0, True)])
def test_weights_of_nine_bits_are_two_signed_bytes_in_a_depthwise_step(
    size: int, lines: int, zero_point: int, weight: int, fits: bool
) -> None:
    weights = np.full((1, size, size, 144), zero_point, np.uint8)
    weights[0, 1, 2, 70] = weight
    assert packing.fits_depthwise_bytes(weights, zero_point) == fits
    if fits:
        packed, has_rest = packing.pack_depthwise_weights_of_bytes(weights, zero_point, 3, 64)
        assert has_rest.tolist() == [False, True, False]
        assert len(packed) == 3 * lines + 1 + lines
        first, rest = packed[lines : 2 * lines].astype(int), packed[3 * lines + 1 :].astype(int)
        assert (first + rest).sum() == weight - zero_point


def test_rounding_at_once_is_rounding_twice() -> None:
    rng = np.random.default_rng(0)
    exponents = -rng.integers(1, 12, 4000).astype(np.int32)
    mantissas = rng.integers(1 << 30, (1 << 31) - 1, 4000).astype(np.int32)
    sums = rng.integers(-(1 << 20), 1 << 20, 4000)
    sums[:1000] = rng.integers(-3, 4, 1000)
    zero_point = -77
    rounding = packing.rounding(np.abs(sums), exponents, zero_point)
    assert rounding.at_once
    product = (sums * mantissas.astype(np.int64) + (1 << 30)) >> 31
    at_once = (product + (sums >> 63) + rounding.offsets) >> -exponents
    expected = multiply_by_quantized_multiplier(sums.astype(np.int32), mantissas, exponents) + zero_point
    assert np.array_equal(at_once, expected)


def test_rounding_at_once_is_refused_where_it_could_overflow() -> None:
    exponents = np.array([-8], np.int32)
    assert packing.rounding(np.array([(1 << 31) - 200]), exponents, 0).at_once
    assert not packing.rounding(np.array([(1 << 31) - 100]), exponents, 0).at_once
    assert not packing.rounding(np.array([5]), np.array([0], np.int32), 0).at_once


@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("code", [FLOAT, QUANT8, SIGNED], ids=["float32", "quant8", "signed"])
def test_a_chain_gives_what_the_cpu_driver_gives(opencl_device: Device, code: OperandCode, batches: int) -> None:
    network = inverted_residuals(code, batches)
    model, source = network.graph.model(), network.data()
    results = []
    for device in (find_device("nnapi-reference").hal, opencl_device):
        prepared = prepare(device, model)  # type: ignore[arg-type]
        for _ in range(20 if device is opencl_device else 1):
            result = np.empty(network.dims, source.dtype)
            run(prepared, request([source], [result]))
            results.append(result)
    assert all(np.array_equal(result, results[1]) for result in results[1:])
    if code == FLOAT:
        np.testing.assert_allclose(results[1], results[0], atol=2e-5, rtol=2e-5)
    else:
        assert np.array_equal(results[1], results[0])


@pytest.mark.parametrize("code", [QUANT8, SIGNED], ids=["quant8", "signed"])
@pytest.mark.parametrize("wide_channels", [0, 5])
@pytest.mark.parametrize(("taps", "stride"), [(3, 1), (3, 2), (5, 1), (5, 2)])
@pytest.mark.parametrize(
    "dims",
    [(1, 15, 23, 40), (2, 8, 16, 16), (1, 3, 14, 35), (1, 1, 7, 17), (2, 5, 9, 32), (1, 9, 4, 96), (1, 6, 1, 144)],
)
def test_depthwise_steps_give_what_the_cpu_driver_gives(
    opencl_device: Device, code: OperandCode, taps: int, stride: int, dims: Dimensions, wide_channels: int
) -> None:
    network = Network(code, dims, 3, wide_channels)
    network.depthwise(taps, stride, is_output=True)
    model, source = network.graph.model(), network.data()
    results = []
    for device in (find_device("nnapi-reference").hal, opencl_device):
        results.append(np.empty(network.dims, source.dtype))
        run(prepare(device, model), request([source], [results[-1]]))  # type: ignore[arg-type]
    assert np.array_equal(*results)


@pytest.mark.parametrize(
    ("dims", "depth", "taps", "stride"),
    [
        *[((1, 7, 7, 320), 200, 1, 1), ((1, 1, 1, 83), 45, 1, 1), ((1, 1, 1, 640), 1001, 1, 1)],
        *[((1, 14, 14, 33), 24, 1, 1), ((2, 15, 23, 5), 16, 3, 2), ((1, 9, 30, 48), 40, 3, 1)],
        *[((2, 9, 11, 20), 16, 1, 1), ((2, 5, 9, 31), 24, 1, 1), ((1, 1, 14, 7), 16, 1, 1)],
    ],
)
def test_float_steps_give_what_the_cpu_driver_gives(
    opencl_device: Device, dims: Dimensions, depth: int, taps: int, stride: int
) -> None:
    network = Network(FLOAT, dims, 5)
    network.convolve(depth, taps, stride, is_output=True)
    model, source = network.graph.model(), network.data()
    results = []
    for device in (find_device("nnapi-reference").hal, opencl_device):
        results.append(np.empty(network.dims, source.dtype))
        run(prepare(device, model), request([source], [results[-1]]))  # type: ignore[arg-type]
    np.testing.assert_allclose(results[1], results[0], atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("code", [FLOAT, QUANT8, SIGNED], ids=["float32", "quant8", "signed"])
@pytest.mark.parametrize(
    "dims", [(1, 1001), (3, 5), (2, 3, 4, 37), (1, 2, 1, 512), (1, 9, 5, 21), (1, 31, 33, 2), (1, 7, 5, 600)], ids=str
)
def test_softmax_of_a_convolution_is_one_launch_and_what_the_cpu_driver_gives(
    opencl_device: Device, code: OperandCode, dims: Dimensions
) -> None:
    network = Network(code, (dims[0], *([1, 1] if len(dims) == 2 else dims[1:3]), 19), 7)
    network.convolve(dims[-1])
    network.reshape(dims)
    scale, zero_point = (0.0, 0) if code == FLOAT else (1 / 256, 0 if code == QUANT8 else -128)
    output = network.graph.output(dims, code, scale, zero_point)
    network.graph.operation(OperationCode.SOFTMAX, [network.last, network.graph.real(0.7)], output)
    assert [step.kind for step in launch_of(network).steps] == [chain.Kind.CONVOLVE, chain.Kind.SOFTMAX]
    model, source = network.graph.model(), network.data()
    results = []
    for device in (find_device("nnapi-reference").hal, opencl_device):
        results.append(np.empty(dims, source.dtype))
        run(prepare(device, model), request([source], [results[-1]]))  # type: ignore[arg-type]
    if code == FLOAT:
        np.testing.assert_allclose(results[1], results[0], atol=1e-6, rtol=1e-5)
    else:
        assert np.array_equal(*results)


def test_a_profile_names_every_step(opencl_device: Device) -> None:
    network = inverted_residuals(FLOAT)
    prepared = prepare(opencl_device, network.graph.model())
    source, result = network.data(), np.empty(network.dims, np.float32)
    asked = request([source], [result])
    run(prepared, asked)
    expected = result.copy()
    result[...] = 0
    _, profile = prepared.execute_profiled(asked, None, None)
    assert np.array_equal(result, expected)
    covered = {operation for row in profile.rows for operation in row.operations}
    reshapes = {i for i, one in enumerate(network.graph.model().main.operations) if one.type == RESHAPE}
    assert covered | reshapes == set(range(len(network.graph.model().main.operations)))


@pytest.mark.parametrize(("groups", "queues"), [(1, 1), (1, 5), (2, 1), (2, 24), (3, 2), (16, 5), (64, 64)])
def test_any_number_of_groups_and_queues_gives_the_same_bits(
    opencl_device: Device, monkeypatch: pytest.MonkeyPatch, groups: int, queues: int
) -> None:
    network = inverted_residuals(QUANT8)
    model, source = network.graph.model(), network.data()
    expected, result = np.empty(network.dims, source.dtype), np.empty(network.dims, source.dtype)
    run(prepare(find_device("nnapi-reference").hal, model), request([source], [expected]))  # type: ignore[arg-type]
    launch_of_steps = launches._launch

    def simulated(steps: Any, memories: Any, device: DeviceProfile, tiles: Tiles, program: Kernel) -> Launch:
        launch = launch_of_steps(steps, memories, replace(device, compute_units=queues), tiles, program)
        return replace(launch, global_size=(groups,))

    monkeypatch.setattr(launches, "_launch", simulated)
    prepared = prepare(opencl_device, model)
    for _ in range(50):
        result[...] = 0
        run(prepared, request([source], [result]))
        assert np.array_equal(result, expected)
