# SPDX-License-Identifier: Apache-2.0
"""Sums and means of dequantised bytes, as networks with 8-bit SUM have them: of the bytes, scaled at the end."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.operand import QUANT8_TYPES

if TYPE_CHECKING:
    from gpu_driver.passes.graph import Graph

MOST_TERMS = 1 << 23
"""So many bytes, less their zero point, sum up within 32 bits."""


def sum_bytes(graph: Graph) -> None:
    """Let MEAN and REDUCE_SUM do what the DEQUANTIZE before them does, where nobody else reads what that makes.

    A sum becomes a MEAN, which NNAPI has of bytes, that is not divided.
    """
    for at, operation in list(graph.operations.items()):
        if operation.type not in (OperationCode.MEAN, OperationCode.REDUCE_SUM):
            continue
        real = operation.inputs[0]
        before = graph.producer(real)
        if before is None or graph.operations[before].type != OperationCode.DEQUANTIZE:
            continue
        source = graph.operations[before].inputs[0]
        if (
            graph.operand(source).type in QUANT8_TYPES
            and graph.operand(real).type == OperandCode.TENSOR_FLOAT32
            and graph.sole_reader(real) == at
            and graph.is_known(source)
            and math.prod(graph.operand(source).dimensions) <= MOST_TERMS
        ):
            _take_dequantize(graph, at, before)


def _take_dequantize(graph: Graph, at: int, before: int) -> None:
    operation, (source, *_) = graph.operations[at], graph.operations[before].inputs
    _, axes, keeps = operation.inputs
    if operation.type == OperationCode.REDUCE_SUM:
        flag = graph.constant(keeps)
        if flag is None:
            return
        keeps = graph.add_scalar(int(flag.reshape(-1)[0]))
        graph.leave_undivided(at)
    inputs = source, axes, keeps
    graph.replace(at, replace(operation, type=OperationCode.MEAN, inputs=inputs), (before,))
