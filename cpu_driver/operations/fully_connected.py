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
    from nn_runtime.operations.fully_connected import FullyConnected


@dataclass(frozen=True)
class _Layer:
    """A matrix product made ready: real weights [num_units, input_size], and the end of 8-bit sums."""

    sizes: FullyConnected
    weights: Array
    depth_limit: int
    requantize: Requantization | None


@computes(OperationCode.FULLY_CONNECTED)
def fully_connected(op: OperationView) -> tuple[Array, ...]:
    """Return input @ weights transposed + bias with activation; 8-bit sums are exact and rounded once."""
    layer = kept(op, _layer)
    rows = op.array("input").reshape(layer.sizes.batches, layer.sizes.input_size)
    if layer.requantize is not None:
        return (layer.requantize(product(centred(rows, op.input("input")), layer.weights, layer.depth_limit)),)
    result = rows.astype(np.float32, copy=False) @ layer.weights.T
    result += op.array("bias").astype(np.float32, copy=False)
    clamp_activation(result, layer.sizes.activation)
    return (result.astype(dtype_of(op.outputs[0].type), copy=False),)


def _layer(op: OperationView) -> _Layer:
    sizes, matrix = fully_connected_sizes(op), op.array("weights")
    if op.data_type not in QUANT8_TYPES:
        return _Layer(sizes, matrix.astype(np.float32, copy=False), sizes.input_size, None)
    source, weights, output = op.input("input"), op.input("weights"), op.outputs[0]
    matrix = centred(matrix, weights)
    depth_limit = exact_depth(centred_bound(source), matrix, centred_bound(weights))
    multipliers = convolution_multipliers(source, weights, output)
    end = Requantization(op.array("bias"), multipliers, output, sizes.activation, once=True)
    return _Layer(sizes, matrix, depth_limit, end)
