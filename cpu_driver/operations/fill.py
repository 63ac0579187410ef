# SPDX-License-Identifier: Apache-2.0
"""FILL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.operations import computes
from nn_runtime.codes import OperationCode

if TYPE_CHECKING:
    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView


@computes(OperationCode.FILL)
def fill(op: OperationView) -> tuple[Array, ...]:
    """Return a tensor of one value."""
    return (np.full(op.int_values("dims"), op.array("value").reshape(())),)
