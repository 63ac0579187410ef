# SPDX-License-Identifier: Apache-2.0
"""Pooling windows far larger than the picture cost no more than the pixels that they hold."""

from __future__ import annotations

import numpy as np
import pytest

import nn_runtime as nn

FAR = 2**24


@pytest.mark.parametrize(
    ("padding", "filter_size", "stride", "held"),
    [
        (1, FAR, 1, [slice(0, 3), slice(0, 3), slice(1, 3)]),
        (FAR - 1, FAR, FAR - 1, [slice(0, 1), slice(0, 3)]),
    ],
    ids=["behind", "strided"],
)
def test_huge_windows(padding: int, filter_size: int, stride: int, held: list[slice]) -> None:
    pixels = np.array([3.0, -5.0, 4.0], np.float32)
    size = (len(held) - 1) * stride + filter_size
    scalars = [0, 0, padding, size - 3 - padding, 1, stride, 1, filter_size, nn.FuseCode.NONE]
    model = nn.Model()
    image = model.add_operand(nn.OperandType(nn.OperandCode.TENSOR_FLOAT32, (1, 3, 1, 1)))
    operands = [model.add_operand(nn.OperandType(nn.OperandCode.INT32)) for _ in scalars]
    for operand, value in zip(operands, scalars, strict=True):
        model.set_operand_value(operand, np.int32(value))
    result = model.add_operand(nn.OperandType(nn.OperandCode.TENSOR_FLOAT32, (1, len(held), 1, 1)))
    model.add_operation(nn.OperationCode.MAX_POOL_2D, [image, *operands], [result])
    model.identify_inputs_and_outputs([image], [result])
    model.finish()
    with nn.Network.from_model(model).compile("cpu") as session:
        got = session.run([pixels.reshape(1, 3, 1, 1)])[0].reshape(-1)
    wanted = [pixels[part].max(initial=-np.inf) for part in held]
    np.testing.assert_array_equal(got, wanted)
