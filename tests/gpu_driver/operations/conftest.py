# SPDX-License-Identifier: Apache-2.0
"""The OpenCL devices under test."""

from __future__ import annotations

import pytest

from nn_runtime.device import Device
from nn_runtime.devices import select
from tests.conftest import device_selectors
from tests.gpu_driver.operations.products import of_type_gpu


@pytest.fixture(scope="session", params=[selector for selector in device_selectors() if selector != "cpu"])
def opencl_device(request: pytest.FixtureRequest) -> Device:
    """Every device under test but the CPU's, in turn."""
    return select(request.param).devices[0]


@pytest.fixture(scope="session")
def as_gpu(opencl_device: Device) -> Device:
    """Return the device under test with a profile that says it is a GPU."""
    return Device(of_type_gpu(opencl_device))
