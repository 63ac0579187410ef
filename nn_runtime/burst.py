# SPDX-License-Identifier: Apache-2.0
"""A sequence of executions of one compilation in quick succession (SURFACE section i)."""

from __future__ import annotations

import contextlib
import functools
import threading
from typing import TYPE_CHECKING

from nn_runtime.checks import check_kind
from nn_runtime.compilation import Compilation
from nn_runtime.errors import BadState
from nn_runtime.failures import attempt

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from nn_runtime.hal.interfaces import IBurstContext
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
        self._busy = threading.Lock()
        self._closed = False

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Hold the burst during an execution; raises BadState if it is closed or another thread holds it."""
        if not self._busy.acquire(blocking=False):
            raise BadState("burst: it is closed" if self._closed else "burst: another execution is using it")
        try:
            if self._closed:
                raise BadState("burst: it is closed")
            yield
        finally:
            self._busy.release()

    def release(self, memory: SharedMemory) -> None:
        """Let the drivers forget what they keep for a memory that is being closed."""
        for step, channel in self.channels.items():
            attempt(functools.partial(channel.free_memory, memory), f"{step.device.name}: free_memory of a burst")

    def close(self) -> None:
        """End the burst, after an execution that is using it."""
        self._closed = True
        with self._busy:
            channels, self.channels = self.channels, {}
        for step, channel in channels.items():
            attempt(channel.close, f"{step.device.name}: close of a burst")

    def __enter__(self) -> Burst:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
