# SPDX-License-Identifier: Apache-2.0
"""GATHER, EMBEDDING_LOOKUP and HASHTABLE_LOOKUP."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.operations import computes
from nn_runtime.codes import OperationCode
from nn_runtime.operations.gather import check_indices

if TYPE_CHECKING:
    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView


@computes(OperationCode.GATHER)
def gather(op: OperationView) -> tuple[Array, ...]:
    """Return the slices at the indices along one axis."""
    values, indices = op.array("input"), op.array("indices")
    axis = op.axis("axis", values.ndim)
    check_indices(op, "indices", indices, values.shape[axis])
    return (values.take(indices, axis=axis),)


@computes(OperationCode.EMBEDDING_LOOKUP)
def embedding_lookup(op: OperationView) -> tuple[Array, ...]:
    """Return the slices of the values' first axis at the indices."""
    values, lookups = op.array("values"), op.array("lookups")
    check_indices(op, "lookups", lookups, values.shape[0])
    return (values.take(lookups, axis=0),)


@computes(OperationCode.HASHTABLE_LOOKUP)
def hashtable_lookup(op: OperationView) -> tuple[Array, ...]:
    """Return the slices whose keys are looked up, 0 where there is none, and 1 for each that was found."""
    lookups, keys = op.array("lookups"), op.array("keys")
    places = np.searchsorted(keys, lookups).clip(max=keys.size - 1)
    hits = keys[places] == lookups
    found = op.array("values").take(places, axis=0)
    found[~hits] = 0
    return found, hits.astype(np.uint8)
