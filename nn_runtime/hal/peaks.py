# SPDX-License-Identifier: Apache-2.0
"""What a device can do at most, as measured on it: the roof of a roofline."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from nn_runtime.value_classes import dataclass


@dataclass(frozen=True)
class Peaks:
    """Measured rates per nanosecond: operations (a multiplication and an addition count two), bytes read or written.

    float32, quant8: of arithmetic, on data in registers. cache: bytes of a few hundred KiB that are moved again and
    again; memory: bytes of many MiB.
    """

    float32: float
    quant8: float
    cache: float
    memory: float


@runtime_checkable
class HasPeaks(Protocol):
    """Optional: a device that knows its peaks, for `nnrt benchmark --profile`."""

    def peaks(self) -> Peaks:
        """Return the device's peaks: the most that was ever measured, now included, which may take a second."""
