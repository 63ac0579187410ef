# SPDX-License-Identifier: Apache-2.0
"""Burst packets of HAL 1.2 (AOSP VTS ValidateBurst; HAL utils ExecutionBurst tests)."""

from __future__ import annotations

import contextlib
import gc
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import FeatureLevel
from nn_runtime.hal.memory import SharedMemory
from nn_runtime.hal.types import (
    BufferToken,
    DataLocation,
    ErrorStatus,
    ExecutionPreference,
    HalError,
    OutputShape,
    Priority,
    Request,
    RequestArgument,
    Timing,
)
from nn_runtime.hal.versions import v1_2
from nn_runtime.hal.versions.burst import BurstClient, BurstServer
from nn_runtime.hal.versions.channel import Channel
from nn_runtime.hal.versions.packets import (
    RECORD_BYTES,
    BadPacket,
    deserialize_request,
    deserialize_result,
    serialize_request,
    serialize_result,
)
from nn_runtime.testing.aosp_samples import fake
from tests.nn_runtime.hal.models import add_model, request

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nn_runtime.hal.versions.adapted_model import AdaptedPreparedModel
    from nn_runtime.testing.aosp_samples import Fake

REQUEST = Request(
    (RequestArgument(location=DataLocation(0, 0, 16), dimensions=(2, 2)), RequestArgument(has_no_value=True)),
    (RequestArgument(location=DataLocation(1, 64, 16)),),
)
PACKET = serialize_request(REQUEST, True, [7, 8])
RESULT = serialize_result(0, (OutputShape((2, 2)), OutputShape((0,), False)), v1_2.Timing(5, 9))


def prepared_on(one: Fake, dims: tuple[int, ...] = (2, 2)) -> AdaptedPreparedModel:
    model = add_model((2, 2), dims)
    return one.device.prepare_model(model, ExecutionPreference.FAST_SINGLE_ANSWER, Priority.MEDIUM, None, None)


@pytest.fixture
def device() -> Fake:
    return fake("bursting", FeatureLevel.HAL_1_2)


@pytest.fixture
def client(device: Fake) -> BurstClient:
    burst = prepared_on(device).configure_execution_burst()
    assert isinstance(burst, BurstClient)
    return burst


def arrays() -> tuple[list[np.ndarray], np.ndarray]:
    a = np.arange(4, dtype=np.float32).reshape(2, 2)
    return [a, a + 1], np.zeros((2, 2), np.float32)


def test_packets_survive_the_way() -> None:
    assert deserialize_request(PACKET) == (REQUEST, True, [7, 8])
    status, shapes, timing = deserialize_result(RESULT)
    assert (status, shapes) == (0, (OutputShape((2, 2)), OutputShape((0,), False)))
    assert timing == v1_2.Timing(5, 9)


def test_bytes_that_carry_nothing_are_zero() -> None:
    assert {len(record) for record in (*PACKET, *RESULT)} == {RECORD_BYTES}
    timing = PACKET[-1]
    assert timing[0] == 6
    assert not any(timing[12:])
    omitted = next(record for record in PACKET if record[0] == 1 and record[8] == 1)
    assert not any(omitted[9:])


PRESETS = [*PACKET, *RESULT, serialize_request(Request((), ()), False, [1])[1], bytes(RECORD_BYTES), b"", b"\xff" * 32]


def broken(packet: Sequence[bytes]) -> list[tuple[str, list[bytes]]]:
    """Every packet with a record removed, a preset one added, or one replaced by another kind."""
    found = []
    for at, record in enumerate(packet):
        found.append((f"without {at}", [*packet[:at], *packet[at + 1 :]]))
        for number, preset in enumerate(PRESETS):
            if preset[:1] != record[:1]:
                found.append((f"{number} in place of {at}", [*packet[:at], preset, *packet[at + 1 :]]))
    for at in range(len(packet) + 1):
        found += [(f"{n} before {at}", [*packet[:at], preset, *packet[at:]]) for n, preset in enumerate(PRESETS)]
    for at, record in enumerate(packet):
        for byte in (1, 4, 7, 30, 31):
            damaged = bytearray(record)
            damaged[byte] ^= 0x80
            found.append((f"byte {byte} of {at}", [*packet[:at], bytes(damaged), *packet[at + 1 :]]))
    return found


@pytest.mark.parametrize("packet", [[], [b""], [PACKET[0]], [PACKET[0]] * 4, PACKET + PACKET])
def test_nonsense_is_no_request(packet: list[bytes]) -> None:
    with pytest.raises(BadPacket):
        deserialize_request(packet)


def test_any_altered_datum_of_a_request_is_an_error() -> None:
    for name, packet in broken(PACKET):
        if name.startswith("byte"):  # a number may become another number
            continue
        with pytest.raises(BadPacket):
            deserialize_request(packet)


def test_damaged_bytes_never_crash() -> None:
    for packet, read in ((PACKET, deserialize_request), (RESULT, deserialize_result)):
        for name, damaged in broken(packet):
            if name.startswith("byte"):
                with contextlib.suppress(BadPacket):
                    read(damaged)
            if name.startswith(("byte 1 ", "byte 4 ", "byte 7 ")):
                with pytest.raises(BadPacket):
                    read(damaged)


def test_any_altered_datum_of_a_result_is_an_error() -> None:
    for name, packet in broken(RESULT):
        if name.startswith("byte"):
            continue
        with pytest.raises(BadPacket):
            deserialize_result(packet)


class OneSided:
    """The driver's end of a burst, and the channels as a client holds them."""

    def __init__(self, device: Fake, results: int = 1024, answers: bool = True) -> None:
        self.requests, self.results = Channel(), Channel(results)
        self.pool = SharedMemory.create(192)
        self.asked: list[list[int]] = []
        self.answers = answers
        inner = device.sample.prepare_model(
            add_model(), ExecutionPreference.FAST_SINGLE_ANSWER, Priority.MEDIUM, None, None
        )
        self.server = BurstServer(inner, self, self.requests, self.results)

    def get_memories(self, slots: Sequence[int]) -> tuple[int, Sequence[SharedMemory]]:
        self.asked.append(list(slots))
        if not self.answers or list(slots) != [3]:
            return ErrorStatus.INVALID_ARGUMENT, ()
        return ErrorStatus.NONE, [self.pool]

    def call(self, packet: list[bytes]) -> tuple[int, tuple[OutputShape, ...], v1_2.Timing] | None:
        assert self.requests.write(packet)
        answer = self.results.read()
        return None if answer is None else deserialize_result(answer)


def good_packet(slot: int = 3) -> list[bytes]:
    arguments = [RequestArgument(location=DataLocation(0, offset, 16)) for offset in (0, 64, 128)]
    return serialize_request(Request(tuple(arguments[:2]), tuple(arguments[2:])), False, [slot])


def test_the_drivers_end_answers_bad_packets_with_an_error(device: Fake) -> None:
    side = OneSided(device)
    for name, packet in broken(good_packet())[::3]:
        if not packet or name.startswith("byte"):
            continue
        reply = side.call(packet)
        assert reply is not None
        assert reply[0] != ErrorStatus.NONE, name
        assert reply[1:] == ((), v1_2.Timing()), name
    reply = side.call(good_packet())
    assert reply is not None
    assert reply[0] == ErrorStatus.NONE
    side.server.close()


def test_unknown_slots_are_asked_for_once(device: Fake) -> None:
    side = OneSided(device)
    for _ in range(3):
        reply = side.call(good_packet())
        assert reply is not None
        assert reply[0] == ErrorStatus.NONE
    assert side.asked == [[3]]
    side.server.free_memory(3)
    side.call(good_packet())
    assert side.asked == [[3], [3]]
    reply = side.call(good_packet(4))
    assert reply is not None
    assert reply[0] == ErrorStatus.INVALID_ARGUMENT
    side.server.close()


def test_too_few_memories_in_a_reply_are_none(device: Fake) -> None:
    side = OneSided(device)
    side.get_memories = lambda _slots: (ErrorStatus.NONE, [])  # type: ignore[method-assign]
    reply = side.call(good_packet())
    assert reply is not None
    assert reply[0] == ErrorStatus.INVALID_ARGUMENT
    side.server.close()


def test_shapes_go_with_insufficient_sizes_alone(device: Fake) -> None:
    side = OneSided(device)
    shapes = device.sample.script.output_shapes = (OutputShape((4, 4), False),)
    for status, wanted in ((ErrorStatus.OUTPUT_INSUFFICIENT_SIZE, shapes), (ErrorStatus.GENERAL_FAILURE, ())):
        device.sample.script.execute = status
        assert side.call(good_packet()) == (status, wanted, v1_2.Timing())
    side.server.close()


@pytest.mark.parametrize(
    ("length", "status"), [(5, ErrorStatus.NONE), (4, ErrorStatus.GENERAL_FAILURE), (2, ErrorStatus.GENERAL_FAILURE)]
)
def test_a_result_that_does_not_fit_is_an_error_and_no_hang(device: Fake, length: int, status: int) -> None:
    side = OneSided(device, results=length)
    reply = side.call(good_packet())
    assert reply is not None
    assert reply[0] == status
    assert (reply[1] == ()) == (status != ErrorStatus.NONE)
    side.server.close()


def test_a_channel_that_takes_no_result_at_all_is_closed(device: Fake) -> None:
    side = OneSided(device, results=1)
    assert side.call(good_packet()) is None
    side.server.close()


def test_requests_go_through_the_channel(device: Fake, client: BurstClient) -> None:
    inputs, output = arrays()
    once = request(inputs, [output])
    for n in range(3):
        client.execute(once, False, None, None)
        np.testing.assert_array_equal(output, inputs[0] + inputs[1])
        assert client.packets == n + 1
    client.close()


def test_what_a_packet_cannot_say_is_executed_as_usual(device: Fake, client: BurstClient) -> None:
    inputs, output = arrays()
    for deadline, timeout in ((2**62, None), (None, 10**9)):
        client.execute(request(inputs, [output]), False, deadline, timeout)
        np.testing.assert_array_equal(output, inputs[0] + inputs[1])
    assert client.packets == 0
    tokens = Request(
        tuple(RequestArgument(location=DataLocation(0)) for _ in range(2)),
        (RequestArgument(location=DataLocation(1)),),
        (BufferToken(1), BufferToken(2)),
    )
    with pytest.raises(HalError, match="needs HAL_1_3"):
        client.execute(tokens, False, None, None)
    client.close()


def test_a_packet_that_does_not_fit_is_executed_as_usual(device: Fake) -> None:
    prepared = prepared_on(device)
    burst = BurstClient(prepared, prepared._driver, length=4)  # type: ignore[arg-type]
    inputs, output = arrays()
    burst.execute(request(inputs, [output]), False, None, None)
    assert burst.packets == 0
    np.testing.assert_array_equal(output, inputs[0] + inputs[1])
    burst.close()


def test_errors_of_the_driver_come_through(device: Fake, client: BurstClient) -> None:
    inputs, output = arrays()
    for status in (ErrorStatus.DEVICE_UNAVAILABLE, ErrorStatus.GENERAL_FAILURE, ErrorStatus.INVALID_ARGUMENT):
        device.sample.script.execute = status
        with pytest.raises(HalError) as caught:
            client.execute(request(inputs, [output]), True, None, None)
        assert caught.value.status == status
    device.sample.script.execute = None
    device.sample.script.timing = Timing(5_000, 6_000)
    assert client.execute(request(inputs, [output]), True, None, None).timing == Timing(5_000, 6_000)
    client.close()


def test_the_answer_to_an_interrupted_request_is_nobody_elses(
    device: Fake, client: BurstClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver answers it with an error, the next one well."""
    inputs, output = arrays()
    read, write, mine = Channel.read, Channel.write, threading.current_thread()
    answered = threading.Event()

    def noted(channel: Channel, packet: Sequence[bytes]) -> bool:
        written = write(channel, packet)
        if threading.current_thread() is not mine:
            answered.set()
        return written

    def interrupted(channel: Channel) -> list[bytes] | None:
        if threading.current_thread() is not mine:
            return read(channel)
        assert answered.wait(30)
        raise KeyboardInterrupt

    device.sample.script.execute = ErrorStatus.GENERAL_FAILURE
    with monkeypatch.context() as patched:
        patched.setattr(Channel, "write", noted)
        patched.setattr(Channel, "read", interrupted)
        with pytest.raises(KeyboardInterrupt):
            client.execute(request(inputs, [output]), False, None, None)
    device.sample.script.execute = None
    client.execute(request(inputs, [output]), False, None, None)
    np.testing.assert_array_equal(output, inputs[0] + inputs[1])
    client.close()


def test_shapes_come_through(device: Fake) -> None:
    burst = prepared_on(device, (0, 2)).configure_execution_burst()
    inputs, output = arrays()
    assert burst.execute(request(inputs, [output]), False, None, None).output_shapes == (OutputShape((2, 2)),)
    with pytest.raises(HalError) as caught:
        burst.execute(request(inputs, [np.zeros((1, 2), np.float32)]), False, None, None)
    assert caught.value.status == ErrorStatus.OUTPUT_INSUFFICIENT_SIZE
    assert caught.value.output_shapes == (OutputShape((2, 2), False),)
    burst.close()


def test_memory_may_go_before_the_burst_and_the_reverse(device: Fake, client: BurstClient) -> None:
    pool = SharedMemory.create(192)
    arguments = [RequestArgument(location=DataLocation(0, offset, 16)) for offset in (0, 64, 128)]
    shared = Request(tuple(arguments[:2]), tuple(arguments[2:]), (pool,))
    pool.array()[:16].view(np.float32)[:] = 2
    client.execute(shared, False, None, None)
    np.testing.assert_array_equal(pool.array()[128:144].view(np.float32), 2)
    assert client._memories._slots
    client.free_memory(pool)
    assert not client._memories._slots
    client.execute(shared, False, None, None)
    server = client._context
    assert isinstance(server, BurstServer)
    assert list(server._memories) == [1]
    device.sample.record.requests.clear()
    del shared, pool
    gc.collect()
    assert not client._memories._slots
    assert not server._memories
    client.close()


def test_the_drivers_end_of_a_burst_that_nobody_has_any_more_stops(device: Fake) -> None:
    burst = prepared_on(device).configure_execution_burst()
    assert isinstance(burst, BurstClient)
    server = burst._context
    assert isinstance(server, BurstServer)
    thread = server._thread
    del burst, server
    gc.collect()
    thread.join(60)
    assert not thread.is_alive()


def test_a_closed_burst_executes_as_usual(client: BurstClient) -> None:
    """As AOSP's ExecutionBurstController does where a packet cannot be sent."""
    client.close()
    inputs, output = arrays()
    client.execute(request(inputs, [output]), False, None, None)
    np.testing.assert_array_equal(output, inputs[0] + inputs[1])
    assert client.packets == 0


def test_requests_of_several_threads_do_not_mix(client: BurstClient) -> None:
    failures: list[str] = []

    def work(factor: int) -> None:
        a = np.full((2, 2), factor, np.float32)
        output = np.zeros((2, 2), np.float32)
        for _ in range(20):
            client.execute(request([a, a], [output]), False, None, None)
            if not (output == 2 * factor).all():
                failures.append(str(output))

    run_all([lambda n=n: work(n) for n in range(1, 5)])  # type: ignore[misc]
    assert not failures
    client.close()


def run_all(tasks: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=task) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
