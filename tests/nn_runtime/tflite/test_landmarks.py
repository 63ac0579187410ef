# SPDX-License-Identifier: Apache-2.0
"""MediaPipe's operators for parts of faces against homogeneous matrices and pixel by pixel sampling in float64."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from flatbuffers import flexbuffers

import nn_runtime as nn
from nn_runtime.errors import BadData
from tests.nn_runtime.tflite.operator_file import Array, Step, Tensor, constant, int32, real, write

if TYPE_CHECKING:
    from nn_runtime.device import Device

MATRIX, SAMPLE, LANDMARKS = "Landmarks2TransformMatrix", "TransformTensorBilinear", "TransformLandmarks"
OPTIONS: dict[str, Any] = {
    "left_rotation_idx": 1,
    "right_rotation_idx": 4,
    "output_width": 16,
    "output_height": 8,
    "scale_x": 1.5,
    "scale_y": 1.25,
    "subset_idxs": [0, 1, 4, 6, 7, 3],
    "target_rotation_radians": 0.0,
}
RNG = np.random.default_rng(5)


def file_of(name: str, sources: list[Tensor], result: Tensor, options: bytes, version: int = 2) -> bytes:
    inputs = list(range(len(sources)))
    given = [number for number, source in enumerate(sources) if source.data is None]
    step = Step(name, inputs, [len(sources)], custom_options=options, version=version)
    return write([*sources, result], [step], given, [len(sources)])


def dumped(**options: Any) -> bytes:
    return bytes(flexbuffers.Dumps(options))


def run(file: bytes, inputs: list[Array], device: Device) -> Array:
    with nn.load(file).compile(device) as session:
        result: Array = session.run(inputs)[0]
    return result


def shift(x: float, y: float) -> Array:
    return np.array([[1, 0, x], [0, 1, y], [0, 0, 1]], np.float64)


def turn(angle: float) -> Array:
    cosine, sine = np.cos(angle), np.sin(angle)
    return np.array([[cosine, -sine, 0], [sine, cosine, 0], [0, 0, 1]], np.float64)


def matrix_of(landmarks: Array, options: dict[str, Any]) -> Array:
    """Return the matrix [4, 4] that takes the middle of the output to that of the turned rectangle."""
    x, y = landmarks[0, :, :2].astype(np.float64).T
    left, right = options["left_rotation_idx"], options["right_rotation_idx"]
    angle = np.arctan2(y[right] - y[left], x[right] - x[left]) - options["target_rotation_radians"]
    upright = turn(-angle) @ np.stack([x, y, np.ones_like(x)])[:, options["subset_idxs"]]
    least, greatest = upright[:2].min(1), upright[:2].max(1)
    output = np.array([options["output_width"], options["output_height"]])
    factors = (greatest - least) * [options["scale_x"], options["scale_y"]] / output
    plane = turn(angle) @ shift(*(least + greatest) / 2) @ np.diag([*factors, 1]) @ shift(*-output / 2)
    result = np.eye(4)
    result[:2, :2], result[:2, 3] = plane[:2, :2], plane[:2, 2]
    return result


@pytest.mark.parametrize("wanted", [0.0, 0.75, -2.0])
def test_matrix_of_landmarks(wanted: float, reference_device: Device) -> None:
    landmarks = RNG.uniform(0, 192, (1, 8, 3)).astype(np.float32)
    options = {**OPTIONS, "target_rotation_radians": wanted}
    result = run(file_of(MATRIX, [real(1, 8, 3)], real(1, 4, 4), dumped(**options)), [landmarks], reference_device)
    assert result.shape == (1, 4, 4)
    np.testing.assert_allclose(result[0], matrix_of(landmarks, options), rtol=1e-5, atol=1e-4)


def test_ends_at_one_place_have_the_angle_0(reference_device: Device) -> None:
    """As arctan2(0, 0) is 0."""
    landmarks = RNG.uniform(0, 192, (1, 8, 3)).astype(np.float32)
    landmarks[0, 4] = landmarks[0, 1]
    result = run(file_of(MATRIX, [real(1, 8, 3)], real(1, 4, 4), dumped(**OPTIONS)), [landmarks], reference_device)
    np.testing.assert_allclose(result[0], matrix_of(landmarks, OPTIONS), rtol=1e-5, atol=1e-4)
    assert result[0, 0, 1] == 0


def sampled(picture: Array, matrix: Array, height: int, width: int) -> Array:
    """Return a picture's values at the transformed centres of pixels, 0 outside of its own centres."""
    rows, columns, depth = picture.shape
    result = np.zeros((height, width, depth))
    for y, x in np.ndindex(height, width):
        at_x, at_y = (matrix @ [x + 0.5, y + 0.5, 0, 1])[:2] - 0.5
        if 0 <= at_x <= columns - 1 and 0 <= at_y <= rows - 1:
            left, top = int(at_x), int(at_y)
            for row, column in np.ndindex(2, 2):
                share = (1 - abs(at_y - top - row)) * (1 - abs(at_x - left - column))
                result[y, x] += share * picture[min(top + row, rows - 1), min(left + column, columns - 1)]
    return result


def affine(x: list[float], y: list[float]) -> Array:
    return np.array([[x, y, [0, 0, 1, 0], [0, 0, 0, 1]]], np.float32)


@pytest.mark.parametrize(
    ("size", "output", "matrix"),
    [
        ((6, 9, 3), (4, 5), affine([0.75, 0.3, 0, 1.125], [-0.2, 0.8, 0, 2.25])),
        ((6, 9, 3), (8, 12), affine([1.5, 0, 0, -4], [0, 1.5, 0, -3])),
        ((1, 1, 2), (3, 3), affine([1, 0, 0, -1], [0, 1, 0, -1])),
        ((5, 5, 1), (5, 5), affine([1, 0, 0, 0], [0, 1, 0, 0])),
        ((5, 5, 1), (2, 2), affine([1, 0, 0, 100], [0, 1, 0, 0])),
    ],
    ids=["turned", "larger than the picture", "one pixel", "as it is", "elsewhere"],
)
def test_pictures_are_sampled(
    size: tuple[int, ...], output: tuple[int, int], matrix: Array, reference_device: Device
) -> None:
    picture = RNG.normal(0, 1, (1, *size)).astype(np.float32)
    options = dumped(output_height=output[0], output_width=output[1])
    file = file_of(SAMPLE, [real(1, *size), real(1, 4, 4)], real(1, *output, size[-1]), options)
    result = run(file, [picture, matrix], reference_device)
    np.testing.assert_allclose(result[0], sampled(picture[0], matrix[0], *output), atol=1e-5)


@pytest.mark.parametrize("depth", [2, 3])
def test_landmarks_are_transformed(depth: int, reference_device: Device) -> None:
    landmarks = RNG.uniform(0, 48, (1, 7, depth)).astype(np.float32)
    matrix = RNG.normal(0, 1, (1, 4, 4)).astype(np.float32)
    file = file_of(LANDMARKS, [real(1, 7, depth), real(1, 4, 4)], real(1, 7, depth), b"")
    result = run(file, [landmarks, matrix], reference_device)
    plane = matrix[0, :2].astype(np.float64)
    np.testing.assert_allclose(
        result[0, :, :2], landmarks[0, :, :2] @ plane[:, :2].T + plane[:, 3], rtol=1e-5, atol=1e-4
    )
    np.testing.assert_array_equal(result[0, :, 2:], landmarks[0, :, 2:])


def without(name: str) -> bytes:
    return dumped(**{key: value for key, value in OPTIONS.items() if key != name})


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (real(1, 1, 8, 3), dumped(**OPTIONS), r"landmarks \(input 0\) must have rank 3, got \[1, 1, 8, 3\]"),
        (real(1, 8, 2), dumped(**OPTIONS), r"landmarks \(input 0\) must be \[1, count, 3\], got \[1, 8, 2\]"),
        (int32(1, 8, 3), dumped(**OPTIONS), r"landmarks \(input 0\) must be FLOAT32, got TENSOR_INT32"),
        (real(1, 7, 3), dumped(**OPTIONS), "option subset_idxs must be of the 7 landmarks, got 7"),
        (real(1, 8, 3), dumped(**{**OPTIONS, "left_rotation_idx": -1}), "left_rotation_idx must be of the 8"),
        (real(1, 8, 3), dumped(**{**OPTIONS, "output_width": 0}), "option output_width must be > 0, got 0"),
        (real(1, 8, 3), dumped(**{**OPTIONS, "scale_y": float("nan")}), "option scale_y must be > 0, got nan"),
        (real(1, 8, 3), without("scale_x"), "option scale_x is missing"),
        (real(1, 8, 3), without("subset_idxs"), "option subset_idxs must name landmarks, got none"),
        (real(1, 8, 3), dumped(**{**OPTIONS, "subset_idxs": 3}), "subset_idxs must be a list"),
        (real(1, 8, 3), dumped(**{**OPTIONS, "subset_idxs": [0, "a"]}), "subset_idxs must be a number"),
        (real(1, 8, 3), dumped(**{**OPTIONS, "subset_idxs": [0, math.inf]}), "cannot be read: cannot convert"),
        (real(1, 8, 3), b"", "the options cannot be read: buffer is too small"),
    ],
)
def test_matrices_that_make_no_sense_are_refused(source: Tensor, options: bytes, message: str) -> None:
    with pytest.raises(BadData, match=f"operator 0 CUSTOM '{MATRIX}': .*{message}"):
        nn.load(file_of(MATRIX, [source], real(1, 4, 4), options))


@pytest.mark.parametrize(
    ("name", "sources", "options", "message"),
    [
        (SAMPLE, [real(2, 4, 4, 1), real(1, 4, 4)], {"output_width": 2, "output_height": 2}, "must be one picture"),
        (SAMPLE, [real(1, 4, 4, 1), real(1, 3, 4)], {"output_width": 2, "output_height": 2}, r"must be \[1, 4, 4\]"),
        (SAMPLE, [real(1, 4, 4, 1), real(1, 4, 4)], {"output_width": 2}, "option output_height is missing"),
        (SAMPLE, [real(1, 4, 4, 1), real(1, 4, 4)], {"output_width": 2**20, "output_height": 2**20}, "elements"),
        (LANDMARKS, [real(1, 4, 4), real(1, 4, 4)], {}, r"must be \[1, count, 2 or 3\], got \[1, 4, 4\]"),
        (LANDMARKS, [real(1, 4, 2), constant(np.zeros((4, 4)))], {}, "must have rank 3"),
    ],
)
def test_transformations_that_make_no_sense_are_refused(
    name: str, sources: list[Tensor], options: dict[str, int], message: str
) -> None:
    with pytest.raises(BadData, match=f"operator 0 CUSTOM '{name}': .*{message}"):
        nn.load(file_of(name, sources, real(1, 2, 2, 1), dumped(**options)))


def test_later_versions_are_refused() -> None:
    with pytest.raises(BadData, match=f"operator 0 CUSTOM '{LANDMARKS}': version must be 1 to 2, got 3"):
        nn.load(file_of(LANDMARKS, [real(1, 7, 2), real(1, 4, 4)], real(1, 7, 2), b"", version=3))
