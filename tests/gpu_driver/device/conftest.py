# SPDX-License-Identifier: Apache-2.0
"""What tests of device memory share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.gpu_driver.running import fresh

if TYPE_CHECKING:
    from gpu_driver.driver import Device


@pytest.fixture
def device(opencl_device: Device) -> Device:
    """The device under test, with counts of its own."""
    return fresh(opencl_device)
