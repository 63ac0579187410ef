# SPDX-License-Identifier: Apache-2.0
"""Random quantised layers by seed, as files with one operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.nn_runtime.tflite.operator_cases import SAME, VALID, Case
from tests.nn_runtime.tflite.operator_file import Tensor, constant, int8, uint8

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.nn_runtime.tflite.operator_file import Array

ACTIVATIONS = (0, 1, 2, 3)
"""NONE, RELU, RELU_N1_TO_1, RELU6."""


@dataclass
class Draw:
    """A source of random parameters; `signed`: INT8 data, else UINT8."""

    rng: np.random.Generator
    signed: bool

    @classmethod
    def of(cls, seed: int) -> Draw:
        rng = np.random.default_rng(seed)
        return cls(rng, bool(rng.integers(2)))

    def integer(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def scale(self, low: float = 1e-3, high: float = 1.0) -> float:
        return float(np.float32(np.exp(self.rng.uniform(np.log(low), np.log(high)))))

    def tensor(self, scale: float, zero_point: int | None, *shape: int) -> Tensor:
        drawn = self.zero_point() if zero_point is None else zero_point
        return (int8 if self.signed else uint8)(scale, drawn, *shape)

    def zero_point(self) -> int:
        return self.integer(-128, 127) if self.signed else self.integer(0, 255)

    def bytes(self, *shape: int) -> Array:
        low, high = (-127, 127) if self.signed else (0, 255)
        return self.rng.integers(low, high + 1, shape).astype(np.int8 if self.signed else np.uint8)

    def activation(self) -> int:
        return int(self.rng.choice(ACTIVATIONS))

    def weights(self, channels: int, dimension: int, *shape: int) -> Tensor:
        """Weights: UINT8 with any zero point, INT8 per tensor or per channel with zero point 0."""
        if not self.signed:
            return constant(self.bytes(*shape), self.scale(), self.zero_point())
        if self.rng.integers(2):
            return constant(self.bytes(*shape), self.scale(), 0)
        base = self.scale()
        scales = [float(np.float32(base * factor)) for factor in self.rng.uniform(0.2, 5, channels)]
        return constant(self.bytes(*shape), scales, 0, dimension)

    def layer(self, source: Tensor, weights: Tensor, channels: int, terms: int) -> tuple[Tensor, float]:
        """Return a bias, and an output scale in which the sums of `terms` products fill the range more or less."""
        assert isinstance(source.scale, float)
        scales = [weights.scale] if isinstance(weights.scale, float) else list(weights.scale)
        products = [float(np.float32(source.scale) * np.float32(scale)) for scale in scales]
        spread = 74.0 * 74.0 * terms**0.5
        values = self.rng.normal(0, spread, channels).astype(np.int32)
        return constant(values, products), float(np.float32(max(products) * spread / self.rng.uniform(5, 120)))


def conv_2d(draw: Draw) -> Case:
    depth, channels = draw.integer(1, 24), draw.integer(1, 16)
    filter_height, filter_width = draw.integer(1, 4), draw.integer(1, 4)
    dilations = (draw.integer(1, 2), draw.integer(1, 2))
    height, width = (draw.integer(size * 2, size * 2 + 6) for size in (filter_height, filter_width))
    source = draw.tensor(draw.scale(), None, draw.integer(1, 2), height, width, depth)
    weights = draw.weights(channels, 0, channels, filter_height, filter_width, depth)
    bias, scale = draw.layer(source, weights, channels, filter_height * filter_width * depth)
    options = {**_window(draw), "DilationHFactor": dilations[0], "DilationWFactor": dilations[1]}
    return Case("CONV_2D", [source, weights, bias], [draw.tensor(scale, None, 1)], "Conv2DOptions", options)


def depthwise_conv_2d(draw: Draw) -> Case:
    depth, multiplier = draw.integer(1, 16), draw.integer(1, 3)
    channels = depth * multiplier
    filter_height, filter_width = draw.integer(1, 5), draw.integer(1, 5)
    height, width = (draw.integer(size, size + 8) for size in (filter_height, filter_width))
    source = draw.tensor(draw.scale(), None, draw.integer(1, 2), height, width, depth)
    weights = draw.weights(channels, 3, 1, filter_height, filter_width, channels)
    bias, scale = draw.layer(source, weights, channels, filter_height * filter_width)
    options = {**_window(draw), "DepthMultiplier": multiplier}
    return Case(
        "DEPTHWISE_CONV_2D", [source, weights, bias], [draw.tensor(scale, None, 1)], "DepthwiseConv2DOptions", options
    )


def fully_connected(draw: Draw) -> Case:
    size, units = draw.integer(1, 300), draw.integer(1, 40)
    source = draw.tensor(draw.scale(), None, draw.integer(1, 5), size)
    weights = constant(draw.bytes(units, size), draw.scale(), 0 if draw.signed else draw.zero_point())
    bias, scale = draw.layer(source, weights, units, size)
    options = {"FusedActivationFunction": draw.activation()}
    return Case(
        "FULLY_CONNECTED", [source, weights, bias], [draw.tensor(scale, None, 1)], "FullyConnectedOptions", options
    )


def add(draw: Draw) -> Case:
    shape = [draw.integer(1, 6) for _ in range(draw.integer(1, 4))]
    other = [1 if draw.rng.random() < 0.2 else size for size in shape[draw.integer(0, len(shape) - 1) :]]
    first = draw.tensor(draw.scale(), None, *shape)
    second = draw.tensor(draw.scale(), None, *other)
    scale = float(np.float32(max(first.scale, second.scale) * draw.rng.uniform(0.4, 3)))
    options = {"FusedActivationFunction": draw.activation()}
    return Case("ADD", [first, second], [draw.tensor(scale, None, 1)], "AddOptions", options)


def average_pool_2d(draw: Draw) -> Case:
    height, width = draw.integer(1, 12), draw.integer(1, 12)
    source = draw.tensor(draw.scale(), None, draw.integer(1, 2), height, width, draw.integer(1, 20))
    sizes = {"FilterHeight": draw.integer(1, height), "FilterWidth": draw.integer(1, width)}
    result = draw.tensor(source.scale, source.zero_point, 1)
    return Case("AVERAGE_POOL_2D", [source], [result], "Pool2DOptions", {**_window(draw), **sizes})


def softmax(draw: Draw) -> Case:
    shape = [draw.integer(1, 5) for _ in range(draw.integer(0, 2))]
    source = draw.tensor(draw.scale(1e-3, 2), None, *shape, draw.integer(1, 200))
    result = draw.tensor(1 / 256, -128 if draw.signed else 0, 1)
    return Case("SOFTMAX", [source], [result], "SoftmaxOptions", {"Beta": draw.scale(0.1, 3)})


def _window(draw: Draw) -> dict[str, Any]:
    return {
        "Padding": draw.integer(SAME, VALID),
        "StrideH": draw.integer(1, 3),
        "StrideW": draw.integer(1, 3),
        "FusedActivationFunction": draw.activation(),
    }


FAMILIES: dict[str, Callable[[Draw], Case]] = {
    family.__name__: family for family in (conv_2d, depthwise_conv_2d, fully_connected, add, average_pool_2d, softmax)
}
