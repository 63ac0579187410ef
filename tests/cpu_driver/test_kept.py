# SPDX-License-Identifier: Apache-2.0
"""What is kept of constants between runs, and of nothing else."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING

import numpy as np
import pytest

import nn_runtime as nn
from cpu_driver.operations import fully_connected
from nn_runtime.devices import reference_device

if TYPE_CHECKING:
    from nn_runtime.operations import OperationView


class Watched(np.ndarray):
    """An array whose end can be seen."""


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


def test_what_was_made_of_an_argument_goes_with_it() -> None:
    """Of constants alone is anything kept between runs."""
    model = nn.Model()
    rows, weights = (model.add_operand(nn.OperandType(nn.OperandCode.TENSOR_FLOAT32, (4, 4))) for _ in range(2))
    bias = model.add_operand(nn.OperandType(nn.OperandCode.TENSOR_FLOAT32, (4,)))
    none = model.add_operand(nn.OperandType(nn.OperandCode.INT32))
    model.set_operand_value(none, np.int32(nn.FuseCode.NONE))
    model.set_operand_value(bias, np.zeros(4, np.float32))
    result = model.add_operand(nn.OperandType(nn.OperandCode.TENSOR_FLOAT32, (4, 4)))
    model.add_operation(nn.OperationCode.FULLY_CONNECTED, [rows, weights, bias, none], [result])
    model.identify_inputs_and_outputs([rows, weights], [result])
    model.finish()
    compilation = nn.Compilation(model, [reference_device()])
    compilation.finish()
    given = [np.eye(4, dtype=np.float32).view(Watched) for _ in range(2)]
    watched = [weakref.ref(one) for one in given]
    with nn.Execution(compilation) as execution:
        for at, one in enumerate(given):
            execution.set_input(at, one)
        execution.set_output(0, np.zeros((4, 4), np.float32))
        execution.compute()
    del execution, given, one
    gc.collect()
    assert [reference() for reference in watched] == [None, None]


def gathered_rows() -> nn.Model:
    """FULLY_CONNECTED of any number of rows with weights 2 * identity, then a GATHER of one of them."""
    model = nn.Model()
    rows = model.add_operand(nn.OperandType(nn.OperandCode.TENSOR_FLOAT32, (0, 4)))
    index = model.add_operand(nn.OperandType(nn.OperandCode.TENSOR_INT32, (1,)))
    weights = model.add_operand(nn.OperandType(nn.OperandCode.TENSOR_FLOAT32, (4, 4)))
    bias = model.add_operand(nn.OperandType(nn.OperandCode.TENSOR_FLOAT32, (4,)))
    none, axis = (model.add_operand(nn.OperandType(nn.OperandCode.INT32)) for _ in range(2))
    products = model.add_operand(nn.OperandType(nn.OperandCode.TENSOR_FLOAT32, (0, 4)))
    result = model.add_operand(nn.OperandType(nn.OperandCode.TENSOR_FLOAT32, (1, 4)))
    model.set_operand_value(weights, 2 * np.eye(4, dtype=np.float32))
    model.set_operand_value(bias, np.zeros(4, np.float32))
    model.set_operand_value(none, np.int32(nn.FuseCode.NONE))
    model.set_operand_value(axis, np.int32(0))
    model.add_operation(nn.OperationCode.FULLY_CONNECTED, [rows, weights, bias, none], [products])
    model.add_operation(nn.OperationCode.GATHER, [products, axis, index], [result])
    model.identify_inputs_and_outputs([rows, index], [result])
    model.finish()
    return model


def test_constants_serve_other_sizes_and_runs_after_one_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def watched(op: OperationView) -> object:
        made.append(op)
        return weights_of(op)

    weights_of = fully_connected._weights
    monkeypatch.setattr(fully_connected, "_weights", watched)
    with nn.Network.from_model(gathered_rows()).compile("cpu") as session:
        for count, index in ((3, 2), (5, 4), (5, 9), (5, 0), (2, 1)):
            rows = np.arange(4 * count, dtype=np.float32).reshape(count, 4)
            if index < count:
                (got,) = session.run([rows, np.array([index], np.int32)])
                np.testing.assert_array_equal(got, 2 * rows[index : index + 1])
            else:
                with pytest.raises(nn.NNError, match="GATHER"):
                    session.run([rows, np.array([index], np.int32)])
    assert len(made) == 1
