# SPDX-License-Identifier: Apache-2.0
"""Steps that read nothing but constants, or whose results nobody reads: whole models, branches and bodies of loops.

Numbers are small and whole, so that every device has to give exactly what numpy's integers do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.burst import Burst
from nn_runtime.codes import FuseCode, OperationCode
from nn_runtime.compilation import Compilation
from nn_runtime.device import REFERENCE_NAME, Device
from nn_runtime.execution import Execution
from nn_runtime.model import Model
from nn_runtime.program import IfStep, WhileStep
from nn_runtime.step import Step
from nn_runtime.testing.sample_drivers import SampleDevice
from tests.nn_runtime.graphs import add, finished, flag, if_model, refer, scalar, tensor
from tests.nn_runtime.test_partition import plan_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nn_runtime.operand import Array

RELU, ADD, MUL, LESS, CAST = (
    OperationCode.RELU,
    OperationCode.ADD,
    OperationCode.MUL,
    OperationCode.LESS,
    OperationCode.CAST,
)
_SIZE = 2
_X = np.array([3, -5], np.float32)
_DRAWN, _LONG = 20, 400


def constant(model: Model, values: Sequence[float]) -> int:
    index = model.add_operand(tensor(len(values)))
    model.set_operand_value(index, np.array(values, np.float32))
    return index


def constant_model(values: Sequence[float], *, takes_input: bool) -> Model:
    """Output = max(values, 0) + values; an input that nobody reads."""
    model = Model()
    inputs = [model.add_operand(tensor(_SIZE))] if takes_input else []
    given = constant(model, values)
    positive, result = (model.add_operand(tensor(_SIZE)) for _ in range(2))
    model.add_operation(RELU, [given], [positive])
    add(model, positive, given, result)
    model.identify_inputs_and_outputs(inputs, [result])
    model.finish()
    return model


def choice(first: Model, second: Model) -> Model:
    """An IF whose branches take nothing."""
    model = Model()
    condition, result = flag(model), model.add_operand(tensor(_SIZE))
    model.add_operation(OperationCode.IF, [condition, refer(model, first), refer(model, second)], [result])
    model.identify_inputs_and_outputs([condition], [result])
    model.finish()
    return model


def once() -> Model:
    """While a flag is set: the flag = (3 < 1), x = max((-4, 7), 0)."""
    condition, body, model = Model(), Model(), Model()
    for part, operations in ((condition, 1), (body, 2)):
        go_on, x, result = flag(part), part.add_operand(tensor(_SIZE)), flag(part)
        if operations == 1:
            part.add_operation(CAST, [go_on], [result])
            part.identify_inputs_and_outputs([go_on, x], [result])
        else:
            part.add_operation(LESS, [constant(part, [3]), constant(part, [1])], [result])
            x_next = part.add_operand(tensor(_SIZE))
            part.add_operation(RELU, [constant(part, [-4, 7])], [x_next])
            part.identify_inputs_and_outputs([go_on, x], [result, x_next])
        part.finish()
    go_on, x, last, result = (
        flag(model),
        model.add_operand(tensor(_SIZE)),
        flag(model),
        model.add_operand(tensor(_SIZE)),
    )
    model.add_operation(OperationCode.WHILE, [refer(model, condition), refer(model, body), go_on, x], [last, result])
    model.identify_inputs_and_outputs([go_on, x], [result])
    model.finish()
    return model


MODELS: dict[str, tuple[Callable[[], Model], list[Array], list[float]]] = {
    "whole": (lambda: constant_model([-1, 2], takes_input=False), [], [-1, 4]),
    "then": (
        lambda: if_model(
            constant_model([-1, 2], takes_input=True), constant_model([3, -4], takes_input=True), (_SIZE,)
        ),
        [np.array([True]), _X],
        [-1, 4],
    ),
    "else without inputs": (
        lambda: choice(constant_model([-1, 2], takes_input=False), constant_model([3, -4], takes_input=False)),
        [np.array([False])],
        [6, -4],
    ),
    "loop": (once, [np.array([True]), _X], [0, 7]),
    "no loop": (once, [np.array([False]), _X], [3, -5]),
}
SPLITS: dict[str, list[set[int]]] = {
    "one": [],
    "RELU": [{RELU}],
    "ADD": [{ADD}],
    "RELU, ADD": [{RELU}, {ADD}],
    "LESS": [{LESS}],
    "both": [{RELU, ADD, LESS, CAST}],
}


def computed(compilation: Compilation, inputs: Sequence[Array], size: int = _SIZE, *, burst: bool = False) -> Array:
    result = np.full(size, np.nan, np.float32)
    with Execution(compilation) as execution:
        for index, array in enumerate(inputs):
            execution.set_input(index, array)
        execution.set_output(0, result)
        if burst:
            with Burst(compilation) as one:
                execution.burst_compute(one)
        else:
            execution.compute()
    return result


@pytest.mark.parametrize("split", list(SPLITS))
@pytest.mark.parametrize("name", list(MODELS))
def test_operations_on_constants(name: str, split: str, device: Device) -> None:
    """Computed by the device under test in every step but the CPU's own."""
    make, inputs, wanted = MODELS[name]
    parts = [SampleDevice(f"part{at}", codes, inner=device.hal) for at, codes in enumerate(SPLITS[split])]
    compilation = finished(make(), parts, fallback=True)
    for burst in (False, True):
        np.testing.assert_array_equal(computed(compilation, inputs, burst=burst), wanted)
    interpreted = {type(step) for step in plan_of(compilation).program} & {IfStep, WhileStep}
    assert bool(interpreted) == (name != "whole"), "the CPU wins control flow, and the plan interprets it"


@pytest.mark.parametrize("name", list(MODELS))
def test_operations_on_constants_on_one_device(name: str, device: Device) -> None:
    make, inputs, wanted = MODELS[name]
    compilation = Compilation(make(), [device])
    compilation.finish()
    np.testing.assert_array_equal(computed(compilation, inputs), wanted)


def test_a_step_without_inputs_runs_where_its_operations_are_placed() -> None:
    """No other device need take over; as Android does it, the CPU computes the whole model (test_plan.py)."""
    model = Model()
    given, x, positive, result = constant(model, [1, -1]), *(model.add_operand(tensor(_SIZE)) for _ in range(3))
    model.add_operation(RELU, [given], [positive])
    add(model, positive, x, result)
    model.identify_inputs_and_outputs([x], [result])
    model.finish()
    devices = [SampleDevice("relu", {RELU}), SampleDevice("add", {ADD})]
    compilation = finished(model, devices, partition="cost")
    np.testing.assert_array_equal(computed(compilation, [_X]), [4, -5])
    assert [len(device.record.requests) for device in devices] == [1, 1]
    assert devices[0].record.requests[0].inputs == ()


def test_a_result_that_nobody_reads_is_computed_where_it_is_placed() -> None:
    """As Android does it, the CPU computes the whole model (test_partition.py)."""
    model = Model()
    x, dead, result = (model.add_operand(tensor(_SIZE)) for _ in range(3))
    model.add_operation(RELU, [x], [dead])
    add(model, x, x, result)
    model.identify_inputs_and_outputs([x], [result])
    model.finish()
    devices = [SampleDevice("relu", {RELU}), SampleDevice("add", {ADD})]
    np.testing.assert_array_equal(computed(finished(model, devices, partition="cost"), [_X]), [6, -10])
    assert [len(device.record.requests) for device in devices] == [1, 1]


class _Drawn:
    """A model of sums and products of an input and of constants, and what it makes of _X by numpy's integers."""

    def __init__(self, random: np.random.Generator) -> None:
        self.model = Model()
        x = self.model.add_operand(tensor(_SIZE))
        values = {x: _X.astype(np.int64)}
        for numbers in random.integers(-2, 3, (3, _SIZE)):
            values[constant(self.model, list(numbers))] = numbers
        known = list(values)
        count = int(random.integers(1, 7))
        for _ in range(count):
            first, second = (known[at] for at in random.integers(0, len(known), 2))
            code, does = ((ADD, np.add), (MUL, np.multiply))[random.integers(2)]
            result = self.model.add_operand(tensor(_SIZE))
            self.model.add_operation(code, [first, second, scalar(self.model, FuseCode.NONE)], [result])
            values[result] = does(values[first], values[second])
            if np.abs(values[result]).max() < 100:
                known.append(result)
        self.model.identify_inputs_and_outputs([x], [result])
        self.model.finish()
        self.wanted = values[result]


def test_drawn_branches_across_devices(device: Device, is_long: bool) -> None:
    """With parts that read only constants, and parts that nobody reads."""
    parts = [SampleDevice("adds", {ADD}, inner=device.hal), SampleDevice("multiplies", {MUL}, inner=device.hal)]
    for seed in range(_LONG if is_long else _DRAWN):
        random = np.random.default_rng(seed)
        branches = [_Drawn(random) for _ in range(2)]
        compilation = finished(if_model(branches[0].model, branches[1].model, (_SIZE,)), parts, fallback=True)
        steps = [step for step in plan_of(compilation).program if isinstance(step, Step)]
        assert REFERENCE_NAME not in {step.device.name for step in steps}
        for branch, condition in zip(branches, (True, False), strict=True):
            result = computed(compilation, [np.array([condition]), _X])
            np.testing.assert_array_equal(result, branch.wanted, f"seed {seed}, {condition}")
