# SPDX-License-Identifier: Apache-2.0
"""FULLY_CONNECTED by weights that other operations make: the product of matrices that it is.

As attention with one head comes out of PyTorch's exporter. Launchers of FULLY_CONNECTED count on packing weights once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.hal.types import Operation
from nn_runtime.operations.fully_connected import fully_connected_sizes

if TYPE_CHECKING:
    from gpu_driver.passes.graph import Graph


def multiply_computed_weights(graph: Graph) -> None:
    """Rewrite FULLY_CONNECTED of real numbers by weights that are no constants. What looks for readers comes before."""
    for at, operation in list(graph.operations.items()):
        if operation.type == OperationCode.FULLY_CONNECTED and graph.fits(at):
            weights = operation.inputs[1]
            if graph.operand(weights).type == OperandCode.TENSOR_FLOAT32 and not graph.is_constant(weights):
                _multiply(graph, at)


def _multiply(graph: Graph, at: int) -> None:
    view, operation = graph.view(at), graph.operations[at]
    sizes = fully_connected_sizes(view)
    rows, weights, bias, _activation = operation.inputs
    (output,) = operation.outputs
    steps = []
    if graph.operand(rows).dimensions != (sizes.batches, sizes.input_size):
        reshaped = graph.add_temporary(rows, (sizes.batches, sizes.input_size))
        shape = graph.add_numbers((sizes.batches, sizes.input_size))
        steps.append(Operation(OperationCode.RESHAPE, (rows, shape), (reshaped,)))
        rows = reshaped
    numbers = graph.constant(bias)
    is_whole = numbers is not None and not numbers.any() and sizes.activation == FuseCode.NONE
    product = output if is_whole else graph.add_temporary(output, graph.operand(output).dimensions)
    operands = rows, weights, graph.add_scalar(False), graph.add_scalar(True)
    steps.append(Operation(OperationCode.BATCH_MATMUL, operands, (product,)))
    if not is_whole:
        activation = graph.add_scalar(int(sizes.activation))
        steps.append(Operation(OperationCode.ADD, (product, bias, activation), (output,)))
    graph.split(at, steps)
