# SPDX-License-Identifier: Apache-2.0
"""Labels of dots: near their dot, over nothing else."""

from __future__ import annotations

import itertools
import math

import numpy as np

from nn_runtime.cli.labels import Box, Dot, placed, text_box

AREA = Box(0, 0, 400, 300)


def test_a_label_alone_is_right_of_its_dot() -> None:
    (label,) = placed([Dot(100, 100, 5, "7")], AREA)
    assert label.box.left > 105
    assert label.box.top < 100 < label.box.bottom
    assert not label.is_far


def test_crowded_labels_cover_nothing() -> None:
    """Dots in a heap: every label inside, none over another label, a dot or what was there before."""
    random = np.random.default_rng(0)
    dots = [Dot(*random.normal((200, 150), 15), 4, str(at) if at < 8 else "") for at in range(25)]
    title = text_box(150, 180, "a line of text")
    labels = placed(dots, AREA, [title])
    assert [label.dot.text for label in labels] == [str(at) for at in range(8)]
    boxes = [label.box for label in labels]
    assert all(AREA.contains(box) for box in boxes)
    assert not any(a.overlaps(b) for a, b in itertools.combinations([*boxes, title], 2))
    assert not any(box.overlaps(dot.box) for box in boxes for dot in dots)
    for label in labels:
        away = math.dist(((label.box.left + label.box.right) / 2, (label.box.top + label.box.bottom) / 2),
                         (label.dot.x, label.dot.y))  # fmt: skip
        assert away < 80


def test_a_label_at_the_edge_stays_inside_and_one_without_room_is_left_out() -> None:
    (label,) = placed([Dot(398, 2, 2, "99")], AREA)
    assert AREA.contains(label.box)
    assert placed([Dot(5, 5, 5, "99")], Box(0, 0, 10, 10)) == []
