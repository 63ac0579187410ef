# SPDX-License-Identifier: Apache-2.0
"""Converted operators against LiteRT's reference kernels, and operators that cannot be converted."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import nn_runtime as nn
from nn_runtime.errors import BadData
from nn_runtime.network import Network
from nn_runtime.tflite import convert, read, supported_operators
from nn_runtime.tflite.types import TensorType
from tests.nn_runtime.tflite.operator_file import (
    Step,
    Tensor,
    constant,
    int8,
    int64,
    random_inputs,
    real,
    reference,
    uint8,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nn_runtime.devices import Device

SAME, VALID = 0, 1
NONE, RELU, RELU_N1_TO_1, RELU6, TANH = range(5)
RNG = np.random.default_rng(7)
CONV = {"StrideW": 1, "StrideH": 1, "Padding": SAME}
POOL = {"StrideW": 2, "StrideH": 2, "FilterWidth": 3, "FilterHeight": 2, "Padding": SAME}


def weights(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.uniform(-1, 1, shape).astype(np.float32)


def bytes_of(dtype: type[np.generic], *shape: int) -> np.ndarray[Any, Any]:
    info = np.iinfo(dtype)
    return RNG.integers(info.min + 1, info.max + 1, shape).astype(dtype)


def channels(count: int) -> list[float]:
    return [0.01 + 0.003 * channel for channel in range(count)]


@dataclass
class Case:
    """One operator: inputs (None is left out), outputs, options; `steps`: what a quantised result may be off."""

    code: str
    inputs: Sequence[Tensor | None]
    outputs: Sequence[Tensor]
    options: str = "NONE"
    values: Mapping[str, int | float | bool | Sequence[int]] = field(default_factory=dict)
    steps: int = 0
    name: str = ""

    def file(self) -> tuple[bytes, list[Tensor]]:
        tensors = [tensor for tensor in self.inputs if tensor is not None]
        numbers = iter(range(len(tensors)))
        inputs = [-1 if tensor is None else next(numbers) for tensor in self.inputs]
        outputs = range(len(tensors), len(tensors) + len(self.outputs))
        fed = [i for i, tensor in enumerate(tensors) if tensor.data is None and not tensor.is_variable]
        step = Step(self.code, inputs, outputs, self.options, self.values)
        return write([*tensors, *self.outputs], [step], fed, outputs), [tensors[i] for i in fed]


QUANTIZED_BIAS = constant(np.arange(-3, 3, dtype=np.int32) * 500, 0.05 * 0.02)
LSTM_WEIGHTS = [constant(weights(4, 3)) for _ in range(4)] + [constant(weights(4, 4)) for _ in range(4)]
LSTM_STATES = [Tensor(TensorType.FLOAT32, (2, 4), is_variable=True) for _ in range(2)]
LSTM_OPTIONS = {"FusedActivationFunction": TANH, "CellClip": 2.0}

CASES = [
    Case("ADD", [real(2, 3, 4), real(4)], [real(2, 3, 4)], "AddOptions", {"FusedActivationFunction": RELU6}),
    Case("ADD", [real(2, 3), constant(np.float32(1.5))], [real(2, 3)], "AddOptions", name="scalar"),
    Case("ADD", [uint8(0.1, 3, 2, 5), uint8(0.3, 9, 2, 5)], [uint8(0.31, 100, 2, 5)], "AddOptions"),
    Case("ADD", [int8(0.1, 3, 2, 5), int8(0.3, 9, 1, 5)], [int8(0.31, 10, 2, 5)], "AddOptions", name="int8"),
    Case("SUB", [int8(0.1, 3, 2, 5), int8(0.3, 9, 2, 5)], [int8(0.31, 10, 2, 5)], "SubOptions"),
    Case("SUB", [real(2, 5), real(2, 1)], [real(2, 5)], "SubOptions", {"FusedActivationFunction": RELU}),
    Case("MUL", [real(2, 5), real(2, 5)], [real(2, 5)], "MulOptions", {"FusedActivationFunction": RELU_N1_TO_1}),
    Case("MUL", [uint8(0.1, 3, 2, 5), uint8(0.3, 9, 2, 5)], [uint8(0.31, 100, 2, 5)], "MulOptions"),
    Case("MUL", [int8(0.5, 3, 4, 5), int8(0.5, 9, 4, 5)], [int8(0.2, 1, 4, 5)], "MulOptions", steps=1, name="fine"),
    Case("DIV", [real(2, 5), constant([2.0, -3.0, 0.5, 7.0, 1.0])], [real(2, 5)], "DivOptions"),
    Case(
        "DIV",
        [uint8(0.1, 128, 3, 5), constant(np.array([[30], [90], [200]], np.uint8), 0.05, 10)],
        [uint8(0.07, 128, 3, 5)],
        "DivOptions",
        steps=1,
    ),
    Case(
        "CONV_2D",
        [real(1, 7, 6, 3), constant(weights(4, 3, 2, 3)), constant(weights(4))],
        [real(1, 4, 3, 4)],
        "Conv2DOptions",
        {"StrideW": 2, "StrideH": 2, "Padding": SAME, "FusedActivationFunction": RELU},
    ),
    Case(
        "CONV_2D",
        [real(1, 9, 9, 2), constant(weights(3, 3, 3, 2)), constant(weights(3))],
        [real(1, 5, 3, 3)],
        "Conv2DOptions",
        {"StrideW": 1, "StrideH": 1, "Padding": VALID, "DilationHFactor": 2, "DilationWFactor": 3},
        name="dilated",
    ),
    Case(
        "CONV_2D",
        [uint8(0.05, 120, 1, 5, 5, 4), constant(bytes_of(np.uint8, 6, 3, 3, 4), 0.02, 131), QUANTIZED_BIAS],
        [uint8(0.8, 128, 1, 5, 5, 6)],
        "Conv2DOptions",
        CONV,
    ),
    Case(
        "CONV_2D",
        [
            int8(0.05, -20, 1, 5, 5, 4),
            constant(bytes_of(np.int8, 6, 3, 3, 4), channels(6)),
            constant(np.arange(-3, 3, dtype=np.int32) * 900, [0.05 * scale for scale in channels(6)]),
        ],
        [int8(0.4, -7, 1, 5, 5, 6)],
        "Conv2DOptions",
        {**CONV, "FusedActivationFunction": RELU6},
        name="per channel",
    ),
    Case(
        "DEPTHWISE_CONV_2D",
        [real(1, 6, 5, 2), constant(weights(1, 3, 3, 4)), constant(weights(4))],
        [real(1, 6, 5, 4)],
        "DepthwiseConv2DOptions",
        {**CONV, "DepthMultiplier": 2},
    ),
    Case(
        "DEPTHWISE_CONV_2D",
        [
            int8(0.05, 4, 1, 6, 5, 3),
            constant(bytes_of(np.int8, 1, 3, 3, 3), channels(3), dimension=3),
            constant(np.array([10, -2000, 300], np.int32), [0.05 * scale for scale in channels(3)]),
        ],
        [int8(0.1, 2, 1, 3, 3, 3)],
        "DepthwiseConv2DOptions",
        {"StrideW": 2, "StrideH": 2, "Padding": SAME, "DepthMultiplier": 1},
        name="per channel",
    ),
    Case(
        "FULLY_CONNECTED",
        [real(2, 3, 4), constant(weights(5, 4)), None],
        [real(2, 3, 5)],
        "FullyConnectedOptions",
        {"KeepNumDims": True, "FusedActivationFunction": RELU},
        name="keeps its rank, no bias",
    ),
    Case("FULLY_CONNECTED", [real(2, 3, 4), constant(weights(5, 12)), constant(weights(5))], [real(2, 5)]),
    Case(
        "FULLY_CONNECTED",
        [uint8(0.05, 120, 3, 8), constant(bytes_of(np.uint8, 6, 8), 0.02, 131), QUANTIZED_BIAS],
        [uint8(0.3, 128, 3, 6)],
        "FullyConnectedOptions",
    ),
    Case(
        "FULLY_CONNECTED",
        [
            int8(0.05, 5, 3, 8),
            constant(bytes_of(np.int8, 6, 8), channels(6)),
            constant(np.arange(-3, 3, dtype=np.int32) * 90, [0.05 * scale for scale in channels(6)]),
        ],
        [int8(0.3, 1, 3, 6)],
        "FullyConnectedOptions",
        name="per channel",
    ),
    Case("AVERAGE_POOL_2D", [real(1, 7, 6, 3)], [real(1, 4, 3, 3)], "Pool2DOptions", POOL),
    Case("AVERAGE_POOL_2D", [int8(0.1, -3, 1, 7, 6, 3)], [int8(0.1, -3, 1, 4, 3, 3)], "Pool2DOptions", POOL),
    Case("MAX_POOL_2D", [uint8(0.1, 3, 1, 7, 6, 3)], [uint8(0.1, 3, 1, 4, 3, 3)], "Pool2DOptions", POOL),
    Case("RELU", [real(2, 9)], [real(2, 9)]),
    Case("RELU6", [uint8(0.1, 100, 2, 90)], [uint8(0.1, 100, 2, 90)]),
    Case("RELU", [int8(0.1, 10, 2, 90)], [int8(0.23, -50, 2, 90)], name="rescaling"),
    Case("RELU6", [uint8(0.1, 100, 2, 90)], [uint8(0.04, 0, 2, 90)], name="rescaling"),
    Case("RELU_N1_TO_1", [real(2, 9)], [real(2, 9)]),
    Case("LOGISTIC", [real(2, 9)], [real(2, 9)]),
    Case("LOGISTIC", [int8(0.06, 10, 2, 90)], [int8(1 / 256, -128, 2, 90)]),
    Case("TANH", [real(2, 9)], [real(2, 9)]),
    Case("TANH", [uint8(0.04, 100, 2, 90)], [uint8(1 / 128, 128, 2, 90)]),
    Case("HARD_SWISH", [real(2, 9)], [real(2, 9)], "HardSwishOptions"),
    Case("HARD_SWISH", [int8(0.05, 10, 2, 90)], [int8(0.04, -100, 2, 90)], "HardSwishOptions"),
    Case("SOFTMAX", [real(2, 9)], [real(2, 9)], "SoftmaxOptions", {"Beta": 0.7}),
    Case("SOFTMAX", [int8(0.1, 4, 2, 9)], [int8(1 / 256, -128, 2, 9)], "SoftmaxOptions", {"Beta": 1.0}),
    Case("RESHAPE", [real(2, 6), constant([3, -1])], [real(3, 4)], "ReshapeOptions"),
    Case("RESHAPE", [real(1, 1), constant(np.zeros(0, np.int32))], [real()], "ReshapeOptions", name="to a scalar"),
    Case("RESHAPE", [int8(0.1, 3, 2, 6)], [int8(0.1, 3, 12)], "ReshapeOptions", {"NewShape": (12,)}),
    Case("RESHAPE", [int8(0.1, 3, 2, 6), constant([12])], [int8(0.7, 1, 12)], "ReshapeOptions", name="new scale"),
    Case("SQUEEZE", [real(1, 6, 1, 2)], [real(6, 1, 2)], "SqueezeOptions", {"SqueezeDims": (0,)}),
    Case("SQUEEZE", [real(1, 6, 1, 2)], [real(6, 2)], "SqueezeOptions", name="all"),
    Case("EXPAND_DIMS", [real(6, 2), constant(np.int32(-1))], [real(6, 2, 1)], "ExpandDimsOptions"),
    Case("TRANSPOSE", [uint8(0.1, 3, 2, 3, 4), constant([2, 0, 1])], [uint8(0.1, 3, 4, 2, 3)]),
    Case("CONCATENATION", [real(2, 3), real(2, 5)], [real(2, 8)], "ConcatenationOptions", {"Axis": -1}),
    Case(
        "CONCATENATION",
        [uint8(0.1, 3, 2, 30), uint8(0.3, 90, 2, 30)],
        [uint8(0.2, 60, 4, 30)],
        "ConcatenationOptions",
        {"Axis": 0},
    ),
    Case("PACK", [real(2, 3), real(2, 3)], [real(2, 2, 3)], "PackOptions", {"ValuesCount": 2, "Axis": 1}),
    Case("UNPACK", [real(3, 2, 4)], [real(3, 4), real(3, 4)], "UnpackOptions", {"Num": 2, "Axis": 1}),
    Case("SPLIT", [constant(np.int32(1)), real(2, 6)], [real(2, 3), real(2, 3)], "SplitOptions", {"NumSplits": 2}),
    Case(
        "SPLIT_V",
        [int8(0.1, 3, 2, 6), constant([1, -1, 2]), constant(np.int32(-1))],
        [int8(0.1, 3, 2, 1), int8(0.1, 3, 2, 3), int8(0.1, 3, 2, 2)],
        "SplitVOptions",
        {"NumSplits": 3},
    ),
    Case("SLICE", [real(4, 5), constant([1, 2]), constant([2, -1])], [real(2, 3)], "SliceOptions"),
    Case(
        "STRIDED_SLICE",
        [real(6, 7), constant([5, 1]), constant([0, 6]), constant([-2, 2])],
        [real(3, 3)],
        "StridedSliceOptions",
        {"EndMask": 1},
    ),
    Case(
        "STRIDED_SLICE",
        [real(3, 4, 5), constant([0, -1]), constant([0, 0]), constant([1, 1])],
        [real(3, 5)],
        "StridedSliceOptions",
        {"BeginMask": 1, "EndMask": 1, "ShrinkAxisMask": 2},
        name="last of an axis",
    ),
    Case("PAD", [int8(0.1, 3, 2, 3), constant([[1, 0], [2, 1]])], [int8(0.1, 3, 3, 6)], "PadOptions"),
    Case("PADV2", [real(2, 3), constant([[1, 0], [2, 1]]), constant([2.5])], [real(3, 6)], "PadV2Options"),
    Case(
        "PADV2",
        [uint8(0.1, 3, 2, 3), constant([[1, 0], [2, 1]]), constant(np.array([77], np.uint8), 0.1, 3)],
        [uint8(0.1, 3, 3, 6)],
        "PadV2Options",
    ),
    Case("MEAN", [real(2, 3, 4), constant([0, -1])], [real(3)], "ReducerOptions"),
    Case(
        "MEAN",
        [int8(0.0235, -128, 1, 7, 7, 64), constant([1, 2])],
        [int8(0.0191, -128, 1, 1, 1, 64)],
        "ReducerOptions",
        {"KeepDims": True},
        name="pooling after RELU",
    ),
    Case(
        "MEAN",
        [uint8(0.0235, 0, 1, 5, 5, 64), constant([1, 2])],
        [uint8(0.0235, 0, 1, 64)],
        "ReducerOptions",
        name="same scale",
    ),
    Case("MEAN", [int8(0.1, 3, 4, 60), constant([0])], [int8(0.07, 1, 60)], "ReducerOptions", steps=1, name="rows"),
    Case("ARG_MAX", [real(3, 9), constant(np.int32(-1))], [int64(3)], "ArgMaxOptions", {"OutputType": 4}),
    Case(
        "RESIZE_BILINEAR",
        [real(1, 3, 4, 2), constant([5, 9])],
        [real(1, 5, 9, 2)],
        "ResizeBilinearOptions",
        {"AlignCorners": True},
    ),
    Case(
        "RESIZE_BILINEAR",
        [int8(0.1, 3, 1, 3, 4, 2), constant([5, 9])],
        [int8(0.1, 3, 1, 5, 9, 2)],
        "ResizeBilinearOptions",
        {"HalfPixelCenters": True},
        steps=1,
    ),
    Case(
        "RESIZE_NEAREST_NEIGHBOR",
        [uint8(0.1, 3, 1, 3, 4, 2), constant([5, 9])],
        [uint8(0.1, 3, 1, 5, 9, 2)],
        "ResizeNearestNeighborOptions",
    ),
    Case("QUANTIZE", [real(3, 50)], [int8(0.02, 5, 3, 50)], "QuantizeOptions"),
    Case("QUANTIZE", [int8(0.02, 5, 900)], [uint8(0.02, 133, 900)], "QuantizeOptions", name="signedness"),
    Case("QUANTIZE", [uint8(0.0124, 0, 900)], [uint8(0.0352, 0, 900)], "QuantizeOptions", name="coarser"),
    Case("QUANTIZE", [int8(0.0352, 7, 900)], [int8(0.0124, -3, 900)], "QuantizeOptions", name="finer"),
    Case("QUANTIZE", [int8(0.0352, 7, 900)], [uint8(0.0124, 99, 900)], "QuantizeOptions", name="both"),
    Case("QUANTIZE", [int8(1.0, 7, 900)], [int8(0.001, 0, 900)], "QuantizeOptions", name="much finer"),
    Case("DEQUANTIZE", [int8(0.0352, 7, 900)], [real(900)], "DequantizeOptions"),
    Case("CAST", [real(5, 6)], [Tensor(TensorType.INT32, (5, 6))], "CastOptions"),
    Case(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        [real(2, 5, 3), *LSTM_WEIGHTS]
        + [None] * 3
        + [constant(weights(4)) for _ in range(4)]
        + [None] * 2
        + LSTM_STATES
        + [None] * 4,
        [real(2, 5, 4)],
        "UnidirectionalSequenceLSTMOptions",
        LSTM_OPTIONS,
    ),
]


def case_name(case: Case) -> str:
    kind = next(tensor for tensor in (*case.outputs, *case.inputs) if tensor is not None).type.name
    return f"{case.code} {kind}{' ' if case.name else ''}{case.name}"


@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_operator_agrees_with_the_reference(case: Case, reference_device: Device) -> None:
    file, fed = case.file()
    inputs = random_inputs(fed)
    wanted = reference(file, inputs)
    network = nn.load(file)
    with network.compile(reference_device) as session:
        results = session.run(inputs)
    for result, expected in zip(results, wanted, strict=True):
        assert result.dtype == expected.dtype
        assert result.shape == expected.shape
        if result.dtype.kind == "f":
            np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
        else:
            assert np.abs(result.astype(np.int64) - expected.astype(np.int64)).max(initial=0) <= case.steps


@pytest.mark.parametrize("seed", range(3))
def test_requantisation_has_the_bits_of_the_reference(seed: int, reference_device: Device) -> None:
    rng = np.random.default_rng(seed)
    every_byte = np.arange(256, dtype=np.uint8).view(np.int8)
    for _ in range(8):
        scales = [float(np.float32(scale)) for scale in 2.0 ** rng.uniform(-6, 0, 2)]
        zero_points = [int(zero_point) for zero_point in rng.integers(-128, 128, 2)]
        case = Case("QUANTIZE", [int8(scales[0], zero_points[0], 256)], [int8(scales[1], zero_points[1], 256)])
        file, _ = case.file()
        with nn.load(file).compile(reference_device) as session:
            np.testing.assert_array_equal(session.run(every_byte)[0], reference(file, [every_byte])[0])


@pytest.mark.parametrize("size", [(2, 2), (3, 5), (7, 7), (8, 10)])
@pytest.mark.parametrize("ratio", [0.51, 0.8, 1.0, 1.23, 1.7])
@pytest.mark.parametrize("zero_point", [-128, 127])
def test_mean_after_an_activation_has_the_bits_of_the_reference(
    size: tuple[int, int], ratio: float, zero_point: int, reference_device: Device
) -> None:
    source, result = int8(0.02, zero_point, 1, *size, 512), int8(0.02 / ratio, -3, 1, 1, 1, 512)
    case = Case("MEAN", [source, constant([1, 2])], [result], "ReducerOptions", {"KeepDims": True})
    file, fed = case.file()
    inputs = random_inputs(fed)
    with nn.load(file).compile(reference_device) as session:
        np.testing.assert_array_equal(session.run(inputs)[0], reference(file, inputs)[0])


def test_every_supported_operator_has_a_case() -> None:
    import tflite

    tested = {getattr(tflite.BuiltinOperator, case.code) for case in CASES}
    assert set(supported_operators()) == tested


def test_other_shapes_change_the_whole_network(reference_device: Device) -> None:
    file, _ = next(case for case in CASES if case.name == "dilated").file()
    image = random_inputs([real(3, 11, 9, 2)])
    network = nn.load(file, shapes={"t0": (3, 11, 9, 2)})
    assert network.outputs[0].shape == (3, 7, 3, 3)
    with network.compile(reference_device) as session:
        np.testing.assert_allclose(session.run(image)[0], reference(file, image)[0], rtol=1e-5, atol=1e-5)
    with pytest.raises(BadData, match="no input is called 'x'; the inputs are 't0'"):
        nn.load(file, shapes={"x": (1,)})
    with pytest.raises(BadData, match=r"operator 0 CONV_2D: filter .* must have depth 4"):
        nn.load(file, shapes={0: (3, 11, 9, 4)})


def test_shapes_computed_from_the_input_are_constants(reference_device: Device) -> None:
    """[b, 2, 3] -> [b, 6] as exporters write it for an open batch size: SHAPE, STRIDED_SLICE, PACK, RESHAPE."""
    tensors = [
        real(1, 2, 3),
        Tensor(TensorType.INT32, (3,)),
        *(constant([value]) for value in (0, 1, 1)),
        Tensor(TensorType.INT32, ()),
        constant(np.int32(6)),
        Tensor(TensorType.INT32, (2,)),
        real(1, 6),
    ]
    steps = [
        Step("SHAPE", [0], [1], "ShapeOptions", {"OutType": 2}),
        Step("STRIDED_SLICE", [1, 2, 3, 4], [5], "StridedSliceOptions", {"ShrinkAxisMask": 1}),
        Step("PACK", [5, 6], [7], "PackOptions", {"ValuesCount": 2}),
        Step("RESHAPE", [0, 7], [8], "ReshapeOptions"),
    ]
    file = write(tensors, steps, [0], [8])
    data = random_inputs([real(4, 2, 3)])
    network = nn.load(file, shapes={0: (4, 2, 3)})
    assert len(network.model.hal.main.operations) == 1
    with network.compile(reference_device) as session:
        np.testing.assert_array_equal(session.run(data)[0], data[0].reshape(4, 6))


def test_constants_of_other_types_become_real(reference_device: Device) -> None:
    """float16 weights behind a DEQUANTIZE, and a float operator with 8-bit weights."""
    half = weights(5, 4).astype(np.float16)
    tensors = [real(2, 4), constant(half), real(5, 4), real(2, 5)]
    steps = [Step("DEQUANTIZE", [1], [2]), Step("FULLY_CONNECTED", [0, 2, -1], [3], "FullyConnectedOptions")]
    data = random_inputs([tensors[0]])
    with nn.load(write(tensors, steps, [0], [3])).compile(reference_device) as session:
        np.testing.assert_allclose(session.run(data)[0], data[0] @ half.astype(np.float32).T, rtol=1e-5, atol=1e-5)
    integers = bytes_of(np.int8, 5, 4)
    tensors = [real(2, 4), constant(integers, 0.5), real(2, 5)]
    steps = [Step("FULLY_CONNECTED", [0, 1, -1], [2], "FullyConnectedOptions")]
    with nn.load(write(tensors, steps, [0], [2])).compile(reference_device) as session:
        np.testing.assert_allclose(session.run(data)[0], data[0] @ (integers * 0.5).T, rtol=1e-5, atol=1e-5)


def test_outputs_that_no_operation_writes_are_copied(reference_device: Device) -> None:
    """An output may be an input, a constant, or listed twice."""
    tensors = [real(3), constant([1.0, 2.0]), real(3)]
    file = write(tensors, [Step("RELU", [0], [2])], [0], [0, 1, 2, 2])
    data = np.array([-1, 0, 2], np.float32)
    with nn.load(file).compile(reference_device) as session:
        results = session.run(data)
    for result, wanted in zip(results, ([-1, 0, 2], [1, 2], [0, 0, 2], [0, 0, 2]), strict=True):
        np.testing.assert_array_equal(result, wanted)


def test_tensors_between_operators_can_be_kept(reference_device: Device) -> None:
    tensors = [real(2, 3), real(2, 3), real(2, 3)]
    file = write(tensors, [Step("RELU", [0], [1]), Step("TANH", [1], [2])], [0], [2])
    network = convert(read(file), preserve_all=True)
    assert [info.index for info in network.outputs] == [2, 1]
    data = random_inputs(tensors[:1])
    with network.compile(reference_device) as session:
        np.testing.assert_array_equal(session.run(data)[1], np.maximum(data[0], 0))


def _bad(case: Case) -> bytes:
    return case.file()[0]


FULLY = "FullyConnectedOptions"
REFUSALS = {
    "no such conversion": (Case("CUMSUM", [real(3), constant(np.int32(0))], [real(3)]), "operator 0 CUMSUM: no NNAPI"),
    "missing input": (Case("ADD", [real(3)], [real(3)]), r"operator 0 ADD: input1 \(input 1\) is missing"),
    "omitted input": (Case("ADD", [real(3), None], [real(3)]), r"operator 0 ADD: input1 \(input 1\) is missing"),
    "no output": (Case("RELU", [real(3)], []), "operator 0 RELU: needs at least 1 outputs, got 0"),
    "rank": (
        Case("CONV_2D", [real(3, 3), constant(weights(1, 1, 1, 3)), None], [real(3)], "Conv2DOptions", CONV),
        r"operator 0 CONV_2D: input \(input 0\) must have rank 4, got \[3, 3\]",
    ),
    "bias length": (
        Case("FULLY_CONNECTED", [real(2, 4), constant(weights(5, 4)), constant(weights(4))], [real(2, 5)], FULLY),
        r"operator 0 FULLY_CONNECTED: bias \(input 2\) must have dimensions \[5\], got \[4\]",
    ),
    "stride": (
        Case(
            "CONV_2D",
            [real(1, 3, 3, 1), constant(weights(1, 1, 1, 1)), None],
            [real(1, 3, 3, 1)],
            "Conv2DOptions",
            {"StrideW": 0, "StrideH": 1},
        ),
        r"operator 0 CONV_2D: stride_width \(input \d+\) must be > 0, got 0",
    ),
    "activation": (
        Case("ADD", [real(3), real(3)], [real(3)], "AddOptions", {"FusedActivationFunction": TANH}),
        "operator 0 ADD: fused activation 4 is not supported",
    ),
    "axis": (
        Case("CONCATENATION", [real(3), real(3)], [real(6)], "ConcatenationOptions", {"Axis": 1}),
        r"operator 0 CONCATENATION: axis must be in \[-1, 1\), got 1",
    ),
    "parameter that is no constant": (
        Case("RESHAPE", [real(6), Tensor(TensorType.INT32, (2,))], [real(2, 3)]),
        r"operator 0 RESHAPE: shape \(input 1\) must be a constant",
    ),
    "parameter of the wrong type": (
        Case("RESHAPE", [real(6), constant([2.0, 3.0])], [real(2, 3)]),
        r"operator 0 RESHAPE: shape \(input 1\) must be of integers, got float32",
    ),
    "element count": (
        Case("RESHAPE", [real(6), constant([4, 2])], [real(4, 2)]),
        r"operator 0 RESHAPE: shape \(input 1\) must hold 6 elements, got \[4, 2\]",
    ),
    "wide constant": (
        Case("SLICE", [real(6), constant([0]), Tensor(TensorType.INT64, (1,), data=np.array([2**40]))], [real(6)]),
        "operator 0 SLICE: tensor 't2': an INT64 constant must fit in 32 bits",
    ),
    "type": (
        Case("RELU", [Tensor(TensorType.STRING, (3,))], [Tensor(TensorType.STRING, (3,))]),
        "tensor 't0': type STRING is not supported",
    ),
    "mixed types": (
        Case("ADD", [real(3), int8(0.1, 0, 3)], [real(3)], "AddOptions"),
        r"operator 0 ADD: input1 \(input 1\) must be TENSOR_FLOAT32, got TENSOR_QUANT8_ASYMM_SIGNED",
    ),
    "integer division": (
        Case("DIV", [Tensor(TensorType.INT32, (3,))] * 2, [Tensor(TensorType.INT32, (3,))], "DivOptions"),
        "operator 0 DIV: INT32 is not supported: NNAPI rounds the quotient down",
    ),
    "int8 LSTM": (
        Case("UNIDIRECTIONAL_SEQUENCE_LSTM", [int8(0.1, 0, 1, 2, 3)], [int8(0.1, 0, 1, 2, 3)]),
        "operator 0 UNIDIRECTIONAL_SEQUENCE_LSTM: only FLOAT32 data is supported, got TENSOR_QUANT8_ASYMM_SIGNED",
    ),
    "LSTM without a state": (
        Case("UNIDIRECTIONAL_SEQUENCE_LSTM", [real(2, 5, 3), *LSTM_WEIGHTS], [real(2, 5, 4)]),
        r"operator 0 UNIDIRECTIONAL_SEQUENCE_LSTM: output_state \(input 18\) must be a variable tensor",
    ),
    "rank above four": (
        Case("RELU", [real(1, 1, 1, 1, 3)], [real(1, 1, 1, 1, 3)]),
        r"operator 0 RELU: input \(input 0\) must have rank 1 to 4, got \[1, 1, 1, 1, 3\]",
    ),
    "per-channel zero points": (
        Case(
            "CONV_2D",
            [int8(0.1, 0, 1, 3, 3, 1), constant(bytes_of(np.int8, 2, 1, 1, 1), [0.1, 0.2], 3), None],
            [int8(0.1, 0, 1, 3, 3, 2)],
            "Conv2DOptions",
            CONV,
        ),
        "operator 0 CONV_2D: tensor 't1': per-channel zero points must be 0, got 3",
    ),
    "empty result": (
        Case("STRIDED_SLICE", [real(6), constant([4]), constant([2]), constant([1])], [real(0)]),
        r"operator 0 STRIDED_SLICE: an empty result of shape \[0\] is not supported",
    ),
    "huge result": (
        Case("RESIZE_BILINEAR", [real(1, 3, 4, 2), constant([70000, 70000])], [real(1, 1, 1, 2)]),
        "operator 0 RESIZE_BILINEAR: .*2\\^32-1",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_cannot_be_converted_is_named_with_its_reason(name: str) -> None:
    case, message = REFUSALS[name]
    with pytest.raises(BadData, match=message):
        nn.load(_bad(case))


def test_an_operator_is_named_by_its_index() -> None:
    tensors = [real(3), real(3), real(3)]
    file = write(tensors, [Step("RELU", [0], [1]), Step("CUMSUM", [1, 0], [2])], [0], [2])
    with pytest.raises(BadData, match=re.escape("operator 1 CUMSUM: no NNAPI operation")):
        nn.load(file)


def test_interface_is_what_the_file_says() -> None:
    file, _ = Case("ARG_MAX", [uint8(0.5, 7, 3, 9), constant([1])], [int64(3)], "ArgMaxOptions").file()
    network = nn.load(file)
    assert isinstance(network, Network)
    source, result = network.inputs[0], network.outputs[0]
    assert (source.name, source.dtype, source.shape, source.scale, source.zero_point) == (
        "t0",
        np.uint8,
        (3, 9),
        0.5,
        7,
    )
    assert (result.name, result.dtype, result.shape, result.scale) == ("t2", np.int64, (3,), 0.0)
