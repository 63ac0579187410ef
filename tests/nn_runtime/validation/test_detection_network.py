# SPDX-License-Identifier: Apache-2.0
"""A quantised detector of two stages, boxes and masks, is built, compiled and computed (AOSP TestValidateModel).

Android's model, a Mask R-CNN, is not free; this one has its operations, unknown numbers of boxes and mixed types, with
weights drawn at random.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.compilation import Compilation
from nn_runtime.devices import Selection
from nn_runtime.execution import Execution
from nn_runtime.model import Model
from nn_runtime.operand import OperandType

if TYPE_CHECKING:
    from nn_runtime.device import Device
    from nn_runtime.operand import Array, Dimensions

QUANT8, FLOAT, INT32 = OperandCode.TENSOR_QUANT8_ASYMM, OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_INT32
BOXES = OperandCode.TENSOR_QUANT16_ASYMM
HEIGHT, WIDTH, CHANNELS, ANCHORS, CLASSES, MOST = 48, 64, 16, 3, 3, 10
SCALES = {QUANT8: 1 / 16, BOXES: 1 / 8, OperandCode.TENSOR_QUANT16_SYMM: 1 / 8}
ZERO_POINTS = {QUANT8: 128}
WEIGHT_SCALE = 1 / 128
SAME = 1


class Builder:
    """A model that grows operation by operation."""

    def __init__(self) -> None:
        self.model = Model()
        self.rng = np.random.default_rng(20)

    def tensor(self, code: int, *dims: int, scale: float | None = None, zero_point: int | None = None) -> int:
        found = SCALES.get(code, 0.0) if scale is None else scale
        zero = ZERO_POINTS.get(code, 0) if zero_point is None else zero_point
        return self.model.add_operand(OperandType(code, dims, found, zero))

    def scalar(self, code: OperandCode, value: float) -> int:
        index = self.model.add_operand(OperandType(code))
        self.model.set_operand_value(index, value)
        return index

    def integers(self, *values: int) -> list[int]:
        return [self.scalar(OperandCode.INT32, value) for value in values]

    def floats(self, *values: float) -> list[int]:
        return [self.scalar(OperandCode.FLOAT32, value) for value in values]

    def flag(self) -> int:
        return self.scalar(OperandCode.BOOL, False)

    def constant(self, index: int, value: Array) -> int:
        self.model.set_operand_value(index, value)
        return index

    def weights(self, *dims: int) -> list[int]:
        """Return filter and bias; the first or last dimension is that of the outputs."""
        drawn = self.rng.integers(96, 160, dims).astype(np.uint8)
        filters = self.constant(self.tensor(QUANT8, *dims, scale=WEIGHT_SCALE), drawn)
        outputs = dims[-1] if dims[0] == 1 and len(dims) == 4 else dims[0]
        bias = self.tensor(INT32, outputs, scale=SCALES[QUANT8] * WEIGHT_SCALE)
        return [filters, self.constant(bias, self.rng.integers(-99, 99, outputs).astype(np.int32))]

    def add(self, code: OperationCode, inputs: list[int], *outputs: int) -> int:
        self.model.add_operation(code, inputs, outputs)
        return outputs[0]

    def conv(self, source: int, dims: Dimensions, depth: int, size: int, stride: int, relu: bool = True) -> int:
        fuse = FuseCode.RELU if relu else FuseCode.NONE
        inputs = [source, *self.weights(dims[3], size, size, depth), *self.integers(SAME, stride, stride, fuse)]
        return self.add(OperationCode.CONV_2D, inputs, self.tensor(QUANT8, *dims))

    def depthwise(self, source: int, dims: Dimensions) -> int:
        inputs = [source, *self.weights(1, 3, 3, dims[3]), *self.integers(SAME, 1, 1, 1, FuseCode.RELU)]
        return self.add(OperationCode.DEPTHWISE_CONV_2D, inputs, self.tensor(QUANT8, *dims))

    def dense(self, source: int, depth: int, units: int) -> int:
        inputs = [source, *self.weights(units, depth), *self.integers(FuseCode.NONE)]
        return self.add(OperationCode.FULLY_CONNECTED, inputs, self.tensor(QUANT8, 0, units))


def _features(b: Builder, image: int) -> int:
    order = b.constant(b.tensor(INT32, 4), np.array([0, 2, 3, 1], np.int32))
    x = b.add(OperationCode.TRANSPOSE, [image, order], b.tensor(FLOAT, 1, HEIGHT, WIDTH, 3))
    x = b.add(OperationCode.QUANTIZE, [x], b.tensor(QUANT8, 1, HEIGHT, WIDTH, 3))
    before = 3
    for shrink in (2, 4, 8):
        dims = (1, HEIGHT // shrink, WIDTH // shrink, CHANNELS)
        x = b.conv(x, dims, before, 3, 2)
        branch = b.conv(b.depthwise(x, dims), dims, CHANNELS, 1, 1, relu=False)
        x = b.add(OperationCode.ADD, [x, branch, *b.integers(FuseCode.NONE)], b.tensor(QUANT8, *dims))
        before = CHANNELS
    return x


def _proposals(b: Builder, features: int, image_info: int) -> tuple[int, int]:
    """Return boxes and the image of each, as many as there turn out to be."""
    rows, columns = HEIGHT // 8, WIDTH // 8
    x = b.conv(features, (1, rows, columns, CHANNELS), CHANNELS, 3, 1)
    logits = b.conv(x, (1, rows, columns, ANCHORS), CHANNELS, 1, 1, relu=False)
    probabilities = b.tensor(QUANT8, 1, rows, columns, ANCHORS, scale=1 / 256, zero_point=0)
    b.add(OperationCode.LOGISTIC, [logits], probabilities)
    deltas = b.conv(x, (1, rows, columns, 4 * ANCHORS), CHANNELS, 1, 1, relu=False)
    sides = np.array([8, 16, 24], np.int16)[:, None] * np.array([-4, -4, 4, 4], np.int16)
    anchors = b.constant(b.tensor(OperandCode.TENSOR_QUANT16_SYMM, ANCHORS, 4), sides)
    inputs = [probabilities, deltas, anchors, image_info, *b.floats(8, 8), *b.integers(50, MOST), *b.floats(0.7, 1)]
    scores = b.tensor(QUANT8, 0, scale=1 / 256, zero_point=0)
    boxes, images = b.tensor(BOXES, 0, 4), b.tensor(INT32, 0)
    b.add(OperationCode.GENERATE_PROPOSALS, [*inputs, b.flag()], scores, boxes, images)
    return boxes, images


def _aligned(b: Builder, features: int, boxes: int, images: int) -> int:
    inputs = [features, boxes, images, *b.integers(4, 4), *b.floats(8, 8), *b.integers(2, 2), b.flag()]
    return b.add(OperationCode.ROI_ALIGN, inputs, b.tensor(QUANT8, 0, 4, 4, CHANNELS))


def _detector() -> Model:
    b = Builder()
    image, image_info = b.tensor(FLOAT, 1, 3, HEIGHT, WIDTH), b.tensor(BOXES, 1, 2)
    features = _features(b, image)
    boxes, images = _proposals(b, features, image_info)
    hidden = b.dense(_aligned(b, features, boxes, images), 16 * CHANNELS, 32)
    classes = b.tensor(QUANT8, 0, CLASSES, scale=1 / 256, zero_point=0)
    b.add(OperationCode.SOFTMAX, [b.dense(hidden, 32, CLASSES), *b.floats(1)], classes)
    refined = b.tensor(BOXES, 0, 4 * CLASSES)
    deltas = b.dense(hidden, 32, 4 * CLASSES)
    b.add(OperationCode.AXIS_ALIGNED_BBOX_TRANSFORM, [boxes, deltas, images, image_info], refined)
    best, corners = b.tensor(QUANT8, 0, scale=1 / 256, zero_point=0), b.tensor(BOXES, 0, 4)
    labels, owners = b.tensor(INT32, 0), b.tensor(INT32, 0)
    limits = [*b.floats(0.05), *b.integers(MOST, 0), *b.floats(0.5, 0.5, 0.05)]
    b.add(OperationCode.BOX_WITH_NMS_LIMIT, [classes, refined, images, *limits], best, corners, labels, owners)
    scores = b.add(OperationCode.DEQUANTIZE, [best], b.tensor(FLOAT, 0))
    x = _aligned(b, features, corners, owners)
    x = b.depthwise(x, (0, 4, 4, CHANNELS))
    inputs = [x, *b.integers(8, 8), b.flag()]
    x = b.add(OperationCode.RESIZE_NEAREST_NEIGHBOR, inputs, b.tensor(QUANT8, 0, 8, 8, CHANNELS))
    x = b.conv(x, (0, 8, 8, CLASSES), CHANNELS, 1, 1, relu=False)
    x = b.add(OperationCode.DEQUANTIZE, [x], b.tensor(FLOAT, 0, 8, 8, CLASSES))
    order = b.constant(b.tensor(INT32, 4), np.array([0, 3, 1, 2], np.int32))
    x = b.add(OperationCode.TRANSPOSE, [x, order], b.tensor(FLOAT, 0, CLASSES, 8, 8))
    masks = b.add(OperationCode.LOGISTIC, [x], b.tensor(FLOAT, 0, CLASSES, 8, 8))
    b.model.identify_inputs_and_outputs([image, image_info], [scores, corners, labels, masks])
    b.model.finish()
    return b.model


@pytest.mark.parametrize("strict", [True, False])
def test_a_detector_of_two_stages(device: Device, reference_device: Device, strict: bool) -> None:
    model = _detector()
    chosen = (device,) if strict or device.is_reference else (device, reference_device)
    compilation = Compilation.for_selection(model, Selection(chosen, strict))
    compilation.finish()
    image = np.random.default_rng(1).normal(size=(1, 3, HEIGHT, WIDTH)).astype(np.float32)
    outputs = [
        np.zeros(MOST, np.float32),
        np.zeros((MOST, 4), np.uint16),
        np.zeros(MOST, np.int32),
        np.zeros((MOST, CLASSES, 8, 8), np.float32),
    ]
    with Execution(compilation) as execution:
        execution.set_input(0, image)
        execution.set_input(1, np.array([[8 * HEIGHT, 8 * WIDTH]], np.uint16))
        for at, output in enumerate(outputs):
            execution.set_output(at, output)
        execution.compute()
        shapes = [execution.get_output_operand_dimensions(at) for at in range(4)]
    count = shapes[0][0]
    assert 0 < count <= MOST
    assert shapes == [(count,), (count, 4), (count,), (count, CLASSES, 8, 8)]
    scores, corners, classes = (output[:count] for output in outputs[:3])
    assert (np.diff(scores) <= 0).all() and scores.min() >= 0.05
    assert (corners[:, 2:] >= corners[:, :2]).all() and (corners[:, 2:] <= [8 * WIDTH, 8 * HEIGHT]).all()
    assert set(classes.tolist()) <= set(range(1, CLASSES))
    assert ((outputs[3] >= 0) & (outputs[3] <= 1)).all()
