# SPDX-License-Identifier: Apache-2.0
"""What MEAN and REDUCE_SUM take over: a DEQUANTIZE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.operand import dtype_of
from tests.gpu_driver.graphs import Graph
from tests.gpu_driver.passes.simplifying import operations_left, results

if TYPE_CHECKING:
    from gpu_driver.driver import Device
    from nn_runtime.hal.types import Model
    from nn_runtime.operand import Array, Dimensions

FLOAT = OperandCode.TENSOR_FLOAT32
TYPES = {"signed": OperandCode.TENSOR_QUANT8_ASYMM_SIGNED, "unsigned": OperandCode.TENSOR_QUANT8_ASYMM}
SYMMETRIC, HALF = OperandCode.TENSOR_QUANT8_SYMM, OperandCode.TENSOR_FLOAT16
CODES = {"MEAN": OperationCode.MEAN, "REDUCE_SUM": OperationCode.REDUCE_SUM}
SCALE, ZERO = 0.3, 5
SHAPES: list[tuple[Dimensions, tuple[int, ...]]] = [
    ((7, 5), (0,)),
    ((6, 200), (1,)),
    ((3, 9, 20), (1,)),
    ((40, 12), (1,)),
    ((2, 9, 11, 17), (1, 2)),
    ((3, 10, 4, 19), (1, 3)),
    ((1, 30, 41, 3), (0, 1, 2, 3)),
]


@dataclass
class Reduction:
    """DEQUANTIZE, then a sum or mean over some axes."""

    code: OperationCode
    data_type: OperandCode
    dims: Dimensions = (4, 50)
    axes: tuple[int, ...] = (1,)
    is_read_twice: bool = False
    keeps: bool | None = True
    """Whether the axes are kept; None if the run says that they are."""
    real: OperandCode = FLOAT

    def model(self) -> Model:
        graph = Graph()
        source = graph.input(self.dims, self.data_type, SCALE, 0 if self.data_type == SYMMETRIC else ZERO)
        real = (graph.output if self.is_read_twice else graph.temporary)(self.dims, self.real)
        graph.operation(OperationCode.DEQUANTIZE, [source], real)
        sums = self.wanted(np.zeros(self.dims)).shape
        is_mean = self.code == OperationCode.MEAN
        if self.keeps is None:
            keeps = graph.input((), OperandCode.INT32 if is_mean else OperandCode.BOOL)
        else:
            keeps = graph.integer(int(self.keeps)) if is_mean else graph.flag(self.keeps)
        axes = graph.constant(np.array(self.axes, np.int32))
        graph.operation(self.code, [real, axes, keeps], graph.output(sums, self.real))
        return graph.model()

    def data(self) -> Array:
        info = np.iinfo(dtype_of(self.data_type))
        return np.random.default_rng(3).integers(info.min, info.max + 1, self.dims).astype(info.dtype)

    def wanted(self, codes: Array | None = None) -> Array:
        zero = 0 if self.data_type == SYMMETRIC else ZERO
        real = float(np.float32(SCALE)) * ((self.data() if codes is None else codes).astype(np.float64) - zero)
        reduced = np.mean if self.code == OperationCode.MEAN else np.sum
        return np.asarray(reduced(real, axis=self.axes, keepdims=self.keeps is not False))


@pytest.mark.parametrize(("dims", "axes"), SHAPES, ids=str)
@pytest.mark.parametrize("data_type", TYPES.values(), ids=TYPES)
@pytest.mark.parametrize("code", CODES.values(), ids=CODES)
def test_bytes_are_summed_as_they_are(
    opencl_device: Device, code: OperationCode, data_type: OperandCode, dims: Dimensions, axes: tuple[int, ...]
) -> None:
    reduction = Reduction(code, data_type, dims, axes)
    assert operations_left(reduction.model()) == ["MEAN"]
    (result,) = results(opencl_device, reduction.model(), [reduction.data()])
    np.testing.assert_allclose(result, reduction.wanted(), rtol=2e-7)


@pytest.mark.parametrize("code", CODES.values(), ids=CODES)
def test_real_numbers_that_others_read_stay(opencl_device: Device, code: OperationCode) -> None:
    reduction = Reduction(code, TYPES["signed"], is_read_twice=True)
    assert operations_left(reduction.model()) == ["DEQUANTIZE", code.name]
    result = results(opencl_device, reduction.model(), [reduction.data()])[1]
    np.testing.assert_allclose(result, reduction.wanted(), rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("code", CODES.values(), ids=CODES)
def test_axes_are_kept_or_not(opencl_device: Device, code: OperationCode, keeps: bool) -> None:
    reduction = Reduction(code, TYPES["signed"], (3, 9, 20), keeps=keeps)
    assert operations_left(reduction.model()) == ["MEAN"]
    (result,) = results(opencl_device, reduction.model(), [reduction.data()])
    np.testing.assert_allclose(result, reduction.wanted(), rtol=2e-7)


@pytest.mark.parametrize("code", CODES.values(), ids=CODES)
def test_whether_axes_are_kept_may_be_known_in_the_run_alone(opencl_device: Device, code: OperationCode) -> None:
    reduction = Reduction(code, TYPES["signed"], keeps=None)
    flag = np.array(1, np.int32 if code == OperationCode.MEAN else np.bool_)
    (result,) = results(opencl_device, reduction.model(), [reduction.data(), flag])
    np.testing.assert_allclose(result, reduction.wanted(), rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize(
    ("data_type", "real"), [(SYMMETRIC, FLOAT), (TYPES["signed"], HALF)], ids=["symmetric", "half"]
)
@pytest.mark.parametrize("code", CODES.values(), ids=CODES)
def test_other_types_are_dequantised_first(
    opencl_device: Device, code: OperationCode, data_type: OperandCode, real: OperandCode
) -> None:
    reduction = Reduction(code, data_type, real=real)
    assert operations_left(reduction.model()) == ["DEQUANTIZE", code.name]
    (result,) = results(opencl_device, reduction.model(), [reduction.data()])
    np.testing.assert_allclose(result, reduction.wanted(), rtol=2e-3 if real == HALF else 1e-6, atol=1e-2)


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "of the run"])
@pytest.mark.parametrize("count", [1 << 23, 1 << 24])
def test_sums_of_many_bytes_do_not_overflow(opencl_device: Device, count: int, is_known: bool) -> None:
    """2^23 times 255 is less than 2^31, 2^24 times 255 is not."""
    graph = Graph()
    dims = (count,) if is_known else (0,)
    real = graph.temporary(dims)
    graph.operation(OperationCode.DEQUANTIZE, [graph.input(dims, TYPES["unsigned"], 1.0)], real)
    axes = graph.constant(np.zeros(1, np.int32))
    graph.operation(OperationCode.REDUCE_SUM, [real, axes, graph.flag(True)], graph.output((1,)))
    assert len(operations_left(graph.model())) == (1 if is_known and count == 1 << 23 else 2)
    (result,) = results(opencl_device, graph.model(), [np.full(count, 255, np.uint8)])
    np.testing.assert_allclose(result, [255 * count], rtol=1e-6)
