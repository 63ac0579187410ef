# SPDX-License-Identifier: Apache-2.0
"""ATAN2 all around, at axes, zeros and infinities, against the angle in double precision."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import nn_runtime as nn
from nn_runtime.errors import BadData
from tests.nn_runtime.tflite.operator_file import Array, Step, int32, real, write

if TYPE_CHECKING:
    from nn_runtime.device import Device


def angles(device: Device, y: Array, x: Array) -> Array:
    tensors = [real(y.size), real(y.size), real(y.size)]
    file = write(tensors, [Step("ATAN2", [0, 1], [2], "ATan2Options")], [0, 1], [2])
    with nn.load(file).compile(device) as session:
        return session.run([y.astype(np.float32), x.astype(np.float32)])[0]


def test_all_around(device: Device) -> None:
    turn = np.linspace(-np.pi, np.pi, 9999)
    y, x = (np.float32(part) for part in (3 * np.sin(turn), 3 * np.cos(turn)))
    np.testing.assert_allclose(angles(device, y, x), np.arctan2(y.astype(np.float64), x), rtol=2.5e-7)


def test_corners(device: Device) -> None:
    numbers = [0.0, 1.0, -1.0, 1e-30, -1e-30, 1e30, -1e30, np.inf, -np.inf, np.nan]
    y, x = (part.reshape(-1) for part in np.meshgrid(numbers, numbers))
    np.testing.assert_allclose(angles(device, y, x), np.arctan2(y, x), rtol=2.5e-7, atol=1e-8)


def test_other_inputs_are_refused() -> None:
    step = Step("ATAN2", [0, 1], [2], "ATan2Options")
    for tensors in ([real(2, 3), real(3), real(2, 3)], [real(3), int32(3), real(3)]):
        with pytest.raises(BadData, match="operator 0 ATAN2: y and x must be FLOAT32 of one shape"):
            nn.load(write(tensors, [step], [0, 1], [2]))
