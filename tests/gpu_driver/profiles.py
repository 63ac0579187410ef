# SPDX-License-Identifier: Apache-2.0
"""Made-up device profiles, for tests that need no device."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpu_driver.device_profile import DeviceProfile
from gpu_driver.discovery import dot_products
from nn_runtime.codes import DeviceTypeCode

if TYPE_CHECKING:
    from gpu_driver.discovery.host_cpu import HostCpu

CPU_PROFILE = DeviceProfile(
    slug="pocl",
    name="opencl-pocl-0",
    type=DeviceTypeCode.CPU,
    platform_version="OpenCL 3.0",
    device_version="OpenCL 3.0",
    driver_version="3.0",
    identity="0" * 64,
    compute_units=2,
    max_work_group_size=4096,
    max_work_item_sizes=(4096, 4096, 4096),
    max_alloc_bytes=2**31,
    global_mem_bytes=2**33,
    local_mem_bytes=2**20,
    mem_base_addr_align_bytes=128,
    registers=32,
    host_unified_memory=True,
    fp64=True,
)
GPU_PROFILE = replace(CPU_PROFILE, slug="nvidia", name="opencl-nvidia-0", type=DeviceTypeCode.GPU)


def has_instructions(dot4: int, cpu: HostCpu) -> bool:
    """Tell whether a processor has what a form of products of bytes is made of, and lets this process use it."""
    has = any(form.needed <= cpu.flags for form in dot_products._FORMS.values() if form.dot4 == dot4)
    return has and (dot4 != dot_products.AMX or dot_products.may_use_tiles())
