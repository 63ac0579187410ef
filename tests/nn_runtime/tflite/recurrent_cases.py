# SPDX-License-Identifier: Apache-2.0
"""Recurrent operators; batches of 2, 5 time steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nn_runtime.tflite.types import TensorType
from tests.nn_runtime.tflite.operator_cases import NONE, RELU, TANH, Case, bytes_of, weights
from tests.nn_runtime.tflite.operator_file import Tensor, constant, int8, real, uint8


def state(*shape: int) -> Tensor:
    return replace(real(*shape), is_variable=True)


def gates(*shape: int, count: int = 4) -> list[Tensor]:
    return [constant(weights(*shape)) for _ in range(count)]


def lstm_weights(size: int, units: int, outputs: int | None = None) -> list[Tensor | None]:
    """Weights and biases of a cell without peepholes, projected if `outputs` is given."""
    projection = [None, None] if outputs is None else [constant(weights(outputs, units)), None]
    return [*gates(units, size), *gates(units, outputs or units), None, None, None, *gates(units), *projection]


def int8_weights(*shape: int) -> Tensor:
    return constant(bytes_of(np.int8, *shape), 0.007)


def int16(scale: float, *values: int) -> Tensor:
    return constant(np.array(values, np.int16), scale)


def int8_lstm(normalised: bool) -> list[Tensor | None]:
    """8-bit weights of a cell with 3 inputs and 4 units, its states and the weights of layer normalisation."""
    norms = [int16(2.0**-14, 9000, 16000, 12000, 20000) for _ in range(4)] if normalised else [None] * 4
    biases = [constant(np.array([300, -200, 100, 900], np.int32), 1e-4) for _ in range(4)]
    return [
        *(int8_weights(4, 3) for _ in range(4)),
        *(int8_weights(4, 4) for _ in range(4)),
        *([None] * 3),
        *biases,
        *([None] * 2),
        replace(int8(0.0078, -3, 2, 4), is_variable=True),
        Tensor(TensorType.INT16, (2, 4), 2.0**-11, is_variable=True),
        *norms,
    ]


HIDDEN = [Tensor(TensorType.INT8, (0,), 0.0078, -3)]
PLAIN = [*(Tensor(TensorType.FLOAT32, (0,)) for _ in range(4)), *HIDDEN]
NORMALISED = [*(Tensor(TensorType.INT16, (0,), 2.0**-12) for _ in range(4)), *HIDDEN]
LSTM = "UnidirectionalSequenceLSTMOptions"
RNN = [constant(weights(4, 3)), constant(weights(4, 4)), constant(weights(4)), state(2, 4)]
BACKWARD = [constant(weights(6, 3)), constant(weights(6, 6)), constant(weights(6)), state(2, 6)]
BASIC = constant(bytes_of(np.uint8, 16, 7), 1 / 128, 128)

CASES = [
    Case(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        [int8(0.02, 4, 2, 5, 3), *int8_lstm(False)],
        [int8(0.0078, -3, 2, 5, 4)],
        LSTM,
        {"FusedActivationFunction": TANH, "CellClip": 10.0},
        intermediates=PLAIN,
    ),
    Case(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        [int8(0.02, 4, 5, 2, 3), *int8_lstm(True)],
        [int8(0.0078, -3, 5, 2, 4)],
        LSTM,
        {"FusedActivationFunction": TANH, "TimeMajor": True},
        intermediates=NORMALISED,
        name="time major, normalised",
    ),
    Case(
        "LSTM",
        [real(2, 3), *lstm_weights(3, 4, 6), state(2, 6), state(2, 4), *[None] * 4],
        [real(2, 6)],
        "LSTMOptions",
        {"FusedActivationFunction": TANH, "CellClip": 2.0},
    ),
    Case(
        "LSTM",
        [real(2, 3), real(2, 4), constant(weights(16, 7)), constant(weights(16)), real(2, 4)],
        [real(2, 4), real(2, 4), real(2, 7), real(2, 16)],
        "LSTMOptions",
        {"FusedActivationFunction": TANH, "KernelType": 1},
        name="basic",
        unread=2,
    ),
    Case(
        "LSTM",
        [
            uint8(1 / 128, 128, 2, 3),
            uint8(1 / 128, 128, 2, 4),
            BASIC,
            constant(np.arange(-8, 8, dtype=np.int32) * 100, 2.0**-14),
            Tensor(TensorType.INT16, (2, 4), 2.0**-11),
        ],
        [
            uint8(1 / 128, 128, 2, 4),
            Tensor(TensorType.INT16, (2, 4), 2.0**-11),
            uint8(1 / 128, 128, 2, 7),
            Tensor(TensorType.INT16, (2, 16), 2.0**-12),
        ],
        "LSTMOptions",
        {"FusedActivationFunction": TANH, "KernelType": 1},
        name="basic",
        unread=2,
    ),
    *(
        Case(
            "BIDIRECTIONAL_SEQUENCE_LSTM",
            [
                real(5, 2, 3),
                *lstm_weights(3, 4),
                *lstm_weights(3, 4),
                *(state(2, 4) for _ in range(4)),
                *[None] * 9,
            ],
            [real(5, 2, 8)] if merged else [real(5, 2, 4), real(5, 2, 4)],
            "BidirectionalSequenceLSTMOptions",
            {"FusedActivationFunction": TANH, "MergeOutputs": merged, "TimeMajor": True},
            name="merged" if merged else "",
        )
        for merged in (False, True)
    ),
    Case(
        "BIDIRECTIONAL_SEQUENCE_LSTM",
        [
            real(2, 5, 3),
            *lstm_weights(3, 4),
            *lstm_weights(3, 4),
            *(state(2, 4) for _ in range(4)),
            *[None] * 9,
        ],
        [real(2, 5, 4), real(2, 5, 4)],
        "BidirectionalSequenceLSTMOptions",
        {"FusedActivationFunction": TANH, "TimeMajor": False},
        name="batch major",
    ),
    *(
        Case("RNN", [real(2, 3), *RNN], [real(2, 4)], "RNNOptions", {"FusedActivationFunction": activation}, name=name)
        for activation, name in ((RELU, "RELU"), (TANH, "TANH"), (NONE, ""))
    ),
    *(
        Case(
            "UNIDIRECTIONAL_SEQUENCE_RNN",
            [real(2, 5, 3), *RNN],
            [real(2, 5, 4)],
            "SequenceRNNOptions",
            {"FusedActivationFunction": activation},
            name=name,
        )
        for activation, name in ((RELU, "RELU"), (TANH, "TANH"))
    ),
    Case(
        "UNIDIRECTIONAL_SEQUENCE_RNN",
        [real(5, 2, 3), *RNN],
        [real(5, 2, 4)],
        "SequenceRNNOptions",
        {"FusedActivationFunction": TANH, "TimeMajor": True},
        name="time major",
    ),
    *(
        Case(
            "BIDIRECTIONAL_SEQUENCE_RNN",
            [real(2, 5, 3), *RNN, *BACKWARD, None, None, None],
            [real(2, 5, 10)] if merged else [real(2, 5, 4), real(2, 5, 6)],
            "BidirectionalSequenceRNNOptions",
            {"FusedActivationFunction": activation, "MergeOutputs": merged},
            name=f"{activation}{' merged' if merged else ''}",
        )
        for activation in (RELU, TANH)
        for merged in (False, True)
    ),
    *(
        Case(
            "SVDF",
            [real(2, 3), constant(weights(8, 3)), constant(weights(8, 10)), constant(weights(4)), state(2, 80)],
            [real(2, 4)],
            "SVDFOptions",
            {"Rank": 2, "FusedActivationFunction": activation},
            name=f"{activation}",
        )
        for activation in (RELU, TANH)
    ),
    Case(
        "SVDF",
        [
            int8(0.03, 5, 2, 3),
            constant(bytes_of(np.int8, 8, 3), 0.01),
            constant(np.linspace(-9000, 9000, 80).reshape(8, 10).astype(np.int16), 0.0001),
            constant(np.array([30, -500, 100, 0], np.int32), 0.0001 * 0.003),
            Tensor(TensorType.INT16, (2, 80), 0.003, is_variable=True),
        ],
        [int8(0.02, -128, 2, 4)],
        "SVDFOptions",
        {"Rank": 2, "FusedActivationFunction": RELU},
        steps=1,
    ),
    Case(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        [real(2, 5, 3), *gates(4, 3), *gates(4), None, None, None, *gates(4), None, None, state(2, 4), state(2, 4)],
        [real(2, 5, 4)],
        "UnidirectionalSequenceLSTMOptions",
        {"FusedActivationFunction": TANH, "DiagonalRecurrentTensors": True},
        name="diagonal",
    ),
]

REFUSALS = {
    "diagonal of the run": (
        Case(
            "UNIDIRECTIONAL_SEQUENCE_LSTM",
            [real(2, 5, 3), *gates(4, 3), *[real(4)] * 4, None, None, None, *gates(4)],
            [real(2, 5, 4)],
            "UnidirectionalSequenceLSTMOptions",
            {"FusedActivationFunction": TANH, "DiagonalRecurrentTensors": True},
        ),
        "operator 0 UNIDIRECTIONAL_SEQUENCE_LSTM: diagonal recurrent weights must be constant vectors",
    ),
    "diagonal of bytes": (
        Case(
            "UNIDIRECTIONAL_SEQUENCE_LSTM",
            [int8(0.1, 0, 2, 5, 3)],
            [int8(0.1, 0, 2, 5, 4)],
            "UnidirectionalSequenceLSTMOptions",
            {"FusedActivationFunction": TANH, "DiagonalRecurrentTensors": True},
        ),
        "operator 0 UNIDIRECTIONAL_SEQUENCE_LSTM: diagonal recurrent weights are supported for FLOAT32 data alone",
    ),
}
