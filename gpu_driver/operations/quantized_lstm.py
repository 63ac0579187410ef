# SPDX-License-Identifier: Apache-2.0
"""QUANTIZED_LSTM, QUANTIZED_16BIT_LSTM."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpu_driver.kernel import Kernel, Packed, Scratch, int32, int_vector, memory_bytes
from gpu_driver.launch import Launch
from gpu_driver.launchers.recurrent import padded, stacked_matrices, stacked_vectors
from gpu_driver.operations import launches
from gpu_driver.splits.groups import one_group_each, typed_group
from nn_runtime.codes import OperationCode
from nn_runtime.operations.fixed_point16 import logistic_table, tanh_table
from nn_runtime.operations.lstm import GATES, bias_name
from nn_runtime.operations.quantized_lstm import (
    CELL_16BIT_INTEGER_BITS,
    QuantizedLstm,
    quantized_16bit_lstm,
    quantized_lstm,
)
from nn_runtime.quantization import FixedPointMultiplier

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperation
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.kernel import Argument, Scalar
    from gpu_driver.launchers.recurrent import Rows

_GATE_INTEGER_BITS = 3
_INT_BYTES = 4
_UNUSED = FixedPointMultiplier(0, 0)


@launches(OperationCode.QUANTIZED_16BIT_LSTM)
def quantized_16bit_lstm_step(op: BoundOperation, device: DeviceProfile) -> tuple[Launch, ...]:
    """QUANTIZED_16BIT_LSTM. QUANT8_ASYMM; kernel quantized_lstm.cl:quantized_16bit_lstm."""
    lstm = quantized_16bit_lstm(op)
    units = padded(lstm.output_size)
    by_input = stacked_matrices([op.input(f"input_to_{gate}_weights") for gate in GATES], device)
    by_output = stacked_matrices([op.input(f"recurrent_to_{gate}_weights") for gate in GATES], device)
    biases = stacked_vectors([op.input(name) for name in map(bias_name, GATES)], device)
    source, output, cell = op.input("input"), op.input("prev_output"), op.input("prev_cell_state")
    shape = lstm.input_size, lstm.output_size, lstm.output_size, units, len(GATES), 0, 0, 0
    zeros = source.zero_point, output.zero_point, op.input("input_to_input_weights").zero_point, 0
    step = Launch(
        Kernel("quantized_lstm.cl", "quantized_16bit_lstm", typed_group(source, device)),
        (
            *(source, output, cell, by_input.memory, by_output.memory, biases.memory, *op.outputs),
            Scratch(lstm.batches * 2 * len(GATES) * units * _INT_BYTES),
            *_tables(CELL_16BIT_INTEGER_BITS),
            *(int_vector(*shape), int_vector(*zeros), _factor(lstm.multiplier), int32(CELL_16BIT_INTEGER_BITS)),
        ),
        *one_group_each(lstm.batches, device),
        flops=2 * lstm.batches * len(GATES) * lstm.output_size * (lstm.input_size + lstm.output_size),
        bytes_moved=memory_bytes(source, output, cell, by_input.memory, by_output.memory, biases.memory, *op.outputs),
    )
    return *_all_launches(by_input, by_output, biases), step


@launches(OperationCode.QUANTIZED_LSTM)
def quantized_lstm_step(op: BoundOperation, device: DeviceProfile) -> tuple[Launch, ...]:
    """QUANTIZED_LSTM. QUANT8_ASYMM_SIGNED; kernel quantized_lstm.cl:quantized_lstm."""
    lstm = quantized_lstm(op)
    cell, gates = lstm.cell, lstm.cell.gates
    units = padded(cell.num_units)
    by_input = stacked_matrices([op.input(cell.input_weights(gate)) for gate in gates], device)
    by_output = stacked_matrices([op.input(cell.recurrent_weights(gate)) for gate in gates], device)
    biases = stacked_vectors([op.input(cell.bias(gate)) for gate in gates], device)
    names = [cell.peephole_weights(gate) for gate in cell.peephole_gates]
    names += [cell.layer_norm_weights(gate) for gate in gates if cell.layer_norm]
    others = [stacked_vectors([op.input(name) for name in names], device)] if names else []
    projection, projection_bias, projected = by_input, biases, 0
    if cell.projection:
        projection, projected = stacked_matrices([op.input(cell.projection_weights)], device), 1
        others.append(projection)
    if op.optional(cell.projection_bias) is not None:
        projection_bias, projected = stacked_vectors([op.input(cell.projection_bias)], device), 2
        others.append(projection_bias)
    weights = by_input, by_output, biases, *others
    source, output, state = op.input("input"), op.input("prev_output"), op.input("prev_cell_state")
    tables = _tables(15 + lstm.cell_shift)
    vectors = others[0].memory if names else tables[0]
    shape = cell.input_size, cell.output_size, cell.num_units, units, len(gates), padded(cell.output_size), 0, 0
    hidden, down = lstm.hidden, lstm.projection or _UNUSED
    step = Launch(
        Kernel("quantized_lstm.cl", "quantized_lstm", typed_group(source, device)),
        (
            *(source, output, state, by_input.memory, by_output.memory, biases.memory, vectors),
            *(projection.memory, projection_bias.memory, *op.outputs),
            Scratch(cell.batches * 2 * len(gates) * units * _INT_BYTES),
            Scratch(cell.batches * cell.num_units * _INT_BYTES),
            *(*tables, *_gate_parameters(lstm)),
            int_vector(*shape),
            int_vector(source.zero_point, output.zero_point, 0, lstm.hidden_zero_point),
            int_vector(hidden.mantissa, hidden.exponent, down.mantissa, down.exponent),
            int_vector(cell.peephole, cell.layer_norm, projected, lstm.cell_shift),
            int_vector(lstm.cell_clip, lstm.proj_clip),
        ),
        *one_group_each(cell.batches, device),
        flops=2 * cell.batches * len(gates) * cell.num_units * (cell.input_size + cell.output_size),
        bytes_moved=memory_bytes(*(source, output, state), *(one.memory for one in weights), *op.outputs),
    )
    return *_all_launches(*weights), step


def _all_launches(*parts: Rows) -> tuple[Launch, ...]:
    return tuple(launch for part in parts for launch in part.launches)


def _tables(cell_integer_bits: int) -> tuple[Argument, ...]:
    """Return the tables of sigmoid and tanh of a gate, and of tanh of the cell state."""
    tables = logistic_table(), tanh_table(_GATE_INTEGER_BITS), tanh_table(cell_integer_bits)
    return tuple(Packed(table) for table in tables)


def _gate_parameters(lstm: QuantizedLstm) -> tuple[Packed, Packed]:
    """Return gate_factors and guards of the kernel."""
    factors, guards = np.zeros((len(GATES), 4, 2), np.int32), np.ones(len(GATES), np.int32)
    for at, gate in enumerate(GATES):
        if gate in lstm.gates:
            one = lstm.gates[gate]
            pairs = one.input, one.recurrent, one.peephole or _UNUSED, one.layer_norm or _UNUSED
            factors[at] = [(pair.mantissa, pair.exponent) for pair in pairs]
            guards[at] = one.variance_guard
    return Packed(factors), Packed(guards)


def _factor(multiplier: FixedPointMultiplier) -> Scalar:
    return int_vector(multiplier.mantissa, multiplier.exponent)
