# SPDX-License-Identifier: Apache-2.0
"""Several images: chains that are enqueued for each, what they may share, the same bits; times of their steps."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl
import pytest

from gpu_driver.chain import images
from gpu_driver.kernel import Scratch
from gpu_driver.launch import Launch
from gpu_driver.lowering import Lowering
from nn_runtime.codes import OperationCode
from nn_runtime.devices import find_device
from nn_runtime.hal.memory import SharedMemory
from nn_runtime.hal.types import DataLocation, ExecutionPreference, Priority, Request, RequestArgument
from tests.gpu_driver.drawn import FLOAT, QUANT8, SCALES, SIGNED, ZEROS, Network
from tests.gpu_driver.graphs import request
from tests.gpu_driver.profiles import CPU_PROFILE
from tests.gpu_driver.running import fresh, prepare, run

if TYPE_CHECKING:
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.driver import Device
    from nn_runtime.codes import OperandCode


@pytest.fixture(autouse=True)
def small_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "LEAST_FLOPS", 1)


def blocks(code: OperandCode, batches: int, height: int = 16) -> Network:
    """A residual block, a reduction, and a fully connected layer that all images share."""
    network = Network(code, (batches, height, 16, 16), 3)
    network.convolve(32, 3, 2)
    skipped = network.last
    network.convolve(64)
    network.depthwise()
    network.convolve(32)
    network.plus(skipped)
    network.convolve(128, 1, 8 if height == 16 else 1)
    b, h, w, depth = network.dims
    network.reshape((b, h * w * depth))
    network.fully(10)
    return network


def launches(network: Network, profile: DeviceProfile = CPU_PROFILE) -> list[Launch]:
    lowering = Lowering(network.graph.model(), profile)
    return [command for command in lowering.lower(0, lowering.static_inputs()).commands if isinstance(command, Launch)]


def test_memory_of_one_image_serves_all() -> None:
    alone, together = launches(blocks(FLOAT, 1)), launches(blocks(FLOAT, 6))
    assert [launch.repeats for launch in alone] == [1]
    assert [launch.repeats for launch in together] == [6, 1]
    own = [next(one for one in launch.arguments if isinstance(one, Scratch)) for launch in (alone[0], together[0])]
    assert own[1].size_bytes <= own[0].size_bytes
    assert sum(launch.repeats * launch.flops for launch in together) == 6 * alone[0].flops
    covered = [operation for launch in together for operation in launch.operations]
    assert sorted(covered) == sorted(alone[0].operations)


def test_images_that_begin_anywhere_stay_together() -> None:
    network = Network(QUANT8, (3, 5, 5, 3), 1)  # 75 bytes each
    network.convolve(16)
    network.convolve(16, is_output=True)
    assert [launch.repeats for launch in launches(network)] == [1]


@pytest.mark.parametrize("code", [FLOAT, QUANT8])
def test_images_stay_together_where_a_constant_is_added_to_them(code: OperandCode, opencl_device: Device) -> None:
    network = Network(code, (2, 8, 8, 16), 3)
    values = network.data()[::-1]
    network.convolve(16)
    network.plus(network.graph.constant(values, code, SCALES[code], ZEROS[code]))
    network.convolve(16, is_output=True)
    model, data = network.graph.model(), network.data()
    found, wanted = np.zeros_like(data), np.zeros_like(data)
    run(prepare(opencl_device, model), request([data], [found]))
    run(prepare(find_device("nnapi-reference").hal, model), request([data], [wanted]))  # type: ignore[arg-type]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-4 if code == FLOAT else 0)


def check(device: Device, network: Network) -> None:
    """Compare float32 results with the CPU driver's."""
    data, results = network.data(), []
    for driver in (device, find_device("nnapi-reference").hal):
        results.append(np.zeros(network.dims, np.float32))
        run(prepare(driver, network.graph.model()), request([data], [results[-1]]))  # type: ignore[arg-type]
    np.testing.assert_allclose(results[0], results[1], rtol=0, atol=1e-4)


def test_all_steps_may_go_by_images(opencl_device: Device) -> None:
    network = Network(FLOAT, (2, 8, 8, 16), 3)
    network.convolve(16, 3)
    network.convolve(16, 3, is_output=True)
    assert [launch.repeats for launch in launches(network)] == [2]
    check(opencl_device, network)


@pytest.mark.parametrize(("count", "repeats"), [(14, [2, 1]), (15, [1])])
def test_images_stay_together_where_too_much_would_go_between(
    opencl_device: Device, count: int, repeats: list[int]
) -> None:
    """So many pictures of one input become pixels, which are added: what goes between launches takes buffers."""
    network = Network(FLOAT, (2, 8, 8, 16), 3)
    source, dims = network.last, network.dims
    pictures = []
    for _ in range(count):
        network.last, network.dims = source, dims
        pictures.append(network.convolve(16, 3))
    zeros, (none, valid, one) = network.graph.constant(np.zeros(8, np.float32)), map(network.graph.integer, (0, 2, 1))
    weights = network.graph.constant(np.random.default_rng(4).uniform(-0.1, 0.1, (8, 8, 8, 16)).astype(np.float32))
    total = None
    network.dims = (2, 1, 1, 8)
    for place, picture in enumerate(pictures):
        pixel = network.operand(network.dims)
        network.graph.operation(OperationCode.CONV_2D, [picture, weights, zeros, valid, one, one, none], pixel)
        if total is not None:
            added = network.operand(network.dims, is_output=place == count - 1)
            network.graph.operation(OperationCode.ADD, [pixel, total, none], added)
            pixel = added
        total = pixel
    assert [launch.repeats for launch in launches(network)] == repeats
    check(opencl_device, network)


def test_little_work_stays_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "LEAST_FLOPS", 1 << 40)
    assert [launch.repeats for launch in launches(blocks(FLOAT, 6))] == [1]


@pytest.mark.parametrize("code", [FLOAT, QUANT8, SIGNED])
@pytest.mark.parametrize("batches", [2, 5])
def test_answers_are_the_cpu_drivers(code: OperandCode, batches: int, opencl_device: Device) -> None:
    network = blocks(code, batches)
    model, data = network.graph.model(), network.data()
    dtype = np.float32 if code == FLOAT else data.dtype
    found, wanted = np.zeros((batches, 10), dtype), np.zeros((batches, 10), dtype)
    prepared = prepare(opencl_device, model)
    for _ in range(3):
        run(prepared, request([data], [found]))
    cpu = find_device("nnapi-reference").hal
    preference = ExecutionPreference.FAST_SINGLE_ANSWER
    reference = cpu.prepare_model(model, preference, Priority.MEDIUM, None, None)
    reference.execute_synchronously(request([data], [wanted]), False, None, None)
    if code == FLOAT:
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    else:
        np.testing.assert_array_equal(found, wanted)


def test_images_of_memory_that_is_read_in_place(opencl_device: Device) -> None:
    network = blocks(FLOAT, 3)
    source = network.data()
    expected = np.empty(network.dims, np.float32)
    model = network.graph.model()
    run(prepare(find_device("nnapi-reference").hal, model), request([source], [expected]))  # type: ignore[arg-type]
    pools = SharedMemory.create(source.nbytes), SharedMemory.create(expected.nbytes)
    pools[0].array()[:] = source.reshape(-1).view(np.uint8)
    inputs, outputs = (RequestArgument(location=DataLocation(i, 0, pool.size_bytes)) for i, pool in enumerate(pools))
    prepared = opencl_device.prepare_model(model, ExecutionPreference.SUSTAINED_SPEED, Priority.MEDIUM, None, None)
    execution = prepared.create_reusable_execution(Request((inputs,), (outputs,), pools), False, None)
    assert execution is not None
    for _ in range(2):
        pools[1].array()[:] = 0
        execution.execute_synchronously(None)
        result = pools[1].array().view(np.float32).reshape(network.dims)
        np.testing.assert_allclose(result, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("batches", [1, 3])
def test_a_profile_has_every_step_once(batches: int, opencl_device: Device) -> None:
    network = blocks(QUANT8, batches)
    model, data = network.graph.model(), network.data()
    found, plain = np.zeros((batches, 10), np.uint8), np.zeros((batches, 10), np.uint8)
    prepared = prepare(opencl_device, model)
    run(prepared, request([data], [plain]))
    _, profile = prepared.execute_profiled(request([data], [found]), None, None)
    np.testing.assert_array_equal(found, plain)
    computed = [row for row in profile.rows if row.operations]
    if opencl_device.profile.cycle_counter:
        covered = sorted(operation for row in computed for operation in row.operations)
        assert len(covered) == len(set(covered))
    assert sum(row.flops for row in computed) == sum(
        launch.repeats * launch.flops for launch in launches(network, opencl_device.profile)
    )
    end = max(row.end_ns for row in profile.rows)
    assert all(0 <= row.start_ns <= row.end_ns <= end for row in profile.rows)


def test_runs_after_an_interrupted_profile_do_every_step(
    opencl_device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a clock, a profile enqueues the steps of a launch one by one."""
    device = fresh(opencl_device)
    device.profile = replace(device.profile, features=device.profile.features - {"cycle_counter"})
    network = blocks(FLOAT, 1)
    prepared = prepare(device, network.graph.model())
    data, wanted, found = network.data(), np.zeros((1, 10), np.float32), np.zeros((1, 10), np.float32)
    enqueue, calls = cl.enqueue_nd_range_kernel, itertools.count()

    def interrupted(*arguments: Any) -> cl.Event:
        if next(calls) == 2:
            raise KeyboardInterrupt
        return enqueue(*arguments)

    run(prepared, request([data], [found]))
    with monkeypatch.context() as patch:
        patch.setattr(cl, "enqueue_nd_range_kernel", interrupted)
        with pytest.raises(KeyboardInterrupt):
            prepared.execute_profiled(request([data], [found]), None, None)
    run(prepared, request([-data], [found]))
    run(prepare(opencl_device, network.graph.model()), request([-data], [wanted]))
    np.testing.assert_array_equal(found, wanted)


def test_stages_are_timed_where_kernels_can_read_a_clock() -> None:
    network = blocks(FLOAT, 1)
    (launch,) = launches(network, replace(CPU_PROFILE, features=frozenset({"cycle_counter"})))
    assert launch.clock is not None
    assert ("CLOCK", 1) in launch.kernel.defines
    assert sorted(set(launch.clock.stages)) == list(range(len(launch.stages)))
    (plain,) = launches(network)
    assert plain.clock is None
    assert "CLOCK" not in dict(plain.kernel.defines)


@pytest.mark.parametrize("code", [FLOAT, QUANT8, SIGNED], ids=["float32", "quant8", "signed"])
def test_pictures_of_one_pixel_are_rows_of_one_picture(code: OperandCode, opencl_device: Device) -> None:
    answers = []
    for dims in ((36, 1, 1, 32), (1, 1, 36, 32)):
        network = Network(code, dims, seed=3)
        first = network.convolve(32)
        second = network.convolve(32)
        network.last = network.operand(network.dims)
        network.graph.operation(OperationCode.MAXIMUM, [first, second], network.last)
        network.convolve(24, stride=2 if dims[0] > 1 else 1, is_output=True)
        model, source = network.graph.model(), network.data()
        prepared = prepare(opencl_device, model)
        static = prepared._graph.static
        assert static is not None
        assert len(static.segment.commands) == 1 or not opencl_device.profile.builds_chains
        result = np.zeros(network.dims, source.dtype)
        run(prepared, request([source], [result]))
        answers.append(result.reshape(36, 24))
    assert answers[0].any()
    assert np.array_equal(*answers)
