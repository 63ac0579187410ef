# SPDX-License-Identifier: Apache-2.0
"""Which exceptions are those of signals' handlers."""

from __future__ import annotations

import functools
import io
import os
import signal
import socket
import threading
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pytest

from cpu_driver import operations
from nn_runtime.codes import OperationCode
from nn_runtime.execution import Execution
from nn_runtime.failures import guarded
from nn_runtime.hal import remote_channel
from nn_runtime.hal.interrupts import pass_interrupt
from nn_runtime.hal.remote_channel import Channel
from nn_runtime.hal.types import HalError
from tests.nn_runtime.graphs import chain_model, finished, numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType


def time_limit(_number: int, _frame: FrameType | None) -> NoReturn:
    raise TimeoutError("the time is up")


def by_way_of_another(number: int, frame: FrameType | None) -> None:
    time_limit(number, frame)


def with_a_first_argument(_first: str, number: int, frame: FrameType | None) -> None:
    time_limit(number, frame)


class Limits:
    def method(self, _number: int, _frame: FrameType | None) -> None:
        raise TimeoutError

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        raise TimeoutError


@functools.wraps(time_limit)
def decorated(*arguments: Any) -> None:
    time_limit(*arguments)


HANDLERS = {
    "function": time_limit,
    "by way of another": by_way_of_another,
    "method": Limits().method,
    "object": Limits(),
    "partial": functools.partial(functools.partial(with_a_first_argument), "first"),
    "partial of an object": functools.partial(Limits()),
    "decorated": decorated,
}


@pytest.fixture
def _handler_before() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_handler_before")
@pytest.mark.parametrize("handler", HANDLERS.values(), ids=HANDLERS)
def test_what_a_handler_raises_is_not_the_drivers(handler: Callable[[int, FrameType | None], Any]) -> None:
    signal.signal(signal.SIGINT, handler)
    with pytest.raises(TimeoutError):
        guarded(lambda: signal.raise_signal(signal.SIGINT), "execute")


@pytest.mark.usefixtures("_handler_before")
def test_what_the_driver_raises_is_its_own() -> None:
    signal.signal(signal.SIGINT, by_way_of_another)
    with pytest.raises(HalError, match="the driver failed with TimeoutError"):
        guarded(lambda: time_limit(0, None), "execute")
    for handler in (signal.SIG_IGN, signal.SIG_DFL, signal.default_int_handler):
        signal.signal(signal.SIGINT, handler)
        with pytest.raises(HalError, match="the driver failed with TimeoutError"):
            guarded(lambda: time_limit(0, None), "execute")


@pytest.mark.usefixtures("_handler_before")
def test_no_handler_runs_in_another_thread() -> None:
    signal.signal(signal.SIGINT, time_limit)
    passed = []

    def call() -> None:
        try:
            time_limit(0, None)
        except TimeoutError as error:
            pass_interrupt(error)
            passed.append(True)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert passed == [True]


@pytest.mark.usefixtures("_handler_before")
def test_an_operation_of_the_cpu_driver_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_arguments: object) -> None:
        signal.raise_signal(signal.SIGINT)

    operations.function_of(OperationCode.RELU)  # loaded
    monkeypatch.setitem(operations._functions, OperationCode.RELU, interrupted)
    execution = Execution(finished(chain_model([OperationCode.RELU]), [], fallback=True))
    execution.set_input(0, numbers(2, 3))
    execution.set_output(0, np.zeros((2, 3), np.float32))
    signal.signal(signal.SIGINT, time_limit)
    with pytest.raises(TimeoutError, match="the time is up"):
        execution.compute()


@pytest.mark.usefixtures("_handler_before")
@pytest.mark.parametrize("function", ["_dumped", "_loaded"])
def test_a_message_that_is_interrupted_is_no_bad_one(function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupting(io.BytesIO):
        def __init__(self, *_arguments: object) -> None:
            signal.raise_signal(signal.SIGINT)

    ours, theirs = socket.socketpair()
    channel, other = Channel(ours), Channel(theirs)
    if function == "_loaded":
        other.send("question")
    signal.signal(signal.SIGINT, time_limit)
    monkeypatch.setattr(remote_channel.io, "BytesIO", Interrupting)
    with pytest.raises(TimeoutError, match="the time is up"):
        channel.receive() if function == "_loaded" else channel.send("question")
    channel.close()
    other.close()


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="no signal comes to a process that waits on this system")
def test_a_wait_for_a_drivers_process_is_interrupted() -> None:
    before = signal.signal(signal.SIGUSR1, time_limit)
    ours, theirs = socket.socketpair()
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    try:
        with theirs, pytest.raises(TimeoutError, match="the time is up"):
            Channel(ours).receive()
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)
        ours.close()
