# SPDX-License-Identifier: Apache-2.0
"""Exceptions of signals' handlers wherever a call of the NDK level calls something, or returns from it.

They come out of the call as they are, and what it used works afterwards.
"""

from __future__ import annotations

import _thread
import gc
import inspect
import itertools
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from nn_runtime.burst import Burst
from nn_runtime.codes import OperationCode
from nn_runtime.errors import NNError
from nn_runtime.execution import Execution
from nn_runtime.testing.sample_drivers import SampleDevice
from tests.nn_runtime.descriptors import needs_descriptors, open_descriptors
from tests.nn_runtime.graphs import chain_model, finished, numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from nn_runtime.compilation import Compilation


def time_limit(_number: int, _frame: FrameType | None) -> None:
    raise TimeoutError("the time is up")  # an OSError


def soft_limit(_number: int, _frame: FrameType | None) -> None:
    raise RuntimeError("soft limit")


@pytest.fixture(autouse=True, params=[signal.default_int_handler, time_limit, soft_limit])
def _handler(request: pytest.FixtureRequest) -> Iterator[None]:
    before = signal.signal(signal.SIGINT, request.param)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt_at(number: int, call: Callable[[], object]) -> bool:
    """Make a call, interrupted where it calls something or returns for the time `number`; return whether it was."""
    before = sys.gettrace()
    left = number
    came_out = False

    def interrupt(frame: FrameType, what: str, _: object) -> Any:
        nonlocal left
        if what in ("call", "return") and not in_finalizer(frame):
            left -= 1
            if left == -1:
                sys.settrace(None)
                signal.raise_signal(signal.SIGINT)
        return interrupt

    gc.disable()  # what it would call, for garbage of others, too, tells nobody of an exception
    try:
        sys.settrace(interrupt)
        call()
    except (KeyboardInterrupt, TimeoutError, RuntimeError) as error:
        assert not isinstance(error, NNError)
        came_out = True
    finally:
        sys.settrace(before)
        gc.enable()
    assert came_out == (left < 0)
    return came_out


_FINALIZERS = "__del__", "_remove", "remove"
"""The latter of weak sets and dictionaries."""


def in_finalizer(frame: FrameType) -> bool:
    """Whether what is raised there may reach nobody."""
    if frame.f_code.co_flags & inspect.CO_GENERATOR:
        return True
    caller: FrameType | None = frame
    while caller is not None and caller.f_code.co_name not in _FINALIZERS:
        caller = caller.f_back
    return caller is not None


def interrupted(call: Callable[[], object]) -> Iterator[None]:
    """Make a call again and again, interrupted ever later, until it ends before."""
    for number in itertools.count():
        was_interrupted = interrupt_at(number, call)
        yield
        if not was_interrupted:
            assert number > 10
            return


def relu(asynchronous_fences: bool = False) -> Compilation:
    device = SampleDevice("sample")
    device.script.asynchronous_fences = asynchronous_fences
    return finished(chain_model([OperationCode.RELU]), [device])


def bound(compilation: Compilation) -> tuple[Execution, np.ndarray]:
    execution, output = Execution(compilation), np.zeros((2, 3), np.float32)
    execution.set_reusable(True)
    execution.set_input(0, numbers(2, 3))
    execution.set_output(0, output)
    return execution, output


WAYS: dict[str, Callable[[Execution], object]] = {
    "compute": lambda execution: execution.compute(),
    "profiled": lambda execution: execution.compute_profiled(),
    "fenced": lambda execution: execution.start_compute_with_dependencies([]).wait(),
}


@pytest.mark.parametrize("way", WAYS)
def test_an_interrupted_execution_computes_again(way: str) -> None:
    compilation = relu()
    execution, output = bound(compilation)
    for _ in interrupted(lambda: WAYS[way](execution)):
        output[...] = 0
        execution.compute()
        np.testing.assert_array_equal(output, np.maximum(numbers(2, 3), 0))
    compilation.close()
    assert compilation.plan is None


@pytest.mark.parametrize("way", WAYS)
def test_the_models_of_an_interrupted_execution_are_freed(way: str) -> None:
    compilation = relu()
    plan = compilation.plan
    execution, _ = bound(compilation)
    executions = [execution]
    for _ in interrupted(lambda: WAYS[way](executions[-1])):
        assert not executions[-1].is_computing
        executions.append(bound(compilation)[0])
    compilation.close()
    assert plan is not None
    assert plan._is_freed


def test_an_interrupted_execution_leaves_its_burst_to_others() -> None:
    compilation = relu()
    execution, output = bound(compilation)
    with Burst(compilation) as burst:
        for _ in interrupted(lambda: execution.burst_compute(burst)):
            output[...] = 0
            execution.burst_compute(burst)
            np.testing.assert_array_equal(output, np.maximum(numbers(2, 3), 0))


def test_an_interrupt_of_who_ends_a_fenced_run_is_no_end_of_others_waits() -> None:
    compilation = relu()
    for number in itertools.count():
        execution, output = bound(compilation)
        event = execution.start_compute_with_dependencies([])
        was_interrupted = interrupt_at(number, event.wait)
        other = threading.Thread(target=event.wait, daemon=True)
        other.start()
        other.join(10)
        assert not other.is_alive()
        assert not execution.is_computing
        np.testing.assert_array_equal(output, np.maximum(numbers(2, 3), 0))
        if not was_interrupted:
            assert number > 10
            return


def test_an_interrupted_wait_stands_in_nobodys_way() -> None:
    """As it does with threading.Event, whose lock an interrupted wait may keep."""
    compilation = relu()
    for number in itertools.count():
        execution, _ = bound(compilation)
        event = execution.start_compute()
        was_interrupted = interrupt_at(number, event.wait)
        event.wait(10)
        if not was_interrupted:
            return


@needs_descriptors
def test_a_fenced_execution_interrupted_as_its_thread_starts_leaves_no_descriptor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = _thread.start_new_thread

    def interrupt(*arguments: Any) -> None:
        start(*arguments)
        raise KeyboardInterrupt

    execution, _ = bound(relu(asynchronous_fences=True))
    execution.compute()
    before = open_descriptors()
    for _ in range(20):
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(_thread, "start_new_thread", interrupt)
            execution.start_compute_with_dependencies([])
    time.sleep(0.05)
    assert open_descriptors() <= before + 5
