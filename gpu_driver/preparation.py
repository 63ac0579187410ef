# SPDX-License-Identifier: Apache-2.0
"""How a model is prepared."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from nn_runtime.hal.types import ExecutionPreference, Priority
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from gpu_driver.device_profile import DeviceProfile


@dataclass(frozen=True)
class Preparation:
    """What the application asks for. quantizes_inputs: products may be computed on bytes (hal/dynamic_quantization)."""

    preference: ExecutionPreference = ExecutionPreference.FAST_SINGLE_ANSWER
    priority: Priority = Priority.MEDIUM
    quantizes_inputs: bool = False

    def profile_of(self, device: DeviceProfile) -> DeviceProfile:
        """Return what to lower for: with LOW_POWER one core of a CPU, so that none spins until another is done.

        On Intel's runtime two: the thread that waits computes as well, or else it is that which spins.
        """
        cores = device.compute_units
        if device.is_cpu and self.preference == ExecutionPreference.LOW_POWER:
            cores = min(cores, 2 if device.slug == "intel" else 1)
        return replace(device, compute_units=cores, quantizes_inputs=self.quantizes_inputs)
