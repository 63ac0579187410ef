# SPDX-License-Identifier: Apache-2.0
"""MediaPipe's Convolution2DTransposeBias against LiteRT, and as scattered products; options that make no sense."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np
import pytest

import nn_runtime as nn
from nn_runtime.errors import BadData
from tests.nn_runtime.tflite.operator_file import Array, Step, Tensor, constant, int8, real, write

if TYPE_CHECKING:
    from nn_runtime.device import Device

SAME, VALID = 1, 2
RNG = np.random.default_rng(11)


def file_of(source: Tensor, filters: Array, bias: Array, options: bytes, shape: tuple[int, ...]) -> bytes:
    step = Step("Convolution2DTransposeBias", [0, 1, 2], [3], custom_options=options)
    return write([source, constant(filters), constant(bias), real(*shape)], [step], [0], [3])


def litert_result(file: bytes, data: Array) -> Array:
    """Return what LiteRT gives with its usual delegate, which alone knows the operator."""
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    interpreter = litert.Interpreter(model_content=file, num_threads=1)
    interpreter.allocate_tensors()
    interpreter.set_tensor(0, data)
    interpreter.invoke()
    result: Array = interpreter.get_tensor(3)
    return result


def scattered(data: Array, filters: Array, bias: Array, strides: tuple[int, int], size: tuple[int, int]) -> Array:
    """Return every pixel's products added where they fall, the first of what is too much taken away in front."""
    batches, height, width, _ = data.shape
    taps = filters.shape[1:3]
    whole = [(n - 1) * stride + tap for n, stride, tap in zip((height, width), strides, taps, strict=True)]
    result = np.zeros((batches, *whole, len(filters)), np.float64)
    for y, x in np.ndindex(height, width):
        window = np.einsum("bc,ohwc->bhwo", data[:, y, x], filters, dtype=np.float64)
        top, left = y * strides[0], x * strides[1]
        result[:, top : top + taps[0], left : left + taps[1]] += window
    top, left = ((total - wanted) // 2 for total, wanted in zip(whole, size, strict=True))
    return result[:, top : top + size[0], left : left + size[1]] + bias


@pytest.mark.parametrize(
    ("size", "taps", "strides", "padding", "expected"),
    [
        ((4, 6), (2, 2), (2, 2), SAME, (8, 12)),
        ((4, 6), (3, 3), (2, 2), SAME, (8, 12)),
        ((5, 7), (3, 3), (2, 2), SAME, (9, 13)),
        ((6, 6), (4, 4), (2, 2), SAME, (12, 12)),
        ((6, 5), (4, 3), (2, 1), SAME, (12, 5)),
        ((4, 6), (3, 4), (2, 3), VALID, (9, 19)),
    ],
)
def test_agrees_with_litert(
    size: tuple[int, int],
    taps: tuple[int, int],
    strides: tuple[int, int],
    padding: int,
    expected: tuple[int, int],
    reference_device: Device,
) -> None:
    filters, bias = (RNG.uniform(-1, 1, shape).astype(np.float32) for shape in ((3, *taps, 4), (3,)))
    data = RNG.uniform(-1, 1, (2, *size, 4)).astype(np.float32)
    options = struct.pack("<3i", padding, strides[1], strides[0])
    file = file_of(real(2, *size, 4), filters, bias, options, (2, *expected, 3))
    network = nn.load(file)
    assert network.outputs[0].shape == (2, *expected, 3)
    with network.compile(reference_device) as session:
        result = session.run(data)[0]
    np.testing.assert_allclose(result, scattered(data, filters, bias, strides, expected), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(result, litert_result(file, data), rtol=1e-5, atol=1e-5)


def options(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}i", *numbers)


FILTERS, BIAS = np.ones((3, 2, 2, 4), np.float32), np.ones(3, np.float32)


def test_later_members_of_the_options_may_be_there() -> None:
    network = nn.load(file_of(real(1, 4, 4, 4), FILTERS, BIAS, options(SAME, 2, 2, 0, 0), (1, 8, 8, 3)))
    assert network.outputs[0].shape == (1, 8, 8, 3)


@pytest.mark.parametrize(
    ("source", "given", "message"),
    [
        (real(1, 4, 4, 4), b"", "options must be padding, stride_width, stride_height, each of 4 bytes, got 0 bytes"),
        (real(1, 4, 4, 4), options(SAME, 2, 2)[:11], "each of 4 bytes, got 11 bytes"),
        (real(1, 4, 4, 4), options(SAME, 2, 2) + b"\0", "each of 4 bytes, got 13 bytes"),
        (real(1, 4, 4, 4), options(SAME, 2, 2, 1), r"must be 0, got \[1\]"),
        (real(1, 4, 4, 4), options(0, 2, 2), r"padding must be 1 \(SAME\) or 2 \(VALID\), got 0"),
        (real(1, 4, 4, 4), options(3, 2, 2), r"padding must be 1 \(SAME\) or 2 \(VALID\), got 3"),
        (real(1, 4, 4, 4), options(SAME, 0, 2), "stride_width must be > 0, got 0"),
        (real(1, 4, 4, 4), options(SAME, 2, -(2**31)), "stride_height must be > 0, got -2147483648"),
        (real(1, 4, 4, 4), options(VALID, 2**31 - 1, 1), "a dimension must be 0"),
        (real(1, 4, 4, 5), options(SAME, 2, 2), r"filter \(input 1\) must have depth 5"),
        (real(4, 4, 4), options(SAME, 2, 2), r"input \(input 0\) must have rank 4, got \[4, 4, 4\]"),
        (int8(0.1, 0, 1, 4, 4, 4), options(SAME, 2, 2), r"bias \(input 2\) must be INT32 for quantised data"),
    ],
)
def test_what_makes_no_sense_is_refused(source: Tensor, given: bytes, message: str) -> None:
    with pytest.raises(BadData, match=f"operator 0 CUSTOM 'Convolution2DTransposeBias': .*{message}"):
        nn.load(file_of(source, FILTERS, BIAS, given, (1, 8, 8, 3)))
