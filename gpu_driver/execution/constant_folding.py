# SPDX-License-Identifier: Apache-2.0
"""Operations on constants, and of bytes: run once on the device at preparation, by kernels that compile quickly."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyopencl as cl

from gpu_driver.execution.compiled_graph import CompiledGraph
from gpu_driver.execution.execution_context import ExecutionContext
from gpu_driver.execution.graph_run import Commands, GraphRun, Limits
from gpu_driver.passes import simplified
from gpu_driver.passes.constants import constant_part, foldable
from gpu_driver.passes.graph import Graph, Rewritten
from gpu_driver.passes.tables import Island, apart, islands, look_up, of_all_codes, of_requantisation
from nn_runtime.codes import OperationCode
from nn_runtime.hal.types import HalError
from nn_runtime.hal.views import typed_array
from nn_runtime.operand import dtype_of, element_count
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpu_driver.device.context import DeviceContext
    from gpu_driver.device.device_memory import DeviceBuffer
    from gpu_driver.device.programs import Program
    from gpu_driver.device_profile import DeviceProfile
    from nn_runtime.hal.types import Model, Subgraph
    from nn_runtime.operand import Array, Dimensions


@dataclass(frozen=True)
class Folded:
    """A subgraph whose operations on constants are done, and the programs that did them."""

    graph: Rewritten
    programs: frozenset[Program] = frozenset()


def fold_constants(device: DeviceContext, model: Model, before: Rewritten, profile: DeviceProfile) -> Folded:
    """Compute what `foldable` names, again where that tells the parameters of more.

    Programs are left unwarmed and not stored, so that whoever needs more of their kernels can add them before. An
    operation that fails stays, and with it all of its round: the execution says why.
    """
    folded = Folded(before)
    while True:
        graph = Graph(model, folded.graph)
        operations = foldable(graph)
        part = constant_part(graph, operations)
        if not part.output_indexes:
            return folded
        try:
            values, programs = _computed(device, model, part, profile)
        except (HalError, cl.Error):
            return folded
        for at in operations:
            graph.remove(at)
        for operand, value in values.items():
            graph.make_constant(operand, value)
        folded = Folded(graph.rewritten(), folded.programs | programs)


def fold_into_tables(device: DeviceContext, model: Model, before: Folded, profile: DeviceProfile) -> Folded:
    """Compute what operations on real numbers between 8-bit tensors make of every code, where that is a table.

    What changes nothing between them is left out before. Where the device fails, they stay.
    """
    if all(operation.type != OperationCode.QUANTIZE for operation in before.graph.subgraph.operations):
        return before
    graph = Graph(model, simplified(model, before.graph))
    programs = before.programs
    wanted: list[Island] = []
    for island in islands(graph):
        table = of_requantisation(graph, island)
        if table is None:
            wanted.append(island)
        else:
            look_up(graph, island, table)
    groups = [(group, of_all_codes(graph, group)) for group in apart(wanted)]
    while groups:
        group, part = groups.pop()
        try:
            tables, used = _computed(device, model, part, profile)
        except (HalError, cl.Error):
            if len(group) > 1:  # one may be to blame, or all of them want too much memory
                groups += [([island], of_all_codes(graph, [island])) for island in group]
            continue
        for island, table in zip(group, tables.values(), strict=True):
            look_up(graph, island, table)
        programs |= used
    return Folded(graph.rewritten(), programs)


def _computed(
    device: DeviceContext, model: Model, part: Subgraph, profile: DeviceProfile
) -> tuple[Mapping[int, Array], frozenset[Program]]:
    """Return the outputs of a subgraph without inputs by operand, and the programs that made them."""
    compiled = CompiledGraph(device, model, Rewritten.of(part), replace(profile, runs_once=True), warmed=False)
    commands = Commands(device.queue, device.staging, None)
    context = ExecutionContext(device)  # holds what the commands work on until they are done
    try:
        outputs = GraphRun(compiled, context, commands, _NoEnds(), Limits(None, 0), {}).run()
        found: dict[int, Array] = {}
        for operand, output in zip(part.output_indexes, outputs, strict=True):
            code = part.operands[operand].type
            data = np.empty(element_count(output.dimensions) * dtype_of(code).itemsize, np.uint8)
            commands.read(output.memory, data)
            found[operand] = typed_array(data, code, output.dimensions)
        commands.wait()
    except BaseException:
        commands.abandon()
        raise
    programs = {program for segment in compiled.segments for program in segment.programs if program is not None}
    return found, frozenset(programs)


class _NoEnds:
    """The ends of a subgraph that has no inputs, and whose outputs lie in memory of its own (Ends)."""

    def input_dimensions(self, place: int) -> Dimensions | None:
        raise IndexError(place)

    def input_data(self, place: int, size_bytes: int) -> Array | None:
        raise IndexError(place)

    def input_memory(self, place: int) -> DeviceBuffer | None:
        raise IndexError(place)

    def output_memory(self, place: int, size_bytes: int) -> DeviceBuffer | None:
        return None

    def outputs_known(self, dimensions: Sequence[Dimensions]) -> None:
        """They are as the model says."""
