# SPDX-License-Identifier: Apache-2.0
"""Devices in processes of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.nn_runtime.hal.remote_driver import start

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nn_runtime.hal.remote import RemoteDevice


@pytest.fixture
def device() -> Iterator[RemoteDevice]:
    made = start()
    yield made
    made.close()


@pytest.fixture(scope="module")
def shared_device() -> Iterator[RemoteDevice]:
    made = start()
    yield made
    made.close()
