# SPDX-License-Identifier: Apache-2.0
"""RESIZE_BILINEAR, RESIZE_NEAREST_NEIGHBOR on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import OperandCode, OperationCode
from tests.gpu_driver.operations.compare import ALL, Value, check, random_tensor

if TYPE_CHECKING:
    from nn_runtime.device import Device
    from nn_runtime.operand import Dimensions

CODES = (OperationCode.RESIZE_BILINEAR, OperationCode.RESIZE_NEAREST_NEIGHBOR)
SIZES: list[tuple[Dimensions, tuple[int, int]]] = [
    ((1, 1, 1, 1), (3, 4)),
    ((2, 3, 5, 3), (7, 4)),
    ((1, 9, 9, 21), (33, 33)),
    ((2, 8, 5, 16), (3, 11)),
    ((1, 65, 65, 40), (1, 1)),
    ((1, 2, 2, 65), (5, 64)),
    ((2, 5, 7, 2), (11, 20)),
    ((1, 7, 6, 5), (9, 10)),
    ((2, 4, 5, 9), (7, 13)),
    ((1, 3, 4, 15), (3, 9)),
]


@pytest.mark.parametrize("rule", [(False, False), (True, False), (False, True)], ids=str)
@pytest.mark.parametrize("nchw", [False, True], ids=["nhwc", "nchw"])
@pytest.mark.parametrize(("dims", "size"), SIZES, ids=str)
@pytest.mark.parametrize("data_type", ALL, ids=lambda code: code.name)
@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_every_type_layout_and_rule(
    opencl_device: Device,
    code: OperationCode,
    data_type: OperandCode,
    dims: Dimensions,
    size: tuple[int, int],
    nchw: bool,
    rule: tuple[bool, bool],
) -> None:
    source = random_tensor(data_type, dims)
    if nchw:
        data = np.ascontiguousarray(source.data.transpose(0, 3, 1, 2))
        source = Value(source.type, data, source.scale, source.zero_point)
    height, width = size
    check(opencl_device, code, [source, width, height, nchw, *rule], source)


def test_by_scale(opencl_device: Device) -> None:
    for data_type in ALL:
        source = random_tensor(data_type, (1, 4, 6, 5))
        check(opencl_device, OperationCode.RESIZE_BILINEAR, [source, 1.6, 2.0], source)
