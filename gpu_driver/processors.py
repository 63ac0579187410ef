# SPDX-License-Identifier: Apache-2.0
"""How many processors this process may use: a container often has fewer than its machine.

Linux knows two such limits: a mask of processors (`taskset`, `docker --cpuset-cpus`), and the time that a control group
gets (`docker --cpus`, limits of Kubernetes). OpenCL's runtimes on CPUs make a thread for each processor of the machine
all the same (PoCL), or for each of the mask (Intel's).
Sources: https://docs.kernel.org/admin-guide/cgroup-v2.html (cpu.max),
https://docs.kernel.org/scheduler/sched-bwc.html (cpu.cfs_quota_us).
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOUNTED = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


def usable_processors() -> int:
    """Return how many this process may run on or has the time of, whichever is less; parts count as a whole one."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min([count, *(math.ceil(time) for time in processor_times(_MOUNTED, _OWN))])


def processor_times(mounted: Path, own: Path) -> list[float]:
    """Return the limits, in processors, of the control groups that a process is in, as files in two places tell them.

    mounted: the folder with the trees of groups. own: the file that says which groups the process is in, a line each.
    """
    try:
        lines = own.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # not on Linux
        return []
    times = []
    for line in lines:
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers == "":  # version 2: one tree for all controllers
            times += [_time_v2(folder) for folder in _groups(mounted, path)]
        elif "cpu" in controllers.split(","):
            times += [_time_v1(folder) for folder in _groups(mounted / controllers, path)]
    return [time for time in times if time < math.inf]


def _groups(tree: Path, path: str) -> Iterator[Path]:
    """Yield a group's folder and those around it. A container may see the tree's root alone, which is its own group."""
    group = tree / path.lstrip("/")
    yield group
    if group != tree:
        yield from (around for around in group.parents if around.is_relative_to(tree))


def _time_v2(group: Path) -> float:
    return _quotient(_numbers(group / "cpu.max"))


def _time_v1(group: Path) -> float:
    return _quotient([*_numbers(group / "cpu.cfs_quota_us"), *_numbers(group / "cpu.cfs_period_us")])


def _quotient(numbers: list[int]) -> float:
    """Quota over period, both in microseconds; infinite where there is no limit."""
    if len(numbers) != 2 or min(numbers) <= 0:
        return math.inf
    return numbers[0] / numbers[1]


def _numbers(file: Path) -> list[int]:
    """The numbers in a file; none where it cannot be read, or says "max"."""
    try:
        return [int(word) for word in file.read_text(encoding="ascii").split()]
    except (OSError, ValueError):
        return []
