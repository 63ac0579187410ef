# SPDX-License-Identifier: Apache-2.0
"""Sync fences as file descriptors: readable once signalled, waited for by poll, with an error state.

A fence is an eventfd where the system has it: its counter is 0 while pending, 1 when signalled, and at its maximum
(readable but not writable) when signalled with an error. Elsewhere it is a socket whose peer has sent one byte that is
looked at but never taken. Descriptors made by others (a driver's, a pipe) are signalled when readable.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import stat
import time
from enum import Enum, auto
from pathlib import Path

from nn_runtime.errors import BadData, ResourceExhausted

HAS_EVENTFD = hasattr(os, "eventfd")
_SOCKETS_ARE_FILES = os.name != "nt"

_LONGEST_POLL_S = 1e6
"""The system counts milliseconds in 31 bits."""
_FAILED_COUNT = 2**64 - 2
_DONE, _FAILED = b"\x00", b"\x01"


class FenceStatus(Enum):
    """State of a fence."""

    PENDING = auto()
    SIGNALLED = auto()
    FAILED = auto()


class Fence:
    """The signalling side of a new fence; `fd` is given out by `duplicate`, so that it outlives this object."""

    fd = -1
    _peer: socket.socket | None = None

    def __init__(self) -> None:
        """Start pending."""
        if HAS_EVENTFD:
            self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        else:
            waiting, self._peer = socket.socketpair()
            self.fd = waiting.detach()

    def signal(self, succeeded: bool = True) -> None:
        """Signal, once; without success every waiter sees an error."""
        if self._peer is None:
            os.eventfd_write(self.fd, 1 if succeeded else _FAILED_COUNT)
        else:
            self._peer.send(_DONE if succeeded else _FAILED)

    def duplicate(self) -> int:
        """Return a descriptor of the fence that the receiver owns."""
        return duplicate(self.fd)

    def close(self) -> None:
        """Close this side; descriptors given out stay valid. Signal before."""
        if self.fd >= 0:
            close(self.fd)
            self.fd = -1
        if self._peer is not None:
            self._peer.close()

    def __del__(self) -> None:
        """Close."""
        self.close()


def fail(fd: int) -> None:
    """Signal an error on a pending fence whose maker is dead; nothing happens to one that has signalled."""
    if HAS_EVENTFD and _is_eventfd(fd) and wait(fd, 0) == FenceStatus.PENDING:
        os.eventfd_write(fd, _FAILED_COUNT)


def check(fd: int) -> None:
    """Raise BadData for what is no open descriptor, or one of a file, which never signals."""
    mode = 0
    try:
        if _SOCKETS_ARE_FILES:
            mode = os.fstat(fd).st_mode
        else:
            socket.socket(fileno=fd).detach()
    except (OSError, OverflowError) as error:
        raise BadData(f"sync fence: {fd} is no open descriptor: {error}") from error
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        raise BadData(f"sync fence: {fd} is a file, which never signals")


def duplicate(fd: int) -> int:
    """Return another descriptor of the same fence; raises BadData for what is none, ResourceExhausted for too many."""
    check(fd)
    try:
        if _SOCKETS_ARE_FILES:
            return os.dup(fd)
        original = socket.socket(fileno=fd)
        try:
            return original.dup().detach()
        finally:
            original.detach()
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise ResourceExhausted(f"sync fence: no descriptor for another of {fd}: {error.strerror}") from error
        raise BadData(f"sync fence: {fd} is no open descriptor: {error}") from error


def close(fd: int) -> None:
    """Close a descriptor of a fence."""
    if _SOCKETS_ARE_FILES:
        os.close(fd)
    else:
        socket.socket(fileno=fd).close()


def wait(fd: int, timeout_s: float | None = None) -> FenceStatus:
    """Wait until a fence has signalled, at most `timeout_s` seconds, and return its state."""
    if not _readable(fd, timeout_s):
        return FenceStatus.PENDING
    return FenceStatus.FAILED if _has_failed(fd) else FenceStatus.SIGNALLED


def seconds_until(deadline_ns: int | None) -> float | None:
    """Return the time left until a `time.monotonic_ns` deadline, at least 0; None for no deadline."""
    return None if deadline_ns is None else max(0, deadline_ns - time.monotonic_ns()) / 1e9


def _readable(fd: int, timeout_s: float | None) -> bool:
    """Tell whether a descriptor becomes readable in time: in parts where that is longer than systems count."""
    while timeout_s is not None and timeout_s > _LONGEST_POLL_S:
        if _polled(fd, _LONGEST_POLL_S):
            return True
        timeout_s -= _LONGEST_POLL_S
    return _polled(fd, timeout_s)


def _polled(fd: int, timeout_s: float | None) -> bool:
    if not hasattr(select, "poll"):
        return bool(select.select([fd], [], [], timeout_s)[0])
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(None if timeout_s is None else -(-timeout_s * 1e3 // 1)))


def _has_failed(fd: int) -> bool:
    if not HAS_EVENTFD:
        return _peek(fd) not in (None, _DONE)
    poll = select.poll()
    poll.register(fd, select.POLLIN | select.POLLOUT)
    events = dict(poll.poll(0)).get(fd, 0)
    if events & select.POLLERR:
        return True
    return not events & select.POLLOUT and _is_eventfd(fd)


def _peek(fd: int) -> bytes | None:
    """Return the byte that a socket fence was signalled with, b"" if its peer is gone; None for another descriptor."""
    try:
        peeked = socket.socket(fileno=fd)
    except OSError:
        return None
    try:
        return peeked.recv(1, socket.MSG_PEEK)
    finally:
        peeked.detach()


def _is_eventfd(fd: int) -> bool:
    try:
        return "eventfd" in str(Path(f"/proc/self/fd/{fd}").readlink())
    except OSError:
        return False
