# SPDX-License-Identifier: Apache-2.0
"""Cases of HEATMAP_MAX_KEYPOINT: heatmaps sampled from parabolas, whose top is known, and flat or cut-off ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode, OperationCode
from tests.operations.cases import FLOATS, QUANT8, SIGNED, Argument, Case, flag, of, tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

_SIZE = 5
_BOXES = ((1.0, 2.0, 11.0, 22.0), (0.0, 0.0, 5.0, 2.5))


def parabola(top_x: float, top_y: float, height: float) -> np.ndarray:
    """Return [size, size] of height - 0.25 dx^2 - 0.5 dy^2 around a top in pixels."""
    rows, columns = np.mgrid[0:_SIZE, 0:_SIZE]
    sampled: np.ndarray = height - 0.25 * (columns - top_x) ** 2 - 0.5 * (rows - top_y) ** 2
    return sampled


_TOPS = (((2.25, 1.75, 3.0), (1.0, 3.0, 2.0)), ((3.0, 2.5, 4.0), (1.75, 1.25, 1.0)))
_HEATMAPS = np.stack([np.stack([parabola(*top) for top in tops], axis=-1) for tops in _TOPS])


def keypoint(box: Sequence[float], x: float, y: float) -> list[float]:
    left, top, right, bottom = box
    return [left + (x + 0.5) / _SIZE * (right - left), top + (y + 0.5) / _SIZE * (bottom - top)]


_SCORES = [height for tops in _TOPS for _x, _y, height in tops]
_KEYPOINTS = [
    position
    for box, tops in zip(_BOXES, _TOPS, strict=True)
    for x, y, _height in tops
    for position in keypoint(box, x, y)
]


def case(name: str, nchw: bool) -> Case:
    heatmaps = _HEATMAPS.transpose(0, 3, 1, 2) if nchw else _HEATMAPS
    boxes = tensor((2, 4), [side for box in _BOXES for side in box])
    return Case(
        OperationCode.HEATMAP_MAX_KEYPOINT,
        name,
        (tensor(heatmaps.shape, heatmaps.reshape(-1).tolist()), boxes, flag(nchw)),
        (tensor((2, 2), _SCORES), tensor((2, 2, 2), _KEYPOINTS)),
        FLOATS,
    )


def quantized(code: OperandCode, zero: int) -> Case:
    """Return the first box with codes in steps of 1/64, which the parabolas' values are multiples of."""
    heatmaps = (_HEATMAPS[:1] * 64 + zero + 10).clip(zero - 10).astype(int)

    def sides(dims: tuple[int, ...], values: Sequence[float]) -> Argument:
        return of(OperandCode.TENSOR_QUANT16_ASYMM, dims, np.rint(np.array(values) / 0.125).tolist(), 0.125, 0)

    scores = [round(score * 16) + zero + 7 for score in _SCORES[:2]]
    return Case(
        OperationCode.HEATMAP_MAX_KEYPOINT,
        f"quantised_{code.name.lower()}",
        (
            of(code, heatmaps.shape, heatmaps.reshape(-1).tolist(), 1 / 64, zero + 10),
            sides((1, 4), _BOXES[0]),
            flag(False),
        ),
        (of(code, (1, 2), scores, 1 / 16, zero + 7), sides((1, 2, 2), _KEYPOINTS[:4])),
        (code,),
    )


CASES = (
    case("nhwc", False),
    case("nchw", True),
    quantized(QUANT8, 20),
    quantized(SIGNED, -108),
    # No curvature: the first of the equal pixels stays where it is.
    Case(
        OperationCode.HEATMAP_MAX_KEYPOINT,
        "flat",
        (tensor((1, 2, 2, 1), [1.5] * 4), tensor((1, 4), [0, 0, 4, 8]), flag(False)),
        (tensor((1, 1), [1.5]), tensor((1, 1, 2), [1, 2])),
        FLOATS,
    ),
    # Equal neighbours beyond the edge: the top at the corner has no slope.
    Case(
        OperationCode.HEATMAP_MAX_KEYPOINT,
        "corner",
        (tensor((1, 2, 2, 1), [1, 2, 2.5, 4]), tensor((1, 4), [0, 0, 4, 8]), flag(False)),
        (tensor((1, 1), [4]), tensor((1, 1, 2), [3, 6])),
        FLOATS,
    ),
)
