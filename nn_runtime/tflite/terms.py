# SPDX-License-Identifier: Apache-2.0
"""Integers that the run computes, as far as they are known before: an element of some tensor, and a number more.

So it is known of x[i : i + 2] how many elements it has, and of the vector (i, 0) that it ends with 0.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.tflite.values import Value


class Term(NamedTuple):
    """An integer: an element of what the run computes, if there is a source, and a number more."""

    source: Value | None
    element: int
    number: int


class Terms:
    """What is known of the integers of a graph's values."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._found: dict[Value, tuple[Term, ...]] = {}

    def of(self, value: Value) -> tuple[Term, ...]:
        """Return the integers of a value, of which there are few, in row-major order."""
        if value.data is not None:
            return tuple(Term(None, 0, int(number)) for number in value.data.reshape(-1))
        own = (Term(value, element, 0) for element in range(math.prod(value.shape or ())))
        return self._found.get(value) or tuple(own)

    def keep(self, value: Value, terms: Sequence[Term]) -> None:
        """Take down the integers of a value."""
        self._found[value] = tuple(terms)
