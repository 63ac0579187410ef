# SPDX-License-Identifier: Apache-2.0
"""Device memory beside its bytes: for which uses it was made, what it holds (SURFACE section e)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.errors import BadData, OperationFailed
from nn_runtime.operand import merge_dimensions
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from nn_runtime.hal.types import Operand
    from nn_runtime.operand import Dimensions
    from nn_runtime.plan import Plan


@dataclass(frozen=True)
class Role:
    """A use of device memory: input or output `index` of a compilation, told by its plan."""

    plan: Plan
    is_input: bool
    index: int

    def __str__(self) -> str:
        return f"{'input' if self.is_input else 'output'} {self.index}"


class Domain:
    """What device memory knows beside its bytes: roles, type, initial and current dimensions, whether it has data."""

    def __init__(self, roles: frozenset[Role], operand: Operand, dimensions: Dimensions) -> None:
        """Start uninitialised."""
        self.roles = roles
        self.operand = operand
        self.initial = dimensions
        self.current = dimensions
        self.initialized = False

    def check_role(self, role: Role) -> None:
        """Raise BadData unless the memory was made for this use."""
        if role not in self.roles:
            known = ", ".join(sorted(str(known) for known in self.roles))
            raise BadData(f"{role}: this device memory was made for {known} of its compilations, not for this use")

    def check_input(self, index: int, dimensions: Dimensions) -> None:
        """Raise OperationFailed unless there is data of just these dimensions to read."""
        if not self.initialized:
            raise OperationFailed(f"input {index}: the device memory has no data yet")
        if dimensions and self.current and dimensions != self.current:
            raise OperationFailed(
                f"input {index}: the device memory holds {list(self.current)}, the input is {list(dimensions)}"
            )

    def written(self, dimensions: Dimensions) -> None:
        """Take the dimensions of a new result; raises OperationFailed where they contradict the initial ones."""
        self.initialized = False
        try:
            self.current = merge_dimensions(self.initial, dimensions)
        except BadData as error:
            raise OperationFailed(f"device memory: {error}") from error
        self.initialized = True

    def spoiled(self) -> None:
        """Note that a write failed."""
        self.initialized = False
