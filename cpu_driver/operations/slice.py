# SPDX-License-Identifier: Apache-2.0
"""SLICE, STRIDED_SLICE and REVERSE."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.operations import computes
from nn_runtime.codes import OperationCode
from nn_runtime.operations.slice import slice_parameters

if TYPE_CHECKING:
    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView


@computes(OperationCode.SLICE, OperationCode.STRIDED_SLICE, OperationCode.REVERSE)
def strided_slice(op: OperationView) -> tuple[Array, ...]:
    """Return every stride-th element of each axis from its begin on."""
    taken = slice_parameters(op)
    parts = tuple(_part(*axis) for axis in zip(taken.begins, taken.sizes, taken.strides, strict=True))
    return (np.ascontiguousarray(op.array("input")[parts]),)


def _part(begin: int, size: int, stride: int) -> slice:
    end = begin + size * stride
    # A negative end would count from the back.
    return slice(begin, None if end < 0 else end, stride) if size else slice(0)
