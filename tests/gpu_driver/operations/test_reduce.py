# SPDX-License-Identifier: Apache-2.0
"""MEAN and REDUCE_* on the device."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpu_driver.bound import BoundOperand, BoundOperation
from gpu_driver.launch import Launch
from gpu_driver.operations.reduce import mean, mean_refusal
from nn_runtime.codes import OperandCode, OperationCode
from tests.gpu_driver.operations.compare import (
    ALL,
    BOOL8,
    FLOAT16,
    FLOAT32,
    QUANT8,
    SIGNED,
    Value,
    check,
    constant,
    execute,
    random_tensor,
)
from tests.gpu_driver.profiles import CPU_PROFILE, GPU_PROFILE

if TYPE_CHECKING:
    from gpu_driver.device_profile import DeviceProfile
    from nn_runtime.device import Device
    from nn_runtime.operand import Dimensions

NUMBERS, REALS = {FLOAT32, FLOAT16, QUANT8, SIGNED}, {FLOAT32, FLOAT16}
REDUCTIONS = {
    OperationCode.REDUCE_SUM: REALS,
    OperationCode.REDUCE_PROD: REALS,
    OperationCode.REDUCE_MAX: NUMBERS,
    OperationCode.REDUCE_MIN: NUMBERS,
    OperationCode.REDUCE_ALL: {BOOL8},
    OperationCode.REDUCE_ANY: {BOOL8},
}
CASES: list[tuple[Dimensions, list[int]]] = [
    ((1,), [0]),
    ((7,), [0]),
    ((3, 65), [1]),
    ((3, 65), [0]),
    ((2, 7, 7, 40), [1, 2]),
    ((2, 7, 7, 5), [1, 2]),
    ((2, 7, 5, 33), [1, 3]),
    ((2, 7, 5, 33), [0, 2, -3, 2]),
    ((3, 4, 5, 17), [0, 1, 2, 3]),
    ((1, 7, 7, 1280), [2, 1]),
    ((4, 9, 16), [0]),
    ((5, 100), [1]),
    ((3, 33, 2, 50), [1, 3]),
    ((2, 5, 3, 7), [1, 2, 3]),
    ((37, 21), [1]),
    ((16, 3), [1]),
    ((3, 50, 4), [0, 2]),
    ((2, 9, 33, 5), [3]),
    ((40, 256), [1]),
    ((21, 1000), [1]),
    ((3, 19, 40), [0, 2]),
    ((17, 1030), [1]),
    ((5, 4, 6, 3), [1, 3]),
    ((20, 7, 3), [1]),
]


@pytest.mark.parametrize("keep_dims", [0, 1])
@pytest.mark.parametrize(("dims", "axes"), CASES, ids=str)
@pytest.mark.parametrize("data_type", ALL, ids=lambda code: code.name)
def test_every_type_and_axes(
    opencl_device: Device, data_type: OperandCode, dims: Dimensions, axes: list[int], keep_dims: int
) -> None:
    source = random_tensor(data_type, dims)
    check(opencl_device, OperationCode.MEAN, [source, constant(axes), keep_dims], source)


@pytest.mark.parametrize("keep_dims", [False, True])
@pytest.mark.parametrize(("dims", "axes"), CASES, ids=str)
@pytest.mark.parametrize("data_type", [*ALL, BOOL8], ids=lambda code: code.name)
@pytest.mark.parametrize("code", REDUCTIONS, ids=lambda code: code.name)
def test_reductions(
    opencl_device: Device,
    code: OperationCode,
    data_type: OperandCode,
    dims: Dimensions,
    axes: list[int],
    keep_dims: bool,
) -> None:
    if data_type not in REDUCTIONS[code]:
        pytest.skip(f"no {code.name} of {data_type.name}")
    source = random_tensor(data_type, dims)
    if code == OperationCode.REDUCE_PROD:
        scaled = np.exp(source.data.astype(np.float64) / source.data.size)
        source = replace(source, data=scaled.astype(source.data.dtype))
    check(opencl_device, code, [source, constant(axes), keep_dims], source)


@pytest.mark.parametrize("code", [OperationCode.REDUCE_MAX, OperationCode.REDUCE_MIN], ids=lambda code: code.name)
@pytest.mark.parametrize("axis", [0, 1])
def test_nan_wins(opencl_device: Device, code: OperationCode, axis: int) -> None:
    data = np.tile(np.array([np.nan, np.inf, -np.inf, 1.0], np.float32), (4, 5))
    data[1, :7] = 3
    check(opencl_device, code, [Value(FLOAT32, data), constant([axis]), False], Value(FLOAT32, data))


@pytest.mark.parametrize("axis", [0, 1])
def test_one_nan_wins_wherever_it_is(opencl_device: Device, axis: int) -> None:
    lines, terms = 70, 150
    data = np.random.default_rng(0).standard_normal((lines, terms)).astype(np.float32)
    data[np.arange(lines), np.arange(lines) * 2 + 11] = np.nan
    data[::7] = np.where(np.isnan(data[::7]), np.inf, data[::7])
    source = Value(FLOAT32, data if axis else data.T.copy())
    for code, sign in ((OperationCode.REDUCE_MAX, 1), (OperationCode.REDUCE_MIN, -1)):
        actual = execute(opencl_device, code, [source, constant([axis]), False], source, (lines,))
        np.testing.assert_array_equal(actual, sign * (sign * data).max(axis=1))


@pytest.mark.parametrize("axis", [0, 1])
def test_every_byte_but_0_of_long_lines_is_true(opencl_device: Device, axis: int) -> None:
    data = np.random.default_rng(0).integers(1, 256, (40, 83)).astype(np.uint8)
    data[np.arange(20), np.arange(20) * 4] = 0
    data[30:] = 0
    data[np.arange(35, 40), np.arange(82, 0, -17)] = 128
    bools = (data if axis else data.T.copy()).view(np.bool_)
    for code, wanted in ((OperationCode.REDUCE_ALL, data.all(axis=1)), (OperationCode.REDUCE_ANY, data.any(axis=1))):
        source = Value(BOOL8, bools)
        actual = execute(opencl_device, code, [source, constant([axis]), False], source, (40,))
        np.testing.assert_array_equal(actual, wanted)


def test_every_byte_but_0_is_true(opencl_device: Device) -> None:
    data = np.array([[0, 0, 0], [0, 2, 0], [2, 4, 255], [1, 1, 1]], np.uint8).view(np.bool_)
    for code in (OperationCode.REDUCE_ALL, OperationCode.REDUCE_ANY):
        for wide in (data, np.repeat(data, 6, axis=0).T.copy()):
            source = Value(BOOL8, wide)
            check(opencl_device, code, [source, constant([int(wide is data)]), False], source)


@pytest.mark.parametrize("dims", [(1, 300, 300, 3), (1, 300, 300, 20)], ids=str)
def test_many_terms_lose_nothing(opencl_device: Device, dims: Dimensions) -> None:
    data = (np.random.default_rng(0).random(dims) + 100).astype(np.float32)
    source = Value(FLOAT32, data)
    actual = execute(opencl_device, OperationCode.MEAN, [source, constant([1, 2]), 0], source, (1, dims[3]))
    np.testing.assert_allclose(actual, data.mean(axis=(1, 2), dtype=np.float64), rtol=2e-7)


@pytest.mark.parametrize("apart", [1, 4, 16, 64, 1000])
def test_sums_of_rows_that_cancel_lose_nothing(opencl_device: Device, apart: int) -> None:
    """Of numbers around 1e8 whose signs change, in rows: what partial sums lose is not lost when they meet."""
    signs = np.where(np.arange(65536) // apart % 2, -1.0, 1.0)
    row = (signs * (1e8 + np.arange(65536) % 1000 * 8)).astype(np.float32)
    rows = np.stack([row, row[::-1]] * 10)
    source = Value(FLOAT32, rows)
    actual = execute(opencl_device, OperationCode.REDUCE_SUM, [source, constant([1]), False], source, (20,))
    # Rounding of partial sums as large as the largest is left.
    exact = rows.sum(axis=1, dtype=np.float64)
    partial = np.abs(np.cumsum(rows, axis=1, dtype=np.float64)).max()
    np.testing.assert_allclose(actual, exact, rtol=2e-7, atol=max(1e8, partial) * 2.0**-22)


@pytest.mark.parametrize("terms", [9, 100, 1100])
def test_sums_of_infinities_are_infinite(opencl_device: Device, terms: int) -> None:
    data = np.random.default_rng(0).random((20, terms)).astype(np.float32)
    data[np.arange(5), np.arange(5)] = np.inf
    data[6, [3, terms - 1]] = -np.inf, np.inf
    source = Value(FLOAT32, data)
    actual = execute(opencl_device, OperationCode.REDUCE_SUM, [source, constant([1]), False], source, (20,))
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(actual, data.sum(axis=1, dtype=np.float64), rtol=1e-6)


@pytest.mark.parametrize("code", [OperationCode.REDUCE_SUM, OperationCode.REDUCE_MAX, OperationCode.MEAN])
@pytest.mark.parametrize("axis", [1, 2])
def test_groups_have_all_terms(as_gpu: Device, code: OperationCode, axis: int) -> None:
    data = np.random.default_rng(1).uniform(-1, 1, (2, 600, 5) if axis == 1 else (2, 5, 600)).astype(np.float32)
    source = Value(FLOAT32, data)
    actual = execute(
        as_gpu, code, [source, constant([axis]), 0 if code == OperationCode.MEAN else False], source, (2, 5)
    )
    exact = data.astype(np.float64)
    wanted = {OperationCode.REDUCE_SUM: exact.sum, OperationCode.REDUCE_MAX: exact.max}.get(code, exact.mean)(axis=axis)
    np.testing.assert_allclose(actual, wanted, rtol=1e-6, atol=1e-6)


def test_few_outputs_of_many_terms_take_groups_on_a_gpu() -> None:
    assert _kernel(GPU_PROFILE, (1, 112, 112, 3)) == "mean_groups"
    assert _kernel(GPU_PROFILE, (1, 7, 7, 1280)) == "mean_groups"
    assert _kernel(GPU_PROFILE, (1, 3, 7, 3)) == "mean"
    assert _kernel(GPU_PROFILE, (1, 3, 7, 64)) == "mean_vectors"
    assert _kernel(GPU_PROFILE, (64, 7, 7, 1280)) == "mean_vectors"
    assert _kernel(CPU_PROFILE, (1, 112, 112, 3)) == "mean"
    assert _kernel(CPU_PROFILE, (1, 112, 112, 64)) == "mean_vectors"


@pytest.mark.parametrize(
    ("side", "axes", "code", "is_taken"),
    [
        (2896, [1, 2], QUANT8, True),
        (2897, [1, 2], QUANT8, False),
        (2897, [1], QUANT8, True),
        (2897, None, QUANT8, False),
        (2897, [1, 2], FLOAT32, True),
    ],
)
def test_means_whose_sums_32_bits_do_not_hold_are_refused(
    side: int, axes: list[int] | None, code: OperandCode, is_taken: bool
) -> None:
    source = BoundOperand(0, code, (1, side, side, 1))
    values = None if axes is None else np.array(axes, np.int32)
    axis = BoundOperand(1, OperandCode.TENSOR_INT32, (2,) if values is None else values.shape, constant=values)
    keep_dims = BoundOperand(2, OperandCode.INT32, (), constant=np.array(0, np.int32))
    op = BoundOperation(OperationCode.MEAN, [source, axis, keep_dims], [BoundOperand(3, code, (1, 1))])
    assert (mean_refusal(op, CPU_PROFILE) == "") == is_taken


def _kernel(profile: DeviceProfile, dims: Dimensions) -> str:
    """Return the kernel that takes a mean over height and width."""
    code, flag = OperandCode.TENSOR_INT32, OperandCode.INT32
    source, output = BoundOperand(0, FLOAT32, dims), BoundOperand(3, FLOAT32, (dims[0], dims[3]))
    axes = BoundOperand(1, code, (2,), constant=np.array([1, 2], np.int32))
    keep_dims = BoundOperand(2, flag, (), constant=np.array(0, np.int32))
    launch = mean(BoundOperation(OperationCode.MEAN, [source, axes, keep_dims], [output]), profile)
    assert isinstance(launch, Launch)
    return launch.kernel.name
