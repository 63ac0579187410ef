# SPDX-License-Identifier: Apache-2.0
"""Shared memory pools: anonymous (memfd, else multiprocessing.shared_memory) or a mapped file descriptor."""

from __future__ import annotations

import mmap
import os
from multiprocessing import shared_memory
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.errors import BadData, Unmappable

if TYPE_CHECKING:
    import numpy.typing as npt

PROT_READ = 1
PROT_WRITE = 2


class SharedMemory:
    """A pool of bytes that several holders map: `size_bytes`, and `array()` as its mapping.

    Made by `create` (anonymous) or `from_fd`. The mapping is made at the first use and lives until `close`, or until
    the last array that shows it is gone.
    """

    def __init__(
        self, size_bytes: int, prot: int, fd: int, offset: int, block: shared_memory.SharedMemory | None
    ) -> None:
        """Use `create` or `from_fd` instead."""
        self.size_bytes = size_bytes
        self.prot = prot
        self.offset = offset
        self._fd = fd
        self._block = block
        self._array: npt.NDArray[np.uint8] | None = None

    @classmethod
    def create(cls, size_bytes: int) -> SharedMemory:
        """Return new zeroed shared memory; raises BadData for a size that is not positive."""
        if size_bytes <= 0:
            raise BadData(f"shared memory: size must be > 0 bytes, got {size_bytes}")
        if not hasattr(os, "memfd_create"):
            block = shared_memory.SharedMemory(create=True, size=size_bytes)
            return cls(size_bytes, PROT_READ | PROT_WRITE, -1, 0, block)
        fd = os.memfd_create("nn_runtime")
        try:
            os.ftruncate(fd, size_bytes)
        except OSError:
            os.close(fd)
            raise
        return cls(size_bytes, PROT_READ | PROT_WRITE, fd, 0, None)

    @classmethod
    def from_fd(cls, size_bytes: int, prot: int, fd: int, offset: int) -> SharedMemory:
        """Return a pool over `size_bytes` of a file from `offset` (any alignment); the descriptor is duplicated.

        `prot` is PROT_READ (1), PROT_WRITE (2) or both. Raises Unmappable if the descriptor cannot be duplicated.
        """
        if size_bytes < 0 or offset < 0:
            raise BadData(f"memory from fd: size and offset must be >= 0, got {size_bytes} and {offset}")
        if prot & ~(PROT_READ | PROT_WRITE) or prot == 0:
            raise BadData(f"memory from fd: prot must be PROT_READ (1), PROT_WRITE (2) or both, got {prot}")
        try:
            duplicate = os.dup(fd)
        except OSError as error:
            raise Unmappable(f"memory from fd: descriptor {fd} cannot be duplicated: {error.strerror}") from error
        return cls(size_bytes, prot, duplicate, offset, None)

    @property
    def fd(self) -> int:
        """File descriptor of the pool, or -1 where the system has none for it."""
        return self._fd

    def array(self) -> npt.NDArray[np.uint8]:
        """Return the mapped bytes [size_bytes], read-only unless PROT_WRITE; raises Unmappable."""
        if self._array is None:
            self._array = self._map()
        return self._array

    def close(self) -> None:
        """Give the descriptor back; arrays that still show the mapping stay valid."""
        self._array = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if self._block is not None:
            self._block.unlink()
            self._block = None

    def __enter__(self) -> SharedMemory:
        """Return itself."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Close."""
        self.close()

    def __del__(self) -> None:
        """Give the descriptor back when nobody holds the pool any more."""
        self.close()

    def _map(self) -> npt.NDArray[np.uint8]:
        if self._block is not None and self._block.buf is not None:
            return np.frombuffer(self._block.buf, np.uint8, self.size_bytes)
        if self._fd < 0:
            raise Unmappable("shared memory is closed")
        start = self.offset % mmap.ALLOCATIONGRANULARITY
        access = mmap.ACCESS_WRITE if self.prot & PROT_WRITE else mmap.ACCESS_READ
        try:
            mapping = mmap.mmap(self._fd, self.size_bytes + start, access=access, offset=self.offset - start)
        except (OSError, ValueError) as error:
            raise Unmappable(
                f"memory: {self.size_bytes} bytes at offset {self.offset} cannot be mapped: {error}"
            ) from error
        return np.frombuffer(mapping, np.uint8, self.size_bytes, start)
