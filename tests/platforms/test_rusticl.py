# SPDX-License-Identifier: Apache-2.0
"""What llvmpipe, rusticl's CPU device, gets: no chain.cl, which takes it minutes to build."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gpu_driver.launch import Launch
from gpu_driver.lowering import Lowering
from tests.gpu_driver.drawn import FLOAT, QUANT8, SIGNED, inverted_residuals
from tests.gpu_driver.profiles import CPU_PROFILE

if TYPE_CHECKING:
    from nn_runtime.codes import OperandCode


@pytest.mark.parametrize("code", [FLOAT, QUANT8, SIGNED])
def test_rusticl_gets_no_chain(code: OperandCode) -> None:
    lowering = Lowering(inverted_residuals(code).graph.model(), replace(CPU_PROFILE, slug="rusticl"))
    commands = lowering.lower(0, lowering.static_inputs()).commands
    sources = [command.kernel.source for command in commands if isinstance(command, Launch)]
    assert len(sources) > 10
    assert "chain.cl" not in sources
