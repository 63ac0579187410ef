# SPDX-License-Identifier: Apache-2.0
"""Values of a model under construction: tensors of the file, constants, NNAPI scalars.

Shapes are known throughout. A tensor of rank 0 is an operand of dimensions [1]; of more than four dimensions the first
ones are one in the operand.
"""

from __future__ import annotations

import math
from dataclasses import field, replace
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode
from nn_runtime.errors import BadData
from nn_runtime.operand import QUANT8_TYPES, ChannelQuant, Dimensions, dtype_of, is_tensor
from nn_runtime.quantization import dequantize
from nn_runtime.tflite.tensor_reader import quoted
from nn_runtime.tflite.types import TensorType
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.model import Model
    from nn_runtime.operand import Array
    from nn_runtime.tflite.types import TfliteQuantization, TfliteTensor

_OPERAND_TYPES = {
    TensorType.FLOAT32: OperandCode.TENSOR_FLOAT32,
    TensorType.FLOAT16: OperandCode.TENSOR_FLOAT16,
    TensorType.INT32: OperandCode.TENSOR_INT32,
    TensorType.INT64: OperandCode.TENSOR_INT32,
    TensorType.UINT8: OperandCode.TENSOR_QUANT8_ASYMM,
    TensorType.INT8: OperandCode.TENSOR_QUANT8_ASYMM_SIGNED,
    TensorType.INT4: OperandCode.TENSOR_QUANT8_ASYMM_SIGNED,
    TensorType.INT2: OperandCode.TENSOR_QUANT8_ASYMM_SIGNED,
    TensorType.INT16: OperandCode.TENSOR_QUANT16_SYMM,
    TensorType.UINT16: OperandCode.TENSOR_QUANT16_ASYMM,
    TensorType.BOOL: OperandCode.TENSOR_BOOL8,
}
"""INT64, and INT16 and UINT16 without a scale, are computed in 32 bits; the interface casts.

Constants of INT4 and INT2 are bytes.
"""

_QUANTIZED = QUANT8_TYPES | {OperandCode.TENSOR_QUANT16_SYMM, OperandCode.TENSOR_QUANT16_ASYMM}
_SAME_SCALE = 1e-6
MAX_DIMENSIONS = 4
"""Of an operand."""


def operand_dimensions(shape: Dimensions) -> Dimensions:
    """Return the dimensions of the operand that stands for a tensor."""
    if len(shape) > MAX_DIMENSIONS:
        shape = (math.prod(shape[: 1 - MAX_DIMENSIONS]), *shape[1 - MAX_DIMENSIONS :])
    return shape or (1,)


@dataclass(frozen=True)
class ReferencedModel:
    """A finished model that IF or WHILE refers to, with its boundary (SubgraphView).

    `expansion` counts it and all that it refers to, as often as it does.
    """

    model: Model
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    expansion: int


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor (or NNAPI scalar, or model) of the model under construction; an OperandView.

    `shape` is the tensor's true shape, () for rank 0; `data` has that shape, and is None unless the host knows it.
    """

    type: int
    shape: Dimensions | None = None
    scale: float = 0.0
    zero_point: int = 0
    channel_quant: ChannelQuant | None = None
    data: Array | None = None
    omitted: bool = False
    referenced: ReferencedModel | None = None

    @property
    def dimensions(self) -> Dimensions | None:
        """Dimensions of the operand."""
        if self.shape is None or not is_tensor(self.type):
            return self.shape
        return operand_dimensions(self.shape)

    def value(self) -> Array | None:
        """Return the constant, or None."""
        return None if self.data is None else self.data.reshape(self.dimensions or ())

    def subgraph(self) -> ReferencedModel | None:
        """Return the referenced model, where it is one."""
        return self.referenced

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape or ())

    @property
    def is_quantized(self) -> bool:
        """Whether it has a scale and a zero point."""
        return self.type in _QUANTIZED

    def same_quantization(self, other: Value) -> bool:
        """Tell whether both have one quantisation, scales equal as closely as TFLite's kernels ask."""
        close = abs(self.scale - other.scale) <= _SAME_SCALE * self.scale
        return close and self.zero_point == other.zero_point


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The transform of real rows [..., samples] to a length, not computed yet: complex numbers of a shape."""

    rows: Value
    length: int
    shape: Dimensions
    turned: list[Value] = field(default_factory=list)
    """What parts share that are read of it, once there is one."""


def constant(array: Array, code: int | None = None) -> Value:
    """Return an int32 or float32 array as a constant (or one of the operand type `code`, without quantisation)."""
    if code is None:
        code = OperandCode.TENSOR_FLOAT32 if array.dtype == np.float32 else OperandCode.TENSOR_INT32
    return Value(code, array.shape, data=np.ascontiguousarray(array, dtype_of(code)).reshape(array.shape))


def int32_vector(values: Sequence[int]) -> Value:
    """Return integers as a constant vector; raises BadData for one that 32 bits cannot hold."""
    bounds = np.iinfo(np.int32)
    if any(not bounds.min <= value <= bounds.max for value in values):
        raise BadData(f"sizes and positions must fit in 32 bits, got {list(values)}")
    return constant(np.array(values, np.int32))


def scalar(code: OperandCode, value: float) -> Value:
    """Return an NNAPI scalar."""
    return Value(code, (), data=np.array(value, dtype_of(code)))


def int32(value: int) -> Value:
    """Return an INT32 scalar."""
    return scalar(OperandCode.INT32, value)


def real_scalar(source: Value, number: float) -> Value:
    """Return the real scalar that an operation on `source` takes: FLOAT16 beside TENSOR_FLOAT16, else FLOAT32."""
    return scalar(OperandCode.FLOAT16 if source.type == OperandCode.TENSOR_FLOAT16 else OperandCode.FLOAT32, number)


def real(value: Value) -> Value:
    """Return a constant as float32, dequantised where it is quantised."""
    if value.data is None:
        raise BadData("the value of a constant is needed")
    if value.type == OperandCode.TENSOR_FLOAT32:
        return value
    quantized = value.is_quantized or value.channel_quant is not None
    with np.errstate(over="ignore"):  # a scale may be too large for float32, as in TFLite
        return constant(dequantize(value.data, value) if quantized else value.data.astype(np.float32))


def tensor_value(tensor: TfliteTensor, shape: Dimensions | None = None) -> Value:
    """Return a tensor of the file as a value, with its constant, of another shape if given; raises BadData."""
    code = _OPERAND_TYPES.get(tensor.type)
    if code is None:
        raise BadData(f"tensor {quoted(tensor.name)}: type {tensor.type.name} is not supported")
    data = tensor.data
    if data is None and tensor.type in (TensorType.INT4, TensorType.INT2):
        raise BadData(f"tensor {quoted(tensor.name)}: {tensor.type.name} is supported for constants alone")
    if data is not None and tensor.type is TensorType.INT64:
        data = _narrowed(data, tensor.name)
    if tensor.type in (TensorType.INT16, TensorType.UINT16) and tensor.quantization is None:
        code, data = OperandCode.TENSOR_INT32, None if data is None else data.astype(np.int32)
    plain = Value(code, tensor.shape if shape is None else shape, data=data)
    return _quantized(plain, tensor) if code in _QUANTIZED else plain


def _quantized(plain: Value, tensor: TfliteTensor) -> Value:
    """Give a quantised type its scale; without one, integers stand for themselves."""
    quantization = tensor.quantization
    if quantization is None:
        return replace(plain, scale=1.0)
    if quantization.scales.size == 1:
        return replace(plain, scale=float(quantization.scales[0]), zero_point=int(quantization.zero_points[0]))
    return _per_channel(plain, tensor, quantization)


def _per_channel(plain: Value, tensor: TfliteTensor, quantization: TfliteQuantization) -> Value:
    where = f"tensor {quoted(tensor.name)}"
    if plain.type != OperandCode.TENSOR_QUANT8_ASYMM_SIGNED or tensor.data is None:
        raise BadData(f"{where}: per-channel quantisation is supported for constants of INT8, INT4 and INT2 alone")
    if quantization.zero_points.any():
        raise BadData(f"{where}: per-channel zero points must be 0, got {int(quantization.zero_points.max())}")
    scales = ChannelQuant(tuple(quantization.scales.tolist()), quantization.quantized_dimension)
    return replace(plain, type=OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL, channel_quant=scales)


def _narrowed(data: Array, name: str) -> Array:
    info = np.iinfo(np.int32)
    if data.size and (data.min() < info.min or data.max() > info.max):
        raise BadData(f"tensor {quoted(name)}: an INT64 constant must fit in 32 bits")
    return data.astype(np.int32)
