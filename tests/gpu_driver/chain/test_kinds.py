# SPDX-License-Identifier: Apache-2.0
"""The numbers of gpu_driver/chain/kinds.py beside those of the kernels."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

import kernels_cl
from gpu_driver.chain.kinds import From, Function, Kind, Rescale, Round

if TYPE_CHECKING:
    from enum import IntEnum


@pytest.mark.parametrize(
    ("numbers", "prefix"), [(Kind, "KIND"), (Rescale, "RESCALE"), (Round, "ROUND"), (From, "FROM"), (Function, "DO")]
)
def test_numbers_are_those_of_the_kernel(numbers: type[IntEnum], prefix: str) -> None:
    defined = re.findall(rf"^#define {prefix}_([A-Z_]+) (\d+)", kernels_cl.source("chain.cl"), re.MULTILINE)
    assert {name: int(number) for name, number in defined} == {one.name: one.value for one in numbers}
