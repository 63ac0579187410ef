# SPDX-License-Identifier: Apache-2.0
"""LSH_PROJECTION."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.operations import computes
from cpu_driver.operations.fingerprint import fingerprint64
from nn_runtime.codes import OperationCode
from nn_runtime.operations.lsh_projection import DENSE, SPARSE, projection_type

if TYPE_CHECKING:
    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView


@computes(OperationCode.LSH_PROJECTION)
def lsh_projection(op: OperationView) -> tuple[Array, ...]:
    """Return one bit per seed, or one signature per row of seeds, its first bit the highest.

    A bit tells whether the (weighted) sum over the input's rows of the fingerprints of seed and row is positive.
    """
    # Seeds are hashed as the four bytes of a float, whatever type they came in.
    seeds, kind = op.array("hash").astype(np.dtype("<f4")), projection_type(op)
    bits = (_scores(op, seeds) > 0).astype(np.int64)
    if kind == DENSE:
        return (bits.astype(np.int32),)
    hashes, width = seeds.shape
    signatures = bits.reshape(hashes, width) @ (np.int64(1) << np.arange(width)[::-1])
    if kind == SPARSE:
        signatures += np.arange(hashes) << width
    return (signatures.astype(np.int32),)


def _scores(op: OperationView, seeds: Array) -> Array:
    """Return the sum for each seed."""
    values = op.array("input")
    rows = np.ascontiguousarray(values).view(np.uint8).reshape(values.shape[0], -1)
    keys = np.empty((seeds.size, len(rows), 4 + rows.shape[1]), np.uint8)
    keys[:, :, :4] = seeds.reshape(-1, 1).view(np.uint8)[:, np.newaxis]
    keys[:, :, 4:] = rows
    signed = fingerprint64(keys.reshape(-1, keys.shape[2])).view(np.int64).astype(np.float64)
    weights = op.array("weight").astype(np.float64) if op.optional("weight") is not None else np.ones(len(rows))
    scores: Array = signed.reshape(seeds.size, -1) @ weights
    return scores
