# SPDX-License-Identifier: Apache-2.0
"""Rows of a profile from the events of commands, made when they are asked for."""

from __future__ import annotations

import functools
import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np
import pyopencl as cl

from gpu_driver.execution.recorded import Clocked, Referred, Transfer
from gpu_driver.launch import Launch, Stage
from nn_runtime.hal.interfaces import ExecutionProfile, ProfileRow
from nn_runtime.hal.types import ErrorStatus, HalError, Timing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.execution.recorded import Recorded

_START, _END = cl.profiling_info.START, cl.profiling_info.END


def timing_of(profile: DeviceProfile, first: cl.Event | None, last: cl.Event | None, in_driver_ns: int) -> Timing:
    """Return the times of an execution from its first command to its last, if it had any, and in the driver."""
    if not profile.tells_times:
        return Timing(time_in_driver_ns=in_driver_ns)
    on_device_ns = 0
    if first is not None and last is not None:
        started, ended = first.get_profiling_info(_START), last.get_profiling_info(_END)
        on_device_ns = cast("int", ended) - cast("int", started)
    return Timing(min(on_device_ns, in_driver_ns), in_driver_ns)


def check_tells_times(profile: DeviceProfile) -> None:
    """Raise HalError(GENERAL_FAILURE) for a device of whose commands there can be no profile."""
    if not profile.tells_times:
        device = f"{profile.name} ({profile.device_name}, driver {profile.driver_version})"
        raise HalError(ErrorStatus.GENERAL_FAILURE, f"{device} tells no times of its commands: there is no profile")


class RecordedProfile(ExecutionProfile):
    """The profile of an execution that is over. A copy by pickle is an ExecutionProfile."""

    _events: Sequence[Recorded]
    _took_ns: int
    _left_out: Mapping[int, str]

    def __init__(self, events: Sequence[Recorded], took_ns: int, left_out: Mapping[int, str]) -> None:
        """`took_ns`: how long the execution took; `left_out`: operations that it did without, and how.

        Rows are on the host's clock: what waits for the last command returns as that ends.
        """
        object.__setattr__(self, "_events", events)
        object.__setattr__(self, "_took_ns", took_ns)
        object.__setattr__(self, "_left_out", left_out)

    @functools.cached_property
    def rows(self) -> tuple[ProfileRow, ...]:
        """Rows in order of start; operations that are left out first, with no duration."""
        without = [ProfileRow((operation,), how, 0, 0) for operation, how in self._left_out.items()]
        return (*without, *_all_rows(self._events, self._took_ns))

    def __reduce__(self) -> tuple[type[ExecutionProfile], tuple[tuple[ProfileRow, ...]]]:
        return ExecutionProfile, (self.rows,)


def _all_rows(events: Sequence[Recorded], took_ns: int) -> tuple[ProfileRow, ...]:
    if not events:
        return ()
    origin = min(events[-1][1].profile.end - took_ns, events[0][1].profile.start)
    rows = [_rows(command, event, origin) for command, event in events]
    wholes = [_whole(command) for command, _ in events]
    merged: list[ProfileRow] = []
    for _, group in itertools.groupby(range(len(events)), lambda at: at if wholes[at] is None else id(wholes[at])):
        merged += _sums([rows[at] for at in group])
    return tuple(merged)


def _whole(command: object) -> object:
    """Return what a command is a part of: a launch for each image, the transfer of an array; None if it is alone."""
    if isinstance(command, Referred):
        return _whole(command.command)
    if isinstance(command, Clocked):
        return command.launch
    return command.array if isinstance(command, Transfer) else None


def _sums(parts: Sequence[Sequence[ProfileRow]]) -> Sequence[ProfileRow]:
    """Return the rows of what was enqueued in parts: from the first start, as long as all together."""
    if len(parts) == 1:
        return parts[0]
    return [
        ProfileRow(
            same[0].operations,
            same[0].kernel,
            same[0].start_ns,
            same[0].start_ns + sum(row.end_ns - row.start_ns for row in same),
            sum(row.bytes_moved for row in same),
            sum(row.flops for row in same),
            same[0].on_bytes,
        )
        for same in zip(*parts, strict=True)
    ]


def _rows(command: object, event: cl.Event, origin: int) -> list[ProfileRow]:
    """Return the rows of a command: one, or one for every stage of a launch that told its times."""
    if isinstance(command, Referred):
        rows = _rows(command.command, event, origin)
        return [replace(row, operations=command.operations if row.operations else ()) for row in rows]
    if not isinstance(command, Clocked):
        return [_row(command, event, origin)]
    launch, row = command.launch, _row(command.launch, event, origin)
    clock = launch.clock
    if clock is None or len(launch.stages) < 2:
        return [row]
    began, ended = command.stamps.astype(np.float64).T
    count, of_stage = len(launch.stages), np.array(clock.stages)
    ns_per_cycle = (row.end_ns - row.start_ns) / max(1.0, ended.max() - began.min())
    starts = np.full(count, np.inf)
    np.minimum.at(starts, of_stage, began)
    starts = row.start_ns + (starts - began.min()) * ns_per_cycle
    # Stages overlap, so that a stage's time is that of its tasks, shared out among the groups.
    busy = np.bincount(of_stage, ended - began, count) * (ns_per_cycle / launch.global_size[0])
    spans = zip(launch.stages, starts.astype(int).tolist(), (starts + busy).astype(int).tolist(), strict=True)
    return [
        ProfileRow(_each_once(stage.operations), stage.name, start, end, stage.bytes_moved, stage.flops, stage.on_bytes)
        for stage, start, end in spans
    ]


def _row(command: object, event: cl.Event, origin: int) -> ProfileRow:
    start, end = event.profile.start - origin, event.profile.end - origin
    if isinstance(command, Launch | Stage):
        moved, flops, on_bytes = command.bytes_moved, command.flops, command.on_bytes
        return ProfileRow(_each_once(command.operations), command.name, start, end, moved, flops, on_bytes)
    if isinstance(command, Transfer):
        return ProfileRow((), command.name, start, end, command.size_bytes)
    return ProfileRow(getattr(command, "operations", ()), "copy", start, end)


def _each_once(operations: Iterable[int]) -> tuple[int, ...]:
    """Return numbers of operations, of which one may have become several."""
    return tuple(dict.fromkeys(operations))
