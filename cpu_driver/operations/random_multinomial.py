# SPDX-License-Identifier: Apache-2.0
"""RANDOM_MULTINOMIAL."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.operations import computes
from nn_runtime.codes import OperationCode
from nn_runtime.operations.random_multinomial import uniform_doubles

if TYPE_CHECKING:
    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView


@computes(OperationCode.RANDOM_MULTINOMIAL)
def random_multinomial(op: OperationView) -> tuple[Array, ...]:
    """Return classes drawn by the softmax of each row's logits; both seeds 0 give other numbers at each run."""
    logits, samples = op.array("logits").astype(np.float64), op.int_value("samples")
    seed, seed2 = op.int_values("seeds")
    if seed == seed2 == 0:
        seed, seed2 = secrets.randbits(64), secrets.randbits(64)
    finite = np.isfinite(logits)
    greatest = np.max(logits, axis=1, keepdims=True, where=finite, initial=float(np.finfo(np.float32).min))
    sums = np.where(finite, np.exp(np.where(finite, logits - greatest, 0)), 0).cumsum(axis=1)
    drawn = uniform_doubles(seed, seed2, logits.shape[0] * samples).reshape(-1, samples) * sums[:, -1:]
    classes = [np.searchsorted(row, targets, side="right") for row, targets in zip(sums, drawn, strict=True)]
    return (np.minimum(classes, logits.shape[1] - 1).astype(np.int32),)
