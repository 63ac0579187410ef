# SPDX-License-Identifier: Apache-2.0
"""Measure the tables of costs that ship with the package, for maintainers: after kernels or drivers have changed.

    python benchmarks/cost_tables.py [--rows] {cpu,opencl:pocl,opencl:intel} ...

Fits cpu_driver/costs.json and gpu_driver/profiles/costs_{pocl,intel}.json in the checkout to this machine, in one to
four minutes a device. With --rows every kind of operation is measured first, in some minutes, on a quiet machine.
Users fit the tables to their own devices with `nnrt doctor --measure`, which stores them elsewhere.
"""

from __future__ import annotations

import argparse
import functools
import json
from dataclasses import replace
from pathlib import Path

from nn_runtime.cli.output import progress
from nn_runtime.devices import select
from nn_runtime.hal.costs import CostTable
from nn_runtime.testing.cost_calibration import calibrated
from nn_runtime.testing.cost_probes import probed

ROOT = Path(__file__).parents[1]
FILES = {
    "cpu": ROOT / "cpu_driver" / "costs.json",
    "opencl:pocl": ROOT / "gpu_driver" / "profiles" / "costs_pocl.json",
    "opencl:intel": ROOT / "gpu_driver" / "profiles" / "costs_intel.json",
}
ABOUT = (
    "ns; rows: by class of data type [fixed at each step, the same with sizes known at run time only, element, "
    "multiply-add]"
)


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("devices", nargs="+", choices=FILES)
    parser.add_argument("--rows", action="store_true", help="measure every kind of operation first")
    arguments = parser.parse_args()
    for name in arguments.devices:
        file = FILES[name]
        before = CostTable.from_json(json.loads(file.read_text()))
        (device,) = select(name).devices
        table = before
        if arguments.rows:
            rows = probed(device, functools.partial(progress, f"probing {device.name}"))
            table = replace(rows, operations={**before.operations, **rows.operations})
        after = calibrated(device, table, functools.partial(progress, f"measuring {device.name}"))
        file.write_text(text_of(replace(after, source="shipped")))
        change = _change(before, after)
        print(f"{file.name}: a run {before.run_ns:.0f} -> {after.run_ns:.0f} ns, operations {change:.2f} times as much")


def text_of(table: CostTable) -> str:
    """Return a table as JSON with one operation a line."""
    head = {**table.to_json(), "about": ABOUT}
    rows = head.pop("operations")
    if not isinstance(rows, dict):
        raise TypeError(f"wanted a dict of operations, got {type(rows)}")
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    operations = [f"  {json.dumps(name)}: {json.dumps(kinds)}" for name, kinds in rows.items()]
    return "{\n" + ",\n".join(lines) + ',\n "operations": {\n' + ",\n".join(operations) + "\n }\n}\n"


def _change(before: CostTable, after: CostTable) -> float:
    """Return the middle ratio of the fixed costs of operations."""
    ratios = sorted(
        after.operations[name][kind].fixed_ns / row.fixed_ns
        for name, kinds in before.operations.items()
        for kind, row in kinds.items()
        if row.fixed_ns and kind in after.operations.get(name, {})
    )
    return ratios[len(ratios) // 2]


if __name__ == "__main__":
    main()
