# SPDX-License-Identifier: Apache-2.0
"""Which kernel and which tile a product gets; no device."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpu_driver.bound import BoundOperand, BoundOperation
from gpu_driver.launch import Launch
from gpu_driver.operations.fully_connected import fully_connected
from gpu_driver.tuning_values import Tuning
from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from tests.gpu_driver.profiles import CPU_PROFILE, GPU_PROFILE

if TYPE_CHECKING:
    from gpu_driver.device_profile import DeviceProfile

FLOAT32, QUANT8, INT32 = OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_QUANT8_ASYMM, OperandCode.TENSOR_INT32
LARGE_GPU = replace(GPU_PROFILE, compute_units=100)
FEW_REGISTERS, LITTLE_MEMORY = replace(LARGE_GPU, slug="intel"), replace(LARGE_GPU, local_mem_bytes=16384)


def launch(rows: int, depth: int, units: int, device: DeviceProfile, code: OperandCode = FLOAT32) -> Launch:
    scale = 0.5 if code == QUANT8 else 0.0
    inputs = [
        BoundOperand(0, code, (rows, depth), scale),
        BoundOperand(1, code, (units, depth), scale),
        BoundOperand(2, INT32 if scale else code, (units,), scale * scale),
        BoundOperand(3, OperandCode.INT32, (), known=np.array(FuseCode.NONE, np.int32)),
    ]
    output = BoundOperand(4, code, (rows, units), 2 * scale)
    made = fully_connected(BoundOperation(OperationCode.FULLY_CONNECTED, inputs, [output]), device)
    assert isinstance(made, Launch)
    return made


@pytest.mark.parametrize(
    ("sizes", "tile"),
    [
        ((49, 320, 1280), 32),
        ((196, 384, 96), 32),
        ((4096, 4096, 4096), 128),
        ((640, 64, 640), 64),
        ((1216, 64, 1344), 64),
    ],
    ids=str,
)
def test_the_tile_follows_the_size(sizes: tuple[int, int, int], tile: int) -> None:
    made = launch(*sizes, LARGE_GPU)
    assert made.kernel.source == "matmul_tiled.cl"
    assert dict(made.kernel.defines)["TILE"] == tile
    rows, _, units = sizes
    assert made.global_size == (256 * -(-rows // tile) * -(-units // tile),)
    assert made.local_size == (256,)


@pytest.mark.parametrize(
    ("device", "code"),
    [(LARGE_GPU, QUANT8), (FEW_REGISTERS, FLOAT32), (LITTLE_MEMORY, FLOAT32)],
    ids=["two_sums_each", "few_registers", "little_local_memory"],
)
def test_the_largest_tile_needs_room(device: DeviceProfile, code: OperandCode) -> None:
    assert dict(launch(4096, 4096, 4096, device, code).kernel.defines)["TILE"] == 64


@pytest.mark.parametrize(
    ("values", "sizes", "tile"),
    [
        ({}, (1216, 64, 1344), 64),
        ({"middle_tile": 50}, (3136, 64, 640), 128),
        ({"small_tile": 40}, (12544, 32, 16), 64),
        ({"small_tile": 80}, (12544, 32, 16), 32),
        ({"turn_cycles": 500}, (12544, 64, 32), 32),
        ({"turn_cycles": 150}, (12544, 64, 32), 64),
    ],
    ids=str,
)
def test_tuned_numbers_choose_the_tile(values: dict[str, int], sizes: tuple[int, int, int], tile: int) -> None:
    device = replace(LARGE_GPU, tuning=Tuning.of(values))
    assert dict(launch(*sizes, device).kernel.defines)["TILE"] == tile


def test_tuned_numbers_say_how_few_rows_share_their_sums() -> None:
    for rows in (1, 4, 8, 16):
        device = replace(LARGE_GPU, tuning=Tuning(narrow_rows=rows))
        assert launch(rows, 1280, 1001, device).kernel.source == "matmul_narrow.cl"
        assert launch(rows + 1, 1280, 1001, device).kernel.source == "matmul_tiled.cl"


def test_few_rows_share_their_sums() -> None:
    made = launch(1, 1280, 1001, LARGE_GPU)
    assert made.kernel.source == "matmul_narrow.cl"
    assert (made.global_size, made.local_size) == ((1001 * 64,), (64,))
    assert launch(1, 63, 1001, LARGE_GPU).kernel.source == "matmul_tiled.cl"
    assert launch(5, 1280, 1001, LARGE_GPU).kernel.source == "matmul_tiled.cl"


@pytest.mark.parametrize(
    "device",
    [CPU_PROFILE, replace(GPU_PROFILE, max_work_group_size=128), replace(GPU_PROFILE, local_mem_bytes=4096)],
    ids=["cpu", "small_groups", "little_local_memory"],
)
def test_devices_that_cannot_take_the_general_kernel(device: DeviceProfile) -> None:
    assert launch(64, 64, 64, device, QUANT8).kernel.source == "conv_2d.cl"
