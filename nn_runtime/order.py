# SPDX-License-Identifier: Apache-2.0
"""The order in which operations can run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from nn_runtime.hal.types import Operation


class ReadyOperations:
    """Tells which operations become ready, all that they read being written, as others are done."""

    def __init__(self, operations: Sequence[Operation], written: Collection[int]) -> None:
        """`written`: the operands that operations write; the others are there from the start."""
        self._operations = operations
        self._readers: dict[int, list[int]] = {}
        self._missing = [0] * len(operations)
        for at, operation in enumerate(operations):
            for index in operation.inputs:
                if index in written:
                    self._missing[at] += 1
                    self._readers.setdefault(index, []).append(at)

    def first(self) -> list[int]:
        """Return what is ready at the start, in order."""
        return [at for at, count in enumerate(self._missing) if count == 0]

    def after(self, at: int) -> list[int]:
        """Return what becomes ready when operation `at` is done."""
        ready = []
        for index in self._operations[at].outputs:
            for reader in self._readers.get(index, ()):
                self._missing[reader] -= 1
                if self._missing[reader] == 0:
                    ready.append(reader)
        return ready

    def waiting(self) -> list[int]:
        """Return what still waits for results, in order."""
        return [at for at, count in enumerate(self._missing) if count]
