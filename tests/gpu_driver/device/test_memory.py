# SPDX-License-Identifier: Apache-2.0
"""Bytes on the device and bytes moved: counted to the last one, given back, and errors where they do not fit."""

from __future__ import annotations

import gc
import random
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import pyopencl as cl
import pytest

from gpu_driver.device import context as context_module
from gpu_driver.device.context import DeviceContext
from gpu_driver.device.device_memory import DeviceBuffer, MemoryStats
from gpu_driver.execution.compiled_graph import MAX_SEGMENTS
from gpu_driver.kernel import Packed
from gpu_driver.launch import Launch
from gpu_driver.preparation import Preparation
from gpu_driver.prepared_model import PreparedModel
from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.hal.buffers import BufferRegistry, ManagedBuffer
from nn_runtime.hal.memory import SharedMemory
from nn_runtime.hal.types import (
    BufferDesc,
    BufferRole,
    BufferToken,
    DataLocation,
    ErrorStatus,
    HalError,
    Model,
    Request,
    RequestArgument,
)
from tests.gpu_driver.drawn import inverted_residuals
from tests.gpu_driver.graphs import Graph, request
from tests.gpu_driver.running import (
    at_once,
    doubling,
    filled,
    fresh,
    memory_of,
    on_buffers,
    prepare,
    run,
    run_doubling,
    run_times,
    transposing,
    until,
)

if TYPE_CHECKING:
    from gpu_driver.device.storage import DeviceStorage
    from gpu_driver.driver import Device

ROLE = [BufferRole(0, 0, 1.0)]
ROW_BYTES = 16 * 4
CONSTANT_BYTES = 16 * 4
"""Bytes of the constant of `doubling`."""


@pytest.fixture
def device(opencl_device: Device) -> Device:
    """The device under test, with counts of its own."""
    return fresh(opencl_device)


def opencl_error(code: int) -> cl.Error:
    kind = cl.MemoryError if code == cl.status_code.MEM_OBJECT_ALLOCATION_FAILURE else cl.RuntimeError
    return kind(cl._cl._ErrorRecord("made up", code, "clTest"))


# Counting


def test_every_byte_is_counted(device: Device) -> None:
    rows = 10
    size = rows * ROW_BYTES
    prepared = prepare(device, doubling(rows))
    # Preparation keeps the constants alone, whether it had to warm programs or not.
    assert memory_of(device).allocated_bytes == CONSTANT_BYTES
    assert memory_of(device).written_bytes == CONSTANT_BYTES
    for runs in (1, 2, 3):
        run_doubling(prepared, rows)
        stats = memory_of(device)
        assert stats.allocated_bytes == CONSTANT_BYTES + 3 * size  # input, temporary, output
        assert (stats.written_bytes, stats.read_bytes) == (CONSTANT_BYTES + runs * size, runs * size)
    prepared.close()
    del prepared
    gc.collect()
    stats = memory_of(device)
    assert stats == MemoryStats(0, CONSTANT_BYTES + 3 * size, CONSTANT_BYTES + 3 * size, 3 * size)


def test_statistics_of_a_device(device: Device) -> None:
    assert device.statistics() == {}
    run_doubling(prepare(device, doubling(4)), 4)
    statistics = device.statistics()
    assert list(statistics) == [
        "programs_built", "programs_loaded", "programs_shared", "programs_stored", "build_seconds", "load_seconds",
        "models_from_cache", "models_saved", "allocated_bytes", "peak_bytes", "written_bytes", "read_bytes",
    ]  # fmt: skip
    assert statistics["programs_built"] + statistics["programs_loaded"] >= 1
    assert statistics["read_bytes"] == 4 * ROW_BYTES


def test_equal_constants_are_kept_once(device: Device) -> None:
    context = device.context()
    data = np.arange(300, dtype=np.float32)
    first = context.constant(Packed(data))
    assert context.constant(Packed(data[:200], data[200:])) is first
    assert memory_of(device) == MemoryStats(1200, 1200, 1200, 0)
    del first
    assert memory_of(device).allocated_bytes == 0


def test_parts_of_a_constant_lie_one_after_the_other(device: Device) -> None:
    context = device.context()
    parts = np.arange(5, dtype=np.float32), np.zeros(0, np.int32), np.arange(12, dtype=np.uint8).reshape(3, 4).T
    buffer = context.constant(Packed(*parts))
    back = np.empty(32, np.uint8)
    buffer.read(context.queue, back).wait()
    assert back.tobytes() == b"".join(part.tobytes() for part in parts)


def test_the_host_forgets_constants_that_the_device_has(device: Device) -> None:
    prepared = prepare(device, inverted_residuals(OperandCode.TENSOR_FLOAT32).graph.model())
    static = prepared._graph.static
    assert static is not None
    launches = [command for command in static.segment.commands if isinstance(command, Launch)]
    packed = [one for launch in launches for one in launch.arguments if isinstance(one, Packed)]
    assert packed or not device.profile.builds_chains
    assert sum(one.size_bytes for one in packed) == 0
    assert not any(launch.steps for launch in launches)


def test_transfers_of_memory_domains_are_counted(device: Device) -> None:
    prepared = prepare(device, doubling(4))
    before = memory_of(device)
    buffer, _ = device.allocate(BufferDesc(), [prepared], ROLE, ROLE)
    data = np.arange(64, dtype=np.float32)
    buffer.copy_from(filled(data), ())
    back = SharedMemory.create(256)
    buffer.copy_to(back)
    assert np.array_equal(back.array().view(np.float32), data)
    after = memory_of(device)
    assert after.allocated_bytes - before.allocated_bytes == 256
    assert (after.written_bytes - before.written_bytes, after.read_bytes - before.read_bytes) == (256, 256)
    buffer.close()
    assert memory_of(device).allocated_bytes == before.allocated_bytes


def test_a_closed_memory_domain_is_not_kept_by_models_that_used_it(device: Device) -> None:
    prepared = prepare(device, doubling(4))
    first, first_token = device.allocate(BufferDesc(), [prepared], ROLE, ROLE)
    second, second_token = device.allocate(BufferDesc(), [prepared], ROLE, ROLE)
    first.copy_from(filled(np.ones(64, np.float32)), ())
    run(prepared, on_buffers(first_token, second_token))
    before = memory_of(device).allocated_bytes
    first.close()
    second.close()
    assert memory_of(device).allocated_bytes == before - 2 * 256
    run_doubling(prepared, 4)


def cell(size: int) -> Model:
    """A step of a recurrent network: (input, state) -> (output, next state), all [1, size]."""
    generator = np.random.default_rng(3)
    graph = Graph()
    source, state = graph.input((1, size)), graph.input((1, size))
    output, following = graph.output((1, size)), graph.output((1, size))
    none = graph.integer(FuseCode.NONE)

    def dense(of: int, to: int) -> None:
        weights = generator.standard_normal((size, size)).astype(np.float32) / size
        bias = graph.constant(np.zeros(size, np.float32))
        graph.operation(OperationCode.FULLY_CONNECTED, [of, graph.constant(weights), bias, none], to)

    seen, kept, mixed = graph.temporary((1, size)), graph.temporary((1, size)), graph.temporary((1, size))
    dense(source, seen)
    dense(state, kept)
    graph.operation(OperationCode.ADD, [seen, kept, none], mixed)
    graph.operation(OperationCode.TANH, [mixed], following)
    dense(following, output)
    return graph.model()


def lstm(input_size: int, units: int) -> Model:
    """One LSTM step: (input, output state, cell state) -> (output, next output state, next cell state)."""
    generator = np.random.default_rng(5)
    graph = Graph()
    source = graph.input((1, 1, input_size))
    states = graph.input((1, units)), graph.input((1, units))
    output, following = graph.output((1, 1, units)), (graph.output((1, units)), graph.output((1, units)))

    def weights(*dims: int) -> int:
        return graph.constant(generator.standard_normal(dims).astype(np.float32) / np.float32(units))

    inputs = [weights(units, input_size) for _ in range(4)]
    recurrent = [weights(units, units) for _ in range(4)]
    biases = [weights(units) for _ in range(4)]
    peepholes = [graph.omitted() for _ in range(3)]
    projection = [graph.omitted() for _ in range(2)]
    norms = [graph.omitted() for _ in range(4)]
    scalars = [graph.integer(4), graph.real(0.0), graph.real(0.0), graph.flag(False)]
    graph.operation(
        OperationCode.UNIDIRECTIONAL_SEQUENCE_LSTM,
        [source, *inputs, *recurrent, *peepholes, *biases, *projection, *states, *scalars, *norms],
        output,
        *following,
    )
    return graph.model()


def pointer(array: np.ndarray) -> RequestArgument:
    return RequestArgument(location=DataLocation(length=array.nbytes, pointer=array))


def test_a_chain_with_its_state_in_memory_domains_moves_input_and_output_alone(device: Device) -> None:
    size, steps = 24, 100
    prepared = prepare(device, cell(size))
    inputs = np.random.default_rng(4).standard_normal((steps, 1, size)).astype(np.float32)

    state, following = np.zeros((1, size), np.float32), np.zeros((1, size), np.float32)
    expected = np.empty((steps, 1, size), np.float32)
    for step in range(steps):
        run(prepared, request([inputs[step], state], [expected[step], following]))
        state, following = following, state

    roles = [BufferRole(0, 1, 1.0)]
    buffers = [device.allocate(BufferDesc(), [prepared], roles, roles) for _ in range(2)]
    buffers[0][0].copy_from(filled(np.zeros((1, size), np.float32)), ())
    before = memory_of(device)
    results = np.empty((steps, 1, size), np.float32)
    in_pool = RequestArgument(location=DataLocation(pool_index=0)), RequestArgument(location=DataLocation(pool_index=1))
    for step in range(steps):
        tokens = tuple(BufferToken(buffers[(step + turn) % 2][1]) for turn in range(2))
        arguments = (pointer(inputs[step]), in_pool[0]), (pointer(results[step]), in_pool[1])
        run(prepared, Request(*arguments, tokens))
    after = memory_of(device)

    assert np.array_equal(results, expected)
    assert after.written_bytes - before.written_bytes == inputs.nbytes
    assert after.read_bytes - before.read_bytes == results.nbytes
    assert after.allocated_bytes == before.allocated_bytes


def test_an_lstm_keeps_its_states_on_the_device(device: Device) -> None:
    """A hundred steps with both states in memory domains: the results of host memory, no byte of state moved."""
    input_size, units, steps = 7, 20, 100
    prepared = prepare(device, lstm(input_size, units))
    inputs = np.random.default_rng(6).standard_normal((steps, 1, 1, input_size)).astype(np.float32)
    expected = np.empty((steps, 1, 1, units), np.float32)
    old, new = ([np.zeros((1, units), np.float32) for _ in range(2)] for _ in range(2))
    for step in range(steps):
        run(prepared, request([inputs[step], *old], [expected[step], *new]))
        old, new = new, old

    roles = [[BufferRole(0, 1 + state, 1.0)] for state in range(2)]
    buffers = [[device.allocate(BufferDesc(), [prepared], role, role) for role in roles] for _ in range(2)]
    for buffer, _ in buffers[0]:
        buffer.copy_from(filled(np.zeros((1, units), np.float32)), ())
    before = memory_of(device)
    results = np.empty_like(expected)
    pools = [RequestArgument(location=DataLocation(pool_index=i)) for i in range(4)]
    for step in range(steps):
        tokens = tuple(BufferToken(token) for turn in range(2) for _, token in buffers[(step + turn) % 2])
        run(prepared, Request((pointer(inputs[step]), *pools[:2]), (pointer(results[step]), *pools[2:]), tokens))
    after = memory_of(device)

    assert np.array_equal(results, expected)
    assert after.written_bytes - before.written_bytes == inputs.nbytes
    assert after.read_bytes - before.read_bytes == results.nbytes


# Giving back


def test_the_watchdog_gives_memory_back_after_idleness(opencl_device: Device) -> None:
    context = DeviceContext(opencl_device._found.device, opencl_device.profile, idle_seconds=0.02)
    prepared = PreparedModel(context, doubling(10), BufferRegistry(lambda prepared: None), Preparation())
    for seed in range(3):
        run_doubling(prepared, 10, seed)
        until(lambda: context.accounts.stats.allocated_bytes == CONSTANT_BYTES)
    assert context.accounts.stats.peak_bytes == CONSTANT_BYTES + 3 * 10 * ROW_BYTES


def test_memory_used_lately_is_kept(device: Device) -> None:
    prepared = prepare(device, doubling(4))
    before = time.monotonic()
    run_doubling(prepared, 4)
    held = memory_of(device).allocated_bytes
    assert prepared.release_idle(before)
    assert memory_of(device).allocated_bytes == held
    assert not prepared.release_idle(time.monotonic() + 1)
    assert memory_of(device).allocated_bytes == CONSTANT_BYTES
    run_doubling(prepared, 4)


class Crowd:
    """Models and memory domains that come and go."""

    def __init__(self, device: Device, seed: int) -> None:
        self._device = device
        self._random = random.Random(seed)
        self.models: list[tuple[int, PreparedModel]] = []
        self.buffers: list[ManagedBuffer[DeviceStorage]] = []

    def prepare(self) -> None:
        rows = self._random.randrange(1, 9)
        self.models.append((rows, prepare(self._device, doubling(rows))))

    def run(self) -> None:
        rows, prepared = self._random.choice(self.models)
        run_doubling(prepared, rows)

    def allocate(self) -> None:
        _, prepared = self._random.choice(self.models)
        buffer, _ = self._device.allocate(BufferDesc(), [prepared], ROLE, ROLE)
        assert isinstance(buffer, ManagedBuffer)
        self.buffers.append(buffer)

    def drop_model(self) -> None:
        _, prepared = self.models.pop(self._random.randrange(len(self.models)))
        if self._random.random() < 0.5:
            prepared.close()

    def drop_buffer(self) -> None:
        if self.buffers:
            buffer = self.buffers.pop(self._random.randrange(len(self.buffers)))
            if self._random.random() < 0.5:
                buffer.close()

    def live(self, steps: int) -> None:
        for _ in range(steps):
            if not self.models or self._random.random() < 0.3:
                self.prepare()
            self._random.choice([self.run, self.run, self.allocate, self.drop_model, self.drop_buffer])()

    def leave(self) -> None:
        while self.models or self.buffers:
            if self.models:
                self.drop_model()
            self.drop_buffer()


@pytest.mark.parametrize("seed", range(6))
def test_no_byte_is_left_in_whatever_order_models_come_and_go(device: Device, seed: int) -> None:
    crowd = Crowd(device, seed)
    crowd.live(60)
    assert memory_of(device).allocated_bytes > 0
    crowd.leave()
    gc.collect()
    assert memory_of(device).allocated_bytes == 0


def test_segments_that_left_the_cache_leave_nothing(device: Device) -> None:
    prepared = prepare(device, transposing())

    def turn(rows: int) -> None:
        source = np.random.default_rng(rows).standard_normal((rows, 3)).astype(np.float32)
        result = np.empty((3, rows), np.float32)
        run(prepared, request([source], [result]))
        assert np.array_equal(result, source.T)

    largest = 2 * MAX_SEGMENTS + 5
    for rows in range(1, largest + 1):
        turn(rows)
    turn(1)
    (context,) = prepared._idle
    assert set(context._segments) == prepared._graph.segments
    assert len(context._segments) == MAX_SEGMENTS
    gc.collect()
    assert memory_of(device).allocated_bytes == 2 * largest * 3 * 4


def test_memory_grows_without_the_old_beside_the_new(device: Device) -> None:
    graph = Graph()
    source, between, output = graph.input((0, 16)), graph.temporary((0, 16)), graph.output((0, 16))
    graph.operation(OperationCode.ADD, [source, source, graph.integer(FuseCode.NONE)], between)
    graph.operation(OperationCode.ADD, [between, between, graph.integer(FuseCode.NONE)], output)
    prepared = prepare(device, graph.model())
    run_times(4, prepared, 1)  # warms what is new, in a context of its own
    before = memory_of(device).allocated_bytes
    for rows in (2, 5, 90, 3, 200, 1):
        run_times(4, prepared, rows)
    stats = memory_of(device)
    assert stats.allocated_bytes == stats.peak_bytes == before + 3 * 199 * ROW_BYTES


# What does not fit


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


def test_an_execution_that_ends_after_its_model_was_closed_keeps_no_memory(device: Device) -> None:
    prepared = prepare(device, doubling(10))
    context = prepared.begin()
    context.boundary(0, ROW_BYTES)
    prepared.close()
    assert memory_of(device).allocated_bytes == ROW_BYTES
    prepared.end(context)
    del context
    gc.collect()
    assert memory_of(device).allocated_bytes == 0


def test_temporaries_together_larger_than_a_buffer_lie_in_several(device: Device) -> None:
    """X + x, then x + 2x with both alive: two temporaries at once, of which a buffer holds one."""
    rows = 2**10
    size = rows * ROW_BYTES
    device.profile = replace(device.profile, max_alloc_bytes=size + size // 2)
    graph = Graph()
    source, output = graph.input((rows, 16)), graph.output((rows, 16))
    twice, thrice = graph.temporary((rows, 16)), graph.temporary((rows, 16))
    none = graph.integer(FuseCode.NONE)
    graph.operation(OperationCode.ADD, [source, source, none], twice)
    graph.operation(OperationCode.ADD, [source, twice, none], thrice)
    graph.operation(OperationCode.MUL, [twice, thrice, none], output)
    prepared = prepare(device, graph.model())
    data, result = np.arange(rows * 16, dtype=np.float32).reshape(rows, 16) % 9, np.empty((rows, 16), np.float32)
    run(prepared, request([data], [result]))
    assert np.array_equal(result, 6 * data * data)
    assert memory_of(device).allocated_bytes == 4 * size


def test_idle_memory_of_others_makes_room(device: Device) -> None:
    rows = 2**10
    size = rows * ROW_BYTES
    device.profile = replace(device.profile, global_mem_bytes=5 * size)
    models = [prepare(device, doubling(rows)) for _ in range(3)]
    for seed in range(6):
        run_doubling(models[seed % 3], rows, seed)
    assert memory_of(device).peak_bytes <= 5 * size


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


def test_an_input_that_is_too_short_is_never_filled_up_with_older_data(device: Device) -> None:
    """An array may shrink behind a request that was checked before."""
    graph = Graph()
    source, output = graph.input((4,), OperandCode.TENSOR_FLOAT32), graph.output((4,))
    graph.operation(OperationCode.ADD, [source, source, graph.integer(FuseCode.NONE)], output)
    prepared = prepare(device, graph.model())
    data, result = np.ones(4, np.float32), np.empty(4, np.float32)
    asked = request([data], [result])
    run(prepared, asked)
    data.resize(2, refcheck=False)
    with pytest.raises(HalError) as caught:
        run(prepared, asked)
    assert caught.value.status == ErrorStatus.INVALID_ARGUMENT


def test_buffers_end_with_their_last_reference(device: Device) -> None:
    buffer = device.context().allocate(0)
    assert isinstance(buffer, DeviceBuffer)
    assert memory_of(device).allocated_bytes == 1
    other = buffer
    del buffer
    assert memory_of(device).allocated_bytes == 1
    del other
    assert memory_of(device).allocated_bytes == 0
    held = device.context().allocate(500)
    del held
    held = device.context().allocate(7)
    assert memory_of(device) == MemoryStats(held.size_bytes, 500, 0, 0)


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
