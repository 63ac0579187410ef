# SPDX-License-Identifier: Apache-2.0
"""One operator each, for the comparison with LiteRT's reference kernels: what NNAPI's networks are made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from nn_runtime.tflite.types import TensorType
from tests.nn_runtime.tflite.operator_file import Step, Tensor, constant, int8, int64, real, uint8, write

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SAME, VALID = 0, 1
NONE, RELU, RELU_N1_TO_1, RELU6, TANH, SIGN_BIT = range(6)
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
    """One operator: inputs (None is left out), outputs, options; `steps`: what a quantised result may be off.

    The last `unread` outputs are none of the file's. `usual_kernels`: compare with them, as the reference kernel errs.
    """

    code: str
    inputs: Sequence[Tensor | None]
    outputs: Sequence[Tensor]
    options: str = "NONE"
    values: Mapping[str, int | float | bool | Sequence[int] | Sequence[float]] = field(default_factory=dict)
    steps: int = 0
    name: str = ""
    intermediates: Sequence[Tensor] = ()
    unread: int = 0
    usual_kernels: bool = False

    def __str__(self) -> str:
        kind = next(tensor for tensor in (*self.outputs, *self.inputs) if tensor is not None).type.name
        return f"{self.code} {kind}{' ' if self.name else ''}{self.name}"

    def file(self) -> tuple[bytes, list[Tensor]]:
        tensors = [tensor for tensor in self.inputs if tensor is not None]
        numbers = iter(range(len(tensors)))
        inputs = [-1 if tensor is None else next(numbers) for tensor in self.inputs]
        outputs = range(len(tensors), len(tensors) + len(self.outputs))
        fed = [i for i, tensor in enumerate(tensors) if tensor.data is None and not tensor.is_variable]
        first = len(tensors) + len(self.outputs)
        intermediates = range(first, first + len(self.intermediates))
        step = Step(self.code, inputs, outputs, self.options, self.values, intermediates)
        read = outputs[: len(outputs) - self.unread]
        file = write([*tensors, *self.outputs, *self.intermediates], [step], fed, read)
        return file, [tensors[i] for i in fed]


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
    Case(
        "MUL", [uint8(0.5, 3, 2, 50), uint8(0.5, 9, 2, 50)], [uint8(0.25, 100, 2, 50)], "MulOptions", name="of products"
    ),
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
    Case("FULLY_CONNECTED", [real(2, 1, 3, 2, 4), constant(weights(5, 4))], [real(12, 5)], name="of five dimensions"),
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
    Case("RELU", [int8(0.1, 10, 2, 90)], [int8(0.1, -50, 2, 90)], name="another zero point"),
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
    Case("MEAN", [int8(0.1, 3, 1, 60, 50, 4), constant([1, 2])], [int8(0.07, 1, 1, 4)], "ReducerOptions", name="large"),
    Case("MEAN", [int8(0.1, 3, 4, 60), constant([0])], [int8(0.07, 1, 60)], "ReducerOptions", name="rows"),
    Case(
        "MEAN", [uint8(0.1, 3, 1, 36, 40), constant([-1])], [uint8(0.02, 9, 1, 36)], "ReducerOptions", name="channels"
    ),
    Case("MEAN", [uint8(1e-3, 3, 2, 50), constant([1])], [uint8(200.0, 10, 2)], "ReducerOptions", name="much coarser"),
    Case("MEAN", [uint8(200.0, 3, 2, 50), constant([1])], [uint8(1e-3, 10, 2)], "ReducerOptions", name="much finer"),
    Case("MEAN", [int8(0.1, 3, 4, 90, 2), constant([0, 2])], [int8(0.1, 3, 90)], "ReducerOptions", name="apart"),
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
    Case("QUANTIZE", [uint8(0.02, 133, 900)], [int8(0.0124, -3, 900)], "QuantizeOptions", name="both, to INT8"),
    Case("QUANTIZE", [int8(1.0, 7, 900)], [int8(0.01, 0, 900)], "QuantizeOptions", name="a hundredth"),
    Case("QUANTIZE", [int8(1.0, 7, 900)], [int8(0.001, 0, 900)], "QuantizeOptions", name="much finer"),
    Case("QUANTIZE", [Tensor(TensorType.INT32, (900,), 0.3, 2)], [int8(0.07, -9, 900)], "QuantizeOptions"),
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
