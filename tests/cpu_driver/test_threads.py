# SPDX-License-Identifier: Apache-2.0
"""Threads of the linear algebra library while models run."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_limits

import nn_runtime as nn
from cpu_driver import operations
from cpu_driver.threads import BlasThreads
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
