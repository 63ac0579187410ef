# SPDX-License-Identifier: Apache-2.0
"""The reference device: every operation over numpy, on any machine."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.estimate import cost_table_of
from cpu_driver.graph import missing_function
from cpu_driver.operations import function_of
from cpu_driver.prepared_model import HostStorage, PreparedModel
from nn_runtime.codes import DeviceTypeCode, FeatureLevel, OperandCode
from nn_runtime.hal.buffers import BufferRegistry
from nn_runtime.hal.costs import operation_estimates
from nn_runtime.hal.interfaces import OperationSupport
from nn_runtime.hal.references import refusals_of
from nn_runtime.hal.types import Capabilities, DeviceStatus, ErrorStatus, HalError, PerformanceInfo
from nn_runtime.hal.validation import validate_model, validate_preference, validate_priority
from nn_runtime.operand import has_unknown_dimensions, size_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.hal.costs import CostTable
    from nn_runtime.hal.interfaces import CacheRequest, IBuffer, IDevice, IPreparedModel
    from nn_runtime.hal.types import (
        BufferDesc,
        BufferRole,
        ExecutionPreference,
        Extension,
        Model,
        Operand,
        Operation,
        Priority,
        Subgraph,
    )

NAME = "nnapi-reference"
VERSION = "1"
_REFERENCE = PerformanceInfo(exec_time=1.0, power_usage=1.0)


class Device:
    """The CPU as a device (IDevice, ExplainsOperations)."""

    name = NAME

    def __init__(self) -> None:
        """Start with no buffers."""
        self._costs: CostTable | None = None
        self._buffers: BufferRegistry[HostStorage] = BufferRegistry(self._model_of)

    def get_capabilities(self) -> Capabilities:
        """Return 1.0 for everything: other devices are measured against this one."""
        table = {int(code): _REFERENCE for code in sorted(OperandCode)}
        return Capabilities(table, _REFERENCE, _REFERENCE, _REFERENCE, _REFERENCE)

    def get_version_string(self) -> str:
        """Return the versions of driver and numpy."""
        return f"{VERSION} (numpy {np.__version__})"

    def get_type(self) -> DeviceTypeCode:
        """Return CPU."""
        return DeviceTypeCode.CPU

    def get_feature_level(self) -> int:
        """Return the runtime's own level."""
        return FeatureLevel.LEVEL_8

    def get_status(self) -> DeviceStatus:
        """Return AVAILABLE."""
        return DeviceStatus.AVAILABLE

    def get_supported_extensions(self) -> Sequence[Extension]:
        """Return none."""
        return ()

    def get_number_of_cache_files_needed(self) -> tuple[int, int]:
        """Return (0, 0): preparation is too cheap to be worth a cache."""
        return 0, 0

    def explain_operations(self, model: Model) -> Sequence[OperationSupport]:
        """Return support of each operation of the main model, with its estimated time or the reason of a refusal."""
        validate_model(model)
        estimates = operation_estimates(model, self.cost_table())
        return [
            OperationSupport(not reason, reason, None if reason else round(estimate))
            for reason, estimate in zip(refusals_of(model, _refusal), estimates, strict=True)
        ]

    def cost_table(self) -> CostTable:
        """Return what runs and operations cost: measured on this machine, else as shipped."""
        if self._costs is None:
            self._costs = cost_table_of(NAME, self.get_version_string())
        return self._costs

    def get_supported_operations(self, model: Model) -> Sequence[bool]:
        """Return one bool per operation of the main model."""
        return [support.supported for support in self.explain_operations(model)]

    def prepare_model(
        self,
        model: Model,
        preference: ExecutionPreference,
        priority: Priority,
        deadline_ns: int | None,
        cache: CacheRequest | None,
    ) -> PreparedModel:
        """Prepare a model; preference, priority and cache make no difference: one thread computes."""
        validate_preference(preference)
        validate_priority(priority)
        validate_model(model)
        if deadline_ns is not None and time.monotonic_ns() >= deadline_ns:
            raise HalError(ErrorStatus.MISSED_DEADLINE_PERSISTENT, "the deadline passed before the preparation")
        return PreparedModel(model, self._buffers)

    def prepare_model_from_cache(self, deadline_ns: int | None, cache: CacheRequest) -> PreparedModel:
        """Refuse: this device has no cache."""
        raise HalError(ErrorStatus.GENERAL_FAILURE, f"{NAME} has no compilation cache")

    def allocate(
        self,
        desc: BufferDesc,
        prepared_models: Sequence[IPreparedModel],
        input_roles: Sequence[BufferRole],
        output_roles: Sequence[BufferRole],
    ) -> tuple[IBuffer, int]:
        """Allocate host memory for the given roles."""
        return self._buffers.allocate(desc, prepared_models, input_roles, output_roles, _storage)

    def close(self) -> None:
        """Nothing is held."""

    def _model_of(self, prepared: IPreparedModel) -> Model | None:
        return prepared.model if isinstance(prepared, PreparedModel) else None


def devices() -> list[IDevice]:
    """Return the devices of this driver."""
    return [Device()]


def _storage(operand: Operand) -> HostStorage:
    known = not has_unknown_dimensions(operand.type, operand.dimensions)
    return HostStorage(size_bytes(operand.type, operand.dimensions) if known else 0)


def _refusal(_graph: Subgraph, operation: Operation, _at: int) -> str:
    return missing_function(operation.type) if function_of(operation.type) is None else ""
