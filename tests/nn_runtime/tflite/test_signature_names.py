# SPDX-License-Identifier: Apache-2.0
"""Names that a signature gives to inputs and outputs, of which PyTorch's exporter writes one for each result."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import nn_runtime as nn
from tests.nn_runtime.tflite.tflite_file import (
    CodeSpec,
    FileSpec,
    OperatorSpec,
    SignatureSpec,
    SubgraphSpec,
    TensorSpec,
)

if TYPE_CHECKING:
    from nn_runtime.device import Device

RELU = 19


def test_results_that_are_one_tensor_or_an_input_have_their_own_names(reference_device: Device) -> None:
    tensors = [TensorSpec("x", 0, (2,)), TensorSpec("y", 0, (2,))]
    outputs = [("first", 1), ("again", 1), ("as it was", 0)]
    file = FileSpec(
        [CodeSpec(RELU, RELU)],
        [SubgraphSpec(tensors, [OperatorSpec(0, (0,), (1,))], (0,), (1, 1, 0))],
        [b""],
        signatures=[SignatureSpec("run", [("given", 0)], outputs)],
    )
    with nn.load(file.write()).compile(reference_device) as session:
        results = session.run({"given": np.float32([-1, 2])})
    assert {name: array.tolist() for name, array in results.items()} == {
        "first": [0, 2],
        "again": [0, 2],
        "as it was": [-1, 2],
    }
