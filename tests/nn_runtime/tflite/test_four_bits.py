# SPDX-License-Identifier: Apache-2.0
"""Constants of 4 bits, two to a byte, as quantisers of weights leave them: bytes here, LiteRT's results."""

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
from tests.nn_runtime.tflite.sample_file import INT4, changed
from tests.nn_runtime.tflite.tflite_file import FileSpec, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.device import Device

CHANNELS = [0.25, 0.5, 2.0]


def int4(numbers: Array, scale: float | Sequence[float]) -> Tensor:
    """A constant: of two neighbours the first in the lower half of a byte."""
    bits = np.append(numbers.reshape(-1), [0] * (numbers.size % 2)).astype(np.int8).view(np.uint8) & 15
    return Tensor(TensorType.INT4, numbers.shape, scale, data=bits[::2] | bits[1::2] << 4)


def weights(*shape: int) -> Array:
    return np.random.default_rng(1).integers(-8, 8, shape)


def test_the_lower_half_of_a_byte_comes_first() -> None:
    file = write([Tensor(TensorType.INT4, (5,), 0.5, data=np.array([0x21, 0xF8, 0x07], np.uint8))], [], [], [0])
    data = read(file).subgraphs[0].tensors[0].data
    assert data is not None
    assert (data.dtype, data.tolist()) == (np.int8, [1, 2, -8, -1, 7])
    assert not data.flags.writeable


@pytest.mark.parametrize("scale", [0.5, CHANNELS])
def test_dequantize(scale: float | list[float], reference_device: Device) -> None:
    steps = [Step("DEQUANTIZE", [1], [2], version=6), Step("ADD", [0, 2], [3], "AddOptions")]
    file = write([real(3, 5), int4(weights(3, 5), scale), real(3, 5), real(3, 5)], steps, [0], [3])
    inputs = random_inputs([real(3, 5)])
    with nn.load(file).compile(reference_device) as session:
        np.testing.assert_array_equal(session.run(inputs)[0], reference(file, inputs)[0])


@pytest.mark.parametrize("scale", [0.5, CHANNELS])
def test_fully_connected_of_bytes(scale: float | list[float], device: Device) -> None:
    tensors = [int8(0.1, 3, 2, 6), int4(weights(3, 6), scale), int8(1.5, -1, 2, 3)]
    step = Step("FULLY_CONNECTED", [0, 1], [2], "FullyConnectedOptions", version=7)
    file = write(tensors, [step], [0], [2])
    inputs = random_inputs(tensors[:1])
    with nn.load(file).compile(device) as session:
        np.testing.assert_array_equal(session.run(inputs)[0], reference(file, inputs)[0])


def test_convolution_of_bytes(device: Device) -> None:
    filters = Tensor(TensorType.INT4, (3, 2, 2, 2), CHANNELS, data=int4(weights(3, 2, 2, 2), CHANNELS).data)
    tensors = [int8(0.1, 3, 1, 5, 5, 2), filters, constant([5, -7, 9]), int8(1.5, -1, 1, 4, 4, 3)]
    step = Step("CONV_2D", [0, 1, 2], [3], "Conv2DOptions", {"Padding": 1, "StrideH": 1, "StrideW": 1}, version=7)
    file = write(tensors, [step], [0], [3])
    inputs = random_inputs(tensors[:1])
    with nn.load(file).compile(device) as session:
        np.testing.assert_array_equal(session.run(inputs)[0], reference(file, inputs)[0])


def test_embedding_lookup(reference_device: Device) -> None:
    scales = [0.5, 0.25, 1.0, 2.0, 0.125]
    tensors = [int32(4), int4(weights(5, 6), scales), real(4, 6)]
    file = write(tensors, [Step("EMBEDDING_LOOKUP", [0, 1], [2], version=4)], [0], [2])
    inputs = [np.array([4, 0, 0, 3], np.int32)]
    with nn.load(file).compile(reference_device) as session:
        np.testing.assert_array_equal(session.run(inputs)[0], reference(file, inputs)[0])


def test_what_a_run_computes_is_refused() -> None:
    with pytest.raises(BadData, match="tensor 't0': INT4 is supported for constants alone"):
        nn.load(write([Tensor(TensorType.INT4, (4,), 0.5), real(4)], [Step("DEQUANTIZE", [0], [1])], [0], [1]))


def test_one_buffer_for_many_constants_is_refused() -> None:
    def change(file: FileSpec) -> None:
        file.buffers.append(bytes(1 << 18))
        many = [TensorSpec("many", INT4, (1 << 19,), len(file.buffers) - 1)] * 40
        file.subgraphs[0].tensors += many

    with pytest.raises(TfliteError, match="sparse and 4-bit constants must not take more than 64 times the file's"):
        read(changed(change))
