# SPDX-License-Identifier: Apache-2.0
"""What tests of execution share: devices and contexts of their own, small models, runs, threads, other processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gpu_driver.driver import Device
from nn_runtime.codes import DeviceTypeCode, FuseCode, OperationCode
from nn_runtime.hal.memory import SharedMemory
from nn_runtime.hal.types import (
    BufferToken,
    DataLocation,
    ErrorStatus,
    ExecutionPreference,
    Priority,
    Request,
    RequestArgument,
)
from tests.gpu_driver.graphs import Graph, request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyopencl as cl

    from gpu_driver.device.device_memory import MemoryStats
    from gpu_driver.prepared_model import PreparedModel
    from nn_runtime.hal.types import ExecutionResult, Model
    from nn_runtime.operand import Array

ROOT = Path(__file__).parents[2]
MISSED = (ErrorStatus.MISSED_DEADLINE_TRANSIENT, ErrorStatus.MISSED_DEADLINE_PERSISTENT)
"""Which of them a short deadline ends in depends on how fast the thread gets to where it waits."""
ROW_BYTES = 16 * 4
"""Bytes of a row of `doubling`."""
CONSTANT_BYTES = 16 * 4
"""Bytes of its constant."""
_PATIENCE_SECONDS = 300


def fresh(device: Device) -> Device:
    """Return the same device with a context and counts of its own."""
    return Device(device._found, 0)


def discrete(device: Device) -> Device:
    """Return the same device, with a profile that says it is a GPU with memory of its own."""
    found = Device(replace(device._found, type=DeviceTypeCode.GPU, features=()), 0)
    found.profile = replace(found.profile, host_unified_memory=False)
    return found


def memory_of(device: Device) -> MemoryStats:
    return device.context().accounts.stats


def prepare(device: Device, model: Model, priority: Priority = Priority.MEDIUM) -> PreparedModel:
    return device.prepare_model(model, ExecutionPreference.FAST_SINGLE_ANSWER, priority, None, None)


def run(prepared: PreparedModel, asked: Request, measure: bool = False) -> ExecutionResult:
    return prepared.execute_synchronously(asked, measure, None, None)


def opencl_error(code: int) -> cl.Error:
    """Return an error as PyOpenCL raises it for a status."""
    import pyopencl as cl

    kind = cl.MemoryError if code == cl.status_code.MEM_OBJECT_ALLOCATION_FAILURE else cl.RuntimeError
    return kind(cl._cl._ErrorRecord("clTest", code, "made up"))


def doubling(rows: int) -> Model:
    """Twice the input [rows, 16], through a temporary."""
    graph = Graph()
    source, between, output = graph.input((rows, 16)), graph.temporary((rows, 16)), graph.output((rows, 16))
    graph.operation(OperationCode.ADD, [source, source, graph.integer(FuseCode.NONE)], between)
    zeros = graph.constant(np.zeros(16, np.float32))
    graph.operation(OperationCode.ADD, [between, zeros, graph.integer(FuseCode.NONE)], output)
    return graph.model()


def transposing() -> Model:
    """TRANSPOSE of a matrix whose sizes come with the request."""
    graph = Graph()
    source, output = graph.input((0, 0)), graph.output((0, 0))
    graph.operation(OperationCode.TRANSPOSE, [source, graph.constant(np.array([1, 0], np.int32))], output)
    return graph.model()


def run_doubling(prepared: PreparedModel, rows: int, seed: int = 0) -> None:
    """Run `doubling` on random data and check the result."""
    run_times(2, prepared, rows, seed)


def run_times(factor: int, prepared: PreparedModel, rows: int, seed: int = 0) -> None:
    """Run a model that multiplies [rows, 16] by a small power of two, and check the result."""
    source = np.random.default_rng(seed).standard_normal((rows, 16)).astype(np.float32)
    result = np.full((rows, 16), np.nan, np.float32)
    run(prepared, request([source], [result]))
    assert np.array_equal(result, factor * source)


def on_buffers(*tokens: int) -> Request:
    """Return a request of one input and one output in memory domains."""
    arguments = [RequestArgument(location=DataLocation(pool_index=i)) for i in range(2)]
    return Request((arguments[0],), (arguments[1],), tuple(BufferToken(token) for token in tokens))


def filled(data: Array) -> SharedMemory:
    memory = SharedMemory.create(data.nbytes)
    memory.array()[:] = data.reshape(-1).view(np.uint8)
    return memory


def until(holds: Callable[[], bool]) -> None:
    """Wait for what another thread does."""
    end = time.monotonic() + _PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.002)


def at_once(works: Iterable[Callable[[], object]]) -> list[BaseException]:
    """Run every piece of work in a thread of its own, all let go together; return what they raised."""
    pieces = list(works)
    start = threading.Barrier(len(pieces))
    failures: list[BaseException] = []

    def body(work: Callable[[], object]) -> None:
        try:
            start.wait(_PATIENCE_SECONDS)
            work()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=body, args=(work,), daemon=True) for work in pieces]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_PATIENCE_SECONDS)
    assert not any(thread.is_alive() for thread in threads)
    return failures


def start_python(code: str, device: Device, cache: Path | str | None = None) -> subprocess.Popen[str]:
    """Start Python in another process, where `device` is the same device and the helpers of this file are known."""
    prelude = f"""
import sys
import numpy as np
import tests.conftest
from nn_runtime.devices import find_device
from tests.gpu_driver.graphs import request
from tests.gpu_driver.running import *
device = find_device({device.name!r}).hal
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}
    if cache is not None:
        environment["NNRT_CACHE_DIR"] = str(cache)
    return subprocess.Popen(
        [sys.executable, "-c", prelude + code],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Wait for a process; return its status, output and error output."""
    out, err = process.communicate(timeout=_PATIENCE_SECONDS)
    return process.returncode, out, err
