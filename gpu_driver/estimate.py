# SPDX-License-Identifier: Apache-2.0
"""What operations cost on an OpenCL device: the table that was measured on this machine, else the one of its class."""

from __future__ import annotations

import functools
import json
from importlib import resources
from typing import TYPE_CHECKING

from nn_runtime.hal.costs import CostFactors, CostTable, measured_table
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from gpu_driver.device_profile import DeviceProfile


@dataclass(frozen=True)
class _Class:
    """A row of profiles/costs.json; no slugs means any, no type too."""

    name: str
    slugs: tuple[str, ...]
    type_name: str | None
    table: str
    factors: CostFactors


def cost_table_of(profile: DeviceProfile, version: str) -> CostTable:
    """Return the measured table of this device, driver version and processor, else that of the device's class."""
    return measured_table(profile.name, version) or shipped_table(profile)


def shipped_table(profile: DeviceProfile) -> CostTable:
    """Return the table of a device's class in profiles/costs.json: the first row whose slugs and type fit."""
    for row in _classes():
        if (not row.slugs or profile.slug in row.slugs) and row.type_name in (None, profile.type.name):
            return _table(row.table).scaled(f"shipped: {row.name}", row.factors)
    raise LookupError(f"profiles/costs.json has no class for {profile.name}")


@functools.cache
def _table(name: str) -> CostTable:
    return CostTable.from_json(json.loads(_read(f"costs_{name}.json")))


@functools.cache
def _classes() -> tuple[_Class, ...]:
    return tuple(
        _Class(row["class"], tuple(row["slugs"]), row["type"], row["table"], CostFactors(**row["factors"]))
        for row in json.loads(_read("costs.json"))["classes"]
    )


def _read(name: str) -> str:
    return resources.files("gpu_driver").joinpath(f"profiles/{name}").read_text(encoding="utf-8")
