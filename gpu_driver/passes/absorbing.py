# SPDX-License-Identifier: Apache-2.0
"""What operations take over from those beside them, whatever the sizes.

Those with a fuse code and a bias from the operation after them, a SOFTMAX from the one before it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.errors import BadData

if TYPE_CHECKING:
    from gpu_driver.passes.graph import Graph
    from nn_runtime.operand import Array

_WITH_BIAS = frozenset(
    {
        OperationCode.CONV_2D,
        OperationCode.DEPTHWISE_CONV_2D,
        OperationCode.FULLY_CONNECTED,
        OperationCode.GROUPED_CONV_2D,
        OperationCode.TRANSPOSE_CONV_2D,
    }
)
_WITH_ACTIVATION = _WITH_BIAS | {
    OperationCode.ADD,
    OperationCode.AVERAGE_POOL_2D,
    OperationCode.DIV,
    OperationCode.L2_POOL_2D,
    OperationCode.MAX_POOL_2D,
    OperationCode.MUL,
    OperationCode.SUB,
}
_ACTIVATIONS = {
    OperationCode.RELU: FuseCode.RELU,
    OperationCode.RELU1: FuseCode.RELU1,
    OperationCode.RELU6: FuseCode.RELU6,
}
_SCALING = frozenset({OperationCode.MUL, OperationCode.DIV})
_BOTH = {
    **{(FuseCode.NONE, code): code for code in _ACTIVATIONS.values()},
    **{(code, code): code for code in _ACTIVATIONS.values()},
    (FuseCode.RELU, FuseCode.RELU6): FuseCode.RELU6,
    (FuseCode.RELU6, FuseCode.RELU): FuseCode.RELU6,
}
"""Two activations one after the other as one, where there is one."""


def absorb(graph: Graph) -> None:
    """Let operations take over added constants and activations behind them, a SOFTMAX what scales its input."""
    takes = (_take_bias, _take_activation, _take_factor)
    for at in list(graph.operations):
        while at in graph.operations and any(take(graph, at) for take in takes):
            pass


def _take_activation(graph: Graph, at: int) -> bool:
    operation = graph.operations[at]
    if operation.type not in _WITH_ACTIVATION:
        return False
    following = graph.sole_reader(operation.outputs[0])
    if following is None or graph.operations[following].type not in _ACTIVATIONS:
        return False
    (output,) = graph.operations[following].outputs
    before, after = graph.operand(operation.outputs[0]), graph.operand(output)
    if (before.type, before.scale, before.zero_point) != (after.type, after.scale, after.zero_point):
        return False
    own = _fuse_code(graph, at)
    code = None if own is None else _BOTH.get((own, _ACTIVATIONS[OperationCode(graph.operations[following].type)]))
    if code is None:
        return False
    place = graph.view(at).position("activation")
    activation = graph.add_constant(np.array(code, np.int32), operation.inputs[place])
    inputs = (*operation.inputs[:place], activation, *operation.inputs[place + 1 :])
    graph.replace(at, replace(operation, inputs=inputs, outputs=(output,)), (following,))
    return True


def _take_bias(graph: Graph, at: int) -> bool:
    """Take over an ADD of constants, one for each channel or for all: sums differ in the last bit of a float."""
    operation = graph.operations[at]
    if operation.type not in _WITH_BIAS or graph.operand(operation.outputs[0]).type != OperandCode.TENSOR_FLOAT32:
        return False
    following = graph.sole_reader(operation.outputs[0])
    if following is None or graph.operations[following].type != OperationCode.ADD:
        return False
    if _fuse_code(graph, at) != FuseCode.NONE or not (graph.fits(at) and graph.fits(following)):
        return False
    op = graph.view(at)
    bias = graph.constant(operation.inputs[op.position("bias")])
    addition = graph.operations[following]
    addend = _addend(graph, following, operation.outputs[0])
    if bias is None or addend is None or _is_nchw(graph, at):
        return False
    before, after = (graph.operand(one.outputs[0]).dimensions for one in (operation, addition))
    if before != after or addend.size not in (1, bias.size) or (addend.ndim and addend.shape[-1] != addend.size):
        return False
    total = (bias.astype(np.float64) + addend.reshape(-1)).astype(np.float32)
    changed = {
        op.position("bias"): graph.add_constant(total, operation.inputs[op.position("bias")]),
        op.position("activation"): addition.inputs[2],
    }
    inputs = tuple(changed.get(place, i) for place, i in enumerate(operation.inputs))
    graph.replace(at, replace(operation, inputs=inputs, outputs=addition.outputs), (following,))
    return True


def _take_factor(graph: Graph, at: int) -> bool:
    """Let a SOFTMAX take over a number that its input is multiplied with or divided by: exponents round differently."""
    operation = graph.operations[at]
    if operation.type != OperationCode.SOFTMAX or graph.operand(operation.inputs[0]).type != OperandCode.TENSOR_FLOAT32:
        return False
    scaled, before = operation.inputs[0], graph.producer(operation.inputs[0])
    if before is None or graph.sole_reader(scaled) != at or graph.operations[before].type not in _SCALING:
        return False
    place = graph.view(at).position("beta")
    beta, scaling = graph.constant(operation.inputs[place]), _scaling(graph, before)
    if beta is None or scaling is None or _fuse_code(graph, before) != FuseCode.NONE or not graph.fits(before):
        return False
    source, factor = scaling
    with np.errstate(over="ignore", invalid="ignore"):
        total = (beta.astype(np.float64) * factor).astype(np.float32)
    same = graph.operand(source).dimensions == graph.operand(scaled).dimensions
    if not (same and np.isfinite(total) and total > 0):
        return False
    changed = {0: source, place: graph.add_constant(total, operation.inputs[place])}
    inputs = tuple(changed.get(number, i) for number, i in enumerate(operation.inputs))
    graph.replace(at, replace(operation, inputs=inputs), (before,))
    return True


def _scaling(graph: Graph, at: int) -> tuple[int, float] | None:
    """Return the operand that a MUL or DIV scales by a number, and that number."""
    operation = graph.operations[at]
    first, second = operation.inputs[:2]
    divides = operation.type == OperationCode.DIV
    for source, other in ((first, second), (second, first))[: 1 if divides else 2]:
        number = graph.constant(other)
        if number is not None and number.size == 1 and number.any():
            value = float(number.reshape(-1)[0])
            return source, 1 / value if divides else value
    return None


def _addend(graph: Graph, addition: int, operand: int) -> Array | None:
    """Return the constant that an ADD adds to an operand."""
    others = [i for i in graph.operations[addition].inputs[:2] if i != operand]
    return graph.constant(others[0]) if len(others) == 1 else None


def _is_nchw(graph: Graph, at: int) -> bool:
    op = graph.view(at)
    return op.position("layout") >= 0 and op.bool_value("layout")


def _fuse_code(graph: Graph, at: int) -> FuseCode | None:
    """Return an operation's activation where the model tells it."""
    try:
        return graph.view(at).fuse_code()
    except BadData:
        return None
