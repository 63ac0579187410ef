# SPDX-License-Identifier: Apache-2.0
"""Many threads at everything at once: no error, no deadlock, nothing left behind (AOSP's crash tests of MLTS)."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import random
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.burst import Burst
from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.compilation import Compilation
from nn_runtime.errors import OutputInsufficientSize
from nn_runtime.event import Event
from nn_runtime.execution import Execution
from nn_runtime.hal.fences import Fence
from nn_runtime.hal.interfaces import ReportsStatistics
from nn_runtime.memory import Memory
from nn_runtime.memory_desc import MemoryDesc
from nn_runtime.model import Model
from nn_runtime.operand import OperandType
from nn_runtime.testing.sample_drivers import SampleDevice
from tests.nn_runtime.descriptors import open_descriptors
from tests.nn_runtime.graphs import finished, scalar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nn_runtime.device import Device
    from nn_runtime.operand import Array

THREADS = 16
OPERATIONS = 100
OPERATIONS_LONG = 1000
WARM_UP = 50
PATIENCE_S = 300
"""Longer than this is a deadlock: the process ends with the stacks of all threads."""
GROWTH_BYTES = 8 << 20
ROWS, WIDTH, UNITS = 5, 6, 4
TENSOR = OperandCode.TENSOR_FLOAT32


class Layer:
    """tanh(relu(x w' + b)) with weights of its own, as a model and as numpy."""

    def __init__(self, seed: int) -> None:
        generator = np.random.default_rng(seed)
        self.weights = generator.standard_normal((UNITS, WIDTH)).astype(np.float32)
        self.bias = generator.standard_normal(UNITS).astype(np.float32)

    def model(self, rows: int = ROWS) -> Model:
        """Rows 0: known only at execution."""
        model = Model()
        x, inner, y = (model.add_operand(OperandType(TENSOR, (rows, n))) for n in (WIDTH, UNITS, UNITS))
        w = model.add_operand(OperandType(TENSOR, self.weights.shape))
        b = model.add_operand(OperandType(TENSOR, self.bias.shape))
        model.set_operand_value(w, self.weights)
        model.set_operand_value(b, self.bias)
        model.add_operation(OperationCode.FULLY_CONNECTED, [x, w, b, scalar(model, FuseCode.RELU)], [inner])
        model.add_operation(OperationCode.TANH, [inner], [y])
        model.identify_inputs_and_outputs([x], [y])
        model.finish()
        return model

    def check(self, x: Array, y: Array) -> None:
        wanted = np.tanh(np.maximum(x @ self.weights.T + self.bias, 0))
        np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-5)


class Worker:
    """One thread's life: a compilation of its own and one that all share, and random operations on them."""

    def __init__(self, device: Device, shared: Compilation, shared_layer: Layer, seed: int, cache: Path) -> None:
        self.device = device
        self.random = random.Random(seed)
        self.data = np.random.default_rng(seed)
        self.layer = Layer(seed)
        self.cache = cache
        self.own = self.compiled()
        self.both = {"shared": (shared, shared_layer)}
        self.done = 0

    def compiled(self, rows: int = ROWS, cached: bool = False) -> Compilation:
        compilation = Compilation(self.layer.model(rows), [self.device])
        if cached:
            compilation.set_caching(self.cache, self.layer.bias.tobytes().ljust(32, b"\0"))
        compilation.finish()
        return compilation

    def operate(self, count: int) -> None:
        ways: list[Callable[[], None]] = [
            self.recompile, self.recompile_cached, self.compute, self.start_compute, self.burst, self.fenced,
            self.fenced_chain, self.device_memory, self.copies, self.shared_memory, self.reuse, self.cut,
            self.size_known_late,
        ]  # fmt: skip
        for _ in range(count):
            self.random.choice(ways)()
            self.done += 1
        self.own.close()

    def recompile(self) -> None:
        self.own.close()
        self.own = self.compiled()

    def recompile_cached(self) -> None:
        self.own.close()
        self.own = self.compiled(cached=True)

    def compute(self) -> None:
        with self._bound() as bound:
            bound.execution.compute()
            bound.check()

    def start_compute(self) -> None:
        with self._bound() as first, self._bound() as second:
            for event in [bound.execution.start_compute() for bound in (first, second)]:
                event.wait()
            first.check()
            second.check()

    def burst(self) -> None:
        compilation, layer = self._some()
        with Burst(compilation) as burst:
            for _ in range(2):
                with Bound(compilation, layer, self._x()) as bound:
                    bound.execution.burst_compute(burst)
                    bound.check()

    def fenced(self) -> None:
        with self._bound() as bound, bound.execution.start_compute_with_dependencies([]) as event:
            event.wait()
            bound.check()

    def fenced_chain(self) -> None:
        """Two that wait for a fence which another thread signals; one of them also for the first, with timing."""
        gate = Fence()
        signaller = threading.Timer(0.001, gate.signal)
        signaller.start()
        with self._bound() as first, self._bound() as second, Event.from_sync_fence_fd(gate.fd) as opened:
            second.execution.set_measure_timing(True)
            with first.execution.start_compute_with_dependencies([opened]) as before:
                with second.execution.start_compute_with_dependencies([opened, before]) as last:
                    last.wait()
                before.wait()
            first.check()
            second.check()
        signaller.join()
        gate.close()

    def device_memory(self) -> None:
        """Input and output both in memory domains."""
        x = self._x()
        with self._domain(True) as source, self._domain(False) as result, Memory.from_array(x) as given:
            Memory.copy(given, source)
            with Execution(self.own) as execution:
                execution.set_input_from_memory(0, source)
                execution.set_output_from_memory(0, result)
                execution.compute()
            self.layer.check(x, result.to_array(np.float32, (ROWS, UNITS)))

    def copies(self) -> None:
        """Shared to device to device to shared."""
        x = self._x()
        shared = Memory.from_array(x), Memory.from_array(np.zeros_like(x))
        with self._domain(True) as first, self._domain(True) as second, shared[0], shared[1]:
            Memory.copy(shared[0], first)
            Memory.copy(first, second)
            Memory.copy(second, shared[1])
            np.testing.assert_array_equal(shared[1].to_array(np.float32, x.shape), x)

    def shared_memory(self) -> None:
        compilation, layer = self._some()
        x = self._x()
        y = np.zeros((ROWS, UNITS), np.float32)
        with Memory.from_array(x) as given, Memory.from_array(y) as taken, Execution(compilation) as execution:
            execution.set_input_from_memory(0, given, 0, x.nbytes)
            execution.set_output_from_memory(0, taken, 0, y.nbytes)
            execution.compute()
            layer.check(x, taken.to_array(np.float32, y.shape))

    def reuse(self) -> None:
        with self._bound() as bound:
            bound.execution.set_reusable(True)
            for _ in range(3):
                bound.y[:] = np.nan
                bound.x[:] = self._x()
                bound.execution.compute()
                bound.check()

    def cut(self) -> None:
        """The same device twice, each taking one of the operations."""
        first = SampleDevice("first", {OperationCode.FULLY_CONNECTED}, inner=self.device.hal)
        second = SampleDevice("second", {OperationCode.TANH}, inner=self.device.hal)
        compilation = finished(self.layer.model(), [first, second])
        with compilation, Bound(compilation, self.layer, self._x()) as bound:
            bound.execution.compute()
            bound.check()

    def size_known_late(self) -> None:
        """Rows that come with the input; the first output is one row too small."""
        rows = self.random.randrange(2, 9)
        x = self.data.standard_normal((rows, WIDTH)).astype(np.float32)
        with self.compiled(rows=0) as compilation:
            for room in (rows - 1, rows):
                with Execution(compilation) as execution:
                    y = np.full((room, UNITS), np.nan, np.float32)
                    execution.set_input(0, x, OperandType(TENSOR, (rows, WIDTH)))
                    execution.set_output(0, y)
                    with contextlib.nullcontext() if room == rows else pytest.raises(OutputInsufficientSize):
                        execution.compute()
                    assert execution.get_output_operand_dimensions(0) == (rows, UNITS)
            self.layer.check(x, y)

    def _some(self) -> tuple[Compilation, Layer]:
        return self.random.choice([(self.own, self.layer), self.both["shared"]])

    def _x(self) -> Array:
        return self.data.standard_normal((ROWS, WIDTH)).astype(np.float32)

    def _bound(self) -> Bound:
        return Bound(*self._some(), self._x())

    @contextlib.contextmanager
    def _domain(self, is_input: bool) -> Iterator[Memory]:
        with MemoryDesc() as desc:
            (desc.add_input_role if is_input else desc.add_output_role)(self.own, 0, 1.0)
            desc.finish()
            memory = Memory.from_desc(desc)
        with memory:
            yield memory


class Bound:
    """An execution with its arrays."""

    def __init__(self, compilation: Compilation, layer: Layer, x: Array) -> None:
        self.execution = Execution(compilation)
        self.layer = layer
        self.x = x
        self.y = np.full((ROWS, UNITS), np.nan, np.float32)
        self.execution.set_input(0, self.x)
        self.execution.set_output(0, self.y)

    def check(self) -> None:
        self.layer.check(self.x, self.y)

    def __enter__(self) -> Bound:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.execution.close()


def resident_bytes() -> int:
    """Memory of this process, without what the C library keeps of what was freed."""
    gc.collect()
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
    status = Path("/proc/self/statm")
    return int(status.read_text().split()[1]) * 4096 if status.is_file() else 0


def device_bytes(device: Device) -> float:
    """Bytes that the driver holds on the device; 0 for one that does not count them."""
    return device.hal.statistics().get("allocated_bytes", 0) if isinstance(device.hal, ReportsStatistics) else 0


def live(device: Device, count: int, cache: Path) -> None:
    """Let all threads live, and close what they shared."""
    layer = Layer(99)
    shared = Compilation(layer.model(), [device])
    shared.finish()
    workers = [Worker(device, shared, layer, seed, cache) for seed in range(THREADS)]
    errors: list[BaseException] = []

    def work(worker: Worker) -> None:
        try:
            worker.operate(count)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    shared.close()
    if errors:
        raise errors[0]
    assert [worker.done for worker in workers] == [count] * THREADS


def settled(read: Callable[[], float], wanted: float) -> float:
    """Return what is counted, once it is as wanted or some seconds have passed: threads may be just ending."""
    end = time.monotonic() + 5
    while (found := read()) > wanted and time.monotonic() < end:
        time.sleep(0.01)
    return found


@pytest.fixture
def watchdog(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Ends the process with the stacks of all threads, should the test hang."""
    with capfd.disabled():
        faulthandler.dump_traceback_later(PATIENCE_S, exit=True)
        yield
        faulthandler.cancel_dump_traceback_later()


@pytest.mark.usefixtures("watchdog")
def test_threads_at_everything(device: Device, is_long: bool, tmp_path: Path) -> None:
    gc.collect()
    start_bytes = device_bytes(device)
    live(device, WARM_UP, tmp_path)
    resident, descriptors, threads = resident_bytes(), open_descriptors(), threading.active_count()
    live(device, OPERATIONS_LONG if is_long else OPERATIONS, tmp_path)
    gc.collect()
    assert settled(partial(device_bytes, device), start_bytes) <= start_bytes  # other tests may have let go of theirs
    assert settled(open_descriptors, descriptors) <= descriptors
    assert settled(threading.active_count, threads) <= threads + 1  # the device's watchdog comes and goes
    assert resident_bytes() <= resident + GROWTH_BYTES


@pytest.mark.usefixtures("watchdog")
@pytest.mark.parametrize("way", ["asynchronous", "fenced"])
def test_64_executions_at_once_of_one_compilation(device: Device, way: str) -> None:
    """All started before any is waited for; each has data and results of its own."""
    layer, generator, gate = Layer(1), np.random.default_rng(1), Fence()
    signaller = threading.Timer(0.05, gate.signal)
    signaller.start()
    compilation = Compilation(layer.model(), [device])
    compilation.finish()
    with compilation, Event.from_sync_fence_fd(gate.fd) as opened:
        bounds = [Bound(compilation, layer, generator.standard_normal((ROWS, WIDTH)).astype(np.float32))
                  for _ in range(64)]  # fmt: skip
        if way == "fenced":
            events = [bound.execution.start_compute_with_dependencies([opened]) for bound in bounds]
        else:
            events = [bound.execution.start_compute() for bound in bounds]
        for event, bound in zip(events, bounds, strict=True):
            event.wait()
            event.close()
            bound.check()
            bound.execution.close()
    signaller.join()
    gate.close()
