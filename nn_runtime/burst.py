# SPDX-License-Identifier: Apache-2.0
"""A sequence of executions of one compilation in quick succession (SURFACE section i)."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING

from nn_runtime.checks import check_kind
from nn_runtime.compilation import Compilation
from nn_runtime.errors import BadState
from nn_runtime.failures import attempt

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nn_runtime.hal.interfaces import IBurstContext
    from nn_runtime.hal.latch import Latch
    from nn_runtime.hal.memory import SharedMemory
    from nn_runtime.step import Step


class Burst:
    """Serves one compilation, one execution at a time, by a channel to the driver of each step that offers one."""

    def __init__(self, compilation: Compilation) -> None:
        """Raises UnexpectedNull, BadData, or BadState unless the compilation is finished."""
        check_kind("burst: the compilation", compilation, Compilation)
        self.compilation = compilation
        opened = [(step, step.open_burst()) for step in compilation.finished_plan("burst").steps]
        self.channels: Mapping[Step, IBurstContext] = {step: channel for step, channel in opened if channel is not None}
        """Channels of the steps that have one; the others run as without a burst."""
        self._lock = threading.Lock()
        self._call: Latch | None = None
        """The call of an execution that is using it, open at its end."""
        self._closed = False

    def begin(self, call: Latch) -> None:
        """Hold the burst during a call; raises BadState if it is closed or another one holds it."""
        with self._lock:
            if self._closed:
                raise BadState("burst: it is closed")
            if self._call is not None:
                raise BadState("burst: another execution is using it")
            self._call = call

    def end(self, call: Latch) -> None:
        """Let go of the burst, if the call holds it."""
        with self._lock:
            if self._call is call:
                self._call = None
        call.open()

    def release(self, memory: SharedMemory) -> None:
        """Let the drivers forget what they keep for a memory that is being closed."""
        for step, channel in self.channels.items():
            attempt(functools.partial(channel.free_memory, memory), f"{step.device.name}: free_memory of a burst")

    def close(self) -> None:
        """End the burst, after an execution that is using it."""
        with self._lock:
            self._closed, call = True, self._call
        if call is not None:
            call.wait()
        channels, self.channels = self.channels, {}
        for step, channel in channels.items():
            attempt(channel.close, f"{step.device.name}: close of a burst")

    def __enter__(self) -> Burst:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
