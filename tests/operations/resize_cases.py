# SPDX-License-Identifier: Apache-2.0
"""Cases of RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR."""

from __future__ import annotations

from nn_runtime.codes import OperationCode
from tests.operations.cases import Case, flag, integer, real, tensor

_INPUT = tensor((1, 2, 2, 1), [1, 3, 5, 9])
_NHWC = flag(False)

CASES = (
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
