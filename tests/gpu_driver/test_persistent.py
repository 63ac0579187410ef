# SPDX-License-Identifier: Apache-2.0
"""Small launches in a row as a persistent kernel: which go together, what it computes on devices said to be GPUs."""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyopencl as cl
import pytest

import kernels_cl
from cpu_driver.driver import Device as CpuDevice
from gpu_driver import device_profile, persistent
from gpu_driver.device_profile import PERSISTENT_EMULATED
from gpu_driver.driver import Device as OpenClDevice
from gpu_driver.launch import Launch, PersistentKind
from gpu_driver.lowering import Lowering
from nn_runtime.codes import DeviceTypeCode, OperandCode, OperationCode
from nn_runtime.device import Device
from nn_runtime.devices import select
from nn_runtime.hal.types import ExecutionPreference, Priority
from tests.conftest import device_selectors
from tests.gpu_driver.drawn import FLOAT, QUANT8, SIGNED, Network, inverted_residuals
from tests.gpu_driver.graphs import Graph, request
from tests.gpu_driver.operations.products import of_type_gpu
from tests.gpu_driver.profiles import GPU_PROFILE
from tests.platforms.launches import Launches, recorded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_driver.launch import Command
    from nn_runtime.operand import Array

LARGE_GPU = replace(GPU_PROFILE, compute_units=100, features=frozenset({PERSISTENT_EMULATED}))
PERSISTENT_KERNEL = ("persistent.cl", "persistent")


@pytest.fixture(scope="module", params=[selector for selector in device_selectors() if selector != "cpu"])
def persistent_device(request: pytest.FixtureRequest) -> Device:
    """Return a device under test whose groups may wait for each other, or with a profile that says so."""
    device = select(request.param).devices[0]
    return device if device.type == DeviceTypeCode.GPU else Device(of_type_gpu(device, (PERSISTENT_EMULATED,)))


def test_numbers_are_those_of_the_kernel() -> None:
    source = kernels_cl.source("persistent.cl")
    defined = {name: int(number) for name, number in re.findall(r"^#define STEP_([A-Z_]+) (\d+)", source, re.MULTILINE)}
    assert 16 * defined.pop("VECTORS") == persistent.STEP_BYTES
    assert defined == {one.name: one.value for one in PersistentKind}
    (buffers,) = re.findall(r"^    global uchar (.*);", source, re.MULTILINE)
    assert buffers.count("*outer") == persistent.OUTER


def commands_of(network: Network) -> Sequence[Command]:
    lowering = Lowering(network.graph.model(), LARGE_GPU)
    return lowering.lower(0, lowering.static_inputs()).commands


def results_of(device: Device | CpuDevice, network: Network, source: Array, times: int = 1) -> list[Array]:
    hal = device.hal if isinstance(device, Device) else device
    how = ExecutionPreference.FAST_SINGLE_ANSWER, Priority.MEDIUM
    prepared = hal.prepare_model(network.graph.model(), *how, None, None)
    outs = []
    for _ in range(times):
        out = np.zeros(network.dims, source.dtype)
        prepared.execute_synchronously(request([source], [out]), False, None, None)
        outs.append(out)
    prepared.close()
    return outs


@pytest.mark.parametrize("code", [FLOAT, QUANT8, SIGNED], ids=lambda code: code.name)
@pytest.mark.parametrize("per_unit", [device_profile.PERSISTENT_ITEMS_PER_UNIT, 1], ids=["pixels", "strips"])
def test_blocks_are_one_launch_with_the_same_results(
    persistent_device: Device, code: OperandCode, per_unit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice, since the groups leave their counters as they found them."""
    monkeypatch.setattr(device_profile, "PERSISTENT_ITEMS_PER_UNIT", per_unit)
    network = inverted_residuals(code)
    source, launches = network.data(), Launches()
    with recorded(launches):
        first, second = results_of(persistent_device, network, source, 2)
    assert launches.kernels - {("matmul_narrow.cl", "matmul_narrow")} == {PERSISTENT_KERNEL}
    (wanted,) = results_of(CpuDevice(), network, source)
    if code == FLOAT:
        np.testing.assert_allclose(first, wanted, rtol=2e-5, atol=2e-5)
    else:
        np.testing.assert_array_equal(first, wanted)
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("code", [QUANT8, SIGNED], ids=lambda code: code.name)
@pytest.mark.parametrize("groups", [1, 128], ids=["one", "one_a_unit"])
def test_blocks_by_matrix_units(
    persistent_device: Device, groups: int, code: OperandCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the stand-in, whose groups have 128 work-items; in the calling thread they would run one after the other."""
    if persistent_device.type == DeviceTypeCode.GPU and persistent_device.hal.profile.is_discrete:
        pytest.skip("the blocks above are by its matrix units")
    monkeypatch.setattr(device_profile, "PERSISTENT_ITEMS_PER_UNIT", groups)
    monkeypatch.setattr("gpu_driver.driver.is_small", lambda *_, **__: False)
    device = Device(of_type_gpu(persistent_device, (PERSISTENT_EMULATED, "mma_emulated")))
    network = inverted_residuals(code)
    source, launches = network.data(), Launches()
    with recorded(launches):
        first, second = results_of(device, network, source, 2)
    assert PERSISTENT_KERNEL in launches.kernels
    (wanted,) = results_of(CpuDevice(), network, source)
    np.testing.assert_array_equal(first, wanted)
    np.testing.assert_array_equal(first, second)


@pytest.mark.timeout(120)
def test_launches_of_both_queues_do_not_wait_for_each_others_groups(persistent_device: Device) -> None:
    """Measured executions have a queue of their own; two launches at once could have a core each, and wait for ever."""
    if persistent_device.hal.name.startswith("opencl-intel"):
        pytest.skip("with several threads that wait, Intel's runtime runs groups of one launch one after the other")
    network = inverted_residuals(FLOAT)
    source = network.data()
    how = ExecutionPreference.FAST_SINGLE_ANSWER, Priority.MEDIUM
    prepared = persistent_device.hal.prepare_model(network.graph.model(), *how, None, None)
    outs = [np.zeros(network.dims, source.dtype) for _ in range(4)]

    def execute(at: int) -> None:
        for _ in range(20):
            prepared.execute_synchronously(request([source], [outs[at]]), at % 2 == 0, None, None)

    threads = [threading.Thread(target=execute, args=(at,)) for at in range(len(outs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    prepared.close()
    for out in outs:
        np.testing.assert_array_equal(out, outs[0])
    assert outs[0].any()


def test_a_run_has_a_stage_for_each_operation() -> None:
    network = inverted_residuals(FLOAT)
    joined, rest = commands_of(network)
    assert isinstance(joined, Launch)
    assert isinstance(rest, Launch)
    assert (joined.kernel.source, rest.kernel.source) == ("persistent.cl", "matmul_narrow.cl")
    assert [(stage.first, stage.last) for stage in joined.stages] == [(at, at + 1) for at in range(len(joined.stages))]
    assert {stage.name for stage in joined.stages} == {
        "matmul_tiled:matmul_tiled",
        "depthwise_conv_2d:depthwise_conv_2d_pixels",
    }
    assert joined.operations == tuple(operation for stage in joined.stages for operation in stage.operations)
    assert joined.flops == sum(stage.flops for stage in joined.stages)
    assert joined.global_size == (100 * device_profile.PERSISTENT_ITEMS_PER_UNIT,)


def test_large_operations_stay_launches_of_their_own() -> None:
    network = Network(FLOAT, (1, 112, 112, 64), 1)
    for depth in (64, 64, 64, 512):
        network.convolve(depth, is_output=depth == 512)
    sources = [command.kernel.source for command in commands_of(network) if isinstance(command, Launch)]
    assert sources == ["matmul_tiled.cl"] * 4


def test_two_operations_are_not_worth_a_launch() -> None:
    network = Network(FLOAT, (1, 8, 8, 16), 1)
    network.convolve(16)
    network.convolve(16, is_output=True)
    assert [one.kernel.source for one in commands_of(network) if isinstance(one, Launch)] == ["matmul_tiled.cl"] * 2


def test_a_run_is_cut_where_it_has_more_buffers_of_others_than_arguments() -> None:
    network = Network(FLOAT, (1, 8, 8, 16), 1)
    for _ in range(persistent.OUTER):
        network.convolve(16, is_output=True)
    sizes = [len(one.stages) for one in commands_of(network) if isinstance(one, Launch)]
    assert sizes == [persistent.OUTER // 2] * 2


def test_devices_whose_groups_do_not_wait_have_a_launch_each() -> None:
    lowering = Lowering(inverted_residuals(FLOAT).graph.model(), replace(LARGE_GPU, features=frozenset()))
    commands = lowering.lower(0, lowering.static_inputs()).commands
    assert all(one.kernel.source != "persistent.cl" for one in commands if isinstance(one, Launch))
    assert len(commands) > 10


def test_matrix_units_let_groups_stay() -> None:
    assert replace(GPU_PROFILE, features=frozenset({"mma_80"})).has_persistent_kernels
    assert not replace(GPU_PROFILE, features=frozenset({"mma_emulated"})).has_persistent_kernels
    assert not replace(GPU_PROFILE, features=frozenset()).has_persistent_kernels


@pytest.mark.filterwarnings("ignore::pyopencl.CompilerWarning")  # Intel's compiler says how it went
def test_a_launch_that_stays_waits_for_that_of_the_other_queue(
    persistent_device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(persistent_device.hal, OpenClDevice)
    context = persistent_device.hal.context()
    queues = context.queue, context.profiling_queue
    kernel = cl.Kernel(cl.Program(context.context, "kernel void nothing(int n) {}").build(), "nothing")
    kernel.set_arg(0, np.int32(0))
    waits: list[int] = []
    enqueue = cl.enqueue_nd_range_kernel

    def counted(*arguments: object, wait_for: list[cl.Event] | None = None) -> cl.Event:
        waits.append(len(wait_for or ()))
        return enqueue(*arguments, wait_for=wait_for)

    monkeypatch.setattr(cl, "enqueue_nd_range_kernel", counted)
    gate = cl.UserEvent(context.context)
    cl.enqueue_barrier(queues[0], wait_for=[gate])
    for queue in (queues[0], queues[0], queues[1]):
        event = context.enqueue_persistent(queue, kernel, (1,), (1,))
    gate.set_status(cl.command_execution_status.COMPLETE)
    event.wait()
    context.enqueue_persistent(queues[0], kernel, (1,), (1,)).wait()  # behind what has ended
    assert waits == [0, 0, 1, 0]


@pytest.mark.parametrize("code", [OperandCode.TENSOR_INT32, FLOAT], ids=lambda code: code.name)
def test_products_of_integers_stay_launches_of_their_own(code: OperandCode) -> None:
    graph = Graph()
    last = graph.input((1, 20, 20), code)
    for at in range(4):
        output = graph.output((1, 20, 20), code) if at == 3 else graph.temporary((1, 20, 20), code)
        transposed = [graph.flag(False), graph.flag(True)]
        graph.operation(OperationCode.BATCH_MATMUL, [last, last, *transposed], output)
        last = output
    lowering = Lowering(graph.model(), LARGE_GPU)
    commands = lowering.lower(0, lowering.static_inputs()).commands
    sources = [one.kernel.source for one in commands if isinstance(one, Launch)]
    assert sources == (["persistent.cl"] if code == FLOAT else ["matmul_tiled.cl"] * 4)


def test_a_run_is_cut_where_its_memory_is_too_much_for_one_buffer() -> None:
    network = Network(FLOAT, (1, 8, 8, 64), 1)
    for at in range(12):
        network.convolve(64, is_output=at == 11)
    lowering = Lowering(network.graph.model(), replace(LARGE_GPU, max_alloc_bytes=60_000))
    commands = lowering.lower(0, lowering.static_inputs()).commands
    sizes = [len(one.stages) for one in commands if isinstance(one, Launch)]
    assert sizes == [3, 3, 3, 3]
