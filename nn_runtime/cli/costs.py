# SPDX-License-Identifier: Apache-2.0
"""What the devices' tables of costs say, and measuring them anew: part of `nnrt doctor`."""

from __future__ import annotations

import functools
import statistics
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from nn_runtime.cli.output import on_terminal, progress, warn
from nn_runtime.cost import cost_table
from nn_runtime.hal.costs import store_table
from nn_runtime.reports import duration_text
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.device import Device
    from nn_runtime.hal.costs import CostTable


@dataclass(frozen=True)
class CostSummary:
    """A table in a few figures, in ns: a run of nothing, an argument more, the median operation, and its source."""

    run_ns: float
    argument_ns: float
    operation_ns: float
    source: str


def summary_of(table: CostTable) -> CostSummary:
    """Return the figures to show."""
    fixed = [row.fixed_ns for kinds in table.operations.values() for row in kinds.values()]
    return CostSummary(table.run_ns, (table.input_ns + table.output_ns) / 2, statistics.median(fixed), table.source)


def line(name: str, summary: CostSummary) -> str:
    """Return one line of the report."""
    run, argument, operation = map(duration_text, (summary.run_ns, summary.argument_ns, summary.operation_ns))
    return f"costs      {name}: a run {run}, an argument {argument}, an operation {operation} ({summary.source})"


def measure(devices: Sequence[Device]) -> dict[str, CostTable | None]:
    """Fit the tables of every device that tells its costs, store and return them; raises NNError, OSError.

    They count from the next start on: within a process answers do not change.
    """
    from nn_runtime.testing.cost_calibration import calibrated  # slow to import, of use here alone

    tables: dict[str, CostTable | None] = {}
    for device in devices:
        base = cost_table(device)
        if base is not None:
            if not on_terminal():  # where there is a bar
                warn(f"measuring {device.name}, for one to four minutes")
            found = calibrated(device, base, functools.partial(progress, f"measuring {device.name}"))
            found = replace(found, source=f"measured {datetime.now(timezone.utc):%Y-%m-%d}")
            store_table(device.name, device.version, found)
            tables[device.name] = found
    return tables
