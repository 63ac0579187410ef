# SPDX-License-Identifier: Apache-2.0
"""Open file descriptors, counted: what tests of leaks compare."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

needs_descriptors = pytest.mark.skipif(
    not Path("/proc/self/fd").is_dir(), reason="the system does not list open descriptors in /proc"
)


def open_descriptors(pid: int | None = None) -> int:
    """Return how many descriptors a process has open, this one unless told, after what nobody holds is let go.

    0 where the system does not list them. Other tests' threads may still close theirs: compare with `<=`, after more
    rounds than those can hide.
    """
    gc.collect()
    folder = Path(f"/proc/{os.getpid() if pid is None else pid}/fd")
    return len(list(folder.iterdir())) if folder.is_dir() else 0
