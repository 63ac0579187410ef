# SPDX-License-Identifier: Apache-2.0
"""Operators of StableHLO that call computations, as PyTorch's exporter leaves them, against LiteRT's results."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

import nn_runtime as nn
from nn_runtime.errors import BadData, NNError
from nn_runtime.tflite.types import TensorType
from tests.nn_runtime.tflite.operator_file import (
    Array,
    Graph,
    Step,
    Tensor,
    boolean,
    constant,
    int8,
    int32,
    random_inputs,
    real,
    reference,
    write_graphs,
)
from tests.nn_runtime.tflite.slice_cases import slices

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nn_runtime.device import Device

INFINITY = float("inf")
REPLACED = "the second"
"""What a computation without operators gives of two numbers."""


@dataclass
class Hlo:
    """One operator, and the operator of its computation."""

    code: str
    inputs: Sequence[Tensor]
    output: Tensor
    values: Mapping[str, Sequence[int] | int]
    computation: str = REPLACED
    numbers: Mapping[int, Array] = field(default_factory=dict)

    def file(self) -> bytes:
        kind = replace(self.output, shape=())
        steps = [] if self.computation == REPLACED else [Step(self.computation, [0, 1], [2], version=1)]
        inner = Graph([kind, kind, kind][: 2 + len(steps)], steps, [0, 1], [1 + len(steps)])
        name = "Scatter" if self.code == "STABLEHLO_SCATTER" else "ReduceWindow"
        index = "UpdateComputationSubgraphIndex" if name == "Scatter" else "BodySubgraphIndex"
        options = f"Stablehlo{name}Options"
        count = len(self.inputs)
        step = Step(self.code, range(count), [count], options, {**self.values, index: 1}, version=1)
        fed = [position for position, tensor in enumerate(self.inputs) if tensor.data is None]
        return write_graphs([Graph([*self.inputs, self.output], [step], fed, [count]), inner])

    def but(self, **values: Sequence[int] | int) -> Hlo:
        """Return it with other options."""
        return replace(self, values={**self.values, **values})

    def arrays(self) -> list[Array]:
        """Return inputs of a run: random ones, but where `numbers` has one by its position."""
        fed = [position for position, tensor in enumerate(self.inputs) if tensor.data is None]
        arrays = random_inputs([self.inputs[position] for position in fed])
        return [self.numbers.get(position, array) for position, array in zip(fed, arrays, strict=True)]


def scatter(
    operand: Tensor,
    indices: Tensor | list[list[int]],
    updates: Tensor,
    axes: list[int],
    windows: list[int],
    computation: str = REPLACED,
    inserted: list[int] | None = None,
) -> Hlo:
    """A list of indices is given at the run; `windows` are the axes of the updates that are not places.

    inserted: axes of the operand that windows have not, those that are scattered if None.
    """
    numbers = {}
    if not isinstance(indices, Tensor):
        numbers[1] = np.array(indices, np.int32)
        indices = int32(*numbers[1].shape)
    values = {
        "UpdateWindowDims": windows,
        "InsertedWindowDims": sorted(axes) if inserted is None else inserted,
        "ScatterDimsToOperandDims": axes,
        "IndexVectorDim": len(indices.shape) - 1,
    }
    return Hlo(
        "STABLEHLO_SCATTER", [operand, indices, updates], replace(operand, data=None), values, computation, numbers
    )


def windows(
    shape: tuple[int, ...],
    result: tuple[int, ...],
    initial: float,
    computation: str,
    sizes: list[int],
    strides: list[int],
    dilations: list[int],
    padding: list[int],
    base: list[int] | None = None,
    kind: TensorType = TensorType.FLOAT32,
) -> Hlo:
    values = {
        "WindowDimensions": sizes,
        "WindowStrides": strides,
        "BaseDilations": base or [1] * len(shape),
        "WindowDilations": dilations,
        "Padding": padding,
    }
    inputs = [Tensor(kind, shape), constant(np.array(initial, kind.dtype))]
    return Hlo("STABLEHLO_REDUCE_WINDOW", inputs, Tensor(kind, result), values, computation)


ONES = [1, 1, 1, 1]
CASES = {
    "rows of known places": scatter(real(5, 3), constant([[4], [0]]), real(2, 3), [0], [1]),
    "the last of a place": scatter(real(5, 3), constant([[2], [0], [2]]), real(3, 3), [0], [1]),
    "rows of a cache": scatter(real(1, 8, 2, 4), [[3], [4]], real(1, 2, 2, 4), [1], [0, 2, 3]),
    "one row of a cache": scatter(real(2, 8, 3), [[6]], real(2, 1, 3), [1], [0, 2]),
    "the last of a computed place": scatter(real(5, 3), [[2], [0], [2]], real(3, 3), [0], [1]),
    "computed places outside": scatter(real(5, 3), [[5], [1], [-1]], real(3, 3), [0], [1]),
    "known places outside": scatter(real(5, 3), constant([[5], [1], [-1]]), real(3, 3), [0], [1]),
    "elements": scatter(real(2, 3, 4), [[1, 2, 3], [0, 0, 0], [1, 0, 2]], real(3), [0, 1, 2], []),
    "elements outside": scatter(real(3, 4), [[0, 4], [1, 1], [-1, 5], [3, 0]], real(4), [0, 1], []),
    "columns": scatter(real(2, 3, 4), constant([[3, 0], [1, 1]]), real(3, 2), [2, 0], [0]),
    "integers": scatter(int32(5, 3), [[4], [0]], int32(2, 3), [0], [1]),
    "booleans": scatter(boolean(5, 3), [[4], [0]], boolean(2, 3), [0], [1]),
    "bytes": scatter(int8(0.5, 3, 5, 3), [[4], [0]], int8(0.5, 3, 2, 3), [0], [1]),
    "sums": scatter(real(5, 3), [[4], [0], [4]], real(3, 3), [0], [1], "STABLEHLO_ADD"),
    "sums at known places": scatter(real(5, 3), constant([[4], [0], [4]]), real(3, 3), [0], [1], "STABLEHLO_ADD"),
    "products": scatter(real(5, 3), [[4], [0], [4]], real(3, 3), [0], [1], "STABLEHLO_MULTIPLY"),
    "blocks of rows": scatter(real(5, 3), [[3], [0]], real(2, 2, 3), [0], [1, 2], inserted=[]),
    "blocks at known places": scatter(real(5, 3), constant([[3], [0]]), real(2, 2, 3), [0], [1, 2], inserted=[]),
    "blocks half outside": scatter(real(5, 3), [[4], [-1]], real(2, 2, 3), [0], [1, 2], inserted=[]),
    "known blocks half outside": scatter(real(5, 3), constant([[4], [-1]]), real(2, 2, 3), [0], [1, 2], inserted=[]),
    "a block of both axes": scatter(real(5, 4), [[3, 1]], real(1, 2, 3), [0, 1], [1, 2], inserted=[]),
    "one row": scatter(real(5, 3), constant([3]), real(1, 3), [0], [0, 1], inserted=[]).but(IndexVectorDim=0),
    "parts of rows": scatter(real(5, 3), [[3], [1]], real(2, 2), [0], [1]),
    "known parts of rows": scatter(real(5, 3), constant([[3], [1]]), real(2, 2), [0], [1]),
    "sums of blocks": scatter(real(5, 3), [[3], [2]], real(2, 2, 3), [0], [1, 2], "STABLEHLO_ADD", inserted=[]),
    "indices in columns": scatter(real(5, 3), constant([[4, 0], [1, 2]]), real(2), [0, 1], []).but(IndexVectorDim=0),
    "greatest": scatter(real(5, 3), [[4], [0], [4]], real(3, 3), [0], [1], "STABLEHLO_MAXIMUM"),
    "sums of bytes": scatter(
        int8(0.5, 3, 5, 40), [[4], [0], [4]], int8(0.5, 3, 3, 40), [0], [1], "STABLEHLO_ADD"
    ),
    "greatest of bytes at known places": scatter(
        int8(0.5, 3, 5, 4), constant([[4], [0], [4]]), int8(0.5, 3, 3, 4), [0], [1], "STABLEHLO_MAXIMUM"
    ),
    "least at known places": scatter(
        int32(5, 3), constant([[4], [0], [4], [7]]), int32(4, 3), [0], [1], "STABLEHLO_MINIMUM"
    ),
    "sums of images": windows(
        (2, 7, 8, 3), (2, 4, 3, 3), 0, "ADD", [1, 3, 2, 1], [1, 2, 3, 1], ONES, [0, 0, 1, 1, 0, 1, 0, 0]
    ),
    "greatest of images": windows(
        (1, 7, 7, 3), (1, 4, 4, 3), -INFINITY, "MAXIMUM", [1, 3, 3, 1], [1, 2, 2, 1], ONES, [0, 0, 1, 1, 1, 1, 0, 0]
    ),
    "greatest, but not below 1": windows(
        (1, 4, 4, 3), (1, 3, 3, 3), 1, "MAXIMUM", [1, 2, 2, 1], ONES, ONES, [0] * 8
    ),
    "sums from 2": windows((1, 4, 4, 3), (1, 3, 3, 3), 2, "ADD", [1, 2, 2, 1], ONES, ONES, [0] * 8),
    "greatest with gaps": windows(
        (1, 2, 7, 8), (1, 2, 5, 3), -INFINITY, "MAXIMUM",
        [1, 1, 3, 3], [1, 1, 1, 2], [1, 1, 2, 2], [0, 0, 0, 0, 1, 1, 0, 1],
    ),
    "least of a row": windows((9,), (3,), INFINITY, "MINIMUM", [3], [3], [1], [0, 0]),
    "products of rows": windows((3, 6), (2, 5), 1, "MUL", [2, 2], [1, 1], [1, 1], [0, 0, 0, 0]),
    "greatest of spread images": windows(
        (1, 4, 4, 3), (1, 6, 8, 3), -INFINITY, "MAXIMUM",
        [1, 2, 3, 1], ONES, ONES, [0, 0, 0, 0, 2, 1, 0, 0], [1, 2, 2, 1],
    ),
    "sums of spread rows, cut off": windows((4, 5), (4, 6), 1, "ADD", [1, 2], [1, 1], [1, 1], [0, 0, -1, -1], [1, 2]),
    "sums of integers": windows((9, 3), (4, 3), 5, "ADD", [3, 1], [2, 1], [1, 1], [0, 0, 0, 0], kind=TensorType.INT32),
    "any of booleans": windows((5, 4), (4, 2), 0, "LOGICAL_OR", [2, 2], [1, 2], [1, 1], [0] * 4, kind=TensorType.BOOL),
    "all of booleans": windows(
        (5, 4), (5, 3), 1, "LOGICAL_AND", [2, 2], [1, 1], [1, 1], [1, 0, 0, 0], kind=TensorType.BOOL
    ),
    "bytes that wrap": windows((9, 3), (4, 3), 5, "ADD", [3, 1], [2, 1], [1, 1], [0] * 4, kind=TensorType.INT8),
    "sums over depth": windows((1, 1, 6, 2, 3), (1, 1, 4, 2, 3), 0, "ADD", [1, 1, 3, 1, 1], [1] * 5, [1] * 5, [0] * 10),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_litert(name: str, device: Device) -> None:
    case = CASES[name]
    file, inputs = case.file(), case.arrays()
    with nn.load(file).compile(device) as session:
        np.testing.assert_allclose(session.run(inputs)[0], reference(file, inputs)[0], rtol=1e-6, atol=1e-6)


def test_sums_as_torch_exports_them(reference_device: Device) -> None:
    """With ADD for their computation, which LiteRT does not know there."""
    case = scatter(real(5, 3), [[4], [0], [4]], real(3, 3), [0], [1], "ADD")
    operand, indices, updates = case.arrays()
    wanted = operand.copy()
    np.add.at(wanted, indices[:, 0], updates)
    with nn.load(case.file()).compile(reference_device) as session:
        np.testing.assert_allclose(session.run([operand, indices, updates])[0], wanted, rtol=1e-6)


def test_indices_of_one_number_need_no_axis(reference_device: Device) -> None:
    """LiteRT's kernel reads beyond them."""
    case = slices(real(5, 3), int32(2, 2), real(2, 2, 3), [2], [0], [0], [1, 3], vector=2)
    operand, indices = random_inputs([real(5, 3)])[0], np.array([[4, 0], [-1, 9]], np.int32)
    with nn.load(case.file()[0]).compile(reference_device) as session:
        np.testing.assert_array_equal(session.run([operand, indices])[0], operand[np.clip(indices, 0, 4)])


ROWS, IMAGES = CASES["rows of known places"], CASES["greatest of images"]
REFUSED = {
    "must be one ADD, MUL, .* or LOGICAL_OR of two arguments, or the second": replace(ROWS, computation="SUB"),
    "inserted_window_dims must be different axes of 2": ROWS.but(InsertedWindowDims=[2]),
    "update_window_dims must be different axes of 2": ROWS.but(UpdateWindowDims=[0, 9]),
    r"updates \(input 2\) must be \[2\] windows of 1 rising axes": ROWS.but(UpdateWindowDims=[0]),
    r"windows must be within \[5, 3\], got \[1, 4\]": scatter(real(5, 3), [[4]], real(1, 4), [0], [1]),
    r"scatter_indices \(input 1\) must be integers with 1 along index_vector_dim 0": ROWS.but(IndexVectorDim=0),
    "the window's elements must be combined": replace(IMAGES, computation=REPLACED),
    "base_dilations must be 1 for each of 4 axes, at least 1": IMAGES.but(BaseDilations=[1, 0, 1, 1]),
    "padding must be 2 numbers for each of 4 axes": IMAGES.but(Padding=[0] * 7),
    "window_strides must be 1 for each of 4 axes, at least 1": IMAGES.but(WindowStrides=[1, 0, 1, 1]),
    "a window must fit into 3 elements along axis 3": IMAGES.but(WindowDimensions=[1, 1, 1, 4]),
}


@pytest.mark.parametrize("message", REFUSED)
def test_other_forms_are_refused(message: str) -> None:
    with pytest.raises(BadData, match=message):
        nn.load(REFUSED[message].file())


@pytest.mark.parametrize("name", CASES)
def test_mutated_options_are_converted_or_refused(name: str) -> None:
    rng = np.random.default_rng(len(name))
    case = CASES[name]
    for option, value in case.values.items():
        for number in (-1, 0, 1, 2, 1 << 40):
            numbers = list(value) if not isinstance(value, int) else [value]
            if numbers:
                numbers[int(rng.integers(len(numbers)))] = number
            changed = numbers[0] if isinstance(value, int) else numbers[: int(rng.integers(1, 9))]
            try:
                nn.load(case.but(**{option: changed}).file())
            except NNError:
                continue


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_cube_roots(dtype: type[np.generic], device: Device) -> None:
    """LiteRT has no kernel for them: the roots of cubes are known."""
    roots = np.array([0, 1, -1, 3, -5, 0.5, 25, -31, np.inf, -np.inf, np.nan], np.float64)
    kind = next(kind for kind in TensorType if kind.dtype == np.dtype(dtype))
    tensors = [Tensor(kind, roots.shape), Tensor(kind, roots.shape)]
    file = write_graphs([Graph(tensors, [Step("STABLEHLO_CBRT", [0], [1], version=1)], [0], [1])])
    with nn.load(file).compile(device) as session:
        (result,) = session.run([(roots**3).astype(dtype)])
    tolerance = 1e-6 if dtype == np.float32 else 1e-3
    np.testing.assert_allclose(result.astype(np.float64), roots, rtol=tolerance)


def test_cube_roots_of_others_are_refused() -> None:
    file = write_graphs([Graph([int32(3), int32(3)], [Step("STABLEHLO_CBRT", [0], [1], version=1)], [0], [1])])
    with pytest.raises(BadData, match=r"operand \(input 0\) must be FLOAT32 or FLOAT16, got TENSOR_INT32"):
        nn.load(file)
