# SPDX-License-Identifier: Apache-2.0
"""Boxes and regions on the device: 8- and 16-bit results are the CPU driver's bits, floats choose the same boxes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.hal.types import HalError
from tests.gpu_driver.operations.both_drivers import Result, check_both, run
from tests.gpu_driver.operations.compare import ALL, FLOAT16, FLOAT32, INT32, QUANT8, SIGNED, Value

if TYPE_CHECKING:
    from nn_runtime.device import Device
    from nn_runtime.operand import Array

Q16, Q16_SYMM = OperandCode.TENSOR_QUANT16_ASYMM, OperandCode.TENSOR_QUANT16_SYMM
QUANTIZED = (QUANT8, SIGNED)


class Draw:
    """Random tensors whose quantised and float forms mean the same."""

    def __init__(self, data_type: OperandCode, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.type = data_type
        self.box_type = Q16 if data_type in QUANTIZED else data_type

    def scores(self, *dims: int) -> Value:
        """Return numbers from 0 to 1, many of them equal."""
        return self._codes(self.rng.integers(0, 100, dims), 0.01)

    def deltas(self, *dims: int) -> Value:
        """Return numbers from -1 to 1."""
        return self._codes(self.rng.integers(-40, 40, dims), 0.025)

    def boxes(self, *dims: int, extent: int = 400) -> Value:
        """Return corners in eighths of a pixel, none outside [0, extent / 8]."""
        corners = np.sort(self.rng.integers(0, extent, (*dims, 2, 2)), axis=-2).reshape(*dims, 4)
        return self._eighths(corners, self.box_type)

    def image(self, batches: int, extent: int = 400) -> Value:
        """Return heights and widths."""
        return self._eighths(np.full((batches, 2), extent), self.box_type)

    def anchors(self, count: int) -> Value:
        """Return anchors about 0."""
        code = Q16_SYMM if self.type in QUANTIZED else self.type
        return self._eighths(np.sort(self.rng.integers(-60, 60, (count, 2, 2)), axis=1).reshape(count, 4), code)

    def result(self, rank: int = 1) -> Result:
        """Return an output like the scores."""
        return Result(self.type, rank, 0.01 if self.type in QUANTIZED else 0.0, self._zero)

    def box_result(self, rank: int = 2) -> Result:
        """Return an output of boxes."""
        tolerance = {FLOAT32: (1e-4, 1e-5), FLOAT16: (0.25, 5 * 2.0**-10)}.get(self.type)
        return Result(self.box_type, rank, 0.125 if self.box_type == Q16 else 0.0, tolerance=tolerance)

    @property
    def _zero(self) -> int:
        return {QUANT8: 50, SIGNED: -78}.get(self.type, 0)

    def _codes(self, steps: Array, scale: float) -> Value:
        if self.type in QUANTIZED:
            dtype = np.uint8 if self.type == QUANT8 else np.int8
            return Value(self.type, (steps + self._zero).astype(dtype), scale, self._zero)
        return Value(self.type, (steps * scale).astype(np.float16 if self.type == FLOAT16 else np.float32))

    def _eighths(self, steps: Array, code: OperandCode) -> Value:
        dtypes = {Q16: np.uint16, Q16_SYMM: np.int16}
        if code in dtypes:
            return Value(code, steps.astype(dtypes[code]), 0.125)
        return Value(code, (steps * 0.125).astype(np.float16 if code == FLOAT16 else np.float32))


def integers(values: object) -> Value:
    return Value(INT32, np.array(values, np.int32))


@pytest.mark.parametrize("kernel", [0, 1, 2])
@pytest.mark.parametrize(("rois", "classes", "most"), [(1, 2, -1), (40, 2, 5), (60, 5, 7), (60, 5, -1), (33, 1, 4)])
@pytest.mark.parametrize("data_type", ALL, ids=lambda code: code.name)
def test_box_with_nms_limit(
    opencl_device: Device, data_type: OperandCode, rois: int, classes: int, most: int, kernel: int
) -> None:
    draw = Draw(data_type)
    boxes = draw.boxes(rois, classes)
    flat = Value(boxes.type, boxes.data.reshape(rois, -1), boxes.scale)
    batches = integers(np.arange(rois) * 3 // rois % 2)  # 0, 1, 0: three runs
    inputs = [draw.scores(rois, classes), flat, batches, 0.3, most, kernel, 0.4, 0.5, 0.25]
    results = [draw.result(), draw.box_result(), Result(INT32, 1), Result(INT32, 1)]
    check_both(opencl_device, OperationCode.BOX_WITH_NMS_LIMIT, inputs, results)


def test_boxes_with_wrong_corners_are_an_error(opencl_device: Device) -> None:
    boxes = Value(FLOAT32, np.array([[0, 0, 1, 1, 0, 0, -1, 1]], np.float32))
    scores = Value(FLOAT32, np.ones((1, 2), np.float32))
    inputs = [scores, boxes, integers([0]), 0.3, -1, 0, 0.4, 0.5, 0.25]
    results = [Result(FLOAT32, 1), Result(FLOAT32, 2), Result(INT32, 1), Result(INT32, 1)]
    with pytest.raises(HalError, match="operation 0 BOX_WITH_NMS_LIMIT: boxes must have x1 <= x2"):
        run(opencl_device.hal, OperationCode.BOX_WITH_NMS_LIMIT, inputs, results)


@pytest.mark.parametrize("nchw", [False, True])
@pytest.mark.parametrize("limits", [(-1, -1), (20, 7), (100, 3), (1, 1)], ids=str)
@pytest.mark.parametrize(("height", "width", "anchors"), [(1, 1, 1), (5, 7, 3), (9, 4, 2)])
@pytest.mark.parametrize("data_type", ALL, ids=lambda code: code.name)
def test_generate_proposals(
    opencl_device: Device,
    data_type: OperandCode,
    height: int,
    width: int,
    anchors: int,
    limits: tuple[int, int],
    nchw: bool,
) -> None:
    draw = Draw(data_type)
    sizes = (anchors, height, width) if nchw else (height, width, anchors)
    depths = (4 * anchors, height, width) if nchw else (height, width, 4 * anchors)
    inputs = [
        draw.scores(2, *sizes),
        draw.deltas(2, *depths),
        draw.anchors(anchors),
        draw.image(2),
        *(5.0, 6.0, *limits, 0.4, 1.0, nchw),
    ]
    results = [draw.result(), draw.box_result(), Result(INT32, 1)]
    check_both(opencl_device, OperationCode.GENERATE_PROPOSALS, inputs, results)


@pytest.mark.parametrize("regular", [False, True])
@pytest.mark.parametrize(
    ("anchors", "classes", "limits"), [(1, 2, (1, 1, 1)), (70, 4, (10, 2, 5)), (65, 3, (90, 9, 9))]
)
@pytest.mark.parametrize("data_type", [FLOAT32, FLOAT16], ids=lambda code: code.name)
def test_detection_postprocessing(
    opencl_device: Device,
    data_type: OperandCode,
    anchors: int,
    classes: int,
    limits: tuple[int, int, int],
    regular: bool,
) -> None:
    draw = Draw(data_type)
    most, per_detection, per_class = limits
    inputs = [
        draw.scores(2, anchors, classes),
        draw.deltas(2, anchors, 5),
        draw.boxes(anchors, extent=60),
        *(10.0, 10.0, 5.0, 5.0, regular, most, per_detection, per_class, 0.3, 0.4, False),
    ]
    results = [draw.result(2), draw.box_result(3), Result(INT32, 2), Result(INT32, 1)]
    check_both(opencl_device, OperationCode.DETECTION_POSTPROCESSING, inputs, results)


@pytest.mark.parametrize("classes", [1, 3])
@pytest.mark.parametrize("data_type", ALL, ids=lambda code: code.name)
def test_box_transform(opencl_device: Device, data_type: OperandCode, classes: int) -> None:
    draw = Draw(data_type)
    inputs = [draw.boxes(30), draw.deltas(30, 4 * classes), integers(np.arange(30) // 20), draw.image(2)]
    check_both(opencl_device, OperationCode.AXIS_ALIGNED_BBOX_TRANSFORM, inputs, [draw.box_result()])


@pytest.mark.parametrize("nchw", [False, True])
@pytest.mark.parametrize("samples", [(0, 0), (2, 3)], ids=str)
@pytest.mark.parametrize(("size", "depth", "out"), [((1, 1), 1, (1, 1)), ((30, 28), 5, (3, 4)), ((17, 40), 16, (7, 2))])
@pytest.mark.parametrize("code", [OperationCode.ROI_ALIGN, OperationCode.ROI_POOLING], ids=lambda code: code.name)
@pytest.mark.parametrize("data_type", ALL, ids=lambda code: code.name)
def test_regions(
    opencl_device: Device,
    data_type: OperandCode,
    code: OperationCode,
    size: tuple[int, int],
    depth: int,
    out: tuple[int, int],
    samples: tuple[int, int],
    nchw: bool,
) -> None:
    draw = Draw(data_type)
    align = code == OperationCode.ROI_ALIGN
    if samples != (0, 0) and not align:
        pytest.skip("has no samples")
    image = draw.deltas(2, depth, *size) if nchw else draw.deltas(2, *size, depth)
    rois = draw.boxes(9, extent=8 * 2 * min(size))
    more = (*samples, nchw) if align else (nchw,)
    inputs = [image, rois, integers(np.arange(9) // 5), *out, 2.0, 2.0, *more]
    scale = (0.02 if align else image.scale) if image.scale else 0.0
    check_both(opencl_device, code, inputs, [Result(data_type, 4, scale, image.zero_point)])


def _whole(image: Array, scale: float) -> list[Value | int | float | bool]:
    """Return the inputs of a ROI_ALIGN that brings a whole image to one pixel, as many samples as it has pixels."""
    kind = SIGNED if image.dtype == np.int8 else QUANT8
    _, height, width, _ = image.shape
    zero_point = -128 if kind == SIGNED else 0
    box = Value(Q16, np.array([[0, 0, width, 8 * height]], np.uint16), 0.125)
    return [Value(kind, image, scale, zero_point), box, integers([0]), 1, 1, 1.0, 0.125, 0, 0, False]


@pytest.mark.parametrize("size", [(182, 183), (256, 256), (8, 8000), (1, 40000)], ids=str)
@pytest.mark.parametrize("data_type", QUANTIZED, ids=lambda code: code.name)
def test_sums_of_many_samples(opencl_device: Device, data_type: OperandCode, size: tuple[int, int]) -> None:
    """Weighted by up to 255, bright samples of a large region add up to more than 31 bits."""
    zero_point = -128 if data_type == SIGNED else 0
    shape = (1, *size, 3)
    bright = np.random.default_rng(1).integers(200, 256, shape) + zero_point
    for image in (bright, np.full(shape, 255 + zero_point)):
        inputs = _whole(image.astype(np.int8 if data_type == SIGNED else np.uint8), 0.5)
        got = check_both(opencl_device, OperationCode.ROI_ALIGN, inputs, [Result(data_type, 4, 0.5, zero_point)])[0]
        assert np.abs(got - image.mean(axis=(1, 2))).max() <= 1


@pytest.mark.parametrize("level", [1, 128, 255])
def test_sums_of_more_samples_than_32_bits_hold(opencl_device: Device, level: int) -> None:
    """The mean of what is the same everywhere is that."""
    inputs = _whole(np.full((1, 700, 900, 1), level, np.uint8), 0.5)
    got = check_both(opencl_device, OperationCode.ROI_ALIGN, inputs, [Result(QUANT8, 4, 0.5, 0)])[0]
    assert got.reshape(-1).tolist() == [level]


@pytest.mark.parametrize(("classes", "samples"), [(1, 1), (3, 65), (700, 33)])
@pytest.mark.parametrize("data_type", [FLOAT32, FLOAT16], ids=lambda code: code.name)
def test_the_same_classes_are_drawn(opencl_device: Device, data_type: OperandCode, classes: int, samples: int) -> None:
    logits = np.random.default_rng(3).normal(size=(2, classes)).astype(np.float16)
    logits[:, ::7] = -np.inf if classes > 1 else 0
    values = Value(data_type, logits if data_type == FLOAT16 else logits.astype(np.float32))
    exact = opencl_device.hal.profile.fp64  # type: ignore[attr-defined]
    for seeds in ([1, 0], [-5, 2**31 - 1]):
        inputs = [values, samples, integers(seeds)]
        tolerance = None if exact else (classes, 0.0)
        check_both(opencl_device, OperationCode.RANDOM_MULTINOMIAL, inputs, [Result(INT32, 2, tolerance=tolerance)])


def test_seeds_of_zero_draw_anew(opencl_device: Device) -> None:
    inputs = [Value(FLOAT32, np.zeros((1, 1000), np.float32)), 50, integers([0, 0])]
    draws = [run(opencl_device.hal, OperationCode.RANDOM_MULTINOMIAL, inputs, [Result(INT32, 2)])[0] for _ in range(2)]
    assert np.any(draws[0] != draws[1])
