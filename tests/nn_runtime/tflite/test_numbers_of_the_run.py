# SPDX-License-Identifier: Apache-2.0
"""Conversions whose results hang on the numbers of a run: indices, halves, infinities, integers of other scales."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pytest

import nn_runtime as nn
from nn_runtime.errors import OperationFailed
from nn_runtime.tflite.types import TensorType
from tests.nn_runtime.tflite.operator_cases import Case
from tests.nn_runtime.tflite.operator_file import (
    Step,
    Tensor,
    boolean,
    constant,
    int8,
    int32,
    int64,
    random_inputs,
    real,
    reference,
    uint8,
    write,
)

if TYPE_CHECKING:
    from nn_runtime.device import Device

Array = npt.NDArray[Any]
EDGES = [0.0, 0.5, 1.5, 2.5, 0.49999997, 0.50000006, 1e-45, 1e-38, 1e9, 3e38, np.inf]
WHOLE = [2.0**power + step for power in (21, 22, 23, 24) for step in (-1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2)]


def both(case: Case, inputs: list[Array], device: Device) -> tuple[Array, Array]:
    """Return the first output on the device and that of LiteRT."""
    file, _ = case.file()
    with nn.load(file).compile(device) as session:
        return session.run(inputs)[0], reference(file, inputs)[0]


@pytest.mark.parametrize("code", ["SIGN", "ROUND"])
def test_numbers_at_the_edges_have_the_bits_of_the_reference(code: str, reference_device: Device) -> None:
    data = np.array([*EDGES, *WHOLE, *np.arange(0, 300, 0.25)], np.float32)
    data = np.concatenate([data, -data])
    result, wanted = both(Case(code, [real(data.size)], [real(data.size)]), [data], reference_device)
    np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize("bits", [2, 5, 8, 16])
def test_grids_of_fake_quantisation_are_those_of_the_reference(bits: int, reference_device: Device) -> None:
    rng = np.random.default_rng(bits)
    for _ in range(10):
        options = {"Min": -float(rng.uniform(0, 9)), "Max": float(rng.uniform(0.1, 9)), "NumBits": bits}
        halves = np.linspace(options["Min"], options["Max"], 2 * 2**bits - 1)
        data = np.concatenate([halves, np.nextafter(halves, 0), rng.uniform(-12, 12, 2000)]).astype(np.float32)
        case = Case("FAKE_QUANT", [real(data.size)], [real(data.size)], "FakeQuantOptions", options)
        result, wanted = both(case, [data], reference_device)
        np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize("kind", [real, int32, int64])
def test_numbers_on_a_boundary_are_in_the_bucket_above(kind: Any, device: Device) -> None:
    boundaries = [-np.inf, -3.0, 0.0, 1.2e-38, 0.1, 3.0, 3.0, 2.0**24, np.inf]  # smaller ones may be 0 on devices
    numbers = np.array([*boundaries, -0.0, 2**24 + 1, np.nextafter(np.float32(0.1), np.float32(0)), -4], np.float64)
    numbers = np.append(numbers, np.nan) if kind is real else np.clip(numbers, -(2**30), 2**30)
    numbers = numbers.astype(kind().type.dtype)
    options = {"Boundaries": boundaries}
    case = Case("BUCKETIZE", [kind(numbers.size)], [int32(numbers.size)], "BucketizeOptions", options)
    result, wanted = both(case, [numbers], device)
    assert result.dtype == wanted.dtype
    np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize("kind", [real, int32, int64, lambda *shape: uint8(0.1, 3, *shape)])
@pytest.mark.parametrize("scale", [(), 0.1])
def test_signed_bytes_are_cut_off_from_real_numbers_and_integers(kind: Any, scale: Any, device: Device) -> None:
    bounds, source = np.iinfo(np.int32), kind().type.dtype
    numbers = np.array([-np.inf, np.inf, -1e9, 1e9, *np.arange(-600, 600, 0.25)], np.float32)
    if source.kind != "f":
        numbers = np.array([bounds.min, bounds.max, bounds.max - 128, 2**24 + 1, *range(-600, 600)], np.int64)
    case = Case("CAST", [kind(numbers.size)], [Tensor(TensorType.INT8, (numbers.size,), scale, 3)], "CastOptions")
    result, wanted = both(case, [numbers.astype(source)], device)
    assert result.dtype == wanted.dtype
    np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
def test_an_infinity_does_not_spoil_the_sums_before_it(
    reverse: bool, exclusive: bool, reference_device: Device
) -> None:
    options = {"Reverse": reverse, "Exclusive": exclusive}
    case = Case("CUMSUM", [real(2, 300), constant(np.int32(1))], [real(2, 300)], "CumsumOptions", options)
    data = np.random.default_rng(3).uniform(-1, 1, (2, 300)).astype(np.float32)
    data[0, 200], data[1, 100] = np.inf, -np.inf
    result, wanted = both(case, [data], reference_device)
    np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("source", "chosen", "result"),
    [
        (real(4, 5), (6, 1), real(6, 5)),
        (int32(3, 4, 5), (2, 3, 3), int32(2, 3)),
        (int8(0.1, 3, 3, 4, 5), (7, 2), int8(0.1, 3, 7, 5)),
        (real(2, 3, 4, 2, 3), (5, 4), real(5, 3)),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", [int32, int64])
def test_places_may_be_computed(source: Any, chosen: Any, result: Any, kind: Any, reference_device: Device) -> None:
    case = Case("GATHER_ND", [source, kind(*chosen)], [result], "GatherNdOptions")
    indices = np.random.default_rng(5).integers(0, source.shape[: chosen[-1]], chosen)
    inputs = [*random_inputs([source]), indices.astype(kind().type.dtype)]
    np.testing.assert_array_equal(*both(case, inputs, reference_device))


@pytest.mark.parametrize(
    ("shape", "chosen", "axis", "batches"),
    [((3, 5), (3, 2), 1, 1), ((2, 3, 4), (2, 3), 2, 2), ((2, 3, 4, 5), (2, 2, 2), 2, 1), ((2, 3, 4), (2, 6), -2, -1)],
)
def test_indices_of_batches_may_be_computed(
    shape: tuple[int, ...], chosen: tuple[int, ...], axis: int, batches: int, reference_device: Device
) -> None:
    options = {"Axis": axis, "BatchDims": batches}
    case = Case("GATHER", [real(*shape), int32(*chosen)], [real()], "GatherOptions", options)
    indices = np.random.default_rng(5).integers(0, shape[axis], chosen).astype(np.int32)
    np.testing.assert_array_equal(*both(case, [*random_inputs([real(*shape)]), indices], reference_device))


@pytest.mark.parametrize(
    ("code", "options", "values", "wrong"),
    [
        ("GATHER_ND", "GatherNdOptions", {}, [[0, 9], [1, 1]]),
        ("GATHER_ND", "GatherNdOptions", {}, [[1, -1], [1, 1]]),
        ("GATHER", "GatherOptions", {"Axis": 1, "BatchDims": 1}, [[0, 6], [1, 1]]),
        ("GATHER", "GatherOptions", {"Axis": 1, "BatchDims": 1}, [[0, 5], [-1, 1]]),
    ],
)
def test_computed_indices_beyond_one_dimension_take_no_element_of_the_next(
    code: str, options: str, values: dict[str, int], wrong: list[list[int]], device: Device
) -> None:
    file, _ = Case(code, [real(2, 6), int32(2, 2)], [real()], options, values).file()
    with nn.load(file).compile(device) as session, pytest.raises(OperationFailed, match="GATHER: indices"):
        session.run([*random_inputs([real(2, 6)]), np.array(wrong, np.int32)])


@pytest.mark.parametrize(
    ("shape", "time", "batch"), [((3, 5, 2), 1, 0), ((4, 2, 3), 0, 2), ((2, 2, 5, 3), 2, 1), ((2, 2, 3, 2, 4), 3, 0)]
)
@pytest.mark.parametrize("kind", [int32, int64])
def test_lengths_of_sequences_may_be_computed(
    shape: tuple[int, ...], time: int, batch: int, kind: Any, reference_device: Device
) -> None:
    options = {"SeqDim": time, "BatchDim": batch}
    case = Case("REVERSE_SEQUENCE", [real(*shape), kind(shape[batch])], [real()], "ReverseSequenceOptions", options)
    lengths = np.random.default_rng(7).integers(1, shape[time] + 1, shape[batch]).astype(kind().type.dtype)
    np.testing.assert_array_equal(*both(case, [*random_inputs([real(*shape)]), lengths], reference_device))


@pytest.mark.parametrize(
    ("code", "kind", "numbers", "wanted"),
    [
        ("ADD", TensorType.INT16, ([32767, -5], [1, 3]), [-32768, -2]),
        ("SUB", TensorType.INT16, ([-32768, 7], [1, -3]), [32767, 10]),
        ("SUB", TensorType.UINT16, ([0, 7], [1, 3]), [65535, 4]),
        ("MUL", TensorType.UINT16, ([65535, 7], [65535, 3]), [1, 21]),
        ("DIV", TensorType.INT16, ([-32768, -7], [-1, 2]), [-32768, -3]),
    ],
)
def test_integers_of_16_bits_wrap_before_others_read_them(
    code: str, kind: TensorType, numbers: tuple[list[int], list[int]], wanted: list[int], device: Device
) -> None:
    """LiteRT subtracts and divides none of them."""
    short = Tensor(kind, (2,))
    steps = [Step(code, [0, 1], [2], f"{code.title()}Options"), Step("CAST", [2], [3], "CastOptions")]
    file = write([short, short, short, int32(2)], steps, [0, 1], [2, 3])
    with nn.load(file).compile(device) as session:
        for result in session.run([np.array(one, kind.dtype) for one in numbers]):
            np.testing.assert_array_equal(result, wanted)


def _bytes(*shape: int) -> Tensor:
    return int8(0.1, 3, *shape)


@pytest.mark.parametrize(
    ("kind", "shape", "size"),
    [
        (real, (1, 6, 2, 3), (1, 1, 2, 3)),
        (real, (4, 5), (2, 3)),
        (_bytes, (4, 5, 6), (2, 5, 3)),
        (int32, (4, 5), (1, 2)),
        (boolean, (4, 5), (3, 2)),
        (real, (2, 3, 2, 4, 2), (1, 2, 2, 3, 2)),
        (real, (3, 2), (3, 2)),
    ],
)
@pytest.mark.parametrize("start", [-3, 0, 1, 9])
def test_the_place_of_an_update_may_be_computed(
    kind: Any, shape: tuple[int, ...], size: tuple[int, ...], start: int, reference_device: Device
) -> None:
    tensors = [kind(*shape), kind(*size)]
    options = "DynamicUpdateSliceOptions"
    case = Case("DYNAMIC_UPDATE_SLICE", [*tensors, int32(len(shape))], [kind(*shape)], options)
    starts = np.full(len(shape), start, np.int32)
    np.testing.assert_array_equal(*both(case, [*random_inputs(tensors), starts], reference_device))


@pytest.mark.parametrize(
    "case",
    [
        Case("MATRIX_SET_DIAG", [int8(0.1, 3, 2, 3), int8(0.3, 7, 2)], [int8(0.5, -1, 2, 3)]),
        Case("DYNAMIC_UPDATE_SLICE", [int8(0.1, 3, 4), int8(0.3, 7, 2), constant([1])], [int8(0.5, -1, 4)]),
        Case("SCATTER_ND", [constant([[3], [1]]), int8(0.3, 7, 2), constant([4])], [int8(0.5, -1, 4)]),
        Case("SPARSE_TO_DENSE", [constant([1, 3]), constant([5]), int8(0.1, 3, 2), int8(0.3, 7)], [int8(0.5, -1, 5)]),
    ],
    ids=str,
)
def test_integers_are_moved_whatever_their_scales(case: Case, reference_device: Device) -> None:
    inputs = random_inputs(case.file()[1])
    np.testing.assert_array_equal(*both(case, inputs, reference_device))
