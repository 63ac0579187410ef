# SPDX-License-Identifier: Apache-2.0
"""What a .tflite file holds, as plain values.

Arrays are read-only views of the file, aligned only as it has them; sparse and packed constants are their own.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

OptionValue: TypeAlias = int | float | bool | str | tuple[int | float, ...]


class TensorType(enum.IntEnum):
    """Element types with the numbers of the file format."""

    FLOAT32 = 0
    FLOAT16 = 1
    INT32 = 2
    UINT8 = 3
    INT64 = 4
    STRING = 5
    BOOL = 6
    INT16 = 7
    COMPLEX64 = 8
    INT8 = 9
    FLOAT64 = 10
    COMPLEX128 = 11
    UINT64 = 12
    RESOURCE = 13
    VARIANT = 14
    UINT32 = 15
    UINT16 = 16
    INT4 = 17
    BFLOAT16 = 18
    INT2 = 19
    UINT4 = 20
    FLOAT8_E4M3FN = 21
    FLOAT8_E5M2 = 22

    @property
    def dtype(self) -> np.dtype[np.generic] | None:
        """The numpy type; None where numpy has none (STRING, RESOURCE, VARIANT, BFLOAT16, FLOAT8_*, below 8 bits)."""
        return _DTYPES.get(self)

    @property
    def bits(self) -> int | None:
        """Bits of one element, or None where elements have no fixed size."""
        return 8 * _DTYPES[self].itemsize if self in _DTYPES else _BITS_WITHOUT_DTYPE.get(self)


_DTYPES: dict[TensorType, np.dtype[np.generic]] = {
    TensorType.FLOAT32: np.dtype("<f4"),
    TensorType.FLOAT16: np.dtype("<f2"),
    TensorType.INT32: np.dtype("<i4"),
    TensorType.UINT8: np.dtype("u1"),
    TensorType.INT64: np.dtype("<i8"),
    TensorType.BOOL: np.dtype("?"),
    TensorType.INT16: np.dtype("<i2"),
    TensorType.COMPLEX64: np.dtype("<c8"),
    TensorType.INT8: np.dtype("i1"),
    TensorType.FLOAT64: np.dtype("<f8"),
    TensorType.COMPLEX128: np.dtype("<c16"),
    TensorType.UINT64: np.dtype("<u8"),
    TensorType.UINT32: np.dtype("<u4"),
    TensorType.UINT16: np.dtype("<u2"),
}
_BITS_WITHOUT_DTYPE = {
    TensorType.INT4: 4,
    TensorType.BFLOAT16: 16,
    TensorType.INT2: 2,
    TensorType.UINT4: 4,
    TensorType.FLOAT8_E4M3FN: 8,
    TensorType.FLOAT8_E5M2: 8,
}


Bounds: TypeAlias = tuple[float, float]


@dataclass(frozen=True, eq=False)
class TfliteQuantization:
    """real = scale * (q - zero_point); one pair, or one per index of dimension `quantized_dimension`."""

    scales: npt.NDArray[np.float32]
    zero_points: npt.NDArray[np.int64]
    quantized_dimension: int


@dataclass(frozen=True, eq=False)
class TfliteLevel:
    """A dimension of a sparse constant: DENSE of a size, or SPARSE_CSR with segments and indices."""

    size: int
    segments: npt.NDArray[np.int64] | None
    indices: npt.NDArray[np.int64] | None


@dataclass(frozen=True, eq=False)
class TfliteSparsity:
    """How the file stores a sparse constant: levels in traversal order; block i divides dimension `block_map[i]`."""

    traversal_order: tuple[int, ...]
    block_map: tuple[int, ...]
    levels: tuple[TfliteLevel, ...]


@dataclass(frozen=True, eq=False)
class TfliteTensor:
    """One tensor; `data` is None unless constant, and flat uint8 where the type has no numpy dtype.

    Of INT4 and INT2 it is int8; it is dense, whatever `sparsity` says of the file. `shape_signature` has -1 for what is
    known only at run time, and is None where the file has none. `bounds`: of the real numbers that stand for 16-bit
    integers, the least and the greatest.
    """

    name: str
    type: TensorType
    shape: tuple[int, ...]
    shape_signature: tuple[int, ...] | None
    quantization: TfliteQuantization | None
    data: npt.NDArray[np.generic] | None
    is_variable: bool
    sparsity: TfliteSparsity | None = None
    bounds: Bounds | None = None


@dataclass(frozen=True, eq=False)
class TfliteOperator:
    """One operator: `code` is the BuiltinOperator number, `name` its name (of a custom one, the custom code).

    `options` holds every field of the builtin options by its schema name, defaults included. Inputs are tensor
    indices, -1 where an optional one is left out; intermediates are tensors that carry quantisation only.
    """

    index: int
    code: int
    name: str
    custom_code: str | None
    custom_options: npt.NDArray[np.uint8]
    version: int
    options: Mapping[str, OptionValue]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    intermediates: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class TfliteSubgraph:
    """Tensors and operators in execution order; inputs and outputs are tensor indices."""

    name: str
    tensors: tuple[TfliteTensor, ...]
    operators: tuple[TfliteOperator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class TfliteSignature:
    """A named entry point: argument and result names to tensor indices of one subgraph."""

    key: str
    subgraph_index: int
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]


@dataclass(frozen=True, eq=False)
class TfliteModel:
    """A whole file; subgraph 0 is the main one."""

    version: int
    description: str
    subgraphs: tuple[TfliteSubgraph, ...]
    signatures: tuple[TfliteSignature, ...]
    metadata: Mapping[str, npt.NDArray[np.uint8]]
