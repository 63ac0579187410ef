# SPDX-License-Identifier: Apache-2.0
"""Many threads at everything at once: no error, no deadlock, nothing left behind (AOSP's crash tests of MLTS)."""

from __future__ import annotations

import faulthandler
import gc
import random
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.burst import Burst
from nn_runtime.codes import OperationCode
from nn_runtime.compilation import Compilation
from nn_runtime.execution import Execution
from nn_runtime.memory import Memory, MemoryDesc
from tests.nn_runtime.graphs import chain_model, numbers
from tests.nn_runtime.test_memory import open_descriptors

if TYPE_CHECKING:
    from collections.abc import Callable

    from nn_runtime.devices import Device
    from nn_runtime.operand import Array

THREADS = 16
OPERATIONS = 25
OPERATIONS_LONG = 1000
PATIENCE_S = 600
CODES = [OperationCode.RELU, OperationCode.TANH]
X = numbers(2, 3)
WANTED = np.tanh(np.maximum(X, 0))


class Worker:
    """One thread's life: a compilation of its own or a shared one, and random operations on them."""

    def __init__(self, device: Device, shared: Compilation, seed: int) -> None:
        self.device = device
        self.shared = shared
        self.random = random.Random(seed)
        self.own = self.compiled()
        self.done = 0

    def compiled(self) -> Compilation:
        compilation = Compilation(chain_model(CODES), [self.device])
        compilation.finish()
        return compilation

    def operate(self, count: int) -> None:
        ways: list[Callable[[], None]] = [
            self.recompile, self.compute, self.start_compute, self.burst, self.fenced, self.device_memory,
            self.shared_memory, self.reuse,
        ]  # fmt: skip
        for _ in range(count):
            self.random.choice(ways)()
            self.done += 1
        self.own.close()

    def recompile(self) -> None:
        self.own.close()
        self.own = self.compiled()

    def compute(self) -> None:
        with self._bound() as (execution, output):
            execution.compute()
            _check(output)

    def start_compute(self) -> None:
        pairs = [self._bound() for _ in range(2)]
        for event in [pair.execution.start_compute() for pair in pairs]:
            event.wait()
        for pair in pairs:
            _check(pair.output)

    def burst(self) -> None:
        compilation = self.random.choice([self.own, self.shared])
        with Burst(compilation) as burst:
            for _ in range(2):
                with self._bound(compilation) as (execution, output):
                    execution.burst_compute(burst)
                    _check(output)

    def fenced(self) -> None:
        with self._bound() as (execution, output), execution.start_compute_with_dependencies([]) as event:
            event.wait()
            _check(output)

    def device_memory(self) -> None:
        with MemoryDesc() as desc:
            desc.add_input_role(self.own, 0, 1.0)
            desc.finish()
            memory = Memory.from_desc(desc)
        with memory, Memory.from_array(X) as source, Execution(self.own) as execution:
            Memory.copy(source, memory)
            output = np.zeros((2, 3), np.float32)
            execution.set_input_from_memory(0, memory)
            execution.set_output(0, output)
            execution.compute()
            _check(output)

    def shared_memory(self) -> None:
        with Memory.from_array(X) as memory, Execution(self.shared) as execution:
            output = np.zeros((2, 3), np.float32)
            execution.set_input_from_memory(0, memory, 0, X.nbytes)
            execution.set_output(0, output)
            execution.compute()
            _check(output)

    def reuse(self) -> None:
        with self._bound() as (execution, output):
            execution.set_reusable(True)
            for _ in range(3):
                output[:] = 0
                execution.compute()
                _check(output)

    def _bound(self, compilation: Compilation | None = None) -> Bound:
        return Bound(compilation or self.random.choice([self.own, self.shared]))


class Bound:
    """An execution with its arrays."""

    def __init__(self, compilation: Compilation) -> None:
        self.execution = Execution(compilation)
        self.output: Array = np.zeros((2, 3), np.float32)
        self.execution.set_input(0, X)
        self.execution.set_output(0, self.output)

    def __enter__(self) -> tuple[Execution, Array]:
        return self.execution, self.output

    def __exit__(self, *exc_info: object) -> None:
        self.execution.close()


def _check(output: Array) -> None:
    np.testing.assert_allclose(output, WANTED, rtol=1e-5)


def _resident_bytes() -> int:
    status = Path("/proc/self/statm")
    return int(status.read_text().split()[1]) * 4096 if status.is_file() else 0


def _run_threads(device: Device, count: int) -> None:
    shared = Compilation(chain_model(CODES), [device])
    shared.finish()
    workers = [Worker(device, shared, seed) for seed in range(THREADS)]
    errors: list[BaseException] = []

    def live(worker: Worker) -> None:
        try:
            worker.operate(count)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=live, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    shared.close()
    assert not errors, errors[0]
    assert [worker.done for worker in workers] == [count] * THREADS


def test_threads_at_everything(device: Device, is_long: bool) -> None:
    """A deadlock ends the process with the stacks of all threads."""
    faulthandler.dump_traceback_later(PATIENCE_S, exit=True)
    try:
        _run_threads(device, OPERATIONS)
        gc.collect()
        descriptors, resident = open_descriptors(), _resident_bytes()
        _run_threads(device, OPERATIONS_LONG if is_long else OPERATIONS)
        gc.collect()
    finally:
        faulthandler.cancel_dump_traceback_later()
    assert open_descriptors() <= descriptors + 2
    assert _resident_bytes() <= resident + (64 << 20)
