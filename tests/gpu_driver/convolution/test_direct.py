# SPDX-License-Identifier: Apache-2.0
"""Windows of more than one pixel in chains of real numbers: small ones, whose products are listed, and others.

Data and weights are small integers, so that every sum is exact and float64 numpy knows it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import kernels_cl
from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from tests.gpu_driver.graphs import Graph, request
from tests.gpu_driver.running import prepare, run

if TYPE_CHECKING:
    from gpu_driver.driver import Device
    from nn_runtime.operand import Array

FLOAT, HALF = OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_FLOAT16
TYPES = {FLOAT: np.float32, HALF: np.float16}


def convolved(image: Array, filters: Array, bias: Array, padding: int, stride: int, dilation: int) -> Array:
    """Return the sums in float64."""
    around = ((0, 0), (padding, padding), (padding, padding), (0, 0))
    padded = np.pad(image.astype(np.float64), around)
    height, width = (((size - 1) * dilation + 1) for size in filters.shape[1:3])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (height, width), axis=(1, 2))
    taps = windows[:, ::stride, ::stride, :, ::dilation, ::dilation]
    sums: Array = np.einsum("byxihw,ohwi->byxo", taps, filters.astype(np.float64), optimize=True) + bias
    return sums


@pytest.mark.parametrize("code", TYPES, ids=["float32", "float16"])
@pytest.mark.parametrize("channels", [16, 24, 33, 48, 80])
@pytest.mark.parametrize(
    ("dims", "taps", "padding", "stride", "dilation"),
    [
        ((1, 11, 30, 1), (3, 3), 1, 1, 1),
        ((2, 12, 31, 3), (3, 3), 1, 2, 1),
        ((1, 19, 40, 3), (7, 7), 3, 2, 1),
        ((1, 9, 29, 5), (3, 3), 0, 1, 1),
        ((1, 7, 28, 28), (3, 3), 1, 1, 1),
        ((1, 18, 34, 1), (16, 16), 0, 1, 1),  # as many products as are listed
        ((1, 7, 28, 29), (3, 3), 1, 1, 1),  # more
        ((1, 20, 30, 1), (1, 9), 0, 1, 2),
        ((1, 16, 40, 6), (3, 3), 4, 1, 4),
        ((1, 14, 40, 40), (3, 3), 2, 1, 2),  # more, whose taps lie apart
        ((1, 40, 10, 2), (9, 1), 0, 3, 2),
    ],
    ids=str,
)
def test_sums_are_exact(
    opencl_device: Device,
    code: OperandCode,
    channels: int,
    dims: tuple[int, ...],
    taps: tuple[int, int],
    padding: int,
    stride: int,
    dilation: int,
) -> None:
    rng = np.random.default_rng(channels)
    image, filters = (rng.integers(-2, 3, shape) for shape in (dims, (channels, *taps, dims[3])))
    bias = rng.integers(-9, 10, channels)
    wanted = convolved(image, filters, bias, padding, stride, dilation)
    graph = Graph()
    constants = (graph.constant(one.astype(TYPES[code]), code) for one in (filters, bias))
    numbers = [*[padding] * 4, stride, stride, FuseCode.NONE]
    inputs = [graph.input(dims, code), *constants, *map(graph.integer, numbers), graph.flag(False)]
    inputs += [graph.integer(dilation), graph.integer(dilation)]
    graph.operation(OperationCode.CONV_2D, inputs, graph.output(wanted.shape, code))
    results = np.empty(wanted.shape, TYPES[code])
    run(prepare(opencl_device, graph.model()), request([image.astype(TYPES[code])], [results]))
    assert np.array_equal(results, wanted)


def test_cases_are_on_both_sides_of_the_limit() -> None:
    header = (Path(kernels_cl.__file__).parent / "common" / "direct.h").read_text(encoding="utf-8")
    limits = re.findall(r"#define MOST_PRODUCTS (\d+)", header)
    assert len(limits) == 1
    assert 3 * 3 * 28 < 16 * 16 == int(limits[0]) < 3 * 3 * 29
