# SPDX-License-Identifier: Apache-2.0
"""Which products the matrix units get, and in which tiles; no device."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpu_driver.bound import BoundOperand, BoundOperation
from gpu_driver.convolution.units import TILES, Tile
from gpu_driver.discovery.matrix_units import WITHOUT_FLOATS
from gpu_driver.launch import Launch
from gpu_driver.operations.conv import convolution
from nn_runtime.codes import FuseCode, OperandCode, OperationCode, PaddingCode
from tests.gpu_driver.profiles import CPU_PROFILE, GPU_PROFILE

if TYPE_CHECKING:
    from gpu_driver.device_profile import DeviceProfile

FLOAT32, FLOAT16 = OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_FLOAT16
QUANT8, INT32 = OperandCode.TENSOR_QUANT8_ASYMM, OperandCode.TENSOR_INT32
AMPERE = replace(
    GPU_PROFILE,
    compute_units=100,
    local_mem_bytes=48 << 10,
    max_work_group_size=1024,
    max_work_item_sizes=(1024, 1024, 64),
    features=frozenset({"mma_80"}),
)
LARGE = (1, 128, 128, 512), 512
"""Dimensions of the input, depth of the output."""
FORMS = ("mma_75", 75), ("mma_80", 80), ("mma_emulated", 0)
"""Features, and MATRIX_UNITS."""


def launch(
    image: tuple[int, int, int, int], depth: int, device: DeviceProfile, code: OperandCode = FLOAT16, taps: int = 1
) -> Launch:
    """Return what a convolution of unknown weights is lowered to."""
    scale = 0.5 if code == QUANT8 else 0.0
    parameters = PaddingCode.SAME, 1, 1, FuseCode.NONE
    inputs = [
        BoundOperand(0, code, image, scale),
        BoundOperand(1, code, (depth, taps, taps, image[3]), scale),
        BoundOperand(2, INT32 if scale else code, (depth,), scale * scale),
        *(BoundOperand(3 + i, OperandCode.INT32, (), known=np.array(v, np.int32)) for i, v in enumerate(parameters)),
    ]
    output = BoundOperand(9, code, (*image[:3], depth), 2 * scale)
    made = convolution(BoundOperation(OperationCode.CONV_2D, inputs, [output]), device)
    assert isinstance(made, Launch)
    return made


def tile_of(made: Launch) -> tuple[int, int]:
    defines = dict(made.kernel.defines)
    return int(defines["TILE_ROWS"]), int(defines["TILE_COLUMNS"])


@pytest.mark.parametrize(
    ("feature", "level", "code"),
    [
        *((feature, level, code) for feature, level in FORMS for code in (FLOAT16, QUANT8)),
        *((feature, level, FLOAT32) for feature, level in FORMS if level != WITHOUT_FLOATS),
    ],
)
def test_large_products_go_to_units_that_work(feature: str, level: int, code: OperandCode) -> None:
    made = launch(*LARGE, replace(AMPERE, features=frozenset({feature})), code)
    assert made.kernel.source == "matmul_units.cl"
    assert dict(made.kernel.defines)["MATRIX_UNITS"] == level
    rows, columns = tile_of(made)
    groups = -(-128 * 128 // rows) * -(-512 // columns)
    assert made.global_size == (groups * made.local_size[0],)


@pytest.mark.parametrize(
    ("device", "code"),
    [
        (replace(AMPERE, features=frozenset()), FLOAT16),
        (replace(AMPERE, max_work_group_size=256, local_mem_bytes=12 << 10, features=frozenset()), QUANT8),
        (replace(AMPERE, features=frozenset({"mma_75"})), FLOAT32),
    ],
    ids=["no_units", "small", "float32"],
)
def test_other_products_keep_their_tiles(device: DeviceProfile, code: OperandCode) -> None:
    assert launch(*LARGE, device, code).kernel.source == "matmul_tiled.cl"


def test_cpus_have_no_units() -> None:
    assert launch(*LARGE, replace(CPU_PROFILE, features=AMPERE.features)).kernel.source == "conv_2d.cl"


@pytest.mark.parametrize("tile", TILES, ids=str)
def test_tiles_are_as_the_kernel_needs(tile: Tile) -> None:
    """Needs of matmul_units.cl, and what every device of that capability has."""
    assert tile.warp_rows % 16 == 0
    assert tile.warp_columns in (16, 32)
    assert tile.rows % tile.warp_rows == tile.columns % tile.warp_columns == 0
    if not tile.direct:
        assert tile.stages >= 2
        assert tile.items % tile.rows == tile.items % tile.columns == 0
        assert 4 * tile.rows % tile.items == 0
    assert tile.items <= 1024
    assert tile.local_bytes <= 48 << 10
    assert tile.items * max(tile.registers(size) for size in (1, 2, 4)) <= 65536


def test_little_local_memory_takes_smaller_tiles() -> None:
    made = launch(*LARGE, replace(AMPERE, local_mem_bytes=16 << 10), taps=3)
    rows, columns = tile_of(made)
    assert dict(made.kernel.defines)["STAGES"] * 64 * (rows + columns) <= 16 << 10


def test_more_work_takes_larger_tiles() -> None:
    areas = [np.prod(tile_of(launch((1, side, side, 256), 256, AMPERE))) for side in (7, 28, 112)]
    assert areas == sorted(areas)
    assert areas[0] < areas[-1]


@pytest.mark.parametrize("code", [FLOAT32, FLOAT16, QUANT8], ids=lambda code: code.name)
def test_lanes_read_rows_by_vectors_and_nothing_else(code: OperandCode) -> None:
    """MobileNet's layer of 16 to 96 channels, 64 pictures: 0.5 to 0.9 of the time by local memory on an H100."""
    pixels = 64, 112, 112
    for depth, taps, is_direct in ((16, 1, 1), (17, 1, 0), (16, 3, 0)):
        made = launch((*pixels, depth), 96, AMPERE, code, taps)
        assert dict(made.kernel.defines).get("DIRECT", 0) == is_direct


def test_a_program_is_for_the_flags_of_its_launch() -> None:
    """Those of kernels that stay are read at run time, since one program has all their steps."""
    many, few = (launch((batches, 112, 112, 16), 96, AMPERE) for batches in (64, 1))
    layout = many.arguments[-3]
    assert isinstance(layout, np.void)
    assert dict(many.kernel.defines)["FLAGS"] == np.frombuffer(layout.tobytes(), np.int32)[3]
    assert few.persistent is not None
    assert "FLAGS" not in dict(few.kernel.defines)
