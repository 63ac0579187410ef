# SPDX-License-Identifier: Apache-2.0
"""Matrix units are used where the device says that it has them and the header was seen to work there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from unittest import mock

import numpy as np
import pyopencl as cl
import pytest

from gpu_driver.device_query import profile_of
from gpu_driver.discovery import matrix_units
from gpu_driver.discovery.platforms import find_devices
from gpu_driver.discovery.trial import run_once
from tests.gpu_driver.profiles import GPU_PROFILE

USABLE = [device for device in find_devices() if device.usable]
ATTRIBUTES = "cl_khr_fp64 cl_nv_device_attribute_query"


@dataclass
class Nvidia:
    """What is asked of a device."""

    compute_capability_major_nv: int = 8
    compute_capability_minor_nv: int = 6
    extensions: str = ATTRIBUTES
    name: str = "made up"


@pytest.fixture(scope="module", params=USABLE, ids=lambda found: found.name)
def context(request: pytest.FixtureRequest) -> cl.Context:
    return cl.Context([request.param.device])


def test_the_capability_is_asked_for_where_it_can_be() -> None:
    assert matrix_units.compute_capability(Nvidia()) == 86
    assert matrix_units.compute_capability(Nvidia(extensions="cl_khr_fp64")) == 0
    for found in USABLE:
        if found.slug in ("pocl", "intel", "rusticl"):
            assert matrix_units.compute_capability(found.device) == 0
            assert profile_of(found).matrix_units is None


@pytest.mark.parametrize(
    ("capability", "working", "feature"),
    [
        ((9, 0), {80, 75}, "mma_80"),
        ((8, 0), {80, 75}, "mma_80"),
        ((8, 6), {75}, "mma_75"),
        ((7, 5), {80, 75}, "mma_75"),
        ((7, 0), {80, 75}, None),
        ((8, 9), set(), None),
    ],
    ids=str,
)
def test_the_best_form_that_works_is_chosen(
    capability: tuple[int, int], working: set[int], feature: str | None
) -> None:
    with mock.patch.object(matrix_units, "works", side_effect=lambda _, level: level in working):
        assert matrix_units.feature_of(Nvidia(*capability), mock.sentinel.context) == feature
    features = frozenset({feature} if feature else ())
    level = replace(GPU_PROFILE, features=features).matrix_units
    assert level == (None if feature is None else int(feature.removeprefix("mma_")))


def test_the_stand_in_works(context: cl.Context) -> None:
    assert matrix_units.works(context, matrix_units.EMULATED)


def test_wrong_sums_fail_the_trial(context: cl.Context) -> None:
    def wrong(*arguments: object) -> None:
        run_once(*arguments)  # type: ignore[arg-type]
        arguments[-1][0][1, 31, 3] += 1  # type: ignore[index]

    with mock.patch.object(matrix_units, "run_once", wrong):
        assert not matrix_units.works(context, matrix_units.EMULATED)


def test_fragments_are_as_the_ptx_isa_has_them() -> None:
    """Element i of a lane, by the formulas of "Matrix Fragments for mma.m16n8k16" (f16) and "mma.m16n8k32" (s8)."""
    for dtype, of_half in ((np.float16, 2), (np.int8, 4)):
        terms = 8 * of_half
        left = np.arange(16 * terms).astype(dtype).reshape(1, 16, terms)
        right = np.arange(8 * terms).astype(dtype).reshape(1, 8, terms)
        sums = np.arange(16 * 8).reshape(1, 16, 8)
        got_left = matrix_units.of_left(left).view(dtype)[0]
        got_right = matrix_units.of_right(right).view(dtype)[0]
        got_sums = matrix_units.of_sums(sums)[0]
        for lane in range(32):
            group, thread = lane >> 2, lane % 4
            for i in range(4 * of_half):
                row = group if i // of_half % 2 == 0 else group + 8
                column = thread * of_half + i % of_half + (0 if i < 2 * of_half else terms // 2)
                assert got_left[lane, i] == left[0, row, column]
            for i in range(2 * of_half):
                row = thread * of_half + i % of_half + (0 if i < of_half else terms // 2)
                assert got_right[lane, i] == right[0, group, row]
            for i in range(4):
                assert got_sums[lane, i] == sums[0, group if i < 2 else group + 8, thread * 2 + (i & 1)]
