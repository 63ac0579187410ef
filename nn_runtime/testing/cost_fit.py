# SPDX-License-Identifier: Apache-2.0
"""From measured times to a table of costs: rows of operations, what is missing, factors that suit whole graphs."""

from __future__ import annotations

import itertools
import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.hal.costs import (
    ANY_OPERATION,
    CostFactors,
    CostTable,
    OperationCost,
    Work,
    data_type_of,
    operation_estimates,
    rounded,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.hal.types import Model
    from nn_runtime.operand import Array

_ITERATIONS = 10
_SMALL_ERROR = 0.03
_FEWEST_SAMPLES = 12
_SAMPLES_PER_FACTOR = 3
_RIDGE = 0.3
_RIDGE_OF_FACTORS = 0.002
_ORDINARY_ERROR = 0.1
_GREATEST_CHANGE = 0.6


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
    """Return the costs, none negative, with the least relative errors; `dynamic_ns` from the dynamic samples."""
    static = [sample for sample in samples if not sample.dynamic] or list(samples)
    times = np.array([max(sample.duration_ns, 100.0) for sample in static])
    features = np.array([[s.work.steps, s.work.elements, s.work.multiply_adds] for s in static], float)
    best = least_relative_error(features, times)
    fixed, element, multiply_add = (float(value) for value in best)
    rests = [
        (s.duration_ns - element * s.work.elements - multiply_add * s.work.multiply_adds) / s.work.steps
        for s in samples
        if s.dynamic
    ]
    dynamic = max(0.0, statistics.median(rests)) if rests else fixed
    return OperationCost(round(fixed), round(dynamic), rounded(element), rounded(multiply_add))


def least_relative_error(features: Array, times: Array) -> Array:
    """Return the factors of the columns, none negative, that explain times with the least sum of relative errors.

    The first column always counts. Few outliers hardly matter: errors are not squared (weights found by iteration).
    """
    weighted = features / times[:, None]
    count = features.shape[1]
    best: Array = np.zeros(count)
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
            solved = np.linalg.lstsq(rows, weights, rcond=None)[0]
            weights = 1 / np.sqrt(np.maximum(np.abs(weighted[:, columns] @ solved - 1), _SMALL_ERROR))
        error = float(np.abs(weighted[:, columns] @ solved - 1).sum())
        if (solved >= 0).all() and error < best_error:
            best, best_error = np.zeros(count), error
            best[columns] = solved
    return best


def adjusted(table: CostTable, samples: Sequence[GraphSample]) -> CostTable:
    """Return the table with the factors that suit whole graphs best: between others, operations take longer."""
    only_run = replace(table, input_ns=0.0, scalar_ns=0.0, output_ns=0.0, byte_ns=0.0)
    only_arguments = replace(table, run_ns=0.0, byte_ns=0.0)
    only_bytes = replace(table, run_ns=0.0, input_ns=0.0, scalar_ns=0.0, output_ns=0.0)
    none = CostFactors(fixed=0.0, dynamic=0.0, work=0.0)
    parts = [replace(none, fixed=1.0), replace(none, dynamic=1.0), replace(none, work=1.0)]
    partial = [table.scaled("", part) for part in parts]
    features = [
        [one.run_ns_of(sample.model) for one in (only_run, only_arguments, only_bytes)]
        + [sum(operation_estimates(sample.model, one)) for one in partial]
        for sample in samples
    ]
    if len(samples) < _FEWEST_SAMPLES:
        return table
    times = np.array([sample.duration_ns for sample in samples])
    shares = np.array(features) / times[:, None]
    factors = 1 + _corrections(shares, 1 - shares.sum(axis=1), _RIDGE_OF_FACTORS * len(times))
    changed = table.scaled(table.source, CostFactors(*(float(factor) for factor in factors)))
    return refined(changed, samples)


def _corrections(shares: Array, missing: Array, ridge: float) -> Array:
    """Return what to add to the factors 1 of columns so that `missing` is explained: little, by ridge regression.

    Great errors count by their size, not its square.
    """
    solved: Array = np.zeros(shares.shape[1])
    weights = np.ones(len(missing))
    for _ in range(_ITERATIONS):
        weighted = shares * weights[:, None]
        solved = np.linalg.solve(weighted.T @ shares + ridge * np.eye(shares.shape[1]), weighted.T @ missing)
        weights = _ORDINARY_ERROR / np.maximum(np.abs(shares @ solved - missing), _ORDINARY_ERROR)
    return np.clip(solved, -_GREATEST_CHANGE, _GREATEST_CHANGE)


def refined(table: CostTable, samples: Sequence[GraphSample]) -> CostTable:
    """Return the table with a factor for every row, close to 1 where few graphs tell (ridge regression)."""
    times = np.array([sample.duration_ns for sample in samples])
    found: dict[tuple[str, str], int] = {}
    shares = np.zeros((len(samples), sum(len(kinds) for kinds in table.operations.values())))
    totals = np.array([sample.model_estimate(table) for sample in samples])
    for at, sample in enumerate(samples):
        main = sample.model.main
        for operation, estimate in zip(main.operations, operation_estimates(sample.model, table), strict=True):
            key = table.row_of(operation.type, data_type_of(operation, main.operands))
            shares[at, found.setdefault(key, len(found))] += estimate / times[at]
    missing = 1 - totals / times
    solved = _corrections(shares[:, : len(found)], missing, _RIDGE)
    operations = {name: dict(kinds) for name, kinds in table.operations.items()}
    for (name, kind), column in found.items():
        factor = 1 + float(solved[column])
        operations[name][kind] = operations[name][kind].scaled(CostFactors(fixed=factor, dynamic=factor, work=factor))
    return replace(table, operations=operations)


def completed(
    measured: dict[str, dict[str, OperationCost]], base: CostTable | None
) -> dict[str, dict[str, OperationCost]]:
    """Add a row for any other operation, and the rows that only the shipped table has, scaled as the others are."""
    by_class: dict[str, list[OperationCost]] = {}
    for kinds in measured.values():
        for name, row in kinds.items():
            by_class.setdefault(name, []).append(row)
    completed = dict(measured)
    completed[ANY_OPERATION] = {name: _middle(rows) for name, rows in by_class.items()}
    shipped = base.operations if base is not None else {}
    pairs = [
        (row, shipped[name][kind])
        for name, kinds in measured.items()
        for kind, row in kinds.items()
        if kind in shipped.get(name, {})
    ]
    scale = statistics.median(a.fixed_ns / b.fixed_ns for a, b in pairs if b.fixed_ns) if pairs else 1.0
    factors = CostFactors(fixed=scale, dynamic=scale, work=scale)
    for name in shipped.keys() - completed.keys():
        completed[name] = {kind: row.scaled(factors) for kind, row in shipped[name].items()}
    return completed


def _middle(rows: Sequence[OperationCost]) -> OperationCost:
    columns = ("fixed_ns", "dynamic_ns", "element_ns", "multiply_add_ns")
    return OperationCost(*(round(statistics.median(getattr(row, column) for row in rows), 4) for column in columns))
