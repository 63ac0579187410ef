# SPDX-License-Identifier: Apache-2.0
"""Threads of the linear algebra library while models run."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_limits

import nn_runtime as nn
from cpu_driver import operations
from cpu_driver.threads import BlasThreads, blas_threads
from nn_runtime.codes import OperationCode

if TYPE_CHECKING:
    from cpu_driver.operations import Function
    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView


def threads() -> list[int]:
    """Return the number of each library; skips where there is none that can be bounded."""
    found = [library.get_num_threads() for library in ThreadpoolController().select(user_api="blas").lib_controllers]
    if not found:
        pytest.skip("numpy's linear algebra has no number of threads")
    return found


def test_bound_holds_until_the_last_execution_leaves() -> None:
    bound = BlasThreads()
    with threadpool_limits(2, "blas"):
        before = threads()
        with bound:
            with bound:
                assert set(threads()) == {1}
            assert set(threads()) == {1}
        assert threads() == before


def test_every_thread_bounds_and_gives_back() -> None:
    bound, before = BlasThreads(), threads()
    with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:  # that outlive what they do here

        def seen_by(executor: ThreadPoolExecutor) -> list[int]:
            return executor.submit(_bounded, bound).result()

        assert [set(seen_by(one)) for one in (first, second, first)] == [{1}] * 3
        assert threads() == before
        first.submit(bound.__enter__).result()
        assert set(seen_by(second)) == {1}
        second.submit(bound.__exit__, None, None, None).result()
    assert threads() == before


def _bounded(bound: BlasThreads) -> list[int]:
    with bound:
        return threads()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("locked", [False, True])
def test_a_forked_process_has_its_own_number_while_executions_go_on_here(locked: bool) -> None:
    with threadpool_limits(2, "blas"), ThreadPoolExecutor(1) as other:
        before = threads()
        other.submit(blas_threads.__enter__).result()
        if locked:
            other.submit(blas_threads._lock.acquire).result()
        child = os.fork()
        if child == 0:
            signal.alarm(10)  # where it waits for a thread that it has not
            inside = _bounded(blas_threads)
            os._exit(0 if set(inside) == {1} and threads() == before else 1)
        _, status = os.waitpid(child, 0)
        if locked:
            other.submit(blas_threads._lock.release).result()
        other.submit(blas_threads.__exit__, None, None, None).result()
        assert status == 0
        assert threads() == before


def test_executions_are_bounded_and_the_process_gets_its_threads_back(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[int]] = []
    usual = operations.function_of(OperationCode.RELU)
    assert usual is not None
    monkeypatch.setitem(operations._functions, OperationCode.RELU, _noting(usual, seen))
    model = nn.Model()
    source, result = (model.add_operand(nn.OperandType(nn.OperandCode.TENSOR_FLOAT32, (4,))) for _ in range(2))
    model.add_operation(OperationCode.RELU, [source], [result])
    model.identify_inputs_and_outputs([source], [result])
    model.finish()
    with threadpool_limits(2, "blas"):
        before = threads()
        with nn.Network.from_model(model).compile("cpu") as session:
            session.run(np.ones(4, np.float32))
        assert threads() == before
    assert set(seen[0]) == {1}


def _noting(function: Function, seen: list[list[int]]) -> Function:
    def noted(op: OperationView) -> tuple[Array, ...]:
        seen.append(threads())
        return function(op)

    return noted
