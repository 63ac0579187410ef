# SPDX-License-Identifier: Apache-2.0
"""PoCL 3.0 from PyPI: compile for the processor that its library of built-in functions was compiled for.

PoCL 3.0 compiles kernels for the processor that its LLVM 14 takes this one for, but its library for Haswell or, where
there is AVX-512, for Skylake servers. LLVM inlines a function only where the caller's processor has all that the
callee's has. So on Zen 1 to 4, Alder Lake, Rocket Lake and everything it takes for an Ice Lake client (Emerald Rapids
is one) each `fma` is a call, and convolutions reach a tenth of the speed. A processor that LLVM does not know at all
is `generic`, for which its clang refuses to compile.

The name is a C string that the device structure points to. Before the first build the pointer is set to the library's
own name, as PoCL 4 and later have it. All checks are exact; whoever calls this must still try a build before the
device is trusted (probe.py does).
"""

from __future__ import annotations

import ctypes
import logging
import os
import struct
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    import pyopencl as cl

    from gpu_driver.discovery.host_cpu import HostCpu

_LOG = logging.getLogger(__name__)
_UNKNOWN = "generic"
_TRIPLE, _LIBRARY_TRIPLE = b"x86_64-", "-linux-gnu-"
_STRUCTURE_BYTES = 1024  # the name was found at byte 640, the target triple just before it
_POINTER_BYTES = 8
# What LLVM's code generator may use by itself for these names; instructions only called by name are left out.
_HASWELL_FLAGS = frozenset(
    {"sse4_1", "sse4_2", "ssse3", "avx", "avx2", "fma", "bmi1", "bmi2", "f16c", "movbe", "popcnt", "abm"}
)
SKX_FLAGS = _HASWELL_FLAGS | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "adx"}
# The libraries' processors, and the names (LLVM 14's) whose processors have all that the library's has: found with
# `opt -passes=inline`, a callee with the attributes of PoCL's library and a caller of every name.
_SKX, _HASWELL = "skx", "haswell"
_INLINES = {
    _SKX: frozenset(
        {"skx", "skylake-avx512", "cascadelake", "cooperlake", "icelake-server", "tigerlake", "sapphirerapids"}
    ),
    _HASWELL: frozenset({"haswell", "broadwell", "skylake"}),
}
_lock = threading.Lock()
_repaired: dict[int, str] = {}


@dataclass(frozen=True)
class Repair:
    """Outcome: the name written, or why none was; is_vital: nothing builds without."""

    name: str | None
    reason: str | None = None
    is_vital: bool = False


def compiled_for(platform_version: str, device_version: str) -> str | None:
    """The processor that this PoCL compiles kernels for; None for every other platform (strings as OpenCL has them)."""
    if "PoCL 3.0" not in platform_version or "LLVM 14." not in platform_version:
        return None
    return device_version.partition(_LIBRARY_TRIPLE)[2] or None


def needs_repair(platform_version: str, device_version: str, cpu: HostCpu) -> bool:
    """Whether this is the PoCL and the processor of the fault, and kernels would not build or would run slowly."""
    name = compiled_for(platform_version, device_version)
    if name is None or name == _UNKNOWN:
        return name is not None
    replacement = replacement_name(cpu)
    takes_skx = "avx512f" in cpu.flags  # for PoCL this flag alone decides between the two libraries
    return replacement is not None and takes_skx == (replacement == _SKX) and name not in _INLINES[replacement]


def replacement_name(cpu: HostCpu) -> str | None:
    """The newest of the libraries' processors all of whose instructions this processor has."""
    if not cpu.is_x86:
        return None
    if cpu.flags >= SKX_FLAGS:
        return _SKX
    return _HASWELL if cpu.flags >= _HASWELL_FLAGS else None


def repair(device: cl.Device, cpu: HostCpu) -> Repair:
    """Rename the processor of a device for which `needs_repair` holds. At most once per device and process."""
    with _lock:
        address = device.int_ptr
        if address in _repaired:
            return Repair(_repaired[address])
        found = str(compiled_for(device.platform.version, device.version))
        name, is_vital = replacement_name(cpu), found == _UNKNOWN
        if name is None:
            return Repair(None, "its compiler does not know this processor, which lacks AVX2 and FMA", is_vital)
        try:
            field = _find_field(address, device.name, found)
            copied = ctypes.CDLL(None).strdup
            copied.restype, copied.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
            ctypes.c_void_p.from_address(field).value = copied(name.encode())  # for as long as the process lives
        except (OSError, ValueError, struct.error) as error:
            reason = f"its compiler takes this processor for '{found}' and cannot be told to use '{name}': {error}"
            _LOG.warning("%s: %s", device.name, reason)
            return Repair(None, reason, is_vital)
        _repaired[address] = name
        _LOG.info("%s: compiler target '%s' replaced by '%s'", device.name, found, name)
        return Repair(name)


def _find_field(address: int, device_name: str, name: str) -> int:
    """Where the structure points to the processor's name; ValueError when anything looks different from PoCL 3.0."""
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
        address + place * _POINTER_BYTES
        for place, (before, text) in enumerate(zip([None, *strings], strings, strict=False))
        if text == name.encode() and before is not None and before.startswith(_TRIPLE)
    ]
    if len(found) != 1:
        raise ValueError(f"the device structure holds the name {len(found)} times, not once")
    if not _is_writable(found[0], _POINTER_BYTES):
        raise ValueError("the structure lies in read-only memory")
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
