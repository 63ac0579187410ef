# SPDX-License-Identifier: Apache-2.0
"""PoCL 3.0 from PyPI on processors newer than its LLVM 14: give the processor a name it knows.

That LLVM calls a processor it does not know `generic`, and its clang then refuses `-target-cpu generic`, so
nothing builds. The name is a C string the device structure points to. Before the first build its 7 characters
are overwritten in place by the newest name whose instructions the processor has. All checks are exact; whoever
calls this must still try a build before the device is trusted (probe.py does).
"""

from __future__ import annotations

import ctypes
import logging
import os
import struct
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyopencl as cl

    from gpu_driver.discovery.host_cpu import HostCpu

_LOG = logging.getLogger(__name__)
_GENERIC = b"generic"
_STRUCTURE_BYTES = 1024  # the name was found at byte 640, the target triple just before it
_POINTER_BYTES = 8
# What LLVM's code generator may use by itself for these names; instructions only called by name are left out.
_HASWELL_FLAGS = frozenset(
    {"sse4_1", "sse4_2", "ssse3", "avx", "avx2", "fma", "bmi1", "bmi2", "f16c", "movbe", "popcnt", "abm"}
)
_SKX_FLAGS = _HASWELL_FLAGS | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "adx"}
_lock = threading.Lock()
_repaired: dict[int, str] = {}


@dataclass(frozen=True)
class Repair:
    """Outcome: the name written, or why the device must not be used."""

    name: str | None
    reason: str | None = None


def needs_repair(platform_version: str, device_version: str) -> bool:
    """Whether this is the PoCL and the processor name of the fault (both strings as OpenCL reports them)."""
    return "PoCL 3.0" in platform_version and "LLVM 14." in platform_version and device_version.endswith("-generic")


def replacement_name(cpu: HostCpu) -> str | None:
    """The newest of LLVM's processor names all of whose instructions this processor has."""
    if cpu.machine.lower() not in ("x86_64", "amd64"):
        return None
    if cpu.flags >= _SKX_FLAGS:
        return "skx"
    return "haswell" if cpu.flags >= _HASWELL_FLAGS else None


def repair(device: cl.Device, cpu: HostCpu) -> Repair:
    """Rename the processor of a device for which `needs_repair` holds. At most once per device and process."""
    with _lock:
        address = device.int_ptr
        if address in _repaired:
            return Repair(_repaired[address])
        name = replacement_name(cpu)
        if name is None:
            return Repair(None, "its compiler does not know this processor, which lacks AVX2 and FMA")
        try:
            target = _find_name(address, device.name)
        except (OSError, ValueError, struct.error) as error:
            return Repair(None, f"its compiler does not know this processor, and the repair is not possible: {error}")
        ctypes.memmove(target, name.encode().ljust(len(_GENERIC) + 1, b"\0"), len(_GENERIC) + 1)
        _repaired[address] = name
        _LOG.info("%s: compiler target 'generic' replaced by '%s'", device.name, name)
        return Repair(name)


def _find_name(address: int, device_name: str) -> int:
    """Address of the only "generic" in the structure; ValueError when anything looks different from PoCL 3.0."""
    if sys.platform != "linux" or struct.calcsize("P") != _POINTER_BYTES:
        raise ValueError("only known on 64-bit Linux")
    memory = os.open("/proc/self/mem", os.O_RDONLY)
    try:
        pointers: tuple[int, ...] = struct.unpack(
            f"{_STRUCTURE_BYTES // _POINTER_BYTES}Q", os.pread(memory, _STRUCTURE_BYTES, address)
        )
        strings = [_read_string(memory, pointer) for pointer in pointers]
    finally:
        os.close(memory)
    if device_name.encode() not in strings:
        raise ValueError("the device structure does not hold the device's name")
    found = [
        pointer
        for before, text, pointer in zip([None, *strings], strings, pointers, strict=False)
        if text == _GENERIC and before is not None and before.startswith(b"x86_64-")
    ]
    if len(found) != 1:
        raise ValueError(f"the device structure holds the name {len(found)} times, not once")
    if not _is_writable(found[0], len(_GENERIC) + 1):
        raise ValueError("the name lies in read-only memory")
    return found[0]


def _read_string(memory: int, address: int) -> bytes | None:
    """The C string at an address, at most 255 characters, or None where no memory is. Reading cannot fault."""
    if not 4096 <= address < 1 << 47:
        return None
    try:
        return os.pread(memory, 256, address).split(b"\0", 1)[0]
    except OSError:
        return None


def _is_writable(address: int, size_bytes: int) -> bool:
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
        span, permissions = line.split(None, 2)[:2]
        first, last = (int(part, 16) for part in span.split("-"))
        if first <= address and address + size_bytes <= last:
            return permissions.startswith("rw")
    return False
