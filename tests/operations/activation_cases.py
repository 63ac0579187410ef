# SPDX-License-Identifier: Apache-2.0
"""Cases of RELU, RELU1, RELU6, LOGISTIC, TANH, HARD_SWISH, ELU; `every_code`: results of LiteRT's reference kernels."""

from __future__ import annotations

import math

from nn_runtime.codes import OperationCode
from tests.operations.cases import FLOATS, QUANT8, SIGNED, Case, real, stored, tensor

_VALUES = (-7.5, -1.5, -0.5, 0, 0.5, 1, 2.5, 8)
_DIMS = (2, 1, 4)
_EVERY_CODE = bytes(range(256)).hex()
_INPUT = tensor(_DIMS, _VALUES)

_ELU_VALUES = (-100.0, -6.0, -1.5, -0.25, -(2.0**-8), 0.0, 2.0**-8, 0.5, 1.0, 2.5, 7.0, 200.0)


def elu(x: float, alpha: float) -> float:
    return max(0.0, x) + min(0.0, alpha * (math.exp(min(x, 300.0)) - 1))


CASES = (
    Case(OperationCode.RELU, "values", (_INPUT,), (tensor(_DIMS, [max(0, x) for x in _VALUES]),)),
    Case(OperationCode.RELU1, "values", (_INPUT,), (tensor(_DIMS, [min(1, max(-1, x)) for x in _VALUES]),)),
    Case(OperationCode.RELU6, "values", (_INPUT,), (tensor(_DIMS, [min(6, max(0, x)) for x in _VALUES]),)),
    Case(
        OperationCode.LOGISTIC,
        "values",
        (_INPUT,),
        (tensor(_DIMS, [1 / (1 + math.exp(-x)) for x in _VALUES], 1 / 256, 0),),
    ),
    Case(OperationCode.TANH, "values", (_INPUT,), (tensor(_DIMS, [math.tanh(x) for x in _VALUES], 1 / 128, 128),)),
    Case(
        OperationCode.HARD_SWISH,
        "values",
        (_INPUT,),
        (tensor(_DIMS, [x * min(6, max(0, x + 3)) / 6 for x in _VALUES], 0.0625, 100),),
    ),
    Case(
        OperationCode.LOGISTIC,
        "every_code",
        (stored((1, 16, 16, 1), _EVERY_CODE, 0.05, 120),),
        (
            stored(
                (1, 16, 16, 1),
                "010101010101010101010101010101010101020202020202020202020303030303030304040404040505050506060606"
                "070708080809090a0a0b0b0c0c0d0d0e0f0f101112131314151617181a1b1c1d1f202123242628292b2d2f3133353739"
                "3b3e404245474a4d4f5255585b5e6164676a6d7073767a7d8083868a8d909396999c9fa2a5a8abaeb1b3b6b9bbbec0c2"
                "c5c7c9cbcdcfd1d3d5d7d8dadcdddfe0e1e3e4e5e6e8e9eaebecededeeeff0f1f1f2f3f3f4f4f5f5f6f6f7f7f8f8f8f9"
                "f9fafafafafbfbfbfbfcfcfcfcfcfdfdfdfdfdfdfdfefefefefefefefefefeffffffffffffffffffffffffffffffffff"
                "ffffffffffffffffffffffffffffffff",
                1 / 256,
                0,
            ),
        ),
        (QUANT8, SIGNED),
        exact=True,
    ),
    Case(
        OperationCode.TANH,
        "every_code",
        (stored((1, 16, 16, 1), _EVERY_CODE, 0.025, 120),),
        (
            stored(
                (1, 16, 16, 1),
                "010101010101010101010101010101010101020202020202020202020303030303030304040404040505050506060606"
                "070708080809090a0a0b0b0c0c0d0d0e0f0f101112131314151617181a1b1c1d1f202123242628292b2d2f3133353739"
                "3b3e404245474a4d4f5255585b5e6164676a6d7073767a7d8083868a8d909396999c9fa2a5a8abaeb1b3b6b9bbbec0c2"
                "c5c7c9cbcdcfd1d3d5d7d8dadcdddfe0e1e3e4e5e6e8e9eaebecededeeeff0f1f1f2f3f3f4f4f5f5f6f6f7f7f8f8f8f9"
                "f9fafafafafbfbfbfbfcfcfcfcfcfdfdfdfdfdfdfdfefefefefefefefefefeffffffffffffffffffffffffffffffffff"
                "ffffffffffffffffffffffffffffffff",
                1 / 128,
                128,
            ),
        ),
        (QUANT8, SIGNED),
        exact=True,
    ),
    Case(
        OperationCode.HARD_SWISH,
        "every_code_rescaled",
        (stored((1, 16, 16, 1), _EVERY_CODE, 0.04, 110),),
        (
            stored(
                (1, 16, 16, 1),
                "1414141414141414141414141414141414141414141414141414141414141414141414141312121110100f0e0e0d0c0c"
                "0b0b0a0a0909090808080707070606060606050505050505050505050505050506060606060707070808080909090a0a"
                "0b0b0c0c0d0e0e0f101011121213141516161718191a1b1c1d1e1f20212224252627282a2b2c2d2f303133343637393a"
                "3c3d3f4042434547484a4c4e4f51535557595a5c5e60626466686a6c6f71737577797c7e808385878a8c8e8f91929496"
                "97999a9c9e9fa1a2a4a6a7a9aaacaeafb1b2b4b6b7b9babcbebfc1c2c4c6c7c9cacccecfd1d2d4d6d7d9dadcdedfe1e2"
                "e4e6e7e9eaeceeeff1f2f4f6f7f9fafc",
                0.025,
                20,
            ),
        ),
        (QUANT8, SIGNED),
        exact=True,
    ),
    Case(
        OperationCode.HARD_SWISH,
        "every_code",
        (stored((1, 16, 16, 1), _EVERY_CODE, 0.0235, 128),),
        (
            stored(
                (1, 16, 16, 1),
                "80807f7f7e7e7d7d7c7c7c7b7b7a7a7a7979787878777777767676757575757474747473737373737272727272717171"
                "717171717171707070707070707070707070707070707070707070717171717171717171727272727272737373737474"
                "7474757575757676767777777878787979797a7a7b7b7b7c7c7d7d7e7e7f7f8080818182828383848485858687878888"
                "898a8a8b8c8c8d8e8e8f90909192939394959696979899999a9b9c9d9e9e9fa0a1a2a3a4a5a6a6a7a8a9aaabacadaeaf"
                "b0b1b2b3b4b5b6b7b8b9babcbdbebfc0c1c2c3c4c6c7c8c9cacccdcecfd0d2d3d4d5d7d8d9dadcdddee0e1e2e4e5e6e8"
                "e9ebecedeff0f2f3f4f6f7f9fafcfdff",
                0.0235,
                128,
            ),
        ),
        (QUANT8, SIGNED),
        exact=True,
    ),
    Case(
        OperationCode.HARD_SWISH,
        "every_code_coarse",
        (stored((1, 16, 16, 1), _EVERY_CODE, 0.3, 7),),
        (
            stored(
                (1, 16, 16, 1),
                "00000000000102030406080b0d1013171a1e212426292c2f3134373a3c3f4244474a4d4f5255585a5d606265686b6d70"
                "7376787b7e808386898b8e919496999c9ea1a4a7a9acafb2b4b7babcbfc2c5c7cacdd0d2d5d8dadde0e3e5e8ebeef0f3"
                "f6f8fbfeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"
                "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"
                "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"
                "ffffffffffffffffffffffffffffffff",
                0.11,
                3,
            ),
        ),
        (QUANT8, SIGNED),
        exact=True,
    ),
    Case(
        OperationCode.HARD_SWISH,
        "rank_5",
        (tensor((2, 1, 1, 2, 1), [-4.0, -1.5, 1.5, 4.0]),),
        (tensor((2, 1, 1, 2, 1), [0.0, -0.375, 1.125, 4.0]),),
        FLOATS,
    ),
    *(
        Case(
            OperationCode.ELU,
            name,
            (tensor(dims, _ELU_VALUES), real(alpha)),
            (tensor(dims, [elu(x, alpha) for x in _ELU_VALUES]),),
            FLOATS,
        )
        for name, dims, alpha in (
            ("alpha_one", (2, 6), 1.0),
            ("alpha_small", (12,), 0.125),
            ("alpha_large_rank_5", (1, 2, 3, 1, 2), 3.5),
            ("alpha_zero", (3, 1, 4), 0.0),
        )
    ),
    # The formula as it stands: with a negative alpha the second term acts above 0 alone.
    Case(
        OperationCode.ELU,
        "alpha_negative",
        (tensor((4,), [-3.0, -0.5, 0.5, 2.0]), real(-0.5)),
        (tensor((4,), [0.0, 0.0, 0.5 - 0.5 * math.expm1(0.5), 2.0 - 0.5 * math.expm1(2.0)]),),
        FLOATS,
    ),
)
