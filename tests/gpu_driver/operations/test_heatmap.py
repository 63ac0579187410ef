# SPDX-License-Identifier: Apache-2.0
"""HEATMAP_MAX_KEYPOINT on the device."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.operand import dtype_of
from tests.gpu_driver.operations.compare import ALL, QUANT8, SIGNED, Value, check, like, random_tensor

if TYPE_CHECKING:
    from nn_runtime.device import Device

BOX16 = OperandCode.TENSOR_QUANT16_ASYMM


@pytest.mark.parametrize("nchw", [False, True], ids=["nhwc", "nchw"])
@pytest.mark.parametrize("sizes", [(1, 2, 1), (3, 5, 7), (2, 14, 17), (40, 3, 65)], ids=str)
@pytest.mark.parametrize("data_type", ALL, ids=lambda code: code.name)
def test_every_type_and_size(
    opencl_device: Device, data_type: OperandCode, sizes: tuple[int, int, int], nchw: bool
) -> None:
    boxes, size, keypoints = sizes
    dims = (boxes, keypoints, size, size) if nchw else (boxes, size, size, keypoints)
    heatmaps = random_tensor(data_type, dims, 1)
    given = boxes_of(data_type, boxes)
    output = like(heatmaps, scale=heatmaps.scale and 0.06)
    check(
        opencl_device, OperationCode.HEATMAP_MAX_KEYPOINT, [heatmaps, given, nchw], output, like(given), tolerance_of=5
    )


@pytest.mark.parametrize("data_type", [QUANT8, SIGNED], ids=lambda code: code.name)
def test_equal_pixels(opencl_device: Device, data_type: OperandCode) -> None:
    heatmaps = random_tensor(data_type, (30, 6, 6, 40))
    few = replace(heatmaps, data=(heatmaps.data.astype(np.int32) // 100).astype(heatmaps.data.dtype))
    given = boxes_of(data_type, 30)
    check(opencl_device, OperationCode.HEATMAP_MAX_KEYPOINT, [few, given, False], like(few), like(given))


def boxes_of(data_type: OperandCode, count: int) -> Value:
    """Return boxes (x1, y1, x2, y2) of positive size."""
    rng = np.random.default_rng(7)
    corners = rng.uniform(0, 40, (count, 2))
    boxes = np.concatenate([corners, corners + rng.uniform(0, 30, (count, 2))], axis=1)
    if data_type in (QUANT8, SIGNED):
        return Value(BOX16, (boxes / 0.125).astype(np.uint16), 0.125)
    return Value(data_type, boxes.astype(dtype_of(data_type)))
