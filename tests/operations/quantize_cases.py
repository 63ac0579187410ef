# SPDX-License-Identifier: Apache-2.0
"""Cases of QUANTIZE, DEQUANTIZE, CAST."""

from __future__ import annotations

from nn_runtime.codes import OperationCode
from tests.operations.cases import FLOAT16, FLOAT32, FLOATS, INT32, QUANT8, SIGNED, Case, of, tensor

CASES = (
    # Ties go away from zero, values outside are cut.
    Case(
        OperationCode.QUANTIZE,
        "unsigned",
        (tensor((6,), [0, 0.25, -0.25, 1.1, 1000, -1000]),),
        (of(QUANT8, (6,), [10, 11, 9, 12, 255, 0], 0.5, 10),),
        FLOATS,
    ),
    Case(
        OperationCode.QUANTIZE,
        "signed",
        (tensor((4,), [0, 3, 1000, -1000]),),
        (of(SIGNED, (4,), [-5, 1, 127, -128], 0.5, -5),),
        FLOATS,
    ),
    *(
        Case(
            OperationCode.DEQUANTIZE,
            f"to_{output.name.lower()}",
            (tensor((4,), [0, 1.5, -64, 63.5]),),
            (of(output, (4,), [0, 1.5, -64, 63.5]),),
            (QUANT8, SIGNED),
        )
        for output in (FLOAT32, FLOAT16)
    ),
    Case(
        OperationCode.CAST,
        "float_to_int_cuts",
        (tensor((4,), [1.75, -1.75, 0, 100]),),
        (of(INT32, (4,), [1, -1, 0, 100]),),
        FLOATS,
    ),
    Case(
        OperationCode.CAST,
        "int_to_float",
        (of(INT32, (3,), [7, -9, 0]),),
        (tensor((3,), [7, -9, 0]),),
        FLOATS,
    ),
)
