# SPDX-License-Identifier: Apache-2.0
"""From measured times to a table of costs: rows of operations, and factors that suit whole graphs."""

from __future__ import annotations

import itertools
import statistics
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.hal.costs import (
    ANY_OPERATION,
    CostFactors,
    CostTable,
    OperationCost,
    Work,
    operation_estimates,
    rounded,
)
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nn_runtime.hal.types import Model
    from nn_runtime.operand import Array

_ITERATIONS = 20
_SMALL_ERROR = 0.03
_LEAST_RATIO = 0.05
_LEAST_FACTOR = 0.2
"""Of what a table says, which was measured somewhere: nothing is free on another device."""
_FEWEST_SAMPLES = 12
_SAMPLES_PER_FACTOR = 3


@dataclass(frozen=True)
class Sample:
    """One measured operation: its size, whether sizes were known to the model, and ns."""

    work: Work
    dynamic: bool
    duration_ns: float


@dataclass(frozen=True)
class GraphSample:
    """A measured model."""

    model: Model
    duration_ns: float

    def model_estimate(self, table: CostTable) -> float:
        """Return the estimate of a run by a table."""
        return table.run_ns_of(self.model) + sum(operation_estimates(self.model, table))


def fit(samples: Sequence[Sample]) -> OperationCost:
    """Return the costs, none negative, with the least errors as ratios; `dynamic_ns` from the dynamic samples."""
    static = [sample for sample in samples if not sample.dynamic] or list(samples)
    times = np.array([max(sample.duration_ns, 100.0) for sample in static])
    features = np.array([[s.work.steps, s.work.elements, s.work.multiply_adds] for s in static], float)
    best = least_ratio_error(features, times)
    fixed, element, multiply_add = (float(value) for value in best)
    rests = [
        (s.duration_ns - element * s.work.elements - multiply_add * s.work.multiply_adds) / s.work.steps
        for s in samples
        if s.dynamic
    ]
    dynamic = max(0.0, statistics.median(rests)) if rests else fixed
    return OperationCost(round(fixed), round(dynamic), rounded(element), rounded(multiply_add))


def least_ratio_error(features: Array, times: Array, least: float = 0.0) -> Array:
    """Return the factors of the columns, none below `least`, that explain times with the least sum of |log(ratio)|.

    The first column always counts. Few outliers hardly matter: errors are not squared (weights found by iteration).
    """
    weighted = features / times[:, None]
    count = features.shape[1]
    always = least * weighted.sum(axis=1)
    best: Array = np.full(count, least)
    best_error = float("inf")
    most = min(count, max(1, len(times) // _SAMPLES_PER_FACTOR))
    for more in itertools.chain.from_iterable(itertools.combinations(range(1, count), n) for n in range(most)):
        columns = [0, *more]
        if not weighted[:, columns].any(axis=0).all():
            continue
        solved: Array = np.zeros(len(columns))
        weights = np.ones(len(times))
        for _ in range(_ITERATIONS):
            rows = weighted[:, columns] * weights[:, None]
            solved = np.linalg.lstsq(rows, weights * (1 - always), rcond=None)[0]
            ratios = np.maximum(always + weighted[:, columns] @ solved, _LEAST_RATIO)
            errors = np.abs(np.log(ratios))
            weights = np.sqrt(np.maximum(errors, _SMALL_ERROR)) / np.maximum(np.abs(ratios - 1), _SMALL_ERROR)
        error = float(errors.sum())
        if (solved >= 0).all() and error < best_error:
            best, best_error = np.full(count, least), error
            best[columns] += solved
    return best


def adjusted(table: CostTable, samples: Sequence[GraphSample]) -> CostTable:
    """Return the table with the factors that suit whole graphs best: between others, operations take longer."""
    only_run = replace(table, input_ns=0.0, scalar_ns=0.0, output_ns=0.0, byte_ns=0.0)
    only_arguments = replace(table, run_ns=0.0, byte_ns=0.0)
    only_bytes = replace(table, run_ns=0.0, input_ns=0.0, scalar_ns=0.0, output_ns=0.0)
    none = CostFactors(fixed=0.0, dynamic=0.0, work=0.0, product=0.0)
    parts = [table.scaled("", replace(none, **{part: 1.0})) for part in ("fixed", "dynamic", "work", "product")]
    features = [
        [one.run_ns_of(sample.model) for one in (only_run, only_arguments, only_bytes)]
        + [sum(operation_estimates(sample.model, one)) for one in parts]
        for sample in samples
    ]
    if len(samples) < _FEWEST_SAMPLES:
        return table
    factors = least_ratio_error(np.array(features), np.array([sample.duration_ns for sample in samples]), _LEAST_FACTOR)
    return table.scaled(table.source, CostFactors(*(float(factor) for factor in factors)))


def with_any(rows: Mapping[str, Mapping[str, OperationCost]]) -> dict[str, Mapping[str, OperationCost]]:
    """Return rows and one for any other operation: what operations cost in the middle."""
    by_class: dict[str, list[OperationCost]] = {}
    for kinds in rows.values():
        for name, row in kinds.items():
            by_class.setdefault(name, []).append(row)
    return {**rows, ANY_OPERATION: {name: _middle(found) for name, found in by_class.items()}}


def _middle(rows: Sequence[OperationCost]) -> OperationCost:
    columns = ("fixed_ns", "dynamic_ns", "element_ns", "multiply_add_ns")
    return OperationCost(*(round(statistics.median(getattr(row, column) for row in rows), 4) for column in columns))
