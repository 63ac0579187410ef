# SPDX-License-Identifier: Apache-2.0
"""Memory domains on the device: what moves, and what they are kept by."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FuseCode, OperationCode
from nn_runtime.hal.memory import SharedMemory
from nn_runtime.hal.types import BufferDesc, BufferRole, BufferToken, DataLocation, Model, Request, RequestArgument
from tests.gpu_driver.graphs import Graph, request
from tests.gpu_driver.running import doubling, filled, memory_of, on_buffers, prepare, run, run_doubling

if TYPE_CHECKING:
    from gpu_driver.driver import Device

ROLE = [BufferRole(0, 0, 1.0)]


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
