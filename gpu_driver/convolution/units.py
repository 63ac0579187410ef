# SPDX-License-Identifier: Apache-2.0
"""Products of matrices by NVIDIA's matrix units: by the tile that a model of the device prefers.

Times are estimates in cycles: `estimate` says what they are made of. Its numbers were fitted to the products of
MobileNet V2, 64 pictures at once, by every tile on an H100: what they choose took 1.11 (float16), 1.07 (float32) and
1.01 (8 bits) of the best tiles' time. They choose among the tiles, and between this kernel and matmul_tiled.cl.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpu_driver.convolution.matmul import FILTER_HALVES, FILTER_VECTORS, SOURCE_HALVES, SOURCE_IN_ROWS, SOURCE_VECTORS
from gpu_driver.discovery.matrix_units import WITHOUT_FLOATS
from gpu_driver.kernel import Kernel
from nn_runtime.codes import OperandCode
from nn_runtime.operand import dtype_of
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from gpu_driver.convolution.matmul import Matmul
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.launch import Launch

_WARP = 32
_QUAD = 4
_LINE_BYTES, _RUN_BYTES = 64, 16
"""Of matmul_units.cl: what is brought of a row or column at once, and by one work-item."""
_SIDES = SOURCE_VECTORS | SOURCE_HALVES, FILTER_VECTORS | FILTER_HALVES
_REGISTERS = 65536
"""Of a compute unit."""
_LOCAL_BYTES, _ITEMS = {75: 64 << 10}, {75: 1024}
_LOCAL_BYTES_SINCE_80, _ITEMS_SINCE_80 = 100 << 10, 1536
"""What a compute unit has for its groups, by MATRIX_UNITS; those since capability 8.0 have as much or more."""
_LOCAL_BYTES_A_CYCLE, _LANES_BYTES_A_CYCLE, _BROUGHT_BYTES_A_CYCLE, _BROUGHT_ELEMENTS_A_CYCLE = 128, 64, 32, 8
"""Local memory read or written; lanes reading from a unit's cache; device memory (its cache) read by vectors, and one
element at a time."""
_CYCLES_AN_OUTPUT = {1: 0.34, 2: 0.13, 4: 0.4}
_CYCLES_A_ROW = {1: 0, 2: 0, 4: 2}
"""What a compute unit takes to finish an output, by the bytes of an element, and for each row of a warp."""
_CYCLES_OF_A_WARP = 3
"""What else each warp does in a turn."""
_TURNS_AHEAD, _TURNS_DIRECT = 0.5, 1.6
"""Parts of `turn_cycles` that a turn's terms are waited for: of vectors, whose copies began before, and by lanes that
read them themselves; single elements are waited for."""
_CYCLES_OF_A_GROUP, _CYCLES_OF_A_DIRECT_GROUP = 1800, 500
"""What groups wait at their beginning and end."""
_FLOAT_PRODUCTS = 3
"""Instructions for one of floats."""


@dataclass(frozen=True)
class Tile:
    """Rows and columns of a group's part of the output, and of a warp's; STAGES and DIRECT of matmul_units.cl."""

    rows: int
    columns: int
    warp_rows: int
    warp_columns: int
    stages: int
    direct: bool = False

    def __str__(self) -> str:
        by = "direct" if self.direct else "local"
        return f"{self.rows}x{self.columns}-{self.warp_rows}x{self.warp_columns}-{by}-{self.stages}"

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
        """Local memory of a group: lines of the stage that is used, and of those that come."""
        return 0 if self.direct else self.stages * _LINE_BYTES * (self.rows + self.columns)

    def registers(self, size_bytes: int) -> int:
        """Return about how many registers a work-item needs, by the bytes of an element: sums, terms, all else."""
        sums = self.warp_rows * self.warp_columns // _WARP * (2 if size_bytes == _QUAD else 1)
        runs = self.stages * (self.warp_rows + self.warp_columns) // 8 if self.direct else self.warp_columns // 8
        return sums + runs * (_RUN_BYTES // 4) + (80 if size_bytes == 1 else 60)

    def resident(self, size_bytes: int, level: int) -> int:
        """Return how many groups a compute unit with that MATRIX_UNITS has room for at once."""
        local_bytes, items = _LOCAL_BYTES.get(level, _LOCAL_BYTES_SINCE_80), _ITEMS.get(level, _ITEMS_SINCE_80)
        registers = _REGISTERS // (self.items * self.registers(size_bytes))
        return max(1, min(registers, local_bytes // max(1, self.local_bytes), items // self.items))

    def count(self, matmul: Matmul) -> int:
        """Return how many tiles a product takes."""
        return -(-matmul.rows // self.rows) * -(-matmul.columns // self.columns) * matmul.groups

    def defines(self) -> tuple[tuple[str, int], ...]:
        """Return the defines of matmul_units.cl."""
        return (
            ("TILE_ROWS", self.rows),
            ("TILE_COLUMNS", self.columns),
            ("WARP_ROWS", self.warp_rows),
            ("WARP_COLUMNS", self.warp_columns),
            ("STAGES", self.stages),
            ("DIRECT", int(self.direct)),
        )


TILES = (
    Tile(128, 128, 64, 32, 3),
    Tile(64, 64, 32, 32, 4),
    Tile(64, 32, 32, 16, 4),
    Tile(128, 32, 32, 32, 1, direct=True),
    Tile(64, 32, 32, 16, 1, direct=True),
    Tile(64, 32, 16, 32, 1, direct=True),
    Tile(128, 16, 32, 16, 1, direct=True),
    Tile(32, 32, 16, 16, 4),
)
"""The larger a warp's part, the more often it uses what it reads; the more warps a unit has, the less they wait."""


def units_launch(matmul: Matmul, device: DeviceProfile, otherwise: float) -> Launch | None:
    """Return the launch of matmul_units.cl, None if it does not fit or should take longer than `otherwise` cycles."""
    tiles = [tile for tile in TILES if fits_units(matmul, tile, device)]
    if not tiles:
        return None
    tile = min(tiles, key=lambda one: time_by_units(matmul, one, device))
    if time_by_units(matmul, tile, device) > otherwise:
        return None
    return _launch(matmul, tile, device, knows_flags=True)


def smallest_units_launch(matmul: Matmul, device: DeviceProfile) -> Launch | None:
    """Return the launch of matmul_units.cl with the smallest tile by one program for all, None if it does not fit."""
    return _launch(matmul, TILES[-1], device, knows_flags=False) if fits_units(matmul, TILES[-1], device) else None


def fits_units(matmul: Matmul, tile: Tile, device: DeviceProfile) -> bool:
    """Tell whether matmul_units.cl applies: types and matrix units that work together, room for a group."""
    by_units = matmul.quantized or matmul.source.type == OperandCode.TENSOR_FLOAT16
    if matmul.source.type == OperandCode.TENSOR_FLOAT32:
        by_units = device.matrix_units != WITHOUT_FLOATS
    return (
        not device.is_cpu
        and device.matrix_units is not None
        and by_units
        and tile.items <= min(device.max_work_group_size, device.max_work_item_sizes[0])
        and tile.local_bytes <= device.local_mem_bytes
        and (not tile.direct or _can_be_direct(matmul))
    )


def _can_be_direct(matmul: Matmul) -> bool:
    """Tell whether lanes may read their terms from device memory: by vectors, of rows that lie one after the other."""
    needed = SOURCE_HALVES | FILTER_HALVES | SOURCE_IN_ROWS
    return matmul.flags(_vectors(matmul, 1)) & needed == needed


def time_by_units(matmul: Matmul, tile: Tile, device: DeviceProfile) -> float:
    """Estimate the cycles of matmul_units.cl with a tile."""
    size_bytes = dtype_of(matmul.source.type).itemsize
    terms = _LINE_BYTES // size_bytes
    vectors = _vectors(matmul, 1)
    by_vectors = [bool(vectors & side) for side in _SIDES]
    brought = sum(
        time_to_bring(terms * lines, size_bytes, vector)
        for lines, vector in zip((tile.rows, tile.columns), by_vectors, strict=True)
    )
    read = _LINE_BYTES * tile.warps * (tile.warp_rows + tile.warp_columns)
    if tile.direct:
        moved, waits, group = max(brought, read / _LANES_BYTES_A_CYCLE), _TURNS_DIRECT, _CYCLES_OF_A_DIRECT_GROUP
    else:
        written = _LINE_BYTES * (tile.rows + tile.columns)
        moved, group = brought + (written + read) / _LOCAL_BYTES_A_CYCLE, _CYCLES_OF_A_GROUP
        waits = _TURNS_AHEAD if all(by_vectors) else 1.0
    products = _FLOAT_PRODUCTS if size_bytes == _QUAD else 1
    outputs = tile.rows * tile.columns
    turn = max(products * outputs / device.tuning.unit_sums, moved) + _CYCLES_OF_A_WARP * tile.warps
    return estimate(
        turn,
        -(-matmul.terms // terms),
        outputs * _CYCLES_AN_OUTPUT[size_bytes] + tile.warps * tile.warp_rows * _CYCLES_A_ROW[size_bytes],
        tile.count(matmul),
        tile.resident(size_bytes, device.matrix_units or 0),
        waits * device.tuning.turn_cycles,
        group,
        device,
    )


def time_to_bring(elements: int, size_bytes: int, by_vectors: bool) -> float:
    """Return the cycles in which a compute unit brings elements from device memory."""
    return elements * size_bytes / _BROUGHT_BYTES_A_CYCLE if by_vectors else elements / _BROUGHT_ELEMENTS_A_CYCLE


def estimate(
    turn: float, turns: int, finish: float, groups: int, resident: int, wait: float, begin: float, device: DeviceProfile
) -> float:
    """Return the cycles of so many groups of so many turns, each of which keeps its compute unit busy for `turn`.

    Groups that are resident on a unit at once wait together, others after them: in each turn for its terms, at their
    beginning and end. Nothing else overlaps; each is finished in `finish` cycles.
    """
    on_one_unit = -(-groups // device.compute_units)
    return on_one_unit * (turns * turn + finish) + -(-on_one_unit // resident) * (turns * wait + begin)


def _launch(matmul: Matmul, tile: Tile, device: DeviceProfile, *, knows_flags: bool) -> Launch:
    """Return the launch with a tile; knows_flags: by a program for these flags alone."""
    is_float = matmul.source.type == OperandCode.TENSOR_FLOAT32
    vectors = _vectors(matmul, _QUAD if is_float else tile.warp_columns // 4)
    level = device.matrix_units or 0
    defines: tuple[tuple[str, str | int], ...] = (
        *matmul.defines(),
        ("MATRIX_UNITS", level),
        *tile.defines(),
        *matmul.layout(),
    )
    if knows_flags:
        defines = (*defines, ("FLAGS", matmul.flags(vectors)))
    kernel = Kernel("matmul_units.cl", "matmul_units", defines)
    count = tile.count(matmul)
    launch = matmul.launch(kernel, count, tile.items, vectors)
    return launch if knows_flags else replace(launch, persistent=matmul.persistent(count))


def _vectors(matmul: Matmul, output_run: int) -> int:
    """Return what may be read and written by vectors, and by halves of them what may not."""
    run = _RUN_BYTES // dtype_of(matmul.source.type).itemsize
    halves = matmul.vectors(run // 2, output_run)
    by_halves = SOURCE_HALVES * bool(halves & SOURCE_VECTORS) | FILTER_HALVES * bool(halves & FILTER_VECTORS)
    return matmul.vectors(run, output_run) | by_halves
