# SPDX-License-Identifier: Apache-2.0
"""How a model looks to its user: names, dtypes, shapes and quantisation of inputs and outputs, and what is kept."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.checks import shown
from nn_runtime.codes import OperandCode
from nn_runtime.errors import BadData
from nn_runtime.operand import OperandType
from nn_runtime.quantization import dequantize, quantize
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    import numpy.typing as npt

    from nn_runtime.operand import Array

_QUANTISED = {
    "uint8": OperandCode.TENSOR_QUANT8_ASYMM,
    "int8": OperandCode.TENSOR_QUANT8_ASYMM_SIGNED,
    "int16": OperandCode.TENSOR_QUANT16_SYMM,
    "uint16": OperandCode.TENSOR_QUANT16_ASYMM,
    "int32": OperandCode.TENSOR_INT32,
}
"""Types of integers that may have a scale."""


@dataclass(frozen=True)
class TensorInfo:
    """One input or output as the user sees it.

    `dtype` is that of the interface: the runtime casts where the model computes in another, and dequantises integers of
    a scale where it computes with real numbers. A size 0 is open, () is a scalar or an open rank. Real value =
    scale * (q - zero_point); scale 0 means not quantised. `signature_name` is a second name, "" if there is none;
    `index` the tensor's in its file, -1 without a file.
    """

    name: str
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    scale: float = 0.0
    zero_point: int = 0
    signature_name: str = ""
    index: int = -1

    def is_real_inside(self, computed: np.dtype[np.generic]) -> bool:
        """Tell whether it is 16-bit integers of a scale for its user, but real numbers for the model."""
        return self.scale > 0 and computed.kind == "f" and self.dtype == np.int16

    def quantize(self, real: npt.ArrayLike) -> Array:
        """Return real values as the tensor takes them: rounded and clipped to its integers, or in its dtype alone.

        NaN becomes the least integer. Raises BadData for what is no real number.
        """
        values = self._numbers("quantize", real, "real numbers")
        return quantize(values, self.quantization) if self.scale else np.asarray(real, self.dtype)

    def dequantize(self, values: npt.ArrayLike) -> Array:
        """Return the real values, float32, that integers of the tensor stand for; others as they are.

        Raises BadData for what is no number where the tensor has a scale.
        """
        if not self.scale:
            return np.asarray(values)
        return dequantize(self._numbers("dequantize", values, f"numbers of {self.dtype}"), self.quantization)

    def _numbers(self, call: str, given: npt.ArrayLike, wanted: str) -> Array:
        values = np.asarray(given)
        if values.dtype.kind not in "biuf":
            raise BadData(f"{call} {self.name!r}: wanted {wanted}, got {shown(given)}")
        return values

    @cached_property
    def quantization(self) -> OperandType:
        """Type, scale and zero point of one that has a scale."""
        return OperandType(_QUANTISED[self.dtype.name], (), self.scale, self.zero_point)

    def __str__(self) -> str:
        quantized = f" scale {self.scale:g} zero point {self.zero_point}" if self.scale else ""
        return f"{self.name}: {self.dtype} {list(self.shape)}{quantized}"


@dataclass(frozen=True, eq=False)
class State:
    """A value kept between runs: an input of the model, and the output that gives its next value.

    Without an output it stays what it is at first: `initial` in the type and dimensions of the operand, else zero.
    `tensor`: the index of the variable tensor in its file, -1 for what is none.
    """

    input: int
    output: int | None
    initial: Array | None = None
    tensor: int = -1


@dataclass(frozen=True)
class Interface:
    """How the arguments of a model look to the user.

    `inputs` are the model's first inputs in order; `output_positions` tells which of the model's outputs each of
    `outputs` is.
    """

    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    output_positions: tuple[int, ...]
    states: tuple[State, ...] = ()

    def __str__(self) -> str:
        inputs, outputs = (", ".join(map(str, infos)) for infos in (self.inputs, self.outputs))
        return f"{inputs} -> {outputs}"
