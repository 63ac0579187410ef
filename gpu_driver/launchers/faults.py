# SPDX-License-Identifier: Apache-2.0
"""How launches complain of values that a run brought: kernels with common/fault.h."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from gpu_driver.kernel import Fault, Scratch, int32

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperation
    from gpu_driver.kernel import Scalar

_INT_BYTES = 4

Faults: TypeAlias = "tuple[Fault | Scratch, Scalar]"
"""The arguments `fault` and `number` of a kernel."""


def complaints(op: BoundOperation, name: str, problem: str) -> Faults:
    """Return those of a kernel that checks input `name`; `problem`: `must be ...`."""
    number = _number(op)
    return Fault(number, f"{op.label}: {name} (input {op.position(name)}) {problem}"), int32(number)


def no_complaints(op: BoundOperation) -> Faults:
    """Return some where nothing can be wrong: nobody looks at what the kernel finds."""
    return Scratch(_INT_BYTES), int32(_number(op))


def _number(op: BoundOperation) -> int:
    return 1 + (op.index or 0)
