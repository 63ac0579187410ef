# SPDX-License-Identifier: Apache-2.0
"""ROI_ALIGN, ROI_POOLING."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpu_driver.kernel import Kernel, float32, float_vector, int32, int_vector
from gpu_driver.launch import Launch
from gpu_driver.launchers.faults import complaints
from gpu_driver.operations import launches
from gpu_driver.splits.vectors import c_type
from gpu_driver.splits.worksize import linear
from gpu_driver.strides import image_strides
from nn_runtime.codes import OperationCode
from nn_runtime.operand import QUANT8_TYPES
from nn_runtime.operations.roi import region_pooling

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperation
    from gpu_driver.device_profile import DeviceProfile


@launches(OperationCode.ROI_ALIGN, OperationCode.ROI_POOLING)
def region_of_interest(op: BoundOperation, device: DeviceProfile) -> Launch:
    """ROI_ALIGN, ROI_POOLING. FLOAT32, FLOAT16, QUANT8; kernels roi.cl:roi_align, roi_pooling."""
    sizes = region_pooling(op)
    source, rois, output = op.input("input"), op.input("rois"), op.outputs[0]
    element = c_type(output)
    roi_element = "ushort" if op.data_type in QUANT8_TYPES else element
    one = np.float32(1)
    return Launch(
        Kernel("roi.cl", OperationCode(op.code).name.lower(), (("T", element), ("ROI_T", roi_element))),
        (
            *(source, rois, op.input("batch_index"), output),
            int_vector(*image_strides(sizes.height, sizes.width, sizes.depth, sizes.nchw)),
            int_vector(*image_strides(sizes.output_height, sizes.output_width, sizes.depth, sizes.nchw)),
            int_vector(
                *(sizes.batches, sizes.height, sizes.width, sizes.depth),
                *(sizes.output_height, sizes.output_width, sizes.height_samples, sizes.width_samples),
            ),
            int32(output.count),
            float32(rois.scale),
            float_vector(*(float(one / np.float32(ratio)) for ratio in (sizes.height_ratio, sizes.width_ratio))),
            int32(source.zero_point),
            int32(output.zero_point),
            float32(_sample_scale(source.scale, output.scale)),
            *complaints(op, "batch_index", f"must be in [0, {sizes.batches}), rois in order and inside the image"),
        ),
        *linear(output.count, device),
        flops=4 * output.count,
        bytes_moved=source.size_bytes + output.size_bytes,
    )


def _sample_scale(source: float, output: float) -> float:
    """Return source / 255 / output in float32, the factor of a sum of samples of 8-bit data."""
    if not output:
        return 0.0
    weight = np.float32(1) / np.float32(255)
    return float(np.float32(source) * weight / np.float32(output))
