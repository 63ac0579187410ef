# SPDX-License-Identifier: Apache-2.0
"""Drivers of every version that has an adapter."""

from __future__ import annotations

import pytest

from tests.nn_runtime.hal.versions.adapted_driver import VERSIONS, Driver


@pytest.fixture(params=VERSIONS, ids=lambda version: version.name)
def driver(request: pytest.FixtureRequest) -> Driver:
    return Driver(request.param)
