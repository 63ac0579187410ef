# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C while a driver compiles."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Hold SIGINT back from this thread, and from the processes and threads that a driver starts inside.

    A terminal sends it to PoCL's linker, too, whose end makes PoCL abort the process. Python sees it afterwards.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
