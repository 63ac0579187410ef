# SPDX-License-Identifier: Apache-2.0
"""Constants of 4 and 2 bits, several to a byte, as quantisers of weights leave them: bytes here, LiteRT's results."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import nn_runtime as nn
from nn_runtime.errors import BadData
from nn_runtime.tflite import TfliteError, read
from nn_runtime.tflite.types import TensorType
from tests.nn_runtime.tflite.operator_file import (
    Array,
    Step,
    Tensor,
    constant,
    int8,
    int32,
    random_inputs,
    real,
    reference,
    write,
)
from tests.nn_runtime.tflite.sample_file import changed
from tests.nn_runtime.tflite.tflite_file import FileSpec, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.device import Device

CHANNELS = [0.25, 0.5, 2.0]


INT4, INT2 = TensorType.INT4, TensorType.INT2


def packed(kind: TensorType, numbers: Array, scale: float | Sequence[float]) -> Tensor:
    """A constant: of numbers in one byte the first has the lowest bits."""
    bits = kind.bits or 8
    count = 8 // bits
    padded = np.append(numbers.reshape(-1), [0] * (-numbers.size % count)).astype(np.uint8) & ((1 << bits) - 1)
    data = (padded.reshape(-1, count) << np.arange(0, 8, bits, dtype=np.uint8)).sum(1).astype(np.uint8)
    return Tensor(kind, numbers.shape, scale, data=data)


def weights(kind: TensorType, *shape: int) -> Array:
    most = 1 << ((kind.bits or 8) - 1)
    return np.random.default_rng(1).integers(-most, most, shape)


def test_the_lower_half_of_a_byte_comes_first() -> None:
    file = write([Tensor(INT4, (5,), 0.5, data=np.array([0x21, 0xF8, 0x07], np.uint8))], [], [], [0])
    data = read(file).subgraphs[0].tensors[0].data
    assert data is not None
    assert (data.dtype, data.tolist()) == (np.int8, [1, 2, -8, -1, 7])
    assert not data.flags.writeable


def test_the_lowest_quarter_of_a_byte_comes_first() -> None:
    file = write([Tensor(INT2, (6,), 0.5, data=np.array([0b11100100, 0b0110], np.uint8))], [], [], [0])
    data = read(file).subgraphs[0].tensors[0].data
    assert data is not None
    assert (data.dtype, data.tolist()) == (np.int8, [0, 1, -2, -1, -2, 1])


@pytest.mark.parametrize("scale", [0.5, CHANNELS])
@pytest.mark.parametrize(("kind", "version"), [(INT4, 6), (INT2, 9)])
def test_dequantize(kind: TensorType, version: int, scale: float | list[float], reference_device: Device) -> None:
    steps = [Step("DEQUANTIZE", [1], [2], version=version), Step("ADD", [0, 2], [3], "AddOptions")]
    file = write([real(3, 5), packed(kind, weights(kind, 3, 5), scale), real(3, 5), real(3, 5)], steps, [0], [3])
    inputs = random_inputs([real(3, 5)])
    with nn.load(file).compile(reference_device) as session:
        np.testing.assert_array_equal(session.run(inputs)[0], reference(file, inputs)[0])


@pytest.mark.parametrize("scale", [0.5, CHANNELS])
@pytest.mark.parametrize(("kind", "version"), [(INT4, 7), (INT2, 14)])
def test_fully_connected_of_bytes(kind: TensorType, version: int, scale: float | list[float], device: Device) -> None:
    tensors = [int8(0.1, 3, 2, 8), packed(kind, weights(kind, 3, 8), scale), int8(1.5, -1, 2, 3)]
    step = Step("FULLY_CONNECTED", [0, 1], [2], "FullyConnectedOptions", version=version)
    file = write(tensors, [step], [0], [2])
    inputs = random_inputs(tensors[:1])
    with nn.load(file).compile(device) as session:
        np.testing.assert_array_equal(session.run(inputs)[0], reference(file, inputs)[0])


def test_convolution_of_bytes(device: Device) -> None:
    filters = packed(INT4, weights(INT4, 3, 2, 2, 2), CHANNELS)
    tensors = [int8(0.1, 3, 1, 5, 5, 2), filters, constant([5, -7, 9]), int8(1.5, -1, 1, 4, 4, 3)]
    step = Step("CONV_2D", [0, 1, 2], [3], "Conv2DOptions", {"Padding": 1, "StrideH": 1, "StrideW": 1}, version=7)
    file = write(tensors, [step], [0], [3])
    inputs = random_inputs(tensors[:1])
    with nn.load(file).compile(device) as session:
        np.testing.assert_array_equal(session.run(inputs)[0], reference(file, inputs)[0])


@pytest.mark.parametrize(("kind", "version"), [(INT4, 4), (INT2, 5)])
def test_embedding_lookup(kind: TensorType, version: int, reference_device: Device) -> None:
    scales = [0.5, 0.25, 1.0, 2.0, 0.125]
    tensors = [int32(4), packed(kind, weights(kind, 5, 8), scales), real(4, 8)]
    file = write(tensors, [Step("EMBEDDING_LOOKUP", [0, 1], [2], version=version)], [0], [2])
    inputs = [np.array([4, 0, 0, 3], np.int32)]
    with nn.load(file).compile(reference_device) as session:
        np.testing.assert_array_equal(session.run(inputs)[0], reference(file, inputs)[0])


@pytest.mark.parametrize("kind", [INT4, INT2])
def test_what_a_run_computes_is_refused(kind: TensorType) -> None:
    with pytest.raises(BadData, match=f"tensor 't0': {kind.name} is supported for constants alone"):
        nn.load(write([Tensor(kind, (4,), 0.5), real(4)], [Step("DEQUANTIZE", [0], [1])], [0], [1]))


def test_one_buffer_for_many_constants_is_refused() -> None:
    def change(file: FileSpec) -> None:
        file.buffers.append(bytes(1 << 18))
        many = [TensorSpec("many", INT4, (1 << 19,), len(file.buffers) - 1)] * 40
        file.subgraphs[0].tensors += many

    with pytest.raises(TfliteError, match="sparse and packed constants must not take more than 64 times the file's"):
        read(changed(change))
