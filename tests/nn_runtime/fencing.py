# SPDX-License-Identifier: Apache-2.0
"""Devices whose executions end with a fence, and executions on them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperationCode
from nn_runtime.execution import Execution
from nn_runtime.testing.sample_drivers import SampleDevice
from tests.nn_runtime.graphs import chain_model, finished, numbers

if TYPE_CHECKING:
    from nn_runtime.compilation import Compilation
    from nn_runtime.operand import Array


def fenced_device(name: str = "sample", operations: set[int] | None = None) -> SampleDevice:
    device = SampleDevice(name, operations)
    device.script.asynchronous_fences = True
    return device


def bound(compilation: Compilation, x: Array | None = None) -> tuple[Execution, Array]:
    execution, output = Execution(compilation), np.full((2, 3), np.nan, np.float32)
    execution.set_input(0, numbers(2, 3) if x is None else x)
    execution.set_output(0, output)
    return execution, output


def relu(devices: list[SampleDevice] | None = None, fallback: bool = False) -> Compilation:
    return finished(chain_model([OperationCode.RELU]), devices or [fenced_device()], fallback)


def join_threads_of(*devices: str) -> None:
    """Return when fenced executions of these devices have signalled what they signal."""
    for thread in threading.enumerate():
        if thread.name in devices:
            thread.join()
