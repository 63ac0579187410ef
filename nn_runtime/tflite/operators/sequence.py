# SPDX-License-Identifier: Apache-2.0
"""What recurrent operators share: steps of a sequence, states that live between runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import OperationCode
from nn_runtime.tflite.operators.concatenation import split_evenly
from nn_runtime.tflite.values import int32, int32_vector

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nn_runtime.tflite.operator import Operator
    from nn_runtime.tflite.values import Value

MAX_STEPS = 4096


def steps_of(op: Operator, source: Value) -> list[Value]:
    """Return the steps [batches, size] of a sequence [batches, time, size], or [time, batches, size] if time-major."""
    rows = source if op.option("time_major") else _swapped(op, source)
    time, batches, size = rows.shape or (0, 0, 0)
    if time > MAX_STEPS:
        op.fail(f"at most {MAX_STEPS} time steps are supported, got {time}")
    rows = op.reshape(rows, (time * batches, size))
    return [rows] if time == 1 else split_evenly(op, rows, 0, time)


def sequence_of(op: Operator, steps: Sequence[Value]) -> Value:
    """Return the sequence of steps [batches, size]: the inverse of `steps_of`."""
    batches, size = steps[0].shape or (0, 0)
    rows = steps[0]
    if len(steps) > 1:
        rows = op.emit(OperationCode.CONCATENATION, [*steps, int32(0)], steps[0])
    sequence = op.reshape(rows, (len(steps), batches, size))
    return sequence if op.option("time_major") else _swapped(op, sequence)


def _swapped(op: Operator, sequence: Value) -> Value:
    """Return a sequence with its first two axes swapped."""
    first, second, size = sequence.shape or (0, 0, 0)
    if 1 in (first, second):
        return op.reshape(sequence, (second, first, size))
    return op.emit(OperationCode.TRANSPOSE, [sequence, int32_vector([1, 0, 2])], sequence)


def set_variables(op: Operator, states: Mapping[int, Value]) -> None:
    """Give variable tensors, by input position, their next values."""
    for position, state in states.items():
        op.set_variable(position, state)


def check_directions(op: Operator) -> None:
    """Require an output for each direction, one if they are merged."""
    op.check_output_count(1 if op.option("merge_outputs") else 2)


def bidirectional(op: Operator, code: OperationCode, inputs: Sequence[Value], states: Mapping[int, Value]) -> None:
    """Emit a bidirectional operation whose states are variable tensors, by input position."""
    outputs = [op.prototype(position) for position in range(op.output_count)]
    results = op.emit_many(code, inputs, [*outputs, *states.values()])
    for position in range(len(outputs)):
        op.result(results[position], position)
    set_variables(op, dict(zip(states, results[len(outputs) :], strict=True)))
