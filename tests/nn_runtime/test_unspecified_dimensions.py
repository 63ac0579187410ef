# SPDX-License-Identifier: Apache-2.0
"""Dimensions left open in the model, in the arguments, or both (AOSP TestUnspecifiedDimensions, TestUnknownDimensions).

The model is TRANSPOSE(input [A, B] + constant [A, 1], omitted permutation) -> output [B, A], with A = B = 2.
"""

from __future__ import annotations

import itertools
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.errors import BadData, OperationFailed, OutputInsufficientSize
from nn_runtime.execution import Execution
from nn_runtime.memory import Memory
from nn_runtime.model import Model
from nn_runtime.operand import OperandType, dtype_of
from tests.nn_runtime.graphs import finished, scalar

if TYPE_CHECKING:
    from collections.abc import Callable

    from nn_runtime.operand import Array, Dimensions


class Level(Enum):
    """How much of [2, 2] is said."""

    FULL, DIMENSION, RANK = "full", "dimension", "rank"
    NOTHING = "nothing"
    """No type at all, for arguments alone."""

    @property
    def dims(self) -> tuple[int, ...] | None:
        """What is said."""
        return {Level.FULL: (2, 2), Level.DIMENSION: (2, 0), Level.RANK: ()}.get(self)


CODES = [OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_FLOAT16, OperandCode.TENSOR_QUANT8_ASYMM]
MODEL_LEVELS = [Level.FULL, Level.DIMENSION, Level.RANK]


def kind(code: OperandCode, dims: Dimensions) -> OperandType:
    return OperandType(code, dims, 1.0 if code == OperandCode.TENSOR_QUANT8_ASYMM else 0.0)


def built(
    code: OperandCode,
    source: Level = Level.FULL,
    constant: Level = Level.FULL,
    between: Level = Level.FULL,
    result: Level = Level.FULL,
    permutation: Level = Level.FULL,
    permutation_is_input: bool = False,
) -> Model:
    model = Model()
    x = model.add_operand(kind(code, source.dims or ()))
    added = model.add_operand(kind(code, {Level.FULL: (2, 1), Level.DIMENSION: (0, 1)}.get(constant, ())))
    t = model.add_operand(kind(code, between.dims or ()))
    order = model.add_operand(
        OperandType(OperandCode.TENSOR_INT32, {Level.FULL: (2,), Level.DIMENSION: (0,)}.get(permutation, ()))
    )
    y = model.add_operand(kind(code, result.dims or ()))
    model.set_operand_value(added, np.array([[1], [2]], dtype_of(code)))
    if not permutation_is_input:
        model.set_operand_value(order, None)
    model.add_operation(OperationCode.ADD, [x, added, scalar(model, 0)], [t])
    model.add_operation(OperationCode.TRANSPOSE, [t, order], [y])
    model.identify_inputs_and_outputs([x, order] if permutation_is_input else [x], [y])
    model.finish()
    return model


def argument(code: OperandCode, level: Level, bad: bool = False) -> OperandType | None:
    if level.dims is None:
        return None
    return kind(code, (3, *level.dims[1:]) if bad and level.dims else level.dims)


def bound(
    execution: Execution, is_input: bool, array: Array, given: OperandType | None, in_memory: bool
) -> Callable[[], Array]:
    """Bind an array directly or in memory; return what reads it back."""
    if in_memory:
        memory = Memory.from_array(array)
        set_memory = execution.set_input_from_memory if is_input else execution.set_output_from_memory
        set_memory(0, memory, 0, array.nbytes, given)
        return lambda: memory.to_array(array.dtype, array.shape)
    (execution.set_input if is_input else execution.set_output)(0, array, given)
    return lambda: array


def prepared(model: Model, padded: bool) -> Execution:
    execution = Execution(finished(model, [], fallback=True))
    execution.enable_input_and_output_padding(padded)
    return execution


ELEMENTS = [2, 4, 8]
"""Too few, as many as needed, too many."""


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("level", MODEL_LEVELS)
@pytest.mark.parametrize("said", Level)
@pytest.mark.parametrize("in_memory", [False, True])
def test_inputs(code: OperandCode, level: Level, said: Level, in_memory: bool) -> None:
    """Known, by the type that is given or else by the model, and of the right size, or refused."""
    model = built(code, source=level, between=Level.RANK)
    values = np.arange(1, 9).astype(dtype_of(code))
    known = said == Level.FULL or (said == Level.NOTHING and level == Level.FULL)
    for padded, elements, bad in itertools.product([False, True], ELEMENTS, [False, True]):
        execution = prepared(model, padded)
        given = argument(code, said, bad)
        # Where the model leaves A open a wrong A is found only when it meets the constant.
        contradicts = bad and bool(said.dims) and level != Level.RANK
        needs = 6 if bad and said == Level.FULL else 4
        fits = elements == needs or (padded and elements > needs)
        if contradicts or not known or not fits:
            with pytest.raises(BadData):
                bound(execution, True, values[:elements], given, in_memory)
            continue
        bound(execution, True, values[:elements], given, in_memory)
        output = np.zeros(4, dtype_of(code))
        execution.set_output(0, output)
        if bad and said == Level.FULL:
            with pytest.raises(OperationFailed, match="3"):
                execution.compute()
            continue
        execution.compute()
        assert output.reshape(2, 2).tolist() == [[2, 5], [3, 6]]


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("level", MODEL_LEVELS)
@pytest.mark.parametrize("said", Level)
@pytest.mark.parametrize("in_memory", [False, True])
def test_outputs(code: OperandCode, level: Level, said: Level, in_memory: bool) -> None:
    """May stay open; then a buffer that is too small is found out by the run, which tells the shape.

    A type says no less than the model.
    """
    model = built(code, between=Level.DIMENSION, result=level)
    known = level == Level.FULL or said == Level.FULL
    says_less = (said == Level.DIMENSION and level == Level.FULL) or (said == Level.RANK and level != Level.RANK)
    for padded, elements, bad in itertools.product([False, True], ELEMENTS, [False, True]):
        execution = prepared(model, padded)
        given = argument(code, said, bad)
        contradicts = bad and bool(said.dims) and level != Level.RANK
        needs = 6 if bad and said == Level.FULL else 4
        fits = not known or elements == needs or (padded and elements > needs)
        execution.set_input(0, np.array([[1, 2], [3, 4]], dtype_of(code)))
        array = np.zeros(elements, dtype_of(code))
        if contradicts or says_less or not fits:
            with pytest.raises(BadData):
                bound(execution, False, array, given, in_memory)
            continue
        output = bound(execution, False, array, given, in_memory)
        if bad and said.dims:
            with pytest.raises(RuntimeError):
                execution.compute()
            continue
        if elements < 4:
            with pytest.raises(OutputInsufficientSize) as caught:
                execution.compute()
            assert caught.value.shapes == ((2, 2),)
        else:
            execution.compute()
            assert output()[:4].reshape(2, 2).tolist() == [[2, 5], [3, 6]]
        assert execution.get_output_operand_rank(0) == 2
        assert execution.get_output_operand_dimensions(0) == (2, 2)


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("level", MODEL_LEVELS)
def test_constants_temporaries_and_omitted_operands(code: OperandCode, level: Level) -> None:
    if level != Level.FULL:
        with pytest.raises(BadData, match="known dimensions"):
            built(code, constant=level)
    for permutation_is_input in (False, True):
        model = built(code, between=level, permutation=level, permutation_is_input=permutation_is_input)
        execution = Execution(finished(model, [], fallback=True))
        execution.set_input(0, np.array([[1, 2], [3, 4]], dtype_of(code)))
        if permutation_is_input:
            execution.set_input(1, None)
        output = np.zeros(4, dtype_of(code))
        execution.set_output(0, output)
        execution.compute()
        assert output.reshape(2, 2).tolist() == [[2, 5], [3, 6]]
