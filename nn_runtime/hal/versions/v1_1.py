# SPDX-License-Identifier: Apache-2.0
"""HAL 1.1 (feature level 2): relaxed float32, execution preferences, operations 29 to 37."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from nn_runtime.hal.versions import v1_0
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.hal.types import ExecutionPreference, PerformanceInfo


@dataclass(frozen=True)
class Capabilities(v1_0.Capabilities):
    """With the figures for float32 that may be computed as float16."""

    relaxed_float32_to_float16_performance: PerformanceInfo


@dataclass(frozen=True)
class Model(v1_0.Model):
    """With the permission to compute float32 as float16."""

    relax_computation_float32_to_float16: bool = False


class IDevice(v1_0.IDevice, Protocol):
    """A device of HAL 1.1."""

    def get_capabilities_1_1(self) -> tuple[int, Capabilities]:
        """Return status and figures."""

    def get_supported_operations_1_1(self, model: Model) -> tuple[int, Sequence[bool]]:
        """Return status and one bool per operation."""

    def prepare_model_1_1(
        self, model: Model, preference: ExecutionPreference, callback: v1_0.IPreparedModelCallback
    ) -> int:
        """Launch a preparation; return the status of the launch."""
