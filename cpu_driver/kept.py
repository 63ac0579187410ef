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

_kept: weakref.WeakKeyDictionary[OperationView, tuple[list[Dimensions | None], object]] = weakref.WeakKeyDictionary()


def kept(op: OperationView, make: Callable[[OperationView], T], varying: Collection[str] = ("input",)) -> T:
    """Return make(op), kept for later runs if all but the varying inputs are constants, and these keep their sizes.

    `make` must not read varying inputs.
    """
    inputs = cast("Sequence[RuntimeOperand]", op.inputs)
    places = {op.position(name) for name in varying}
    if not all(operand.is_constant for at, operand in enumerate(inputs) if at not in places):
        return make(op)
    dimensions = [inputs[at].dimensions for at in places]
    found = _kept.get(op)
    if found is not None and found[0] == dimensions:
        return cast("T", found[1])
    made = make(op)
    _kept[op] = (dimensions, made)
    return made
