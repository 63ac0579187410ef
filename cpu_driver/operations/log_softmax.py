# SPDX-License-Identifier: Apache-2.0
"""LOG_SOFTMAX."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.operations import computes
from nn_runtime.codes import OperationCode

if TYPE_CHECKING:
    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView


@computes(OperationCode.LOG_SOFTMAX)
def log_softmax(op: OperationView) -> tuple[Array, ...]:
    """Return y - log(sum exp y) of y = beta * x along one axis."""
    values = op.array("input")
    axis = op.axis("axis", values.ndim)
    real = values.astype(np.float32) * np.float32(op.float_value("beta"))
    real -= real.max(axis=axis, keepdims=True)
    real -= np.log(np.exp(real).sum(axis=axis, keepdims=True))
    return (real.astype(values.dtype, copy=False),)
