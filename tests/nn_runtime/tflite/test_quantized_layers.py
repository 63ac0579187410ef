# SPDX-License-Identifier: Apache-2.0
"""Random quantised layers against LiteRT's reference kernels, bit for bit: 1,000 of each family with --long."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import nn_runtime as nn
from tests.nn_runtime.tflite.operator_file import random_inputs, reference
from tests.nn_runtime.tflite.quantized_layers import FAMILIES, Draw

if TYPE_CHECKING:
    from nn_runtime.device import Device
    from tests.nn_runtime.tflite.operator_cases import Case
    from tests.nn_runtime.tflite.operator_file import Array

LAYERS, SAMPLE = 1000, 60


def results(case: Case, seed: int, device: Device) -> tuple[Array, Array]:
    """Return our result and LiteRT's."""
    file, fed = case.file()
    inputs = random_inputs(fed, seed)
    with nn.load(file).compile(device) as session:
        return session.run(inputs)[0], reference(file, inputs)[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_layers_have_the_bits_of_the_reference(family: str, is_long: bool, reference_device: Device) -> None:
    """FULLY_CONNECTED too, which LiteRT rounds once and convolutions twice: about one element in 7,000 tells."""
    for seed in range(LAYERS if is_long else SAMPLE):
        case = FAMILIES[family](Draw.of(seed))
        result, wanted = results(case, seed, reference_device)
        np.testing.assert_array_equal(result, wanted, err_msg=f"seed {seed}: {case}")
