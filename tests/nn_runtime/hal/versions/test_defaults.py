# SPDX-License-Identifier: Apache-2.0
"""Removal of trailing default arguments (AOSP TestRemoveDefaultArguments)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import FeatureLevel, OperandCode, OperationCode
from nn_runtime.compilation import Compilation
from nn_runtime.device import Device
from nn_runtime.hal.versions.defaults import DEFAULTS, without_default_arguments
from nn_runtime.model import Model
from nn_runtime.operand import OperandType
from nn_runtime.testing.sample_drivers import SampleDevice
from tests.nn_runtime.graphs import scalar, tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

OP = OperationCode
IMAGE = (1, 4, 4, 4)
WINDOW_EXPLICIT = [0, 0, 0, 0, 1, 1, 1, 1, 0]
WINDOW_IMPLICIT = [2, 1, 1, 1, 1, 0]
FILTER = tensor(4, 1, 1, 4)
DEPTHWISE = tensor(1, 1, 1, 4)
BIAS = tensor(4)
PAIR = tensor(2, code=OperandCode.TENSOR_INT32)
BLOCK = np.array([2, 2], np.int32)
NO_PADDINGS = np.zeros((2, 2), np.int32)

# (operation, constants between input and tail: tensors as arrays, scalars; trailing arguments by default)
CASES: dict[str, tuple[OperationCode, list[object], list[object], tuple[int, ...]]] = {
    "AVERAGE_POOL_2D explicit": (OP.AVERAGE_POOL_2D, WINDOW_EXPLICIT, [False], IMAGE),
    "AVERAGE_POOL_2D implicit": (OP.AVERAGE_POOL_2D, WINDOW_IMPLICIT, [False], IMAGE),
    "MAX_POOL_2D explicit": (OP.MAX_POOL_2D, WINDOW_EXPLICIT, [False], IMAGE),
    "MAX_POOL_2D implicit": (OP.MAX_POOL_2D, WINDOW_IMPLICIT, [False], IMAGE),
    "L2_POOL_2D explicit": (OP.L2_POOL_2D, WINDOW_EXPLICIT, [False], IMAGE),
    "L2_POOL_2D implicit": (OP.L2_POOL_2D, WINDOW_IMPLICIT, [False], IMAGE),
    "CONV_2D explicit": (OP.CONV_2D, [FILTER, BIAS, 0, 0, 0, 0, 1, 1, 0], [False, 1, 1], IMAGE),
    "CONV_2D implicit": (OP.CONV_2D, [FILTER, BIAS, 1, 1, 1, 0], [False, 1, 1], IMAGE),
    "DEPTHWISE explicit": (OP.DEPTHWISE_CONV_2D, [DEPTHWISE, BIAS, 0, 0, 0, 0, 1, 1, 1, 0], [False, 1, 1], IMAGE),
    "DEPTHWISE implicit": (OP.DEPTHWISE_CONV_2D, [DEPTHWISE, BIAS, 1, 1, 1, 1, 0], [False, 1, 1], IMAGE),
    "DEPTH_TO_SPACE": (OP.DEPTH_TO_SPACE, [2], [False], (1, 8, 8, 1)),
    "SPACE_TO_DEPTH": (OP.SPACE_TO_DEPTH, [2], [False], (1, 2, 2, 16)),
    "BATCH_TO_SPACE_ND": (OP.BATCH_TO_SPACE_ND, [BLOCK], [False], (1, 8, 8, 4)),
    "SPACE_TO_BATCH_ND": (OP.SPACE_TO_BATCH_ND, [BLOCK, NO_PADDINGS], [False], (4, 2, 2, 4)),
    "L2_NORMALIZATION": (OP.L2_NORMALIZATION, [], [-1], IMAGE),
    "LOCAL_RESPONSE_NORMALIZATION": (OP.LOCAL_RESPONSE_NORMALIZATION, [1, 1.0, 1.0, 1.0], [-1], IMAGE),
    "SOFTMAX": (OP.SOFTMAX, [1.0], [-1], IMAGE),
    "RESIZE_BILINEAR shape": (OP.RESIZE_BILINEAR, [8, 8], [False, False, False], (1, 8, 8, 4)),
    "RESIZE_BILINEAR scale": (OP.RESIZE_BILINEAR, [2.0, 2.0], [False, False, False], (1, 8, 8, 4)),
    "RESIZE_NEAREST_NEIGHBOR shape": (OP.RESIZE_NEAREST_NEIGHBOR, [8, 8, False], [False, False], (1, 8, 8, 4)),
    "RESIZE_NEAREST_NEIGHBOR scale": (OP.RESIZE_NEAREST_NEIGHBOR, [2.0, 2.0, False], [False, False], (1, 8, 8, 4)),
}
LEGAL_TAILS = {OP.CONV_2D: {0, 1, 3}, OP.DEPTHWISE_CONV_2D: {0, 1, 3}}
"""Numbers of trailing arguments that an operation may have; any else."""


def constant(model: Model, value: object) -> int:
    if isinstance(value, np.ndarray):
        index = model.add_operand(tensor(*value.shape, code=OperandCode.TENSOR_INT32))
        model.set_operand_value(index, value)
        return index
    if isinstance(value, OperandType):
        index = model.add_operand(value)
        model.set_operand_value(index, np.ones(value.dims, np.float32))
        return index
    code = OperandCode.BOOL if isinstance(value, bool) else OperandCode.INT32
    if isinstance(value, float):
        code = OperandCode.FLOAT32
    return scalar(model, value, code)  # type: ignore[arg-type]


def build(code: OperationCode, arguments: Sequence[object], output: tuple[int, ...], depth: int = 4) -> Model:
    dims = (4, 4, 4, 4) if code == OP.BATCH_TO_SPACE_ND else (1, 4, 4, depth)
    model = Model()
    first = model.add_operand(tensor(*dims))
    indexes = [constant(model, argument) for argument in arguments]
    result = model.add_operand(tensor(*output))
    model.add_operation(code, [first, *indexes], [result])
    model.identify_inputs_and_outputs([first], [result])
    model.finish()
    return model


def input_count(model: Model) -> int:
    return len(model.hal.main.operations[0].inputs)


@pytest.mark.parametrize("name", CASES)
def test_trailing_defaults_are_removed(name: str) -> None:
    code, required, tail, output = CASES[name]
    for count in range(len(tail) + 1):
        if count in LEGAL_TAILS.get(code, range(10)):
            model = build(code, [*required, *tail[:count]], output)
            assert input_count(model) == 1 + len(required), count


@pytest.mark.parametrize("name", CASES)
def test_a_last_argument_with_another_value_stays_with_all_before_it(name: str) -> None:
    code, required, tail, output = CASES[name]
    other = {False: True, 1: 1, -1: 3}[tail[-1]]  # type: ignore[index]
    if code in LEGAL_TAILS:
        other, tail = 2, [False, 1, 1]
    changed = [*required, *tail[:-1], other]
    if code in (OP.DEPTH_TO_SPACE, OP.SPACE_TO_DEPTH, OP.BATCH_TO_SPACE_ND, OP.SPACE_TO_BATCH_ND):
        batches, height, width, channels = output
        output = (batches, channels, height, width)
        if code != OP.BATCH_TO_SPACE_ND:
            output = {OP.DEPTH_TO_SPACE: (1, 1, 8, 8), OP.SPACE_TO_DEPTH: (1, 16, 2, 2)}.get(code, (4, 4, 2, 2))
    assert input_count(build(code, changed, output)) == 1 + len(changed)


def test_a_default_before_another_value_stays() -> None:
    """Layout false and dilation 2, 2: nothing may go; dilation 1 beside 2 stays too."""
    for dilation in ((2, 2), (2, 1), (1, 2)):
        model = build(OP.CONV_2D, [FILTER, BIAS, 1, 1, 1, 0, False, *dilation], IMAGE)
        assert input_count(model) == 10


def test_layout_stays_where_only_dilation_is_default() -> None:
    model = build(OP.CONV_2D, [FILTER, BIAS, 1, 1, 1, 0, True, 1, 1], IMAGE)
    assert input_count(model) == 8


@pytest.mark.parametrize("code", [OP.RESIZE_BILINEAR, OP.RESIZE_NEAREST_NEIGHBOR])
def test_six_inputs_of_a_resize_become_five_where_the_corners_are_aligned(code: OperationCode) -> None:
    assert input_count(build(code, [8, 8, False, True, False], (1, 8, 8, 4))) == 5


def test_operations_without_defaults_stay() -> None:
    model = Model()
    x, y = model.add_operand(tensor(2)), model.add_operand(tensor(2))
    model.add_operation(OP.RELU, [x], [y])
    model.identify_inputs_and_outputs([x], [y])
    model.finish()
    assert without_default_arguments(model.hal) is model.hal


def test_a_default_that_is_no_constant_stays() -> None:
    model = Model()
    x, y = model.add_operand(tensor(1, 4)), model.add_operand(tensor(1, 4))
    axis = model.add_operand(OperandType(OperandCode.INT32))
    model.add_operation(OP.SOFTMAX, [x, scalar(model, 1.0, OperandCode.FLOAT32), axis], [y])
    model.identify_inputs_and_outputs([x, axis], [y])
    model.finish()
    assert input_count(model) == 3


def test_every_operation_with_defaults_has_a_case() -> None:
    assert {code for code, *_ in CASES.values()} == set(DEFAULTS)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[0] <= OP.TANH and name[-5:] != "scale"])
def test_a_driver_of_1_0_gets_the_shorter_list(name: str) -> None:
    code, required, tail, output = CASES[name]
    device = SampleDevice("old", feature_level=FeatureLevel.HAL_1_0)
    compilation = Compilation(build(code, [*required, *tail], output), [Device(device)])
    compilation.finish()
    (operation,) = device.record.models[0].main.operations
    assert len(operation.inputs) == 1 + len(required)
