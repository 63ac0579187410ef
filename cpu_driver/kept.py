# SPDX-License-Identifier: Apache-2.0
"""What an operation makes of its constants, kept between runs."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from nn_runtime.operand import Array, Dimensions
    from nn_runtime.operations import OperationView

T = TypeVar("T")

_kept: weakref.WeakKeyDictionary[OperationView, tuple[list[Dimensions | Array | None], object]] = (
    weakref.WeakKeyDictionary()
)


def kept(op: OperationView, make: Callable[[OperationView], T], varying: Collection[str] = ("input",)) -> T:
    """Return make(op), made anew only where dimensions of the varying inputs or arrays of the others have changed.

    Constants keep their arrays, everything else gets a new one in each run. `make` must not read varying inputs.
    """
    places = {op.position(name) for name in varying}
    seen = [operand.dimensions if at in places else operand.value() for at, operand in enumerate(op.inputs)]
    found = _kept.get(op)
    if found is not None and all(
        a is b or (at in places and a == b) for at, (a, b) in enumerate(zip(found[0], seen, strict=True))
    ):
        return cast("T", found[1])
    made = make(op)
    _kept[op] = (seen, made)
    return made
