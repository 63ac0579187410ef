# SPDX-License-Identifier: Apache-2.0
"""List every device: its name, kind, driver and version, and whether it can be used or why not.

Devices come in the order in which a selector such as `opencl,cpu` prefers them. A star marks those that are used
where no --device is given (NNRT_DEVICE, else PYOPENCL_CTX, else `opencl,cpu`); where that takes none of them, the
exit status is 2.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from nn_runtime.cli.output import print_json, print_lines, reported_here, table
from nn_runtime.devices import driver_names, listing, reference_device, select, selector_in_force
from nn_runtime.errors import NNError
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    import argparse

    from nn_runtime.device import Device
    from nn_runtime.hal.interfaces import DeviceDescription, UnusableDevice


@dataclass(frozen=True)
class Row:
    """One device. `reason`: why it cannot be used. `selected`: used where no --device is given."""

    name: str
    type: str
    driver: str
    version: str
    device: str
    platform: str
    usable: bool
    reason: str
    selected: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options and arguments."""
    parser.add_argument("--json", action="store_true", help="print the list as JSON")


def run(args: argparse.Namespace) -> int:
    """Print the list; a driver that cannot be loaded has a line of its own below it. Raises SelectorError behind it."""
    with reported_here():
        rows, failures = device_rows()
    selector = selector_in_force()
    if args.json:
        print_json({"selector": selector, "devices": [asdict(row) for row in rows], "failures": failures})
    else:
        header = ("", "name", "type", "state", "device", "driver version, or why it cannot be used")
        print_lines(table(header, [_cells(row) for row in rows]))
        print_lines(f"{failure}; nnrt doctor says more" for failure in failures)
        if not any(row.usable for row in rows if row.driver != "cpu") and not failures:
            print_lines(["no OpenCL device; nnrt doctor says why"])
    select()  # raises where the selector in force takes nothing
    return 0


def device_rows() -> tuple[list[Row], list[str]]:
    """Return every device of every driver, the CPU's last, and the drivers that cannot be loaded with the reason."""
    selected = _selected_names()
    rows: list[Row] = []
    failures: list[str] = []
    for driver in driver_names():
        offered = listing(driver)
        rows += [_usable_row(driver, device, selected) for device in offered.devices]
        rows += [_unusable_row(driver, item) for item in offered.unusable]
        if offered.failure:
            failures.append(offered.failure)
    rows.append(_usable_row("cpu", reference_device(), selected))
    return rows, failures


def _selected_names() -> set[str]:
    try:
        return {device.name for device in select().devices}
    except NNError:
        return set()


def _usable_row(driver: str, device: Device, selected: set[str]) -> Row:
    return Row(
        device.name, device.type.name, driver, device.version, _device_text(device.description),
        _platform_text(device.description), True, "", device.name in selected,
    )  # fmt: skip


def _unusable_row(driver: str, item: UnusableDevice) -> Row:
    described = item.description
    return Row(
        item.name, described.type.name, driver, described.device_version, _device_text(described),
        _platform_text(described), False, item.reason, False,
    )  # fmt: skip


def _device_text(description: DeviceDescription | None) -> str:
    return description.device_name if description else ""


def _platform_text(description: DeviceDescription | None) -> str:
    return description.platform_name if description else ""


def _cells(row: Row) -> tuple[str, ...]:
    mark = "*" if row.selected else " "
    state = "usable" if row.usable else "not usable"
    return mark, row.name, row.type, state, row.device, row.version if row.usable else row.reason
