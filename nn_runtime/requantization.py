# SPDX-License-Identifier: Apache-2.0
"""From exact sums to 8-bit results, by floating-point arithmetic that gives the specified integers.

Float32 serves the channels for which it was found to give them for every sum, float64 nearly all others, int64 the
rest.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from nn_runtime.operand import dtype_of
from nn_runtime.quantization import (
    activation_range_quantized,
    multiply_by_quantized_multiplier,
    multiply_rounding_once,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nn_runtime.codes import FuseCode
    from nn_runtime.operand import Array
    from nn_runtime.quantization import Quantized

    Booleans = npt.NDArray[np.bool_]
    Multipliers = tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]
    """Mantissas and exponents, one each or one per channel."""
    _Plan = list[tuple["_Arithmetic", npt.NDArray[np.intp]]]
    """Arithmetics with their channels; later ones correct the results of earlier ones."""

_PIECE_BYTES = 1 << 18
"""What is requantised at a time, so that the temporaries stay in the cache."""
_ROW_BYTES = 1 << 14
_GREATEST_STEP_SHIFT = 22
"""So that steps times powers of two are integers of 64 bits."""
_UNITS = tuple(range(9)) + tuple(range(-1, -9, -1))
"""How many units in the last place from the real factor others are tried."""
_WORTHWHILE = 0.75
"""Part of the channels that an arithmetic must serve: the others are taken out of the rows one by one."""


def requantize(
    values: Array, bias: Array, multipliers: Multipliers, output: Quantized, activation: FuseCode, *, once: bool = False
) -> Array:
    """Return 8-bit clamp((values + bias) * multiplier + zero_point), the multiplication as the reference's.

    `values` [..., channels] holds integers in any numeric type, those of float32 at most 2^24 in magnitude; `bias` is
    [channels], the multipliers' mantissas and exponents have one element or one per channel. Same bits as
    `multiply_by_quantized_multiplier`, or with `once` as `multiply_rounding_once`.
    """
    return Requantization(bias, multipliers, output, activation, once=once)(values)


class Requantization:
    """`requantize` made ready for many values; several threads may use one."""

    def __init__(
        self, bias: Array, multipliers: Multipliers, output: Quantized, activation: FuseCode, *, once: bool = False
    ) -> None:
        """Take the arguments of `requantize`."""
        mantissas, exponents = (np.broadcast_to(one, bias.shape).astype(np.int64) for one in multipliers)
        bounds = activation_range_quantized(activation, output)
        self._task = _Task(bias.astype(np.int64), mantissas, exponents, output.zero_point, *bounds, once)
        self._type = dtype_of(output.type)
        self._every = np.arange(bias.size)

    def __call__(self, values: Array, out: Array | None = None) -> Array:
        """Return the results of values [..., channels], in `out` (contiguous, of the output's type) if it is given."""
        results = np.empty(values.shape, self._type) if out is None else out
        for arithmetic, channels in self._of_float32 if values.dtype == np.float32 else self._of_others:
            if channels is self._every:
                arithmetic(values, results)
            else:
                some = np.empty((*values.shape[:-1], channels.size), self._type)
                arithmetic(values[..., channels], some)
                results[..., channels] = some
        return results

    @functools.cached_property
    def _of_float32(self) -> _Plan:
        return self._plan((_InFloat32, _InFloat64, _InInt64), self._every)

    @functools.cached_property
    def _of_others(self) -> _Plan:
        return self._plan((_InFloat64, _InInt64), self._every)

    def _plan(self, kinds: Sequence[type[_Arithmetic]], channels: npt.NDArray[np.intp]) -> _Plan:
        arithmetic = kinds[0](self._task.of(channels), self._type)
        exact = arithmetic.exact
        if exact.all():
            return [(arithmetic, channels)]
        if exact.mean() < _WORTHWHILE:
            return self._plan(kinds[1:], channels)
        return [(arithmetic, channels), *self._plan(kinds[1:], channels[~exact])]


@dataclass(frozen=True)
class _Task:
    """What is to be computed: bias, mantissas and exponents are int64 [channels], low and high the clamp."""

    bias: Array
    mantissas: Array
    exponents: Array
    zero_point: int
    low: int
    high: int
    once: bool

    def of(self, channels: npt.NDArray[np.intp]) -> _Task:
        """Return the task of some channels."""
        bias, mantissas, exponents = (one[channels] for one in (self.bias, self.mantissas, self.exponents))
        return replace(self, bias=bias, mantissas=mantissas, exponents=exponents)


class _Arithmetic(Protocol):
    exact: Booleans
    """For which channels the results are the specified ones."""

    def __init__(self, task: _Task, dtype: np.dtype[np.generic]) -> None: ...

    def __call__(self, values: Array, results: Array) -> None:
        """Write the results of values [..., channels] of the task."""


class _InInt64:
    """The specified steps."""

    def __init__(self, task: _Task, dtype: np.dtype[np.generic]) -> None:
        self._task = task
        self._multiply = multiply_rounding_once if task.once else multiply_by_quantized_multiplier
        self.exact = np.ones(task.bias.size, np.bool_)

    def __call__(self, values: Array, results: Array) -> None:
        task = self._task
        products = self._multiply(values.astype(np.int64) + task.bias, task.mantissas, task.exponents)
        products += task.zero_point
        np.clip(products, task.low, task.high, out=products)
        results[...] = products


class _InSteps:
    """One multiplication between two additions, for the channels where that begins every step at the right sum.

    Both the specified result and this one never fall as the sum grows, so they are equal everywhere if each of their
    steps, at most 255, begins at the same sum. Where both signs occur, the second addition is one of magnitudes,
    followed by cutting to an integer, because the two roundings of the specified result are alike for both signs.
    """

    float_type: type[np.float32 | np.float64]

    def __init__(self, task: _Task, dtype: np.dtype[np.generic]) -> None:
        self._codes = Codes((task.low, task.high), dtype)
        keys = task.mantissas * 64 + task.exponents
        _, first, places = np.unique(keys, return_index=True, return_inverse=True)
        self._base = task.zero_point + self._codes.flip
        steps = _Steps(task.of(first), self._base, self.float_type)
        steps.search()
        self._signed = steps.signed
        shifts = task.bias + steps.shifts[places]
        self.exact = steps.exact[places] & (np.abs(shifts) <= _greatest_integer(self.float_type))
        self._rows = _Rows(shifts.astype(self.float_type), steps.factors[places], steps.offsets[places])

    def __call__(self, values: Array, results: Array) -> None:
        for piece, out, (shifts, factors, offsets) in self._rows.pieces(values, results):
            total = np.add(piece, shifts)
            total *= factors
            if self._signed:
                total += np.copysign(offsets, total)
                np.trunc(total, out=total)
                total += self._base
            else:
                total += offsets
            self._codes.write(total, out)


class _InFloat32(_InSteps):
    float_type = np.float32


class _InFloat64(_InSteps):
    float_type = np.float64


class _Steps:
    """Looks for factors and offsets with which the arithmetic of _InSteps is right for every sum.

    The sums include the bias here, so that channels of one multiplier share what is found.
    """

    def __init__(self, task: _Task, base: int, dtype: type[np.float32 | np.float64]) -> None:
        channels = task.mantissas.size
        self.exact = np.zeros(channels, np.bool_)
        self.factors: Array = np.zeros(channels, dtype)
        self.offsets: Array = np.zeros(channels, dtype)
        self.shifts = np.zeros(channels, np.int64)
        self.signed = task.low < task.zero_point
        self._task, self._dtype = task, dtype
        self._levels = np.arange(task.low + 1, task.high + 1) - task.zero_point
        self._results: Array = (self._levels + (0 if self.signed else base)).astype(dtype)

    def search(self) -> None:
        """Try the real factors and their neighbours, which round other products up."""
        task = self._task
        possible = (task.mantissas > 0) & (task.exponents <= 0) & (task.exponents >= -_GREATEST_STEP_SHIFT)
        channels = np.flatnonzero(possible)
        if not (channels.size and self._levels.size):
            return
        real: Array = np.ldexp(task.mantissas.astype(np.float64), task.exponents - 31).astype(self._dtype)
        sums = _first_sums(task.of(channels), self._levels)
        if not self.signed:
            self.shifts[channels] = -(sums[:, 0] + sums[:, -1]) // 2
        small = np.abs(sums + self.shifts[channels, np.newaxis]).max(axis=1) < _greatest_integer(self._dtype)
        channels, sums = channels[small], sums[small]
        for units in _UNITS:
            self.factors[channels] = real[channels] + units * np.spacing(real[channels])
            self._fit(channels, sums)
            wrong = ~self.exact[channels]
            channels, sums = channels[wrong], sums[wrong]

    def _fit(self, channels: npt.NDArray[np.intp], sums: Array) -> None:
        """Set the offsets midway between the least and the greatest that may be right, and tell whether they are."""
        factors, shifted = self.factors[channels, np.newaxis], sums + self.shifts[channels, np.newaxis]
        first: Array = shifted.astype(self._dtype) * factors
        before: Array = (shifted - 1).astype(self._dtype) * factors
        # A level of 0 or less is reached where the total, cut towards 0, is more than the level less 1.
        behind = self._levels <= 0
        goals: Array = self._results.astype(np.float64)
        least: Array = goals - first
        greatest: Array = goals - before
        least[:, behind] = before[:, behind] - (goals[behind] - 1)
        greatest[:, behind] = first[:, behind] - (goals[behind] - 1)
        self.offsets[channels] = (least.max(axis=1) + greatest.min(axis=1)) / 2
        right = self._reached(first, channels) & ~self._reached(before, channels)
        self.exact[channels] = right.all(axis=1)

    def _reached(self, products: Array, channels: npt.NDArray[np.intp]) -> Array:
        offsets = self.offsets[channels, np.newaxis]
        totals = np.trunc(products + np.copysign(offsets, products)) if self.signed else products + offsets
        reached: Array = totals >= self._results
        return reached


def _greatest_integer(dtype: type[np.float32 | np.float64]) -> int:
    """Return the bound up to which a floating-point type holds all integers."""
    return 1 << (int(np.finfo(dtype).nmant) + 1)


def _first_sums(task: _Task, levels: Array) -> Array:
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


class _Rows:
    """Constants by channel, repeated because numpy is slow with short rows; one number where all are equal."""

    def __init__(self, *constants: Array) -> None:
        self._channels, self._itemsize = max(1, constants[0].size), constants[0].itemsize
        self._constants = [one[:1] if np.all(one == one[:1]) else one for one in constants]
        self._repeated = functools.lru_cache(maxsize=4)(self._repeat)

    def pieces(self, values: Array, results: Array) -> Iterator[tuple[Array, Array, Sequence[Array]]]:
        """Yield parts of values and results [rows, width] that fit the cache, with the constants of a row [width]."""
        width, constants = self._repeated(values.size // self._channels)
        rows, out = values.reshape(-1, width), results.reshape(-1, width)
        step = max(1, _PIECE_BYTES // self._itemsize // width)
        for start in range(0, len(rows), step):
            yield rows[start : start + step], out[start : start + step], constants

    def _repeat(self, pixels: int) -> tuple[int, Sequence[Array]]:
        """Return the width of rows for so many pixels, and the constants of a row."""
        most = max(1, _ROW_BYTES // self._itemsize // self._channels)
        repeats = next(count for count in range(most, 0, -1) if pixels % count == 0)
        return repeats * self._channels, [one if one.size == 1 else np.tile(one, repeats) for one in self._constants]


class Codes:
    """The 8-bit end of floating-point arithmetic: clamp, then cut to an integer.

    `flip` is to be part of the totals, so that nothing is below 0 where they are cut, and is taken away after.
    """

    def __init__(self, bounds: tuple[int, int], dtype: np.dtype[np.generic]) -> None:
        """Take the least and greatest code, and their type."""
        self.flip = 128 if dtype == np.int8 else 0
        self._low, self._high = (bound + self.flip for bound in bounds)

    def write(self, totals: Array, results: Array) -> None:
        """Write the codes of totals, which are overwritten."""
        codes = results.view(np.uint8)
        np.clip(totals, totals.dtype.type(self._low), totals.dtype.type(self._high), out=totals)
        np.copyto(codes, totals, casting="unsafe")
        if self.flip:
            codes ^= self.flip
