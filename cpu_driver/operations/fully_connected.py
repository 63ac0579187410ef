# SPDX-License-Identifier: Apache-2.0
"""FULLY_CONNECTED: one matrix product."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.operations import computes
from cpu_driver.operations.products import centred, centred_bound, clamp_activation, exact_depth, product
from nn_runtime.codes import OperationCode
from nn_runtime.operand import QUANT8_TYPES, dtype_of
from nn_runtime.operations.fully_connected import fully_connected_sizes
from nn_runtime.quantization import convolution_multipliers, requantize

if TYPE_CHECKING:
    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView


@computes(OperationCode.FULLY_CONNECTED)
def fully_connected(op: OperationView) -> tuple[Array, ...]:
    """Return input @ weights transposed + bias with activation; 8-bit sums are exact and rounded once."""
    sizes, output = fully_connected_sizes(op), op.outputs[0]
    rows = op.array("input").reshape(sizes.batches, sizes.input_size)
    matrix, bias = op.array("weights"), op.array("bias")
    if op.data_type not in QUANT8_TYPES:
        result = rows.astype(np.float32, copy=False) @ matrix.astype(np.float32, copy=False).T
        result += bias.astype(np.float32, copy=False)
        clamp_activation(result, sizes.activation)
        return (result.astype(dtype_of(output.type), copy=False),)
    source, weights = op.input("input"), op.input("weights")
    matrix = centred(matrix, weights)
    depth_limit = exact_depth(centred_bound(source), matrix, centred_bound(weights))
    sums = product(centred(rows, source), matrix, depth_limit)
    multipliers = convolution_multipliers(source, weights, output)
    return (requantize(sums, bias, multipliers, output, sizes.activation, once=True),)
