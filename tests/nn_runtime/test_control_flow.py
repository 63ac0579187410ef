# SPDX-License-Identifier: Apache-2.0
"""IF and WHILE in plans: step lists, roles, runs.

AOSP ControlFlowPartitioningTest, MemoryStepRoleTest, TestControlFlow, TestFailingDriver, TestIntrospectionControl's
control flow cases.
"""

from __future__ import annotations

import itertools
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime import compound_run
from nn_runtime.codes import OEM_OPERATION, OperandCode, OperationCode, ResultCode
from nn_runtime.compilation import Compilation
from nn_runtime.device import REFERENCE_NAME, Device
from nn_runtime.devices import reference_device
from nn_runtime.errors import BadData, MissedDeadline, OperationFailed
from nn_runtime.execution import Execution, default_loop_timeout, maximum_loop_timeout
from nn_runtime.hal.types import ErrorStatus
from nn_runtime.memory import Memory
from nn_runtime.memory_desc import MemoryDesc
from nn_runtime.model import Model
from nn_runtime.partition import MAX_INTERPRETED
from nn_runtime.program import GotoStep, IfStep, WhileStep
from nn_runtime.step import Step
from nn_runtime.temporaries import host_bytes
from nn_runtime.testing.sample_drivers import SampleDevice
from tests.nn_runtime.graphs import (
    FLOAT,
    add,
    add_model,
    adding_body,
    chain_model,
    finished,
    flag,
    if_model,
    less_model,
    nest_model,
    numbers,
    refer,
    run,
    tensor,
    unary_model,
    while_model,
)
from tests.nn_runtime.test_partition import plan_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.operand import Array
    from nn_runtime.requests import Argument

RELU, TANH, LOGISTIC, ADD, LESS = (
    OperationCode.RELU,
    OperationCode.TANH,
    OperationCode.LOGISTIC,
    OperationCode.ADD,
    OperationCode.LESS,
)
IF, WHILE = OperationCode.IF, OperationCode.WHILE


def kinds(compilation: Compilation) -> list[str]:
    """The program as words: the device of a device step."""
    names = {IfStep: "if", WhileStep: "while", GotoStep: "goto"}
    return [step.device.name if isinstance(step, Step) else names[type(step)] for step in plan_of(compilation).program]


def branches(dims: Sequence[int] = (2, 3)) -> Model:
    return if_model(unary_model(RELU, dims), unary_model(TANH, dims), dims)


def run_if(compilation: Compilation, condition: bool, x: Array) -> Array:
    output = np.full_like(x, np.nan)
    with Execution(compilation) as execution:
        execution.set_input(0, np.array([condition]))
        execution.set_input(1, x)
        execution.set_output(0, output)
        execution.compute()
    return output


def run_while(compilation: Compilation, value: float, step: float, limit: float) -> float:
    output = np.full(1, np.nan, np.float32)
    with Execution(compilation) as execution:
        for at, number in enumerate((value, step, limit)):
            execution.set_input(at, np.array([number], np.float32))
        execution.set_output(0, output)
        execution.compute()
    return float(output[0])


def test_if_is_interpreted_where_no_device_takes_it() -> None:
    device = SampleDevice("sample", {RELU, TANH})
    compilation = finished(branches(), [device], fallback=True)
    assert kinds(compilation) == ["if", "sample", "goto", "sample"]
    start, _, after_then, _ = plan_of(compilation).program
    assert isinstance(start, IfStep)
    assert (start.then_at, start.else_at) == (1, 3)
    assert after_then == GotoStep(4)
    np.testing.assert_array_equal(run_if(compilation, True, numbers(2, 3)), np.maximum(numbers(2, 3), 0))
    np.testing.assert_allclose(run_if(compilation, False, numbers(2, 3)), np.tanh(numbers(2, 3)), rtol=1e-6)


def test_while_is_interpreted_where_no_device_takes_it() -> None:
    device = SampleDevice("sample", {ADD})
    compilation = finished(while_model(), [device], fallback=True)
    assert kinds(compilation) == ["while", REFERENCE_NAME, "goto", "sample", "goto"]
    start, _, after_condition, _, after_body = plan_of(compilation).program
    assert isinstance(start, WhileStep)
    assert (start.condition_at, start.body_at, start.exit_at) == (1, 3, 5)
    assert after_condition == after_body == GotoStep(0)
    for iterations in range(4):
        before = len(device.record.requests)
        assert run_while(compilation, 1.0, 2.0, 2.0 * iterations) == 1 + 2 * iterations
        assert len(device.record.requests) - before == iterations


@pytest.mark.parametrize("code", [IF, WHILE])
def test_a_device_that_takes_everything_gets_the_whole_model(code: OperationCode) -> None:
    model = branches() if code == IF else while_model()
    compilation = finished(model, [SampleDevice("all")], fallback=True)
    assert kinds(compilation) == ["all"]
    assert plan_of(compilation).is_simple


@pytest.mark.parametrize("unknown", list(itertools.product([False, True], repeat=3))[1:])
@pytest.mark.parametrize("code", [IF, WHILE])
def test_unknown_sizes_leave_control_flow_to_the_cpu(code: OperationCode, unknown: tuple[bool, bool, bool]) -> None:
    outer, first, second = ((0,) if open_ else (1,) for open_ in unknown)
    if code == IF:
        model = if_model(unary_model(RELU, first), unary_model(TANH, second), outer)
    else:
        model = while_model(less_model(first), adding_body(second), outer)
    compilation = finished(model, [SampleDevice("all")], fallback=True)
    assert kinds(compilation) == [REFERENCE_NAME]
    assert plan_of(compilation).is_simple
    with pytest.raises(BadData, match=r"all: sizes at the boundary"):
        finished(model, [SampleDevice("all")])


def test_a_branch_whose_result_alone_is_of_unknown_size_is_for_the_cpu() -> None:
    branch = Model()
    x, y = branch.add_operand(tensor(2, 3)), branch.add_operand(tensor(0, 3))
    branch.add_operation(RELU, [x], [y])
    branch.identify_inputs_and_outputs([x], [y])
    branch.finish()
    compilation = finished(if_model(branch, unary_model(TANH)), [SampleDevice("all")], fallback=True)
    assert kinds(compilation) == [REFERENCE_NAME]
    assert plan_of(compilation).is_simple


def test_without_the_cpu_nothing_is_interpreted() -> None:
    with pytest.raises(BadData, match="operation 0 IF: no device can run it"):
        finished(branches(), [SampleDevice("sample", {RELU, TANH})])


def test_an_explicit_list_with_the_cpu_interprets_too() -> None:
    compilation = Compilation(branches(), [Device(SampleDevice("sample", {RELU, TANH})), reference_device()])
    compilation.finish()
    assert kinds(compilation) == ["if", "sample", "goto", "sample"]


def test_supported_operations_of_control_flow() -> None:
    model = branches()
    assert model.supported_operations([Device(SampleDevice("all"))]) == [True]
    assert model.supported_operations([Device(SampleDevice("no", {RELU, TANH}))]) == [False]


def test_steps_before_and_after_control_flow() -> None:
    """RELU, then IF of its result, then ADD of both: the interpreter's steps lie between those of the devices."""
    model = Model()
    condition = flag(model)
    x, a, b, y = (model.add_operand(tensor(2, 3)) for _ in range(4))
    model.add_operation(RELU, [x], [a])
    then_model, else_model = chain_model([TANH, LOGISTIC]), unary_model(RELU)
    model.add_operation(IF, [condition, refer(model, then_model), refer(model, else_model), a], [b])
    add(model, a, b, y)
    model.identify_inputs_and_outputs([condition, x], [y])
    model.finish()
    devices = [SampleDevice("one", {RELU, LOGISTIC}), SampleDevice("two", {TANH, ADD})]
    compilation = finished(model, devices, fallback=True)
    assert kinds(compilation) == ["one", "if", "two", "one", "goto", "one", "two"]
    assert [placement.step for placement in plan_of(compilation).placements] == [0, 1, 6]
    assert plan_of(compilation).placements[1].device.name == REFERENCE_NAME
    inner_numbers = [step.original_operations for step in plan_of(compilation).steps]
    assert inner_numbers == [(0,), (1,), (1,), (1,), (2,)]
    positive = np.maximum(numbers(2, 3), 0)
    for holds, branch in ((True, 1 / (1 + np.exp(-np.tanh(positive)))), (False, positive)):
        np.testing.assert_allclose(run_if(compilation, holds, numbers(2, 3)), positive + branch, rtol=1e-6)


def test_an_omitted_output_decides_on_a_branch_that_reads_another() -> None:
    model = Model()
    a, b, condition = (model.add_operand(tensor(1, code=code)) for code in (FLOAT, FLOAT, OperandCode.TENSOR_BOOL8))
    x, middle, y = (model.add_operand(tensor(2, 3)) for _ in range(3))
    model.add_operation(LESS, [a, b], [condition])
    model.add_operation(RELU, [x], [middle])
    model.add_operation(IF, [condition, refer(model, unary_model(TANH)), refer(model, unary_model(RELU)), middle], [y])
    model.identify_inputs_and_outputs([a, b, x], [condition, middle, y])
    model.finish()
    compilation = Compilation(model, [Device(SampleDevice("sample", {LESS, RELU, TANH})), reference_device()])
    compilation.finish()
    assert kinds(compilation) == ["sample", "if", "sample", "goto", "sample"]
    for limit, expected in ((2, np.tanh), (0, np.asarray)):
        execution, result = Execution(compilation), np.zeros((2, 3), np.float32)
        for at, value in enumerate((np.ones(1, np.float32), np.full(1, limit, np.float32), numbers(2, 3))):
            execution.set_input(at, value)
        for at, output in enumerate((None, None, result)):
            execution.set_output(at, output)
        execution.compute()
        np.testing.assert_allclose(result, expected(np.maximum(numbers(2, 3), 0)), rtol=1e-6)


def nested() -> Model:
    """While value < limit: value += step if value < 2 (a constant), else value += value."""
    inner = Model()
    condition = flag(inner)
    value, step, result = (inner.add_operand(tensor(1)) for _ in range(3))
    doubling = Model()
    v, s, d = (doubling.add_operand(tensor(1)) for _ in range(3))
    add(doubling, v, v, d)
    doubling.identify_inputs_and_outputs([v, s], [d])
    doubling.finish()
    two = inner.add_operand(tensor(1))
    inner.set_operand_value(two, np.array([2], np.float32))
    limit = inner.add_operand(tensor(1))
    inner.add_operation(LESS, [value, two], [condition])
    inner.add_operation(IF, [condition, refer(inner, add_model((1,))), refer(inner, doubling), value, step], [result])
    inner.identify_inputs_and_outputs([value, step, limit], [result])
    inner.finish()
    return while_model(body=inner)


@pytest.mark.parametrize("fallback", [True])
def test_control_flow_inside_control_flow(fallback: bool) -> None:
    devices = [SampleDevice("adds", {ADD}), SampleDevice("compares", {LESS})]
    compilation = finished(nested(), devices, fallback)
    assert kinds(compilation) == [
        "while", "compares", "goto", "compares", "if", "adds", "goto", "adds", "goto",
    ]  # fmt: skip
    assert run_while(compilation, 0.5, 1.0, 20.0) == 20.0  # 0.5, 1.5, 2.5, 5, 10, 20
    assert run_while(compilation, 30.0, 1.0, 20.0) == 30.0


def test_one_model_referred_to_twice_is_partitioned_twice() -> None:
    shared = unary_model(RELU)
    compilation = finished(if_model(shared, shared), [SampleDevice("sample", {RELU})], fallback=True)
    then_step, else_step = plan_of(compilation).steps
    assert then_step is not else_step
    assert set(then_step.inputs).isdisjoint(else_step.inputs)


def models_inside(depth: int) -> int:
    """Of a nest of so many IFs, each as often as it is referred to."""
    return 2 ** (depth + 1) - 2


def test_a_nest_is_cut_up_as_long_as_few_models_are_inside() -> None:
    depth = next(depth for depth in range(40) if models_inside(depth + 1) > MAX_INTERPRETED)
    few, many = (finished(nest_model(levels), [SampleDevice("sample", {RELU})], True) for levels in (depth, depth + 1))
    assert kinds(few).count("sample") == 2**depth
    assert kinds(many) == [REFERENCE_NAME]


@pytest.mark.parametrize("partition", ["cost", "aosp"])
@pytest.mark.parametrize("takes", [None, {RELU}, {TANH}], ids=["everything", "what is inside", "nothing"])
def test_a_nest_of_shared_models_is_prepared(partition: str, takes: set[int] | None) -> None:
    compilation = finished(nest_model(40), [SampleDevice("sample", takes)], fallback=True, partition=partition)
    assert kinds(compilation) == ["sample" if takes is None and partition == "aosp" else REFERENCE_NAME]
    for condition in (True, False):
        np.testing.assert_array_equal(run_if(compilation, condition, numbers(2, 3)), np.maximum(numbers(2, 3), 0))


def test_a_nest_that_no_device_takes_and_nobody_cuts_up_is_refused() -> None:
    with pytest.raises(BadData, match=r"operation 0 IF: .*; 2199023255550 models inside are too many to cut up"):
        finished(nest_model(40, OEM_OPERATION), [SampleDevice("sample", {TANH})], fallback=True)


@pytest.mark.parametrize("size", [2, 64])
def test_constants_cross_into_branches(size: int) -> None:
    """IF(constant condition, constant value), the value inline or in a pool."""
    model = Model()
    condition, constant, y = flag(model), model.add_operand(tensor(size)), model.add_operand(tensor(size))
    x, z = model.add_operand(tensor(size)), model.add_operand(tensor(size))
    model.set_operand_value(condition, np.array([False]))
    model.set_operand_value(constant, np.full(size, -3, np.float32))
    branch = add_model((size,))
    model.add_operation(IF, [condition, refer(model, branch), refer(model, branch), x, constant], [y])
    model.add_operation(RELU, [y], [z])
    model.identify_inputs_and_outputs([x], [z])
    model.finish()
    compilation = finished(model, [SampleDevice("sample", {RELU, ADD})], fallback=True)
    output = np.zeros(size, np.float32)
    execution = Execution(compilation)
    execution.set_input(0, np.full(size, 5, np.float32))
    execution.set_output(0, output)
    execution.compute()
    assert (output == 2).all()


def test_temporaries_of_unknown_size_inside_a_branch() -> None:
    branch = chain_model([RELU, TANH, RELU], inner_dims=(0, 3))
    devices = [SampleDevice("one", {RELU}), SampleDevice("two", {TANH})]
    compilation = finished(if_model(branch, unary_model(RELU)), devices, fallback=True)
    assert kinds(compilation) == ["if", "one", "two", "one", "goto", "one"]
    wanted = np.tanh(np.maximum(numbers(2, 3), 0))
    np.testing.assert_allclose(run_if(compilation, True, numbers(2, 3)), wanted, rtol=1e-6)


def test_a_loop_uses_two_buffers_by_turns() -> None:
    device = SampleDevice("sample", {ADD})
    compilation = finished(while_model(), [device], fallback=True)
    assert run_while(compilation, 0.0, 1.0, 5.0) == 5
    written = [request.outputs[0].location.offset for request in device.record.requests]
    read = [request.inputs[0].location.offset for request in device.record.requests]
    assert written[0::2] == [written[0]] * 3
    assert written[1::2] == [written[1]] * 2
    assert written[0] != written[1]
    assert read[1:] == written[:-1]
    assert len({id(request) for request in device.record.requests}) == 3


def counter(model: Model, value: int) -> int:
    index = model.add_operand(tensor(1, code=OperandCode.TENSOR_INT32))
    model.set_operand_value(index, np.array([value], np.int32))
    return index


def negated_by_a_loop(model: Model, x: int, size: int, times: int) -> int:
    """Append a loop that negates x so many times, and return its result."""
    kinds_of_state = (tensor(1, code=OperandCode.TENSOR_INT32), tensor(size))
    goes_on, body = Model(), Model()
    count, _ = states = [goes_on.add_operand(kind) for kind in kinds_of_state]
    result = flag(goes_on)
    goes_on.add_operation(LESS, [count, counter(goes_on, times)], [result])
    goes_on.identify_inputs_and_outputs(states, [result])
    goes_on.finish()
    count, value = states = [body.add_operand(kind) for kind in kinds_of_state]
    next_count, negative = results = [body.add_operand(kind) for kind in kinds_of_state]
    add(body, count, counter(body, 1), next_count)
    body.add_operation(OperationCode.NEG, [value], [negative])
    body.identify_inputs_and_outputs(states, results)
    body.finish()
    counted, y = (model.add_operand(kind) for kind in kinds_of_state)
    model.add_operation(WHILE, [refer(model, goes_on), refer(model, body), counter(model, 0), x], [counted, y])
    return y


@pytest.mark.parametrize("fallback", [False, True])
def test_loops_whose_states_differ_in_size(fallback: bool, caplog: pytest.LogCaptureFixture) -> None:
    model = Model()
    inputs = [model.add_operand(tensor(size)) for size in (2, 3)]
    results = [negated_by_a_loop(model, inputs[0], 2, 3), negated_by_a_loop(model, inputs[1], 3, 2)]
    model.identify_inputs_and_outputs(inputs, results)
    model.finish()
    compilation = finished(model, [reference_device().hal], fallback)
    assert kinds(compilation).count("while") == 2
    first, second = run(compilation, [numbers(2), numbers(3)], [(2,), (3,)])
    np.testing.assert_array_equal(first, -numbers(2))
    np.testing.assert_array_equal(second, numbers(3))
    assert "the whole model goes to" not in caplog.text


def roles(compilation: Compilation, is_input: bool, index: int) -> list[tuple[int, bool, int]]:
    plan = plan_of(compilation)
    return [(plan.program.index(role.step), role.is_input, role.index) for role in plan.roles_of(is_input, index)]


def test_roles_through_if() -> None:
    compilation = finished(branches(), [SampleDevice("sample", {RELU, TANH})], fallback=True)
    assert roles(compilation, True, 0) == []
    assert roles(compilation, True, 1) == [(1, True, 0), (3, True, 0)]
    assert roles(compilation, False, 0) == [(1, False, 0), (3, False, 0)]


def test_roles_through_while() -> None:
    compilation = finished(while_model(), [SampleDevice("sample", {ADD})], fallback=True)
    assert roles(compilation, True, 0) == [(1, True, 0), (3, True, 0)]
    assert roles(compilation, True, 1) == [(3, True, 1)]
    assert roles(compilation, True, 2) == [(1, True, 1)]
    assert roles(compilation, False, 0) == []


def test_roles_through_nested_control_flow() -> None:
    compilation = finished(nested(), [SampleDevice("adds", {ADD}), SampleDevice("compares", {LESS})], fallback=True)
    assert roles(compilation, True, 0) == [(1, True, 0), (3, True, 0), (5, True, 0), (7, True, 0)]
    assert roles(compilation, True, 1) == [(5, True, 1)]


def test_device_memory_goes_through_a_branch() -> None:
    device = SampleDevice("sample", {RELU, TANH})
    compilation = finished(branches(), [device], fallback=True)
    source, target = MemoryDesc(), MemoryDesc()
    source.add_input_role(compilation, 1, 1.0)
    target.add_output_role(compilation, 0, 1.0)
    memories = []
    for desc in (source, target):
        desc.finish()
        memories.append(Memory.from_desc(desc))
        assert memories[-1].buffer is not None
    assert [len(found) for found in device.record.allocations[0]] == [2, 0]
    Memory.copy(Memory.from_array(numbers(2, 3)), memories[0])
    for holds, wanted in ((True, np.maximum(numbers(2, 3), 0)), (False, np.tanh(numbers(2, 3)))):
        execution = Execution(compilation)
        execution.set_input(0, np.array([holds]))
        execution.set_input_from_memory(1, memories[0])
        execution.set_output_from_memory(0, memories[1])
        execution.compute()
        np.testing.assert_allclose(memories[1].to_array(np.float32, (2, 3)), wanted, rtol=1e-6)


def loop_on_device_memory(limit: float) -> tuple[Execution, Memory, Memory]:
    """A loop from 1 by ones, with the value in device memory; with that memory and the result's."""
    device = SampleDevice("sample", {ADD, LESS})
    compilation = finished(while_model(), [device], fallback=True)
    source, target = MemoryDesc(), MemoryDesc()
    source.add_input_role(compilation, 0, 1.0)
    target.add_output_role(compilation, 0, 1.0)
    source.finish()
    target.finish()
    start, result = Memory.from_desc(source), Memory.from_desc(target)
    assert start.buffer is not None
    assert result.shared is not None
    Memory.copy(Memory.from_array(np.ones(1, np.float32)), start)
    execution = Execution(compilation)
    execution.set_input_from_memory(0, start)
    execution.set_input(1, np.ones(1, np.float32))
    execution.set_input(2, np.full(1, limit, np.float32))
    execution.set_output_from_memory(0, result)
    return execution, start, result


@pytest.mark.parametrize("limit", [0.0, 3.0])
def test_device_memory_through_a_loop(limit: float) -> None:
    """The value may come from device memory; a loop that ends at once copies it to the output."""
    execution, _, result = loop_on_device_memory(limit)
    execution.compute()
    assert result.to_array(np.float32, (1,))[0] == max(1.0, limit)


def test_a_driver_that_crashes_as_its_memory_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    execution, start, _ = loop_on_device_memory(0.0)

    def crash(_: object) -> None:
        raise RuntimeError("the driver's own")

    monkeypatch.setattr(start.buffer, "copy_to", crash)
    with pytest.raises(OperationFailed, match="copy_to: the driver failed with RuntimeError"):
        execution.compute()


@pytest.mark.parametrize("interpreted", [False, True])
def test_an_endless_loop_times_out(interpreted: bool) -> None:
    device = SampleDevice("sample", {ADD} if interpreted else None)
    compilation = finished(while_model(), [device], fallback=True)
    assert plan_of(compilation).is_simple is not interpreted
    execution = Execution(compilation)
    execution.set_loop_timeout(10**6)
    for at, number in enumerate((0.0, 0.0, 1.0)):
        execution.set_input(at, np.array([number], np.float32))
    execution.set_output(0, np.zeros(1, np.float32))
    with pytest.raises(MissedDeadline):
        execution.compute()


def test_default_loop_timeout_is_below_the_maximum() -> None:
    assert 0 < default_loop_timeout() < maximum_loop_timeout()


def test_a_deadline_ends_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the loop's clock is ahead: the devices of its steps see no deadline pass."""
    compilation = Compilation(while_model(), [reference_device()])
    compilation.finish()
    assert not plan_of(compilation).is_simple
    execution = Execution(compilation)
    execution.set_timeout(10**12)
    for at, number in enumerate((0.0, 1.0, 3.0)):
        execution.set_input(at, np.array([number], np.float32))
    execution.set_output(0, np.zeros(1, np.float32))
    clock = SimpleNamespace(monotonic_ns=lambda: time.monotonic_ns() + 10**12)
    monkeypatch.setattr(compound_run, "time", clock)
    with pytest.raises(MissedDeadline, match="WHILE: the deadline passed") as caught:
        execution.compute()
    assert caught.value.code == ResultCode.MISSED_DEADLINE_TRANSIENT


def while_then_tanh() -> Model:
    model = Model()
    value, step, limit, summed, result = (model.add_operand(tensor(1)) for _ in range(5))
    models = [refer(model, less_model()), refer(model, adding_body())]
    model.add_operation(WHILE, [*models, value, step, limit], [summed])
    model.add_operation(TANH, [summed], [result])
    model.identify_inputs_and_outputs([value, step, limit], [result])
    model.finish()
    return model


def test_a_step_that_fails_after_a_loop_goes_to_the_cpu_once() -> None:
    failing = SampleDevice("failing", {TANH})
    compilation = finished(while_then_tanh(), [failing], fallback=True)
    assert kinds(compilation) == ["while", REFERENCE_NAME, "goto", REFERENCE_NAME, "goto", "failing"]
    failing.script.execute = ErrorStatus.GENERAL_FAILURE
    assert run_while(compilation, 0.0, 0.25, 1.0) == pytest.approx(np.tanh(1.0))
    assert len(failing.record.requests) == 1


def test_a_body_that_fails_goes_to_the_cpu_or_fails() -> None:
    failing = SampleDevice("failing", {ADD})
    compilation = finished(while_model(), [failing], fallback=True)
    failing.script.execute = ErrorStatus.GENERAL_FAILURE
    assert run_while(compilation, 0.0, 1.0, 3.0) == 3
    strict = Compilation(while_model(), [Device(failing), reference_device()])
    strict.finish()
    with pytest.raises(OperationFailed, match="execution on failing, step 3"):
        run_while(strict, 0.0, 1.0, 3.0)


def test_an_omitted_condition_is_refused() -> None:
    compilation = Compilation(branches(), [Device(SampleDevice("sample", {RELU, TANH})), reference_device()])
    compilation.finish()
    execution = Execution(compilation)
    execution.set_input(0, None)
    execution.set_input(1, numbers(2, 3))
    execution.set_output(0, np.zeros((2, 3), np.float32))
    with pytest.raises(BadData, match="is omitted"):
        execution.compute()


def test_a_loop_starts_anew_after_a_body_that_failed() -> None:
    failing = SampleDevice("failing", {ADD})
    compilation = Compilation(while_model(), [Device(failing), reference_device()])
    compilation.finish()
    execution, output = Execution(compilation), np.zeros(1, np.float32)
    execution.set_reusable(True)
    for at, number in enumerate((5.0, 2.0, 8.0)):
        execution.set_input(at, np.array([number], np.float32))
    execution.set_output(0, output)
    failing.script.execute = ErrorStatus.GENERAL_FAILURE
    with pytest.raises(OperationFailed, match="told to fail"):
        execution.compute()
    failing.script.execute = None
    execution.compute()
    assert output[0] == 9


@pytest.mark.parametrize("fenced", [False, True])
def test_a_loop_that_timed_out_is_not_run_again_on_the_cpu(fenced: bool, caplog: pytest.LogCaptureFixture) -> None:
    execution = Execution(finished(while_model(), [SampleDevice("sample", {ADD})], fallback=True))
    execution.set_loop_timeout(10**6)
    for at, number in enumerate((0.0, 0.0, 1.0)):
        execution.set_input(at, np.array([number], np.float32))
    execution.set_output(0, np.zeros(1, np.float32))
    with pytest.raises(MissedDeadline, match="timed out"):
        execution.start_compute_with_dependencies([]).wait() if fenced else execution.compute()
    assert "goes to" not in caplog.text


def test_an_omitted_output_is_the_result_of_a_loop_that_never_goes_round() -> None:
    """Neither condition nor body reads the value that the loop begins with."""
    condition, body, model = Model(), Model(), Model()
    unread, limit = (condition.add_operand(tensor(1)) for _ in range(2))
    zero, goes_on = condition.add_operand(tensor(1)), flag(condition)
    condition.set_operand_value(zero, np.zeros(1, np.float32))
    condition.add_operation(OperationCode.LESS, [limit, zero], [goes_on])
    condition.identify_inputs_and_outputs([unread, limit], [goes_on])
    condition.finish()
    value, limit, changed = (body.add_operand(tensor(1)) for _ in range(3))
    body.add_operation(TANH, [limit], [changed])
    body.identify_inputs_and_outputs([value, limit], [changed])
    body.finish()
    x, y, limit, z = (model.add_operand(tensor(1)) for _ in range(4))
    model.add_operation(RELU, [x], [y])
    model.add_operation(WHILE, [refer(model, condition), refer(model, body), y, limit], [z])
    model.identify_inputs_and_outputs([x, limit], [y, z])
    model.finish()
    compilation = Compilation(model, [Device(SampleDevice("sample", {TANH, RELU})), reference_device()])
    compilation.finish()
    assert any(isinstance(step, WhileStep) for step in plan_of(compilation).program)
    execution = Execution(compilation)
    result = np.zeros(1, np.float32)
    execution.set_input(0, np.full(1, 3, np.float32))
    execution.set_input(1, np.ones(1, np.float32))
    execution.set_output(0, None)
    execution.set_output(1, result)
    execution.compute()
    assert result == 3


def test_an_omitted_result_of_a_loop_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def reading(argument: Argument, code: int) -> Array:
        read.append(code)
        return host_bytes(argument, code)

    monkeypatch.setattr(compound_run, "host_bytes", reading)
    compilation = Compilation(while_model(), [Device(SampleDevice("sample", {ADD})), reference_device()])
    compilation.finish()
    execution = Execution(compilation)
    for at, number in enumerate((0.0, 1.0, 3.0)):
        execution.set_input(at, np.array([number], np.float32))
    execution.set_output(0, None)
    execution.compute()
    assert set(read) == {OperandCode.TENSOR_BOOL8}  # of conditions


def test_cost_mode_leaves_control_flow_whole() -> None:
    compilation = finished(while_model(), [SampleDevice("sample", {ADD})], fallback=True, partition="cost")
    assert kinds(compilation) == [REFERENCE_NAME]
    assert run_while(compilation, 0.0, 1.0, 3.0) == 3


def test_runs_at_once_do_not_mix() -> None:
    compilation = finished(nested(), [SampleDevice("adds", {ADD}), SampleDevice("compares", {LESS})], fallback=True)
    outputs, events = [], []
    for limit in range(1, 9):
        execution, output = Execution(compilation), np.zeros(1, np.float32)
        for at, number in enumerate((0.0, 0.5, float(limit))):
            execution.set_input(at, np.array([number], np.float32))
        execution.set_output(0, output)
        outputs.append(output)
        events.append((execution, execution.start_compute()))
    for _, event in events:
        event.wait()
    assert [float(output[0]) for output in outputs] == [1, 2, 4, 4, 8, 8, 8, 8]
