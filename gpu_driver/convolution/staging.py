# SPDX-License-Identifier: Apache-2.0
"""Memory in which work-groups put the inputs of products of floats side by side (kernels_cl/common/direct.h)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nn_runtime.operations.sliding_window import SlidingWindow

COPIED_ELEMENTS = 49152
"""Room for several tiles of halves, which are copied as floats."""
_FLOAT_BYTES = 4
_OVERRUN = 16
"""Elements that a copy may write behind its end."""


def copied_bytes(g: SlidingWindow, tile_pixels: int, *, is_half: bool) -> int:
    """Return what a convolution needs at once for copies of its inputs, tiles having `tile_pixels` pixels."""
    pixels = g.batches * g.output_height * g.output_width
    depth = g.filter_height * g.filter_width * g.input_depth
    if not is_half and g.is_per_pixel and (pixels == 1 or pixels % tile_pixels == 0):
        return 0
    elements = tile_pixels * ((depth + 31) // 16 * 16 + 16)
    return _FLOAT_BYTES * ((max(COPIED_ELEMENTS, 2 * elements) if is_half else elements) + _OVERRUN)
