# SPDX-License-Identifier: Apache-2.0
"""Integer LSTM cells on the device: the CPU driver's bits, for every variant and units around the vector width."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import OperandCode, OperationCode
from tests.gpu_driver.operations.both_drivers import LeftOut, Result, check_both
from tests.gpu_driver.operations.compare import Value

if TYPE_CHECKING:
    from nn_runtime.device import Device

_CODE = OperandCode
_BATCHES, _INPUTS = 3, 21


@pytest.mark.parametrize("units", [1, 15, 16, 17, 40])
@pytest.mark.parametrize("constant", [False, True])
def test_quantized_16bit_lstm(opencl_device: Device, units: int, constant: bool) -> None:
    rng = np.random.default_rng(units)
    scale, zero = 0.01, 120

    def weights(depth: int) -> Value:
        data = rng.integers(0, 256, (units, depth), np.uint8)
        return Value(_CODE.TENSOR_QUANT8_ASYMM, data, scale, zero, constant=constant)

    def state(code: OperandCode, dtype: type, one: float, middle: int) -> Value:
        info = np.iinfo(dtype)
        return Value(code, rng.integers(info.min, info.max, (_BATCHES, units), dtype, endpoint=True), one, middle)

    source = Value(_CODE.TENSOR_QUANT8_ASYMM, rng.integers(0, 256, (_BATCHES, _INPUTS), np.uint8), 1 / 128, 128)
    bias = [
        Value(_CODE.TENSOR_INT32, rng.integers(-9000, 9000, units, np.int32), float(np.float32(scale / 128)))
        for _ in range(4)
    ]
    inputs = [
        source,
        *(weights(_INPUTS) for _ in range(4)),
        *(weights(units) for _ in range(4)),
        *bias,
        state(_CODE.TENSOR_QUANT16_SYMM, np.int16, 2.0**-11, 0),
        state(_CODE.TENSOR_QUANT8_ASYMM, np.uint8, 1 / 128, 128),
    ]
    results = [Result(_CODE.TENSOR_QUANT16_SYMM, 2, 2.0**-11), Result(_CODE.TENSOR_QUANT8_ASYMM, 2, 1 / 128, 128)]
    check_both(opencl_device, OperationCode.QUANTIZED_16BIT_LSTM, inputs, results)


@pytest.mark.parametrize("projection", ["none", "plain", "bias"])
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("peephole", [False, True])
@pytest.mark.parametrize("input_gate", [False, True])
@pytest.mark.parametrize(("units", "constant"), [(16, False), (17, True)])
def test_quantized_lstm(
    opencl_device: Device, units: int, constant: bool, input_gate: bool, peephole: bool, norm: bool, projection: str
) -> None:
    rng = np.random.default_rng(units)
    outputs = units if projection == "none" else 9
    gates = [True if gate else input_gate for gate in range(4)]

    def draw(code: OperandCode, dtype: type, dims: tuple[int, ...], scale: float, limit: int = 0) -> Value:
        limit = limit or np.iinfo(dtype).max
        return Value(code, rng.integers(-limit, limit, dims).astype(dtype), scale, constant=constant)

    def weights(rows: int, depth: int) -> Value:
        return draw(_CODE.TENSOR_QUANT8_SYMM, np.int8, (rows, depth), 0.01)

    def vector(scale: float) -> Value:
        return draw(_CODE.TENSOR_QUANT16_SYMM, np.int16, (units,), scale)

    no_weights, no_bias = LeftOut(_CODE.TENSOR_QUANT8_SYMM, 1.0), LeftOut(_CODE.TENSOR_INT32)
    no_vector = LeftOut(_CODE.TENSOR_QUANT16_SYMM, 1.0)
    source = rng.integers(-128, 128, (_BATCHES, _INPUTS), np.int8)
    previous = rng.integers(-128, 128, (_BATCHES, outputs), np.int8)
    cell = rng.integers(-32768, 32768, (_BATCHES, units)).astype(np.int16)
    biases = [draw(_CODE.TENSOR_INT32, np.int32, (units,), 1.0, 20000) if there else no_bias for there in gates]
    signed = _CODE.TENSOR_QUANT8_ASYMM_SIGNED
    inputs = [
        Value(signed, source, 0.01, 4),
        *(weights(units, _INPUTS) if there else no_weights for there in gates),
        *(weights(units, outputs) if there else no_weights for there in gates),
        *(vector(2.0**-10) if peephole and gates[gate] else no_vector for gate in (0, 1, 3)),
        *biases,
        no_weights if projection == "none" else weights(outputs, units),
        draw(_CODE.TENSOR_INT32, np.int32, (outputs,), 1.0, 5000) if projection == "bias" else no_bias,
        Value(signed, previous, 0.008, -3),
        Value(_CODE.TENSOR_QUANT16_SYMM, cell, 2.0**-11),
        *(vector(2.0**-12) if norm and there else no_vector for there in gates),
        *(0.7, 0.5, 0.003, 0.004, 0.002, 0.001),
        5,
        0.007,
    ]
    results = [
        Result(signed, 2, 0.008, -3),
        Result(_CODE.TENSOR_QUANT16_SYMM, 2, 2.0**-11),
        Result(signed, 2, 0.008, -3),
    ]
    check_both(opencl_device, OperationCode.QUANTIZED_LSTM, inputs, results)
