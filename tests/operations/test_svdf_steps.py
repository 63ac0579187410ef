# SPDX-License-Identifier: Apache-2.0
"""SVDF step after step, each with the state that the one before left (AOSP SVDFTest, of rank 1 and 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.compilation import Compilation
from nn_runtime.execution import Execution
from nn_runtime.model import Model
from nn_runtime.operand import OperandType

if TYPE_CHECKING:
    from nn_runtime.device import Device
    from nn_runtime.operand import Array

BATCHES, INPUTS, UNITS, MEMORY, STEPS = 2, 3, 4, 10, 12


def _model(features: Array, times: Array, rank: int) -> Model:
    model = Model()

    def tensor(*dims: int) -> int:
        return model.add_operand(OperandType(OperandCode.TENSOR_FLOAT32, dims))

    state = (BATCHES, MEMORY * UNITS * rank)
    source, state_in = tensor(BATCHES, INPUTS), tensor(*state)
    constants = [tensor(*features.shape), tensor(*times.shape), tensor(UNITS)]
    for index, value in zip(constants, (features, times, None), strict=True):
        model.set_operand_value(index, value)
    scalars = [model.add_operand(OperandType(OperandCode.INT32)) for _ in range(2)]
    for index, number in zip(scalars, (rank, FuseCode.NONE), strict=True):
        model.set_operand_value(index, number)
    state_out, result = tensor(*state), tensor(BATCHES, UNITS)
    model.add_operation(OperationCode.SVDF, [source, *constants, state_in, *scalars], [state_out, result])
    model.identify_inputs_and_outputs([source, state_in], [state_out, result])
    model.finish()
    return model


@pytest.mark.parametrize("rank", [1, 2])
def test_the_state_of_a_step_goes_into_the_next(device: Device, rank: int) -> None:
    rng = np.random.default_rng(rank)
    features = rng.uniform(-1, 1, (UNITS * rank, INPUTS)).astype(np.float32)
    times = rng.uniform(-1, 1, (UNITS * rank, MEMORY)).astype(np.float32)
    inputs = rng.uniform(-1, 1, (STEPS, BATCHES, INPUTS)).astype(np.float32)
    # A result is what each filter has seen in the last steps, the newest last, weighed by time.
    seen = np.concatenate([np.zeros((MEMORY - 1, BATCHES, UNITS * rank)), inputs.astype(np.float64) @ features.T])
    with Compilation(_model(features, times, rank), [device]) as compilation:
        compilation.finish()
        state = np.zeros((BATCHES, MEMORY * UNITS * rank), np.float32)
        for step in range(STEPS):
            following, result = np.empty_like(state), np.empty((BATCHES, UNITS), np.float32)
            with Execution(compilation) as execution:
                execution.set_input(0, inputs[step])
                execution.set_input(1, state)
                execution.set_output(0, following)
                execution.set_output(1, result)
                execution.compute()
            filtered = np.einsum("mbf,fm->bf", seen[step : step + MEMORY], times)
            wanted = filtered.reshape(BATCHES, UNITS, rank).sum(axis=2)
            np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)
            state = following
