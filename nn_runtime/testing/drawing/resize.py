# SPDX-License-Identifier: Apache-2.0
"""RESIZE_BILINEAR, RESIZE_NEAREST_NEIGHBOR, ROI_ALIGN, ROI_POOLING, HEATMAP_MAX_KEYPOINT."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.testing.drawing import Drawn, Result, Value, draws
from nn_runtime.testing.tolerances import RELAXED

if TYPE_CHECKING:
    from nn_runtime.testing.drawing import Argument, Drawing

_GREATEST_RESULT = 40
_BOX_SCALE = 0.125
_QUANT16 = OperandCode.TENSOR_QUANT16_ASYMM


@draws(OperationCode.RESIZE_BILINEAR, OperationCode.RESIZE_NEAREST_NEIGHBOR, criterion=RELAXED)
def _resize(d: Drawing) -> Drawn:
    source, nchw = d.tensor((4, 4)), d.chance(0.3)
    height, width = (source.dimensions[axis] for axis in ((2, 3) if nchw else (1, 2)))
    arguments: dict[str, Argument] = {"input": source, "layout": nchw}
    if d.chance():
        arguments |= {"output_height": d.integer(1, _GREATEST_RESULT), "output_width": d.integer(1, _GREATEST_RESULT)}
    else:
        # Halves and quarters keep the rounding of the output size certain.
        scales = [d.integer(1, 8) / 4 for _ in range(2)]
        if min(height * scales[0], width * scales[1]) < 1:
            d.reject()
        arguments |= {"height_scale": scales[0], "width_scale": scales[1]}
    if d.chance():
        mode = int(d.rng.integers(3))
        arguments |= {"align_corners": mode == 1, "half_pixel_centers": mode == 2}
    return Drawn(arguments, (d.same(source),))


def _boxes(d: Drawing, batches: int, height: int, width: int, ratio: float) -> tuple[Value, Value]:
    """Return boxes [n, 4] (x1, y1, x2, y2) within an image magnified by `ratio`, and the image of each, rising."""
    count = d.integer(1, 6)
    corners = [np.sort(d.rng.uniform(0, size * ratio, (count, 2)), axis=1) for size in (width, height)]
    boxes = np.stack([corners[0][:, 0], corners[1][:, 0], corners[0][:, 1], corners[1][:, 1]], axis=1)
    steps = np.rint(boxes / _BOX_SCALE)
    if d.quantized:
        rois = Value(_QUANT16, (count, 4), _BOX_SCALE, array=steps.astype(np.uint16))
    else:
        rois = Value(d.data_type, (count, 4), array=d.constant(steps * _BOX_SCALE, d.data_type).array)
    return rois, d.constant(np.sort(d.rng.integers(0, batches, count)))


@draws(OperationCode.ROI_ALIGN, OperationCode.ROI_POOLING, criterion=RELAXED)
def _roi(d: Drawing) -> Drawn:
    source, nchw = d.tensor((4, 4)), d.chance(0.3)
    height, width = (source.dimensions[axis] for axis in ((2, 3) if nchw else (1, 2)))
    ratio = float(2 ** d.integer(0, 2))
    rois, batch_index = _boxes(d, source.dimensions[0], height, width, ratio)
    arguments: dict[str, Argument] = {
        "input": source,
        "rois": rois,
        "batch_index": batch_index,
        "out_height": d.integer(1, 5),
        "out_width": d.integer(1, 5),
        "height_ratio": ratio,
        "width_ratio": ratio,
        "layout": nchw,
    }
    if d.code == OperationCode.ROI_POOLING:
        return Drawn(arguments, (d.same(source),))
    arguments |= {"height_samples": d.integer(0, 3), "width_samples": d.integer(0, 3)}
    return Drawn(arguments, (d.same(source),))


@draws(OperationCode.HEATMAP_MAX_KEYPOINT, criterion=RELAXED)
def _heatmap(d: Drawing) -> Drawn:
    nchw, size = d.chance(0.3), d.integer(2, 10)
    count, keypoints = d.integer(1, 4), d.integer(1, 5)
    dims = (count, keypoints, size, size) if nchw else (count, size, size, keypoints)
    heatmaps = d.new(dims, (-1.0, 1.0))
    sides = d.rng.uniform(0, 8, (count, 4))
    sides[:, 2:] += sides[:, :2] + 1
    steps = np.rint(sides / _BOX_SCALE)
    if d.quantized:
        boxes = Value(_QUANT16, (count, 4), _BOX_SCALE, array=steps.astype(np.uint16))
        outputs = (d.scaled(-1.5, 1.5), Result(_QUANT16, _BOX_SCALE, 0))
    else:
        boxes = Value(d.data_type, (count, 4), array=d.constant(steps * _BOX_SCALE, d.data_type).array)
        outputs = (Result(d.data_type), Result(d.data_type))
    return Drawn({"heatmaps": heatmaps, "boxes": boxes, "layout": nchw}, outputs)
