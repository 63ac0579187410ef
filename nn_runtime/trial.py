# SPDX-License-Identifier: Apache-2.0
"""Plans timed in turn where estimates cannot tell which is the fastest, and the result kept beside the drivers' files.

A host is noisy, so plans run in turn in short slices. The trial ends as soon as one was faster in every slice than the
others in any, else when its time is over.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import random
import statistics
import time
from typing import TYPE_CHECKING

from nn_runtime.caching import file_paths
from nn_runtime.hal.costs import processor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from nn_runtime.caching import CacheInfo
    from nn_runtime.devices import Device
    from nn_runtime.hal.types import ExecutionPreference

SLICE_SECONDS = 0.002
"""Time of one plan at a time; at least a run."""
BUDGET_SECONDS = 0.04
"""Time of each plan in all, unless FEWEST_ROUNDS take longer."""
FEWEST_ROUNDS = 5
_KIND = "p"
"""Of the file that keeps the result, as "1" and "2" are the drivers'."""

_log = logging.getLogger("nn_runtime.compilation")


def fastest(runs: Sequence[Callable[[], object]]) -> int:
    """Return which of some plans takes the least time, in their own order on a tie; raises as they do.

    They have run before.
    """
    times: list[list[float]] = [[] for _ in runs]
    order = random.Random(0)  # each plan feels what ran before it
    end = time.perf_counter() + BUDGET_SECONDS * len(runs)
    while len(times[0]) < FEWEST_ROUNDS or (time.perf_counter() < end and not _is_decided(times)):
        for at in order.sample(range(len(runs)), len(runs)):
            times[at].append(_slice(runs[at]))
    return min(range(len(runs)), key=lambda at: statistics.median(times[at]))


def _is_decided(times: Sequence[Sequence[float]]) -> bool:
    """Tell whether every slice of one plan was faster than every slice of all others."""
    least, *others = sorted(times, key=max)
    return all(max(least) < min(other) for other in others)


def _slice(run: Callable[[], object]) -> float:
    """Return the median time of the later half of runs in a slice; the earlier ones find threads and caches cold."""
    found: list[float] = []
    end = time.perf_counter() + SLICE_SECONDS
    while not found or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return statistics.median(found[len(found) // 2 :])


def kept_result(info: CacheInfo, devices: Sequence[Device], preference: ExecutionPreference) -> str | None:
    """Return what `keep_result` kept for the same devices, driver versions and processor, or None."""
    try:
        document = json.loads(_path(info, devices, preference).read_text(encoding="utf-8"))
        return str(document["placement"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def keep_result(info: CacheInfo, devices: Sequence[Device], preference: ExecutionPreference, placement: str) -> None:
    """Keep which placement won, a device's name or any other word; a folder that cannot be written is no error."""
    path = _path(info, devices, preference)
    temporary = path.with_suffix(f".{os.getpid()}")
    try:
        temporary.write_text(json.dumps({"placement": placement}) + "\n", encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        _log.warning("the fastest placement is not kept in %s: %s", info.directory, error)


def _path(info: CacheInfo, devices: Sequence[Device], preference: ExecutionPreference) -> Path:
    hashed = hashlib.sha256(info.token)
    for text in (processor(), *(part for device in devices for part in (device.name, device.version))):
        hashed.update(text.encode() + b"\0")
    hashed.update(int(preference).to_bytes(4, "little"))
    return file_paths(info, hashed.digest(), _KIND, 1)[0]
