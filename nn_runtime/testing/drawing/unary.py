# SPDX-License-Identifier: Apache-2.0
"""Operations of one tensor, element by element."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.testing.drawing import Drawn, Result, draws
from nn_runtime.testing.tolerances import MEDIUM, RELAXED, STRICT

if TYPE_CHECKING:
    from nn_runtime.testing.drawing import Drawing

_RANGES: dict[int, tuple[float, float]] = {
    OperationCode.EXP: (-4.0, 3.0),
    OperationCode.LOG: (0.1, 10.0),
    OperationCode.SQRT: (0.1, 10.0),
    OperationCode.RSQRT: (0.1, 10.0),
    OperationCode.SIN: (-4.0, 4.0),
    OperationCode.LOGISTIC: (-8.0, 8.0),
    OperationCode.TANH: (-4.0, 4.0),
    OperationCode.ELU: (-4.0, 4.0),
    OperationCode.HARD_SWISH: (-5.0, 5.0),
}
"""Where a function is steep or not defined outside; elsewhere any value will do."""
_FIXED_OUTPUT: dict[int, tuple[float, int]] = {OperationCode.LOGISTIC: (1 / 256, 0), OperationCode.TANH: (1 / 128, 128)}
"""Scale and unsigned zero point that the specification fixes."""


@draws(
    OperationCode.RELU, OperationCode.RELU1, OperationCode.RELU6, OperationCode.ABS, OperationCode.NEG,
    criterion=STRICT, exact=True,
)  # fmt: skip
def _simple(d: Drawing) -> Drawn:
    source = d.tensor(span=(-30.0, 30.0) if d.data_type == OperandCode.TENSOR_INT32 else (-8.0, 8.0))
    return Drawn({"input": source}, (d.same(source),))


@draws(OperationCode.FLOOR, criterion=STRICT, exact=True)
def _floor(d: Drawing) -> Drawn:
    return Drawn({"input": d.tensor(span=(-8.0, 8.0), exact=True)})


@draws(OperationCode.LOGICAL_NOT, criterion=STRICT, exact=True)
def _logical_not(d: Drawing) -> Drawn:
    return Drawn({"input": d.tensor()})


@draws(
    OperationCode.EXP, OperationCode.LOG, OperationCode.SQRT, OperationCode.RSQRT, OperationCode.SIN, criterion=RELAXED
)
def _function(d: Drawing) -> Drawn:
    span = _RANGES[d.code]
    source = d.tensor(span=span, within=span)
    if d.quantized and source.span[0] <= 0:
        source = d.new(d.dims(), (1.0, 10.0), quantization=(10 / 255, d.quantization((0.0, 10.0))[1]))
        if source.span[0] <= 0:
            d.reject()
    return Drawn({"input": source}, (d.scaled(0.0, 4.0),))


@draws(OperationCode.LOGISTIC, OperationCode.TANH, OperationCode.HARD_SWISH, criterion=RELAXED)
def _smooth(d: Drawing) -> Drawn:
    source = d.tensor(span=_RANGES[d.code])
    if not d.quantized:
        return Drawn({"input": source})
    if d.code == OperationCode.HARD_SWISH:
        return Drawn({"input": source}, (d.scaled(-0.4, max(1.0, source.span[1])),))
    scale, zero_point = _FIXED_OUTPUT[d.code]
    signed = d.data_type == OperandCode.TENSOR_QUANT8_ASYMM_SIGNED
    return Drawn({"input": source}, (Result(d.data_type, scale, zero_point - 128 * signed),))


@draws(OperationCode.ELU, criterion=RELAXED)
def _elu(d: Drawing) -> Drawn:
    return Drawn({"input": d.tensor(span=_RANGES[d.code]), "alpha": d.number(0.1, 2.0)})


@draws(OperationCode.QUANTIZE, criterion=MEDIUM)
def _quantize(d: Drawing) -> Drawn:
    source = d.tensor()
    code = d.choice((OperandCode.TENSOR_QUANT8_ASYMM, OperandCode.TENSOR_QUANT8_ASYMM_SIGNED))
    return Drawn({"input": source}, (Result(code, *d.quantization(source.span, code)),))


@draws(OperationCode.DEQUANTIZE, criterion=MEDIUM)
def _dequantize(d: Drawing) -> Drawn:
    if d.data_type == OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL:
        d.reject()
    code = d.choice((OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_FLOAT16))
    return Drawn({"input": d.tensor()}, (Result(code),))


@draws(OperationCode.CAST, criterion=STRICT, exact=True)
def _cast(d: Drawing) -> Drawn:
    types = (
        OperandCode.TENSOR_FLOAT16, OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_INT32,
        OperandCode.TENSOR_QUANT8_ASYMM,
    )  # fmt: skip
    if d.data_type not in types:
        source = d.tensor(exact=True)
        return Drawn({"input": source}, (d.same(source),))
    # Values outside the output's type are left open.
    source = d.tensor(span=(0.0, 60.0), within=(0.0, 100.0), exact=True)
    code = d.choice(types)
    return Drawn({"input": source}, (Result(code, *d.quantization((0.0, 60.0), code)),))
