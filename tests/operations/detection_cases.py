# SPDX-License-Identifier: Apache-2.0
"""Cases of the operations on boxes: each rule of the specification in plain Python, one box at a time.

Scores, and overlaps against thresholds, are chosen so that no decision hangs on rounding.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.operations.detection import NMS_GAUSSIAN, NMS_HARD, NMS_LINEAR
from nn_runtime.testing.corpus import Kind
from tests.operations.cases import (
    FLOAT32,
    FLOATS,
    INT32,
    KINDS,
    QUANT8,
    SIGNED,
    Argument,
    Case,
    flag,
    integer,
    of,
    real,
    tensor,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Box: TypeAlias = "Sequence[float]"

_Q16, _Q16_SYMM = OperandCode.TENSOR_QUANT16_ASYMM, OperandCode.TENSOR_QUANT16_SYMM
_UNIT = 0.125


def _overlap(a: Box, b: Box) -> float:
    width = max(min(a[2], b[2]) - max(a[0], b[0]), 0.0)
    height = max(min(a[3], b[3]) - max(a[1], b[1]), 0.0)
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - width * height
    return width * height / union


def _best_first(indices: list[int], score: Callable[[int], float]) -> list[int]:
    return sorted(indices, key=lambda index: -score(index))


def _hard(boxes: Sequence[Box], scores: Sequence[float], indices: list[int], threshold: float, limit: int) -> list[int]:
    kept: list[int] = []
    for index in _best_first(indices, lambda index: scores[index]):
        if len(kept) != limit and all(_overlap(boxes[index], boxes[better]) < threshold for better in kept):
            kept.append(index)
    return kept


def _moved(box: Box, delta: Box, image: tuple[float, float]) -> list[float]:
    """Return a box moved by dx, dy, dw, dh and cut to an image of a height and a width."""
    width, height = box[2] - box[0], box[3] - box[1]
    x, y = (box[0] + box[2]) / 2 + delta[0] * width, (box[1] + box[3]) / 2 + delta[1] * height
    half_width, half_height = math.exp(delta[2]) * width / 2, math.exp(delta[3]) * height / 2
    corners = (x - half_width, y - half_height, x + half_width, y + half_height)
    return [min(max(corner, 0.0), image[1 - at % 2]) for at, corner in enumerate(corners)]


def _boxes16(values: np.ndarray, quantized: bool, code: OperandCode = _Q16) -> Argument:
    """Return boxes: 16 bits with scale 1/8 beside 8-bit data, else the data type."""
    flat = values.reshape(-1)
    return of(code, values.shape, np.rint(flat / _UNIT), _UNIT) if quantized else tensor(values.shape, flat)


def _transform_cases() -> Iterator[Case]:
    rng = np.random.default_rng(50)
    rois = np.array([[10, 20, 50, 40], [0, 0, 8, 60], [30, 30, 30, 31], [5, 5, 100, 100]], np.float64)
    batches = [0, 1, 1, 0]
    images = [(80.0, 120.0), (64.0, 48.0)]
    deltas = rng.integers(-16, 17, (4, 3, 4)) / 16
    results = np.array(
        [
            [_moved(roi, delta, images[batch]) for delta in row]
            for roi, row, batch in zip(rois, deltas, batches, strict=True)
        ]
    ).reshape(4, 12)
    common = of(INT32, (4,), batches)
    sizes = np.array(images)
    yield Case(
        OperationCode.AXIS_ALIGNED_BBOX_TRANSFORM,
        "two_images",
        (_boxes16(rois, False), tensor((4, 12), deltas.reshape(-1)), common, _boxes16(sizes, False)),
        (_boxes16(results, False),),
        FLOATS,
    )
    for code, zero_point in ((QUANT8, 128), (SIGNED, 0)):
        codes = deltas.reshape(-1) * 16 + zero_point
        yield Case(
            OperationCode.AXIS_ALIGNED_BBOX_TRANSFORM,
            f"two_images_{code.name.lower()}",
            (_boxes16(rois, True), of(code, (4, 12), codes, 1 / 16, zero_point), common, _boxes16(sizes, True)),
            (_boxes16(results, True),),
            (_Q16,),
        )


def _limited(
    scores: np.ndarray,
    boxes: np.ndarray,
    batches: list[int],
    kernel: int,
    score_threshold: float,
    limit: int,
    nms_threshold: float,
) -> list[tuple[float, Box, int, int]]:
    """Return score, box, class and batch of each box that BOX_WITH_NMS_LIMIT keeps; IoU threshold 0.4, sigma 0.5."""
    factors: dict[int, Callable[[float], float]] = {
        NMS_HARD: lambda overlap: float(overlap < 0.4),
        NMS_LINEAR: lambda overlap: 1.0 if overlap < 0.4 else 1 - overlap,
        NMS_GAUSSIAN: lambda overlap: math.exp(-overlap * overlap / 0.5),
    }
    results = []
    for batch in sorted(set(batches)):
        rows = [row for row in range(len(batches)) if batches[row] == batch]
        found: list[tuple[float, Box, int, int]] = []
        for label in range(1, scores.shape[1]):
            left = {row: float(scores[row, label]) for row in rows if scores[row, label] > score_threshold}
            taken = 0
            while left and taken != limit:
                best = max(left, key=lambda row: left[row])
                found.append((left.pop(best), boxes[best, label].tolist(), label, batch))
                taken += 1
                for row in list(left):
                    left[row] *= factors[kernel](_overlap(boxes[best, label], boxes[row, label]))
                    if left[row] < nms_threshold:
                        del left[row]
        found.sort(key=lambda entry: -entry[0])
        found = found[:limit] if limit >= 0 else found
        results += sorted(found, key=lambda entry: (entry[2], -entry[0]))
    return results


def _limit_cases() -> Iterator[Case]:
    rng = np.random.default_rng(51)
    count, classes = 12, 4
    batches = [3] * 5 + [7] * 7
    # Distinct scores in steps of 1/64; boxes of equal size on a line, so that overlaps are clear of the thresholds.
    scores = (rng.permutation(count * classes) + 8).reshape(count, classes) / 64
    corners = rng.integers(0, 8, (count, classes, 1)) * 5.0
    boxes = np.concatenate((corners, corners, corners + 20, corners + 20), axis=2)
    kernels = {"hard": NMS_HARD, "linear": NMS_LINEAR, "gaussian": NMS_GAUSSIAN}
    variants = [(name, kernel, 0.3, limit, 0.2) for name, kernel in kernels.items() for limit in (-1, 3)]
    variants += [("none_above", NMS_HARD, 2.0, -1, 0.2), ("limit_0", NMS_LINEAR, 0.3, 0, 0.2)]
    # Suppressed boxes have score 0, which is not below 0.
    variants += [("zero_threshold", NMS_HARD, 0.3, -1, 0.0)]
    for name, kernel, score_threshold, limit, nms_threshold in variants:
        expected = _limited(scores, boxes, batches, kernel, score_threshold, limit, nms_threshold)
        chosen = np.array([entry[1] for entry in expected]).reshape(-1, 4)
        dims = (len(expected),)
        for quantized in (False, True):
            yield Case(
                OperationCode.BOX_WITH_NMS_LIMIT,
                f"{name}_{limit}{'_quantized' * quantized}",
                (
                    tensor((count, classes), scores.reshape(-1), 1 / 64, 0),
                    _boxes16(boxes.reshape(count, classes * 4), quantized),
                    of(INT32, (count,), batches),
                    real(score_threshold),
                    integer(limit),
                    integer(kernel),
                    real(0.4),
                    real(0.5),
                    real(nms_threshold),
                ),
                (
                    tensor(dims, [entry[0] for entry in expected], 1 / 64, 0),
                    _boxes16(chosen, quantized),
                    of(INT32, dims, [entry[2] for entry in expected]),
                    of(INT32, dims, [entry[3] for entry in expected]),
                ),
                (QUANT8, SIGNED) if quantized else FLOATS,
                _kinds(len(expected)),
            )


def _kinds(results: int) -> tuple[Kind, ...]:
    """Return the kinds of a case: an empty result has no dimensions that a model could declare."""
    return KINDS if results else (Kind.DYNAMIC_OUTPUT_SHAPE,)


def _proposal_cases() -> Iterator[Case]:
    rng = np.random.default_rng(52)
    batches, height, width, count = 2, 3, 4, 2
    size = height * width * count
    anchors = np.array([[0, 0, 16, 16], [-8, -4, 24, 12]], np.float64)
    images = [(40.0, 60.0), (48.0, 52.0)]
    scores = np.stack([rng.permutation(size) + 4 for _ in range(batches)]).reshape(batches, height, width, count) / 32
    deltas = rng.integers(-8, 9, (batches, height, width, count * 4)) / 16
    for name, pre, post, min_size, nchw in (
        ("unlimited", -1, 0, 1.0, False),
        ("limited", 12, 5, 1.0, False),
        ("large_only_nchw", 0, -1, 14.0, True),
        ("limited_nchw", 15, 3, 6.0, True),
    ):
        expected: list[tuple[float, list[float], int]] = []
        for batch in range(batches):
            boxes, flat = [], scores[batch].reshape(-1)
            for y in range(height):
                for x in range(width):
                    for a in range(count):
                        shifted = anchors[a] + np.array([x, y, x, y]) * [13.0, 11.0, 13.0, 11.0]
                        boxes.append(_moved(shifted, deltas[batch, y, x, 4 * a : 4 * a + 4], images[batch]))
            order = _best_first(list(range(size)), lambda index, flat=flat: flat[index])
            wide = [
                index
                for index in (order[:pre] if pre > 0 else order)
                if min(boxes[index][2] - boxes[index][0], boxes[index][3] - boxes[index][1]) > min_size
                and boxes[index][0] + boxes[index][2] < 2 * images[batch][1]
                and boxes[index][1] + boxes[index][3] < 2 * images[batch][0]
            ]
            kept = _hard(boxes, flat.tolist(), wide, 0.3, post if post > 0 else -1)
            expected += [(float(flat[index]), boxes[index], batch) for index in kept]
        order = (0, 3, 1, 2) if nchw else (0, 1, 2, 3)
        ordered_scores, ordered_deltas = scores.transpose(order), deltas.transpose(order)
        dims = (len(expected),)
        for quantized in (False, True):
            yield Case(
                OperationCode.GENERATE_PROPOSALS,
                f"{name}{'_quantized' * quantized}",
                (
                    tensor(ordered_scores.shape, ordered_scores.reshape(-1), 1 / 32, 0),
                    tensor(ordered_deltas.shape, ordered_deltas.reshape(-1), 1 / 16, 128),
                    _boxes16(anchors, quantized, _Q16_SYMM),
                    _boxes16(np.array(images), quantized),
                    real(11.0),
                    real(13.0),
                    integer(pre),
                    integer(post),
                    real(0.3),
                    real(min_size),
                    flag(nchw),
                ),
                (
                    tensor(dims, [entry[0] for entry in expected], 1 / 32, 0),
                    _boxes16(np.array([entry[1] for entry in expected]), quantized),
                    of(INT32, dims, [entry[2] for entry in expected]),
                ),
                (QUANT8, SIGNED) if quantized else (FLOAT32,),
            )


def _decoded(anchor: Box, delta: Box, scales: Box) -> list[float]:
    y, x = anchor[0] + delta[0] / scales[0] * anchor[2], anchor[1] + delta[1] / scales[1] * anchor[3]
    half_height, half_width = (
        math.exp(delta[2] / scales[2]) * anchor[2] / 2,
        math.exp(delta[3] / scales[3]) * anchor[3] / 2,
    )
    return [y - half_height, x - half_width, y + half_height, x + half_width]


def _regular(
    scores: np.ndarray, boxes: list[list[float]], most: int, per_class: int, least: float
) -> list[tuple[int, int]]:
    found = []
    for label in range(1, scores.shape[1]):
        above = [a for a in range(len(boxes)) if scores[a, label] > least]
        found += [(a, label) for a in _hard(boxes, scores[:, label].tolist(), above, 0.4, per_class)]
    return sorted(found, key=lambda pair: -scores[pair])[:most]


def _fast(scores: np.ndarray, boxes: list[list[float]], most: int, classes: int, least: float) -> list[tuple[int, int]]:
    greatest = scores[:, 1:].max(axis=1).tolist()
    above = [a for a in range(len(boxes)) if greatest[a] > least]
    found = []
    for a in _hard(boxes, greatest, above, 0.4, most):
        labels = _best_first(list(range(1, scores.shape[1])), lambda label, a=a: scores[a, label])
        found += [(a, label) for label in labels[:classes]]
    return found


def _postprocessing_cases() -> Iterator[Case]:
    rng = np.random.default_rng(53)
    batches, count, classes = 2, 10, 4
    scales = (10.0, 8.0, 5.0, 4.0)
    anchors = np.stack([rng.integers(1, 9, count) / 2, rng.integers(1, 9, count) / 2, *np.ones((2, count)) * 2], axis=1)
    for name, regular, most, limit, least, background, length in (
        ("regular", True, 6, 3, 0.2, False, 4),
        ("regular_one_per_class", True, 6, 1, 0.2, False, 4),
        ("regular_background", True, 3, 4, 0.0, True, 4),
        ("regular_none_above", True, 4, 4, 1.0, False, 4),
        ("regular_keypoints", True, 20, 20, 0.5, False, 7),
        ("fast", False, 4, 1, 0.2, False, 4),
        ("fast_two_classes", False, 3, 2, 0.5, False, 4),
        ("fast_more_classes_than_there_are", False, 3, 5, 0.2, False, 4),
        ("fast_background", False, 12, 1, 0.9, True, 6),
    ):
        scores = (
            np.stack([rng.permutation(count * classes) + 1 for _ in range(batches)]).reshape(batches, count, classes)
            / 41
        )
        deltas = rng.integers(-16, 17, (batches, count, length)) / 8
        rows = most if regular else most * limit
        scores_out, boxes_out = np.zeros((batches, rows)), np.zeros((batches, rows, 4))
        classes_out, count_out = np.zeros((batches, rows)), np.zeros(batches)
        for batch in range(batches):
            boxes = [_decoded(anchors[a], deltas[batch, a], scales) for a in range(count)]
            found = (_regular if regular else _fast)(scores[batch], boxes, most, limit, least)
            count_out[batch] = len(found)
            for row, (a, label) in enumerate(found):
                scores_out[batch, row], boxes_out[batch, row] = scores[batch, a, label], boxes[a]
                classes_out[batch, row] = label if background else label - 1
        yield Case(
            OperationCode.DETECTION_POSTPROCESSING,
            name,
            (
                tensor(scores.shape, scores.reshape(-1)),
                tensor(deltas.shape, deltas.reshape(-1)),
                tensor(anchors.shape, anchors.reshape(-1)),
                *map(real, scales),
                flag(regular),
                integer(most),
                integer(0 if regular else limit),
                integer(limit if regular else 0),
                real(least),
                real(0.4),
                flag(background),
            ),
            (
                tensor(scores_out.shape, scores_out.reshape(-1)),
                tensor(boxes_out.shape, boxes_out.reshape(-1)),
                of(INT32, classes_out.shape, classes_out.reshape(-1)),
                of(INT32, count_out.shape, count_out),
            ),
            FLOATS,
        )


CASES = (*_transform_cases(), *_limit_cases(), *_proposal_cases(), *_postprocessing_cases())
