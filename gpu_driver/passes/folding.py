# SPDX-License-Identifier: Apache-2.0
"""What operations take over from those beside them, whatever the sizes.

Those with a fuse code, weights and a bias from the operation after them, through reshapes, too; a SOFTMAX from the one
before it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gpu_driver.passes.graph import RESHAPES
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
_WEIGHTS, _BIAS = 1, 2
"""Their places."""
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
_MOVING = RESHAPES | {OperationCode.SLICE, OperationCode.TRANSPOSE}
_BOTH = {
    **{(FuseCode.NONE, code): code for code in _ACTIVATIONS.values()},
    **{(code, code): code for code in _ACTIVATIONS.values()},
    (FuseCode.RELU, FuseCode.RELU6): FuseCode.RELU6,
    (FuseCode.RELU6, FuseCode.RELU): FuseCode.RELU6,
}
"""Two activations one after the other as one, where there is one."""


def fold_neighbours(graph: Graph) -> None:
    """Let operations take over constants and activations behind them, a SOFTMAX what scales its input."""
    takes = (_take_constant, _take_activation, _take_factor)
    for at in list(graph.operations):
        while at in graph.operations and any(take(graph, at) for take in takes):
            pass


def _take_activation(graph: Graph, at: int) -> bool:
    operation = graph.operations[at]
    if operation.type not in _WITH_ACTIVATION:
        return False
    following, reshapes = graph.reader_behind_reshapes(operation.outputs[0])
    if following is None or graph.operations[following].type not in _ACTIVATIONS:
        return False
    before, after = graph.operand(operation.outputs[0]), graph.operand(graph.operations[following].outputs[0])
    if (before.type, before.scale, before.zero_point) != (after.type, after.scale, after.zero_point):
        return False
    own = _fuse_code(graph, at)
    code = None if own is None else _BOTH.get((own, _ACTIVATIONS[OperationCode(graph.operations[following].type)]))
    if code is None:
        return False
    place = graph.view(at).position("activation")
    activation = graph.add_constant(np.array(code, np.int32), operation.inputs[place])
    _take_over(graph, at, reshapes, following, {place: activation})
    return True


def _take_constant(graph: Graph, at: int) -> bool:
    """Take over an ADD or MUL of constants, one for each channel or for all: the last bits of a float differ."""
    operation = graph.operations[at]
    if operation.type not in _WITH_BIAS or graph.operand(operation.outputs[0]).type != OperandCode.TENSOR_FLOAT32:
        return False
    following, reshapes = graph.reader_behind_reshapes(operation.outputs[0])
    if following is None or graph.operations[following].type not in (OperationCode.ADD, OperationCode.MUL):
        return False
    places = (at, *reshapes, following)
    if _fuse_code(graph, at) != FuseCode.NONE or not _has_channels_last(graph, at) or not all(map(graph.fits, places)):
        return False
    before, behind, after = (graph.operand(graph.operations[i].outputs[0]) for i in (at, places[-2], following))
    numbers = graph.constant_beside(following, graph.operations[places[-2]].outputs[0])
    bias = graph.constant(operation.inputs[_BIAS])
    if numbers is None or bias is None or behind.dimensions != after.dimensions:
        return False
    by_channel = numbers.shape[-1:] == (numbers.size,) == bias.shape and before.dimensions[-1] == after.dimensions[-1]
    if not (numbers.size == 1 or by_channel):
        return False
    flat = numbers.reshape(-1).astype(np.float64)
    changed = _with_constant(graph, at, bias, graph.operations[following].type, flat)
    if changed is None:
        return False
    changed[graph.view(at).position("activation")] = graph.operations[following].inputs[2]
    _take_over(graph, at, reshapes, following, changed)
    return True


def _with_constant(graph: Graph, at: int, bias: Array, code: int, numbers: Array) -> dict[int, int] | None:
    """Return the weights and bias of an operation whose output has numbers added or is multiplied by them.

    None where the weights are wanted and no constants, or float32 does not hold the results.
    """
    operation = graph.operations[at]
    weights = graph.constant(operation.inputs[_WEIGHTS])
    with np.errstate(invalid="ignore"):  # infinities among the constants
        if code == OperationCode.ADD:
            wanted = {_BIAS: bias + numbers}
        elif weights is None:
            return None
        else:
            last = operation.type == OperationCode.DEPTHWISE_CONV_2D  # the others have output channels first
            factors = numbers if last else numbers.reshape(-1, *[1] * (weights.ndim - 1))
            wanted = {_WEIGHTS: weights * factors, _BIAS: bias * numbers}
    if not all(map(_fits_float32, wanted.values())):
        return None
    return {place: graph.add_constant(one.astype(np.float32), operation.inputs[place]) for place, one in wanted.items()}


def _fits_float32(values: Array) -> bool:
    """Whether all numbers are 0 or normal ones as float32."""
    sizes, limits = np.abs(values), np.finfo(np.float32)
    return bool(((sizes == 0) | ((sizes >= limits.tiny) & (sizes <= limits.max))).all())


def _take_over(graph: Graph, at: int, reshapes: list[int], following: int, changed: dict[int, int]) -> None:
    """Give an operation other inputs at places; what it did is left out, and reshapes between write its output."""
    operation = graph.operations[at]
    outputs = graph.operations[following].outputs
    inputs = tuple(changed.get(place, i) for place, i in enumerate(operation.inputs))
    if reshapes:
        graph.replace(at, replace(operation, inputs=inputs), (following,))
        graph.replace(reshapes[-1], replace(graph.operations[reshapes[-1]], outputs=outputs))
    else:
        graph.replace(at, replace(operation, inputs=inputs, outputs=outputs), (following,))


def _take_factor(graph: Graph, at: int) -> bool:
    """Let a SOFTMAX take over a number that its input is multiplied with or divided by: exponents round differently.

    As in attention, that may be done before products of matrices, and before what only moves elements.
    """
    operation = graph.operations[at]
    if operation.type != OperationCode.SOFTMAX or graph.operand(operation.inputs[0]).type != OperandCode.TENSOR_FLOAT32:
        return False
    place = graph.view(at).position("beta")
    beta, before = graph.constant(operation.inputs[place]), _scaling_before(graph, operation.inputs[0], at)
    scaling = None if before is None else _scaling(graph, before)
    if beta is None or before is None or scaling is None:
        return False
    source, factor = scaling
    with np.errstate(over="ignore", invalid="ignore"):
        total = (beta.astype(np.float64) * factor).astype(np.float32)
    if not (np.isfinite(total) and total > 0):
        return False
    graph.read_instead(graph.operations[before].outputs[0], source)
    inputs = list(graph.operations[at].inputs)
    inputs[place] = graph.add_constant(total, operation.inputs[place])
    graph.replace(at, replace(operation, inputs=tuple(inputs)), (before,))
    return True


def _scaling_before(graph: Graph, operand: int, reader: int) -> int | None:
    """Return what scales an operand by a positive number, for an operation alone, maybe before others."""
    waiting = [(operand, reader)]
    while waiting:
        operand, reader = waiting.pop()
        at = graph.producer(operand)
        is_read_once = graph.sole_reader(operand) == reader and graph.operations[reader].inputs.count(operand) == 1
        if at is None or not is_read_once or not graph.fits(at):
            continue
        operation = graph.operations[at]
        if operation.type in _SCALING:
            source, factor = _scaling(graph, at) or (operand, 0.0)
            same = graph.operand(source).dimensions == graph.operand(operand).dimensions
            if factor > 0 and same and _fuse_code(graph, at) == FuseCode.NONE:
                return at
            continue
        factors = 2 if operation.type == OperationCode.BATCH_MATMUL else int(operation.type in _MOVING)
        waiting += [(one, at) for one in operation.inputs[:factors]]
    return None


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


def _has_channels_last(graph: Graph, at: int) -> bool:
    """Whether an operation's output has its channels last, as the model tells."""
    op = graph.view(at)
    try:
        return op.position("layout") < 0 or not op.bool_value("layout")
    except BadData:
        return False


def _fuse_code(graph: Graph, at: int) -> FuseCode | None:
    """Return an operation's activation where the model tells it."""
    try:
        return graph.view(at).fuse_code()
    except BadData:
        return None
