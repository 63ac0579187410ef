# SPDX-License-Identifier: Apache-2.0
"""What is kept of constants between runs, and of nothing else."""

from __future__ import annotations

import numpy as np
import pytest

import nn_runtime as nn


@pytest.mark.parametrize("variable", ["filter", "bias"])
def test_weights_that_are_inputs_may_change_from_run_to_run(variable: str) -> None:
    """2 * 3 = 6 and, with another filter, 2 * 5 = 10; with another bias 6 + 1 and 6 + 4."""
    model = nn.Model()
    image, weights = (model.add_operand(nn.OperandType(nn.OperandCode.TENSOR_FLOAT32, (1, 1, 1, 1))) for _ in range(2))
    bias = model.add_operand(nn.OperandType(nn.OperandCode.TENSOR_FLOAT32, (1,)))
    scalars = [model.add_operand(nn.OperandType(nn.OperandCode.INT32)) for _ in range(4)]
    result = model.add_operand(nn.OperandType(nn.OperandCode.TENSOR_FLOAT32, (1, 1, 1, 1)))
    for scalar, value in zip(scalars, (nn.PaddingCode.VALID, 1, 1, nn.FuseCode.NONE), strict=True):
        model.set_operand_value(scalar, np.int32(value))
    given = {"filter": weights, "bias": bias}
    fixed = {"filter": np.full((1, 1, 1, 1), 3, np.float32), "bias": np.zeros(1, np.float32)}
    for name, operand in given.items():
        if name != variable:
            model.set_operand_value(operand, fixed[name])
    model.add_operation(nn.OperationCode.CONV_2D, [image, weights, bias, *scalars], [result])
    model.identify_inputs_and_outputs([image, given[variable]], [result])
    model.finish()
    pixel = np.full((1, 1, 1, 1), 2, np.float32)
    changed, expected = {"filter": ((3, 5, 3), (6, 10, 6)), "bias": ((1, 4, 1), (7, 10, 7))}[variable]
    with nn.Network.from_model(model).compile("cpu") as session:
        for value, wanted in zip(changed, expected, strict=True):
            assert session.run([pixel, np.full_like(fixed[variable], value)])[0].item() == wanted
