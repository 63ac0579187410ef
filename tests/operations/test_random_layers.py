# SPDX-License-Identifier: Apache-2.0
"""Random layers of each family of operations against oracles written apart: 10 a family, 300 with `--long`."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.hal.types import HalError
from nn_runtime.operand import dtype_of, element_count
from nn_runtime.operations import OperationView, definition, definitions
from nn_runtime.testing.conformance import Unsupported
from nn_runtime.testing.drawing import Rejected, reasons, rules
from nn_runtime.testing.random_graph import RandomGraph, Size, draw_node, execute
from nn_runtime.testing.tolerances import disagreement
from tests.operations import oracles
from tests.operations.oracles.layer import Layer
from tests.operations.test_random_graphs import NOT_DRAWN_TYPES

if TYPE_CHECKING:
    from nn_runtime.device import Device
    from nn_runtime.testing.drawing import Value
    from nn_runtime.testing.random_graph import Node
    from tests.operations.oracles.layer import Array, Oracle

LAYERS, SAMPLE = 300, 10
ATTEMPTS = 200
DYNAMIC_SHARE = 0.3
FAMILIES = oracles.families()
NO_ORACLE = {
    OperationCode.ROI_ALIGN: "part of a detector: corpus and own cases",
    OperationCode.ROI_POOLING: "part of a detector: corpus and own cases",
    OperationCode.HEATMAP_MAX_KEYPOINT: "part of a detector: corpus and own cases",
}
"""Operations that are drawn but have no oracle here; those not drawn at all have their reason in the drawing rules."""
# The validator lets it through, the reference fails at execution.
REFUSED_AT_EXECUTION = {(OperationCode.DIV, OperandCode.TENSOR_QUANT8_ASYMM_SIGNED)}


def drawable(family: str) -> list[tuple[OperationCode, int]]:
    """Return each operation of a family with each of its data types, in an order that mixes them."""
    pairs = [
        (code, data_type)
        for code in FAMILIES[family]
        for data_type in sorted(definition(code).data_types)
        if (code, data_type) not in NOT_DRAWN_TYPES | REFUSED_AT_EXECUTION
    ]
    return [pairs[i] for i in np.random.default_rng(len(pairs)).permutation(len(pairs))]


def drawn(family: str, seed: int) -> Node:
    """Return the layer of a seed; every operation and data type gets its turn."""
    pairs = drawable(family)
    code, data_type = pairs[seed % len(pairs)]
    rng = np.random.default_rng([zlib.crc32(family.encode()), seed])
    limit = Size.SINGLE.limit
    for _ in range(ATTEMPTS):
        try:
            node = draw_node(rng, code, data_type, [], limit)
        except Rejected:
            continue
        if all(0 < element_count(value.dimensions) <= limit.elements for value in node.outputs):
            return node
    raise RuntimeError(f"{family} seed {seed}: nothing to draw for {code.name} {OperandCode(data_type).name}")


def layer_of(node: Node) -> Layer:
    """Return a layer with its inputs by name, those without a value left out."""
    view = OperationView(node.code, node.inputs, node.outputs)
    named: dict[str, list[Value]] = {}
    for argument, value in zip(view.arguments, node.inputs, strict=True):
        if not value.omitted:
            named.setdefault(argument.name, []).append(value)
    return Layer(node.code, named, node.outputs)


def as_stored(result: Array, form: Value) -> Array:
    """Return what an output stores: quantised half away from zero and cut; numbers in the output's own precision."""
    assert result.shape == form.dimensions, f"wanted shape {result.shape}, has {form.dimensions}"
    dtype = dtype_of(form.type)
    if result.dtype.kind != "f" or dtype.kind in "fb":
        return result.astype(dtype).reshape(-1)
    if form.scale:
        steps = result / form.scale
        result = np.copysign(np.floor(np.abs(steps) + 0.5), steps) + form.zero_point
    assert np.array_equal(result, np.rint(result)), "an integer output needs whole numbers"
    info = np.iinfo(dtype)
    return np.clip(result, info.min, info.max).astype(dtype).reshape(-1)


def problem_of(node: Node, oracle: Oracle, device: Device, dynamic: bool) -> str:
    """Return in what a device breaks the tolerances against the oracle ("": in nothing); refusing it is one."""
    wanted = [
        as_stored(np.asarray(result), form) for result, form in zip(oracle(layer_of(node)), node.outputs, strict=True)
    ]
    try:
        results = execute(RandomGraph(0, Size.SINGLE, (node,), node.outputs, dynamic), device.hal)
    except (Unsupported, HalError) as error:
        return f"{type(error).__name__}: {error}"
    criterion = rules()[node.code].criterion
    checks = zip(node.outputs, wanted, results, strict=True)
    return next(filter(None, (disagreement(criterion, form.type, a, b) for form, a, b in checks)), "")


@pytest.mark.parametrize("family", FAMILIES)
def test_layers_agree_with_the_oracle(family: str, device: Device, is_long: bool) -> None:
    failures, count = [], LAYERS if is_long else SAMPLE
    for seed in range(count):
        node = drawn(family, seed)
        what = f"seed {seed} {node.code.name} {[OperandCode(v.type).name for v in node.inputs[:1]]}"
        dynamic = bool(np.random.default_rng(seed).random() < DYNAMIC_SHARE)
        problem = problem_of(node, FAMILIES[family][node.code], device, dynamic)
        if problem:
            failures.append(f"{what}: {problem}")
    assert not failures, f"{len(failures)} of {count} layers:\n" + "\n".join(failures)


@pytest.mark.parametrize(
    "code", sorted(definitions()), ids=[OperationCode(code).name for code in sorted(definitions())]
)
def test_operation_has_one_oracle_or_a_reason(code: int) -> None:
    count = sum(code in family for family in FAMILIES.values())
    assert count + (code in NO_ORACLE) + (code in reasons()) == 1


def test_oracles_are_written_apart() -> None:
    for file in Path(oracles.__file__).parent.glob("*.py"):
        text = file.read_text(encoding="utf-8")
        for module in ("cpu_driver", "gpu_driver", "nn_runtime.quantization", "nn_runtime.operations"):
            assert module not in text, f"{file.name} uses {module}"


@pytest.mark.parametrize(("right", "wrong"), [("ADD", "SUB"), ("MAX_POOL_2D", "AVERAGE_POOL_2D"), ("RELU", "RELU6")])
def test_wrong_oracle_is_noticed(right: str, wrong: str, reference_device: Device) -> None:
    """The comparison is no formality: with another operation's formula layers fail."""
    family = next(name for name, entries in FAMILIES.items() if OperationCode[right] in entries)
    nodes = [node for node in (drawn(family, seed) for seed in range(60)) if node.code == OperationCode[right]]
    oracle = FAMILIES[family][OperationCode[wrong]]
    problems = [problem_of(node, oracle, reference_device, dynamic=False) for node in nodes]
    assert sum(map(bool, problems)) > len(nodes) // 3
