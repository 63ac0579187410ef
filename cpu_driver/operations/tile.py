# SPDX-License-Identifier: Apache-2.0
"""TILE."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.operations import computes
from nn_runtime.codes import OperationCode
from nn_runtime.operations.tile import tile_multiples

if TYPE_CHECKING:
    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView


@computes(OperationCode.TILE)
def tile(op: OperationView) -> tuple[Array, ...]:
    """Return the input repeated along each axis."""
    return (np.tile(op.array("input"), tile_multiples(op)),)
