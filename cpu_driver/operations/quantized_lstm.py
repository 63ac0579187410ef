# SPDX-License-Identifier: Apache-2.0
"""QUANTIZED_LSTM, QUANTIZED_16BIT_LSTM: integer arithmetic throughout."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.kept import kept
from cpu_driver.operations import computes
from nn_runtime.codes import OperationCode
from nn_runtime.operations.fixed_point16 import high_product, logistic_table, tanh_table
from nn_runtime.operations.lstm import GATES, bias_name
from nn_runtime.operations.quantized_lstm import (
    CELL_16BIT_INTEGER_BITS,
    GateMultipliers,
    QuantizedLstm,
    quantized_16bit_lstm,
    quantized_lstm,
)
from nn_runtime.quantization import (
    FixedPointMultiplier,
    inverse_sqrt_multipliers,
    multiply_by_quantized_multiplier,
    rounding_divide_by_pot,
)
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView

_ONE = 2**15 - 1
"""1.0 with 15 fraction bits."""
_GATE_INTEGER_BITS = 3
_VARYING = ("input", "prev_output", "prev_cell_state")


@dataclass(frozen=True)
class _Cell:
    """A cell made ready: weights and multipliers of all gates side by side, in the order of `gates`."""

    lstm: QuantizedLstm
    gates: dict[str, slice]
    """Of each gate: its columns."""
    input_weights: Array
    recurrent_weights: Array
    biases: Array
    input_scales: tuple[Array, Array]
    recurrent_scales: tuple[Array, Array]


@computes(OperationCode.QUANTIZED_LSTM)
def quantized_lstm_step(op: OperationView) -> tuple[Array, ...]:
    """Return output state, cell state and output (the output state again) of one step."""
    cell = kept(op, _cell, _VARYING)
    lstm, cell_state = cell.lstm, _integers(op, "prev_cell_state")
    sums = _gate_sums(op, cell)
    forget = _take(logistic_table(), _gate(op, cell, "forget", sums, cell_state))
    fresh = _take(tanh_table(_GATE_INTEGER_BITS), _gate(op, cell, "cell", sums, cell_state))
    opened = _ONE - forget
    if lstm.cell.input_gate:
        opened = _take(logistic_table(), _gate(op, cell, "input", sums, cell_state))
    kept_state = rounding_divide_by_pot(forget * cell_state, 15)
    cell_state = _saturated(kept_state + rounding_divide_by_pot(opened * fresh, 30 + lstm.cell_shift))
    if lstm.cell_clip:
        cell_state = cell_state.clip(-lstm.cell_clip, lstm.cell_clip)
    output = _take(logistic_table(), _gate(op, cell, "output", sums, cell_state))
    activated = _take(tanh_table(15 + lstm.cell_shift), cell_state)
    hidden = _scaled(output * activated, lstm.hidden) + lstm.hidden_zero_point
    state = _projected(op, lstm, hidden.clip(-128, 127)).astype(np.int8)
    return state, cell_state.astype(np.int16), state


def _cell(op: OperationView) -> _Cell:
    lstm = quantized_lstm(op)
    names = [gate for gate in GATES if gate in lstm.gates]
    units = op.dimensions("prev_cell_state")[-1]
    without_bias = np.zeros(units, np.int64)

    def scales(multipliers: Sequence[FixedPointMultiplier]) -> tuple[Array, Array]:
        mantissas, exponents = [one.mantissa for one in multipliers], [one.exponent for one in multipliers]
        return np.repeat(np.array(mantissas, np.int64), units), np.repeat(np.array(exponents, np.int64), units)

    return _Cell(
        lstm,
        {gate: slice(at * units, (at + 1) * units) for at, gate in enumerate(names)},
        np.concatenate([_centred(op, lstm.cell.input_weights(gate)) for gate in names]),
        np.concatenate([_centred(op, lstm.cell.recurrent_weights(gate)) for gate in names]),
        np.concatenate(
            [
                _integers(op, lstm.cell.bias(gate)) if lstm.gates[gate].layer_norm is None else without_bias
                for gate in names
            ]
        ),
        scales([lstm.gates[gate].input for gate in names]),
        scales([lstm.gates[gate].recurrent for gate in names]),
    )


@computes(OperationCode.QUANTIZED_16BIT_LSTM)
def quantized_16bit_lstm_step(op: OperationView) -> tuple[Array, ...]:
    """Return cell state and output of one step."""
    lstm = quantized_16bit_lstm(op)
    gates = {}
    for gate in GATES:
        sums = _integers(op, bias_name(gate))
        for values, source in (("input", "input"), ("prev_output", "recurrent")):
            weights = f"{source}_to_{gate}_weights"
            sums = sums + _product(_centred(op, values), _centred(op, weights))
        table = tanh_table(_GATE_INTEGER_BITS) if gate == "cell" else logistic_table()
        gates[gate] = _take(table, _saturated(_scaled(sums, lstm.multiplier)))
    fresh = rounding_divide_by_pot(high_product(gates["input"], gates["cell"]), CELL_16BIT_INTEGER_BITS)
    cell_state = _saturated(fresh + high_product(gates["forget"], _integers(op, "prev_cell_state")))
    output = high_product(gates["output"], _take(tanh_table(CELL_16BIT_INTEGER_BITS), cell_state))
    codes = rounding_divide_by_pot(output, 8).clip(-128, 127) + 128
    return cell_state.astype(np.int16), codes.astype(np.uint8)


def _gate_sums(op: OperationView, cell: _Cell) -> Array:
    """Return what input and last output give every gate; saturated after each term, as the reference does."""
    products = _product(_centred(op, "input"), cell.input_weights) + cell.biases
    sums = _saturated(multiply_by_quantized_multiplier(products, *cell.input_scales))
    products = _product(_centred(op, "prev_output"), cell.recurrent_weights)
    return _saturated(multiply_by_quantized_multiplier(products, *cell.recurrent_scales) + sums)


def _gate(op: OperationView, cell: _Cell, gate: str, gate_sums: Array, cell_state: Array) -> Array:
    """Return a gate's 16-bit sum before its activation."""
    names, multipliers, sums = cell.lstm.cell, cell.lstm.gates[gate], gate_sums[:, cell.gates[gate]]
    if multipliers.peephole is not None:
        seen = _integers(op, names.peephole_weights(gate)) * cell_state
        sums = _saturated(_scaled(seen, multipliers.peephole) + sums)
    if multipliers.layer_norm is None:
        return sums
    weights, bias = _integers(op, names.layer_norm_weights(gate)), _integers(op, names.bias(gate))
    return _layer_norm(sums, weights, bias, multipliers)


def _layer_norm(sums: Array, weights: Array, bias: Array, multipliers: GateMultipliers) -> Array:
    """Return the rows of `sums` with mean 0 and deviation 1 (10 fraction bits), times weights, plus bias, rescaled.

    The mean has 10 fraction bits, 2^20 / n is rounded down before it multiplies the sum of squares.
    """
    count = sums.shape[-1]
    mean = _truncated(sums.sum(axis=-1, keepdims=True) * 1024, count)
    squares = np.square(sums).sum(axis=-1, keepdims=True) * ((1 << 20) // count)
    variance = _truncated(squares - mean * mean, 1 << 20)
    variance = np.where(variance < 1, multipliers.variance_guard, variance)
    mantissas, shifts = inverse_sqrt_multipliers(variance)
    normalized = multiply_by_quantized_multiplier(1024 * sums - mean, mantissas, -shifts)
    weighted = normalized * weights + bias
    rounded = _truncated(weighted + np.where(weighted > 0, 512, -512), 1024)
    scale = multipliers.layer_norm or FixedPointMultiplier(0, 0)
    return _saturated(multiply_by_quantized_multiplier(rounded, scale.mantissa, scale.exponent + 12))


def _projected(op: OperationView, lstm: QuantizedLstm, hidden: Array) -> Array:
    if lstm.projection is None:
        return hidden
    weights = _centred(op, lstm.cell.projection_weights)
    products = _product((hidden - lstm.hidden_zero_point).astype(np.float64), weights)
    if op.optional(lstm.cell.projection_bias) is not None:
        products = products + _integers(op, lstm.cell.projection_bias)
    projected = _scaled(products, lstm.projection) + op.input("prev_output").zero_point
    projected = projected.clip(-128, 127)
    return projected.clip(-lstm.proj_clip, lstm.proj_clip) if lstm.proj_clip else projected


def _integers(op: OperationView, name: str) -> Array:
    return op.array(name).astype(np.int64)


def _centred(op: OperationView, name: str) -> Array:
    """Return 8-bit values minus their zero point, in float64 for the products."""
    centred: Array = op.array(name).astype(np.float64) - op.input(name).zero_point
    return centred


def _product(left: Array, right: Array) -> Array:
    """Return left [rows, depth] @ right [columns, depth] transposed of integers, exactly, as int64."""
    return np.asarray(left @ right.T).astype(np.int64)


def _scaled(values: Array, multiplier: FixedPointMultiplier) -> Array:
    return multiply_by_quantized_multiplier(values, multiplier.mantissa, multiplier.exponent)


def _saturated(values: Array) -> Array:
    return values.clip(-(2**15), 2**15 - 1)


def _truncated(values: Array, divisor: int) -> Array:
    """Return integer quotients rounded towards 0."""
    quotient: Array = np.sign(values) * (np.abs(values) // divisor)
    return quotient


def _take(table: Array, codes: Array) -> Array:
    """Look 16-bit numbers up in a table of all codes."""
    return table.take(codes.astype(np.int16).view(np.uint16)).astype(np.int64)
