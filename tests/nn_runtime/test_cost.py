# SPDX-License-Identifier: Apache-2.0
"""Tables of costs, estimates made of them, what is fitted to measured times, and placement by them."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

import cpu_driver.estimate
from gpu_driver.estimate import shipped_table
from nn_runtime.codes import DeviceTypeCode, FeatureLevel, OperandCode, OperationCode
from nn_runtime.compilation import Compilation
from nn_runtime.cost import RIVAL_FACTOR, SPLIT_GAIN, CostModel
from nn_runtime.device import Device
from nn_runtime.devices import Selection, reference_device
from nn_runtime.errors import OperationFailed
from nn_runtime.hal import costs
from nn_runtime.hal.costs import (
    ANY_OPERATION,
    CostFactors,
    CostTable,
    OperationCost,
    Work,
    measured_table,
    operation_estimates,
    operation_work,
    store_table,
    table_path,
)
from nn_runtime.hal.types import DataLocation, ExecutionPreference
from nn_runtime.operations import definitions
from nn_runtime.partition import query_support
from nn_runtime.plan import PartitionMode, PlanOptions, make_plan
from nn_runtime.testing import cost_calibration, cost_probes
from nn_runtime.testing.aosp_samples import fake
from nn_runtime.testing.conformance import hal_model
from nn_runtime.testing.cost_fit import GraphSample, Sample, adjusted, fit
from nn_runtime.testing.product_probes import product_nodes
from nn_runtime.testing.random_graph import RandomGraph, Size, example_of
from nn_runtime.testing.sample_drivers import SampleDevice, uniform_capabilities
from tests.gpu_driver.profiles import CPU_PROFILE
from tests.nn_runtime.graphs import chain_model, finished, nest_model, while_model

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from functools import partial
    from pathlib import Path

    from nn_runtime.hal.interfaces import OperationSupport
    from nn_runtime.hal.types import Model, Subgraph

RELU, TANH = OperationCode.RELU, OperationCode.TANH
TABLE = CostTable(
    100.0, 10.0, 5.0, 20.0, 1.0,
    {
        "RELU": {"float32": OperationCost(7.0, 9.0, 2.0), "quant8": OperationCost(3.0, 3.0)},
        ANY_OPERATION: {"other": OperationCost(50.0, 60.0)},
    },
    "test",
)  # fmt: skip

DEEP = pytest.param("[" * 100_000, id="deep")
"""More brackets than Python's reader of JSON can count."""


@pytest.fixture
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NNRT_CACHE_DIR", str(tmp_path))
    return tmp_path


def test_a_table_survives_json() -> None:
    assert CostTable.from_json(json.loads(json.dumps(TABLE.to_json()))) == TABLE


@pytest.mark.parametrize(
    "change",
    [
        {"run_ns": -1},
        {"run_ns": "1"},
        {"run_ns": 10**400},
        {"byte_ns": float("nan")},
        {"operations": {}},
        {"operations": {"RELU": {"float32": [1, 1, 1, 1]}}},
        {"operations": {ANY_OPERATION: {"float32": [1, 1, 1, 1, 1]}}},
        {"operations": {ANY_OPERATION: {"float32": [1, None]}}},
        {"operations": [1]},
    ],
)
def test_what_is_no_table_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="no table of costs"):
        CostTable.from_json({**TABLE.to_json(), **change})


def test_a_measured_table_counts_for_the_same_device_version_and_processor(
    cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert measured_table("one", "1") is None
    path = store_table("one", "1", TABLE)
    assert path.is_relative_to(cache_folder)
    assert measured_table("one", "1") == TABLE
    assert measured_table("one", "2") is None
    assert measured_table("two", "1") is None
    monkeypatch.setattr(costs, "processor", lambda: "another")
    assert measured_table("one", "1") is None


@pytest.mark.parametrize(
    "content", ["", "{", "[]", DEEP, '{"device": "one"}', '{"device": 1, "version": [], "cpu": {}}']
)
def test_a_damaged_file_is_no_table(cache_folder: Path, content: str) -> None:
    store_table("one", "1", TABLE).write_text(content)
    assert measured_table("one", "1") is None


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes in folders")
@pytest.mark.parametrize("has_writer", [False, True])
def test_a_pipe_in_place_of_a_table_is_not_waited_for(cache_folder: Path, has_writer: bool) -> None:
    path = table_path("one")
    path.parent.mkdir()
    os.mkfifo(path)
    ends = [os.open(path, flags | os.O_NONBLOCK) for flags in (os.O_RDONLY, os.O_WRONLY)] if has_writer else []
    try:
        assert measured_table("one", "1") is None
    finally:
        for end in ends:
            os.close(end)


def test_the_drivers_take_the_measured_table(cache_folder: Path) -> None:
    from cpu_driver.driver import NAME
    from cpu_driver.driver import Device as CpuDevice

    version = CpuDevice().get_version_string()
    shipped = CpuDevice().explain_operations(chain_model([RELU]).hal)[0].estimated_ns
    store_table(NAME, version, TABLE)
    (answer,) = CpuDevice().explain_operations(chain_model([RELU], (2, 3)).hal)
    assert shipped is not None
    assert answer.estimated_ns == 7 + 2 * 6


def test_estimates_are_of_elements_and_of_the_class_of_type() -> None:
    model = chain_model([RELU, TANH], (4, 5)).hal
    assert operation_estimates(model, TABLE) == [7 + 2 * 20, 50]
    dynamic = chain_model([RELU], (0, 5)).hal
    assert operation_estimates(dynamic, TABLE) == [9 + 2 * 5 * costs.UNKNOWN_SIZE]


def test_each_model_of_a_nest_is_estimated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An IF takes a decision and the mean of its branches."""
    asked: list[int] = []
    work = costs.operation_work
    monkeypatch.setattr(costs, "operation_work", lambda code, *sizes: (asked.append(code), work(code, *sizes))[1])
    assert operation_estimates(nest_model(40).hal, TABLE) == [40 * 100 + 7 + 2 * 6]
    assert asked == [RELU]


def test_loops_in_loops_are_estimated_in_numbers() -> None:
    """Eight turns each, 400 deep: more than a float can hold."""
    depth = 400
    innermost = while_model().hal
    condition, body = innermost.referenced

    def level(number: int) -> Subgraph:
        """The loop around model `number`."""
        operands = list(innermost.main.operands)
        at = innermost.main.operations[0].inputs[1]
        operands[at] = replace(operands[at], location=DataLocation(offset=number))
        return replace(innermost.main, operands=tuple(operands))

    loops = [level(number) for number in range(1, depth + 1)]
    model = replace(innermost, main=loops[0], referenced=(condition, *loops[1:], body))
    assert operation_estimates(model, TABLE) == [costs.LONGEST_NS]


def test_a_depthwise_convolution_with_a_multiplier_costs_as_a_grouped_one() -> None:
    rows = {"DEPTHWISE_CONV_2D": 3.0, "GROUPED_CONV_2D": 70.0, ANY_OPERATION: 0.0}
    table = CostTable(0, 0, 0, 0, 0, {name: {"float32": OperationCost(ns, ns)} for name, ns in rows.items()})
    for channels, cost in ((8, 3.0), (4, 70.0)):
        node = next(node for node in product_nodes(OperationCode.DEPTHWISE_CONV_2D, OperandCode.TENSOR_FLOAT32))
        image = replace(node.inputs[0], dimensions=(1, 16, 16, channels), array=np.zeros((1, 16, 16, channels)))
        graph = RandomGraph(0, Size.SINGLE, (replace(node, inputs=(image, *node.inputs[1:])),), node.outputs)
        assert operation_estimates(hal_model(example_of(graph)), table) == [cost]


def test_a_run_costs_its_arguments_and_their_bytes() -> None:
    assert TABLE.run_ns_of(chain_model([RELU], (4, 5)).hal) == 100 + 10 + 20 + 1.0 * 2 * 4 * 20


@pytest.mark.parametrize(
    ("code", "inputs", "output", "multiply_adds"),
    [
        # 28 x 28 outputs of 64 channels, each a product of 3 x 3 x 16
        (OperationCode.CONV_2D, [(1, 28, 28, 16), (64, 3, 3, 16), (64,)], (1, 28, 28, 64), 28 * 28 * 64 * 144),
        (OperationCode.DEPTHWISE_CONV_2D, [(1, 9, 9, 8), (1, 3, 3, 8), (8,)], (1, 7, 7, 8), 7 * 7 * 8 * 9),
        (OperationCode.GROUPED_CONV_2D, [(1, 4, 4, 8), (6, 1, 1, 4), (6,)], (1, 4, 4, 6), 4 * 4 * 6 * 4),
        (OperationCode.TRANSPOSE_CONV_2D, [(1, 5, 5, 4), (8, 2, 2, 4), (8,)], (1, 10, 10, 8), 5 * 5 * 4 * 8 * 4),
        (OperationCode.FULLY_CONNECTED, [(3, 40), (10, 40), (10,)], (3, 10), 3 * 10 * 40),
        (OperationCode.BATCH_MATMUL, [(2, 3, 40), (2, 40, 10)], (2, 3, 10), 2 * 3 * 40 * 10),
        (OperationCode.RELU, [(3, 40)], (3, 40), 0),
    ],
)
def test_multiply_adds(code: int, inputs: list[tuple[int, ...]], output: tuple[int, ...], multiply_adds: int) -> None:
    assert operation_work(code, inputs, [output]).multiply_adds == multiply_adds


def test_a_sequence_has_steps() -> None:
    weights = [(8, 4)] * 4 + [(8, 8)] * 4
    work = operation_work(OperationCode.UNIDIRECTIONAL_SEQUENCE_LSTM, [(1, 28, 4), *weights], [(1, 28, 8)])
    assert (work.steps, work.multiply_adds) == (28, 28 * 4 * (8 * 4 + 8 * 8))


def test_fit_finds_the_costs_that_times_were_made_of_in_spite_of_outliers() -> None:
    rng = np.random.default_rng(5)
    true = OperationCost(4000, 6000, 1.5, 0.25)
    sizes = [(int(rng.integers(10, 10**5)), int(rng.integers(0, 10**6))) for _ in range(30)]
    samples = [Sample(Work(1, *size), False, true.of(Work(1, *size), False)) for size in sizes]
    samples += [Sample(Work(1, 10, 10), True, true.of(Work(1, 10, 10), True))] * 3
    samples[3] = replace(samples[3], duration_ns=9 * samples[3].duration_ns)
    found = fit(samples)
    wanted = (true.fixed_ns, true.dynamic_ns, true.element_ns, true.multiply_add_ns)
    got = (found.fixed_ns, found.dynamic_ns, found.element_ns, found.multiply_add_ns)
    assert got == pytest.approx(wanted, rel=0.02)


def test_adjusting_finds_the_factors_of_another_device() -> None:
    rng = np.random.default_rng(3)
    true = TABLE.scaled("true", CostFactors(run=3, argument=0.5, byte=2, fixed=4, dynamic=2, work=0.3))
    models = []
    for _ in range(60):
        codes = [(RELU, TANH)[int(pick)] for pick in rng.integers(2, size=int(rng.integers(1, 20)))]
        rows = int(rng.integers(1, 60))
        models.append(chain_model(codes, (rows, 8), (0, 8) if rng.random() < 0.3 else None).hal)
    samples = [GraphSample(model, GraphSample(model, 0).model_estimate(true)) for model in models]
    samples[7] = replace(samples[7], duration_ns=20 * samples[7].duration_ns)
    found = adjusted(TABLE, samples)
    for model in models:
        wanted = GraphSample(model, 0).model_estimate(true)
        assert GraphSample(model, 0).model_estimate(found) == pytest.approx(wanted, rel=0.05)
    assert adjusted(TABLE, samples[:5]) == TABLE


def test_a_table_is_fitted_to_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost_calibration, "GRAPHS", 15)
    monkeypatch.setattr(cost_calibration, "_PRODUCTS", ())
    base = cpu_driver.estimate.shipped_table()
    found = cost_calibration.calibrated(reference_device(), base, lambda count: iter(range(count)))
    assert found.operations.keys() == base.operations.keys()
    assert found.run_ns > 0
    model = chain_model([RELU] * 9, (40, 40)).hal
    assert 0 < GraphSample(model, 0).model_estimate(found) < 1e9


def test_rows_are_measured_for_every_kind_of_an_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The times are told by a table, whose figures are found again."""
    true = OperationCost(4000, 6000, 1.5, 0.25)
    rows = {"RELU": replace(true, multiply_add_ns=0.0), "FULLY_CONNECTED": true, "TANH": OperationCost(700, 700)}
    classes = ("float32", "float16", "quant8")
    costs_of = CostTable(5000, 300, 150, 200, 0.5, {name: dict.fromkeys(classes, cost) for name, cost in rows.items()})
    kinds = [kind for kind in cost_probes._kinds() if kind[0] in (RELU, OperationCode.FULLY_CONNECTED)]

    def told(run: partial[object]) -> float:
        model = run.func.__self__._runner.plan.model  # type: ignore[attr-defined]
        return GraphSample(model, 0).model_estimate(costs_of)

    monkeypatch.setattr(cost_probes, "_kinds", lambda: kinds)
    monkeypatch.setattr(cost_calibration, "slice_ns", told)
    found = cost_probes.probed(reference_device(), lambda count: iter(range(count)))
    assert found.operations.keys() == {"RELU", "FULLY_CONNECTED", ANY_OPERATION}
    assert (found.run_ns, found.byte_ns) == (5000, 0.5)
    assert (found.input_ns, found.output_ns) == pytest.approx((300, 200), abs=0.5 * 4 * 16)  # and 16 floats' bytes
    for kind in classes:
        relu = found.operations["RELU"][kind]
        assert (relu.fixed_ns, relu.element_ns) == pytest.approx((4000, 1.5), rel=0.05)
        product = found.operations["FULLY_CONNECTED"][kind]
        got = (product.fixed_ns, product.element_ns, product.multiply_add_ns)
        assert got == pytest.approx((4000, 1.5, 0.25), rel=0.05)


def test_scaled_tables_scale_what_they_say() -> None:
    other = TABLE.scaled("other", CostFactors(run=2, argument=3, byte=4, fixed=5, dynamic=6, work=7, product=8))
    assert (other.run_ns, other.input_ns, other.scalar_ns, other.output_ns, other.byte_ns) == (200, 30, 15, 60, 4)
    assert other.operations["RELU"]["float32"] == OperationCost(35, 54, 14)


SHIPPED = {
    "nnapi-reference": cpu_driver.estimate.shipped_table(),
    **{
        f"{slug} {type_.name}": shipped_table(replace(CPU_PROFILE, slug=slug, type=type_))
        for slug in ("pocl", "intel", "rusticl", "oclgrind", "nvidia", "someone")
        for type_ in (DeviceTypeCode.CPU, DeviceTypeCode.GPU, DeviceTypeCode.ACCELERATOR)
    },
}


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_tables_list_every_operation(name: str) -> None:
    control_flow = {OperationCode.IF, OperationCode.WHILE}
    missing = {OperationCode(code).name for code in definitions() if code not in control_flow}
    assert missing <= SHIPPED[name].operations.keys()


class PricedDevice(SampleDevice):
    """A sample device with a table, of which the runtime makes estimates."""

    def __init__(self, name: str, table: CostTable, operations: set[int] | None = None) -> None:
        super().__init__(name, operations)
        self.table = table

    def cost_table(self) -> CostTable:
        return self.table


class EstimatingDevice(PricedDevice):
    """One that makes them itself."""

    def explain_operations(self, model: Model) -> Sequence[OperationSupport]:
        estimates = operation_estimates(model, self.table)
        answers = super().explain_operations(model)
        return [replace(one, estimated_ns=round(ns)) for one, ns in zip(answers, estimates, strict=True)]


def model_of(codes: list[OperationCode], *tables: CostTable) -> CostModel:
    model = chain_model(codes).hal
    devices = [Device(EstimatingDevice(f"device{at}", table)) for at, table in enumerate(tables)]
    return CostModel(model, devices, [query_support(model, d) for d in devices], ExecutionPreference.FAST_SINGLE_ANSWER)


def table(run_ns: float, relu_ns: float, tanh_ns: float) -> CostTable:
    return price_table(run_ns, {RELU: relu_ns, TANH: tanh_ns})


def price_table(run_ns: float, prices: Mapping[OperationCode, float]) -> CostTable:
    rows = {code.name: {"float32": OperationCost(ns, ns)} for code, ns in prices.items()}
    return CostTable(run_ns, 0, 0, 0, 0, {**rows, ANY_OPERATION: {"other": OperationCost(1, 1)}})


def test_estimates_are_made_of_the_table_where_the_device_makes_none() -> None:
    model = chain_model([RELU, TANH]).hal
    costs_of = [
        CostModel(model, [device], [query_support(model, device)], ExecutionPreference.FAST_SINGLE_ANSWER).operation_ns
        for device in (Device(kind("device", table(100, 30, 40))) for kind in (PricedDevice, EstimatingDevice))
    ]
    assert costs_of == [[[30, 40]], [[30, 40]]]


def test_a_long_model_pays_for_a_dear_run_and_a_short_one_does_not() -> None:
    quick_run, quick_operations = table(10, 10, 10), table(100, 1, 1)
    assert model_of([RELU] * 3, quick_operations, quick_run).place().chosen == [1] * 3
    assert model_of([RELU] * 30, quick_operations, quick_run).place().chosen == [0] * 30


def test_a_split_must_save_more_than_its_uncertainty() -> None:
    chain = [RELU, TANH]
    first, second = table(100, 10, 1000), table(100, 1000, 10)
    split = model_of(chain, first, second).place()
    assert (split.chosen, split.total_ns) == ([0, 1], 220)
    single = 1 + 100 + 10
    barely = 220 / (1 - SPLIT_GAIN / 2) - single + 1
    assert len(set(model_of(chain, table(100, 10, barely), table(100, 1000, 10)).place().chosen)) == 1


def test_a_path_stays_on_a_device_that_is_not_the_cheapest_yet() -> None:
    """RELU is `first`'s alone, LOGISTIC after TANH `second`'s: going by way of `third` would save 49 and cost a run."""
    model = chain_model([RELU, TANH, OperationCode.LOGISTIC]).hal
    prices = {"first": {RELU: 1}, "second": {TANH: 50, OperationCode.LOGISTIC: 1}, "third": {TANH: 1}}
    devices = [Device(EstimatingDevice(name, price_table(60, one), set(one))) for name, one in prices.items()]
    support = [query_support(model, device) for device in devices]
    placed = CostModel(model, devices, support, ExecutionPreference.FAST_SINGLE_ANSWER).place()
    assert (placed.chosen, placed.total_ns) == ([0, 1, 1], 2 * 60 + 1 + 50 + 1)


def test_a_device_that_shall_have_the_whole_must_take_all_of_it() -> None:
    model = chain_model([RELU, TANH])
    for operations, names in (({RELU, TANH}, ["sample"]), ({RELU}, [reference_device().name])):
        device = Device(SampleDevice("sample", operations, estimates_ns={RELU: 10**9, TANH: 10**9}))
        options = PlanOptions(partition=PartitionMode.COST, whole_on="sample")
        plan = make_plan(model.hal, range(2), [device, reference_device()], options)
        assert [step.device.name for step in plan.steps] == names


def test_rivals_are_single_devices_that_may_be_as_fast() -> None:
    tables = [table(100, 200 * times - 100, 1) for times in (RIVAL_FACTOR, 1, 1.5, RIVAL_FACTOR + 0.1)]
    placed = model_of([RELU], *tables).place()
    assert (placed.chosen, placed.rivals) == ([1], [2, 0])
    split = model_of([RELU, TANH], table(100, 10, 9999), table(100, 9999, 10), table(100, 10, 200)).place()
    assert (split.chosen, split.rivals) == ([0, 1], [2])


@pytest.mark.parametrize("dims", [(4, 5), (0, 5)], ids=["known sizes", "unknown sizes"])
@pytest.mark.parametrize(("figure", "wins"), [(0.1, True), (10.0, False)])
def test_a_device_that_tells_no_costs_is_compared_by_its_figures(
    dims: tuple[int, ...], figure: float, wins: bool
) -> None:
    silent = SampleDevice("silent", capabilities=uniform_capabilities(figure, figure))
    model = chain_model([RELU] * 30, dims)
    compilation = Compilation.for_selection(model, Selection((Device(silent), reference_device()), False))
    compilation.set_partition("cost")
    compilation.finish()
    (step,) = compilation.finished_plan("test").steps
    assert step.device.name == ("silent" if wins else "nnapi-reference")


@pytest.mark.parametrize("seed", range(20))
def test_no_plan_is_estimated_slower_than_the_best_single_device(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tables = [table(*(float(value) for value in rng.integers(1, 1000, 3))) for _ in range(3)]
    codes = [(RELU, TANH)[int(rng.integers(2))] for _ in range(12)]
    model = model_of(codes, *tables)
    placed = model.place()
    assert placed.total_ns <= min(model.total([device] * 12) for device in range(3))
    assert placed == model_of(codes, *tables).place()


@pytest.mark.parametrize("partition", ["aosp", "cost"])
def test_where_no_placement_is_possible_the_error_says_why(partition: str) -> None:
    """The first operation's result has no size before it runs, and only a device of HAL 1.0 takes it."""
    devices = [fake("old", FeatureLevel.HAL_1_0, {RELU}).device, SampleDevice("new", {TANH})]
    with pytest.raises(OperationFailed, match="operation 0 on old gives results of unknown size"):
        finished(chain_model([RELU, TANH], (0,)), devices, partition=partition)


def test_types_have_the_class_that_tables_use() -> None:
    assert costs.type_class(OperandCode.TENSOR_QUANT8_ASYMM_SIGNED) == "quant8"
    assert costs.type_class(OperandCode.TENSOR_INT32) == "other"
