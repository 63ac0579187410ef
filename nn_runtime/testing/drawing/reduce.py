# SPDX-License-Identifier: Apache-2.0
"""Reductions, ARGMAX and ARGMIN, TOPK_V2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.operand import element_count
from nn_runtime.testing.drawing import Drawn, Result, draws
from nn_runtime.testing.tolerances import RELAXED, STRICT

if TYPE_CHECKING:
    from nn_runtime.testing.drawing import Drawing, Value

_FACTORS = (0.5, 1.5)
_MOST_FACTORS = 12


def _reduced(d: Drawing, source: Value, axes: list[int]) -> Drawn:
    rank = len(source.dimensions)
    given = [axis - rank if d.chance(0.3) else axis for axis in axes]
    keep: bool | int = d.chance()
    if d.code == OperationCode.MEAN:
        keep = int(keep)
    return Drawn({"input": source, "axes": d.constant(given), "keep_dims": keep}, (d.same(source),))


def _axes(d: Drawing, source: Value) -> list[int]:
    rank = len(source.dimensions)
    return [int(axis) for axis in d.rng.permutation(rank)[: d.integer(1, rank)]]


@draws(OperationCode.MEAN, OperationCode.REDUCE_SUM, criterion=RELAXED)
def _sum(d: Drawing) -> Drawn:
    source = d.tensor()
    return _reduced(d, source, _axes(d, source))


@draws(OperationCode.REDUCE_PROD, criterion=RELAXED)
def _prod(d: Drawing) -> Drawn:
    source = d.tensor(span=_FACTORS, within=(-1.5, 1.5))
    axes = _axes(d, source)
    if element_count(tuple(source.dimensions[axis] for axis in axes)) > _MOST_FACTORS:
        axes = [min(range(len(source.dimensions)), key=lambda axis: source.dimensions[axis])]
    return _reduced(d, source, axes)


@draws(
    OperationCode.REDUCE_MAX, OperationCode.REDUCE_MIN, OperationCode.REDUCE_ALL, OperationCode.REDUCE_ANY,
    criterion=STRICT, exact=True,
)  # fmt: skip
def _extreme(d: Drawing) -> Drawn:
    source = d.tensor()
    return _reduced(d, source, _axes(d, source))


@draws(OperationCode.ARGMAX, OperationCode.ARGMIN, criterion=STRICT, exact=True)
def _arg(d: Drawing) -> Drawn:
    # A difference of rounding must not decide which is greatest.
    source = d.tensor(span=(-100.0, 100.0) if d.data_type == OperandCode.TENSOR_INT32 else (-2.0, 2.0), exact=True)
    rank = len(source.dimensions)
    axis = int(d.rng.integers(-rank, rank))
    return Drawn({"input": source, "axis": axis}, (Result(OperandCode.TENSOR_INT32),))


@draws(OperationCode.TOPK_V2, criterion=STRICT, exact=True)
def _topk(d: Drawing) -> Drawn:
    source = d.tensor(exact=True)
    outputs = (d.same(source), Result(OperandCode.TENSOR_INT32))
    return Drawn({"input": source, "k": d.integer(1, source.dimensions[-1])}, outputs)
