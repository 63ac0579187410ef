# SPDX-License-Identifier: Apache-2.0
"""A .tflite file of one layer or a few, built step by step: every tensor float32, or every one int8."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from networks import serialized

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    from networks import Array

SCALE, ZERO_POINT = 0.05, -3
"""Of every int8 tensor that nothing else is said of."""
_CODE_SPREAD = 40
"""Standard deviation of random int8 values."""
_OPTIONS = {
    "BATCH_MATMUL": "BatchMatMul", "MAX_POOL_2D": "Pool2D", "AVERAGE_POOL_2D": "Pool2D", "MEAN": "Reducer",
    "SUM": "Reducer", "REDUCE_MAX": "Reducer",
}  # fmt: skip
"""Names of options that are not the operator's own: CONV_2D has Conv2DOptions."""
_FIRST_VERSION = ("PRELU", "HARD_SWISH", "RESHAPE", "GELU")
"""Operators that take int8 since their first version; the others here do since their second."""
_TYPES = {np.dtype(np.float32): schema.TensorType.FLOAT32, np.dtype(np.int8): schema.TensorType.INT8,
          np.dtype(np.int32): schema.TensorType.INT32}  # fmt: skip


class LayerFile:
    """Tensors are numbers, operators stand in the order in which they were added; `data`: values for the inputs."""

    def __init__(self, *, quantized: bool) -> None:
        """Start an empty file; the random values are the same in every file."""
        self.data: list[Array] = []
        self._quantized = quantized
        self._random = np.random.default_rng(0)
        self._graph = schema.SubGraphT()
        self._graph.tensors, self._graph.operators, self._graph.inputs = [], [], []
        self._model = schema.ModelT()
        self._model.version, self._model.subgraphs = 3, [self._graph]
        self._model.operatorCodes, self._model.buffers = [], [schema.BufferT()]

    def write(self, output: int) -> bytes:
        """Return the file."""
        self._graph.outputs = [output]
        return serialized(self._model)

    def shape(self, tensor: int) -> tuple[int, ...]:
        """Return a tensor's dimensions."""
        return tuple(self._graph.tensors[tensor].shape)

    def input(self, *shape: int) -> int:
        """Add an input with values around zero."""
        values = self._random.standard_normal(shape)
        return self._input(self._codes(values) if self._quantized else values.astype(np.float32))

    def positive_input(self, *shape: int) -> int:
        """Add a float32 input with values from 0.5 to 2."""
        return self._input(self._random.uniform(0.5, 2, shape).astype(np.float32))

    def indices(self, *shape: int, below: int) -> int:
        """Add an int32 input with values from 0 to less than `below`."""
        return self._input(self._random.integers(0, below, shape).astype(np.int32))

    def places(self, *values: int) -> int:
        """Add an int32 input with these values."""
        return self._input(np.array(values, np.int32))

    def integers(self, values: npt.ArrayLike) -> int:
        """Add an int32 constant."""
        return self._constant(np.array(values, np.int32))

    def constant(self, *shape: int, spread: float = 1.0) -> int:
        """Add a constant with values around zero; `spread`: their standard deviation, of float32 ones."""
        values = self._random.standard_normal(shape)
        if not self._quantized:
            return self._constant((values * spread).astype(np.float32))
        return self._constant(self._codes(values), [SCALE], [ZERO_POINT])

    def weights(self, *shape: int, axis: int | None, products: int) -> int:
        """Add weights, quantised per channel of an axis; `products`: in the sum for one result, which stays near 1."""
        values = self._random.standard_normal(shape)
        if not self._quantized:
            return self._constant((values / np.sqrt(products)).astype(np.float32))
        scale = 1 / _CODE_SPREAD / np.sqrt(products)
        scales = [scale * (1 + 0.1 * (i % 7)) for i in range(1 if axis is None else shape[axis])]
        return self._constant(np.maximum(self._codes(values), -127), scales, [0] * len(scales), axis or 0)

    def bias(self, depth: int, weights: int) -> int:
        """Add a bias; quantised by the scales of the input (SCALE) and the weights."""
        if not self._quantized:
            return self._constant(self._random.standard_normal(depth).astype(np.float32))
        scales = [SCALE * float(scale) for scale in self._graph.tensors[weights].quantization.scale]
        codes = self._random.integers(-2000, 2000, depth).astype(np.int32)
        return self._constant(codes, scales, [0] * len(scales))

    def add(self, name: str, inputs: Sequence[int], shape: Sequence[int], scale: float = SCALE,
            zero_point: int = ZERO_POINT, dtype: type[np.generic] | None = None,
            others: Sequence[tuple[Sequence[int], type[np.generic]]] = (), **options: object) -> int:  # fmt: skip
        """Add an operator with the values of its options, and return its first output; `others`: those behind it."""
        kind = np.dtype(dtype or (np.int8 if self._quantized else np.float32))
        output = self._variable(shape, kind, scale, zero_point)
        operator = schema.OperatorT()
        operator.opcodeIndex, operator.inputs, operator.outputs = self._code(name), list(inputs), [output]
        operator.outputs += [self._variable(dims, np.dtype(kind), scale, zero_point) for dims, kind in others]
        title = f"{_OPTIONS.get(name) or name.title().replace('_', '')}Options"
        if hasattr(schema, f"{title}T"):
            operator.builtinOptions = getattr(schema, f"{title}T")()
            operator.builtinOptionsType = getattr(schema.BuiltinOptions, title)
        for key, value in options.items():
            if not hasattr(operator.builtinOptions, key):
                raise ValueError(f"{name} has no option {key}")
            setattr(operator.builtinOptions, key, value)
        self._graph.operators.append(operator)
        return output

    def _codes(self, values: Array) -> Array:
        codes: Array = np.clip(values * _CODE_SPREAD, -128, 127).astype(np.int8)
        return codes

    def _input(self, values: Array) -> int:
        self.data.append(values)
        tensor = self._variable(values.shape, values.dtype, SCALE, ZERO_POINT)
        self._graph.inputs.append(tensor)
        return tensor

    def _constant(self, values: Array, scales: Sequence[float] = (), zero_points: Sequence[int] = (),
                  axis: int = 0) -> int:  # fmt: skip
        buffer = schema.BufferT()
        buffer.data = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        self._model.buffers.append(buffer)
        made = self._tensor(values.shape, values.dtype, scales, zero_points, axis)
        self._graph.tensors[made].buffer = len(self._model.buffers) - 1
        return made

    def _variable(self, shape: Sequence[int], dtype: np.dtype[Any], scale: float, zero_point: int) -> int:
        return self._tensor(shape, dtype, *(([scale], [zero_point]) if dtype == np.int8 else ()))

    def _tensor(self, shape: Sequence[int], dtype: np.dtype[Any], scales: Sequence[float] = (),
                zero_points: Sequence[int] = (), axis: int = 0) -> int:  # fmt: skip
        tensor = schema.TensorT()
        tensor.shape, tensor.type, tensor.name = list(shape), _TYPES[dtype], f"t{len(self._graph.tensors)}"
        if scales:
            tensor.quantization = schema.QuantizationParametersT()
            tensor.quantization.scale = np.array(scales, np.float32)
            tensor.quantization.zeroPoint = np.array(zero_points, np.int64)
            tensor.quantization.quantizedDimension = axis
        self._graph.tensors.append(tensor)
        return len(self._graph.tensors) - 1

    def _code(self, name: str) -> int:
        """Return the position of an operator's code, which is added where it is new."""
        number = getattr(schema.BuiltinOperator, name)
        codes = self._model.operatorCodes
        known = [code.builtinCode for code in codes]
        if number in known:
            return known.index(number)
        code = schema.OperatorCodeT()
        code.builtinCode, code.deprecatedBuiltinCode = number, min(number, 127)
        code.version = 2 if self._quantized and name not in _FIRST_VERSION else 1
        codes.append(code)
        return len(codes) - 1
