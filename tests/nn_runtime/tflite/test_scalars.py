# SPDX-License-Identifier: Apache-2.0
"""Scalars beside vectors of one element, which NNAPI does not tell apart; operators without axes. Beside LiteRT."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import nn_runtime as nn
from nn_runtime.errors import BadData
from nn_runtime.tflite.types import TensorType
from tests.nn_runtime.tflite.operator_file import (
    Step,
    Tensor,
    boolean,
    constant,
    int8,
    int32,
    int64,
    random_inputs,
    real,
    reference,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nn_runtime.device import Device
    from tests.nn_runtime.tflite.operator_file import Array


def numbers(*values: int) -> Tensor:
    return constant(np.array(values, np.int32))


def check(
    device: Device, tensors: Sequence[Tensor], steps: Sequence[Step], inputs: Sequence[int], *, tolerance: float = 0
) -> None:
    """Compare the last tensor with LiteRT's, its shape too."""
    file = write(tensors, steps, inputs, [len(tensors) - 1])
    data = random_inputs([tensors[at] for at in inputs])
    (wanted,) = reference(file, data)
    with nn.load(file).compile(device) as session:
        (result,) = session.run(data)
    assert result.shape == wanted.shape
    np.testing.assert_allclose(result.astype(np.float64), wanted.astype(np.float64), rtol=1e-6, atol=tolerance)


@pytest.mark.parametrize("code", ["SELECT_V2", "SELECT"])
@pytest.mark.parametrize("kind", [real, int32])
def test_a_scalar_condition(code: str, kind: type[Tensor], device: Device) -> None:
    condition = () if code == "SELECT_V2" else (1,)
    tensors = [real(*condition), constant(np.zeros(condition, np.float32)), boolean(*condition), kind(4), kind(4)]
    options = {"SELECT_V2": "SelectV2Options", "SELECT": "SelectOptions"}[code]
    if code == "SELECT":  # whose condition goes with the first dimension
        tensors[3:] = [kind(1, 4), kind(1, 4), kind(1, 4)]
    else:
        tensors.append(kind(4))
    steps = [Step("LESS", [0, 1], [2], "LessOptions"), Step(code, [2, 3, 4], [5], options)]
    check(device, tensors, steps, [0, 3, 4])


@pytest.mark.parametrize("kind", [real, int32, boolean])
def test_a_scalar_repeated_to_one_element(kind: type[Tensor], device: Device) -> None:
    tensors = [kind(), numbers(1), kind(1), kind(2), kind(3)]
    steps = [
        Step("BROADCAST_TO", [0, 1], [2], "BroadcastToOptions"),
        Step("CONCATENATION", [2, 3], [4], "ConcatenationOptions", {"Axis": 0}),
    ]
    if kind is not boolean:
        check(device, tensors, steps, [0, 3])
    check(device, tensors[:3], steps[:1], [0])


@pytest.mark.parametrize("kind", [real, int32, int64])
def test_axes_counted_from_the_last(kind: type[Tensor], device: Device) -> None:
    tensors = [kind(2, 3, 4), numbers(-1, 0, -2), kind(4, 2, 3)]
    check(device, tensors, [Step("TRANSPOSE", [0, 1], [2], "TransposeOptions")], [0])
    with pytest.raises(BadData, match="must be a permutation of 3 axes"):
        nn.load(write([tensors[0], numbers(0, 1, -2), tensors[2]], [Step("TRANSPOSE", [0, 1], [2])], [0], [2]))


@pytest.mark.parametrize("code", ["MEAN", "SUM"])
@pytest.mark.parametrize("kind", [real, int32])
def test_a_reduction_over_no_axis(code: str, kind: type[Tensor], device: Device) -> None:
    tensors = [kind(2, 3), constant(np.zeros(0, np.int32)), kind(2, 3)]
    check(device, tensors, [Step(code, [0, 1], [2], "ReducerOptions")], [0])


@pytest.mark.parametrize("code", ["MEAN", "SUM", "REDUCE_PROD"])
def test_a_reduction_of_bytes_over_no_axis_into_another_scale(code: str, device: Device) -> None:
    file = write(
        [int8(0.05, 10, 2, 30), constant(np.zeros(0, np.int32)), int8(0.2, -20, 2, 30)],
        [Step(code, [0, 1], [2], "ReducerOptions")], [0], [2],
    )  # fmt: skip
    data = np.arange(-30, 30, dtype=np.int8).reshape(2, 30)
    with nn.load(file).compile(device) as session:
        (result,) = session.run([data])
    exact = (data.astype(np.float64) - 10) * 0.05 / 0.2 - 20
    assert np.abs(result - exact).max() < 1  # the reference rounds twice


@pytest.mark.parametrize(
    ("tensors", "step", "message"),
    [
        (
            [real(1), numbers(-3), real(1)],
            Step("BROADCAST_TO", [0, 1], [2], "BroadcastToOptions"),
            r"BROADCAST_TO: \[1\] cannot be broadcast to \[-3\]",
        ),
        (
            [
                constant(np.zeros((1, 1, 1, 0), np.float32)),
                constant(np.ones((1, 1, 1, 2), np.float32)),
                real(1, 1, 1, 2),
            ],
            Step("DEPTHWISE_CONV_2D", [0, 1], [2], "DepthwiseConv2DOptions", {"StrideW": 1, "StrideH": 1}),
            "DEPTHWISE_CONV_2D: ",
        ),
    ],
)
def test_sizes_that_cannot_be(tensors: Sequence[Tensor], step: Step, message: str) -> None:
    fed = [at for at, tensor in enumerate(tensors[:-1]) if tensor.data is None]
    with pytest.raises(BadData, match=message):
        nn.load(write(tensors, [step], fed, [len(tensors) - 1]))


def test_a_scalar_has_one_order_of_axes(device: Device) -> None:
    for kind in (TensorType.INT32, TensorType.FLOAT32):
        file = write(
            [Tensor(kind, ()), constant(np.zeros(0, np.int32)), Tensor(kind, ())],
            [Step("TRANSPOSE", [0, 1], [2])], [0], [2],
        )  # fmt: skip
        with nn.load(file).compile(device) as session:
            data: Array = np.array(3, kind.dtype)
            (result,) = session.run([data])
        assert (result.shape, result) == ((), 3)


NO_AXES = constant(np.zeros(0, np.int32))


@pytest.mark.parametrize("kind", [real, int32, int64, boolean, lambda *shape: int8(0.1, 3, *shape)])
@pytest.mark.parametrize(
    ("step", "parameters", "shape"),
    [
        (Step("SLICE", [0, 1, 2], [3], "SliceOptions"), [NO_AXES, NO_AXES], ()),
        (Step("TILE", [0, 1], [2], "TileOptions"), [NO_AXES], ()),
        (Step("PAD", [0, 1], [2], "PadOptions"), [constant(np.zeros((0, 2), np.int32))], ()),
        (Step("STRIDED_SLICE", [0, 1, 2, 3], [4], "StridedSliceOptions"), [NO_AXES] * 3, ()),
        (
            Step("STRIDED_SLICE", [0, 1, 2, 3], [4], "StridedSliceOptions", {"NewAxisMask": 3}),
            [numbers(0, 0), numbers(0, 0), numbers(1, 1)],
            (1, 1),
        ),
    ],
    ids=["SLICE", "TILE", "PAD", "STRIDED_SLICE", "STRIDED_SLICE with new axes"],
)
def test_a_scalar_of_which_all_is_taken(
    kind: Callable[..., Tensor], step: Step, parameters: Sequence[Tensor], shape: tuple[int, ...], device: Device
) -> None:
    check(device, [kind(), *parameters, kind(*shape)], [step], [0])


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_a_new_shape_of_zero_alone_is_an_old_file_s_for_a_scalar(shape: tuple[int, ...], device: Device) -> None:
    step = Step("RESHAPE", [0], [1], "ReshapeOptions", {"NewShape": (0,)})
    check(device, [real(*shape), real()], [step], [0])
    with pytest.raises(BadData, match=r"RESHAPE: shape \(input 1\) must hold 2 elements"):
        nn.load(write([real(2), real()], [step], [0], [1]))
