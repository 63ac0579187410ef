# SPDX-License-Identifier: Apache-2.0
"""The program cache: shared in memory, kept on disk, and nothing but slower when the disk fails."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import filelock
import numpy as np
import pytest

import kernels_cl
from gpu_driver import cache_files
from gpu_driver.device import programs
from gpu_driver.device.errors import hal_error
from gpu_driver.device.programs import Program, ProgramBuildError, ProgramCache, build_options, denormal_options
from gpu_driver.device_profile import DeviceProfile
from gpu_driver.device_query import profile_of
from gpu_driver.discovery.host_cpu import HostCpu, host_cpu
from gpu_driver.discovery.platforms import FoundDevice, find_devices
from nn_runtime.codes import DeviceTypeCode
from nn_runtime.hal.types import ErrorStatus
from tests.gpu_driver.profiles import CPU_PROFILE, GPU_PROFILE
from tests.gpu_driver.running import at_once, opencl_error

if TYPE_CHECKING:
    import pyopencl as cl

_ROOT = Path(__file__).parents[3]
_SOURCE = """#line 1 "double.cl"
kernel void doubled(global T *a) { size_t i = get_global_id(0); a[i] = a[i] * (T)FACTOR; }
"""
_LAUNCHES = [("doubled", (4,))]
_DEFINES: dict[str, str | int] = {"T": "float", "FACTOR": 2}
_USABLE = [device for device in find_devices() if device.usable]

Device = tuple["cl.Context", DeviceProfile]


@pytest.fixture(scope="module", params=_USABLE, ids=lambda found: found.name)
def device(request: pytest.FixtureRequest) -> Device:
    import pyopencl as cl

    found: FoundDevice = request.param
    return cl.Context([found.device]), profile_of(found)


def _cache(device: Device, folder: Path, text: str = _SOURCE) -> ProgramCache:
    return ProgramCache(*device, directory=folder, source=lambda name: text)


def _launch(device: Device, program: Program, local: int = 4) -> list[float]:
    import pyopencl as cl

    context = device[0]
    queue = cl.CommandQueue(context)
    array = np.arange(8, dtype=np.float32)
    buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=array)
    kernel = program.kernel("doubled")
    kernel.set_arg(0, buffer)
    cl.enqueue_nd_range_kernel(queue, kernel, (8,), (local,))
    cl.enqueue_copy(queue, array, buffer)
    return list(array)


_DOUBLED = [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0]


def _fill(device: Device, folder: Path) -> Path:
    """A folder with one stored program; its file."""
    cache = _cache(device, folder)
    program = cache.get("double.cl", _DEFINES, launches=_LAUNCHES)
    assert _launch(device, program) == _DOUBLED
    assert cache.store(program)
    assert not cache.store(program)
    assert (cache.stats.builds, cache.stats.loads, cache.stats.stores) == (1, 0, 1)
    assert cache.stats.build_seconds > cache.stats.load_seconds == 0
    return program.path


def test_what_is_kept_is_stored_at_once_or_in_the_end(device: Device, tmp_path: Path) -> None:
    """PoCL compiles again when a binary is read: its programs wait until nobody waits for an answer."""
    cache = _cache(device, tmp_path)
    program = cache.get("double.cl", _DEFINES, launches=_LAUNCHES)
    assert cache.is_new(program)
    assert _launch(device, program) == _DOUBLED
    cache.keep(program)
    assert not cache.is_new(program)
    assert program.path.exists() == (device[1].slug != "pocl")
    cache.store_kept(0)
    assert program.path.exists() == (device[1].slug != "pocl")
    cache.store_kept()
    assert program.path.exists()
    cache.keep(program)
    cache.store_kept()
    assert (cache.stats.builds, cache.stats.stores) == (1, 1)
    loaded = _cache(device, tmp_path).get("double.cl", _DEFINES, launches=_LAUNCHES)
    assert loaded.from_disk
    assert _launch(device, loaded) == _DOUBLED


def test_no_folder_is_made_where_nothing_is_kept(device: Device, tmp_path: Path) -> None:
    _cache(device, tmp_path / "programs").store_kept()
    assert not (tmp_path / "programs").exists()


def test_two_may_store_what_is_kept(device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one does while the first looks at the clock, which leaves nothing to take."""
    cache = _cache(device, tmp_path)
    program = cache.get("double.cl", _DEFINES, launches=_LAUNCHES)
    assert _launch(device, program) == _DOUBLED
    cache.keep(program)
    looks: list[float] = []

    def clock() -> float:
        looks.append(time.monotonic())
        if len(looks) == 2:
            cache.store_kept()
        return looks[-1]

    monkeypatch.setattr(programs, "time", SimpleNamespace(monotonic=clock))
    cache.store_kept()
    assert program.path.exists()
    assert cache.stats.stores == 1


def test_a_program_is_not_new_while_what_is_kept_is_stored(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or it would be warmed, and kept, once more."""
    cache = _cache(device, tmp_path)
    program = cache.get("double.cl", _DEFINES, launches=_LAUNCHES)
    assert _launch(device, program) == _DOUBLED
    cache.keep(program)
    with ThreadPoolExecutor(1) as asking, cache._marks:
        kept, cache._kept = cache._kept, {}
        stored, cache._stored = cache._stored, set()
        answer = asking.submit(cache.is_new, program)
        assert wait([answer], timeout=0.05).not_done
        cache._kept, cache._stored = kept, stored
    assert not answer.result()
    with cache._lock, ThreadPoolExecutor(1) as asking:  # as long as another program is built
        assert not asking.submit(cache.is_new, program).result(60)


_AFTER_CLEANING = """
import shutil
import sys
import nn_runtime as nn
from tests.nn_runtime.graphs import add_model, chain_model

for model in (add_model(), chain_model([nn.OperationCode.TANH])):
    nn.Network.from_model(model).compile("opencl:pocl").close()
    shutil.rmtree(sys.argv[1])
"""


@pytest.mark.skipif(all(found.slug != "pocl" for found in _USABLE), reason="needs PoCL")
def test_programs_build_after_pocls_folder_was_removed(tmp_path: Path) -> None:
    """As who cleans up temporary or cache folders does while a process runs."""
    folder = str(tmp_path / "pocl")
    environment = {**os.environ, "POCL_CACHE_DIR": folder, "NNRT_CACHE_DIR": str(tmp_path / "nnrt")}
    subprocess.run([sys.executable, "-c", _AFTER_CLEANING, folder], cwd=_ROOT, env=environment, check=True)


def test_second_cache_loads_what_the_first_stored(device: Device, tmp_path: Path) -> None:
    _fill(device, tmp_path)
    cache = _cache(device, tmp_path)
    program = cache.get("double.cl", _DEFINES, launches=_LAUNCHES)
    assert program.from_disk
    assert _launch(device, program) == _DOUBLED
    assert _launch(device, program, local=2) == _DOUBLED  # a local size nobody announced
    assert not cache.is_new(program)
    assert not cache.store(program)
    cache.keep(program)
    cache.store_kept()
    assert cache.get("double.cl", dict(reversed(_DEFINES.items())), launches=_LAUNCHES) is program
    stats = cache.stats
    assert (stats.builds, stats.loads, stats.shared, stats.stores) == (0, 1, 1, 0)
    assert stats.load_seconds > stats.build_seconds == 0


def test_other_source_defines_or_device_are_other_programs(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _fill(device, tmp_path)
    context, profile = device
    elsewhere = ProgramCache(context, replace(profile, identity="another"), tmp_path, lambda _name: _SOURCE)
    other = elsewhere.get("double.cl", _DEFINES, launches=_LAUNCHES)
    assert not other.from_disk
    assert other.path != path
    with monkeypatch.context() as patched:
        patched.setenv("PYOPENCL_BUILD_OPTIONS", "-DUNUSED=1")
        assert not _cache(device, tmp_path).get("double.cl", _DEFINES, launches=_LAUNCHES).from_disk
    with monkeypatch.context() as patched:
        patched.setattr(programs, "_FORMAT", "another")
        assert not _cache(device, tmp_path).get("double.cl", _DEFINES, launches=_LAUNCHES).from_disk
    for cache, defines in (
        (_cache(device, tmp_path), {**_DEFINES, "FACTOR": 3}),
        (_cache(device, tmp_path, _SOURCE + "\n"), _DEFINES),
    ):
        program = cache.get("double.cl", defines, launches=_LAUNCHES)
        assert not program.from_disk
        assert program.path != path


def test_other_launches_have_a_file_of_their_own_where_that_holds_no_more(device: Device, tmp_path: Path) -> None:
    """PoCL's binary has what was launched; that of others is complete."""
    path = _fill(device, tmp_path)
    program = _cache(device, tmp_path).get("double.cl", _DEFINES, launches=[("doubled", (2,))])
    assert (program.path == path) == program.from_disk == (device[1].slug != "pocl")
    one, other = ("doubled", (2,)), ("doubled", None)
    launches = [one, other], [other, one, other]
    paths = {_cache(device, tmp_path).get("double.cl", _DEFINES, launches=some).path for some in launches}
    assert len(paths) == 1


def test_offered_binaries_are_taken_before_those_of_the_folder(device: Device, tmp_path: Path) -> None:
    first = _cache(device, tmp_path)
    program = first.get("double.cl", _DEFINES, launches=_LAUNCHES)
    assert _launch(device, program) == _DOUBLED
    offered = {program.key: first.binary(program), "another": b"rubbish"}
    path = _fill(device, tmp_path)
    path.write_bytes(cache_files.seal(b"rubbish"))
    cache = _cache(device, tmp_path)
    with cache.offered(offered):
        taken = cache.get("double.cl", _DEFINES, launches=_LAUNCHES)
    assert taken.from_disk
    assert _launch(device, taken) == _DOUBLED
    assert (cache.stats.builds, cache.stats.loads) == (0, 1)
    assert set(offered) == {program.key, "another"}


def test_what_is_offered_is_taken_meanwhile_alone(device: Device, tmp_path: Path) -> None:
    first = _cache(device, tmp_path)
    program = first.get("double.cl", _DEFINES, launches=_LAUNCHES)
    assert _launch(device, program) == _DOUBLED
    cache = _cache(device, tmp_path)
    with pytest.raises(KeyboardInterrupt), cache.offered({program.key: first.binary(program)}):
        raise KeyboardInterrupt
    assert not cache.get("double.cl", _DEFINES, launches=_LAUNCHES).from_disk


def test_an_offered_binary_that_the_driver_refuses_is_taken_from_the_dict(device: Device, tmp_path: Path) -> None:
    key = _cache(device, tmp_path).get("double.cl", _DEFINES, launches=_LAUNCHES).key
    cache, offered = _cache(device, tmp_path), {key: b"rubbish"}
    with cache.offered(offered):
        program = cache.get("double.cl", _DEFINES, launches=_LAUNCHES)
    assert not program.from_disk
    assert offered == {}
    assert _launch(device, program) == _DOUBLED


def test_a_file_that_is_used_is_not_the_oldest(device: Device, tmp_path: Path) -> None:
    path = _fill(device, tmp_path)
    os.utime(path, (1, 1))
    assert _cache(device, tmp_path).get("double.cl", _DEFINES, launches=_LAUNCHES).from_disk
    assert path.stat().st_mtime > 1


def test_a_file_that_cannot_be_touched_is_used(device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a file system that can only be read."""
    _fill(device, tmp_path)

    def failing(path: Path) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(Path, "touch", failing)
    assert _cache(device, tmp_path).get("double.cl", _DEFINES, launches=_LAUNCHES).from_disk


def test_a_folder_is_kept_within_its_size(device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the file that was written last."""
    seen: list[list[Path]] = []
    monkeypatch.setattr(programs, "_prune", lambda folder: seen.append(list(folder.glob("*.bin"))))
    path = _fill(device, tmp_path)
    assert seen == [[path]]


def test_a_folder_that_was_removed_since_is_made_again(device: Device, tmp_path: Path) -> None:
    cache = _cache(device, tmp_path / "programs")
    program = cache.get("double.cl", _DEFINES, launches=_LAUNCHES)
    assert _launch(device, program) == _DOUBLED
    shutil.rmtree(tmp_path / "programs")
    assert cache.store(program)
    assert program.path.exists()


def test_who_waits_long_for_the_folder_stores_nothing(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "_LOCK_SECONDS", 0.01)
    cache = _cache(device, tmp_path)
    program = cache.get("double.cl", _DEFINES, launches=_LAUNCHES)
    assert _launch(device, program) == _DOUBLED
    with filelock.FileLock(tmp_path / ".lock"):
        assert not cache.store(program)
    assert not program.path.exists()


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "foreign", "sealed rubbish"])
def test_damage_means_a_new_build(device: Device, tmp_path: Path, damage: str) -> None:
    path = _fill(device, tmp_path)
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 1
    broken = {"cut": data[:-1], "flip": data, "empty": b"", "foreign": b"x" * 99, "sealed rubbish": b""}[damage]
    path.write_bytes(cache_files.seal(b"rubbish") if damage == "sealed rubbish" else broken)
    cache = _cache(device, tmp_path)
    program = cache.get("double.cl", _DEFINES, launches=_LAUNCHES)
    assert not program.from_disk
    assert _launch(device, program) == _DOUBLED
    assert cache.store(program)
    assert _cache(device, tmp_path).get("double.cl", _DEFINES, launches=_LAUNCHES).from_disk


def _unwritable(kind: str, folder: Path) -> Path:
    """Return a folder for programs that cannot be made."""
    if kind == "a file":
        (folder / "file").write_text("")
        return folder / "file" / "programs"
    return {"a device": Path("/dev/null/programs"), "not there": Path("/proc/no/such/programs")}[kind]


@pytest.mark.parametrize("kind", ["a file", "a device", "not there"])
def test_unwritable_folder(device: Device, tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """Everything works, and one warning says that nothing is kept."""
    folder = _unwritable(kind, tmp_path)
    programs._warn_where_nothing_is_kept.cache_clear()
    for _ in range(2):
        cache = _cache(device, folder)
        program = cache.get("double.cl", _DEFINES, launches=_LAUNCHES)
        assert _launch(device, program) == _DOUBLED
        assert not cache.store(program)
    (warned,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert f"programs cannot be kept in {folder} (" in warned.getMessage()


def test_a_folder_that_is_gone(device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative folder where the working directory was removed."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    cache = _cache(device, Path("cache/programs"))
    program = cache.get("double.cl", _DEFINES, launches=_LAUNCHES)
    assert _launch(device, program) == _DOUBLED
    assert not cache.store(program)


def test_a_folder_that_can_be_written_is_no_matter(
    device: Device, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _fill(device, tmp_path)
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_nothing_is_read_for_an_unwritable_folder(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading makes PoCL compile, so the end of the process would wait for nothing."""
    cache = _cache(device, Path("/dev/null/programs"))
    program = cache.get("double.cl", _DEFINES, launches=_LAUNCHES)
    assert _launch(device, program) == _DOUBLED
    cache.keep(program)
    read: list[Program] = []
    monkeypatch.setattr(cache, "_binary", read.append)
    cache.store_kept()
    assert not read


@pytest.mark.parametrize("fails", [True, False])
def test_a_driver_that_gives_no_binary_costs_nothing_but_time(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    import pyopencl as cl

    def failing(_program: Program) -> bytes:
        if fails:
            raise opencl_error(cl.status_code.OUT_OF_HOST_MEMORY)
        return b""

    for store in (ProgramCache.store, ProgramCache.keep):
        cache = _cache(device, tmp_path)
        monkeypatch.setattr(cache, "_binary", failing)
        program = cache.get("double.cl", _DEFINES, launches=_LAUNCHES)
        assert not store(cache, program)
        cache.store_kept()
        assert not program.path.exists()
        assert (cache.stats.builds, cache.stats.stores) == (1, 0)
        assert _launch(device, program) == _DOUBLED


def test_build_failure_tells_source_line_and_options(device: Device, tmp_path: Path) -> None:
    cache = _cache(device, tmp_path)
    with pytest.raises(ProgramBuildError, match=r"double\.cl does not build for opencl-") as caught:
        cache.get("double.cl", {"T": "no_such_type", "FACTOR": 1})
    assert "-DT=no_such_type" in caught.value.options
    assert "no_such_type" in caught.value.log
    assert "double.cl:1" in caught.value.log
    assert "BUILD_PROGRAM_FAILURE" not in caught.value.log


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("a warning\n  x.cl:3: error: first  \nx.cl:4: error: second\n", "x.cl:3: error: first"),
        ("a warning", "no error message"),
    ],
)
def test_the_first_error_sums_up_a_build_failure(log: str, said: str) -> None:
    error = ProgramBuildError("x.cl", ("-w", "-DA=1"), "a device", log)
    assert error.summary == f"x.cl does not build for a device: {said}"
    assert str(error) == f"{error.summary}\noptions: -w -DA=1\n{log}"


def test_a_program_whose_build_found_no_memory_is_never_given_back(device: Device, tmp_path: Path) -> None:
    """PoCL would wait for the lock that it had taken."""

    class Starved:
        int_ptr = 0

        def build(self, options: list[str], devices: object) -> None:
            raise MemoryError("std::bad_alloc")

    starved = Starved()
    known = sys.getrefcount(starved)
    with pytest.raises(MemoryError):
        _cache(device, tmp_path)._built(cast("cl.Program", starved), ())
    assert sys.getrefcount(starved) == known + 1


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="this system has no signal masks")
def test_interrupts_are_held_while_the_driver_compiles(device: Device, tmp_path: Path) -> None:
    """Where it builds, and where it is asked for a binary."""

    class Compiling:
        int_ptr = 0

        def __init__(self) -> None:
            self.held: list[bool] = []

        def build(self, options: list[str], devices: object) -> None:
            self.held.append(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))

        @property
        def binaries(self) -> list[bytes]:
            self.build([], None)
            return [b"binary"]

    cache, compiling = _cache(device, tmp_path), Compiling()
    built = cache._built(cast("cl.Program", compiling), ())
    assert cache.binary(Program("x.cl", (), "", tmp_path / "x.bin", False, built)) == b"binary"
    assert compiling.held == [True, True]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_compiler_warnings_stay_in_the_log(
    device: Device, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG, programs.__name__)
    monkeypatch.setenv("PYOPENCL_COMPILER_OUTPUT", "1")
    text = '#warning "look"\n' + _SOURCE
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _launch(device, _cache(device, tmp_path, text).get("double.cl", _DEFINES))
    if device[1].slug != "pocl":  # whose compiler writes them to the error output
        assert any("look" in record.getMessage() for record in caplog.records)


def test_threads_make_kernels_at_once_where_pyopencl_keeps_nothing(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It generates code for each kernel there, and warns where two threads do that at once."""
    monkeypatch.setattr("pyopencl._PYOPENCL_NO_CACHE", True)
    program = _cache(device, tmp_path).get("double.cl", _DEFINES)

    def work() -> None:
        for _ in range(30):
            program.kernel("doubled")

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        assert at_once([work] * 8) == []
    finally:
        sys.setswitchinterval(interval)


def test_processes_share_a_folder(device: Device, tmp_path: Path) -> None:
    code = f"""
import numpy as np, pyopencl as cl
from pathlib import Path
from gpu_driver.discovery.platforms import find_devices
from tests.gpu_driver.device import test_programs as t
found = next(found for found in find_devices() if found.name == {device[1].name!r})
device = cl.Context([found.device]), t.profile_of(found)
cache = t._cache(device, Path({str(tmp_path)!r}))
program = cache.get("double.cl", t._DEFINES, launches=t._LAUNCHES)
assert t._launch(device, program) == t._DOUBLED
cache.store(program)
"""
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    started = [subprocess.Popen([sys.executable, "-c", code], env=environment) for _ in range(4)]
    assert [process.wait(timeout=300) for process in started] == [0] * 4
    assert _cache(device, tmp_path).get("double.cl", _DEFINES, launches=_LAUNCHES).from_disk
    assert sorted(path.suffix for path in tmp_path.iterdir() if path.name != ".lock") == [".bin"]


def test_full_folder_loses_the_files_longest_unused(tmp_path: Path) -> None:
    for number in range(8):
        (tmp_path / f"{number}.bin").write_bytes(b"x" * 100)
        os.utime(tmp_path / f"{number}.bin", (9 - number, number))  # read last, written last
    programs._prune(tmp_path, limit_bytes=800)
    assert len(list(tmp_path.iterdir())) == 8
    programs._prune(tmp_path, limit_bytes=400)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["5.bin", "6.bin", "7.bin"]


def test_a_full_folder_keeps_what_others_write_and_what_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "folder.bin").mkdir()
    (tmp_path / "nowhere.bin").symlink_to(tmp_path / "nothing")
    size = (tmp_path / "folder.bin").stat().st_size
    for number in range(1, 5):
        (tmp_path / f"{number}.bin").write_bytes(bytes(size))
        os.utime(tmp_path / f"{number}.bin", (number, number))
    for name in (".lock", ".nnrt-new-half"):
        (tmp_path / name).write_bytes(bytes(size))
    for path in tmp_path.iterdir():
        if path.name != "nowhere.bin" and path.stat().st_mtime > 9:
            os.utime(path, (0, 0))
    programs._prune(tmp_path, limit_bytes=4 * size)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [".lock", ".nnrt-new-half", "3.bin", "4.bin", "folder.bin", "nowhere.bin"]


def test_halves_are_converted_by_assembly_where_that_is_known_to_work(device: Device, tmp_path: Path) -> None:
    source = "kernel void doubled(global int *a) { a[get_global_id(0)] *= 2; }"
    context, profile = device
    vnni = frozenset({"x86_vnni"})
    for slug, version, features, file, name, wanted in (
        ("pocl", "PoCL 3.0-rc2", vnni, "x.cl", "half", True),
        ("pocl", "PoCL 3.0-rc2", vnni, "x.cl", "float", True),
        ("pocl", "PoCL 3.0-rc2", vnni, "x.cl", "uchar", False),
        ("pocl", "PoCL 3.0-rc2", frozenset[str](), "x.cl", "half", False),
        ("pocl", "PoCL 6.0+debian", vnni, "x.cl", "half", False),
        ("pocl", "PoCL 6.0+debian", vnni, "chain.cl", "half", True),
        ("pocl", "PoCL 7.1+debian", vnni, "x.cl", "half", True),
        ("intel", "LINUX", vnni, "x.cl", "half", False),
    ):
        told = replace(profile, slug=slug, platform_version=f"OpenCL 3.0 {version}", features=features)
        cache = _cache((context, told), tmp_path, source)
        assert ("-DHALF_BY_ASSEMBLY=1" in cache.get(file, {"T": name}).options) is wanted


def test_the_sign_of_halves_is_put_back_for_rusticl(device: Device, tmp_path: Path) -> None:
    context, profile = device
    for slug, name, wanted in (("rusticl", "half", True), ("rusticl", "float", False), ("nvidia", "half", False)):
        cache = _cache((context, replace(profile, slug=slug)), tmp_path, "kernel void empty(global int *a) {}")
        assert ("-DSIGN_APART=1" in cache.get("x.cl", {"T": name}).options) is wanted


def test_tables_are_looked_up_by_vbmi_where_that_is_known_to_work(device: Device, tmp_path: Path) -> None:
    source = "kernel void doubled(global int *a) { a[get_global_id(0)] *= 2; }"
    context, profile = device
    for version, features, file, dot4, wanted in (
        ("PoCL 3.0-rc2", {"x86_vnni", "x86_vbmi"}, "x.cl", 3, True),
        ("PoCL 3.0-rc2", {"x86_amx", "x86_vnni", "x86_vbmi"}, "x.cl", 4, True),
        ("PoCL 3.0-rc2", {"x86_vnni", "x86_vbmi"}, "x.cl", 1, False),
        ("PoCL 3.0-rc2", {"x86_vnni", "x86_vbmi"}, "x.cl", 0, False),
        ("PoCL 3.0-rc2", {"x86_vnni"}, "x.cl", 3, False),
        ("PoCL 6.0+debian", {"x86_vnni", "x86_vbmi"}, "x.cl", 3, False),
        ("PoCL 6.0+debian", {"x86_vnni", "x86_vbmi"}, "chain.cl", 3, True),
        ("LINUX", {"x86_vnni", "x86_vbmi"}, "x.cl", 3, True),
    ):
        told = replace(profile, platform_version=f"OpenCL 3.0 {version}", features=frozenset(features))
        cache = _cache((context, told), tmp_path, source)
        assert ("-DVBMI=1" in cache.get(file, {"T": "uchar", "DOT4": dot4}).options) is wanted


def test_pointers_are_kept_by_assembly_where_that_is_known_to_work(device: Device, tmp_path: Path) -> None:
    """In kernels whose tile is a vector wide."""
    context, profile = device
    defines: dict[str, str | int] = {"T": "float"}
    for features, added, wanted in (
        ({"x86_vnni"}, {"TILE_VECTORS": 1}, True),
        ({"x86_vnni"}, {"TILE_VECTORS": 2}, False),
        ({"x86_vnni"}, {}, False),
        (set[str](), {"TILE_VECTORS": 1}, False),
    ):
        told = replace(profile, features=frozenset(features))
        cache = _cache((context, told), tmp_path, "kernel void empty(global int *a) {}")
        assert ("-DPOINTERS_BY_ASSEMBLY=1" in cache.get("x.cl", {**defines, **added}).options) is wanted


def test_vectors_are_taken_by_alignment_on_all_but_processors(device: Device, tmp_path: Path) -> None:
    context, profile = device
    for kind, wanted in ((DeviceTypeCode.CPU, False), (DeviceTypeCode.GPU, True), (DeviceTypeCode.ACCELERATOR, True)):
        told = replace(profile, type=kind, features=frozenset())
        cache = _cache((context, told), tmp_path, "kernel void empty(global int *a) {}")
        assert ("-DVECTORS_BY_ALIGNMENT=1" in cache.get("x.cl", {}).options) is wanted


def test_options_are_the_same_for_equal_defines() -> None:
    always = "-cl-denorms-are-zero"
    assert build_options({"B": True, "A": "half"}, ["-w"]) == ("-cl-std=CL1.2", always, "-w", "-DA=half", "-DB=1")


@pytest.mark.parametrize(
    ("slug", "version", "is_told"),
    [
        ("pocl", "OpenCL 3.0 PoCL 3.0-rc2  Linux, Release, RELOC, LLVM 14.0.6, SLEEF, DISTRO, POCL_DEBUG", True),
        ("pocl", "OpenCL 3.0 PoCL 3.1+debian  Linux, None+Asserts, RELOC, LLVM 15.0.6, SLEEF", True),
        ("pocl", "OpenCL 3.0 PoCL 4.0+debian  Linux, None+Asserts, RELOC, SPIR, LLVM 16.0.6, SLEEF", True),
        ("pocl", "OpenCL 3.0 PoCL 5.0+debian  Linux, None+Asserts, RELOC, SPIR, LLVM 17.0.6, SLEEF", False),
        ("pocl", "OpenCL 3.0 PoCL 6.0+debian  Linux, None+Asserts, RELOC, SPIR-V, LLVM 18.1.8, SLEEF", False),
        ("pocl", "OpenCL 3.0 PoCL 1.8", True),
        ("intel", "OpenCL 3.1 LINUX, LLVM 18.1.8", True),
        ("nvidia", "OpenCL 3.0 CUDA 13.0.98", True),
    ],
)
def test_compilers_that_would_inline_no_function_are_not_told_of_denormals(
    slug: str, version: str, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_processor = {}
    for machine in ("x86_64", "aarch64"):
        monkeypatch.setattr(programs, "host_cpu", lambda machine=machine: HostCpu(machine, "", frozenset()))
        by_processor[machine] = denormal_options(replace(CPU_PROFILE, slug=slug, platform_version=version))
    flag = ("-cl-denorms-are-zero",)
    not_told = {"x86_64": ("-DFLUSH_BY_HAND=1",), "aarch64": ()}
    assert by_processor == ({"x86_64": flag, "aarch64": flag} if is_told else not_told)
    if slug == "pocl":
        assert denormal_options(replace(GPU_PROFILE, slug=slug, platform_version=version)) == flag


def test_kernels_make_zeros_of_denormals(device: Device, tmp_path: Path) -> None:
    """However they are told to: 1e-38 is the operand, 2e-38 * 0.5 the result below the least normal number."""
    import pyopencl as cl

    context, profile = device
    if not (profile.is_cpu and profile.slug in ("pocl", "intel")):
        pytest.skip("others may keep them")
    text = (
        kernels_cl.source("common/denormals.h")
        + """
        kernel void halved(global float *a) { FLUSH_DENORMALS; a[0] *= 4.0f; a[1] *= 0.5f; a[2] *= 0.5f; }
    """
    )
    ways = [denormal_options(profile)]
    if profile.slug == "pocl" and host_cpu().is_x86:
        ways.append(("-DFLUSH_BY_HAND=1",))
    for options in ways:
        cache = ProgramCache(context, profile, directory=tmp_path, source=lambda name: text)
        cache._denormals = options
        kernel = cache.get("halved.cl", {}).kernel("halved")
        queue, array = cl.CommandQueue(context), np.array([1e-38, 2e-38, 3], np.float32)
        buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=array)
        kernel.set_arg(0, buffer)
        cl.enqueue_nd_range_kernel(queue, kernel, (1,), (1,))
        cl.enqueue_copy(queue, array, buffer)
        assert array.tolist() == [0, 0, 1.5], options


@pytest.mark.parametrize("define", [("A B", "1"), ("A", "1 -DX"), ("A", '"'), ("A", "a\nb"), ("", "1"), ("A", "\\")])
def test_defines_are_single_words(define: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="not a define"):
        build_options(dict([define]))


def test_missing_resources_are_not_the_programs_fault(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyopencl as cl

    def built(*_arguments: object) -> cl.Program:
        raise cl.RuntimeError(cl._cl._ErrorRecord("clTest", cl.status_code.OUT_OF_RESOURCES, "made up"))

    cache = _cache(device, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(cache, "_built", built)
        with pytest.raises(cl.Error) as caught:
            cache.get("double.cl", _DEFINES, _LAUNCHES)
    assert hal_error(caught.value, "preparation").status == ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
    assert _launch(device, cache.get("double.cl", _DEFINES, _LAUNCHES)) == [2.0 * at for at in range(8)]
