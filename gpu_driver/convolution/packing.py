# SPDX-License-Identifier: Apache-2.0
"""Layouts of constants that the steps of `chain.cl` expect, and when their arithmetic is exact."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from gpu_driver.discovery.dot_products import AMX, WIDE_FORMS

CHANNEL_BLOCK = 16
DEPTH_CHUNK = 512
BYTES_DEPTH_CHUNK = 4608
BYTES_MAX_DEPTH = 65536
ALWAYS_EXACT_CHUNK = 256
EXACT_FLOAT_LIMIT = 1 << 24
EXACT_TAPS = 256
CHUNK_QUADS = 16
"""Of common/amx.h."""

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int32]
Value = TypeVar("Value", bound=np.generic)


class Rounding(NamedTuple):
    """Whether both roundings of a requantisation can be done at once, and what is added for that, by channel."""

    at_once: bool
    offsets: IntArray


def pack_conv_weights(weights: npt.NDArray[np.generic], zero_point: int = 0) -> FloatArray:
    """[depth_out, filter_height, filter_width, depth_in] -> float32 [ceil(depth_out / 16), taps * depth_in, 16].

    zero_point is subtracted; missing channels are 0.
    FULLY_CONNECTED weights [num_units, input_size] are packed the same way.
    """
    depth_out = weights.shape[0]
    flat = weights.reshape(depth_out, -1)
    if zero_point:
        flat = flat.astype(np.float32) - np.float32(zero_point)
    whole, rest = divmod(depth_out, CHANNEL_BLOCK)
    depth = flat.shape[1]
    packed = (np.zeros if rest else np.empty)((whole + bool(rest), depth, CHANNEL_BLOCK), np.float32)
    packed[:whole] = flat[: depth_out - rest].reshape(whole, CHANNEL_BLOCK, depth).transpose(0, 2, 1)
    if rest:
        packed[whole, :, :rest] = flat[depth_out - rest :].T
    return packed


def as_halves(weights: FloatArray) -> npt.NDArray[np.float16] | None:
    """Return weights that were halves before, as files of half the size have them; None if others are among them."""
    for part in (weights[:1], weights):  # nearly all others are found out at once
        with np.errstate(over="ignore"):
            halves = part.astype(np.float16)
        if not np.array_equal(halves.astype(np.float32), part):
            return None
    return halves


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
    """[depth_out] -> [ceil(depth_out / 16) * 16], zeros added: the vectors of `convolve.h`."""
    packed = np.zeros(_ceil_divide(values.size, CHANNEL_BLOCK) * CHANNEL_BLOCK, dtype)
    packed[: values.size] = values
    return packed


def dot4_lanes(dot4: int) -> int:
    """Return DOT4_LANES of a form of common/dot4.h."""
    return 16 if dot4 in WIDE_FORMS else 8


def convolution_lanes(depth_out: int, dot4: int) -> IntArray:
    """Return the channel of every lane of `convolve_bytes.h`, depth_out and more for none.

    With 16 lanes two vectors hold 32 channels: a group of four lanes of the first channels 8 i .. 8 i + 3, of the
    second the four behind them. 16 channels or fewer that remain are a vector in their own order, as all are with 8.
    """
    blocks = _ceil_divide(depth_out, CHANNEL_BLOCK)
    paired = blocks // 2 if dot4_lanes(dot4) == CHANNEL_BLOCK else 0
    pairs = np.arange(paired * 32).reshape(-1, 4, 2, 4).transpose(0, 2, 1, 3).reshape(-1)
    lanes: IntArray = np.concatenate([pairs, np.arange(pairs.size, blocks * CHANNEL_BLOCK)]).astype(np.int32)
    return lanes


def pack_lanes(values: npt.NDArray[Value], lanes: IntArray) -> npt.NDArray[Value]:
    """[depth_out] -> [lanes] in their order, zeros where there is no channel."""
    padded = np.zeros(max(values.size, int(lanes.max()) + 1), values.dtype)
    padded[: values.size] = values
    return padded[lanes]


class PackedBytes(NamedTuple):
    """Weights of `convolve_bytes.h`, less their zero point.

    weights: int8 [vectors of 16 channels, quads, 16, 4], cut to bytes. excess: what that left, int8
    [n, 2, quads of a unit, 16, 4] of n units of blocks of two vectors. places: int32 [blocks + 1 + n]: the first of a
    block's, then of each 65536 times its run, plus its first quad in that.
    """

    weights: npt.NDArray[np.int8]
    excess: npt.NDArray[np.int8]
    places: IntArray


def pack_conv_weights_of_bytes(
    weights: npt.NDArray[np.uint8] | npt.NDArray[np.int8], zero_point: int, lanes: IntArray, dot4: int, *, by_rows: bool
) -> PackedBytes:
    """Return weights [depth_out, filter_height, filter_width, depth_in] in the order of lanes (`convolution_lanes`).

    Missing ones are 0: behind every row of a filter, if `by_rows` and if that is not longer than what is staged at
    once, else behind the whole; such a row, or the whole, is a run and begins with a quad.
    """
    depth_out = weights.shape[0]
    runs = weights.reshape(depth_out, weights.shape[1] if by_rows and weights.ndim > 2 else 1, -1)
    if 4 * runs.shape[1] * _ceil_divide(runs.shape[2], 4) > BYTES_DEPTH_CHUNK:
        runs = weights.reshape(depth_out, 1, -1)
    fits = int(runs.min()) - zero_point >= -128 and int(runs.max()) - zero_point <= 127
    blocks, quads = _ceil_divide(depth_out, CHANNEL_BLOCK), _ceil_divide(runs.shape[2], 4)
    padded = np.zeros((blocks * CHANNEL_BLOCK, runs.shape[1], quads * 4), np.int8 if fits else np.int16)
    np.subtract(runs, zero_point, out=padded[:depth_out, :, : runs.shape[2]], dtype=np.int16, casting="unsafe")
    ordered = padded[lanes].reshape(blocks, CHANNEL_BLOCK, runs.shape[1], quads, 4).transpose(0, 2, 3, 1, 4)
    cut = ordered if fits else np.clip(ordered, -128, 127).astype(np.int8)
    left = ordered[:, :0] if fits else ordered - cut  # of no run, or of all
    excess, places = _excess(left, CHUNK_QUADS if dot4 == AMX else 1)
    return PackedBytes(np.ascontiguousarray(cut).reshape(blocks, -1, CHANNEL_BLOCK, 4), excess, places)


def _excess(left: npt.NDArray[np.integer], unit: int) -> tuple[npt.NDArray[np.int8], IntArray]:
    """Return what `PackedBytes` says of weights [vectors, runs, quads, 16, 4] beyond bytes, for units of quads."""
    vectors, runs, quads, *quad = left.shape
    pairs, units = _ceil_divide(vectors, 2), _ceil_divide(quads, unit)
    found: list[tuple[int, int, npt.NDArray[np.int8]]] = []
    some = left.any(axis=(1, 2, 3, 4))
    for pair in np.flatnonzero(np.add.reduceat(some, np.arange(0, vectors, 2))).tolist():
        padded = np.zeros((2, runs, units * unit, *quad), np.int16)
        of_pair = left[2 * pair : 2 * pair + 2]
        padded[: len(of_pair), :, :quads] = of_pair
        rest = padded.reshape(2, runs, units, unit, *quad).transpose(1, 2, 0, 3, 4, 5)
        while rest.any():
            for run, at in np.argwhere(rest.any(axis=(2, 3, 4, 5))).tolist():
                bytes_ = np.clip(rest[run, at], -128, 127)
                rest[run, at] -= bytes_
                found.append((pair, (run << 16) + unit * at, bytes_.astype(np.int8)))
    found.sort(key=lambda one: one[:2])
    first = np.searchsorted([one[0] for one in found], np.arange(pairs + 1))
    excess = np.stack([one[2] for one in found]) if found else np.zeros((1, 2, unit, *quad), np.int8)
    return excess, np.array([*first, *(one[1] for one in found)], np.int32)


def depthwise_block(dot4: int) -> int:
    """Return DEPTHWISE_LANES of `depthwise_bytes.h`: four vectors."""
    return 4 * dot4_lanes(dot4)


def depthwise_lanes(depth: int, block: int) -> IntArray:
    """Return the channel of every lane of `depthwise_bytes.h`: [ceil(depth / block) * block].

    depth: block / 8, / 4 or / 2, or at least a block, of 32 or 64. A block is so many channels, the last ones if fewer
    remain, or twice the last half of so many if no more remain; or all channels several times. Lanes are in four
    vectors: a group of four lanes of vector j has channels 16 i + 4 j .. 16 i + 4 j + 3 of the block.
    """
    half = min(depth, block // 2)
    blocks = [
        np.arange(block) % half + depth - half
        if depth - start <= half
        else np.arange(block) + min(start, depth - block)
        for start in range(0, depth, block)
    ]
    lanes: IntArray = np.stack(blocks).reshape(-1, block // 16, 4, 4).transpose(0, 2, 1, 3).reshape(-1).astype(np.int32)
    return lanes


def fits_depthwise_lanes(depth: int, block: int) -> bool:
    """Whether `depthwise_bytes.h` takes so many channels."""
    return depth >= block or depth in (block // 8, block // 4, block // 2)


def fits_depthwise_bytes(weights: npt.NDArray[np.generic], zero_point: int) -> bool:
    """Whether `depthwise_bytes.h` takes weights [1, rows, columns, depth]: each is a sum of two signed bytes."""
    recentred = weights.astype(np.int32) - zero_point
    return weights.shape[1:3] in ((3, 3), (5, 5)) and bool(recentred.min() >= -256 and recentred.max() <= 254)


def pack_depthwise_weights_of_bytes(
    weights: npt.NDArray[np.generic], zero_point: int, input_zero_point: int, block: int
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.bool_]]:
    """[1, size, size, depth] -> int8 [n, block]: by block [column][operand][vector 4][block / 4][row 4], padding, rest.

    zero_point is subtracted, rows beyond the filter are 0; padding is the byte input_zero_point; weights that are no
    signed bytes are left over in part, and their blocks are told, too: [ceil(depth / block)]. Channels as
    `depthwise_lanes`.
    """
    size, depth = weights.shape[2:]
    rows = np.zeros((_ceil_divide(size, 4) * 4, size, depth), np.int32)
    rows[:size] = weights[0].astype(np.int32) - zero_point
    lanes = rows[:, :, depthwise_lanes(depth, block)].reshape(-1, 4, size, _ceil_divide(depth, block), 4, block // 4)
    blocks = lanes.transpose(3, 2, 0, 4, 5, 1)
    bytes_ = np.clip(blocks, -128, 127)
    has_rest = (bytes_ != blocks).any(axis=(1, 2, 3, 4, 5))
    padding = np.full((1, block), input_zero_point & 0xFF, np.uint8).view(np.int8)
    packed, rest = (part.astype(np.int8).reshape(-1, block) for part in (bytes_, (blocks - bytes_)[has_rest]))
    return np.concatenate([packed, padding, rest]), has_rest


def fold_input_zero_point(
    bias: IntArray, weights: npt.NDArray[np.generic], weights_zero_point: int, unsigned_zero_point: int
) -> IntArray:
    """[depth_out] bias of `convolve_bytes.h`: bias - unsigned_zero_point * sum of (w - zero_w), modulo 2^32.

    weights [depth_out, ...]; unsigned_zero_point is the input's zero point, plus 128 if that is added to inputs.
    """
    recentred = weights.reshape(weights.shape[0], -1).astype(np.int64) - weights_zero_point
    folded: npt.NDArray[np.int64] = bias - unsigned_zero_point * recentred.sum(axis=1)
    return folded.astype(np.int32)


def exact_chunk(packed: FloatArray, largest_input: int) -> int:
    """Longest chunk (`convolve.h`, Exact) for packed weights and |input - zero_point| <= largest_input <= 255.

    DEPTH_CHUNK where the absolute products of every chunk sum to at most 2^24, else ALWAYS_EXACT_CHUNK.
    """
    bounds = np.abs(packed).astype(np.float64)
    starts = np.arange(0, packed.shape[1], DEPTH_CHUNK)
    largest_sum = np.add.reduceat(bounds, starts, axis=1).max() * largest_input
    return DEPTH_CHUNK if largest_sum <= EXACT_FLOAT_LIMIT else ALWAYS_EXACT_CHUNK


def greatest_sums(
    weights: npt.NDArray[np.generic], zero_point: int, bias: npt.NDArray[np.generic], largest_input: int
) -> npt.NDArray[np.int64]:
    """Return bounds on |sum| by channel, for weights [channels, ...] and |input - zero_point| <= largest_input."""
    recentred = np.abs(weights.reshape(weights.shape[0], -1).astype(np.int64) - zero_point)
    bounds: npt.NDArray[np.int64] = recentred.sum(axis=1) * largest_input + np.abs(bias.astype(np.int64))
    return bounds


def rounding(greatest: npt.NDArray[np.int64], exponents: npt.NDArray[np.generic], zero_point: int) -> Rounding:
    """Return what multiply_and_round16 of quant.h adds by channel, and whether it applies to all of them."""
    shifts = -exponents.astype(np.int64)
    right = np.maximum(shifts, 1)
    offsets = (1 << (right - 1)) + (zero_point << right)
    at_once = bool(np.all(shifts > 0) and np.all(greatest + np.abs(offsets) < (1 << 31)))
    return Rounding(at_once, (offsets if at_once else np.zeros_like(offsets)).astype(np.int32))


def fits_depthwise(taps: int, *, quantised: bool) -> bool:
    """Whether sums over the taps of a filter are exact in float32 where they must be (`depthwise.h`)."""
    return not quantised or taps <= EXACT_TAPS


def _ceil_divide(a: int, b: int) -> int:
    return -(-a // b)


def _overlapping_blocks(values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """[rows, depth] -> [rows, ceil(depth / 16), 16]; the last starts at depth - 16, or has zeros if depth < 16."""
    depth = values.shape[1]
    if depth < CHANNEL_BLOCK:
        values = np.pad(values, ((0, 0), (0, CHANNEL_BLOCK - depth)))
    starts = np.minimum(np.arange(0, depth, CHANNEL_BLOCK), values.shape[1] - CHANNEL_BLOCK)
    return values[:, starts[:, np.newaxis] + np.arange(CHANNEL_BLOCK)]
