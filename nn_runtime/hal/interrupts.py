# SPDX-License-Identifier: Apache-2.0
"""Exceptions that handlers of signals raise, such as a time limit by SIGALRM.

They come out of whatever the main thread is doing, and belong to the application as KeyboardInterrupt does, of whatever
class they are: nobody on their way may take them for his own failure.
"""

from __future__ import annotations

import functools
import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import CodeType


def pass_interrupt(error: BaseException) -> None:
    """Raise an error again which a signal's handler has raised, or what that called; do nothing about another."""
    if threading.current_thread() is not threading.main_thread():  # handlers run in the main thread alone
        return
    handlers = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()}
    at = error.__traceback__
    while at is not None:
        if at.tb_frame.f_code in handlers:
            raise error
        at = at.tb_next


def _code_of(handler: object) -> CodeType | None:
    """Return the code of a handler that is written in Python."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    if not callable(handler):
        return None
    function = getattr(handler, "__func__", handler)
    if not hasattr(function, "__code__"):
        function = type(handler).__call__
    return getattr(function, "__code__", None)
