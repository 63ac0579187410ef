# SPDX-License-Identifier: Apache-2.0
"""IF and WHILE take the models that fit their operands, and no others (AOSP TestValidateOperations)."""

from __future__ import annotations

import itertools

import pytest

from nn_runtime.codes import OperandCode, OperationCode, ResultCode
from nn_runtime.model import Model
from nn_runtime.operand import OperandType
from tests.nn_runtime.validation.signatures import Operand, Signature, recounted, refusal, retyped

_KNOWN, _UNKNOWN_SIZES, _UNKNOWN_RANK = (1, 2, 3), (0, 2, 0), ()
_SHAPES = (_KNOWN, _UNKNOWN_SIZES, _UNKNOWN_RANK)

Dims = tuple[int, ...]


def _data(dims: Dims = _KNOWN, code: OperandCode = OperandCode.TENSOR_FLOAT32) -> Operand:
    return Operand(OperandType(code, dims, 1 / 256 if code == OperandCode.TENSOR_QUANT8_ASYMM else 0.0))


def _condition(*dims: int) -> Operand:
    return Operand(OperandType(OperandCode.TENSOR_BOOL8, dims))


def _model(operand: Operand, inputs: int, outputs: int) -> Operand:
    """Return a MODEL operand whose model copies its first input to each output and ignores the other inputs."""
    model = Model()
    read = [model.add_operand(operand.kind) for _ in range(inputs)]
    written = [model.add_operand(operand.kind) for _ in range(outputs)]
    for index in written:
        model.add_operation(OperationCode.CAST, read[:1], [index])
    model.identify_inputs_and_outputs(read, written)
    model.finish()
    return Operand(OperandType(OperandCode.MODEL), model)


def _comparison(operand: Operand, condition: Operand) -> Operand:
    model = Model()
    read = [model.add_operand(operand.kind) for _ in range(2)]
    written = model.add_operand(condition.kind)
    model.add_operation(OperationCode.LESS, read, [written])
    model.identify_inputs_and_outputs(read, [written])
    model.finish()
    return Operand(OperandType(OperandCode.MODEL), model)


def _if(outer: Dims = _KNOWN, then_dims: Dims = _KNOWN, else_dims: Dims = _KNOWN) -> Signature:
    models = (_model(_data(then_dims), 1, 1), _model(_data(else_dims), 1, 1))
    return Signature(OperationCode.IF, (_condition(1), *models, _data(outer)), (_data(outer),))


def _while(outer: Dims = _KNOWN, condition_dims: Dims = _KNOWN, body_dims: Dims = _KNOWN) -> Signature:
    models = (_comparison(_data(condition_dims), _condition(1)), _model(_data(body_dims), 2, 1))
    return Signature(OperationCode.WHILE, (*models, _data(outer), _data(outer)), (_data(outer),))


def _is_refused(signature: Signature) -> bool:
    error = refusal(signature)
    return error is not None and error.code == ResultCode.BAD_DATA


@pytest.mark.parametrize("dims", list(itertools.product(_SHAPES, repeat=3)))
def test_if_takes_sizes_that_are_not_known_yet(dims: tuple[Dims, Dims, Dims]) -> None:
    assert refusal(_if(*dims)) is None


@pytest.mark.parametrize("dims", list(itertools.product(_SHAPES, repeat=3)))
def test_while_takes_sizes_that_are_not_known_yet(dims: tuple[Dims, Dims, Dims]) -> None:
    assert refusal(_while(*dims)) is None


@pytest.mark.parametrize("signature", [_if(), _while()], ids=["IF", "WHILE"])
def test_another_type_or_number_of_operands_is_refused(signature: Signature) -> None:
    for what, changed in (*retyped(signature), *recounted(signature)):
        assert _is_refused(changed), what


_OTHER = {
    "type": _data(code=OperandCode.TENSOR_INT32),
    "size": _data((1, 2, 4)),
    "rank": _data((1, 2)),
}


@pytest.mark.parametrize("what", list(_OTHER))
def test_a_model_whose_boundary_differs_is_refused(what: str) -> None:
    other = _OTHER[what]
    condition, then_model, else_model, data = _if().inputs
    for models in ((_model(other, 1, 1), else_model), (then_model, _model(other, 1, 1))):
        assert _is_refused(Signature(OperationCode.IF, (condition, *models, data), (data,)))
    condition_model, body_model, data, _ = _while().inputs
    for models in ((_comparison(other, condition), body_model), (condition_model, _model(other, 2, 1))):
        assert _is_refused(Signature(OperationCode.WHILE, (*models, data, data), (data,)))


@pytest.mark.parametrize(("inputs", "outputs"), [(2, 1), (1, 2)])
def test_if_refuses_a_model_with_another_number_of_operands(inputs: int, outputs: int) -> None:
    condition, then_model, else_model, data = _if().inputs
    wrong = _model(data, inputs, outputs)
    assert _is_refused(Signature(OperationCode.IF, (condition, wrong, else_model, data), (data,)))
    assert _is_refused(Signature(OperationCode.IF, (condition, then_model, wrong, data), (data,)))


@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (3, 1), (2, 3)])
def test_while_refuses_a_body_with_another_number_of_operands(inputs: int, outputs: int) -> None:
    condition_model, _, data, _ = _while().inputs
    wrong = _model(data, inputs, outputs)
    assert _is_refused(Signature(OperationCode.WHILE, (condition_model, wrong, data, data), (data,)))


def test_a_condition_is_one_bool() -> None:
    _, then_model, else_model, data = _if().inputs
    for condition in (_condition(2), _condition(1, 1), _data((1,))):
        assert _is_refused(Signature(OperationCode.IF, (condition, then_model, else_model, data), (data,)))
    _, body_model, data, _ = _while().inputs
    for wrong in (_comparison(data, _condition(*_KNOWN)), _model(data, 2, 1)):
        assert _is_refused(Signature(OperationCode.WHILE, (wrong, body_model, data, data), (data,)))
