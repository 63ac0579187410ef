# SPDX-License-Identifier: Apache-2.0
"""LSTM, UNIDIRECTIONAL_SEQUENCE_LSTM, BIDIRECTIONAL_SEQUENCE_LSTM."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_driver.kernel import Kernel, Scratch, float_vector, int_vector, memory_bytes
from gpu_driver.launch import Launch
from gpu_driver.launchers.recurrent import (
    FLOAT_BYTES,
    Place,
    Rows,
    both_directions,
    fits_one_group,
    input_products,
    padded,
    split,
    stacked_matrices,
    stacked_vectors,
)
from gpu_driver.launchers.strided import fill
from gpu_driver.operations import launches
from gpu_driver.splits.groups import one_group_each, typed_group
from nn_runtime.codes import OperationCode
from nn_runtime.operations.lstm import LstmCell, bidirectional_lstm, lstm_step, sequence_lstm
from nn_runtime.operations.sequence import Steps
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperation
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.kernel import Argument
    from gpu_driver.launch import WorkSize


@launches(OperationCode.LSTM)
def lstm(op: BoundOperation, device: DeviceProfile) -> tuple[Launch, ...]:
    """LSTM. FLOAT32, FLOAT16; kernels recurrent.cl:project_inputs, lstm.cl:lstm_sequence. The scratch output is 0."""
    cell = lstm_step(op)
    scratch, *states, output = op.outputs
    steps = Steps(cell.batches, 1, cell.input_size, time_major=True)
    place = Place(steps, (op.input("input"),), output, cell.output_size, 0, states)
    return fill(scratch, 0, device), *_run(op, cell, place, device)


@launches(OperationCode.UNIDIRECTIONAL_SEQUENCE_LSTM)
def unidirectional_sequence_lstm(op: BoundOperation, device: DeviceProfile) -> tuple[Launch, ...]:
    """UNIDIRECTIONAL_SEQUENCE_LSTM. FLOAT32, FLOAT16; kernels recurrent.cl:project_inputs, lstm.cl."""
    sizes = sequence_lstm(op)
    output, *states = op.outputs
    place = Place(sizes.steps, (op.input("input"),), output, sizes.cell.output_size, 0, states)
    return _run(op, sizes.cell, place, device)


@launches(OperationCode.BIDIRECTIONAL_SEQUENCE_LSTM)
def bidirectional_sequence_lstm(op: BoundOperation, device: DeviceProfile) -> tuple[Launch, ...]:
    """BIDIRECTIONAL_SEQUENCE_LSTM. FLOAT32, FLOAT16; kernels recurrent.cl:project_inputs, lstm.cl."""
    sizes = bidirectional_lstm(op)
    widths = sizes.forward.output_size, sizes.backward.output_size
    forward, backward = both_directions(op, sizes.steps, sizes.linking, widths, sizes.merge_outputs)
    return *_run(op, sizes.forward, forward, device), *_run(op, sizes.backward, backward, device)


def _run(op: BoundOperation, cell: LstmCell, place: Place, device: DeviceProfile) -> tuple[Launch, ...]:
    weights = _Weights.of(op, cell, device)
    rows = place.steps.max_time * cell.batches
    columns = len(cell.gates) * padded(cell.num_units)
    names = cell.input_weights, cell.auxiliary_weights
    sources = [
        (source, stacked_matrices([op.input(name(gate)) for gate in cell.gates], device))
        for source, name in zip(place.inputs, names, strict=False)
    ]
    sums, products = input_products(sources, rows, columns, device)
    return *products, *weights.launches, *_recurrent(op, cell, place, weights, sums, device)


@dataclass(frozen=True)
class _Weights:
    """Weights of the recurrent part. Where there is no projection, other memory stands in for it."""

    recurrent: Rows
    vectors: Rows
    projection: Rows
    projection_bias: Rows

    @staticmethod
    def of(op: BoundOperation, cell: LstmCell, device: DeviceProfile) -> _Weights:
        """Put the operation's weights together."""
        recurrent = stacked_matrices([op.input(cell.recurrent_weights(gate)) for gate in cell.gates], device)
        names = [cell.bias(gate) for gate in cell.gates]
        names += [cell.peephole_weights(gate) for gate in cell.peephole_gates]
        names += [cell.layer_norm_weights(gate) for gate in cell.gates if cell.layer_norm]
        vectors = stacked_vectors([op.input(name) for name in names], device)
        nothing = Rows(vectors.memory, ())
        has_bias = op.optional(cell.projection_bias) is not None
        return _Weights(
            recurrent,
            vectors,
            stacked_matrices([op.input(cell.projection_weights)], device) if cell.projection else nothing,
            stacked_vectors([op.input(cell.projection_bias)], device) if has_bias else nothing,
        )

    @property
    def launches(self) -> tuple[Launch, ...]:
        """What puts weights together that are not constant."""
        parts = self.recurrent, self.vectors, self.projection, self.projection_bias
        return tuple(launch for part in parts for launch in part.launches)

    @property
    def memories(self) -> tuple[Argument, ...]:
        """Kernel arguments recurrent, vectors, projection, projection_bias."""
        return self.recurrent.memory, self.vectors.memory, self.projection.memory, self.projection_bias.memory


def _recurrent(
    op: BoundOperation, cell: LstmCell, place: Place, weights: _Weights, sums: Scratch, device: DeviceProfile
) -> tuple[Launch, ...]:
    units, outputs = padded(cell.num_units), padded(cell.output_size)
    hidden, state = (Scratch(cell.batches * size * FLOAT_BYTES) for size in (outputs, units))
    memories = (
        *(sums, *weights.memories, *(op.input(name) for name in cell.state_names), place.output),
        *(place.states or (place.output, place.output)),
        *(hidden, state),
    )
    where = int_vector(*place.strides, place.offset, place.backward, bool(place.states), 0)
    projected = 0 if not cell.projection else 1 if op.optional(cell.projection_bias) is None else 2
    variant = int_vector(cell.peephole, cell.layer_norm, projected, cell.activation)
    clips = float_vector(cell.cell_clip, cell.proj_clip)
    macs = len(cell.gates) * cell.num_units * cell.output_size + projected * cell.num_units * cell.output_size
    in_steps = not fits_one_group(macs)

    def launch(
        kernel: str, size: tuple[WorkSize, WorkSize], first: int, stop: int, flops: int, bytes_moved: int
    ) -> Launch:
        sizes = cell.num_units, units, cell.output_size, outputs, len(cell.gates), place.steps.max_time, first, stop
        return Launch(
            Kernel("lstm.cl", kernel, (*typed_group(place.output, device), ("IN_STEPS", int(in_steps)))),
            (*memories, int_vector(*sizes), where, variant, clips),
            *size,
            flops=flops,
            bytes_moved=bytes_moved,
        )

    steps, group = place.steps.max_time, one_group_each(cell.batches, device)
    if not in_steps:
        return (launch("lstm_sequence", group, 0, steps, 2 * macs * cell.batches * steps, memory_bytes(*memories)),)
    states = memory_bytes(hidden, state)
    of_step = (sums.size_bytes + place.output.size_bytes) // steps
    recurrent, vectors, *projection = weights.memories
    stages = [
        (
            *("lstm_products", split(len(cell.gates) * units, cell.batches, device), 2 * macs * cell.batches),
            memory_bytes(recurrent, hidden) + of_step,
        ),
        ("lstm_cell", group, 0, memory_bytes(vectors) + of_step + states),
    ]
    if cell.projection:
        of_projection = memory_bytes(*projection, hidden) + of_step
        stages.append(("lstm_projection", split(outputs, cell.batches, device), 0, of_projection))
    return (
        launch("lstm_states", group, 0, steps, 0, 2 * states),
        *(launch(name, size, step, steps, *costs) for step in range(steps) for name, size, *costs in stages),
    )
