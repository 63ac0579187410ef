# SPDX-License-Identifier: Apache-2.0
"""CHANNEL_SHUFFLE."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import nn_runtime.operations.channel_shuffle as rules
from cpu_driver.operations import computes
from nn_runtime.codes import OperationCode

if TYPE_CHECKING:
    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView


@computes(OperationCode.CHANNEL_SHUFFLE)
def channel_shuffle(op: OperationView) -> tuple[Array, ...]:
    """Return the input with the groups of one axis interleaved."""
    shuffle, values = rules.channel_shuffle(op), op.array("input")
    head, tail = values.shape[: shuffle.axis], values.shape[shuffle.axis + 1 :]
    grouped = values.reshape(*head, shuffle.groups, -1, *tail)
    return (np.ascontiguousarray(grouped.swapaxes(shuffle.axis, shuffle.axis + 1)),)
