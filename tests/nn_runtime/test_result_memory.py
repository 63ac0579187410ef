# SPDX-License-Identifier: Apache-2.0
"""Memory of results: a caller's for as long as the caller holds the array or a view of it, then used again."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.result_memory import ResultMemory

if TYPE_CHECKING:
    from collections.abc import Callable

FLOAT = np.dtype(np.float32)


def address(array: np.ndarray) -> int:
    return array.ctypes.data


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.float16, np.bool_])
@pytest.mark.parametrize("dims", [(3, 5), (7,), (), (1, 2, 3, 4)])
def test_an_array_is_whole_and_writable(dtype: type[np.generic], dims: tuple[int, ...]) -> None:
    array = ResultMemory(dims, np.dtype(dtype)).new_array()
    assert (array.dtype, array.shape) == (np.dtype(dtype), dims)
    assert array.flags.c_contiguous
    assert array.flags.writeable
    assert address(array) % 64 == 0
    array[...] = 1
    assert (array == 1).all()


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> list[memoryview]:
    """What memory was taken: the system may give again at once what is let go, at the same address."""
    taken: list[memoryview] = []
    new_block = ResultMemory._new_block

    def noted(memory: ResultMemory) -> memoryview:
        taken.append(new_block(memory))
        return taken[-1]

    monkeypatch.setattr(ResultMemory, "_new_block", noted)
    return taken


def test_what_is_dropped_is_used_again(blocks: list[memoryview]) -> None:
    memory = ResultMemory((8, 8), FLOAT)
    places = set()
    for _ in range(5):
        places.add(address(memory.new_array()))
    assert len(places) == len(blocks) == 1


def test_a_caller_that_holds_the_latest_result_gets_two_places_in_turn(blocks: list[memoryview]) -> None:
    memory = ResultMemory((8, 8), FLOAT)
    places = []
    latest = memory.new_array()
    for _ in range(6):
        latest = memory.new_array()
        places.append(address(latest))
    assert len(set(places)) == len(blocks) == 2
    assert places[0::2] == [places[0]] * 3


def test_two_blocks_are_kept_of_more_that_were_held(blocks: list[memoryview]) -> None:
    memory = ResultMemory((8, 8), FLOAT)
    for count in (5, 3):
        held = [memory.new_array() for _ in range(count)]
        del held
    assert len(blocks) == 5 + 1


def test_results_that_are_held_keep_what_they_have() -> None:
    memory = ResultMemory((16,), FLOAT)
    held = []
    for value in range(6):
        array = memory.new_array()
        array[:] = value
        held.append(array)
    assert len({address(array) for array in held}) == 6
    assert [array.tolist() for array in held] == [[value] * 16 for value in range(6)]
    del array, held[1:]
    for _ in range(4):
        memory.new_array()[:] = np.nan
    assert held[0].tolist() == [0] * 16


@pytest.mark.parametrize(
    "view",
    [
        lambda array: array[1],
        lambda array: array[1:].T[1:],
        lambda array: array.reshape(-1)[3:].view(np.int32),
        np.asarray,
        memoryview,
        lambda array: np.frombuffer(array, np.uint8)[5:],
        lambda array: np.ndarray((4,), np.float32, array)[1:],
    ],
    ids=["row", "transposed", "retyped", "same", "memoryview", "bytes", "over the buffer"],
)
def test_a_view_of_a_result_keeps_its_memory(view: Callable[[np.ndarray], object]) -> None:
    memory = ResultMemory((4, 4), FLOAT)
    array = memory.new_array()
    place = address(array)
    part = view(array)
    del array
    others = [address(memory.new_array()) for _ in range(4)]
    assert place not in others
    del part
    assert place in [address(one) for one in [memory.new_array(), memory.new_array()]]


def test_results_live_longer_than_what_made_them() -> None:
    array = ResultMemory((4,), FLOAT).new_array()
    array[:] = 3
    for copied in (pickle.loads(pickle.dumps(array)), copy.deepcopy(array), array.copy()):
        assert not np.shares_memory(copied, array)
        assert copied.tolist() == [3] * 4
