# SPDX-License-Identifier: Apache-2.0
"""GROUPED_CONV_2D and TRANSPOSE_CONV_2D on the device."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpu_driver.launch import Launch
from gpu_driver.lowering import Lowering
from gpu_driver.operations import transpose_conv
from nn_runtime.codes import FuseCode, OperandCode, OperationCode, PaddingCode
from nn_runtime.device import Device
from nn_runtime.operand import ChannelQuant
from tests.gpu_driver.graphs import Graph
from tests.gpu_driver.operations.compare import (
    ALL,
    FLOAT32,
    QUANT8,
    SIGNED,
    Value,
    check,
    constant,
    like,
    random_tensor,
)
from tests.gpu_driver.operations.products import of_type_gpu
from tests.gpu_driver.profiles import CPU_PROFILE, GPU_PROFILE
from tests.platforms.launches import Launches, recorded

if TYPE_CHECKING:
    from gpu_driver.device_profile import DeviceProfile

PER_CHANNEL = OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL


@dataclass(frozen=True)
class Sizes:
    """Image [batches, height, width, depth]; filter, stride (height, width); padding (left, right, top, bottom)."""

    image: tuple[int, int, int, int]
    filter: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int, int, int]
    depth: int
    groups: int = 1


GROUPED = [
    Sizes((1, 1, 1, 1), (1, 1), (1, 1), (0, 0, 0, 0), 1, 1),
    Sizes((2, 5, 7, 6), (2, 3), (2, 1), (1, 2, 1, 0), 9, 3),
    Sizes((1, 9, 8, 34), (3, 3), (1, 2), (1, 1, 1, 1), 17, 17),
    Sizes((1, 4, 4, 32), (1, 1), (1, 1), (0, 0, 0, 0), 64, 2),
    Sizes((1, 6, 7, 20), (3, 3), (2, 2), (0, 1, 1, 0), 20, 20),
    Sizes((1, 3, 3, 70), (2, 2), (1, 1), (0, 0, 0, 0), 140, 70),
    Sizes((2, 5, 6, 32), (3, 3), (1, 1), (1, 1, 1, 1), 32, 16),
    Sizes((1, 7, 9, 48), (3, 2), (2, 1), (0, 1, 1, 2), 48, 12),
    Sizes((1, 4, 5, 16), (1, 3), (1, 2), (1, 0, 0, 0), 16, 2),
    Sizes((1, 5, 5, 32), (3, 3), (2, 2), (1, 1, 1, 1), 32, 2),
]
TRANSPOSED = [
    Sizes((1, 1, 1, 1), (1, 1), (1, 1), (0, 0, 0, 0), 1),
    Sizes((2, 3, 4, 5), (3, 2), (2, 3), (0, 0, 0, 0), 7),
    Sizes((1, 5, 4, 17), (4, 5), (3, 2), (1, 2, 0, 3), 3),
    Sizes((1, 7, 6, 3), (2, 2), (3, 4), (1, 0, 0, 1), 65),
    Sizes((1, 4, 5, 8), (3, 3), (1, 1), (1, 1, 1, 1), 9),
    Sizes((1, 5, 5, 3), (4, 4), (2, 2), (3, 3, 3, 3), 20),
    Sizes((1, 1, 1, 2), (4, 4), (4, 4), (1, 0, 2, 0), 17),
    Sizes((1, 4, 3, 6), (2, 3), (3, 2), (0, 0, 0, 0), 4),  # rows without any tap
    Sizes((1, 3, 4, 5), (2, 2), (2, 2), (0, -2, 0, -4), 7),  # and behind the last ones, in phases of one tap
    Sizes((2, 3, 2, 18), (2, 2), (2, 2), (0, -3, 0, -1), 3),
    Sizes((1, 2, 2, 5), (4, 4), (4, 4), (5, 0, 6, 0), 3),  # less than a stride is left
]

PHASED = [one for one in TRANSPOSED if all(a >= b for a, b in zip(one.filter, one.stride, strict=True))]
"""Some tap reaches every pixel."""


@pytest.mark.parametrize("held", [False, True], ids=["filter_of_the_run", "filter_of_the_model"])
@pytest.mark.parametrize("activation", [FuseCode.NONE, FuseCode.RELU6], ids=lambda code: code.name)
@pytest.mark.parametrize("nchw", [False, True], ids=["nhwc", "nchw"])
@pytest.mark.parametrize("sizes", GROUPED, ids=str)
@pytest.mark.parametrize("per_channel", [False, True], ids=["per_tensor", "per_channel"])
@pytest.mark.parametrize("data_type", ALL, ids=lambda code: code.name)
def test_grouped_conv(
    opencl_device: Device,
    data_type: OperandCode,
    per_channel: bool,
    sizes: Sizes,
    nchw: bool,
    activation: FuseCode,
    held: bool,
) -> None:
    source = image_of(data_type, sizes, nchw)
    if per_channel and not source.scale:
        pytest.skip("only 8-bit filters have scales per channel")
    tensors, output = operands(source, sizes, sizes.image[3] // sizes.groups, per_channel, held)
    scalars = [*sizes.padding, *sizes.stride[::-1], sizes.groups, activation.value, nchw]
    check(opencl_device, OperationCode.GROUPED_CONV_2D, [*tensors, *scalars], output, tolerance_of=4)


@pytest.mark.parametrize("held", [False, True], ids=["filter_of_the_run", "filter_of_the_model"])
@pytest.mark.parametrize("activation", [FuseCode.NONE, FuseCode.RELU1], ids=lambda code: code.name)
@pytest.mark.parametrize("nchw", [False, True], ids=["nhwc", "nchw"])
@pytest.mark.parametrize("sizes", TRANSPOSED, ids=str)
@pytest.mark.parametrize("per_channel", [False, True], ids=["per_tensor", "per_channel"])
@pytest.mark.parametrize("data_type", ALL, ids=lambda code: code.name)
def test_transpose_conv(
    opencl_device: Device,
    data_type: OperandCode,
    per_channel: bool,
    sizes: Sizes,
    nchw: bool,
    activation: FuseCode,
    held: bool,
) -> None:
    source = image_of(data_type, sizes, nchw)
    if per_channel and not source.scale:
        pytest.skip("only 8-bit filters have scales per channel")
    tensors, output = operands(source, sizes, sizes.image[3], per_channel, held)
    scalars = [*sizes.padding, *sizes.stride[::-1], activation.value, nchw]
    check(opencl_device, OperationCode.TRANSPOSE_CONV_2D, [*tensors, *scalars], output, tolerance_of=4)


@pytest.mark.parametrize("nchw", [False, True], ids=["nhwc", "nchw"])
@pytest.mark.parametrize("sizes", PHASED, ids=str)
@pytest.mark.parametrize("per_channel", [False, True], ids=["per_tensor", "per_channel"])
@pytest.mark.parametrize("data_type", ALL, ids=lambda code: code.name)
def test_transpose_conv_by_phases_on_a_gpu(
    as_gpu: Device,
    data_type: OperandCode,
    per_channel: bool,
    sizes: Sizes,
    nchw: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transpose_conv, "_LEAST_PRODUCTS", 0)
    source = image_of(data_type, sizes, nchw)
    if per_channel and not source.scale:
        pytest.skip("only 8-bit filters have scales per channel")
    tensors, output = operands(source, sizes, sizes.image[3], per_channel, held=True)
    scalars = [*sizes.padding, *sizes.stride[::-1], FuseCode.RELU6.value, nchw]
    launches = Launches()
    with recorded(launches):
        check(as_gpu, OperationCode.TRANSPOSE_CONV_2D, [*tensors, *scalars], output, tolerance_of=4)
    assert {source for source, _ in launches.kernels} & {"matmul_tiled.cl", "matmul_narrow.cl"}
    assert "transpose_conv_2d.cl" not in {source for source, _ in launches.kernels}


@pytest.mark.parametrize("profile", [CPU_PROFILE, GPU_PROFILE], ids=["cpu", "gpu"])
def test_phases_without_pixels_are_left_out(monkeypatch: pytest.MonkeyPatch, profile: DeviceProfile) -> None:
    """Two rows and three columns are left of a picture, fewer than a stride has; each is a product and a copy."""
    monkeypatch.setattr(transpose_conv, "_LEAST_PRODUCTS", 0)
    graph = Graph()
    weights, bias = (graph.constant(np.ones(dims, np.float32)) for dims in ((17, 4, 4, 2), (17,)))
    numbers = [graph.integer(one) for one in (5, 0, 6, 0, 4, 4, FuseCode.NONE)]
    operands = [graph.input((1, 2, 2, 2)), weights, bias, *numbers, graph.flag(False)]
    graph.operation(OperationCode.TRANSPOSE_CONV_2D, operands, graph.output((1, 2, 3, 17)))
    lowering = Lowering(graph.model(), profile)
    commands = [one for one in lowering.lower(0, lowering.static_inputs()).commands if isinstance(one, Launch)]
    assert sum(len(one.steps) or 1 for one in commands) == 2 * 3 * 2


@pytest.mark.parametrize("held", [False, True], ids=["filter_of_the_run", "little_local_memory"])
def test_transpose_conv_without_phases_on_a_gpu(
    opencl_device: Device, monkeypatch: pytest.MonkeyPatch, held: bool
) -> None:
    monkeypatch.setattr(transpose_conv, "_LEAST_PRODUCTS", 0)
    found = of_type_gpu(opencl_device)
    found.profile = replace(found.profile, local_mem_bytes=1024 if held else found.profile.local_mem_bytes)
    sizes = PHASED[1]
    tensors, output = operands(image_of(FLOAT32, sizes, False), sizes, sizes.image[3], False, held)
    scalars = [*sizes.padding, *sizes.stride[::-1], FuseCode.NONE.value, False]
    launches = Launches()
    with recorded(launches):
        check(Device(found), OperationCode.TRANSPOSE_CONV_2D, [*tensors, *scalars], output, tolerance_of=4)
    assert {source for source, _ in launches.kernels} == {"transpose_conv_2d.cl"}


@pytest.mark.parametrize("held", [False, True], ids=["filter_of_the_run", "filter_of_the_model"])
@pytest.mark.parametrize("scheme", [PaddingCode.SAME, PaddingCode.VALID], ids=lambda code: code.name)
@pytest.mark.parametrize("data_type", [FLOAT32, QUANT8, SIGNED], ids=lambda code: code.name)
def test_transpose_conv_of_a_given_shape(
    opencl_device: Device, data_type: OperandCode, scheme: PaddingCode, held: bool
) -> None:
    sizes = Sizes((1, 5, 4, 3), (3, 3), (2, 2), (0, 0, 0, 0), 4)
    source = image_of(data_type, sizes, False)
    tensors, output = operands(source, sizes, 3, False, held)
    shape = constant([1, 10, 7, 4] if scheme == PaddingCode.SAME else [1, 11, 9, 4])
    inputs = [*tensors, shape, scheme.value, 2, 2, FuseCode.NONE.value, False]
    check(opencl_device, OperationCode.TRANSPOSE_CONV_2D, inputs, output, tolerance_of=4)


def image_of(data_type: OperandCode, sizes: Sizes, nchw: bool) -> Value:
    batches, height, width, depth = sizes.image
    dims = (batches, depth, height, width) if nchw else sizes.image
    return random_tensor(data_type, dims, 1, spread=1)


def operands(
    source: Value, sizes: Sizes, filter_depth: int, per_channel: bool, held: bool
) -> tuple[list[Value], Value]:
    """Return input, filter and bias, the last two the model's where `held`, and an output."""
    rng = np.random.default_rng(5)
    dims = (sizes.depth, *sizes.filter, filter_depth)
    if not source.scale:
        weights = random_tensor(OperandCode(source.type), dims, 2, spread=0.5)
        bias = random_tensor(OperandCode(source.type), (sizes.depth,), 3)
        return [source, replace(weights, constant=held), replace(bias, constant=held)], source
    weights = random_tensor(OperandCode(source.type), dims, 2, scale=0.02)
    if per_channel:
        scales = tuple(float(scale) for scale in rng.uniform(0.001, 0.05, sizes.depth))
        data = rng.integers(-127, 128, dims).astype(np.int8)
        weights = Value(PER_CHANNEL, data, channel_quant=ChannelQuant(scales, 0))
    bias_data = rng.integers(-3000, 3000, sizes.depth).astype(np.int32)
    bias = Value(OperandCode.TENSOR_INT32, bias_data, 0.0 if per_channel else source.scale * weights.scale)
    return [source, replace(weights, constant=held), replace(bias, constant=held)], like(source, scale=0.3)
