# SPDX-License-Identifier: Apache-2.0
"""What of a device can be tuned, for `nnrt tune`: names and whole numbers, nothing that changes what is computed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


@dataclass(frozen=True)
class TuningParameter:
    """One thing to tune: its value without tuning, and the values worth trying."""

    name: str
    default: int
    candidates: tuple[int, ...]
    meaning: str


@runtime_checkable
class Tunable(Protocol):
    """Optional: a device with parameters that may be tuned for speed.

    The same values always give the same bits. Values that were stored are used from the next process on, by all models.
    """

    def tuning_parameters(self) -> Sequence[TuningParameter]:
        """Return what can be tuned on this device, the most promising first; none where nothing can."""

    def tuning(self) -> Mapping[str, int]:
        """Return the values in force by name."""

    def set_tuning(self, values: Mapping[str, int]) -> None:
        """Use these values (defaults for the rest) for models prepared from now on; raises ValueError for others."""

    def store_tuning(self, values: Mapping[str, int], measured: Mapping[str, object], path: Path | None = None) -> Path:
        """Store values for this device and driver version, with what was measured, and return the file.

        Without a path it is where they are looked for; a folder gets a file of the device's own name. Raises OSError,
        ValueError for values that `set_tuning` refuses.
        """
