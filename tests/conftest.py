# SPDX-License-Identifier: Apache-2.0
"""Devices and corpus that tests run on: NNRT_DEVICE names devices beside the CPU, NNRT_VTS_DIR the examples."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpu_driver.device import inline
from gpu_driver.passes import branches
from nn_runtime.devices import select

if TYPE_CHECKING:
    from nn_runtime.device import Device

REPOSITORY = Path(__file__).parent.parent
WAKE_NS = inline.WAKE_NS
"""As it is outside of tests."""
inline.WAKE_NS = -1  # the small models of tests go the way of large ones, with all cores; test_inline.py has the others
GREATEST_NS = branches.GREATEST_NS
"""As it is outside of tests."""
branches.GREATEST_NS = -1  # their small branches are decided like large ones; test_branches.py has the others


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the long suites whole: corpus, random graphs, mutations")


def device_selectors() -> list[str]:
    """Return the selectors under test: the CPU, and each item of NNRT_DEVICE."""
    named = [item.strip() for item in os.environ.get("NNRT_DEVICE", "").split(",")]
    return list(dict.fromkeys(["cpu", *filter(None, named)]))


@pytest.fixture(scope="session", params=device_selectors())
def device(request: pytest.FixtureRequest) -> Device:
    """Every device under test, in turn."""
    return select(request.param).devices[0]


@pytest.fixture(scope="session")
def reference_device() -> Device:
    """The CPU driver's device."""
    return select("cpu").devices[0]


@pytest.fixture(scope="session")
def is_long(request: pytest.FixtureRequest) -> bool:
    """Whether the long suites run whole (`--long`), not in samples."""
    return bool(request.config.getoption("--long"))


@pytest.fixture(scope="session")
def corpus_folder() -> Path:
    """The folder of operation examples; skips where there is none."""
    folder = Path(os.environ.get("NNRT_VTS_DIR", REPOSITORY.parent / "shared" / "vts"))
    if not folder.is_dir():
        pytest.skip(f"no operation examples in {folder} (NNRT_VTS_DIR)")
    return folder
