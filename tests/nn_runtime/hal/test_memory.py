# SPDX-License-Identifier: Apache-2.0
"""Shared memory: mapping, files at any offset, protection, closing."""

from __future__ import annotations

import copy
import os
import pickle
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.errors import BadData, Unmappable
from nn_runtime.hal.memory import PROT_READ, PROT_WRITE, SharedMemory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_new_memory_is_zero_and_keeps_what_is_written() -> None:
    with SharedMemory.create(100) as memory:
        assert memory.size_bytes == 100
        assert not memory.array().any()
        memory.array()[3] = 7
        assert memory.array()[3] == 7


@pytest.mark.parametrize("size", [0, -1])
def test_size_must_be_positive(size: int) -> None:
    with pytest.raises(BadData, match="size must be > 0"):
        SharedMemory.create(size)


@pytest.mark.parametrize("offset", [0, 1, 4096, 5000])
def test_file_is_mapped_from_any_offset(tmp_path: Path, offset: int) -> None:
    content = np.arange(8192, dtype=np.uint32).astype(np.uint8)
    path = tmp_path / "weights"
    path.write_bytes(content.tobytes())
    with path.open("rb") as file:
        memory = SharedMemory.from_fd(64, PROT_READ, file.fileno(), offset)
    assert np.array_equal(memory.array(), content[offset : offset + 64])
    assert not memory.array().flags.writeable


def test_writes_reach_the_file(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(bytes(16))
    with path.open("r+b") as file:
        memory = SharedMemory.from_fd(16, PROT_READ | PROT_WRITE, file.fileno(), 0)
    memory.array()[5] = 42
    assert path.read_bytes()[5] == 42


@pytest.mark.parametrize(("length", "is_enough"), [(50, True), (49, False)])
def test_a_file_that_was_cut_short(tmp_path: Path, length: int, is_enough: bool) -> None:
    path = tmp_path / "weights"
    path.write_bytes(bytes(100))
    with path.open("r+b") as file:
        memory = SharedMemory.from_fd(20, PROT_READ, file.fileno(), 30)
        memory.array()
        file.truncate(length)
    if is_enough:
        assert not memory.array().any()
    else:
        with pytest.raises(Unmappable, match="20 bytes at offset 30 cannot be mapped: the file has 49 bytes now"):
            memory.array()


def test_bad_descriptor_and_file_too_short(tmp_path: Path) -> None:
    with pytest.raises(Unmappable):
        SharedMemory.from_fd(16, PROT_READ, -1, 0)
    path = tmp_path / "short"
    path.write_bytes(bytes(4))
    with path.open("rb") as file:
        memory = SharedMemory.from_fd(16, PROT_READ, file.fileno(), 0)
    with pytest.raises(Unmappable, match="cannot be mapped"):
        memory.array()


def test_arrays_outlive_the_memory() -> None:
    memory = SharedMemory.create(8)
    array = memory.array()
    array[:] = 9
    memory.close()
    assert array.sum() == 72
    with pytest.raises(Unmappable, match="closed"):
        memory.array()


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="no memfd on this system")
def test_two_holders_see_the_same_bytes() -> None:
    first = SharedMemory.create(8)
    second = SharedMemory.from_fd(8, PROT_READ, first.fd, 0)
    first.array()[0] = 5
    assert second.array()[0] == 5


def test_works_without_memfd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    memory = SharedMemory.create(8)
    assert memory.fd == -1
    memory.array()[1] = 3
    assert memory.array().tolist() == [0, 3, 0, 0, 0, 0, 0, 0]
    memory.close()


def test_a_block_is_gone_with_who_made_it_and_not_with_who_attached_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system has no descriptors for memory."""
    monkeypatch.delattr(os, "memfd_create", raising=False)
    memory = SharedMemory.create(8)
    name = memory.block_name

    def attached() -> SharedMemory:
        other = SharedMemory.__new__(SharedMemory)
        other.adopt(8, PROT_READ | PROT_WRITE, -1, 0, name)
        return other

    other = attached()
    other.array()[1] = 3
    other.close()
    other = attached()
    assert other.array()[1] == memory.array()[1] == 3
    memory.close()
    if os.name != "nt":  # where it is gone with its last holder
        with pytest.raises(OSError, match=name):
            attached()
    other.close()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda memory: pickle.loads(pickle.dumps(memory))])
def test_copies_have_bytes_and_a_descriptor_of_their_own(copied: Callable[[SharedMemory], SharedMemory]) -> None:
    with SharedMemory.create(10) as memory:
        memory.array()[:] = range(10)
        other = copied(memory)
        memory.array()[0] = 7
        assert other.array().tolist() == list(range(10))
        assert other.fd != memory.fd
    assert other.array()[9] == 9
    other.array()[9] = 1
    other.close()


def test_a_copy_of_a_file_is_as_writable_as_the_file_was(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(bytes(range(100)))
    with path.open("rb") as file:
        memory = SharedMemory.from_fd(20, PROT_READ, file.fileno(), 7)
    other = copy.copy(memory)
    path.write_bytes(b"")
    assert other.array().tolist() == list(range(7, 27))
    assert not other.array().flags.writeable


def test_closed_memory_has_no_copy() -> None:
    memory = SharedMemory.create(10)
    memory.close()
    with pytest.raises(Unmappable, match="closed"):
        copy.copy(memory)
