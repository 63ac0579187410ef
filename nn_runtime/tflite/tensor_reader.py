# SPDX-License-Identifier: Apache-2.0
"""Read the tensors of a .tflite file: shapes, quantisation, constants as views of the file's bytes (see `reader`)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from nn_runtime.tflite.decoder import TfliteError
from nn_runtime.tflite.sparsity import dense, read_sparsity
from nn_runtime.tflite.types import TensorType, TfliteQuantization, TfliteSparsity, TfliteTensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.tflite.decoder import Record

MAX_RANK = 8
# An NNAPI operand's length is an unsigned 32-bit number.
MAX_TENSOR_BYTES = (1 << 32) - 1
MAX_SHOWN = 60
# Sparse networks keep a tenth of their weights or more, beside indices.
MAX_DENSE_MULTIPLE = 64
FREE_DENSE_BYTES = 1 << 20
_PARTS_OF_BYTES = (TensorType.INT4, TensorType.INT2)
_SMALLEST_NORMAL = float(np.finfo(np.float32).smallest_normal)

Bytes: TypeAlias = npt.NDArray[np.uint8]


def quoted(name: str) -> str:
    """Return a name for a message: quoted, unprintable characters escaped, at most about 60 characters."""
    return repr(name if len(name) <= MAX_SHOWN else name[:MAX_SHOWN] + "...")


class Buffers:
    """The constants of a file, by buffer index."""

    def __init__(self, records: Sequence[Record], data: bytes, tables_end: int) -> None:
        """`tables_end`: where the file's tables end; content may lie behind them."""
        self._records = records
        self._data = data
        self._tables_end = tables_end
        self._views: dict[int, Bytes | None] = {}
        self._booleans: set[int] = set()
        self._dense_bytes_left = FREE_DENSE_BYTES + MAX_DENSE_MULTIPLE * len(data)

    def view(self, index: int, where: str) -> Bytes | None:
        """Return the bytes of a buffer; None where it holds none. Buffer 0 is the one that stands for "no data"."""
        if index == 0:
            return None
        if index >= len(self._records):
            raise TfliteError(f"{where}: buffer index must be below {len(self._records)}, got {index}")
        if index not in self._views:
            self._views[index] = self._content(index)
        return self._views[index]

    def check_boolean(self, index: int, content: Bytes, where: str) -> None:
        """Require bytes 0 and 1 only: numpy's boolean arithmetic is undefined for others."""
        if index not in self._booleans and content.size and content.max() > 1:
            raise TfliteError(f"{where}: BOOL constant must hold bytes 0 and 1, got {content.max()}")
        self._booleans.add(index)

    def count_dense_bytes(self, count: int, where: str) -> None:
        """Spend `count` of the bytes that sparse and packed constants may take when they are made dense."""
        self._dense_bytes_left -= count
        if self._dense_bytes_left < 0:
            raise TfliteError(
                f"{where}: sparse and packed constants must not take more than {MAX_DENSE_MULTIPLE} times the file's "
                f"length when they are made dense"
            )

    def _content(self, index: int) -> Bytes | None:
        """Return the bytes inside the buffer's table, or those behind the tables (files over 2 GiB)."""
        buffer = self._records[index]
        inside = buffer.numbers("data")
        if inside.size:
            return inside
        offset, size = buffer.number("offset"), buffer.number("size")
        # 0 and 1 both mean "inside the table".
        if offset <= 1:
            return None
        if offset < self._tables_end or offset + size > len(self._data):
            raise TfliteError(
                f"buffer {index}: data must lie in bytes {self._tables_end} to {len(self._data)} of the file, "
                f"got {size} bytes at {offset}"
            )
        return np.frombuffer(self._data, np.uint8, size, offset) if size else None


def read_tensor(record: Record, where: str, buffers: Buffers) -> TfliteTensor:
    """Check a tensor, and its constant, if it has one."""
    name = record.text("name")
    where = f"{where} {quoted(name)}"
    number = record.number("type")
    if number not in TensorType._value2member_map_:
        raise TfliteError(f"{where}: type must be 0 to {max(TensorType)}, got {number}")
    tensor_type = TensorType(number)
    shape = record.integers("shape")
    _check_shape(shape, tensor_type, where)
    is_variable = bool(record.number("is_variable"))
    buffer = record.number("buffer")
    content = buffers.view(buffer, where)
    if is_variable and content is not None:
        raise TfliteError(f"{where}: a variable tensor must have no data, got {content.size} bytes")
    if content is not None and tensor_type is TensorType.BOOL:
        buffers.check_boolean(buffer, content, where)
    stored = record.record("sparsity")
    sparsity = None if stored is None else read_sparsity(stored, shape, where)
    data: npt.NDArray[np.generic] | None = None
    if sparsity is not None:
        data = _densified(sparsity, content, tensor_type, shape, buffers, where)
    elif content is not None:
        data = _constant(content, tensor_type, shape, buffers, where)
    return TfliteTensor(
        name=name,
        type=tensor_type,
        shape=shape,
        shape_signature=_shape_signature(record.integers("shape_signature"), shape, where),
        quantization=_quantization(record.record("quantization"), tensor_type, shape, where),
        data=data,
        is_variable=is_variable,
        sparsity=sparsity,
    )


def _check_shape(shape: tuple[int, ...], tensor_type: TensorType, where: str) -> None:
    """Require at most MAX_RANK dimensions, none negative, and a size that an operand can have."""
    if len(shape) > MAX_RANK:
        raise TfliteError(f"{where}: rank must be at most {MAX_RANK}, got {len(shape)}")
    if shape and min(shape) < 0:
        raise TfliteError(f"{where}: dimensions must be >= 0, got {shape}")
    size_bytes = _size_bytes(shape, tensor_type)
    if size_bytes > MAX_TENSOR_BYTES:
        raise TfliteError(f"{where}: shape {shape} must need at most {MAX_TENSOR_BYTES} bytes, needs {size_bytes}")


def _size_bytes(shape: tuple[int, ...], tensor_type: TensorType) -> int:
    """Return the bytes of a dense tensor; elements without a fixed size count one byte."""
    bits = 8 if tensor_type.bits is None else tensor_type.bits
    return (math.prod(shape) * bits + 7) // 8


def _shape_signature(signature: tuple[int, ...], shape: tuple[int, ...], where: str) -> tuple[int, ...] | None:
    """Return the shape with -1 for dimensions known only at run time; None where the file has none."""
    if not signature:
        return None
    if len(signature) != len(shape) or min(signature) < -1:
        raise TfliteError(
            f"{where}: shape_signature must have {len(shape)} dimensions >= -1, got {signature[:MAX_RANK]}"
        )
    return signature


def _constant(
    content: Bytes, tensor_type: TensorType, shape: tuple[int, ...], buffers: Buffers, where: str
) -> npt.NDArray[np.generic]:
    """Return a constant as a view of the file, shaped where numpy has its type (INT4 and INT2 as int8), else flat."""
    bits = tensor_type.bits
    if bits is None:
        return content
    wanted = _size_bytes(shape, tensor_type)
    if content.size != wanted:
        raise TfliteError(f"{where}: {tensor_type.name} {shape} needs {wanted} bytes of data, got {content.size}")
    if tensor_type in _PARTS_OF_BYTES:
        buffers.count_dense_bytes(math.prod(shape), where)
        return _readonly(_parts_of_bytes(content, bits)[: math.prod(shape)].reshape(shape))
    dtype = tensor_type.dtype
    return content if dtype is None else content.view(dtype).reshape(shape)


def _parts_of_bytes(content: Bytes, bits: int) -> npt.NDArray[np.int8]:
    """Return signed numbers of 4 or 2 bits, of each byte the lowest one first."""
    signed = content.view(np.int8)
    numbers = np.empty((content.size, 8 // bits), np.int8)
    for part in range(8 // bits):
        np.left_shift(signed, 8 - bits * (part + 1), out=numbers[:, part])
    return np.right_shift(numbers, 8 - bits, out=numbers).reshape(-1)


def _densified(
    sparsity: TfliteSparsity,
    content: Bytes | None,
    tensor_type: TensorType,
    shape: tuple[int, ...],
    buffers: Buffers,
    where: str,
) -> npt.NDArray[np.generic]:
    """Return a sparse constant as a dense array."""
    dtype = tensor_type.dtype
    if content is None or dtype is None:
        raise TfliteError(f"{where}: a sparse tensor must be a constant of numbers, got {tensor_type.name}")
    if content.size % dtype.itemsize:
        raise TfliteError(f"{where}: {tensor_type.name} needs {dtype.itemsize} bytes an element, got {content.size}")
    buffers.count_dense_bytes(_size_bytes(shape, tensor_type), where)
    return _readonly(dense(sparsity, content.view(dtype), shape, where))


_ZERO_POINT_RANGE = {
    TensorType.UINT8: (0, 255),
    TensorType.INT8: (-128, 127),
    TensorType.INT2: (-2, 1),
    TensorType.INT4: (-8, 7),
    TensorType.UINT4: (0, 15),
    TensorType.INT16: (-(1 << 15), (1 << 15) - 1),
    TensorType.UINT16: (0, (1 << 16) - 1),
    TensorType.INT32: (-(1 << 31), (1 << 31) - 1),
    TensorType.INT64: (-(1 << 63), (1 << 63) - 1),
}


def _quantization(
    record: Record | None, tensor_type: TensorType, shape: tuple[int, ...], where: str
) -> TfliteQuantization | None:
    """Check the quantisation of an integer tensor; None for other types and where there is no scale."""
    if record is None:
        return None
    if record.number("details_type"):
        raise TfliteError(f"{where}: quantisation details of type {record.number('details_type')} are not supported")
    scales, zero_points = record.numbers("scale"), record.numbers("zero_point")
    if not scales.size or tensor_type not in _ZERO_POINT_RANGE:
        return None
    if not (np.isfinite(scales).all() and scales.min() >= _SMALLEST_NORMAL):
        bad = scales[~(np.isfinite(scales) & (scales >= _SMALLEST_NORMAL))][0]
        raise TfliteError(f"{where}: scales must be positive normal numbers, got {bad}")
    if zero_points.size != scales.size:
        raise TfliteError(f"{where}: needs one zero point for each of {scales.size} scales, got {zero_points.size}")
    lowest, highest = _ZERO_POINT_RANGE[tensor_type]
    if zero_points.min() < lowest or zero_points.max() > highest:
        found = f"{zero_points.min()} to {zero_points.max()}"
        raise TfliteError(f"{where}: {tensor_type.name} zero points must be {lowest} to {highest}, got {found}")
    dimension = record.number("quantized_dimension")
    _check_quantized_dimension(dimension, scales.size, shape, where)
    return TfliteQuantization(scales, zero_points, dimension)


def _check_quantized_dimension(dimension: int, count: int, shape: tuple[int, ...], where: str) -> None:
    """Require a dimension of the shape, with one scale for each of its indices or one for all."""
    if not (0 <= dimension < len(shape) or (dimension == 0 and count == 1)):
        raise TfliteError(f"{where}: quantized_dimension must be 0 to {len(shape) - 1}, got {dimension}")
    if count != 1 and count != shape[dimension]:
        raise TfliteError(f"{where}: needs 1 or {shape[dimension]} scales for dimension {dimension}, got {count}")


def with_empty_data(tensor: TfliteTensor) -> TfliteTensor:
    """Give a tensor that nothing writes and that has no elements its (empty) constant: buffers cannot tell."""
    if tensor.data is not None or tensor.is_variable or 0 not in tensor.shape:
        return tensor
    return replace(tensor, data=_readonly(np.empty(tensor.shape, tensor.type.dtype or np.uint8)))


def _readonly(array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """Mark an array as not writeable and return it."""
    array.flags.writeable = False
    return array
