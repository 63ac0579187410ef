# SPDX-License-Identifier: Apache-2.0
"""The OpenCL devices under test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from nn_runtime.devices import select
from tests.conftest import device_selectors

if TYPE_CHECKING:
    from nn_runtime.device import Device


@pytest.fixture(scope="session", params=[selector for selector in device_selectors() if selector != "cpu"])
def opencl_device(request: pytest.FixtureRequest) -> Device:
    """Every device under test but the CPU's, in turn."""
    return select(request.param).devices[0]
