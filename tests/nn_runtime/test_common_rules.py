# SPDX-License-Identifier: Apache-2.0
"""Rules that the whole stack shares: broadcasting, sizes, fixed-point multipliers (AOSP UtilsTest, MultinomialTest).

The multipliers are facts of Android's own tests.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.errors import BadData
from nn_runtime.execution import Execution
from nn_runtime.hal.types import HalError, Model, Operand, Operation, Subgraph
from nn_runtime.hal.validation import validate_request
from nn_runtime.model import Model as NdkModel
from nn_runtime.operand import (
    OperandType,
    check_operand_type,
    has_unknown_dimensions,
    merge_dimensions,
    register_extension_type,
)
from nn_runtime.operations import OperationView
from nn_runtime.operations.rules import broadcast_dimensions
from nn_runtime.quantization import fixed_point_multiplier, inverse_sqrt_multipliers
from tests.nn_runtime.graphs import finished, scalar, tensor
from tests.nn_runtime.hal.models import FLOATS, INPUT, OUTPUT, request

if TYPE_CHECKING:
    from nn_runtime.operand import Dimensions

_INT32_MAX = 2**31 - 1
_EXTENSION_TENSOR = 0x7ABC0000


def _broadcast(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    return broadcast_dimensions(OperationView(OperationCode.ADD, (), ()), first, second)


def test_shapes_that_broadcast() -> None:
    assert _broadcast((4, 3, 2, 1), (3, 1, 5)) == (4, 3, 2, 5)
    assert _broadcast((3, 1, 5), (4, 3, 2, 1)) == (4, 3, 2, 5)


@pytest.mark.parametrize(("first", "second"), [((5,), (3,)), ((3,), (5,))])
def test_shapes_that_do_not_broadcast(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    with pytest.raises(BadData, match="do not broadcast"):
        _broadcast(first, second)


@pytest.fixture
def extension_tensor(monkeypatch: pytest.MonkeyPatch) -> int:
    """An extension's tensor type of one byte an element."""
    monkeypatch.setattr("nn_runtime.operand.EXTENSION_TYPES", {})
    register_extension_type(_EXTENSION_TENSOR, True, 1)
    return _EXTENSION_TENSOR


def test_an_extension_tensor_of_unknown_rank(extension_tensor: int) -> None:
    assert has_unknown_dimensions(extension_tensor, ())
    check_operand_type(OperandType(extension_tensor, ()))
    model = _one_operation(OperationCode.ABS, Operand(FLOATS, (1,), lifetime=OUTPUT), extension_tensor, ())
    with pytest.raises(HalError, match="input 0: all dimensions must be known"):
        validate_request(model, request([np.zeros(1, "V1")], [np.zeros(1, np.float32)]))


def test_sizes_whose_product_overflows(extension_tensor: int) -> None:
    for code, dims in (
        (extension_tensor, (5, 4, 4, 786433, 5, 3, 16777216, 4, 5)),
        (OperandCode.TENSOR_FLOAT32, (256, 256, 256, 256)),
    ):
        with pytest.raises(BadData, match="at most"):
            check_operand_type(OperandType(code, dims))


def _one_operation(
    code: OperationCode, result: Operand, source_type: int = FLOATS, source_dims: Dimensions = (1,)
) -> Model:
    source = Operand(source_type, source_dims, lifetime=INPUT)
    return Model(Subgraph((source, result), (Operation(code, (0,), (1,)),), (0,), (1,)))


def test_a_request_for_an_output_of_unknown_rank() -> None:
    model = _one_operation(OperationCode.ABS, Operand(FLOATS, (), lifetime=OUTPUT))
    one = np.zeros(1, np.float32)
    with pytest.raises(HalError):
        validate_request(model, request([one], [one]), allow_unspecified_output=False)


def test_a_request_for_a_scalar_output() -> None:
    model = _one_operation(OperationCode.RANK, Operand(OperandCode.INT32, (), lifetime=OUTPUT))
    validate_request(
        model, request([np.zeros(1, np.float32)], [np.zeros((), np.int32)]), allow_unspecified_output=False
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [((), (1, 2, 3, 4)), ((), ()), ((0, 0, 0, 0), (1, 2, 3, 4)), ((0, 0, 0, 0), (0, 0, 0, 0)), ((0, 2), (1, 0))],
)
def test_dimensions_that_go_together(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    wanted = tuple(np.maximum(first, second)) if first and second else first or second
    assert merge_dimensions(first, second) == merge_dimensions(second, first) == wanted


@pytest.mark.parametrize("second", [(1, 2, 3), (2, 2, 3, 4), (1, 2, 3, 3), (1, 2, 3, 4, 1)])
def test_dimensions_that_contradict_each_other(second: tuple[int, ...]) -> None:
    for a, b in (((1, 2, 3, 4), second), (second, (1, 2, 3, 4))):
        with pytest.raises(BadData, match="contradict"):
            merge_dimensions(a, b)


def _parts(real: float) -> tuple[int, int]:
    fixed = fixed_point_multiplier(real)
    return fixed.mantissa, fixed.exponent


@pytest.mark.parametrize(
    ("real", "wanted"),
    [
        (0.25, (1073741824, -1)),
        (0.5 - 5e-9, (2147483627, -1)),
        (0.5 - 1e-10, (1073741824, 0)),
        (0.5, (1073741824, 0)),
        (0.75, (1610612736, 0)),
        (1 - 1e-9, (2147483646, 0)),
    ],
)
def test_multipliers_below_one(real: float, wanted: tuple[int, int]) -> None:
    assert _parts(real) == wanted


@pytest.mark.parametrize(
    ("real", "wanted"),
    [
        (1 + 1e-11, (1073741824, 1)),
        (1.25, (1342177280, 1)),
        (1.5, (1610612736, 1)),
        (1.75, (1879048192, 1)),
        (2 - 1e-9, (2147483647, 1)),
        (2 - 1e-11, (1073741824, 2)),
        (2.0, (1073741824, 2)),
    ],
)
def test_multipliers_above_one(real: float, wanted: tuple[int, int]) -> None:
    assert _parts(real) == wanted


@pytest.mark.parametrize("power", range(-3, 3))
def test_multipliers_that_are_powers_of_two(power: int) -> None:
    assert _parts(2.0**power) == (2**30, power + 1)
    assert _parts(-(2.0**power)) == (-(2**30), power + 1)
    assert _parts(0.0) == (0, 0)


@pytest.mark.parametrize(
    ("fraction", "power", "wanted"),
    [(1, -31, (2**30, -30)), (1, -32, (2**30, -31)), (0.99, -32, (0, 0)), (1, -33, (0, 0))],
)
def test_multipliers_too_small_become_zero(fraction: float, power: int, wanted: tuple[int, int]) -> None:
    assert _parts(math.ldexp(fraction, power)) == wanted


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (0, (_INT32_MAX, 0)),
        (1, (_INT32_MAX, 0)),
        (2, (1518498372, 0)),
        (3, (1239850284, 0)),
        (4, (1073741828, 0)),
        (100, (214748363, 0)),
        (10000, (343597361, 4)),
        (1000000, (274877901, 7)),
        (100000000, (219902323, 10)),
        (1 << 30, (268435457, 12)),
        (_INT32_MAX, (189812531, 12)),
    ],
)
def test_inverse_square_roots(value: int, wanted: tuple[int, int]) -> None:
    mantissas, shifts = inverse_sqrt_multipliers(np.array([value]))
    assert (int(mantissas[0]), int(shifts[0])) == wanted


def test_draws_follow_the_softmax_and_repeat() -> None:
    """Two draws with the same seeds are the same; their shares are near the softmax of the logits."""
    classes, samples = 10, 20000
    model = NdkModel()
    logits, seeds = model.add_operand(tensor(1, classes)), model.add_operand(tensor(2, code=OperandCode.TENSOR_INT32))
    count = scalar(model, samples)
    drawn = model.add_operand(tensor(1, samples, code=OperandCode.TENSOR_INT32))
    model.add_operation(OperationCode.RANDOM_MULTINOMIAL, [logits, count, seeds], [drawn])
    model.identify_inputs_and_outputs([logits, seeds], [drawn])
    model.finish()
    compilation = finished(model, [], fallback=True)
    values = np.random.default_rng(3).normal(size=(1, classes)).astype(np.float32)

    def draw(*seed: int) -> np.ndarray:
        result = np.zeros(samples, np.int32)
        with Execution(compilation) as execution:
            execution.set_input(0, values)
            execution.set_input(1, np.array(seed, np.int32))
            execution.set_output(0, result)
            execution.compute()
        return result

    first = draw(37, 42)
    np.testing.assert_array_equal(draw(37, 42), first)
    assert (draw(38, 42) != first).any()
    softmax = np.exp(values[0]) / np.exp(values[0]).sum()
    np.testing.assert_allclose(np.bincount(first, minlength=classes) / samples, softmax, atol=0.025)
