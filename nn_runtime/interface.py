# SPDX-License-Identifier: Apache-2.0
"""How a model looks to its user: names, dtypes, shapes and quantisation of inputs and outputs, and what is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode
from nn_runtime.operand import OperandType
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    import numpy.typing as npt

    from nn_runtime.operand import Array


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
        return self.scale > 0 and self.dtype.name == "int16" and computed.kind == "f"

    def quantize(self, real: npt.ArrayLike) -> Array:
        """Return real values as the tensor takes them: rounded and clipped to its integers, or in its dtype alone."""
        if not self.scale:
            return np.asarray(real, self.dtype)
        info = np.iinfo(str(self.dtype))
        nearest = np.rint(np.asarray(real, np.float64) / self.scale) + self.zero_point
        codes: Array = np.clip(nearest, info.min, info.max).astype(self.dtype)
        return codes

    def dequantize(self, values: npt.ArrayLike) -> Array:
        """Return the real values, float32, that integers of the tensor stand for; others as they are."""
        if not self.scale:
            return np.asarray(values)
        return ((np.asarray(values, np.float64) - self.zero_point) * self.scale).astype(np.float32)

    @property
    def quantization(self) -> OperandType:
        """What `quantize` and `dequantize` take for one that is real inside."""
        return OperandType(OperandCode.TENSOR_QUANT16_SYMM, (), self.scale, self.zero_point)

    def __str__(self) -> str:
        quantized = f" scale {self.scale:g} zero point {self.zero_point}" if self.scale else ""
        return f"{self.name}: {self.dtype} {list(self.shape)}{quantized}"


@dataclass(frozen=True, eq=False)
class State:
    """A value kept between runs: an input of the model, and the output that gives its next value.

    Without an output it stays what it is at first: `initial` in the type and dimensions of the operand, else zero.
    """

    input: int
    output: int | None
    initial: Array | None = None


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
