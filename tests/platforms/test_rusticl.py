# SPDX-License-Identifier: Apache-2.0
"""What llvmpipe, rusticl's CPU device, gets: no chain.cl, which takes it minutes to build, and no loop of barriers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gpu_driver.launch import Launch
from gpu_driver.lowering import Lowering
from nn_runtime.testing.conformance import hal_model
from tests.gpu_driver.drawn import FLOAT, QUANT8, SIGNED, inverted_residuals
from tests.gpu_driver.profiles import CPU_PROFILE
from tests.operations.cases import examples

if TYPE_CHECKING:
    from nn_runtime.codes import OperandCode


@pytest.mark.parametrize("code", [FLOAT, QUANT8, SIGNED])
def test_rusticl_gets_no_chain(code: OperandCode) -> None:
    lowering = Lowering(inverted_residuals(code).graph.model(), replace(CPU_PROFILE, slug="rusticl"))
    commands = lowering.lower(0, lowering.static_inputs()).commands
    sources = [command.kernel.source for command in commands if isinstance(command, Launch)]
    assert len(sources) > 10
    assert "chain.cl" not in sources


def test_rusticl_makes_steps_of_recurrent_layers_one_by_one() -> None:
    kernels = set()
    for example in examples():
        if "rnn" in example.name or "lstm" in example.name:
            lowering = Lowering(hal_model(example), replace(CPU_PROFILE, slug="rusticl"))
            commands = lowering.lower(0, lowering.static_inputs()).commands
            kernels |= {command.kernel.name for command in commands if isinstance(command, Launch)}
    assert {"rnn_step", "lstm_cell"} <= kernels
    assert not kernels & {"rnn_sequence", "lstm_sequence"}
