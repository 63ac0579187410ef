# SPDX-License-Identifier: Apache-2.0
"""Small steps that operations over sequences share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.operand import dtype_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView
    from nn_runtime.operations.sequence import Steps


def real(op: OperationView, name: str) -> Array:
    """Return an input in float32."""
    return op.array(name).astype(np.float32, copy=False)


def time_first(op: OperationView, name: str, steps: Steps) -> Array:
    """Return a sequence input in float32 as [max_time, batches, size]."""
    return real(op, name) if steps.time_major else real(op, name).swapaxes(0, 1)


def time_second(outputs: Array, steps: Steps) -> Array:
    """Return outputs [max_time, batches, size] in the operation's layout."""
    return outputs if steps.time_major else outputs.swapaxes(0, 1)


def both_directions(forward: Array, backward: Array, steps: Steps, merge: bool) -> tuple[Array, ...]:
    """Return the outputs [max_time, batches, size] of both directions in the operation's layout, merged or not."""
    if merge:
        return (time_second(np.concatenate((forward, backward), axis=-1), steps),)
    return time_second(forward, steps), time_second(backward, steps)


def narrowed(op: OperationView, results: Sequence[Array]) -> tuple[Array, ...]:
    """Return as many results as the operation has outputs, in the data type."""
    dtype = dtype_of(op.data_type)
    return tuple(result.astype(dtype, copy=False) for result in results[: len(op.outputs)])
