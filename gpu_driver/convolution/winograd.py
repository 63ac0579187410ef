# SPDX-License-Identifier: Apache-2.0
"""Convolutions of 3 x 3 taps with a quarter of the products (winograd.h): where, their weights, tiles and memory.

Where: at least LEAST_TILES tiles an image with LEAST_OUTPUTS outputs each on average, and LEAST_DEPTH channels on
either side. Weights are four times as large as the filters, so that few tiles do not pay for reading them, and
transforms cost as much as the products they save where channels are few. What was measured:
docs/decisions/0006-winograd.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpu_driver.convolution.packing import CHANNEL_BLOCK

if TYPE_CHECKING:
    import numpy.typing as npt

    from gpu_driver.convolution.packing import FloatArray
    from nn_runtime.operations.sliding_window import SlidingWindow

EDGE = 4
"""Of a tile of outputs."""
PLACES = (EDGE + 2) ** 2
"""Of what tiles and filters are transformed to."""
POINTS = (0.0, 0.625, -0.625, 1.5, -1.5)
"""Where polynomials are taken, besides infinity: of those tried the ones with the least error."""
TILE_ROWS = 7
"""Tiles that are multiplied together, in registers."""
LEAST_TILES, LEAST_DEPTH, LEAST_OUTPUTS = 9, 32, 8
"""What is worth it; winograd.h takes 16 channels and more."""
LEAST_ROWS, MOST_ROWS, WORK_DEPTH = 4, 8, 1024
"""Rows of TILE_ROWS tiles that share a pass over the weights: with so many input channels together, within bounds."""


def fits(g: SlidingWindow) -> bool:
    """Tell whether winograd.h applies to a convolution, and is faster than convolve.h."""
    window = (g.filter_height, g.filter_width, g.stride_height, g.stride_width, g.dilation_height, g.dilation_width)
    tiles = _tiles_down(g) * _tiles_across(g)
    return (
        window == (3, 3, 1, 1, 1, 1)
        and min(g.input_depth, g.output_depth) >= LEAST_DEPTH
        and tiles >= LEAST_TILES
        and g.output_height * g.output_width >= LEAST_OUTPUTS * tiles
    )


def packed_bytes(g: SlidingWindow) -> int:
    """Return about how many bytes transformed filters take, and the filters beside them."""
    return 4 * (PLACES + g.filter_height * g.filter_width) * g.input_depth * g.output_depth


def tile_count(g: SlidingWindow) -> int:
    """Return how many tiles the output has, all images together."""
    return g.batches * _tiles_down(g) * _tiles_across(g)


def tiles_at_once(g: SlidingWindow) -> int:
    """Return how many tiles share a pass over the weights at most."""
    most = min(MOST_ROWS, max(LEAST_ROWS, WORK_DEPTH // g.input_depth))
    return TILE_ROWS * min(most, -(-tile_count(g) // TILE_ROWS))


def work_bytes(input_depth: int, at_once: int) -> int:
    """Return the size of the memory that each work-group needs for itself: V and M of winograd.h."""
    row = -(-input_depth // CHANNEL_BLOCK) * CHANNEL_BLOCK + CHANNEL_BLOCK
    return 4 * PLACES * (at_once * (row + 2 * CHANNEL_BLOCK) + 2 * CHANNEL_BLOCK)


def pixels_of(g: SlidingWindow, first: int, last: int) -> tuple[int, int]:
    """Return the pixels of all rows in which tiles first..last - 1 have outputs: first, behind the last."""
    top, bottom = first // _tiles_across(g), (last - 1) // _tiles_across(g)

    def row(tile_row: int, edge: int) -> int:
        image, y = divmod(tile_row, _tiles_down(g))
        return image * g.output_height + min(y * EDGE + edge, g.output_height)

    return row(top, 0) * g.output_width, row(bottom, EDGE) * g.output_width


def filter_transform() -> npt.NDArray[np.float64]:
    """Return G [6, 3]: what each point makes of three taps."""
    points = np.array(POINTS)
    differences = points[:, np.newaxis] - points
    np.fill_diagonal(differences, 1.0)
    finite = points[:, np.newaxis] ** np.arange(3) / differences.prod(axis=1, keepdims=True)
    return np.concatenate([finite, [[0.0, 0.0, 1.0]]])


def pack_weights(weights: npt.NDArray[np.generic]) -> FloatArray:
    """[depth_out, 3, 3, depth_in] -> float32, flat: by 32 channels [PLACES][1 or 2 vectors][depth_in][16].

    Missing channels are 0. Computed in double precision, then rounded.
    """
    depth_out, _, _, depth_in = weights.shape
    transform = filter_transform()
    lanes = -(-depth_out // CHANNEL_BLOCK) * CHANNEL_BLOCK
    packed = np.zeros(PLACES * depth_in * lanes, np.float32)
    end = 0
    with np.errstate(over="ignore", invalid="ignore"):  # such tiles are computed from the filters
        for channel in range(0, depth_out, 2 * CHANNEL_BLOCK):
            some = weights[channel : channel + 2 * CHANNEL_BLOCK].astype(np.float64)
            columns = np.tensordot(transform, some, (1, 1))  # [6, some, 3, depth_in]
            places = np.tensordot(transform, columns, (1, 2)).transpose(1, 0, 3, 2)
            vectors = min(2, (lanes - channel) // CHANNEL_BLOCK)
            block = np.zeros((PLACES, depth_in, vectors * CHANNEL_BLOCK), np.float32)
            block[:, :, : len(some)] = places.reshape(PLACES, depth_in, len(some))
            ordered = block.reshape(PLACES, depth_in, vectors, CHANNEL_BLOCK).transpose(0, 2, 1, 3)
            packed[end : end + block.size] = ordered.reshape(-1)
            end += block.size
    return packed


def _tiles_down(g: SlidingWindow) -> int:
    return -(-g.output_height // EDGE)


def _tiles_across(g: SlidingWindow) -> int:
    return -(-g.output_width // EDGE)
