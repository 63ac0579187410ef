# SPDX-License-Identifier: Apache-2.0
"""MediaPipe's pooling with indices and its reverse against LiteRT, and window by window."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np
import pytest

import nn_runtime as nn
from nn_runtime.errors import BadData
from tests.nn_runtime.tflite.operator_file import Array, Step, Tensor, int32, real, write

if TYPE_CHECKING:
    from nn_runtime.device import Device

POOL, UNPOOL = "MaxPoolingWithArgmax2D", "MaxUnpooling2D"
SAME, VALID = 1, 2
RNG = np.random.default_rng(3)


def options(
    padding: int, window: tuple[int, int], activation: int = 0, strides: tuple[int, int] | None = None
) -> bytes:
    """TfLitePoolParams: paddings that the kernel finds itself are last."""
    stride_height, stride_width = strides or window
    return struct.pack("<10i", padding, stride_width, stride_height, window[1], window[0], activation, 0, 0, 0, 0)


def pooled(data: Array, window: tuple[int, int], padding: int) -> tuple[Array, Array]:
    """Return the greatest of each window, and its number in that."""
    batches, *sizes, depth = data.shape
    counts = [-(-size // tap) if padding == SAME else size // tap for size, tap in zip(sizes, window, strict=True)]
    values, index = (np.zeros((batches, *counts, depth), np.float32) for _ in range(2))
    fronts = [max(0, n * tap - size) // 2 for n, tap, size in zip(counts, window, sizes, strict=True)]
    for b, y, x, channel in np.ndindex(*values.shape):
        best = -np.inf
        for number, (row, column) in enumerate(np.ndindex(*window)):
            at = y * window[0] - fronts[0] + row, x * window[1] - fronts[1] + column
            if 0 <= at[0] < sizes[0] and 0 <= at[1] < sizes[1] and data[b, at[0], at[1], channel] > best:
                best = data[b, at[0], at[1], channel]
                values[b, y, x, channel], index[b, y, x, channel] = best, number
    return values, index


def pooling(source: Tensor, counts: tuple[int, ...], given: bytes) -> bytes:
    return write([source, real(*counts), real(*counts)], [Step(POOL, [0], [1, 2], custom_options=given)], [0], [1, 2])


@pytest.mark.parametrize(
    ("size", "window", "padding"),
    [
        ((2, 6, 8, 3), (2, 2), SAME),
        ((1, 7, 9, 3), (2, 2), SAME),
        ((1, 7, 8, 2), (3, 2), SAME),
        ((1, 7, 9, 3), (2, 4), VALID),
        ((2, 3, 3, 1), (3, 3), VALID),
    ],
)
def test_pooling_tells_where(
    size: tuple[int, ...], window: tuple[int, int], padding: int, reference_device: Device
) -> None:
    """Equal values: the first counts."""
    data = RNG.integers(-4, 4, size).astype(np.float32)
    values, index = pooled(data, window, padding)
    with nn.load(pooling(real(*size), values.shape, options(padding, window))).compile(reference_device) as session:
        found_values, found_index = session.run(data)
    np.testing.assert_array_equal(found_values, values)
    np.testing.assert_array_equal(np.floor(found_index), index)


def test_pooling_activates_what_it_found(reference_device: Device) -> None:
    data = RNG.normal(0, 8, (1, 4, 4, 2)).astype(np.float32)
    values, index = pooled(data, (2, 2), SAME)
    file = pooling(real(1, 4, 4, 2), values.shape, options(SAME, (2, 2), activation=3))
    with nn.load(file).compile(reference_device) as session:
        found_values, found_index = session.run(data)
    np.testing.assert_array_equal(found_values, np.clip(values, 0, 6))
    np.testing.assert_array_equal(np.floor(found_index), index)


def there_and_back(size: tuple[int, ...], window: tuple[int, int]) -> bytes:
    batches, height, width, depth = size
    small = real(batches, height // window[0], width // window[1], depth)
    steps = [
        Step(POOL, [0], [1, 2], custom_options=options(SAME, window)),
        Step(UNPOOL, [1, 2], [3], custom_options=options(VALID, window)),  # LiteRT takes no other padding
    ]
    return write([real(*size), small, small, real(*size)], steps, [0], [3])


@pytest.mark.parametrize(("size", "window"), [((2, 6, 8, 3), (2, 2)), ((1, 6, 8, 5), (3, 2)), ((1, 4, 4, 16), (4, 4))])
def test_there_and_back_keeps_the_greatest(
    size: tuple[int, ...], window: tuple[int, int], reference_device: Device
) -> None:
    data = RNG.permutation(int(np.prod(size))).reshape(size).astype(np.float32) + 1
    file = there_and_back(size, window)
    with nn.load(file).compile(reference_device) as session:
        result = session.run(data)[0]
    values, _ = pooled(data, window, SAME)
    greatest = values.repeat(window[0], 1).repeat(window[1], 2)
    np.testing.assert_array_equal(result, np.where(data == greatest, data, 0))
    np.testing.assert_array_equal(result, litert_result(file, data))


def litert_result(file: bytes, data: Array) -> Array:
    """Return what LiteRT gives with its usual delegate, which alone knows the operators."""
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    interpreter = litert.Interpreter(model_content=file, num_threads=1)
    interpreter.allocate_tensors()
    interpreter.set_tensor(0, data)
    interpreter.invoke()
    result: Array = interpreter.get_tensor(3)
    return result


def test_what_is_outside_of_windows_has_no_place(reference_device: Device) -> None:
    file = write(
        [real(1, 1, 2, 2), real(1, 1, 2, 2), real(1, 2, 4, 2)],
        [Step(UNPOOL, [0, 1], [2], custom_options=options(SAME, (2, 2)))],
        [0, 1],
        [2],
    )
    index = np.array([[-1, 4], [3.1, 1e9]], np.float32).reshape(1, 1, 2, 2)
    with nn.load(file).compile(reference_device) as session:
        result = session.run([np.ones((1, 1, 2, 2), np.float32), index])[0]
    assert result.sum() == result[0, 1, 3, 0] == 1


@pytest.mark.parametrize(
    ("source", "given", "message"),
    [
        (real(1, 4, 4, 1), b"", "options must be padding, stride_width, stride_height, filter_width, filter_height"),
        (real(1, 4, 4, 1), options(3, (2, 2)), r"padding must be 1 \(SAME\) or 2 \(VALID\), got 3"),
        (real(1, 4, 4, 1), options(SAME, (2, 0)), "stride_width must be > 0, got 0"),
        (
            real(1, 4, 4, 1),
            options(SAME, (2, 2), strides=(1, 2)),
            "strides must be those of windows of 2 x 2, got 1 x 2",
        ),
        (real(1, 4, 4, 1), options(SAME, (2, 2), activation=4), "fused activation 4 is not supported"),
        (real(1, 4, 4, 1), options(VALID, (5, 1)), r"windows \[5, 1\] must fit into the input, got \[4, 4\]"),
        (real(4, 4, 1), options(SAME, (2, 2)), r"input \(input 0\) must have rank 4, got \[4, 4, 1\]"),
        (int32(1, 4, 4, 1), options(SAME, (2, 2)), r"input \(input 0\) must be FLOAT32, got TENSOR_INT32"),
    ],
)
def test_what_makes_no_sense_is_refused(source: Tensor, given: bytes, message: str) -> None:
    with pytest.raises(BadData, match=f"operator 0 CUSTOM '{POOL}': .*{message}"):
        nn.load(pooling(source, (1, 2, 2, 1), given))


def test_indices_must_have_the_shape_of_the_input() -> None:
    step = Step(UNPOOL, [0, 1], [2], custom_options=options(SAME, (2, 2)))
    file = write([real(1, 2, 2, 1), real(1, 2, 1, 1), real(1, 4, 4, 1)], [step], [0, 1], [2])
    with pytest.raises(BadData, match=r"indices \(input 1\) must be \[1, 2, 2, 1\], got \[1, 2, 1, 1\]"):
        nn.load(file)
