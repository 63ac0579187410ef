# SPDX-License-Identifier: Apache-2.0
"""RNN, UNIDIRECTIONAL_SEQUENCE_RNN, BIDIRECTIONAL_SEQUENCE_RNN."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_driver.kernel import Kernel, Scratch, float32, int_vector, memory_bytes
from gpu_driver.launch import Launch
from gpu_driver.launchers.recurrent import (
    FLOAT_BYTES,
    Place,
    both_directions,
    fits_one_group,
    input_products,
    padded,
    split,
    stacked_matrices,
    stacked_vectors,
)
from gpu_driver.operations import launches
from gpu_driver.splits.groups import one_group_each, typed_group
from nn_runtime.codes import OperationCode
from nn_runtime.operations.rnn import RnnCell, bidirectional_rnn, rnn_step, sequence_rnn
from nn_runtime.operations.sequence import Steps
from nn_runtime.quantization import activation_range_float

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperation
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.launch import WorkSize


@launches(OperationCode.RNN)
def rnn(op: BoundOperation, device: DeviceProfile) -> tuple[Launch, ...]:
    """RNN. FLOAT32, FLOAT16; kernels recurrent.cl:project_inputs, rnn.cl:rnn_sequence. State and output are one."""
    cell = rnn_step(op)
    state, output = op.outputs
    steps = Steps(cell.batches, 1, cell.input_size, time_major=True)
    return _run(op, cell, Place(steps, (op.input("input"),), output, cell.num_units, 0, [state]), device)


@launches(OperationCode.UNIDIRECTIONAL_SEQUENCE_RNN)
def unidirectional_sequence_rnn(op: BoundOperation, device: DeviceProfile) -> tuple[Launch, ...]:
    """UNIDIRECTIONAL_SEQUENCE_RNN. FLOAT32, FLOAT16; kernels recurrent.cl:project_inputs, rnn.cl."""
    sizes = sequence_rnn(op)
    output, *states = op.outputs
    place = Place(sizes.steps, (op.input("input"),), output, sizes.cell.num_units, 0, states)
    return _run(op, sizes.cell, place, device)


@launches(OperationCode.BIDIRECTIONAL_SEQUENCE_RNN)
def bidirectional_sequence_rnn(op: BoundOperation, device: DeviceProfile) -> tuple[Launch, ...]:
    """BIDIRECTIONAL_SEQUENCE_RNN. FLOAT32, FLOAT16; kernels recurrent.cl:project_inputs, rnn.cl."""
    sizes = bidirectional_rnn(op)
    widths = sizes.forward.num_units, sizes.backward.num_units
    forward, backward = both_directions(op, sizes.steps, sizes.linking, widths, sizes.merge_outputs)
    return *_run(op, sizes.forward, forward, device), *_run(op, sizes.backward, backward, device)


def _run(op: BoundOperation, cell: RnnCell, place: Place, device: DeviceProfile) -> tuple[Launch, ...]:
    steps, units = place.steps.max_time, padded(cell.num_units)
    names = cell.weights, cell.auxiliary_weights
    sources = [
        (source, stacked_matrices([op.input(name)], device)) for source, name in zip(place.inputs, names, strict=False)
    ]
    sums, products = input_products(sources, steps * cell.batches, units, device)
    recurrent = stacked_matrices([op.input(cell.recurrent_weights)], device)
    bias = stacked_vectors([op.input(cell.bias)], device)
    hidden = Scratch(2 * cell.batches * units * FLOAT_BYTES)
    memories = (
        *(sums, recurrent.memory, bias.memory, op.input(cell.hidden_state), place.output),
        *(place.states or (place.output,)),
        hidden,
    )
    where = int_vector(*place.strides, place.offset, 0, 0, 0)
    bounds = tuple(float32(bound) for bound in activation_range_float(cell.activation))
    flops = 2 * cell.batches * cell.num_units**2
    in_steps = not fits_one_group(cell.num_units**2)

    def launch(kernel: str, size: tuple[WorkSize, WorkSize], first: int, flops: int, bytes_moved: int) -> Launch:
        flags = place.backward, bool(place.states)
        shape = int_vector(cell.num_units, units, cell.batches, steps, first, steps, *flags)
        kernel_of_file = Kernel("rnn.cl", kernel, (*typed_group(place.output, device), ("IN_STEPS", int(in_steps))))
        return Launch(kernel_of_file, (*memories, shape, where, *bounds), *size, flops=flops, bytes_moved=bytes_moved)

    before = *products, *recurrent.launches, *bias.launches
    group = one_group_each(cell.batches, device)
    if not in_steps:
        return *before, launch("rnn_sequence", group, 0, flops * steps, memory_bytes(*memories))
    every_unit = split(units, cell.batches, device)
    moved = memory_bytes(recurrent.memory, bias.memory, hidden) + (sums.size_bytes + place.output.size_bytes) // steps
    return (
        *before,
        launch("rnn_state", group, 0, 0, hidden.size_bytes),
        *(launch("rnn_step", every_unit, step, flops, moved) for step in range(steps)),
    )
