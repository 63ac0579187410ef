# SPDX-License-Identifier: Apache-2.0
"""FULLY_CONNECTED: one matrix product."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.kept import kept
from cpu_driver.operations import computes
from cpu_driver.operations.products import centred, centred_bound, clamp_activation, exact_depth, product
from nn_runtime.codes import OperationCode
from nn_runtime.operand import QUANT8_TYPES, dtype_of
from nn_runtime.operations.fully_connected import fully_connected_sizes
from nn_runtime.quantization import convolution_multipliers
from nn_runtime.requantization import Requantization
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView


@dataclass(frozen=True)
class _Weights:
    """What an operation makes of its constants: real weights [num_units, input_size], and the end of 8-bit sums."""

    matrix: Array
    depth_limit: int
    requantize: Requantization | None


@computes(OperationCode.FULLY_CONNECTED)
def fully_connected(op: OperationView) -> tuple[Array, ...]:
    """Return input @ weights transposed + bias with activation; 8-bit sums are exact and rounded once."""
    sizes, weights = kept(op, fully_connected_sizes), kept(op, _weights, sized=False)
    rows = op.array("input").reshape(sizes.batches, sizes.input_size)
    if weights.requantize is not None:
        return (weights.requantize(product(centred(rows, op.input("input")), weights.matrix, weights.depth_limit)),)
    result = rows.astype(np.float32, copy=False) @ weights.matrix.T
    result += op.array("bias").astype(np.float32, copy=False)
    clamp_activation(result, sizes.activation)
    return (result.astype(dtype_of(op.outputs[0].type), copy=False),)


def _weights(op: OperationView) -> _Weights:
    matrix, bias = op.array("weights"), op.array("bias")
    if op.data_type not in QUANT8_TYPES:
        return _Weights(matrix.astype(np.float32, copy=False), matrix.shape[1], None)
    source, weights, output = op.input("input"), op.input("weights"), op.outputs[0]
    matrix = centred(matrix, weights)
    depth_limit = exact_depth(centred_bound(source), matrix, centred_bound(weights))
    multipliers = convolution_multipliers(source, weights, output)
    return _Weights(matrix, depth_limit, Requantization(bias, multipliers, output, op.fuse_code(), once=True))
