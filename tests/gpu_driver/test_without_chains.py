# SPDX-License-Identifier: Apache-2.0
"""CPU-type devices that build no chains, as rusticl's: the general kernels do what a step of a chain would."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import OperationCode
from nn_runtime.devices import find_device
from tests.gpu_driver.drawn import FLOAT, QUANT8, SIGNED, inverted_residuals
from tests.gpu_driver.graphs import Graph, request
from tests.gpu_driver.running import fresh, prepare, run

if TYPE_CHECKING:
    from gpu_driver.driver import Device
    from nn_runtime.codes import OperandCode


@pytest.fixture
def rusticl(opencl_device: Device) -> Device:
    """The device as if it were rusticl's."""
    if not opencl_device.profile.is_cpu:
        pytest.skip("a CPU alone is taken for llvmpipe")
    device = fresh(opencl_device)
    device.profile = replace(device.profile, slug="rusticl")
    return device


@pytest.mark.parametrize("code", [FLOAT, QUANT8, SIGNED])
def test_convolutions_and_sums(rusticl: Device, code: OperandCode) -> None:
    network = inverted_residuals(code)
    model, source = network.graph.model(), network.data()
    results = []
    for one in (find_device("nnapi-reference").hal, rusticl):
        results.append(np.empty(network.dims, source.dtype))
        run(prepare(one, model), request([source], results[-1:]))  # type: ignore[arg-type]
    np.testing.assert_allclose(*results, rtol=0, atol=1e-4 if code == FLOAT else 0)


def test_unsigned_bytes_become_signed_ones_without_a_chain(rusticl: Device) -> None:
    graph, dims = Graph(), (1, 4, 4, 16)
    source, real = graph.input(dims, QUANT8, 0.5, 128), graph.temporary(dims)
    graph.operation(OperationCode.DEQUANTIZE, [source], real)
    graph.operation(OperationCode.QUANTIZE, [real], graph.output(dims, SIGNED, 0.5, 0))
    codes, result = np.arange(256, dtype=np.uint8).reshape(dims), np.empty(dims, np.int8)
    prepared = prepare(rusticl, graph.model())
    run(prepared, request([codes], [result]))
    assert np.array_equal(result, codes.astype(np.int16) - 128)
    assert all(program.source_name != "chain.cl" for program in prepared.programs)
