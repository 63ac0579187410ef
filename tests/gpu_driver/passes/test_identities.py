# SPDX-License-Identifier: Apache-2.0
"""Operations that change nothing: found, left out, and aliases or one copy where an operand has to have its memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.hal.memory import SharedMemory
from nn_runtime.hal.types import BufferDesc, BufferRole
from tests.gpu_driver.graphs import Graph, request
from tests.gpu_driver.passes.simplifying import (
    commands_of,
    launches_on,
    operations_left,
    random_floats,
    reshape,
    results,
    transpose,
)
from tests.gpu_driver.running import filled, on_buffers, prepare, run

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_driver.driver import Device
    from nn_runtime.operand import Dimensions

QUANT8, SIGNED, FLOAT16 = (
    OperandCode.TENSOR_QUANT8_ASYMM,
    OperandCode.TENSOR_QUANT8_ASYMM_SIGNED,
    OperandCode.TENSOR_FLOAT16,
)
IMAGE = (1, 4, 6, 3)


def numbers(*values: int) -> Callable[[Graph], int]:
    return lambda graph: graph.constant(np.array(values, np.int32))


def whole(value: int) -> Callable[[Graph], int]:
    return lambda graph: graph.integer(value)


def real(value: float) -> Callable[[Graph], int]:
    return lambda graph: graph.real(value)


def flag(value: bool) -> Callable[[Graph], int]:
    return lambda graph: graph.flag(value)


def paddings(rank: int) -> Callable[[Graph], int]:
    return lambda graph: graph.constant(np.zeros((rank, 2), np.int32))


NOTHING = {
    "transpose in order": (OperationCode.TRANSPOSE, [numbers(0, 1, 2, 3)], IMAGE, IMAGE),
    "transpose of an axis of one": (OperationCode.TRANSPOSE, [numbers(1, 0, 2, 3)], IMAGE, (4, 1, 6, 3)),
    "cast": (OperationCode.CAST, [], IMAGE, IMAGE),
    "slice": (OperationCode.SLICE, [numbers(0, 0, 0, 0), numbers(-1, 4, -1, 3)], IMAGE, IMAGE),
    "strided slice": (
        OperationCode.STRIDED_SLICE,
        [numbers(0, 0, 0, 0), numbers(1, 4, 6, 3), numbers(2, 1, 1, 1), whole(0), whole(0), whole(1)],
        IMAGE,
        (4, 6, 3),
    ),
    "reverse": (OperationCode.REVERSE, [numbers(0)], IMAGE, IMAGE),
    "pad": (OperationCode.PAD, [paddings(4)], IMAGE, IMAGE),
    "pad with a value": (OperationCode.PAD_V2, [paddings(4), real(7)], IMAGE, IMAGE),
    "mirror pad": (OperationCode.MIRROR_PAD, [paddings(4), whole(0)], IMAGE, IMAGE),
    "tile": (OperationCode.TILE, [numbers(1, 1, 1, 1)], IMAGE, IMAGE),
    "bilinear": (OperationCode.RESIZE_BILINEAR, [whole(6), whole(4), flag(False)], IMAGE, IMAGE),
    "nearest": (OperationCode.RESIZE_NEAREST_NEIGHBOR, [whole(6), whole(4), flag(False)], IMAGE, IMAGE),
    "concatenation": (OperationCode.CONCATENATION, [whole(3)], IMAGE, IMAGE),
    "split": (OperationCode.SPLIT, [whole(2), whole(1)], IMAGE, IMAGE),
    "shuffle": (OperationCode.CHANNEL_SHUFFLE, [whole(3), whole(3)], IMAGE, IMAGE),
    "space to depth": (OperationCode.SPACE_TO_DEPTH, [whole(1), flag(False)], IMAGE, IMAGE),
    "space to batch": (OperationCode.SPACE_TO_BATCH_ND, [numbers(1, 1), paddings(2), flag(False)], IMAGE, IMAGE),
    "reduction": (OperationCode.REDUCE_SUM, [numbers(0), flag(False)], IMAGE, (4, 6, 3)),
    "mean": (OperationCode.MEAN, [numbers(0), whole(1)], IMAGE, IMAGE),
    "expand": (OperationCode.EXPAND_DIMS, [whole(0)], (4, 6), (1, 4, 6)),
}
SOMETHING = {
    "transpose": (OperationCode.TRANSPOSE, [numbers(0, 2, 1, 3)], IMAGE, (1, 6, 4, 3)),
    "strided slice": (
        OperationCode.STRIDED_SLICE,
        [numbers(0, -1, 0, 0), numbers(1, 0, 6, 3), numbers(1, -1, 1, 1), whole(0), whole(2), whole(0)],
        IMAGE,
        IMAGE,
    ),
    "reverse": (OperationCode.REVERSE, [numbers(1)], IMAGE, IMAGE),
    "bilinear": (OperationCode.RESIZE_BILINEAR, [whole(4), whole(6), flag(False)], IMAGE, (1, 6, 4, 3)),
    "shuffle": (OperationCode.CHANNEL_SHUFFLE, [whole(2), whole(2)], IMAGE, IMAGE),
}


def between_tanhs(case: tuple[OperationCode, list[Callable[[Graph], int]], Dimensions, Dimensions]) -> Graph:
    """An operation on what TANH makes, before another TANH."""
    code, parameters, before, after = case
    graph = Graph()
    made, moved = graph.temporary(before), graph.temporary(after)
    graph.operation(OperationCode.TANH, [graph.input(before)], made)
    graph.operation(code, [made, *(one(graph) for one in parameters)], moved)
    graph.operation(OperationCode.TANH, [moved], graph.output(after))
    return graph


@pytest.mark.parametrize("name", NOTHING)
def test_what_changes_nothing_is_not_launched(opencl_device: Device, name: str) -> None:
    model = between_tanhs(NOTHING[name]).model()
    assert len(commands_of(model)) == 2
    assert launches_on(opencl_device, model) == 2
    _, _, before, after = NOTHING[name]
    source = random_floats(*before)
    (result,) = results(opencl_device, model, [source])
    np.testing.assert_allclose(result, np.tanh(np.tanh(source.astype(np.float64))).reshape(after), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", SOMETHING)
def test_what_changes_something_is_launched(name: str) -> None:
    assert len(commands_of(between_tanhs(SOMETHING[name]).model())) == 3


def test_concatenation_of_one_with_other_quantisation_is_launched() -> None:
    graph = Graph()
    source, output = graph.input((8,), QUANT8, 0.5, 3), graph.output((8,), QUANT8, 0.25, 3)
    graph.operation(OperationCode.CONCATENATION, [source, graph.integer(0)], output)
    (command,) = commands_of(graph.model())
    assert command != "copy"


@pytest.mark.parametrize("code", [QUANT8, SIGNED])
@pytest.mark.parametrize("real_type", [OperandCode.TENSOR_FLOAT32, FLOAT16])
def test_dequantising_and_quantising_the_same_is_nothing(
    opencl_device: Device, code: OperandCode, real_type: OperandCode
) -> None:
    graph = Graph()
    source, between, again, output = (
        graph.input((256,), code, 0.37, 5),
        graph.temporary((256,), real_type),
        graph.temporary((256,), code, 0.37, 5),
        graph.output((256, 1), code, 0.37, 5),
    )
    graph.operation(OperationCode.DEQUANTIZE, [source], between)
    graph.operation(OperationCode.QUANTIZE, [between], again)
    reshape(graph, again, (256, 1), output)
    data = np.arange(256, dtype=np.uint8).view(np.int8 if code == SIGNED else np.uint8)
    assert commands_of(graph.model()) == ["copy"]
    (result,) = results(opencl_device, graph.model(), [data])
    assert np.array_equal(result[:, 0], data)


@pytest.mark.parametrize("code", [QUANT8, SIGNED])
def test_a_model_that_ends_dequantising_and_quantising_the_same(opencl_device: Device, code: OperandCode) -> None:
    """The output has memory of its own, so something writes it."""
    graph = Graph()
    source, between = graph.input((256,), code, 0.37, 5), graph.temporary((256,))
    graph.operation(OperationCode.DEQUANTIZE, [source], between)
    graph.operation(OperationCode.QUANTIZE, [between], graph.output((256,), code, 0.37, 5))
    assert operations_left(graph.model()) == ["DEQUANTIZE", "QUANTIZE"]
    data = np.arange(256, dtype=np.uint8).view(np.int8 if code == SIGNED else np.uint8)
    (result,) = results(opencl_device, graph.model(), [data])
    assert np.array_equal(result, data)


def test_other_quantisation_is_launched(opencl_device: Device) -> None:
    graph = Graph()
    source, between, output = graph.input((8,), QUANT8, 0.5), graph.temporary((8,)), graph.output((8,), QUANT8, 0.25)
    graph.operation(OperationCode.DEQUANTIZE, [source], between)
    graph.operation(OperationCode.QUANTIZE, [between], output)
    assert launches_on(opencl_device, graph.model()) == 1


def test_what_nobody_reads_is_left_out() -> None:
    """Two operations one after the other; SPLIT stays for its other half."""
    graph = Graph()
    source, dead, deader = graph.input((4,)), graph.temporary((4,)), graph.temporary((4,))
    graph.operation(OperationCode.TANH, [source], dead)
    graph.operation(OperationCode.EXP, [dead], deader)
    halves = graph.output((2,)), graph.temporary((2,))
    graph.operation(OperationCode.SPLIT, [source, graph.integer(0), graph.integer(2)], *halves)
    assert operations_left(graph.model()) == ["SPLIT"]


def test_an_input_that_is_an_output_is_copied_once(opencl_device: Device) -> None:
    graph = Graph()
    source, between, output = graph.input((2, 3)), graph.temporary((2, 3)), graph.output((2, 3))
    graph.operation(OperationCode.TILE, [source, graph.constant(np.ones(2, np.int32))], between)
    graph.operation(OperationCode.TRANSPOSE, [between, graph.constant(np.arange(2, dtype=np.int32))], output)
    assert commands_of(graph.model()) == ["copy"]
    data = random_floats(2, 3)
    assert np.array_equal(results(opencl_device, graph.model(), [data])[0], data)


@pytest.mark.parametrize("is_read", [False, True], ids=["last", "read again"])
def test_outputs_that_are_one_tensor(opencl_device: Device, is_read: bool) -> None:
    """Three outputs of the same bytes, of which one more operation may read one."""
    graph = Graph()
    source, made = graph.input((2, 3)), graph.temporary((2, 3))
    graph.operation(OperationCode.NEG, [source], made)
    outputs = [graph.output((2, 3)), graph.output((6,)), graph.output((2, 3))]
    for output, dims in zip(outputs, ((2, 3), (6,), (2, 3)), strict=True):
        reshape(graph, made, dims, output)
    if is_read:
        graph.operation(OperationCode.ABS, [outputs[1]], graph.output((6,)))
    assert commands_of(graph.model()).count("copy") == 2
    data = random_floats(2, 3)
    found = results(opencl_device, graph.model(), [data])
    assert all(np.array_equal(result.reshape(2, 3), -data) for result in found[:3])
    assert not is_read or np.array_equal(found[3], np.abs(data).reshape(6))


def test_an_output_of_a_constant(opencl_device: Device) -> None:
    graph = Graph()
    data = random_floats(2, 3)
    reshape(graph, graph.constant(data), (6,), graph.output((6,)))
    graph.operation(OperationCode.NEG, [graph.input((2,))], graph.output((2,)))
    found = results(opencl_device, graph.model(), [np.zeros(2, np.float32)])
    assert np.array_equal(found[0], data.reshape(6))


def test_identities_between_memory_domains(opencl_device: Device) -> None:
    graph = Graph()
    source, between, output = graph.input((2, 3)), graph.temporary((3, 2)), graph.output((2, 3))
    reshape(graph, source, (3, 2), between)
    reshape(graph, between, (2, 3), output)
    prepared = prepare(opencl_device, graph.model())
    role = BufferRole(0, 0, 1.0)
    first, token = opencl_device.allocate(BufferDesc(), [prepared], [role], [])
    second, other = opencl_device.allocate(BufferDesc(), [prepared], [], [role])
    data = random_floats(2, 3)
    first.copy_from(filled(data), ())
    run(prepared, on_buffers(token, other))
    found = SharedMemory.create(data.nbytes)
    second.copy_to(found)
    assert np.array_equal(found.array().view(np.float32).reshape(2, 3), data)


def test_sizes_that_come_with_the_request(opencl_device: Device) -> None:
    """A TRANSPOSE that moves nothing for one request, and something for the next."""
    graph = Graph()
    source, moved, output = graph.input((0, 0)), graph.temporary((0, 0)), graph.output((0, 0))
    transpose(graph, source, (1, 0), moved)
    graph.operation(OperationCode.NEG, [moved], output)
    prepared = prepare(opencl_device, graph.model())
    for dims in ((1, 5), (2, 5)):
        data, result = random_floats(*dims), np.zeros(dims[::-1], np.float32)
        run(prepared, request([data], [result]))
        assert np.array_equal(result, -data.T)
    counts = sorted(len(one.segment.commands) for one in prepared._graph.segments if one.segment.stop == 2)
    assert counts == [1, 2]


def test_an_activation_is_taken_over_by_what_has_a_fuse_code(opencl_device: Device) -> None:
    graph = Graph()
    first, second = graph.input((4, 5)), graph.input((4, 5))
    added, limited = graph.temporary((4, 5)), graph.temporary((4, 5))
    graph.operation(OperationCode.ADD, [first, second, graph.integer(FuseCode.RELU)], added)
    graph.operation(OperationCode.RELU6, [added], limited)
    graph.operation(OperationCode.RELU, [limited], graph.output((4, 5)))
    assert operations_left(graph.model()) == ["ADD"]
    data = 5 * random_floats(4, 5), 5 * random_floats(4, 5, seed=1)
    (result,) = results(opencl_device, graph.model(), data)
    assert np.array_equal(result, np.clip(data[0] + data[1], 0, 6))
