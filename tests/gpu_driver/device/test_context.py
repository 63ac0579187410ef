# SPDX-License-Identifier: Apache-2.0
"""What a device holds in a process, at the end of that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpu_driver.device import context as device_context
from nn_runtime.hal.types import HalError, Priority
from tests.gpu_driver.running import fresh

if TYPE_CHECKING:
    from gpu_driver.driver import Device


def test_nobody_is_let_in_at_the_end_where_somebody_stays(
    opencl_device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = fresh(opencl_device).context()
    monkeypatch.setattr(device_context, "EXIT_SECONDS", 0.01)
    with context.executions.slot(Priority.HIGH):
        context.shut_down()
    for users in (context.executions, context.preparations):
        with pytest.raises(HalError, match="the interpreter is ending"), users.slot(Priority.HIGH):
            raise AssertionError("somebody is let in")
