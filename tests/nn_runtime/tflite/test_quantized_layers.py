# SPDX-License-Identifier: Apache-2.0
"""Random quantised layers against LiteRT's reference kernels, bit for bit: 1,000 of each family with --long."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

import nn_runtime as nn
from tests.nn_runtime.tflite import recurrent_cases
from tests.nn_runtime.tflite.operator_cases import Case
from tests.nn_runtime.tflite.operator_file import constant, int8, random_inputs, reference
from tests.nn_runtime.tflite.quantized_layers import FAMILIES, Draw

if TYPE_CHECKING:
    from nn_runtime.device import Device
    from tests.nn_runtime.tflite.operator_file import Array

LAYERS, SAMPLE = 1000, 60
CELL_STATE = 19
"""Input of an LSTM."""


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


@pytest.mark.parametrize(("depth", "bias"), [(33_000, 0), (70_000, 0), (140_000, 0), (300, 2**31 - 1)])
def test_sums_that_32_bits_do_not_hold_wrap_as_those_of_the_reference(depth: int, bias: int, device: Device) -> None:
    weights = constant(np.full((20, depth), 127, np.int8), 0.01)
    biases = constant(np.full(20, bias, np.int32), float(np.float32(0.01) * np.float32(0.01)))
    source, output = int8(0.01, -128, 1, depth), int8(1e-4 * (depth * 255 * 127 + bias) / 200, -128, 1)
    options = {"FusedActivationFunction": 0}
    file, _ = Case("FULLY_CONNECTED", [source, weights, biases], [output], "FullyConnectedOptions", options).file()
    inputs = [np.full((1, depth), 127, np.int8)]
    with nn.load(file).compile(device) as session:
        np.testing.assert_array_equal(session.run(inputs)[0], reference(file, inputs)[0])


def test_cell_states_finer_than_nnapi_s_are_kept_as_its_finest(device: Device) -> None:
    """LiteRT computes no TANH of such states: its answers are the same for all inputs."""
    (case,) = (case for case in recurrent_cases.CASES if case.code == "UNIDIRECTIONAL_SEQUENCE_LSTM" and not case.name)
    found = []
    for shift in (-15, -16, -17):
        state = case.inputs[CELL_STATE]
        assert state is not None
        inputs = [*case.inputs[:CELL_STATE], replace(state, scale=2.0**shift), *case.inputs[CELL_STATE + 1 :]]
        file, fed = replace(case, inputs=inputs).file()
        with nn.load(file).compile(device) as session:
            found.append(session.run(random_inputs(fed))[0])
    assert np.ptp(found[0]) > 10
    for result in found[1:]:
        np.testing.assert_array_equal(result, found[0])
