# SPDX-License-Identifier: Apache-2.0
"""The profile of an OpenCL device, as OpenCL and the search for devices tell it."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from gpu_driver.device_profile import CYCLE_COUNTER, DeviceProfile
from gpu_driver.discovery.dot_products import WIDE_FORMS, best_form
from gpu_driver.discovery.host_cpu import host_cpu
from gpu_driver.discovery.pocl_repair import SKX_FLAGS
from gpu_driver.processors import usable_processors
from gpu_driver.tuning import tuning_for
from nn_runtime.codes import DeviceTypeCode

if TYPE_CHECKING:
    from gpu_driver.discovery.host_cpu import HostCpu
    from gpu_driver.discovery.platforms import FoundDevice

_INTEL_TARGET, _WIDE_TARGETS = "CL_CONFIG_CPU_TARGET_ARCH", ("native", "skx")
"""The variable by which Intel's runtime compiles for another processor, and values that leave AVX-512 in use."""


def profile_of(found: FoundDevice) -> DeviceProfile:
    """Read the profile of a usable device; no context is opened."""
    device = found.device
    profile = DeviceProfile(
        slug=found.slug,
        name=found.name,
        type=found.type,
        platform_version=found.platform_version,
        device_version=found.device_version,
        driver_version=found.driver_version,
        identity=found.identity,
        compute_units=_compute_units(found),
        max_work_group_size=device.max_work_group_size,
        max_work_item_sizes=tuple(device.max_work_item_sizes),
        max_alloc_bytes=device.max_mem_alloc_size,
        global_mem_bytes=device.global_mem_size,
        local_mem_bytes=device.local_mem_size,
        mem_base_addr_align_bytes=device.mem_base_addr_align // 8,  # OpenCL counts bits
        registers=registers_of(found, host_cpu()),
        host_unified_memory=bool(device.host_unified_memory),
        fp64="cl_khr_fp64" in device.extensions.split(),
        features=frozenset(found.features) | _abilities(found),
        device_name=found.device_name,
        tells_times=device.profiling_timer_resolution > 0,
    )
    return replace(profile, tuning=tuning_for(profile))


def _compute_units(found: FoundDevice) -> int:
    """Those of a CPU are processors, of which the process may have the time of fewer."""
    units: int = found.device.max_compute_units
    return min(units, usable_processors()) if found.type == DeviceTypeCode.CPU else units


def registers_of(found: FoundDevice, cpu: HostCpu) -> int:
    """Return how many vectors of 16 floats a core's registers hold: 32 of 16, 16 of 8 (AVX) or 32 of 4 (NEON).

    That AVX-512 is compiled for is known where its assembly was seen to work, else taken from the processor.
    """
    is_older = found.slug == "intel" and os.environ.get(_INTEL_TARGET, _WIDE_TARGETS[0]) not in _WIDE_TARGETS
    is_wide = best_form(found.features) in WIDE_FORMS or (cpu.flags >= SKX_FLAGS and not is_older)
    return 32 if is_wide else 8


def _abilities(found: FoundDevice) -> frozenset[str]:
    """Return what follows from the kind of device: LLVM's cycle counter is a plain instruction on x86."""
    has_counter = host_cpu().is_x86 and found.type == DeviceTypeCode.CPU and found.slug in ("pocl", "intel")
    return frozenset({CYCLE_COUNTER} if has_counter else ())
