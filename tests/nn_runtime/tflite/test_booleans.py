# SPDX-License-Identifier: Apache-2.0
"""Masks that are moved, repeated and read several times: NNAPI moves bytes only, and they are made once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import nn_runtime as nn
from tests.nn_runtime.tflite.operator_file import (
    Graph,
    Step,
    boolean,
    constant,
    random_inputs,
    real,
    write_graphs,
)

if TYPE_CHECKING:
    from nn_runtime.device import Device


def test_a_row_of_a_mask_that_chooses_twice(device: Device, reference_device: Device) -> None:
    """As a masked recurrent layer's step: mask [4, 1, 1] -> its second row [1, 1] -> two choices between [3, 5]."""
    fed = [boolean(4, 1, 1), real(3, 5), real(3, 5), real(3, 5)]
    tensors = [*fed, constant([1, 0, 0]), constant([1, 1, 1]), boolean(1, 1, 1), constant([1, 1]), boolean(1, 1)]
    steps = [
        Step("SLICE", [0, 4, 5], [6], "SliceOptions"),
        Step("RESHAPE", [6, 7], [8]),
        Step("SELECT_V2", [8, 1, 2], [9], "SelectV2Options"),
        Step("SELECT_V2", [8, 1, 3], [10], "SelectV2Options"),
    ]
    network = nn.load(write_graphs([Graph([*tensors, real(3, 5), real(3, 5)], steps, [0, 1, 2, 3], [9, 10])]))
    with network.compile(reference_device) as session:
        names = [row.name for row in session.explain().operations]
    assert names.count("SELECT") == 3  # one makes bytes of the mask
    assert names.count("TILE") == 0
    inputs = random_inputs(fed)
    with network.compile(device) as session:
        for chosen in (True, False):
            inputs[0][:] = not chosen
            inputs[0][1] = chosen
            found = session.run(inputs)
            for result, other in zip(found, inputs[2:], strict=True):
                np.testing.assert_array_equal(result, inputs[1] if chosen else other)


@pytest.mark.parametrize(
    ("mask", "shape"), [((1, 3, 1, 1, 2), (2, 3, 4, 2, 2)), ((1, 3, 1), (2, 3, 4)), ((4,), (2, 3, 4)), ((), (2, 3))]
)
def test_masks_are_repeated_along_any_axes(device: Device, mask: tuple[int, ...], shape: tuple[int, ...]) -> None:
    fed = [boolean(*mask), real(*shape), real(*shape)]
    steps = [Step("SELECT_V2", [0, 1, 2], [3], "SelectV2Options")]
    network = nn.load(write_graphs([Graph([*fed, real(*shape)], steps, [0, 1, 2], [3])]))
    inputs = random_inputs(fed)
    inputs[0] = np.arange(inputs[0].size).reshape(mask) % 2 == 0
    with network.compile(device) as session:
        (result,) = session.run(inputs)
    np.testing.assert_array_equal(result, np.where(*inputs))


def test_a_mask_that_is_moved_and_read(device: Device) -> None:
    """Its bytes go on, and what others read of it on the way are booleans."""
    fed = [boolean(2, 3), boolean(2, 3)]
    tensors = [*fed, constant([1, 0]), boolean(3, 2), boolean(3, 2), boolean(2, 3), boolean(2, 3)]
    steps = [
        Step("TRANSPOSE", [0, 2], [3]),
        Step("LOGICAL_NOT", [3], [4], "LogicalNotOptions"),
        Step("TRANSPOSE", [3, 2], [5]),
        Step("LOGICAL_AND", [5, 1], [6], "LogicalAndOptions"),
    ]
    network = nn.load(write_graphs([Graph(tensors, steps, [0, 1], [3, 4, 6])]))
    mask, other = random_inputs(fed)
    with network.compile(device) as session:
        turned, inverse, both = session.run([mask, other])
    np.testing.assert_array_equal(turned, mask.T)
    np.testing.assert_array_equal(inverse, ~mask.T)
    np.testing.assert_array_equal(both, mask & other)


def test_one_tensor_under_two_shapes_is_repeated_for_each(device: Device) -> None:
    """Of five dimensions, the first two of which are one in NNAPI: rows or columns of the same mask."""
    fed = [boolean(1, 2, 1, 1, 3), real(2, 2, 1, 1, 3), real(2, 2, 1, 1, 3)]
    tensors = [*fed, constant([2, 1, 1, 1, 3]), boolean(2, 1, 1, 1, 3), real(2, 2, 1, 1, 3), real(2, 2, 1, 1, 3)]
    steps = [
        Step("SELECT_V2", [0, 1, 2], [5], "SelectV2Options"),
        Step("RESHAPE", [0, 3], [4]),
        Step("SELECT_V2", [4, 1, 2], [6], "SelectV2Options"),
    ]
    network = nn.load(write_graphs([Graph(tensors, steps, [0, 1, 2], [5, 6])]))
    mask, given, other = random_inputs(fed)
    mask[:] = np.arange(6).reshape(mask.shape) % 4 == 0
    with network.compile(device) as session:
        rows, columns = session.run([mask, given, other])
    np.testing.assert_array_equal(rows, np.where(mask, given, other))
    np.testing.assert_array_equal(columns, np.where(mask.reshape(2, 1, 1, 1, 3), given, other))
