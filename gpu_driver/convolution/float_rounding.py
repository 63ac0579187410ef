# SPDX-License-Identifier: Apache-2.0
"""Requantisation by float32 arithmetic, where it gives the specified integers for every sum that can occur.

The specified result is a step function of the sum: between the clamps it has at most 255 steps. A fused multiply-add
rounded towards zero and then cut to an integer makes another one, whose only errors are those of its factor and offset:
whole numbers are float32 numbers, so rounding towards zero passes none. Both functions are monotone, so they are equal
if each step begins at the same sum. Factors and offsets are tried near their real values until that is so. One float32
factor is 2^-25 from the real one, which is too much for every fifth to tenth channel of a trained network; two, the
second of them added with the offset, are not.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from nn_runtime.quantization import multiply_by_quantized_multiplier
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nn_runtime.operand import Array

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]
_Arithmetic: TypeAlias = "tuple[Array, Array, Array]"
"""Factors, rests and offsets by channel."""

_GREATEST_SHIFT = 22
"""So that thresholds times mantissas are integers of 64 bits."""
_NEAR, _FAR = 4e-5, 2e-4
"""How near to a whole number, in steps of the result, the first try and later ones can go wrong."""
_NEARER = 2e-6
"""The same with two factors: far more than rounding the second product changes, and the offsets that are tried."""
_PIECE = 64
"""Channels looked at together, so that the temporaries stay in the cache."""
_INTEGERS = 2**24
"""Up to here all integers are float32 numbers."""
_DOUBT = 1e-13
"""More than rounding to float64 changes a value below 512."""
_DOUBTS = -_DOUBT, _DOUBT
_FACTOR_UNITS, _OFFSETS = (0, 1, -1, 2, -2), (0.0, 1e-6, -1e-6)
_NUDGES = 0, 1, -1, 2, -2, 3, -3
"""How many units in the last place of an offset from the middle others are tried with two factors."""


@dataclass(frozen=True)
class FloatScaling:
    """Factors and offsets by channel, and for which channels they give the specified results.

    The result of x is x * factor + offset, or where `centred` x * factor + offset with the sign of x, cut to an
    integer; then the zero point is to be added. Where a rest is not 0, x * factor + (x * rest + offset with the sign of
    x), centred or not.
    """

    factors: FloatArray
    rests: FloatArray
    offsets: FloatArray
    exact: npt.NDArray[np.bool_]
    centred: bool


@dataclass
class _Steps:
    """First sums of steps that may go wrong: channel, first value (before the zero point is added), sum."""

    channels: IntArray
    levels: IntArray
    sums: IntArray

    def of(self, keep: npt.NDArray[np.bool_]) -> _Steps:
        """Return the steps of some channels."""
        kept = keep[self.channels]
        return _Steps(self.channels[kept], self.levels[kept], self.sums[kept])


class FloatSearch:
    """Looks for the FloatScaling of one operation whose results are rounded twice.

    mantissas, exponents: by channel, as `nn_runtime.quantization` has them; sums: least and greatest sums; bounds: the
    results' clamps.
    """

    def __init__(
        self,
        mantissas: npt.NDArray[np.generic],
        exponents: npt.NDArray[np.generic],
        sums: tuple[IntArray, IntArray],
        zero_point: int,
        bounds: tuple[int, int],
    ) -> None:
        self._mantissas, self._shifts = mantissas.astype(np.int64), -exponents.astype(np.int64)
        self._sums = sums
        self._centred = bounds[0] < zero_point
        self._levels = np.arange(bounds[0] + 1, bounds[1] + 1, dtype=np.int64) - zero_point
        possible = (self._mantissas > 0) & (self._shifts >= 0) & (self._shifts <= _GREATEST_SHIFT)
        shifts = np.where(possible, self._shifts, 1)
        self._factors = np.ldexp(self._mantissas.astype(np.float64), -shifts - 31)
        self._offsets = 0.5 + np.ldexp(0.5, -shifts) * (shifts > 0)  # a half of each rounding
        # Sums that are no floats have the first or the last result, both ways.
        last_step = np.abs(self._levels).max(initial=0) + 1
        fits = (np.maximum(-sums[0], sums[1]) < _INTEGERS) | (last_step < _INTEGERS * self._factors)
        constant, offsets = self._constants(bounds[0] - zero_point, bounds[1] - zero_point)
        self._possible = possible & fits & ~constant
        self._found = FloatScaling(self._no_rests, self._no_rests, offsets, constant, self._centred)

    def _constants(self, low: int, high: int) -> tuple[npt.NDArray[np.bool_], FloatArray]:
        """Return which channels have one result, whatever the sum, and offsets that give it without a factor."""
        exponents = -np.maximum(self._shifts, 0)
        results = (multiply_by_quantized_multiplier(sums, self._mantissas, exponents) for sums in self._sums)
        first, last = (np.clip(result, low, high) for result in results)
        return (first == last) & (self._shifts >= 0), (np.abs(first) + 0.5).astype(np.float32)

    def result(self) -> FloatScaling:
        """Return what was found."""
        wrong = self._possible
        for near, candidates in ((_NEAR, self._nearest), (_FAR, self._neighbours), (_NEARER, self._pairs)):
            wrong = self._fit(wrong, near, candidates)
        return self._found

    def _fit(
        self, channels: npt.NDArray[np.bool_], near: float, candidates: Callable[[_Steps], Iterator[_Arithmetic]]
    ) -> npt.NDArray[np.bool_]:
        """Keep for each of some channels the first candidate that is right; return those for which none is."""
        found, wrong = self._found, channels
        steps = self._steps(wrong, near)
        for tried in candidates(steps):
            if not wrong.any():
                break
            good = wrong & ~self._wrong(steps, tried)
            for kept, values in zip((found.factors, found.rests, found.offsets), tried, strict=True):
                kept[good] = values[good]
            found.exact[good] = True
            wrong = wrong & ~good
            steps = steps.of(wrong)
        return wrong

    def _steps(self, channels: npt.NDArray[np.bool_], near: float) -> _Steps:
        """Return the steps of some channels that begin where their value is less than `near` from a whole number."""
        at = np.flatnonzero(channels)
        found = [self._steps_of(at[first : first + _PIECE], near) for first in range(0, at.size, _PIECE)]
        if not found:
            return _Steps(*(np.zeros(0, np.int64) for _ in range(3)))
        rows, levels = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return _Steps(rows, levels, self._first_sums(rows, levels))

    def _steps_of(self, channels: IntArray, near: float) -> tuple[IntArray, IntArray]:
        """Return (channel, level) of the steps of a few channels, as `_steps` says."""
        factors, offsets = self._factors[channels, np.newaxis], self._offsets[channels, np.newaxis]
        # Where x * factor + offset, with their signs, is the level; a level of 0 or less begins behind the one below.
        begins = self._levels - offsets
        if self._centred:
            behind = self._levels <= 0
            begins[:, behind] = self._levels[behind] - 1 + offsets
        begins /= factors
        distance = np.rint(begins)
        distance -= begins
        reached = np.abs(distance, out=distance) < near / factors
        least, greatest = (one[channels, np.newaxis] for one in self._sums)
        reached &= begins >= least - 2
        reached &= begins <= greatest + 2
        rows, columns = np.nonzero(reached)
        return channels[rows], self._levels[columns]

    def _first_sums(self, channels: IntArray, levels: IntArray) -> IntArray:
        """Return the least sums whose specified result is at least a level.

        First the least product that the second rounding takes to the level, ties away from zero.
        """
        mantissas, shifts = self._mantissas[channels], self._shifts[channels]
        products = (levels << shifts) - ((1 << shifts) >> 1) + ((levels <= 0) & (shifts > 0))
        sums: IntArray = -(-((products << 31) - (1 << 30)) // mantissas)
        return sums

    def _nearest(self, steps: _Steps) -> Iterator[_Arithmetic]:
        """Yield what is nearest to the real numbers."""
        yield self._factors.astype(np.float32), self._no_rests, self._offsets.astype(np.float32)

    def _neighbours(self, steps: _Steps) -> Iterator[_Arithmetic]:
        """Yield factors a few units from their real values, with offsets as far from all whole numbers as possible."""
        factors = self._factors.astype(np.float32)
        for units in _FACTOR_UNITS:
            tried = (factors + units * np.spacing(factors)).astype(np.float32)
            middles = self._middles(steps, tried, _FAR)
            for offset in _OFFSETS:
                yield tried, self._no_rests, (middles + offset).astype(np.float32)

    def _pairs(self, steps: _Steps) -> Iterator[_Arithmetic]:
        """Yield factors of two parts, with such offsets."""
        middles = self._middles(steps, self._factors, _NEARER).astype(np.float32)
        nearest = self._factors.astype(np.float32)
        for nudge, units in itertools.product(_NUDGES, _FACTOR_UNITS):
            factors = (nearest + units * np.spacing(nearest)).astype(np.float32)
            rests = (self._factors - factors).astype(np.float32)
            yield factors, rests, (middles + nudge * np.spacing(middles)).astype(np.float32)

    @property
    def _no_rests(self) -> FloatArray:
        return np.zeros(self._factors.size, np.float32)

    def _middles(self, steps: _Steps, factors: Array, near: float) -> npt.NDArray[np.float64]:
        """Return the offsets that are as far as possible from those that make one of the steps wrong."""
        late, early = (np.full(factors.size, near), np.full(factors.size, near))
        first, before = self._distances(steps, (factors, self._no_rests, self._offsets))
        positive = steps.levels > 0  # there a greater offset makes steps begin earlier, elsewhere later
        np.minimum.at(late, steps.channels, np.where(positive, first, before))
        np.minimum.at(early, steps.channels, np.where(positive, before, first))
        middles: npt.NDArray[np.float64] = self._offsets + (early - late) / 2
        return middles

    def _distances(
        self, steps: _Steps, arithmetic: _Arithmetic, doubt: float = 0.0
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return how far the first sum of each step lies behind its beginning, and the sum before that before it.

        `doubt` is added to what is rounded towards zero.
        """
        has_rests = arithmetic[1].any()
        factor, rest, offset = (one[steps.channels].astype(np.float64) for one in arithmetic)
        least = steps.levels.astype(np.float64)
        if self._centred:  # cutting makes 0 of what is greater than -1, and so on
            least = np.where(steps.levels > 0, least, least - 1)
            offset = np.where(steps.levels > 0, offset, -offset)

        def value(sums: IntArray) -> npt.NDArray[np.float64]:
            x = sums.astype(np.float32).astype(np.float64)
            products: npt.NDArray[np.float64] = x * factor
            products += np.where(rest == 0, offset, _cut_to_float32(x * rest + offset + doubt)) if has_rests else offset
            return products

        return value(steps.sums) - least, least - value(steps.sums - 1)

    def _wrong(self, steps: _Steps, arithmetic: _Arithmetic) -> npt.NDArray[np.bool_]:
        """Return for every channel whether float32 arithmetic begins one of the steps elsewhere."""
        wrong = np.zeros(self._factors.size, np.bool_)
        for doubt in _DOUBTS if arithmetic[1].any() else (0.0,):
            first, before = self._distances(steps, arithmetic, doubt)
            wrong[steps.channels[(first < _DOUBT) | (before < _DOUBT)]] = True
        return wrong


def _cut_to_float32(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    nearest: FloatArray = values.astype(np.float32)
    beyond = np.abs(nearest) > np.abs(values)
    return np.where(beyond, np.nextafter(nearest, np.float32(0)), nearest).astype(np.float64)
