# SPDX-License-Identifier: Apache-2.0
"""Random graphs: the CPU driver against its functions in float64, other devices against the CPU driver, and the tester.

`--long` runs them all: 2,000 graphs in float64, and as many on each device of NNRT_DEVICE.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.operand import element_count
from nn_runtime.operations import definitions
from nn_runtime.testing.drawing import Drawing, Limit, Rejected, reasons, rules
from nn_runtime.testing.graph_reduction import check_seed, reduce_graph, script_of
from nn_runtime.testing.random_graph import Size, compare, draw_node, execute, generate, judged
from nn_runtime.testing.tolerances import CONVOLUTION, MEDIUM, STRICT, disagreement
from tests.operations.wide import execute_wide, float64_functions

if TYPE_CHECKING:
    from nn_runtime.device import Device
    from nn_runtime.hal.interfaces import IDevice, IPreparedModel
    from nn_runtime.hal.types import Model

GRAPHS = {Size.SINGLE: 1400, Size.SMALL: 450, Size.LARGE: 150}
QUICK_SHARE = 10
"""The quick suite runs one graph in so many."""
TRIES = 50
NOT_DRAWN_TYPES = {
    # A per-channel tensor is a constant of convolutions; as data of its own it has no reference value.
    (OperationCode.DEQUANTIZE, OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL),
    (OperationCode.RANK, OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL),
    (OperationCode.CAST, OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL),
    (OperationCode.LSH_PROJECTION, OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL),
}
DRAWABLE = [
    (code, data_type)
    for code, entry in definitions().items()
    for data_type in entry.data_types
    if code in rules() and (code, data_type) not in NOT_DRAWN_TYPES
]


@pytest.mark.parametrize(
    "code", sorted(definitions()), ids=[OperationCode(code).name for code in sorted(definitions())]
)
def test_operation_has_a_drawing_rule_or_a_reason(code: int) -> None:
    assert (code in rules()) != (code in reasons())


@pytest.mark.parametrize(
    ("code", "data_type"), DRAWABLE, ids=[f"{OperationCode(c).name}-{OperandCode(t).name}" for c, t in DRAWABLE]
)
def test_rule_draws_valid_operations(code: int, data_type: int) -> None:
    rng = np.random.default_rng([code, data_type])
    drawn = 0
    for _ in range(TRIES):
        try:
            node = draw_node(rng, code, data_type, [], Limit(100, 2**12))
        except Rejected:
            continue
        drawn += 1
        assert node.code == code
    assert drawn > TRIES // 10


@pytest.mark.parametrize("size", list(Size), ids=lambda size: size.value)
def test_cpu_agrees_with_float64(size: Size, reference_device: Device, is_long: bool) -> None:
    for seed in range(GRAPHS[size] if is_long else GRAPHS[size] // QUICK_SHARE):
        graph = generate(seed, size, reference_device.hal)
        with float64_functions(), np.errstate(all="ignore"):
            wanted = execute_wide(graph)
        problem = judged(graph, wanted, execute(graph, reference_device.hal))
        assert not problem, f"seed {seed} ({', '.join(graph.operation_names)}): {problem}"


@pytest.mark.parametrize("size", list(Size), ids=lambda size: size.value)
def test_device_agrees_with_the_cpu(size: Size, device: Device, reference_device: Device, is_long: bool) -> None:
    if device.is_reference:
        pytest.skip("the reference itself")
    for seed in range(GRAPHS[size] if is_long else GRAPHS[size] // QUICK_SHARE):
        report = check_seed(seed, size, reference_device.hal, device.hal)
        assert not report, report


def test_whole_numbers_are_the_same_bits(device: Device, reference_device: Device, is_long: bool) -> None:
    if device.is_reference:
        pytest.skip("the reference itself")
    compared = 0
    for seed in range(GRAPHS[Size.SINGLE] if is_long else GRAPHS[Size.SINGLE] // QUICK_SHARE):
        graph = generate(seed, Size.SINGLE, reference_device.hal, [device.hal])
        results = zip(execute(graph, reference_device.hal), execute(graph, device.hal), strict=True)
        for wanted, got in results:
            if wanted.dtype.kind != "f":
                np.testing.assert_array_equal(got, wanted, f"seed {seed} ({', '.join(graph.operation_names)})")
                compared += 1
    assert compared


def test_a_device_gives_the_same_bits_run_after_run(device: Device, reference_device: Device, is_long: bool) -> None:
    graphs, runs = (50, 20) if is_long else (8, 5)
    for seed in range(graphs):
        graph = generate(seed, Size.SMALL, reference_device.hal, [device.hal])
        first = execute(graph, device.hal)
        for _ in range(runs - 1):
            for wanted, got in zip(first, execute(graph, device.hal), strict=True):
                assert got.tobytes() == wanted.tobytes(), f"seed {seed} ({', '.join(graph.operation_names)})"


def test_sizes_known_only_at_run_time_change_nothing(reference_device: Device) -> None:
    for seed in range(20):
        graph = replace(generate(seed, Size.SMALL, reference_device.hal), dynamic=False)
        dynamic = replace(graph, dynamic=True)
        assert len(dynamic.inputs) > len(graph.inputs)
        for wanted, got in zip(
            execute(graph, reference_device.hal), execute(dynamic, reference_device.hal), strict=True
        ):
            np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("size", list(Size), ids=lambda size: size.value)
def test_seed_gives_the_same_graph(size: Size, reference_device: Device) -> None:
    first, second = (generate(11, size, reference_device.hal) for _ in range(2))
    assert len(first.nodes) == size.operations
    assert script_of(first, "a", "b") == script_of(second, "a", "b")
    assert script_of(first, "a", "b") != script_of(generate(12, size, reference_device.hal), "a", "b")


def test_graphs_are_varied(reference_device: Device) -> None:
    graphs = [generate(seed, Size.LARGE, reference_device.hal) for seed in range(5)]
    names = {name for graph in graphs for name in graph.operation_names}
    assert len(names) > len(set(rules()) & set(definitions())) // 2
    ranks = {len(value.dimensions) for graph in graphs for value in graph.sources}
    assert ranks >= {1, 2, 3, 4}
    # Operations read what others made, or it were no graph.
    for graph in graphs:
        assert len(graph.outputs) < len(graph.nodes)


def test_broken_device_is_caught_and_its_graph_reduced(reference_device: Device) -> None:
    cpu = reference_device.hal
    broken: IDevice = _SwappingDevice(cpu)  # type: ignore[assignment]
    codes = [code for code in rules() if code in definitions()]
    seed = next(s for s in range(50) if compare(generate(s, Size.LARGE, cpu, codes=codes), cpu, broken))
    graph = generate(seed, Size.LARGE, cpu, codes=codes)
    smallest = reduce_graph(graph, lambda candidate: bool(compare(candidate, cpu, broken)), cpu)
    assert smallest.operation_names == ["MAXIMUM"]
    assert max(element_count(value.dimensions) for value in smallest.sources) <= 2
    assert compare(smallest, cpu, broken)
    report = check_seed(seed, Size.LARGE, cpu, broken)
    assert "smallest graph (MAXIMUM)" in report
    assert "import nn_runtime as nn" in report


@pytest.mark.parametrize(
    ("size", "dynamic"),
    [(Size.SINGLE, False), (Size.SMALL, False), (Size.SMALL, True)],
    ids=["single", "small", "small dynamic"],
)
def test_printed_script_runs(size: Size, dynamic: bool, reference_device: Device) -> None:
    name = reference_device.name
    graph = replace(generate(5, size, reference_device.hal), dynamic=dynamic)
    run = subprocess.run(
        [sys.executable, "-c", script_of(graph, name, name)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("agrees") == len(graph.outputs)


def test_tolerances_look_at_bias_and_mean_square_too() -> None:
    code, wanted = OperandCode.TENSOR_FLOAT32, np.zeros(100, np.float32)
    assert disagreement(CONVOLUTION, code, wanted, wanted) == ""
    assert disagreement(CONVOLUTION, code, wanted, wanted + 0.1).startswith("difference")
    assert disagreement(CONVOLUTION, code, wanted, wanted + 0.001).startswith("bias")
    alternating = np.resize([0.01, -0.01], 100).astype(np.float32)
    assert disagreement(CONVOLUTION, code, wanted, alternating).startswith("mean square difference")
    assert disagreement(CONVOLUTION, code, wanted, np.full(100, np.nan)).startswith("difference")
    codes = np.arange(10, dtype=np.uint8)
    assert disagreement(STRICT, OperandCode.TENSOR_QUANT8_ASYMM, codes, codes + 1).startswith("bias")
    assert disagreement(MEDIUM, OperandCode.TENSOR_QUANT8_ASYMM, codes, codes + 1) == ""
    flags = np.array([True, False])
    assert disagreement(MEDIUM, OperandCode.TENSOR_BOOL8, flags, ~flags)


def test_new_tensors_keep_to_limit_and_span() -> None:
    drawing = Drawing(np.random.default_rng(0), OperationCode.ADD, OperandCode.TENSOR_FLOAT32, [], Limit(1000, 500))
    for _ in range(100):
        value = drawing.new(drawing.dims(), (-3.0, 2.0))
        assert element_count(value.dimensions) <= 500
        assert -3 <= value.span[0] <= value.span[1] <= 2


class _SwappingDevice:
    """A device that takes MAXIMUM for MINIMUM."""

    name = "broken"

    def __init__(self, device: IDevice) -> None:
        self._device = device

    def get_supported_operations(self, model: Model) -> object:
        return self._device.get_supported_operations(model)

    def prepare_model(self, model: Model, *arguments: object) -> IPreparedModel:
        swapped = tuple(
            replace(operation, type=OperationCode.MINIMUM) if operation.type == OperationCode.MAXIMUM else operation
            for operation in model.main.operations
        )
        model = replace(model, main=replace(model.main, operations=swapped))
        return self._device.prepare_model(model, *arguments)  # type: ignore[arg-type]
