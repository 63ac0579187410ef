# SPDX-License-Identifier: Apache-2.0
"""QUANTIZED_LSTM and QUANTIZED_16BIT_LSTM: one step of a cell with 8-bit data and a 16-bit cell state."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FeatureLevel, OperandCode, OperationCode
from nn_runtime.operations.lstm import GATES, LstmCell, bias_name, lstm_cell
from nn_runtime.operations.sequence import check_dimensions
from nn_runtime.operations.signature import (
    INT32,
    INT32_TENSOR,
    Definition,
    Input,
    OperationView,
    Output,
    Variant,
    define,
    only,
    same_as_data,
)
from nn_runtime.quantization import FixedPointMultiplier, fixed_point_multiplier
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from nn_runtime.operand import Dimensions, OperandView
    from nn_runtime.operations.signature import TypeRule

CELL_16BIT_INTEGER_BITS = 4
"""Integer bits of the cell state of QUANTIZED_16BIT_LSTM."""

_GATE_SCALE = 2.0**-12
"""Scale of a gate of QUANTIZED_16BIT_LSTM before its activation: 3 integer bits."""
_GREATEST_CELL_SHIFT, _LEAST_CELL_SHIFT = -9, -15
_LOG2_TOLERANCE = 1e-3
_VARIANCE_GUARD = 10000


@dataclass(frozen=True)
class GateMultipliers:
    """Multipliers of one gate's sums, each into the scale before the activation or the layer norm."""

    input: FixedPointMultiplier
    recurrent: FixedPointMultiplier
    peephole: FixedPointMultiplier | None
    layer_norm: FixedPointMultiplier | None
    variance_guard: int
    """What a variance below 1 becomes in the layer norm."""


@dataclass(frozen=True)
class QuantizedLstm:
    """Sizes, variant and fixed-point parameters of a QUANTIZED_LSTM.

    Every sum of a gate is kept in 16 bits, with the scale that the operation gives for it; its activation takes it to
    have 3 integer bits, so that without layer norm the scale must be 2^-12 to mean what it says. The cell state has
    scale 2^`cell_shift`; clips are in the stored domain, 0 for none. The hidden state has zero point
    `hidden_zero_point`; without projection it is the output.
    """

    cell: LstmCell
    gates: dict[str, GateMultipliers]
    cell_shift: int
    cell_clip: int
    proj_clip: int
    hidden: FixedPointMultiplier
    hidden_zero_point: int
    projection: FixedPointMultiplier | None


@dataclass(frozen=True)
class Quantized16BitLstm:
    """Sizes of a QUANTIZED_16BIT_LSTM (input [batches, input_size], states [batches, output_size]) and its multiplier.

    Every gate's sum of products and bias, times `multiplier`, has 3 integer bits of 16 before its activation.
    """

    batches: int
    input_size: int
    output_size: int
    multiplier: FixedPointMultiplier


def quantized_lstm(op: OperationView) -> QuantizedLstm:
    """Return sizes, variant and fixed-point parameters of a QUANTIZED_LSTM; raises BadData."""
    dims = op.dimensions("input")
    if len(dims) != 2 or 0 in dims:
        op.fail("input", "must have rank 2 and no size 0", list(dims))
    cell = lstm_cell(op, (dims[0], dims[1]), ("prev_output", "prev_cell_state"))
    for name in (*(f"{gate}_intermediate_scale" for gate in cell.gates), "hidden_state_scale"):
        if not op.float_value(name) > 0:
            op.fail(name, "must be > 0", op.float_value(name))
    shift = _cell_shift(op)
    hidden_scale = op.float_value("hidden_state_scale")
    projection = None
    if cell.projection:
        projection = _multiplier(op.input("projection_weights").scale, hidden_scale, op.input("prev_output").scale)
    return QuantizedLstm(
        cell,
        {gate: _gate_multipliers(op, cell, gate, shift) for gate in cell.gates},
        shift,
        _clip(cell.cell_clip, op.input("prev_cell_state"), 32767),
        _clip(cell.proj_clip, op.input("prev_output"), 127),
        fixed_point_multiplier(float(np.float32(2.0**-15 / hidden_scale * 2.0**-15))),
        op.int_value("hidden_state_zero_point"),
        projection,
    )


def quantized_16bit_lstm(op: OperationView) -> Quantized16BitLstm:
    """Return sizes and multiplier of a QUANTIZED_16BIT_LSTM; raises BadData."""
    dims, weights = op.dimensions("input"), op.dimensions("input_to_output_weights")
    if len(dims) != 2 or len(weights) != 2 or 0 in dims + weights:
        op.fail("input", "must have rank 2 and no size 0, as its weights", [dims, weights])
    batches, input_size, output_size = *dims, weights[0]
    wanted: dict[str, Dimensions] = {name: (batches, output_size) for name in ("prev_cell_state", "prev_output")}
    for gate in GATES:
        wanted[f"input_to_{gate}_weights"] = (output_size, input_size)
        wanted[f"recurrent_to_{gate}_weights"] = (output_size, output_size)
        wanted[bias_name(gate)] = (output_size,)
    check_dimensions(op, wanted)
    _check_bias_scales(op)
    multiplier = fixed_point_multiplier(op.input(bias_name("input")).scale / _GATE_SCALE)
    return Quantized16BitLstm(batches, input_size, output_size, multiplier)


def _multiplier(*scales: float) -> FixedPointMultiplier:
    """Return first * second / third as a multiplier, in float32 like the reference."""
    first, second, third = (np.float32(scale) for scale in scales)
    return fixed_point_multiplier(float(first * second / third))


def _gate_multipliers(op: OperationView, cell: LstmCell, gate: str, shift: int) -> GateMultipliers:
    scale = op.float_value(f"{gate}_intermediate_scale")
    peephole = layer_norm = None
    guard = 1
    if gate in cell.peephole_gates:
        product = 2.0**shift * op.input(cell.peephole_weights(gate)).scale / scale
        peephole = fixed_point_multiplier(float(np.float32(product)))
    if cell.layer_norm:
        norm_scale = op.input(cell.layer_norm_weights(gate)).scale
        layer_norm = fixed_point_multiplier(norm_scale)
        guard = max(1, int(np.float32(_VARIANCE_GUARD) * np.float32(norm_scale)))
    return GateMultipliers(
        _multiplier(op.input(cell.input_weights(gate)).scale, op.input("input").scale, scale),
        _multiplier(op.input(cell.recurrent_weights(gate)).scale, op.input("prev_output").scale, scale),
        peephole,
        layer_norm,
        guard,
    )


def _cell_shift(op: OperationView) -> int:
    scale = op.input("prev_cell_state").scale
    exact = math.log2(scale)
    shift = round(exact)
    if abs(exact - shift) > _LOG2_TOLERANCE or not _LEAST_CELL_SHIFT <= shift <= _GREATEST_CELL_SHIFT:
        op.fail("prev_cell_state", f"must have scale 2^{_LEAST_CELL_SHIFT} to 2^{_GREATEST_CELL_SHIFT}", scale)
    return shift


def _clip(limit: float, operand: OperandView, greatest: int) -> int:
    return int(min(float(np.float32(limit) / np.float32(operand.scale)), greatest))


def _check_bias_scales(op: OperationView) -> None:
    product = op.input("input").scale * op.input("input_to_input_weights").scale
    for gate in GATES:
        scale = op.input(bias_name(gate)).scale
        if abs(product - scale) > 1e-6 * min(product, scale):
            op.fail(bias_name(gate), f"must have scale {product} (input * weights)", scale)


_DATA_16BIT = (1 / 128, 128)
_CELL_16BIT = (2.0 ** (CELL_16BIT_INTEGER_BITS - 15), 0)


def _prepare_quantized(op: OperationView) -> tuple[Dimensions, ...]:
    output_state, cell_state = quantized_lstm(op).cell.state_dimensions
    return output_state, cell_state, output_state


def _check_16bit(op: OperationView) -> FeatureLevel:
    first = op.input("input_to_input_weights")
    for name in (f"{source}_to_{gate}_weights" for source in ("input", "recurrent") for gate in GATES):
        _check_quantization(op, name, op.input(name), (first.scale, first.zero_point))
    for name in ("input", "prev_output"):
        _check_quantization(op, name, op.input(name), _DATA_16BIT)
    _check_quantization(op, "prev_cell_state", op.input("prev_cell_state"), _CELL_16BIT)
    _check_quantization(op, "output 0", op.outputs[0], _CELL_16BIT)
    _check_quantization(op, "output 1", op.outputs[1], _DATA_16BIT)
    return FeatureLevel.HAL_1_2


def _check_quantization(op: OperationView, name: str, operand: OperandView, wanted: tuple[float, int]) -> None:
    if (operand.scale, operand.zero_point) != wanted:
        scale, zero_point = wanted
        op.fail(name, f"must have scale {scale} and zero point {zero_point}", [operand.scale, operand.zero_point])


def _prepare_16bit(op: OperationView) -> tuple[Dimensions, ...]:
    lstm = quantized_16bit_lstm(op)
    state = (lstm.batches, lstm.output_size)
    return state, state


_WEIGHTS = only(OperandCode.TENSOR_QUANT8_SYMM)
_STATE = only(OperandCode.TENSOR_QUANT16_SYMM)
_FLOAT32 = only(OperandCode.FLOAT32)


def _input(name: str, types: TypeRule = same_as_data, rank: int = 2, omittable: bool = False) -> Input:
    return Input(name, types, (rank, rank), omittable=omittable)


define(
    Definition(
        OperationCode.QUANTIZED_LSTM,
        (
            Variant(
                (
                    _input("input"),
                    *(_input(f"input_to_{gate}_weights", _WEIGHTS, omittable=gate == "input") for gate in GATES),
                    *(_input(f"recurrent_to_{gate}_weights", _WEIGHTS, omittable=gate == "input") for gate in GATES),
                    *(_input(f"cell_to_{gate}_weights", _STATE, 1, True) for gate in GATES if gate != "cell"),
                    *(_input(bias_name(gate), INT32_TENSOR, 1, gate == "input") for gate in GATES),
                    _input("projection_weights", _WEIGHTS, omittable=True),
                    _input("projection_bias", INT32_TENSOR, 1, True),
                    _input("prev_output"),
                    _input("prev_cell_state", _STATE),
                    *(_input(f"{gate}_layer_norm_weights", _STATE, 1, True) for gate in GATES),
                    Input("cell_clip", _FLOAT32, omittable=True),
                    Input("proj_clip", _FLOAT32, omittable=True),
                    *(Input(f"{gate}_intermediate_scale", _FLOAT32) for gate in GATES),
                    Input("hidden_state_zero_point", INT32),
                    Input("hidden_state_scale", _FLOAT32),
                )
            ),
        ),
        (
            Output("output_state_out", rank=(2, 2)),
            Output("cell_state_out", _STATE, (2, 2)),
            Output("output", rank=(2, 2)),
        ),
        {OperandCode.TENSOR_QUANT8_ASYMM_SIGNED: FeatureLevel.HAL_1_3},
        _prepare_quantized,
    )
)

define(
    Definition(
        OperationCode.QUANTIZED_16BIT_LSTM,
        (
            Variant(
                (
                    _input("input"),
                    *(_input(f"input_to_{gate}_weights") for gate in GATES),
                    *(_input(f"recurrent_to_{gate}_weights") for gate in GATES),
                    *(_input(bias_name(gate), INT32_TENSOR, 1) for gate in GATES),
                    _input("prev_cell_state", _STATE),
                    _input("prev_output"),
                )
            ),
        ),
        (Output("cell_state_out", _STATE, (2, 2)), Output("output", rank=(2, 2))),
        {OperandCode.TENSOR_QUANT8_ASYMM: FeatureLevel.HAL_1_2},
        _prepare_16bit,
        _check_16bit,
    )
)
