# SPDX-License-Identifier: Apache-2.0
"""Devices whose executions end with a fence, and executions on them."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperationCode
from nn_runtime.execution import Execution
from nn_runtime.hal import plain
from nn_runtime.testing.sample_drivers import SampleDevice
from tests.nn_runtime.graphs import chain_model, finished, numbers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

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


def join_threads() -> None:
    """Return when fenced executions that run have signalled what they signal."""
    end = time.monotonic() + 10
    time.sleep(0.01)  # for those that have not begun
    while any(plain.__file__ in files_of(frame) for frame in sys._current_frames().values()):
        assert time.monotonic() < end
        time.sleep(0.001)


def files_of(frame: FrameType | None) -> Iterator[str]:
    while frame is not None:
        yield frame.f_code.co_filename
        frame = frame.f_back
