# SPDX-License-Identifier: Apache-2.0
"""Requests whose arrays go through shared memory: what is copied in, what comes back."""

from __future__ import annotations

import numpy as np
import pytest

from nn_runtime.hal.memory import SharedMemory
from nn_runtime.hal.relocation import Relocation, Relocator
from nn_runtime.hal.types import ExecutionResult, OutputShape
from tests.nn_runtime.hal.models import FLOATS, request

SHORTER = ExecutionResult((OutputShape((2, 2)),))


def written(relocation: Relocation, values: list[float]) -> None:
    """Write the first elements of the only output, as a driver does."""
    moved = relocation.request
    location = moved.outputs[0].location
    pool = moved.pools[location.pool_index]
    assert isinstance(pool, SharedMemory)
    data = np.array(values, np.float32).view(np.uint8)
    pool.array()[location.offset : location.offset + data.nbytes] = data


@pytest.mark.parametrize("types", [[FLOATS], []])
def test_a_result_of_smaller_size_leaves_the_rest_of_its_array(types: list[int]) -> None:
    """`types`: of the outputs, which are not known of a model that comes from the cache."""
    output = np.full(6, 7, np.float32)
    relocation = Relocation(request([np.zeros(4, np.float32)], [output]), types)
    for first in (1.0, 5.0):
        output[4:] = 7 + first
        relocation.copy_in()
        written(relocation, [first] * 4)
        relocation.copy_out(SHORTER)
        assert output.tolist() == [first] * 4 + [7 + first] * 2


def test_every_array_begins_where_any_type_may() -> None:
    """As those of the allocators that drivers know: 64 bytes are a line of most caches."""
    relocation = Relocation(request([np.zeros(3, np.uint8), np.zeros(4, np.float32)], [np.zeros(5, np.int8)]), [])
    arguments = (*relocation.request.inputs, *relocation.request.outputs)
    assert [(argument.location.offset % 64, argument.location.length) for argument in arguments] == [
        (0, 3),
        (0, 16),
        (0, 5),
    ]


def test_inputs_are_copied_at_every_run() -> None:
    array = np.zeros(4, np.float32)
    relocation = Relocation(request([array], [np.zeros(4, np.float32)]), [FLOATS])
    location = relocation.request.inputs[0].location
    pool = relocation.request.pools[location.pool_index]
    assert isinstance(pool, SharedMemory)
    for number in (3.0, 4.0):
        array[:] = number
        relocation.copy_in()
        held = pool.array()[location.offset : location.offset + location.length]
        assert held.view(np.float32).tolist() == [number] * 4


def test_a_relocation_is_kept_as_long_as_its_request() -> None:
    relocator = Relocator([FLOATS])
    first = request([np.zeros(4, np.float32)], [np.zeros(4, np.float32)])
    kept = relocator.of(first)
    assert kept is not None
    assert relocator.of(first) is kept
    assert relocator.fresh(first) is not kept
    del first
    assert not relocator._kept
    second = request([np.zeros(4, np.float32)], [np.zeros(4, np.float32)])
    assert relocator.of(second) is not kept
