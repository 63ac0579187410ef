# SPDX-License-Identifier: Apache-2.0
"""How many pixels and channels the kernels of a chain compute at once: what registers hold, with few pixels over."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from gpu_driver.chain.kinds import Kind
from gpu_driver.chain.step import TILE_PIXELS
from gpu_driver.convolution.packing import CHANNEL_BLOCK
from gpu_driver.discovery.dot_products import AMX, AVX512_VNNI, AVX_VNNI
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpu_driver.chain.step import Step
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.kernel import Kernel

COLUMNS = 7
TIMES: Mapping[int, float] = {TILE_PIXELS: 1.0, 8: 1.0, 9: 1.02, 4: 1.05}
"""Of a convolution with tiles of so many pixels that all are used, to that with usual ones."""
FEW_REGISTERS, FEW_PIXELS = 8, 6
"""Up to so many hold 6 pixels by 16 channels and what is multiplied, others 9 by 48."""
TIMES_WITH_FEW: Mapping[int, float] = {FEW_PIXELS: 1.0, 5: 1.05}
AMX_PIXELS = 16
"""Rows of a tile register."""
TIMES_OF_COLUMNS: Mapping[int, float] = {COLUMNS: 1.0, 6: 1.02, 5: 1.04, 4: 1.06}
"""The same of depthwise ones. expanded.py lets pass what is at least 7 wide."""
NARROW_TIME = 2.0
"""Of a picture that is narrower than what is computed at once."""
TILE_TIME, VECTOR_TIME = 50.0, 9.0
"""Of a tile of bytes, and of each 16 channels of it, besides its products, to that of four products of 16 channels."""
RUN_TIME, RUN_BYTE_TIME = 10.0, 0.08
"""The same of copying a row of a window of bytes."""
LEAST_GAIN = 0.02
"""Of the time: every combination is a program of its own, which has to be worth its compilation."""
LARGE_FLOPS, LEAST_FLOPS = 20_000_000, 1_000_000
"""Networks with fewer than the former must save the time of the latter, too."""


@dataclass(frozen=True)
class Tiles:
    """Pixels of a tile of a convolution, neighbours in a row that a depthwise one computes at once.

    vectors: of 16 channels that a tile has at most; None: what the kernel takes for wide registers.
    """

    pixels: int = TILE_PIXELS
    columns: int = COLUMNS
    vectors: int | None = None

    def defines(self) -> tuple[tuple[str, str | int], ...]:
        """Return the defines of a kernel for what is not usual."""
        values = ("TILE_PIXELS", self.pixels, TILE_PIXELS), ("DEPTHWISE_PIXELS", self.columns, COLUMNS)
        defines = tuple((name, value) for name, value, usual in values if value != usual)
        return defines if self.vectors is None else (*defines, ("TILE_VECTORS", self.vectors))


def usual_tiles(device: DeviceProfile) -> Tiles:
    """Return what fits into the registers of a device.

    With Intel's compiler three vectors need assembly for AVX-512 (HOLD in common/direct.h), that was seen to work.
    """
    if device.registers <= FEW_REGISTERS:
        return Tiles(FEW_PIXELS, vectors=1)
    return Tiles(vectors=2) if device.slug == "intel" and not device.x86_avx512 else Tiles()


def tiles_of_kernel(tiles: Tiles, kernel: Kernel) -> Tiles:
    """Return the tiles of a launch: those of its network, but for products by AMX, whose registers are tiles."""
    return replace(tiles, pixels=AMX_PIXELS) if ("DOT4", AMX) in kernel.defines else tiles


def tiles_for(steps: Sequence[Step], device: DeviceProfile) -> Tiles:
    """Return what makes the steps fastest together; another than the usual for a clear gain only.

    winograd.h is made for the usual number.
    """
    usual = usual_tiles(device)
    if any(step.is_winograd for step in steps):
        return usual
    convolutions = [step for step in steps if step.kind == Kind.CONVOLVE]
    depthwise = [step for step in steps if step.kind in (Kind.DEPTHWISE, Kind.EXPANDED)]
    few = usual.pixels == FEW_PIXELS
    least_saved = LEAST_FLOPS if sum(step.flops for step in steps) < LARGE_FLOPS else 0

    def left_over(number: int, step: Step) -> float:
        g = step.geometry
        pixels = g.output_height * g.output_width
        if pixels == 1:  # of images that are computed together
            pixels = g.batches
            if pixels == 1 and g.is_per_pixel:
                return 1.0  # without a tile
        left = _left_over(number, pixels, may_be_short=few and g.is_per_pixel)
        return left * (1 + _besides_products(number, step))

    def columns_left_over(number: int, step: Step) -> float:
        return _left_over(number, step.geometry.output_width)

    return replace(
        usual,
        pixels=_fastest(TIMES_WITH_FEW if few else TIMES, convolutions, left_over, least_saved),
        columns=_fastest(TIMES_OF_COLUMNS, depthwise, columns_left_over, least_saved),
    )


def _fastest(
    times: Mapping[int, float], steps: Sequence[Step], left_over: Callable[[int, Step], float], least_saved: float
) -> int:
    """Return the number with the least time for steps whose pictures are cut into so many."""
    usual = next(iter(times))

    def time(number: int) -> float:
        return sum(step.flops * left_over(number, step) for step in steps) * times[number]

    best = min(times, key=time)
    return best if time(usual) - time(best) > max(LEAST_GAIN * time(usual), least_saved) else usual


def _left_over(number: int, length: int, *, may_be_short: bool = False) -> float:
    """Return the time of what is cut into so many over that without any left over; short parts are one less."""
    parts = -(-length // number)
    too_much = parts * number - length
    computed = length + max(0, too_much - parts if may_be_short else too_much)
    return computed / length * (NARROW_TIME if length < number else 1.0)


def _besides_products(number: int, step: Step) -> float:
    """Return the time that tiles of bytes take besides their products, over that of the products.

    What they read lies where it is, or is copied row by row for the whole tile, if all its pixels are in one row of the
    picture; else window by window (common/convolve_bytes.h).
    """
    g = step.geometry
    if step.dot4 not in (AVX_VNNI, AVX512_VNNI):
        return 0.0
    run = g.filter_width * g.input_depth
    quads, vectors = -(-run // 4), -(-g.output_depth // CHANNEL_BLOCK)
    of_tile = (TILE_TIME + VECTOR_TIME * vectors) / (number * g.filter_height * quads * vectors)
    if g.is_per_pixel or g.dilation_width > 1:
        return of_tile
    rows, tiles = g.batches * g.output_height, -(-g.batches * g.output_height * g.output_width // number)
    in_two_rows = rows - -(-rows // (number // math.gcd(number, g.output_width)))  # but rows that begin with a tile
    return of_tile + min(1.0, in_two_rows / tiles) * (RUN_TIME + RUN_BYTE_TIME * run) / (quads * vectors)
