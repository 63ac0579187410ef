# SPDX-License-Identifier: Apache-2.0
"""What tests of the passes share: what is launched, and what comes out on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpu_driver.launch import Launch
from gpu_driver.lowering import Lowering
from nn_runtime.codes import OperationCode
from nn_runtime.operand import dtype_of
from tests.gpu_driver.graphs import request
from tests.gpu_driver.profiles import CPU_PROFILE
from tests.gpu_driver.running import prepare, run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_driver.driver import Device
    from nn_runtime.hal.types import Model
    from nn_runtime.operand import Array
    from tests.gpu_driver.graphs import Graph


def operations_left(model: Model) -> list[str]:
    """Return the names of the operations that are lowered."""
    return [OperationCode(operation.type).name for operation in Lowering(model, CPU_PROFILE).subgraph.operations]


def commands_of(model: Model) -> list[str]:
    """Return what runs for each inference without constants folded: names of kernels, and copies."""
    lowering = Lowering(model, CPU_PROFILE)
    segment = lowering.lower(0, lowering.static_inputs())
    return [command.kernel.name if isinstance(command, Launch) else "copy" for command in segment.commands]


def launches_on(device: Device, model: Model) -> int:
    """Return how many commands an inference takes on a device, with constants folded."""
    static = prepare(device, model)._graph.static
    assert static is not None
    return len(static.segment.commands)


def results(device: Device, model: Model, inputs: Sequence[Array]) -> list[Array]:
    """Run a model of fixed shapes and return its outputs."""
    operands = (model.main.operands[i] for i in model.main.output_indexes)
    outputs = [np.zeros(operand.dimensions, dtype_of(operand.type)) for operand in operands]
    run(prepare(device, model), request(inputs, outputs))
    return outputs


def transpose(graph: Graph, source: int, perm: Sequence[int], output: int) -> None:
    graph.operation(OperationCode.TRANSPOSE, [source, graph.constant(np.array(perm, np.int32))], output)


def reshape(graph: Graph, source: int, dims: Sequence[int], output: int) -> None:
    graph.operation(OperationCode.RESHAPE, [source, graph.constant(np.array(dims, np.int32))], output)


def random_floats(*dims: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(dims).astype(np.float32)
