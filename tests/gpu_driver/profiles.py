# SPDX-License-Identifier: Apache-2.0
"""Made-up device profiles, for tests that need no device."""

from __future__ import annotations

from dataclasses import replace

from gpu_driver.device_profile import DeviceProfile
from nn_runtime.codes import DeviceTypeCode

CPU_PROFILE = DeviceProfile(
    slug="pocl",
    name="opencl-pocl-0",
    type=DeviceTypeCode.CPU,
    vendor="vendor",
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
    fp16=False,
    fp64=True,
    subgroups=False,
    int8_dot=False,
    command_buffer=False,
)
GPU_PROFILE = replace(CPU_PROFILE, slug="nvidia", name="opencl-nvidia-0", type=DeviceTypeCode.GPU)
