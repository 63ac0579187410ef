# SPDX-License-Identifier: Apache-2.0
"""What does not fit: refused, given the room of idle memory, or an error after which the next run is right."""

from __future__ import annotations

import gc
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import pyopencl as cl
import pytest

from gpu_driver.device import context as context_module
from gpu_driver.device.context import DeviceContext
from nn_runtime.hal.types import ErrorStatus, HalError
from tests.gpu_driver.graphs import request
from tests.gpu_driver.running import (
    CONSTANT_BYTES,
    ROW_BYTES,
    at_once,
    doubling,
    memory_of,
    opencl_error,
    prepare,
    run,
    run_doubling,
)

if TYPE_CHECKING:
    from gpu_driver.driver import Device


def test_an_operand_larger_than_a_buffer_is_refused(device: Device) -> None:
    device.profile = replace(device.profile, max_alloc_bytes=3 * 2**20)
    model = doubling(2**16)
    reasons = [support.reason for support in device.explain_operations(model)]
    assert reasons == [f"operand {i} needs 4.0 MiB, the device allows 3.0 MiB for one buffer" for i in (0, 1)]
    with pytest.raises(HalError) as caught:
        prepare(device, model)
    assert reasons[0] in str(caught.value)


def test_a_model_larger_than_the_device_is_refused(device: Device) -> None:
    device.profile = replace(device.profile, global_mem_bytes=2 * 2**20)
    with pytest.raises(HalError) as caught:
        prepare(device, doubling(2**14))
    assert caught.value.status == ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT
    assert str(caught.value) == "the model needs 3.0 MiB, the device has 2.0 MiB"
    assert memory_of(device).allocated_bytes == 0
    run_doubling(prepare(device, doubling(2**12)), 2**12)


def test_memory_is_given_out_to_the_last_byte_and_no_further(opencl_device: Device) -> None:
    """Of 3 pages, 2 for one buffer at most: 2 and 1 are given out; more for one never, more in all not now."""
    page = 4096
    profile = replace(opencl_device.profile, max_alloc_bytes=2 * page, global_mem_bytes=3 * page)
    context = DeviceContext(opencl_device._found.device, profile)
    context.check_room(3 * page, "a model")
    for take in (context.allocate, context.zeros):
        with pytest.raises(HalError) as caught:
            take(2 * page + 1)
        assert caught.value.status == ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT
        held = [take(2 * page), take(page)]
        with pytest.raises(HalError) as caught:
            take(1)
        assert caught.value.status == ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
        held.clear()
        assert context.accounts.stats.allocated_bytes == 0


def test_idle_memory_of_others_makes_room(device: Device) -> None:
    rows = 2**10
    size = rows * ROW_BYTES
    device.profile = replace(device.profile, global_mem_bytes=5 * size)
    models = [prepare(device, doubling(rows)) for _ in range(3)]
    for seed in range(6):
        run_doubling(models[seed % 3], rows, seed)
    assert memory_of(device).peak_bytes <= 5 * size


def test_idle_memory_makes_room_where_the_driver_has_none(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """It knows better than the sizes that it told."""
    prepared = prepare(device, doubling(8))
    run_doubling(prepared, 8)
    whole = DeviceContext._new_handle

    def full(self: DeviceContext, content: int) -> cl.Buffer:
        if memory_of(device).allocated_bytes > CONSTANT_BYTES:
            raise opencl_error(cl.status_code.MEM_OBJECT_ALLOCATION_FAILURE)
        return whole(self, content)

    monkeypatch.setattr(context_module.DeviceContext, "_new_handle", full)
    assert device.context().allocate(100).size_bytes == 100


@pytest.mark.parametrize("is_bound", [False, True])
def test_executions_at_once_take_turns_where_there_is_no_room_for_all(device: Device, is_bound: bool) -> None:
    """Of a model that needs 3 MiB on a device of 4: each might hold a part for which the others wait."""
    rows = 2**14
    device.profile = replace(device.profile, global_mem_bytes=9 * 2**19)
    prepared = prepare(device, doubling(rows))

    def work(seed: int) -> None:
        room = np.zeros(rows * 16 + 1, np.float32)[1:]  # is not used in place
        source, result = room.reshape(rows, 16), np.zeros_like(room.reshape(rows, 16))
        source[:] = seed
        asked = request([source], [result])
        bound = prepared.create_reusable_execution(asked, False, None) if is_bound else None
        for _ in range(8):
            result[:] = 0
            if bound is not None:
                bound.execute_synchronously(None)
            else:
                run(prepared, asked)
            assert (result == 2 * seed).all()

    assert at_once([partial(work, seed) for seed in range(5)]) == []
    assert memory_of(device).peak_bytes <= device.profile.global_mem_bytes
    prepared.close()
    gc.collect()
    assert memory_of(device).allocated_bytes == 0


def test_what_is_in_use_cannot_make_room(device: Device) -> None:
    device.profile = replace(device.profile, global_mem_bytes=1000)
    context = device.context()
    held = context.allocate(600)
    with pytest.raises(HalError) as caught:
        context.allocate(600)
    assert caught.value.status == ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
    assert str(caught.value) == "needs 600 bytes, 600 bytes of 1000 bytes are in use"
    del held
    assert context.allocate(600).size_bytes == 600


@pytest.mark.parametrize("at", range(3))
@pytest.mark.parametrize(
    "code",
    [
        cl.status_code.MEM_OBJECT_ALLOCATION_FAILURE,
        cl.status_code.OUT_OF_RESOURCES,
        cl.status_code.OUT_OF_HOST_MEMORY,
    ],
)
def test_a_failed_allocation_is_an_error_and_the_next_run_is_right(
    device: Device, monkeypatch: pytest.MonkeyPatch, code: int, at: int
) -> None:
    """Input, arena and output, each failing in turn, and again after idle memory was given back."""
    prepared = prepare(device, doubling(8))
    whole = DeviceContext._new_handle
    asked: list[int] = []

    def failing(self: DeviceContext, content: int) -> cl.Buffer:
        asked.append(content)
        if len(asked) > at:
            raise opencl_error(code)
        return whole(self, content)

    monkeypatch.setattr(context_module.DeviceContext, "_new_handle", failing)
    with pytest.raises(HalError) as caught:
        run_doubling(prepared, 8)
    assert caught.value.status == ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
    assert len(asked) == at + 2
    monkeypatch.undo()
    run_doubling(prepared, 8)
    assert memory_of(device).allocated_bytes == CONSTANT_BYTES + 3 * 8 * ROW_BYTES


def test_memory_that_fails_at_its_first_use_is_an_error_too(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some drivers take memory only when a command needs it."""
    prepared = prepare(device, doubling(8))

    def failing(*arguments: object) -> NoReturn:
        raise opencl_error(cl.status_code.MEM_OBJECT_ALLOCATION_FAILURE)

    monkeypatch.setattr(cl, "enqueue_nd_range_kernel", failing)
    with pytest.raises(HalError, match="operation 0") as caught:
        run_doubling(prepared, 8)
    assert caught.value.status == ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
    monkeypatch.setattr(cl, "enqueue_nd_range_kernel", _raise_invalid)
    with pytest.raises(HalError) as caught:
        run_doubling(prepared, 8)
    assert caught.value.status == ErrorStatus.GENERAL_FAILURE
    monkeypatch.undo()
    run_doubling(prepared, 8)


def _raise_invalid(*arguments: object) -> NoReturn:
    raise opencl_error(cl.status_code.INVALID_KERNEL_ARGS)


def test_a_failed_allocation_of_a_constant_is_an_error(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(self: DeviceContext, content: object) -> NoReturn:
        raise opencl_error(cl.status_code.OUT_OF_RESOURCES)

    monkeypatch.setattr(context_module.DeviceContext, "_new_handle", failing)
    with pytest.raises(HalError) as caught:
        prepare(device, doubling(8))
    assert caught.value.status == ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
    monkeypatch.undo()
    run_doubling(prepare(device, doubling(8)), 8)


def test_memory_of_zeros_takes_the_place_of_idle_memory(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the first attempt fails."""
    context, whole, failures = device.context(), cl.Buffer, iter([cl.status_code.MEM_OBJECT_ALLOCATION_FAILURE])

    def failing(*arguments: object, **options: object) -> cl.Buffer:
        code = next(failures, None)
        if code is not None:
            raise opencl_error(code)
        return whole(*arguments, **options)

    monkeypatch.setattr(cl, "Buffer", failing)
    buffer, seen = context.zeros(64)
    monkeypatch.undo()
    if seen is None:
        seen = np.ones(64, np.uint8)
        buffer.read(context.queue, seen).wait()
    assert not seen.any()
    assert list(failures) == []
