# SPDX-License-Identifier: Apache-2.0
"""Malformed boxes and batch indices fail when they are seen; ties go to the lower index; means of many samples."""

from __future__ import annotations

import numpy as np
import pytest

from cpu_driver.operations import function_of
from cpu_driver.operations.boxes import hard_nms, soft_nms
from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.errors import BadData
from nn_runtime.operations import OperationView
from tests.nn_runtime.operations.operands import FakeOperand, integer, integers, scalar, tensor

BOXES = np.array([[0, 0, 4, 4], [0, 0, 4, 4], [8, 8, 9, 9], [8, 8, 9, 9]], np.float32)


def data(values: object) -> FakeOperand:
    array = np.array(values, np.float32)
    return FakeOperand(OperandCode.TENSOR_FLOAT32, array.shape, array)


def real(value: float) -> FakeOperand:
    return scalar(OperandCode.FLOAT32, value)


@pytest.mark.parametrize(
    ("box", "batch", "message"),
    [
        ((3, 0, 1, 1), 0, "rois .* x1 <= x2"),
        ((0, 0, 9, 1), 0, "inside the image"),
        ((-1, 0, 1, 1), 0, "inside the image"),
        ((0, 0, float("nan"), 1), 0, "inside the image"),
        ((0, 0, 1, 1), 1, r"batch_index .* must be in \[0, 1\)"),
        ((0, 0, 1, 1), -1, r"batch_index .* must be in \[0, 1\)"),
    ],
)
def test_region_is_refused(box: tuple[float, ...], batch: int, message: str) -> None:
    inputs = [data(np.ones((1, 4, 4, 2))), data([box]), integers([batch]), integer(2), integer(2), real(1), real(1)]
    layout = scalar(OperandCode.BOOL, False)
    pooling = OperationView(OperationCode.ROI_POOLING, [*inputs, layout], [tensor(1, 2, 2, 2)])
    align = OperationView(OperationCode.ROI_ALIGN, [*inputs, integer(0), integer(0), layout], [tensor(1, 2, 2, 2)])
    for operation in (pooling, align):
        function = function_of(operation.code)
        assert function is not None
        with pytest.raises(BadData, match=message):
            function(operation)


@pytest.mark.parametrize(("threshold", "kept"), [(0.5, [0]), (0.51, [0, 1])])
def test_an_overlap_as_large_as_the_threshold_is_too_large(threshold: float, kept: list[int]) -> None:
    """Half of the second box is the first."""
    boxes, scores = np.array([[0, 0, 1, 1], [0, 0, 2, 1]], np.float32), np.array([0.9, 0.8], np.float32)
    assert hard_nms(boxes, scores, np.arange(2), threshold, -1).tolist() == kept


def test_the_mean_of_very_many_quantised_samples() -> None:
    """Each of 512 x 512 samples hits a pixel, of which one is 1 and the others 0: the mean, 2^-18, is 100 steps."""
    code, side = OperandCode.TENSOR_QUANT8_ASYMM, 512
    image = np.zeros((1, side + 1, side + 1, 1), np.uint8)
    image[0, 7, 9, 0] = 1
    regions = np.array([[0.5, 0.5, side + 0.5, side + 0.5]]) * 8  # in the steps of their type, 1/8
    inputs = [
        FakeOperand(code, image.shape, image, 1.0),
        FakeOperand(OperandCode.TENSOR_QUANT16_ASYMM, (1, 4), regions.astype(np.uint16), 0.125),
        *(integers([0]), integer(1), integer(1), real(1), real(1), integer(0), integer(0)),
        scalar(OperandCode.BOOL, False),
    ]
    output = tensor(1, 1, 1, 1, code=code, scale=2**-18 / 100)
    function = function_of(OperationCode.ROI_ALIGN)
    assert function is not None
    (mean,) = function(OperationView(OperationCode.ROI_ALIGN, inputs, [output]))
    assert mean.tolist() == [[[[100]]]]


def test_transform_refuses() -> None:
    function = function_of(OperationCode.AXIS_ALIGNED_BBOX_TRANSFORM)
    assert function is not None
    image, deltas = data([[10, 10]]), data([[0, 0, 0, 0]])
    for box, batch, message in (([[2, 0, 1, 1]], 0, "roi .* x1 <= x2"), ([[0, 0, 1, 1]], 1, "batch_index")):
        inputs = [data(box), deltas, integers([batch]), image]
        operation = OperationView(OperationCode.AXIS_ALIGNED_BBOX_TRANSFORM, inputs, [tensor(1, 4)])
        with pytest.raises(BadData, match=message):
            function(operation)


def test_ties_go_to_the_lower_index() -> None:
    scores, candidates = np.full(4, 0.5, np.float32), np.arange(4)
    assert hard_nms(BOXES, scores, candidates, 0.5, -1).tolist() == [0, 2]
    assert hard_nms(BOXES, scores, candidates, 0.5, 1).tolist() == [0]
    kept = soft_nms(BOXES, scores, candidates, lambda overlap: (overlap < 0.5).astype(np.float32), 0.1, -1)
    assert kept.tolist() == [0, 2]


def test_an_overlap_of_just_the_threshold_is_too_much() -> None:
    """As AOSP's hardNmsSelect has it; the second box is half of the first."""
    boxes, scores = np.array([[0, 0, 2, 2], [0, 0, 1, 2]], np.float32), np.array([0.9, 0.8], np.float32)
    assert hard_nms(boxes, scores, np.arange(2), 0.5, -1).tolist() == [0]
    assert hard_nms(boxes, scores, np.arange(2), 0.5625, -1).tolist() == [0, 1]


def test_soft_suppression_lowers_scores() -> None:
    scores = np.array([0.5, 1.0, 0.25, 0.75], np.float32)
    kept = soft_nms(BOXES, scores, np.arange(4), lambda overlap: 1 - overlap / 2, 0.0, -1)
    assert kept.tolist() == [1, 3, 0, 2]
    assert scores.tolist() == [0.25, 1.0, 0.125, 0.75]
