# SPDX-License-Identifier: Apache-2.0
"""Parts of transposed tensors: cut out of the source where they lie there in order, with what numpy makes of both."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import OperationCode
from tests.gpu_driver.graphs import Graph
from tests.gpu_driver.passes.simplifying import operations_left, random_floats, results, transpose

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_driver.driver import Device
    from nn_runtime.operand import Array


class Parts:
    """A TRANSPOSE, and SLICEs of what it makes, of which each is an output."""

    def __init__(self, dims: tuple[int, ...], order: tuple[int, ...], *, is_output: bool = False) -> None:
        self.graph = Graph()
        self.source = random_floats(*dims)
        self.data = self.source.transpose(order)
        self.turned = (self.graph.output if is_output else self.graph.temporary)(self.data.shape)
        transpose(self.graph, self.graph.input(dims), order, self.turned)
        self.expected: list[Array] = [self.data] * is_output

    def cut(self, begins: Sequence[int], sizes: Sequence[int]) -> None:
        ends = [begin + size if size >= 0 else None for begin, size in zip(begins, sizes, strict=True)]
        part = self.data[tuple(slice(begin, end) for begin, end in zip(begins, ends, strict=True))]
        numbers = [self.graph.constant(np.array(one, np.int32)) for one in (begins, sizes)]
        self.graph.operation(OperationCode.SLICE, [self.turned, *numbers], self.graph.output(part.shape))
        self.expected.append(part)

    @property
    def operations(self) -> list[str]:
        return operations_left(self.graph.model())

    def check(self, device: Device) -> None:
        for result, expected in zip(results(device, self.graph.model(), [self.source]), self.expected, strict=True):
            np.testing.assert_array_equal(result, expected)


def test_queries_keys_and_values_are_cut_out_of_what_one_product_makes(opencl_device: Device) -> None:
    parts = Parts((64, 1, 3, 32), (2, 0, 1, 3))
    for which in range(3):
        parts.cut((which, 0, 0, 0), (1, 64, 1, 32))
    assert parts.operations == ["SLICE", "RESHAPE"] * 3
    parts.check(opencl_device)


@pytest.mark.parametrize(
    ("begins", "sizes"), [((1, 2, 3), (1, -1, 2)), ((3, 0, 1), (1, 1, -1)), ((0, 4, 0), (4, 1, 1))], ids=str
)
def test_any_part_with_one_dimension_less(
    opencl_device: Device, begins: tuple[int, ...], sizes: tuple[int, ...]
) -> None:
    parts = Parts((5, 4, 6), (1, 0, 2))
    parts.cut(begins, sizes)
    assert parts.operations == ["SLICE", "RESHAPE"]
    parts.check(opencl_device)


def test_a_part_that_is_transposed_needs_the_whole(opencl_device: Device) -> None:
    parts = Parts((5, 4, 6), (1, 0, 2))
    parts.cut((1, 0, 0), (1, 5, 6))
    parts.cut((1, 0, 0), (2, 5, 6))
    assert parts.operations == ["TRANSPOSE", "SLICE", "SLICE"]
    parts.check(opencl_device)


def test_what_others_read_stays(opencl_device: Device) -> None:
    parts = Parts((5, 4, 6), (1, 0, 2))
    parts.cut((1, 0, 0), (1, 5, 6))
    parts.graph.operation(OperationCode.ABS, [parts.turned], parts.graph.output((4, 5, 6)))
    parts.expected.append(np.abs(parts.data))
    assert parts.operations == ["TRANSPOSE", "SLICE", "ABS"]
    parts.check(opencl_device)


def test_what_the_caller_gets_stays(opencl_device: Device) -> None:
    parts = Parts((5, 4, 6), (1, 0, 2), is_output=True)
    parts.cut((1, 0, 0), (1, 5, 6))
    assert parts.operations == ["TRANSPOSE", "SLICE"]
    parts.check(opencl_device)
