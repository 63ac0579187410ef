# SPDX-License-Identifier: Apache-2.0
"""Small models on the device that computes in the calling thread: which they are, and that nothing else changes."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from cpu_driver.driver import Device as CpuDevice
from gpu_driver.device import inline
from gpu_driver.device.one_thread_time import one_thread_ns
from nn_runtime.codes import FuseCode, OperandCode, OperationCode, PaddingCode
from nn_runtime.hal.memory import SharedMemory
from nn_runtime.hal.types import BufferDesc, BufferRole, HalError, Operand, OperandLifeTime, Priority
from nn_runtime.testing.random_graph import Size, compare, generate
from tests.conftest import WAKE_NS
from tests.gpu_driver.cached import check
from tests.gpu_driver.drawn import FLOAT, inverted_residuals
from tests.gpu_driver.graphs import Graph, request
from tests.gpu_driver.profiles import CPU_PROFILE
from tests.gpu_driver.running import (
    CONSTANT_BYTES,
    MISSED,
    ROW_BYTES,
    at_once,
    doubling,
    filled,
    fresh,
    memory_of,
    on_buffers,
    prepare,
    run,
    run_doubling,
    transposing,
)

if TYPE_CHECKING:
    from gpu_driver.driver import Device
    from nn_runtime.hal.types import Model

_ROOT = Path(__file__).parents[3]
_SHOWN = """
import json, os
from gpu_driver.discovery.platforms import find_devices
print(json.dumps([[d.name, d.device_name, d.inline is not None] for d in find_devices() if d.slug == "pocl"]))
print(json.dumps(os.environ.get("POCL_DEVICES")))
"""


@pytest.fixture
def device(opencl_device: Device, monkeypatch: pytest.MonkeyPatch) -> Device:
    """A device of its own context that takes small models inline, as it does outside of tests."""
    if opencl_device._found.inline is None:
        pytest.skip("the device has no inline one: only PoCL from PyPI has")
    monkeypatch.setattr(inline, "WAKE_NS", WAKE_NS)
    return fresh(opencl_device)


def convolution(pixels: int, depth: int) -> Model:
    """1 x 1, pixels * depth * depth multiply-adds."""
    graph = Graph()
    source, output = graph.input((1, pixels, 1, depth)), graph.output((1, pixels, 1, depth))
    filters = graph.constant(np.ones((depth, 1, 1, depth), np.float32))
    numbers = [graph.integer(value) for value in (0, 0, 0, 0, 1, 1, FuseCode.NONE)]
    zeros = graph.constant(np.zeros(depth, np.float32))
    graph.operation(OperationCode.CONV_2D, [source, filters, zeros, *numbers], output)
    return graph.model()


def one_operation(code: OperationCode, *shape: int, numbers: tuple[int | float, ...] = ()) -> Model:
    """An operation whose output has the shape of its only tensor."""
    graph = Graph()
    source, output = graph.input(shape), graph.output(shape)
    more = [graph.integer(one) if isinstance(one, int) else graph.real(one) for one in numbers]
    graph.operation(code, [source, *more], output)
    return graph.model()


def pooling(taps: int, *, channels: int = 16, code: OperationCode = OperationCode.MAX_POOL_2D) -> Model:
    """Pooling of 100 x 100 pixels by windows of taps x taps."""
    numbers = (PaddingCode.SAME, 1, 1, taps, taps, FuseCode.NONE)
    return one_operation(code, 1, 100, 100, channels, numbers=numbers)


def branching(units: int) -> Model:
    """A branch that multiplies by units x units weights, or one that does not."""
    graph = Graph()
    zeros = graph.constant(np.zeros(units, np.float32))
    filters = graph.constant(np.ones((units, units), np.float32))
    source, output = graph.input((1, units)), graph.output((1, units))
    graph.operation(OperationCode.FULLY_CONNECTED, [source, filters, zeros, graph.integer(FuseCode.NONE)], output)
    model = doubling(1)
    return replace(model, referenced=(graph.model().main,))


def with_an_omitted_operand(model: Model) -> Model:
    omitted = Operand(OperandCode.TENSOR_FLOAT32, (0,), lifetime=OperandLifeTime.NO_VALUE)
    return replace(model, main=replace(model.main, operands=(*model.main.operands, omitted)))


def narrow_convolutions(count: int) -> Model:
    """Convolutions 3 x 3 of 70 x 70 pixels of one channel, one after the other."""
    graph = Graph()
    shape = (1, 70, 70, 1)
    filters, zeros = graph.constant(np.ones((1, 3, 3, 1), np.float32)), graph.constant(np.zeros(1, np.float32))
    numbers = [graph.integer(value) for value in (PaddingCode.SAME, 1, 1, FuseCode.NONE)]
    tensors = [graph.input(shape), *(graph.temporary(shape) for _ in range(count - 1)), graph.output(shape)]
    for source, output in itertools.pairwise(tensors):
        graph.operation(OperationCode.CONV_2D, [source, filters, zeros, *numbers], output)
    return graph.model()


def argmax(*shape: int, axis: int) -> Model:
    """ARGMAX along an axis."""
    graph = Graph()
    output = graph.output((*shape[:axis], *shape[axis + 1 :]), OperandCode.TENSOR_INT32)
    graph.operation(OperationCode.ARGMAX, [graph.input(shape), graph.integer(axis)], output)
    return graph.model()


def comparisons(count: int, *, of: int) -> Model:
    """Comparisons of two tensors, each a launch of its own."""
    graph = Graph()
    sources = [graph.input((of,)) for _ in range(2)]
    for _ in range(count):
        graph.operation(OperationCode.LESS, sources, graph.output((of,), OperandCode.TENSOR_BOOL8))
    return graph.model()


@pytest.fixture
def _as_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inline, "WAKE_NS", WAKE_NS)


@pytest.mark.usefixtures("_as_outside")
@pytest.mark.parametrize(
    ("model", "is_small"),
    [
        (doubling(10), True),
        (transposing(), False),  # of unknown sizes
        (with_an_omitted_operand(doubling(10)), True),
        (convolution(1000, 64), True),  # 4 million multiply-adds
        (convolution(4000, 64), False),  # 16 million
        (convolution(1, 2000), False),  # 16 MB of filters, which no cache keeps
        (branching(100), True),
        (branching(2000), False),
        (replace(doubling(1), referenced=(transposing().main,)), False),  # whose branch is of unknown sizes
        (pooling(2), True),
        (pooling(100), False),
        (pooling(3, code=OperationCode.L2_POOL_2D), True),
        (pooling(6, code=OperationCode.L2_POOL_2D), False),
        (pooling(2, channels=3), False),  # too narrow for vectors
        (pooling(0), False),  # that preparation refuses
        (narrow_convolutions(1), True),
        (narrow_convolutions(100), False),
        (one_operation(OperationCode.RELU, 100000, 3), True),
        (one_operation(OperationCode.REVERSE, 100000, 3, numbers=(0,)), False),
        (one_operation(OperationCode.REVERSE, 50000, 3, numbers=(0,)), True),
        (one_operation(OperationCode.ABS, 128, 1000), True),
        (one_operation(OperationCode.ABS, 2000, 1000), False),
        (one_operation(OperationCode.LOG, 128, 1000), True),
        (one_operation(OperationCode.SIN, 128, 4000), False),  # a slow one
        (argmax(1, 100_000, axis=1), True),
        (argmax(100_000, 3, axis=1), False),  # too narrow for vectors
        (argmax(3000, 100, axis=0), False),  # columns
        (comparisons(200, of=1000), True),
        (comparisons(200, of=20_000), True),  # 2 us each, less than to wake threads for every one
        (comparisons(2, of=2_000_000), False),
        (one_operation(OperationCode.LOG_SOFTMAX, 128, 1000, numbers=(1.0, 1)), True),
        (one_operation(OperationCode.LOG_SOFTMAX, 1000, 128, numbers=(1.0, 0)), False),  # of columns
        (one_operation(OperationCode.SOFTMAX, 128, 1000, numbers=(1.0,)), True),
        (one_operation(OperationCode.SOFTMAX, 64000, 2, numbers=(1.0,)), False),  # of many rows
        (one_operation(OperationCode.SOFTMAX, 1000, 128, numbers=(1.0, 0)), False),  # of columns
    ],
)
def test_what_is_small(model: Model, is_small: bool) -> None:
    assert inline.is_small(model, 2) == is_small


@pytest.mark.usefixtures("_as_outside")
def test_malformed_pooling_is_refused_as_everywhere(opencl_device: Device) -> None:
    with pytest.raises(HalError, match="MAX_POOL_2D"):
        prepare(opencl_device, pooling(0))


@pytest.mark.usefixtures("_as_outside")
def test_bytes_take_one_thread_less_time() -> None:
    shape = (1, 1000, 1000, 1)
    estimates = []
    for dtype in (OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_QUANT8_ASYMM):
        graph = Graph()
        scale = 0.0 if dtype == OperandCode.TENSOR_FLOAT32 else 0.5
        source, output = graph.input(shape, dtype, scale), graph.output(shape, dtype, scale)
        graph.operation(OperationCode.RELU, [source], output)
        estimates.append(one_thread_ns(graph.model()))
    assert estimates[0] > 1.2 * estimates[1]


@pytest.mark.usefixtures("_as_outside")
def test_products_on_bytes_take_one_thread_less_time() -> None:
    model = convolution(1, 1500)
    assert not inline.is_small(model, 2)
    assert inline.is_small(model, 2, quantizes_inputs=True)


@pytest.mark.usefixtures("_as_outside")
def test_products_for_few_channels_leave_lanes_empty() -> None:
    """Three channels take half as long as sixteen, not a fifth."""
    estimates = []
    for depth in (3, 16):
        graph = Graph()
        source, output = graph.input((1, 100, 100, 64)), graph.output((1, 100, 100, depth))
        filters = graph.constant(np.ones((depth, 3, 3, 64), np.float32))
        numbers = [graph.integer(value) for value in (PaddingCode.SAME, 1, 1, FuseCode.NONE)]
        zeros = graph.constant(np.zeros(depth, np.float32))
        graph.operation(OperationCode.CONV_2D, [source, filters, zeros, *numbers], output)
        estimates.append(one_thread_ns(graph.model()))
    assert 0.4 * estimates[1] < estimates[0] < 0.7 * estimates[1]


@pytest.mark.usefixtures("_as_outside")
def test_the_more_threads_the_sooner_they_are_woken() -> None:
    """One core gains nothing by others, and is taken for two, so that Python's lock is not held for ever."""
    model = one_operation(OperationCode.ABS, 600, 1000)
    taken = [inline.is_small(model, threads) for threads in (1, 2, 4, 64)]
    assert taken == [True, True, False, False]


@pytest.mark.usefixtures("_as_outside")
def test_pooling_with_windows_that_a_run_brings_is_not_small() -> None:
    graph = Graph()
    source, output = graph.input((1, 4, 4, 1)), graph.output((1, 4, 4, 1))
    numbers = [graph.integer(value) for value in (PaddingCode.SAME, 1, 1, 2)]
    height = graph.input((), OperandCode.INT32)
    graph.operation(OperationCode.MAX_POOL_2D, [source, *numbers, height, graph.integer(FuseCode.NONE)], output)
    assert not inline.is_small(graph.model(), 2)


def test_the_calling_thread_keeps_its_denormals(device: Device) -> None:
    """Kernels make zeros of them; what numpy computes in the same thread afterwards has them as before."""
    tiny, small = np.full(64, 1e-30, np.float32), np.float32(1e-10)
    before = tiny * small
    assert before.all()
    run_doubling(prepare(device, doubling(10)), 10)
    assert np.array_equal(tiny * small, before)


def test_the_profile_has_one_thread_and_programs_of_its_own() -> None:
    profile = inline.one_thread(CPU_PROFILE)
    assert profile.compute_units == 1
    assert profile.identity != CPU_PROFILE.identity
    assert (profile.name, profile.slug) == (CPU_PROFILE.name, CPU_PROFILE.slug)


def test_small_models_are_computed_inline_and_others_are_not(device: Device) -> None:
    small, large = prepare(device, doubling(10)), prepare(device, convolution(4000, 64))
    context = device.context()
    assert context.inline is not None
    assert small.device is context.inline
    assert large.device is context
    run_doubling(small, 10)
    small.close()
    large.close()
    assert memory_of(device).allocated_bytes == 0


def test_what_small_models_take_is_counted_with_the_rest(device: Device) -> None:
    prepared = prepare(device, doubling(10))
    run_doubling(prepared, 10)
    assert memory_of(device).allocated_bytes == CONSTANT_BYTES + 3 * 10 * ROW_BYTES
    statistics = device.statistics()
    assert statistics["programs_built"] + statistics["programs_loaded"] >= 1


def test_idle_memory_of_small_models_makes_room(device: Device) -> None:
    size = 2**20
    device.profile = replace(device.profile, max_alloc_bytes=size, global_mem_bytes=size)
    prepared = prepare(device, doubling(10))
    run_doubling(prepared, 10)
    held = device.context().allocate(size - CONSTANT_BYTES)
    assert memory_of(device).allocated_bytes == size
    del held
    run_doubling(prepared, 10)


def test_tuned_values_are_those_of_small_models_too(device: Device) -> None:
    prepare(device, doubling(10))
    tuned = device.tuning_parameters()[0]
    value = next(one for one in tuned.candidates if one != device.tuning()[tuned.name])
    device.set_tuning({tuned.name: value})
    assert getattr(prepare(device, doubling(10)).device.profile.tuning, tuned.name) == value


def test_random_graphs_have_the_results_of_the_cpu_driver(device: Device, is_long: bool) -> None:
    cpu = CpuDevice()
    for seed in range(400 if is_long else 40):
        graph = generate(seed, Size.SMALL, reference=cpu, others=[device])
        assert compare(graph, cpu, device) == ""


def test_chains_have_the_bits_of_the_other_device(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    network = inverted_residuals(FLOAT)
    source = np.random.default_rng(3).standard_normal((1, 19, 17, 3)).astype(np.float32)
    results = []
    contexts = set()
    for wake_ns in (1e9, -1):
        monkeypatch.setattr(inline, "WAKE_NS", wake_ns)
        prepared = prepare(device, network.graph.model())
        contexts.add(prepared.device)
        results.append(np.full((1, 33), np.nan, np.float32))
        run(prepared, request([source], [results[-1]]))
    assert len(contexts) == 2
    assert np.array_equal(*results)


def test_device_memory_is_shared_with_models_of_the_other_device(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = prepare(device, doubling(10))
    monkeypatch.setattr(inline, "WAKE_NS", -1)
    second = prepare(device, doubling(10))
    assert first.device is not second.device
    both = [BufferRole(model, 0, 1.0) for model in (0, 1)]
    buffers = [device.allocate(BufferDesc(), [first, second], both, both) for _ in range(4)]
    data = np.random.default_rng(5).standard_normal((10, 16)).astype(np.float32)
    buffers[0][0].copy_from(filled(data), ())
    for prepared, (_, source), (_, output) in zip((first, second, first), buffers, buffers[1:], strict=False):
        run(prepared, on_buffers(source, output))
    copied = SharedMemory.create(data.nbytes)
    buffers[3][0].copy_to(copied)
    assert np.array_equal(copied.array().view(np.float32).reshape(10, 16), 8 * data)


def test_cache_files_hold_the_programs(device: Device, tmp_path: Path) -> None:
    check(device, tmp_path)
    again = fresh(device)
    check(again, tmp_path)
    assert again.statistics()["models_from_cache"] == 1
    assert again.statistics()["programs_built"] == 0


def test_many_threads_compute_at_once(device: Device) -> None:
    prepared = prepare(device, doubling(10))

    def work(seed: int) -> None:
        for at in range(50):
            run_doubling(prepared, 10, 1000 * seed + at)

    assert at_once([lambda seed=seed: work(seed) for seed in range(8)]) == []


def test_one_user_at_a_time_is_let_in(device: Device) -> None:
    """PoCL's device without threads gives wrong results, or hangs, where two threads compile or compute at once."""
    context = device.context().inline
    assert context is not None
    with context.executions.slot(Priority.HIGH):
        for users in (context.executions, context.preparations):
            deadline_ns = time.monotonic_ns() + 10_000_000
            with pytest.raises(HalError) as caught, users.slot(Priority.HIGH, deadline_ns):
                raise AssertionError("somebody is let in")
            assert caught.value.status in MISSED


def test_pocl_shows_it_unless_the_user_chooses_its_devices(device: Device, tmp_path: Path) -> None:
    def shown(**variables: str) -> tuple[list[tuple[str, str, bool]], str | None]:
        environment = {name: value for name, value in os.environ.items() if name != "POCL_DEVICES"}
        environment |= {"NNRT_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(_ROOT), **variables}
        done = subprocess.run(
            [sys.executable, "-c", _SHOWN], env=environment, capture_output=True, text=True, timeout=300, check=True
        )
        devices, variable = (json.loads(line) for line in done.stdout.splitlines())
        return [(name, kind.split("-")[0], has_inline) for name, kind, has_inline in devices], variable

    kinds = ("pthread", "basic") if "PoCL 3" in device.profile.platform_version else ("cpu", "cpu")
    assert shown() == ([("opencl-pocl-0", kinds[0], True)], None)
    assert shown(POCL_DEVICES="pthread") == ([("opencl-pocl-0", kinds[0], False)], "pthread")
    assert shown(POCL_DEVICES="basic") == ([("opencl-pocl-0", kinds[1], False)], "basic")
