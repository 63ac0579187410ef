# SPDX-License-Identifier: Apache-2.0
"""From exact sums to 8-bit results, by floating-point arithmetic that gives the specified integers.

Float32 serves the channels for which it was found to give them for every sum, float64 nearly all others, int64 the
rest. Sums with bias are of 32 bits, as the reference's: those that reach further wrap.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from nn_runtime.channel_rows import ChannelRows
from nn_runtime.operand import dtype_of
from nn_runtime.quantization import (
    activation_range_quantized,
    multiply_by_quantized_multiplier,
    multiply_rounding_once,
    with_signs_of,
)
from nn_runtime.requantization_search import Correction, Span, Steps, Task, greatest_integer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nn_runtime.codes import FuseCode
    from nn_runtime.operand import Array
    from nn_runtime.quantization import Quantized

    Booleans = npt.NDArray[np.bool_]
    Multipliers = tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]
    """Mantissas and exponents, one each or one per channel."""
    _Plan = list[tuple["_Arithmetic", npt.NDArray[np.intp]]]
    """Arithmetics with their channels; later ones correct the results of earlier ones."""

_WORTHWHILE = 0.75
"""Part of the channels that an arithmetic must serve: the others are taken out of the rows one by one."""
_ANY_INTEGER = 1 << 53
"""No value is greater in magnitude: what float64 holds."""
_FLOAT32_INTEGER = 1 << 24
"""No integer of float32 is greater in magnitude, as `requantize` takes them."""
_INT32_SUMS = 1 << 31
_MOST_CORRECTIONS = 16
"""Each costs two steps of arithmetic of its channel's results, and two short calls."""


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
        self,
        bias: Array,
        multipliers: Multipliers,
        output: Quantized,
        activation: FuseCode,
        *,
        once: bool = False,
        reach: Array | None = None,
    ) -> None:
        """Take the arguments of `requantize`, and what no magnitude of a value exceeds [channels], if that is known."""
        mantissas, exponents = (np.broadcast_to(one, bias.shape).astype(np.int64) for one in multipliers)
        bounds = activation_range_quantized(activation, output)
        known = np.full(bias.shape, _ANY_INTEGER) if reach is None else reach.astype(np.int64)
        self._task = Task(bias.astype(np.int64), known, mantissas, exponents, output.zero_point, *bounds, once)
        self._type = dtype_of(output.type)
        self._every = np.arange(bias.size)
        self._greatest_bias = int(np.abs(self._task.bias).max(initial=0))
        self._greatest_value = None if reach is None else int(known.max(initial=0))

    def __call__(self, values: Array, out: Array | None = None) -> Array:
        """Return the results of values [..., channels], in `out` (contiguous, of the output's type) if it is given."""
        results = np.empty(values.shape, self._type) if out is None else out
        for arithmetic, channels in self._plan_for(values):
            if channels is self._every:
                arithmetic(values, results)
            else:
                some = np.empty((*values.shape[:-1], channels.size), self._type)
                arithmetic(values[..., channels], some)
                results[..., channels] = some
        return results

    def _plan_for(self, values: Array) -> _Plan:
        greatest = self._greatest_value
        if greatest is None:
            is_float32 = values.dtype == np.float32
            greatest = _FLOAT32_INTEGER if is_float32 else int(np.abs(values).max(initial=0))
        if greatest + self._greatest_bias >= _INT32_SUMS:
            return self._of_sums_that_wrap
        return self._of_float32 if values.dtype == np.float32 else self._of_others

    @functools.cached_property
    def _of_sums_that_wrap(self) -> _Plan:
        return self._plan((_InInt64,), self._every)

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


class _Arithmetic(Protocol):
    exact: Booleans
    """For which channels the results are the specified ones."""

    def __init__(self, task: Task, dtype: np.dtype[np.generic]) -> None: ...

    def __call__(self, values: Array, results: Array) -> None:
        """Write the results of values [..., channels] of the task."""


class _InInt64:
    """The specified steps."""

    def __init__(self, task: Task, dtype: np.dtype[np.generic]) -> None:
        self._task = task
        self._multiply = multiply_rounding_once if task.once else multiply_by_quantized_multiplier
        self.exact = np.ones(task.bias.size, np.bool_)

    def __call__(self, values: Array, results: Array) -> None:
        task = self._task
        sums = (values.astype(np.int64) + task.bias).astype(np.int32)
        products = self._multiply(sums.astype(np.int64), task.mantissas, task.exponents)
        products += task.zero_point
        np.clip(products, task.low, task.high, out=products)
        results[...] = products


class _InSteps:
    """One multiplication between two additions, for the channels where that begins every step at the right sum.

    Both the specified result and this one never fall as the sum grows, so they are equal everywhere if each of their
    steps, at most 255, begins at the same sum. Where both signs occur, the second addition is one of magnitudes,
    followed by cutting to an integer, because the two roundings of the specified result are alike for both signs.
    Where only a few sums are wrong, their results are corrected.
    """

    float_type: type[np.float32 | np.float64]

    def __init__(self, task: Task, dtype: np.dtype[np.generic]) -> None:
        self._codes = Codes((task.low, task.high), dtype)
        # One search for all channels of a multiplier, but for biases far from each other; folded ones exceed 32 bits.
        keys = ((task.mantissas * 64 + task.exponents) << 24) + (task.bias >> 24)
        _, first, places = np.unique(keys, return_index=True, return_inverse=True)
        self._base = task.zero_point + self._codes.flip
        reach = np.minimum(task.reach, greatest_integer(self.float_type))
        biases = Span.of_groups(task.bias, task.bias, places, first.size)
        sums = Span.of_groups(task.bias - reach, task.bias + reach, places, first.size)
        steps = Steps(task.of(first), biases, sums, self._base, self.float_type)
        steps.search()
        self._signed = steps.signed
        shifts = task.bias + steps.shifts[places]
        summable = np.abs(shifts) <= greatest_integer(self.float_type)
        self.exact = (steps.wrong == 0)[places] & summable
        self._corrections = _corrections(steps, places, task.bias, reach, np.flatnonzero(summable & ~self.exact))
        self.exact[list(self._corrections)] = True
        offsets = np.abs(steps.offsets) if steps.signed else steps.offsets
        self._rows = ChannelRows(shifts.astype(self.float_type), steps.factors[places], offsets[places])

    def __call__(self, values: Array, results: Array) -> None:
        for piece, out, (shifts, factors, offsets) in self._rows.pieces(values, results):
            total = np.add(piece, shifts)
            total *= factors
            if self._signed:
                total += with_signs_of(total, offsets)
                np.trunc(total, out=total)
                total += self._base
            else:
                total += offsets
            self._codes.write(total, out)
        for channel, corrections in self._corrections.items():
            sums, codes = values[..., channel], results[..., channel]
            for one in corrections:
                (np.add if one.addend > 0 else np.subtract)(codes, sums == one.sum, out=codes)


def _corrections(
    steps: Steps, places: npt.NDArray[np.intp], biases: Array, reach: Array, channels: npt.NDArray[np.intp]
) -> Mapping[int, Sequence[Correction]]:
    """Return by channel the corrections, of values in reach, that make it right; nothing if they are many."""
    found: dict[int, Sequence[Correction]] = {}
    of_place = functools.cache(lambda place: steps.corrections(place, _MOST_CORRECTIONS))
    left = _MOST_CORRECTIONS
    for channel in channels.tolist():
        needed = of_place(int(places[channel]))
        if needed is not None:
            values = (Correction(one.sum - int(biases[channel]), one.addend) for one in needed)
            found[channel] = [one for one in values if abs(one.sum) <= reach[channel]]
            left -= len(found[channel])
            if left < 0:
                return {}
    return found


class _InFloat32(_InSteps):
    float_type = np.float32


class _InFloat64(_InSteps):
    float_type = np.float64


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
        totals.clip(totals.dtype.type(self._low), totals.dtype.type(self._high), out=totals)
        np.copyto(codes, totals, casting="unsafe")
        if self.flip:
            codes ^= self.flip
