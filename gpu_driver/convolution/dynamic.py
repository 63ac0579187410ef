# SPDX-License-Identifier: Apache-2.0
"""Products of real numbers with weights that were bytes, on bytes made of the inputs in every run (dynamic_step.h).

Files with "dynamic range quantisation" ask for that: products of bytes take a fraction of the time, and such weights a
quarter of the memory. Every image has a scale and a zero point of its own, and where a product reads one pixel, or one
row of a FULLY_CONNECTED, this has (docs/decisions/0015-dynamic-range.md).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gpu_driver.convolution.packing import BYTES_MAX_DEPTH, CHANNEL_BLOCK

if TYPE_CHECKING:
    import numpy.typing as npt

    from gpu_driver.convolution.packing import FloatArray
    from nn_runtime.operations.sliding_window import SlidingWindow

_MOST_PIXELS = 16
"""Of a tile (chain/tiles.py has fewer), all of which are read, even those that are not there."""
_MOST_PARTS = 64
_LEVELS_BYTES = 12
"""Of a row: a scale, its inverse and a zero point."""
_QUAD = 4
_GREATEST_BYTE = 127
_ROUNDED = 2.0**-21
"""More than two roundings to float32 change a number, times that."""


def fits(g: SlidingWindow) -> bool:
    """Tell whether dynamic_step.h applies to a geometry."""
    return g.filter_height * g.filter_width * g.input_depth <= BYTES_MAX_DEPTH


def bytes_of_rows(rows: int, depth: int) -> int:
    """Return the size of rows with what each is worth, and of what is read behind them."""
    return rows * _LEVELS_BYTES + (rows + _MOST_PIXELS) * depth + _QUAD


def bytes_of(g: SlidingWindow) -> int:
    """Return the size of images with their padding, and of what is read behind them."""
    copied = padded(g)
    count = g.batches * copied.output_height * copied.output_width * g.input_depth
    stride = g.stride_width if g.output_width > 1 else 0
    return count + (_MOST_PIXELS * stride + g.filter_width * g.dilation_width) * g.input_depth + _QUAD


class BytesOfFloats(NamedTuple):
    """Weights int8 [depth_out, ...] that times their scales [depth_out] are real ones."""

    weights: npt.NDArray[np.int8]
    scales: FloatArray


def as_bytes(weights: FloatArray, whole: FloatArray) -> BytesOfFloats | None:
    """Return weights [depth_out, ...] that were bytes before, as files of a quarter of the size have them; else None.

    The greatest magnitude of the whole filter that they are a part of, of each channel or of all, was 127, as
    converters choose the scale.
    """
    flat = weights.reshape(weights.shape[0], -1)
    by_channel = np.abs(whole.reshape(whole.shape[0], -1)).max(axis=1, keepdims=True)
    for greatest in (by_channel, np.full_like(by_channel, by_channel.max())):
        scales = np.where(greatest > 0, greatest / np.float32(_GREATEST_BYTE), np.float32(1))
        for some in (slice(1), slice(None)):  # nearly all others are found out at once
            with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
                integers = np.rint(flat[some] / scales[some])
                same = np.abs(integers * scales[some] - flat[some]) <= _ROUNDED * np.abs(flat[some])
            if not same.all():
                break
        else:
            return BytesOfFloats(integers.astype(np.int8).reshape(weights.shape), scales[:, 0])
    return None


def pack_weights(weights: npt.NDArray[np.int8], *, by_taps: bool) -> npt.NDArray[np.int8]:
    """[depth_out, filter_height, filter_width, depth_in] -> int8 [vectors of 16 channels, runs, quads, 16, 4].

    A run is what lies together: a row of a filter, or with dilation along it a tap. It begins with a quad; missing
    weights are 0.
    """
    depth_out, height, width, _ = weights.shape
    count = height * width if by_taps else height
    runs = weights.reshape(depth_out, count, -1)
    blocks, quads = -(-depth_out // CHANNEL_BLOCK), -(-runs.shape[2] // _QUAD)
    padded = np.zeros((blocks * CHANNEL_BLOCK, count, quads * _QUAD), np.int8)
    padded[:depth_out, :, : runs.shape[2]] = runs
    return np.ascontiguousarray(padded.reshape(blocks, CHANNEL_BLOCK, count, quads, _QUAD).transpose(0, 2, 3, 1, 4))


def padded(g: SlidingWindow) -> SlidingWindow:
    """Return the geometry of a step that copies images with their padding; what is one row becomes a column."""
    height, width = g.input_height, g.input_width
    if g.padded:
        height = (g.output_height - 1) * g.stride_height + (g.filter_height - 1) * g.dilation_height + 1
        width = (g.output_width - 1) * g.stride_width + (g.filter_width - 1) * g.dilation_width + 1
    elif height == 1:
        height, width = width, 1
    return replace(
        g,
        input_height=g.input_height if g.padded else height,
        input_width=g.input_width if g.padded else width,
        output_height=height,
        output_width=width,
        output_depth=g.input_depth,
        filter_height=1,
        filter_width=1,
        stride_height=1,
        stride_width=1,
        dilation_height=1,
        dilation_width=1,
    )


def of_products(g: SlidingWindow) -> SlidingWindow:
    """Return the geometry of products of what `padded` gives."""
    if not g.padded:
        return g
    copied = padded(g)
    return replace(
        g,
        input_height=copied.output_height,
        input_width=copied.output_width,
        padding_top=0,
        padding_bottom=0,
        padding_left=0,
        padding_right=0,
    )


def parts_of(g: SlidingWindow) -> int:
    """Return into how many equal parts an image is cut, for which ranges are found apart."""
    pixels = g.input_height * g.input_width
    return next(parts for parts in range(min(_MOST_PARTS, pixels), 0, -1) if pixels % parts == 0)
