# SPDX-License-Identifier: Apache-2.0
"""One launcher per operation, one file per family, which `nn_runtime.families` lists.

A launcher turns a bound operation into launches; it makes no OpenCL call. Next to it `supports` may give a function
that returns the reason why this device cannot take an operation, or "" if it can.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.families import FAMILIES, Families

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_driver.bound import BoundOperation
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.launch import Lowered
    from nn_runtime.codes import OperationCode
    from nn_runtime.operations import OperationView

    Launcher = Callable[[BoundOperation, DeviceProfile], Lowered]
    Refusal = Callable[[OperationView, DeviceProfile], str]

_launchers: dict[int, Launcher] = {}
_refusals: dict[int, Refusal] = {}
_families = Families(__name__, FAMILIES)


def launches(*codes: OperationCode) -> Callable[[Launcher], Launcher]:
    """Register the launcher of operations; raises ValueError if one has a launcher already."""

    def register(launcher: Launcher) -> Launcher:
        for code in codes:
            if code in _launchers:
                raise ValueError(f"{code.name} has two launchers")
            _launchers[code] = launcher
        return launcher

    return register


def supports(*codes: OperationCode) -> Callable[[Refusal], Refusal]:
    """Register the function that says why an operation is refused ("" if it is not)."""

    def register(refusal: Refusal) -> Refusal:
        for code in codes:
            _refusals[code] = refusal
        return refusal

    return register


def launcher_of(code: int) -> Launcher | None:
    """Return the launcher of an operation, or None."""
    _families.load(code)
    return _launchers.get(code)


def load_families() -> None:
    """Import every family, while something else is waited for."""
    _families.load_all()


def refusal_of(op: OperationView, device: DeviceProfile) -> str:
    """Return why the family refuses this operation on the device, or ""."""
    _families.load(op.code)
    refusal = _refusals.get(op.code)
    return refusal(op, device) if refusal else ""
