# SPDX-License-Identifier: Apache-2.0
"""GATHER, EMBEDDING_LOOKUP, HASHTABLE_LOOKUP, TOPK_V2, LSH_PROJECTION on the device."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.hal.types import HalError
from tests.gpu_driver.operations.compare import (
    ALL,
    FLOAT16,
    FLOAT32,
    INT32,
    QUANT8,
    Value,
    check,
    constant,
    execute,
    integers,
    nothing,
    random_tensor,
)

if TYPE_CHECKING:
    from nn_runtime.device import Device
    from nn_runtime.operand import Dimensions

ANY = [*ALL, INT32]


@pytest.mark.parametrize(
    ("dims", "axis", "chosen"),
    [((1,), 0, (1,)), ((5, 65), 0, (3,)), ((5, 65), 1, (2, 7)), ((2, 3, 4, 5), -2, (1, 2, 3)), ((2, 3, 40), 2, (65,))],
    ids=str,
)
@pytest.mark.parametrize("data_type", ANY, ids=lambda code: code.name)
def test_gather(opencl_device: Device, data_type: OperandCode, dims: Dimensions, axis: int, chosen: Dimensions) -> None:
    source = random_tensor(data_type, dims)
    indices = integers(np.random.default_rng(3).integers(0, dims[axis], chosen))
    check(opencl_device, OperationCode.GATHER, [source, axis, indices], source)
    if source.data.ndim > 1:
        lookups = integers(np.random.default_rng(4).integers(0, dims[0], 9))
        check(opencl_device, OperationCode.EMBEDDING_LOOKUP, [lookups, source], source)


@pytest.mark.parametrize(
    "known",
    [
        *([5], [4, 3, 2, 1], [0, 0, 2, 2], [3, 1, 6, 4], [1, 2, 4], [0, 5, 1, 6, 2, 8], [0, 1, 2, 4, 5, 6, 1, 2, 3]),
        np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1).reshape(-1).tolist(),
        np.arange(23, -1, -1).reshape(4, 6).T.reshape(-1).tolist(),
    ],
    ids=str,
)
@pytest.mark.parametrize(("dims", "axis"), [((24,), 0), ((24, 3), 0), ((3, 25), 1), ((2, 24, 16), 1)], ids=str)
@pytest.mark.parametrize("data_type", ANY, ids=lambda code: code.name)
def test_gather_of_known_indices(
    opencl_device: Device, data_type: OperandCode, dims: Dimensions, axis: int, known: list[int]
) -> None:
    source = random_tensor(data_type, dims)
    wanted = np.take(source.data, known, axis)
    found = execute(opencl_device, OperationCode.GATHER, [source, axis, constant(known)], source, wanted.shape)
    np.testing.assert_array_equal(found, wanted)


def test_wrong_indices_are_refused_at_preparation_if_known(opencl_device: Device) -> None:
    source = Value(FLOAT32, np.arange(5, dtype=np.float32))
    with pytest.raises(HalError, match="indices"):
        execute(opencl_device, OperationCode.GATHER, [source, 0, constant([0, 5])], source, (2,))


@pytest.mark.parametrize("keys", [[5], [1, 2, 9], list(range(-40, 60, 3)), [-5, -5, 7, 7, 7, 8]], ids=str)
@pytest.mark.parametrize("data_type", [FLOAT32, INT32, QUANT8], ids=lambda code: code.name)
def test_hashtable_lookup(opencl_device: Device, data_type: OperandCode, keys: list[int]) -> None:
    values = random_tensor(data_type, (len(keys), 17))
    lookups = integers(np.array([*range(-50, 70), 2**31 - 1, -(2**31)]))
    inputs = [lookups, integers(np.array(keys)), values]
    check(opencl_device, OperationCode.HASHTABLE_LOOKUP, inputs, values, nothing(QUANT8, 1.0))


@pytest.mark.parametrize(
    ("dims", "k"),
    [
        *(((1,), 1), ((5,), 5), ((3, 65), 4), ((3, 65), 64), ((2, 3, 1000), 3), ((2, 300), 300), ((70, 40), 2)),
        *(((9,), 9), ((4, 16), 9), ((4, 17), 17), ((7, 333), 100), ((2, 129), 33), ((3, 4000), 200)),
    ],
    ids=str,
)
@pytest.mark.parametrize("data_type", ANY, ids=lambda code: code.name)
def test_topk(opencl_device: Device, data_type: OperandCode, dims: Dimensions, k: int) -> None:
    source = random_tensor(data_type, dims)
    check(opencl_device, OperationCode.TOPK_V2, [source, k], source, nothing(INT32))
    few = source.data.astype(np.float64) // (1 if data_type in (FLOAT32, FLOAT16) else source.data.max() / 2.5)
    equal = replace(source, data=few.astype(source.data.dtype))
    check(opencl_device, OperationCode.TOPK_V2, [equal, k], source, nothing(INT32))


@pytest.mark.parametrize("k", [2, 9, 60, 72])
def test_topk_of_special_numbers(opencl_device: Device, k: int) -> None:
    """A NaN is one whatever its sign."""
    numbers = [np.nan, 0.0, -0.0, np.inf, -np.inf, -np.nan, -2e-38, 2e-38, 3e38] * 8
    source = Value(FLOAT32, np.array(numbers, np.float32))
    check(opencl_device, OperationCode.TOPK_V2, [source, k], source, nothing(INT32))


@pytest.mark.parametrize("kind", [1, 2, 3], ids=["sparse_deprecated", "dense", "sparse"])
@pytest.mark.parametrize("row", [1, 2, 3, 4, 5, 6, 7, 8, 14, 15, 16, 29, 30, 31, 47, 61, 200])
def test_lsh_projection(opencl_device: Device, row: int, kind: int) -> None:
    rows = random_tensor(QUANT8, (5, row))
    seeds = random_tensor(FLOAT32, (5, 13), 1)
    weight = random_tensor(FLOAT32, (5,), 2)
    for given in (weight, Value(FLOAT32, np.empty(0, np.float32), omitted=True)):
        check(opencl_device, OperationCode.LSH_PROJECTION, [seeds, rows, given, kind], nothing(INT32))


@pytest.mark.parametrize("data_type", [FLOAT32, FLOAT16, INT32], ids=lambda code: code.name)
@pytest.mark.parametrize("bits", [1, 31, 32])
def test_lsh_projection_of_every_type(opencl_device: Device, data_type: OperandCode, bits: int) -> None:
    seeds, weight = random_tensor(FLOAT16, (70, bits)), random_tensor(FLOAT16, (3,), 2)
    rows = random_tensor(data_type, (3, 2, 3), 1)
    check(opencl_device, OperationCode.LSH_PROJECTION, [seeds, rows, weight, 3], nothing(INT32))
