# SPDX-License-Identifier: Apache-2.0
"""Oracles of softmax, reductions, positions of extremes, the greatest k, and the normalisations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperationCode
from tests.operations.oracles.layer import Layer, at_least_one_axis

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.operations.oracles.layer import Array, Oracle

LEAST_NORM = 1e-6


def _logarithms(layer: Layer) -> Array:
    """Logarithms of softmax along the axis."""
    axis = layer.integer("axis", -1)
    x = layer.real("input") * layer.number("beta")
    x = x - x.max(axis=axis, keepdims=True)
    return np.asarray(x - np.log(np.exp(x).sum(axis=axis, keepdims=True)))


def _reduced(function: Callable[..., Array]) -> Oracle:
    def oracle(layer: Layer) -> list[Array]:
        source = layer.real("input")
        axes = tuple({axis % source.ndim for axis in layer.integers("axes")})
        result = np.asarray(function(source, axis=axes, keepdims=bool(layer.integer("keep_dims"))))
        return [at_least_one_axis(result)]

    return oracle


def _position(sign: int) -> Oracle:
    def oracle(layer: Layer) -> list[Array]:
        """The lowest index wins among equals: a stable sort keeps it first."""
        order = np.argsort(sign * layer.real("input"), axis=layer.integer("axis"), kind="stable")
        return [at_least_one_axis(np.asarray(order.take(0, axis=layer.integer("axis"))))]

    return oracle


def _topk(layer: Layer) -> list[Array]:
    """Falling, and of equals the greater index first: the end of a stable rising sort, backwards."""
    source = layer.raw("input")
    order = np.argsort(source, axis=-1, kind="stable")[..., ::-1][..., : layer.integer("k")]
    return [np.take_along_axis(source, order, axis=-1), order]


def _l2(layer: Layer) -> list[Array]:
    source = layer.real("input")
    norm = np.sqrt((source**2).sum(axis=layer.integer("axis", -1), keepdims=True))
    return [source / np.maximum(norm, LEAST_NORM)]


def _local_response(layer: Layer) -> list[Array]:
    """Sums of squares within the radius, as a product with a banded matrix."""
    source = np.moveaxis(layer.real("input"), layer.integer("axis", -1), -1)
    at = np.arange(source.shape[-1])
    band = np.abs(at[:, None] - at) <= layer.integer("radius")
    sums = source**2 @ band.astype(np.float64)
    result = source / (layer.number("bias") + layer.number("alpha") * sums) ** layer.number("beta")
    return [np.moveaxis(result, -1, layer.integer("axis", -1))]


def _instance(layer: Layer) -> list[Array]:
    source = layer.image(layer.real("input"))
    mean = source.mean(axis=(1, 2), keepdims=True)
    variance = (source**2).mean(axis=(1, 2), keepdims=True) - mean**2
    normal = (source - mean) / np.sqrt(variance + layer.number("epsilon"))
    return [layer.laid_out(layer.number("gamma") * normal + layer.number("beta"))]


FAMILIES: dict[str, dict[OperationCode, Oracle]] = {
    "softmax": {OperationCode.SOFTMAX: lambda layer: [np.exp(_logarithms(layer))]},
    "log_softmax": {OperationCode.LOG_SOFTMAX: lambda layer: [_logarithms(layer)]},
    "reduce": {
        OperationCode.MEAN: _reduced(np.mean),
        OperationCode.REDUCE_SUM: _reduced(np.sum),
        OperationCode.REDUCE_PROD: _reduced(np.prod),
        OperationCode.REDUCE_MAX: _reduced(np.max),
        OperationCode.REDUCE_MIN: _reduced(np.min),
        OperationCode.REDUCE_ALL: _reduced(np.all),
        OperationCode.REDUCE_ANY: _reduced(np.any),
    },
    "arg": {OperationCode.ARGMAX: _position(-1), OperationCode.ARGMIN: _position(1)},
    "topk": {OperationCode.TOPK_V2: _topk},
    "normalization": {
        OperationCode.L2_NORMALIZATION: _l2,
        OperationCode.LOCAL_RESPONSE_NORMALIZATION: _local_response,
        OperationCode.INSTANCE_NORMALIZATION: _instance,
    },
}
