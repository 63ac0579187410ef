# SPDX-License-Identifier: Apache-2.0
"""Products of matrices by NVIDIA's matrix units: float16 and 8-bit, by the tile that a model of the device prefers.

Times are estimates in cycles: `estimate` says what they are made of. Its numbers were fitted to the products of
MobileNet V2, 64 pictures at once, by every tile on an H200: what they choose took 1.01 (float32), 1.13 (float16) and
1.04 (8 bits) of the best tiles' time. They choose among the tiles, and between this kernel and matmul_tiled.cl.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpu_driver.convolution.matmul import FILTER_VECTORS, SOURCE_VECTORS
from gpu_driver.kernel import Kernel
from nn_runtime.codes import OperandCode
from nn_runtime.operand import dtype_of
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from gpu_driver.convolution.matmul import Matmul
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.launch import Launch

_WARP = 32
_SIDES = SOURCE_VECTORS, FILTER_VECTORS
_LINE_BYTES, _RUN_BYTES = 64, 16
"""Of matmul_units.cl: what is brought of a row or column at once, and by one work-item."""
_REGISTERS, _LOCAL_BYTES, _ITEMS = 65536, 65536, 1024
"""What a compute unit has for its groups: all since capability 7.5 have as much or more."""
_LOCAL_BYTES_A_CYCLE, _BROUGHT_BYTES_A_CYCLE, _BROUGHT_ELEMENTS_A_CYCLE = 128, 64, 8
"""Local memory read or written; device memory (its cache) read by vectors, and one element at a time."""
_CYCLES_AN_OUTPUT, _CYCLES_OF_A_GROUP = 0.4, 2000
"""What a compute unit takes to finish an output, and what its groups wait at their beginning and end."""


@dataclass(frozen=True)
class Tile:
    """Rows and columns of a group's part of the output, and of a warp's; registers: of a work-item, as ptxas says."""

    rows: int
    columns: int
    warp_rows: int
    warp_columns: int
    registers: int

    @property
    def warps(self) -> int:
        """Warps of a group."""
        return self.rows // self.warp_rows * (self.columns // self.warp_columns)

    @property
    def items(self) -> int:
        """Work-items of a group."""
        return _WARP * self.warps

    @property
    def local_bytes(self) -> int:
        """Local memory of a group: lines twice, those used and those that come."""
        return 2 * _LINE_BYTES * (self.rows + self.columns)

    def groups(self, matmul: Matmul) -> int:
        """Return how many groups a product takes."""
        return -(-matmul.rows // self.rows) * -(-matmul.columns // self.columns) * matmul.groups

    def defines(self) -> tuple[tuple[str, int], ...]:
        """Return the defines of matmul_units.cl."""
        return (
            ("TILE_ROWS", self.rows),
            ("TILE_COLUMNS", self.columns),
            ("WARP_ROWS", self.warp_rows),
            ("WARP_COLUMNS", self.warp_columns),
        )


TILES = (
    Tile(128, 128, 64, 32, 176),
    Tile(128, 64, 64, 32, 184),
    Tile(64, 64, 32, 32, 128),
    Tile(64, 32, 32, 16, 96),
    Tile(32, 32, 16, 16, 72),
)
"""A group's warps share its local memory; the larger a warp's part, the more often it uses what it reads there."""


def units_launch(matmul: Matmul, device: DeviceProfile, otherwise: float) -> Launch | None:
    """Return the launch of matmul_units.cl, None if it does not fit or should take longer than `otherwise` cycles."""
    tiles = [tile for tile in TILES if fits_units(matmul, tile, device)]
    if not tiles:
        return None
    tile = min(tiles, key=lambda one: time_by_units(matmul, one, device))
    return _launch(matmul, tile, device) if time_by_units(matmul, tile, device) <= otherwise else None


def smallest_units_launch(matmul: Matmul, device: DeviceProfile) -> Launch | None:
    """Return the launch of matmul_units.cl with the smallest tile, None if it does not fit."""
    return _launch(matmul, TILES[-1], device) if fits_units(matmul, TILES[-1], device) else None


def fits_units(matmul: Matmul, tile: Tile, device: DeviceProfile) -> bool:
    """Tell whether matmul_units.cl applies: float16 or 8-bit, matrix units that work, room for a group."""
    return (
        not device.is_cpu
        and device.matrix_units is not None
        and (matmul.quantized or matmul.source.type == OperandCode.TENSOR_FLOAT16)
        and tile.items <= min(device.max_work_group_size, device.max_work_item_sizes[0])
        and tile.local_bytes <= device.local_mem_bytes
    )


def time_by_units(matmul: Matmul, tile: Tile, device: DeviceProfile) -> float:
    """Estimate the cycles of matmul_units.cl with a tile."""
    size_bytes = dtype_of(matmul.source.type).itemsize
    terms = _LINE_BYTES // size_bytes
    vectors = matmul.vectors(_RUN_BYTES // size_bytes, 1)
    brought = sum(
        time_to_bring(terms * lines, size_bytes, bool(vectors & side))
        for lines, side in zip((tile.rows, tile.columns), _SIDES, strict=True)
    )
    written = _LINE_BYTES * (tile.rows + tile.columns)
    read = _LINE_BYTES * tile.warps * (tile.warp_rows + tile.warp_columns)
    cycles = max(
        tile.rows * tile.columns / device.tuning.unit_sums,
        brought + (written + read) / _LOCAL_BYTES_A_CYCLE,
    )
    resident = min(_REGISTERS // (tile.items * tile.registers), _LOCAL_BYTES // tile.local_bytes, _ITEMS // tile.items)
    outputs = tile.rows * tile.columns
    return estimate(cycles, -(-matmul.terms // terms), outputs, tile.groups(matmul), resident, device)


def time_to_bring(elements: int, size_bytes: int, by_vectors: bool) -> float:
    """Return the cycles in which a compute unit brings elements from device memory."""
    return elements * size_bytes / _BROUGHT_BYTES_A_CYCLE if by_vectors else elements / _BROUGHT_ELEMENTS_A_CYCLE


def estimate(cycles: float, turns: int, outputs: int, groups: int, resident: int, device: DeviceProfile) -> float:
    """Return the cycles of so many groups of so many turns, each of which keeps its compute unit busy for `cycles`.

    Groups that are resident on a unit at once wait for their loads together, others after them; nothing else overlaps.
    They wait for device memory, for the barrier, for their last products. Each finishes so many outputs.
    """
    on_one_unit = -(-groups // device.compute_units)
    busy = on_one_unit * (turns * cycles + outputs * _CYCLES_AN_OUTPUT)
    return busy + -(-on_one_unit // resident) * (turns * device.tuning.turn_cycles + _CYCLES_OF_A_GROUP)


def _launch(matmul: Matmul, tile: Tile, device: DeviceProfile) -> Launch:
    run = _RUN_BYTES // dtype_of(matmul.source.type).itemsize
    level = device.matrix_units or 0
    defines = (*matmul.defines(), ("MATRIX_UNITS", level), *tile.defines(), *matmul.layout())
    kernel = Kernel("matmul_units.cl", "matmul_units", defines)
    groups = tile.groups(matmul)
    launch = matmul.launch(kernel, groups, tile.items, matmul.vectors(run, tile.warp_columns // 4))
    return replace(launch, persistent=matmul.persistent(groups))
