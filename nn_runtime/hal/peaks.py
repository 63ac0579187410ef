# SPDX-License-Identifier: Apache-2.0
"""What a device can do at most, as measured on it: the roof of a roofline."""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias, runtime_checkable

from nn_runtime.value_classes import dataclass

Arithmetic: TypeAlias = Literal["float32", "float16", "quant8"]
"""The kinds that have a peak each: the names of `Peaks`."""


@dataclass(frozen=True)
class Peaks:
    """Measured rates per nanosecond: operations (a multiplication and an addition count two), bytes read or written.

    float32, float16, quant8: of arithmetic, on data in registers, in the way in which the device's kernels multiply
    numbers of that type: float16 is float32 where they make floats of them. cache: bytes of a few hundred KiB that are
    moved again and again; memory: bytes of many MiB.
    """

    float32: float
    float16: float
    quant8: float
    cache: float
    memory: float

    def of_arithmetic(self, kind: Arithmetic) -> float:
        """Return the peak of a kind of arithmetic."""
        rate: float = getattr(self, kind)
        return rate


@runtime_checkable
class HasPeaks(Protocol):
    """Optional: a device that knows its peaks, for `nnrt benchmark --profile`."""

    def peaks(self) -> Peaks | None:
        """Return the device's peaks: the most that was ever measured, now included, which may take a second.

        None where they cannot be measured.
        """
