# SPDX-License-Identifier: Apache-2.0
"""Memory that launches were given: what they are given the next time, and what is let go."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpu_driver.chain import images
from gpu_driver.device.context import DeviceContext
from gpu_driver.device.device_memory import DeviceBuffer
from gpu_driver.execution.launch_context import LaunchContext
from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.hal.interfaces import TakesOtherMemory
from nn_runtime.hal.memory import pages_of_zeros
from nn_runtime.hal.types import ExecutionPreference, Priority
from tests.gpu_driver.drawn import FLOAT, Network
from tests.gpu_driver.graphs import Graph, request
from tests.gpu_driver.running import doubling, fresh, prepare, run, run_doubling, until

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyopencl as cl

    from gpu_driver.driver import Device
    from nn_runtime.operand import Array

ROWS = 8
INT32 = OperandCode.TENSOR_INT32


def pages(shape: Sequence[int], value: float = 0) -> Array:
    """Return floats that begin on a page, so that a CPU uses them in place."""
    data = pages_of_zeros(4 * int(np.prod(shape))).view(np.float32).reshape(shape)
    data[...] = value
    return data


def two_images(monkeypatch: pytest.MonkeyPatch) -> Network:
    """A network that CPUs compute for one image after the other."""
    monkeypatch.setattr(images, "LEAST_FLOPS", 1)
    network = Network(FLOAT, (2, 8, 8, 16), 3)
    network.convolve(16, 3)
    network.convolve(16, 3, is_output=True)
    return network


def test_images_after_a_pause(opencl_device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that is used in place is the same as before, but nothing of it is held any more."""
    network, low = two_images(monkeypatch), ExecutionPreference.LOW_POWER  # which keeps kernel objects
    prepared = opencl_device.prepare_model(network.graph.model(), low, Priority.MEDIUM, None, None)
    data, wanted = network.data(), np.empty(network.dims, np.float32)
    run(prepared, request([data], [wanted]))
    source, result = pages(data.shape), pages(network.dims)
    source[...] = data
    execution = prepared.create_reusable_execution(request([source], [result]), False, None)
    assert execution is not None
    for _ in range(3):
        result[...] = np.nan
        execution.execute_synchronously(None)
        assert np.array_equal(result, wanted)
        assert not prepared.release_idle(time.monotonic() + 1)
    prepared.close()


def test_images_in_other_memory_twice(opencl_device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    network = two_images(monkeypatch)
    prepared = prepare(opencl_device, network.graph.model())
    data, wanted = network.data(), np.empty(network.dims, np.float32)
    run(prepared, request([data], [wanted]))
    asked = request([pages(data.shape)], [pages(network.dims)])
    execution = prepared.create_reusable_execution(asked, False, None)
    assert isinstance(execution, TakesOtherMemory)
    source, result = pages(data.shape), pages(network.dims)
    source[...] = data
    wrapped, buffers = DeviceContext.wrapped, list[DeviceBuffer]()

    def noted(context: DeviceContext, array: Array) -> DeviceBuffer:
        buffers.append(wrapped(context, array))
        return buffers[-1]

    monkeypatch.setattr(DeviceContext, "wrapped", noted)
    elsewhere = execution.with_memory({0: source}, {0: result})
    for _ in range(2):
        result[...] = np.nan
        elsewhere.execute_synchronously(None)
        assert np.array_equal(result, wanted)
        opencl_device.context().queue.finish()
        assert all(buffer.handle.reference_count == 1 for buffer in buffers)  # between runs nothing has parts of it
    prepared.close()


def test_memory_that_a_run_was_given_in_part(opencl_device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted when one of two launches had the run's input: the next run is given its own."""
    graph = Graph()
    source = graph.input((ROWS, 16))
    for limit in (1.5, 1.25):
        more = graph.constant(np.full(16, limit, np.float32))
        graph.operation(OperationCode.GREATER, [source, more], graph.output((ROWS, 16), OperandCode.TENSOR_BOOL8))
    prepared = prepare(opencl_device, graph.model())
    flags = [np.zeros((ROWS, 16), np.bool_) for _ in range(2)]
    one, two = (
        prepared.create_reusable_execution(request([pages((ROWS, 16), value)], flags), False, None) for value in (1, 2)
    )
    assert one is not None
    assert two is not None
    one.execute_synchronously(None)
    set_memory, launches = LaunchContext.set_memory, []

    def interrupted(launch: LaunchContext, i: int, buffer: cl.Buffer, whole: cl.Buffer, offset: int) -> None:
        if launches:
            raise KeyboardInterrupt
        launches.append(launch)
        set_memory(launch, i, buffer, whole, offset)

    monkeypatch.setattr(LaunchContext, "set_memory", interrupted)
    if opencl_device.profile.uses_host_memory:
        with pytest.raises(KeyboardInterrupt):
            two.execute_synchronously(None)
    monkeypatch.undo()
    for execution, is_more in ((one, False), (two, True)):
        execution.execute_synchronously(None)
        assert all((flag == is_more).all() for flag in flags)
    prepared.close()


@pytest.mark.parametrize("by_images", [False, True])
def test_memory_given_back_is_given_back(
    opencl_device: Device, monkeypatch: pytest.MonkeyPatch, by_images: bool
) -> None:
    """Nothing but this test refers to it then, not to parts either, and the next run takes memory anew."""
    device = fresh(opencl_device)
    network = two_images(monkeypatch)
    prepared = prepare(device, network.graph.model() if by_images else doubling(ROWS))
    handles: list[cl.Buffer] = []
    new_handle = DeviceContext._new_handle

    def noted(context: DeviceContext, content: int) -> cl.Buffer:
        handles.append(new_handle(context, content))
        return handles[-1]

    monkeypatch.setattr(DeviceContext, "_new_handle", noted)
    for turn in range(1, 3):
        if by_images:
            run(prepared, request([network.data()], [np.empty(network.dims, np.float32)]))
        else:
            run_doubling(prepared, ROWS)
        assert len(handles) == 3 * turn  # of input, output and what is between
        (context,) = prepared._idle
        context.release_memory()
        device.context().queue.finish()
        until(lambda: all(handle.reference_count == 1 for handle in handles))  # PoCL lets go after a launch has ended
    prepared.close()


def test_times_are_those_of_all_launches(opencl_device: Device) -> None:
    """Of which the first takes nearly all the time, and nothing is copied."""
    count = 2**20
    graph = Graph()
    source, found = graph.input((4, count)), graph.temporary((4,), INT32)
    graph.operation(OperationCode.ARGMAX, [source, graph.integer(1)], found)
    zeros = graph.constant(np.zeros(4, np.int32))
    graph.operation(OperationCode.ADD, [found, zeros, graph.integer(FuseCode.NONE)], graph.output((4,), INT32))
    prepared = prepare(opencl_device, graph.model())
    data, result = pages((4, count)), pages((4,)).view(np.int32)
    data[range(4), [5, 0, count - 1, 77]] = 1
    execution = prepared.create_reusable_execution(request([data], [result]), True, None)
    assert execution is not None
    timings = [execution.execute_synchronously(None).timing for _ in range(10)]  # as others take the cores
    assert result.tolist() == [5, 0, count - 1, 77]
    assert all(one.time_on_device_ns <= one.time_in_driver_ns for one in timings)
    assert any(one.time_in_driver_ns // 20 < one.time_on_device_ns for one in timings)
    prepared.close()
