# SPDX-License-Identifier: Apache-2.0
"""Operations on groups of few numbers: on longer rows where that is of use, with the results of float64 numpy."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from tests.gpu_driver.graphs import Graph
from tests.gpu_driver.passes.simplifying import commands_of, operations_left, random_floats, reshape, results

if TYPE_CHECKING:
    from gpu_driver.driver import Device
    from nn_runtime.hal.types import Model
    from nn_runtime.operand import Array, Dimensions

MEAN, RESHAPE, TILE = "MEAN", "RESHAPE", "TILE"
SIGNED = OperandCode.TENSOR_QUANT8_ASYMM_SIGNED
PAIRS = {
    OperationCode.ADD: np.add,
    OperationCode.SUB: np.subtract,
    OperationCode.MUL: np.multiply,
    OperationCode.DIV: np.divide,
    OperationCode.MAXIMUM: np.maximum,
    OperationCode.MINIMUM: np.minimum,
}


def mean(dims: Dimensions, axes: tuple[int, ...], code: int = OperandCode.TENSOR_FLOAT32, scale: float = 0.0) -> Model:
    graph = Graph()
    source = graph.input(dims, code, scale)
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(dims))
    numbers = graph.constant(np.array(axes, np.int32))
    graph.operation(OperationCode.MEAN, [source, numbers, graph.integer(1)], graph.output(kept, code, scale))
    return graph.model()


def pair(code: OperationCode, first: Dimensions | Array, second: Dimensions | Array) -> Model:
    graph = Graph()
    operands = [graph.input(one) if isinstance(one, tuple) else graph.constant(one) for one in (first, second)]
    shapes = [one if isinstance(one, tuple) else one.shape for one in (first, second)]
    activation = [] if code in (OperationCode.MAXIMUM, OperationCode.MINIMUM) else [graph.integer(FuseCode.NONE)]
    graph.operation(code, [*operands, *activation], graph.output(np.broadcast_shapes(*shapes)))
    return graph.model()


@pytest.mark.parametrize(
    ("dims", "axes", "means"),
    [
        ((1024, 8, 4), (0, 2), 2),
        ((30, 40, 6, 10), (0, 1, 3), 2),
        ((2, 600, 4, 8), (1, 3), 2),
        ((1024, 4, 2), (0, 2), 2),  # eight numbers of a pixel are no vector: rows of eight pixels
        ((1021, 4, 2), (0, 2), 1),  # whose number no other divides
        ((100, 8, 4), (0, 2), 1),  # too few to be worth it
        ((7, 40, 4, 16), (1, 2), 1),
        ((1024, 8, 4), (2,), 1),
        ((1024, 8, 4), (0, 1, 2), 1),
    ],
)
def test_means_of_groups(opencl_device: Device, dims: Dimensions, axes: tuple[int, ...], means: int) -> None:
    model = mean(dims, axes)
    assert Counter(operations_left(model))[MEAN] == means
    data = random_floats(*dims) + 3
    expected = data.astype(np.float64).mean(axes, keepdims=True)
    np.testing.assert_allclose(results(opencl_device, model, [data])[0], expected, rtol=2e-6)


def test_means_of_bytes_are_rounded_once() -> None:
    assert operations_left(mean((1024, 8, 4), (0, 2), SIGNED, 0.1)) == [MEAN]


@pytest.mark.parametrize("code", PAIRS)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("dims", "numbers", "is_repeated"),
    [
        ((512, 8, 4), (1, 8, 1), True),
        ((20, 30, 4, 6), (4, 1), True),
        ((2, 512, 8, 4), (2, 1, 8, 1), True),
        ((1024, 4, 2), (4, 1), True),
        ((32, 2), (32, 1), True),
        ((1021, 4, 2), (4, 1), False),
        ((512, 8, 4), (512, 8, 1), False),
        ((64, 8, 64), (8, 1), False),
        ((2, 3), (2, 1), False),
        ((512, 1, 4), (8, 1), False),  # both are repeated
    ],
)
def test_a_number_for_each_group(
    opencl_device: Device, dims: Dimensions, numbers: Dimensions, is_repeated: bool, code: OperationCode, turned: bool
) -> None:
    shapes = (numbers, dims) if turned else (dims, numbers)
    model = pair(code, *shapes)
    assert (TILE in operations_left(model)) == is_repeated
    data = [random_floats(*shape, seed=seed) + 4 for seed, shape in enumerate(shapes)]
    expected = PAIRS[code](*(one.astype(np.float64) for one in data))
    np.testing.assert_allclose(results(opencl_device, model, data)[0], expected, rtol=1e-6)


def test_bytes_of_groups_are_what_they_were(opencl_device: Device) -> None:
    graph = Graph()
    scales = {"scale": 0.5, "zero_point": 3}
    first, second = (graph.input(dims, SIGNED, **scales) for dims in ((1024, 4, 2), (4, 1)))  # type: ignore[arg-type]
    output = graph.output((1024, 4, 2), SIGNED, 1.0, -5)
    graph.operation(OperationCode.SUB, [first, second, graph.integer(FuseCode.NONE)], output)
    rng = np.random.default_rng(0)
    a, b = (2 * rng.integers(-60, 60, dims) + 1 for dims in ((1024, 4, 2), (4, 1)))
    found = results(opencl_device, graph.model(), [a.astype(np.int8), b.astype(np.int8)])[0]
    np.testing.assert_array_equal(found, np.clip((a - b) // 2 - 5, -128, 127))


@pytest.mark.parametrize("turned", [False, True])
def test_constants_are_repeated_at_preparation(opencl_device: Device, turned: bool) -> None:
    constant, data = random_floats(8, 1), random_floats(512, 8, 4, seed=1)
    operands = (constant, data.shape) if turned else (data.shape, constant)
    model = pair(OperationCode.SUB, *operands)
    assert operations_left(model) == [RESHAPE, OperationCode.SUB.name, RESHAPE]
    assert commands_of(model) == ["elementwise"]
    expected = constant - data if turned else data - constant
    np.testing.assert_array_equal(results(opencl_device, model, [data])[0], expected)


def test_normalised_groups_are_one_launch(opencl_device: Device) -> None:
    rows, groups, depth = 640, 8, 4
    dims = (rows, groups, depth)
    graph = Graph()
    source = graph.input((1, 20, 32, groups * depth))
    image, output = graph.temporary(dims), graph.output(dims)
    reshape(graph, source, dims, image)
    axes, keep = graph.constant(np.array([0, 2], np.int32)), graph.integer(1)

    def of_groups(code: OperationCode, *operands: int) -> int:
        result = graph.temporary((1, groups, 1))
        graph.operation(code, operands, result)
        return result

    def of_image(code: OperationCode, *operands: int, result: int | None = None) -> int:
        result = graph.temporary(dims) if result is None else result
        graph.operation(code, [*operands, graph.integer(FuseCode.NONE)], result)
        return result

    centred = of_image(OperationCode.SUB, image, of_groups(OperationCode.MEAN, image, axes, keep))
    variance = of_groups(OperationCode.MEAN, of_image(OperationCode.MUL, centred, centred), axes, keep)
    of_image(OperationCode.MUL, centred, of_groups(OperationCode.RSQRT, variance), result=output)
    assert commands_of(graph.model()) == ["chain"]

    data = random_floats(1, 20, 32, groups * depth) * 2 + 1
    real = data.reshape(dims).astype(np.float64)
    expected = (real - real.mean((0, 2), keepdims=True)) / real.std((0, 2), keepdims=True)
    np.testing.assert_allclose(results(opencl_device, graph.model(), [data])[0], expected, rtol=1e-4, atol=1e-5)
