# SPDX-License-Identifier: Apache-2.0
"""What an operand is: its types with their sizes, its dimensions, and the view that operations are written against.

Source: SURFACE section (d), after NeuralNetworksTypes.h of Android 13.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from nn_runtime.codes import OperandCode, is_extension_code, operand_type_name
from nn_runtime.errors import BadData
from nn_runtime.numeric import float32, whole, whole_numbers
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

Array: TypeAlias = npt.NDArray[Any]
"""An array whose dtype is that of an operand type, known only when it runs."""

Dimensions: TypeAlias = tuple[int, ...]
"""Sizes, outermost first. In a model 0 is a size not known yet; in a finished result it is a true 0."""

MAX_SIZE_BYTES = 2**32 - 1


@dataclass(frozen=True)
class ElementType:
    """Facts of one standard operand type: array dtype, whether it has dimensions, zero points allowed."""

    dtype: np.dtype[Any]
    is_tensor: bool
    zero_point_range: tuple[int, int] | None = None
    """Range of zero points where the type needs a scale > 0; None where it has none."""


def _element(dtype: type[np.generic], is_tensor: bool, zero_points: tuple[int, int] | None = None) -> ElementType:
    return ElementType(np.dtype(dtype), is_tensor, zero_points)


ELEMENT_TYPES: dict[int, ElementType] = {
    OperandCode.FLOAT32: _element(np.float32, False),
    OperandCode.INT32: _element(np.int32, False),
    OperandCode.UINT32: _element(np.uint32, False),
    OperandCode.TENSOR_FLOAT32: _element(np.float32, True),
    OperandCode.TENSOR_INT32: _element(np.int32, True),
    OperandCode.TENSOR_QUANT8_ASYMM: _element(np.uint8, True, (0, 255)),
    OperandCode.BOOL: _element(np.bool_, False),
    OperandCode.TENSOR_QUANT16_SYMM: _element(np.int16, True, (0, 0)),
    OperandCode.TENSOR_FLOAT16: _element(np.float16, True),
    OperandCode.TENSOR_BOOL8: _element(np.bool_, True),
    OperandCode.FLOAT16: _element(np.float16, False),
    OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL: _element(np.int8, True),
    OperandCode.TENSOR_QUANT16_ASYMM: _element(np.uint16, True, (0, 65535)),
    OperandCode.TENSOR_QUANT8_SYMM: _element(np.int8, True, (0, 0)),
    OperandCode.TENSOR_QUANT8_ASYMM_SIGNED: _element(np.int8, True, (-128, 127)),
    OperandCode.OEM_SCALAR: _element(np.uint8, False),
    OperandCode.TENSOR_OEM_BYTE: _element(np.uint8, True),
}
"""Every standard type that has data (MODEL has none)."""

EXTENSION_TYPES: dict[int, ElementType] = {}
"""Types of vendor extensions that this process has met, by code with the prefix; elements are opaque bytes."""

QUANT8_TYPES = frozenset({OperandCode.TENSOR_QUANT8_ASYMM, OperandCode.TENSOR_QUANT8_ASYMM_SIGNED})
FLOAT_TYPES = frozenset({OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_FLOAT16})


@dataclass(frozen=True)
class ChannelQuant:
    """Per-channel scales of TENSOR_QUANT8_SYMM_PER_CHANNEL: one per index of dimension `channel_dim`."""

    scales: tuple[float, ...]
    channel_dim: int

    def __post_init__(self) -> None:
        """Accept any sequence of numbers; they are kept as exact float32 values. Raises BadData."""
        try:
            scales = tuple(self.scales)
        except TypeError:
            raise BadData(f"per-channel scales: wanted a sequence of numbers, got {self.scales!r}") from None
        object.__setattr__(self, "scales", tuple(float32("per-channel scale", scale) for scale in scales))
        object.__setattr__(self, "channel_dim", whole("channel dimension", self.channel_dim))


@dataclass(frozen=True)
class OperandType:
    """Type of an operand, as an argument (ANeuralNetworksOperandType).

    `dims`: () for a scalar or an unknown rank, 0 for a size not known yet. `scale` is kept as a float32 value.
    `channel_quant` belongs to TENSOR_QUANT8_SYMM_PER_CHANNEL alone.
    """

    type: int
    dims: Dimensions = ()
    scale: float = 0.0
    zero_point: int = 0
    channel_quant: ChannelQuant | None = None

    def __post_init__(self) -> None:
        """Accept any sequence of integers as dims; scale becomes an exact float32 value. Raises BadData."""
        whole("operand type", self.type)
        object.__setattr__(self, "dims", whole_numbers("operand type: dims", self.dims))
        object.__setattr__(self, "scale", float32("operand type: scale", self.scale))
        object.__setattr__(self, "zero_point", whole("operand type: zero_point", self.zero_point))
        if not isinstance(self.channel_quant, ChannelQuant | None):
            raise BadData(f"operand type: channel_quant must be a ChannelQuant, got {self.channel_quant!r}")


class OperandView(Protocol):
    """What validation, shape rules and drivers see of an operand.

    `dimensions` is None for an unknown rank, () for a scalar. While a model is validated a 0 is a size not known;
    when shapes are computed and operations run, every size is known and 0 means empty.
    """

    @property
    def type(self) -> int:
        """Operand type code."""

    @property
    def dimensions(self) -> Dimensions | None:
        """Sizes, or None for an unknown rank."""

    @property
    def scale(self) -> float:
        """Quantisation scale: real = scale * (q - zero_point)."""

    @property
    def zero_point(self) -> int:
        """Quantisation zero point."""

    @property
    def channel_quant(self) -> ChannelQuant | None:
        """Per-channel scales, if the type has them."""

    @property
    def omitted(self) -> bool:
        """Whether an optional operand has no value."""

    def value(self) -> Array | None:
        """Return the data, shaped by `dimensions`, where the host knows it now (constants; else None)."""

    def subgraph(self) -> SubgraphView | None:
        """Return the referenced model of a MODEL operand whose model is known, else None."""


class SubgraphView(Protocol):
    """Boundary of a referenced model (IF, WHILE)."""

    @property
    def inputs(self) -> Sequence[OperandView]:
        """Inputs in order."""

    @property
    def outputs(self) -> Sequence[OperandView]:
        """Outputs in order."""


def register_extension_type(code: int, has_dimensions: bool, element_bytes: int) -> None:
    """Make an extension's operand type known to this process."""
    EXTENSION_TYPES[code] = ElementType(np.dtype(f"V{element_bytes}"), has_dimensions)


def element_type(code: int) -> ElementType | None:
    """Return the facts of a standard type or of one of a known extension; None for others."""
    return ELEMENT_TYPES.get(code) or EXTENSION_TYPES.get(code)


def is_tensor(code: int) -> bool:
    """Tell whether a type has dimensions."""
    element = element_type(code)
    return element is not None and element.is_tensor


def dtype_of(code: int) -> np.dtype[Any]:
    """Return the array dtype of a type (bytes for an extension's); raises BadData for MODEL and unknown types."""
    element = element_type(code)
    if element is None:
        raise BadData(f"{operand_type_name(code)} has no array type")
    return element.dtype


def has_unknown_dimensions(code: int, dims: Dimensions | None) -> bool:
    """Tell whether the rank or a size of a model operand is not known."""
    return is_tensor(code) and (not dims or 0 in dims)


def element_count(dims: Dimensions) -> int:
    """Return the number of elements of known dimensions (1 for a scalar)."""
    return math.prod(dims)


def size_bytes(code: int, dims: Dimensions | None) -> int:
    """Return the size of the dense data in bytes; 0 if the rank or a size is unknown (or truly 0)."""
    element = element_type(code)
    if element is None or dims is None or (element.is_tensor and not dims):
        return 0
    return element.dtype.itemsize * math.prod(dims)


def merge_dimensions(known: Dimensions, given: Dimensions) -> Dimensions:
    """Combine two partly known dimensions of one tensor; raises BadData where they contradict each other."""
    if not known or not given:
        return known or given
    if len(known) != len(given) or any(a and b and a != b for a, b in zip(known, given, strict=True)):
        raise BadData(f"dimensions {list(given)} contradict {list(known)}")
    return tuple(a or b for a, b in zip(known, given, strict=True))


def check_refined(known: Dimensions, given: Dimensions) -> None:
    """Check that dimensions say all that is known of a tensor, where 0 is a size not known; raises BadData."""
    if known and (len(known) != len(given) or any(a not in (0, b) for a, b in zip(known, given, strict=True))):
        raise BadData(f"dimensions {list(given)} contradict {list(known)}")


def check_operand_type(operand: OperandType) -> None:
    """Check an operand type by the table of SURFACE (d); raises BadData naming what is wrong."""
    name = operand_type_name(operand.type)
    if is_extension_code(operand.type) and operand.type not in EXTENSION_TYPES:
        raise BadData(f"{name}: the extension is not registered")
    if element_type(operand.type) is None and operand.type != OperandCode.MODEL:
        raise BadData(f"{name}: known types are 0 to {OperandCode.MODEL:d} and the OEM ones")
    if not is_tensor(operand.type) and operand.dims:
        raise BadData(f"{name} is a scalar and has no dimensions, got {list(operand.dims)}")
    if any(size < 0 or size > MAX_SIZE_BYTES for size in operand.dims):
        raise BadData(f"{name}: a dimension must be 0 (unknown) to 2^32-1, got {list(operand.dims)}")
    if operand.type not in (OperandCode.OEM_SCALAR, OperandCode.TENSOR_OEM_BYTE):
        _check_quantization(name, operand)
    known_bytes = size_bytes(operand.type, tuple(size for size in operand.dims if size))
    if known_bytes > MAX_SIZE_BYTES:
        raise BadData(f"{name} {list(operand.dims)} needs {known_bytes} bytes, at most 2^32-1 are allowed")


def _check_quantization(name: str, operand: OperandType) -> None:
    element = ELEMENT_TYPES.get(operand.type)
    zero_points = element.zero_point_range if element else None
    if zero_points is None:
        bias = operand.type == OperandCode.TENSOR_INT32
        if (operand.scale < 0 or not math.isfinite(operand.scale)) if bias else operand.scale != 0:
            raise BadData(f"{name}: scale must be {'>= 0' if bias else '0'}, got {operand.scale}")
        if operand.zero_point != 0:
            raise BadData(f"{name}: zero point must be 0, got {operand.zero_point}")
    else:
        if not (operand.scale > 0 and math.isfinite(operand.scale)):
            raise BadData(f"{name}: scale must be > 0 and finite, got {operand.scale}")
        low, high = zero_points
        if not low <= operand.zero_point <= high:
            raise BadData(f"{name}: zero point must be in {low}..{high}, got {operand.zero_point}")
    if operand.channel_quant is not None:
        check_channel_quant(operand)


def check_channel_quant(operand: OperandType) -> None:
    """Check per-channel parameters against type and dims (TestOperandExtraParams); raises BadData."""
    quant, name = operand.channel_quant, operand_type_name(operand.type)
    if quant is None:
        raise BadData(f"{name} needs per-channel scales")
    if operand.type != OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL:
        raise BadData(f"per-channel scales belong to TENSOR_QUANT8_SYMM_PER_CHANNEL, not to {name}")
    if not 0 <= quant.channel_dim < len(operand.dims):
        raise BadData(f"{name}: channel dimension must be in 0..{len(operand.dims) - 1}, got {quant.channel_dim}")
    wanted = operand.dims[quant.channel_dim]
    if wanted == 0 or len(quant.scales) != wanted:
        raise BadData(f"{name}: needs one scale for each of {wanted} channels, got {len(quant.scales)}")
    if not all(scale > 0 and math.isfinite(scale) for scale in quant.scales):
        raise BadData(f"{name}: every per-channel scale must be > 0 and finite")
