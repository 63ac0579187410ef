# SPDX-License-Identifier: Apache-2.0
"""Cases of SVDF: each filter's memory as a list of its last activations, in float64."""

from __future__ import annotations

import numpy as np

from nn_runtime.codes import FuseCode, OperationCode
from tests.operations.cases import FLOATS, Case, integer, omitted, tensor, weights


def _case(name: str, rank: int, memory_size: int, activation: FuseCode, biased: bool) -> Case:
    batches, input_size, units = 2, 3, 4
    filters = units * rank
    rng = np.random.default_rng(memory_size)

    def draw(*dims: int) -> np.ndarray:
        return rng.integers(-16, 17, dims) / 16

    inputs, by_feature, by_time, bias = (
        draw(batches, input_size),
        draw(filters, input_size),
        draw(filters, memory_size),
        draw(units),
    )
    state = draw(batches, filters, memory_size)
    state_out, output = np.zeros_like(state), np.zeros((batches, units))
    for batch in range(batches):
        for unit in range(units):
            total = float(bias[unit]) if biased else 0.0
            for index in range(unit * rank, (unit + 1) * rank):
                # The last place of the state is room for the new activation.
                memory = [*state[batch, index, :-1].tolist(), float(by_feature[index] @ inputs[batch])]
                total += sum(w * a for w, a in zip(by_time[index].tolist(), memory, strict=True))
                state_out[batch, index] = [*memory[1:], 0.0]
            low, high = {FuseCode.NONE: (-1e9, 1e9), FuseCode.RELU: (0, 1e9), FuseCode.RELU1: (-1, 1)}[activation]
            output[batch, unit] = min(max(total, low), high)
    flat = (batches, filters * memory_size)
    return Case(
        OperationCode.SVDF,
        name,
        (
            tensor(inputs.shape, inputs.reshape(-1)),
            weights(by_feature.shape, by_feature.reshape(-1)),
            weights(by_time.shape, by_time.reshape(-1)),
            weights(bias.shape, bias) if biased else omitted(),
            tensor(flat, state.reshape(-1)),
            integer(rank),
            integer(activation),
        ),
        (tensor(flat, state_out.reshape(-1)), tensor(output.shape, output.reshape(-1))),
        FLOATS,
    )


CASES = (
    _case("rank_1", 1, 5, FuseCode.NONE, True),
    _case("rank_2", 2, 6, FuseCode.RELU, True),
    _case("rank_3_without_bias", 3, 4, FuseCode.RELU1, False),
    _case("memory_of_one", 2, 1, FuseCode.NONE, False),
)
