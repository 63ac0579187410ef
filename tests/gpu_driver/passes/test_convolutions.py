# SPDX-License-Identifier: Apache-2.0
"""Dilated convolutions written by batches of pixels, and padded images: which of them convolutions read themselves.

Expected values: sums over taps of the padded image in float64.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.hal.types import HalError
from tests.gpu_driver.graphs import Graph
from tests.gpu_driver.passes.simplifying import operations_left, random_floats, reshape, results
from tests.gpu_driver.running import prepare

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_driver.driver import Device
    from nn_runtime.operand import Array, Dimensions

SAME, VALID = 1, 2
QUANT8 = OperandCode.TENSOR_QUANT8_ASYMM_SIGNED
Sides = tuple[tuple[int, int], tuple[int, int]]


def dilated(image: Array, filters: Array, sides: Sides, dilation: tuple[int, int]) -> Array:
    """Convolve [N, H, W, C] with [O, h, w, C], or each channel with [1, h, w, C]."""
    padded = np.pad(image.astype(np.float64), ((0, 0), *sides, (0, 0)))
    rows, columns = filters.shape[1:3]
    height = padded.shape[1] - dilation[0] * (rows - 1)
    width = padded.shape[2] - dilation[1] * (columns - 1)
    total: Array | float = 0.0
    for y in range(rows):
        for x in range(columns):
            top, left = y * dilation[0], x * dilation[1]
            seen = padded[:, top : top + height, left : left + width]
            tap = filters[:, y, x].astype(np.float64)
            total = total + (seen * tap[0] if filters.shape[0] == 1 else seen @ tap.T)
    return np.asarray(total)


class Network(Graph):
    """A graph with the operations that the tests are about; each method returns its result."""

    def to_batches(self, source: int, dims: Dimensions, block: tuple[int, int], sides: Sides, **kind: float) -> int:
        batches, height, width, depth = dims
        sizes = (height + sum(sides[0])) // block[0], (width + sum(sides[1])) // block[1]
        result = self.temporary((batches * block[0] * block[1], *sizes, depth), **kind)  # type: ignore[arg-type]
        numbers = [self.constant(np.array(values, np.int32)) for values in (block, sides)]
        self.operation(OperationCode.SPACE_TO_BATCH_ND, [source, *numbers], result)
        return result

    def from_batches(self, source: int, block: tuple[int, int], result: int) -> int:
        block_shape = self.constant(np.array(block, np.int32))
        self.operation(OperationCode.BATCH_TO_SPACE_ND, [source, block_shape], result)
        return result

    def convolved(self, source: int, filters: Array, result: int, stride: int = 1, scheme: int = VALID) -> int:
        """CONV_2D without bias, and where nothing else is said without padding; DEPTHWISE_CONV_2D for one filter."""
        depthwise = filters.shape[0] == 1
        bias = self.constant(np.zeros(filters.shape[3 if depthwise else 0], np.float32))
        multiplier = [self.integer(1)] if depthwise else []
        numbers = [self.integer(scheme), self.integer(stride), self.integer(stride), *multiplier]
        code = OperationCode.DEPTHWISE_CONV_2D if depthwise else OperationCode.CONV_2D
        inputs = [source, self.constant(filters), bias, *numbers, self.integer(FuseCode.NONE)]
        self.operation(code, inputs, result)
        return result

    def cut(self, source: int, begin: Sequence[int], size: Sequence[int]) -> int:
        numbers = [self.constant(np.array(values, np.int32)) for values in (begin, size)]
        result = self.output(tuple(size))
        self.operation(OperationCode.SLICE, [source, *numbers], result)
        return result


@pytest.mark.parametrize("depthwise", [False, True], ids=["CONV_2D", "DEPTHWISE_CONV_2D"])
@pytest.mark.parametrize("cut", [None, (0, 0), (1, 2)], ids=["whole", "cut behind", "cut at all sides"])
def test_a_convolution_of_every_nth_pixel_is_dilated(
    opencl_device: Device, depthwise: bool, cut: tuple[int, int] | None
) -> None:
    block: tuple[int, int] = (2, 3)
    image, filters = random_floats(2, 9, 13, 4), random_floats(1 if depthwise else 5, 3, 3, 4, seed=1)
    depth = 4 if depthwise else 5
    sides: Sides = ((2, 3), (3, 5))  # 14 x 21
    graph = Network()
    split = graph.to_batches(graph.input(image.shape), image.shape, block, sides)
    inner = graph.convolved(split, filters, graph.temporary((12, 5, 5, depth)))
    whole = (2, 10, 15, depth)
    joined = graph.from_batches(inner, block, graph.temporary(whole) if cut else graph.output(whole))
    wanted = dilated(image, filters, sides, block)
    if cut is not None:
        size = (2, 10 - cut[0] - 1, 15 - cut[1] - 2, depth)
        graph.cut(joined, (0, *cut, 0), size)
        wanted = wanted[:, cut[0] : cut[0] + size[1], cut[1] : cut[1] + size[2]]
    name = "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D"
    assert operations_left(graph.model()) == [name]
    (result,) = results(opencl_device, graph.model(), [image])
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)


def test_bounds_of_batches_become_those_of_the_image(opencl_device: Device) -> None:
    """Between reshapes, too, and whichever input the number is; as behind the gates of a WaveNet in 16 bits."""
    step, length, depth = 3, 18, 4
    sequence, filters = random_floats(2, length, 1, depth), random_floats(5, 1, 2, depth, seed=1)
    graph = Network()
    split = graph.to_batches(graph.input(sequence.shape), sequence.shape, (step, 1), ((step, 0), (0, 0)))
    row = graph.temporary((2 * step, 1, length // step + 1, depth))
    reshape(graph, split, (2 * step, 1, length // step + 1, depth), row)
    inner = graph.convolved(row, filters, graph.temporary((2 * step, 1, length // step, 5)))
    low, high = (graph.constant(np.array([bound], np.float32)) for bound in (-0.5, 0.25))
    above = graph.temporary((2 * step, 1, length // step, 5))
    graph.operation(OperationCode.MAXIMUM, [inner, low], above)
    turned = graph.temporary((2 * step, length // step, 1, 5))
    reshape(graph, above, (2 * step, length // step, 1, 5), turned)
    below = graph.temporary((2 * step, length // step, 1, 5))
    graph.operation(OperationCode.MINIMUM, [high, turned], below)
    graph.from_batches(below, (step, 1), graph.output((2, length, 1, 5)))
    assert [name for name in operations_left(graph.model()) if name != "RESHAPE"] == ["CONV_2D", "MAXIMUM", "MINIMUM"]
    (result,) = results(opencl_device, graph.model(), [sequence])
    wanted = np.clip(dilated(sequence, filters.transpose(0, 2, 1, 3), ((step, 0), (0, 0)), (step, 1)), -0.5, 0.25)
    assert len(np.unique(wanted)) > 10
    assert {wanted.min(), wanted.max()} == {-0.5, 0.25}
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("reason", ["numbers for channels", "another operation", "another reader"])
def test_what_bounds_batches_by_more_than_a_number_stays(opencl_device: Device, reason: str) -> None:
    block: tuple[int, int] = (2, 2)
    image, filters = random_floats(1, 8, 8, 3), random_floats(4, 3, 3, 3, seed=1)
    graph = Network()
    split = graph.to_batches(graph.input(image.shape), image.shape, block, ((2, 2), (2, 2)))
    inner = graph.convolved(split, filters, graph.temporary((4, 4, 4, 4)))
    count = 4 if reason == "numbers for channels" else 1
    bounds = np.linspace(0, 0.5, count).astype(np.float32)
    bounded = graph.output((4, 4, 4, 4)) if reason == "another reader" else graph.temporary((4, 4, 4, 4))
    code = OperationCode.POW if reason == "another operation" else OperationCode.MAXIMUM
    graph.operation(code, [inner, graph.constant(bounds + (code == OperationCode.POW) * 2)], bounded)
    graph.from_batches(bounded, block, graph.output((1, 8, 8, 4)))
    assert operations_left(graph.model())[0] == "SPACE_TO_BATCH_ND"
    wanted = dilated(image, filters, ((2, 2), (2, 2)), block)
    wanted = wanted**2 if code == OperationCode.POW else np.maximum(wanted, bounds)
    np.testing.assert_allclose(results(opencl_device, graph.model(), [image])[-1], wanted, rtol=1e-5, atol=1e-5)


def test_a_slice_of_more_than_the_padding_stays(opencl_device: Device) -> None:
    block, sides = (2, 2), ((0, 0), (0, 0))
    image, filters = random_floats(1, 8, 8, 3), random_floats(4, 3, 3, 3, seed=1)
    graph = Network()
    split = graph.to_batches(graph.input(image.shape), image.shape, block, sides)
    inner = graph.convolved(split, filters, graph.temporary((4, 2, 2, 4)))
    joined = graph.from_batches(inner, block, graph.temporary((1, 4, 4, 4)))
    graph.cut(joined, (0, 1, 0, 0), (1, 3, 4, 4))
    assert operations_left(graph.model()) == ["CONV_2D", "SLICE"]
    (result,) = results(opencl_device, graph.model(), [image])
    wanted = dilated(image, filters, sides, block)[:, 1:]
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)


def test_a_slice_of_every_second_pixel_stays(opencl_device: Device) -> None:
    """A convolution's image has all of its rows and columns from the first to the last."""
    block, sides = (2, 2), ((2, 2), (2, 2))
    image, filters = random_floats(1, 4, 4, 3), random_floats(5, 3, 3, 3, seed=1)
    graph = Network()
    split = graph.to_batches(graph.input(image.shape), image.shape, block, sides)
    inner = graph.convolved(split, filters, graph.temporary((4, 2, 2, 5)))
    joined = graph.from_batches(inner, block, graph.temporary((1, 4, 4, 5)))
    places = [graph.constant(np.array(one, np.int32)) for one in ((0, 0, 0, 0), (1, 4, 4, 5), (1, 2, 2, 1))]
    masks = [graph.integer(0) for _ in range(3)]
    graph.operation(OperationCode.STRIDED_SLICE, [joined, *places, *masks], graph.output((1, 2, 2, 5)))
    assert operations_left(graph.model()) == ["CONV_2D", "STRIDED_SLICE"]
    (result,) = results(opencl_device, graph.model(), [image])
    wanted = dilated(image, filters, sides, block)[:, ::2, ::2]
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)


def test_a_sequence_that_two_convolutions_see_as_a_row(opencl_device: Device) -> None:
    """As a WaveNet's gates: one padded sequence, split into every third element, for two convolutions."""
    length, depth, step = 21, 4, 3
    sequence = random_floats(2, length, depth)
    filters = [random_floats(5, 1, 2, depth, seed=seed) for seed in (1, 2)]
    graph = Network()
    padded = graph.temporary((2, length + step, depth))
    amounts = graph.constant(np.array([[0, 0], [step, 0], [0, 0]], np.int32))
    graph.operation(OperationCode.PAD, [graph.input(sequence.shape), amounts], padded)
    column = graph.temporary((2, length + step, 1, depth))
    reshape(graph, padded, (2, length + step, 1, depth), column)
    split = graph.to_batches(column, (2, length + step, 1, depth), (step, 1), ((0, 0), (0, 0)))
    row = graph.temporary((2 * step, 1, length // step + 1, depth))
    reshape(graph, split, (2 * step, 1, length // step + 1, depth), row)
    for one in filters:
        inner = graph.convolved(row, one, graph.temporary((2 * step, 1, length // step, 5)))
        turned = graph.temporary((2 * step, length // step, 1, 5))
        reshape(graph, inner, (2 * step, length // step, 1, 5), turned)
        joined = graph.from_batches(turned, (step, 1), graph.temporary((2, length, 1, 5)))
        reshape(graph, joined, (2, length, 5), graph.output((2, length, 5)))
    assert operations_left(graph.model()).count("CONV_2D") == 2
    assert set(operations_left(graph.model())) == {"CONV_2D", "RESHAPE"}
    found = results(opencl_device, graph.model(), [sequence])
    for result, one in zip(found, filters, strict=True):
        wanted = dilated(sequence[:, None], one, ((0, 0), (step, 0)), (1, step))[:, 0]
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)


def test_8_bit_padding_is_the_zero_point(opencl_device: Device) -> None:
    block, sides = (2, 2), ((2, 2), (2, 2))
    codes = np.random.default_rng(3).integers(-128, 128, (1, 6, 6, 4)).astype(np.int8)
    weights = np.random.default_rng(4).integers(-128, 128, (3, 3, 3, 4)).astype(np.int8)
    graph = Network()
    source = graph.input(codes.shape, QUANT8, 0.5, 7)
    split = graph.to_batches(source, codes.shape, block, sides, code=QUANT8, scale=0.5, zero_point=7)
    inner, output = graph.temporary((4, 3, 3, 3), QUANT8, 64.0, -3), graph.output((1, 6, 6, 3), QUANT8, 64.0, -3)
    filters = graph.constant(weights, QUANT8, 0.25, 1)
    bias = graph.constant(np.array([5, -70, 900], np.int32), OperandCode.TENSOR_INT32, 0.125)
    numbers = [graph.integer(number) for number in (VALID, 1, 1, FuseCode.NONE)]
    graph.operation(OperationCode.CONV_2D, [split, filters, bias, *numbers], inner)
    graph.from_batches(inner, block, output)
    assert operations_left(graph.model()) == ["CONV_2D"]
    (result,) = results(opencl_device, graph.model(), [codes])
    sums = dilated(codes - 7.0, weights - 1.0, sides, block) + np.array([5, -70, 900])
    wanted = np.clip(np.floor(sums * (0.125 / 64.0) + 0.5) - 3, -128, 127)
    assert np.abs(result - wanted).max() <= 1  # a product exactly between two codes
    assert (result != wanted).mean() < 0.02


@pytest.mark.parametrize("reason", ["stride", "block", "reader", "result", "padding"])
def test_batches_that_are_more_than_a_dilation_stay(opencl_device: Device, reason: str) -> None:
    """A stride, another block behind, pixels by batches that something else reads, and batches that are padded."""
    block, none = (2, 2), ((0, 0), (0, 0))
    image, filters = random_floats(1, 12, 12, 3), random_floats(4, 2, 2, 3, seed=1)
    graph = Network()
    split = graph.to_batches(graph.input(image.shape), image.shape, block, none)
    size = {"stride": 3, "padding": 6}.get(reason, 5)
    dims = (4, size, size, 4)
    stride, scheme = 2 if reason == "stride" else 1, SAME if reason == "padding" else VALID
    inner = graph.convolved(split, filters, graph.temporary(dims), stride, scheme)
    behind = (4, 1) if reason == "block" else block
    joined = (1, size * behind[0], size * behind[1], 4)
    graph.from_batches(inner, behind, graph.output(joined))
    if reason == "reader":
        graph.operation(OperationCode.TANH, [split], graph.output((4, 6, 6, 3)))
    elif reason == "result":
        graph.operation(OperationCode.TANH, [inner], graph.output(dims))
    assert operations_left(graph.model())[:3] == ["SPACE_TO_BATCH_ND", "CONV_2D", "BATCH_TO_SPACE_ND"]
    result = results(opencl_device, graph.model(), [image])[0]
    if reason in ("reader", "result", "padding"):
        sides: Sides = ((0, 2), (0, 2)) if reason == "padding" else none  # one pixel of every batch
        np.testing.assert_allclose(result, dilated(image, filters, sides, block), rtol=1e-5, atol=1e-5)


def test_two_columns_that_a_convolution_sees_as_other_rows_stay(opencl_device: Device) -> None:
    """One column, padded to two: what a reshape exchanges are not its rows and columns."""
    image, filters = random_floats(1, 8, 1, 3), random_floats(4, 1, 2, 3, seed=1)
    graph = Network()
    split = graph.to_batches(graph.input(image.shape), image.shape, (2, 1), ((0, 0), (0, 1)))
    other, back = graph.temporary((2, 2, 4, 3)), graph.temporary((2, 3, 2, 4))
    reshape(graph, split, (2, 2, 4, 3), other)
    inner = graph.convolved(other, filters, graph.temporary((2, 2, 3, 4)))
    reshape(graph, inner, (2, 3, 2, 4), back)
    graph.from_batches(back, (2, 1), graph.output((1, 6, 2, 4)))
    (result,) = results(opencl_device, graph.model(), [image])
    padded = np.pad(image, ((0, 0), (0, 0), (0, 1), (0, 0)))
    seen = np.concatenate([padded[:, ::2], padded[:, 1::2]]).reshape(2, 2, 4, 3)
    made = dilated(seen, filters, ((0, 0), (0, 0)), (1, 1)).reshape(2, 3, 2, 4)
    np.testing.assert_allclose(result, made.transpose(1, 0, 2, 3).reshape(1, 6, 2, 4), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("scheme", ["explicit", "SAME"])
def test_a_padded_image_of_several_convolutions(opencl_device: Device, scheme: str) -> None:
    """Each pads it itself, and more by its own padding."""
    image, amounts = random_floats(1, 6, 7, 3), ((1, 2), (3, 0))
    filters = [random_floats(4, 3, 3, 3, seed=seed) for seed in (1, 2)]
    graph = Network()
    padded = graph.temporary((1, 9, 10, 3))
    numbers = graph.constant(np.array(((0, 0), *amounts, (0, 0)), np.int32))
    graph.operation(OperationCode.PAD, [graph.input(image.shape), numbers], padded)
    bias, none = graph.constant(np.zeros(4, np.float32)), graph.integer(FuseCode.NONE)
    padding = [1, 1, 1, 1] if scheme == "explicit" else [1]
    for one in filters:
        own = [graph.integer(number) for number in (*padding, 1, 1)]
        graph.operation(
            OperationCode.CONV_2D, [padded, graph.constant(one), bias, *own, none], graph.output((1, 9, 10, 4))
        )
    assert operations_left(graph.model()) == ["CONV_2D", "CONV_2D"]
    for result, one in zip(results(opencl_device, graph.model(), [image]), filters, strict=True):
        wanted = dilated(image, one, ((2, 3), (4, 1)), (1, 1))
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("reason", ["depth", "reader", "range"])
def test_padding_that_no_convolution_has_stays(reason: str) -> None:
    image, filters = (1, 4, 4, 3), random_floats(2, 1, 1, 4 if reason == "depth" else 3)
    graph = Network()
    rows = 1 << 25 if reason == "range" else 1
    amounts = ((0, 0), (0, 0), (0, 0), (0, 1)) if reason == "depth" else ((0, 0), (rows, 0), (0, 0), (0, 0))
    dims = (1, 4, 4, 4) if reason == "depth" else (1, 4 + rows, 4, 3)
    padded = graph.temporary(dims)
    graph.operation(OperationCode.PAD, [graph.input(image), graph.constant(np.array(amounts, np.int32))], padded)
    graph.convolved(padded, filters, graph.output((*dims[:3], 2)))
    if reason == "reader":
        graph.operation(OperationCode.TANH, [padded], graph.output(dims))
    assert operations_left(graph.model())[:2] == ["PAD", "CONV_2D"]


def test_padding_of_less_than_nothing_is_refused(opencl_device: Device) -> None:
    """Though with the convolution's own padding it would be none."""
    graph = Network()
    padded = graph.temporary((1, 3, 4, 3))
    amounts = graph.constant(np.array([[0, 0], [-1, 0], [0, 0], [0, 0]], np.int32))
    graph.operation(OperationCode.PAD, [graph.input((1, 4, 4, 3)), amounts], padded)
    constants = graph.constant(random_floats(2, 3, 3, 3)), graph.constant(np.zeros(2, np.float32))
    numbers = [graph.integer(number) for number in (1, 1, 1, 1, 1, 1, FuseCode.NONE)]
    graph.operation(OperationCode.CONV_2D, [padded, *constants, *numbers], graph.output((1, 3, 4, 2)))
    assert operations_left(graph.model()) == ["PAD", "CONV_2D"]
    with pytest.raises(HalError, match=r"operation 0 PAD: paddings .*must be >= 0"):
        prepare(opencl_device, graph.model())
