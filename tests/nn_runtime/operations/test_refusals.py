# SPDX-License-Identifier: Apache-2.0
"""Arguments that an operation does not allow are refused by name."""

from __future__ import annotations

import pytest

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.errors import BadData
from nn_runtime.operations import OperationView, output_dimensions, validate
from tests.nn_runtime.operations.operands import FakeOperand, integer, integers, omitted, scalar, tensor

QUANT8, INT32_TENSOR = OperandCode.TENSOR_QUANT8_ASYMM, OperandCode.TENSOR_INT32


def refuse(message: str, code: OperationCode, inputs: list[FakeOperand], *outputs: FakeOperand) -> None:
    operation = OperationView(code, inputs, outputs or (tensor(1),), 7)
    with pytest.raises(BadData, match=message) as error:
        validate(operation)
        output_dimensions(operation)
    assert f"operation 7 {code.name}" in str(error.value)


def flag(value: bool) -> FakeOperand:
    return scalar(OperandCode.BOOL, value)


def quant8(*dims: int, scale: float = 0.5, zero_point: int = 0) -> FakeOperand:
    return tensor(*dims, code=QUANT8, scale=scale, zero_point=zero_point)


@pytest.mark.parametrize("code", [OperationCode.ADD, OperationCode.SUB, OperationCode.MUL, OperationCode.DIV])
def test_elementwise_refuses(code: OperationCode) -> None:
    refuse(r"\[2\] and \[3\] do not broadcast", code, [tensor(2), tensor(3), integer(0)])
    refuse(r"activation \(input 2\) must be a fuse code", code, [tensor(2), tensor(2), integer(4)])
    whole = tensor(2, code=INT32_TENSOR)
    refuse("activation .* must be NONE for TENSOR_INT32, got RELU", code, [whole, whole, integer(1)], whole)
    refuse("rank 1 to 4", code, [tensor(1, 1, 1, 1, 2), tensor(2), integer(0)])


def test_mul_refuses_an_output_scale_not_above_the_product() -> None:
    refuse(
        "output 0 must have a scale > 0.25",
        OperationCode.MUL,
        [quant8(2), quant8(2), integer(0)],
        quant8(2, scale=0.25),
    )


def test_activations_refuse_an_output_quantisation_they_do_not_give() -> None:
    refuse("scale 0.5 and zero point 0", OperationCode.RELU6, [quant8(2)], quant8(2, zero_point=1))
    refuse("scale 0.00390625 and zero point 0", OperationCode.LOGISTIC, [quant8(2)], quant8(2))
    refuse("scale 0.0078125 and zero point 128", OperationCode.TANH, [quant8(2)], quant8(2))


def test_softmax_refuses() -> None:
    one = scalar(OperandCode.FLOAT32, 1.0)
    refuse(r"axis \(input 2\) must be in \[-2, 2\), got 2", OperationCode.SOFTMAX, [tensor(2, 2), one, integer(2)])
    zero = scalar(OperandCode.FLOAT32, 0.0)
    refuse(r"beta \(input 1\) must be > 0, got 0.0", OperationCode.SOFTMAX, [tensor(2, 2), zero])


def test_mean_and_argmax_refuse_an_axis_out_of_range() -> None:
    refuse("axes .* must be in .*, got -3", OperationCode.MEAN, [tensor(2, 2), integers([0, -3]), integer(0)])
    indexes = tensor(2, code=INT32_TENSOR)
    refuse("axis .* must be in .*, got 2", OperationCode.ARGMAX, [tensor(2, 2), integer(2)], indexes)


@pytest.mark.parametrize("code", [OperationCode.RESIZE_BILINEAR, OperationCode.RESIZE_NEAREST_NEIGHBOR])
def test_resize_refuses(code: OperationCode) -> None:
    image, output = tensor(1, 4, 4, 1), tensor(1, 1, 1, 1)
    refuse("output_width .* must be > 0, got 0", code, [image, integer(0), integer(4), flag(False)], output)
    small, one, huge, nan = (scalar(OperandCode.FLOAT32, value) for value in (0.2, 1.0, 1e30, float("nan")))
    for scale in (small, huge, nan):
        refuse("width_scale .* must give an output size", code, [image, scale, one, flag(False)], output)
    both = [image, integer(2), integer(2), flag(False), flag(True), flag(True)]
    refuse("half_pixel_centers .* must be false", code, both, output)


def test_cast_refuses_other_pairs_of_types() -> None:
    signed = tensor(2, code=OperandCode.TENSOR_QUANT8_ASYMM_SIGNED, scale=0.5)
    refuse("output 0 must be TENSOR_QUANT8_ASYMM_SIGNED", OperationCode.CAST, [signed], tensor(2))
    refuse("output 0 must be TENSOR_FLOAT16 or", OperationCode.CAST, [tensor(2)], signed)


def lstm_inputs(units: int = 2, size: int = 3) -> list[FakeOperand]:
    matrix, recurrent, vector = tensor(units, size), tensor(units, units), tensor(units)
    zero = scalar(OperandCode.FLOAT32, 0.0)
    return [
        tensor(1, 5, size),
        *[matrix] * 4,
        *[recurrent] * 4,
        *[omitted()] * 3,
        *[vector] * 4,
        *[omitted()] * 2,
        *[tensor(1, units)] * 2,
        integer(4),
        zero,
        zero,
        flag(False),
        *[omitted()] * 4,
    ]


@pytest.mark.parametrize(
    ("index", "operand", "message"),
    [
        (1, omitted(), r"input_to_input_weights \(input 1\) must be given as"),
        (10, tensor(2), r"cell_to_input_weights \(input 9\) must be given as cell_to_forget_weights"),
        (6, tensor(2, 3), r"recurrent_to_forget_weights \(input 6\) must have dimensions \[2, 2\], got \[2, 3\]"),
        (17, tensor(2), "projection_bias .* must have no value"),
        (18, tensor(2, 2), r"output_state_in .* must have dimensions \[1, 2\]"),
        (20, integer(2), "activation .* must be one of"),
        (21, scalar(OperandCode.FLOAT32, -1.0), "cell_clip .* must be >= 0"),
        (25, tensor(2), "input_layer_norm_weights .* must be given as forget_layer_norm_weights"),
    ],
)
def test_lstm_refuses(index: int, operand: FakeOperand, message: str) -> None:
    inputs = lstm_inputs()
    output = tensor(1, 5, 2)
    view = OperationView(OperationCode.UNIDIRECTIONAL_SEQUENCE_LSTM, inputs, (output,))
    assert output_dimensions(view) == ((1, 5, 2),)
    inputs[index] = operand
    refuse(message, OperationCode.UNIDIRECTIONAL_SEQUENCE_LSTM, inputs, output)
