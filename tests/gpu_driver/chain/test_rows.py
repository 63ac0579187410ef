# SPDX-License-Identifier: Apache-2.0
"""Programs with the mean of a row, as normalisations have them: one step, and what float64 gives."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pytest

from gpu_driver.chain import elementwise
from gpu_driver.chain.kinds import Function, Kind
from gpu_driver.launch import Launch
from gpu_driver.lowering import Lowering
from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.operand import dtype_of
from tests.gpu_driver.chain.running import simulate_groups
from tests.gpu_driver.graphs import Graph, request
from tests.gpu_driver.profiles import CPU_PROFILE
from tests.gpu_driver.running import prepare, run

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from gpu_driver.chain import Step
    from gpu_driver.driver import Device
    from nn_runtime.operand import Array, Dimensions

FLOAT, HALF = OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_FLOAT16
ADD, SUB, MUL, DIV = OperationCode.ADD, OperationCode.SUB, OperationCode.MUL, OperationCode.DIV
EPSILON = 0.001
TOLERANCE = {FLOAT: 1e-5, HALF: 2e-2}
Number: TypeAlias = "tuple[int, npt.NDArray[np.float64]]"
"""An operand, and what it should hold."""


class Rows:
    """Operations on rows, and beside every operand what float64 says."""

    def __init__(self, dims: Dimensions, code: OperandCode = FLOAT) -> None:
        self.graph, self.rng = Graph(), np.random.default_rng(3)
        self.dims, self.code = dims, code
        self.inputs: list[Array] = []
        self.expected: list[npt.NDArray[np.float64]] = []

    def input(self, *dims: int) -> Number:
        """An input of the rows' dimensions, or of others."""
        values = self.rng.uniform(-2, 3, dims or self.dims).astype(dtype_of(self.code))
        self.inputs.append(values)
        return self.graph.input(values.shape, self.code), values.astype(np.float64)

    def constant(self, *dims: int) -> Number:
        values = self.rng.uniform(0.5, 1.5, dims).astype(dtype_of(self.code))
        return self.graph.constant(values, self.code), values.astype(np.float64)

    def number(self, value: float) -> Number:
        values = np.array([value], dtype_of(self.code))
        return self.graph.constant(values, self.code), values.astype(np.float64)

    def pair(self, code: OperationCode, a: Number, b: Number, fuse: FuseCode = FuseCode.NONE) -> Number:
        function = {ADD: np.add, SUB: np.subtract, MUL: np.multiply, DIV: np.divide}[code]
        expected = function(a[1], b[1])
        if fuse == FuseCode.RELU:
            expected = np.maximum(expected, 0)
        made = self.graph.temporary(expected.shape, self.code)
        self.graph.operation(code, [a[0], b[0], self.graph.integer(fuse)], made)
        return made, expected

    def single(self, code: OperationCode, a: Number) -> Number:
        functions: dict[OperationCode, Callable[[Array], Array]] = {
            OperationCode.NEG: np.negative,
            OperationCode.RSQRT: lambda x: 1 / np.sqrt(x),
            OperationCode.ABS: np.abs,
            OperationCode.FLOOR: np.floor,
            OperationCode.LOGISTIC: lambda x: 1 / (1 + np.exp(-x)),
        }
        made = self.graph.temporary(a[1].shape, self.code)
        self.graph.operation(code, [a[0]], made)
        return made, functions[code](a[1])

    def mean(self, a: Number) -> Number:
        expected = a[1].mean(axis=-1, keepdims=True)
        made = self.graph.temporary(expected.shape, self.code)
        axes = self.graph.constant(np.array([-1], np.int32))
        self.graph.operation(OperationCode.MEAN, [a[0], axes, self.graph.integer(1)], made)
        return made, expected

    def mean_without_dimensions(self, a: Number) -> Number:
        """The mean of rows and of all dimensions of 1."""
        axes = [at for at, size in enumerate(a[1].shape) if size == 1 or at == a[1].ndim - 1]
        expected = a[1].mean(axis=tuple(axes))
        made = self.graph.temporary(expected.shape, self.code)
        places = self.graph.constant(np.array(axes, np.int32))
        self.graph.operation(OperationCode.MEAN, [a[0], places, self.graph.integer(0)], made)
        return made, expected

    def for_rows(self, a: Number) -> Number:
        """Numbers of rows in as many dimensions as the rows have."""
        dims = (*self.dims[:-1], 1)
        made = self.graph.temporary(dims, self.code)
        shape = self.graph.constant(np.array(dims, np.int32))
        self.graph.operation(OperationCode.RESHAPE, [a[0], shape], made)
        return made, a[1].reshape(dims)

    def normalised_by_pytorch(self, x: Number) -> Number:
        """A layer's normalisation as PyTorch's exporter writes it."""
        mean = self.mean_without_dimensions(x)
        difference = self.pair(SUB, x, self.for_rows(mean))
        variance = self.mean_without_dimensions(self.pair(MUL, difference, difference))
        root = self.single(OperationCode.RSQRT, self.pair(ADD, variance, self.number(EPSILON)))
        shift = self.pair(SUB, self.number(0), self.pair(MUL, root, mean))
        return self.pair(ADD, self.pair(MUL, x, self.for_rows(root)), self.for_rows(shift))

    def normalised(self, x: Number) -> Number:
        """A layer's normalisation as TensorFlow's converter writes it."""
        mean = self.mean(x)
        negative, difference = self.single(OperationCode.NEG, mean), self.pair(SUB, x, mean)
        variance = self.mean(self.pair(MUL, difference, difference))
        root = self.single(OperationCode.RSQRT, self.pair(ADD, variance, self.number(EPSILON)))
        factor = self.pair(MUL, root, self.constant(1, self.dims[-1]))
        shift = self.pair(ADD, self.pair(MUL, negative, factor), self.constant(1, self.dims[-1]))
        return self.pair(ADD, self.pair(MUL, x, factor), shift)

    def finish(self, *numbers: Number) -> None:
        for operand, expected in numbers:
            output = self.graph.output(expected.shape, self.code)
            zero, _ = self.number(0)
            self.graph.operation(ADD, [operand, zero, self.graph.integer(FuseCode.NONE)], output)
            self.expected.append(expected)

    def steps(self) -> tuple[Step, ...]:
        lowering = Lowering(self.graph.model(), replace(CPU_PROFILE, compute_units=2))
        (launch,) = lowering.lower(0, lowering.static_inputs()).commands
        assert isinstance(launch, Launch)
        return launch.steps

    def check(self, device: Device) -> None:
        results: list[Array] = [np.empty(one.shape, dtype_of(self.code)) for one in self.expected]
        run(prepare(device, self.graph.model()), request(self.inputs, results))
        tolerance = TOLERANCE[self.code]
        for result, expected in zip(results, self.expected, strict=True):
            np.testing.assert_allclose(result, expected, tolerance, tolerance)


def functions_of(step: Step) -> list[int]:
    return [one.function for one in step.program]


SHAPES = [(4, 40), (1, 16), (2, 3, 512), (1, 37), (300, 64), (2, 2, 5, 31), (1, 1, 130), (5, 768), (3, 1001), (4, 1024)]


@pytest.mark.parametrize("dims", SHAPES, ids=str)
@pytest.mark.parametrize("code", [FLOAT, HALF], ids=lambda code: code.name)
def test_a_normalisation_is_one_step(opencl_device: Device, code: OperandCode, dims: Dimensions) -> None:
    rows = Rows(dims, code)
    rows.finish(rows.normalised(rows.input()))
    (step,) = rows.steps()
    assert functions_of(step).count(Function.SUM_OF_ROW) == 2
    assert step.kind == Kind.ELEMENTWISE
    assert len(step.operations) == 13
    rows.check(opencl_device)


@pytest.mark.parametrize("dims", [(4, 40), (1, 64, 256), (1, 3, 1, 31)], ids=str)
def test_a_normalisation_of_pytorch_is_one_step(opencl_device: Device, dims: Dimensions) -> None:
    """Its means are over the dimensions of 1, too, and without them."""
    rows = Rows(dims)
    rows.finish(rows.normalised_by_pytorch(rows.input()))
    (step,) = rows.steps()
    assert len(step.operations) == 11
    rows.check(opencl_device)


@pytest.mark.parametrize("dims", [(4, 40), (3, 5, 100)], ids=str)
def test_what_is_added_before_is_part_of_the_step(opencl_device: Device, dims: Dimensions) -> None:
    rows = Rows(dims)
    rows.finish(rows.normalised(rows.pair(ADD, rows.input(), rows.input())))
    assert len(rows.steps()) == 1
    rows.check(opencl_device)


@pytest.mark.parametrize("code", [FLOAT, HALF], ids=lambda code: code.name)
def test_fractions_are_one_step(opencl_device: Device, code: OperandCode) -> None:
    """Products with a power of two are exact, so that no floor is another than float64's."""
    rows = Rows((7, 130), code)
    eighths = rows.pair(MUL, rows.input(), rows.number(8))
    fraction = rows.pair(SUB, eighths, rows.single(OperationCode.FLOOR, eighths))
    rows.finish(rows.single(OperationCode.FLOOR, rows.pair(ADD, fraction, fraction)))
    assert len(rows.steps()) == 1
    rows.check(opencl_device)


@pytest.mark.parametrize("dims", [(3, 7, 1025), (2, 1500)], ids=str)
def test_rows_that_do_not_fit_take_more_steps(opencl_device: Device, dims: Dimensions) -> None:
    rows = Rows(dims)
    rows.finish(rows.normalised(rows.input()))
    assert sum(step.kind == Kind.REDUCE for step in rows.steps()) == 2
    rows.check(opencl_device)


@pytest.mark.parametrize("depth", [48, 51])
def test_a_mean_that_others_read_is_a_step_of_its_own(opencl_device: Device, depth: int) -> None:
    rows = Rows((6, depth))
    x = rows.input()
    mean = rows.mean(x)
    rows.finish(rows.pair(SUB, x, mean), mean)
    assert Kind.REDUCE in [step.kind for step in rows.steps()]
    rows.check(opencl_device)


@pytest.mark.parametrize("is_first", [False, True])
def test_numbers_of_rows_are_either_operand(opencl_device: Device, is_first: bool) -> None:
    """Of what a program has made, what it reads, constants and other such numbers."""
    rows = Rows((9, 50))
    x, y = rows.input(), rows.input()

    def pair(code: OperationCode, a: Number, b: Number) -> Number:
        return rows.pair(code, b, a) if is_first else rows.pair(code, a, b)

    mean = rows.mean(rows.pair(MUL, x, y))
    size = rows.pair(ADD, rows.single(OperationCode.ABS, mean), rows.number(1))
    both = pair(SUB, size, mean)
    made = pair(DIV, rows.constant(50), pair(ADD, both, rows.number(2)))
    rows.finish(pair(SUB, pair(MUL, pair(SUB, y, size), made), both))
    assert len(rows.steps()) == 1
    rows.check(opencl_device)


def test_a_number_for_each_row_from_elsewhere_takes_another_step(opencl_device: Device) -> None:
    rows = Rows((9, 50))
    x = rows.input()
    weighted = rows.pair(MUL, rows.mean(x), rows.constant(9, 1))
    rows.finish(rows.pair(SUB, x, weighted))
    assert len(rows.steps()) > 1
    rows.check(opencl_device)


@pytest.mark.parametrize(("groups", "queues"), [(1, 3), (2, 5), (6, 4)])
def test_any_number_of_groups_and_queues(
    opencl_device: Device, monkeypatch: pytest.MonkeyPatch, groups: int, queues: int
) -> None:
    simulate_groups(monkeypatch, groups, queues)
    rows = Rows((123, 200))
    now = rows.input()
    for _ in range(4):
        now = rows.pair(ADD, now, rows.normalised(now))
    rows.finish(now)
    rows.check(opencl_device)


def test_a_number_is_added_to_a_product_by_the_same_instruction(opencl_device: Device) -> None:
    rows = Rows((4, 40))
    x, y = rows.input(), rows.input()
    rows.finish(rows.pair(SUB, x, rows.pair(ADD, rows.pair(MUL, x, y), rows.number(0.5), FuseCode.RELU)))
    (step,) = rows.steps()
    load, sum_of_product, *_ = step.program
    assert (load.function, sum_of_product.function) == (Function.LOAD, Function.MULTIPLY_ADD)
    assert (sum_of_product.low, sum_of_product.numbers) == (0, {"alpha": 0.5})
    rows.check(opencl_device)


def test_bounded_products_and_those_read_again_stay_apart(opencl_device: Device) -> None:
    rows = Rows((4, 40))
    x, y = rows.input(), rows.input()
    bounded = rows.pair(ADD, rows.pair(MUL, x, y, FuseCode.RELU), rows.number(0.5))
    product = rows.pair(MUL, x, bounded)
    rows.finish(rows.pair(SUB, product, rows.pair(ADD, product, rows.number(1))))
    (step,) = rows.steps()
    assert Function.MULTIPLY_ADD not in functions_of(step)
    rows.check(opencl_device)


def test_x_times_its_logistic_is_one_instruction(opencl_device: Device) -> None:
    rows = Rows((4, 40))
    x = rows.pair(MUL, rows.input(), rows.input())
    rows.finish(rows.pair(SUB, rows.pair(MUL, x, rows.single(OperationCode.LOGISTIC, x)), rows.input()))
    (step,) = rows.steps()
    assert Function.GATE in functions_of(step)
    assert Function.LOGISTIC not in functions_of(step)
    rows.check(opencl_device)


def test_a_logistic_that_others_read_stays(opencl_device: Device) -> None:
    rows = Rows((4, 40))
    x = rows.input()
    share = rows.single(OperationCode.LOGISTIC, x)
    rows.finish(rows.pair(SUB, rows.pair(ADD, rows.pair(MUL, x, share), share), rows.input()))
    assert Function.GATE not in [one for step in rows.steps() for one in functions_of(step)]
    rows.check(opencl_device)


@pytest.mark.parametrize("is_first", [False, True])
def test_a_logistic_times_another_value_is_one_instruction(opencl_device: Device, is_first: bool) -> None:
    rows = Rows((4, 40))
    x, y = rows.input(), rows.input()
    factors = rows.pair(ADD, x, y), rows.single(OperationCode.LOGISTIC, rows.pair(SUB, x, y))
    product = rows.pair(MUL, *factors) if is_first else rows.pair(MUL, *reversed(factors))
    rows.finish(rows.pair(SUB, product, y))
    assert [functions_of(step).count(Function.GATE) for step in rows.steps()] == [1]
    rows.check(opencl_device)


def test_a_logistic_times_what_lies_in_memory_stays(opencl_device: Device) -> None:
    rows = Rows((4, 40))
    x, y = rows.input(), rows.input()
    product = rows.pair(MUL, rows.single(OperationCode.LOGISTIC, x), y)
    rows.finish(rows.pair(SUB, rows.single(OperationCode.ABS, product), x))
    (step,) = rows.steps()
    assert Function.GATE not in functions_of(step)
    rows.check(opencl_device)


@pytest.mark.parametrize("code", [FLOAT, HALF], ids=lambda code: code.name)
@pytest.mark.parametrize("is_first", [False, True])
def test_horners_scheme_is_one_instruction(opencl_device: Device, code: OperandCode, is_first: bool) -> None:
    rows = Rows((33, 40), code)
    x = rows.pair(SUB, rows.input(), rows.input())
    value = rows.pair(ADD, rows.pair(MUL, x, rows.number(0.25)), rows.number(-1.5))
    for number in (0.5, -0.75, 2):
        factors = (x, value) if is_first else (value, x)
        value = rows.pair(ADD, rows.pair(MUL, *factors), rows.number(number))
    rows.finish(rows.pair(DIV, value, rows.constant(1, 40)))
    (step,) = rows.steps()
    assert functions_of(step) == [Function.LOAD, Function.SUB, Function.POLYNOMIAL, Function.DIV, Function.ADD]
    rows.check(opencl_device)


@pytest.mark.parametrize("of", ["square", "other", "kept", "bounded"])
def test_what_is_not_horners_scheme_stays(opencl_device: Device, of: str) -> None:
    """A polynomial's square, one times another value, which may lie in a register, and one that is cut."""
    rows = Rows((4, 40))
    x, y = rows.input(), rows.input()
    if of == "kept":
        y = rows.pair(SUB, x, y)
    fuse = FuseCode.RELU if of == "bounded" else FuseCode.NONE
    inner = rows.pair(ADD, rows.pair(MUL, x, rows.number(0.25)), rows.number(-0.5), fuse)
    factor = {"square": inner, "other": y, "kept": y, "bounded": x}[of]
    value = rows.pair(ADD, rows.pair(MUL, inner, factor), rows.number(0.75))
    rows.finish(rows.pair(SUB, value, x) if of == "kept" else value)
    assert Function.POLYNOMIAL not in [one for step in rows.steps() for one in functions_of(step)]
    rows.check(opencl_device)


def test_operands_that_change_places_are_not_taken_for_each_other(opencl_device: Device) -> None:
    rows = Rows((4, 40))
    y, x = rows.input(), rows.input()
    negative = rows.single(OperationCode.NEG, x)
    total = rows.pair(ADD, rows.pair(MUL, y, x), x)
    rows.finish(rows.pair(SUB, total, negative))
    assert len(rows.steps()) == 1
    rows.check(opencl_device)


def test_a_logistic_times_itself_is_its_square(opencl_device: Device) -> None:
    rows = Rows((4, 40))
    x, y = rows.input(), rows.input()
    share = rows.single(OperationCode.LOGISTIC, rows.pair(ADD, x, y))
    rows.finish(rows.pair(SUB, rows.pair(MUL, share, share), rows.pair(ADD, y, rows.constant(1, 40))))
    assert Function.GATE not in [one for step in rows.steps() for one in functions_of(step)]
    rows.check(opencl_device)


def test_a_mean_times_itself_is_a_number_of_the_row(opencl_device: Device) -> None:
    """The variance as the mean of squares less the square of the mean."""
    rows = Rows((5, 70))
    x = rows.input()
    mean = rows.mean(x)
    variance = rows.pair(SUB, rows.mean(rows.pair(MUL, x, x)), rows.pair(MUL, mean, mean))
    rows.finish(rows.pair(MUL, rows.pair(SUB, x, mean), variance))
    (step,) = rows.steps()
    assert sum(one.is_narrow for one in step.program) == 2
    rows.check(opencl_device)


def test_what_is_read_again_is_loaded_once_while_registers_are_free(opencl_device: Device) -> None:
    rows = Rows((4, 40))
    x, y = rows.input(), rows.input()
    now = rows.pair(SUB, y, rows.pair(MUL, x, y))
    for _ in range(3):
        now = rows.pair(SUB, x, rows.pair(MUL, rows.single(OperationCode.ABS, now), y))
    rows.finish(now)
    (step,) = rows.steps()
    assert functions_of(step).count(Function.LOAD) == 2
    assert sum(one.operand in elementwise.MEMORIES for one in step.program) == 2
    rows.check(opencl_device)


def test_what_is_read_beside_a_load_keeps_its_register(opencl_device: Device) -> None:
    """Three of four registers hold what is made, the last one x, to which y is loaded: that takes another step."""
    rows = Rows((4, 40))
    x, y = rows.input(), rows.input()
    square = rows.pair(MUL, x, x)
    total = rows.pair(ADD, x, square)
    rest = rows.pair(SUB, x, total)
    product = rows.pair(MUL, rows.pair(SUB, y, x), square)
    rows.finish(rows.pair(ADD, rows.pair(MUL, rows.pair(ADD, product, total), rest), y))
    assert len(rows.steps()) == 2
    rows.check(opencl_device)


def test_what_is_loaded_to_be_kept_takes_a_register_of_its_own(opencl_device: Device) -> None:
    """Not that of a row of channels with which the operation begins, nor that of what is read again later."""
    rows = Rows((4, 40))
    row, x, z = rows.input(1, 40), rows.input(), rows.input()
    rows.finish(rows.pair(MUL, rows.pair(SUB, row, x), x))
    difference = rows.pair(SUB, rows.pair(MUL, z, z), x)
    rows.finish(rows.pair(ADD, rows.pair(MUL, difference, z), x))
    assert len(rows.steps()) == 2
    rows.check(opencl_device)


def test_numbers_of_rows_as_a_row_are_no_numbers_of_rows(opencl_device: Device) -> None:
    rows = Rows((32, 32))
    x = rows.input()
    mean, values = rows.mean(x)
    row = rows.graph.temporary((1, 32))
    shape = rows.graph.constant(np.array([1, 32], np.int32))
    rows.graph.operation(OperationCode.RESHAPE, [mean, shape], row)
    difference = rows.pair(SUB, x, (row, values.reshape(1, 32)))
    rows.finish(rows.pair(ADD, rows.pair(MUL, difference, x), difference))
    assert [step.kind for step in rows.steps()] == [Kind.REDUCE, Kind.ELEMENTWISE]
    rows.check(opencl_device)


def test_an_operation_on_numbers_of_rows_from_elsewhere_takes_another_step(opencl_device: Device) -> None:
    rows = Rows((5, 70))
    x, numbers = rows.input(), rows.input(5, 1)
    difference = rows.pair(SUB, x, rows.mean(x))
    rows.finish(rows.pair(MUL, difference, rows.single(OperationCode.ABS, numbers)))
    assert len(rows.steps()) > 1
    rows.check(opencl_device)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("dims", [(5, 48), (3, 2, 70)], ids=str)
def test_drawn_programs_give_what_float64_gives(opencl_device: Device, dims: Dimensions, seed: int) -> None:
    """Of means, numbers of rows and tensors that are read again and again, with more of them than registers."""
    rows = Rows(dims)
    rng = np.random.default_rng(seed)
    full, narrow = [rows.input(), rows.input(), rows.constant(dims[-1])], [rows.number(0.5)]
    for _ in range(14):
        kind = rng.integers(5)
        one, two = (full[i] for i in rng.integers(len(full), size=2))
        thin, other = (narrow[i] for i in rng.integers(len(narrow), size=2))
        code = [ADD, SUB, MUL][rng.integers(3)]
        fuse = [FuseCode.NONE, FuseCode.NONE, FuseCode.RELU][rng.integers(3)]
        if kind == 0 and one[1].shape == dims:
            narrow.append(rows.mean(one))
        elif kind == 1 and (thin[1].shape != (1,) or other[1].shape != (1,)):
            narrow.append(rows.pair(code, thin, other, fuse))
        elif kind == 2 and one[1].shape == dims:
            full.append(rows.pair(code, *((one, thin) if rng.integers(2) else (thin, one)), fuse))
        elif kind == 3 and one[1].shape == dims:
            full.append(rows.single(OperationCode.LOGISTIC, one))
        elif dims in (one[1].shape, two[1].shape):
            full.append(rows.pair(code, one, two, fuse))
    rows.finish(*[one for one in full[3:] if one[1].shape == dims][-2:])
    rows.check(opencl_device)


class Reduced(Rows):
    """Rows whose reductions are checked."""

    def reduced(self, code: OperationCode, a: Number, axes: tuple[int, ...]) -> Number:
        function = {
            OperationCode.REDUCE_SUM: np.sum,
            OperationCode.MEAN: np.mean,
            OperationCode.REDUCE_MAX: np.max,
            OperationCode.REDUCE_MIN: np.min,
        }[code]
        expected = function(a[1], axes, keepdims=True)
        made = self.graph.temporary(expected.shape, self.code)
        numbers = self.graph.constant(np.array(axes, np.int32))
        keeps = self.graph.integer(1) if code == OperationCode.MEAN else self.graph.flag(True)
        self.graph.operation(code, [a[0], numbers, keeps], made)
        return made, expected


REDUCTIONS = [OperationCode.REDUCE_SUM, OperationCode.MEAN, OperationCode.REDUCE_MAX, OperationCode.REDUCE_MIN]


@pytest.mark.parametrize("dims", [(3, 5, 16), (7, 130), (2, 33, 100)], ids=str)
@pytest.mark.parametrize("which", REDUCTIONS, ids=lambda code: code.name)
@pytest.mark.parametrize("code", [FLOAT, HALF], ids=lambda code: code.name)
def test_reductions_of_rows_are_steps(
    opencl_device: Device, code: OperandCode, which: OperationCode, dims: Dimensions
) -> None:
    rows = Reduced(dims, code)
    x = rows.single(OperationCode.NEG, rows.input())
    reduced = rows.reduced(which, x, (len(dims) - 1,))
    rows.finish(rows.pair(SUB, x, reduced), rows.pair(MUL, x, reduced))
    assert not [step for step in rows.steps() if step.kind not in (Kind.ELEMENTWISE, Kind.REDUCE)]
    rows.check(opencl_device)


@pytest.mark.parametrize("which", [OperationCode.REDUCE_SUM, OperationCode.MEAN], ids=lambda code: code.name)
@pytest.mark.parametrize("dims", [(1, 96, 112), (2, 2, 6000), (3, 50, 1000)], ids=str)
def test_few_long_rows_are_summed_up_in_parts(opencl_device: Device, which: OperationCode, dims: Dimensions) -> None:
    rows = Reduced(dims)
    x = rows.single(OperationCode.NEG, rows.input())
    total = rows.reduced(which, x, (1, 2))
    rows.finish(rows.pair(DIV, x, total))
    sums = [step for step in rows.steps() if step.kind == Kind.REDUCE]
    assert len(sums) == 2
    assert sums[0].output_shape[0] > dims[0] == sums[1].output_shape[0]
    rows.check(opencl_device)


@pytest.mark.parametrize("which", [OperationCode.REDUCE_MAX, OperationCode.REDUCE_MIN], ids=lambda code: code.name)
@pytest.mark.parametrize("place", [0, 15, 16, 30, None])
def test_what_is_no_number_is_an_extreme(opencl_device: Device, which: OperationCode, place: int | None) -> None:
    rows = Reduced((5, 31))
    values = np.where(np.arange(31) % 2, -np.inf, np.inf).astype(np.float32) * np.ones((5, 1), np.float32)
    if place is not None:
        values[2, place] = np.nan
    rows.inputs.append(values)
    x = rows.single(OperationCode.NEG, (rows.graph.input(values.shape), values.astype(np.float64)))
    y = rows.single(OperationCode.ABS, rows.input(5, 1))
    rows.finish(rows.pair(MUL, rows.pair(ADD, rows.reduced(which, x, (1,)), y), y))
    rows.check(opencl_device)


@pytest.mark.parametrize(("groups", "queues"), [(1, 3), (2, 5)])
def test_reductions_on_any_number_of_cores(
    opencl_device: Device, monkeypatch: pytest.MonkeyPatch, groups: int, queues: int
) -> None:
    simulate_groups(monkeypatch, groups, queues)
    for which in REDUCTIONS:
        rows = Reduced((2, 64, 272))
        x = rows.single(OperationCode.NEG, rows.input())
        rows.finish(rows.pair(SUB, x, rows.reduced(which, x, (1, 2))), rows.reduced(which, x, (2,)))
        rows.check(opencl_device)
