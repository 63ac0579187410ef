# SPDX-License-Identifier: Apache-2.0
"""Layouts of constants and work splits that the packed kernels expect: `conv_2d_packed.cl`, `depthwise_conv_2d.cl`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

CHANNEL_BLOCK = 16
TILE_PIXELS = 7
TILE_CHANNELS = 32
DEPTH_CHUNK = 512
ALWAYS_EXACT_CHUNK = 256
EXACT_FLOAT_LIMIT = 1 << 24

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int32]


class WorkSplit(NamedTuple):
    """How many tiles one work-item takes, and the global size that follows."""

    tiles_per_item: int
    blocks_per_item: int
    global_size: tuple[int, int]


def pack_conv_weights(weights: npt.NDArray[np.generic], zero_point: int = 0) -> FloatArray:
    """[depth_out, filter_height, filter_width, depth_in] -> float32 [ceil(depth_out / 16), taps * depth_in, 16], zero_point subtracted.

    FULLY_CONNECTED weights [num_units, input_size] are packed the same way.
    """
    depth_out = weights.shape[0]
    blocks = -(-depth_out // CHANNEL_BLOCK)
    recentred = weights.reshape(depth_out, -1).astype(np.float32) - np.float32(zero_point)
    padded = np.zeros((blocks * CHANNEL_BLOCK, recentred.shape[1]), np.float32)
    padded[:depth_out] = recentred
    return np.ascontiguousarray(padded.reshape(blocks, CHANNEL_BLOCK, -1).transpose(0, 2, 1))


def pack_depthwise_weights(weights: npt.NDArray[np.generic], zero_point: int = 0) -> FloatArray:
    """[1, filter_height, filter_width, depth] -> float32 [ceil(depth / 16), taps, 16], zero_point subtracted.

    The channels of the last block are depth - 16 .. depth - 1 where depth >= 16, so it overlaps the one before.
    """
    depth = weights.shape[-1]
    recentred = weights.reshape(-1, depth).astype(np.float32) - np.float32(zero_point)
    return np.ascontiguousarray(_overlapping_blocks(recentred).transpose(1, 0, 2))


def pack_depthwise_channels(
    values: npt.NDArray[np.int32] | npt.NDArray[np.float32], dtype: npt.DTypeLike
) -> npt.NDArray[np.generic]:
    """[depth] -> [ceil(depth / 16) * 16], in the channel order of `pack_depthwise_weights`."""
    return np.ascontiguousarray(_overlapping_blocks(values.astype(dtype)[np.newaxis])).reshape(-1)


def pack_channels(
    values: npt.NDArray[np.int32] | npt.NDArray[np.float32], dtype: npt.DTypeLike
) -> npt.NDArray[np.generic]:
    """[depth_out] -> [ceil(depth_out / 16) * 16], zeros added: biases, multipliers and shifts of `conv_2d_packed.cl`."""
    packed = np.zeros(-(-values.size // CHANNEL_BLOCK) * CHANNEL_BLOCK, dtype)
    packed[: values.size] = values
    return packed


def fold_input_zero_point(
    bias: IntArray, weights: npt.NDArray[np.generic], weights_zero_point: int, input_zero_point: int
) -> IntArray:
    """Bias of a quantised depthwise convolution whose kernel leaves the input's zero point in: bias - zero_in * sum of (w - zero_w)."""
    depth = weights.shape[-1]
    sums = (weights.reshape(-1, depth).astype(np.int64) - weights_zero_point).sum(axis=0)
    return (bias.astype(np.int64) - input_zero_point * sums).astype(np.int32)


def exact_chunk(packed: FloatArray, largest_input: int) -> int:
    """Longest chunk (`conv_2d_packed.cl`, Exact) for weights of `pack_conv_weights` and |input - zero_point| <= largest_input <= 255.

    DEPTH_CHUNK where the absolute products of every chunk sum to at most 2^24, else ALWAYS_EXACT_CHUNK.
    """
    bounds = np.abs(packed).astype(np.float64)
    starts = np.arange(0, packed.shape[1], DEPTH_CHUNK)
    largest_sum = np.add.reduceat(bounds, starts, axis=1).max() * largest_input
    return DEPTH_CHUNK if largest_sum <= EXACT_FLOAT_LIMIT else ALWAYS_EXACT_CHUNK


def _overlapping_blocks(values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """[rows, depth] -> [rows, ceil(depth / 16), 16]; a last partial block starts at depth - 16, or is filled with zeros if depth < 16."""
    depth = values.shape[1]
    if depth < CHANNEL_BLOCK:
        values = np.pad(values, ((0, 0), (0, CHANNEL_BLOCK - depth)))
    starts = np.minimum(np.arange(0, depth, CHANNEL_BLOCK), values.shape[1] - CHANNEL_BLOCK)
    return values[:, starts[:, np.newaxis] + np.arange(CHANNEL_BLOCK)]
