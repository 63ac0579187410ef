# SPDX-License-Identifier: Apache-2.0
"""Cases of QUANTIZE, DEQUANTIZE, CAST."""

from __future__ import annotations

from dataclasses import replace

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.operand import ChannelQuant
from tests.operations.cases import FLOAT16, FLOAT32, FLOATS, INT32, QUANT8, SIGNED, Case, of, tensor

PER_CHANNEL, SYMMETRIC = OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL, OperandCode.TENSOR_QUANT8_SYMM

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
    *(
        Case(
            OperationCode.DEQUANTIZE,
            f"per_channel_{channel_dim}",
            (replace(of(PER_CHANNEL, (2, 2), [1, -2, 3, -128]), channel_quant=ChannelQuant((0.5, 0.25), channel_dim)),),
            (of(FLOAT32, (2, 2), values),),
            (PER_CHANNEL,),
        )
        for channel_dim, values in ((0, [0.5, -1, 0.75, -32]), (1, [0.5, -0.5, 1.5, -32]))
    ),
    Case(
        OperationCode.DEQUANTIZE,
        "symmetric",
        (of(SYMMETRIC, (3,), [-128, 0, 127], 0.5),),
        (of(FLOAT32, (3,), [-64, 0, 63.5]),),
        (SYMMETRIC,),
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
    # The raw codes are cast, whatever the scale.
    Case(
        OperationCode.CAST,
        "codes_to_float",
        (of(QUANT8, (3,), [0, 7, 255], 0.5, 100),),
        (tensor((3,), [0, 7, 255]),),
        FLOATS,
    ),
    Case(
        OperationCode.CAST,
        "saturates_to_codes",
        (tensor((4,), [-3.5, 254.75, 300, 0.99]),),
        (of(QUANT8, (4,), [0, 254, 255, 0], 0.5, 100),),
        FLOATS,
    ),
    Case(
        OperationCode.CAST,
        "float_saturates_to_int",
        (of(FLOAT32, (2,), [3e9, -3e9]),),
        (of(INT32, (2,), [2**31 - 1, -(2**31)]),),
        (FLOAT32,),
    ),
    Case(
        OperationCode.CAST,
        "int_saturates_to_codes",
        (of(INT32, (3,), [-1, 256, 17]),),
        (of(QUANT8, (3,), [0, 255, 17], 0.5, 100),),
        (INT32,),
    ),
    Case(
        OperationCode.QUANTIZE,
        "rank_5",
        (tensor((1, 2, 1, 1, 2), [-1.25, -0.75, 0.75, 1.25]),),
        (of(QUANT8, (1, 2, 1, 1, 2), [97, 98, 102, 103], 0.5, 100),),
        FLOATS,
    ),
)
