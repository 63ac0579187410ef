# SPDX-License-Identifier: Apache-2.0
"""HAL 1.3 (feature level 4): control flow, deadlines, priorities, fences, memory domains, operations 95 to 101.

Deadlines are absolute `time.monotonic_ns` times, None for none. A `Request` may name buffer tokens.
"""

from __future__ import annotations

from dataclasses import field
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

from nn_runtime.hal.versions import v1_0, v1_2
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nn_runtime.hal.memory import SharedMemory
    from nn_runtime.hal.types import (
        BufferDesc,
        BufferRole,
        ExecutionPreference,
        Operation,
        OutputShape,
        PerformanceInfo,
        Priority,
        Request,
    )
    from nn_runtime.operand import Dimensions


class ErrorStatus(IntEnum):
    """Why a call failed."""

    NONE = 0
    DEVICE_UNAVAILABLE = 1
    GENERAL_FAILURE = 2
    OUTPUT_INSUFFICIENT_SIZE = 3
    INVALID_ARGUMENT = 4
    MISSED_DEADLINE_TRANSIENT = 5
    MISSED_DEADLINE_PERSISTENT = 6
    RESOURCE_EXHAUSTED_TRANSIENT = 7
    RESOURCE_EXHAUSTED_PERSISTENT = 8


@dataclass(frozen=True)
class Capabilities(v1_2.Capabilities):
    """With the figures of IF and WHILE themselves."""

    if_performance: PerformanceInfo
    while_performance: PerformanceInfo


@dataclass(frozen=True)
class Subgraph:
    """Operands, operations and boundary."""

    operands: tuple[v1_2.Operand, ...]
    operations: tuple[Operation, ...]
    input_indexes: tuple[int, ...]
    output_indexes: tuple[int, ...]


@dataclass(frozen=True)
class Model:
    """A main graph and those that it refers to."""

    main: Subgraph
    referenced: tuple[Subgraph, ...] = ()
    operand_values: bytes = b""
    pools: tuple[SharedMemory, ...] = ()
    relax_computation_float32_to_float16: bool = False
    extension_name_to_prefix: Mapping[str, int] = field(default_factory=dict)


class IExecutionCallback(v1_2.IExecutionCallback, Protocol):
    """Hears of the end of an execution."""

    def notify_1_3(self, status: int, output_shapes: Sequence[OutputShape], timing: v1_2.Timing) -> None:
        """Take the results, exactly once for all forms of notify."""


class IFencedExecutionCallback(Protocol):
    """Asked for the times of a fenced execution."""

    def get_execution_info(self) -> tuple[int, v1_2.Timing, v1_2.Timing]:
        """Return status, timing since launch and timing since the fences."""


class IBuffer(Protocol):
    """A driver-managed buffer."""

    def copy_to(self, destination: SharedMemory) -> int:
        """Copy out; return the status."""

    def copy_from(self, source: SharedMemory, dimensions: Dimensions) -> int:
        """Copy in; return the status."""


class IPreparedModel(v1_2.IPreparedModel, Protocol):
    """A prepared model of HAL 1.3."""

    def execute_1_3(
        self,
        request: Request,
        measure: v1_2.MeasureTiming,
        deadline_ns: int | None,
        loop_timeout_ns: int | None,
        callback: IExecutionCallback,
    ) -> int:
        """Launch an execution; return the status of the launch."""

    def execute_synchronously_1_3(
        self, request: Request, measure: v1_2.MeasureTiming, deadline_ns: int | None, loop_timeout_ns: int | None
    ) -> tuple[int, Sequence[OutputShape], v1_2.Timing]:
        """Execute; return status, shapes and timing."""

    def execute_fenced(
        self,
        request: Request,
        wait_for: Sequence[int],
        measure: v1_2.MeasureTiming,
        deadline_ns: int | None,
        loop_timeout_ns: int | None,
        duration_ns: int | None,
    ) -> tuple[int, int | None, IFencedExecutionCallback | None]:
        """Execute after fences; return status, fence (None: done) and callback."""


class IPreparedModelCallback(v1_2.IPreparedModelCallback, Protocol):
    """Hears of the end of a preparation."""

    def notify_1_3(self, status: int, prepared: v1_0.IPreparedModel | None) -> None:
        """Take status and prepared model, exactly once for all forms of notify."""


class IDevice(v1_2.IDevice, Protocol):
    """A device of HAL 1.3."""

    def get_capabilities_1_3(self) -> tuple[int, Capabilities]:
        """Return status and figures."""

    def get_supported_operations_1_3(self, model: Model) -> tuple[int, Sequence[bool]]:
        """Return status and one bool per operation of the main graph."""

    def prepare_model_1_3(
        self,
        model: Model,
        preference: ExecutionPreference,
        priority: Priority,
        deadline_ns: int | None,
        model_cache: Sequence[int],
        data_cache: Sequence[int],
        token: bytes,
        callback: IPreparedModelCallback,
    ) -> int:
        """Launch a preparation; return the status of the launch."""

    def prepare_model_from_cache_1_3(
        self,
        deadline_ns: int | None,
        model_cache: Sequence[int],
        data_cache: Sequence[int],
        token: bytes,
        callback: IPreparedModelCallback,
    ) -> int:
        """Launch a preparation from cache files alone; return the status of the launch."""

    def allocate(
        self,
        desc: BufferDesc,
        prepared_models: Sequence[IPreparedModel],
        input_roles: Sequence[BufferRole],
        output_roles: Sequence[BufferRole],
    ) -> tuple[int, IBuffer | None, int]:
        """Return status, buffer and token."""
