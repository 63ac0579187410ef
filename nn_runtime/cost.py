# SPDX-License-Identifier: Apache-2.0
"""Placement by estimated time: operations, one call per step, and bytes that cross between devices.

The placement found is never estimated slower than the best single device. Times are ns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nn_runtime.codes import OperationCode
from nn_runtime.hal.types import HalError, OperandLifeTime
from nn_runtime.operand import size_bytes
from nn_runtime.partition import cut, operation_score

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.devices import Device
    from nn_runtime.hal.interfaces import OperationSupport
    from nn_runtime.hal.types import ExecutionPreference, Model, Operation

STEP_NS = 60_000.0
"""One step more: a call of the driver, its waiting for the device, and the bookkeeping of the plan."""
CPU_STEP_NS = 20_000.0
"""The same for the CPU reference device, which waits for nothing."""
CROSSING_NS_PER_BYTE = 0.1
"""Copying a temporary out of one device and into another, at 10 GB/s."""
CPU_OPERATION_NS = 5_000.0
"""Fixed time of one operation on the CPU reference device."""
CPU_NS_PER_BYTE = 0.3
"""The CPU reference device over the bytes an operation reads and writes."""
CPU_NS_PER_MULTIPLY_ADD = 0.05
"""The CPU reference device in convolutions and products."""

_MULTIPLYING = {
    OperationCode.CONV_2D: 1,
    OperationCode.GROUPED_CONV_2D: 1,
    OperationCode.DEPTHWISE_CONV_2D: 1,
    OperationCode.TRANSPOSE_CONV_2D: 1,
    OperationCode.FULLY_CONNECTED: 1,
}
"""Operations that multiply every output by a filter, and which input that is."""

_COMPUTED = frozenset(
    {OperandLifeTime.TEMPORARY_VARIABLE, OperandLifeTime.SUBGRAPH_OUTPUT, OperandLifeTime.SUBGRAPH_INPUT}
)


@dataclass(frozen=True)
class CostPlacement:
    """A device index and an estimate per operation, and the estimate of the whole."""

    chosen: list[int]
    estimates_ns: list[float]
    total_ns: float


class CostModel:
    """Estimates of one model on some devices."""

    def __init__(
        self,
        model: Model,
        devices: Sequence[Device],
        support: Sequence[Sequence[OperationSupport]],
        preference: ExecutionPreference,
    ) -> None:
        """Estimate every operation on every device that takes it."""
        self.model = model
        self.devices = devices
        count = len(model.main.operations)
        self.operation_ns = [
            [self._operation(device, support[index][at], at, preference) for at in range(count)]
            for index, device in enumerate(devices)
        ]

    def place(self, others: Sequence[list[int]] = ()) -> CostPlacement:
        """Return the cheapest of: every single device, the best path through the run order, and `others`.

        On a tie the earlier single device wins, then the path.
        """
        count = len(self.model.main.operations)
        candidates = [[device] * count for device in range(len(self.devices))]
        candidates += [self._best_path(), *others]
        totals = [self.total(chosen) for chosen in candidates]
        best = min(range(len(candidates)), key=lambda i: totals[i])
        chosen = candidates[best]
        return CostPlacement(chosen, [self.operation_ns[d][at] for at, d in enumerate(chosen)], totals[best])

    def total(self, chosen: Sequence[int]) -> float:
        """Return the estimate of a whole placement; infinite if a device refuses or the split is not possible."""
        work = sum(self.operation_ns[device][at] for at, device in enumerate(chosen))
        if math.isinf(work):
            return work
        if len(set(chosen)) == 1:
            return work + self._step_ns(chosen[0])
        try:
            steps = cut(self.model, self.devices, chosen)
        except HalError:
            return math.inf
        crossing = sum(self._bytes(index) for step in steps for index in step.inputs if self._is_computed(index))
        return work + sum(self._step_ns(step.device) for step in steps) + crossing * CROSSING_NS_PER_BYTE

    def _best_path(self) -> list[int]:
        """Return the cheapest devices along the run order, where changing costs a step and the bytes read."""
        devices = range(len(self.devices))
        costs = [self.operation_ns[device][0] for device in devices]
        back: list[list[int]] = []
        for at, operation in enumerate(self.model.main.operations[1:], 1):
            read = sum(self._bytes(index) for index in operation.inputs if self._is_computed(index))
            cheapest = min(devices, key=costs.__getitem__)
            origins = []
            reached = []
            for device in devices:
                changing = costs[cheapest] + self._step_ns(device) + read * CROSSING_NS_PER_BYTE
                stays = costs[device] <= changing
                origins.append(device if stays else cheapest)
                reached.append((costs[device] if stays else changing) + self.operation_ns[device][at])
            costs = reached
            back.append(origins)
        path = [min(devices, key=costs.__getitem__)]
        for origins in reversed(back):
            path.append(origins[path[-1]])
        return path[::-1]

    def _operation(self, device: Device, answer: OperationSupport, at: int, preference: ExecutionPreference) -> float:
        if not answer.supported:
            return math.inf
        if answer.estimated_ns is not None:
            return float(answer.estimated_ns)
        operation = self.model.main.operations[at]
        return self._cpu_ns(operation) * operation_score(self.model, self.model.main, operation, device, preference)

    def _cpu_ns(self, operation: Operation) -> float:
        """Return a guess of the time on the CPU reference device, which has the figure 1.0 by definition."""
        moved = sum(self._bytes(index) for index in (*operation.inputs, *operation.outputs))
        guess = CPU_OPERATION_NS + moved * CPU_NS_PER_BYTE
        position = _MULTIPLYING.get(OperationCode(operation.type)) if operation.type < len(OperationCode) else None
        if position is None:
            return guess
        operands = self.model.main.operands
        filter_dims = operands[operation.inputs[position]].dimensions
        output_dims = operands[operation.outputs[0]].dimensions
        if operation.type == OperationCode.DEPTHWISE_CONV_2D:
            filter_dims = filter_dims[:-1]
        products = math.prod(output_dims) * math.prod(filter_dims[1:])
        return guess + products * CPU_NS_PER_MULTIPLY_ADD

    def _bytes(self, index: int) -> int:
        operand = self.model.main.operands[index]
        return size_bytes(operand.type, operand.dimensions)

    def _is_computed(self, index: int) -> bool:
        return self.model.main.operands[index].lifetime in _COMPUTED

    def _step_ns(self, device: int) -> float:
        return CPU_STEP_NS if self.devices[device].is_reference else STEP_NS
