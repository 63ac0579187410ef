# SPDX-License-Identifier: Apache-2.0
"""Oracles of convolutions, matrix products, pooling and resizing: windows of a padded image."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode, OperationCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.operations.oracles.layer import Array, Layer, Oracle

SAME = 1
SIDES = (("top", "bottom"), ("left", "right"))
AXES = ("height", "width")


def _implicit(layer: Layer, size: int, reach: int, stride: int) -> tuple[int, int]:
    if layer.integer("padding_scheme") != SAME:
        return 0, 0
    total = max(0, (-(-size // stride) - 1) * stride + reach - size)
    return total // 2, total - total // 2


def _paddings(layer: Layer, image: Array, reach: tuple[int, ...], strides: list[int]) -> list[tuple[int, int]]:
    """Return what is added at top and bottom, left and right."""
    if "padding_scheme" in layer.inputs:
        return [_implicit(layer, image.shape[1 + i], reach[i], strides[i]) for i in range(2)]
    return [(layer.integer(f"padding_{head}"), layer.integer(f"padding_{tail}")) for head, tail in SIDES]


def _windows(layer: Layer, image: Array, taps: tuple[int, ...], outside: float) -> Array:
    """Return [batch, row, column, depth, tap row, tap column] of an NHWC image."""
    strides = [layer.integer(f"stride_{axis}", 1) for axis in AXES]
    dilations = [layer.integer(f"dilation_{axis}", 1) for axis in AXES]
    reach = tuple((tap - 1) * dilation + 1 for tap, dilation in zip(taps, dilations, strict=True))
    paddings = [(0, 0), *_paddings(layer, image, reach, strides), (0, 0)]
    padded = np.pad(image, paddings, constant_values=outside)
    windows = np.lib.stride_tricks.sliding_window_view(padded, reach, axis=(1, 2))
    return windows[:, :: strides[0], :: strides[1], :, :: dilations[0], :: dilations[1]]


def _bias(layer: Layer) -> Array:
    """The bias; one of 8-bit data counts in products of the input's scale and the filter's, which may have many."""
    bias = layer.raw("bias").astype(np.float64)
    if layer.value("bias").type != OperandCode.TENSOR_INT32:
        return bias
    weights = layer.value("filter" if "filter" in layer.inputs else "weights")
    scales = weights.channel_quant.scales if weights.channel_quant else weights.scale
    return np.multiply(bias, layer.value("input").scale * np.asarray(scales))


def _finished(layer: Layer, sums: Array) -> list[Array]:
    return [layer.laid_out(layer.activated(sums + _bias(layer)))]


def _conv(layer: Layer) -> list[Array]:
    weights = layer.real("filter")
    windows = _windows(layer, layer.image(layer.real("input")), weights.shape[1:3], 0.0)
    return _finished(layer, np.einsum("bhwcij,oijc->bhwo", windows, weights, optimize=True))


def _depthwise(layer: Layer) -> list[Array]:
    image, weights = layer.image(layer.real("input")), layer.real("filter")[0]
    taps = weights.shape[:2]
    weights = weights.reshape(*taps, image.shape[3], layer.integer("depth_multiplier"))
    result = np.einsum("bhwcij,ijcm->bhwcm", _windows(layer, image, taps, 0.0), weights)
    return _finished(layer, result.reshape(*result.shape[:3], -1))


def _grouped(layer: Layer) -> list[Array]:
    image, weights = layer.image(layer.real("input")), layer.real("filter")
    windows = _windows(layer, image, weights.shape[1:3], 0.0)
    groups = layer.integer("num_groups")
    parts = zip(np.split(windows, groups, axis=3), np.split(weights, groups), strict=True)
    return _finished(layer, np.concatenate([np.einsum("bhwcij,oijc->bhwo", a, b) for a, b in parts], axis=3))


def _transposed(layer: Layer) -> list[Array]:
    """Spread the image by the strides with zeros between, convolve it whole with the filter turned about, and crop."""
    image, weights = layer.image(layer.real("input")), layer.real("filter")
    taps, sizes = weights.shape[1:3], image.shape[1:3]
    strides = [layer.integer(f"stride_{axis}") for axis in AXES]
    spread = np.zeros((len(image), *((n - 1) * s + 1 for n, s in zip(sizes, strides, strict=True)), image.shape[3]))
    spread[:, :: strides[0], :: strides[1]] = image
    padded = np.pad(spread, [(0, 0), *((tap - 1, tap - 1) for tap in taps), (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, taps, axis=(1, 2))
    whole = np.einsum("bhwcij,oijc->bhwo", windows, weights[:, ::-1, ::-1], optimize=True)
    heads, wanted = _crop(layer, whole.shape[1:3])
    # Where the output is wider than what the filter reaches, there is the bias alone.
    whole = np.pad(whole, [(0, 0), *((0, max(0, n)) for n in wanted), (0, 0)])
    result = whole[:, heads[0] : heads[0] + wanted[0], heads[1] : heads[1] + wanted[1]]
    return _finished(layer, result)


def _crop(layer: Layer, whole: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """Return where the output begins in the whole result, and its height and width."""
    if "output_shape" not in layer.inputs:
        heads = [layer.integer(f"padding_{head}") for head, _ in SIDES]
        tails = [layer.integer(f"padding_{tail}") for _, tail in SIDES]
        return heads, [n - head - tail for n, head, tail in zip(whole, heads, tails, strict=True)]
    shape = layer.integers("output_shape")
    wanted = shape[2:] if layer.is_nchw else shape[1:3]
    is_same = layer.integer("padding_scheme") == SAME
    return [max(0, n - m) // 2 * is_same for n, m in zip(whole, wanted, strict=True)], wanted


def _fully_connected(layer: Layer) -> list[Array]:
    weights = layer.real("weights")
    rows = layer.real("input").reshape(-1, weights.shape[1])
    return [layer.activated(np.einsum("bi,oi->bo", rows, weights) + _bias(layer))]


def _batch_matmul(layer: Layer) -> list[Array]:
    left = "...ki" if layer.integer("adj_x") else "...ik"
    right = "...jk" if layer.integer("adj_y") else "...kj"
    return [np.einsum(f"{left},{right}->...ij", layer.real("lhs"), layer.real("rhs"))]


def _pool(function: Callable[[Array], Array]) -> Oracle:
    def oracle(layer: Layer) -> list[Array]:
        """What lies outside the image is NaN, which `function` leaves out."""
        taps = tuple(layer.integer(f"filter_{axis}") for axis in AXES)
        windows = _windows(layer, layer.image(layer.real("input")), taps, np.nan)
        return [layer.laid_out(layer.activated(function(windows)))]

    return oracle


def _coordinates(layer: Layer, size: int, wanted: int) -> Array:
    """Where output rows or columns lie in the image; float32, for NEAREST takes the floor of it."""
    at, scale = np.arange(wanted, dtype=np.float32), np.float32(size) / np.float32(wanted)
    if layer.integer("align_corners") and wanted > 1:
        return np.asarray(at * (np.float32(size - 1) / np.float32(wanted - 1)))
    shift = np.float32(0.5 * layer.integer("half_pixel_centers"))
    return np.asarray((at + shift) * scale)


def _resized(layer: Layer, of_axis: Callable[[Layer, int, int], Array]) -> list[Array]:
    """Resize by one matrix for rows and one for columns, [wanted, size]."""
    image = layer.image(layer.real("input"))
    height, width = (of_axis(layer, image.shape[1 + i], _wanted(layer, i, image)) for i in range(2))
    return [layer.laid_out(np.einsum("yh,xw,bhwc->byxc", height, width, image, optimize=True))]


def _wanted(layer: Layer, axis: int, image: Array) -> int:
    if f"output_{AXES[axis]}" in layer.inputs:
        return layer.integer(f"output_{AXES[axis]}")
    return int(np.floor(image.shape[1 + axis] * layer.number(f"{AXES[axis]}_scale")))


def _nearest(layer: Layer, size: int, wanted: int) -> Array:
    at = _coordinates(layer, size, wanted)
    nearest = np.floor(at + np.float32(0.5)) if layer.integer("align_corners") else np.floor(at)
    return np.asarray(np.eye(size)[np.minimum(nearest.astype(int), size - 1)])


def _linear(layer: Layer, size: int, wanted: int) -> Array:
    """Tents about the coordinates, which stay inside the image."""
    at = _coordinates(layer, size, wanted).astype(np.float64) - 0.5 * layer.integer("half_pixel_centers")
    return np.maximum(0.0, 1.0 - np.abs(np.clip(at, 0, size - 1)[:, None] - np.arange(size)))


FAMILIES: dict[str, dict[OperationCode, Oracle]] = {
    "conv": {
        OperationCode.CONV_2D: _conv,
        OperationCode.DEPTHWISE_CONV_2D: _depthwise,
        OperationCode.GROUPED_CONV_2D: _grouped,
        OperationCode.TRANSPOSE_CONV_2D: _transposed,
    },
    "fully_connected": {OperationCode.FULLY_CONNECTED: _fully_connected},
    "batch_matmul": {OperationCode.BATCH_MATMUL: _batch_matmul},
    "pooling": {
        OperationCode.AVERAGE_POOL_2D: _pool(lambda windows: np.nanmean(windows, axis=(4, 5))),
        OperationCode.MAX_POOL_2D: _pool(lambda windows: np.nanmax(windows, axis=(4, 5))),
        OperationCode.L2_POOL_2D: _pool(lambda windows: np.sqrt(np.nanmean(windows**2, axis=(4, 5)))),
    },
    "resize": {
        OperationCode.RESIZE_BILINEAR: lambda layer: _resized(layer, _linear),
        OperationCode.RESIZE_NEAREST_NEIGHBOR: lambda layer: _resized(layer, _nearest),
    },
}
