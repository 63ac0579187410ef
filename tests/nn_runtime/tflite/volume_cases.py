# SPDX-License-Identifier: Apache-2.0
"""Convolutions of volumes, and what of them is refused."""

from __future__ import annotations

import numpy as np

from tests.nn_runtime.tflite.operator_cases import RELU, RELU6, SAME, VALID, Case, weights
from tests.nn_runtime.tflite.operator_file import constant, int8, real

OPTIONS = "Conv3DOptions"
STEPS = {"StrideD": 1, "StrideH": 1, "StrideW": 1, "Padding": SAME}
TWO = {"StrideD": 2, "StrideH": 2, "StrideW": 2}
DILATED = {"DilationDFactor": 2, "DilationHFactor": 3, "DilationWFactor": 2}


def transposed(
    source: tuple[int, ...],
    filters: tuple[int, ...],
    result: tuple[int, ...],
    values: dict[str, int],
    name: str = "",
) -> Case:
    bias = None if name == "no bias" else constant(weights(filters[3]))
    inputs = [constant(list(result)), constant(weights(*filters)), real(*source), bias]
    return Case("CONV_3D_TRANSPOSE", inputs, [real(*result)], OPTIONS, values, name=name)


CASES = [
    *(
        Case(
            "CONV_3D",
            [real(*source), constant(weights(*filters)), None if name == "no bias" else constant(weights(filters[-1]))],
            [real(1, 1, 1, 1, 1)],
            OPTIONS,
            values,
            name=name,
        )
        for name, source, filters, values in (
            ("SAME", (2, 4, 5, 6, 3), (3, 3, 2, 3, 4), STEPS),
            ("no bias", (1, 5, 6, 5, 2), (2, 3, 3, 2, 3), {**STEPS, "Padding": VALID}),
            ("strides", (1, 7, 6, 5, 2), (3, 2, 3, 2, 3), {**STEPS, "StrideD": 2, "StrideH": 2, "StrideW": 3}),
            ("VALID strides", (2, 7, 6, 5, 2), (2, 1, 1, 2, 3), {**STEPS, "StrideD": 3, "Padding": VALID}),
            ("strides beyond taps", (2, 6, 4, 4, 2), (1, 1, 1, 2, 3), {**STEPS, "StrideD": 4, "StrideH": 2}),
            ("dilated", (1, 7, 8, 9, 2), (3, 2, 3, 2, 3), {**STEPS, "DilationDFactor": 2, "DilationWFactor": 3}),
            ("one tap", (2, 3, 4, 5, 2), (1, 3, 3, 2, 3), {**STEPS, "FusedActivationFunction": RELU}),
            ("RELU6", (1, 3, 4, 5, 2), (3, 3, 3, 2, 3), {**STEPS, "FusedActivationFunction": RELU6}),
        )
    ),
    *(
        transposed(source, filters, result, {**STEPS, **values}, name)
        for name, source, filters, result, values in (
            ("SAME", (2, 2, 3, 4, 3), (3, 2, 3, 4, 3), (2, 2, 3, 4, 4), {}),
            ("no bias", (1, 3, 3, 3, 2), (2, 3, 3, 3, 2), (1, 3, 3, 3, 3), {}),
            ("strides", (2, 2, 3, 3, 2), (3, 3, 2, 3, 2), (2, 4, 6, 6, 3), TWO),
            ("odd sizes", (1, 3, 3, 3, 2), (2, 3, 3, 3, 2), (1, 5, 5, 5, 3), TWO),
            ("VALID", (1, 2, 3, 3, 2), (3, 3, 3, 3, 2), (1, 4, 5, 5, 3), {"Padding": VALID}),
            ("VALID strides", (2, 2, 3, 3, 2), (3, 3, 3, 3, 2), (2, 5, 7, 7, 3), {**TWO, "Padding": VALID}),
            ("VALID, more frames", (1, 2, 3, 3, 2), (3, 3, 3, 3, 2), (1, 6, 8, 8, 3), {**TWO, "Padding": VALID}),
            ("fewer taps than a stride", (1, 2, 3, 3, 2), (1, 3, 3, 3, 2), (1, 6, 3, 3, 3), {"StrideD": 3}),
            ("dilated", (1, 4, 4, 4, 2), (3, 2, 2, 3, 2), (1, 4, 4, 4, 3), DILATED),
            ("dilated strides", (1, 3, 3, 3, 2), (3, 2, 2, 3, 2), (1, 6, 6, 6, 3), {**DILATED, **TWO}),
            ("RELU", (1, 2, 3, 3, 2), (2, 2, 2, 3, 2), (1, 4, 6, 6, 3), {**TWO, "FusedActivationFunction": RELU}),
        )
    ),
]

REFUSALS = {
    "transposed volume of other frames": (
        transposed((1, 2, 3, 3, 2), (2, 2, 2, 3, 2), (1, 5, 6, 6, 3), {**STEPS, **TWO}),
        r"operator 0 CONV_3D_TRANSPOSE: output_shape \(input 0\) must have as many frames as 2 become, got 5",
    ),
    "transposed volume of other batches": (
        transposed((1, 2, 3, 3, 2), (2, 2, 2, 3, 2), (2, 4, 6, 6, 3), {**STEPS, **TWO}),
        r"operator 0 CONV_3D_TRANSPOSE: output_shape \(input 0\) must be 1 volumes of 4 sizes > 0, got \[2, 4, .*",
    ),
    "transposed volume without a stride": (
        transposed((1, 2, 3, 3, 2), (2, 2, 2, 3, 2), (1, 4, 6, 6, 3), {**STEPS, "StrideD": 0}),
        "operator 0 CONV_3D_TRANSPOSE: stride_d must be 1 to 256, dilation_d_factor > 0, got 0 and 1",
    ),
    "volume of bytes": (
        Case(
            "CONV_3D", [int8(0.1, 3, 1, 3, 3, 3, 1), constant(weights(1, 1, 1, 1, 1)), None], [real(1)], OPTIONS, STEPS
        ),
        r"operator 0 CONV_3D: input \(input 0\) must be FLOAT32, got TENSOR_QUANT8_ASYMM_SIGNED",
    ),
    "volume without elements": (
        Case(
            "CONV_3D",
            [constant(np.zeros((0, 3, 3, 3, 1))), constant(weights(3, 1, 1, 1, 1)), None],
            [real(1)],
            OPTIONS,
            STEPS,
        ),
        r"operator 0 CONV_3D: PAD: an empty input of shape \[0, 3, 3, 3, 1\] is not supported",
    ),
    "volume of another depth": (
        Case("CONV_3D", [real(1, 3, 3, 3, 2), constant(weights(1, 1, 1, 1, 1)), None], [real(1)], OPTIONS, STEPS),
        r"operator 0 CONV_3D: filter \(input 1\) must have 1 to 256 taps and depth_in 2, got \[1, 1, 1, 1, 1\]",
    ),
    "filter beyond the frames": (
        Case(
            "CONV_3D",
            [real(1, 3, 3, 3, 1), constant(weights(2, 1, 1, 1, 1)), None],
            [real(1)],
            OPTIONS,
            {**STEPS, "Padding": VALID, "DilationDFactor": 3},
        ),
        r"operator 0 CONV_3D: filter \(input 1\) reaches over 4 frames, of which the input has 3",
    ),
    "filter of the run": (
        Case("CONV_3D", [real(1, 3, 3, 3, 1), real(1, 1, 1, 1, 1), None], [real(1)], OPTIONS, STEPS),
        r"operator 0 CONV_3D: filter \(input 1\) must be a constant",
    ),
    "no stride along the depth": (
        Case(
            "CONV_3D",
            [real(1, 3, 3, 3, 1), constant(weights(1, 1, 1, 1, 1)), None],
            [real(1)],
            OPTIONS,
            {**STEPS, "StrideD": 0},
        ),
        "operator 0 CONV_3D: stride_d and dilation_d_factor must be > 0, got 0 and 1",
    ),
}
