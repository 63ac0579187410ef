# SPDX-License-Identifier: Apache-2.0
"""PACK: inputs of one shape stacked along a new axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.operations import computes
from nn_runtime.codes import OperationCode
from nn_runtime.operations.pack import pack_axis

if TYPE_CHECKING:
    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView


@computes(OperationCode.PACK)
def pack(op: OperationView) -> tuple[Array, ...]:
    """Return the inputs stacked."""
    arrays = [value for operand in op.all_inputs("input") if (value := operand.value()) is not None]
    return (np.stack(arrays, axis=pack_axis(op)),)
