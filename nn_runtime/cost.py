# SPDX-License-Identifier: Apache-2.0
"""Placement by estimated time: runs and operations of every device, and what crosses between devices.

A split is taken only where it is estimated to be clearly faster than the best single device. Estimates are not exact:
a placement names the single devices that may be as fast, its rivals, for `trial.py` to time. Times are ns.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from nn_runtime.failures import answered
from nn_runtime.hal.costs import ANY_OPERATION, OTHER_TYPES, CostTable, HasCosts, OperationCost, operation_estimates
from nn_runtime.hal.kinds import of_kind
from nn_runtime.hal.types import HalError, OperandLifeTime
from nn_runtime.partition import cut, operation_scores
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.device import Device
    from nn_runtime.hal.interfaces import OperationSupport
    from nn_runtime.hal.types import ExecutionPreference, Model

STEP_NS = 60_000.0
"""A run of a device that does not tell its costs: the call, its waiting, and the bookkeeping of the plan."""
SPLIT_GAIN = 0.15
"""Part of the best single device's time that a split must save by the estimates, which are not exact."""
RIVAL_FACTOR = 4.0
"""How many times as long as the plan a single device may be estimated to take and yet be the faster one."""

_UNKNOWN_COST = OperationCost(10_000, dynamic_ns=10_000, element_ns=0.5, multiply_add_ns=0.05)
_UNKNOWN_COSTS = CostTable(STEP_NS, 5_000, 2_000, 5_000, 0.1, {ANY_OPERATION: {OTHER_TYPES: _UNKNOWN_COST}})
"""Of a device that does not tell them; its operations by its figures of performance, relative to the CPU's."""

_COMPUTED = frozenset(
    {OperandLifeTime.TEMPORARY_VARIABLE, OperandLifeTime.SUBGRAPH_OUTPUT, OperandLifeTime.SUBGRAPH_INPUT}
)


@dataclass(frozen=True)
class CostPlacement:
    """A device index per operation, and the estimate of the whole.

    `rivals`: devices that alone may be as fast, likeliest first.
    """

    chosen: list[int]
    total_ns: float
    rivals: list[int]


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
        self._tables = [cost_table(device) or _UNKNOWN_COSTS for device in devices]
        self._estimates: dict[int, list[float]] = {}
        self.operation_ns = [
            [self._operation(index, answer, at, preference) for at, answer in enumerate(support[index])]
            for index in range(len(devices))
        ]

    def place(self, others: Sequence[list[int]] = ()) -> CostPlacement:
        """Return the cheapest of: every single device, and by SPLIT_GAIN the best path through the run order, `others`.

        On a tie the earlier single device wins, then the path. Where none is possible, the first of `others` shows why.
        """
        count = len(self.model.main.operations)
        candidates = [[device] * count for device in range(len(self.devices))]
        candidates += [self._best_path(), *others]
        totals = [self.total(chosen) for chosen in candidates]
        single = min(range(len(self.devices)), key=totals.__getitem__)
        best = min(range(len(candidates)), key=totals.__getitem__)
        if math.isinf(totals[best]):
            return self._placement(others[0] if others else candidates[best], [])
        if totals[best] > totals[single] * (1 - SPLIT_GAIN):
            best = single
        rivals = [d for d in range(len(self.devices)) if d != best and totals[d] <= RIVAL_FACTOR * totals[best]]
        return self._placement(candidates[best], sorted(rivals, key=totals.__getitem__))

    def by_device_ns(self, at: int) -> dict[str, float]:
        """Return the estimates of an operation on all devices that take it, by name."""
        estimates = {device.name: ns[at] for device, ns in zip(self.devices, self.operation_ns, strict=True)}
        return {name: ns for name, ns in estimates.items() if math.isfinite(ns)}

    def takes_all(self, device: int) -> bool:
        """Tell whether a device takes every operation."""
        return not any(map(math.isinf, self.operation_ns[device]))

    def whole_on(self, device: int) -> CostPlacement:
        """Return the placement of every operation on one device, without rivals."""
        return self._placement([device] * len(self.model.main.operations), [])

    def total(self, chosen: Sequence[int]) -> float:
        """Return the estimate of a whole placement; infinite if a device refuses or the split is not possible."""
        work = sum(self.operation_ns[device][at] for at, device in enumerate(chosen))
        if math.isinf(work):
            return work
        main = self.model.main
        if len(set(chosen)) == 1:
            return work + self._tables[chosen[0]].step_ns(main, main.input_indexes, main.output_indexes)
        try:
            steps = cut(self.model, self.devices, chosen)
        except HalError:
            return math.inf
        return work + sum(self._tables[step.device].step_ns(main, step.inputs, step.outputs) for step in steps)

    def _placement(self, chosen: list[int], rivals: list[int]) -> CostPlacement:
        return CostPlacement(chosen, self.total(chosen), rivals)

    def _best_path(self) -> list[int]:
        """Return the cheapest devices along the run order, where changing costs a run and what is read."""
        devices = range(len(self.devices))
        costs = [self.operation_ns[device][0] for device in devices]
        back: list[list[int]] = []
        for at, operation in enumerate(self.model.main.operations[1:], 1):
            read = [index for index in dict.fromkeys(operation.inputs) if self._is_computed(index)]
            cheapest = min(devices, key=costs.__getitem__)
            origins = []
            reached = []
            for device in devices:
                changing = costs[cheapest] + self._tables[device].step_ns(self.model.main, read, ())
                stays = costs[device] <= changing
                origins.append(device if stays else cheapest)
                reached.append((costs[device] if stays else changing) + self.operation_ns[device][at])
            costs = reached
            back.append(origins)
        path = [min(devices, key=costs.__getitem__)]
        for origins in reversed(back):
            path.append(origins[path[-1]])
        return path[::-1]

    def _operation(self, index: int, answer: OperationSupport, at: int, preference: ExecutionPreference) -> float:
        """Return what the device says, else what its table says, else a guess by its figures of performance."""
        if not answer.supported:
            return math.inf
        if answer.estimated_ns is not None:
            return float(answer.estimated_ns)
        table = self._tables[index]
        if index not in self._estimates:
            estimates = operation_estimates(self.model, table)
            if table is _UNKNOWN_COSTS:
                scores = operation_scores(self.model, self.devices[index], preference)
                estimates = [estimate * score for estimate, score in zip(estimates, scores, strict=True)]
            self._estimates[index] = estimates
        return self._estimates[index][at]

    def _is_computed(self, index: int) -> bool:
        return self.model.main.operands[index].lifetime in _COMPUTED


def cost_table(device: Device) -> CostTable | None:
    """Return a device's table of costs, None where it does not tell one."""
    hal = device.hal
    if not isinstance(hal, HasCosts):
        return None
    return answered(lambda: of_kind(CostTable, hal.cost_table(), "cost_table"), None, f"{device.name}: its costs")
