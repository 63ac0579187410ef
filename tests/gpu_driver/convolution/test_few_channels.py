# SPDX-License-Identifier: Apache-2.0
"""Which convolutions conv_2d_few_channels.cl gets, and in which tiles; no device."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpu_driver.bound import BoundOperand, BoundOperation
from gpu_driver.convolution.product import BOUNDED, ROUNDS_AT_ONCE, ROUNDS_DOWN
from gpu_driver.device_profile import PERSISTENT_EMULATED
from gpu_driver.launch import Launch
from gpu_driver.operations.conv import convolution
from nn_runtime.codes import FuseCode, OperandCode, OperationCode, PaddingCode
from tests.gpu_driver.profiles import CPU_PROFILE, GPU_PROFILE

if TYPE_CHECKING:
    from gpu_driver.device_profile import DeviceProfile

FLOAT32, QUANT8 = OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_QUANT8_ASYMM
INT32 = OperandCode.TENSOR_INT32
FEW_CHANNELS = "conv_2d_few_channels.cl"
GPU = replace(GPU_PROFILE, compute_units=100, local_mem_bytes=48 << 10)
PERSISTENT = replace(GPU, features=frozenset({PERSISTENT_EMULATED}))


def launch(
    image: tuple[int, int, int, int],
    depth: int = 32,
    taps: int = 3,
    stride: int = 2,
    device: DeviceProfile = GPU,
    code: OperandCode = FLOAT32,
    activation: FuseCode = FuseCode.RELU,
    known: bool = False,
) -> Launch:
    """Return what a convolution with padding SAME is lowered to; its weights and bias are 0 where they are known."""
    scale = 0.5 if code == QUANT8 else 0.0
    filters = (depth, taps, taps, image[3])
    parameters = PaddingCode.SAME, stride, stride, activation
    inputs = [
        BoundOperand(0, code, image, scale, 100),
        BoundOperand(1, code, filters, scale, constant=np.zeros(filters, np.uint8) if known else None),
        BoundOperand(2, INT32 if scale else code, (depth,), constant=np.zeros(depth, np.int32) if known else None),
        *(BoundOperand(3 + i, OperandCode.INT32, (), known=np.array(v, np.int32)) for i, v in enumerate(parameters)),
    ]
    height, width = (-(-size // stride) for size in image[1:3])
    output = BoundOperand(9, code, (image[0], height, width, depth), 2 * scale, 100)
    made = convolution(BoundOperation(OperationCode.CONV_2D, inputs, [output]), device)
    assert isinstance(made, Launch)
    return made


def tile(made: Launch) -> tuple[int, int, int, int]:
    """Return pixels of a strip, strips and lines of a tile, and work-items that share a strip."""
    assert made.kernel.source == FEW_CHANNELS
    defines = dict(made.kernel.defines)
    strip, strips, lines, lanes = (int(defines[name]) for name in ("STRIP", "STRIPS", "LINES", "LANES"))
    assert made.local_size == (strips * lines * lanes, 1, 1)
    return strip, strips, lines, lanes


@pytest.mark.parametrize("code", [FLOAT32, QUANT8], ids=lambda code: code.name)
def test_a_first_layer_takes_tiles_that_fill_its_output(code: OperandCode) -> None:
    made = launch((64, 224, 224, 3), code=code)
    assert tile(made) == (8, 2, 16, 4)
    assert made.global_size == (7 * 128, 7, 64)


@pytest.mark.parametrize(("depth", "lanes", "blocks"), [(6, 1, 1), (16, 2, 1), (24, 4, 1), (40, 4, 2), (64, 4, 2)])
def test_work_items_share_a_strip_by_its_channels(depth: int, lanes: int, blocks: int) -> None:
    made = launch((1, 224, 224, 3), depth)
    assert tile(made)[3] == lanes
    assert dict(made.kernel.defines)["BLOCKS"] == blocks
    assert made.global_size == (7 * blocks * 32 * lanes, 7, 1)


def test_pictures_of_one_line_take_tiles_of_one() -> None:
    assert tile(launch((1, 1, 4096, 1), stride=1)) == (8, 32, 1, 4)


def test_strips_are_short_where_their_inputs_would_be_many() -> None:
    assert tile(launch((1, 300, 300, 3), taps=7, stride=2))[0] == 8
    assert tile(launch((1, 300, 300, 3), taps=7, stride=4))[0] == 4


def test_tiles_are_small_where_their_inputs_would_fill_local_memory() -> None:
    strip, strips, lines, _ = tile(launch((1, 300, 300, 3), taps=4, stride=4))
    assert strip * strips * lines == 128


@pytest.mark.parametrize(
    "made",
    [
        launch((64, 224, 224, 5)),
        launch((1, 300, 300, 3), taps=11),
        launch((1, 60, 60, 3)),
        launch((4000, 5, 5, 3)),
        launch((1, 300, 300, 3), taps=8, stride=8),
        launch((1, 224, 224, 3), device=PERSISTENT),
        launch((64, 224, 224, 3), device=replace(GPU, local_mem_bytes=8 << 10)),
        launch((64, 224, 224, 3), device=replace(GPU, max_work_group_size=32)),
        launch((64, 224, 224, 3), device=replace(CPU_PROFILE, slug="rusticl")),
    ],
    ids=[
        *("five_channels", "many_terms", "few_pixels", "small_pictures", "long_strips", "for_groups_that_stay"),
        *("little_local_memory", "small_groups", "cpu"),
    ],
)
def test_what_other_kernels_take(made: Launch) -> None:
    assert made.kernel.source != FEW_CHANNELS


def test_what_is_large_is_not_for_groups_that_stay() -> None:
    assert tile(launch((64, 224, 224, 3), device=PERSISTENT)) == (8, 2, 16, 4)


@pytest.mark.parametrize(
    ("known", "activation", "flags"),
    [
        (True, FuseCode.RELU, ROUNDS_AT_ONCE | ROUNDS_DOWN),
        (True, FuseCode.NONE, ROUNDS_AT_ONCE),
        (False, FuseCode.RELU, 0),
    ],
    ids=["positive", "both_signs", "unknown_weights"],
)
def test_small_sums_of_positive_results_are_rounded_down(known: bool, activation: FuseCode, flags: int) -> None:
    made = launch((1, 224, 224, 3), code=QUANT8, activation=activation, known=known)
    assert dict(made.kernel.defines)["FLAGS"] == flags


def test_real_numbers_are_bounded_where_there_are_bounds() -> None:
    for activation, flags in ((FuseCode.NONE, 0), (FuseCode.RELU, BOUNDED), (FuseCode.RELU6, BOUNDED)):
        assert dict(launch((1, 224, 224, 3), activation=activation).kernel.defines)["FLAGS"] == flags


def test_vectors_are_read_and_written_where_they_are_aligned() -> None:
    def vectors(made: Launch) -> tuple[object, object]:
        defines = dict(made.kernel.defines)
        return defines["SOURCE_VECTORS"], defines["OUTPUT_VECTORS"]

    assert vectors(launch((1, 224, 224, 3), 28)) == (1, 1)
    assert vectors(launch((1, 224, 224, 3), 28, code=QUANT8)) == (1, 0)
    assert vectors(launch((1, 224, 224, 3), 28, taps=4)) == (0, 1)
    assert vectors(launch((1, 224, 225, 3), 30)) == (0, 0)
