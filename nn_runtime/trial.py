# SPDX-License-Identifier: Apache-2.0
"""Plans timed in turn where estimates cannot tell which is the fastest, and the result kept beside the drivers' files.

A host is noisy, so plans run in turn in short slices. A plan is left out as soon as it was slower than one other in
each of several rounds; the trial ends when one is left or clearly ahead, or when its time is over.
"""

from __future__ import annotations

import hashlib
import json
import logging
import random
import time
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.caching import attribute_bytes, file_paths
from nn_runtime.errors import NNError
from nn_runtime.hal.costs import processor
from nn_runtime.hal.files import read_file, write_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from nn_runtime.caching import CacheInfo
    from nn_runtime.device import Device
    from nn_runtime.hal.interfaces import Attributes
    from nn_runtime.hal.types import ExecutionPreference

SLICE_SECONDS = 0.005
"""Time of one plan at a time; at least a run."""
LEAST_SECONDS = 0.02
"""Time of each plan in all before the fastest may be clear."""
MOST_SECONDS = 0.2
"""Time of each plan in all where it does not become clear, unless FEWEST_ROUNDS take longer."""
FEWEST_ROUNDS = 3
CLOSE = 1.05
"""Plans are as fast as each other up to here."""
DOUBT = 0.15
"""Part of the rounds in which the fastest plan may not be close to the best of the round."""
SURE_ROUNDS = 5
"""After which a plan that was slower than another one each time is left out."""
FAR = 3.0
"""Before, but after more than one round, one that took so many times as long."""
FIRST_RUN_SECONDS = 0.25
"""For what a plan does once at its first run."""
_KIND = "p"
"""Of the file that keeps the result, as "1" and "2" are the drivers'."""

_log = logging.getLogger("nn_runtime.compilation")


def patience(run: Callable[[], object]) -> float:
    """Return the seconds that the first run of another plan may take before it is not tried any more.

    `run`: one of the plan that it is compared with, which has run before. Estimates may be far off.
    """
    start = time.perf_counter()
    run()
    return FIRST_RUN_SECONDS + FAR * (time.perf_counter() - start)


def fastest(runs: Sequence[Callable[[], object]]) -> int:
    """Return which of some plans takes the least time, in their own order on a tie; raises as the first one does.

    They have run before; another one that fails now is out of the race. Other work on the machine slows all plans of a
    round, so that a plan's time counts by its ratio to the least of the same round; where no plan is the best in most
    rounds, there are more of them.
    """
    times: list[list[float]] = [[] for _ in runs]
    racing = list(range(len(runs)))
    order = random.Random(0)  # each plan feels what ran before it
    start = time.perf_counter()
    rounds = 0
    while len(racing) > 1:
        seconds = (time.perf_counter() - start) / len(runs)
        if rounds >= FEWEST_ROUNDS and (
            seconds >= MOST_SECONDS or (seconds >= LEAST_SECONDS and _is_clear(times, racing))
        ):
            break
        for at in order.sample(racing, len(racing)):
            try:
                times[at].append(_slice(runs[at]))
            except NNError as error:
                if at == 0:
                    raise
                _log.warning("a plan is not tried any more: %s", error)
                racing.remove(at)
                times[at].clear()
        if not racing:  # those that were left out before work
            return min((at for at, found in enumerate(times) if found), key=lambda at: min(times[at]))
        rounds += 1
        racing = _left(times, racing)
    return _winner(_ratios(times, racing))


def _ratios(times: Sequence[Sequence[float]], racing: Sequence[int]) -> dict[int, list[float]]:
    """Return the time of each plan in each round as a multiple of the least."""
    least = [min(together) for together in zip(*(times[at] for at in racing), strict=True)]
    return {at: [one / best for one, best in zip(times[at], least, strict=True)] for at in racing}


def _winner(ratios: Mapping[int, Sequence[float]]) -> int:
    return min(ratios, key=lambda at: float(np.median(ratios[at] or [1.0])))


def _is_clear(times: Sequence[Sequence[float]], racing: Sequence[int]) -> bool:
    """Tell whether the plan that is ahead was the best, or close to it, in nearly all rounds."""
    ratios = _ratios(times, racing)
    of_winner = ratios[_winner(ratios)]
    return sum(ratio > CLOSE for ratio in of_winner) <= DOUBT * len(of_winner)


def _left(times: Sequence[Sequence[float]], racing: Sequence[int]) -> list[int]:
    """Return the plans that go on: not far behind, and no other one was faster each time."""
    rounds = len(times[racing[0]])
    if rounds < 2:
        return list(racing)
    limit = FAR * min(max(times[at]) for at in racing)

    def always_loses(at: int) -> bool:
        return any(all(a > b for a, b in zip(times[at], times[other], strict=True)) for other in racing)

    return [at for at in racing if min(times[at]) <= limit and not (rounds >= SURE_ROUNDS and always_loses(at))]


def _slice(run: Callable[[], object]) -> float:
    """Return the median time of the later half of runs in a slice; the earlier ones find threads and caches cold."""
    found: list[float] = []
    end = time.perf_counter() + SLICE_SECONDS
    while not found or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return float(np.median(found[len(found) // 2 :]))


def kept_result(
    info: CacheInfo, devices: Sequence[Device], preference: ExecutionPreference, attributes: Attributes = ()
) -> str | None:
    """Return what `keep_result` kept for the same devices, driver versions, processor and attributes, or None."""
    try:
        document = json.loads(read_file(_path(info, devices, preference, attributes)))
        return str(document["placement"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def keep_result(
    info: CacheInfo,
    devices: Sequence[Device],
    preference: ExecutionPreference,
    placement: str,
    attributes: Attributes = (),
) -> None:
    """Keep which placement won, a device's name or any other word; a folder that cannot be written is no error."""
    try:
        write_file(_path(info, devices, preference, attributes), json.dumps({"placement": placement}).encode())
    except OSError as error:
        _log.warning("the fastest placement is not kept in %s: %s", info.directory, error)


def _path(info: CacheInfo, devices: Sequence[Device], preference: ExecutionPreference, attributes: Attributes) -> Path:
    hashed = hashlib.sha256(info.token)
    for text in (processor(), *(part for device in devices for part in (device.name, device.version))):
        hashed.update(text.encode() + b"\0")
    hashed.update(int(preference).to_bytes(4, "little") + attribute_bytes(attributes))
    return file_paths(info, hashed.digest(), _KIND, 1)[0]
