# SPDX-License-Identifier: Apache-2.0
"""The repair of PoCL 3.0, and that PoCL's built-in functions are inlined."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, cast

import pytest

from gpu_driver.discovery import pocl_repair
from gpu_driver.discovery.host_cpu import HostCpu
from tests.gpu_driver.discovery.processes import run

if TYPE_CHECKING:
    from pathlib import Path

    import pyopencl as cl

_POCL_3 = "OpenCL 3.0 PoCL 3.0-rc2  Linux, LLVM 14.0.6"
_DEVICE = "OpenCL 3.0 PoCL HSTR: pthread-x86_64-unknown-linux-gnu-"
_FMA = """
import json, tempfile, pyopencl as cl
from pathlib import Path
from gpu_driver.device.programs import ProgramCache
from gpu_driver.device_query import profile_of
from gpu_driver.discovery import platforms
found = [d for d in platforms.find_devices() if d.slug == 'pocl' and d.usable]
for d in found:
    text = "kernel void multiply_add(global float16 *a) { a[0] = fma(a[0], a[1], a[2]); }"
    context = cl.Context([d.device])
    with tempfile.TemporaryDirectory() as folder:
        program = ProgramCache(context, profile_of(d), Path(folder), lambda name: text).get('a.cl', {})
    kernel, queue = program.kernel('multiply_add'), cl.CommandQueue(context)
    buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, 3 * 64)
    kernel.set_arg(0, buffer)
    cl.enqueue_nd_range_kernel(queue, kernel, (1,), (1,))
    queue.finish()
print(json.dumps(len(found)))
"""


def test_replacement_name_needs_every_instruction() -> None:
    haswell, skx = pocl_repair._HASWELL_FLAGS, pocl_repair.SKX_FLAGS
    assert pocl_repair.replacement_name(HostCpu("x86_64", "", skx | {"more"})) == "skx"
    assert pocl_repair.replacement_name(HostCpu("x86_64", "", skx - {"avx512vl"})) == "haswell"
    assert pocl_repair.replacement_name(HostCpu("x86_64", "", haswell - {"fma"})) is None
    assert pocl_repair.replacement_name(HostCpu("aarch64", "", skx)) is None


def _of(*flags: frozenset[str]) -> HostCpu:
    return HostCpu("x86_64", "", frozenset().union(*flags))


def test_only_that_pocl_is_repaired() -> None:
    cpu = _of(pocl_repair.SKX_FLAGS)
    assert pocl_repair.needs_repair(_POCL_3, f"{_DEVICE}generic", cpu)
    assert not pocl_repair.needs_repair(_POCL_3.replace("3.0-rc2", "3.1"), f"{_DEVICE}generic", cpu)
    assert not pocl_repair.needs_repair(_POCL_3.replace("14.0.6", "15.0.1"), f"{_DEVICE}generic", cpu)
    assert not pocl_repair.needs_repair(_POCL_3, "OpenCL 3.0 PoCL HSTR: CUDA-sm_80", cpu)


@pytest.mark.parametrize(
    ("name", "flags", "needed"),
    [
        ("icelake-client", pocl_repair.SKX_FLAGS, True),
        ("rocketlake", pocl_repair.SKX_FLAGS, True),
        ("icelake-server", pocl_repair.SKX_FLAGS, False),
        ("sapphirerapids", pocl_repair.SKX_FLAGS, False),
        ("knl", pocl_repair._HASWELL_FLAGS | {"avx512f"}, False),  # PoCL's library is Skylake's, which this is not
        ("znver1", pocl_repair._HASWELL_FLAGS, True),
        ("znver3", pocl_repair._HASWELL_FLAGS, True),
        ("alderlake", pocl_repair._HASWELL_FLAGS, True),
        ("haswell", pocl_repair._HASWELL_FLAGS, False),
        ("skylake", pocl_repair._HASWELL_FLAGS, False),
        ("ivybridge", frozenset[str]({"avx"}), False),
        ("generic", frozenset[str]({"avx"}), True),
    ],
)
def test_a_processor_that_cannot_inline_built_in_functions_is_renamed(
    name: str, flags: frozenset[str], needed: bool
) -> None:
    assert pocl_repair.needs_repair(_POCL_3, _DEVICE + name, _of(flags)) == needed


def test_pocls_built_in_functions_are_inlined(cache: Path, tmp_path: Path) -> None:
    """Where they are not, each `fma` of a kernel is a call, and convolutions take ten times as long."""
    count = run(_FMA, cache, POCL_CACHE_DIR=str(tmp_path))
    if not count:
        pytest.skip("no usable PoCL")
    made = [file.read_bytes() for file in tmp_path.rglob("multiply_add.so")]
    assert len(made) == count
    assert not any(b"_cl_fma" in machine_code for machine_code in made)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/mem")
def test_repair_refuses_a_structure_it_does_not_know() -> None:
    import ctypes

    class Platform:
        version = _POCL_3

    class Device:
        platform = Platform()
        name, version = "not in there", f"{_DEVICE}generic"
        structure = ctypes.create_string_buffer(4096)
        int_ptr = ctypes.addressof(structure)

    cpu = HostCpu("x86_64", "", pocl_repair.SKX_FLAGS)
    repair = pocl_repair.repair(cast("cl.Device", Device()), cpu)
    assert repair.name is None
    assert repair.is_vital
    assert "does not hold the device's name" in (repair.reason or "")
