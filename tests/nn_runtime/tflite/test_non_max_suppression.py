# SPDX-License-Identifier: Apache-2.0
"""NON_MAX_SUPPRESSION_V4 and V5 against LiteRT's, and against the loop over boxes that they stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import nn_runtime as nn
from nn_runtime.errors import BadData
from nn_runtime.tflite.types import TensorType
from nn_runtime.value_classes import dataclass
from tests.nn_runtime.tflite.operator_file import Array, Step, Tensor, constant, int32, real, reference, write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.device import Device


@dataclass(frozen=True)
class Options:
    """The constants of an operator; without a sigma it is V4."""

    most: int = 6
    overlap: float = 0.5
    least: float = 0.1
    sigma: float | None = None

    def constants(self) -> list[Tensor]:
        reals = [self.overlap, self.least, *([] if self.sigma is None else [self.sigma])]
        return [constant(np.int32(self.most)), *(constant(np.float32(number)) for number in reals)]

    def file(self, count: int) -> bytes:
        return file_of([real(count, 4), real(count), *self.constants()], self.most)


def file_of(sources: Sequence[Tensor], most: int = 6) -> bytes:
    """Return a file of one operator with these inputs: five of V4, six of V5."""
    is_soft = len(sources) == 6
    results = [int32(most), *([real(most)] if is_soft else []), int32()]
    outputs = list(range(len(sources), len(sources) + len(results)))
    step = Step(f"NON_MAX_SUPPRESSION_V{5 if is_soft else 4}", range(len(sources)), outputs)
    given = [number for number, source in enumerate(sources) if source.data is None]
    return write([*sources, *results], [step], given, outputs)


def random_boxes(count: int, seed: int, flipped: bool = False) -> list[Array]:
    """Return boxes, many of which overlap, and scores, each of which is there once."""
    rng = np.random.default_rng(seed)
    centres, halves = rng.uniform(0, 1, (count, 2)), rng.uniform(0.02, 0.2, (count, 2))
    if flipped:
        halves *= rng.choice([-1, 1], halves.shape)
    boxes = np.concatenate([centres - halves, centres + halves], 1)
    return [boxes.astype(np.float32), (rng.permutation(count) / count).astype(np.float32)]


def plain(boxes: Array, scores: Array, options: Options) -> list[Array]:
    """Take the best box again and again, the first of equals; scores of boxes that are out are NaN."""
    starts, ends = np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])
    areas = np.prod(ends - starts, 1)
    least, left = np.float32(options.least), scores.copy()
    left[~(scores > least)] = np.nan
    candidates = np.count_nonzero(scores > least)
    indices, found = np.zeros(options.most, np.int32), np.zeros(options.most, np.float32)
    number = 0
    while number < min(options.most, candidates) and (left > least).any():
        best = int(np.nanargmax(np.minimum(left, scores)))
        indices[number], found[number] = best, left[best]
        number += 1
        sides = np.maximum(np.minimum(ends, ends[best]) - np.maximum(starts, starts[best]), 0)
        shared = np.prod(sides, 1)
        unions = areas + areas[best] - shared
        overlaps = np.divide(shared, unions, out=np.zeros_like(shared), where=unions > 0)
        left[overlaps >= np.float32(options.overlap)] = np.nan
        if options.sigma:
            left *= np.exp(-(overlaps**2) / np.float32(2 * options.sigma))
    return [indices, *([] if options.sigma is None else [found]), np.array(number, np.int32)]


def run(file: bytes, inputs: list[Array], device: Device) -> list[Array]:
    with nn.load(file).compile(device) as session:
        return session.run(inputs)


def check(boxes: Array, scores: Array, options: Options, device: Device, number: int | None = None) -> None:
    """Compare with the loop and with LiteRT; `number` of boxes, if given, is what must be found."""
    boxes, scores = np.asarray(boxes, np.float32), np.asarray(scores, np.float32)
    file = options.file(len(boxes))
    found = run(file, [boxes, scores], device)
    if number is not None:
        assert found[-1] == number
    for wanted in (plain(boxes, scores, options), reference(file, [boxes, scores])):
        assert len(found) == len(wanted)
        for ours, theirs in zip(found, wanted, strict=True):
            assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
            np.testing.assert_allclose(ours, theirs, rtol=2e-6 if ours.dtype == np.float32 else 0)


ALONE = [[0.0, 3 * at, 1.0, 3 * at + 2] for at in range(5)]
"""Boxes that do not overlap."""


@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize(
    ("count", "options"),
    [
        (1, Options(most=1)),
        (60, Options()),
        (60, Options(overlap=0.2, sigma=0.0)),
        (60, Options(sigma=0.5)),
        (60, Options(overlap=1.0, least=0.3, sigma=0.1)),
        (500, Options(most=40, overlap=0.3)),
        (500, Options(most=40, sigma=0.3)),
    ],
)
def test_random_boxes(count: int, options: Options, flipped: bool, device: Device) -> None:
    boxes, scores = random_boxes(count, count, flipped)
    check(boxes, scores + np.float32(1 / 8), options, device)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("sigma", [None, 0.0, 0.25])
def test_more_random_boxes(seed: int, sigma: float | None, reference_device: Device) -> None:
    boxes, scores = random_boxes(40, seed, flipped=True)
    check(boxes, scores, Options(most=30, overlap=0.1 + 0.09 * seed, least=0.05 * seed, sigma=sigma), reference_device)


@pytest.mark.parametrize("sigma", [None, 0.0, 0.5])
def test_fewer_boxes_than_asked_for(sigma: float | None, device: Device) -> None:
    check(ALONE, [0.3, 0.05, 0.9, 0.1, 0.2], Options(most=4, sigma=sigma), device, 3)
    check(ALONE, [0.3, 0.5, 0.9, 0.7, 0.2], Options(most=8, sigma=sigma), device, 5)
    check(np.tile(ALONE[:1], (5, 1)), [0.3, 0.5, 0.9, 0.7, 0.2], Options(most=4), device, 1)


@pytest.mark.parametrize("sigma", [None, 0.0, 0.5])
def test_no_box_at_all(sigma: float | None, device: Device) -> None:
    check(ALONE, [0.3, 0.05, 0.9, 0.1, 0.2], Options(least=0.9, sigma=sigma), device, 0)


def test_a_score_of_the_threshold_is_too_low(device: Device) -> None:
    check(ALONE, [0.25, 0.5, np.nextafter(np.float32(0.25), np.float32(1)), 0.125, 0], Options(least=0.25), device, 2)


@pytest.mark.parametrize("sigma", [None, 0.0, 0.5])
@pytest.mark.parametrize(("overlap", "number"), [(0.5, 2), (float(np.nextafter(np.float32(0.5), 1)), 3)])
def test_an_overlap_of_the_threshold_is_too_much(
    overlap: float, number: int, sigma: float | None, device: Device
) -> None:
    """Half of the first box, and the whole of it; a third box lies elsewhere."""
    boxes = [[0, 0, 1, 1], [0, 0, 1, 2], [4, 4, 5, 5], [4, 4, 5, 5]]
    check(boxes, [0.75, 1, 0.5, 0.25], Options(overlap=overlap, sigma=sigma), device, number)


def test_thresholds_that_all_or_none_reach(reference_device: Device) -> None:
    boxes, scores = random_boxes(20, 3)
    check(boxes, scores, Options(overlap=0.0), reference_device, 1)
    check(boxes, scores, Options(overlap=-1.0), reference_device, 1)
    check(boxes, scores, Options(least=float(np.finfo(np.float32).min), most=30), reference_device)
    check(boxes, scores, Options(least=-np.inf), reference_device)
    check(boxes, scores, Options(least=np.inf), reference_device, 0)


@pytest.mark.parametrize("sigma", [None, 0.0, 0.5])
def test_boxes_without_an_area_overlap_nothing(sigma: float | None, device: Device) -> None:
    """So that LiteRT takes the best of them as often as there are candidates."""
    boxes = [[0, 0, 1, 1], [0.5, 0, 0.5, 1], [0, 0, 1, 1], [0, 0, 0, 0], [0.5, 0, 0.5, 1]]
    check(boxes, [0.9, 0.8, 0.7, 0.6, 0.05], Options(sigma=sigma), device, 4)
    check(boxes, [0.9, 0.8, 0.7, 0.6, 0.05], Options(most=3, sigma=sigma), device, 3)


@pytest.mark.parametrize("sigma", [None, 0.5])
def test_boxes_that_do_not_take_out_themselves(sigma: float | None, device: Device) -> None:
    boxes, scores = random_boxes(12, 1)
    check(boxes, scores, Options(overlap=1.5, sigma=sigma), device)


def test_scores_below_0(device: Device) -> None:
    """An overlap raises them, but does not move their boxes up."""
    boxes = [[0, 0, 1 + 0.5 * at, 1] for at in range(8)]
    scores = [-1, -2, -0.5, 0.3, 0.2, -0.7, 0.9, 0.01]
    check(boxes, scores, Options(most=8, overlap=0.95, least=-np.inf, sigma=0.5), device, 8)
    check(boxes, scores, Options(most=8, least=-1.5), device)


def test_scores_that_are_no_numbers(device: Device) -> None:
    check(ALONE, [0.5, np.nan, 0.7, -np.inf, 0.6], Options(least=-np.inf, sigma=0.5), device, 3)


def test_a_sigma_near_0_leaves_no_score(device: Device) -> None:
    boxes, scores = random_boxes(30, 4)
    check(boxes, scores, Options(overlap=1.0, sigma=1e-6), device)
    found = run(Options(sigma=1e-40).file(30), [boxes, scores], device)
    assert all(np.isfinite(part).all() for part in found)


@pytest.mark.parametrize("sigma", [None, 0.5])
def test_the_first_of_equal_scores_is_taken(sigma: float | None, device: Device) -> None:
    boxes = np.array([*ALONE, *ALONE], np.float32)
    options = Options(most=8, sigma=sigma)
    scores = np.array([0.5, 0.5, 0.75, 0.5, 0.25] * 2, np.float32)
    found = run(options.file(10), [boxes, scores], device)
    assert found[0].tolist() == [2, 0, 1, 3, 4, 0, 0, 0]
    assert found[-1] == 5
    np.testing.assert_array_equal(found[0], plain(boxes, scores, options)[0])


V4 = [real(5, 4), real(5), *Options().constants()]
V5 = [real(5, 4), real(5), *Options(sigma=0.5).constants()]


@pytest.mark.parametrize(
    ("sources", "position", "given", "reason"),
    [
        (V4, 0, real(5, 5), r"boxes \(input 0\) must be \[count, 4\], 16777216 at most, got \[5, 5\]"),
        (V4, 0, real(1 << 25, 4), r"boxes \(input 0\) must be .*, got \[33554432, 4\]"),
        (V4, 0, real(1, 5, 4), r"boxes \(input 0\) must have rank 2, got \[1, 5, 4\]"),
        (V4, 0, int32(5, 4), r"boxes \(input 0\) must be FLOAT32, got TENSOR_INT32"),
        (V4, 1, real(4), r"scores \(input 1\) must be \[5\], got \[4\]"),
        (V4, 1, Tensor(TensorType.FLOAT16, (5,)), r"scores \(input 1\) must be FLOAT32, got TENSOR_FLOAT16"),
        (V4, 2, int32(), r"max_output_size \(input 2\) must be a constant"),
        (V4, 2, constant(np.float32(3)), r"max_output_size \(input 2\) must be of integers, got float32"),
        (V4, 2, constant(np.int32(0)), r"max_output_size \(input 2\) must be > 0, got 0"),
        (V4, 2, constant(np.int32(300)), r"max_output_size \(input 2\) must be 256 at most, .*, got 300"),
        (V5, 2, constant(np.int32(1 << 30)), r"max_output_size \(input 2\) must be 186 at most, .*, got 1073741824"),
        (V4, 3, real(), r"iou_threshold \(input 3\) must be a constant"),
        (V4, 3, constant(np.int32(1)), r"iou_threshold \(input 3\) must be one real number, got int32 \[\]"),
        (V4, 4, constant([0.5, 0.5]), r"score_threshold \(input 4\) must be one real number, got float32 \[2\]"),
        (V5, 5, real(), r"soft_nms_sigma \(input 5\) must be a constant"),
        (V5, 5, constant(np.float32(-1)), r"soft_nms_sigma \(input 5\) must be >= 0, got -1.0"),
        (V5, 5, constant(np.float32(np.nan)), r"soft_nms_sigma \(input 5\) must be >= 0, got nan"),
    ],
)
def test_what_is_not_supported_is_refused(sources: list[Tensor], position: int, given: Tensor, reason: str) -> None:
    changed = [*sources[:position], given, *sources[position + 1 :]]
    with pytest.raises(BadData, match=f"operator 0 NON_MAX_SUPPRESSION_V[45]: {reason}"):
        nn.load(file_of(changed))


def test_the_steps_of_all_operators_are_limited() -> None:
    tensors = [real(5, 4), real(5), *Options(most=100).constants(), *(int32(100), int32()) * 3]
    outputs = range(5, 11)
    steps = [Step("NON_MAX_SUPPRESSION_V4", range(5), [at, at + 1]) for at in outputs[::2]]
    with pytest.raises(BadData, match=r"operator 2 .* must be 56 at most, as the model then gets too long, got 100"):
        nn.load(write(tensors, steps, [0, 1], outputs))


def test_indices_find_the_boxes(device: Device) -> None:
    """As a detector goes on, here also with boxes of the file."""
    boxes, scores = random_boxes(30, 8)
    options = Options()
    tensors = [constant(boxes), real(30), *options.constants(), int32(6), int32(), real(6, 4)]
    steps = [
        Step("NON_MAX_SUPPRESSION_V4", range(5), [5, 6]),
        Step("GATHER", [0, 5], [7], "GatherOptions", {"Axis": 0}),
    ]
    found = run(write(tensors, steps, [1], [7, 6]), [scores], device)
    indices, number = plain(boxes, scores, options)
    np.testing.assert_array_equal(found[0], boxes[indices])
    assert found[1] == number
