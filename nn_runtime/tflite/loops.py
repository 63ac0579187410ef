# SPDX-License-Identifier: Apache-2.0
"""How often a WHILE goes round, where that is known at conversion: a count of steps that starts at a constant.

Recurrent layers are such loops. Unrolled they are operations like any, which devices put together.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from nn_runtime.tflite.builtin_operator import BuiltinOperator

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nn_runtime.tflite.types import TfliteModel, TfliteSubgraph

Number: TypeAlias = "int | bool | None"
"""None: not known."""

_FUNCTIONS: Mapping[int, Callable[..., int | bool]] = {
    BuiltinOperator.ADD: operator.add,
    BuiltinOperator.SUB: operator.sub,
    BuiltinOperator.MUL: operator.mul,
    BuiltinOperator.LESS: operator.lt,
    BuiltinOperator.LESS_EQUAL: operator.le,
    BuiltinOperator.GREATER: operator.gt,
    BuiltinOperator.GREATER_EQUAL: operator.ge,
    BuiltinOperator.EQUAL: operator.eq,
    BuiltinOperator.NOT_EQUAL: operator.ne,
    BuiltinOperator.LOGICAL_AND: operator.and_,
    BuiltinOperator.LOGICAL_OR: operator.or_,
    BuiltinOperator.LOGICAL_NOT: operator.not_,
}
_RESHAPING = frozenset({BuiltinOperator.RESHAPE, BuiltinOperator.EXPAND_DIMS, BuiltinOperator.SQUEEZE})


def rounds_of(model: TfliteModel, condition: int, body: int, start: Sequence[Number], most: int) -> int | None:
    """Return how often a loop goes round from these values on; None where only the run knows, or for more than `most`.

    condition, body: subgraphs. start: a number for each argument that is one integer or boolean and known.
    """
    values = list(start)
    for rounds in range(most + 1):
        (goes_on,) = _outputs(model.subgraphs[condition], values)[:1] or [None]
        if goes_on is None:
            return None
        if not goes_on:
            return rounds
        values = _outputs(model.subgraphs[body], values)
    return None


def _outputs(subgraph: TfliteSubgraph, arguments: Sequence[Number]) -> list[Number]:
    """Return what is known of a subgraph's outputs."""
    known: dict[int, Number] = dict(zip(subgraph.inputs, arguments, strict=False))

    def value(index: int) -> Number:
        if index < 0 or index in known:
            return known.get(index)
        data = subgraph.tensors[index].data
        if data is None or data.size != 1 or data.dtype.kind not in "ib" or subgraph.tensors[index].quantization:
            return None
        number: Number = data.reshape(-1)[0].item()
        return number

    for step in subgraph.operators:
        inputs = [value(index) for index in step.inputs]
        made: Number = None
        if step.code in _RESHAPING and inputs:
            made = inputs[0]
        elif None not in inputs and not step.options.get("fused_activation_function"):
            made = _computed(step.code, inputs)
        known.update(dict.fromkeys(step.outputs, made))
    return [value(index) for index in subgraph.outputs]


def _computed(code: int, inputs: Sequence[Number]) -> Number:
    """Return what an operator makes of numbers, None for another operator, and for what 32 bits do not hold."""
    function = _FUNCTIONS.get(code)
    if function is None or len(inputs) != (1 if code == BuiltinOperator.LOGICAL_NOT else 2):
        return None
    made, info = function(*inputs), np.iinfo(np.int32)
    return made if info.min <= made <= info.max else None
