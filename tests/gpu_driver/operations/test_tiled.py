# SPDX-License-Identifier: Apache-2.0
"""Kernels for GPU-type devices on the devices at hand, which are said to be GPUs: barriers work on all of them."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING
from unittest import mock

import numpy as np
import pytest

from cpu_driver.driver import Device as CpuDevice
from gpu_driver import device_profile
from gpu_driver.convolution import tiled
from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.device import Device
from nn_runtime.hal.types import ExecutionPreference, Priority
from nn_runtime.testing.conformance import HalRunner, Verdict, run_example
from nn_runtime.testing.corpus import Kind, read_spec, spec_files
from tests.gpu_driver.drawn import inverted_residuals
from tests.gpu_driver.graphs import request
from tests.gpu_driver.operations.compare import (
    ALL,
    FLOAT16,
    FLOAT32,
    INT32,
    QUANT8,
    SIGNED,
    Value,
    execute,
    like,
    random_tensor,
)
from tests.gpu_driver.operations.products import (
    CONVOLUTIONS,
    PRODUCTS,
    Sizes,
    check_by,
    geometry,
    image_of,
    of_type_gpu,
    operands,
)
from tests.operations.cases import examples
from tests.platforms.launches import Launches, recorded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from nn_runtime.testing.corpus import Example

OPERATIONS = ("CONV_2D", "DEPTHWISE_CONV_2D", "GROUPED_CONV_2D", "FULLY_CONNECTED", "BATCH_MATMUL")
CASE_STEP, FILE_STEP = 16, 8
"""The quick suite runs one case in so many, and one example in so many of one file of the corpus in so many."""
TILED, NARROW = ("matmul_tiled.cl", "matmul_tiled"), ("matmul_narrow.cl", "matmul_narrow")
DEPTHWISE_TILES, DEPTHWISE_PIXELS, DEPTHWISE_GROUPS = (
    ("depthwise_conv_2d.cl", f"depthwise_conv_2d_{form}") for form in ("tiles", "pixels", "groups")
)
GENERAL = ("conv_2d.cl", "conv_2d")
TILES = (32, 64, 128)
QUICK = {(32, FLOAT32), (32, QUANT8)}
"""What the quick suite runs: PoCL takes seconds to compile for each tile and type."""


NARROW_PRODUCTS = [(1, 64, 1), (4, 65, 17), (1, 260, 7), (3, 1024, 5), (1, 5000, 2)]
DEPTHWISE_OF_TILES = [
    Sizes((2, 9, 13, 8), (3, 3), 8, padding=(1, 1, 1, 1)),
    Sizes((2, 13, 19, 12), (3, 3), 12, stride=(2, 2), padding=(0, 1, 1, 0)),
    Sizes((1, 4, 6, 32), (3, 3), 32),
    Sizes((1, 2, 4, 4), (3, 3), 4, padding=(1, 1, 1, 1)),
    Sizes((1, 1, 1, 4), (3, 3), 4, padding=(5, 4, 3, 4)),
    Sizes((1, 3, 7, 20), (3, 3), 20, stride=(2, 2), padding=(1, 1, 1, 1)),
    Sizes((1, 12, 16, 8), (3, 3), 8, stride=(3, 3), padding=(1, 1, 1, 1)),
    Sizes((1, 7, 9, 8), (3, 3), 8, stride=(1, 2), padding=(1, 1, 1, 1)),
    Sizes((1, 9, 9, 8), (3, 3), 8, dilation=(2, 2), padding=(2, 2, 2, 2)),
    Sizes((1, 3, 5, 16), (1, 1), 16),
    Sizes((2, 6, 8, 8), (5, 5), 8, padding=(2, 2, 2, 2)),
    Sizes((1, 11, 11, 4), (5, 2), 4, stride=(2, 1), dilation=(1, 2), padding=(3, 3, 4, 4)),
]
DEPTHWISE_OF_PIXELS = [
    Sizes((1, 1, 1, 4), (1, 1), 4),
    Sizes((2, 5, 9, 8), (3, 3), 8, padding=(1, 1, 1, 1)),
    Sizes((1, 8, 7, 8), (3, 3), 8, stride=(2, 2), padding=(0, 1, 0, 1)),
    Sizes((1, 8, 7, 7), (3, 3), 7, stride=(2, 2), padding=(0, 1, 0, 1)),
    Sizes((1, 9, 11, 13), (5, 2), 13, dilation=(1, 2), padding=(3, 3, 4, 4)),
    Sizes((1, 4, 6, 32), (3, 3), 32, stride=(1, 2)),
    Sizes((1, 7, 7, 6), (5, 5), 6, stride=(3, 3), padding=(2, 2, 2, 2)),
]
DEPTHWISE_FEW_OUTPUTS = [
    Sizes((1, 7, 7, 4), (7, 7), 4),
    Sizes((2, 14, 14, 35), (14, 14), 35),
    Sizes((1, 11, 13, 36), (6, 7), 36, stride=(2, 3), dilation=(2, 1), padding=(3, 2, 4, 1)),
    Sizes((3, 33, 9, 65), (33, 9), 65),
]


@contextlib.contextmanager
def only_tile(tile: int) -> Iterator[None]:
    """Let no other tile be chosen."""
    with (
        mock.patch("gpu_driver.convolution.tiled.TILES", [one for one in tiled.TILES if one.side == tile]),
        mock.patch("gpu_driver.convolution.tiled.largest_tile", return_value=tile),
    ):
        yield


@pytest.mark.parametrize("held", [True, False], ids=["weights_of_the_model", "weights_of_the_run"])
@pytest.mark.parametrize("data_type", ALL, ids=lambda code: code.name)
@pytest.mark.parametrize("tile", TILES)
def test_products(as_gpu: Device, tile: int, data_type: OperandCode, held: bool, is_long: bool) -> None:
    _skip_if_long(tile, data_type, is_long)
    for rows, depth, units in PRODUCTS if is_long or held else PRODUCTS[3:6]:
        source = random_tensor(data_type, (rows, depth), 1, spread=1)
        inputs, output = operands(source, (units, depth), 0, False, held, depth)
        kernel = NARROW if rows <= 4 and depth >= 64 else TILED
        with only_tile(tile):
            scalars = (int(FuseCode.RELU),)
            check_by(kernel, as_gpu, OperationCode.FULLY_CONNECTED, [*inputs, *scalars], output, depth**0.5)


@pytest.mark.parametrize("held", [True, False], ids=["weights_of_the_model", "weights_of_the_run"])
@pytest.mark.parametrize("data_type", ALL, ids=lambda code: code.name)
def test_products_of_few_rows(as_gpu: Device, data_type: OperandCode, held: bool) -> None:
    for rows, depth, units in NARROW_PRODUCTS:
        source = random_tensor(data_type, (rows, depth), 1, spread=1)
        inputs, output = operands(source, (units, depth), 0, False, held, depth)
        scalars = (int(FuseCode.NONE),)
        check_by(NARROW, as_gpu, OperationCode.FULLY_CONNECTED, [*inputs, *scalars], output, depth**0.5)


@pytest.mark.parametrize("nchw", [False, True], ids=["nhwc", "nchw"])
@pytest.mark.parametrize("per_channel", [False, True], ids=["per_tensor", "per_channel"])
@pytest.mark.parametrize("data_type", ALL, ids=lambda code: code.name)
@pytest.mark.parametrize("tile", TILES)
def test_convolutions(
    as_gpu: Device, tile: int, data_type: OperandCode, per_channel: bool, nchw: bool, is_long: bool
) -> None:
    _skip_if_long(tile, data_type, is_long)
    if per_channel and data_type in (FLOAT32, FLOAT16):
        pytest.skip("only 8-bit filters have scales per channel")
    for i, sizes in enumerate(CONVOLUTIONS):
        source = image_of(data_type, sizes, nchw)
        depth_in = sizes.image[3]
        inputs, output = operands(source, (sizes.depth, *sizes.filter, depth_in), 0, per_channel, i % 2 == 0, depth_in)
        with only_tile(tile):
            scalars = geometry(sizes, nchw)
            kernel = NARROW if i == 1 else TILED
            check_by(kernel, as_gpu, OperationCode.CONV_2D, [*inputs, *scalars], output, 8)


@pytest.mark.parametrize(
    ("kernel", "cases", "terms"),
    [
        (DEPTHWISE_TILES, DEPTHWISE_OF_TILES, 9),
        (DEPTHWISE_PIXELS, DEPTHWISE_OF_PIXELS, 9),
        (DEPTHWISE_GROUPS, DEPTHWISE_FEW_OUTPUTS, 40),
    ],
    ids=["many_outputs", "few_outputs", "few_outputs_of_large_windows"],
)
@pytest.mark.parametrize("per_channel", [False, True], ids=["per_tensor", "per_channel"])
@pytest.mark.parametrize("data_type", ALL, ids=lambda code: code.name)
def test_depthwise(
    as_gpu: Device, data_type: OperandCode, per_channel: bool, kernel: tuple[str, str], cases: list[Sizes], terms: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    if per_channel and data_type in (FLOAT32, FLOAT16):
        pytest.skip("only 8-bit filters have scales per channel")
    if kernel == DEPTHWISE_TILES:
        monkeypatch.setattr(device_profile, "PERSISTENT_ITEMS_PER_UNIT", 0)  # so that any outputs are many
    for i, sizes in enumerate(cases):
        source = image_of(data_type, sizes, False)
        inputs, output = operands(source, (1, *sizes.filter, sizes.depth), 3, per_channel, i % 2 == 0, terms)
        scalars = geometry(sizes, False, depth_multiplier=1)
        check_by(kernel, as_gpu, OperationCode.DEPTHWISE_CONV_2D, [*inputs, *scalars], output, 4)


@pytest.mark.parametrize("kernel", [DEPTHWISE_TILES, DEPTHWISE_PIXELS], ids=["tiles", "pixels"])
def test_infinite_taps_outside_of_the_image_add_nothing(
    as_gpu: Device, kernel: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first tap is infinite, and is outside of the image for the first line and the first column."""
    if kernel == DEPTHWISE_TILES:
        monkeypatch.setattr(device_profile, "PERSISTENT_ITEMS_PER_UNIT", 0)
    source = Value(FLOAT32, np.ones((1, 6, 7, 4), np.float32))
    weights = Value(FLOAT32, np.ones((1, 3, 3, 4), np.float32), constant=True)
    weights.data[0, 0, 0] = np.inf
    bias = Value(FLOAT32, np.zeros(4, np.float32), constant=True)
    launches = Launches()
    scalars = (*(1, 1, 1, 1), 1, 1, 1, int(FuseCode.NONE))
    with recorded(launches):
        result = execute(
            as_gpu, OperationCode.DEPTHWISE_CONV_2D, [source, weights, bias, *scalars], source, (1, 6, 7, 4)
        )
    assert launches.kernels == {kernel}
    assert np.isinf(result[:, 1:, 1:]).all()
    np.testing.assert_array_equal(result[0, 0, :, 0], [4, 6, 6, 6, 6, 6, 4])
    np.testing.assert_array_equal(result[0, 1:, 0, 0], [6, 6, 6, 6, 4])


@pytest.mark.parametrize("adjoined", [(False, False), (True, False), (False, True), (True, True)], ids=str)
@pytest.mark.parametrize("data_type", [FLOAT32, FLOAT16, SIGNED, INT32], ids=lambda code: code.name)
@pytest.mark.parametrize("tile", TILES)
def test_batches(as_gpu: Device, tile: int, data_type: OperandCode, adjoined: tuple[bool, bool], is_long: bool) -> None:
    _skip_if_long(tile, data_type, is_long)
    for leading, (rows, depth, columns) in (((), (5, 1, 3)), ((3,), (33, 20, 64)), ((2, 2), (64, 70, 31))):
        left = random_tensor(data_type, (*leading, *((depth, rows) if adjoined[0] else (rows, depth))), 1, spread=0.5)
        right_dims = (columns, depth) if adjoined[1] else (depth, columns)
        right = random_tensor(data_type, (*leading, *right_dims), 2, spread=0.5)
        output = like(left, scale=left.scale and 0.05 * depth**0.5)
        with only_tile(tile):
            check_by(TILED, as_gpu, OperationCode.BATCH_MATMUL, [left, right, *adjoined], output)


@pytest.mark.parametrize("data_type", [FLOAT32, FLOAT16, SIGNED, INT32], ids=lambda code: code.name)
def test_batches_of_few_rows(as_gpu: Device, data_type: OperandCode) -> None:
    left = random_tensor(data_type, (3, 2, 130), 1, spread=0.5)
    right = random_tensor(data_type, (3, 5, 130), 2, spread=0.5)
    output = like(left, scale=left.scale and 0.6)
    check_by(NARROW, as_gpu, OperationCode.BATCH_MATMUL, [left, right, False, True], output)


@pytest.mark.parametrize("data_type", [QUANT8, SIGNED], ids=lambda code: code.name)
def test_extreme_sums_are_exact(as_gpu: Device, data_type: OperandCode, is_long: bool) -> None:
    """Every product is 255 * 255, of both signs; more of them than float32 could count."""
    info = np.iinfo(np.uint8 if data_type == QUANT8 else np.int8)
    rows, depth, units = 6, 3000, 5
    source = Value(data_type, np.full((rows, depth), info.max, info.dtype), 1.0, int(info.min))
    weights = Value(data_type, np.full((units, depth), info.min, info.dtype), 1.0, int(info.max), constant=True)
    weights.data[1::2, ::3] = info.max
    bias = Value(INT32, np.arange(units, dtype=np.int32) * 40001 + 190_000_000, 1.0, constant=True)
    output = like(source, scale=2_000_000.0)
    for tile in TILES if is_long else (32,):
        with only_tile(tile):
            check_by(TILED, as_gpu, OperationCode.FULLY_CONNECTED, [source, weights, bias, int(FuseCode.NONE)], output)


@pytest.mark.parametrize("limits", [{"max_work_group_size": 128}, {"local_mem_bytes": 4096}], ids=str)
def test_small_devices_take_the_general_kernel(as_gpu: Device, limits: dict[str, int]) -> None:
    device = of_type_gpu(as_gpu)
    device.profile = replace(device.profile, **limits)  # type: ignore[arg-type]
    source = random_tensor(FLOAT32, (1, 4, 4, 8), 1)
    inputs, output = operands(source, (8, 1, 1, 8), 0, False, True, 8)
    scalars = geometry(Sizes((1, 4, 4, 8), (1, 1), 8), False)
    check_by(GENERAL, Device(device), OperationCode.CONV_2D, [*inputs, *scalars], output, 4)


@pytest.mark.parametrize("data_type", [FLOAT32, QUANT8], ids=lambda code: code.name)
def test_network_with_residuals(as_gpu: Device, data_type: OperandCode) -> None:
    network = inverted_residuals(data_type, 2)
    model, source = network.graph.model(), network.data()
    results = []
    launches = Launches()
    for driver in (as_gpu.hal, CpuDevice()):
        out = np.zeros(network.dims, source.dtype)
        with recorded(launches):
            prepared = driver.prepare_model(model, ExecutionPreference.FAST_SINGLE_ANSWER, Priority.MEDIUM, None, None)
        prepared.execute_synchronously(request([source], [out]), False, None, None)
        prepared.close()
        results.append(out)
    assert {TILED, DEPTHWISE_PIXELS, NARROW} <= launches.kernels
    if data_type == QUANT8:
        np.testing.assert_array_equal(results[0], results[1])
    else:
        np.testing.assert_allclose(results[0], results[1], atol=2e-5, rtol=2e-5)


CASES = [
    (example, kind)
    for example in examples()
    if example.main_op in OPERATIONS
    for kind in example.kinds[:1]
]  # fmt: skip


@pytest.mark.parametrize(("example", "kind"), CASES, ids=[f"{example.name}-{kind.value}" for example, kind in CASES])
def test_cases(example: Example, kind: Kind, as_gpu: Device, is_long: bool) -> None:
    if not is_long and CASES.index((example, kind)) % CASE_STEP:
        pytest.skip("compiles for seconds: --long")
    result = run_example(example, kind, HalRunner(as_gpu.hal))
    assert result.verdict == Verdict.PASSED, result.message


def test_corpus(as_gpu: Device, corpus_folder: Path, is_long: bool) -> None:
    runner = HalRunner(as_gpu.hal)
    paths = spec_files(corpus_folder)[:: 1 if is_long else FILE_STEP]
    found = [example for path in paths for example in read_spec(path) if example.main_op in OPERATIONS]
    failed, passed = [], 0
    for example in found[:: 1 if is_long else CASE_STEP]:
        for result in (run_example(example, kind, runner) for kind in example.kinds):
            passed += result.verdict == Verdict.PASSED
            if result.verdict == Verdict.FAILED:
                failed.append(f"{result.spec} {result.example} ({result.kind.value}): {result.message}")
    assert not failed, f"{len(failed)} failed:\n" + "\n".join(failed[:20])
    assert passed


def _skip_if_long(tile: int, data_type: OperandCode, is_long: bool) -> None:
    if not is_long and (tile, data_type) not in QUICK:
        pytest.skip("compiles for seconds: --long")
