# SPDX-License-Identifier: Apache-2.0
"""Files with 16-bit activations: within steps of LiteRT's kernels, with 16-bit integers for the user."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import nn_runtime as nn
from nn_runtime.errors import BadData
from nn_runtime.tflite import Interpreter
from nn_runtime.tflite.types import TensorType
from tests.nn_runtime.tflite.operator_cases import CONV, POOL, RELU, Case, bytes_of
from tests.nn_runtime.tflite.operator_file import Step, Tensor, constant, int8, int32, real, reference, write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.device import Device
    from nn_runtime.operand import Array

SCALE = 1 / 4096
"""Of most tensors: numbers from -8 to 8."""
WEIGHTS = [0.01, 0.013, 0.016]


def short(*shape: int, scale: float = SCALE) -> Tensor:
    return Tensor(TensorType.INT16, shape, scale)


def biases(kind: TensorType, scale: float | Sequence[float], *numbers: int) -> Tensor:
    array = np.array(numbers, kind.dtype)
    return Tensor(kind, array.shape, scale, data=array)


def conv(kind: TensorType) -> Case:
    """A convolution with a scale for each channel, whose greatest weight is 127, and biases of 32 or 64 bits."""
    weights = bytes_of(np.int8, 3, 2, 2, 4)
    weights[..., 3] = 127
    bias = biases(kind, [SCALE * scale for scale in WEIGHTS], 40_000, -90_000, 7)
    tensors = [short(1, 5, 6, 4), constant(weights, WEIGHTS), bias]
    options = {**CONV, "QuantizedBiasType": int(kind)}
    return Case("CONV_2D", tensors, [short(1, 5, 6, 3, scale=0.005)], "Conv2DOptions", options, name=kind.name)


CASES = [
    conv(TensorType.INT64),
    conv(TensorType.INT32),
    Case(
        "FULLY_CONNECTED",
        [short(2, 6), constant(bytes_of(np.int8, 3, 6), 0.02), biases(TensorType.INT64, SCALE * 0.02, 1, -50_000, 9)],
        [short(2, 3, scale=0.003)],
        "FullyConnectedOptions",
        {"FusedActivationFunction": RELU},
    ),
    Case(
        "FULLY_CONNECTED",
        [short(2, 6), constant(bytes_of(np.int8, 3, 6), 0.02), biases(TensorType.INT64, (), 1, -50_000, 90_000)],
        [short(2, 3, scale=0.003)],
        "FullyConnectedOptions",
        name="bias without a scale",
    ),
    Case(
        "DEPTHWISE_CONV_2D",
        [
            short(1, 5, 6, 3),
            constant(bytes_of(np.int8, 1, 2, 2, 3), WEIGHTS, dimension=3),
            biases(TensorType.INT64, (), 40_000, -90_000, 7),
        ],
        [short(1, 5, 6, 3, scale=0.005)],
        "DepthwiseConv2DOptions",
        {**CONV, "DepthMultiplier": 1},
        name="bias without a scale",
    ),
    Case(
        "TRANSPOSE_CONV",
        [
            constant([1, 4, 4, 3]),
            constant(bytes_of(np.int8, 3, 2, 2, 4), WEIGHTS),
            short(1, 4, 4, 4),
            biases(TensorType.INT64, (), 40_000, -90_000, 7),
        ],
        [short(1, 4, 4, 3, scale=0.005)],
        "TransposeConvOptions",
        {"StrideW": 1, "StrideH": 1},
        name="bias without a scale",
    ),
    Case("ADD", [short(2, 5), short(2, 5, scale=0.001)], [short(2, 5, scale=0.002)], "AddOptions"),
    Case("MUL", [short(2, 5), constant(np.array([[9000], [-300]], np.int16), SCALE)], [short(2, 5)], "MulOptions"),
    Case("LOGISTIC", [short(3, 7)], [short(3, 7, scale=1 / 32768)]),
    Case("SOFTMAX", [short(3, 7)], [short(3, 7, scale=1 / 32768)], "SoftmaxOptions", {"Beta": 1.0}),
    Case("MAX_POOL_2D", [short(1, 5, 6, 3)], [short(1, 3, 3, 3)], "Pool2DOptions", POOL),
    Case("CONCATENATION", [short(2, 3), short(2, 4)], [short(2, 7)], "ConcatenationOptions", {"Axis": 1}),
    Case("QUANTIZE", [int8(0.05, 3, 4, 5)], [short(4, 5)], "QuantizeOptions"),
    Case("QUANTIZE", [short(4, 5)], [int8(0.05, 3, 4, 5)], "QuantizeOptions", name="to bytes"),
    Case("QUANTIZE", [short(4, 5)], [short(4, 5, scale=0.01)], "QuantizeOptions", name="to another scale"),
    Case("DEQUANTIZE", [short(4, 5)], [real(4, 5)], "DequantizeOptions"),
    Case("QUANTIZE", [real(4, 5)], [short(4, 5)], "QuantizeOptions", name="of real numbers"),
    Case("QUANTIZE", [short(4, 5)], [Tensor(TensorType.INT32, (4, 5), 1e-6)], "QuantizeOptions", name="to 32 bits"),
    Case("QUANTIZE", [Tensor(TensorType.INT32, (4, 5), 1e-5)], [short(4, 5)], "QuantizeOptions", name="of 32 bits"),
    Case(
        "SOFTMAX",
        [int8(0.05, 3, 4, 5)],
        [Tensor(TensorType.INT16, (4, 5), 1 / 65536, -32768)],
        "SoftmaxOptions",
        {"Beta": 1.0},
        name="of bytes",
    ),
    Case("TRANSPOSE", [short(2, 3), constant(np.array([1, 0], np.int32), 1.0)], [short(3, 2)], name="scale of axes"),
    Case("MEAN", [short(2, 3), constant(np.array([1], np.int32), 1.0)], [short(2)], "ReducerOptions"),
]


def inputs_of(fed: Sequence[Tensor]) -> list[Array]:
    """Return numbers from about -8 to 8 in the tensors' types."""
    rng = np.random.default_rng(3)
    arrays: list[Array] = []
    for tensor in fed:
        values = rng.uniform(-8, 8, tensor.shape)
        if tensor.type is TensorType.FLOAT32:
            arrays.append(values.astype(np.float32))
        else:
            info = np.iinfo(tensor.type.name.lower())
            scale = tensor.scale if isinstance(tensor.scale, float) else 1.0
            integers = np.round(values / scale) + tensor.zero_point
            arrays.append(np.clip(integers, info.min, info.max).astype(info.dtype))
    return arrays


@pytest.mark.parametrize("case", CASES, ids=str)
def test_results_are_within_steps_of_the_reference(case: Case, device: Device) -> None:
    """TFLite rounds on the way, real numbers are not: one step, of SOFTMAX and LOGISTIC what their tables err."""
    file, fed = case.file()
    inputs = inputs_of(fed)
    wanted = reference(file, inputs)
    steps = 24 if case.code in ("SOFTMAX", "LOGISTIC") else 1
    with nn.load(file).compile(device) as session:
        for result, expected in zip(session.run(inputs), wanted, strict=True):
            assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
            if result.dtype == np.float32:
                np.testing.assert_allclose(result, expected, rtol=1e-6)
            else:
                assert np.abs(result.astype(int) - expected.astype(int)).max() <= steps


def test_weights_beside_16_bits_are_none_of_dynamic_range_quantisation() -> None:
    for case in CASES:
        with nn.load(case.file()[0]) as network:
            assert not network.dynamic_quantization, str(case)


def test_the_interface_is_that_of_the_file(reference_device: Device) -> None:
    network = nn.load(Case("NEG", [short(3)], [short(3, scale=0.5)]).file()[0])
    info = network.inputs[0]
    assert (info.dtype, info.scale, info.zero_point) == (np.int16, pytest.approx(SCALE), 0)
    with network.compile(reference_device) as session:
        (result,) = session.run([[4096, -8192, 0]])
        assert result.dtype == np.int16
        assert result.tolist() == [-2, 4, 0]
        with pytest.raises(BadData, match="wanted int16"):
            session.run(np.array([1.0, 2.0, 3.0], np.float32))


SEVERAL = Tensor(TensorType.INT16, (3,), [0.1, 0.2, 0.3])
REFUSED = {
    "CAST to real numbers": (Case("CAST", [short(3)], [real(3)]), "operator 0 CAST: of quantised INT16 tensors"),
    "CAST to integers": (Case("CAST", [short(3)], [int32(3)]), "operator 0 CAST: of quantised INT16 tensors"),
    "CAST from integers": (Case("CAST", [int32(3)], [short(3)]), "operator 0 CAST: of quantised INT16 tensors"),
    "scales of an input": (Case("NEG", [SEVERAL], [short(3)]), "tensor 't0': several scales"),
    "scales of an output": (Case("NEG", [short(3)], [SEVERAL]), "tensor 't1': several scales"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_real_numbers_cannot_stand_for_is_refused(name: str) -> None:
    """The integers themselves, and an interface of several scales."""
    case, reason = REFUSED[name]
    with pytest.raises(BadData, match=reason):
        nn.load(case.file()[0])


def test_what_is_beyond_16_bits_is_the_last_number(reference_device: Device) -> None:
    case = Case("ADD", [short(3), short(3)], [short(3)], "AddOptions")
    with nn.load(case.file()[0]).compile(reference_device) as session:
        numbers = np.array([30_000, -30_000, 5], np.int16)
        assert session.run([numbers, numbers])[0].tolist() == [32767, -32768, 10]


@pytest.mark.filterwarnings("error")
def test_what_is_no_number_is_the_smallest_as_for_quantize(reference_device: Device) -> None:
    case = Case("DIV", [short(3), short(3)], [short(3)], "DivOptions")
    with nn.load(case.file()[0]).compile(reference_device) as session:
        numerators, denominators = np.array([[0, 5, -5], [0, 0, 0]], np.int16)
        assert session.run([numerators, denominators])[0].tolist() == [-32768, 32767, -32768]


def test_the_interpreter_tells_and_takes_16_bits() -> None:
    tensors = [short(2, 2), short(2, 2), constant(np.array([[1, 2]], np.int16), 0.5), short(2, 2, scale=0.5)]
    steps = [Step("NEG", [0], [1]), Step("ADD", [1, 2], [3], "AddOptions")]
    interpreter = Interpreter(model_content=write(tensors, steps, [0], [3]), device="cpu")
    interpreter.allocate_tensors()
    details = interpreter.get_input_details()[0]
    assert details["dtype"] is np.int16
    interpreter.set_tensor(0, np.array([[4096, 0], [-4096, 8192]], np.int16))
    interpreter.invoke()
    assert interpreter.get_tensor(2).tolist() == [[1, 2]]
    assert interpreter.get_tensor(3).tolist() == [[-1, 2], [3, -2]]


def chain(*steps: Step, tensors: Sequence[Tensor]) -> bytes:
    """Return a file of real numbers that become 16 bits (tensor 1), and from the last but one real ones again."""
    last = len(tensors) - 1
    quantize, dequantize = Step("QUANTIZE", [0], [1]), Step("DEQUANTIZE", [last - 1], [last])
    return write(tensors, [quantize, *steps, dequantize], [0], [last])


PAIR = {"FusedActivationFunction": RELU}
BEYOND = {
    "an input": chain(tensors=[real(2, 6), short(2, 6), real(2, 6)]),
    "a sum": chain(
        Step("ADD", [1, 1], [2], "AddOptions"), tensors=[real(2, 6), short(2, 6), short(2, 6, scale=2e-4), real(2, 6)]
    ),
    "a sum above 0": chain(
        Step("ADD", [1, 1], [2], "AddOptions", PAIR),
        tensors=[real(2, 6), short(2, 6), short(2, 6, scale=2e-4), real(2, 6)],
    ),
    "a mean": chain(
        Step("MEAN", [1, 2], [3], "ReducerOptions"),
        tensors=[real(2, 6), short(2, 6), constant([1]), short(2, scale=5e-6), real(2)],
    ),
    "a power of e": chain(Step("EXP", [1], [2]), tensors=[real(2, 6), short(2, 6), short(2, 6), real(2, 6)]),
    "a product with weights": chain(
        Step("FULLY_CONNECTED", [1, 2, -1], [3], "FullyConnectedOptions"),
        tensors=[
            *(real(2, 6), short(2, 6), constant(bytes_of(np.int8, 3, 6), 0.02), short(2, 3, scale=1e-4)),
            real(2, 3),
        ],
    ),
}


@pytest.mark.parametrize("name", BEYOND)
def test_what_leaves_a_tensor_s_range_is_its_last_number(name: str, device: Device) -> None:
    inputs = [np.linspace(-20, 20, 12, dtype=np.float32).reshape(2, 6)]
    (wanted,) = reference(BEYOND[name], inputs)
    with nn.load(BEYOND[name]).compile(device) as session:
        np.testing.assert_allclose(session.run(inputs)[0], wanted, rtol=1e-3, atol=5e-4)


@pytest.mark.parametrize(
    "steps",
    [
        [Step("RESHAPE", [1, 2], [3])],
        [Step("LOGISTIC", [1], [3])],
        [Step("MAX_POOL_2D", [1], [3], "Pool2DOptions", POOL)],
        [Step("RELU", [1], [3])],
    ],
    ids=lambda steps: steps[0].code,
)
def test_what_cannot_leave_the_range_costs_nothing(steps: Sequence[Step]) -> None:
    scale = 2.0**-15 if steps[0].code == "LOGISTIC" else SCALE
    shapes = [short(1, 4, 4, 2), constant([1, 4, 4, 2]), short(1, 4, 4, 2, scale=scale), short(1, 4, 4, 2, scale=scale)]
    network = nn.load(write([real(1), *shapes], steps, [1], [3]))
    assert len(network.model.hal.main.operations) == 1
