# SPDX-License-Identifier: Apache-2.0
"""Every way to compute an execution of two inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tests.nn_runtime.graphs import numbers

if TYPE_CHECKING:
    from collections.abc import Callable

    from nn_runtime.burst import Burst
    from nn_runtime.execution import Execution
    from nn_runtime.operand import Array


def bind_all(execution: Execution) -> Array:
    output = np.zeros((2, 3), np.float32)
    execution.set_input(0, numbers(2, 3))
    execution.set_input(1, numbers(2, 3))
    execution.set_output(0, output)
    return output


def _asynchronously(execution: Execution, _burst: Burst) -> None:
    execution.start_compute().wait()


def _fenced(execution: Execution, _burst: Burst) -> None:
    execution.start_compute_with_dependencies([]).wait()


COMPUTES: dict[str, Callable[[Execution, Burst], None]] = {
    "compute": lambda execution, _burst: execution.compute(),
    "start_compute": _asynchronously,
    "burst_compute": lambda execution, burst: execution.burst_compute(burst),
    "start_compute_with_dependencies": _fenced,
}
