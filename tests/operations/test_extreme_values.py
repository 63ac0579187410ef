# SPDX-License-Identifier: Apache-2.0
"""Values at the edge: infinities and NaN go through as IEEE 754 has it; parameters beyond bounds are clear errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import nn_runtime as nn
from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.errors import NNError

if TYPE_CHECKING:
    from nn_runtime.device import Device
    from nn_runtime.operand import Array

INF, NAN = np.inf, np.nan
FLOATS = (OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_FLOAT16)
_DTYPES: dict[OperandCode, type[np.generic]] = {
    OperandCode.TENSOR_FLOAT32: np.float32,
    OperandCode.TENSOR_FLOAT16: np.float16,
    OperandCode.TENSOR_QUANT8_ASYMM: np.uint8,
    OperandCode.TENSOR_INT32: np.int32,
    OperandCode.INT32: np.int32,
    OperandCode.BOOL: np.bool_,
}


def _run(
    device: Device,
    operation: OperationCode,
    code: OperandCode,
    data: Any,
    parameters: list[tuple[OperandCode, Any]],
    room: tuple[int, ...],
    dynamic: bool = False,
    result: OperandCode | None = None,
    second: tuple[int, ...] = (),
) -> Array:
    """Run one operation of `data` and parameters, which are inputs where `dynamic`; the output has room for `room`.

    result: its type, where it is not that of `data`. second: room of another output, which is not looked at.
    """
    values = [np.asarray(data, _DTYPES[code]), *(np.asarray(value, _DTYPES[kind]) for kind, value in parameters)]
    scale = 0.5 if code == OperandCode.TENSOR_QUANT8_ASYMM else 0.0
    model = nn.Model()
    operands = [model.add_operand(nn.OperandType(code, values[0].shape, scale))]
    for (kind, _), value in zip(parameters, values[1:], strict=True):
        operands.append(model.add_operand(nn.OperandType(kind, value.shape)))
        if not dynamic:
            model.set_operand_value(operands[-1], value)
    made = code if result is None else result
    rooms = [room, second] if second else [room]
    types = [nn.OperandType(made, (0,) * len(dims) if dynamic else dims, scale) for dims in rooms]
    output_operands = [model.add_operand(output_type) for output_type in types]
    model.add_operation(operation, operands, output_operands)
    inputs = operands if dynamic else operands[:1]
    model.identify_inputs_and_outputs(inputs, output_operands)
    model.finish()
    with nn.Compilation(model, [device]) as compilation:
        compilation.finish()
        with nn.Execution(compilation) as execution:
            for at in range(len(inputs)):
                execution.set_input(at, values[at])
            outputs = [np.empty(dims, _DTYPES[made]) for dims in rooms]
            for at, output in enumerate(outputs):
                execution.set_output(at, output)
            execution.compute()
            return outputs[0]


@pytest.mark.parametrize("operation", [OperationCode.MEAN, OperationCode.REDUCE_SUM])
@pytest.mark.parametrize("code", FLOATS, ids=lambda code: code.name)
@pytest.mark.parametrize("size", [5, 300])
def test_sums_of_infinities(operation: OperationCode, code: OperandCode, size: int, device: Device) -> None:
    data = np.ones((4, size), np.float32)
    data[0, 1], data[1, 2], data[2, 0], data[2, size - 1], data[3, 1] = INF, -INF, INF, -INF, NAN
    keep = (OperandCode.INT32, 0) if operation == OperationCode.MEAN else (OperandCode.BOOL, False)
    got = _run(device, operation, code, data, [(OperandCode.TENSOR_INT32, [1]), keep], (4,))
    np.testing.assert_array_equal(got, [INF, -INF, NAN, NAN])


@pytest.mark.parametrize("code", FLOATS, ids=lambda code: code.name)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("size", [4, 20, 300])
def test_products_with_a_factor_of_zero(code: OperandCode, axis: int, size: int, device: Device) -> None:
    """They are 0, as in NNAPI's reference: so no product of numbers depends on the order in which they are taken."""
    data = np.ones((4, size), np.float32)
    data[0, :3], data[1, :3], data[2, size - 2 :], data[3, :2] = (3e4, 3e4, 0), (0, NAN, INF), (INF, -1), (NAN, 2)
    data[0, size - 1] = INF
    given = data if axis else np.repeat(data.T, 17, axis=1)
    parameters = [(OperandCode.TENSOR_INT32, [axis]), (OperandCode.BOOL, False)]
    got = _run(device, OperationCode.REDUCE_PROD, code, given, parameters, (4,) if axis else (68,))
    np.testing.assert_array_equal(got, np.repeat([0, 0, -INF, NAN], 1 if axis else 17))


@pytest.mark.parametrize("activation", [0, 1, 3, 4], ids=lambda activation: f"activation{activation}")
def test_a_clipped_cell_of_what_is_no_number(activation: int, device: Device) -> None:
    """An LSTM of one unit, all weights 1: NaN comes out of the batch that it went into."""
    one, none = np.ones((1, 1), np.float32), None
    zero = np.zeros(1, np.float32)
    weights = [one] * 8 + [none] * 3 + [zero] * 4 + [one, none]
    states = [np.zeros((2, 1), np.float32)] * 2
    source = np.array([[NAN], [0.5]], np.float32)
    model = nn.Model()

    def add(value: Array | None, code: OperandCode = OperandCode.TENSOR_FLOAT32) -> int:
        operand = model.add_operand(nn.OperandType(code, (0,) if value is None else value.shape))
        model.set_operand_value(operand, value)
        return operand

    inputs = [model.add_operand(nn.OperandType(OperandCode.TENSOR_FLOAT32, source.shape))]
    inputs += [add(value) for value in (*weights, *states)]
    inputs.append(add(np.asarray(activation, np.int32), OperandCode.INT32))
    inputs += [add(np.asarray(0.25, np.float32), OperandCode.FLOAT32) for _ in range(2)]
    outputs = [model.add_operand(nn.OperandType(OperandCode.TENSOR_FLOAT32, dims)) for dims in ((2, 4), *[(2, 1)] * 3)]
    model.add_operation(OperationCode.LSTM, inputs, outputs)
    model.identify_inputs_and_outputs(inputs[:1], outputs)
    model.finish()
    results = [np.empty((2, 4), np.float32), *(np.empty((2, 1), np.float32) for _ in range(3))]
    with nn.Compilation(model, [device]) as compilation:
        compilation.finish()
        with nn.Execution(compilation) as execution:
            execution.set_input(0, source)
            for at, result in enumerate(results):
                execution.set_output(at, result)
            execution.compute()
    _, output_state, cell_state, output = results
    hidden = (np.tanh(0.25) if activation == 4 else 0.25) / (1 + np.exp(-0.5))
    np.testing.assert_allclose(cell_state, [[NAN], [0.25]], rtol=1e-5)
    np.testing.assert_allclose(output_state, [[NAN], [hidden]], rtol=1e-5)
    np.testing.assert_allclose(output, [[NAN], [hidden]], rtol=1e-5)


@pytest.mark.parametrize("code", FLOATS, ids=lambda code: code.name)
@pytest.mark.parametrize("depth", [1, 20])
def test_a_maximum_of_what_is_no_number(code: OperandCode, depth: int, device: Device) -> None:
    data = np.repeat([[NAN, 1, 2, 4, -INF, -INF], [0, 3, NAN, -INF, -INF, -INF]], depth).reshape(1, 2, 6, depth)
    for size, wanted in ((2, [NAN, NAN, -INF]), (1, [NAN, 1, 2, 4, -INF, -INF])):
        numbers = [(OperandCode.INT32, number) for number in (0, 0, 0, 0, size, size, size, size, 0)]
        got = _run(device, OperationCode.MAX_POOL_2D, code, data, numbers, (1, 2 // size, 6 // size, depth))
        np.testing.assert_array_equal(got[0, 0], np.repeat(wanted, depth).reshape(-1, depth))


@pytest.mark.parametrize("code", FLOATS, ids=lambda code: code.name)
@pytest.mark.parametrize("size", [4, 20])
@pytest.mark.parametrize("operation", [OperationCode.ARGMAX, OperationCode.ARGMIN])
def test_the_place_of_what_is_no_number(operation: OperationCode, code: OperandCode, size: int, device: Device) -> None:
    """The first NaN, as numpy has it; zeros of either sign are the same."""
    rows = np.tile(np.array([[1, NAN, 3, NAN], [NAN, 1, 3, 2], [0.0, -0.0, 0.0, -0.0], [-INF, 2, INF, 1]]), size // 4)
    got = _run(device, operation, code, rows, [(OperandCode.INT32, 1)], (4,), result=OperandCode.TENSOR_INT32)
    assert got.tolist() == [1, 0, 0, 2 if operation == OperationCode.ARGMAX else 0]


@pytest.mark.parametrize("code", FLOATS, ids=lambda code: code.name)
def test_a_keypoint_beside_what_is_no_number(code: OperandCode, device: Device) -> None:
    """NaN is no maximum, wherever it is, as in NNAPI's reference, but comes out where it is next to one."""
    rows, columns = np.mgrid[0:5, 0:5]
    heatmaps = np.repeat((4 - (rows - 2) ** 2 - (columns - 3) ** 2).astype(float).reshape(1, 5, 5, 1), 4, axis=3)
    heatmaps[0, 0, 0, 0] = heatmaps[0, 4, 4, 1] = heatmaps[0, 1, 3, 2] = NAN
    heatmaps[0, :, :, 3] = NAN
    parameters = [(code, [[0, 0, 5, 5]]), (OperandCode.BOOL, False)]
    scores = _run(device, OperationCode.HEATMAP_MAX_KEYPOINT, code, heatmaps, parameters, (1, 4), second=(1, 4, 2))
    np.testing.assert_allclose(scores, [[4, 4, NAN, NAN]], rtol=1e-3)


@pytest.mark.parametrize("code", FLOATS, ids=lambda code: code.name)
def test_a_length_that_is_no_number(code: OperandCode, device: Device) -> None:
    got = _run(device, OperationCode.L2_NORMALIZATION, code, [[3, NAN], [0, 0], [3, -4]], [], (3, 2))
    np.testing.assert_allclose(got, [[NAN, NAN], [0, 0], [0.6, -0.8]], rtol=1e-3)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("value", [-1, 256, 2**31 - 1])
def test_padding_outside_the_type(value: int, dynamic: bool, device: Device) -> None:
    parameters = [(OperandCode.TENSOR_INT32, [[1, 0]]), (OperandCode.INT32, value)]
    with pytest.raises(NNError, match=rf"pad_value \(input 2\) must be in 0\.\.255, got {value}"):
        _run(device, OperationCode.PAD_V2, OperandCode.TENSOR_QUANT8_ASYMM, [3, 4], parameters, (3,), dynamic)


def test_results_that_nothing_can_index(opencl_device_under_test: Device) -> None:
    parameters = [(OperandCode.TENSOR_INT32, [1, 2**31 - 1])]
    with pytest.raises(NNError, match=r"\[2, 4294967294\] have more than 2\^30 elements"):
        _run(
            opencl_device_under_test,
            OperationCode.TILE,
            OperandCode.TENSOR_FLOAT32,
            [[1, 2], [3, 4]],
            parameters,
            (2, 2),
            dynamic=True,
        )


@pytest.fixture
def opencl_device_under_test(device: Device) -> Device:
    """Every device under test but the CPU driver's, which has no such limit."""
    if device.is_reference:
        pytest.skip("the CPU driver counts without limits")
    return device
