# SPDX-License-Identifier: Apache-2.0
"""Depthwise convolutions beside the CPU driver: several channels of one, pictures of one column, taps apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from nn_runtime.codes import OperationCode
from nn_runtime.operand import QUANT8_TYPES
from tests.gpu_driver.operations.compare import ALL, check
from tests.gpu_driver.operations.products import Sizes, geometry, image_of, operands

if TYPE_CHECKING:
    from nn_runtime.codes import OperandCode
    from nn_runtime.device import Device

REPEATED = [
    Sizes((1, 5, 6, 1), (3, 3), 8, padding=(1, 1, 1, 1)),
    Sizes((2, 9, 8, 3), (3, 3), 24, stride=(2, 2), padding=(1, 0, 1, 0)),
    Sizes((1, 9, 11, 32), (3, 3), 64, padding=(1, 1, 1, 1)),
    Sizes((1, 12, 9, 5), (5, 3), 15, dilation=(2, 1), padding=(1, 1, 4, 4)),
    Sizes((2, 7, 3, 20), (1, 1), 40),
]
COLUMNS = [
    Sizes((1, 40, 1, 32), (9, 1), 32, padding=(0, 0, 4, 4)),
    Sizes((3, 21, 1, 20), (3, 1), 20, stride=(2, 1), padding=(0, 0, 0, 2)),
    Sizes((2, 33, 1, 7), (5, 1), 14, dilation=(3, 1), padding=(0, 0, 6, 5)),
    Sizes((1, 30, 1, 16), (3, 3), 16, padding=(1, 1, 1, 1)),
]

APART = [
    Sizes((1, 9, 29, 24), (3, 3), 24, dilation=(2, 2), padding=(2, 2, 2, 2)),
    Sizes((2, 8, 33, 40), (3, 3), 40, dilation=(4, 4), padding=(4, 4, 4, 4)),
    Sizes((1, 7, 30, 16), (3, 3), 16, dilation=(3, 1)),
    Sizes((1, 12, 14, 20), (3, 3), 20, dilation=(1, 3), padding=(1, 0, 3, 2)),
    Sizes((1, 12, 37, 32), (5, 5), 32, dilation=(2, 2), padding=(4, 4, 4, 4)),
]
"""Taps that are not side by side."""


@pytest.mark.parametrize("held", [True, False], ids=["constants", "inputs"])
@pytest.mark.parametrize("per_channel", [False, True], ids=["per_tensor", "per_channel"])
@pytest.mark.parametrize("data_type", ALL, ids=lambda code: code.name)
def test_depthwise(opencl_device: Device, data_type: OperandCode, per_channel: bool, held: bool) -> None:
    if per_channel and data_type not in QUANT8_TYPES:
        pytest.skip("only 8-bit filters have scales per channel")
    for sizes in (*REPEATED, *COLUMNS, *APART):
        source = image_of(data_type, sizes, False)
        inputs, output = operands(source, (1, *sizes.filter, sizes.depth), 3, per_channel, held, 9)
        scalars = geometry(sizes, False, depth_multiplier=sizes.depth // sizes.image[3])
        check(opencl_device, OperationCode.DEPTHWISE_CONV_2D, [*inputs, *scalars], output, tolerance_of=4)


@pytest.mark.parametrize("data_type", ALL, ids=lambda code: code.name)
def test_convolutions_of_one_column(opencl_device: Device, data_type: OperandCode) -> None:
    for sizes in COLUMNS:
        source = image_of(data_type, sizes, False)
        dims = (sizes.depth, *sizes.filter, sizes.image[3])
        inputs, output = operands(source, dims, 0, False, True, 9 * sizes.image[3])
        check(opencl_device, OperationCode.CONV_2D, [*inputs, *geometry(sizes, False)], output, tolerance_of=8)
