# SPDX-License-Identifier: Apache-2.0
"""Comparisons, logic and SELECT among real numbers: one launch where nobody else reads truth values; as numpy."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from gpu_driver.chain.kinds import Function
from gpu_driver.launch import Launch
from gpu_driver.lowering import Lowering
from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.operand import dtype_of
from tests.gpu_driver.chain.running import simulate_groups
from tests.gpu_driver.graphs import Graph, request
from tests.gpu_driver.profiles import CPU_PROFILE
from tests.gpu_driver.running import prepare, run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpu_driver.driver import Device
    from gpu_driver.launch import Command
    from nn_runtime.operand import Array, Dimensions

FLOAT, HALF, BOOL = OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_FLOAT16, OperandCode.TENSOR_BOOL8
INT = OperandCode.TENSOR_INT32
NEG, ABS = OperationCode.NEG, OperationCode.ABS
SELECT, NOT = OperationCode.SELECT, OperationCode.LOGICAL_NOT
COMPARISONS: dict[OperationCode, Callable[[Array, Array], Array]] = {
    OperationCode.EQUAL: np.equal,
    OperationCode.NOT_EQUAL: np.not_equal,
    OperationCode.GREATER: np.greater,
    OperationCode.GREATER_EQUAL: np.greater_equal,
    OperationCode.LESS: np.less,
    OperationCode.LESS_EQUAL: np.less_equal,
}
LOGIC: dict[OperationCode, Callable[[Array, Array], Array]] = {
    OperationCode.LOGICAL_AND: np.logical_and,
    OperationCode.LOGICAL_OR: np.logical_or,
    OperationCode.EQUAL: np.equal,
    OperationCode.NOT_EQUAL: np.not_equal,
}
ODD = [0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, 0.5]
SHAPES = [(4, 40), (3, 7), (2, 5, 16), (1, 1030), (5, 1)]


class Network:
    """Operations on tensors of one shape, with the answers that numpy gives."""

    def __init__(self, code: OperandCode, dims: Dimensions, seed: int = 0) -> None:
        self.graph = Graph()
        self.code, self.dims, self.dtype = code, dims, dtype_of(code)
        self.rng = np.random.default_rng(seed)
        self.data: list[Array] = []
        self.wanted: list[Array] = []
        self._values: dict[int, Array] = {}

    def __getitem__(self, operand: int) -> Array:
        return self._values[operand]

    def numbers(self, dims: Dimensions | None = None) -> Array:
        return self.rng.choice(ODD, self.dims if dims is None else dims).astype(self.dtype)

    def input(self) -> int:
        data = self.numbers()
        self.data.append(data)
        return self._kept(self.graph.input(self.dims, self.code), data)

    def constant(self, data: Array, code: OperandCode | None = None) -> int:
        return self._kept(self.graph.constant(data, self.code if code is None else code), data)

    def emit(self, code: OperationCode, inputs: Sequence[int], value: Array, *, is_output: bool = False) -> int:
        """Add an operation; a value that is an output is checked."""
        kind = BOOL if value.dtype == np.bool_ else self.code
        made = (self.graph.output if is_output else self.graph.temporary)(self.dims, kind)
        self.graph.operation(code, list(inputs), made)
        if is_output:
            self.wanted.append(value)
        return self._kept(made, value)

    def negated(self, source: int, *, is_output: bool = False) -> int:
        return self.emit(NEG, [source], -self[source], is_output=is_output)

    def compared(self, code: OperationCode, first: int, second: int, *, is_output: bool = False) -> int:
        return self.emit(code, [first, second], COMPARISONS[code](self[first], self[second]), is_output=is_output)

    def selected(self, condition: int, first: int, second: int) -> int:
        return self.emit(SELECT, [condition, first, second], np.where(self[condition], self[first], self[second]))

    def commands(self) -> Sequence[Command]:
        lowering = Lowering(self.graph.model(), CPU_PROFILE)
        return lowering.lower(0, lowering.static_inputs()).commands

    def check(self, device: Any) -> None:
        results = [np.empty(one.shape, one.dtype) for one in self.wanted]
        run(prepare(device, self.graph.model()), request(self.data, results))
        for result, wanted in zip(results, self.wanted, strict=True):
            np.testing.assert_array_equal(result, wanted)

    def _kept(self, operand: int, value: Array) -> int:
        self._values[operand] = value
        return operand


def every_comparison(code: OperandCode, dims: Dimensions) -> Network:
    """All comparisons, of tensors, with rows and with numbers on either side, and all of logic on what they make."""
    network = Network(code, dims)
    x, y = network.input(), network.input()
    row, number = network.constant(network.numbers(dims[-1:])), network.constant(np.zeros(1, network.dtype))
    pairs = itertools.cycle([(x, y), (x, row), (number, y), (row, x), (y, number), (x, x)])
    truths = [network.compared(one, *next(pairs)) for one in COMPARISONS for _ in range(2)]
    logic = itertools.cycle(LOGIC.items())
    for first, second in itertools.pairwise(truths[:6]):
        one, function = next(logic)
        truths.append(network.emit(one, [first, second], function(network[first], network[second])))
    truths.append(network.emit(NOT, [truths[0]], ~network[truths[0]]))
    chosen = x
    for truth in truths:
        chosen = network.selected(truth, network.negated(chosen), y)
    network.negated(chosen, is_output=True)
    return network


@pytest.mark.parametrize("dims", SHAPES, ids=str)
@pytest.mark.parametrize("code", [FLOAT, HALF], ids=lambda code: code.name)
def test_every_comparison_gives_what_numpy_gives(opencl_device: Device, code: OperandCode, dims: Dimensions) -> None:
    """Numbers that are not, infinities and both zeros among them."""
    every_comparison(code, dims).check(opencl_device)


def test_comparisons_and_what_reads_them_are_one_launch() -> None:
    (launch,) = every_comparison(FLOAT, (4, 40)).commands()
    assert isinstance(launch, Launch)
    assert sorted(launch.operations) == list(range(12 + 5 + 1 + 2 * 18 + 1))


def test_an_activation_is_one_step() -> None:
    """ELU as PyTorch writes it: x where it is positive, else exp(x) - 1."""
    network = Network(FLOAT, (4, 40))
    x = network.input()
    zero, one = (network.constant(np.full(1, number, np.float32)) for number in (0, 1))
    power = network.emit(OperationCode.EXP, [x], np.exp(network[x]))
    less = network.graph.temporary(network.dims)
    network.graph.operation(OperationCode.SUB, [power, one, network.graph.integer(0)], less)
    network._kept(less, network[power] - 1)
    chosen = network.selected(network.compared(OperationCode.GREATER, x, zero), x, less)
    network.negated(chosen, is_output=True)
    (launch,) = network.commands()
    assert isinstance(launch, Launch)
    (step,) = launch.steps
    assert [one.function for one in step.program] == [
        *(Function.LOAD, Function.EXP, Function.SUB),
        *(Function.GREATER, Function.SELECT, Function.NEG),
    ]


CHOICES = list(itertools.product(["tensor", "constant", "number"], repeat=2))


@pytest.mark.parametrize("dims", [(4, 40), (3, 7)], ids=str)
@pytest.mark.parametrize("is_known", [False, True], ids=["condition", "constant condition"])
@pytest.mark.parametrize("choices", CHOICES, ids=str)
def test_constants_in_every_place(
    opencl_device: Device, choices: tuple[str, str], is_known: bool, dims: Dimensions
) -> None:
    network = Network(FLOAT, dims, 3)
    x, y = network.input(), network.input()
    if is_known:
        condition = network.constant(network.rng.random(dims) < 0.5, BOOL)
    else:
        condition = network.compared(OperationCode.GREATER, x, y)
    made = {
        "tensor": lambda: network.negated(x),
        "constant": lambda: network.constant(network.numbers()),
        "number": lambda: network.constant(np.full(dims, network.numbers((1,)))),
    }
    chosen = network.selected(condition, *(made[one]() for one in choices))
    network.emit(ABS, [network.negated(network.negated(chosen))], np.abs(network[chosen]), is_output=True)
    network.check(opencl_device)


@pytest.mark.parametrize("dims", [(4, 40), (5, 1)], ids=str)
def test_truth_values_that_others_read_are_bytes(opencl_device: Device, dims: Dimensions) -> None:
    network = Network(FLOAT, dims, 4)
    x, y = network.input(), network.input()
    seen = network.compared(OperationCode.LESS, network.negated(x), y, is_output=True)
    chosen = network.selected(seen, x, network.negated(y))
    network.negated(chosen, is_output=True)
    assert any("compare" in command.name for command in network.commands() if isinstance(command, Launch))
    network.check(opencl_device)


def test_truth_values_of_two_types_are_bytes(opencl_device: Device) -> None:
    """SELECT of integers is no step, so that neither is the comparison, nor what else reads the truth values."""
    network = Network(FLOAT, (4, 40), 5)
    x, y = network.input(), network.input()
    seen = network.compared(OperationCode.LESS, network.negated(x), network.negated(y))
    network.negated(network.selected(seen, x, y), is_output=True)
    integers = [network.rng.integers(-9, 9, network.dims).astype(np.int32) for _ in range(2)]
    made = network.graph.output(network.dims, INT)
    network.graph.operation(SELECT, [seen, *(network.constant(one, INT) for one in integers)], made)
    network.wanted.append(np.where(network[seen], *integers))
    names = [command.name for command in network.commands() if isinstance(command, Launch)]
    assert sum("select" in name for name in names) == 2
    network.check(opencl_device)


def test_a_comparison_alone_is_no_chain() -> None:
    network = Network(FLOAT, (4, 40))
    x, y = network.input(), network.input()
    chosen = network.compared(OperationCode.LESS, x, y)
    network.emit(SELECT, [chosen, x, y], network[x], is_output=True)
    names = [command.name for command in network.commands() if isinstance(command, Launch)]
    assert names == ["broadcast:compare_rows", "select:select_vectors"]


@pytest.mark.parametrize(("groups", "queues"), [(1, 3), (2, 5), (4, 2)])
def test_any_number_of_groups_and_queues(
    opencl_device: Device, monkeypatch: pytest.MonkeyPatch, groups: int, queues: int
) -> None:
    simulate_groups(monkeypatch, groups, queues)
    every_comparison(FLOAT, (64, 272)).check(opencl_device)
