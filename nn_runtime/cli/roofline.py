# SPDX-License-Identifier: Apache-2.0
"""Measured times against a device's measured peaks: rates, and the part of what the roofline allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import OperandCode
from nn_runtime.devices import find_device
from nn_runtime.hal.peaks import HasPeaks
from nn_runtime.operand import QUANT8_TYPES
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nn_runtime.hal.peaks import Arithmetic, Peaks
    from nn_runtime.hal.types import Operation, Subgraph


@dataclass(frozen=True)
class Rates:
    """What a launch reached: operations and bytes per ns (G/s), 0 where it does not tell them.

    of_roof: part of the speed that the peaks allow for its operations and bytes, None where it has none of them or
    the device has no peaks; bound: which of the two allows less, "arithmetic", "memory" or "".
    """

    operations_per_ns: float
    bytes_per_ns: float
    of_roof: float | None
    bound: str


def rates(flops: int, size_bytes: int, duration_ns: float, peaks: Peaks | None, arithmetic: Arithmetic) -> Rates:
    """Return what a launch reached; the roof is arithmetic on registers, and data that lies in caches."""
    duration_ns = max(duration_ns, 1.0)
    if peaks is None or not (flops or size_bytes):
        return Rates(flops / duration_ns, size_bytes / duration_ns, None, "")
    arithmetic_ns = flops / peaks.of_arithmetic(arithmetic)
    memory_ns = size_bytes / peaks.cache
    bound = "arithmetic" if arithmetic_ns >= memory_ns else "memory"
    return Rates(
        flops / duration_ns, size_bytes / duration_ns, max(arithmetic_ns, memory_ns) / duration_ns, bound
    )  # fmt: skip


def peaks_of(devices: Iterable[str]) -> dict[str, Peaks]:
    """Return the peaks of devices that know them, by name; they are measured anew, the best ever seen counts."""
    found = {}
    for name in devices:
        hal = find_device(name).hal
        peaks = hal.peaks() if isinstance(hal, HasPeaks) else None
        if peaks is not None:
            found[name] = peaks
    return found


def arithmetic_of(graph: Subgraph, operation: Operation) -> Arithmetic:
    """Return the kind of arithmetic that an operation is counted as: by its first output and its first input.

    What makes bytes of others, or others of bytes, is of 8 bits; halves need both.
    """
    types = {graph.operands[i].type for i in (*operation.outputs[:1], *operation.inputs[:1])}
    if types & QUANT8_TYPES:
        return "quant8"
    return "float16" if types == {OperandCode.TENSOR_FLOAT16} else "float32"
