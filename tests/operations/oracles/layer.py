# SPDX-License-Identifier: Apache-2.0
"""One operation as an oracle sees it: its inputs by name, as real numbers or as stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from nn_runtime.codes import OperationCode
    from nn_runtime.testing.drawing import Value

Array = npt.NDArray[Any]

NHWC_FROM_NCHW, NCHW_FROM_NHWC = (0, 2, 3, 1), (0, 3, 1, 2)
ACTIVATIONS = {0: (-np.inf, np.inf), 1: (0.0, np.inf), 2: (-1.0, 1.0), 3: (0.0, 6.0)}


@dataclass(frozen=True)
class Layer:
    """Operation, inputs by name (a repeated input in order) and the forms of the outputs."""

    code: OperationCode
    inputs: Mapping[str, Sequence[Value]]
    outputs: Sequence[Value]

    def value(self, name: str) -> Value:
        return self.inputs[name][0]

    def raw(self, name: str) -> Array:
        """The elements as stored."""
        return stored(self.value(name))

    def real(self, name: str) -> Array:
        """The real numbers that the elements stand for, float64."""
        return real(self.value(name))

    def number(self, name: str, default: float = 0.0) -> float:
        """A scalar, or the default where it is left out."""
        return float(self.raw(name).reshape(-1)[0]) if name in self.inputs else default

    def integer(self, name: str, default: int = 0) -> int:
        return int(self.number(name, default))

    def integers(self, name: str) -> list[int]:
        return [int(element) for element in self.raw(name).reshape(-1)]

    @property
    def is_nchw(self) -> bool:
        return bool(self.integer("layout"))

    def image(self, array: Array) -> Array:
        """Bring an input image to NHWC."""
        return array.transpose(NHWC_FROM_NCHW) if self.is_nchw else array

    def laid_out(self, image: Array) -> Array:
        """Bring an NHWC result to the layout of the operation."""
        return image.transpose(NCHW_FROM_NHWC) if self.is_nchw else image

    def activated(self, result: Array) -> Array:
        return np.asarray(np.clip(result, *ACTIVATIONS[self.integer("activation")]))


Oracle = Callable[[Layer], list[Array]]


def stored(value: Value) -> Array:
    assert value.array is not None
    return value.array


def real(value: Value) -> Array:
    array = stored(value).astype(np.float64)
    if value.channel_quant is not None:
        shape = [1] * array.ndim
        shape[value.channel_quant.channel_dim] = -1
        array *= np.array(value.channel_quant.scales).reshape(shape)
    elif value.scale:
        array = (array - value.zero_point) * value.scale
    return array


def at_least_one_axis(array: Array) -> Array:
    """A result that lost all its axes has the shape [1]."""
    return array.reshape(1) if array.ndim == 0 else array
