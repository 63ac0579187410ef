# SPDX-License-Identifier: Apache-2.0
"""What is no number, or none that an operand can carry, is BadData, with what was wanted and given."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import OperandCode
from nn_runtime.errors import BadData
from nn_runtime.hal import types as hal
from nn_runtime.model import Model
from nn_runtime.numeric import float32, whole, whole_numbers
from nn_runtime.operand import ChannelQuant, OperandType

if TYPE_CHECKING:
    from collections.abc import Callable

TOO_LARGE = (1e300, 10**400)
QUANT8, FLOAT = OperandCode.TENSOR_QUANT8_ASYMM, OperandCode.TENSOR_FLOAT32


def test_float32_keeps_what_fits() -> None:
    assert float32("x", 0.1) == float(np.float32(0.1))
    assert float32("x", np.float64(0.1)) == float(np.float32(0.1))
    assert float32("x", math.inf) == math.inf
    assert math.isnan(float32("x", math.nan))
    assert float32("x", 1e-300) == 0


@pytest.mark.parametrize("value", [*TOO_LARGE, "1", None, 1j])
def test_float32_refuses_the_rest(value: float) -> None:
    with pytest.raises(BadData, match="scale: wanted a number that float32 can hold, got"):
        float32("scale", value)


def test_whole_numbers_of_any_kind() -> None:
    assert whole_numbers("dims", [1, np.int64(2), True]) == (1, 2, 1)
    assert whole_numbers("dims", np.array([3, 4])) == (3, 4)


@pytest.mark.parametrize("value", [1.5, 2.0, math.nan, "1", None])
def test_whole_refuses_the_rest(value: int) -> None:
    with pytest.raises(BadData, match="size: wanted a whole number, got"):
        whole("size", value)


@pytest.mark.parametrize(
    "build",
    [
        *(lambda s=scale: OperandType(QUANT8, (1,), s) for scale in (*TOO_LARGE, "1", None)),
        *(lambda s=scale: hal.Operand(QUANT8, (1,), s) for scale in TOO_LARGE),
        *(lambda s=scale: ChannelQuant((1.0, s), 0) for scale in (*TOO_LARGE, None)),
        lambda: ChannelQuant(None, 0),  # type: ignore[arg-type]
        lambda: ChannelQuant((1.0,), None),  # type: ignore[arg-type]
        *(lambda d=dims: OperandType(FLOAT, d) for dims in ((1.5,), (math.nan,), (math.inf,), None, 3, "12")),
        lambda: OperandType(QUANT8, (1,), 1.0, 1.5),  # type: ignore[arg-type]
        lambda: OperandType(None),  # type: ignore[arg-type]
        lambda: OperandType("TENSOR_FLOAT32"),  # type: ignore[arg-type]
    ],
)
def test_types_refuse_what_is_no_number(build: Callable[[], object]) -> None:
    with pytest.raises(BadData, match="wanted"):
        build()


@pytest.mark.parametrize(
    "operand_type",
    [
        OperandType(QUANT8, (1,), math.nan),
        OperandType(QUANT8, (1,), math.inf),
        OperandType(QUANT8, (1,), -1.0),
        OperandType(QUANT8, (1,), 1.0, 2**40),
        OperandType(OperandCode.TENSOR_INT32, (1,), math.nan),
        OperandType(FLOAT, (-1,)),
        OperandType(FLOAT, (2**40,)),
        OperandType(FLOAT, (2**20, 2**20)),
        OperandType(-1),
        OperandType(10**12),
    ],
)
def test_operands_of_numbers_that_cannot_be(operand_type: OperandType) -> None:
    with pytest.raises(BadData, match="operand 0: "):
        Model().add_operand(operand_type)


@pytest.mark.parametrize("value", [*TOO_LARGE, np.float64(1e300), "1", 1j, [1.0]])
def test_a_scalar_that_its_type_cannot_hold(value: float) -> None:
    model = Model()
    index = model.add_operand(OperandType(OperandCode.FLOAT32))
    with pytest.raises(BadData, match=r"operand 0 \(FLOAT32\): (wanted a number|.* is no float32)"):
        model.set_operand_value(index, value)
