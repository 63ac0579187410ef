# SPDX-License-Identifier: Apache-2.0
"""A driver in a process of its own, and models and requests for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.hal import remote
from nn_runtime.hal.memory import SharedMemory
from nn_runtime.hal.remote import RemoteDevice, hosted
from nn_runtime.hal.types import (
    BufferDesc,
    BufferRole,
    BufferToken,
    DataLocation,
    ErrorStatus,
    ExecutionPreference,
    HalError,
    Model,
    Operand,
    Operation,
    Priority,
    Request,
    RequestArgument,
    Subgraph,
)
from tests.nn_runtime.hal.models import FLOATS, INPUT, OUTPUT, pointer

if TYPE_CHECKING:
    from collections.abc import Callable

    from nn_runtime.codes import OperationCode
    from nn_runtime.hal.remote_model import RemotePreparedModel

ENTRY = "tests.nn_runtime.hal.hosted_drivers:sample"
MINE = (ExecutionPreference.FAST_SINGLE_ANSWER, Priority.MEDIUM)
ANSWER_S = 1.0
"""Within so many seconds a dead driver must be seen."""
_LONG_S = 0.2
_PATIENCE_S = 60.0


def unary(code: OperationCode) -> Model:
    operands = (Operand(FLOATS, (4,), lifetime=INPUT), Operand(FLOATS, (4,), lifetime=OUTPUT))
    return Model(Subgraph(operands, (Operation(code, (0,), (1,)),), (0,), (1,)))


def start(entry: str = ENTRY) -> RemoteDevice:
    device = hosted(entry)[0]
    assert isinstance(device, RemoteDevice)
    return device


def prepare(device: RemoteDevice, model: Model) -> RemotePreparedModel:
    return device.prepare_model(model, *MINE, None, None)


def arrays() -> tuple[list[np.ndarray], np.ndarray]:
    a = np.arange(4, dtype=np.float32).reshape(2, 2)
    return [a, a + 1], np.zeros((2, 2), np.float32)


def shared_request() -> tuple[SharedMemory, Request]:
    pool = SharedMemory.create(192)
    arguments = [RequestArgument(location=DataLocation(0, offset, 16)) for offset in (0, 64, 128)]
    return pool, Request(tuple(arguments[:2]), tuple(arguments[2:]), (pool,))


def unary_request() -> Request:
    first, second = (RequestArgument(location=DataLocation(0, offset, 16)) for offset in (0, 64))
    return Request((first,), (second,), (SharedMemory.create(128),))


def kill(device: RemoteDevice) -> None:
    host = device.service.host()
    os.kill(host.pid, signal.SIGKILL)
    host._watcher.join(60)
    assert host.dead


def wait_for_calls(device: RemoteDevice, count: int) -> None:
    """Return when so many calls of a device's process are under way, and have been for a while: they are long ones."""
    host = device.service.host()
    since = time.monotonic()
    end = since + _PATIENCE_S
    while time.monotonic() - since < _LONG_S:
        assert time.monotonic() < end
        if len(host._channels) - 1 - len(host._free) < count:  # one is for opening others
            since = time.monotonic()
        time.sleep(0.01)


def status_of(call: Callable[[], object]) -> ErrorStatus:
    with pytest.raises(HalError) as caught:
        call()
    return caught.value.status


def message_of(call: Callable[[], object]) -> str:
    with pytest.raises(HalError) as caught:
        call()
    return caught.value.message


def is_running(pid: int) -> bool:
    """Tell whether a process is there, be it as a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def allocated(device: RemoteDevice, prepared: RemotePreparedModel) -> tuple[remote.RemoteBuffer, int]:
    buffer, token = device.allocate(BufferDesc(), [prepared], [BufferRole(0, 0, 1.0)], [])
    assert isinstance(buffer, remote.RemoteBuffer)
    return buffer, token


def token_request(token: int, output: np.ndarray) -> Request:
    other = np.ones((2, 2), np.float32)
    first = RequestArgument(location=DataLocation(0))
    return Request((first, pointer(other)), (pointer(output),), (BufferToken(token),))


def run_script(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
