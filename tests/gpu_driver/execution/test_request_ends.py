# SPDX-License-Identifier: Apache-2.0
"""Arguments as requests have them: with more room, with dimensions, left out; memory domains of unknown size."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.hal.memory import SharedMemory
from nn_runtime.hal.types import (
    BufferDesc,
    BufferRole,
    BufferToken,
    DataLocation,
    ErrorStatus,
    HalError,
    Request,
    RequestArgument,
)
from tests.gpu_driver.graphs import Graph, request
from tests.gpu_driver.running import filled, on_buffers, prepare, run, transposing

if TYPE_CHECKING:
    from gpu_driver.driver import Device
    from nn_runtime.operand import Dimensions

DATA = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_no_more_is_written_than_the_output_has(opencl_device: Device) -> None:
    result = np.full(9, np.nan, np.float32)
    run(prepare(opencl_device, transposing()), request([DATA], [result]))
    assert np.array_equal(result[:6], DATA.T.reshape(-1))
    assert np.isnan(result[6:]).all()


@pytest.mark.parametrize("dims", [(3, 2), (0, 2), (3, 0), (0, 0), (2, 3), (0, 3), (4, 2)])
def test_dimensions_that_the_request_states(opencl_device: Device, dims: Dimensions) -> None:
    prepared = prepare(opencl_device, transposing())
    result = np.full(np.prod(dims) or 6, np.nan, np.float32)
    asked = request([DATA], [result])
    asked = replace(asked, outputs=(replace(asked.outputs[0], dimensions=dims),))
    if all(wanted in (0, size) for wanted, size in zip(dims, (3, 2), strict=True)):
        (shape,) = run(prepared, asked).output_shapes
        assert shape.dimensions == (3, 2)
        assert np.array_equal(result, DATA.T.reshape(-1))
        return
    with pytest.raises(HalError) as caught:
        run(prepared, asked)
    assert caught.value.status == ErrorStatus.GENERAL_FAILURE
    assert str(caught.value) == f"output 0: the request says {list(dims)}, computed [3, 2]"
    assert np.isnan(result).all()


def test_an_input_whose_dimensions_the_model_states_alone(opencl_device: Device) -> None:
    """Beside one whose dimensions the request states."""
    graph = Graph()
    given = [graph.input((2, 3)), graph.input((0, 0))]
    graph.operation(OperationCode.ADD, [*given, graph.integer(FuseCode.NONE)], graph.output((0, 0)))
    result = np.full((2, 3), np.nan, np.float32)
    asked = request([DATA, 2 * DATA], [result])
    asked = replace(asked, inputs=(replace(asked.inputs[0], dimensions=()), asked.inputs[1]))
    run(prepare(opencl_device, graph.model()), asked)
    assert np.array_equal(result, 3 * DATA)


@pytest.mark.parametrize("dims", [(2, 3), (0, 3)])
@pytest.mark.parametrize("is_bound", [False, True])
def test_padding_is_neither_read_nor_written(opencl_device: Device, dims: Dimensions, is_bound: bool) -> None:
    graph = Graph()
    source = graph.input(dims)
    graph.operation(OperationCode.ADD, [source, source, graph.integer(FuseCode.NONE)], graph.output(dims))
    data, result = np.arange(9, dtype=np.float32), np.full(9, np.nan, np.float32)
    where = [DataLocation(length=DATA.nbytes, padding=3 * 4, pointer=array) for array in (data, result)]
    arguments = [RequestArgument(location=one, dimensions=DATA.shape) for one in where]
    asked = Request((arguments[0],), (arguments[1],))
    prepared = prepare(opencl_device, graph.model())
    bound = prepared.create_reusable_execution(asked, False, None) if is_bound else None
    if bound is None:
        run(prepared, asked)
    else:
        bound.execute_synchronously(None)
    assert np.array_equal(result[:6], 2 * DATA.reshape(-1))
    assert np.isnan(result[6:]).all()


def test_a_bound_output_of_unknown_size_has_more_room(opencl_device: Device) -> None:
    """No more is written than is computed."""
    graph = Graph()
    source = graph.input((2, 3))
    graph.operation(OperationCode.ADD, [source, source, graph.integer(FuseCode.NONE)], graph.output((0, 0)))
    result = np.full(9, np.nan, np.float32)
    bound = prepare(opencl_device, graph.model()).create_reusable_execution(request([DATA], [result]), False, None)
    assert bound is not None
    (shape,) = bound.execute_synchronously(None).output_shapes
    assert shape.dimensions == (2, 3)
    assert np.array_equal(result[:6], 2 * DATA.reshape(-1))
    assert np.isnan(result[6:]).all()


def test_an_output_that_is_left_out(opencl_device: Device) -> None:
    graph = Graph()
    source, none = graph.input((2, 3)), graph.integer(FuseCode.NONE)
    graph.operation(OperationCode.ADD, [source, source, none], graph.output((2, 3)))
    graph.operation(OperationCode.MUL, [source, source, none], graph.output((2, 3)))
    result = np.empty((2, 3), np.float32)
    asked = request([DATA], [result])
    prepared = prepare(opencl_device, graph.model())
    run(prepared, replace(asked, outputs=(RequestArgument(has_no_value=True), *asked.outputs)))
    assert np.array_equal(result, DATA * DATA)
    run(prepared, replace(asked, outputs=(*asked.outputs, RequestArgument(has_no_value=True))))
    assert np.array_equal(result, DATA + DATA)


def between(source: int, destination: int, dims: Dimensions) -> Request:
    asked = on_buffers(source, destination)
    return replace(asked, inputs=(replace(asked.inputs[0], dimensions=dims),))


def test_a_value_in_a_memory_domain_shapes_the_output(opencl_device: Device) -> None:
    graph = Graph()
    source, wanted = graph.input((2, 3)), graph.input((0,), OperandCode.TENSOR_INT32)
    graph.operation(OperationCode.RESHAPE, [source, wanted], graph.output(()))
    prepared = prepare(opencl_device, graph.model())
    buffer, token = opencl_device.allocate(BufferDesc(), [prepared], [BufferRole(0, 1, 1.0)], [])
    for dims in ((3, 2), (1, 6, 1), (6,)):
        buffer.copy_from(filled(np.array(dims, np.int32)), (len(dims),))
        result = np.full(6, np.nan, np.float32)
        asked = request([DATA], [result])
        of_buffer = RequestArgument(location=DataLocation(pool_index=0), dimensions=(len(dims),))
        asked = replace(asked, inputs=(*asked.inputs, of_buffer), pools=(BufferToken(token),))
        assert run(prepared, asked).output_shapes[0].dimensions == dims
        assert np.array_equal(result, DATA.reshape(-1))
    buffer.close()


def test_memory_domains_of_unknown_size(opencl_device: Device) -> None:
    """They grow for what is computed."""
    prepared = prepare(opencl_device, transposing())
    role = [BufferRole(0, 0, 1.0)]
    (first, first_token), (second, second_token) = (
        opencl_device.allocate(BufferDesc(), [prepared], role, role) for _ in range(2)
    )
    for rows, columns in ((2, 3), (40, 50), (3, 1)):
        data = np.random.default_rng(rows).standard_normal((rows, columns)).astype(np.float32)
        first.copy_from(filled(data), data.shape)
        run(prepared, between(first_token, second_token, (rows, columns)))
        result = np.empty((rows, columns), np.float32)
        back = SharedMemory.create(result.nbytes)
        second.copy_to(back)
        assert np.array_equal(back.array().view(np.float32).reshape(columns, rows), data.T)
        run(prepared, between(second_token, first_token, (columns, rows)))
        first.copy_to(back)
        assert np.array_equal(back.array().view(np.float32).reshape(rows, columns), data)
    first.close()
    second.close()
