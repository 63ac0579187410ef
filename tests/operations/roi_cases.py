# SPDX-License-Identifier: Apache-2.0
"""Cases of ROI_ALIGN and ROI_POOLING: one output element at a time, in float64."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode, OperationCode
from tests.operations.cases import FLOATS, QUANT8, SIGNED, Argument, Case, flag, integer, ints, of, real, tensor

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_Box = tuple[float, float, float, float]

_BATCHES, _HEIGHT, _WIDTH, _DEPTH = 2, 6, 8, 3
_IMAGE = np.random.default_rng(40).integers(-32, 33, (_BATCHES, _HEIGHT, _WIDTH, _DEPTH)) / 16
_BOXES: tuple[_Box, ...] = ((0, 0, 16, 12), (2.5, 1, 9, 11.5), (4, 4, 4.5, 4.25), (15, 11, 16, 12), (0, 3, 16, 5))
_BATCH_OF_BOX = (0, 1, 1, 0, 1)
_RATIO = 2.0


def _image(nchw: bool, values: np.ndarray) -> Argument:
    ordered = values.transpose(0, 3, 1, 2) if nchw else values
    return tensor(ordered.shape, ordered.reshape(-1), 1 / 16, 100)


def _rois(boxes: Sequence[_Box], quantized: bool) -> Argument:
    flat = np.array(boxes, np.float64).reshape(-1)
    dims = (len(boxes), 4)
    return of(OperandCode.TENSOR_QUANT16_ASYMM, dims, flat / 0.125, 0.125) if quantized else tensor(dims, flat)


def _bilinear(batch: int, y: float, x: float) -> np.ndarray:
    top, left = min(math.floor(y), _HEIGHT - 1), min(math.floor(x), _WIDTH - 1)
    dy = y - top if top < _HEIGHT - 1 else 0.0
    dx = x - left if left < _WIDTH - 1 else 0.0
    bottom, right = min(top + 1, _HEIGHT - 1), min(left + 1, _WIDTH - 1)
    image = _IMAGE[batch]
    upper = image[top, left] * (1 - dx) + image[top, right] * dx
    lower = image[bottom, left] * (1 - dx) + image[bottom, right] * dx
    mixed: np.ndarray = upper * (1 - dy) + lower * dy
    return mixed


def _aligned(box: _Box, batch: int, size: tuple[int, int], samples: tuple[int, int]) -> np.ndarray:
    x1, y1, x2, y2 = (side / _RATIO for side in box)
    step_y, step_x = max(y2 - y1, 1) / size[0], max(x2 - x1, 1) / size[1]
    count_y, count_x = samples[0] or math.ceil(step_y), samples[1] or math.ceil(step_x)
    result = np.zeros((*size, _DEPTH))
    for i in range(size[0]):
        for j in range(size[1]):
            for k in range(count_y):
                for m in range(count_x):
                    y = y1 + step_y * (i + (k + 0.5) / count_y)
                    x = x1 + step_x * (j + (m + 0.5) / count_x)
                    result[i, j] += _bilinear(batch, y, x) / (count_y * count_x)
    return result


def _pooled(box: _Box, batch: int, size: tuple[int, int]) -> np.ndarray:
    x1, y1, x2, y2 = (math.floor(side / _RATIO + 0.5) for side in box)
    step_y, step_x = max(y2 - y1 + 1, 1) / size[0], max(x2 - x1 + 1, 1) / size[1]
    result = np.zeros((*size, _DEPTH))
    for i in range(size[0]):
        for j in range(size[1]):
            rows = slice(math.floor(y1 + step_y * i), min(math.ceil(y1 + step_y * (i + 1)), _HEIGHT))
            columns = slice(math.floor(x1 + step_x * j), min(math.ceil(x1 + step_x * (j + 1)), _WIDTH))
            part = _IMAGE[batch][rows, columns].reshape(-1, _DEPTH)
            result[i, j] = part.max(axis=0) if len(part) else 0.0
    return result


def _cases(
    name: str,
    size: tuple[int, int],
    samples: tuple[int, int] | None,
    nchw: bool = False,
    boxes: tuple[_Box, ...] = _BOXES,
) -> Iterator[Case]:
    """Yield the case of ROI_ALIGN (`samples` per axis given) or ROI_POOLING for floats and for 8 bits."""
    batches = _BATCH_OF_BOX[: len(boxes)]
    results = np.array(
        [
            _pooled(box, batch, size) if samples is None else _aligned(box, batch, size, samples)
            for box, batch in zip(boxes, batches, strict=True)
        ]
    )
    for quantized in (False, True):
        inputs = (
            _image(nchw, _IMAGE),
            _rois(boxes, quantized),
            ints(batches),
            *map(integer, size),
            real(_RATIO),
            real(_RATIO),
            *map(integer, samples or ()),
            flag(nchw),
        )
        operation = OperationCode.ROI_POOLING if samples is None else OperationCode.ROI_ALIGN
        types = (QUANT8, SIGNED) if quantized else FLOATS
        yield Case(operation, f"{name}{'_quantized' * quantized}", inputs, (_image(nchw, results),), types)


CASES = (
    *_cases("adaptive", (3, 4), (0, 0)),
    *_cases("two_samples", (2, 2), (2, 2)),
    *_cases("uneven_samples_nchw", (2, 3), (1, 3), True),
    *_cases("one_box", (1, 1), (0, 2), boxes=_BOXES[:1]),
    *_cases("plain", (2, 2), None),
    *_cases("nchw", (3, 2), None, True),
    # More output than input rows: bins of one pixel, shared.
    *_cases("many_bins", (8, 9), None),
)
