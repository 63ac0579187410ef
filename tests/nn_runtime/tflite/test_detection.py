# SPDX-License-Identifier: Apache-2.0
"""TFLite_Detection_PostProcess against LiteRT's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from flatbuffers import flexbuffers

import nn_runtime as nn
from nn_runtime.errors import BadData
from tests.nn_runtime.tflite.operator_file import Array, Graph, Step, constant, real, reference, uint8, write_graphs

if TYPE_CHECKING:
    from nn_runtime.device import Device

ANCHORS, CLASSES = 20, 3
OPTIONS: dict[str, Any] = {
    "max_detections": 6,
    "max_classes_per_detection": 1,
    "nms_score_threshold": 0.2,
    "nms_iou_threshold": 0.5,
    "num_classes": CLASSES,
    "y_scale": 10.0,
    "x_scale": 10.0,
    "h_scale": 5.0,
    "w_scale": 5.0,
}


def anchors(seed: int) -> Array:
    """Centres and sizes [ANCHORS, 4] as y, x, h, w."""
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.uniform(0.1, 0.9, (ANCHORS, 2)), rng.uniform(0.1, 0.4, (ANCHORS, 2))], 1)


def detector(options: bytes, columns: int, quantized: bool = False) -> bytes:
    boxes = uint8(0.05, 128, 1, ANCHORS, 4) if quantized else real(1, ANCHORS, 4)
    scores = uint8(1 / 256, 0, 1, ANCHORS, columns) if quantized else real(1, ANCHORS, columns)
    table = constant((anchors(0) * 200).astype(np.uint8), 1 / 200, 0) if quantized else constant(anchors(0))
    tensors = [boxes, scores, table, real(1, 6, 4), real(1, 6), real(1, 6), real(1)]
    step = Step("TFLite_Detection_PostProcess", [0, 1, 2], [3, 4, 5, 6], custom_options=options)
    return write_graphs([Graph(tensors, [step], [0, 1], [3, 4, 5, 6])])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("background", [0, 1])
@pytest.mark.parametrize("more", [{}, {"use_regular_nms": True, "detections_per_class": 4}], ids=["fast", "regular"])
def test_detections(seed: int, background: int, more: dict[str, Any], reference_device: Device) -> None:
    rng = np.random.default_rng(seed)
    file = detector(flexbuffers.Dumps({**OPTIONS, **more}), CLASSES + background)
    boxes = rng.normal(0, 2, (1, ANCHORS, 4)).astype(np.float32)
    scores = rng.uniform(0, 1, (1, ANCHORS, CLASSES + background)).astype(np.float32)
    check(file, [boxes, scores], reference_device)


@pytest.mark.parametrize("seed", range(3))
def test_quantised_detections(seed: int, reference_device: Device) -> None:
    rng = np.random.default_rng(seed)
    file = detector(flexbuffers.Dumps(OPTIONS), CLASSES + 1, quantized=True)
    boxes = rng.integers(0, 256, (1, ANCHORS, 4)).astype(np.uint8)
    scores = rng.permutation(256)[: ANCHORS * (CLASSES + 1)].reshape(1, ANCHORS, -1).astype(np.uint8)
    check(file, [boxes, scores], reference_device)


def test_threshold_below_0_of_scores_that_are_not(reference_device: Device) -> None:
    rng = np.random.default_rng(7)
    file = detector(flexbuffers.Dumps({**OPTIONS, "nms_score_threshold": -20.0}), CLASSES + 1, quantized=True)
    boxes = rng.integers(0, 256, (1, ANCHORS, 4)).astype(np.uint8)
    scores = rng.permutation(256)[: ANCHORS * (CLASSES + 1)].reshape(1, ANCHORS, -1).astype(np.uint8)
    check(file, [boxes, scores], reference_device)


def test_threshold_below_0_of_scores_that_can_be_is_refused() -> None:
    with pytest.raises(BadData, match="nms_score_threshold must be >= 0 for scores that can be negative, got -20"):
        nn.load(detector(flexbuffers.Dumps({**OPTIONS, "nms_score_threshold": -20.0}), CLASSES + 1))


@pytest.mark.parametrize("threshold", [0.0, 0.25])
@pytest.mark.parametrize("more", [{}, {"use_regular_nms": True, "detections_per_class": 4}], ids=["fast", "regular"])
def test_scores_and_overlaps_that_reach_a_threshold(
    threshold: float, more: dict[str, Any], reference_device: Device
) -> None:
    """Scores that do are kept, and overlaps of just the threshold, here of halves of boxes, do not matter."""
    options = {**OPTIONS, "nms_score_threshold": threshold, "num_classes": 1, "h_scale": 1.0, "w_scale": 1.0, **more}
    centres = np.array([[at // 2 * 10 + 0.5, 0.5 + 0.5 * (at % 2), 1, 1 + at % 2] for at in range(ANCHORS)])
    boxes, scores = np.zeros((1, ANCHORS, 4), np.float32), np.zeros((1, ANCHORS, 1), np.float32)
    scores[0, :, 0] = [0.75, 0.5, 0.25, *[threshold - 0.125] * (ANCHORS - 3)]
    scores[0, 3, 0] = threshold
    tensors = [
        real(1, ANCHORS, 4),
        real(1, ANCHORS, 1),
        constant(centres),
        real(1, 6, 4),
        real(1, 6),
        real(1, 6),
        real(1),
    ]
    step = Step("TFLite_Detection_PostProcess", [0, 1, 2], [3, 4, 5, 6], custom_options=flexbuffers.Dumps(options))
    check(write_graphs([Graph(tensors, [step], [0, 1], [3, 4, 5, 6])]), [boxes, scores], reference_device)


def check(file: bytes, inputs: list[Array], device: Device) -> None:
    with nn.load(file).compile(device) as session:
        boxes, classes, scores, count = session.run(inputs)
    wanted_boxes, wanted_classes, wanted_scores, wanted_count = reference(file, inputs)
    found = int(wanted_count[0])
    assert count.tolist() == [found]
    assert found > 1
    np.testing.assert_allclose(boxes[:, :found], wanted_boxes[:, :found], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(classes[:, :found], wanted_classes[:, :found])
    np.testing.assert_allclose(scores[:, :found], wanted_scores[:, :found], rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (b"", "the options cannot be read: buffer is too small"),
        (flexbuffers.Dumps([1, 2]), "the options cannot be read: cannot convert"),
        (flexbuffers.Dumps({"max_detections": 6}), "option y_scale is missing"),
        (flexbuffers.Dumps({**OPTIONS, "y_scale": "wide"}), "the options cannot be read: y_scale must be a number"),
        (flexbuffers.Dumps({**OPTIONS, "num_classes": 9}), r"scores \(input 1\) must have 9 or 10 classes, got 4"),
    ],
)
def test_bad_options_are_refused(options: bytes, reason: str) -> None:
    with pytest.raises(BadData, match=f"operator 0 CUSTOM 'TFLite_Detection_PostProcess': {reason}"):
        nn.load(detector(bytes(options), CLASSES + 1))


def test_damaged_options_are_refused_or_read() -> None:
    good = bytes(flexbuffers.Dumps(OPTIONS))
    rng = np.random.default_rng(1)
    for _ in range(300):
        damaged = bytearray(good)
        for at in rng.integers(0, len(good), 3):
            damaged[at] = rng.integers(0, 256)
        try:
            nn.load(detector(bytes(damaged[: rng.integers(1, len(good) + 1)]), CLASSES + 1))
        except BadData:
            continue


def test_another_custom_operator_is_refused() -> None:
    file = write_graphs([Graph([real(3), real(3)], [Step("Unheard", [0], [1])], [0], [1])])
    with pytest.raises(BadData, match="operator 0 CUSTOM 'Unheard': no NNAPI operation"):
        nn.load(file)
