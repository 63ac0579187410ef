# SPDX-License-Identifier: Apache-2.0
"""What launchers of recurrent cells share: weights side by side in padded rows, and the products of all inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpu_driver.kernel import Kernel, Packed, Scratch, int32
from gpu_driver.launch import Launch
from gpu_driver.launchers.strided import Side, fill_memory, strided_copy
from gpu_driver.splits.groups import group_size, typed_group
from gpu_driver.splits.vectors import LANES
from gpu_driver.splits.worksize import round_up
from nn_runtime.operand import dtype_of
from nn_runtime.operations.sequence import Linking
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_driver.bound import BoundOperand, BoundOperation
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.launch import WorkSize
    from nn_runtime.operations.sequence import Steps

_ITEM_ROWS = 8
"""As in recurrent.cl."""
_ITEMS_PER_CORE = 2
_MOST_WEIGHTS_OF_ONE_GROUP = 1 << 19
FLOAT_BYTES = 4


@dataclass(frozen=True)
class Rows:
    """Memory of T [rows, padded]: what was put together, and the launches that do it (none for constants)."""

    memory: Packed | Scratch
    launches: tuple[Launch, ...]


@dataclass(frozen=True)
class Place:
    """Where a cell reads and writes: its inputs (auxiliary one last), its part of an output of `depth` per step.

    `states` are the outputs for its last states, none where nobody asks for them.
    """

    steps: Steps
    inputs: tuple[BoundOperand, ...]
    output: BoundOperand
    depth: int
    offset: int
    states: Sequence[BoundOperand]
    backward: bool = False

    @property
    def strides(self) -> tuple[int, int, int, int]:
        """Strides by time and batch, of rows of the inputs and of elements of the output."""
        time, batch = (self.steps.batches, 1) if self.steps.time_major else (1, self.steps.max_time)
        return time, batch, time * self.depth, batch * self.depth


def both_directions(
    op: BoundOperation, steps: Steps, linking: Linking, sizes: tuple[int, int], merged: bool
) -> tuple[Place, Place]:
    """Return the places of the forward and backward cell of a bidirectional operation.

    `sizes`: elements that either gives per step; merged, they lie side by side in one output.
    """
    source = op.input("input")
    auxiliary = () if linking == Linking.NONE else (op.input("aux_input"),)
    inputs = (source, *auxiliary) if linking == Linking.CROSS else (source,)
    backward_inputs = auxiliary if linking == Linking.PARALLEL else inputs
    sequences, states = op.outputs[: 2 - merged], op.outputs[2 - merged :]
    half = len(states) // 2
    depths = (sum(sizes), sum(sizes)) if merged else sizes
    offset = sizes[0] if merged else 0
    return (
        Place(steps, inputs, sequences[0], depths[0], 0, states[:half]),
        Place(steps, backward_inputs, sequences[-1], depths[1], offset, states[half:], backward=True),
    )


def padded(units: int) -> int:
    """Return the units of a row: whole vectors."""
    return round_up(units, LANES)


def lanes(device: DeviceProfile) -> int:
    """Return the units that a work-item takes at once."""
    return LANES if device.is_cpu else 1


def spread(units: int, rows: int, device: DeviceProfile) -> tuple[WorkSize, WorkSize]:
    """Return (global, local) for work-items over the padded units of `rows` rows."""
    group = group_size(device)
    return (round_up(units // lanes(device), group), rows), (group, 1)


def split(units: int, rows: int, device: DeviceProfile) -> tuple[WorkSize, WorkSize]:
    """Return (global, local) for work-items that share the padded units of each row: on CPUs few long runs."""
    if not device.is_cpu:
        return spread(units, rows, device)
    return (min(units // LANES, device.compute_units * _ITEMS_PER_CORE), rows), (1, 1)


def fits_one_group(recurrent_weights: int) -> bool:
    """Whether a group that runs through all steps alone beats launches for each step that spread over the device."""
    return recurrent_weights <= _MOST_WEIGHTS_OF_ONE_GROUP


def stacked_matrices(matrices: Sequence[BoundOperand], device: DeviceProfile) -> Rows:
    """Return matrices [units, depth] as one [depth, matrices, padded units]."""
    units, depth = matrices[0].dimensions
    stride = len(matrices) * padded(units)
    if all(matrix.is_constant for matrix in matrices):
        packed = np.zeros((depth, len(matrices), padded(units)), dtype_of(matrices[0].type))
        for at, matrix in enumerate(matrices):
            packed[:, at, :units] = matrix.data.reshape(units, depth).T
        return Rows(Packed(packed), ())
    memory, before = _zeros(matrices[0], depth * stride, device)
    copies = (
        strided_copy((depth, units), Side(one, (1, depth)), Side(memory, (stride, 1), at * padded(units)), device)
        for at, one in enumerate(matrices)
    )
    return Rows(memory, (before, *copies))


def stacked_vectors(vectors: Sequence[BoundOperand], device: DeviceProfile) -> Rows:
    """Return vectors [units] as [vectors, padded units]."""
    (units,) = vectors[0].dimensions
    if all(vector.is_constant for vector in vectors):
        packed = np.zeros((len(vectors), padded(units)), dtype_of(vectors[0].type))
        for at, vector in enumerate(vectors):
            packed[at, :units] = vector.data
        return Rows(Packed(packed), ())
    memory, before = _zeros(vectors[0], len(vectors) * padded(units), device)
    copies = (
        strided_copy((units,), Side(one, (1,)), Side(memory, (1,), at * padded(units)), device)
        for at, one in enumerate(vectors)
    )
    return Rows(memory, (before, *copies))


def input_products(
    sources: Sequence[tuple[BoundOperand, Rows]], rows: int, columns: int, device: DeviceProfile
) -> tuple[Scratch, tuple[Launch, ...]]:
    """Return memory float [rows, columns] and the launches that sum each source [rows, depth] times its weights."""
    sums = Scratch(rows * columns * FLOAT_BYTES)
    launches: list[Launch] = []
    kernel, size = "project_inputs", spread(columns, -(-rows // _ITEM_ROWS), device)
    if rows < _ITEM_ROWS:
        kernel, size = "project_few", split(columns, rows, device)
    for at, (source, weights) in enumerate(sources):
        depth = source.count // rows
        launches += weights.launches
        launches.append(
            Launch(
                Kernel("recurrent.cl", kernel, typed_group(source, device)),
                (source, weights.memory, sums, *map(int32, (rows, depth, columns, at > 0))),
                *size,
                flops=2 * rows * depth * columns,
                bytes_moved=source.size_bytes + depth * columns * dtype_of(source.type).itemsize + sums.size_bytes,
            )
        )
    return sums, tuple(launches)


def _zeros(like: BoundOperand, count: int, device: DeviceProfile) -> tuple[Scratch, Launch]:
    dtype = dtype_of(like.type)
    memory = Scratch(count * dtype.itemsize)
    return memory, fill_memory(memory, count, 0, dtype, device)
