# SPDX-License-Identifier: Apache-2.0
"""conv_2d_few_channels.cl on the devices at hand, which are said to be GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from nn_runtime.codes import OperandCode, OperationCode
from tests.gpu_driver.operations.compare import (
    ALL,
    FLOAT16,
    FLOAT32,
)
from tests.gpu_driver.operations.products import Sizes, check_by, geometry, image_of, operands

if TYPE_CHECKING:
    from nn_runtime.device import Device

FEW_CHANNELS = ("conv_2d_few_channels.cl", "conv_2d_few_channels")
SIZES = {
    "aligned": Sizes((1, 96, 128, 3), (3, 3), 32, stride=(2, 2), padding=(0, 1, 0, 1)),
    "padded": Sizes((1, 47, 61, 3), (3, 3), 24, padding=(1, 1, 1, 1)),
    "batches": Sizes((3, 35, 31, 3), (5, 3), 72, padding=(1, 1, 2, 2)),
    "of_one_tap": Sizes((2, 40, 44, 4), (1, 1), 7),
    "one_channel": Sizes((1, 64, 63, 1), (5, 5), 12, padding=(2, 2, 2, 2)),
    "large_window": Sizes((1, 99, 98, 3), (7, 7), 33, stride=(2, 2), padding=(3, 3, 3, 3)),
    "dilated": Sizes((1, 52, 60, 2), (3, 2), 20, dilation=(2, 3), padding=(2, 1, 0, 3)),
    "wide_window": Sizes((2, 38, 37, 4), (7, 7), 9, dilation=(1, 2), padding=(6, 6, 3, 3)),
    "one_line": Sizes((1, 1, 4000, 1), (1, 7), 16, padding=(3, 3, 0, 0)),
    "patches": Sizes((1, 260, 200, 3), (4, 4), 40, stride=(4, 4)),
    "gaps": Sizes((1, 130, 140, 3), (1, 1), 8, stride=(2, 3)),
}
QUICK = ("aligned", "padded")
"""What the quick suite runs in every type, the rest in one each: PoCL takes seconds to compile them."""

each_type = pytest.mark.parametrize("data_type", ALL, ids=lambda code: code.name)


@pytest.mark.parametrize("per_channel", [False, True], ids=["per_tensor", "per_channel"])
@each_type
@pytest.mark.parametrize("name", SIZES)
def test_convolutions(as_gpu: Device, name: str, data_type: OperandCode, per_channel: bool, is_long: bool) -> None:
    if per_channel and data_type in (FLOAT32, FLOAT16):
        pytest.skip("only 8-bit filters have scales per channel")
    at = list(SIZES).index(name)
    if not is_long and name not in QUICK and (per_channel or data_type != ALL[at % len(ALL)]):
        pytest.skip("compiles for seconds: --long")
    sizes = SIZES[name]
    depth = sizes.image[3]
    inputs, output = operands(
        image_of(data_type, sizes, False), (sizes.depth, *sizes.filter, depth), 0, per_channel, at % 2 == 0, depth
    )
    check_by(FEW_CHANNELS, as_gpu, OperationCode.CONV_2D, [*inputs, *geometry(sizes, False)], output, 8)
