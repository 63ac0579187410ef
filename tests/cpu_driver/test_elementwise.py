# SPDX-License-Identifier: Apache-2.0
"""PRELU, which is computed by parts, gives what its definition says of numbers that are no finite ones."""

from __future__ import annotations

import numpy as np
import pytest

import nn_runtime as nn


@pytest.mark.parametrize("slope", [0.0, -2.0, np.inf, -np.inf, np.nan])
def test_prelu_of_any_numbers(slope: float) -> None:
    values = np.array([0.0, 1.5, np.inf, -1.5, -np.inf, np.nan], np.float32)
    model = nn.Model()
    source, alpha, result = (
        model.add_operand(nn.OperandType(nn.OperandCode.TENSOR_FLOAT32, (size,))) for size in (6, 1, 6)
    )
    model.set_operand_value(alpha, np.full(1, slope, np.float32))
    model.add_operation(nn.OperationCode.PRELU, [source, alpha], [result])
    model.identify_inputs_and_outputs([source], [result])
    model.finish()
    with nn.Network.from_model(model).compile("cpu") as session:
        got = session.run([values])[0]
    wanted = [value if value >= 0 else value * slope for value in values.tolist()]
    np.testing.assert_array_equal(got, np.array(wanted, np.float32))
