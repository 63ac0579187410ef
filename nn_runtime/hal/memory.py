# SPDX-License-Identifier: Apache-2.0
"""Shared memory pools: anonymous (memfd, else multiprocessing.shared_memory), a mapped file, a hardware buffer."""

from __future__ import annotations

import mmap
import os
import stat
from enum import IntEnum, IntFlag
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.errors import BadData, OutOfMemory, Unmappable
from nn_runtime.numeric import whole

if TYPE_CHECKING:
    import numpy.typing as npt

    from nn_runtime.hal.named_block import NamedBlock

PROT_READ = 1
PROT_WRITE = 2
PAGE_BYTES = 4096
"""Memory that begins on a page some devices use in place."""
OTHER_MEMORY_ALIGNMENT = 16
"""Of arrays for a single execution (TakesOtherMemory), in bytes: numpy's own begin so."""


def pages_of_zeros(size_bytes: int) -> npt.NDArray[np.uint8]:
    """Return new bytes [size_bytes] that begin on a page, all 0."""
    room = np.zeros(size_bytes + PAGE_BYTES, np.uint8)
    start = -room.ctypes.data % PAGE_BYTES
    return room[start : start + size_bytes]


class SharedMemory:
    """A pool of bytes that several holders map: `size_bytes`, and `array()` as its mapping.

    Made by `create` (anonymous) or `from_fd`. The mapping is made at the first use and lives until `close`, or until
    the last array that shows it is gone.
    """

    _fd = -1
    _block: NamedBlock | None = None
    _is_owner = True
    is_file = False
    """Whether it shows a file that others may cut short."""

    def __init__(self, size_bytes: int, prot: int, fd: int, offset: int, block: NamedBlock | None) -> None:
        """Use `create` or `from_fd` instead."""
        self.size_bytes = size_bytes
        self.prot = prot
        self.offset = offset
        self._fd = fd
        self._block = block
        self._array: npt.NDArray[np.uint8] | None = None

    @classmethod
    def create(cls, size_bytes: int) -> SharedMemory:
        """Return new zeroed shared memory; raises BadData for a size that is not positive, OutOfMemory."""
        size_bytes = whole("shared memory: size", size_bytes)
        if size_bytes <= 0:
            raise BadData(f"shared memory: size must be > 0 bytes, got {size_bytes}")
        return cls(size_bytes, PROT_READ | PROT_WRITE, *_anonymous(size_bytes))

    @classmethod
    def from_fd(cls, size_bytes: int, prot: int, fd: int, offset: int) -> SharedMemory:
        """Return a pool over `size_bytes` of a file from `offset` (any alignment); the descriptor is duplicated.

        `prot` is PROT_READ (1), PROT_WRITE (2) or both. Raises BadData for a size that is not positive, Unmappable if
        the descriptor cannot be duplicated.
        """
        size_bytes, offset = whole("memory from fd: size", size_bytes), whole("memory from fd: offset", offset)
        prot = whole("memory from fd: prot", prot)
        if size_bytes <= 0 or offset < 0:
            raise BadData(f"memory from fd: size must be > 0 and offset >= 0, got {size_bytes} and {offset}")
        if prot & ~(PROT_READ | PROT_WRITE) or prot == 0:
            raise BadData(f"memory from fd: prot must be PROT_READ (1), PROT_WRITE (2) or both, got {prot}")
        try:
            duplicate = os.dup(whole("memory from fd: descriptor", fd))
        except (OSError, OverflowError) as error:
            raise Unmappable(f"memory from fd: descriptor {fd} cannot be duplicated: {error}") from error
        try:
            _check_mappable(duplicate, prot)
        except BaseException:
            os.close(duplicate)
            raise
        memory = cls(size_bytes, prot, duplicate, offset, None)
        memory.is_file = stat.S_ISREG(os.fstat(duplicate).st_mode)
        return memory

    def adopt(self, size_bytes: int, prot: int, fd: int, offset: int, block_name: str) -> None:
        """Become memory that another process has made: of a descriptor, which is taken over, or of a block's name."""
        block = None
        if block_name:
            from nn_runtime.hal.named_block import NamedBlock

            block = NamedBlock.attach(block_name)
        SharedMemory.__init__(self, size_bytes, prot, fd, offset, block)
        self._is_owner = False

    @property
    def block_name(self) -> str:
        """Name by which other processes find the memory, where the system has no descriptor for it; else empty."""
        return "" if self._block is None else self._block.name

    @property
    def fd(self) -> int:
        """File descriptor of the pool, or -1 where the system has none for it."""
        return self._fd

    @property
    def mapped(self) -> npt.NDArray[np.uint8] | None:
        """The mapped bytes [size_bytes], None before their first use."""
        return self._array

    def file_identity(self) -> tuple[int, int] | None:
        """Return what is equal for pools of the same file, None for what is no file."""
        if self._fd < 0:
            return None
        status = os.fstat(self._fd)
        return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None

    def check_length(self) -> None:
        """Raise Unmappable if the file is too short by now: to touch what is gone would end the process (SIGBUS)."""
        if self.is_file and self._fd >= 0:
            length = os.fstat(self._fd).st_size
            if length < self.offset + self.size_bytes:
                wanted = f"{self.size_bytes} bytes at offset {self.offset}"
                raise Unmappable(f"memory: {wanted} cannot be mapped: the file has {length} bytes now")

    def array(self) -> npt.NDArray[np.uint8]:
        """Return the mapped bytes [size_bytes], read-only unless PROT_WRITE; raises Unmappable."""
        if self.is_file:
            self.check_length()
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
            if self._is_owner:
                self._block.unlink()
            self._block = None

    def __getstate__(self) -> tuple[dict[str, object], bytes]:
        """Return what a copy, here or in another process, is made of: bytes of its own, for the descriptor is ours."""
        others = ("_fd", "_block", "_array", "_is_owner", "is_file", "offset")
        state = {name: value for name, value in vars(self).items() if name not in others}
        return state, self._map().tobytes() if self.size_bytes else b""

    def __setstate__(self, state: tuple[dict[str, object], bytes]) -> None:
        """Become anonymous memory with these bytes."""
        vars(self).update(state[0])
        self._array = None
        self._fd, self.offset, self._block = _anonymous(max(1, self.size_bytes))
        if state[1]:
            prot, self.prot = self.prot, PROT_READ | PROT_WRITE
            self._map()[:] = np.frombuffer(state[1], np.uint8)
            self.prot = prot

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
        except (OSError, ValueError, OverflowError) as error:
            raise Unmappable(
                f"memory: {self.size_bytes} bytes at offset {self.offset} cannot be mapped: {error}"
            ) from error
        return np.frombuffer(mapping, np.uint8, self.size_bytes, start)


class HardwareBufferFormat(IntEnum):
    """Layout of a hardware buffer (AHardwareBuffer_Format)."""

    R8G8B8A8_UNORM = 1
    R8G8B8X8_UNORM = 2
    R8G8B8_UNORM = 3
    R5G6B5_UNORM = 4
    R16G16B16A16_FLOAT = 0x16
    BLOB = 0x21
    R10G10B10A2_UNORM = 0x2B


class HardwareBufferUsage(IntFlag):
    """Who may touch a hardware buffer (AHardwareBuffer_UsageFlags)."""

    CPU_READ = 3
    CPU_WRITE = 3 << 4
    GPU_SAMPLED_IMAGE = 1 << 8
    GPU_FRAMEBUFFER = 1 << 9
    GPU_DATA_BUFFER = 1 << 24


_PIXEL_BYTES = {
    HardwareBufferFormat.R8G8B8A8_UNORM: 4,
    HardwareBufferFormat.R8G8B8X8_UNORM: 4,
    HardwareBufferFormat.R8G8B8_UNORM: 3,
    HardwareBufferFormat.R5G6B5_UNORM: 2,
    HardwareBufferFormat.R16G16B16A16_FLOAT: 8,
    HardwareBufferFormat.BLOB: 1,
    HardwareBufferFormat.R10G10B10A2_UNORM: 4,
}


class HardwareBuffer(SharedMemory):
    """Memory with a format (AHardwareBuffer). BLOB is plain bytes: width is the size, height and layers are 1.

    Of another format only whoever knows it may read or write the bytes, between `lock` and the end of their use: for
    all others `array` raises Unmappable. A request names such a buffer as a whole, with offset and length 0.
    """

    def __init__(
        self,
        width: int,
        height: int = 1,
        layers: int = 1,
        format: HardwareBufferFormat = HardwareBufferFormat.BLOB,
        usage: HardwareBufferUsage = HardwareBufferUsage.CPU_READ | HardwareBufferUsage.CPU_WRITE,
    ) -> None:
        """Take zeroed memory; raises BadData for a size that is not positive, a BLOB of several rows or layers, or a
        format that is not listed; OutOfMemory.
        """
        if whole("hardware buffer: format", format) not in HardwareBufferFormat.__members__.values():
            raise BadData(f"hardware buffer: {format!r} is no known format")
        width, height, layers = (whole("hardware buffer: size", size) for size in (width, height, layers))
        if min(width, height, layers) <= 0:
            raise BadData(f"hardware buffer: sizes must be > 0, got {width} x {height} x {layers}")
        if format == HardwareBufferFormat.BLOB and (height, layers) != (1, 1):
            raise BadData(f"hardware buffer: a BLOB has one row and one layer, got {height} and {layers}")
        self.width, self.height, self.layers = width, height, layers
        self.format = HardwareBufferFormat(format)
        self.usage = HardwareBufferUsage(whole("hardware buffer: usage", usage))
        size_bytes = width * height * layers * _PIXEL_BYTES[self.format]
        super().__init__(size_bytes, PROT_READ | PROT_WRITE, *_anonymous(size_bytes))

    def __str__(self) -> str:
        return f"hardware buffer of format {self.format.name}, {self.width} x {self.height} x {self.layers}"

    @property
    def is_blob(self) -> bool:
        """Whether it is plain bytes."""
        return self.format == HardwareBufferFormat.BLOB

    def array(self) -> npt.NDArray[np.uint8]:
        """Return the bytes of a BLOB; raises Unmappable for other formats, and without CPU usage."""
        if not self.is_blob:
            raise Unmappable(f"wanted plain memory, format BLOB, got a {self}: only who knows the format may lock() it")
        return self.lock()

    def lock(self) -> npt.NDArray[np.uint8]:
        """Return the bytes, rows and layers one after the other without gaps; raises Unmappable without CPU usage."""
        if not (self.usage & HardwareBufferUsage.CPU_READ and self.usage & HardwareBufferUsage.CPU_WRITE):
            raise Unmappable("hardware buffer: its usage does not allow the CPU to read and write it")
        return super().array()


def _check_mappable(fd: int, prot: int) -> None:
    """Raise Unmappable for what has no bytes that can be mapped, or was opened for less than `prot` says."""
    mode = os.fstat(fd).st_mode
    kinds = {"a directory": stat.S_ISDIR, "a pipe": stat.S_ISFIFO, "a socket": stat.S_ISSOCK}
    kind = next((name for name, is_kind in kinds.items() if is_kind(mode)), "")
    if kind:
        raise Unmappable(f"memory from fd: {kind} cannot be mapped")
    try:
        import fcntl
    except ImportError:  # Windows
        return
    access = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
    if access == os.O_WRONLY or (prot & PROT_WRITE and access != os.O_RDWR):
        opened, wanted = ("writing", "read") if access == os.O_WRONLY else ("reading", "write")
        raise Unmappable(f"memory from fd: the descriptor is open for {opened} alone, and prot asks to {wanted}, too")


def _anonymous(size_bytes: int) -> tuple[int, int, NamedBlock | None]:
    """Return (descriptor or -1, offset, block or None) of new zeroed memory; raises OutOfMemory."""
    try:
        if not hasattr(os, "memfd_create"):
            from nn_runtime.hal.named_block import NamedBlock

            return -1, 0, NamedBlock.create(size_bytes)
        return _memory_file(size_bytes), 0, None
    except (OSError, OverflowError) as error:
        raise OutOfMemory(f"shared memory: {size_bytes} bytes cannot be had: {error}") from error


def _memory_file(size_bytes: int) -> int:
    """Return the descriptor of a new file in memory."""
    fd = os.memfd_create("nn_runtime")
    try:
        os.ftruncate(fd, size_bytes)
    except BaseException:
        os.close(fd)
        raise
    return fd
