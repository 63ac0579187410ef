# SPDX-License-Identifier: Apache-2.0
"""Buffers and reusable executions of a driver that died: made again once, on the driver started anew.

After the ResilientBuffer and ResilientExecution tests of AOSP: good, failing, recovery that works or fails, recovery
by somebody else. What a buffer held is lost, so that a recovered one answers as an empty one does.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import OperationCode
from nn_runtime.compilation import Compilation
from nn_runtime.device import Device
from nn_runtime.errors import DeadObject, NNError, OperationFailed, ResourceExhausted
from nn_runtime.execution import Execution
from nn_runtime.hal.interfaces import CacheRequest
from nn_runtime.hal.memory import SharedMemory
from nn_runtime.hal.types import BufferDesc, BufferRole, ErrorStatus
from nn_runtime.memory import Memory
from nn_runtime.memory_desc import MemoryDesc
from tests.nn_runtime import graphs
from tests.nn_runtime.hal.hosted_drivers import BREAKING
from tests.nn_runtime.hal.models import add_model
from tests.nn_runtime.hal.remote_driver import allocated, kill, prepare, start, status_of, token_request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from nn_runtime.hal.remote import RemoteDevice
    from nn_runtime.hal.remote_buffer import RemoteBuffer

SIZE = 16
DEAD = ErrorStatus.DEAD_OBJECT


@pytest.fixture
def device() -> Iterator[RemoteDevice]:
    """A device in a process of its own."""
    made = start()
    yield made
    made.close()


@pytest.fixture
def buffer(device: RemoteDevice) -> RemoteBuffer:
    """A buffer for the first input."""
    return allocated(device, prepare(device, add_model()))[0]


def copy_to(buffer: RemoteBuffer) -> float:
    """Return the first element that a buffer holds."""
    pool = SharedMemory.create(SIZE)
    buffer.copy_to(pool)
    return float(pool.array().view(np.float32)[0])


def copy_from(buffer: RemoteBuffer, value: float = 3, size: int = SIZE) -> None:
    pool = SharedMemory.create(size)
    pool.array().view(np.float32)[:] = value
    buffer.copy_from(pool, ())


# Buffers


def test_a_buffer_that_the_driver_does_not_give(device: RemoteDevice) -> None:
    prepared = prepare(device, add_model())
    wrong = [BufferRole(0, 7, 1.0)]
    assert status_of(lambda: device.allocate(BufferDesc(), [prepared], wrong, [])) == ErrorStatus.INVALID_ARGUMENT


def test_a_buffer_is_asked_for_once(device: RemoteDevice, buffer: RemoteBuffer) -> None:
    assert buffer.token > 0
    where = buffer.living()
    copy_from(buffer)
    assert copy_to(buffer) == 3
    assert buffer.living() is where
    assert device.service.starts == 1


def test_failed_copies_are_no_reason_to_recover(device: RemoteDevice, buffer: RemoteBuffer) -> None:
    where = buffer.living()
    assert status_of(lambda: copy_to(buffer)) == ErrorStatus.GENERAL_FAILURE
    assert status_of(lambda: copy_from(buffer, size=2 * SIZE)) == ErrorStatus.INVALID_ARGUMENT
    assert buffer.living() is where
    assert device.service.starts == 1


@pytest.mark.parametrize("copy", [copy_to, copy_from])
def test_copies_where_recovery_fails(
    device: RemoteDevice,
    buffer: RemoteBuffer,
    copy: Callable[[RemoteBuffer], object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(BREAKING, "1")
    kill(device)
    assert status_of(lambda: copy(buffer)) == DEAD
    assert status_of(buffer.living) == DEAD


def test_a_copy_out_of_a_recovered_buffer_finds_nothing(device: RemoteDevice, buffer: RemoteBuffer) -> None:
    copy_from(buffer)
    kill(device)
    assert status_of(lambda: copy_to(buffer)) == ErrorStatus.GENERAL_FAILURE
    assert device.service.starts == 2
    copy_from(buffer, 4)
    assert copy_to(buffer) == 4


def test_a_copy_into_a_dead_buffer_fills_a_new_one(device: RemoteDevice) -> None:
    prepared = prepare(device, add_model())
    buffer, token = allocated(device, prepared)
    kill(device)
    copy_from(buffer, 5)
    assert device.service.starts == 2
    assert buffer.token == token
    output = np.zeros((2, 2), np.float32)
    prepared.execute_synchronously(token_request(token, output), False, None, None)
    np.testing.assert_array_equal(output, 6)


def test_one_who_copies_recovers_for_all(device: RemoteDevice, buffer: RemoteBuffer) -> None:
    before = buffer.living()
    kill(device)
    threads = [threading.Thread(target=copy_from, args=(buffer,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    recovered = buffer.living()
    assert recovered is not before
    assert recovered.host is device.service.host()
    assert buffer.living() is recovered
    assert device.service.starts == 2


def test_a_closed_buffer_is_not_allocated_again(device: RemoteDevice, buffer: RemoteBuffer) -> None:
    buffer.close()
    kill(device)
    device.get_status()
    assert status_of(lambda: copy_from(buffer)) == ErrorStatus.INVALID_ARGUMENT


def test_device_memory_of_the_application_survives_its_driver(device: RemoteDevice) -> None:
    """What it held is lost: it must be filled again, by a copy or as an output."""
    compilation = graphs.finished(graphs.chain_model([OperationCode.RELU], (4,)), [device])
    with MemoryDesc() as desc:
        desc.add_input_role(compilation, 0, 1.0)
        desc.finish()
        memory = Memory.from_desc(desc)
    values = np.array([-1, 2, -3, 4], np.float32)
    output = np.zeros(4, np.float32)

    def compute() -> None:
        with Execution(compilation) as execution:
            execution.set_input_from_memory(0, memory)
            execution.set_output(0, output)
            execution.compute()

    Memory.copy(Memory.from_array(values), memory)
    compute()
    kill(device)
    with pytest.raises(OperationFailed):
        compute()
    Memory.copy(Memory.from_array(-values), memory)
    compute()
    np.testing.assert_array_equal(output, np.maximum(-values, 0))
    assert device.service.starts == 2


# Executions


class Reused:
    """A reusable execution of one operation, run as often as told."""

    def __init__(self, device: RemoteDevice, code: OperationCode = OperationCode.RELU) -> None:
        self.compilation: Compilation = graphs.finished(graphs.chain_model([code], (4,)), [device])
        self.execution = Execution(self.compilation)
        self.execution.set_reusable(True)
        self.values, self.output = np.array([-1, 2, -3, 4], np.float32), np.zeros(4, np.float32)
        self.execution.set_input(0, self.values)
        self.execution.set_output(0, self.output)

    def compute(self) -> None:
        self.execution.compute()

    def compute_fenced(self) -> None:
        with self.execution.start_compute_with_dependencies([]) as event:
            event.wait()

    def check(self, compute: Callable[[Reused], None]) -> None:
        """Run with new values and check the results."""
        self.values[:] = -self.values
        self.output[:] = np.nan
        compute(self)
        np.testing.assert_array_equal(self.output, np.maximum(self.values, 0))


WAYS = [Reused.compute, Reused.compute_fenced]


def test_an_execution_that_the_driver_does_not_give(device: RemoteDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """RELU6 kills the driver when it is prepared, and the one started anew as well."""
    with pytest.raises(NNError):
        Reused(device, OperationCode.RELU6)


@pytest.mark.parametrize("compute", WAYS)
def test_reusable_executions(device: RemoteDevice, compute: Callable[[Reused], None]) -> None:
    reused = Reused(device)
    for _ in range(3):
        reused.check(compute)
    assert device.service.starts == 1


@pytest.mark.parametrize("compute", WAYS)
def test_failed_executions_are_no_reason_to_recover(device: RemoteDevice, compute: Callable[[Reused], None]) -> None:
    reused = Reused(device, OperationCode.ABS)
    for _ in range(2):
        with pytest.raises((ResourceExhausted, OperationFailed)):
            compute(reused)
    assert device.service.starts == 1


@pytest.mark.parametrize("compute", WAYS)
def test_executions_where_recovery_fails(
    device: RemoteDevice, compute: Callable[[Reused], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    reused = Reused(device)
    reused.check(compute)
    monkeypatch.setenv(BREAKING, "1")
    kill(device)
    for _ in range(2):
        with pytest.raises(DeadObject):
            compute(reused)
    monkeypatch.delenv(BREAKING)
    reused.check(compute)


@pytest.mark.parametrize("compute", WAYS)
def test_executions_after_recovery(device: RemoteDevice, compute: Callable[[Reused], None]) -> None:
    reused = Reused(device)
    reused.check(compute)
    kill(device)
    reused.check(compute)
    assert device.service.starts == 2


def test_one_who_executes_recovers_for_all(device: RemoteDevice) -> None:
    compilation = Reused(device)
    others = [Reused(device) for _ in range(3)]
    kill(device)
    compilation.check(Reused.compute)
    for other in others:
        other.check(Reused.compute)
    assert device.service.starts == 2
    assert Device(device).hal is device


def test_what_was_prepared_from_cache_files_is_prepared_again_from_the_model(
    device: RemoteDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sample driver started anew can do nothing with the files of the one before."""
    values = np.array([-1, 2, -3, 4], np.float32)
    prepared: list[object] = []
    from_cache = device.prepare_model_from_cache

    def noted(deadline_ns: int | None, cache: CacheRequest) -> object:
        prepared.append(from_cache(deadline_ns, cache))
        return prepared[-1]

    monkeypatch.setattr(device, "prepare_model_from_cache", noted)
    for _ in range(2):
        compilation = Compilation(graphs.chain_model([OperationCode.RELU], (4,)), [Device(device)])
        compilation.set_caching(tmp_path, bytes(32))
        compilation.finish()
    assert len(prepared) == 1
    for starts in range(1, 4):
        (result,) = graphs.run(compilation, [values], [(4,)])
        np.testing.assert_array_equal(result, np.maximum(values, 0))
        assert device.service.starts == starts
        kill(device)


def test_preparing_from_cache_asks_the_driver_started_anew(device: RemoteDevice) -> None:
    """Which is alive, but keeps nothing of its own that the cache would need."""
    kill(device)
    cache = CacheRequest((), (), bytes(32))
    assert status_of(lambda: device.prepare_model_from_cache(None, cache)) == ErrorStatus.GENERAL_FAILURE
    assert device.service.starts == 2
