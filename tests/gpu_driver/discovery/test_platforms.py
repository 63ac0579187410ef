# SPDX-License-Identifier: Apache-2.0
"""Finding OpenCL devices: names, verdicts, the repair of PoCL 3.0, and machines where something is missing.

The OpenCL loader starts once per process, so what depends on its start runs in processes of its own.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from gpu_driver.discovery import diagnosis, dot_products, icd, matrix_units, platforms, pocl_repair, probe
from gpu_driver.discovery.diagnosis import diagnose
from gpu_driver.discovery.host_cpu import HostCpu, parse_cpuinfo
from gpu_driver.discovery.platforms import FoundDevice
from nn_runtime.codes import DeviceTypeCode

if TYPE_CHECKING:
    from types import ModuleType

_ROOT = Path(__file__).parents[3]
_LIST = """
import json
from gpu_driver.discovery import platforms
print(json.dumps([[d.name, d.usable, d.reason, d.identity] for d in platforms.find_devices()]))
"""
_CORES = """
import json, os
import pyopencl as cl
from gpu_driver.discovery import platforms
(pocl,) = (d.device for d in platforms.find_devices() if d.name == 'opencl-pocl-0')
cl.Context([pocl])
print(json.dumps([sorted(os.sched_getaffinity(int(task))) for task in os.listdir('/proc/self/task')]))
"""
_UNITS = """
import json
from gpu_driver.device_query import profile_of
from gpu_driver.discovery import platforms
found = [d for d in platforms.find_devices() if d.slug in ('pocl', 'intel') and d.usable]
notes = [[note for note in d.notes if 'processors' in note] for d in found]
pocl = [d.device.max_compute_units for d in found if d.slug == 'pocl']
print(json.dumps([[profile_of(d).compute_units for d in found], pocl, notes]))
"""
_INLINE = """
import json
from gpu_driver.discovery import platforms
print(json.dumps([d.inline is not None for d in platforms.find_devices() if d.slug == 'pocl']))
"""
_FMA = """
import json, numpy as np
from gpu_driver.discovery import platforms
from gpu_driver.discovery.trial import run_once
import pyopencl as cl
found = [d for d in platforms.find_devices() if d.slug == 'pocl' and d.usable and 'PoCL 3.0' in d.platform_version]
if found:
    source = "kernel void multiply_add(global float16 *a) { a[0] = fma(a[0], a[1], a[2]); }"
    run_once(cl.Context([found[0].device]), source, "multiply_add", (1,), (1,), [], [np.ones((3, 16), np.float32)])
print(json.dumps(len(found)))
"""
_DOCTOR = """
import json
from gpu_driver.discovery.diagnosis import diagnose
print(json.dumps(diagnose().to_json()))
"""
_NO_HOME = """
import os, pwd
for name in ('HOME', 'XDG_CACHE_HOME', 'NNRT_CACHE_DIR'):
    os.environ.pop(name, None)
def unknown(user):
    raise KeyError(user)
pwd.getpwuid = unknown
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache folder for the module, so that devices are tried out once."""
    return tmp_path_factory.mktemp("cache")


def _run(code: str, cache: Path | str, **variables: str) -> list[object] | dict[str, object]:
    own = (
        icd.VENDORS_VARIABLE,
        "POCL_AFFINITY",
        "POCL_MAX_PTHREAD_COUNT",
        "POCL_CPU_MAX_CU_COUNT",
    )  # as this process has set them
    environment = {name: value for name, value in os.environ.items() if name not in own}
    environment |= {"NNRT_CACHE_DIR": str(cache), "PYTHONPATH": str(_ROOT), **variables}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def _found(slug: str, driver_version: str, library: str, type_: DeviceTypeCode = DeviceTypeCode.CPU) -> FoundDevice:
    return FoundDevice(
        slug, 0, "name", "version", library, "device", "vendor", driver_version, "OpenCL 3.0", type_,
        True, None, (), (), "identity", cast("platforms.cl.Device", None),
    )  # fmt: skip


# --- limits of the process ------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="the size of a process is read from /proc")
def test_too_little_address_space_is_told_before_a_driver_meets_it(cache: Path) -> None:
    code = """
import json, resource
from gpu_driver.discovery import platforms
resource.setrlimit(resource.RLIMIT_AS, (640 << 20, resource.RLIM_INFINITY))
try:
    platforms.find_devices()
except MemoryError as error:
    print(json.dumps([str(error)]))
"""
    (message,) = _run(code, cache)
    wanted = r"OpenCL wants \d+ MiB of address space, this process has \d+ MiB left of 640 MiB \(ulimit -v\)"
    assert re.fullmatch(wanted, str(message))


def test_no_driver_is_tried_here_where_limits_allow_no_child(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It would end this process for the same reason."""
    started: list[subprocess.Popen[str]] = []
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, text=True)

    def start(*_arguments: object, **_options: object) -> subprocess.Popen[str]:
        if started:
            raise OSError(errno.EMFILE, "Too many open files")
        started.append(child)
        return child

    monkeypatch.setenv("NNRT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(probe.subprocess, "Popen", start)
    with pytest.raises(OSError, match="no child process can be started to try OpenCL in: Too many open") as caught:
        probe.library_verdicts(["a", "b"])
    assert caught.value.errno == errno.EMFILE
    assert child.returncode is not None
    assert not list(tmp_path.rglob("*.json"))


# --- names and order ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("platform_name", "slug"),
    [
        ("Portable Computing Language", "pocl"),
        ("Intel(R) OpenCL", "intel"),
        ("Intel(R) OpenCL Graphics", "intel"),
        ("NVIDIA CUDA", "nvidia"),
        ("AMD Accelerated Parallel Processing", "amd"),
        ("rusticl", "rusticl"),
        ("Clover", "mesa"),
        ("Apple", "apple"),
        ("Oclgrind", "oclgrind"),
        ("Some New Platform", "some"),
        ("", "unknown"),
    ],
)
def test_slug(platform_name: str, slug: str) -> None:
    assert platforms.slug_of(platform_name) == slug


def test_numbers_go_by_version_then_library_and_rank_by_type() -> None:
    found = [
        (_found("pocl", "3.10", "/b"), 0),
        (_found("pocl", "3.9", "/c"), 0),
        (_found("oclgrind", "1.0", "/o", DeviceTypeCode.GPU), 0),
        (_found("pocl", "3.10", "/a"), 1),
        (_found("pocl", "3.10", "/a"), 0),
        (_found("nvidia", "550.1", "/n", DeviceTypeCode.GPU), 0),
    ]
    numbered = platforms._number(found)
    assert [(device.name, device.library) for device in numbered] == [
        ("opencl-nvidia-0", "/n"),
        ("opencl-pocl-0", "/c"),
        ("opencl-pocl-1", "/a"),
        ("opencl-pocl-2", "/a"),
        ("opencl-pocl-3", "/b"),
        ("opencl-oclgrind-0", "/o"),
    ]
    assert platforms._number(found[::-1]) == numbered


# --- the processor and the repair -----------------------------------------------------------------------------------


def test_cpuinfo_of_the_first_processor() -> None:
    cpu = parse_cpuinfo("model name\t: A B\nflags\t\t: avx fma\n\nmodel name\t: C\nflags\t\t: sse\n", "x86_64")
    assert cpu == HostCpu("x86_64", "A B", frozenset({"avx", "fma"}))
    assert cpu.digest != replace(cpu, model="C").digest


def test_replacement_name_needs_every_instruction() -> None:
    haswell, skx = pocl_repair._HASWELL_FLAGS, pocl_repair.SKX_FLAGS
    assert pocl_repair.replacement_name(HostCpu("x86_64", "", skx | {"more"})) == "skx"
    assert pocl_repair.replacement_name(HostCpu("x86_64", "", skx - {"avx512vl"})) == "haswell"
    assert pocl_repair.replacement_name(HostCpu("x86_64", "", haswell - {"fma"})) is None
    assert pocl_repair.replacement_name(HostCpu("aarch64", "", skx)) is None


_POCL_3 = "OpenCL 3.0 PoCL 3.0-rc2  Linux, LLVM 14.0.6"
_DEVICE = "OpenCL 3.0 PoCL HSTR: pthread-x86_64-unknown-linux-gnu-"


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
    if not _run(_FMA, cache, POCL_CACHE_DIR=str(tmp_path)):
        pytest.skip("no usable PoCL of PyPI")
    (machine_code,) = tmp_path.rglob("multiply_add.so")
    assert b"_cl_fma" not in machine_code.read_bytes()


@pytest.mark.skipif(sys.platform != "linux", reason="OCL_ICD_VENDORS is the Linux loader's")
def test_entries_that_removed_packages_left_hide_no_inline_device(cache: Path, tmp_path: Path) -> None:
    alone = _run(_INLINE, cache, OCL_ICD_VENDORS=str(tmp_path))
    if not alone:
        pytest.skip("no PoCL of PyPI")
    assert alone == [True]
    (tmp_path / "pocl.icd").write_text("/nonexistent/libpocl.so.2\n")
    assert _run(_INLINE, cache, OCL_ICD_VENDORS=str(tmp_path)) == alone


@pytest.mark.parametrize(
    ("names", "is_shown"),
    [
        ([["pthread-Some CPU"]], True),
        ([["cpu-haswell-Some CPU"]], True),
        ([["pthread-Some CPU"], ["cpu-haswell-Some CPU"]], True),
        ([["cpu-haswell-Some CPU", "NVIDIA H100"]], False),
        ([["pthread-Some CPU"], ["NVIDIA H100"]], False),
        ([["cpu-minimal-haswell-Some CPU"]], False),
        ([["basic-Some CPU"]], False),
        ([[]], False),
        ([], False),
    ],
)
def test_pocls_inline_device_is_shown_where_that_hides_no_other(
    names: list[list[str]], is_shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable by which PoCL shows it says all that PoCL shows."""
    monkeypatch.delenv("POCL_DEVICES", raising=False)
    good = probe.DeviceVerdict(True)
    entries = [icd.IcdEntry(f"/usr/lib/libpocl.so.{at}", "system") for at in range(len(names))]
    verdicts: dict[str | None, probe.LibraryVerdict] = {"/opt/libother.so": probe.LibraryVerdict(True)}
    for entry, of_library in zip(entries, names, strict=True):
        devices = {f"PoCL|OpenCL 3.0|{name}|OpenCL 3.0|7.1|{at}": good for at, name in enumerate(of_library)}
        verdicts[entry.path] = probe.LibraryVerdict(True, None, devices)
    with platforms._inline_device_shown([*entries, icd.IcdEntry("/opt/libother.so", "system")], verdicts):
        assert os.environ.get("POCL_DEVICES") == ("pthread basic" if is_shown else None)
    assert "POCL_DEVICES" not in os.environ


@pytest.mark.parametrize(
    ("name", "inline"),
    [
        ("pthread-AMD EPYC", "basic-AMD EPYC"),
        ("cpu-skylake-avx512-AMD EPYC", "cpu-minimal-skylake-avx512-AMD EPYC"),
        ("cpu-minimal-skylake-avx512-AMD EPYC", None),
        ("basic-AMD EPYC", None),
        ("NVIDIA H100", None),
    ],
)
def test_the_name_of_pocls_inline_device(name: str, inline: str | None) -> None:
    """As PoCL 3.0, 6.0 and 7.1 name theirs."""
    assert probe.inline_name(name) == inline


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
    repair = pocl_repair.repair(cast("platforms.cl.Device", Device()), cpu)
    assert repair.name is None
    assert repair.is_vital
    assert "does not hold the device's name" in (repair.reason or "")


# --- verdicts -------------------------------------------------------------------------------------------------------


def test_verdicts_outlive_the_process_and_bad_ones_only_a_while() -> None:
    good = probe.LibraryVerdict(True, None, {"key": probe.DeviceVerdict(True, None, ("x86_vnni",), "skx")})
    assert probe.decode_verdict(probe._encode(good), time.time() + 1e9) == good
    bad = probe.LibraryVerdict(True, None, {"key": probe.DeviceVerdict(False, "it crashed")})
    assert probe.decode_verdict(probe._encode(bad), time.time()) == bad
    assert probe.decode_verdict(probe._encode(bad), time.time() + probe.BAD_VERDICT_SECONDS + 1) is None
    assert probe.decode_verdict(probe._encode(bad), time.time() - 60) is None


@pytest.mark.parametrize(
    "change",
    [
        {"format": 99}, {"devices": None}, {"devices": {"key": 1}}, {"devices": {"key": {"usable": True}}},
        {"written": "x"}, {"written": 10**400},
        {"devices": {"key": {**asdict(probe.DeviceVerdict(True)), "features": "x"}}},
    ],
)  # fmt: skip
def test_damaged_verdicts_are_asked_again(change: dict[str, object]) -> None:
    data = {**json.loads(probe._encode(probe.LibraryVerdict(True))), **change}
    assert probe.decode_verdict(json.dumps(data).encode(), time.time()) is None
    assert probe.decode_verdict(b"", 0.0) is None
    assert probe.decode_verdict(b"[]", 0.0) is None
    assert probe.decode_verdict(b"[" * 100_000, 0.0) is None


# --- whole processes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trial", [dot_products, matrix_units], ids=["dot_products", "matrix_units"])
def test_other_trials_ask_devices_again(trial: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    before = probe._verdict_path("library.so")
    monkeypatch.setattr(trial, "_KERNEL", trial._KERNEL + " ")
    probe._trials.cache_clear()
    try:
        assert probe._verdict_path("library.so") != before
    finally:
        monkeypatch.undo()
        probe._trials.cache_clear()
    assert probe._verdict_path("library.so") == before


def test_another_repair_of_pocl_asks_devices_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A verdict with another name than this process would write makes a device unusable."""
    before = probe._verdict_path("library.so")
    monkeypatch.setattr(pocl_repair, "replacement_name", lambda _cpu: "another")
    assert probe._verdict_path("library.so") != before


def test_importing_opens_nothing() -> None:
    code = "import sys, gpu_driver.discovery.platforms; print([name for name in sys.modules if 'pyopencl' in name])"
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    assert subprocess.check_output([sys.executable, "-c", code], env=environment, text=True).strip() == "[]"


def test_devices_are_the_same_in_every_process(cache: Path) -> None:
    first = _run(_LIST, cache)
    assert first == _run(_LIST, cache)
    names = [row[0] for row in cast("list[list[object]]", first)]
    assert len(names) == len(set(names))
    for _, usable, reason, _ in cast("list[list[object]]", first):
        assert usable or reason


def test_what_is_compiled_otherwise_is_kept_apart(cache: Path) -> None:
    """Intel's runtime compiles for another processor on demand, which its devices' names do not tell."""
    found, others = (
        cast("list[list[object]]", _run(_LIST, cache, **how))
        for how in ({}, {"CL_CONFIG_CPU_TARGET_ARCH": "corei7-avx"})
    )
    assert found
    assert not {row[3] for row in found} & {row[3] for row in others}


def test_folder_and_variables_do_not_outlive_the_search(cache: Path, tmp_path: Path) -> None:
    code = _LIST.replace("print", f"import os; print(json.dumps(os.environ.get('{icd.VENDORS_VARIABLE}'))) #")
    code = code.replace("import os;", "platforms.find_devices(); import os;")
    assert _run(code, cache, TMPDIR=str(tmp_path)) is None
    assert list(tmp_path.glob("nnrt-icd-*")) == []


def test_unwritable_cache_folder(cache: Path) -> None:
    found = cast("list[list[object]]", _run(_LIST, cache))
    assert _run(_LIST, "/dev/null/none") == found
    report = cast("dict[str, object]", _run(_DOCTOR, "/dev/null/none"))
    assert report["cache_writable"] is False
    assert "/dev/null/none cannot be written: Not a directory" in str(report["problems"])
    assert "NNRT_CACHE_DIR" in str(report["problems"])


@pytest.mark.skipif(sys.platform != "linux", reason="where PoCL keeps its cache")
def test_unwritable_folder_of_pocl(cache: Path, tmp_path: Path) -> None:
    """PoCL shows no device there; it gets another folder, which goes with the process."""
    found = _run(_LIST, cache)
    assert _run(_LIST, cache, POCL_CACHE_DIR="/dev/null/kernels", TMPDIR=str(tmp_path)) == found
    assert not list(tmp_path.glob("nnrt-pocl-*"))


@pytest.mark.skipif(sys.platform != "linux", reason="where PoCL keeps its cache")
def test_unwritable_home(cache: Path, tmp_path: Path) -> None:
    found = _run(_LIST, cache)
    nowhere = {"HOME": "/dev/null", "XDG_CACHE_HOME": "/dev/null/cache", "TMPDIR": str(tmp_path)}
    assert _run(_LIST, tmp_path / "own", **nowhere) == found
    assert list(tmp_path.glob("nnrt-*")) == []


@pytest.mark.skipif(sys.platform != "linux", reason="where PoCL keeps its cache")
def test_no_linker(cache: Path, tmp_path: Path) -> None:
    """PoCL 3.0 ends the process there; as soon as there is a linker, the device is asked again."""
    found = _run(_LIST, cache)
    nowhere = {"PATH": str(tmp_path / "none"), "POCL_CACHE_DIR": str(tmp_path / "kernels")}
    report = cast("dict[str, list[dict[str, str]]]", _run(_DOCTOR, cache, **nowhere))
    assert not any(device["usable"] for device in report["devices"] if "PoCL 3.0" in device["platform"])
    unlinked = [problem for problem in report["problems"] if "Final linking" in problem["what"]]
    assert len(unlinked) == sum("Final linking" in (device["reason"] or "") for device in report["devices"])
    assert all("install ld (binutils)" in problem["remedy"] for problem in unlinked)
    assert _run(_LIST, cache) == found


@pytest.mark.skipif(sys.platform != "linux", reason="users without a home, as in containers")
def test_no_home(cache: Path, tmp_path: Path) -> None:
    found = _run(_LIST, cache)
    here = tmp_path / "here"
    here.mkdir()
    assert _run(f"{_NO_HOME}os.chdir({str(here)!r})\n{_LIST}", "unset", TMPDIR=str(tmp_path)) == found
    assert list(here.iterdir()) == []
    assert list(tmp_path.glob("nnrt-*")) == []


@pytest.mark.skipif(sys.platform != "linux", reason="threads are kept on cores where Linux schedules them")
def test_every_thread_of_pocl_has_a_core_of_its_own(cache: Path) -> None:
    if "opencl-pocl-0" not in [row[0] for row in cast("list[list[object]]", _run(_LIST, cache))]:
        pytest.skip("PoCL is not installed")
    every = list(range(os.cpu_count() or 1))
    alone = [[core] for core in every]
    assert [cores for cores in alone if cores in _run(_CORES, cache)] == alone
    kept_apart = [cores for cores in _run(_CORES, cache, POCL_AFFINITY="0") if cores != every]
    assert kept_apart == [], "the user chose otherwise"
    part = f"import os; os.sched_setaffinity(0, {every[-1:]})\n"
    for inherited in ({}, {"POCL_AFFINITY": "1 (nn_runtime)"}):
        on_a_part = cast("list[list[int]]", _run(part + _CORES, cache, **inherited))
        assert {tuple(cores) for cores in on_a_part} == {tuple(every[-1:])}


@pytest.mark.skipif(sys.platform != "linux", reason="masks and control groups are Linux's")
@pytest.mark.parametrize("inherited", [{}, {"POCL_MAX_PTHREAD_COUNT": "77 (nn_runtime)"}])
@pytest.mark.parametrize("limit", ["mask", "time"])
def test_no_more_threads_than_processors_that_may_be_used(
    limit: str, inherited: dict[str, str], cache: Path, tmp_path: Path
) -> None:
    """Whatever another process has chosen for itself."""
    (tmp_path / "cpu.max").write_text("70000 100000\n", encoding="ascii")
    (tmp_path / "own").write_text("0::/\n", encoding="ascii")
    code = {
        "mask": "import os; os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])\n",
        "time": "from pathlib import Path\nfrom gpu_driver import processors\n"
        f"processors._MOUNTED, processors._OWN = Path({str(tmp_path)!r}), Path({str(tmp_path / 'own')!r})\n",
    }
    units, pocl, notes = cast("list[list[object]]", _run(code[limit] + _UNITS, cache, **inherited))
    assert set(units) <= {1}
    assert set(pocl) <= {1}
    if os.cpu_count() != 1:
        assert notes == [[f"computes on 1 of {os.cpu_count()} processors, as this process may"]] * len(units)


@pytest.mark.skipif(sys.platform != "linux", reason="masks are Linux's")
def test_the_users_number_of_threads_stays(cache: Path) -> None:
    code = "import os; os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])\n"
    units, pocl, _ = cast("list[list[object]]", _run(code + _UNITS, cache, POCL_MAX_PTHREAD_COUNT="3"))
    assert set(pocl) <= {3}
    assert set(units) <= {1}


def test_no_child_process_can_be_started(cache: Path, tmp_path: Path) -> None:
    rows = cast("list[list[object]]", _run("import sys; sys.executable = ''\n" + _LIST, tmp_path))
    assert [row[:3] for row in rows] == [row[:3] for row in cast("list[list[object]]", _run(_LIST, cache))]


def test_a_system_without_icd_files(cache: Path) -> None:
    """As on macOS and Windows: one child tries whatever the loader shows."""
    code = (
        "import sys, types\n"
        "from gpu_driver.discovery import icd, platforms\n"
        "icd.sys = platforms.sys = types.SimpleNamespace(platform='other', modules=sys.modules)\n"
    )
    rows = cast("list[list[object]]", _run(code + _LIST, cache))
    assert all(usable or reason for _, usable, reason, _ in rows)
    report = cast("dict[str, object]", _run(code + _DOCTOR, cache))
    assert report["libraries"] == []


@pytest.mark.skipif(sys.platform != "linux", reason="OCL_ICD_VENDORS is the Linux loader's")
def test_no_opencl_library(cache: Path) -> None:
    assert _run(_LIST, cache, OCL_ICD_VENDORS="/nonexistent.so") == []
    report = cast("dict[str, object]", _run(_DOCTOR, cache, OCL_ICD_VENDORS="/nonexistent.so"))
    assert report["devices"] == []
    assert "unset OCL_ICD_VENDORS" in str(report["problems"])


def test_no_pyopencl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platforms, "_first", [])
    monkeypatch.setattr(icd, "pyopencl_folder", lambda: None)
    assert platforms.find_devices() == []
    diagnosis = diagnose()
    assert ("PyOpenCL is not installed", "pip install pyopencl") in [(p.what, p.remedy) for p in diagnosis.problems]
    assert "problem    PyOpenCL is not installed" in diagnosis.lines()


@pytest.mark.skipif(sys.platform != "linux" or shutil.which("cc") is None, reason="needs a C compiler")
def test_a_library_that_aborts_is_left_out(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.c").write_text(
        "#include <stdlib.h>\n__attribute__((constructor)) static void f(void) {abort();}\n"
    )
    library = tmp_path / "libbad.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(tmp_path / "bad.c")], check=True)
    vendors = tmp_path / "vendors"
    vendors.mkdir()
    alone = _run(_LIST, cache, OCL_ICD_VENDORS=str(vendors))
    (vendors / "bad.icd").write_text(f"{library}\n")
    (vendors / "missing.icd").write_text("/nonexistent/libmissing.so\n")
    assert _run(_LIST, cache, OCL_ICD_VENDORS=str(vendors)) == alone
    report = cast("dict[str, object]", _run(_DOCTOR, cache, OCL_ICD_VENDORS=str(vendors)))
    assert "signal 6" in str(report["problems"])
    assert "there is no such file" in str(report["problems"])


@pytest.mark.skipif(sys.platform != "linux", reason="OCL_ICD_VENDORS is the Linux loader's")
def test_doctor_tells_what_an_early_pyopencl_hides(cache: Path) -> None:
    if not icd.environment_entries():
        pytest.skip("nothing here that the system's folder does not name")
    early = "import pyopencl\ntry: pyopencl.get_platforms()\nexcept pyopencl.Error: pass\n"
    report = cast("dict[str, object]", _run(early + _DOCTOR, cache))
    assert "PyOpenCL had started its loader before" in str(report["problems"])


def test_a_diagnosis_tells_of_instructions_that_did_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    device = _found("pocl", "3.0", "libpocl.so")
    monkeypatch.setattr(diagnosis, "forms_to_try", lambda platform, cpu: ["x86_vnni", "x86_avx2"])
    told = "instructions for products of bytes did not work: x86_vnni, x86_avx2"
    assert diagnosis._device_report(device).notes[-1] == told
    assert told not in diagnosis._device_report(replace(device, features=("x86_avx2",))).notes


def test_a_diagnosis_names_the_instructions_that_were_seen_to_work() -> None:
    told = diagnose().lines()
    for device in platforms.find_devices():
        line = f"instructions seen to work: {', '.join(device.features)}"
        assert any(line in one for one in told) == bool(device.features)
