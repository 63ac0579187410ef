# SPDX-License-Identifier: Apache-2.0
"""Boxes [n, 4], two opposite corners each: overlap, and non-maximum suppression that breaks ties by the lower index."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.operand import FLOAT_TYPES
from nn_runtime.quantization import dequantize

if TYPE_CHECKING:
    from collections.abc import Callable

    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView


def real_boxes(op: OperationView, name: str) -> Array:
    """Return an input in float32, dequantised."""
    values, operand = op.array(name), op.input(name)
    return values.astype(np.float32, copy=False) if operand.type in FLOAT_TYPES else dequantize(values, operand)


def intersection_over_union(box: Array, others: Array) -> Array:
    """Return the overlap of one box with each of the others [n, 4]; NaN where both are empty."""
    sides = np.maximum(np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2]), 0)
    intersection = sides[:, 0] * sides[:, 1]
    areas = (others[:, 2] - others[:, 0]) * (others[:, 3] - others[:, 1])
    area = (box[2] - box[0]) * (box[3] - box[1])
    with np.errstate(invalid="ignore", divide="ignore"):
        overlap: Array = intersection / (area + areas - intersection)
    return overlap


def hard_nms(boxes: Array, scores: Array, candidates: Array, iou_threshold: float, limit: int) -> Array:
    """Return those of the candidates (indices) that overlap no better one by the threshold, by falling score.

    `limit` < 0 is none.
    """
    remaining = candidates[np.argsort(-scores[candidates], kind="stable")]
    kept: list[int] = []
    while remaining.size and len(kept) != limit:
        best, remaining = int(remaining[0]), remaining[1:]
        kept.append(best)
        remaining = remaining[~(intersection_over_union(boxes[best], boxes[remaining]) >= np.float32(iou_threshold))]
    return np.array(kept, np.int64)


def soft_nms(
    boxes: Array, scores: Array, candidates: Array, kernel: Callable[[Array], Array], threshold: float, limit: int
) -> Array:
    """Return the candidates (indices) that remain, by falling score, and lower `scores` in place.

    Each chosen box multiplies the scores of the rest by `kernel` of their overlap; the rest falls out below the
    threshold. `limit` < 0 is none.
    """
    remaining = candidates
    kept: list[int] = []
    while remaining.size and len(kept) != limit:
        at = int(np.argmax(scores[remaining]))
        best = int(remaining[at])
        kept.append(best)
        remaining = np.delete(remaining, at)
        scores[remaining] *= kernel(intersection_over_union(boxes[best], boxes[remaining]))
        remaining = remaining[~(scores[remaining] < np.float32(threshold))]
    return np.array(kept, np.int64)
