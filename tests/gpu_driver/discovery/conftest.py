# SPDX-License-Identifier: Apache-2.0
"""What the tests of discovery share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="package")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache folder for all, so that devices are tried out once."""
    return tmp_path_factory.mktemp("cache")
