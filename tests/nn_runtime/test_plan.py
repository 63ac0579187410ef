# SPDX-License-Identifier: Apache-2.0
"""Plans at work: splits, temporaries of unknown size, fallbacks (AOSP TestPartitioning, TestFailingDriver)."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import FeatureLevel, OperandCode, OperationCode
from nn_runtime.device import REFERENCE_NAME
from nn_runtime.errors import BadData, OperationFailed, OutputInsufficientSize
from nn_runtime.execution import Execution
from nn_runtime.hal.types import ErrorStatus, ExecutionResult, HalError, OutputShape, Request
from nn_runtime.memory import Memory
from nn_runtime.memory_desc import MemoryDesc
from nn_runtime.model import Model
from nn_runtime.operand import OperandType
from nn_runtime.testing.sample_drivers import SampleDevice, SamplePreparedModel
from tests.nn_runtime.graphs import UNARY, add, chain_model, finished, numbers, run, scalar, tensor
from tests.nn_runtime.test_partition import names_of, plan_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from nn_runtime.compilation import Compilation

RELU, TANH, LOGISTIC = OperationCode.RELU, OperationCode.TANH, OperationCode.LOGISTIC


def expected(codes: list[OperationCode], x: np.ndarray) -> np.ndarray:
    functions = {
        RELU: lambda v: np.maximum(v, 0),
        TANH: np.tanh,
        LOGISTIC: lambda v: 1 / (1 + np.exp(-v)),
    }
    for code in codes:
        x = functions[code](x)
    return x


def split(
    codes: list[OperationCode], fallback: bool = False, **model: object
) -> tuple[list[SampleDevice], Compilation]:
    """A chain over two devices: one takes TANH, the other the rest."""
    devices = [SampleDevice("rest", {RELU, LOGISTIC}), SampleDevice("tanh", {TANH})]
    return devices, finished(chain_model(codes, **model), devices, fallback)  # type: ignore[arg-type]


@pytest.mark.parametrize("inner_dims", [None, (0, 3), (0, 0), ()])
def test_a_split_chain_computes_what_the_whole_does(inner_dims: tuple[int, ...] | None) -> None:
    codes = [RELU, TANH, LOGISTIC, RELU, TANH]
    _devices, compilation = split(codes, dims=(4, 3), inner_dims=inner_dims)
    assert names_of(compilation) == ["rest", "tanh", "rest", "tanh"]
    (result,) = run(compilation, [numbers(4, 3)], [(4, 3)])
    np.testing.assert_allclose(result, expected(codes, numbers(4, 3)), rtol=1e-6)


def test_a_temporary_of_unknown_size_grows_and_its_step_runs_again() -> None:
    devices, compilation = split([RELU, TANH], dims=(4, 3), inner_dims=(0, 3))
    execution = Execution(compilation)
    execution.set_reusable(True)
    result = np.zeros((4, 3), np.float32)
    execution.set_input(0, numbers(4, 3))
    execution.set_output(0, result)
    execution.compute()
    sizes = [request.outputs[0].location.length for request in devices[0].record.requests]
    assert sizes == [4, 48]
    assert devices[1].record.requests[0].inputs[0].dimensions == (4, 3)
    execution.compute()
    assert len(devices[0].record.requests) == 3
    first, second = devices[1].record.requests
    assert first is second
    np.testing.assert_allclose(result, np.tanh(np.maximum(numbers(4, 3), 0)), rtol=1e-6)


@pytest.mark.parametrize("fenced", [False, True])
@pytest.mark.parametrize("dims", [(4, 3), (0, 3), ()])
def test_an_omitted_output_is_read_by_a_later_step(dims: tuple[int, ...], fenced: bool) -> None:
    model = Model()
    x, middle, y = (model.add_operand(tensor(*dims)) for _ in range(3))
    model.add_operation(RELU, [x], [middle])
    model.add_operation(TANH, [middle], [y])
    model.identify_inputs_and_outputs([x], [middle, y])
    model.finish()
    devices = [SampleDevice("relu", {RELU}), SampleDevice("tanh", {TANH})]
    execution, result = Execution(finished(model, devices)), np.zeros((4, 3), np.float32)
    execution.set_reusable(True)
    execution.set_input(0, numbers(4, 3), tensor(4, 3))
    execution.set_output(0, None, tensor(4, 3) if fenced else None)
    execution.set_output(1, result, tensor(4, 3))
    for _ in range(2):
        result[:] = -1
        execution.start_compute_with_dependencies([]).wait() if fenced else execution.compute()
        np.testing.assert_allclose(result, np.tanh(np.maximum(numbers(4, 3), 0)), rtol=1e-6)
        assert execution.get_output_operand_dimensions(0) == (4, 3)


def test_a_temporary_doubles_where_the_driver_reports_no_size(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []
    execute = SamplePreparedModel.execute_synchronously

    def needs_48_bytes(model: SamplePreparedModel, request: Request, *options: object) -> ExecutionResult:
        length = request.outputs[0].location.length
        if model.device.name == "rest":
            lengths.append(length)
            if length < 48 and len(lengths) < 10:
                raise HalError(ErrorStatus.OUTPUT_INSUFFICIENT_SIZE, "no size", (OutputShape((0, 3), False),))
        return execute(model, request, *options)  # type: ignore[arg-type]

    monkeypatch.setattr(SamplePreparedModel, "execute_synchronously", needs_48_bytes)
    _, compilation = split([RELU, TANH], dims=(4, 3), inner_dims=(0, 3))
    (result,) = run(compilation, [numbers(4, 3)], [(4, 3)])
    assert lengths == [4, 8, 16, 32, 64]
    np.testing.assert_allclose(result, np.tanh(np.maximum(numbers(4, 3), 0)), rtol=1e-6)


def test_a_temporary_that_a_driver_says_is_beyond_4_gib_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = 0

    def needs_12_gib(model: SamplePreparedModel, *_arguments: object) -> ExecutionResult:
        nonlocal runs
        runs += 1
        status = ErrorStatus.OUTPUT_INSUFFICIENT_SIZE if runs == 1 else ErrorStatus.DEVICE_UNAVAILABLE
        raise HalError(status, "as told", (OutputShape((2**30, 3), False),) if runs == 1 else ())

    monkeypatch.setattr(SamplePreparedModel, "execute_synchronously", needs_12_gib)
    _, compilation = split([RELU, TANH], dims=(4, 3), inner_dims=(0, 3))
    with pytest.raises(OperationFailed, match=f"a temporary of {12 * 2**30} bytes"):
        run(compilation, [numbers(4, 3)], [(4, 3)])
    assert runs == 1


def test_main_outputs_of_unknown_size_in_a_split() -> None:
    _, compilation = split([RELU, TANH], dims=(0, 3), inner_dims=(0, 0))
    execution = Execution(compilation)
    result = np.zeros(20, np.float32)
    execution.set_input(0, numbers(4, 3), tensor(4, 3))
    execution.set_output(0, result)
    execution.compute()
    assert execution.get_output_operand_dimensions(0) == (4, 3)
    np.testing.assert_allclose(result[:12].reshape(4, 3), np.tanh(np.maximum(numbers(4, 3), 0)), rtol=1e-6)


@pytest.mark.parametrize("inner_dims", [(4, 3), (0, 0)])
@pytest.mark.parametrize("fallback", [False, True])
def test_an_insufficient_main_output_of_a_split_is_reported(inner_dims: tuple[int, ...], fallback: bool) -> None:
    _, compilation = split([RELU, TANH], fallback, dims=(0, 3), inner_dims=inner_dims)
    execution = Execution(compilation)
    execution.set_input(0, numbers(4, 3), tensor(4, 3))
    execution.set_output(0, np.zeros(2, np.float32))
    with pytest.raises(OutputInsufficientSize) as caught:
        execution.compute()
    assert caught.value.shapes == ((4, 3),)
    assert execution.get_output_operand_dimensions(0) == (4, 3)


def test_an_insufficient_output_of_a_split_tells_the_sizes_of_all() -> None:
    """Also of one that a step before has written."""
    model = Model()
    x, middle, y = (model.add_operand(tensor(0, 3)) for _ in range(3))
    model.add_operation(RELU, [x], [middle])
    model.add_operation(TANH, [middle], [y])
    model.identify_inputs_and_outputs([x], [y, middle])
    model.finish()
    execution = Execution(finished(model, [SampleDevice("relu", {RELU}), SampleDevice("tanh", {TANH})]))
    execution.set_input(0, numbers(4, 3), tensor(4, 3))
    execution.set_output(0, np.zeros(2, np.float32))
    execution.set_output(1, np.zeros(20, np.float32))
    with pytest.raises(OutputInsufficientSize) as caught:
        execution.compute()
    assert caught.value.shapes == ((4, 3), (4, 3))


def test_an_old_device_cannot_produce_results_of_unknown_size() -> None:
    old = SampleDevice("old", {RELU}, feature_level=FeatureLevel.HAL_1_1)
    new = SampleDevice("new", {TANH})
    model = chain_model([RELU, TANH], inner_dims=(0, 3))
    with pytest.raises(OperationFailed, match=r"old .*unknown size"):
        finished(model, [old, new])
    assert names_of(finished(model, [old, new], fallback=True)) == [REFERENCE_NAME]
    first_that_can = SampleDevice("1.2", {RELU}, feature_level=FeatureLevel.HAL_1_2)
    assert names_of(finished(model, [first_that_can, new])) == ["1.2", "new"]


def reshaping_model(*, gives_both: bool = False) -> Model:
    """TANH(RESHAPE(x [12], shape)): the sizes depend on the data of the second input."""
    model = Model()
    x, shape = model.add_operand(tensor(12)), model.add_operand(tensor(2, code=OperandCode.TENSOR_INT32))
    reshaped, y = model.add_operand(tensor(0, 0)), model.add_operand(tensor(0, 0))
    model.add_operation(OperationCode.RESHAPE, [x, shape], [reshaped])
    model.add_operation(TANH, [reshaped], [y])
    model.identify_inputs_and_outputs([x, shape], [reshaped, y] if gives_both else [y])
    model.finish()
    return model


@pytest.mark.parametrize("operations", [[{OperationCode.RESHAPE}, {TANH}], [{OperationCode.RESHAPE, TANH}]])
def test_results_have_the_dimensions_of_their_own_run(operations: list[set[int]]) -> None:
    devices = [SampleDevice(f"device {at}", codes) for at, codes in enumerate(operations)]
    execution = Execution(finished(reshaping_model(), devices))
    execution.set_reusable(True)
    shape, result = np.zeros(2, np.int32), np.zeros(12, np.float32)
    execution.set_input(0, np.arange(12, dtype=np.float32))
    execution.set_input(1, shape)
    execution.set_output(0, result)
    for dims in ((4, 3), (3, 4), (2, 6)):
        shape[:] = dims
        execution.compute()
        assert execution.get_output_operand_dimensions(0) == dims
        np.testing.assert_allclose(result, np.tanh(np.arange(12)), rtol=1e-6)


def test_a_run_that_fails_tells_no_dimensions_of_the_run_before() -> None:
    """The second output is computed after the first, which is too small in the second run."""
    model = reshaping_model(gives_both=True)
    devices = [SampleDevice("reshape", {OperationCode.RESHAPE}), SampleDevice("tanh", {TANH})]
    execution = Execution(finished(model, devices))
    execution.set_reusable(True)
    execution.set_input(0, numbers(12))
    execution.set_input(1, np.array([4, 3], np.int32))
    for index in range(2):
        execution.set_output(index, np.zeros(12, np.float32))
    execution.compute()
    assert execution.get_output_operand_dimensions(1) == (4, 3)
    devices[0].script.execute = ErrorStatus.OUTPUT_INSUFFICIENT_SIZE
    devices[0].script.output_shapes = (OutputShape((5, 3), False),)
    with pytest.raises(OutputInsufficientSize) as caught:
        execution.compute()
    assert caught.value.shapes == ((5, 3), (0, 0))


def test_requests_of_a_split_are_reused() -> None:
    devices, compilation = split([RELU, TANH])
    execution = Execution(compilation)
    execution.set_reusable(True)
    execution.set_input(0, numbers(2, 3))
    execution.set_output(0, np.zeros((2, 3), np.float32))
    execution.compute()
    execution.compute()
    for device in devices:
        first, second = device.record.requests
        assert first is second


def test_temporaries_lie_page_aligned_in_one_pool() -> None:
    codes = [RELU, TANH, RELU, TANH]
    devices, compilation = split(codes)
    run(compilation, [numbers(2, 3)], [(2, 3)])
    requests = [request for device in devices for request in device.record.requests]
    pools = {id(pool) for request in requests for pool in request.pools}
    offsets = [argument.location.offset for request in requests for argument in (*request.inputs, *request.outputs)]
    assert len(pools) == 1
    assert all(offset % 4096 == 0 for offset in offsets)


def test_a_failing_prepare_goes_to_the_cpu_only_where_allowed() -> None:
    for status, error in ((ErrorStatus.GENERAL_FAILURE, OperationFailed), (ErrorStatus.INVALID_ARGUMENT, BadData)):
        device = SampleDevice("failing")
        device.script.prepare = status
        with pytest.raises(error, match="told to fail at prepare"):
            finished(chain_model([RELU]), [device])
    device.script.prepare = ErrorStatus.GENERAL_FAILURE
    compilation = finished(chain_model([RELU, TANH]), [device], fallback=True)
    assert names_of(compilation) == [REFERENCE_NAME]
    assert {placement.device.name for placement in plan_of(compilation).placements} == {REFERENCE_NAME}
    device.script.prepare = ErrorStatus.INVALID_ARGUMENT
    with pytest.raises(BadData):
        finished(chain_model([RELU]), [device], fallback=True)


def test_steps_prepared_before_one_that_fails_are_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []
    monkeypatch.setattr(SamplePreparedModel, "close", lambda prepared: closed.append(prepared.device.name))
    devices = [SampleDevice("relu", {RELU}), SampleDevice("tanh", {TANH})]
    devices[1].script.prepare = ErrorStatus.GENERAL_FAILURE
    with pytest.raises(OperationFailed, match="tanh: told to fail at prepare"):
        finished(chain_model([RELU, TANH]), devices)
    assert closed == ["relu"]


def test_steps_prepared_before_an_interrupt_are_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> SamplePreparedModel:
        raise KeyboardInterrupt

    closed: list[str] = []
    monkeypatch.setattr(SamplePreparedModel, "close", lambda prepared: closed.append(prepared.device.name))
    devices = [SampleDevice("relu", {RELU}), SampleDevice("tanh", {TANH})]
    monkeypatch.setattr(devices[1], "prepare_model", interrupt)
    with pytest.raises(KeyboardInterrupt):
        finished(chain_model([RELU, TANH]), devices)
    assert closed == ["relu"]


def test_a_step_without_inputs_sends_the_whole_model_to_the_cpu() -> None:
    model = Model()
    constant, a, x, y = (model.add_operand(tensor(2)) for _ in range(4))
    model.set_operand_value(constant, np.ones(2, np.float32))
    model.add_operation(RELU, [constant], [a])
    add(model, a, x, y)
    model.identify_inputs_and_outputs([x], [y])
    model.finish()
    devices = [SampleDevice("relu", {RELU}), SampleDevice("add", {OperationCode.ADD})]
    with pytest.raises(OperationFailed, match="operation 0 on relu has no inputs"):
        finished(model, devices)
    assert names_of(finished(model, devices, fallback=True)) == [REFERENCE_NAME]


def test_a_failing_simple_plan_falls_back_as_a_whole() -> None:
    device = SampleDevice("failing")
    compilation = finished(chain_model([RELU, TANH]), [device], fallback=True)
    device.script.execute = ErrorStatus.GENERAL_FAILURE
    (result,) = run(compilation, [numbers(2, 3)], [(2, 3)])
    np.testing.assert_allclose(result, expected([RELU, TANH], numbers(2, 3)), rtol=1e-6)
    device.script.execute = None
    device.script.crash = ZeroDivisionError("oops")
    run(compilation, [numbers(2, 3)], [(2, 3)])


def test_the_deadline_of_the_compilation_is_none_of_a_fallback_of_an_execution() -> None:
    device = SampleDevice("failing")
    compilation = finished(chain_model([RELU]), [device], fallback=True)
    plan = plan_of(compilation)
    plan.options = replace(plan.options, deadline_ns=1)
    device.script.execute = ErrorStatus.GENERAL_FAILURE
    (result,) = run(compilation, [numbers(2, 3)], [(2, 3)])
    np.testing.assert_allclose(result, np.maximum(numbers(2, 3), 0))


def test_a_strict_plan_returns_its_error() -> None:
    devices, compilation = split([RELU, TANH])
    devices[1].script.execute = ErrorStatus.GENERAL_FAILURE
    with pytest.raises(OperationFailed, match="execution on tanh, step 1: tanh: told to fail at execute"):
        run(compilation, [numbers(2, 3)], [(2, 3)])


@pytest.mark.parametrize("inner_dims", [None, (0, 3)])
def test_a_failing_step_alone_goes_to_the_cpu(inner_dims: tuple[int, ...] | None) -> None:
    codes = [RELU, TANH, LOGISTIC]
    devices, compilation = split(codes, fallback=True, inner_dims=inner_dims)
    devices[1].script.execute = ErrorStatus.GENERAL_FAILURE
    (result,) = run(compilation, [numbers(2, 3)], [(2, 3)])
    np.testing.assert_allclose(result, expected(codes, numbers(2, 3)), rtol=1e-6)
    executed = 2 if inner_dims is None else 3
    assert len(devices[0].record.requests) == executed


def test_an_empty_temporary_sends_the_whole_model_to_the_cpu() -> None:
    model = Model()
    x, t, y = model.add_operand(tensor(4)), model.add_operand(tensor(0)), model.add_operand(tensor(0))
    begin = model.add_operand(OperandType(OperandCode.TENSOR_INT32, (1,)))
    strides = model.add_operand(OperandType(OperandCode.TENSOR_INT32, (1,)))
    model.set_operand_value(begin, np.array([2], np.int32))
    model.set_operand_value(strides, np.array([1], np.int32))
    masks = [scalar(model, 0) for _ in range(3)]
    model.add_operation(OperationCode.STRIDED_SLICE, [x, begin, begin, strides, *masks], [t])
    model.add_operation(TANH, [t], [y])
    model.identify_inputs_and_outputs([x], [y])
    model.finish()
    devices = [SampleDevice("slice", {OperationCode.STRIDED_SLICE}), SampleDevice("tanh", {TANH})]
    for fallback in (True, False):
        compilation = finished(model, devices, fallback)
        execution = Execution(compilation)
        execution.set_input(0, numbers(4))
        execution.set_output(0, np.zeros(1, np.float32))
        if fallback:
            execution.compute()
            assert execution.get_output_operand_dimensions(0) == (0,)
        else:
            with pytest.raises(OperationFailed, match="is empty"):
                execution.compute()


def test_an_empty_output_that_no_step_reads_is_a_result_like_others() -> None:
    model = Model()
    x, y, begin = model.add_operand(tensor(4)), model.add_operand(tensor(4)), scalar_tensor(model, 4)
    empty, strides = model.add_operand(tensor(0)), scalar_tensor(model, 1)
    model.add_operation(TANH, [x], [y])
    masks = [scalar(model, 0) for _ in range(3)]
    model.add_operation(OperationCode.STRIDED_SLICE, [y, begin, begin, strides, *masks], [empty])
    model.identify_inputs_and_outputs([x], [y, empty])
    model.finish()
    devices = [SampleDevice("slice", {OperationCode.STRIDED_SLICE}), SampleDevice("tanh", {TANH})]
    execution, result = Execution(finished(model, devices)), np.zeros(4, np.float32)
    execution.set_input(0, numbers(4))
    execution.set_output(0, result)
    execution.set_output(1, np.zeros(1, np.float32))
    execution.compute()
    assert execution.get_output_operand_dimensions(1) == (0,)
    np.testing.assert_allclose(result, np.tanh(numbers(4)), rtol=1e-6)


def scalar_tensor(model: Model, value: int) -> int:
    index = model.add_operand(tensor(1, code=OperandCode.TENSOR_INT32))
    model.set_operand_value(index, np.array([value], np.int32))
    return index


def test_a_temporary_of_known_size_does_not_grow() -> None:
    """A driver that says it is too small is wrong, and is not asked again."""
    devices, compilation = split([RELU, TANH])
    devices[0].script.execute = ErrorStatus.OUTPUT_INSUFFICIENT_SIZE
    devices[0].script.output_shapes = (OutputShape((2, 3), False),)
    with pytest.raises(OutputInsufficientSize):
        run(compilation, [numbers(2, 3)], [(2, 3)])
    assert len(devices[0].record.requests) == 1


def on_device_memory(codes: list[OperationCode]) -> tuple[Execution, list[Memory]]:
    """Return an execution whose devices fail, from device memory with numbers to other such memory."""
    devices, compilation = split(codes, fallback=True)
    source, target = MemoryDesc(), MemoryDesc()
    source.add_input_role(compilation, 0, 1.0)
    target.add_output_role(compilation, 0, 1.0)
    memories = []
    for desc in (source, target):
        desc.finish()
        memories.append(Memory.from_desc(desc))
        assert memories[-1].buffer is not None
    Memory.copy(Memory.from_array(numbers(2, 3)), memories[0])
    for device in devices:
        device.script.execute = ErrorStatus.GENERAL_FAILURE
    execution = Execution(compilation)
    execution.set_input_from_memory(0, memories[0])
    execution.set_output_from_memory(0, memories[1])
    return execution, memories


@pytest.mark.parametrize("codes", [[RELU], [RELU, TANH]])
def test_fallback_copies_device_memory(codes: list[OperationCode]) -> None:
    execution, memories = on_device_memory(codes)
    execution.compute()
    np.testing.assert_allclose(memories[1].to_array(np.float32, (2, 3)), expected(codes, numbers(2, 3)), rtol=1e-6)


@pytest.mark.parametrize(("place", "method"), [(0, "copy_to"), (1, "copy_from")])
@pytest.mark.parametrize("codes", [[RELU], [RELU, TANH]])
def test_a_copy_for_the_fallback_cannot_want_more_room(
    monkeypatch: pytest.MonkeyPatch, codes: list[OperationCode], place: int, method: str
) -> None:
    """Insufficient size is a status of executions, which say of which outputs."""
    execution, memories = on_device_memory(codes)

    def fail(*_: object) -> None:
        raise HalError(ErrorStatus.OUTPUT_INSUFFICIENT_SIZE, "told to fail")

    monkeypatch.setattr(memories[place].buffer, method, fail)
    with pytest.raises(OperationFailed, match=f"{method}: told to fail"):
        execution.compute()


def test_executions_of_one_plan_at_once_do_not_mix() -> None:
    _, compilation = split([RELU, TANH, LOGISTIC])
    executions, results = [], []
    for at in range(8):
        execution, result = Execution(compilation), np.zeros((2, 3), np.float32)
        execution.set_input(0, numbers(2, 3) + np.float32(at))
        execution.set_output(0, result)
        executions.append(execution)
        results.append(result)
    for event in [execution.start_compute() for execution in executions]:
        event.wait()
    for at, result in enumerate(results):
        wanted = expected([RELU, TANH, LOGISTIC], numbers(2, 3) + np.float32(at))
        np.testing.assert_allclose(result, wanted, rtol=1e-5)


def test_a_profile_covers_every_step() -> None:
    _, compilation = split([RELU, TANH, RELU])
    execution = Execution(compilation)
    execution.set_input(0, numbers(2, 3))
    execution.set_output(0, np.zeros((2, 3), np.float32))
    profile = execution.compute_profiled()
    assert [(step.device, step.operations) for step in profile] == [("rest", (0,)), ("tanh", (1,)), ("rest", (2,))]
    assert all(before.end_ns <= after.start_ns for before, after in pairwise(profile))


def test_omitted_arguments_reach_the_driver() -> None:
    device = SampleDevice("sample")
    execution = Execution(finished(chain_model([RELU]), [device]))
    execution.set_input(0, None)
    execution.set_output(0, np.zeros((2, 3), np.float32))
    with pytest.raises((BadData, OperationFailed)):
        execution.compute()
    request: Request = device.record.requests[0]
    assert request.inputs[0].has_no_value


def random_model(generator: random.Random, unknown: bool) -> tuple[Model, int, int]:
    """A random graph of unary operations and additions over [2, 3], some temporaries of unknown size."""
    model = Model()
    inputs = [model.add_operand(tensor(2, 3)) for _ in range(generator.randint(1, 3))]
    values = list(inputs)
    read: set[int] = set()
    results = []
    for _ in range(generator.randint(3, 12)):
        dims = generator.choice([(2, 3), (0, 3), ()]) if unknown else (2, 3)
        result = model.add_operand(tensor(*dims))
        code = generator.choice([*UNARY, OperationCode.ADD])
        sources = [generator.choice(values) for _ in range(2 if code == OperationCode.ADD else 1)]
        if code == OperationCode.ADD:
            add(model, *sources, result)
        else:
            model.add_operation(code, sources, [result])
        read.update(sources)
        values.append(result)
        results.append(result)
    outputs = [result for result in results if result not in read or generator.random() < 0.2]
    model.identify_inputs_and_outputs(inputs, outputs)
    model.finish()
    return model, len(inputs), len(outputs)


RANDOM_CODES = [*UNARY, OperationCode.ADD]


@pytest.mark.parametrize("seed", range(225))
def test_random_splits_compute_what_the_cpu_does(seed: int) -> None:
    """Up to four devices with disjoint operations, inputs and outputs in arrays or memory (AOSP PartitioningRandom)."""
    generator = random.Random(seed)
    model, input_count, output_count = random_model(generator, unknown=seed % 2 == 1)
    codes = list(RANDOM_CODES)
    generator.shuffle(codes)
    cuts = sorted(generator.sample(range(1, len(codes)), generator.randint(1, len(codes) - 1)))
    parts = [codes[start:end] for start, end in zip([0, *cuts], [*cuts, len(codes)], strict=True)]
    fallback = generator.random() < 0.3
    if fallback:
        parts.pop()  # for the CPU
    devices = [SampleDevice(f"device{at}", set(part)) for at, part in enumerate(parts)]
    inputs = [numbers(2, 3) * np.float32(at + 1) for at in range(input_count)]
    wanted = run(finished(model, [], fallback=True), inputs, [(2, 3)] * output_count)
    execution = Execution(finished(model, devices, fallback))
    outputs: list[Callable[[], np.ndarray]] = []
    for at, array in enumerate(inputs):
        if generator.random() < 0.5:
            execution.set_input(at, array)
        else:
            execution.set_input_from_memory(at, Memory.from_array(array), 0, array.nbytes)
    for at in range(output_count):
        known = tensor(2, 3) if generator.random() < 0.5 else None
        array = np.full((2, 3), np.nan, np.float32)
        if generator.random() < 0.5:
            execution.set_output(at, array, known)
            outputs.append(lambda array=array: array)  # type: ignore[misc]
        else:
            memory = Memory.from_array(array)
            execution.set_output_from_memory(at, memory, 0, array.nbytes, known)
            outputs.append(lambda memory=memory: memory.to_array(np.float32, (2, 3)))  # type: ignore[misc]
    execution.compute()
    for at, (array, output) in enumerate(zip(wanted, outputs, strict=True)):
        assert execution.get_output_operand_dimensions(at) == (2, 3)
        np.testing.assert_array_equal(output(), array)


@pytest.mark.parametrize("error", [OSError, MemoryError])
def test_no_memory_for_temporaries_sends_the_whole_model_to_the_cpu(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def refuse(_size: int) -> None:
        raise error("no memory left")

    for fallback in (True, False):
        _, compilation = split([RELU, TANH], fallback)
        with monkeypatch.context() as patch:
            patch.setattr("nn_runtime.hal.memory.SharedMemory.create", refuse)
            if fallback:
                (result,) = run(compilation, [numbers(2, 3)], [(2, 3)])
                np.testing.assert_allclose(result, expected([RELU, TANH], numbers(2, 3)), rtol=1e-6)
            else:
                with pytest.raises(OperationFailed, match="no shared memory of 4096 bytes"):
                    run(compilation, [numbers(2, 3)], [(2, 3)])
