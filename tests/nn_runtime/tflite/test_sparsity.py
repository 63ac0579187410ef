# SPDX-License-Identifier: Apache-2.0
"""Sparse constants: every way to store them against LiteRT and against the array, and malformed ones."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import nn_runtime as nn
from nn_runtime.errors import BadData
from nn_runtime.tflite import Interpreter, TfliteError, read
from nn_runtime.tflite.types import TensorType
from tests.nn_runtime.tflite.operator_file import Step, Tensor, constant, real, reference, write
from tests.nn_runtime.tflite.sample_file import refused
from tests.nn_runtime.tflite.sparse_tensors import sparse, sparse_values
from tests.nn_runtime.tflite.test_interpreter import assert_same
from tests.nn_runtime.tflite.tflite_file import LevelSpec, SparsitySpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from nn_runtime.device import Device

FORMS: dict[str, dict[str, Any]] = {
    "rows": {"compressed": [1]},
    "rows that are empty": {"compressed": [0, 1]},
    "columns": {"compressed": [1], "order": [1, 0]},
    "nothing left out": {"compressed": []},
    "blocks in rows": {"compressed": [1], "blocks": {1: 4}},
    "blocks of two sizes": {"compressed": [1], "blocks": {0: 2, 1: 4}},
    "blocks by columns": {"compressed": [0, 1], "order": [1, 0, 2, 3], "blocks": {0: 2, 1: 2}},
    "short numbers": {"compressed": [1], "bits": (16, 8)},
    "shorter numbers": {"compressed": [0, 1], "bits": (8, 16)},
}


def added(stored: Tensor) -> bytes:
    """Return a file that adds a sparse constant to its input."""
    shape = stored.shape
    steps = [Step("DENSIFY", [0], [1]), Step("ADD", [2, 1], [3], "AddOptions")]
    return write([stored, real(*shape), real(*shape), real(*shape)], steps, [2], [3])


@pytest.mark.parametrize("name", FORMS)
def test_every_way_to_store_a_matrix(name: str, reference_device: Device) -> None:
    array = sparse_values(np.float32, 6, 8)
    array[2:4] = 0
    file = added(sparse(array, **FORMS[name]))
    data = np.random.default_rng(0).uniform(-1, 1, array.shape).astype(np.float32)
    (expected,) = reference(file, [data])
    np.testing.assert_array_equal(expected, data + array)
    with nn.load(file).compile(reference_device) as session:
        np.testing.assert_array_equal(session.run(data)[0], expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.uint8, np.int16, np.int32, np.bool_])
@pytest.mark.parametrize("form", [{"compressed": [3]}, {"compressed": [1, 3], "order": [3, 0, 2, 1]}])
def test_constants_of_every_type_are_read_as_the_array(dtype: type[np.generic], form: dict[str, Any]) -> None:
    array = sparse_values(dtype, 3, 1, 4, 5)
    stored = sparse(array, **form)
    read_back = read(write([stored, real(1)], [Step("DENSIFY", [0], [1])], [], [1])).subgraphs[0].tensors[0].data
    assert read_back is not None
    assert read_back.dtype == dtype
    assert not read_back.flags.writeable
    np.testing.assert_array_equal(read_back, array)


def test_blocks_are_listed_in_any_order() -> None:
    """By the schema, not by LiteRT, which takes the blocks' sizes in the order of the dimensions."""
    array = sparse_values(np.float32, 4, 6, 8)
    stored = sparse(array, [2], [2, 0, 1, 4, 3], {2: 4, 1: 3})
    np.testing.assert_array_equal(read(added(stored)).subgraphs[0].tensors[0].data, array)


def test_sparse_halves_become_weights(reference_device: Device) -> None:
    """As exporters write networks of float16: DENSIFY, DEQUANTIZE, then a convolution."""
    filters = sparse_values(np.float16, 5, 1, 1, 8) / np.float16(64)
    tensors = [real(1, 3, 4, 8), sparse(filters, [3]), Tensor(TensorType.FLOAT16, (5, 1, 1, 8)), real(5, 1, 1, 8)]
    steps = [
        Step("DENSIFY", [1], [2]),
        Step("DEQUANTIZE", [2], [3]),
        Step("CONV_2D", [0, 3, 4], [5], "Conv2DOptions", {"StrideW": 1, "StrideH": 1}),
    ]
    file = write([*tensors, constant(np.zeros(5, np.float32)), real(1, 3, 4, 5)], steps, [0], [5])
    data = np.random.default_rng(0).uniform(-1, 1, (1, 3, 4, 8)).astype(np.float32)
    with nn.load(file).compile(reference_device) as session:
        result = session.run(data)[0]
    np.testing.assert_allclose(result, data @ filters.reshape(5, 8).T.astype(np.float32), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(result, reference(file, [data], usual_kernels=True)[0], rtol=1e-5, atol=1e-5)


def test_weights_may_be_sparse_without_densify(reference_device: Device) -> None:
    weights = sparse_values(np.float32, 8, 16)
    steps = [Step("FULLY_CONNECTED", [0, 1, -1], [2], "FullyConnectedOptions", version=8)]
    data = np.random.default_rng(0).uniform(-1, 1, (1, 16)).astype(np.float32)
    for form in ({"compressed": [1]}, {"compressed": [1], "blocks": {1: 4}}):
        file = write([real(1, 16), sparse(weights, **form), real(1, 8)], steps, [0], [2])
        with nn.load(file).compile(reference_device) as session:
            result = session.run(data)[0]
        np.testing.assert_allclose(result, reference(file, [data], usual_kernels=True)[0], rtol=1e-5, atol=1e-4)
        np.testing.assert_allclose(result, data @ weights.T, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("name", FORMS)
def test_details_are_those_of_litert(name: str) -> None:
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    array = sparse_values(np.float32, 6, 8)
    file = added(sparse(array, **FORMS[name]))
    ours = Interpreter(model_content=file, device="cpu")
    assert_same(ours.get_tensor_details()[0], litert.Interpreter(model_content=file).get_tensor_details()[0])
    np.testing.assert_array_equal(ours.tensor(0)(), array)


MATRIX = sparse(sparse_values(np.float32, 6, 8), [1])
BLOCKS = sparse(sparse_values(np.float32, 6, 8), [1], blocks={1: 4})
COUNT = len(MATRIX.data) if MATRIX.data is not None else 0


def changed(
    tensor: Tensor = MATRIX,
    level: int | None = None,
    fields: dict[str, object] | None = None,
    **parts: object,
) -> Tensor:
    """Return a sparse constant with another part, or another field of one level."""
    assert tensor.sparsity is not None
    levels = list(tensor.sparsity.levels)
    if level is not None:
        levels[level] = replace(levels[level], **(fields or {}))  # type: ignore[arg-type]
    return replace(tensor, sparsity=replace(tensor.sparsity, **{"levels": levels, **parts}))  # type: ignore[arg-type]


def listed(change: Callable[[list[int]], object], of_segments: bool = False) -> dict[str, object]:
    """Return the second level's indices or segments after a change in place."""
    assert MATRIX.sparsity is not None
    name = "segments" if of_segments else "indices"
    numbers = [int(number) for number in getattr(MATRIX.sparsity.levels[1], name)]
    change(numbers)
    return {name: numbers}


def _swap_rows(segments: list[int]) -> None:
    segments[1], segments[2] = segments[2], segments[1]


REFUSED = {
    "order too short": (changed(order=[0]), r"traversal_order must list 0 to 1, each once, got \[0\]"),
    "order too long": (changed(order=[0, 1, 1]), r"each once, got \[0, 1, 1\]"),
    "no order": (changed(order=[]), r"traversal_order must list .*, got \[\]"),
    "order twice": (changed(order=[1, 1]), r"each once, got \[1, 1\]"),
    "order negative": (changed(order=[0, -1]), r"each once, got \[0, -1\]"),
    "order out of range": (changed(order=[0, 2]), r"each once, got \[0, 2\]"),
    "order of 100000": (changed(order=range(100_000)), r"got \[0, 1, 2, 3, 4, 5, 6, 7, \.\.\.\]"),
    "blocks first": (changed(BLOCKS, order=[0, 2, 1]), "must list 0 to 1, then 2 to 2, each once"),
    "block of no dimension": (changed(BLOCKS, block_map=[2]), r"block_map must list .* below 2, got \[2\]"),
    "block of -1": (changed(BLOCKS, block_map=[-1]), r"block_map must list .* below 2, got \[-1\]"),
    "blocks twice": (changed(BLOCKS, block_map=[1, 1]), r"block_map must list different dimensions"),
    "block of 0": (changed(BLOCKS, 2, {"size": 0}), "a block must be DENSE and divide 8, got 0"),
    "block of -4": (changed(BLOCKS, 2, {"size": -4}), "a block must be DENSE and divide 8, got -4"),
    "block of 3": (changed(BLOCKS, 2, {"size": 3}), "a block must be DENSE and divide 8, got 3"),
    "larger block": (changed(BLOCKS, 2, {"size": 8}), r"array_indices must be 0 to 0|needs \d+ values"),
    "sparse block": (
        changed(BLOCKS, 2, {"segments": [0], "indices": []}),
        "dim_metadata 2: a block must be DENSE and divide 8, got SPARSE_CSR",
    ),
    "no levels": (changed(levels=[]), "needs dim_metadata for 2 dimensions, got 0"),
    "levels too many": (changed(levels=[LevelSpec(1)] * 3), "needs dim_metadata for 2 dimensions, got 3"),
    "format": (changed(level=0, fields={"format": 2}), r"dim_metadata 0: format must be 0 \(DENSE\) or 1 .*, got 2"),
    "format negative": (changed(level=0, fields={"format": -1}), "got -1"),
    "dense size": (changed(level=0, fields={"size": 5}), "dim_metadata 0: dense_size must be 6, got 5"),
    "dense size huge": (changed(level=0, fields={"size": 2**31 - 1}), "dense_size must be 6, got 2147483647"),
    "no segments": (changed(level=1, fields={"segments": None}), "dim_metadata 1: array_segments are missing"),
    "no indices": (changed(level=1, fields={"indices": None}), "dim_metadata 1: array_indices are missing"),
    "segments too few": (
        changed(level=1, fields=listed(lambda numbers: numbers.pop(2), of_segments=True)),
        "dim_metadata 1: needs 7 array_segments, got 6",
    ),
    "segments too many": (
        changed(level=1, fields=listed(lambda numbers: numbers.append(COUNT), of_segments=True)),
        "dim_metadata 1: needs 7 array_segments, got 8",
    ),
    "nothing kept": (
        replace(
            changed(level=1, fields={"segments": [0] * 7, "indices": []}),
            data=np.zeros(0, np.float32),
        ),
        "a sparse tensor must be a constant of numbers, got FLOAT32",
    ),
    "segments from 1": (
        changed(level=1, fields=listed(lambda numbers: numbers.__setitem__(0, 1), of_segments=True)),
        f"array_segments must rise from 0 to {COUNT}, got",
    ),
    "segments to the wrong end": (
        changed(level=1, fields=listed(lambda numbers: numbers.__setitem__(-1, COUNT + 1), of_segments=True)),
        f"array_segments must rise from 0 to {COUNT}, got",
    ),
    "segments fall": (changed(level=1, fields=listed(_swap_rows, of_segments=True)), "array_segments must rise"),
    "segments overflow": (
        changed(level=1, fields={"segments": [0, 2**31 - 1, -(2**31), 0, 0, 0, COUNT]}),
        "array_segments must rise",
    ),
    "index too large": (
        changed(level=1, fields=listed(lambda numbers: numbers.__setitem__(0, 8))),
        r"array_indices must be 0 to 7, got \d to 8",
    ),
    "index negative": (
        changed(level=1, fields=listed(lambda numbers: numbers.__setitem__(0, -1))),
        "array_indices must be 0 to 7, got -1 to",
    ),
    "index twice": (
        changed(level=1, fields={"segments": [0, 2, 2, 2, 2, 2, COUNT], "indices": [3, 3, *[0] * (COUNT - 2)]}),
        "array_indices name one element twice",
    ),
    "values too few": (
        replace(MATRIX, data=np.zeros(COUNT - 1, np.float32)),
        f"needs {COUNT} values by its dim_metadata, got {COUNT - 1}",
    ),
    "values dense": (replace(MATRIX, data=np.zeros(48, np.float32)), f"needs {COUNT} values .*, got 48"),
    "part of a value": (replace(MATRIX, data=np.zeros(5, np.uint8)), "FLOAT32 needs 4 bytes an element, got 5"),
    "no data": (replace(MATRIX, data=None), "a sparse tensor must be a constant of numbers, got FLOAT32"),
    "strings": (replace(MATRIX, type=TensorType.STRING), "a sparse tensor must be a constant of numbers, got STRING"),
    "scalar": (replace(MATRIX, shape=()), r"must have elements and a rank, got \[\]"),
    "no elements": (replace(MATRIX, shape=(0, 8)), r"must have elements and a rank, got \[0, 8\]"),
    "another shape": (replace(MATRIX, shape=(8, 6)), "dense_size must be 8, got 6"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_malformed(name: str) -> None:
    tensor, message = REFUSED[name]
    refused(added(tensor), f"subgraph 0: tensor 0 't0': (dim_metadata .*)?.*{message}")


def few(size: int) -> Tensor:
    """Return a vector of a size with one element that is not 0, of one byte."""
    sparsity = SparsitySpec([0], [], [LevelSpec(0, [0, 1], [size - 1])])
    return Tensor(TensorType.INT8, (size,), data=np.ones(1, np.int8), sparsity=sparsity)


def test_size_of_what_is_made_dense_is_bounded() -> None:
    """Each alone, and many small ones together."""
    tracemalloc.start()
    try:
        for tensors in ([few(2**31 - 1)], [few(1 << 17)] * 100):
            with pytest.raises(TfliteError, match="must not take more than 64 times the file's length"):
                read(write([*tensors, real(1)], [Step("DENSIFY", [0], [len(tensors)])], [], [len(tensors)]))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20 << 20


def test_entries_are_counted_before_there_is_memory_for_them() -> None:
    """Dense levels above and below one that keeps nothing would be 2^60 entries."""
    size = 1 << 20
    levels = [LevelSpec(1), LevelSpec(0, [0, size], [0] * size), LevelSpec(size)]
    tensor = Tensor(TensorType.INT8, (1, 1, size), data=np.ones(1, np.int8))
    file = added(replace(tensor, sparsity=SparsitySpec([0, 1, 2], [], levels)))
    refused(file, f"needs {size**2} values by its dim_metadata, got 1")
    levels = [LevelSpec(size), LevelSpec(1), LevelSpec(0, [0, 0], [])]
    tensor = replace(tensor, shape=(size, 1, 1), sparsity=SparsitySpec([0, 1, 2], [], levels))
    refused(added(tensor), f"dim_metadata 2: needs {size + 1} array_segments, got 2")


def test_damaged_files_are_refused_or_read() -> None:
    rng = np.random.default_rng(8)
    for form in FORMS.values():
        whole = added(sparse(sparse_values(np.float32, 6, 8), **form))
        for _ in range(100):
            damaged = bytearray(whole)
            at = int(rng.integers(len(damaged) // 4)) * 4
            number = rng.choice([0, 1, 7, 255, 2**16, 2**24, 2**31 - 1, 2**31, 2**32 - 1])
            damaged[at : at + 4] = int(number).to_bytes(4, "little")
            try:
                nn.load(damaged)
            except BadData:
                continue
