# SPDX-License-Identifier: Apache-2.0
"""SVDF."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.operations import computes
from cpu_driver.operations.products import clamp_activation
from cpu_driver.operations.sequence import narrowed, real
from nn_runtime.codes import OperationCode
from nn_runtime.operations.svdf import svdf_sizes

if TYPE_CHECKING:
    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView


@computes(OperationCode.SVDF)
def svdf(op: OperationView) -> tuple[Array, ...]:
    """Return the new state, and the filters' memories reduced over time and rank, with bias and activation."""
    sizes = svdf_sizes(op)
    memory = real(op, "state_in").reshape(sizes.batches, sizes.num_filters, sizes.memory_size).copy()
    memory[..., -1] = real(op, "input") @ real(op, "weights_feature").T
    reduced = np.einsum("bfm,fm->bf", memory, real(op, "weights_time"))
    output = reduced.reshape(sizes.batches, sizes.num_units, sizes.rank).sum(axis=-1)
    if op.optional("bias") is not None:
        output += real(op, "bias")
    clamp_activation(output, sizes.activation)
    state = np.zeros_like(memory)
    state[..., :-1] = memory[..., 1:]
    return narrowed(op, (state, output))
