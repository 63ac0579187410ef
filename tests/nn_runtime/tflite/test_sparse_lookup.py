# SPDX-License-Identifier: Apache-2.0
"""EMBEDDING_LOOKUP_SPARSE against LiteRT: rows of a table, weighted and combined."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import nn_runtime as nn
from nn_runtime.errors import BadData
from tests.nn_runtime.tflite.operator_file import Graph, Step, Tensor, constant, int32, real, reference, write_graphs

if TYPE_CHECKING:
    from nn_runtime.device import Device

SUM, MEAN, BY_ROOT = range(3)
IDS = np.array([1, 3, 0, 2, 2], np.int32)
WEIGHTS = np.array([1, 2, -4, 0.5, 3], np.float32)
TABLE = np.linspace(-3, 4, 24, dtype=np.float32).reshape(4, 3, 2)
PLACES = {
    "rows": ([[0, 0], [0, 2], [2, 0], [2, 1], [2, 3]], [4, 4]),
    "rows of rows": ([[0, 0, 0], [1, 0, 0], [1, 0, 1], [1, 1, 0], [1, 1, 2]], [2, 3, 4]),
    "all in one": ([[0], [1], [2], [3], [4]], [5]),
}


def file(places: str, combiner: int, *, is_known: bool) -> bytes:
    """Return a file whose indices are constants, or inputs like all else but the dense shape."""
    given, shape = PLACES[places]
    indices = constant(given) if is_known else int32(*np.shape(given))
    result = real(*shape[:-1], 3, 2)
    tensors: list[Tensor] = [int32(5), indices, constant(shape), real(5), real(4, 3, 2), result]
    step = Step(
        "EMBEDDING_LOOKUP_SPARSE", range(5), [5], "EmbeddingLookupSparseOptions", {"Combiner": combiner}, version=1
    )
    fed = [at for at, tensor in enumerate(tensors[:5]) if tensor.data is None]
    return write_graphs([Graph(tensors, [step], fed, [5])])


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("combiner", [SUM, MEAN, BY_ROOT])
@pytest.mark.parametrize("places", list(PLACES))
def test_results_are_those_of_litert(places: str, combiner: int, is_known: bool, device: Device) -> None:
    content = file(places, combiner, is_known=is_known)
    known = [] if is_known else [np.array(PLACES[places][0], np.int32)]
    inputs = [IDS, *known, WEIGHTS, TABLE]
    with nn.load(content).compile(device) as session:
        (result,) = session.run(inputs)
    np.testing.assert_allclose(result, reference(content, inputs)[0], rtol=1e-6, atol=1e-6)


def test_what_is_refused() -> None:
    with pytest.raises(BadData, match=r"combiner must be 0 \(SUM\), 1 \(MEAN\) or 2 \(SQRTN\), got 3"):
        nn.load(file("rows", 3, is_known=True))
    tensors = [int32(5), int32(5, 3), constant([4, 4]), real(5), real(4, 3), real(4, 3)]
    step = Step("EMBEDDING_LOOKUP_SPARSE", range(5), [5], version=1)
    with pytest.raises(BadData, match=r"must be \[n\], \[n, 2\], \[n\] and \[rows, \.\.\.\], got \[5\], \[5, 3\]"):
        nn.load(write_graphs([Graph(tensors, [step], [0, 1, 3, 4], [5])]))
    tensors[1], tensors[3] = int32(5, 2), real(4)
    with pytest.raises(BadData, match=r"got \[5\], \[5, 2\], \[4\], \[4, 3\]"):
        nn.load(write_graphs([Graph(tensors, [step], [0, 1, 3, 4], [5])]))
    tensors[2], tensors[3] = constant([0, 4]), real(5)
    with pytest.raises(BadData, match=r"dense_shape \(input 2\) must be of sizes > 0, got \[0, 4\]"):
        nn.load(write_graphs([Graph(tensors, [step], [0, 1, 3, 4], [5])]))
    tensors[1], tensors[2] = constant([[0, 0]] * 4 + [[4, 0]]), constant([4, 4])
    with pytest.raises(BadData, match=r"indices \(input 1\) must be within \[4\], got 0 to 4 in axis 0"):
        nn.load(write_graphs([Graph(tensors, [step], [0, 3, 4], [5])]))
