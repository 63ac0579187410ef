# SPDX-License-Identifier: Apache-2.0
"""IFs of small branches: both are computed and one is taken, and which IFs stay as they are."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpu_driver.passes import branches
from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from tests.conftest import GREATEST_NS
from tests.gpu_driver.graphs import Graph, request
from tests.gpu_driver.passes.simplifying import random_floats, reshape
from tests.gpu_driver.running import prepare, run
from tests.gpu_driver.test_control_flow import Outer, loop
from tests.gpu_driver.test_faults import branching

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpu_driver.driver import Device
    from gpu_driver.prepared_model import PreparedModel
    from nn_runtime.hal.types import Model, Subgraph
    from nn_runtime.operand import Array, Dimensions

BOOL, FLOAT, INT32 = OperandCode.TENSOR_BOOL8, OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_INT32
QUANT8 = OperandCode.TENSOR_QUANT8_ASYMM
YES, NO = np.array([True]), np.array([False])


@pytest.fixture(autouse=True)
def joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Join branches as outside of tests."""
    monkeypatch.setattr(branches, "GREATEST_NS", GREATEST_NS)


def combining(code: OperationCode, kind: OperandCode, dims: Dimensions, **quant: float) -> Subgraph:
    """A branch of two tensors: their sum, difference or product."""
    graph = Graph()
    pair = [graph.input(dims, kind, **quant) for _ in range(2)]  # type: ignore[arg-type]
    output = graph.output(dims, kind, **quant)  # type: ignore[arg-type]
    graph.operation(code, [*pair, graph.integer(FuseCode.NONE)], output)
    return graph.model().main


def choosing(dims: Dimensions, referenced: Sequence[Subgraph], kind: OperandCode = FLOAT, **quant: float) -> Model:
    """IF flag: the first model of two inputs, else the second."""
    graph = Outer()
    flag = graph.input((1,), BOOL)
    pair = [graph.input(dims, kind, **quant) for _ in range(2)]  # type: ignore[arg-type]
    models = [graph.model_operand(0), graph.model_operand(1)]
    graph.operation(OperationCode.IF, [flag, *models, *pair], graph.output(dims, kind, **quant))  # type: ignore[arg-type]
    return replace(graph.model(), referenced=tuple(referenced))


def is_decided(prepared: PreparedModel) -> bool:
    """Whether a model has an IF left."""
    left = any(one.type == OperationCode.IF for one in prepared._graph.subgraph.operations)
    assert left == (prepared._graph.static is None)
    assert left == bool(prepared._referenced)
    return left


def outcome(prepared: PreparedModel, inputs: Sequence[Array], result: Array) -> Array:
    run(prepared, request(inputs, [result]))
    return result


@pytest.mark.parametrize("dims", [(1,), (1, 1), (2, 3), (5, 4, 3, 2)], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
def test_one_of_two_results(opencl_device: Device, dims: Dimensions, dtype: type[np.generic]) -> None:
    kind = {np.float32: FLOAT, np.float16: OperandCode.TENSOR_FLOAT16, np.int32: INT32}[dtype]  # type: ignore[index]
    codes = OperationCode.ADD, OperationCode.MUL
    prepared = prepare(opencl_device, choosing(dims, [combining(code, kind, dims) for code in codes], kind))
    assert not is_decided(prepared)
    a, b = (np.arange(start, start + np.prod(dims)).reshape(dims).astype(dtype) for start in (1, 3))
    for flag, wanted in ((YES, a + b), (NO, a * b), (YES, a + b)):
        np.testing.assert_array_equal(outcome(prepared, [flag, a, b], np.zeros(dims, dtype)), wanted)
    prepared.close()


def test_one_of_two_results_of_bytes(opencl_device: Device) -> None:
    dims, quant = (2, 5), {"scale": 0.5, "zero_point": 3}
    pair = [combining(code, QUANT8, dims, **quant) for code in (OperationCode.ADD, OperationCode.SUB)]
    prepared = prepare(opencl_device, choosing(dims, pair, QUANT8, **quant))
    assert not is_decided(prepared)
    a, b = (np.arange(start, start + 10, dtype=np.uint8).reshape(dims) for start in (20, 9))
    # In steps of the same scale: (a - 3) +- (b - 3) + 3.
    for flag, wanted in ((YES, a + b - 3), (NO, a - b + 3)):
        np.testing.assert_array_equal(outcome(prepared, [flag, a, b], np.zeros(dims, np.uint8)), wanted)
    prepared.close()


def test_one_of_two_truths(opencl_device: Device) -> None:
    def comparing(code: OperationCode) -> Subgraph:
        graph = Graph()
        graph.operation(code, [graph.input((4,)), graph.input((4,))], graph.output((4,), BOOL))
        return graph.model().main

    graph = Outer()
    flag, a, b = graph.input((1,), BOOL), graph.input((4,)), graph.input((4,))
    models = [graph.model_operand(0), graph.model_operand(1)]
    graph.operation(OperationCode.IF, [flag, *models, a, b], graph.output((4,), BOOL))
    referenced = comparing(OperationCode.LESS), comparing(OperationCode.EQUAL)
    prepared = prepare(opencl_device, replace(graph.model(), referenced=referenced))
    assert not is_decided(prepared)
    pair = [np.array(values, np.float32) for values in ([1, 2, 3, 4], [2, 2, 2, 2])]
    for flag_, wanted in ((YES, [True, False, False, False]), (NO, [False, True, False, False])):
        np.testing.assert_array_equal(outcome(prepared, [flag_, *pair], np.zeros(4, np.bool_)), wanted)
    prepared.close()


def test_several_results_that_may_be_arguments(opencl_device: Device) -> None:
    """Then: the arguments as they are; else: in the other order. The second argument is a constant."""

    def handing_on(order: Sequence[int]) -> Subgraph:
        graph = Graph()
        given = graph.input((2, 3)), graph.input((2, 3))
        for at in order:
            reshape(graph, given[at], (2, 3), graph.output((2, 3)))
        return graph.model().main

    graph = Outer()
    flag, a = graph.input((1,), BOOL), graph.input((2, 3))
    numbers = random_floats(2, 3)
    models = [graph.model_operand(0), graph.model_operand(1)]
    results = graph.output((2, 3)), graph.output((2, 3))
    graph.operation(OperationCode.IF, [flag, *models, a, graph.constant(numbers)], *results)
    prepared = prepare(opencl_device, replace(graph.model(), referenced=(handing_on((0, 1)), handing_on((1, 0)))))
    assert not is_decided(prepared)
    given = random_floats(2, 3, seed=1)
    for flag_, wanted in ((YES, (given, numbers)), (NO, (numbers, given))):
        found = [np.zeros((2, 3), np.float32) for _ in range(2)]
        run(prepared, request([flag_, given], found))
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(one, other)
    prepared.close()


def test_a_branch_within_a_branch(opencl_device: Device) -> None:
    """IF flag: a + b, else IF a < b: a * b, else a - b."""
    inner = Outer()
    a, b = inner.input((1,)), inner.input((1,))
    less = inner.temporary((1,), BOOL)
    inner.operation(OperationCode.LESS, [a, b], less)
    models = [inner.model_operand(2), inner.model_operand(3)]
    inner.operation(OperationCode.IF, [less, *models, a, b], inner.output((1,)))
    add, mul, sub = (combining(code, FLOAT, (1,)) for code in (OperationCode.ADD, OperationCode.MUL, OperationCode.SUB))
    prepared = prepare(opencl_device, choosing((1,), [add, inner.subgraph(), mul, sub]))
    assert not is_decided(prepared)
    for flag, a_, b_, wanted in ((YES, 2, 5, 7), (NO, 2, 5, 10), (NO, 5, 2, 3)):
        pair = [np.array([value], np.float32) for value in (a_, b_)]
        assert outcome(prepared, [flag, *pair], np.zeros(1, np.float32)) == wanted
    prepared.close()


@pytest.mark.parametrize("limit", [0, 2, 7])
def test_a_loop_decides_only_whether_it_goes_on(opencl_device: Device, limit: int) -> None:
    prepared = prepare(opencl_device, loop(limit, (2, 3)))
    assert sorted(prepared._referenced) == [0, 1]
    inputs = np.zeros(1, np.float32), np.ones((2, 3), np.float32)
    outputs = [np.empty_like(one) for one in inputs]
    before = opencl_device.statistics()["read_bytes"]
    run(prepared, request(inputs, outputs))
    assert opencl_device.statistics()["read_bytes"] - before == limit + 1 + sum(one.nbytes for one in outputs)
    wanted = np.float32(1)
    for counter in range(limit):  # the value is doubled, later the counter added
        wanted += wanted if counter < 3 else np.float32(counter)
    np.testing.assert_array_equal(outputs[1], np.full((2, 3), wanted))
    prepared.close()


def _large() -> Model:
    return choosing((1024, 1024), [combining(code, FLOAT, (1024, 1024)) for code in (OperationCode.ADD,) * 2])


def _of_unknown_size() -> Model:
    return choosing((0, 3), [combining(code, FLOAT, (0, 3)) for code in (OperationCode.ADD,) * 2])


def _of_unknown_size_inside() -> Model:
    return choosing((2, 3), [combining(code, FLOAT, (0, 3)) for code in (OperationCode.ADD,) * 2])


def _with_a_loop() -> Model:
    inside = loop(3, (1,))
    renumbered = Outer()
    given = renumbered.input((1,)), renumbered.input((1,))
    lost, value = renumbered.temporary((1,)), renumbered.output((1,))
    models = [renumbered.model_operand(2), renumbered.model_operand(3)]
    renumbered.operation(OperationCode.WHILE, [*models, *given], lost, value)
    body = Graph()
    for _ in range(2):
        one = body.constant(np.ones(1, np.float32))
        body.operation(OperationCode.ADD, [body.input((1,)), one, body.integer(FuseCode.NONE)], body.output((1,)))
    condition = inside.referenced[0]
    first = combining(OperationCode.ADD, FLOAT, (1,))
    return choosing((1,), [first, renumbered.subgraph(), condition, body.model().main])


@pytest.mark.parametrize(
    "made", [_large, _of_unknown_size, _of_unknown_size_inside, _with_a_loop, branching], ids=lambda made: made.__name__
)
def test_what_is_decided(opencl_device: Device, made: Callable[[], Model]) -> None:
    prepared = prepare(opencl_device, made())
    assert is_decided(prepared)
    prepared.close()


def test_branches_within_branches_are_looked_at_once() -> None:
    """Each branch of an IF is the next IF: 2^500 branches to whoever looks at them one by one."""
    depth = 500

    def level(following: int) -> Subgraph:
        graph = Outer()
        pair = graph.input((1,)), graph.input((1,))
        models = [graph.model_operand(following), graph.model_operand(following)]
        graph.operation(OperationCode.IF, [graph.constant(YES, BOOL), *models, *pair], graph.output((1,)))
        return graph.subgraph()

    innermost = combining(OperationCode.ADD, FLOAT, (1,))
    model = choosing((1,), [level(1), *(level(at + 1) for at in range(1, depth)), innermost])
    main, referenced = branches.without_branches(model)
    assert main.subgraph == model.main
    last = max(referenced)
    assert last < depth - 1  # what is behind it has become a part of it
    assert [one.type for one in referenced[last].subgraph.operations].count(OperationCode.ADD) == 2 ** (depth - last)


def test_models_that_nothing_refers_to_are_not_compiled(opencl_device: Device) -> None:
    joined = choosing((1,), [combining(OperationCode.ADD, FLOAT, (1,))] * 2)
    for model, wanted in ((joined, []), (loop(1, (1,)), [0, 1]), (_large(), [0, 1])):
        assert list(branches.without_branches(model)[1]) == wanted
        prepared = prepare(opencl_device, model)
        assert list(prepared._referenced) == wanted
        prepared.close()


def test_an_operation_that_became_several_is_in_each_row_once(opencl_device: Device) -> None:
    prepared = prepare(opencl_device, choosing((64,), [combining(OperationCode.ADD, FLOAT, (64,))] * 2))
    pair = [np.ones(64, np.float32)] * 2
    profile = prepared.execute_profiled(request([YES, *pair], [np.empty(64, np.float32)]), None, None)[1]
    assert {row.operations for row in profile.rows if row.operations} == {(0,)}
    prepared.close()
