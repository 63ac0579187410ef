# SPDX-License-Identifier: Apache-2.0
"""HAL 1.0 (feature level 1): its types where they differ from the canonical ones, its interfaces and callbacks.

Everything is asynchronous. Callback protocol, for preparing and executing alike: on bad input `notify` at once with the
status (and None), then return the same status; on good input return NONE and `notify` exactly once when done.

Types that never changed are the canonical ones: Operation, DataLocation, RequestArgument, PerformanceInfo,
DeviceStatus. A `Request` here has pools of memory alone and no pointers.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

from nn_runtime.hal.types import DataLocation, OperandLifeTime
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.hal.memory import SharedMemory
    from nn_runtime.hal.types import DeviceStatus, Operation, PerformanceInfo, Request
    from nn_runtime.operand import Dimensions


class ErrorStatus(IntEnum):
    """Why a call failed."""

    NONE = 0
    DEVICE_UNAVAILABLE = 1
    GENERAL_FAILURE = 2
    OUTPUT_INSUFFICIENT_SIZE = 3
    INVALID_ARGUMENT = 4


NOWHERE = DataLocation()


@dataclass(frozen=True)
class Capabilities:
    """Figures for float32 and for 8-bit data, relative to the CPU."""

    float32_performance: PerformanceInfo
    quantized8_performance: PerformanceInfo


@dataclass(frozen=True)
class Operand:
    """An operand; `number_of_consumers` counts the operation inputs that name it."""

    type: int
    dimensions: Dimensions = ()
    number_of_consumers: int = 0
    scale: float = 0.0
    zero_point: int = 0
    lifetime: OperandLifeTime = OperandLifeTime.TEMPORARY_VARIABLE
    location: DataLocation = NOWHERE


@dataclass(frozen=True)
class Model:
    """A graph without referenced models."""

    operands: tuple[Operand, ...]
    operations: tuple[Operation, ...]
    input_indexes: tuple[int, ...]
    output_indexes: tuple[int, ...]
    operand_values: bytes = b""
    pools: tuple[SharedMemory, ...] = ()


class IExecutionCallback(Protocol):
    """Hears of the end of an execution."""

    def notify(self, status: int) -> None:
        """Take the status, exactly once."""


class IPreparedModel(Protocol):
    """A prepared model."""

    def execute(self, request: Request, callback: IExecutionCallback) -> int:
        """Launch an execution; return the status of the launch."""


class IPreparedModelCallback(Protocol):
    """Hears of the end of a preparation."""

    def notify(self, status: int, prepared: IPreparedModel | None) -> None:
        """Take status and prepared model, exactly once."""


class IDevice(Protocol):
    """A device of HAL 1.0."""

    def get_capabilities(self) -> tuple[int, Capabilities]:
        """Return status and figures."""

    def get_supported_operations(self, model: Model) -> tuple[int, Sequence[bool]]:
        """Return status and one bool per operation."""

    def prepare_model(self, model: Model, callback: IPreparedModelCallback) -> int:
        """Launch a preparation; return the status of the launch."""

    def get_status(self) -> DeviceStatus:
        """Return whether the device can take work."""
