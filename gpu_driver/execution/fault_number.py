# SPDX-License-Identifier: Apache-2.0
"""What launches complain of: they leave the number of a fault in memory of their segment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.hal.types import ErrorStatus, HalError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpu_driver.device.context import DeviceContext
    from nn_runtime.operand import Array

_BYTES = 4


class FaultNumber:
    """The number of the fault that the first launch to complain left, else 0.

    buffer: where it is on the device. seen: int32 [1], the same memory where the host sees it, else None: then it must
    be read.
    """

    def __init__(self, device: DeviceContext, problems: Mapping[int, str]) -> None:
        """Take memory; `problems`: what the numbers mean."""
        self.buffer, bytes_seen = device.zeros(_BYTES)
        self.seen: Array | None = None if bytes_seen is None else bytes_seen.view(np.int32)
        self._problems = problems

    def check(self, number: int) -> None:
        """Raise HalError(GENERAL_FAILURE) where a number stands for a fault."""
        if number:
            raise HalError(ErrorStatus.GENERAL_FAILURE, self._problems[number])

    def check_seen(self) -> None:
        """Raise HalError(GENERAL_FAILURE) where the host sees a fault; nothing may run that could complain."""
        if self.seen is not None:
            self.check(int(self.seen[0]))

    def forget(self) -> None:
        """Leave no complaint to a later execution, where the host sees it; nothing may run that could complain."""
        if self.seen is not None:
            self.seen[0] = 0
