# SPDX-License-Identifier: Apache-2.0
"""AXIS_ALIGNED_BBOX_TRANSFORM, BOX_WITH_NMS_LIMIT, GENERATE_PROPOSALS, DETECTION_POSTPROCESSING."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.operations import computes
from cpu_driver.operations.boxes import hard_nms, real_boxes, soft_nms
from cpu_driver.operations.products import to_nhwc
from nn_runtime.codes import OperationCode
from nn_runtime.operand import FLOAT_TYPES, dtype_of
from nn_runtime.operations.detection import (
    NMS_GAUSSIAN,
    NMS_LINEAR,
    BoxLimit,
    DetectionPostprocessing,
    Proposals,
    box_limit,
    box_transform,
    detection_postprocessing,
    proposals,
)
from nn_runtime.quantization import quantize

if TYPE_CHECKING:
    from collections.abc import Callable

    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView


@computes(OperationCode.AXIS_ALIGNED_BBOX_TRANSFORM)
def axis_aligned_bbox_transform(op: OperationView) -> tuple[Array, ...]:
    """Return each box moved and scaled by the deltas of each class, cut to its image."""
    sizes = box_transform(op)
    batches, boxes = op.array("batch_index"), real_boxes(op, "roi")
    if np.any((batches < 0) | (batches >= sizes.batches)):
        op.fail("batch_index", f"must be in [0, {sizes.batches})", batches.tolist())
    _check_corners(op, "roi", boxes)
    deltas = real_boxes(op, "deltas").reshape(sizes.rois, sizes.classes, 4)
    return (_stored(op, 0, _transformed(boxes[:, None], deltas, real_boxes(op, "image_info")[batches, None])),)


@computes(OperationCode.BOX_WITH_NMS_LIMIT)
def box_with_nms_limit(op: OperationView) -> tuple[Array, ...]:
    """Return scores, boxes, classes and batches of the boxes that remain, by batch, class and falling score."""
    limit = box_limit(op)
    scores = real_boxes(op, "scores").copy()
    boxes = real_boxes(op, "boxes").reshape(limit.rois, limit.classes, 4)
    _check_corners(op, "boxes", boxes)
    batches = op.array("batch_index")
    starts = np.flatnonzero(np.diff(batches, prepend=batches[:1] - 1))
    rois, classes = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for rows in np.split(np.arange(limit.rois), starts[1:]):
        chosen_rois, chosen_classes = _limited(limit, scores, boxes, rows)
        rois.append(chosen_rois)
        classes.append(chosen_classes)
    at, label = np.concatenate(rois), np.concatenate(classes)
    stored_boxes = op.array("boxes").reshape(boxes.shape)[at, label]
    return _stored(op, 0, scores[at, label]), stored_boxes, label.astype(np.int32), batches[at]


@computes(OperationCode.GENERATE_PROPOSALS)
def generate_proposals(op: OperationView) -> tuple[Array, ...]:
    """Return scores, boxes and batches of the best anchors after transformation, by batch and falling score."""
    sizes = proposals(op)
    scores = to_nhwc(real_boxes(op, "scores"), sizes.nchw).reshape(sizes.batches, -1)
    deltas = to_nhwc(real_boxes(op, "deltas"), sizes.nchw).reshape(sizes.batches, -1, 4)
    anchors, images = _shifted_anchors(op, sizes), real_boxes(op, "image_info")
    _check_corners(op, "anchors", anchors)
    kept_scores, kept_boxes, kept_batches = [], [], []
    for batch in range(sizes.batches):
        boxes = _transformed(anchors, deltas[batch], images[batch])
        kept = _proposed(sizes, boxes, scores[batch], images[batch])
        kept_scores.append(scores[batch][kept])
        kept_boxes.append(boxes[kept])
        kept_batches.append(np.full(len(kept), batch, np.int32))
    return (
        _stored(op, 0, np.concatenate(kept_scores)),
        _stored(op, 1, np.concatenate(kept_boxes)),
        np.concatenate(kept_batches),
    )


@computes(OperationCode.DETECTION_POSTPROCESSING)
def detection_postprocess(op: OperationView) -> tuple[Array, ...]:
    """Return scores, boxes y1, x1, y2, x2 and labels of the best detections of each batch, and their number."""
    sizes = detection_postprocessing(op)
    scores, deltas, anchors = (real_boxes(op, name) for name in ("scores", "deltas", "anchors"))
    rows = (sizes.batches, sizes.rows)
    scores_out, boxes_out = np.zeros(rows, np.float32), np.zeros((*rows, 4), np.float32)
    classes_out, count_out = np.zeros(rows, np.int32), np.zeros(sizes.batches, np.int32)
    choose = _detected_per_class if sizes.regular_nms else _detected_fast
    for batch in range(sizes.batches):
        boxes = _decoded(anchors, deltas[batch], sizes)
        at, label = choose(sizes, boxes, scores[batch])
        count_out[batch] = count = len(at)
        scores_out[batch, :count] = scores[batch][at, label]
        boxes_out[batch, :count] = boxes[at]
        classes_out[batch, :count] = label if sizes.background_in_labels else label - 1
    return _stored(op, 0, scores_out), _stored(op, 1, boxes_out), classes_out, count_out


def _check_corners(op: OperationView, name: str, boxes: Array) -> None:
    # The comparison fails for NaN.
    if not np.all(boxes[..., :2] <= boxes[..., 2:]):
        op.fail(name, "must have x1 <= x2 and y1 <= y2", op.array(name).tolist())


def _stored(op: OperationView, at: int, values: Array) -> Array:
    output = op.outputs[at]
    return values.astype(dtype_of(output.type), copy=False) if output.type in FLOAT_TYPES else quantize(values, output)


def _transformed(boxes: Array, deltas: Array, images: Array) -> Array:
    """Return boxes x1, y1, x2, y2 moved by deltas dx, dy, dw, dh, cut to images (height, width); all broadcast."""
    first, second = boxes[..., :2], boxes[..., 2:]
    sides = second - first
    centres = (first + second) / 2 + deltas[..., :2] * sides
    halves = np.exp(deltas[..., 2:]) * sides / 2
    moved = np.concatenate((centres - halves, centres + halves), axis=-1)
    cut: Array = np.minimum(np.maximum(moved, 0), images[..., [1, 0, 1, 0]])
    return cut


def _limited(limit: BoxLimit, scores: Array, boxes: Array, rows: Array) -> tuple[Array, Array]:
    """Return rows and classes of the boxes of one batch (`rows`) that remain, by class and falling score.

    Lowers `scores` as soft suppression does.
    """
    kernel = _kernel(limit)
    rois, classes = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for label in range(1, limit.classes):
        candidates = rows[scores[rows, label] > np.float32(limit.score_threshold)]
        threshold = limit.nms_score_threshold
        kept = soft_nms(boxes[:, label], scores[:, label], candidates, kernel, threshold, limit.max_boxes)
        rois.append(kept)
        classes.append(np.full(len(kept), label))
    at, labels = np.concatenate(rois), np.concatenate(classes)
    if 0 <= limit.max_boxes < len(at):
        best = np.argsort(-scores[at, labels], kind="stable")[: limit.max_boxes]
        at, labels = at[best], labels[best]
    order = np.lexsort((-scores[at, labels], labels))
    return at[order], labels[order]


def _kernel(limit: BoxLimit) -> Callable[[Array], Array]:
    """Return the factor of a score by the overlap with a better box."""
    threshold, sigma = np.float32(limit.iou_threshold), np.float32(limit.sigma)
    if limit.kernel == NMS_GAUSSIAN:
        return lambda overlap: np.exp(-overlap * overlap / sigma)
    if limit.kernel == NMS_LINEAR:
        return lambda overlap: np.where(overlap < threshold, np.float32(1), 1 - overlap)
    return lambda overlap: (overlap < threshold).astype(np.float32)


def _shifted_anchors(op: OperationView, sizes: Proposals) -> Array:
    """Return the anchors at every place of the image: [height * width * anchors, 4]."""
    shifts = np.zeros((sizes.height, sizes.width, 1, 4), np.float32)
    shifts[..., 0::2] = (np.arange(sizes.width, dtype=np.float32) * np.float32(sizes.width_stride))[:, None, None]
    shifts[..., 1::2] = (np.arange(sizes.height, dtype=np.float32) * np.float32(sizes.height_stride))[
        :, None, None, None
    ]
    shifted: Array = (real_boxes(op, "anchors") + shifts).reshape(-1, 4)
    return shifted


def _proposed(sizes: Proposals, boxes: Array, scores: Array, image: Array) -> Array:
    """Return the indices of one batch's boxes that are proposed, by falling score."""
    candidates = np.arange(len(boxes))
    if 0 <= sizes.pre_nms_max < len(boxes):
        candidates = np.argsort(-scores, kind="stable")[: sizes.pre_nms_max]
    sides = boxes[candidates, 2:] - boxes[candidates, :2]
    centres = boxes[candidates, :2] + sides / 2
    fits = np.all((sides > np.float32(sizes.min_size)) & (centres < image[::-1]), axis=1)
    return hard_nms(boxes, scores, candidates[fits], sizes.iou_threshold, sizes.post_nms_max)


def _decoded(anchors: Array, deltas: Array, sizes: DetectionPostprocessing) -> Array:
    """Return boxes y1, x1, y2, x2 of anchors (centre y, x, height, width) and one batch's deltas."""
    scales = np.array(sizes.scales, np.float32)
    centres = anchors[:, :2] + anchors[:, 2:] * deltas[:, :2] / scales[:2]
    halves = anchors[:, 2:] * np.exp(deltas[:, 2:4] / scales[2:]) * np.float32(0.5)
    return np.concatenate((centres - halves, centres + halves), axis=1)


def _detected_per_class(sizes: DetectionPostprocessing, boxes: Array, scores: Array) -> tuple[Array, Array]:
    """Return anchors and classes of the detections of one batch, suppressed class by class, by falling score."""
    anchors, classes = [], []
    for label in range(1, sizes.classes):
        candidates = np.flatnonzero(scores[:, label] > np.float32(sizes.score_threshold))
        kept = hard_nms(boxes, scores[:, label], candidates, sizes.iou_threshold, sizes.max_detections_per_class)
        anchors.append(kept)
        classes.append(np.full(len(kept), label))
    at, labels = np.concatenate(anchors), np.concatenate(classes)
    best = np.argsort(-scores[at, labels], kind="stable")[: sizes.max_detections]
    return at[best], labels[best]


def _detected_fast(sizes: DetectionPostprocessing, boxes: Array, scores: Array) -> tuple[Array, Array]:
    """Return anchors and classes of the detections of one batch: the best classes of each anchor that remains."""
    foreground = scores[:, 1:]
    greatest = foreground.max(axis=1)
    candidates = np.flatnonzero(greatest > np.float32(sizes.score_threshold))
    kept = hard_nms(boxes, greatest, candidates, sizes.iou_threshold, sizes.max_detections)
    count = min(sizes.classes - 1, sizes.max_classes_per_detection)
    labels = np.argsort(-foreground[kept], axis=1, kind="stable")[:, :count] + 1
    return np.repeat(kept, count), labels.reshape(-1)
