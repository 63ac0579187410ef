# SPDX-License-Identifier: Apache-2.0
"""Device memory beside its bytes: for which uses it was made, what it holds (SURFACE section e)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

from nn_runtime.errors import BadData, OperationFailed
from nn_runtime.operand import merge_dimensions
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from nn_runtime.hal.types import Operand
    from nn_runtime.operand import Dimensions
    from nn_runtime.plan import Plan

MEANING = ("type", "scale", "zero_point", "channel_quant", "extension_data")
"""What operands must have in common for the same bytes to mean the same."""


@dataclass(frozen=True)
class Role:
    """A use of device memory: input or output `index` of a compilation, told by its plan."""

    plan: Plan
    is_input: bool
    index: int

    def __str__(self) -> str:
        return f"{'input' if self.is_input else 'output'} {self.index}"


class Writer(Protocol):
    """A run that writes device memory."""

    def see_end(self) -> bool:
        """Let it say how it ended, if it has; return whether it has said so."""


class Domain:
    """What device memory knows beside its bytes: roles, type, initial and current dimensions, whether it has data."""

    def __init__(self, roles: frozenset[Role], operand: Operand, dimensions: Dimensions) -> None:
        """Start uninitialised."""
        self.roles = roles
        self.operand = operand
        self.initial = dimensions
        self._current = dimensions
        self._initialized = False
        self._writers: list[Writer] = []
        """Runs that have been started and may not have ended, in order."""
        self._lock = threading.Lock()

    @property
    def current(self) -> Dimensions:
        """Dimensions of what it holds: the initial ones as long as nothing tells more."""
        self._look_at_writers()
        return self._current

    @property
    def initialized(self) -> bool:
        """Whether it holds data."""
        self._look_at_writers()
        return self._initialized

    def check_role(self, role: Role) -> None:
        """Raise BadData unless the memory was made for this use."""
        if role not in self.roles:
            ours = sorted(str(known) for known in self.roles if known.plan is role.plan)
            made_for = f"{', '.join(ours)} of this compilation" if ours else "other compilations"
            raise BadData(f"{role}: this device memory was made for {made_for}, not for this use")

    def check_input(self, index: int, dimensions: Dimensions) -> None:
        """Raise OperationFailed unless there is data of just these dimensions to read."""
        if not self.initialized:
            raise OperationFailed(f"input {index}: the device memory has no data yet")
        if dimensions != self.current:
            raise OperationFailed(
                f"input {index}: the device memory holds {list(self.current)}, the input is {list(dimensions)}"
            )

    def begun(self, writer: Writer) -> None:
        """Note a run that will say how it ended; what began before is not asked any more once it has."""
        with self._lock:
            self._writers.append(writer)

    def written(self, dimensions: Dimensions, writer: Writer | None = None) -> None:
        """Take the dimensions of a new result; raises OperationFailed where they contradict the initial ones."""
        if not self._is_latest(writer):
            return
        self._initialized = False
        try:
            self._current = merge_dimensions(self.initial, dimensions)
        except BadData as error:
            raise OperationFailed(f"device memory: {error}") from error
        self._initialized = True

    def spoiled(self, writer: Writer | None = None) -> None:
        """Note that a write failed."""
        if self._is_latest(writer):
            self._initialized = False

    def _look_at_writers(self) -> None:
        for writer in tuple(self._writers):
            if not writer.see_end():
                break

    def _is_latest(self, writer: Writer | None) -> bool:
        """Let go of a run that has ended, and of those before it; return whether none after it has ended."""
        if writer is None:
            self._look_at_writers()
            return True
        with self._lock:
            if writer not in self._writers:
                return False
            del self._writers[: self._writers.index(writer) + 1]
            return True
