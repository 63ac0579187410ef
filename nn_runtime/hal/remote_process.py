# SPDX-License-Identifier: Apache-2.0
"""The application's side of a driver process: starting it, calling it, and what happens when it dies."""

from __future__ import annotations

import atexit
import itertools
import logging
import os
import socket
import subprocess
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any, cast

from nn_runtime.hal import fences
from nn_runtime.hal.remote_channel import (
    PASSES_DESCRIPTORS,
    BadMessage,
    Channel,
    ChannelClosed,
    Rendezvous,
    describe_pool,
)
from nn_runtime.hal.types import ErrorStatus, HalError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.hal.interfaces import UnusableDevice
    from nn_runtime.hal.memory import SharedMemory

_log = logging.getLogger("nn_runtime.driver")

_FIRST_NUMBER = 1 << 20
"""Numbers below are the devices', in the order of the driver's list."""
_EXIT_S = 2.0
_CHILD = "import sys; sys.path[:] = {path!r}; from nn_runtime.hal.remote_host import start; start({descriptor})"


class HostProcess:
    """A running driver process: channels to it, the numbers of what it holds, and what happens when it dies."""

    def __init__(self, entry: str) -> None:
        """Start the process and load the driver; raises HalError(GENERAL_FAILURE)."""
        self.entry = entry
        self._is_dead = False
        self._is_closed = False
        self._pid = os.getpid()
        self._lock = threading.RLock()
        """Of calls that must not be made twice; the watcher never waits for it."""
        self._lists = threading.Lock()
        """Guards `_channels` and `_fences`; no call is made while it is held."""
        self._numbers = itertools.count(_FIRST_NUMBER)
        self._forgotten: dict[int, None] = {}
        """Numbers that the process is to forget, until it has said so; to be told twice does no harm."""
        self._pools: dict[int, tuple[weakref.ref[SharedMemory], int]] = {}
        self._fences: list[int] = []
        self._free: list[Channel] = []
        self._process, control = _start()
        self._control = control
        """For opening other channels."""
        self._channels = [control]
        try:
            control.send(entry)
            answer = cast("tuple[Any, ...]", control.receive())
        except (ChannelClosed, BadMessage) as error:
            control.close()
            self._process.wait()
            reason = "its process ended at once" if isinstance(error, ChannelClosed) else f"bad message: {error}"
            raise HalError(ErrorStatus.GENERAL_FAILURE, f"{entry}: {reason}") from error
        if answer[0] != "ok":
            control.close()
            self._process.wait()
            raise HalError(ErrorStatus.GENERAL_FAILURE, f"{entry} could not be loaded: {answer[1]}")
        self.offered: list[UnusableDevice | dict[str, Any]] = answer[1]
        self._watcher = threading.Thread(target=self._watch, name="driver watcher", daemon=True)
        self._watcher.start()
        _running.add(self)

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._process.pid

    @property
    def dead(self) -> bool:
        """Whether nobody answers here: it is dead, or of the process that this one was forked from."""
        return self._is_dead or self.is_foreign

    @property
    def is_foreign(self) -> bool:
        """Whether it belongs to the process that this one was forked from."""
        return self._pid != os.getpid()

    def new_number(self) -> int:
        """Return a number for an object that the process is to hold."""
        return next(self._numbers)

    def forget(self, number: int) -> None:
        """Let the process forget an object, with the next call."""
        self._forgotten[number] = None

    def call(self, method: str, target: int, *arguments: object) -> object:
        """Call the process and return what it returns; raises HalError, DEAD_OBJECT if it dies meanwhile."""
        return self._exchange(method, target, arguments, (), False)[0]

    def call_with_descriptors(
        self, method: str, target: int, arguments: tuple[object, ...], descriptors: Sequence[int]
    ) -> tuple[object, list[int]]:
        """Call the process with file descriptors; return the result and those that come back, owned by the caller."""
        return self._exchange(method, target, arguments, descriptors, True)

    def pool_number(self, memory: SharedMemory) -> int:
        """Return the number of a shared memory, which the process attaches to at its first use."""
        key = id(memory)
        known = self._pools.get(key)
        if known is not None and known[0]() is memory:
            return known[1]
        if self.dead:  # a thread that stays until the interpreter has ended may hold the lock
            raise self._death()
        with self._lock:
            known = self._pools.get(key)
            if known is not None and known[0]() is memory:
                return known[1]
            number = self.new_number()
            description, descriptors = describe_pool(memory)
            self.call_with_descriptors("pool", number, (description,), descriptors)
            pools, forget = self._pools, self.forget

            def gone(_reference: object) -> None:
                pools.pop(key, None)
                forget(number)

            self._pools[key] = weakref.ref(memory, gone), number
        return number

    def watch_fence(self, fence: int) -> None:
        """Signal an error on a fence if the process dies before it does; raises ResourceExhausted."""
        with self._lists:
            done = [fd for fd in self._fences if fences.wait(fd, 0) != fences.FenceStatus.PENDING]
            self._fences = [fd for fd in self._fences if fd not in done]
            for fd in done:
                fences.close(fd)
            if not self.dead:
                self._fences.append(fences.duplicate(fence))
                return
        fences.fail(fence)

    def close(self) -> None:
        """End the process: it leaves when its channels are closed, or is killed."""
        self._is_dead = self._is_closed = True
        if self.is_foreign:
            return
        with self._lists:
            for channel in self._channels:
                channel.shut_down()
        self._watcher.join(_EXIT_S)
        if self._watcher.is_alive():
            self._process.kill()
            self._watcher.join()

    def _exchange(
        self,
        method: str,
        target: int,
        arguments: tuple[object, ...],
        descriptors: Sequence[int],
        with_descriptors: bool,
    ) -> tuple[Any, list[int]]:
        if self.dead:
            raise self._death()
        try:
            channel = self._free.pop()
        except IndexError:
            channel = self._new_channel()
        forgotten = list(self._forgotten)
        given: list[int] = []
        try:
            channel.send((method, target, arguments, forgotten), descriptors)
            if with_descriptors:
                answer, given = channel.receive_with_descriptors()
            else:
                answer = channel.receive()
        except BadMessage as error:
            self._free.append(channel)
            raise self._bad_message(method, error) from error
        except ChannelClosed as error:
            self._is_dead = True
            channel.close()
            self._control.shut_down()  # lest a process live on of which only the thread that served the channel ended
            raise self._death() from error
        except BaseException:
            with self._lists:
                self._channels.remove(channel)
            channel.close()  # an answer may still come: nobody may take it for another's
            raise
        self._free.append(channel)
        for number in forgotten:
            self._forgotten.pop(number, None)
        outcome, *rest = cast("tuple[Any, ...]", answer)
        if outcome != "ok":
            status, message, shapes = rest
            raise HalError(ErrorStatus(status), message, shapes)
        return rest[0], given

    def _new_channel(self) -> Channel:
        """Open one more channel, where all are in use."""
        with self._lock:
            try:
                channel = self._channel_by_descriptor() if PASSES_DESCRIPTORS else self._channel_by_port()
            except ChannelClosed as error:
                self._is_dead = True
                raise self._death() from error
            except HalError:  # the process refuses
                raise
            except BadMessage as error:
                raise self._bad_message("open_channel", error) from error
            except OSError as error:
                message = f"{self.entry}: no further channel: {error.strerror or error}"
                raise HalError(ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, message) from error
            except BaseException:
                self._is_dead = True  # an answer may still come: nobody may take it for another's
                self._control.close()
                raise
            with self._lists:
                self._channels.append(channel)
            return channel

    def _channel_by_descriptor(self) -> Channel:
        ours, theirs = socket.socketpair()
        channel = Channel(ours)
        try:
            with theirs:
                self._control.send(("open_channel", 0, (None,), []), (theirs.fileno(),))
                self._check_opened(self._control.receive())
        except BaseException:
            channel.close()
            raise
        return channel

    def _channel_by_port(self) -> Channel:
        rendezvous = Rendezvous()
        try:
            self._control.send(("open_channel", 0, (rendezvous.address,), []))
            self._check_opened(self._control.receive())
            return rendezvous.accept(is_alive=lambda: not self.dead)
        finally:
            rendezvous.close()

    def _check_opened(self, answer: object) -> None:
        """Raise HalError where nobody serves a new channel: its calls would never be answered."""
        outcome, *rest = cast("tuple[Any, ...]", answer)
        if outcome != "ok":
            raise HalError(ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, f"{self.entry}: no further channel: {rest[1]}")

    def _bad_message(self, method: str, error: BadMessage) -> HalError:
        return HalError(ErrorStatus.GENERAL_FAILURE, f"{self.entry}, {method}: bad message: {error}")

    def _death(self) -> HalError:
        _stay_if_ending()
        state = "is not this process's, which was forked" if self.is_foreign else "is dead"
        return HalError(ErrorStatus.DEAD_OBJECT, f"the process of the driver {self.entry} {state}")

    def _watch(self) -> None:
        """Reap the process, and wake all who wait for it."""
        status = self._process.wait()
        if not self._is_closed:
            _log.warning("the process of the driver %s ended with status %d", self.entry, status)
        self._is_dead = True
        with self._lists:
            for channel in self._channels:
                channel.shut_down()
            for channel in self._channels:
                channel.close()
            pending, self._fences = self._fences, []
        for fence in pending:
            fences.fail(fence)
            fences.close(fence)


_running: weakref.WeakSet[HostProcess] = weakref.WeakSet()
_ending = threading.Event()
"""Set once the interpreter ends the processes itself."""


@atexit.register
def _end_all() -> None:
    _ending.set()
    for host in list(_running):
        host.close()


def _stay_if_ending() -> None:
    """Keep a daemon thread until the interpreter has ended: a driver that was sent away is no failure to tell of."""
    if _ending.is_set() and threading.current_thread() is not threading.main_thread():
        threading.Event().wait()


def _start() -> tuple[subprocess.Popen[bytes], Channel]:
    """Start a process that hosts a driver, and return it with the channel to it; raises HalError."""
    try:
        return _start_by_descriptor() if PASSES_DESCRIPTORS else _start_by_port()
    except OSError as error:
        message = f"no process can be started for a driver by {sys.executable}: {error.strerror or error}"
        raise HalError(ErrorStatus.GENERAL_FAILURE, message) from error


def _start_by_descriptor() -> tuple[subprocess.Popen[bytes], Channel]:
    ours, theirs = socket.socketpair()
    with theirs:
        code = _CHILD.format(path=sys.path, descriptor=theirs.fileno())
        try:
            process = subprocess.Popen(
                [sys.executable, "-c", code],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C in the terminal is the application's
            )
        except OSError:
            ours.close()
            raise
    return process, Channel(ours)


def _start_by_port() -> tuple[subprocess.Popen[bytes], Channel]:
    rendezvous = Rendezvous()
    code = _CHILD.format(path=sys.path, descriptor=-1)
    try:
        process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, start_new_session=True)
    except OSError:
        rendezvous.close()
        raise
    try:
        if process.stdin is not None:
            with process.stdin as pipe:  # not on the command line, which others can read
                pipe.write(repr(rendezvous.address).encode() + b"\n")
        return process, rendezvous.accept(is_alive=lambda: process.poll() is None)
    except (ChannelClosed, OSError) as error:
        process.kill()
        process.wait()
        raise HalError(ErrorStatus.GENERAL_FAILURE, f"the process of a driver does not connect: {error}") from error
    finally:
        rendezvous.close()


class Service:
    """A driver's process, started anew when it has died."""

    def __init__(self, entry: str) -> None:
        """Start the process; raises HalError."""
        self._entry = entry
        self._lock = threading.Lock()
        self._host = HostProcess(entry)
        self._users = 0
        self.starts = 1
        """How often the process was started."""

    def host(self) -> HostProcess:
        """Return the process, as it is."""
        return self._host

    def living_host(self) -> HostProcess:
        """Return the process, started anew if it is dead.

        Raises HalError(DEAD_OBJECT) if it cannot be started, or nobody uses it any more.
        """
        host = self._host
        if not host.dead:
            return host
        _stay_if_ending()
        with self._lock:
            if not self._users:
                raise HalError(ErrorStatus.DEAD_OBJECT, f"the devices of the driver {self._entry} are closed")
            if self._host is host:
                try:
                    self._host = HostProcess(self._entry)
                except (HalError, OSError) as error:
                    message = f"the process of the driver {self._entry} is dead, and starting it anew failed: {error}"
                    raise HalError(ErrorStatus.DEAD_OBJECT, message) from error
                self.starts += 1
                _log.warning("the driver %s was started anew in process %d", self._entry, self._host.pid)
            return self._host

    def use(self) -> None:
        """Count a device in."""
        with self._lock:
            self._users += 1

    def leave(self) -> None:
        """Count a device out; with the last one the process ends."""
        with self._lock:
            self._users -= 1
        self.close_unless_used()

    def close_unless_used(self) -> None:
        """End the process where it has no devices."""
        with self._lock:
            if not self._users:
                self._host.close()
