# SPDX-License-Identifier: Apache-2.0
"""Finding OpenCL devices: names, order, and machines where something is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, cast

import pytest

from gpu_driver.diagnosis import diagnose
from gpu_driver.discovery import icd, platforms, probe
from nn_runtime.codes import DeviceTypeCode
from tests.gpu_driver.discovery.made_up import made_up_device
from tests.gpu_driver.discovery.processes import DOCTOR, LIST, ROOT, run

if TYPE_CHECKING:
    from pathlib import Path

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
_ONES = """
import json
import numpy as np
import pyopencl as cl
from gpu_driver.discovery import platforms, trial
source = 'kernel void one(global int *result) { *result = 1; }'
results = {}
for device in platforms.find_devices():
    if device.usable:
        result = np.zeros(1, np.int32)
        trial.run_once(cl.Context([device.device]), source, 'one', (1,), (1,), [], [result])
        results[device.name] = result.tolist()
print(json.dumps(results))
"""
_NO_HOME = """
import os, pwd
for name in ('HOME', 'XDG_CACHE_HOME', 'NNRT_CACHE_DIR'):
    os.environ.pop(name, None)
def unknown(user):
    raise KeyError(user)
pwd.getpwuid = unknown
"""


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
    (message,) = run(code, cache)
    wanted = r"OpenCL wants \d+ MiB of address space, this process has \d+ MiB left of 640 MiB \(ulimit -v\)"
    assert re.fullmatch(wanted, str(message))


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
        (made_up_device("pocl", "3.10", "/b"), 0),
        (made_up_device("pocl", "3.9", "/c"), 0),
        (made_up_device("oclgrind", "1.0", "/o", DeviceTypeCode.GPU), 0),
        (made_up_device("pocl", "3.10", "/a"), 1),
        (made_up_device("pocl", "3.10", "/a"), 0),
        (made_up_device("nvidia", "550.1", "/n", DeviceTypeCode.GPU), 0),
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


@pytest.mark.skipif(sys.platform != "linux", reason="OCL_ICD_VENDORS is the Linux loader's")
def test_entries_that_removed_packages_left_hide_no_inline_device(cache: Path, tmp_path: Path) -> None:
    alone = run(_INLINE, cache, OCL_ICD_VENDORS=str(tmp_path))
    if not alone:
        pytest.skip("no PoCL of PyPI")
    assert alone == [True]
    (tmp_path / "pocl.icd").write_text("/nonexistent/libpocl.so.2\n")
    assert run(_INLINE, cache, OCL_ICD_VENDORS=str(tmp_path)) == alone


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


# --- whole processes ----------------------------------------------------------------------------------------------


def test_importing_opens_nothing() -> None:
    code = "import sys, gpu_driver.discovery.platforms; print([name for name in sys.modules if 'pyopencl' in name])"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert subprocess.check_output([sys.executable, "-c", code], env=environment, text=True).strip() == "[]"


def test_devices_are_the_same_in_every_process(cache: Path) -> None:
    first = run(LIST, cache)
    assert first == run(LIST, cache)
    names = [row[0] for row in cast("list[list[object]]", first)]
    assert len(names) == len(set(names))
    for _, usable, reason, _ in cast("list[list[object]]", first):
        assert usable or reason


def test_what_is_compiled_otherwise_is_kept_apart(cache: Path) -> None:
    """Intel's runtime compiles for another processor on demand, which its devices' names do not tell."""
    found, others = (
        cast("list[list[object]]", run(LIST, cache, **how)) for how in ({}, {"CL_CONFIG_CPU_TARGET_ARCH": "corei7-avx"})
    )
    assert found
    assert not {row[3] for row in found} & {row[3] for row in others}


def test_folder_and_variables_do_not_outlive_the_search(cache: Path, tmp_path: Path) -> None:
    code = LIST.replace("print", f"import os; print(json.dumps(os.environ.get('{icd.VENDORS_VARIABLE}'))) #")
    code = code.replace("import os;", "platforms.find_devices(); import os;")
    assert run(code, cache, TMPDIR=str(tmp_path)) is None
    assert list(tmp_path.glob("nnrt-icd-*")) == []


def test_unwritable_cache_folder(cache: Path) -> None:
    found = cast("list[list[object]]", run(LIST, cache))
    assert run(LIST, "/dev/null/none") == found
    report = cast("dict[str, object]", run(DOCTOR, "/dev/null/none"))
    assert report["cache_writable"] is False
    assert "/dev/null/none cannot be written: Not a directory" in str(report["problems"])
    assert "NNRT_CACHE_DIR" in str(report["problems"])


def test_no_temporary_folder(cache: Path) -> None:
    """As where all of a container can only be read."""
    nowhere = """
import tempfile
def _none():
    raise FileNotFoundError(2, "No usable temporary directory found")
tempfile._get_default_tempdir = _none
"""
    report = cast("dict[str, list[dict[str, str]]]", run(nowhere + DOCTOR, cache))
    first = report["problems"][0]
    assert first["what"].startswith("no temporary folder can be written")
    assert first["remedy"] == "export TMPDIR=<folder>"


@pytest.mark.skipif(sys.platform != "linux", reason="where PoCL keeps its cache")
def test_unwritable_folder_of_pocl(cache: Path, tmp_path: Path) -> None:
    """PoCL shows no device there; it gets another folder, which goes with the process."""
    found = run(LIST, cache)
    assert run(LIST, cache, POCL_CACHE_DIR="/dev/null/kernels", TMPDIR=str(tmp_path)) == found
    assert not list(tmp_path.glob("nnrt-pocl-*"))


@pytest.mark.skipif(sys.platform != "linux", reason="where PoCL keeps its cache")
def test_unwritable_home(cache: Path, tmp_path: Path) -> None:
    found = run(LIST, cache)
    nowhere = {"HOME": "/dev/null", "XDG_CACHE_HOME": "/dev/null/cache", "TMPDIR": str(tmp_path)}
    assert run(LIST, tmp_path / "own", **nowhere) == found
    assert list(tmp_path.glob("nnrt-*")) == []


@pytest.mark.skipif(sys.platform != "linux", reason="where PoCL keeps its cache")
def test_unwritable_home_of_a_program_that_imported_pyopencl_before(cache: Path, tmp_path: Path) -> None:
    """PyOpenCL would make its cache of kernels' interfaces there, at its first kernel."""
    nowhere = {"HOME": "/dev/null", "XDG_CACHE_HOME": "/dev/null/cache", "TMPDIR": str(tmp_path)}
    ones = run(_ONES, cache)
    assert all(result == [1] for result in cast("dict[str, list[int]]", ones).values())
    assert run(_ONES, cache, **nowhere) == ones


@pytest.mark.skipif(sys.platform != "linux", reason="where PoCL keeps its cache")
def test_no_linker(cache: Path, tmp_path: Path) -> None:
    """PoCL 3.0 ends the process there; as soon as there is a linker, the device is asked again."""
    found = run(LIST, cache)
    nowhere = {"PATH": str(tmp_path / "none"), "POCL_CACHE_DIR": str(tmp_path / "kernels")}
    report = cast("dict[str, list[dict[str, str]]]", run(DOCTOR, cache, **nowhere))
    assert not any(device["usable"] for device in report["devices"] if "PoCL 3.0" in device["platform"])
    unlinked = [problem for problem in report["problems"] if "Final linking" in problem["what"]]
    assert len(unlinked) == sum("Final linking" in (device["reason"] or "") for device in report["devices"])
    assert all("install ld (binutils)" in problem["remedy"] for problem in unlinked)
    assert run(LIST, cache) == found


@pytest.mark.skipif(sys.platform != "linux", reason="users without a home, as in containers")
def test_no_home(cache: Path, tmp_path: Path) -> None:
    found = run(LIST, cache)
    here = tmp_path / "here"
    here.mkdir()
    assert run(f"{_NO_HOME}os.chdir({str(here)!r})\n{LIST}", "unset", TMPDIR=str(tmp_path)) == found
    assert list(here.iterdir()) == []
    assert list(tmp_path.glob("nnrt-*")) == []


@pytest.mark.skipif(sys.platform != "linux", reason="threads are kept on cores where Linux schedules them")
def test_every_thread_of_pocl_has_a_core_of_its_own(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RUSTICL_ENABLE", raising=False)  # its threads take every core
    if "opencl-pocl-0" not in [row[0] for row in cast("list[list[object]]", run(LIST, cache))]:
        pytest.skip("PoCL is not installed")
    every = list(range(os.cpu_count() or 1))
    alone = [[core] for core in every]
    assert [cores for cores in alone if cores in run(_CORES, cache)] == alone
    kept_apart = [cores for cores in run(_CORES, cache, POCL_AFFINITY="0") if cores != every]
    assert kept_apart == [], "the user chose otherwise"
    part = f"import os; os.sched_setaffinity(0, {every[-1:]})\n"
    for inherited in ({}, {"POCL_AFFINITY": "1 (nn_runtime)"}):
        on_a_part = cast("list[list[int]]", run(part + _CORES, cache, **inherited))
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
    units, pocl, notes = cast("list[list[object]]", run(code[limit] + _UNITS, cache, **inherited))
    assert set(units) <= {1}
    assert set(pocl) <= {1}
    if os.cpu_count() != 1:
        assert notes == [[f"computes on 1 of {os.cpu_count()} processors, as this process may"]] * len(units)


@pytest.mark.skipif(sys.platform != "linux", reason="masks are Linux's")
def test_the_users_number_of_threads_stays(cache: Path) -> None:
    code = "import os; os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])\n"
    units, pocl, _ = cast("list[list[object]]", run(code + _UNITS, cache, POCL_MAX_PTHREAD_COUNT="3"))
    assert set(pocl) <= {3}
    assert set(units) <= {1}


def test_no_child_process_can_be_started(cache: Path, tmp_path: Path) -> None:
    rows = cast("list[list[object]]", run("import sys; sys.executable = ''\n" + LIST, tmp_path))
    assert [row[:3] for row in rows] == [row[:3] for row in cast("list[list[object]]", run(LIST, cache))]


def test_a_system_without_icd_files(cache: Path) -> None:
    """As on macOS and Windows: one child tries whatever the loader shows."""
    code = (
        "import sys, types\n"
        "from gpu_driver.discovery import icd, platforms\n"
        "icd.sys = platforms.sys = types.SimpleNamespace(platform='other', modules=sys.modules)\n"
    )
    rows = cast("list[list[object]]", run(code + LIST, cache))
    assert all(usable or reason for _, usable, reason, _ in rows)
    report = cast("dict[str, object]", run(code + DOCTOR, cache))
    assert report["libraries"] == []


@pytest.mark.skipif(sys.platform != "linux", reason="OCL_ICD_VENDORS is the Linux loader's")
def test_no_opencl_library(cache: Path) -> None:
    assert run(LIST, cache, OCL_ICD_VENDORS="/nonexistent.so") == []
    report = cast("dict[str, object]", run(DOCTOR, cache, OCL_ICD_VENDORS="/nonexistent.so"))
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
    alone = run(LIST, cache, OCL_ICD_VENDORS=str(vendors))
    (vendors / "bad.icd").write_text(f"{library}\n")
    (vendors / "missing.icd").write_text("/nonexistent/libmissing.so\n")
    assert run(LIST, cache, OCL_ICD_VENDORS=str(vendors)) == alone
    report = cast("dict[str, object]", run(DOCTOR, cache, OCL_ICD_VENDORS=str(vendors)))
    assert "signal 6" in str(report["problems"])
    assert "there is no such file" in str(report["problems"])
