# SPDX-License-Identifier: Apache-2.0
"""Random blocks: whatever is joined, moved or left out, bytes are the CPU driver's, and real numbers nearly.

`--long` runs 1,000 graphs of each type in each way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpu_driver.device import inline
from nn_runtime.devices import find_device
from tests.gpu_driver.blocks import CODES, FLOAT, Blocks
from tests.gpu_driver.passes.simplifying import results
from tests.gpu_driver.running import discrete

if TYPE_CHECKING:
    from gpu_driver.driver import Device
    from nn_runtime.codes import OperandCode

GRAPHS, LONG_GRAPHS, OPERATIONS = 20, 1000, 30
TOLERANCE = 1e-4
"""Of a result's largest number, or of 1 if that is less."""


@pytest.mark.parametrize("code", [FLOAT, CODES], ids=["float", "bytes"])
@pytest.mark.parametrize("way", ["threads", "calling thread", "GPU"])
def test_results_are_those_of_the_cpu_driver(
    way: str, code: OperandCode, opencl_device: Device, is_long: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "calling thread":
        monkeypatch.setattr(inline, "WAKE_NS", 1 << 40)
    device = discrete(opencl_device) if way == "GPU" else opencl_device
    reference = find_device("nnapi-reference").hal
    for seed in range(LONG_GRAPHS if is_long else GRAPHS):
        blocks = Blocks(seed, code)
        model = blocks.model(OPERATIONS)
        for got, wanted in zip(
            results(device, model, blocks.inputs), results(reference, model, blocks.inputs), strict=True
        ):
            greatest = max(1.0, float(np.abs(wanted).max())) if code == FLOAT else 0.0
            np.testing.assert_allclose(
                got, wanted, rtol=0, atol=TOLERANCE * greatest, err_msg=f"seed {seed}: {', '.join(blocks.names)}"
            )


@pytest.mark.parametrize("code", [FLOAT, CODES], ids=["float", "bytes"])
def test_blocks_are_varied(code: OperandCode) -> None:
    drawn = [Blocks(seed, code) for seed in range(GRAPHS)]
    models = [blocks.model(OPERATIONS) for blocks in drawn]
    names = {name for blocks in drawn for name in blocks.names}
    assert len(names) >= 20
    assert {len(model.main.operands[0].dimensions) for model in models} == {2, 3, 4}
    assert min(len(model.main.operations) for model in models) >= OPERATIONS
