# SPDX-License-Identifier: Apache-2.0
"""What the host's processor is, as far as an OpenCL device that runs on it depends on it."""

from __future__ import annotations

import functools
import hashlib
import platform
from dataclasses import dataclass
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class HostCpu:
    """Machine ("x86_64"), model name, and instruction set flags as Linux spells them (empty where unknown)."""

    machine: str
    model: str
    flags: frozenset[str]

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
    return HostCpu(machine, fields.get("model name", ""), frozenset(flags.split()))


@functools.cache
def host_cpu() -> HostCpu:
    """The processor of this machine; without /proc/cpuinfo only what Python's `platform` knows."""
    try:
        with _CPUINFO.open(encoding="utf-8", errors="replace") as stream:
            text = stream.read(1 << 16)
    except OSError:
        return HostCpu(platform.machine(), platform.processor(), frozenset())
    return parse_cpuinfo(text, platform.machine())
