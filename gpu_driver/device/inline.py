# SPDX-License-Identifier: Apache-2.0
"""Models that are computed by the calling thread, on devices that can: to wake others would take longer.

PoCL hands every launch to threads of its own, and sleeps until they are done, which takes 70 us and more on two cores
(docs/decisions/0010-inline-device.md). Its device `basic` does not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpu_driver.device.one_thread_time import one_thread_ns
from nn_runtime.codes import CONTROL_FLOW, OperationCode
from nn_runtime.hal.costs import LOOP_GUESS
from nn_runtime.hal.references import innermost_first, referenced_by
from nn_runtime.hal.types import OperandLifeTime
from nn_runtime.operand import has_unknown_dimensions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpu_driver.device_profile import DeviceProfile
    from nn_runtime.hal.types import Model, Subgraph

WAKE_NS = 70_000
"""What it takes at least to have threads compute something."""
_LAUNCH_WAKES = 0.025
"""What a launch of threads after the first costs more than one in the calling thread, in such times."""

_BY_THEMSELVES = frozenset((
    OperationCode.ARGMAX, OperationCode.ARGMIN, OperationCode.EMBEDDING_LOOKUP, OperationCode.EQUAL, OperationCode.FILL,
    OperationCode.GATHER, OperationCode.GREATER, OperationCode.GREATER_EQUAL, OperationCode.LESS,
    OperationCode.LESS_EQUAL, OperationCode.LOGICAL_AND, OperationCode.LOGICAL_NOT, OperationCode.LOGICAL_OR,
    OperationCode.LSTM, OperationCode.NOT_EQUAL, OperationCode.PACK, OperationCode.QUANTIZED_LSTM, OperationCode.RNN,
    OperationCode.SELECT, OperationCode.TOPK_V2,
))  # fmt: skip
"""Operations that models have by the hundred, and that are no steps of chains, of integers or short rows at least."""


def is_small(model: Model, threads: int, *, quantizes_inputs: bool = False) -> bool:
    """Whether all sizes of a model are known, and one thread computes it before so many could be woken and done."""
    operands = [operand for subgraph in (model.main, *model.referenced) for operand in subgraph.operands]
    if any(
        has_unknown_dimensions(operand.type, operand.dimensions)
        for operand in operands
        if operand.lifetime != OperandLifeTime.NO_VALUE
    ):
        return False
    alone = one_thread_ns(model, quantizes_inputs=quantizes_inputs)
    return alone <= WAKE_NS * _wakes(model) * max(2, threads) / (max(2, threads) - 1)


def _wakes(model: Model) -> float:
    """Return how often threads are woken: at first, and after every decision of a branch or a loop."""
    inner: dict[int, float] = {}
    for number in innermost_first(model.main, model.referenced):
        inner[number] = _wakes_within(model.referenced[number], inner)
    return 1 + _wakes_within(model.main, inner)


def _wakes_within(graph: Subgraph, inner: Mapping[int, float]) -> float:
    wakes = 0.0
    for operation in graph.operations:
        if operation.type in CONTROL_FLOW:
            times = LOOP_GUESS if operation.type == OperationCode.WHILE else 1
            wakes += times * (1 + sum(inner[number] for number in referenced_by(graph, operation)))
        elif operation.type in _BY_THEMSELVES:
            wakes += _LAUNCH_WAKES
    return wakes


def one_thread(profile: DeviceProfile) -> DeviceProfile:
    """Return the profile of the inline device of a device."""
    return replace(profile, compute_units=1, identity=f"{profile.identity}-inline")
