# SPDX-License-Identifier: Apache-2.0
"""What launchers and the partitioner may know of an OpenCL device: limits, abilities, shipped performance figures."""

from __future__ import annotations

import functools
import json
import re
from dataclasses import field
from importlib import resources

from gpu_driver.discovery.dot_products import AVX512_VNNI, VBMI, WIDE_FORMS, best_form
from gpu_driver.discovery.matrix_units import FEATURES as MATRIX_UNIT_FEATURES
from gpu_driver.tuning_values import Tuning
from nn_runtime.codes import DeviceTypeCode, OperandCode
from nn_runtime.hal.types import Capabilities, PerformanceInfo
from nn_runtime.value_classes import dataclass

CYCLE_COUNTER = "cycle_counter"
PERSISTENT_EMULATED = "persistent_emulated"
"""Feature of a device said to be a GPU with groups that may wait for each other: for tests."""
PERSISTENT_ITEMS_PER_UNIT = 256
"""Of a compute unit: it has registers and local memory for them (tests/platforms/test_ptx.py)."""
MOST_PERSISTENT_FLOPS, MOST_PERSISTENT_BYTES = 80_000_000, 8_000_000
"""Of an operation that groups are to stay for."""
_SLOW_TO_BUILD = "rusticl"
_POCL = re.compile(r"\bPoCL (\d+)")
_POCLS_LOSING_ASSEMBLY, _ASSEMBLING_ALWAYS = range(4, 7), "chain.cl"
"""They take inline assembly for a call of their own, where a kernel has no such call, and end the process; chains have.
Source: handleLocalMemAllocas in lib/llvmopencl/WorkitemLoops.cc of PoCL v4.0 to v6.0.
"""
_OEM_FIRST = 10000


@dataclass(frozen=True)
class DeviceProfile:
    """One device as plain values: can be pickled, compared, and made up in tests.

    identity: hash of device, driver and platform versions, the key of everything compiled for it. Sizes in bytes
    where the name says so; mem_base_addr_align_bytes: alignment of a sub-buffer.
    registers: vectors of 16 floats that a core's registers hold, of a CPU. fp64: double arithmetic. features: assembly
    variants that were seen to work. device_name: what OpenCL calls it. tuning: numbers for speed, nothing that changes
    what is computed. quantizes_inputs: whether products with weights that were bytes may make bytes of their inputs.
    tells_times: whether its events have times; those of rusticl in Mesa 22 have not. runs_once: whether what is lowered
    for it runs once, at preparation, so that programs had better be quick to compile than fast.
    """

    slug: str
    name: str
    type: DeviceTypeCode
    platform_version: str
    device_version: str
    driver_version: str
    identity: str
    compute_units: int
    max_work_group_size: int
    max_work_item_sizes: tuple[int, ...]
    max_alloc_bytes: int
    global_mem_bytes: int
    local_mem_bytes: int
    mem_base_addr_align_bytes: int
    registers: int
    host_unified_memory: bool
    fp64: bool
    features: frozenset[str] = field(default=frozenset())
    device_name: str = ""
    tuning: Tuning = field(default=Tuning())
    quantizes_inputs: bool = False
    tells_times: bool = True
    runs_once: bool = False

    @property
    def is_cpu(self) -> bool:
        """Whether work-items are loops on CPU threads: one register tile each, explicit vectors, no local memory."""
        return self.type == DeviceTypeCode.CPU

    @property
    def builds_chains(self) -> bool:
        """Whether chain.cl is for this device: a CPU whose compiler does not take minutes for it (llvmpipe's does).

        Not for what runs once: its program takes longer to compile than those of a few operations.
        """
        return self.is_cpu and self.slug != _SLOW_TO_BUILD and not self.runs_once

    @property
    def uses_host_memory(self) -> bool:
        """Whether kernels see host memory in place and at once: a CPU whose runtime was seen to make no copies."""
        return self.is_cpu and self.slug in ("pocl", "intel")

    @property
    def is_discrete(self) -> bool:
        """Whether it is a GPU with memory of its own, which it fills from the host's over a bus."""
        return self.type == DeviceTypeCode.GPU and not self.host_unified_memory

    @property
    def cycle_counter(self) -> bool:
        """Whether kernels can read the processor's cycle counter."""
        return CYCLE_COUNTER in self.features

    @property
    def dot4(self) -> int:
        """DOT4 of common/dot4.h: the best form of products of bytes that was seen to work, else 0."""
        return best_form(self.features)

    @property
    def dot4_of_vectors(self) -> int:
        """The best such form that has vectors of sums: not AMX, whose instructions come with the others' (dot4.h)."""
        return min(self.dot4, AVX512_VNNI)

    def takes_assembly(self, source_name: str) -> bool:
        """Tell whether the inline assembly that was seen to work does so in the kernels of a file, too."""
        version = _POCL.search(self.platform_version)
        loses = version is not None and int(version[1]) in _POCLS_LOSING_ASSEMBLY
        return not loses or source_name == _ASSEMBLING_ALWAYS

    @property
    def x86_avx512(self) -> bool:
        """Whether inline assembly with the registers of AVX-512 works, vpdpbusd among it."""
        return self.dot4 in WIDE_FORMS

    @property
    def x86_vbmi(self) -> bool:
        """Whether those that pick among 128 bytes work, too."""
        return VBMI in self.features

    @property
    def matrix_units(self) -> int | None:
        """MATRIX_UNITS of common/mma.h: the form of NVIDIA's matrix instruction that was seen to work, else None."""
        return next((level for name, level in MATRIX_UNIT_FEATURES.items() if name in self.features), None)

    @property
    def has_persistent_kernels(self) -> bool:
        """Whether groups, some for each compute unit, may wait for each other: NVIDIA's GPUs, by PTX that works."""
        return not self.is_cpu and (bool(self.matrix_units) or PERSISTENT_EMULATED in self.features)

    @property
    def persistent_items(self) -> int:
        """How many work-items stay."""
        return PERSISTENT_ITEMS_PER_UNIT * self.compute_units

    def suits_persistence(self, flops: int, bytes_moved: int) -> bool:
        """Whether groups that stay are for such an operation: it takes about as long as it takes to enqueue it."""
        return self.has_persistent_kernels and flops <= MOST_PERSISTENT_FLOPS and bytes_moved <= MOST_PERSISTENT_BYTES


def capabilities_of(profile: DeviceProfile) -> Capabilities:
    """Performance figures of the device's class, for every operand type, from the shipped table: never changing."""
    row = next(row for row in _table() if row.fits(profile))
    operands = {int(code): row.operands.get(code.name, row.default) for code in OperandCode if code < _OEM_FIRST}
    return Capabilities(operands, row.relaxed, row.relaxed, row.if_, row.while_)


@dataclass(frozen=True)
class _Class:
    """A row of profiles/capabilities.json."""

    slugs: tuple[str, ...]
    type_name: str | None
    default: PerformanceInfo
    operands: dict[str, PerformanceInfo]
    relaxed: PerformanceInfo
    if_: PerformanceInfo
    while_: PerformanceInfo

    def fits(self, profile: DeviceProfile) -> bool:
        """Whether the class covers a device; no slugs means any, no type too."""
        return (not self.slugs or profile.slug in self.slugs) and self.type_name in (None, profile.type.name)


@functools.cache
def _table() -> tuple[_Class, ...]:
    text = resources.files("gpu_driver").joinpath("profiles/capabilities.json").read_text(encoding="utf-8")
    return tuple(
        _Class(
            tuple(row["slugs"]),
            row["type"],
            PerformanceInfo(*row["default"]),
            {name: PerformanceInfo(*pair) for name, pair in row["operands"].items()},
            PerformanceInfo(*row["relaxed"]),
            PerformanceInfo(*row["if"]),
            PerformanceInfo(*row["while"]),
        )
        for row in json.loads(text)["classes"]
    )
