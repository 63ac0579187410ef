# SPDX-License-Identifier: Apache-2.0
"""Fourier transforms of rows against LiteRT's and numpy's, and what is not supported of complex numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import nn_runtime as nn
from nn_runtime.errors import BadData
from nn_runtime.tflite.types import TensorType
from tests.nn_runtime.tflite.operator_file import Array, Step, Tensor, constant, int32, real, reference, write

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nn_runtime.device import Device

CAST = ("CAST", "CastOptions", {"InDataType": 8, "OutDataType": 0})
PARTS: dict[str, Callable[[Array], Array]] = {
    "REAL": lambda transform: transform.real,
    "IMAG": lambda transform: transform.imag,
    "COMPLEX_ABS": np.abs,
    "CAST": lambda transform: transform.real,
}


def imaginary(*shape: int) -> Tensor:
    return Tensor(TensorType.COMPLEX64, shape)


def part_of(name: str, source: int, result: int) -> Step:
    return Step(name, [source], [result], *(CAST[1:] if name == "CAST" else ()))


def transformed(shape: Sequence[int], lengths: Sequence[int], name: str) -> bytes:
    bins = min(max(lengths[1], 0), 1 << 20) // 2 + 1
    result = (*shape[:-2], lengths[0], bins)
    tensors = [real(*shape), constant(list(lengths)), imaginary(*result), real(*result)]
    return write(tensors, [Step("RFFT2D", [0, 1], [2]), part_of(name, 2, 3)], [0], [3])


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize(
    ("shape", "length"),
    [
        *(((1, 16), 16), ((3, 2, 1, 64), 64), ((2, 1, 10), 16), ((2, 1, 20), 16), ((2, 1, 3), 2)),
        *(((1, 512), 512), ((3, 2, 1, 1024), 1024), ((2, 1, 500), 512), ((2, 1, 1000), 512)),
    ],
)
def test_parts_of_a_transform(name: str, shape: tuple[int, ...], length: int, reference_device: Device) -> None:
    """Rows may be shorter and longer than the transform; from 512 on it is two products."""
    data = np.random.default_rng(4).uniform(-1, 1, shape).astype(np.float32)
    file = transformed(shape, (1, length), name)
    expected = PARTS[name](np.fft.rfft(data.astype(np.float64), length))
    with nn.load(file).compile(reference_device) as session:
        result = session.run(data)[0]
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, expected, atol=2e-5)
    np.testing.assert_allclose(result, reference(file, [data])[0], atol=2e-5 * max(1, length / 256))


@pytest.mark.parametrize("length", [256, 2048, 8192, 1 << 15])
def test_long_rows(length: int, reference_device: Device) -> None:
    """One step of a wave more or less would show: a pure tone is one bin."""
    bins = np.array([0, 1, length // 4, length // 2])
    data = np.cos(2 * np.pi * np.outer(bins, np.arange(length)) / length).astype(np.float32).reshape(4, 1, length)
    expected = np.zeros((4, 1, length // 2 + 1))
    expected[range(4), 0, bins] = length * np.where(np.isin(bins, (0, length // 2)), 1, 0.5)
    with nn.load(transformed(data.shape, (1, length), "COMPLEX_ABS")).compile(reference_device) as session:
        np.testing.assert_allclose(session.run(data)[0], expected, atol=1e-6 * length)


def test_transforms_keep_their_numbers_under_other_shapes(reference_device: Device) -> None:
    """As exporters write the transforms of frames: dimensions come and go before the parts are read."""
    tensors = [
        *(real(2, 3, 8), constant(np.int32(-2)), real(2, 3, 1, 8), constant([1, 8]), imaginary(2, 3, 1, 5)),
        *(imaginary(2, 3, 5), constant([6, -1]), imaginary(6, 5), constant(np.int32(0)), imaginary(1, 6, 5)),
        *(real(1, 6, 5), real(6, 5)),
    ]
    steps = [
        Step("EXPAND_DIMS", [0, 1], [2]),
        Step("RFFT2D", [2, 3], [4]),
        Step("SQUEEZE", [4], [5], "SqueezeOptions", {"SqueezeDims": (-2,)}),
        Step("RESHAPE", [5, 6], [7], "ReshapeOptions"),
        Step("EXPAND_DIMS", [7, 8], [9]),
        part_of("REAL", 9, 10),
        part_of("IMAG", 7, 11),
    ]
    data = np.random.default_rng(4).uniform(-1, 1, (2, 3, 8)).astype(np.float32)
    expected = np.fft.rfft(data.astype(np.float64)).reshape(1, 6, 5)
    with nn.load(write(tensors, steps, [0], [10, 11])).compile(reference_device) as session:
        real_part, imaginary_part = session.run(data)
    np.testing.assert_allclose(real_part, expected.real, atol=1e-5)
    np.testing.assert_allclose(imaginary_part, expected.imag[0], atol=1e-5)


def test_a_transform_that_nobody_reads_costs_nothing() -> None:
    tensors = [real(2, 1, 8), constant([1, 8]), imaginary(2, 1, 5), real(2, 1, 8)]
    file = write(tensors, [Step("RFFT2D", [0, 1], [2]), Step("RELU", [0], [3])], [0], [3])
    assert len(nn.load(file).model.hal.main.operations) == 1


def read_as(step: Step, *tensors: Tensor) -> bytes:
    """Return a file whose second operator reads a transform: tensor 2; more tensors are numbered from 3."""
    first = [real(2, 1, 8), constant([1, 8]), imaginary(2, 1, 5)]
    return write([*first, *tensors], [Step("RFFT2D", [0, 1], [2]), step], [0], step.outputs)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (
            transformed((2, 1, 8), (1, 6), "REAL"),
            r"RFFT2D: fft_length \(input 1\) must be two powers of 2, got \[1, 6\]",
        ),
        (transformed((2, 1, 8), (1, 0), "REAL"), r"must be two powers of 2, got \[1, 0\]"),
        (transformed((2, 1, 8), (1, -8), "REAL"), r"must be two powers of 2, got \[1, -8\]"),
        (
            transformed((2, 1, 8), (1, 1 << 21), "REAL"),
            r"RFFT2D: fft_length \(input 1\) must be at most 1048576, got 2097152",
        ),
        (
            transformed((2, 1, 1 << 20), (1, 256), "IMAG"),
            "IMAG: at most 16777216 products a row are supported, got 1048576 times 129",
        ),
        (
            transformed((2, 4, 8), (4, 8), "REAL"),
            r"only transforms of one row are supported, got 4 and fft_length \[4, 8\]",
        ),
        (
            transformed((2, 4, 8), (1, 8), "REAL"),
            r"only transforms of one row are supported, got 4 and fft_length \[1, 8\]",
        ),
        (transformed((8,), (1, 8), "REAL"), r"input \(input 0\) must be FLOAT32 of rank 2 at least, got \[8\]"),
        (
            read_as(Step("RELU", [2], [3]), real(2, 1, 5)),
            "operator 1 RELU: tensor 't2': type COMPLEX64 is not supported",
        ),
        (
            read_as(Step("SQUARE", [2], [3]), imaginary(2, 1, 5)),
            "operator 1 SQUARE: tensor 't2': type COMPLEX64 is not",
        ),
        (read_as(Step("SQUEEZE", [2], [3]), imaginary(2, 5)), "tensor 't3': type COMPLEX64 is not supported"),
        (
            read_as(Step("RESHAPE", [2, 3], [4]), constant([3, -1]), imaginary(3, 4)),
            r"operator 1 RESHAPE: 10 elements cannot have shape \[3, -1\]",
        ),
        (
            read_as(Step("CAST", [2], [3]), int32(2, 1, 5)),
            "operator 1 CAST: tensor 't2': type COMPLEX64 is not supported",
        ),
        (
            read_as(Step("CAST", [2], [3]), Tensor(TensorType.FLOAT16, (2, 1, 5))),
            "operator 1 CAST: a transform can become FLOAT32 alone, not FLOAT16",
        ),
        (
            write([imaginary(2, 5), real(2, 5)], [part_of("REAL", 0, 1)], [0], [1]),
            "tensor 't0': type COMPLEX64 is not supported",
        ),
        (
            write([real(2, 5), real(2, 5)], [part_of("IMAG", 0, 1)], [0], [1]),
            "operator 0 IMAG: the input must be a transform: there are no other complex numbers",
        ),
    ],
)
def test_what_nnapi_cannot_express_is_refused(file: bytes, message: str) -> None:
    with pytest.raises(BadData, match=message):
        nn.load(file)
