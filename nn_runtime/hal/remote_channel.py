# SPDX-License-Identifier: Apache-2.0
"""What goes between the application and the process that hosts a driver: framed messages, descriptors, memory.

A channel carries one request at a time and its reply. Messages are pickled plain values and frozen dataclasses of the
HAL; nothing else is unpickled, and both ends of a channel are held by us and our own child alone.
"""

from __future__ import annotations

import enum
import io
import os
import pickle
import secrets
import socket
import struct
import time
from typing import TYPE_CHECKING, cast

from nn_runtime.hal.interrupts import pass_interrupt
from nn_runtime.hal.memory import HardwareBuffer, HardwareBufferFormat, HardwareBufferUsage, SharedMemory
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PASSES_DESCRIPTORS = hasattr(socket, "AF_UNIX") and hasattr(socket, "send_fds")

_LENGTH = struct.Struct("<I")
_MOST_BYTES = (1 << 32) - 1
_READ_BYTES = 1 << 16
MOST_DESCRIPTORS = 250
"""In one message."""
_SECRET_BYTES = 32
_MODULES = frozenset(
    {
        "nn_runtime.codes",
        "nn_runtime.operand",
        "nn_runtime.hal.costs",
        "nn_runtime.hal.types",
        "nn_runtime.hal.interfaces",
        "nn_runtime.hal.memory",
        "nn_runtime.hal.remote_channel",
    }
)


class ChannelClosed(Exception):
    """The other end is gone."""


class BadMessage(Exception):
    """A message that is more than plain values and those of the HAL; the channel is still good."""


@dataclass(frozen=True)
class PoolDescription:
    """Shared memory as the other process finds it: by the descriptor that comes along, or by name.

    `hardware`: width, height, layers, format and usage of a hardware buffer.
    """

    size_bytes: int
    prot: int
    offset: int
    name: str
    hardware: tuple[int, int, int, int, int] | None


class Channel:
    """Framed messages over a socket, with file descriptors where the system passes them."""

    def __init__(self, connected: socket.socket) -> None:
        """Take the socket over."""
        self._socket = connected

    def send(self, message: object, descriptors: Sequence[int] = ()) -> None:
        """Send a message; the descriptors stay the sender's. Raises ChannelClosed, BadMessage."""
        try:
            payload = _dumped(message)
            for fd in descriptors:
                os.fstat(fd)
        except Exception as error:
            pass_interrupt(error)
            raise BadMessage(f"it cannot be sent: {error}") from error
        if len(descriptors) > MOST_DESCRIPTORS:
            raise BadMessage(f"at most {MOST_DESCRIPTORS} file descriptors can be sent at once, got {len(descriptors)}")
        if len(payload) > _MOST_BYTES:
            raise BadMessage(f"at most {_MOST_BYTES} bytes can be sent at once, got {len(payload)}")
        data = _LENGTH.pack(len(payload)) + payload
        try:
            if descriptors:
                sent = socket.send_fds(self._socket, [data], list(descriptors))
                data = data[sent:]
            self._socket.sendall(data)
        except OSError as error:
            raise _closed(error) from error

    def receive(self) -> object:
        """Return the next message, which brings no descriptors; raises ChannelClosed, BadMessage."""
        try:
            data = self._socket.recv(_READ_BYTES)
            return _loaded(self._rest(data))
        except OSError as error:
            raise _closed(error) from error

    def receive_with_descriptors(self) -> tuple[object, list[int]]:
        """Return the next message and its descriptors, which the receiver owns; raises ChannelClosed, BadMessage."""
        if not PASSES_DESCRIPTORS:
            return self.receive(), []
        descriptors: list[int] = []
        try:
            data, descriptors, flags, _address = socket.recv_fds(self._socket, _READ_BYTES, MOST_DESCRIPTORS)
            payload = self._rest(data)
            if flags & socket.MSG_CTRUNC:  # the system drops what this process may not open
                taken = len(descriptors)
                raise BadMessage(f"not all of its file descriptors could be taken, but {taken}: too many are open here")
            return _loaded(payload), descriptors
        except BaseException as error:
            for fd in descriptors:
                os.close(fd)
            if isinstance(error, OSError):
                raise _closed(error) from error
            raise

    def shut_down(self) -> None:
        """Wake whoever waits on either end."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return

    def close(self) -> None:
        """Close this end."""
        self._socket.close()

    def _rest(self, data: bytes) -> bytes:
        """Return a whole payload, given its first bytes as they came."""
        while len(data) < _LENGTH.size:
            data += self._more()
        (length,) = _LENGTH.unpack_from(data)
        if len(data) == _LENGTH.size + length:
            return data[_LENGTH.size :]
        whole = bytearray(data[_LENGTH.size :])
        while len(whole) < length:
            whole += self._more()
        return bytes(whole)

    def _more(self) -> bytes:
        more = self._socket.recv(_READ_BYTES)
        if not more:
            raise ChannelClosed("the other end is closed")
        return more


def _closed(error: OSError) -> ChannelClosed:
    """Return what an error of a socket says; one of a signal's handler, such as TimeoutError, is raised again."""
    pass_interrupt(error)
    return ChannelClosed(str(error))


class _Pickler(pickle.Pickler):
    """Makes enumerations of their values, as most versions of Python do: 3.11.0 to 3.11.3 fetch them by `getattr`."""

    def reducer_override(self, value: object) -> tuple[Callable[..., object], tuple[object, ...]]:
        if isinstance(value, enum.Enum):
            return type(value), (value.value,)
        return NotImplemented  # type: ignore[no-any-return]  # as pickle wants it


def _dumped(message: object) -> bytes:
    payload = io.BytesIO()
    _Pickler(payload, pickle.HIGHEST_PROTOCOL).dump(message)
    return payload.getvalue()


class _Unpickler(pickle.Unpickler):
    """Makes values of the HAL's modules alone: of their own classes, not of what else can be got by way of them."""

    def find_class(self, module: str, name: str) -> object:
        found = super().find_class(module, name) if module in _MODULES and "." not in name else None
        if isinstance(found, type) and found.__module__ in _MODULES:
            return found
        raise pickle.UnpicklingError(f"{module}.{name} does not belong into a message")


def _loaded(payload: bytes) -> object:
    try:
        return cast("object", _Unpickler(io.BytesIO(payload)).load())
    except Exception as error:
        pass_interrupt(error)
        raise BadMessage(str(error)) from error


class Rendezvous:
    """A new channel, where descriptors cannot be passed: the other process connects to a port with a secret."""

    def __init__(self) -> None:
        """Listen on a port of this machine alone."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(0.1)
        self._secret = secrets.token_bytes(_SECRET_BYTES)
        self.address: tuple[int, bytes] = (self._listener.getsockname()[1], self._secret)
        """What the other process needs to know."""

    def accept(self, is_alive: Callable[[], bool]) -> Channel:
        """Return the channel when the other process has connected.

        Raises ChannelClosed after 30 s, or as soon as the other process is not alive.
        """
        deadline = time.monotonic() + 30.0
        with self._listener:
            while time.monotonic() < deadline:
                try:
                    connected, _ = self._listener.accept()
                except TimeoutError:
                    if not is_alive():
                        raise ChannelClosed("it has ended") from None
                    continue
                except OSError as error:
                    raise ChannelClosed(str(error)) from error
                if self._knows_secret(connected):
                    connected.settimeout(None)
                    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    return Channel(connected)
                connected.close()
        raise ChannelClosed("timed out")

    def close(self) -> None:
        """Listen no more."""
        self._listener.close()

    def _knows_secret(self, connected: socket.socket) -> bool:
        connected.settimeout(5.0)
        said = b""
        try:
            while len(said) < _SECRET_BYTES:
                more = connected.recv(_SECRET_BYTES - len(said))
                if not more:
                    return False
                said += more
        except OSError as error:  # another program that says nothing, or hangs up
            pass_interrupt(error)
            return False
        return secrets.compare_digest(said, self._secret)


def connect(address: tuple[int, bytes]) -> Channel:
    """Return a channel to a `Rendezvous` of another process; raises OSError."""
    port, secret = address
    connected = socket.create_connection(("127.0.0.1", port), timeout=30.0)
    connected.settimeout(None)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.sendall(secret)
    return Channel(connected)


def describe_pool(memory: SharedMemory) -> tuple[PoolDescription, tuple[int, ...]]:
    """Return how another process finds a memory, and the descriptor to send along, if any."""
    hardware = None
    if isinstance(memory, HardwareBuffer):
        hardware = (memory.width, memory.height, memory.layers, int(memory.format), int(memory.usage))
    descriptors = (memory.fd,) if memory.fd >= 0 else ()
    return PoolDescription(memory.size_bytes, memory.prot, memory.offset, memory.block_name, hardware), descriptors


def attach_pool(description: PoolDescription, descriptors: Sequence[int]) -> SharedMemory:
    """Return another process's memory; takes the descriptor over. Raises OSError."""
    memory = SharedMemory.__new__(SharedMemory if description.hardware is None else HardwareBuffer)
    fd = descriptors[0] if descriptors else -1
    memory.adopt(description.size_bytes, description.prot, fd, description.offset, description.name)
    if isinstance(memory, HardwareBuffer) and description.hardware is not None:
        memory.width, memory.height, memory.layers, code, usage = description.hardware
        memory.format, memory.usage = HardwareBufferFormat(code), HardwareBufferUsage(usage)
    return memory
