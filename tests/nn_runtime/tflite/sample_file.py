# SPDX-License-Identifier: Apache-2.0
"""A small .tflite file, ways to change it, and what a test wants of a file that is refused."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from nn_runtime.tflite import TfliteError, read
from tests.nn_runtime.tflite.tflite_file import (
    CodeSpec,
    External,
    FileSpec,
    OperatorSpec,
    SignatureSpec,
    SubgraphSpec,
    TensorSpec,
)

if TYPE_CHECKING:
    from collections.abc import Callable

FLOAT32, INT32, UINT8, STRING, BOOL, INT8, INT4, UINT4 = 0, 2, 3, 5, 6, 9, 17, 20
ADD, CONV_2D, RESHAPE, CUSTOM, IF, WHILE = 0, 3, 22, 32, 118, 119
FILTER = bytes(range(6))
BIAS = struct.pack("<3i", 7, -8, 9)


def sample() -> FileSpec:
    """Describe a 1x1 convolution with per-channel weights and a reshape."""
    tensors = [
        TensorSpec("input", INT8, (1, 4, 4, 2), scales=(0.5,), zero_points=(-1,), signature=(-1, 4, 4, 2)),
        TensorSpec("filter", INT8, (3, 1, 1, 2), 1, (), (0.5, 0.25, 0.125), (0, 0, 0), 0),
        TensorSpec("bias", INT32, (3,), 2, (), (0.25, 0.125, 0.0625), (0, 0, 0), 0),
        TensorSpec("hidden", INT8, (1, 4, 4, 3), scales=(0.5,), zero_points=(3,)),
        TensorSpec("shape", INT32, (2,), 3),
        TensorSpec("output", INT8, (1, 48), scales=(0.5,), zero_points=(3,)),
    ]
    operators = [
        OperatorSpec(0, (0, 1, 2), (3,), "Conv2DOptions", {"StrideW": 1, "StrideH": 1, "FusedActivationFunction": 3}),
        OperatorSpec(1, (3, 4), (5,), "ReshapeOptions", {"NewShape": (1, 48)}),
    ]
    return FileSpec(
        codes=[CodeSpec(CONV_2D, CONV_2D, version=3), CodeSpec(RESHAPE, RESHAPE)],
        subgraphs=[SubgraphSpec(tensors, operators, (0,), (5,))],
        buffers=[b"", FILTER, BIAS, struct.pack("<2i", 1, 48), b"1.5.0"],
        signatures=[SignatureSpec("serving_default", [("x", 0)], [("y", 5)])],
        metadata=[("min_runtime_version", 4)],
    )


def changed(change: Callable[[FileSpec], object]) -> bytes:
    """Write the sample with one change."""
    file = sample()
    change(file)
    return file.write()


def refused(data: bytes, wanted: str) -> None:
    """Require that the reader refuses the data with a message that matches, on one short line."""
    with pytest.raises(TfliteError, match=wanted) as caught:
        read(data)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 400


def set_tensor(index: int, **fields: object) -> Callable[[FileSpec], object]:
    return lambda file: vars(file.subgraphs[0].tensors[index]).update(fields)


def set_operator(index: int, **fields: object) -> Callable[[FileSpec], object]:
    return lambda file: vars(file.subgraphs[0].operators[index]).update(fields)


def set_subgraph(**fields: object) -> Callable[[FileSpec], object]:
    return lambda file: vars(file.subgraphs[0]).update(fields)


def set_code(index: int, **fields: object) -> Callable[[FileSpec], object]:
    return lambda file: vars(file.codes[index]).update(fields)


def set_file(**fields: object) -> Callable[[FileSpec], object]:
    return lambda file: vars(file).update(fields)


def set_buffer(index: int, content: bytes | External) -> Callable[[FileSpec], object]:
    return lambda file: file.buffers.__setitem__(index, content)
