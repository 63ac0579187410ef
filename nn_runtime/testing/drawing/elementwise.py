# SPDX-License-Identifier: Apache-2.0
"""ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM, POW, PRELU, SELECT, comparisons and logical operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.testing.drawing import Drawn, Result, draws
from nn_runtime.testing.tolerances import MEDIUM, RELAXED, STRICT

if TYPE_CHECKING:
    from nn_runtime.testing.drawing import Drawing, Value

_INTEGERS = (-30.0, 30.0)
_DIVISOR_LEAST = 0.3


def _pair(d: Drawing, rank: tuple[int, int] = (1, 4)) -> tuple[Value, Value]:
    """Return two tensors that broadcast, in random order."""
    span = _INTEGERS if d.data_type == OperandCode.TENSOR_INT32 else (-2.0, 2.0)
    first = d.tensor(rank, span)
    second = d.tensor(span=span, dims=d.broadcast(first))
    return (first, second) if d.chance() else (second, first)


@draws(OperationCode.ADD, OperationCode.SUB, OperationCode.MUL, criterion=MEDIUM)
def _arithmetic(d: Drawing) -> Drawn:
    first, second = _pair(d)
    scale = first.scale + second.scale
    if d.code == OperationCode.MUL:
        # The specification wants more than the product of the scales.
        scale = first.scale * second.scale * d.number(4, 128)
    output = Result(d.data_type, float(np.float32(scale * d.number(0.7, 1.2))), _zero_point(d))
    return Drawn({"input0": first, "input1": second, "activation": d.activation()}, (output,))


def _zero_point(d: Drawing) -> int:
    return d.quantization((-1.0, 1.0))[1]


@draws(OperationCode.DIV, criterion=MEDIUM)
def _div(d: Drawing) -> Drawn:
    first = d.tensor()
    integers = d.data_type == OperandCode.TENSOR_INT32
    # The specification leaves x / 0 open.
    second = d.tensor(
        span=(1.0, 9.0) if integers else (_DIVISOR_LEAST, 3.0),
        dims=d.broadcast(first),
        where=lambda value: float(np.abs(value.real).min()) >= _DIVISOR_LEAST,
    )
    return Drawn({"input0": first, "input1": second, "activation": d.activation()})


@draws(OperationCode.MAXIMUM, OperationCode.MINIMUM, criterion=MEDIUM, exact=True)
def _extreme(d: Drawing) -> Drawn:
    first, second = _pair(d)
    low, high = min(first.span[0], second.span[0]), max(first.span[1], second.span[1])
    return Drawn({"input0": first, "input1": second}, (d.scaled(low, high),))


@draws(OperationCode.POW, criterion=RELAXED)
def _pow(d: Drawing) -> Drawn:
    base = d.tensor(span=(0.3, 3.0), within=(0.3, 10.0))
    exponent = d.tensor(dims=d.broadcast(base), within=(-3.0, 3.0))
    return Drawn({"base": base, "exponent": exponent})


@draws(OperationCode.PRELU, criterion=MEDIUM)
def _prelu(d: Drawing) -> Drawn:
    source = d.tensor()
    alpha = d.tensor(dims=d.broadcast(source), span=(-1.0, 1.0))
    greatest = max(map(abs, source.span))
    return Drawn({"input": source, "alpha": alpha}, (d.scaled(-greatest, greatest),))


@draws(
    OperationCode.EQUAL,
    OperationCode.NOT_EQUAL,
    OperationCode.GREATER,
    OperationCode.GREATER_EQUAL,
    OperationCode.LESS,
    OperationCode.LESS_EQUAL,
    criterion=STRICT,
    exact=True,
)
def _comparison(d: Drawing) -> Drawn:
    # A difference of rounding must not decide a comparison.
    first = d.tensor(exact=True)
    second = d.like(first, dims=d.broadcast(first))
    if not second.exact:
        d.reject()
    return Drawn({"input0": first, "input1": second}, (Result(OperandCode.TENSOR_BOOL8),))


@draws(OperationCode.LOGICAL_AND, OperationCode.LOGICAL_OR, criterion=STRICT, exact=True)
def _logical(d: Drawing) -> Drawn:
    first, second = _pair(d)
    return Drawn({"input0": first, "input1": second})


@draws(OperationCode.SELECT, criterion=STRICT, exact=True)
def _select(d: Drawing) -> Drawn:
    chosen = d.tensor()
    condition = d.tensor(code=OperandCode.TENSOR_BOOL8, dims=chosen.dimensions)
    other = d.like(chosen)
    return Drawn({"condition": condition, "input_true": chosen, "input_false": other}, (d.same(chosen),))
