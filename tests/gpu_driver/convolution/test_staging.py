# SPDX-License-Identifier: Apache-2.0
"""Tiles of products of floats whose inputs do not lie as they are read: few pixels, borders, rows that end within."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpu_driver.convolution.staging import COPIED_ELEMENTS, copied_bytes
from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.operand import dtype_of
from nn_runtime.operations.sliding_window import SlidingWindow
from tests.gpu_driver.graphs import Graph, request
from tests.gpu_driver.running import prepare, run

if TYPE_CHECKING:
    from gpu_driver.driver import Device
    from nn_runtime.hal.types import Model
    from nn_runtime.operand import Array

FLOAT, HALF = OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_FLOAT16
TOLERANCE = {FLOAT: 1e-5, HALF: 5e-3}


@dataclass(frozen=True)
class Case:
    """A CONV_2D over [batches, height, width, depth]: padding is the same on all sides."""

    image: tuple[int, int, int, int]
    depth: int
    taps: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)
    padding: int = 0

    def output(self) -> tuple[int, int, int, int]:
        b, h, w, _ = self.image
        sizes = ((n + 2 * self.padding - k) // s + 1 for n, k, s in zip((h, w), self.taps, self.strides, strict=True))
        height, width = sizes
        return b, height, width, self.depth

    def drawn(self, code: OperandCode) -> tuple[Model, Array, Array]:
        """Return the model, its input, and what float64 makes of it."""
        rng, dtype = np.random.default_rng(7), dtype_of(code)
        terms = self.taps[0] * self.taps[1] * self.image[3]
        source = rng.uniform(-1, 1, self.image).astype(dtype)
        weights = (rng.uniform(-1, 1, (self.depth, *self.taps, self.image[3])) * terms**-0.5).astype(dtype)
        bias = rng.uniform(-1, 1, self.depth).astype(dtype)
        graph = Graph()
        image = graph.input(self.image, code)
        numbers = [self.padding] * 4 + [self.strides[1], self.strides[0], FuseCode.NONE]
        operands = [image, graph.constant(weights, code), graph.constant(bias, code), *map(graph.integer, numbers)]
        graph.operation(OperationCode.CONV_2D, operands, graph.output(self.output(), code))
        around = [(0, 0), (self.padding, self.padding), (self.padding, self.padding), (0, 0)]
        padded = np.pad(source.astype(np.float64), around)
        windows = np.lib.stride_tricks.sliding_window_view(padded, self.taps, (1, 2))
        windows = windows[:, :: self.strides[0], :: self.strides[1]]
        wanted = np.einsum("byxcij,oijc->byxo", windows, weights.astype(np.float64)) + bias
        return graph.model(), source, wanted


CASES = [
    *(Case((1, 1, pixels, 40), 72) for pixels in range(2, 9)),
    Case((1, 24, 24, 3), 50, (8, 8), (8, 8)),
    Case((1, 6, 6, 3), 130, (6, 6), (6, 6)),
    Case((2, 9, 10, 20), 49, (5, 5), (1, 1), 2),
    Case((3, 5, 4, 17), 33, (3, 2), (2, 1), 1),
    Case((1, 11, 20, 48), 96, (1, 1), (2, 2)),
    Case((1, 2, 3, 300), 64, (2, 3), (1, 1), 1),
]


@pytest.mark.parametrize("code", [FLOAT, HALF], ids=lambda code: code.name)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_sums_are_those_of_float64(opencl_device: Device, case: Case, code: OperandCode) -> None:
    check(opencl_device, case, code)


@pytest.mark.parametrize("pixels", [1, 3, 14])
def test_inputs_of_any_length(opencl_device: Device, pixels: int) -> None:
    """Copies of halves are made even where those of one pixel are more than those of several usually are."""
    check(opencl_device, Case((1, 1, pixels, COPIED_ELEMENTS + 5), 24), HALF)


def check(device: Device, case: Case, code: OperandCode) -> None:
    model, source, wanted = case.drawn(code)
    result = np.empty(case.output(), dtype_of(code))
    run(prepare(device, model), request([source], [result]))
    np.testing.assert_allclose(result.astype(np.float64), wanted, TOLERANCE[code], TOLERANCE[code])


def test_whole_tiles_of_pixels_need_no_copies() -> None:
    def needs(width: int, taps: int = 1, stride: int = 1, *, is_half: bool = False) -> int:
        window = SlidingWindow(
            *(1, 1, width * stride, 32, 1, width, 64), filter_height=1, filter_width=taps, stride_height=1,
            stride_width=stride, dilation_height=1, dilation_width=1, padding_top=0, padding_bottom=0, padding_left=0,
            padding_right=taps - 1, nchw=False, activation=FuseCode.NONE,
        )  # fmt: skip
        return copied_bytes(window, 7, is_half=is_half)

    assert needs(14) == needs(1) == 0
    assert needs(15) >= 4 * 7 * 32
    assert needs(14, stride=2) >= 4 * 7 * 32
    assert needs(14, taps=3) >= 4 * 7 * 3 * 32
    assert needs(14, is_half=True) >= 4 * COPIED_ELEMENTS
