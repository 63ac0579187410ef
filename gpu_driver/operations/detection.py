# SPDX-License-Identifier: Apache-2.0
"""AXIS_ALIGNED_BBOX_TRANSFORM, BOX_WITH_NMS_LIMIT, GENERATE_PROPOSALS, DETECTION_POSTPROCESSING."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpu_driver.kernel import Kernel, Packed, Scratch, float32, float_vector, int32, int_vector
from gpu_driver.launch import Launch, Measured
from gpu_driver.launchers.faults import complaints
from gpu_driver.launchers.strided import fill, fill_memory
from gpu_driver.operations import launches
from gpu_driver.splits.groups import group_defines, one_group_each
from gpu_driver.splits.vectors import c_type
from gpu_driver.splits.worksize import linear, rows
from gpu_driver.strides import image_strides
from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.operand import QUANT8_TYPES, dtype_of
from nn_runtime.operations.detection import (
    DetectionPostprocessing,
    Proposals,
    box_limit,
    box_transform,
    detection_postprocessing,
    proposals,
)
from nn_runtime.quantization import dequantize
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperand, BoundOperation
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.kernel import Argument

_16BIT = {OperandCode.TENSOR_QUANT16_ASYMM: "ushort", OperandCode.TENSOR_QUANT16_SYMM: "short"}
_INT_BYTES = _FLOAT_BYTES = 4
_BOX_BYTES = 4 * _FLOAT_BYTES
_KIND_REMOVE = 3
"""As in detection_nms.cl; its other kinds are numbered as the operation's."""


@launches(OperationCode.AXIS_ALIGNED_BBOX_TRANSFORM)
def axis_aligned_bbox_transform(op: BoundOperation, device: DeviceProfile) -> Launch:
    """AXIS_ALIGNED_BBOX_TRANSFORM. FLOAT32, FLOAT16, QUANT16_ASYMM; kernel of detection_transform.cl."""
    sizes = box_transform(op)
    rois, deltas, images, output = op.input("roi"), op.input("deltas"), op.input("image_info"), op.outputs[0]
    count = sizes.rois * sizes.classes
    types = ("T", _type(rois)), ("DELTA_T", _type(deltas))
    return Launch(
        Kernel("detection_transform.cl", "axis_aligned_bbox_transform", types),
        (
            *(rois, deltas, op.input("batch_index"), images, output, _exponentials(deltas)),
            *map(int32, (sizes.classes, sizes.batches, count)),
            float_vector(rois.scale, deltas.scale, images.scale, output.scale),
            int32(deltas.zero_point),
            *complaints(op, "batch_index", f"must be in [0, {sizes.batches}), roi have x1 <= x2 and y1 <= y2"),
        ),
        *linear(count, device),
        flops=20 * count,
        bytes_moved=rois.size_bytes + deltas.size_bytes + output.size_bytes,
    )


@dataclass(frozen=True, eq=False)
class _Lists:
    """Lists of boxes to suppress, in memory: scores, alive [lists, n], boxes, kept [lists, room], kept_count [lists].

    Box i of a list lies at list // per_set * strides[0] + list % per_set * strides[1] + i * strides[2] + strides[3].
    """

    count: int
    n: int
    room: int
    per_set: int
    strides: tuple[int, int, int, int]
    scores: Scratch
    alive: Scratch
    boxes: Scratch
    kept: Scratch
    kept_count: Scratch

    @staticmethod
    def of(count: int, n: int, room: int, per_set: int, boxes: int, strides: tuple[int, int, int, int]) -> _Lists:
        """Name the memory; `boxes` are all boxes."""
        return _Lists(
            *(count, n, room, per_set, strides),
            scores=Scratch(count * n * _FLOAT_BYTES),
            alive=Scratch(count * n),
            boxes=Scratch(boxes * _BOX_BYTES),
            kept=Scratch(count * room * _INT_BYTES),
            kept_count=Scratch(count * _INT_BYTES),
        )

    def suppression(
        self,
        device: DeviceProfile,
        limit: int,
        kind: int,
        thresholds: tuple[float, float, float],
        runs: tuple[BoundOperand, Scratch] | None = None,
    ) -> Launch:
        """Return the launch that keeps at most `limit` boxes of each list; thresholds: overlap, sigma, least score.

        `runs`: batch indices and memory for the number of each box's run.
        """
        has_runs = int32(runs is not None)
        either = (self.kept, self.kept_count) if runs is None else runs
        return Launch(
            Kernel("detection_nms.cl", "nms", group_defines(device)),
            (
                *(self.scores, self.alive, self.boxes, self.kept, self.kept_count),
                *either,
                *(int32(self.n), int32(self.room), int_vector(*self.strides), int32(self.per_set), has_runs),
                *(int32(limit), int32(kind), *(float32(value) for value in thresholds)),
            ),
            *one_group_each(self.count, device),
        )

    def best(self, device: DeviceProfile, most: int) -> Launch:
        """Return the launch that leaves the `most` best of each list alive."""
        return Launch(
            Kernel("detection_nms.cl", "keep_best", group_defines(device)),
            (self.scores, self.alive, int32(self.n), int32(most)),
            *one_group_each(self.count, device),
        )


@launches(OperationCode.BOX_WITH_NMS_LIMIT)
def box_with_nms_limit(op: BoundOperation, device: DeviceProfile) -> Measured:
    """BOX_WITH_NMS_LIMIT. FLOAT32, FLOAT16, QUANT8; kernels detection_limit.cl, detection_nms.cl:nms."""
    limit = box_limit(op)
    scores, boxes, batches = op.input("scores"), op.input("boxes"), op.input("batch_index")
    rois, classes = limit.rois, limit.classes
    lists = _Lists.of(classes - 1, rois, rois, classes - 1, rois * classes, (0, 1, classes, 1))
    status, runs, selected = Scratch(2 * _INT_BYTES), Scratch(rois * _INT_BYTES), Scratch(lists.count * rois)
    types = ("T", _type(scores)), ("BOX_T", _type(boxes))
    scales = float_vector(scores.scale, boxes.scale, op.outputs[0].scale, 0.0)
    counts: tuple[Argument, ...] = int32(rois), int32(lists.count)
    kept: tuple[Argument, ...] = lists.kept, lists.kept_count, runs
    every_kept = rows(rois, lists.count, device)
    return Measured(
        (
            fill_memory(status, 2, 0, np.dtype(np.int32), device),
            Launch(
                Kernel("detection_limit.cl", "limit_candidates", types),
                (
                    *(scores, boxes, lists.scores, lists.boxes, lists.alive, status),
                    *(int32(rois), int32(classes), float32(limit.score_threshold), scales, int32(scores.zero_point)),
                ),
                *rows(classes, rois, device),
                bytes_moved=scores.size_bytes + boxes.size_bytes,
            ),
            lists.suppression(
                device,
                limit.max_boxes,
                limit.kernel,
                (limit.iou_threshold, limit.sigma, limit.nms_score_threshold),
                (batches, runs),
            ),
            Launch(
                Kernel("detection_limit.cl", "limit_select", types),
                (lists.scores, *kept, selected, status, *counts, int32(limit.max_boxes)),
                *every_kept,
            ),
            Launch(
                Kernel("detection_limit.cl", "limit_gather", types),
                (
                    *(boxes, batches, lists.scores, *kept, selected, status, *op.outputs),
                    *(*counts, scales, int32(op.outputs[0].zero_point)),
                ),
                *every_kept,
            ),
        ),
        status,
        "boxes must have x1 <= x2 and y1 <= y2",
    )


@launches(OperationCode.GENERATE_PROPOSALS)
def generate_proposals(op: BoundOperation, device: DeviceProfile) -> Measured:
    """GENERATE_PROPOSALS. FLOAT32, FLOAT16, QUANT8; kernels detection_proposals.cl, detection_nms.cl."""
    sizes = proposals(op)
    n = sizes.height * sizes.width * sizes.anchors
    room = min([n, *(limit for limit in (sizes.pre_nms_max, sizes.post_nms_max) if limit >= 0)])
    lists = _Lists.of(sizes.batches, n, room, 1, sizes.batches * n, (n, 0, 1, 0))
    status = Scratch(2 * _INT_BYTES)
    best = (lists.best(device, sizes.pre_nms_max),) if 0 <= sizes.pre_nms_max < n else ()
    scores, rois, _ = op.outputs
    gather = Launch(
        Kernel("detection_proposals.cl", "proposals_gather", _proposal_types(op)),
        (
            *(lists.scores, lists.boxes, lists.kept, lists.kept_count, status),
            *op.outputs,
            *map(int32, (n, room, sizes.batches)),
            *(float_vector(scores.scale, rois.scale), int32(scores.zero_point)),
        ),
        *rows(room, sizes.batches, device),
    )
    return Measured(
        (
            fill_memory(status, 2, 0, np.dtype(np.int32), device),
            _transformed_anchors(op, sizes, lists, status, device),
            *best,
            lists.suppression(device, sizes.post_nms_max, _KIND_REMOVE, (sizes.iou_threshold, 0.0, 0.0)),
            gather,
        ),
        status,
        "anchors must have x1 <= x2 and y1 <= y2",
    )


def _proposal_types(op: BoundOperation) -> tuple[tuple[str, str], ...]:
    return (
        ("T", _type(op.input("scores"))),
        ("ANCHOR_T", _type(op.input("anchors"))),
        ("BOX_T", _type(op.input("image_info"))),
    )


def _transformed_anchors(
    op: BoundOperation, sizes: Proposals, lists: _Lists, status: Scratch, device: DeviceProfile
) -> Launch:
    scores, deltas, anchors, images = (op.input(name) for name in ("scores", "deltas", "anchors", "image_info"))
    height, width, depth = sizes.height, sizes.width, sizes.anchors
    return Launch(
        Kernel("detection_proposals.cl", "proposals_transform", _proposal_types(op)),
        (
            *(scores, deltas, anchors, images, _exponentials(deltas)),
            *(lists.scores, lists.boxes, lists.alive, status),
            int_vector(height, width, depth, sizes.batches),
            int_vector(*image_strides(height, width, depth, sizes.nchw)),
            int_vector(*image_strides(height, width, 4 * depth, sizes.nchw)),
            float_vector(sizes.height_stride, sizes.width_stride),
            float32(sizes.min_size),
            float_vector(scores.scale, deltas.scale, anchors.scale, images.scale),
            int_vector(scores.zero_point, deltas.zero_point, 0, 0),
        ),
        *rows(lists.n, sizes.batches, device),
        flops=20 * lists.n * sizes.batches,
        bytes_moved=scores.size_bytes + deltas.size_bytes,
    )


@launches(OperationCode.DETECTION_POSTPROCESSING)
def detection_postprocess(op: BoundOperation, device: DeviceProfile) -> tuple[Launch, ...]:
    """DETECTION_POSTPROCESSING. FLOAT32, FLOAT16; kernels detection_postprocessing.cl, detection_nms.cl:nms."""
    sizes = detection_postprocessing(op)
    per_batch = sizes.classes - 1 if sizes.regular_nms else 1
    limit = sizes.max_detections_per_class if sizes.regular_nms else sizes.max_detections
    n = sizes.anchors
    room = n if limit < 0 else max(1, min(limit, n))
    lists = _Lists.of(sizes.batches * per_batch, n, room, per_batch, sizes.batches * n, (n, 0, 1, 0))
    return (
        *(fill(output, 0, device) for output in op.outputs[:3]),
        _decoded_boxes(op, sizes, lists, device),
        lists.suppression(device, limit, _KIND_REMOVE, (sizes.iou_threshold, 0.0, 0.0)),
        _detections(op, sizes, lists, device),
    )


def _decoded_boxes(op: BoundOperation, sizes: DetectionPostprocessing, lists: _Lists, device: DeviceProfile) -> Launch:
    scores, deltas, anchors = op.input("scores"), op.input("deltas"), op.input("anchors")
    return Launch(
        Kernel("detection_postprocessing.cl", "postprocessing_decode", (("T", _type(scores)),)),
        (
            *(scores, deltas, anchors, lists.scores, lists.boxes, lists.alive),
            int_vector(sizes.anchors, sizes.classes, sizes.rows, lists.room),
            *(int32(deltas.dimensions[2]), int32(sizes.regular_nms)),
            *(float_vector(*sizes.scales), float32(sizes.score_threshold)),
        ),
        *rows(sizes.anchors, sizes.batches, device),
        flops=20 * sizes.batches * sizes.anchors,
        bytes_moved=scores.size_bytes + deltas.size_bytes + anchors.size_bytes,
    )


def _detections(op: BoundOperation, sizes: DetectionPostprocessing, lists: _Lists, device: DeviceProfile) -> Launch:
    scores = op.input("scores")
    classes = sizes.classes - 1
    shape = int_vector(sizes.anchors, sizes.classes, sizes.rows, lists.room)
    first_label = int32(sizes.background_in_labels)
    kept: tuple[Argument, ...]
    kept = lists.boxes, lists.kept, lists.kept_count, *op.outputs, shape, first_label
    types = (("T", _type(scores)),)
    if sizes.regular_nms:
        kernel = Kernel("detection_postprocessing.cl", "postprocessing_best", types)
        return Launch(kernel, (lists.scores, *kept), *rows(lists.room, lists.count, device))
    kernel = Kernel("detection_postprocessing.cl", "postprocessing_classes", types)
    labels = int32(min(classes, sizes.max_classes_per_detection))
    return Launch(kernel, (scores, *kept, labels), *rows(lists.room * classes, sizes.batches, device))


def _type(operand: BoundOperand) -> str:
    """Return the element type of boxes, deltas or scores in common/types.h."""
    return _16BIT.get(OperandCode(operand.type)) or c_type(operand)


def _exponentials(deltas: BoundOperand) -> Packed:
    """Return float exp of each code of 8-bit deltas by its byte; one element for float ones, which need none."""
    if deltas.type not in QUANT8_TYPES:
        return Packed(np.zeros(1, np.float32))
    codes = np.arange(256, dtype=np.uint8).view(dtype_of(deltas.type))
    with np.errstate(over="ignore"):
        return Packed(np.exp(dequantize(codes, deltas)))
