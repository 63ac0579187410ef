# SPDX-License-Identifier: Apache-2.0
"""The CPU driver as a HAL device: queries, preparation, execution, failures."""

from __future__ import annotations

import itertools
import os
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from cpu_driver import operations, prepared_model
from cpu_driver.driver import Device, devices
from cpu_driver.graph import Frame
from nn_runtime.codes import DeviceTypeCode, FeatureLevel, OperandCode, OperationCode
from nn_runtime.hal.interfaces import CacheRequest, ExplainsOperations, ReportsProfile
from nn_runtime.hal.memory import SharedMemory
from nn_runtime.hal.types import (
    BufferDesc,
    BufferRole,
    BufferToken,
    DataLocation,
    ErrorStatus,
    ExecutionPreference,
    HalError,
    Model,
    Operand,
    Operation,
    Priority,
    Request,
    RequestArgument,
    Subgraph,
    Timing,
)
from nn_runtime.hal.types import OperandLifeTime as LifeTime
from nn_runtime.model import Model as NdkModel
from tests.nn_runtime.graphs import add, flag, nest_model, refer, tensor
from tests.nn_runtime.hal.models import FLOATS, INPUT, OUTPUT, add_model, constant, pointer, request
from tests.operations.cases import FLOAT32, all_cases, example

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cpu_driver.graph import Graph
    from cpu_driver.prepared_model import PreparedModel
    from nn_runtime.operand import Array

A = np.array([[1, -2], [3, -9]], np.float32)
B = np.array([[1, 1], [1, 4]], np.float32)
WANTED = [[2, 0], [4, 0]]


def _prepare(model: Model) -> PreparedModel:
    return Device().prepare_model(model, ExecutionPreference.FAST_SINGLE_ANSWER, Priority.MEDIUM, None, None)


def _run(prepared: PreparedModel, run: Request, deadline_ns: int | None = None) -> tuple[tuple[int, ...], ...]:
    result = prepared.execute_synchronously(run, False, deadline_ns, None)
    return tuple(shape.dimensions for shape in result.output_shapes)


def _failure(prepared: PreparedModel, run: Request, deadline_ns: int | None = None) -> HalError:
    with pytest.raises(HalError) as caught:
        _run(prepared, run, deadline_ns)
    return caught.value


def test_queries() -> None:
    (device,) = devices()
    assert device.name == "nnapi-reference"
    assert device.get_type() == DeviceTypeCode.CPU
    assert device.get_feature_level() == FeatureLevel.LEVEL_8
    assert device.get_version_string()
    assert device.get_number_of_cache_files_needed() == (0, 0)
    capabilities = device.get_capabilities()
    assert set(capabilities.operand_performance) == set(OperandCode)
    assert {info.exec_time for info in capabilities.operand_performance.values()} == {1.0}
    assert isinstance(device, ExplainsOperations)


def test_no_cache() -> None:
    with pytest.raises(HalError) as caught:
        Device().prepare_model_from_cache(None, CacheRequest((), (), bytes(32)))
    assert caught.value.status == ErrorStatus.GENERAL_FAILURE


def test_runs_and_leaves_inputs_alone() -> None:
    prepared, output = _prepare(add_model()), np.empty((2, 2), np.float32)
    a, b = A.copy(), B.copy()
    assert _run(prepared, request([a, b], [output])) == ((2, 2),)
    assert output.tolist() == WANTED
    assert np.array_equal(a, A)
    assert np.array_equal(b, B)


def test_arguments_in_pools_at_odd_offsets() -> None:
    pool = SharedMemory.create(64)
    pool.array()[1:17] = A.reshape(-1).view(np.uint8)
    pool.array()[17:33] = B.reshape(-1).view(np.uint8)

    def at(offset: int) -> RequestArgument:
        return RequestArgument(location=DataLocation(0, offset, 16))

    _run(_prepare(add_model()), Request((at(1), at(17)), (at(33),), (pool,)))
    assert pool.array()[33:49].copy().view(np.float32).reshape(2, 2).tolist() == WANTED


def test_unknown_sizes_change_from_run_to_run() -> None:
    prepared = _prepare(add_model((0, 2)))
    for rows in (1, 4, 2):
        data, output = np.ones((rows, 2), np.float32), np.empty((rows, 2), np.float32)
        arguments = (pointer(data, (rows, 2)), pointer(data, (rows, 2)))
        assert _run(prepared, Request(arguments, (pointer(output),))) == ((rows, 2),)
        assert output.tolist() == [[2, 2]] * rows


def test_a_shape_that_is_an_input_changes_from_run_to_run() -> None:
    ints = OperandCode.TENSOR_INT32
    operands = (
        Operand(FLOATS, (2, 3), lifetime=INPUT),
        Operand(ints, (2,), lifetime=INPUT),
        Operand(FLOATS, (0, 0), lifetime=OUTPUT),
    )
    prepared = _prepare(Model(Subgraph(operands, (Operation(OperationCode.RESHAPE, (0, 1), (2,)),), (0, 1), (2,))))
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    for wanted in ((3, 2), (1, 6), (6, 1)):
        output = np.empty(wanted, np.float32)
        assert _run(prepared, request([data, np.array(wanted, np.int32)], [output])) == (wanted,)
        assert output.ravel().tolist() == [0, 1, 2, 3, 4, 5]


def test_a_fenced_execution_has_no_longer_than_it_was_given() -> None:
    prepared, run = _prepare(add_model()), request([A, B], [np.empty((2, 2), np.float32)])
    with pytest.raises(HalError) as caught:
        prepared.execute_fenced(run, (), False, None, None, 0)
    assert caught.value.status == ErrorStatus.MISSED_DEADLINE_PERSISTENT


def test_output_too_small_tells_all_shapes() -> None:
    error = _failure(_prepare(add_model(output_dims=(0, 0))), request([A, B], [np.empty(3, np.float32)]))
    assert error.status == ErrorStatus.OUTPUT_INSUFFICIENT_SIZE
    assert [(shape.dimensions, shape.is_sufficient) for shape in error.output_shapes] == [((2, 2), False)]


def test_computed_shape_that_contradicts_the_model() -> None:
    error = _failure(_prepare(add_model(output_dims=(4, 1))), request([A, B], [np.empty((4, 1), np.float32)]))
    assert error.status == ErrorStatus.GENERAL_FAILURE
    assert "operation 1 RELU" in str(error)


def test_computed_shape_that_contradicts_the_request() -> None:
    output = pointer(np.empty((4, 1), np.float32), (4, 1))
    run = Request((pointer(A), pointer(B)), (output,))
    error = _failure(_prepare(add_model(output_dims=(0, 0))), run)
    assert error.status == ErrorStatus.GENERAL_FAILURE
    assert "output 0: the request says [4, 1], computed [2, 2]" in str(error)


def test_omitted_input_of_an_operation_that_needs_it() -> None:
    run = Request((pointer(A), RequestArgument(has_no_value=True)), (pointer(np.empty_like(A)),))
    prepared = _prepare(add_model())
    error = _failure(prepared, run)
    assert error.status == ErrorStatus.GENERAL_FAILURE
    assert "operation 0 ADD" in str(error)
    output = np.empty_like(A)
    _run(prepared, request([A, B], [output]))
    assert output.tolist() == WANTED


def test_invalid_model_and_preference() -> None:
    model = add_model()
    broken = replace(model, main=replace(model.main, output_indexes=()))
    for call in (Device().get_supported_operations, _prepare):
        with pytest.raises(HalError) as caught:
            call(broken)
        assert caught.value.status == ErrorStatus.INVALID_ARGUMENT
    with pytest.raises(HalError) as caught:
        Device().prepare_model(model, 7, Priority.MEDIUM, None, None)  # type: ignore[arg-type]
    assert caught.value.status == ErrorStatus.INVALID_ARGUMENT


def test_missing_function_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    operations.function_of(OperationCode.ADD)
    monkeypatch.delitem(operations._functions, OperationCode.ADD)
    supports = Device().explain_operations(add_model())
    assert [support.supported for support in supports] == [False, True]
    assert supports[0].reason == "no CPU function for ADD yet"
    with pytest.raises(HalError, match="operation 0 ADD: no CPU function"):
        _prepare(add_model())


def test_a_foreign_exception_becomes_a_general_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    operations.function_of(OperationCode.ADD)

    def broken(_op: object) -> tuple[Array, ...]:
        raise KeyError("lost")

    monkeypatch.setitem(operations._functions, OperationCode.ADD, broken)
    error = _failure(_prepare(add_model()), request([A, B], [np.empty_like(A)]))
    assert error.status == ErrorStatus.GENERAL_FAILURE
    assert "operation 0 ADD: KeyError" in str(error)
    assert isinstance(error.__cause__, KeyError)


def test_too_little_memory_may_be_enough_later(monkeypatch: pytest.MonkeyPatch) -> None:
    operations.function_of(OperationCode.ADD)

    def greedy(_op: object) -> tuple[Array, ...]:
        raise MemoryError

    monkeypatch.setitem(operations._functions, OperationCode.ADD, greedy)
    error = _failure(_prepare(add_model()), request([A, B], [np.empty_like(A)]))
    assert error.status == ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
    assert str(error) == "operation 0 ADD: out of memory"


def test_a_buffer_of_unknown_size_grows_with_what_is_written() -> None:
    device = Device()
    prepared = device.prepare_model(
        add_model((0, 2)), ExecutionPreference.FAST_SINGLE_ANSWER, Priority.MEDIUM, None, None
    )
    buffer, token = device.allocate(BufferDesc(), [prepared], [], [BufferRole(0, 0, 1.0)])
    there = (RequestArgument(location=DataLocation(pool_index=0)),)
    for rows in (1, 5, 2):
        data = np.full((rows, 2), rows, np.float32)
        given = (pointer(data, (rows, 2)), pointer(data, (rows, 2)))
        assert _run(prepared, Request(given, there, (BufferToken(token),))) == ((rows, 2),)
        back = SharedMemory.create(8 * rows)
        buffer.copy_to(back)
        assert back.array().view(np.float32).tolist() == [2 * rows] * 2 * rows
    buffer.close()


def test_the_mean_of_a_long_column_loses_no_ones() -> None:
    """2^24 and 2^16 ones, of which a sum in float32 would keep none."""
    ones = 2**16
    values = np.ones((ones + 1, 2), np.float32)
    values[0] = 2**24
    operands = (
        Operand(FLOATS, values.shape, lifetime=INPUT),
        constant(OperandCode.TENSOR_INT32, np.zeros(1, np.int32), (1,)),
        constant(OperandCode.INT32, np.zeros((), np.int32)),
        Operand(FLOATS, (2,), lifetime=OUTPUT),
    )
    model = Model(Subgraph(operands, (Operation(OperationCode.MEAN, (0, 1, 2), (3,)),), (0,), (3,)))
    output = np.empty(2, np.float32)
    _run(_prepare(model), request([values], [output]))
    np.testing.assert_allclose(output, (2**24 + ones) / (ones + 1), rtol=1e-6)


def test_every_byte_but_zero_is_true() -> None:
    operands = (
        Operand(OperandCode.TENSOR_BOOL8, (4,), lifetime=INPUT),
        *(Operand(FLOATS, (4,), lifetime=INPUT) for _ in range(2)),
        Operand(FLOATS, (4,), lifetime=OUTPUT),
    )
    model = Model(Subgraph(operands, (Operation(OperationCode.SELECT, (0, 1, 2), (3,)),), (0, 1, 2), (3,)))
    condition, output = np.array([0, 1, 2, 255], np.uint8), np.empty(4, np.float32)
    _run(_prepare(model), request([condition, np.ones(4, np.float32), np.zeros(4, np.float32)], [output]))
    assert output.tolist() == [0, 1, 1, 1]


@pytest.mark.parametrize("wrong", [np.zeros(4, np.float64), np.zeros(3, np.float32)], ids=["dtype", "size"])
def test_a_function_that_gives_the_wrong_array(monkeypatch: pytest.MonkeyPatch, wrong: Array) -> None:
    operations.function_of(OperationCode.RELU)
    monkeypatch.setitem(operations._functions, OperationCode.RELU, lambda _op: (wrong,))
    error = _failure(_prepare(add_model()), request([A, B], [np.empty_like(A)]))
    assert "operation 1 RELU: output 0: the function must give float32 [2, 2]" in str(error)


def test_inputs_cannot_be_written_by_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    operations.function_of(OperationCode.ADD)

    def writes(op: object) -> tuple[Array, ...]:
        array: Array = op.array("input0")  # type: ignore[attr-defined]
        array[:] = 0
        return (array,)

    monkeypatch.setitem(operations._functions, OperationCode.ADD, writes)
    assert "read-only" in str(_failure(_prepare(add_model()), request([A, B], [np.empty_like(A)])))


def test_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    past = time.monotonic_ns() - 1
    with pytest.raises(HalError) as caught:
        Device().prepare_model(add_model(), ExecutionPreference.LOW_POWER, Priority.LOW, past, None)
    assert caught.value.status == ErrorStatus.MISSED_DEADLINE_PERSISTENT
    run, prepared = request([A, B], [np.empty_like(A)]), _prepare(add_model())
    assert _failure(prepared, run, past).status == ErrorStatus.MISSED_DEADLINE_PERSISTENT
    _run(prepared, run, time.monotonic_ns() + 10**12)

    operations.function_of(OperationCode.ADD)
    deadline = time.monotonic_ns() + 50_000_000

    def slow(op: object) -> tuple[Array, ...]:
        while time.monotonic_ns() < deadline:
            time.sleep(0.01)
        return (op.array("input0"),)  # type: ignore[attr-defined]

    monkeypatch.setitem(operations._functions, OperationCode.ADD, slow)
    assert _failure(_prepare(add_model()), run, deadline).status == ErrorStatus.MISSED_DEADLINE_TRANSIENT


def test_timing_is_unknown_even_when_asked_for() -> None:
    result = _prepare(add_model()).execute_synchronously(request([A, B], [np.empty_like(A)]), True, None, None)
    assert result.timing == Timing()


def test_profile_has_a_row_per_operation() -> None:
    prepared = _prepare(add_model())
    assert isinstance(prepared, ReportsProfile)
    _, profile = prepared.execute_profiled(request([A, B], [np.empty_like(A)]), None, None)
    assert [(row.operations, row.kernel) for row in profile.rows] == [((0,), "numpy add"), ((1,), "numpy relu")]
    starts = [row.start_ns for row in profile.rows]
    assert 0 <= starts[0] <= profile.rows[0].end_ns <= starts[1] <= profile.rows[1].end_ns


def test_fenced_execution_waits_and_returns_no_fence() -> None:
    prepared, output = _prepare(add_model()), np.empty_like(A)
    read, write = os.pipe()
    timer = threading.Timer(0.05, os.write, (write, b"x"))
    timer.start()
    fence, callback = prepared.execute_fenced(request([A, B], [output]), [read], False, None, None, None)
    timer.join()
    os.close(read)
    os.close(write)
    assert fence is None
    assert callback.get_execution_info() == (Timing(), Timing())
    assert output.tolist() == WANTED


def test_fenced_execution_refuses() -> None:
    run = request([A, B], [np.empty_like(A)])
    with pytest.raises(HalError, match="fence") as caught:
        _prepare(add_model()).execute_fenced(run, [-1], False, None, None, None)
    assert caught.value.status == ErrorStatus.INVALID_ARGUMENT
    with pytest.raises(HalError, match="all dimensions must be known"):
        _prepare(add_model(output_dims=(0, 2))).execute_fenced(run, [], False, None, None, None)
    read, write = os.pipe()
    with pytest.raises(HalError) as caught:
        _prepare(add_model()).execute_fenced(run, [read], False, time.monotonic_ns() + 10**7, None, None)
    os.close(read)
    os.close(write)
    assert caught.value.status == ErrorStatus.MISSED_DEADLINE_TRANSIENT


def test_burst_executes_as_usual() -> None:
    burst, output = _prepare(add_model()).configure_execution_burst(), np.empty_like(A)
    burst.execute(request([A, B], [output]), False, None, None)
    burst.close()
    assert output.tolist() == WANTED


def test_executions_at_once_do_not_mix() -> None:
    prepared = _prepare(add_model())
    problems: list[str] = []

    def work(value: float) -> None:
        data, output = np.full((2, 2), value, np.float32), np.empty((2, 2), np.float32)
        for _ in range(100):
            _run(prepared, request([data, data], [output]))
            if not np.all(output == 2 * value):
                problems.append(f"{value}: {output.tolist()}")

    threads = [threading.Thread(target=work, args=(float(i),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems


def test_empty_tensors() -> None:
    operands = (
        Operand(FLOATS, (3, 2), lifetime=INPUT),
        constant(OperandCode.TENSOR_INT32, np.array([3, 0], np.int32), (2,)),
        constant(OperandCode.TENSOR_INT32, np.array([0, 2], np.int32), (2,)),
        Operand(FLOATS, (0, 0), lifetime=OUTPUT),
    )
    model = Model(Subgraph(operands, (Operation(OperationCode.SLICE, (0, 1, 2), (3,)),), (0,), (3,)))
    run = request([np.ones((3, 2), np.float32)], [np.empty(1, np.float32)])
    assert _run(_prepare(model), run) == ((0, 2),)


def test_loop_timeout() -> None:
    case = next(case for case in all_cases() if (case.operation, case.name) == (OperationCode.WHILE, "once"))
    from nn_runtime.testing.conformance import hal_model

    model = hal_model(example(case, FLOAT32))
    condition, body = model.referenced
    # The body passes its flag on, so that the loop never ends.
    endless = replace(body, operations=(replace(body.operations[0], inputs=(0,)), body.operations[1]))
    prepared = _prepare(replace(model, referenced=(condition, endless)))
    outputs: list[Array] = [np.zeros(1, np.bool_), np.zeros(1, np.float32)]
    run = request([np.ones(1, np.bool_), np.ones(1, np.float32)], outputs)
    with pytest.raises(HalError, match="operation 0 WHILE") as caught:
        prepared.execute_synchronously(run, False, None, 10_000_000)
    assert caught.value.status == ErrorStatus.MISSED_DEADLINE_TRANSIENT


def test_a_nest_of_shared_models_has_a_frame_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    depth = 40
    made: list[Graph] = []

    class Counted(Frame):
        def __init__(self, graph: Graph, referenced: Mapping[int, Frame]) -> None:
            made.append(graph)
            super().__init__(graph, referenced)

    monkeypatch.setattr(prepared_model, "Frame", Counted)
    model = nest_model(depth).hal
    (answer,) = Device().explain_operations(model)
    assert answer.supported
    prepared = _prepare(model)
    assert len(made) == 1 + depth
    values = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    result = np.empty((2, 3), np.float32)
    for condition in (True, False):
        _run(prepared, request([np.array([condition]), values], [result]))
        np.testing.assert_array_equal(result, np.maximum(values, 0))


def test_two_operations_that_refer_to_one_model_keep_their_values_apart() -> None:
    double = NdkModel()
    x, y = (double.add_operand(tensor(2, 3)) for _ in range(2))
    add(double, x, x, y)
    double.identify_inputs_and_outputs([x], [y])
    double.finish()
    twice = NdkModel()
    condition, values = flag(twice), [twice.add_operand(tensor(2, 3)) for _ in range(3)]
    for before, behind in itertools.pairwise(values):
        models = [refer(twice, double), refer(twice, double)]
        twice.add_operation(OperationCode.IF, [condition, *models, before], [behind])
    twice.identify_inputs_and_outputs([condition, values[0]], values[1:])
    twice.finish()
    given = np.arange(6, dtype=np.float32).reshape(2, 3)
    results: list[Array] = [np.empty((2, 3), np.float32) for _ in range(2)]
    _run(_prepare(twice.hal), request([np.array([True]), given], results))
    np.testing.assert_array_equal(results, [2 * given, 4 * given])


def test_temporaries_are_freed_after_their_last_use(monkeypatch: pytest.MonkeyPatch) -> None:
    import weakref

    operations.function_of(OperationCode.RELU)
    seen: list[weakref.ref[Array]] = []
    real = operations._functions[OperationCode.RELU]

    def watched(op: object) -> tuple[Array, ...]:
        results = real(op)  # type: ignore[arg-type]
        alive = [reference() is not None for reference in seen[:-1]]
        assert not any(alive)
        seen.append(weakref.ref(results[0]))
        return results

    monkeypatch.setitem(operations._functions, OperationCode.RELU, watched)
    chain = (
        Operand(FLOATS, (4,), lifetime=INPUT),
        *(Operand(FLOATS, (4,), lifetime=LifeTime.TEMPORARY_VARIABLE) for _ in range(4)),
        Operand(FLOATS, (4,), lifetime=OUTPUT),
    )
    steps = tuple(Operation(OperationCode.RELU, (i,), (i + 1,)) for i in range(5))
    data = np.arange(4, dtype=np.float32)
    _run(_prepare(Model(Subgraph(chain, steps, (0,), (5,)))), request([data], [np.empty_like(data)]))
    assert len(seen) == 5


def test_an_execution_during_which_the_model_is_closed_ends_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prepared, output = _prepare(add_model()), np.empty((2, 2), np.float32)
    execute = Frame.execute

    def closing(frame: Frame, *arguments: Any) -> Any:
        prepared.close()
        return execute(frame, *arguments)

    monkeypatch.setattr(Frame, "execute", closing)
    _run(prepared, request([A, B], [output]))
    assert output.tolist() == WANTED
    assert prepared._idle == []
    assert _failure(prepared, request([A, B], [output])).status == ErrorStatus.INVALID_ARGUMENT
