# SPDX-License-Identifier: Apache-2.0
"""Devices whose driver is in another process: what they say, how they are asked for, what goes between."""

from __future__ import annotations

import ast
import errno
import os
import pickle
import socket
import struct
import subprocess
import sys
import textwrap
import threading
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

from nn_runtime.codes import DeviceTypeCode, OperandCode, OperationCode
from nn_runtime.device import Device
from nn_runtime.errors import BadData
from nn_runtime.hal import remote, remote_channel, remote_model, remote_process
from nn_runtime.hal import types as hal
from nn_runtime.hal.fences import FenceStatus, close, wait
from nn_runtime.hal.interfaces import (
    CacheRequest,
    DescribesDevice,
    ExplainsOperations,
    OperationSupport,
    ReportsStatistics,
    TakesCompilationAttributes,
    UnusableDevice,
)
from nn_runtime.hal.memory import PROT_READ, HardwareBuffer, HardwareBufferFormat, HardwareBufferUsage, SharedMemory
from nn_runtime.hal.remote import RemoteDevice, hosted
from nn_runtime.hal.types import (
    DeviceStatus,
    ErrorStatus,
    HalError,
    Priority,
)
from nn_runtime.hal.versions.conversion import without_pointers
from nn_runtime.model import Model
from tests.nn_runtime.descriptors import needs_descriptors, open_descriptors
from tests.nn_runtime.hal.hosted_drivers import DESCRIPTION, SLOW_S
from tests.nn_runtime.hal.models import add_model, request
from tests.nn_runtime.hal.remote_driver import (
    ANSWER_S,
    ENTRY,
    MINE,
    arrays,
    is_running,
    prepare,
    run_script,
    shared_request,
    start,
    status_of,
    unary,
)


def test_queries(shared_device: RemoteDevice) -> None:
    device = shared_device
    assert device.name == "hosted"
    assert device.get_version_string() == "1"
    assert device.get_type() == DeviceTypeCode.OTHER
    assert device.get_status() == DeviceStatus.AVAILABLE
    assert device.get_number_of_cache_files_needed() == (1, 1)
    assert device.get_capabilities().operand_performance[3].exec_time == 0.5
    assert not device.get_supported_extensions()
    assert isinstance(device, DescribesDevice)
    assert device.description() == DESCRIPTION
    assert isinstance(device, ReportsStatistics)
    assert device.statistics() == {"pid": device.service.host().pid}
    assert device.service.host().pid != os.getpid()


def test_several_devices_share_a_process_that_ends_with_the_last() -> None:
    first, second = hosted("tests.nn_runtime.hal.hosted_drivers:plain")
    assert isinstance(first, RemoteDevice)
    assert isinstance(second, RemoteDevice)
    assert first.service is second.service
    assert not isinstance(first, DescribesDevice | ReportsStatistics | TakesCompilationAttributes)
    assert isinstance(first, ExplainsOperations)
    assert list(second.get_supported_operations(add_model())) == [False, True]
    assert second.explain_operations(add_model())[0].reason == "ADD is not on the list"
    pid = first.service.host().pid
    first.close()
    first.close()
    assert is_running(pid)
    second.close()
    assert not is_running(pid)


def test_a_driver_that_gives_no_reasons() -> None:
    device = start("tests.nn_runtime.hal.hosted_drivers:terse")
    assert device.explain_operations(add_model()) == [OperationSupport(False, "not supported"), OperationSupport(True)]
    device.close()


def test_the_driver_knows_the_types_of_extensions_that_a_model_and_its_branches_have() -> None:
    """Each process has its own table of them."""
    device = start("tests.nn_runtime.hal.hosted_drivers:typed")
    codes = [Model().extension_operand_type(Device(device), "com.example.hosted", code) for code in range(3)]
    here, there = (replace(unary(OperationCode.RELU).main, operands=(hal.Operand(code),) * 2) for code in codes[:2])
    (answer,) = device.explain_operations(hal.Model(here, (there,)))
    assert ast.literal_eval(answer.reason) == {codes[0]: (True, 6), codes[1]: (False, 3)}
    device.close()


def test_unusable_and_silent_devices(shared_device: RemoteDevice, caplog: pytest.LogCaptureFixture) -> None:
    offered = hosted(ENTRY)
    assert offered[1] == UnusableDevice("broken", "told so", DESCRIPTION)
    offered[0].close()  # type: ignore[union-attr]
    silent, speaking, nameless = hosted("tests.nn_runtime.hal.hosted_drivers:silent")
    assert speaking.name == "speaking"
    assert silent == UnusableDevice("silent", "it does not answer its queries: OSError: nobody there")
    assert isinstance(nameless, UnusableDevice)
    assert nameless.name == "object"
    assert "silent: it does not answer its queries: OSError: nobody there" in caplog.text
    speaking.close()  # type: ignore[union-attr]


@pytest.mark.parametrize("entry", ["failing", "missing", "exiting", "listless"])
def test_a_driver_that_cannot_be_loaded(entry: str) -> None:
    with pytest.raises(HalError, match="could not be loaded"):
        hosted(f"tests.nn_runtime.hal.hosted_drivers:{entry}")


@pytest.mark.skipif(not hasattr(os, "waitid"), reason="the system does not tell of children")
@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("failing", "could not be loaded: ImportError: no such library"),
        ("dying", "its process ended at once"),
        ("boundless", "does not belong into a message"),
    ],
)
def test_a_driver_that_cannot_be_loaded_leaves_no_process(entry: str, reason: str) -> None:
    code = f"""
        import os
        from nn_runtime.hal.remote import hosted
        from nn_runtime.hal.types import HalError
        try:
            hosted("tests.nn_runtime.hal.hosted_drivers:{entry}")
        except HalError as error:
            print(int(error.status), error)
            kept = error  # and with it what would otherwise end with its last holder
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            print("no child")
    """
    first, last = run_script(code).splitlines()
    assert first.startswith(f"{int(ErrorStatus.GENERAL_FAILURE)} tests.nn_runtime.hal.hosted_drivers:{entry}")
    assert reason in first
    assert last == "no child"


def test_the_setting_hosts_every_driver() -> None:
    code = """
        import numpy as np
        from nn_runtime.device import Device
        from nn_runtime.devices import reference_device
        from nn_runtime.hal.remote import RemoteDevice
        from tests.nn_runtime.graphs import Compilation, OperationCode, chain_model, numbers, run
        device = reference_device()
        assert isinstance(device.hal, RemoteDevice), device.hal
        assert device.name == "nnapi-reference"
        compilation = Compilation(chain_model([OperationCode.RELU]), [device])
        compilation.finish()
        (result,) = run(compilation, [numbers(2, 3)], [(2, 3)])
        assert (result == np.maximum(numbers(2, 3), 0)).all()
    """
    run_script(code, NNRT_DRIVER_HOST="process")


def test_a_hosted_driver_hosts_no_others_and_what_it_says_is_not_lost() -> None:
    code = """
        from nn_runtime.hal.remote import hosted
        (device,) = hosted("tests.nn_runtime.hal.hosted_drivers:talking")
        device.close()
        print(device.get_version_string())
    """
    assert run_script(code, NNRT_DRIVER_HOST="process").splitlines() == ["said by the driver", "unset"]


def test_an_unknown_setting_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from nn_runtime import devices

    monkeypatch.setenv("NNRT_DRIVER_HOST", "thread")
    with pytest.raises(BadData, match="NNRT_DRIVER_HOST"):
        devices._loaded_reference.__wrapped__()


def test_without_descriptor_passing_and_memfd(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on systems that have neither: sockets by port and secret, memory by name."""
    for module in (remote, remote_channel, remote_model, remote_process):
        monkeypatch.setattr(module, "PASSES_DESCRIPTORS", False)
    monkeypatch.delattr(os, "memfd_create", raising=False)
    device = start()
    try:
        prepared = prepare(device, add_model())
        inputs, output = arrays()
        prepared.execute_synchronously(request(inputs, [output]), False, None, None)
        np.testing.assert_array_equal(output, inputs[0] + inputs[1])
        fence, _ = prepared.execute_fenced(request(inputs, [output]), [], False, None, None, None)
        assert fence is not None
        assert wait(fence, 10) == FenceStatus.SIGNALLED
        close(fence)
        pool, shared = shared_request()
        pool.array()[:16].view(np.float32)[:] = 2
        threads = [
            threading.Thread(target=prepared.execute_synchronously, args=(shared, False, None, None)) for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        np.testing.assert_array_equal(pool.array()[128:144].view(np.float32), 2)
        slow = prepare(device, unary(OperationCode.LOGISTIC))
        values = np.zeros(4, np.float32)
        assert status_of(lambda: slow.execute_synchronously(request([values], [values]), False, None, None)) == (
            ErrorStatus.DEAD_OBJECT
        )
    finally:
        device.close()


def test_enumerations_travel_as_their_values() -> None:
    """Not by `getattr`, as Python 3.11.0 to 3.11.3 would have it, which no message may bring."""
    for value in (Priority.HIGH, OperandCode.TENSOR_FLOAT32, {OperandCode.INT32: (ErrorStatus.NONE,)}):
        dumped = remote_channel._dumped(value)
        assert b"getattr" not in dumped
        assert remote_channel._loaded(dumped) == value


@pytest.mark.parametrize("name", ["os.getpid", "pages_of_zeros", "np", "Unmappable"])
def test_what_the_modules_of_the_hal_have_beside_values_is_not_for_messages(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = socket.socketpair()
    channel, other = remote_channel.Channel(ours), remote_channel.Channel(theirs)
    module = b"nn_runtime.hal.memory"
    words = [pickle.SHORT_BINUNICODE + bytes([len(word)]) + word for word in (module, name.encode())]
    monkeypatch.setattr(remote_channel, "_dumped", lambda message: message)
    channel.send(b"".join((pickle.PROTO, b"\x04", *words, pickle.STACK_GLOBAL, pickle.STOP)))
    with pytest.raises(remote_channel.BadMessage, match=f"nn_runtime.hal.memory.{name} does not belong into a message"):
        other.receive()
    channel.close()
    other.close()


def test_messages_hold_nothing_but_values_of_the_hal() -> None:
    ours, theirs = socket.socketpair()
    channel, other = remote_channel.Channel(ours), remote_channel.Channel(theirs)
    graph = without_pointers(add_model()).main
    sender = threading.Thread(target=lambda: channel.send((graph, [1, 2], b"x" * 2_000_000)))
    sender.start()
    assert other.receive() == (graph, [1, 2], b"x" * 2_000_000)
    sender.join()
    for foreign in (Path("/"), np.zeros(3), add_model().main):
        channel.send(foreign)
        with pytest.raises(remote_channel.BadMessage, match="does not belong into a message"):
            other.receive()
    with pytest.raises(remote_channel.BadMessage, match="cannot be sent"):
        channel.send(lambda: None)
    channel.close()
    with pytest.raises(remote_channel.ChannelClosed):
        other.receive()
    other.close()


@needs_descriptors
@pytest.mark.skipif(not remote_channel.PASSES_DESCRIPTORS, reason="the system passes no descriptors")
@pytest.mark.parametrize("is_reset", [True, False])
def test_descriptors_of_a_message_that_breaks_off_are_closed(is_reset: bool) -> None:
    before = open_descriptors()
    for _ in range(10):
        ours, theirs = socket.socketpair()
        channel = remote_channel.Channel(ours)
        if is_reset:
            channel.send("what the other end does not read")
        socket.send_fds(theirs, [(1000).to_bytes(4, "little") + b"the beginning"], [ours.fileno()])
        theirs.close()
        with pytest.raises(remote_channel.ChannelClosed):
            channel.receive_with_descriptors()
        channel.close()
    assert open_descriptors() < before + 10


def test_a_rendezvous_is_for_who_knows_the_secret() -> None:
    """Others are sent away, whether they say something else or hang up; who is let in may be silent for long."""
    rendezvous = remote_channel.Rendezvous()
    port, secret = rendezvous.address
    stranger, leaving = (socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(2))
    stranger.sendall(bytes(len(secret)))
    leaving.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # resets the connection
    leaving.close()
    ours = remote_channel.connect(rendezvous.address)
    theirs = rendezvous.accept(is_alive=lambda: True)
    assert not stranger.recv(1)
    ours.send("question")
    assert theirs.receive() == "question"
    assert ours._socket.gettimeout() is theirs._socket.gettimeout() is None
    with pytest.raises(OSError, match="refused"):
        remote_channel.connect(rendezvous.address)
    stranger.close()
    ours.close()
    theirs.close()


def test_a_secret_may_come_in_parts() -> None:
    rendezvous = remote_channel.Rendezvous()
    port, secret = rendezvous.address
    leaving, slow = (socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(2))
    leaving.sendall(secret[:5])
    leaving.close()
    slow.sendall(secret[:5])
    rest = threading.Timer(0.05, slow.sendall, (secret[5:],))
    rest.start()
    theirs = rendezvous.accept(is_alive=lambda: True)
    remote_channel.Channel(slow).send("question")
    assert theirs.receive() == "question"
    slow.close()
    theirs.close()


def test_memory_of_another_process_is_described_whole(tmp_path: Path) -> None:
    picture = HardwareBuffer(3, 4, 2, HardwareBufferFormat.R5G6B5_UNORM, HardwareBufferUsage.CPU_READ)
    (tmp_path / "weights").write_bytes(bytes(range(100)))
    with (tmp_path / "weights").open("rb") as file:
        weights = SharedMemory.from_fd(20, PROT_READ, file.fileno(), 7)
    other_picture, other_weights = (
        remote_channel.attach_pool(description, [os.dup(fd) for fd in descriptors])
        for description, descriptors in map(remote_channel.describe_pool, (picture, weights))
    )
    assert isinstance(other_picture, HardwareBuffer)
    assert str(other_picture) == str(picture) == "hardware buffer of format R5G6B5_UNORM, 3 x 4 x 2"
    assert (other_picture.size_bytes, other_picture.usage) == (48, HardwareBufferUsage.CPU_READ)
    assert other_weights.array().tolist() == list(range(7, 27))
    assert not other_weights.array().flags.writeable


def test_a_message_that_is_too_large_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_channel, "_MOST_BYTES", 1000)
    ours, theirs = socket.socketpair()
    channel, other = remote_channel.Channel(ours), remote_channel.Channel(theirs)
    with pytest.raises(remote_channel.BadMessage, match="at most 1000 bytes can be sent at once, got 20"):
        channel.send(bytes(2000))
    if remote_channel.PASSES_DESCRIPTORS:
        with pytest.raises(remote_channel.BadMessage, match=r"at most 250 file descriptors .* got 251"):
            channel.send("many", [ours.fileno()] * 251)
    channel.send("small")
    assert other.receive() == "small"
    channel.close()
    other.close()


def test_bad_messages_are_failures_of_one_call(shared_device: RemoteDevice) -> None:
    host = shared_device.service.host()
    for foreign, reason in ((Path("/"), "pathlib.* does not belong into a message"), (lambda: None, "cannot be sent")):
        with pytest.raises(HalError, match=f"bad message: .*{reason}") as caught:
            host.call("status", 0, foreign)
        assert caught.value.status == ErrorStatus.GENERAL_FAILURE
    with pytest.raises(HalError, match="object 77 is closed") as caught:
        host.call("status", 77)
    assert caught.value.status == ErrorStatus.INVALID_ARGUMENT
    for method, target, arguments in (("unknown", 0, ()), ("status", 0, (1, 2))):
        with pytest.raises(HalError, match="the driver failed with"):
            host.call(method, target, *arguments)
    assert shared_device.get_status() == DeviceStatus.AVAILABLE


def test_the_driver_logs_where_it_failed() -> None:
    """In its own process, as NNRT_VLOG there says."""
    code = f"""
        import sys
        from nn_runtime.hal.remote import hosted
        from nn_runtime.hal.types import HalError
        device = hosted({ENTRY!r})[0]
        try:
            device.service.host().call("status", 0, 1)
        except HalError as error:
            print(error)
        device.close()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "NNRT_VLOG": "driver"},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    reason = "the driver failed with TypeError: "
    assert done.stdout.startswith(reason)
    first, *rest = done.stderr.splitlines()
    assert f"nn_runtime.driver: status: {reason}" in first
    assert rest[0].startswith("Traceback")


def test_slow_is_slower_than_an_answer_may_take() -> None:
    assert SLOW_S > 5 * ANSWER_S


@pytest.mark.skipif(not remote_channel.PASSES_DESCRIPTORS, reason="descriptors are not passed here")
def test_a_descriptor_that_is_not_open_harms_nobody(device: RemoteDevice) -> None:
    prepared = prepare(device, add_model())
    _pool, shared = shared_request()
    closed = CacheRequest((10**6,), (10**6 + 1,), bytes(32))
    for call in (
        lambda: prepared.execute_fenced(shared, [10**6], False, None, None, None),
        lambda: device.prepare_model(add_model(), *MINE, None, closed),
    ):
        assert status_of(call) == ErrorStatus.GENERAL_FAILURE
    assert not device.service.host().dead
    assert device.service.starts == 1
    prepared.execute_synchronously(shared, False, None, None)


def test_a_channel_that_nobody_serves_is_an_error_at_once(
    device: RemoteDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the process can start no further thread; the driver lives on."""
    host = device.service.host()
    host._free.clear()
    receive = host._control.receive
    with monkeypatch.context() as patched:
        refusal = ("error", int(ErrorStatus.GENERAL_FAILURE), "can't start new thread", ())
        patched.setattr(host._control, "receive", lambda: (receive(), refusal)[1])
        assert status_of(device.get_status) == ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
    assert device.get_status() == DeviceStatus.AVAILABLE
    assert device.service.starts == 1


@pytest.mark.skipif(not remote_channel.PASSES_DESCRIPTORS, reason="sockets are made in pairs where they are passed")
def test_a_channel_for_which_there_is_no_descriptor_is_an_error_at_once(
    device: RemoteDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> NoReturn:
        raise OSError(errno.EMFILE, "Too many open files")

    device.service.host()._free.clear()
    with monkeypatch.context() as patched, pytest.raises(HalError) as caught:
        patched.setattr(socket, "socketpair", refuse)
        device.get_status()
    assert caught.value.status == ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
    assert caught.value.message == f"{ENTRY}: no further channel: Too many open files"
    assert device.get_status() == DeviceStatus.AVAILABLE
    assert device.service.starts == 1
