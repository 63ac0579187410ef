# SPDX-License-Identifier: Apache-2.0
"""The simplest uses (AOSP TestTrivialModel, TestFree, TestWrapper, TestUpdatability)."""

from __future__ import annotations

import gc
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import OperationCode
from nn_runtime.compilation import Compilation
from nn_runtime.devices import devices, reference_device, runtime_feature_level
from nn_runtime.errors import BadData
from nn_runtime.execution import Execution
from nn_runtime.hal.memory import HardwareBuffer, HardwareBufferUsage
from nn_runtime.memory import Memory
from nn_runtime.model import Model
from tests.nn_runtime.graphs import add, add_model, finished, scalar, tensor

if TYPE_CHECKING:
    from nn_runtime.event import Event
    from nn_runtime.operand import Array

A = np.arange(12, dtype=np.float32).reshape(3, 4) + 1
B = A * 10
C = A * 100
ROW = np.array([1, 2, 3, 4], np.float32)


def computed(model: Model, inputs: list[Array], fenced: bool = False) -> Array:
    output = np.zeros((3, 4), np.float32)
    with Execution(finished(model, [], fallback=True)) as execution:
        for at, array in enumerate(inputs):
            execution.set_input(at, array)
        execution.set_output(0, output)
        if fenced:
            execution.start_compute_with_dependencies([]).wait()
        else:
            execution.compute()
    return output


def three_terms() -> Model:
    """(a + b) + c, where b is a constant."""
    model = Model()
    a, b, c, between, result = (model.add_operand(tensor(3, 4)) for _ in range(5))
    model.set_operand_value(b, B)
    add(model, a, c, between)
    add(model, b, between, result)
    model.identify_inputs_and_outputs([c, a], [result])
    model.finish()
    return model


def test_add_two() -> None:
    np.testing.assert_array_equal(computed(add_model((3, 4)), [A, B]), A + B)


@pytest.mark.parametrize("usage", [HardwareBufferUsage(0), HardwareBufferUsage.GPU_DATA_BUFFER])
def test_add_two_with_hardware_buffers(usage: HardwareBufferUsage) -> None:
    both = HardwareBufferUsage.CPU_READ | HardwareBufferUsage.CPU_WRITE | usage
    output = np.zeros((3, 4), np.float32)
    execution = Execution(finished(add_model((3, 4)), [], fallback=True))
    for at, array in enumerate((A, B)):
        buffer = HardwareBuffer(array.nbytes, usage=both)
        buffer.lock()[:] = array.reshape(-1).view(np.uint8)
        execution.set_input_from_memory(at, Memory.from_hardware_buffer(buffer), 0, array.nbytes)
    execution.set_output(0, output)
    execution.compute()
    np.testing.assert_array_equal(output, A + B)


@pytest.mark.parametrize("fenced", [False, True])
def test_add_three(fenced: bool) -> None:
    for a, c in ((A, C), (C, A)):
        np.testing.assert_array_equal(computed(three_terms(), [a, c], fenced), A + B + C)


def test_fenced_executions_one_after_the_other() -> None:
    events: list[Event] = []
    arrays = [A, np.zeros((3, 4), np.float32), np.zeros((3, 4), np.float32)]
    compilation = finished(three_terms(), [], fallback=True)
    for source, target in pairwise(arrays):
        execution = Execution(compilation)
        execution.set_input(0, source)
        execution.set_input(1, C)
        execution.set_output(0, target)
        events.append(execution.start_compute_with_dependencies(events))
    events[-1].wait()
    np.testing.assert_array_equal(arrays[-1], A + 2 * (B + C))


@pytest.mark.parametrize(("code", "wanted"), [(OperationCode.ADD, A + ROW), (OperationCode.MUL, A * ROW)])
def test_broadcasting(code: OperationCode, wanted: Array) -> None:
    model = Model()
    a, row, result = model.add_operand(tensor(3, 4)), model.add_operand(tensor(4)), model.add_operand(tensor(3, 4))
    model.add_operation(code, [a, row, scalar(model, 0)], [result])
    model.identify_inputs_and_outputs([a, row], [result])
    model.finish()
    np.testing.assert_array_equal(computed(model, [A, ROW]), wanted)


def test_unfinished_objects_may_be_closed_in_any_order() -> None:
    Model().close()
    model = Model()
    model.add_operand(tensor(2))
    model.close()
    for explicit in (None, [reference_device()]):
        model = add_model()
        compilation = Compilation(model, explicit)
        model.close()
        compilation.close()
    compilation = finished(add_model(), [], fallback=True)
    execution = Execution(compilation)
    execution.set_input(0, np.zeros((2, 3), np.float32))
    compilation.close()
    execution.close()
    execution.close()
    gc.collect()


def test_a_model_that_is_wrong_stays_wrong() -> None:
    good = add_model()
    assert good.hal.main.operations
    with pytest.raises(BadData):
        Model().finish()
    bad = Model()
    x = bad.add_operand(tensor(2))
    with pytest.raises(BadData):
        bad.identify_inputs_and_outputs([x], [x])


def test_no_device_is_newer_than_the_runtime() -> None:
    assert runtime_feature_level() == 1000008
    assert all(device.feature_level <= runtime_feature_level() for device in devices())
