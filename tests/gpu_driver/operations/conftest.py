# SPDX-License-Identifier: Apache-2.0
"""The OpenCL devices under test."""

from __future__ import annotations

import pytest

from nn_runtime.devices import Device, select
from tests.conftest import device_selectors


@pytest.fixture(scope="session", params=[selector for selector in device_selectors() if selector != "cpu"])
def opencl_device(request: pytest.FixtureRequest) -> Device:
    """Every device under test but the CPU's, in turn."""
    return select(request.param).devices[0]
