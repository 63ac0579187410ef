# SPDX-License-Identifier: Apache-2.0
"""SOFTMAX, LOG_SOFTMAX and the normalisations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.testing.drawing import Drawn, Result, draws
from nn_runtime.testing.tolerances import RELAXED

if TYPE_CHECKING:
    from nn_runtime.testing.drawing import Argument, Drawing, Value

_LEAST_NORM = 0.1


def _axis(d: Drawing, source: Value) -> int:
    rank = len(source.dimensions)
    return int(d.rng.integers(-rank, rank))


def _fixed(d: Drawing, scale: float, zero_point: int) -> Result:
    if not d.quantized:
        return Result(d.data_type)
    signed = d.data_type == OperandCode.TENSOR_QUANT8_ASYMM_SIGNED
    return Result(d.data_type, scale, zero_point - 128 * signed)


@draws(OperationCode.SOFTMAX, OperationCode.LOG_SOFTMAX, criterion=RELAXED)
def _softmax(d: Drawing) -> Drawn:
    source = d.tensor(within=(-20.0, 20.0))
    arguments: dict[str, Argument] = {"input": source, "beta": d.number(0.1, 2.0)}
    # Without an axis only ranks 2 and 4 were always allowed; LOG_SOFTMAX has no default.
    if d.code == OperationCode.LOG_SOFTMAX or len(source.dimensions) not in (2, 4) or d.chance():
        arguments["axis"] = _axis(d, source)
    return Drawn(arguments, (_fixed(d, 1 / 256, 0),))


@draws(OperationCode.L2_NORMALIZATION, criterion=RELAXED)
def _l2(d: Drawing) -> Drawn:
    source = d.tensor()
    axis = _axis(d, source)
    # The direction of a vector near 0 is all rounding.
    if float(np.sqrt(np.square(source.real.astype(np.float64)).sum(axis=axis)).min()) < _LEAST_NORM:
        d.reject()
    return Drawn({"input": source, "axis": axis}, (_fixed(d, 1 / 128, 128),))


@draws(OperationCode.LOCAL_RESPONSE_NORMALIZATION, criterion=RELAXED)
def _local_response(d: Drawing) -> Drawn:
    source = d.tensor()
    return Drawn(
        {
            "input": source,
            "radius": d.integer(1, 10),
            "bias": d.number(1.0, 2.0),
            "alpha": d.number(0.1, 1.0),
            "beta": d.number(0.1, 1.0),
            "axis": _axis(d, source),
        }
    )


@draws(OperationCode.INSTANCE_NORMALIZATION, criterion=RELAXED)
def _instance(d: Drawing) -> Drawn:
    source, nchw = d.tensor((4, 4)), d.chance(0.3)
    axes = (2, 3) if nchw else (1, 2)
    if float(source.real.astype(np.float64).std(axis=axes).min()) < _LEAST_NORM:
        d.reject()
    return Drawn(
        {
            "input": source,
            "gamma": d.number(0.5, 1.5),
            "beta": d.number(-1.0, 1.0),
            "epsilon": d.number(0.001, 0.01),
            "layout": nchw,
        }
    )
