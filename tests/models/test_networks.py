# SPDX-License-Identifier: Apache-2.0
"""Trained networks on real inputs, on every device under test: LiteRT's reference kernels say what is right."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pytest

import nn_runtime as nn
from nn_runtime.tflite import Interpreter

if TYPE_CHECKING:
    from nn_runtime.device import Device

MODELS = Path(os.environ.get("NNRT_MODEL_DIR", Path(__file__).parents[3] / "shared" / "models"))
FLOAT_NETWORKS = ["hello_world_float", "mobilenet_v2_1.0_224_float"]
QUANTIZED_NETWORKS = [
    "micro_speech_quantized",
    "mobilenet_v1_0.25_128_quant",
    "mobilenet_v2_1.0_224_quant",
    "tf2_mobilenet_v2_1.0_224_ptq",
]
SEGMENTING, RECURRENT = "deeplabv3_mnv2_pascal_quant", "trained_lstm"
FIRST_ANSWERS = ["Egyptian cat", "chickadee", "daisy", "military uniform", "macaw"]

Array = npt.NDArray[Any]
Case = tuple[list[Array], list[Array]]

pytestmark = pytest.mark.skipif(not MODELS.is_dir(), reason=f"no networks in {MODELS} (NNRT_MODEL_DIR)")


def model_path(name: str) -> Path:
    return MODELS / f"{name}.tflite"


def cases_of(name: str) -> list[Case]:
    """Return (inputs, reference outputs) of every case."""
    with np.load(MODELS / "golden" / f"{name}.npz") as golden:
        count = sum(key.startswith("in") and key.endswith("_0") for key in golden.files)
        return [(_numbered(golden, f"in{case}_"), _numbered(golden, f"ref{case}_")) for case in range(count)]


def _numbered(golden: Any, prefix: str) -> list[Array]:
    keys = sorted((key for key in golden.files if key.startswith(prefix)), key=lambda key: int(key.split("_")[1]))
    return [golden[key] for key in keys]


def run_cases(name: str, device: Device | list[Device], **options: str) -> list[tuple[list[Array], list[Array]]]:
    """Return (results, reference outputs) of every case, states reset before each."""
    found = []
    with nn.load(model_path(name)) as network, network.compile(device, **options) as session:
        for inputs, wanted in cases_of(name):
            session.reset_variables()
            found.append((session.run(inputs), wanted))
    return found


@pytest.mark.parametrize("name", FLOAT_NETWORKS)
def test_float_network(name: str, device: Device) -> None:
    for results, wanted in run_cases(name, device):
        for result, expected in zip(results, wanted, strict=True):
            np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", QUANTIZED_NETWORKS)
def test_quantised_network_has_the_bits_of_the_reference(name: str, device: Device) -> None:
    for results, wanted in run_cases(name, device):
        for result, expected in zip(results, wanted, strict=True):
            assert result.dtype == expected.dtype
            np.testing.assert_array_equal(result, expected)


def test_segmenting_network_has_the_classes_of_the_reference(device: Device) -> None:
    for (result,), (expected,) in run_cases(SEGMENTING, device):
        assert result.dtype == np.int64
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("partition", ["aosp", "cost"])
def test_recurrent_network(partition: str, device: Device, reference_device: Device) -> None:
    devices = list(dict.fromkeys([device, reference_device]))
    for (result,), (expected,) in run_cases(RECURRENT, devices, partition=partition):
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["keras_lstm_mnist_ptq", "dtln_noise_suppression"])
def test_int8_lstm_has_the_bits_of_the_reference(name: str, device: Device) -> None:
    """One QUANTIZED_LSTM for each of 28 time steps, or of two layers; FULLY_CONNECTED behind them rounds once."""
    for results, wanted in run_cases(name, device):
        for result, expected in zip(results, wanted, strict=True):
            np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("name", ["mobilenet_v2_1.0_224_float", "mobilenet_v2_1.0_224_quant"])
def test_first_answers(name: str, device: Device) -> None:
    labels = (MODELS / "images" / "imagenet_labels.txt").read_text().splitlines()
    answers = [labels[int(np.argmax(results[0]))] for results, _ in run_cases(name, device)]
    assert [wanted in answer for wanted, answer in zip(FIRST_ANSWERS, answers, strict=True)] == [True] * 5, answers


@pytest.mark.parametrize("name", ["mobilenet_v2_1.0_224_quant", "tf2_mobilenet_v2_1.0_224_ptq"])
def test_interpreter_runs_a_network(name: str, device: Device) -> None:
    interpreter = Interpreter(model_path(name), device=device.name)
    interpreter.allocate_tensors()
    inputs, wanted = cases_of(name)[0]
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], inputs[0])
    interpreter.invoke()
    result = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    np.testing.assert_array_equal(result, wanted[0])
    interpreter.close()
