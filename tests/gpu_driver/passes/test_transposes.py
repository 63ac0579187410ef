# SPDX-License-Identifier: Apache-2.0
"""Layout round trips: TRANSPOSEs that undo each other, whatever lies between, and those that have to stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from tests.gpu_driver.graphs import Graph
from tests.gpu_driver.passes.simplifying import operations_left, random_floats, reshape, results, transpose

if TYPE_CHECKING:
    from gpu_driver.driver import Device
    from nn_runtime.operand import Array

QUANT8 = OperandCode.TENSOR_QUANT8_ASYMM
TO_NCHW, TO_NHWC = (0, 3, 1, 2), (0, 2, 3, 1)
NHWC, NCHW = (2, 4, 6, 3), (2, 3, 4, 6)
ADD, MUL, PAD, TANH = OperationCode.ADD, OperationCode.MUL, OperationCode.PAD, OperationCode.TANH


def moved(graph: Graph, source: int, perm: tuple[int, ...], dims: tuple[int, ...]) -> int:
    """TRANSPOSE into a temporary."""
    output = graph.temporary(dims)
    transpose(graph, source, perm, output)
    return output


def check(device: Device, graph: Graph, wanted: Array, *inputs: Array) -> None:
    (result,) = results(device, graph.model(), inputs)
    np.testing.assert_allclose(result, wanted, rtol=1e-6, atol=1e-6)


def test_two_in_a_row_are_one(opencl_device: Device) -> None:
    graph = Graph()
    data = random_floats(2, 3, 4, 5)
    between = moved(graph, graph.input(data.shape), (3, 1, 0, 2), (5, 3, 2, 4))
    transpose(graph, between, (2, 3, 0, 1), graph.output((2, 4, 5, 3)))
    assert operations_left(graph.model()) == ["TRANSPOSE"]
    check(opencl_device, graph, data.transpose(3, 1, 0, 2).transpose(2, 3, 0, 1), data)


def test_there_and_back_around_elementwise_operations(opencl_device: Device) -> None:
    """Constants of one value per channel, of full rank and of less, and one as large as the tensor."""
    graph = Graph()
    data, per_channel, full = random_floats(*NHWC), random_floats(3, 1, 1, seed=1), random_floats(*NCHW, seed=2)
    none = graph.integer(FuseCode.NONE)
    first = moved(graph, graph.input(NHWC), TO_NCHW, NCHW)
    scaled, bent, added, halved = (graph.temporary(NCHW) for _ in range(4))
    graph.operation(MUL, [first, graph.constant(per_channel), none], scaled)
    graph.operation(TANH, [scaled], bent)
    graph.operation(ADD, [graph.constant(full), bent, none], added)
    graph.operation(MUL, [added, graph.constant(np.array([0.5], np.float32)), none], halved)
    transpose(graph, halved, TO_NHWC, graph.output(NHWC))
    assert operations_left(graph.model()) == ["MUL", "TANH", "ADD", "MUL"]
    wanted = 0.5 * (np.tanh(data.transpose(TO_NCHW).astype(np.float64) * per_channel) + full)
    check(opencl_device, graph, wanted.transpose(TO_NHWC), data)


def test_a_number_of_the_run_has_any_layout(opencl_device: Device) -> None:
    graph = Graph()
    data, number = random_floats(*NHWC), random_floats(1, 1, 1, 1, seed=1)
    first, scaled = moved(graph, graph.input(NHWC), TO_NCHW, NCHW), graph.temporary(NCHW)
    graph.operation(MUL, [first, graph.input(number.shape), graph.integer(FuseCode.NONE)], scaled)
    transpose(graph, scaled, TO_NHWC, graph.output(NHWC))
    assert operations_left(graph.model()) == ["MUL"]
    check(opencl_device, graph, data * number, data, number)


def test_what_comes_by_a_permutation_of_the_run_stays_as_it_is(opencl_device: Device) -> None:
    graph = Graph()
    data, other = random_floats(*NHWC), random_floats(*NHWC, seed=1)
    first, second, total = moved(graph, graph.input(NHWC), TO_NCHW, NCHW), graph.temporary(NCHW), graph.temporary(NCHW)
    given = graph.input(NHWC), graph.input((4,), OperandCode.TENSOR_INT32)
    graph.operation(OperationCode.TRANSPOSE, given, second)
    graph.operation(ADD, [first, second, graph.integer(FuseCode.NONE)], total)
    transpose(graph, total, TO_NHWC, graph.output(NHWC))
    assert operations_left(graph.model()).count("TRANSPOSE") == 3
    check(opencl_device, graph, data + other, data, other, np.array(TO_NCHW, np.int32))


def test_there_and_back_around_more_operations_than_python_has_frames(opencl_device: Device) -> None:
    graph, count = Graph(), 1500
    data, none = random_floats(*NHWC), graph.integer(FuseCode.NONE)
    first = last = moved(graph, graph.input(NHWC), TO_NCHW, NCHW)
    for _ in range(count):
        total = graph.temporary(NCHW)
        graph.operation(ADD, [last, first, none], total)
        last = total
    transpose(graph, last, TO_NHWC, graph.output(NHWC))
    assert operations_left(graph.model()) == ["ADD"] * count
    wanted = np.add.accumulate([data] * (count + 1), axis=0)[-1]
    check(opencl_device, graph, wanted, data)


def test_two_branches_that_meet(opencl_device: Device) -> None:
    """Both sides of an ADD come from NHWC, and its result goes on in two ways."""
    graph = Graph()
    data, other = random_floats(*NHWC), random_floats(*NHWC, seed=1)
    sides = [moved(graph, graph.input(NHWC), TO_NCHW, NCHW) for _ in range(2)]
    added, bent = graph.temporary(NCHW), graph.temporary(NCHW)
    graph.operation(ADD, [*sides, graph.integer(FuseCode.RELU)], added)
    graph.operation(TANH, [added], bent)
    transpose(graph, added, TO_NHWC, graph.output(NHWC))
    transpose(graph, bent, (0, 1, 3, 2), graph.output((2, 3, 6, 4)))
    assert operations_left(graph.model()).count("TRANSPOSE") == 1
    results_ = results(opencl_device, graph.model(), [data, other])
    wanted = np.maximum(data + other, 0)
    np.testing.assert_allclose(results_[0], wanted, rtol=1e-6)
    np.testing.assert_allclose(results_[1], np.tanh(wanted).transpose(0, 3, 2, 1), rtol=1e-6, atol=1e-6)


def test_padding_concatenation_and_reduction_change_their_axes(opencl_device: Device) -> None:
    graph = Graph()
    data, other = random_floats(*NHWC), random_floats(*NHWC, seed=1)
    first, second = (moved(graph, graph.input(NHWC), TO_NCHW, NCHW) for _ in range(2))
    joined, padded, averaged = (
        graph.temporary((2, 6, 4, 6)),
        graph.temporary((2, 6, 7, 6)),
        graph.temporary((2, 6, 7, 1)),
    )
    graph.operation(OperationCode.CONCATENATION, [first, second, graph.integer(1)], joined)
    amounts = np.array([[0, 0], [0, 0], [1, 2], [0, 0]], np.int32)
    graph.operation(PAD, [joined, graph.constant(amounts)], padded)
    axes = graph.constant(np.array([-1], np.int32))
    graph.operation(OperationCode.MEAN, [padded, axes, graph.integer(1)], averaged)
    transpose(graph, averaged, TO_NHWC, graph.output((2, 7, 1, 6)))
    assert operations_left(graph.model()) == ["CONCATENATION", "PAD", "MEAN"]
    wanted = np.pad(np.concatenate([data, other], 3), ((0, 0), (1, 2), (0, 0), (0, 0))).mean(2, keepdims=True)
    check(opencl_device, graph, wanted, data, other)


def test_a_reduction_over_the_picture_needs_no_layout(opencl_device: Device) -> None:
    graph = Graph()
    data = random_floats(*NHWC)
    first = moved(graph, graph.input(NHWC), TO_NCHW, NCHW)
    axes = graph.constant(np.array([2, 3], np.int32))
    graph.operation(OperationCode.MEAN, [first, axes, graph.integer(0)], graph.output((2, 3)))
    assert operations_left(graph.model()) == ["MEAN"]
    check(opencl_device, graph, data.mean((1, 2)), data)


def test_quantised_operations_in_between(opencl_device: Device) -> None:
    graph = Graph()
    codes = np.random.default_rng(0).integers(0, 256, NHWC).astype(np.uint8)
    source, turned = graph.input(NHWC, QUANT8, 0.1, 100), graph.temporary(NCHW, QUANT8, 0.1, 100)
    transpose(graph, source, TO_NCHW, turned)
    real, bent, again = graph.temporary(NCHW), graph.temporary(NCHW), graph.temporary(NCHW, QUANT8, 1 / 64, 64)
    graph.operation(OperationCode.DEQUANTIZE, [turned], real)
    graph.operation(TANH, [real], bent)
    graph.operation(OperationCode.QUANTIZE, [bent], again)
    transpose(graph, again, TO_NHWC, graph.output(NHWC, QUANT8, 1 / 64, 64))
    assert operations_left(graph.model()) == ["DEQUANTIZE", "TANH", "QUANTIZE"]
    (result,) = results(opencl_device, graph.model(), [codes])
    exact = 64 * np.tanh(0.1 * (codes.astype(np.float64) - 100)) + 64
    assert np.all(np.abs(result - exact) <= 0.5001)


@pytest.mark.parametrize("is_merged", [False, True], ids=["rows and columns", "pixels"])
def test_around_reshapes(opencl_device: Device, is_merged: bool) -> None:
    """As exporters leave them: to NCHW, pixels in a row, and channels last again; or with axes of one between."""
    graph = Graph()
    data = random_floats(*NHWC)
    first = moved(graph, graph.input(NHWC), TO_NCHW, NCHW)
    if is_merged:
        rows = graph.temporary((2, 3, 24))
        reshape(graph, first, (2, 3, 24), rows)
        transpose(graph, rows, (0, 2, 1), graph.output((2, 24, 3)))
    else:
        rows = graph.temporary((2, 1, 3, 24))
        reshape(graph, first, (2, 1, 3, 24), rows)
        transpose(graph, rows, (0, 1, 3, 2), graph.output((2, 1, 24, 3)))
    assert operations_left(graph.model()) == ["RESHAPE"]
    check(opencl_device, graph, data.reshape((2, 24, 3) if is_merged else (2, 1, 24, 3)), data)


def test_around_a_reshape_that_mixes(opencl_device: Device) -> None:
    """Shuffled channels: the second TRANSPOSE does not give the source back."""
    graph = Graph()
    data = random_floats(2, 6)
    split, turned = graph.temporary((2, 2, 3)), graph.temporary((2, 3, 2))
    reshape(graph, graph.input((2, 6)), (2, 2, 3), split)
    transpose(graph, split, (0, 2, 1), turned)
    flat, output = graph.temporary((3, 4)), graph.output((4, 3))
    reshape(graph, turned, (3, 4), flat)
    transpose(graph, flat, (1, 0), output)
    assert operations_left(graph.model()).count("TRANSPOSE") == 2
    check(opencl_device, graph, data.reshape(2, 2, 3).transpose(0, 2, 1).reshape(3, 4).T, data)


def test_around_a_reshape_that_cuts_an_axis(opencl_device: Device) -> None:
    graph = Graph()
    data = random_floats(6, 4)
    rows = graph.temporary((4, 2, 3))
    reshape(graph, moved(graph, graph.input(data.shape), (1, 0), (4, 6)), (4, 2, 3), rows)
    transpose(graph, rows, (1, 2, 0), graph.output((2, 3, 4)))
    assert operations_left(graph.model()) == ["RESHAPE"]
    check(opencl_device, graph, data.reshape(2, 3, 4), data)


def test_what_moves_may_have_its_tensor_behind_a_number(opencl_device: Device) -> None:
    graph = Graph()
    data = random_floats(4, 6)
    packed = graph.temporary((1, 4, 6))
    graph.operation(OperationCode.PACK, [graph.integer(0), graph.input(data.shape)], packed)
    transpose(graph, packed, (2, 1, 0), graph.output((6, 4, 1)))
    check(opencl_device, graph, data.T[:, :, np.newaxis], data)


@pytest.mark.parametrize("place", [0, 1], ids=["first", "second"])
def test_a_permutation_of_the_run_is_not_joined(opencl_device: Device, place: int) -> None:
    graph = Graph()
    data = random_floats(2, 3, 4)
    source, given = graph.input(data.shape), graph.input((3,), OperandCode.TENSOR_INT32)
    between, output = graph.temporary((4, 2, 3)), graph.output((3, 4, 2))
    perms = [graph.constant(np.array([2, 0, 1], np.int32)) if at != place else given for at in range(2)]
    graph.operation(OperationCode.TRANSPOSE, [source, perms[0]], between)
    graph.operation(OperationCode.TRANSPOSE, [between, perms[1]], output)
    check(opencl_device, graph, data.transpose(1, 2, 0), data, np.array([2, 0, 1], np.int32))


def test_around_a_slice_of_the_run(opencl_device: Device) -> None:
    """That it takes all is known when it is run."""
    graph = Graph()
    data, begin, size = random_floats(3, 5), np.zeros(2, np.int32), np.array([5, 3], np.int32)
    source, *parameters = graph.input(data.shape), *(graph.input((2,), OperandCode.TENSOR_INT32) for _ in range(2))
    cut = graph.temporary((5, 3))
    graph.operation(OperationCode.SLICE, [moved(graph, source, (1, 0), (5, 3)), *parameters], cut)
    transpose(graph, cut, (1, 0), graph.output(data.shape))
    check(opencl_device, graph, data, data, begin, size)


@pytest.mark.parametrize("reason", ["an output between", "a reader that knows the layout", "another permutation"])
def test_what_has_to_stay(opencl_device: Device, reason: str) -> None:
    graph = Graph()
    data = random_floats(*NHWC)
    first = moved(graph, graph.input(NHWC), TO_NCHW, NCHW)
    bent = graph.output(NCHW) if reason == "an output between" else graph.temporary(NCHW)
    if reason == "another permutation":
        other = moved(graph, graph.input((2, 6, 4, 3)), (0, 3, 2, 1), NCHW)
        graph.operation(ADD, [first, other, graph.integer(FuseCode.NONE)], bent)
    else:
        graph.operation(TANH, [first], bent)
    if reason == "a reader that knows the layout":
        reshape(graph, bent, (6, 24), graph.output((6, 24)))
    transpose(graph, bent, TO_NHWC, graph.output(NHWC))
    before = [name for name in operations_left(graph.model()) if name == "TRANSPOSE"]
    assert len(before) == (3 if reason == "another permutation" else 2)
    inputs = [data] if reason != "another permutation" else [data, np.zeros((2, 6, 4, 3), np.float32)]
    wanted = data if reason == "another permutation" else np.tanh(data)
    np.testing.assert_allclose(results(opencl_device, graph.model(), inputs)[-1], wanted, rtol=1e-6, atol=1e-6)


def test_a_tensor_and_its_own_transpose_meet(opencl_device: Device) -> None:
    """Axes of size 1 and 4 alone: both layouts of one tensor are joined."""
    graph = Graph()
    data = random_floats(1, 1, 1, 4)
    turned = moved(graph, graph.input(data.shape), (3, 0, 1, 2), (4, 1, 1, 1))
    back = moved(graph, turned, (1, 2, 3, 0), (1, 1, 1, 4))
    bent, joined = graph.temporary(data.shape), graph.temporary((2, 1, 1, 4))
    graph.operation(TANH, [back], bent)
    again = moved(graph, moved(graph, bent, (0, 1, 3, 2), (1, 1, 4, 1)), (0, 1, 3, 2), data.shape)
    graph.operation(OperationCode.CONCATENATION, [again, bent, graph.integer(0)], joined)
    transpose(graph, joined, (3, 1, 2, 0), graph.output((4, 1, 1, 2)))
    check(opencl_device, graph, np.tanh(np.concatenate([data, data])).transpose(3, 1, 2, 0), data)


def test_convolutions_of_an_exporter(opencl_device: Device) -> None:
    """NHWC convolutions with everything between them in NCHW: one launch for both, the bias and the activation."""
    graph = Graph()
    data, weights = random_floats(1, 6, 6, 4), random_floats(4, 1, 1, 4, seed=1)
    shift = random_floats(1, 4, 1, 1, seed=2)
    none = graph.integer(FuseCode.NONE)

    def convolution(source: int, output: int) -> None:
        zeros = graph.constant(np.zeros(4, np.float32))
        numbers = [graph.integer(value) for value in (0, 0, 0, 0, 1, 1, 0)]
        graph.operation(OperationCode.CONV_2D, [source, graph.constant(weights), zeros, *numbers], output)

    first, second = graph.temporary((1, 6, 6, 4)), graph.output((1, 6, 6, 4))
    convolution(graph.input((1, 6, 6, 4)), first)
    turned = moved(graph, first, TO_NCHW, (1, 4, 6, 6))
    shifted, limited = graph.temporary((1, 4, 6, 6)), graph.temporary((1, 4, 6, 6))
    graph.operation(ADD, [turned, graph.constant(shift), none], shifted)
    graph.operation(OperationCode.RELU6, [shifted], limited)
    convolution(moved(graph, limited, TO_NHWC, (1, 6, 6, 4)), second)
    assert operations_left(graph.model()) == ["CONV_2D", "CONV_2D"]
    matrix = weights.reshape(4, 4).T.astype(np.float64)
    wanted = np.clip(data @ matrix + shift.reshape(4), 0, 6) @ matrix
    (result,) = results(opencl_device, graph.model(), [data])
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)
