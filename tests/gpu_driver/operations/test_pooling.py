# SPDX-License-Identifier: Apache-2.0
"""AVERAGE_POOL_2D, MAX_POOL_2D, L2_POOL_2D on the device."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import FuseCode, OperandCode, OperationCode, PaddingCode
from tests.gpu_driver.operations.compare import ALL, FLOAT16, FLOAT32, SIGNED, Value, check, random_tensor
from tests.gpu_driver.operations.products import check_by

if TYPE_CHECKING:
    from nn_runtime.device import Device
    from nn_runtime.operand import Dimensions

CODES = (OperationCode.AVERAGE_POOL_2D, OperationCode.MAX_POOL_2D)


@dataclass(frozen=True)
class Window:
    """Sizes as (height, width); padding a scheme, or (left, right, top, bottom)."""

    dims: Dimensions
    filter: tuple[int, int]
    stride: tuple[int, int]
    padding: PaddingCode | tuple[int, int, int, int]


WINDOWS = [
    Window((1, 1, 1, 1), (1, 1), (1, 1), PaddingCode.VALID),
    Window((2, 5, 7, 3), (2, 3), (1, 2), PaddingCode.SAME),
    Window((1, 7, 7, 160), (7, 7), (1, 1), PaddingCode.VALID),
    Window((2, 9, 8, 17), (3, 3), (2, 2), PaddingCode.SAME),
    Window((1, 12, 13, 65), (3, 2), (2, 3), (1, 0, 2, 1)),
    Window((1, 9, 10, 150), (3, 3), (1, 1), PaddingCode.SAME),
    Window((1, 33, 33, 16), (33, 33), (33, 33), PaddingCode.SAME),
]
LARGE_WINDOWS = [
    Window((1, 7, 7, 160), (7, 7), (1, 1), PaddingCode.VALID),
    Window((2, 9, 8, 17), (6, 6), (2, 3), PaddingCode.SAME),
    Window((1, 12, 13, 65), (11, 3), (3, 2), (1, 0, 2, 1)),
    Window((3, 33, 33, 3), (33, 33), (33, 33), PaddingCode.SAME),
]


@pytest.mark.parametrize("nchw", [False, True], ids=["nhwc", "nchw"])
@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("data_type", ALL, ids=lambda code: code.name)
@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_every_type_layout_and_padding(
    opencl_device: Device, code: OperationCode, data_type: OperandCode, window: Window, nchw: bool
) -> None:
    source = _in_layout(random_tensor(data_type, window.dims), nchw)
    check(opencl_device, code, [source, *_scalars(window, FuseCode.NONE), nchw], source)


@pytest.mark.parametrize("nchw", [False, True], ids=["nhwc", "nchw"])
@pytest.mark.parametrize("window", LARGE_WINDOWS, ids=str)
@pytest.mark.parametrize("data_type", ALL, ids=lambda code: code.name)
@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_few_outputs_of_large_windows_share_groups_on_a_gpu(
    as_gpu: Device, code: OperationCode, data_type: OperandCode, window: Window, nchw: bool
) -> None:
    source = _in_layout(random_tensor(data_type, window.dims), nchw)
    kernel = ("pooling.cl", f"{code.name.lower()}_groups")
    check_by(kernel, as_gpu, code, [source, *_scalars(window, FuseCode.RELU6), nchw], source)


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_nan_in_a_window_that_a_group_shares(as_gpu: Device, code: OperationCode) -> None:
    source = random_tensor(FLOAT32, (1, 7, 7, 40))
    source.data[0, 6, 2, ::3] = np.nan
    source.data[0, 1, 1, 1::3] = np.inf
    window = Window(source.data.shape, (7, 7), (1, 1), PaddingCode.VALID)
    kernel = ("pooling.cl", f"{code.name.lower()}_groups")
    check_by(kernel, as_gpu, code, [source, *_scalars(window, FuseCode.NONE)], source)


@pytest.mark.parametrize("activation", list(FuseCode), ids=lambda code: code.name)
@pytest.mark.parametrize("depth", [5, 20])
@pytest.mark.parametrize("data_type", ALL, ids=lambda code: code.name)
@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_activations(
    opencl_device: Device, code: OperationCode, data_type: OperandCode, depth: int, activation: FuseCode
) -> None:
    window = Window((1, 4, 4, depth), (2, 2), (1, 1), PaddingCode.VALID)
    source = random_tensor(data_type, window.dims)
    check(opencl_device, code, [source, *_scalars(window, activation)], source)


@pytest.mark.parametrize("nchw", [False, True], ids=["nhwc", "nchw"])
@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("data_type", [FLOAT32, FLOAT16], ids=lambda code: code.name)
def test_l2_pool(opencl_device: Device, data_type: OperandCode, window: Window, nchw: bool) -> None:
    source = _in_layout(random_tensor(data_type, window.dims), nchw)
    check(opencl_device, OperationCode.L2_POOL_2D, [source, *_scalars(window, FuseCode.RELU1), nchw], source)


@pytest.mark.parametrize("window", LARGE_WINDOWS, ids=str)
@pytest.mark.parametrize("data_type", [FLOAT32, FLOAT16], ids=lambda code: code.name)
def test_l2_pool_of_large_windows_shares_groups_on_a_gpu(
    as_gpu: Device, data_type: OperandCode, window: Window
) -> None:
    source = random_tensor(data_type, window.dims)
    kernel = ("pooling.cl", "l2_pool_2d_groups")
    check_by(kernel, as_gpu, OperationCode.L2_POOL_2D, [source, *_scalars(window, FuseCode.NONE)], source)


@pytest.mark.parametrize("pixels", [1, 2, 3, 7, 48, 49, 50, 255])
def test_every_rounding_of_8_bit_means(opencl_device: Device, pixels: int) -> None:
    sums = np.arange(-128 * pixels, 127 * pixels + 1)[:: max(1, pixels // 4)]
    each = np.floor_divide(sums[:, None] + np.arange(pixels), pixels).astype(np.int8)  # sums up to sums
    source = Value(SIGNED, np.ascontiguousarray(each.T.reshape(1, 1, pixels, sums.size)), 0.1, 3)
    window = Window(source.data.shape, (1, pixels), (1, 1), PaddingCode.VALID)
    check(opencl_device, OperationCode.AVERAGE_POOL_2D, [source, *_scalars(window, FuseCode.NONE)], source)


def _in_layout(source: Value, nchw: bool) -> Value:
    return replace(source, data=np.ascontiguousarray(source.data.transpose(0, 3, 1, 2))) if nchw else source


def _scalars(window: Window, activation: FuseCode) -> list[int]:
    padding = [window.padding.value] if isinstance(window.padding, PaddingCode) else list(window.padding)
    return [*padding, *window.stride[::-1], *window.filter[::-1], activation.value]
