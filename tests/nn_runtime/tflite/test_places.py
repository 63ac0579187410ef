# SPDX-License-Identifier: Apache-2.0
"""Rows put at places whose numbers are computed in the run, several to one place or none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pytest

import nn_runtime as nn
from nn_runtime.errors import BadData
from tests.nn_runtime.tflite.operator_cases import Case
from tests.nn_runtime.tflite.operator_file import (
    Tensor,
    boolean,
    constant,
    int8,
    int32,
    int64,
    random_inputs,
    real,
    uint8,
)
from tests.nn_runtime.tflite.test_numbers_of_the_run import both

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.device import Device

Array = npt.NDArray[Any]


def _scatter(indices: Tensor, updates: Tensor, shape: Sequence[int]) -> Case:
    result = Tensor(updates.type, tuple(shape), updates.scale, updates.zero_point)
    return Case("SCATTER_ND", [indices, updates, constant(list(shape))], [result], "ScatterNdOptions")


def _places(shape: Sequence[int], chosen: Sequence[int]) -> Array:
    return np.random.default_rng(5).integers(0, shape[: chosen[-1]], chosen).astype(np.int32)


@pytest.mark.parametrize(
    ("chosen", "updates", "shape"),
    [
        ((60, 1), real(60, 16), (30, 16)),
        ((7, 2), int32(7, 3), (3, 4, 3)),
        ((3, 2, 3), real(3, 2), (4, 5, 6)),
        ((5, 1), int64(5), (1,)),
        ((4, 1), int32(4), (1,)),
        ((9, 1), real(9, 2, 2, 2, 2), (4, 2, 2, 2, 2)),
        ((1, 1), real(1, 1, 2, 8), (6, 1, 2, 8)),
        ((2,), int32(3), (4, 5, 3)),
        ((1, 2), int8(0.1, 3, 1, 4), (3, 5, 4)),
        ((20, 1), int8(0.1, 3, 20, 4), (9, 4)),
        ((7, 1), uint8(0.1, 130, 7, 9), (3, 9)),
        ((1, 1), boolean(1, 4), (3, 4)),
    ],
    ids=str,
)
def test_places_of_a_scatter_may_be_computed(
    chosen: tuple[int, ...], updates: Tensor, shape: tuple[int, ...], device: Device
) -> None:
    case = _scatter(int32(*chosen), updates, shape)
    result, wanted = both(case, [_places(shape, chosen), *random_inputs([updates])], device)
    assert result.dtype == wanted.dtype
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)


def test_infinities_stay_at_their_places(device: Device) -> None:
    updates = np.array([np.inf, 1, -np.inf, 2, np.nan, 3, np.inf, -np.inf, 4, 5], np.float32).reshape(10, 1)
    places = np.array([0, 5, 2, 3, 4, 5, 7, 7, 0, 8], np.int32).reshape(10, 1)
    result, wanted = both(_scatter(int32(10, 1), real(10, 1), (9, 1)), [places, updates], device)
    np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize("name", ["SUM", "PROD", "MAX", "MIN"])
@pytest.mark.parametrize("kind", [real, int32])
@pytest.mark.parametrize(("shape", "ids"), [((40, 3), (40,)), ((2, 3, 4, 2, 2), (2, 3)), ((1, 5), (1,)), ((5,), ())])
def test_segments_may_be_computed(
    name: str, kind: Any, shape: tuple[int, ...], ids: tuple[int, ...], device: Device
) -> None:
    inputs = [kind(*shape), int32(*ids), constant(12)]
    case = Case(f"UNSORTED_SEGMENT_{name}", inputs, [kind(12, *shape[len(ids) :])])
    numbers = np.random.default_rng(3).integers(-3, 12, ids).astype(np.int32)
    result, wanted = both(case, [*random_inputs(inputs[:1]), np.asarray(numbers)], device)
    assert result.dtype == wanted.dtype
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["SUM", "PROD", "MAX", "MIN"])
@pytest.mark.parametrize("is_known", [False, True])
def test_infinities_stay_in_their_segments(name: str, is_known: bool, device: Device) -> None:
    data = np.array([np.inf, -np.inf, 1, 2, -np.inf, -np.inf, np.inf, np.inf, 3], np.float32)
    ids = np.array([0, 1, 2, 2, 4, 4, 5, 5, 6], np.int32)
    given = constant(ids) if is_known else int32(9)
    case = Case(f"UNSORTED_SEGMENT_{name}", [real(9), given, constant(8)], [real(8)])
    np.testing.assert_array_equal(*both(case, [data] if is_known else [data, ids], device))


def test_computed_places_that_are_not_there_spoil_no_others(device: Device) -> None:
    """LiteRT refuses them in the run; here the rows are dropped."""
    bounds = np.iinfo(np.int32)
    places = np.array([[1], [-1], [4], [bounds.max], [1], [bounds.min], [-2], [3]], np.int32)
    updates = np.arange(1, 17, dtype=np.float32).reshape(8, 2)
    with nn.load(_scatter(int32(8, 1), real(8, 2), (4, 2)).file()[0]).compile(device) as session:
        (result,) = session.run([places, updates])
    np.testing.assert_array_equal(result, [[0, 0], [10, 12], [0, 0], [15, 16]])


def test_computed_places_beyond_one_dimension_are_none_of_the_next(device: Device) -> None:
    places, updates = np.array([[0, 1], [0, 9], [1, -1], [2, 0]], np.int32), np.arange(1, 5, dtype=np.float32)
    with nn.load(_scatter(int32(4, 2), real(4), (2, 6)).file()[0]).compile(device) as session:
        (result,) = session.run([places, updates])
    np.testing.assert_array_equal(result, [[0, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]])


@pytest.mark.parametrize("size", [2, 3, 4, 7, 8, 9, 15, 16, 17])
def test_every_number_of_rows_finds_its_places(size: int, device: Device) -> None:
    """Bisection halves them, and combining doubles: both depend on the next power of two."""
    rng = np.random.default_rng(size)
    updates = rng.standard_normal((size, 2)).astype(np.float32)
    model = _scatter(int32(size, 1), real(size, 2), (11, 2)).file()[0]
    with nn.load(model).compile(device) as session:
        for places in (np.arange(size) % 11, np.full(size, 10), np.zeros(size), rng.integers(0, 11, size)):
            wanted = np.zeros((11, 2))
            np.add.at(wanted, places.astype(np.int32), updates)
            (result,) = session.run([places.astype(np.int32).reshape(size, 1), updates])
            np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)


def test_there_may_be_many_places(device: Device) -> None:
    """As of pillars of points, which a detector puts in a picture seen from above."""
    case = _scatter(int32(700, 3), real(700, 4), (1, 248, 216, 4))
    places = _places((1, 248, 216, 4), (700, 3))
    result, wanted = both(case, [places, *random_inputs([real(700, 4)])], device)
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (
            _scatter(int32(65537, 1), real(65537), (9,)),
            "at most 65536 rows at computed places are supported, got 65537",
        ),
        (_scatter(real(5, 1), real(5), (9,)), r"indices \(input 0\) must be of integers, got TENSOR_FLOAT32"),
        (
            _scatter(int32(5, 2), real(5), (9,)),
            r"indices \(input 0\) must be rows of 1 to 1 columns, got \[5, 2\]",
        ),
        (
            _scatter(int32(5, 1), real(5, 2), (9, 3)),
            r"updates \(input 1\) must be \[5, 3\], got \[5, 2\]",
        ),
    ],
)
def test_scatters_that_are_refused(case: Case, reason: str) -> None:
    with pytest.raises(BadData, match=f"operator 0 SCATTER_ND: {reason}"):
        nn.load(case.file()[0])
