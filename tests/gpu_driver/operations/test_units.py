# SPDX-License-Identifier: Apache-2.0
"""matmul_units.cl on the devices at hand, which are said to be GPUs: the matrix instruction is common/mma.h's stand-in.

All around it is what a GPU runs: tiles, the order of terms and columns, edges, zero points, activations.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING
from unittest import mock

import numpy as np
import pytest

from cpu_driver.driver import Device as CpuDevice
from gpu_driver.convolution.units import TILES, Tile
from nn_runtime.codes import FuseCode, OperationCode
from nn_runtime.device import Device
from nn_runtime.hal.types import ExecutionPreference, Priority
from tests.gpu_driver.drawn import inverted_residuals
from tests.gpu_driver.graphs import request
from tests.gpu_driver.operations.compare import FLOAT16, FLOAT32, INT32, QUANT8, SIGNED, Value, like, random_tensor
from tests.gpu_driver.operations.products import (
    CONVOLUTIONS,
    PRODUCTS,
    check_by,
    geometry,
    image_of,
    of_type_gpu,
    operands,
)
from tests.gpu_driver.test_float16 import Network
from tests.platforms.launches import Launches, recorded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nn_runtime.codes import OperandCode

UNITS, NARROW = ("matmul_units.cl", "matmul_units"), ("matmul_narrow.cl", "matmul_narrow")
TYPES = (FLOAT32, FLOAT16, QUANT8, SIGNED)
SMALLEST = TILES[-1]
DIRECT = next(tile for tile in TILES if tile.direct)
QUICK = {*((SMALLEST, code) for code in (FLOAT32, FLOAT16, QUANT8)), (DIRECT, FLOAT32), (DIRECT, QUANT8)}
"""What the quick suite runs: PoCL takes seconds to compile for each tile and type."""

each_tile = pytest.mark.parametrize("tile", TILES, ids=str)
each_type = pytest.mark.parametrize("data_type", TYPES, ids=lambda code: code.name)


@pytest.fixture(scope="session")
def with_units(opencl_device: Device) -> Device:
    """Return the device under test with a profile that says it is a GPU with the stand-in for matrix units."""
    return Device(of_type_gpu(opencl_device, ("mma_emulated",)))


@contextlib.contextmanager
def only_tile(tile: Tile) -> Iterator[None]:
    """Let no other tile be chosen, however long it takes; where it does not fit the smallest."""
    with (
        mock.patch("gpu_driver.convolution.units.TILES", (tile, SMALLEST)),
        mock.patch("gpu_driver.convolution.units.time_by_units", return_value=0.0),
    ):
        yield


@pytest.mark.parametrize("held", [True, False], ids=["weights_of_the_model", "weights_of_the_run"])
@each_type
@each_tile
def test_products(with_units: Device, tile: Tile, data_type: OperandCode, held: bool, is_long: bool) -> None:
    _skip_if_long(tile, data_type, is_long)
    for rows, depth, units in PRODUCTS if is_long or held else PRODUCTS[3:6]:
        source = random_tensor(data_type, (rows, depth), 1, spread=1)
        inputs, output = operands(source, (units, depth), 0, False, held, depth)
        kernel = NARROW if rows <= 4 and depth >= 64 else UNITS
        scalars = (int(FuseCode.RELU),)
        with only_tile(tile):
            check_by(kernel, with_units, OperationCode.FULLY_CONNECTED, [*inputs, *scalars], output, depth**0.5)


@pytest.mark.parametrize("nchw", [False, True], ids=["nhwc", "nchw"])
@pytest.mark.parametrize("per_channel", [False, True], ids=["per_tensor", "per_channel"])
@each_type
@each_tile
def test_convolutions(
    with_units: Device, tile: Tile, data_type: OperandCode, per_channel: bool, nchw: bool, is_long: bool
) -> None:
    _skip_if_long(tile, data_type, is_long)
    if per_channel and data_type == FLOAT16:
        pytest.skip("only 8-bit filters have scales per channel")
    for i, sizes in enumerate(CONVOLUTIONS):
        source = image_of(data_type, sizes, nchw)
        depth_in = sizes.image[3]
        inputs, output = operands(source, (sizes.depth, *sizes.filter, depth_in), 0, per_channel, i % 2 == 0, depth_in)
        kernel = NARROW if i == 1 else UNITS
        with only_tile(tile):
            check_by(kernel, with_units, OperationCode.CONV_2D, [*inputs, *geometry(sizes, nchw)], output, 8)


@pytest.mark.parametrize("groups", [2, 6])
@each_type
def test_grouped_convolutions(with_units: Device, data_type: OperandCode, groups: int) -> None:
    source = random_tensor(data_type, (2, 7, 6, 48), 1, spread=1)
    inputs, output = operands(source, (36, 3, 3, 48 // groups), 0, False, True, 48)
    scalars = (1, 1, 1, 1, 2, 1, groups, int(FuseCode.RELU), False)
    with only_tile(SMALLEST):
        check_by(UNITS, with_units, OperationCode.GROUPED_CONV_2D, [*inputs, *scalars], output, 8)


@pytest.mark.parametrize("adjoined", [(False, False), (True, False), (False, True), (True, True)], ids=str)
@pytest.mark.parametrize("data_type", [FLOAT16, SIGNED], ids=lambda code: code.name)
@each_tile
def test_batches(
    with_units: Device, tile: Tile, data_type: OperandCode, adjoined: tuple[bool, bool], is_long: bool
) -> None:
    _skip_if_long(tile, data_type, is_long)
    for leading, (rows, depth, columns) in (((), (5, 1, 3)), ((3,), (33, 20, 64)), ((2, 2), (64, 80, 31))):
        left = random_tensor(data_type, (*leading, *((depth, rows) if adjoined[0] else (rows, depth))), 1, spread=0.5)
        right_dims = (columns, depth) if adjoined[1] else (depth, columns)
        right = random_tensor(data_type, (*leading, *right_dims), 2, spread=0.5)
        output = like(left, scale=left.scale and 0.05 * depth**0.5)
        with only_tile(tile):
            check_by(UNITS, with_units, OperationCode.BATCH_MATMUL, [left, right, *adjoined], output)


@pytest.mark.parametrize("zero_points", [(0, 0), (0, 255), (255, 0), (3, 128), (255, 255)], ids=str)
def test_sums_of_extremes_are_exact(with_units: Device, zero_points: tuple[int, int]) -> None:
    """Products of 255 and 0 with zero points at the ends, of both signs; an odd number of terms."""
    rows, depth, units = 6, 3001, 5
    of_source, of_weights = zero_points
    source = Value(QUANT8, np.full((rows, depth), 255, np.uint8), 1.0, of_source)
    source.data[1::2] = 0
    weights = Value(QUANT8, np.full((units, depth), 255, np.uint8), 1.0, of_weights, constant=True)
    weights.data[1::2, ::3] = 0
    bias = Value(INT32, np.arange(units, dtype=np.int32) * 40001 - 90_000, 1.0, constant=True)
    output = like(source, scale=2_000_000.0, zero_point=100)
    with only_tile(SMALLEST):
        inputs = [source, weights, bias, int(FuseCode.NONE)]
        check_by(UNITS, with_units, OperationCode.FULLY_CONNECTED, inputs, output)


def test_network_of_8_bits(with_units: Device) -> None:
    network = inverted_residuals(QUANT8, 2)
    model, source = network.graph.model(), network.data()
    results = []
    launches = Launches()
    for driver in (with_units.hal, CpuDevice()):
        out = np.zeros(network.dims, source.dtype)
        with recorded(launches), only_tile(SMALLEST):
            prepared = driver.prepare_model(model, ExecutionPreference.FAST_SINGLE_ANSWER, Priority.MEDIUM, None, None)
        prepared.execute_synchronously(request([source], [out]), False, None, None)
        prepared.close()
        results.append(out)
    assert UNITS in launches.kernels
    np.testing.assert_array_equal(results[0], results[1])


@pytest.mark.parametrize("depth", [12, 40])
def test_a_sum_of_float16_is_rounded_before_a_residual_is_added(with_units: Device, depth: int) -> None:
    """As if ADD were an operation of its own: 2049 becomes 2048, and with 1 more still is."""
    network = Network((1, 15, 15, 64), 3, 40)
    network.convolve(depth)
    skipped, value = network.last, network.value
    network.convolve(depth, most=1)
    network.plus(skipped, value, is_output=True)
    launches = Launches()
    with only_tile(SMALLEST), recorded(launches):
        network.check(with_units.hal)
    assert launches.kernels == {UNITS}


def test_infinite_floats(with_units: Device) -> None:
    """Where a sum is no number it is computed anew, and is what other kernels make of it, beside the image too."""
    data_type = FLOAT32
    source = random_tensor(data_type, (1, 12, 12, 16), 1, spread=1)
    source.data[0, 4, 5, 3] = np.inf
    inputs, output = operands(source, (24, 3, 3, 16), 0, False, True, 16)
    inputs[1].data[7, 0, 0, 2] = -np.inf
    with only_tile(SMALLEST):
        check_by(UNITS, with_units, OperationCode.CONV_2D, [*inputs, 1, 1, 1, int(FuseCode.NONE)], output, 8)


def _skip_if_long(tile: Tile, data_type: OperandCode, is_long: bool) -> None:
    if not is_long and (tile, data_type) not in QUICK:
        pytest.skip("compiles for seconds: --long")
