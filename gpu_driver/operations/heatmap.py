# SPDX-License-Identifier: Apache-2.0
"""HEATMAP_MAX_KEYPOINT."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_driver.kernel import Kernel, float32, float_vector, int_vector
from gpu_driver.launch import Launch
from gpu_driver.launchers.faults import complaints
from gpu_driver.operations import launches
from gpu_driver.splits.vectors import c_type
from gpu_driver.splits.worksize import linear
from gpu_driver.strides import image_strides
from nn_runtime.codes import OperationCode
from nn_runtime.operand import QUANT8_TYPES
from nn_runtime.operations.heatmap import MAXIMUM_STEP, heatmap_sizes, singular_tolerance

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperation
    from gpu_driver.device_profile import DeviceProfile


@launches(OperationCode.HEATMAP_MAX_KEYPOINT)
def heatmap_max_keypoint(op: BoundOperation, device: DeviceProfile) -> Launch:
    """HEATMAP_MAX_KEYPOINT. FLOAT32, FLOAT16, QUANT8; kernel heatmap.cl:heatmap_max_keypoint."""
    boxes_count, size, keypoint_count = heatmap_sizes(op)
    heatmaps, boxes, (scores, keypoints) = op.input("heatmaps"), op.input("boxes"), op.outputs
    element = c_type(heatmaps)
    box_element = "ushort" if op.data_type in QUANT8_TYPES else element
    items = boxes_count * keypoint_count
    global_size, local_size = linear(items, device)
    return Launch(
        Kernel("heatmap.cl", "heatmap_max_keypoint", (("T", element), ("BOX_T", box_element))),
        (
            *(heatmaps, boxes, scores, keypoints),
            int_vector(*image_strides(size, size, keypoint_count, op.bool_value("layout"))),
            int_vector(size, keypoint_count, items, 0),
            float_vector(heatmaps.scale, scores.scale, boxes.scale, keypoints.scale),
            int_vector(heatmaps.zero_point, scores.zero_point, 0, 0),
            float32(singular_tolerance(op.data_type)),
            float32(MAXIMUM_STEP),
            *complaints(op, "boxes", "must have x1 <= x2 and y1 <= y2"),
        ),
        global_size,
        local_size,
        flops=heatmaps.count,
        bytes_moved=heatmaps.size_bytes + boxes.size_bytes + scores.size_bytes + keypoints.size_bytes,
    )
