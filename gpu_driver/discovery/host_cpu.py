# SPDX-License-Identifier: Apache-2.0
"""What the host's processor is, as far as an OpenCL device that runs on it depends on it."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import platform
import sys
from pathlib import Path

from nn_runtime.value_classes import dataclass

_CPUINFO = Path("/proc/cpuinfo")
_ARM_MODEL = "CPU implementer", "CPU part", "CPU variant", "CPU revision"
_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA = 158, 0x1023, 18


@dataclass(frozen=True)
class HostCpu:
    """Machine ("x86_64"), model name (on ARM implementer and part), and instruction set flags as Linux spells them.

    Empty where unknown.
    """

    machine: str
    model: str
    flags: frozenset[str]

    @property
    def is_x86(self) -> bool:
        """Whether it has the instructions of x86-64."""
        return self.machine.lower() in ("x86_64", "amd64")

    @property
    def digest(self) -> str:
        """Short hash over all of it: compiled code of one digest must not run on another."""
        text = "\n".join([self.machine, self.model, *sorted(self.flags)])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def parse_cpuinfo(text: str, machine: str) -> HostCpu:
    """HostCpu from the first processor's lines of /proc/cpuinfo."""
    fields: dict[str, str] = {}
    for line in text.split("\n\n", 1)[0].splitlines():
        key, _, value = line.partition(":")
        fields[key.strip()] = value.strip()
    flags = fields.get("flags", fields.get("Features", ""))
    parts = [fields[key] for key in _ARM_MODEL if key in fields]
    return HostCpu(machine, fields.get("model name", " ".join(parts)), frozenset(flags.split()))


@functools.cache
def host_cpu() -> HostCpu:
    """The processor of this machine; without /proc/cpuinfo only what Python's `platform` knows."""
    try:
        with _CPUINFO.open(encoding="utf-8", errors="replace") as stream:
            text = stream.read(1 << 16)
    except OSError:
        return HostCpu(platform.machine(), platform.processor(), frozenset())
    return parse_cpuinfo(text, platform.machine())


@functools.cache
def may_use_tiles() -> bool:
    """Ask Linux on x86-64 for the tile registers of AMX, which no thread of a process may use before that.

    Granted for good; every stack for signals (sigaltstack) must have room for them from then on: 11 KB, which what asks
    the kernel how much it needs has. Refused by kernels before 5.16, and where a thread has a smaller one already.
    Source: https://docs.kernel.org/arch/x86/xstate.html
    """
    if not {"amx_tile", "amx_int8"} <= host_cpu().flags or sys.maxsize < 1 << 32:  # 32 bits: other numbers of calls
        return False
    result: int = ctypes.CDLL(None).syscall(_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA)
    return result == 0
