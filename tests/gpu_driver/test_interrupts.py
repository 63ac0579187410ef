# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C while a driver compiles."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from gpu_driver.interrupts import interrupts_held

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="this system has no signal masks")


@pytest.fixture
def _interruptible() -> Iterator[None]:
    """A process that a shell starts in the background ignores Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_interruptible")
def test_an_interrupt_comes_when_the_compiler_is_done() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), interrupts_held():
        signal.raise_signal(signal.SIGINT)
        done.append(True)
    assert done == [True]


def test_interrupts_come_again_when_the_compiler_failed() -> None:
    with pytest.raises(ZeroDivisionError), interrupts_held():
        raise ZeroDivisionError
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_processes_that_are_started_are_not_interrupted() -> None:
    code = "import signal; signal.raise_signal(signal.SIGINT); print('linked')"
    with interrupts_held():
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "linked\n", "")


def test_what_was_held_before_stays_held() -> None:
    with interrupts_held():
        with interrupts_held():
            pass
        assert signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
