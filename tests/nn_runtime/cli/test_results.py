# SPDX-License-Identifier: Apache-2.0
"""What an output is taken for, and the lines printed of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.cli.results import (
    Result,
    Statistics,
    is_classifier,
    read_labels,
    summarize,
    summary_json,
    summary_lines,
)
from nn_runtime.errors import BadData

if TYPE_CHECKING:
    from pathlib import Path


def test_probabilities_of_a_quantised_classifier() -> None:
    values = np.array([[0, 200, 50, 6]], np.uint8)
    result = Result("scores", values, 1 / 256, 0)
    summary = summarize(result, ["background", "cat", "dog", "bird"], 2)
    assert summary_lines(result, summary) == [
        "scores  uint8 1x4",
        "  probability  class",
        "       78.12%      1  cat",
        "       19.53%      2  dog",
    ]
    assert summary_json(result, summary)["top"] == [
        {"index": 1, "label": "cat", "value": 0.78125},
        {"index": 2, "label": "dog", "value": 0.1953125},
    ]


@pytest.mark.parametrize(("classes", "is_classifier"), [(1001, True), (4, False)])
def test_probabilities_that_are_rounded_to_0_are_missing_in_the_sum(classes: int, is_classifier: bool) -> None:
    values = np.zeros((1, classes), np.uint8)
    values[0, :3] = 100, 80, 36  # 0.84 of 1; MobileNet has such answers
    summary = summarize(Result("p", values, 1 / 256, 0), [], 1)
    assert isinstance(summary, Statistics) != is_classifier


def test_what_softmax_makes_is_probabilities_whatever_their_sum() -> None:
    values = np.zeros((1, 1001), np.uint8)
    values[0, 3] = 15  # the others are less than half a step
    assert not is_classifier(Result("p", values, 1 / 256, 0), [])
    assert is_classifier(Result("p", values, 1 / 256, 0, is_softmax=True), [])


def test_scores_without_bounds_need_labels_to_be_ranked() -> None:
    result = Result("logits", np.array([[-3.0, 9.5, 2.0]], np.float32), 0.0, 0)
    assert isinstance(summarize(result, [], 3), Statistics)
    lines = summary_lines(result, summarize(result, ["a", "b", "c"], 1))
    assert lines[1:] == ["  score  class", "    9.5      1  b"]


def test_equal_scores_keep_their_order() -> None:
    result = Result("p", np.full((1, 4), 0.25, np.float32), 0.0, 0)
    assert [line.split()[1] for line in summary_lines(result, summarize(result, [], 3))[2:]] == ["0", "1", "2"]


def test_areas_of_a_class_map() -> None:
    values = np.zeros((1, 4, 5), np.int64)
    values[0, :2, :3] = 8
    result = Result("map", values, 0.0, 0)
    assert summary_lines(result, summarize(result, [], 5)) == [
        "map  int64 1x4x5",
        "   share  pixels  class",
        "  70.00%      14      0",
        "  30.00%       6      8",
    ]


def test_statistics_of_anything_else() -> None:
    values = np.linspace(-1, 1, 300, dtype=np.float32).reshape(1, 10, 30)
    values[0, 0, 0] = np.nan
    result = Result("features", values, 0.0, 0)
    lines = summary_lines(result, summarize(result, [], 5))
    assert lines[1].endswith("1 not finite")
    assert "max 1" in lines[1]


@pytest.mark.parametrize("values", [np.zeros((0, 4), np.float32), np.float32(3), np.array([[True]]), np.zeros((1, 1))])
def test_odd_outputs_are_printed(values: np.ndarray) -> None:
    result = Result("odd", np.asarray(values), 0.0, 0)
    assert summary_lines(result, summarize(result, [], 5))


def test_labels_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "labels").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadData, match="labels"):
        read_labels(tmp_path / "labels")
