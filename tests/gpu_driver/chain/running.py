# SPDX-License-Identifier: Apache-2.0
"""Chains as devices with other numbers of cores would run them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gpu_driver.chain import launches
from gpu_driver.chain.memory import ALIGNMENT
from gpu_driver.kernel import Scratch

if TYPE_CHECKING:
    import pytest

    from gpu_driver.chain.tiles import Tiles
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.kernel import Kernel
    from gpu_driver.launch import Launch


def simulate_groups(monkeypatch: pytest.MonkeyPatch, groups: int, queues: int) -> None:
    """Cut steps for so many cores, into small tasks, and launch so many work-groups."""
    launch_of_steps = launches._launch

    def simulated(steps: Any, memories: Any, device: DeviceProfile, tiles: Tiles, program: Kernel) -> Launch:
        small = replace(device, compute_units=queues, tuning=replace(device.tuning, least_task_flops=30_000))
        launch = launch_of_steps(steps, memories, small, tiles, program)
        *others, work, lines = launch.arguments
        assert isinstance(lines, np.int32)
        if lines:
            work = Scratch(groups * int(lines) * ALIGNMENT)
        return replace(launch, global_size=(groups,), arguments=(*others, work, lines))

    monkeypatch.setattr(launches, "_launch", simulated)
