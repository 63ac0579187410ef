# SPDX-License-Identifier: Apache-2.0
"""The OpenCL device under test: the first OpenCL item of NNRT_DEVICE, else any; a strict selector must find one.

And a cache's files, and a cache folder.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from gpu_driver.driver import Device
from nn_runtime.devices import select
from nn_runtime.errors import NNError
from tests.gpu_driver.cached import Files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


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


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    found = Files(tmp_path)
    yield found
    found.close()


@pytest.fixture(scope="package")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache folder for all, so that devices are tried out once."""
    return tmp_path_factory.mktemp("cache")
