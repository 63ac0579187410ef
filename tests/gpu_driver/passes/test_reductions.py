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

    def model(self) -> Model:
        graph = Graph()
        source = graph.input(self.dims, self.data_type, SCALE, ZERO)
        real = (graph.output if self.is_read_twice else graph.temporary)(self.dims, FLOAT)
        graph.operation(OperationCode.DEQUANTIZE, [source], real)
        kept = tuple(1 if at in self.axes else size for at, size in enumerate(self.dims))
        keeps = graph.integer(1) if self.code == OperationCode.MEAN else graph.flag(True)
        axes = graph.constant(np.array(self.axes, np.int32))
        graph.operation(self.code, [real, axes, keeps], graph.output(kept, FLOAT))
        return graph.model()

    def data(self) -> Array:
        info = np.iinfo(dtype_of(self.data_type))
        return np.random.default_rng(3).integers(info.min, info.max + 1, self.dims).astype(info.dtype)

    def wanted(self) -> Array:
        real = float(np.float32(SCALE)) * (self.data().astype(np.float64) - ZERO)
        return (np.mean if self.code == OperationCode.MEAN else np.sum)(real, axis=self.axes, keepdims=True)


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
