# SPDX-License-Identifier: Apache-2.0
"""HAL 1.2 (feature level 3): dynamic shapes, timing, bursts, caches, vendor extensions, operations 38 to 94.

Also figures by operand type, and synchronous execution. Timing is in microseconds here.
"""

from __future__ import annotations

from dataclasses import field
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

from nn_runtime.hal.versions import v1_0, v1_1
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nn_runtime.hal.memory import SharedMemory
    from nn_runtime.hal.types import ExecutionPreference, Extension, OutputShape, PerformanceInfo, Request
    from nn_runtime.hal.versions.channel import Channel
    from nn_runtime.operand import ChannelQuant

UNKNOWN_TIME = 2**64 - 1


class MeasureTiming(IntEnum):
    """Whether an execution is to be timed."""

    NO = 0
    YES = 1


@dataclass(frozen=True)
class Timing:
    """Durations in microseconds; UNKNOWN_TIME where not measured."""

    time_on_device: int = UNKNOWN_TIME
    time_in_driver: int = UNKNOWN_TIME


@dataclass(frozen=True)
class OperandPerformance:
    """Figures of one operand type."""

    type: int
    info: PerformanceInfo


@dataclass(frozen=True)
class Capabilities:
    """Figures for each operand type, sorted by type and unique."""

    relaxed_float32_to_float16_performance_scalar: PerformanceInfo
    relaxed_float32_to_float16_performance_tensor: PerformanceInfo
    operand_performance: tuple[OperandPerformance, ...]


@dataclass(frozen=True)
class Operand(v1_0.Operand):
    """With per-channel scales, or the opaque data of an extension's operand."""

    extra_params: ChannelQuant | bytes | None = None


@dataclass(frozen=True)
class Model(v1_1.Model):
    """With the prefixes of the vendor extensions that it uses."""

    extension_name_to_prefix: Mapping[str, int] = field(default_factory=dict)


class IExecutionCallback(v1_0.IExecutionCallback, Protocol):
    """Hears of the end of an execution, with shapes and timing."""

    def notify_1_2(self, status: int, output_shapes: Sequence[OutputShape], timing: Timing) -> None:
        """Take the results, exactly once for all forms of notify."""


class IBurstCallback(Protocol):
    """The client's side of a burst: knows the memories behind slots."""

    def get_memories(self, slots: Sequence[int]) -> tuple[int, Sequence[SharedMemory]]:
        """Return status and memories; INVALID_ARGUMENT for a slot that there is not."""


class IBurstContext(Protocol):
    """The driver's side of a burst; ends when it is closed."""

    def free_memory(self, slot: int) -> None:
        """Forget the memory of a slot."""

    def close(self) -> None:
        """End the burst."""


class IPreparedModel(v1_0.IPreparedModel, Protocol):
    """A prepared model of HAL 1.2."""

    def execute_1_2(self, request: Request, measure: MeasureTiming, callback: IExecutionCallback) -> int:
        """Launch an execution; return the status of the launch."""

    def execute_synchronously(
        self, request: Request, measure: MeasureTiming
    ) -> tuple[int, Sequence[OutputShape], Timing]:
        """Execute; return status, shapes and timing."""

    def configure_execution_burst(
        self, callback: IBurstCallback, requests: Channel, results: Channel
    ) -> tuple[int, IBurstContext | None]:
        """Open a burst over two channels of packets."""


class IPreparedModelCallback(v1_0.IPreparedModelCallback, Protocol):
    """Hears of the end of a preparation."""

    def notify_1_2(self, status: int, prepared: v1_0.IPreparedModel | None) -> None:
        """Take status and prepared model, exactly once for all forms of notify."""


class IDevice(v1_1.IDevice, Protocol):
    """A device of HAL 1.2."""

    def get_version_string(self) -> tuple[int, str]:
        """Return status and the driver's version."""

    def get_type(self) -> tuple[int, int]:
        """Return status and kind of the device."""

    def get_supported_extensions(self) -> tuple[int, Sequence[Extension]]:
        """Return status and the vendor extensions."""

    def get_number_of_cache_files_needed(self) -> tuple[int, int, int]:
        """Return status and the numbers of model and data cache files."""

    def get_capabilities_1_2(self) -> tuple[int, Capabilities]:
        """Return status and figures."""

    def get_supported_operations_1_2(self, model: Model) -> tuple[int, Sequence[bool]]:
        """Return status and one bool per operation."""

    def prepare_model_1_2(
        self,
        model: Model,
        preference: ExecutionPreference,
        model_cache: Sequence[int],
        data_cache: Sequence[int],
        token: bytes,
        callback: IPreparedModelCallback,
    ) -> int:
        """Launch a preparation that may save to cache files; return the status of the launch."""

    def prepare_model_from_cache(
        self, model_cache: Sequence[int], data_cache: Sequence[int], token: bytes, callback: IPreparedModelCallback
    ) -> int:
        """Launch a preparation from cache files alone; return the status of the launch."""
