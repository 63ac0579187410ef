# SPDX-License-Identifier: Apache-2.0
"""What an operation makes of its constants, kept between runs."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from cpu_driver.graph import RuntimeOperand
    from nn_runtime.operand import Dimensions
    from nn_runtime.operations import OperationView

T = TypeVar("T")

_kept: weakref.WeakKeyDictionary[OperationView, tuple[list[RuntimeOperand], list[Dimensions | None], object]]
_kept = weakref.WeakKeyDictionary()
"""The varying inputs of an operation, their sizes, and what was made for those."""


def kept(op: OperationView, make: Callable[[OperationView], T], varying: Collection[str] = ("input",)) -> T:
    """Return make(op), kept for later runs if all but the varying inputs are constants, and these keep their sizes.

    `make` must not read varying inputs.
    """
    found = _kept.get(op)
    if found is not None and found[1] == [operand.dimensions for operand in found[0]]:
        return cast("T", found[2])
    made = make(op)
    inputs = cast("Sequence[RuntimeOperand]", op.inputs)
    places = {op.position(name) for name in varying}
    if all(operand.is_constant for at, operand in enumerate(inputs) if at not in places):
        varied = [inputs[at] for at in places]
        _kept[op] = (varied, [operand.dimensions for operand in varied], made)
    return made
