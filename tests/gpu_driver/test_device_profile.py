# SPDX-License-Identifier: Apache-2.0
"""Profiles are plain values; the shipped performance table covers every device and operand type."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

import gpu_driver
from gpu_driver.device_profile import DeviceProfile, capabilities_of
from gpu_driver.device_query import profile_of, registers_of
from gpu_driver.discovery.dot_products import AVX_VNNI
from gpu_driver.discovery.host_cpu import HostCpu
from gpu_driver.discovery.platforms import FoundDevice, find_devices
from gpu_driver.discovery.pocl_repair import SKX_FLAGS
from nn_runtime.codes import DeviceTypeCode, OperandCode

_PROFILE = DeviceProfile(
    slug="pocl", name="opencl-pocl-0", type=DeviceTypeCode.CPU, platform_version="p", device_version="d",
    driver_version="1", identity="i", compute_units=2, max_work_group_size=4096, max_work_item_sizes=(4096,) * 3,
    max_alloc_bytes=1 << 31, global_mem_bytes=1 << 32, local_mem_bytes=1 << 20, mem_base_addr_align_bytes=128,
    registers=32, host_unified_memory=True, fp64=True,
)  # fmt: skip
_USABLE = [device for device in find_devices() if device.usable]


def test_flags_follow_type_and_features() -> None:
    assert _PROFILE.is_cpu
    assert not replace(_PROFILE, type=DeviceTypeCode.GPU).is_cpu
    assert (_PROFILE.dot4, _PROFILE.x86_avx512) == (0, False)
    assert replace(_PROFILE, features=frozenset({"x86_vnni", "mma_80"})).x86_avx512
    assert replace(_PROFILE, features=frozenset({"x86_avx_vnni"})).dot4 == AVX_VNNI
    assert not replace(_PROFILE, features=frozenset({"x86_avx_vnni"})).x86_avx512


@pytest.mark.parametrize("found", _USABLE, ids=lambda found: found.name)
def test_profile_of_a_device(found: FoundDevice) -> None:
    profile = profile_of(found)
    assert pickle.loads(pickle.dumps(profile)) == profile
    assert profile == profile_of(found)
    assert profile.name == found.name
    assert profile.compute_units > 0
    assert 0 < profile.max_alloc_bytes <= profile.global_mem_bytes
    assert profile.mem_base_addr_align_bytes >= 1


@pytest.mark.parametrize(
    ("slug", "features", "flags", "target", "registers"),
    [
        ("pocl", (), SKX_FLAGS, None, 32), ("pocl", (), {"avx2", "avx512f"}, None, 8), ("pocl", (), {"asimd"}, None, 8),
        ("pocl", ("x86_vnni",), set(), None, 32), ("pocl", (), SKX_FLAGS, "core-avx2", 32),
        ("intel", (), SKX_FLAGS, None, 32), ("intel", (), SKX_FLAGS, "skx", 32),
        ("intel", (), SKX_FLAGS, "core-avx2", 8), ("intel", ("x86_vnni",), set(), None, 32),
        ("intel", (), set(), None, 8),
    ],
)  # fmt: skip
def test_registers(
    slug: str, features: tuple[str, ...], flags: set[str], target: str | None, registers: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.delenv("CL_CONFIG_CPU_TARGET_ARCH", raising=False)
    if target is not None:
        monkeypatch.setenv("CL_CONFIG_CPU_TARGET_ARCH", target)
    found = cast("FoundDevice", SimpleNamespace(slug=slug, features=features))
    assert registers_of(found, HostCpu("", "", frozenset(flags))) == registers


@pytest.mark.parametrize("type_", [DeviceTypeCode.CPU, DeviceTypeCode.GPU, DeviceTypeCode.ACCELERATOR])
@pytest.mark.parametrize("slug", ["pocl", "intel", "nvidia", "rusticl", "oclgrind", "never_heard_of"])
def test_capabilities_cover_every_operand_type(slug: str, type_: DeviceTypeCode) -> None:
    capabilities = capabilities_of(replace(_PROFILE, slug=slug, type=type_))
    assert set(capabilities.operand_performance) == {int(code) for code in OperandCode if code < 10000}
    figures = [
        *capabilities.operand_performance.values(), capabilities.relaxed_float32_to_float16_scalar,
        capabilities.relaxed_float32_to_float16_tensor, capabilities.if_performance, capabilities.while_performance,
    ]  # fmt: skip
    assert all(figure.exec_time > 0 and figure.power_usage > 0 for figure in figures)


def test_cpu_and_gpu_beat_the_cpu_driver_and_an_interpreter_does_not() -> None:
    def float_time(slug: str, type_: DeviceTypeCode) -> float:
        capabilities = capabilities_of(replace(_PROFILE, slug=slug, type=type_))
        return capabilities.operand_performance[OperandCode.TENSOR_FLOAT32].exec_time

    assert float_time("nvidia", DeviceTypeCode.GPU) < float_time("pocl", DeviceTypeCode.CPU) < 1
    assert float_time("oclgrind", DeviceTypeCode.CPU) > 1


def test_table_names_only_operand_types() -> None:
    table = Path(gpu_driver.__file__).parent / "profiles" / "capabilities.json"
    for row in json.loads(table.read_text(encoding="utf-8"))["classes"]:
        assert set(row["operands"]) <= set(OperandCode.__members__)
