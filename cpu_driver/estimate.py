# SPDX-License-Identifier: Apache-2.0
"""What operations cost over numpy: the table that was measured on this machine, else the shipped one."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from importlib import resources

from nn_runtime.hal.costs import CostTable, measured_table


def cost_table_of(name: str, version: str) -> CostTable:
    """Return the measured table of this driver version and processor, else the shipped one."""
    return measured_table(name, version) or shipped_table()


@functools.cache
def shipped_table() -> CostTable:
    """Return the table in costs.json."""
    text = resources.files("cpu_driver").joinpath("costs.json").read_text(encoding="utf-8")
    return replace(CostTable.from_json(json.loads(text)), source="shipped")
