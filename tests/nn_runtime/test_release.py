# SPDX-License-Identifier: Apache-2.0
"""Closing: it may be done twice, use afterwards is a clear error, and nothing is left behind."""

from __future__ import annotations

import gc
import time
import weakref
from typing import TYPE_CHECKING

import numpy as np
import pytest

import nn_runtime as nn
from nn_runtime.errors import BadState
from nn_runtime.testing.sample_drivers import SampleDevice
from tests.nn_runtime.descriptors import needs_descriptors, open_descriptors
from tests.nn_runtime.graphs import chain_model, finished, numbers

if TYPE_CHECKING:
    from nn_runtime.device import Device

RELU, TANH = nn.OperationCode.RELU, nn.OperationCode.TANH


class Watched(np.ndarray):
    """An array whose end can be seen."""


def bound(compilation: nn.Compilation) -> nn.Execution:
    execution = nn.Execution(compilation)
    execution.set_input(0, numbers(2, 3))
    execution.set_output(0, np.empty((2, 3), np.float32))
    return execution


def test_a_closed_model() -> None:
    model = chain_model([RELU])
    for _ in range(2):
        model.close()
    with pytest.raises(BadState, match="the model is closed"):
        model.add_operand(nn.OperandType(nn.OperandCode.FLOAT32))
    with pytest.raises(BadState, match="it is closed"):
        nn.Compilation(model)


def test_a_closed_compilation(device: Device) -> None:
    compilation = nn.Compilation(chain_model([RELU]), [device])
    compilation.finish()
    execution = bound(compilation)
    for _ in range(2):
        compilation.close()
    for use in (nn.Execution, nn.Burst):
        with pytest.raises(BadState, match="the compilation is closed"):
            use(compilation)
    with pytest.raises(BadState, match="finish: the compilation is closed"):
        compilation.finish()
    with pytest.raises(BadState, match="compute: the compilation is closed"):
        execution.compute()


def test_a_closed_execution() -> None:
    execution = bound(finished(chain_model([RELU]), [SampleDevice("one")]))
    for _ in range(2):
        execution.close()
    for use in (
        execution.compute,
        execution.start_compute,
        lambda: execution.set_input(0, numbers(2, 3)),
        lambda: execution.get_output_operand_dimensions(0),
    ):
        with pytest.raises(BadState, match="the execution is closed"):
            use()


def test_a_closed_burst() -> None:
    compilation = finished(chain_model([RELU]), [SampleDevice("one")])
    burst, execution = nn.Burst(compilation), bound(compilation)
    for _ in range(2):
        burst.close()
    with pytest.raises(BadState, match="burst: it is closed"):
        execution.burst_compute(burst)


def test_closed_memory() -> None:
    memory, other = (nn.Memory.from_array(numbers(2, 3)) for _ in range(2))
    for _ in range(2):
        memory.close()
    for source, target in ((memory, other), (other, memory)):
        with pytest.raises(BadState, match="is closed"):
            nn.Memory.copy(source, target)
    with pytest.raises(BadState, match="the memory is closed"):
        memory.to_array(np.float32, (2, 3))
    execution = nn.Execution(finished(chain_model([RELU]), [SampleDevice("one")]))
    with pytest.raises(BadState, match="input 0: the memory is closed"):
        execution.set_input_from_memory(0, memory, 0, 24)


def test_arguments_go_with_their_execution(device: Device) -> None:
    """The compilation keeps nothing of a run that is over."""
    compilation = nn.Compilation(chain_model([RELU]), [device])
    compilation.finish()
    memory, result = nn.Memory.from_array(numbers(2, 3)), np.zeros((2, 3), np.float32).view(Watched)
    watched = weakref.ref(memory.shared), weakref.ref(result)
    with nn.Execution(compilation) as execution:
        execution.set_input_from_memory(0, memory, 0, 24)
        execution.set_output(0, result)
        execution.compute()
    memory.close()
    del execution, memory, result
    gc.collect()
    assert [one() for one in watched] == [None, None]


def test_closed_device_memory(device: Device) -> None:
    compilation = nn.Compilation(chain_model([RELU]), [device])
    compilation.finish()
    desc = nn.MemoryDesc()
    desc.add_output_role(compilation, 0, 1.0)
    desc.finish()
    memory = nn.Memory.from_desc(desc)
    execution = nn.Execution(compilation)
    execution.set_input(0, numbers(2, 3))
    execution.set_output_from_memory(0, memory)
    for _ in range(2):
        memory.close()
    with pytest.raises(BadState, match="the device memory of output 0 is closed"):
        execution.compute()


@needs_descriptors
def test_nothing_is_left_open(device: Device) -> None:
    def cycle() -> None:
        shared = nn.Memory.from_array(numbers(2, 3))
        with shared, chain_model([RELU, TANH]) as model, nn.Compilation(model, [device]) as compilation:
            compilation.finish()
            with bound(compilation) as execution:
                execution.start_compute().wait()
            with nn.Execution(compilation) as execution, nn.Burst(compilation) as burst:
                execution.set_input_from_memory(0, shared, 0, 24)
                execution.set_output(0, np.empty((2, 3), np.float32))
                execution.burst_compute(burst)
            with bound(compilation) as execution, execution.start_compute_with_dependencies([]) as event:
                event.wait()

    cycle()
    before = open_descriptors()
    for _ in range(20):
        cycle()
    deadline = time.monotonic() + 10
    while (now := open_descriptors()) > before and time.monotonic() < deadline:
        time.sleep(0.01)  # the thread that signals a fence lets go of it a moment after the wait for it has ended
    assert now <= before
