# SPDX-License-Identifier: Apache-2.0
"""Placement and cutting (AOSP TestPartitioning: SimpleModel, Perf, RelaxedFP, Cpu, step models; mode "cost")."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime import partition
from nn_runtime.codes import OEM_OPERATION, OperandCode, OperationCode, PreferenceCode
from nn_runtime.compilation import Compilation
from nn_runtime.cost import STEP_NS
from nn_runtime.device import REFERENCE_NAME, Device
from nn_runtime.devices import Selection, reference_device
from nn_runtime.errors import BadData, OperationFailed
from nn_runtime.hal.capabilities import WORST
from nn_runtime.hal.interfaces import OperationSupport
from nn_runtime.hal.types import (
    Capabilities,
    ErrorStatus,
    ExecutionPreference,
    HalError,
    Operand,
    OperandLifeTime,
    Operation,
    PerformanceInfo,
    Subgraph,
)
from nn_runtime.hal.types import Model as HalModel
from nn_runtime.model import Model
from nn_runtime.operand import OperandType
from nn_runtime.partition import cut, operation_scores, place_by_capabilities
from nn_runtime.testing.sample_drivers import NullDevice, SampleDevice, SamplePreparedModel, uniform_capabilities
from tests.nn_runtime.graphs import add_model, chain_model, finished, nest_model, numbers, run, tensor, while_model

if TYPE_CHECKING:
    from nn_runtime.plan import Plan

RELU, TANH, LOGISTIC = OperationCode.RELU, OperationCode.TANH, OperationCode.LOGISTIC


def plan_of(compilation: Compilation) -> Plan:
    plan = compilation.plan
    assert plan is not None
    return plan


def names_of(compilation: Compilation) -> list[str]:
    """The device of each step."""
    return [step.device.name for step in plan_of(compilation).steps]


def test_a_model_on_one_device_is_a_simple_plan() -> None:
    device = SampleDevice("good")
    compilation = finished(chain_model([RELU, TANH]), [device, SampleDevice("bad", {RELU})])
    assert plan_of(compilation).is_simple
    assert names_of(compilation) == ["good"]
    assert device.record.models == [plan_of(compilation).model]


def test_the_better_figure_wins_by_preference() -> None:
    model = add_model()
    fast = SampleDevice("fast", capabilities=uniform_capabilities(0.5, 0.9))
    frugal = SampleDevice("frugal", capabilities=uniform_capabilities(0.9, 0.5))
    for preference, wanted in (
        (PreferenceCode.FAST_SINGLE_ANSWER, "fast"),
        (PreferenceCode.SUSTAINED_SPEED, "fast"),
        (PreferenceCode.LOW_POWER, "frugal"),
    ):
        compilation = Compilation(model, [Device(fast), Device(frugal)])
        compilation.set_preference(preference)
        compilation.finish()
        assert names_of(compilation) == [wanted]


def test_ties_go_to_the_earlier_device_but_the_cpu_wins_any() -> None:
    model = add_model()
    first, second = SampleDevice("first"), SampleDevice("second")
    assert names_of(finished(model, [first, second])) == ["first"]
    equal = SampleDevice("equal", capabilities=uniform_capabilities(1.0, 1.0))
    assert names_of(finished(model, [equal], fallback=True)) == [REFERENCE_NAME]
    worse = SampleDevice("worse", capabilities=uniform_capabilities(1.1, 1.1))
    assert names_of(finished(model, [worse], fallback=True)) == [REFERENCE_NAME]
    assert names_of(finished(model, [first], fallback=True)) == ["first"]


@pytest.mark.parametrize("relaxed", [False, True])
def test_relaxed_models_use_the_relaxed_figures(relaxed: bool) -> None:
    low, high = PerformanceInfo(0.2, 0.2), PerformanceInfo(0.8, 0.8)
    base = uniform_capabilities(0.5, 0.5)
    device = SampleDevice(
        "relaxing", capabilities=replace(base, operand_performance={}, relaxed_float32_to_float16_tensor=low)
    )
    exact = SampleDevice("exact", capabilities=replace(base, relaxed_float32_to_float16_tensor=high))
    compilation = finished(add_model(relaxed=relaxed), [device, exact])
    assert names_of(compilation) == ["relaxing" if relaxed else "exact"]


@pytest.mark.parametrize("code", [OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_QUANT8_ASYMM])
def test_the_type_of_the_first_input_decides(code: int) -> None:
    def table(better: int) -> Capabilities:
        base = uniform_capabilities(0.5, 0.5)
        return replace(base, operand_performance={**base.operand_performance, better: PerformanceInfo(0.1, 0.1)})

    kind = tensor(2, code=code, scale=0.0 if code == OperandCode.TENSOR_FLOAT32 else 0.5)
    model = Model()
    x, y = model.add_operand(kind), model.add_operand(kind)
    model.add_operation(RELU, [x], [y])
    model.identify_inputs_and_outputs([x], [y])
    model.finish()
    other = SampleDevice("other", capabilities=table(OperandCode.TENSOR_INT32))
    best = SampleDevice("best", capabilities=table(code))
    assert names_of(finished(model, [other, best])) == ["best"]


def test_device_cpu_device_makes_three_steps() -> None:
    device = SampleDevice("sample", {RELU, LOGISTIC})
    compilation = finished(chain_model([RELU, TANH, TANH, LOGISTIC]), [device], fallback=True)
    assert names_of(compilation) == ["sample", REFERENCE_NAME, "sample"]
    assert [step.original_operations for step in plan_of(compilation).steps] == [(0,), (1, 2), (3,)]


def test_step_models_inputs_outputs_and_temporaries() -> None:
    """X -> RELU -> t0 -> TANH -> y0; t0 -> LOGISTIC -> t1 -> RELU -> y1, with TANH and LOGISTIC elsewhere."""
    model = Model()
    x, t0, t1, y0, y1 = (model.add_operand(tensor(2, 3)) for _ in range(5))
    model.add_operation(RELU, [x], [t0])
    model.add_operation(TANH, [t0], [y0])
    model.add_operation(LOGISTIC, [t0], [t1])
    model.add_operation(RELU, [t1], [y1])
    model.identify_inputs_and_outputs([x], [y0, y1])
    model.finish()
    devices = [SampleDevice("a", {RELU}), SampleDevice("b", {TANH, LOGISTIC})]
    plan = plan_of(finished(model, devices))
    first, second, third = plan.steps
    assert [step.device.name for step in plan.steps] == ["a", "b", "a"]
    assert (first.inputs, first.outputs) == ((x,), (t0,))
    assert (second.inputs, second.outputs) == ((t0,), (y0, t1))
    assert (third.inputs, third.outputs) == ((t1,), (y1,))
    middle = second.model.main
    assert [operation.type for operation in middle.operations] == [TANH, LOGISTIC]
    assert middle.input_indexes == (0,)
    assert [middle.operands[i].lifetime for i in middle.output_indexes] == [OperandLifeTime.SUBGRAPH_OUTPUT] * 2
    assert [(role.step, role.is_input, role.index) for role in plan.roles_of(False, 0)] == [(second, False, 0)]


def test_a_model_output_may_be_a_later_steps_input() -> None:
    model = Model()
    x, y0, y1 = (model.add_operand(tensor(2)) for _ in range(3))
    model.add_operation(RELU, [x], [y0])
    model.add_operation(TANH, [y0], [y1])
    model.identify_inputs_and_outputs([x], [y0, y1])
    model.finish()
    plan = plan_of(finished(model, [SampleDevice("a", {RELU}), SampleDevice("b", {TANH})]))
    assert [(step.inputs, step.outputs) for step in plan.steps] == [((x,), (y0,)), ((y0,), (y1,))]
    assert [(role.is_input, role.index) for role in plan.roles_of(False, 0)] == [(False, 0), (True, 0)]


def test_the_cpus_queue_is_drained_before_those_of_the_devices() -> None:
    model = Model()
    x, a, b, c = (model.add_operand(tensor(2)) for _ in range(4))
    model.add_operation(RELU, [x], [a])
    model.add_operation(TANH, [x], [b])
    model.add_operation(LOGISTIC, [x], [c])
    model.identify_inputs_and_outputs([x], [a, b, c])
    model.finish()
    devices = [SampleDevice("first", {RELU}), SampleDevice("second", {TANH})]
    assert names_of(finished(model, devices, fallback=True)) == [REFERENCE_NAME, "second", "first"]


def test_referenced_large_constants_are_shared_with_step_models() -> None:
    model = chain_model([RELU, TANH])
    steps = cut(model.hal, [Device(SampleDevice("a")), Device(SampleDevice("b"))], [0, 1])
    assert all(step.model.pools == model.hal.pools for step in steps)


def test_every_operation_tells_device_step_and_reasons() -> None:
    device = SampleDevice("sample", {RELU}, estimates_ns={RELU: 1234})
    relu, tanh = plan_of(finished(chain_model([RELU, TANH]), [device], fallback=True)).placements
    assert (relu.operation, relu.code, relu.device.name, relu.step) == (0, RELU, "sample", 0)
    assert relu.estimated_ns == 1234
    assert (tanh.device.name, tanh.step) == (REFERENCE_NAME, 1)
    assert tanh.support["sample"].reason == "TANH is not on the list"
    assert tanh.support[REFERENCE_NAME].supported


def test_an_estimate_is_that_of_the_device_that_runs_an_operation() -> None:
    """Where a device fails and the whole goes to the CPU, its estimates go for nothing."""
    device = SampleDevice("sample", estimates_ns={RELU: 1234})
    device.script.prepare = ErrorStatus.GENERAL_FAILURE
    (relu,) = plan_of(finished(chain_model([RELU]), [device], fallback=True)).placements
    assert relu.device.name == REFERENCE_NAME
    assert relu.support["sample"].estimated_ns == 1234
    assert relu.estimated_ns == relu.support[REFERENCE_NAME].estimated_ns != 1234


class MiscountingDevice(SampleDevice):
    def explain_operations(self, model: object) -> list[object]:  # type: ignore[override]
        return []


class RaisingDevice(SampleDevice):
    def explain_operations(self, model: object) -> list[object]:  # type: ignore[override]
        raise OSError("gone")


@pytest.mark.parametrize("kind", [MiscountingDevice, RaisingDevice])
def test_a_device_that_answers_wrongly_supports_nothing(kind: type[SampleDevice]) -> None:
    assert names_of(finished(add_model(), [kind("odd")], fallback=True)) == [REFERENCE_NAME]
    with pytest.raises(BadData, match="odd: the device"):
        finished(add_model(), [kind("odd")])


def estimating(name: str, relu_ns: float, tanh_ns: float, operations: set[int] | None = None) -> SampleDevice:
    return SampleDevice(name, operations, estimates_ns={RELU: int(relu_ns), TANH: int(tanh_ns)})


def test_cost_mode_splits_only_where_it_pays() -> None:
    model = chain_model([RELU, TANH])
    little, much = STEP_NS / 10, STEP_NS * 10
    devices = [estimating("a", little, much), estimating("b", much, little)]
    assert names_of(finished(model, devices, partition="cost")) == ["a", "b"]
    devices = [estimating("a", little, 5 * little), estimating("b", 5 * little, little)]
    assert names_of(finished(model, devices, partition="cost")) == ["a"]
    assert names_of(finished(model, list(reversed(devices)), partition="cost")) == ["b"]


def test_cost_mode_splits_where_it_must() -> None:
    devices = [estimating("a", 1, 1, {RELU}), estimating("b", 1, 1, {TANH})]
    assert names_of(finished(chain_model([RELU, TANH, RELU]), devices, partition="cost")) == ["a", "b", "a"]
    with pytest.raises(BadData, match="operation 0 LOGISTIC"):
        finished(chain_model([LOGISTIC]), devices, partition="cost")


def test_cost_mode_prefers_the_order_of_the_selector_on_a_tie() -> None:
    devices = [estimating("a", 100, 100), estimating("b", 100, 100)]
    assert names_of(finished(chain_model([RELU, TANH]), devices, partition="cost")) == ["a"]


def test_low_power_always_follows_the_tables() -> None:
    frugal = SampleDevice("frugal", capabilities=uniform_capabilities(0.9, 0.1), estimates_ns={RELU: 10**9})
    quick = SampleDevice("quick", capabilities=uniform_capabilities(0.1, 0.9), estimates_ns={RELU: 1})
    selection = Selection((Device(frugal), Device(quick), reference_device()), False)
    compilation = Compilation.for_selection(chain_model([RELU]), selection)
    compilation.set_preference(PreferenceCode.LOW_POWER)
    compilation.set_partition("cost")
    compilation.finish()
    assert names_of(compilation) == ["frugal"]


def if_model(dims: tuple[int, ...]) -> Model:
    """Y = RELU(x) if condition else TANH(x)."""
    model = Model()
    condition = model.add_operand(tensor(1, code=OperandCode.TENSOR_BOOL8))
    branches = []
    for code in (RELU, TANH):
        index = model.add_operand(OperandType(OperandCode.MODEL))
        model.set_operand_value_from_model(index, chain_model([code], dims))
        branches.append(index)
    x, y = model.add_operand(tensor(*dims)), model.add_operand(tensor(*dims))
    model.add_operation(OperationCode.IF, [condition, *branches, x], [y])
    model.identify_inputs_and_outputs([condition, x], [y])
    model.finish()
    return model


def test_control_flow_goes_whole_to_a_device_unless_sizes_are_unknown() -> None:
    device = SampleDevice("sample")
    known = finished(if_model((2, 3)), [device], fallback=True)
    assert names_of(known) == ["sample"]
    assert len(device.record.models[0].referenced) == 2
    unknown = finished(if_model((0, 3)), [device], fallback=True)
    assert names_of(unknown) == [REFERENCE_NAME]
    for condition, wanted in ((True, np.maximum(numbers(2, 3), 0)), (False, np.tanh(numbers(2, 3)))):
        (result,) = run(known, [np.array([condition]), numbers(2, 3)], [(2, 3)])
        np.testing.assert_allclose(result, wanted, rtol=1e-6)


class OemDevice(SampleDevice):
    """A device that may take the OEM operation, and may prepare it."""

    def __init__(self, name: str, exec_time: float, takes: bool, prepares: bool = True) -> None:
        super().__init__(name, None, uniform_capabilities(exec_time, exec_time))
        self.takes = takes
        if not prepares:
            self.script.prepare = ErrorStatus.GENERAL_FAILURE

    def explain_operations(self, model: HalModel) -> list[OperationSupport]:
        return [OperationSupport(self.takes or op.type != OEM_OPERATION) for op in model.main.operations]

    def prepare_model(self, model: HalModel, *options: object) -> SamplePreparedModel:  # type: ignore[override]
        if self.script.prepare is not None:
            raise HalError(self.script.prepare, "cannot prepare it after all")
        return NullDevice("null").prepare_model(model, *options)  # type: ignore[arg-type]


def test_oem_operations() -> None:
    """The best device that takes one gets it, though slower than the CPU; there is no fallback (AOSP OemOperations)."""
    model = Model()
    x, y = (model.add_operand(tensor(1)) for _ in range(2))
    model.add_operation(OEM_OPERATION, [x], [y])
    model.identify_inputs_and_outputs([x], [y])
    model.finish()
    devices = [OemDevice("bad", 1.5, True), OemDevice("none", 0.5, False), OemDevice("good", 1.2, True)]
    assert names_of(finished(model, devices, fallback=True)) == ["good"]
    for others in ([OemDevice("none", 0.5, False)], []):
        with pytest.raises(BadData, match="no device can run it"):
            finished(model, others, fallback=True)
    with pytest.raises(OperationFailed, match="cannot prepare it after all"):
        finished(model, [OemDevice("indecisive", 0.5, True, prepares=False)], fallback=True)


TYPES = [code for code in OperandCode if code != OperandCode.MODEL]


@pytest.mark.parametrize("code", TYPES)
@pytest.mark.parametrize("better", [False, True])
def test_every_operand_type_has_its_figure(code: OperandCode, better: bool) -> None:
    """AOSP Perf and PerfTest.Lookup: an operation of that first input goes where its own figure is better."""
    base = uniform_capabilities(0.5, 0.5)
    figure = PerformanceInfo(0.4, 0.4) if better else PerformanceInfo(0.6, 0.6)
    table = {**base.operand_performance, code: figure}
    devices = [Device(SampleDevice("base")),
               Device(SampleDevice("other", capabilities=replace(base, operand_performance=table)))]  # fmt: skip
    operand = Operand(code)
    graph = Subgraph((operand, operand), (Operation(OEM_OPERATION, (0,), (1,)),), (0,), (1,))
    model = HalModel(graph)
    scores = [operation_scores(model, device, ExecutionPreference.FAST_SINGLE_ANSWER) for device in devices]
    assert scores == [[0.5], [figure.exec_time]]
    taken = [[OperationSupport(True)]] * 2
    chosen = place_by_capabilities(model, devices, taken, ExecutionPreference.FAST_SINGLE_ANSWER, [0])
    assert chosen == [int(better)]


def test_a_type_that_is_not_listed_has_the_worst_figure() -> None:
    empty = replace(uniform_capabilities(0.5, 0.5), operand_performance={})
    graph = Subgraph((Operand(3),), (Operation(OEM_OPERATION, (0,), ()),), (0,), ())
    device = Device(SampleDevice("empty", capabilities=empty))
    (score,) = operation_scores(HalModel(graph), device, ExecutionPreference.FAST_SINGLE_ANSWER)
    assert score > 3e38


def test_each_model_of_a_nest_is_scored_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """IF counts its own figure and half of both branches (AOSP ModelBuilder::getPerformance)."""
    asked: list[int] = []
    figure = partition.lookup
    monkeypatch.setattr(partition, "lookup", lambda table, code: (asked.append(code), figure(table, code))[1])
    device = Device(SampleDevice("sample", capabilities=uniform_capabilities(0.5, 0.5)))
    assert operation_scores(nest_model(40).hal, device, ExecutionPreference.FAST_SINGLE_ANSWER) == [41 * 0.5]
    assert asked == [OperandCode.TENSOR_FLOAT32]


def test_a_loop_is_scored_with_its_condition_and_body() -> None:
    """In full: what runs again and again counts more than one of two branches (AOSP ModelBuilder::getPerformance)."""
    device = Device(SampleDevice("sample", capabilities=uniform_capabilities(0.5, 0.5)))
    own, less, add = 0.5, 0.5, 0.5
    assert operation_scores(while_model().hal, device, ExecutionPreference.FAST_SINGLE_ANSWER) == [own + less + add]


def test_an_operation_without_inputs_goes_by_the_worst_figure() -> None:
    """A vendor's may have none, and so no type whose figure it could have."""
    model = Model()
    made = model.add_operand(tensor(2))
    model.add_operation(OEM_OPERATION, [], [made])
    model.identify_inputs_and_outputs([], [made])
    model.finish()
    device = Device(SampleDevice("sample", capabilities=uniform_capabilities(0.5, 0.5)))
    assert operation_scores(model.hal, device, ExecutionPreference.FAST_SINGLE_ANSWER) == [WORST.exec_time]


def test_what_only_a_step_itself_reads_stays_inside() -> None:
    plan = plan_of(finished(chain_model([RELU, TANH, LOGISTIC]), [SampleDevice("a", {RELU}), SampleDevice("b")]))
    assert [len(step.outputs) for step in plan.steps] == [1, 1]
    assert plan.steps[-1].outputs == plan.model.main.output_indexes


def test_a_step_without_outputs_sends_the_whole_model_to_the_cpu() -> None:
    """A result that nobody reads (AOSP ZeroOutputStepModel); in mode "cost" its step gives it out all the same."""
    model = Model()
    x, dead, y = (model.add_operand(tensor(2)) for _ in range(3))
    model.add_operation(RELU, [x], [dead])
    model.add_operation(TANH, [x], [y])
    model.identify_inputs_and_outputs([x], [y])
    model.finish()
    devices = [SampleDevice("relu", {RELU}), SampleDevice("tanh", {TANH})]
    with pytest.raises(OperationFailed, match="operation 0 on relu has no outputs"):
        finished(model, devices)
    assert names_of(finished(model, devices, fallback=True)) == [REFERENCE_NAME]
    compilation = finished(model, devices, partition="cost")
    outputs = [(step.device.name, step.outputs) for step in plan_of(compilation).steps]
    assert outputs == [("tanh", (y,)), ("relu", (dead,))]
    np.testing.assert_allclose(run(compilation, [numbers(2)], [(2,)]), [np.tanh(numbers(2))], rtol=1e-6)


def test_the_order_of_operations_does_not_hide_one_that_is_not_supported() -> None:
    """AOSP PartialModelNotSupported, PartialModelNotSupportedOrder, ModelNeedTwoDevices."""
    for codes in ([RELU, TANH], [TANH, RELU]):
        model = chain_model(codes)
        only = SampleDevice("only", {RELU})
        with pytest.raises(BadData, match=f"operation {codes.index(TANH)} TANH: no device can run it"):
            finished(model, [only])
        assert model.supported_operations([Device(only)]) == [code == RELU for code in codes]
        both = [only, SampleDevice("rest", {TANH})]
        assert sorted(names_of(finished(model, both))) == ["only", "rest"]
