# SPDX-License-Identifier: Apache-2.0
"""How to draw random operations that are valid: one rule per operation, one file per family, loaded from this folder.

A rule gets a `Drawing` (random numbers, the data type to draw for, the values of the graph so far) and returns a
`Drawn`: the arguments by the names of the operation's signature. Arguments that a signature marks as optional may be
left out from the tail. What AOSP's random tests leave to their constraint solver is here plain code.
"""

from __future__ import annotations

import functools
import importlib
import math
import pkgutil
from typing import TYPE_CHECKING, NoReturn, TypeAlias, TypeVar

import numpy as np

from nn_runtime.codes import OperandCode
from nn_runtime.operand import ELEMENT_TYPES, FLOAT_TYPES, Array, dtype_of, element_count
from nn_runtime.quantization import dequantize
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt

    from nn_runtime.codes import OperationCode
    from nn_runtime.operand import ChannelQuant, Dimensions, SubgraphView
    from nn_runtime.testing.tolerances import Criterion

T = TypeVar("T")

REPEATED = "*"
"""Argument name of the input that a signature lets occur any number of times."""

GREATEST_VALUE = 100.0
"""Values of a graph stay within it, so that rounding errors stay comparable with the tolerances."""

_REUSE = 0.7
"""Share of tensors taken from the graph where one fits."""
_CONSTANT = 0.3
"""Share of new tensors that are constants."""
_EVEN_UP_TO = 16


class Rejected(Exception):
    """A rule found nothing to draw from; another operation is tried."""


@dataclass(frozen=True, eq=False)
class Value:
    """One operand of a random graph (OperandView), with the data it has on the reference device.

    `array` is None where an optional operand is left out. `exact`: every correct device gives the same bits.
    """

    type: int
    dimensions: Dimensions = ()
    scale: float = 0.0
    zero_point: int = 0
    channel_quant: ChannelQuant | None = None
    array: Array | None = None
    constant: bool = False
    exact: bool = True

    @property
    def omitted(self) -> bool:
        """Whether it has no data."""
        return self.array is None

    @property
    def is_constant(self) -> bool:
        """Whether no run gives it other data."""
        return self.constant or self.omitted

    def value(self) -> Array | None:
        """Return the data."""
        return self.array

    def subgraph(self) -> SubgraphView | None:
        """Return None: no referenced models are drawn."""
        return None

    @functools.cached_property
    def real(self) -> Array:
        """The data as real numbers."""
        if self.array is None:
            return np.zeros(0)
        quantized = self.channel_quant is None and self.scale > 0 and self.type != OperandCode.TENSOR_INT32
        return dequantize(self.array, self) if quantized else self.array

    @functools.cached_property
    def span(self) -> tuple[float, float]:
        """Least and greatest real value; (0, 0) where there are none."""
        return (float(self.real.min()), float(self.real.max())) if self.real.size else (0.0, 0.0)


@dataclass(frozen=True)
class Result:
    """Type of an output; the dimensions follow from the operation."""

    type: int
    scale: float = 0.0
    zero_point: int = 0


Argument: TypeAlias = "Value | int | float | bool | Sequence[Value]"


@dataclass(frozen=True)
class Drawn:
    """An operation: inputs by name (a number stands for a scalar) and outputs (default: of the data type, unscaled)."""

    inputs: Mapping[str, Argument]
    outputs: Sequence[Result] = ()


@dataclass(frozen=True)
class Limit:
    """Greatest size of a dimension and greatest number of elements of a tensor."""

    dimension: int
    elements: int


class Drawing:
    """One operation being drawn."""

    def __init__(
        self, rng: np.random.Generator, code: int, data_type: int, values: Sequence[Value], limit: Limit
    ) -> None:
        """Draw operation `code` for a data type; tensors may be taken from `values`."""
        self.rng = rng
        self.code = code
        self.data_type = data_type
        self.limit = limit
        self._values = values

    @property
    def quantized(self) -> bool:
        """Whether the data type has scale and zero point."""
        element = ELEMENT_TYPES.get(self.data_type)
        return element is not None and element.zero_point_range is not None

    def chance(self, probability: float = 0.5) -> bool:
        """Return True as often as told."""
        return bool(self.rng.random() < probability)

    def integer(self, low: int, high: int) -> int:
        """Return an integer from low to high, both included; small ones are likelier."""
        if high < low:
            self.reject()
        return int(low + math.floor((high - low + 1) * self.rng.random() ** 2))

    def number(self, low: float, high: float) -> float:
        """Return a real number that float16 can hold."""
        return float(np.float16(self.rng.uniform(low, high)))

    def choice(self, items: Sequence[T]) -> T:
        """Return one of the items."""
        return items[int(self.rng.integers(len(items)))]

    def reject(self) -> NoReturn:
        """Give up this operation."""
        raise Rejected

    def activation(self) -> int:
        """Return a fuse code, which is NONE for integers."""
        return 0 if self.data_type == OperandCode.TENSOR_INT32 else int(self.rng.integers(4))

    def dims(self, low: int = 1, high: int = 4, greatest: int = 0) -> Dimensions:
        """Return new dimensions of a rank from low to high, each up to `greatest` (default: the graph's limit)."""
        rank = int(self.rng.integers(low, high + 1))
        room, sizes = self.limit.elements, []
        for _ in range(rank):
            most = max(1, min(greatest or self.limit.dimension, room))
            # Great sizes are spread over the orders of magnitude.
            spread = self.rng.random() * math.log(most + 1)
            sizes.append(int(math.exp(spread)) if most > _EVEN_UP_TO else int(self.rng.integers(1, most + 1)))
            room //= sizes[-1]
        self.rng.shuffle(sizes)
        return tuple(sizes)

    def tensor(
        self,
        rank: tuple[int, int] = (1, 4),
        span: tuple[float, float] = (-2.0, 2.0),
        code: int | None = None,
        dims: Dimensions | None = None,
        exact: bool = False,
        where: Callable[[Value], bool] | None = None,
        within: tuple[float, float] | None = None,
    ) -> Value:
        """Return a tensor of the data type (or `code`): one of the graph's, or a new one with values in `span`.

        A tensor of the graph is taken only if its rank or `dims` fit, its values lie `within` (default: as a graph's
        values may), it is `exact` where asked for, and `where` holds.
        """
        code = self.data_type if code is None else code
        low, high = within or (-GREATEST_VALUE, GREATEST_VALUE)

        def fits(value: Value) -> bool:
            return (
                value.type == code
                and (value.dimensions == dims if dims is not None else rank[0] <= len(value.dimensions) <= rank[1])
                and 0 not in value.dimensions
                and (value.exact or not exact)
                and low <= value.span[0]
                and value.span[1] <= high
                and value.channel_quant is None
                and (where is None or where(value))
            )

        if self.chance(_REUSE):
            found = [value for value in self._values if fits(value)]
            if found:
                return self.choice(found)
        value = self.new(dims if dims is not None else self.dims(*rank), span, code)
        if where is not None and not where(value):
            self.reject()
        return value

    def new(
        self,
        dims: Dimensions,
        span: tuple[float, float] = (-2.0, 2.0),
        code: int | None = None,
        quantization: tuple[float, int] | None = None,
    ) -> Value:
        """Return a new tensor, an input or (sometimes) a constant, with values in `span`."""
        code = self.data_type if code is None else code
        if element_count(dims) > self.limit.elements:
            self.reject()
        scale, zero_point = quantization or self.quantization(span, code)
        return Value(
            code, dims, scale, zero_point, array=self._data(code, dims, span, (scale, zero_point)),
            constant=self.chance(_CONSTANT),
        )  # fmt: skip

    def like(self, value: Value, span: tuple[float, float] = (-2.0, 2.0), dims: Dimensions | None = None) -> Value:
        """Return a tensor of type, quantisation and dimensions (or `dims`) of another: the graph's or a new one."""
        dims = value.dimensions if dims is None else dims
        quantization = (value.scale, value.zero_point)
        found = [
            other
            for other in self._values
            if (other.type, other.dimensions, other.scale, other.zero_point) == (value.type, dims, *quantization)
            and other.exact >= value.exact
            and max(map(abs, other.span)) <= GREATEST_VALUE
        ]
        if found and self.chance(_REUSE):
            return self.choice(found)
        return self.new(dims, span, value.type, quantization)

    def broadcast(self, value: Value) -> Dimensions:
        """Return dimensions that broadcast with those of a value: equal, some sizes 1, leading ones dropped."""
        if self.chance():
            return value.dimensions
        sizes = [1 if self.chance(0.3) else size for size in value.dimensions]
        return tuple(sizes[int(self.rng.integers(len(sizes))) :])

    def constant(self, data: npt.ArrayLike, code: int = OperandCode.TENSOR_INT32) -> Value:
        """Return a constant: axes, paddings, shapes."""
        array = np.array(data, dtype_of(code), order="C")
        return Value(code, array.shape, array=array, constant=True)

    def quantization(self, span: tuple[float, float], code: int | None = None) -> tuple[float, int]:
        """Return a scale and zero point of a type (default: the data type) that hold about the given span."""
        code = self.data_type if code is None else code
        element = ELEMENT_TYPES[code]
        if element.zero_point_range is None:
            return 0.0, 0
        low, high = element.zero_point_range
        info = np.iinfo(element.dtype)
        width = max(span[1] - span[0], 1e-3) * self.number(0.8, 1.3)
        scale = float(np.float32(width / (int(info.max) - int(info.min))))
        if low == high:
            return scale, low
        ideal = int(info.min) - round(span[0] / scale)
        return scale, int(np.clip(ideal + int(self.rng.integers(-8, 9)), low, high))

    def same(self, value: Value) -> Result:
        """Return an output of type and quantisation of a value."""
        return Result(value.type, value.scale, value.zero_point)

    def scaled(self, low: float, high: float) -> Result:
        """Return an output of the data type that holds about the given span of real values."""
        return Result(self.data_type, *self.quantization((min(low, 0.0), max(high, 0.0))))

    def _data(self, code: int, dims: Dimensions, span: tuple[float, float], quantization: tuple[float, int]) -> Array:
        dtype = dtype_of(code)
        if dtype.kind in "bi" and quantization[0] == 0:
            low, high = (0, 1) if dtype.kind == "b" else (math.ceil(span[0]), math.floor(span[1]))
            return self.rng.integers(low, high, dims, endpoint=True).astype(dtype)
        real = self.rng.uniform(*span, dims)
        if code in FLOAT_TYPES:
            return real.astype(dtype)
        info = np.iinfo(dtype)
        scale, zero_point = quantization
        codes: Array = np.clip(np.rint(real / scale) + zero_point, info.min, info.max).astype(dtype)
        return codes


@dataclass(frozen=True)
class Rule:
    """How to draw an operation, and how far its results may lie apart.

    `exact`: equal inputs give equal bits on every correct device.
    """

    draw: Callable[[Drawing], Drawn]
    criterion: Criterion
    exact: bool


_rules: dict[int, Rule] = {}
_reasons: dict[int, str] = {}


def draws(
    *codes: OperationCode, criterion: Criterion, exact: bool = False
) -> Callable[[Callable[[Drawing], Drawn]], Callable[[Drawing], Drawn]]:
    """Register the rule of operations; raises ValueError if one has a rule already."""

    def register(draw: Callable[[Drawing], Drawn]) -> Callable[[Drawing], Drawn]:
        for code in codes:
            if code in _rules:
                raise ValueError(f"{code.name} has two drawing rules")
            _rules[code] = Rule(draw, criterion, exact)
        return draw

    return register


def not_drawn(*codes: OperationCode, reason: str) -> None:
    """State why operations have no rule."""
    _reasons.update(dict.fromkeys(codes, reason))


def rules() -> Mapping[int, Rule]:
    """Return every rule by operation code."""
    _load_families()
    return _rules


def reasons() -> Mapping[int, str]:
    """Return why an operation has no rule, by code."""
    _load_families()
    return _reasons


@functools.cache
def _load_families() -> None:
    package = importlib.import_module(__name__)
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{__name__}.{module.name}")
