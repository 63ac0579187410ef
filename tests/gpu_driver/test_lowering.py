# SPDX-License-Identifier: Apache-2.0
"""Segments, aliases and fusion, without a device."""

from __future__ import annotations

import numpy as np
import pytest

from gpu_driver import chain
from gpu_driver.launch import CopyBuffer, Launch
from gpu_driver.lowering import Known, Lowering, Segment
from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.hal.types import HalError
from tests.gpu_driver.graphs import Graph
from tests.gpu_driver.profiles import CPU_PROFILE, GPU_PROFILE

ADD, CONV, PAD, RELU6, RESHAPE, TRANSPOSE = (
    OperationCode.ADD,
    OperationCode.CONV_2D,
    OperationCode.PAD,
    OperationCode.RELU6,
    OperationCode.RESHAPE,
    OperationCode.TRANSPOSE,
)
IMAGE = (1, 4, 4, 3)


def lower(graph: Graph, known: Known | None = None) -> Segment:
    lowering = Lowering(graph.model(), CPU_PROFILE)
    return lowering.lower(0, known or lowering.static_inputs())


def convolution(graph: Graph, source: int, output: int, activation: FuseCode = FuseCode.NONE) -> None:
    """A 3x3 convolution without padding, 3 to 3 channels."""
    weights = graph.constant(np.ones((3, 3, 3, 3), np.float32))
    bias = graph.constant(np.zeros(3, np.float32))
    zeros = [graph.integer(0) for _ in range(4)]
    ones = [graph.integer(1), graph.integer(1)]
    graph.operation(CONV, [source, weights, bias, *zeros, *ones, graph.integer(activation)], output)


def kernels(segment: Segment) -> list[str]:
    return [command.kernel.name if isinstance(command, Launch) else "copy" for command in segment.commands]


def test_reshape_of_a_temporary_is_no_work() -> None:
    graph = Graph()
    source, transposed, output = graph.input((2, 3)), graph.temporary((3, 2)), graph.output((6,))
    graph.operation(TRANSPOSE, [source, graph.constant(np.array([1, 0], np.int32))], transposed)
    graph.operation(RESHAPE, [transposed, graph.constant(np.array([6], np.int32))], output)
    segment = lower(graph)
    assert kernels(segment) == ["strided_copy_rows"]
    assert segment.storage == {transposed: output}
    assert segment.reads == {source}
    assert segment.writes == {output}


def test_reshape_from_input_to_output_is_a_copy() -> None:
    graph = Graph()
    source, output = graph.input((2, 3)), graph.output((6,))
    graph.operation(RESHAPE, [source, graph.constant(np.array([6], np.int32))], output)
    segment = lower(graph)
    assert isinstance(segment.commands[0], CopyBuffer)
    assert segment.reads == {source}


def test_padding_is_folded_into_the_convolution() -> None:
    graph = Graph()
    source, padded, output = graph.input(IMAGE), graph.temporary((1, 6, 6, 3)), graph.output(IMAGE)
    amounts = np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32)
    graph.operation(PAD, [source, graph.constant(amounts)], padded)
    convolution(graph, padded, output)
    segment = lower(graph)
    assert kernels(segment) == ["chain"]
    assert segment.commands[0].operations == (1, 0)
    assert padded not in segment.operands


def test_padding_with_another_reader_stays() -> None:
    graph = Graph()
    source, padded, output = graph.input(IMAGE), graph.output((1, 6, 6, 3)), graph.output(IMAGE)
    amounts = np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32)
    graph.operation(PAD, [source, graph.constant(amounts)], padded)
    convolution(graph, padded, output)
    (launch,) = lower(graph).commands
    assert isinstance(launch, Launch)
    assert [step.kind for step in launch.steps] == [chain.Kind.FILL, chain.Kind.COPY, chain.Kind.CONVOLVE]


@pytest.mark.parametrize("activation", [FuseCode.NONE, FuseCode.RELU])
def test_activation_is_folded_only_where_there_is_none_yet(activation: FuseCode) -> None:
    graph = Graph()
    source, between, output = graph.input(IMAGE), graph.temporary((1, 2, 2, 3)), graph.output((1, 2, 2, 3))
    convolution(graph, source, between, activation)
    graph.operation(OperationCode.RELU1, [between], output)
    (launch,) = lower(graph).commands
    assert isinstance(launch, Launch)
    (step,) = launch.steps
    assert (step.epilogue is None) == (activation == FuseCode.NONE)


def test_residual_is_folded_when_the_other_side_exists() -> None:
    graph = Graph()
    source, other = graph.input(IMAGE), graph.input((1, 2, 2, 3))
    between, output = graph.temporary((1, 2, 2, 3)), graph.output((1, 2, 2, 3))
    convolution(graph, source, between)
    graph.operation(ADD, [between, other, graph.integer(FuseCode.RELU6)], output)
    segment = lower(graph)
    assert kernels(segment) == ["chain"]
    launch = segment.commands[0]
    assert isinstance(launch, Launch)
    assert launch.operations == (0, 1)
    (step,) = launch.steps
    assert step.residual is not None
    assert [step.values[name] for name in ("low", "high")] == [0.0, 6.0]


def test_residual_waits_for_a_later_operand() -> None:
    """The first convolution cannot take the ADD, whose other side comes later; the second one can."""
    graph = Graph()
    source, other, output = graph.input(IMAGE), graph.input(IMAGE), graph.output((1, 2, 2, 3))
    first, second = graph.temporary((1, 2, 2, 3)), graph.temporary((1, 2, 2, 3))
    convolution(graph, source, first)
    convolution(graph, other, second)
    graph.operation(ADD, [first, second, graph.integer(FuseCode.NONE)], output)
    segment = lower(graph)
    (launch,) = segment.commands
    assert isinstance(launch, Launch)
    assert [step.operations for step in launch.steps] == [(0,), (1, 2)]


def test_weights_known_only_at_run_time_take_the_general_kernel() -> None:
    graph = Graph()
    source, weights, output = graph.input(IMAGE), graph.input((3, 3, 3, 3)), graph.output((1, 2, 2, 3))
    bias = graph.constant(np.zeros(3, np.float32))
    numbers = [graph.integer(value) for value in (0, 0, 0, 0, 1, 1, 0)]
    graph.operation(CONV, [source, weights, bias, *numbers], output)
    assert kernels(lower(graph)) == ["conv_2d"]


def test_a_gpu_takes_tiles() -> None:
    graph = Graph()
    source, output = graph.input(IMAGE), graph.output((1, 2, 2, 3))
    convolution(graph, source, output)
    lowering = Lowering(graph.model(), GPU_PROFILE)
    assert kernels(lowering.lower(0, lowering.static_inputs())) == ["matmul_tiled"]


def computed_shape() -> tuple[Graph, int, int]:
    """TRANSPOSE by an input, then RESHAPE to a shape that the first operation computes."""
    graph = Graph()
    source, numbers = graph.input((2, 3)), graph.input((3,), OperandCode.TENSOR_INT32)
    shape, output = graph.temporary((2,), OperandCode.TENSOR_INT32), graph.output((0, 0))
    start = graph.constant(np.array([0], np.int32))
    graph.operation(OperationCode.SLICE, [numbers, start, graph.constant(np.array([2], np.int32))], shape)
    graph.operation(RESHAPE, [source, shape], output)
    return graph, shape, output


def test_a_segment_ends_before_a_value_computed_on_the_device() -> None:
    graph, shape, output = computed_shape()
    lowering = Lowering(graph.model(), CPU_PROFILE)
    first = lowering.lower(0, lowering.static_inputs())
    assert (first.stop, first.parameters) == (1, (shape,))
    assert shape in first.writes
    known = Known(first.dimensions, {shape: np.array([3, 2], np.int32)}, frozenset(), first.done_ahead)
    second = lowering.lower(1, known)
    assert second.stop == 2
    assert second.dimensions[output] == (3, 2)


def test_a_shape_that_contradicts_the_model_is_refused() -> None:
    graph = Graph()
    source, output = graph.input((2, 3)), graph.output((3, 3))
    graph.operation(TRANSPOSE, [source, graph.constant(np.array([1, 0], np.int32))], output)
    with pytest.raises(HalError, match=r"operation 0 TRANSPOSE: .*\[3, 2\]"):
        lower(graph)


def test_unknown_input_dimensions_wait_for_the_request() -> None:
    graph = Graph()
    source, output = graph.input((0, 3)), graph.output((3, 0))
    graph.operation(TRANSPOSE, [source, graph.constant(np.array([1, 0], np.int32))], output)
    assert lower(graph).stop == 0
    segment = lower(
        graph, Known({source: (5, 3)} | dict(Lowering(graph.model(), CPU_PROFILE).static_inputs().dimensions), {})
    )
    assert segment.dimensions[output] == (3, 5)
