# SPDX-License-Identifier: Apache-2.0
"""Random graphs rich in what the passes change, on the device and on the reference, bit for bit."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from cpu_driver.driver import Device as Reference
from nn_runtime.codes import FuseCode, OperationCode
from nn_runtime.hal.types import ExecutionPreference, Priority
from tests.gpu_driver.graphs import Graph, request
from tests.gpu_driver.passes.simplifying import operations_left, reshape, transpose

if TYPE_CHECKING:
    from gpu_driver.driver import Device
    from nn_runtime.hal.types import Model
    from nn_runtime.operand import Dimensions

OPERATIONS = 14
_SIZES = (1, 2, 3)
_FUSE_CODES = tuple(FuseCode)


class Drawer:
    """Draws a graph of exact float operations; every tensor is kept with its dimensions."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.graph = Graph()
        self.inputs = [tuple(int(size) for size in self.rng.choice(_SIZES, 4)) for _ in range(2)]
        self.tensors = [(self.graph.input(dims), dims) for dims in self.inputs]
        data = self._data(self.inputs[0])
        self.tensors.append((self.graph.constant(data), data.shape))
        for _ in range(OPERATIONS):
            self._draw()

    def model(self) -> Model:
        """The graph with the tensors that were made last as outputs, through an operation each."""
        for source, dims in self.tensors[-3:]:
            self.graph.operation(OperationCode.NEG, [source], self.graph.output(dims))
        return self.graph.model()

    def _data(self, dims: Dimensions) -> np.ndarray:
        return self.rng.integers(-8, 9, dims).astype(np.float32)

    def _draw(self) -> None:
        source, dims = self.tensors[-1 - int(min(self.rng.geometric(0.5) - 1, len(self.tensors) - 1))]
        draw = [self._move, self._move, self._move, self._shape, self._bend, self._add, self._pad, self._join]
        draw += [self._cut, self._reduce]
        code, parameters, after = draw[self.rng.integers(len(draw))](source, dims)
        if math.prod(after) > 2000:
            return
        output = self.graph.temporary(after if self.rng.random() < 0.8 else (0,) * len(after))
        if code == OperationCode.TRANSPOSE:
            transpose(self.graph, source, parameters, output)
        elif code == OperationCode.RESHAPE:
            reshape(self.graph, source, parameters, output)
        else:
            self.graph.operation(code, parameters, output)
        self.tensors.append((output, after))

    def _move(self, source: int, dims: Dimensions) -> tuple[OperationCode, list[int], Dimensions]:
        layouts = [(0, 3, 1, 2), (0, 2, 3, 1)] if len(dims) == 4 else []
        layouts.append(tuple(int(axis) for axis in self.rng.permutation(len(dims))))
        perm = layouts[self.rng.integers(len(layouts))]
        return OperationCode.TRANSPOSE, list(perm), tuple(dims[axis] for axis in perm)

    def _shape(self, source: int, dims: Dimensions) -> tuple[OperationCode, list[int], Dimensions]:
        at = int(self.rng.integers(len(dims)))
        joined = (*dims[:at], dims[at] * dims[at + 1], *dims[at + 2 :]) if at + 1 < len(dims) else dims
        split = joined if len(joined) >= 4 else (*joined[:at], 1, *joined[at:])
        return OperationCode.RESHAPE, list(split), split

    def _bend(self, source: int, dims: Dimensions) -> tuple[OperationCode, list[int], Dimensions]:
        codes = OperationCode.RELU, OperationCode.RELU6, OperationCode.RELU1, OperationCode.ABS, OperationCode.FLOOR
        return codes[self.rng.integers(len(codes))], [source], dims

    def _add(self, source: int, dims: Dimensions) -> tuple[OperationCode, list[int], Dimensions]:
        same = [index for index, other in self.tensors if other == dims]
        if self.rng.random() < 0.5:
            other = same[self.rng.integers(len(same))]
        else:
            kept = int(self.rng.integers(1, len(dims) + 1))
            part = tuple(size if self.rng.random() < 0.7 else 1 for size in dims[-kept:])
            other = self.graph.constant(self._data(part))
        code = OperationCode.ADD if self.rng.random() < 0.7 else OperationCode.MAXIMUM
        fused = self.graph.integer(_FUSE_CODES[self.rng.integers(len(_FUSE_CODES))])
        operands = [source, other] if self.rng.random() < 0.5 else [other, source]
        return code, [*operands, fused] if code == OperationCode.ADD else operands, dims

    def _pad(self, source: int, dims: Dimensions) -> tuple[OperationCode, list[int], Dimensions]:
        amounts = self.rng.integers(0, 2, (len(dims), 2)) * int(self.rng.random() < 0.5)
        after = tuple(int(size + sum(pair)) for size, pair in zip(dims, amounts, strict=True))
        return OperationCode.PAD, [source, self.graph.constant(amounts.astype(np.int32))], after

    def _cut(self, source: int, dims: Dimensions) -> tuple[OperationCode, list[int], Dimensions]:
        begins = [int(self.rng.integers(size)) if self.rng.random() < 0.3 else 0 for size in dims]
        after = tuple(size - begin for size, begin in zip(dims, begins, strict=True))
        numbers = (self.graph.constant(np.array(one, np.int32)) for one in (begins, after))
        return OperationCode.SLICE, [source, *numbers], after

    def _reduce(self, source: int, dims: Dimensions) -> tuple[OperationCode, list[int], Dimensions]:
        axes = [int(axis) for axis in self.rng.permutation(len(dims))[: self.rng.integers(1, max(2, len(dims)))]]
        keeps = len(axes) == len(dims) or bool(self.rng.random() < 0.5)
        after = tuple(1 if at in axes else size for at, size in enumerate(dims) if keeps or at not in axes)
        numbers = self.graph.constant(np.array(axes, np.int32)), self.graph.flag(keeps)
        return OperationCode.REDUCE_MAX, [source, *numbers], after

    def _join(self, source: int, dims: Dimensions) -> tuple[OperationCode, list[int], Dimensions]:
        same = [index for index, other in self.tensors if other == dims]
        parts = [source, *(same[self.rng.integers(len(same))] for _ in range(self.rng.integers(2)))]
        axis = int(self.rng.integers(len(dims)))
        after = (*dims[:axis], dims[axis] * len(parts), *dims[axis + 1 :])
        return OperationCode.CONCATENATION, [*parts, self.graph.integer(axis)], after


def compare(device: Device, seed: int) -> int:
    """Run a graph on the device and on the reference; return how many operations the passes saved."""
    drawer = Drawer(seed)
    dims = [dims for _, dims in drawer.tensors[-3:]]
    model = drawer.model()
    sources = [drawer._data(one) for one in drawer.inputs]
    results = []
    for driver in (Reference(), device):
        prepared = driver.prepare_model(model, ExecutionPreference.FAST_SINGLE_ANSWER, Priority.MEDIUM, None, None)
        outputs = [np.full(one, np.nan, np.float32) for one in dims]
        prepared.execute_synchronously(request(sources, outputs), False, None, None)
        prepared.close()
        results.append(outputs)
    for wanted, got in zip(*results, strict=True):
        assert np.array_equal(wanted, got), f"seed {seed}"
    return len(model.main.operations) - len(operations_left(model))


@pytest.mark.parametrize("part", range(4))
def test_random_graphs(opencl_device: Device, is_long: bool, part: int) -> None:
    count = 500 if is_long else 20
    saved = [compare(opencl_device, seed) for seed in range(part * count, (part + 1) * count)]
    assert sum(saved) > count
