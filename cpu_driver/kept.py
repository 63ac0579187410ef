# SPDX-License-Identifier: Apache-2.0
"""What an operation makes of its constants, kept between runs."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, TypeVar, cast

from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from cpu_driver.graph import RuntimeOperand
    from nn_runtime.operand import Dimensions
    from nn_runtime.operations import OperationView

T = TypeVar("T")

_kept: weakref.WeakKeyDictionary[OperationView, dict[Callable[[OperationView], object], _Made]]
_kept = weakref.WeakKeyDictionary()
"""By operation and by the function that made it."""


@dataclass(frozen=True)
class _Made:
    """What was made for some sizes of varying inputs."""

    varying: list[RuntimeOperand]
    dimensions: list[Dimensions | None]
    made: object


def kept(
    op: OperationView, make: Callable[[OperationView], T], varying: Collection[str] = ("input",), *, sized: bool = True
) -> T:
    """Return make(op), kept for later runs if all but the varying inputs are constants, and these keep their sizes.

    `make` must not read varying inputs, nor their sizes if it is not `sized`: then what it made serves all sizes.
    """
    of_operation = _kept.get(op)
    found = None if of_operation is None else of_operation.get(make)
    if found is not None and found.dimensions == [operand.dimensions for operand in found.varying]:
        return cast("T", found.made)
    made = make(op)
    inputs = cast("Sequence[RuntimeOperand]", op.inputs)
    places = {op.position(name) for name in varying}
    if all(operand.is_constant for at, operand in enumerate(inputs) if at not in places):
        varied = [inputs[at] for at in places] if sized else []
        _kept.setdefault(op, {})[make] = _Made(varied, [operand.dimensions for operand in varied], made)
    return made
