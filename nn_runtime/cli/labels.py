# SPDX-License-Identifier: Apache-2.0
"""Places for the labels of a picture's dots, such that no label covers another, a dot, or what else is there."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

HEIGHT = 12.0
"""Of a line of text, in pixels."""
_CHARACTER = 7.2
_GAP = 5.0
"""Between two labels in a line, so that they are not read as one number."""
_DISTANCES = (3.0, 12.0, 24.0, 40.0, 60.0)
_ANGLES = (0, 315, 45, 180, 225, 135, 270, 90, 337, 22, 292, 67, 247, 112, 202, 157)
"""Degrees from the right, clockwise, in order of preference."""


@dataclass(frozen=True)
class Box:
    """A rectangle in pixels, y downwards."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: Box) -> bool:
        """Tell whether two rectangles have a point in common."""
        beside = self.right < other.left or other.right < self.left
        return not (beside or self.bottom < other.top or other.bottom < self.top)

    def contains(self, other: Box) -> bool:
        """Tell whether the other rectangle lies inside."""
        across = self.left <= other.left and other.right <= self.right
        return across and self.top <= other.top and other.bottom <= self.bottom


@dataclass(frozen=True)
class Dot:
    """A dot in pixels, and the text that it is to have, "" for none."""

    x: float
    y: float
    radius: float
    text: str

    @property
    def box(self) -> Box:
        """The rectangle around the dot."""
        return Box(self.x - self.radius, self.y - self.radius, self.x + self.radius, self.y + self.radius)


@dataclass(frozen=True)
class Label:
    """A text at its place; `is_far`: so far from the dot that a line should join them."""

    dot: Dot
    box: Box
    is_far: bool


def text_box(x: float, baseline: float, text: str) -> Box:
    """Return about the rectangle of a text that begins at a point."""
    return Box(x, baseline - HEIGHT * 0.8, x + _CHARACTER * len(text), baseline + HEIGHT * 0.2)


def placed(dots: Sequence[Dot], area: Box, taken: Sequence[Box] = ()) -> list[Label]:
    """Return the labels that found a place, in the order of the dots: first come, nearest served."""
    occupied = [*taken, *(dot.box for dot in dots)]
    found: list[Label] = []
    for dot in dots:
        label = _place(dot, area, occupied) if dot.text else None
        if label is not None:
            found.append(label)
            occupied.append(Box(label.box.left - _GAP, label.box.top, label.box.right + _GAP, label.box.bottom))
    return found


def _place(dot: Dot, area: Box, occupied: Sequence[Box]) -> Label | None:
    half_width, half_height = _CHARACTER * len(dot.text) / 2, HEIGHT / 2
    for distance in _DISTANCES:
        for angle in _ANGLES:
            across, down = math.cos(math.radians(angle)), math.sin(math.radians(angle))
            x = dot.x + across * (dot.radius + distance + half_width)
            y = dot.y + down * (dot.radius + distance + half_height)
            box = Box(x - half_width, y - half_height, x + half_width, y + half_height)
            if area.contains(box) and not any(box.overlaps(other) for other in occupied):
                return Label(dot, box, distance > _DISTANCES[0])
    return None
