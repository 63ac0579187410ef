# SPDX-License-Identifier: Apache-2.0
"""Cases of RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR; `litert_*` has the results of LiteRT's reference kernel."""

from __future__ import annotations

from nn_runtime.codes import OperationCode
from tests.operations.cases import QUANT8, SIGNED, Case, flag, integer, real, stored, tensor

_INPUT = tensor((1, 2, 2, 1), [1, 3, 5, 9])
_NHWC = flag(False)

_LITERT_INPUT = "f8a495910f60fb69363db609f8e09177c28c7a5272c00e06"
_LITERT = (
    (
        "plain",
        False,
        False,
        "f8a4bf99828a356e5263d968fb6984669950a74f9f8ea49cb77abb71524d842eb133cfa2c0b785727760a67c945c87568ba170963735281dc28c996b796274a1558b1c210e06",
    ),
    (
        "corners",
        True,
        False,
        "f8a4c79b959152790f608565fb6997719e5fa64d957784a0a588c670363d7623b609d775f8e0c5ac91777c658a49982ea77fb5d08287503fc28c9e6f7a52768972c040630e06",
    ),
    (
        "centers",
        False,
        True,
        "f8a4d59d9c9252792061a766fb69aa7ba76fa35d87777391ad7cd16f363d642aad0dd775f1d8b69c91778a6c8d5991399d81a0c2676a4233c28ca8777f5676896bb332480e06",
    ),
)
_COLUMNS = tensor((1, 1, 4, 1), [0, 4, 8, 16])

CASES = (
    *(
        Case(
            OperationCode.RESIZE_BILINEAR,
            f"litert_{name}",
            (
                stored((1, 3, 4, 2), _LITERT_INPUT, 0.05, 3),
                integer(7),
                integer(5),
                _NHWC,
                flag(align_corners),
                flag(half_pixel_centers),
            ),
            (stored((1, 5, 7, 2), codes, 0.05, 3),),
            (QUANT8, SIGNED),
            exact=True,
        )
        for name, align_corners, half_pixel_centers, codes in _LITERT
    ),
    # Source columns (x + 0.5) / 2 - 0.5: -0.25 (a border), 0.25, 0.75 ...
    Case(
        OperationCode.RESIZE_BILINEAR,
        "half_pixel_centers",
        (_COLUMNS, integer(8), integer(1), _NHWC, flag(False), flag(True)),
        (tensor((1, 1, 8, 1), [0, 1, 3, 5, 7, 10, 14, 16]),),
    ),
    Case(
        OperationCode.RESIZE_BILINEAR,
        "smaller_by_scale_nchw",
        (tensor((1, 2, 1, 4), [0, 4, 8, 16, 1, 2, 3, 4]), real(0.5), real(1.0), flag(True)),
        (tensor((1, 2, 1, 2), [0, 8, 1, 3]),),
    ),
    # Source columns 2 / 5 * (x + 0.5): 0.2, 0.6, 1.0, 1.4, 1.8.
    Case(
        OperationCode.RESIZE_NEAREST_NEIGHBOR,
        "half_pixel_centers",
        (tensor((1, 1, 2, 1), [3, 7]), integer(5), integer(1), _NHWC, flag(False), flag(True)),
        (tensor((1, 1, 5, 1), [3, 3, 7, 7, 7]),),
    ),
    # Source columns x / 2, halves upwards: 0, 1, 1, 2, 2, 3, 3.
    Case(
        OperationCode.RESIZE_NEAREST_NEIGHBOR,
        "align_corners",
        (_COLUMNS, integer(7), integer(1), _NHWC, flag(True), flag(False)),
        (tensor((1, 1, 7, 1), [0, 4, 4, 8, 8, 16, 16]),),
    ),
    # Source positions 0, 2/3, 4/3 (cut to 1): columns 1, 7/3, 3 above, 5, 23/3, 9 below.
    Case(
        OperationCode.RESIZE_BILINEAR,
        "by_size",
        (_INPUT, integer(3), integer(2)),
        (tensor((1, 2, 3, 1), [1, 7 / 3, 3, 5, 23 / 3, 9]),),
    ),
    # Corners meet corners: source positions 0, 1/2, 1.
    Case(
        OperationCode.RESIZE_BILINEAR,
        "align_corners",
        (_INPUT, integer(3), integer(3), _NHWC, flag(True), flag(False)),
        (tensor((1, 3, 3, 1), [1, 2, 3, 3, 4.5, 6, 5, 7, 9]),),
    ),
    Case(
        OperationCode.RESIZE_NEAREST_NEIGHBOR,
        "by_size",
        (_INPUT, integer(3), integer(3), _NHWC),
        (tensor((1, 3, 3, 1), [1, 1, 3, 1, 1, 3, 5, 5, 9]),),
    ),
    Case(
        OperationCode.RESIZE_NEAREST_NEIGHBOR,
        "by_scale_nchw",
        (tensor((1, 1, 2, 2), [1, 3, 5, 9]), real(2.0), real(1.0), flag(True)),
        (tensor((1, 1, 2, 4), [1, 1, 3, 3, 5, 5, 9, 9]),),
    ),
)
