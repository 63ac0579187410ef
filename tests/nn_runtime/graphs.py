# SPDX-License-Identifier: Apache-2.0
"""Small models that several tests build."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.compilation import Compilation
from nn_runtime.device import Device
from nn_runtime.devices import Selection, reference_device
from nn_runtime.execution import Execution
from nn_runtime.model import Model
from nn_runtime.operand import OperandType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.hal.interfaces import IDevice
    from nn_runtime.operand import Array

FLOAT = OperandCode.TENSOR_FLOAT32
UNARY = (OperationCode.RELU, OperationCode.TANH, OperationCode.LOGISTIC)


def tensor(*dims: int, code: int = FLOAT, scale: float = 0.0, zero_point: int = 0) -> OperandType:
    return OperandType(code, dims, scale, zero_point)


def scalar(model: Model, value: float, code: int = OperandCode.INT32) -> int:
    index = model.add_operand(OperandType(code))
    model.set_operand_value(index, value)
    return index


def add(model: Model, first: int, second: int, result: int) -> None:
    model.add_operation(OperationCode.ADD, [first, second, scalar(model, FuseCode.NONE)], [result])


def add_model(dims: Sequence[int] = (2, 3), relaxed: bool = False) -> Model:
    """Output = a + b."""
    model = Model()
    a, b, result = (model.add_operand(tensor(*dims)) for _ in range(3))
    add(model, a, b, result)
    model.identify_inputs_and_outputs([a, b], [result])
    model.relax_computation_float32_to_float16(relaxed)
    model.finish()
    return model


def chain_model(
    codes: Sequence[OperationCode], dims: Sequence[int] = (2, 3), inner_dims: Sequence[int] | None = None
) -> Model:
    """Unary operations one after the other; temporaries may have other declared dimensions."""
    model = Model()
    before = first = model.add_operand(tensor(*dims))
    for at, code in enumerate(codes):
        is_last = at == len(codes) - 1
        result = model.add_operand(tensor(*(dims if is_last or inner_dims is None else inner_dims)))
        model.add_operation(code, [before], [result])
        before = result
    model.identify_inputs_and_outputs([first], [before])
    model.finish()
    return model


def finished(model: Model, devices: Sequence[IDevice], fallback: bool = False, partition: str = "aosp") -> Compilation:
    """Compile for devices, strictly, or with the CPU device as the last and fallback allowed."""
    wrapped = [Device(device) for device in devices]
    if fallback:
        wrapped.append(reference_device())
    compilation = Compilation.for_selection(model, Selection(tuple(wrapped), not fallback))
    compilation.set_partition(partition)
    compilation.finish()
    return compilation


def run(compilation: Compilation, inputs: Sequence[Array], output_dims: Sequence[Sequence[int]]) -> list[Array]:
    """Compute once into new float32 outputs."""
    outputs = [np.full(dims, np.nan, np.float32) for dims in output_dims]
    with Execution(compilation) as execution:
        for index, array in enumerate(inputs):
            execution.set_input(index, array)
        for index, array in enumerate(outputs):
            execution.set_output(index, array)
        execution.compute()
    return outputs


def numbers(*dims: int) -> Array:
    return np.linspace(-2, 2, int(np.prod(dims)), dtype=np.float32).reshape(dims)


BOOL = OperandCode.TENSOR_BOOL8


def flag(model: Model) -> int:
    """A condition: TENSOR_BOOL8 [1]."""
    return model.add_operand(tensor(1, code=BOOL))


def refer(model: Model, referenced: Model) -> int:
    index = model.add_operand(OperandType(OperandCode.MODEL))
    model.set_operand_value_from_model(index, referenced)
    return index


def unary_model(code: OperationCode, dims: Sequence[int] = (2, 3)) -> Model:
    return chain_model([code], dims)


def if_model(then_model: Model, else_model: Model, dims: Sequence[int] = (2, 3)) -> Model:
    """Inputs: condition, x; output: what the branch makes of x."""
    model = Model()
    condition, x, y = flag(model), model.add_operand(tensor(*dims)), model.add_operand(tensor(*dims))
    model.add_operation(OperationCode.IF, [condition, refer(model, then_model), refer(model, else_model), x], [y])
    model.identify_inputs_and_outputs([condition, x], [y])
    model.finish()
    return model


def less_model(dims: Sequence[int] = (1,), limit_dims: Sequence[int] = (1,)) -> Model:
    """Inputs: value, step, limit; output: value < limit."""
    model = Model()
    value, step, limit = (model.add_operand(tensor(*d)) for d in (dims, dims, limit_dims))
    result = flag(model)
    model.add_operation(OperationCode.LESS, [value, limit], [result])
    model.identify_inputs_and_outputs([value, step, limit], [result])
    model.finish()
    return model


def adding_body(dims: Sequence[int] = (1,)) -> Model:
    """Inputs: value, step, limit; output: value + step."""
    model = Model()
    value, step, limit, result = (model.add_operand(tensor(*d)) for d in (dims, dims, (1,), dims))
    add(model, value, step, result)
    model.identify_inputs_and_outputs([value, step, limit], [result])
    model.finish()
    return model


def while_model(condition: Model | None = None, body: Model | None = None, dims: Sequence[int] = (1,)) -> Model:
    """Inputs: value, step, limit; output: value after adding step while it is less than limit."""
    model = Model()
    value, step, limit, result = (model.add_operand(tensor(*d)) for d in (dims, dims, (1,), dims))
    models = [refer(model, condition or less_model()), refer(model, body or adding_body())]
    model.add_operation(OperationCode.WHILE, [*models, value, step, limit], [result])
    model.identify_inputs_and_outputs([value, step, limit], [result])
    model.finish()
    return model


def nest_model(depth: int, code: int = OperationCode.RELU) -> Model:
    """An operation on the second input in `depth` IFs, both branches of each the next one: 2^depth ways inside.

    Inputs: condition, x [2, 3].
    """
    inner: Model | None = None
    for _ in range(depth + 1):
        model = Model()
        condition, x, y = flag(model), model.add_operand(tensor(2, 3)), model.add_operand(tensor(2, 3))
        if inner is None:
            model.add_operation(code, [x], [y])
        else:
            models = [refer(model, inner), refer(model, inner)]
            model.add_operation(OperationCode.IF, [condition, *models, condition, x], [y])
        model.identify_inputs_and_outputs([condition, x], [y])
        model.finish()
        inner = model
    assert inner is not None
    return inner
