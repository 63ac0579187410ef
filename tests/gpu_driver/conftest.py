# SPDX-License-Identifier: Apache-2.0
"""The OpenCL device under test: the first OpenCL item of NNRT_DEVICE, else any; a strict selector must find one."""

from __future__ import annotations

import os

import pytest

from gpu_driver.driver import Device
from nn_runtime.devices import select
from nn_runtime.errors import NNError


@pytest.fixture(scope="session")
def opencl_device() -> Device:
    items = [item.strip() for item in os.environ.get("NNRT_DEVICE", "").split(",")]
    named = [item for item in items if item.startswith("opencl")]
    try:
        found = select(named[0] if named else "opencl").devices[0].hal
    except NNError as error:
        if named:
            raise
        pytest.skip(f"no OpenCL device: {error}")
    if not isinstance(found, Device):
        raise TypeError(f"{found} is not of this driver")
    return found
