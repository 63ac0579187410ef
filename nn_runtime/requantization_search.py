# SPDX-License-Identifier: Apache-2.0
"""Looks for floating-point arithmetic that takes the steps of the specified requantisation at the specified sums."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.operand import Array

    Booleans = npt.NDArray[np.bool_]

_GREATEST_STEP_SHIFT = 22
"""So that steps times powers of two are integers of 64 bits."""
_FACTORS = (0, 1, -1, 2, -2)
"""How many units in the last place from the real factor others are tried."""
_SHIFTS = tuple(37 * shift * (-1) ** shift for shift in range(16))
"""How far from the middle other shifts are tried: each rounds the products in another way."""
_NUDGES = (0, 1, -1, 2, -2, 3, -3, 4, -4, 5, -5, 6, -6)
"""How many sixteenths of the last place of a total of 128 from the middle other offsets are tried."""
_FEW_FACTORS, _FEW_NUDGES = (0, 1, -1), (0, 4, -4)
"""Those tried where shifts vary as well."""
_NOT_TRIED = np.iinfo(np.int64).max
"""In place of how many steps are wrong."""


@dataclass(frozen=True)
class Task:
    """What is to be computed: low and high are the clamp, the arrays int64 [channels].

    `reach`: no magnitude of a value, before its bias, is greater.
    """

    bias: Array
    reach: Array
    mantissas: Array
    exponents: Array
    zero_point: int
    low: int
    high: int
    once: bool

    def of(self, channels: npt.NDArray[np.intp]) -> Task:
        """Return the task of some channels."""
        bias, reach, mantissas, exponents = (
            one[channels] for one in (self.bias, self.reach, self.mantissas, self.exponents)
        )
        return replace(self, bias=bias, reach=reach, mantissas=mantissas, exponents=exponents)


def greatest_integer(dtype: type[np.float32 | np.float64]) -> int:
    """Return the bound up to which a floating-point type holds all integers."""
    return 1 << (int(np.finfo(dtype).nmant) + 1)


@dataclass(frozen=True)
class Span:
    """Least and greatest of some integers: int64 [channels]."""

    least: Array
    greatest: Array

    @staticmethod
    def of_groups(least: Array, greatest: Array, places: npt.NDArray[np.intp], count: int) -> Span:
        """Return the spans that hold those of each of `count` places."""
        info = np.iinfo(np.int64)
        lowest, highest = np.full(count, info.max), np.full(count, info.min)
        np.minimum.at(lowest, places, least)
        np.maximum.at(highest, places, greatest)
        return Span(lowest, highest)

    def of(self, chosen: Booleans | npt.NDArray[np.intp]) -> Span:
        """Return those of some of the channels."""
        return Span(self.least[chosen], self.greatest[chosen])

    def plus(self, shifts: Array) -> Span:
        """Return the spans of the numbers moved."""
        return Span(self.least + shifts, self.greatest + shifts)

    def magnitudes(self) -> Array:
        """Return the greatest magnitudes."""
        return np.maximum(np.abs(self.least), np.abs(self.greatest))


@dataclass(frozen=True)
class _Thresholds:
    """Sums at which levels must be reached, and at which they must not yet: float64 [channels, levels].

    Infinite where no possible sum decides: a level beyond all of them must not be reached by the greatest, no more.
    """

    channels: npt.NDArray[np.intp]
    first: Array
    before: Array
    span: Span

    @staticmethod
    def within(reach: Span, channels: npt.NDArray[np.intp], sums: Array) -> _Thresholds:
        """Return the thresholds of those sums [channels, levels] at which levels are reached, for all sums in reach."""
        least, greatest = reach.least[:, np.newaxis], reach.greatest[:, np.newaxis]
        first: Array = np.where(sums > greatest, np.inf, np.maximum(sums, least))
        before: Array = np.where(sums <= least, -np.inf, np.minimum(sums - 1, greatest))
        ends = np.clip(sums[:, [0, -1]], least, greatest)
        return _Thresholds(channels, first, before, Span(ends[:, 0], ends[:, 1]))

    def of(self, chosen: Booleans) -> _Thresholds:
        """Return those of some of the channels."""
        return _Thresholds(self.channels[chosen], self.first[chosen], self.before[chosen], self.span.of(chosen))


@dataclass(frozen=True)
class Correction:
    """What is to be added to the result of one sum."""

    sum: int
    addend: int


class Steps:
    """Looks for factors and offsets with which the arithmetic of _InSteps is right for every sum.

    The sums include the bias here, so that channels of one multiplier share what is found.
    """

    def __init__(self, task: Task, biases: Span, sums: Span, base: int, dtype: type[np.float32 | np.float64]) -> None:
        """Take the spans of biases and sums, and what unsigned results are moved by."""
        channels = task.mantissas.size
        self.wrong = np.full(channels, _NOT_TRIED)
        """At how many levels the best arithmetic found begins a step at another sum."""
        self.factors: Array = np.zeros(channels, dtype)
        self.offsets: Array = np.zeros(channels, dtype)
        self.shifts = np.zeros(channels, np.int64)
        self.signed = task.low < task.zero_point
        self._task, self._dtype, self._biases, self._sums = task, dtype, biases, sums
        self._levels = np.arange(task.low + 1, task.high + 1) - task.zero_point
        self._results: Array = (self._levels + (0 if self.signed else base)).astype(dtype)
        self._thresholds: _Thresholds | None = None

    def search(self) -> None:
        """Try the real factors and their neighbours, which round other products up, with several shifts and offsets."""
        task = self._task
        possible = (task.mantissas > 0) & (task.exponents <= 0) & (task.exponents >= -_GREATEST_STEP_SHIFT)
        channels = np.flatnonzero(possible)
        if not (channels.size and self._levels.size):
            return
        real: Array = np.ldexp(task.mantissas.astype(np.float64), task.exponents - 31).astype(self._dtype)
        sums = _first_sums(task.of(channels), self._levels)
        most, biases = greatest_integer(self._dtype), self._biases.of(channels)
        thresholds = _Thresholds.within(self._sums.of(channels), channels, sums)
        middles = np.zeros_like(self.shifts)
        tried: tuple[Sequence[int], ...] = (0,), _FACTORS, _NUDGES
        if not self.signed:
            middle = -(thresholds.span.least + thresholds.span.greatest) // 2
            middles[channels] = np.clip(middle, -most - biases.least, most - biases.greatest)
            tried = _SHIFTS, _FEW_FACTORS, _FEW_NUDGES
        thresholds = thresholds.of(thresholds.span.plus(middles[channels]).magnitudes() < most)
        for shift, units in itertools.product(*tried[:2]):
            channels = thresholds.channels
            if not channels.size:
                return
            factors = real[channels] + units * np.spacing(real[channels])
            self._fit(thresholds, middles[channels] + shift, factors, tried[2])
            thresholds = thresholds.of(self.wrong[channels] > 0)
        self._thresholds = thresholds

    def corrections(self, channel: int, most: int) -> Sequence[Correction] | None:
        """Return what makes the results of a channel with steps at wrong sums right, or None if that is more."""
        thresholds = self._thresholds
        if thresholds is None or self.wrong[channel] > most:
            return None
        (at,) = np.flatnonzero(thresholds.channels == channel)
        found: list[Correction] = []
        for addend, sums in ((1, thresholds.first[at]), (-1, thresholds.before[at])):
            for level in np.flatnonzero(self._reached_by(channel, sums) == (addend < 0)):
                total = sums[level]
                while self._reached_by(channel, total)[level] == (addend < 0):
                    found.append(Correction(int(total), addend))
                    total += addend
                    if len(found) > most:
                        return None
        return found

    def _fit(self, thresholds: _Thresholds, shifts: Array, factors: Array, nudges: Sequence[int]) -> None:
        """Try offsets about midway between the least and the greatest that may be right; keep what is wrong least."""
        channels = thresholds.channels
        first: Array = (thresholds.first + shifts[:, np.newaxis]).astype(self._dtype) * factors[:, np.newaxis]
        before: Array = (thresholds.before + shifts[:, np.newaxis]).astype(self._dtype) * factors[:, np.newaxis]
        # A level of 0 or less is reached where the total, cut towards 0, is more than the level less 1.
        behind = self._levels <= 0
        goals: Array = self._results.astype(np.float64)
        least: Array = goals - first
        greatest: Array = goals - before
        least[:, behind] = before[:, behind] - (goals[behind] - 1)
        greatest[:, behind] = first[:, behind] - (goals[behind] - 1)
        low, high = least.max(axis=1), greatest.min(axis=1)
        middles = (np.where(low == -np.inf, high - 1, low) + np.where(high == np.inf, low + 1, high)) / 2
        for nudge in nudges:
            offsets = (middles + nudge / 16 * np.spacing(self._dtype(128))).astype(self._dtype)
            misses = ~self._reached(first, offsets[:, np.newaxis]) | self._reached(before, offsets[:, np.newaxis])
            wrong = misses.sum(axis=1)
            better = wrong < self.wrong[channels]
            if better.any():
                of_better = channels[better]
                self.wrong[of_better], self.shifts[of_better] = wrong[better], shifts[better]
                self.factors[of_better], self.offsets[of_better] = factors[better], offsets[better]
            left = wrong > 0
            if not left.all():
                channels, shifts, factors = channels[left], shifts[left], factors[left]
                first, before, middles = first[left], before[left], middles[left]

    def _reached_by(self, channel: int, sums: Array) -> Array:
        """Tell which levels the kept arithmetic of a channel reaches at sums, one of each level or one for all."""
        products: Array = (sums + self.shifts[channel]).astype(self._dtype) * self.factors[channel]
        return self._reached(products, self.offsets[channel])

    def _reached(self, products: Array, offsets: Array) -> Array:
        totals = np.trunc(products + np.copysign(offsets, products)) if self.signed else products + offsets
        reached: Array = totals >= self._results
        return reached


def _first_sums(task: Task, levels: Array) -> Array:
    """Return the least sums (with their bias) whose specified result, less the zero point, is at least a level.

    [channels, levels]. Where it is rounded twice, first the least product that the second rounding takes to the level.
    """
    mantissas, shifts = task.mantissas[:, np.newaxis], -task.exponents[:, np.newaxis]
    if task.once:
        half = np.int64(1) << (shifts + 30)
        numerators = (levels << (shifts + 31)) - half
    else:
        products = (levels << shifts) - ((np.int64(1) << shifts) >> 1) + ((levels <= 0) & (shifts > 0))
        numerators = (products << 31) - (1 << 30)
    sums: Array = -(-numerators // mantissas)
    return sums
