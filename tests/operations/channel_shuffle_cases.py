# SPDX-License-Identifier: Apache-2.0
"""Cases of CHANNEL_SHUFFLE, written out."""

from __future__ import annotations

from nn_runtime.codes import OperationCode
from tests.operations.cases import Case, integer, tensor

CASES = (
    Case(
        OperationCode.CHANNEL_SHUFFLE,
        "depth",
        (tensor((1, 1, 2, 6), list(range(12))), integer(2), integer(-1)),
        (tensor((1, 1, 2, 6), [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]),),
    ),
    Case(
        OperationCode.CHANNEL_SHUFFLE,
        "first_axis",
        (tensor((6, 2), list(range(12))), integer(3), integer(0)),
        (tensor((6, 2), [0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11]),),
    ),
)
