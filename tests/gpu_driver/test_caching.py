# SPDX-License-Identifier: Apache-2.0
"""Compilation caching of the OpenCL driver: other processes, damage, exchange, forgery, who may have written a file."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import logging
import os
import random
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from cpu_driver.driver import Device as CpuDevice
from gpu_driver import cache_files, compilation_cache
from gpu_driver.compilation_cache import Compiled, load, save
from gpu_driver.preparation import Preparation
from nn_runtime.codes import OperationCode
from nn_runtime.hal.dynamic_quantization import with_permission
from nn_runtime.hal.interfaces import CacheRequest
from nn_runtime.hal.types import ErrorStatus, ExecutionPreference, HalError, Priority
from nn_runtime.testing.random_graph import Size, compare, generate
from tests.gpu_driver.cached import TOKEN, check
from tests.gpu_driver.cached import damaged as damage
from tests.gpu_driver.graphs import Graph, request
from tests.gpu_driver.profiles import CPU_PROFILE
from tests.gpu_driver.running import doubling, ended, fresh, prepare, run, run_doubling, start_python, transposing
from tests.gpu_driver.test_control_flow import loop
from tests.nn_runtime.descriptors import needs_descriptors, open_descriptors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gpu_driver.driver import Device
    from gpu_driver.prepared_model import PreparedModel
    from nn_runtime.hal.types import Model

BEST = ExecutionPreference.FAST_SINGLE_ANSWER
SHORT_TRIALS, LONG_TRIALS = 50, 1000
TRIALS_PER_PROCESS = 250


class Files:
    """A model and a data file of an application."""

    def __init__(self, folder: Path) -> None:
        self.model, self.data = folder / "model", folder / "data"
        self._opened: list[int] = []

    def request(self, token: bytes = TOKEN) -> CacheRequest:
        fds = [os.open(path, os.O_RDWR | os.O_CREAT, 0o600) for path in (self.model, self.data)]
        self._opened += fds
        return CacheRequest((fds[0],), (fds[1],), token)

    def close(self) -> None:
        for fd in self._opened:
            os.close(fd)


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    found = Files(tmp_path)
    yield found
    found.close()


@pytest.fixture
def device(opencl_device: Device) -> Device:
    """The device under test, with a context and counts of its own."""
    return fresh(opencl_device)


def filled(device: Device, files: Files, model: Model | None = None) -> PreparedModel:
    model = model or doubling(3)
    prepared = device.prepare_model(model, BEST, Priority.LOW, None, files.request())
    assert device.statistics()["models_saved"] == 1
    return prepared


def refusal(device: Device, cache: CacheRequest) -> str:
    with pytest.raises(HalError) as caught:
        device.prepare_model_from_cache(None, cache)
    assert caught.value.status == ErrorStatus.GENERAL_FAILURE
    return str(caught.value)


# Other processes

_CHECK = "from tests.gpu_driver.cached import *\ncheck(device, {folder!r})\n"
_TELL = """
names = "programs_built", "programs_loaded", "models_saved", "models_from_cache"
print(*(device.statistics()[name] for name in names))
"""


def counts_of(started: subprocess.Popen[str], *, warns: bool = False) -> list[int]:
    """Return what a process counted; `warns`: it has built programs that it could not keep, and said so once."""
    status, out, err = ended(started)
    assert (status, err.count("\n")) == (0, int(warns)), err
    assert ("programs cannot be kept in" in err) == warns
    return [int(word) for word in out.split()]


def own_cache(folder: Path, *, with_programs: bool) -> Path:
    """Return a folder for the driver's own cache, which takes no programs where a file is in their place."""
    folder.mkdir()
    if not with_programs:
        (folder / "programs").touch()
    return folder


@pytest.fixture(params=[True, False], ids=["with program cache", "without"])
def own(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return own_cache(tmp_path / "own", with_programs=request.param)


def test_another_process_prepares_without_building(
    opencl_device: Device, tmp_path: Path, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "kept"
    folder.mkdir()
    code = _CHECK.format(folder=str(folder)) + _TELL
    monkeypatch.setenv("POCL_CACHE_DIR", str(tmp_path / "pocl1"))
    built, _, *models = counts_of(start_python(code, opencl_device, own), warns=(own / "programs").is_file())
    assert built
    assert models == [1, 0]
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert len(before) == 2
    monkeypatch.setenv("POCL_CACHE_DIR", str(tmp_path / "pocl2"))
    for path in own.glob("programs/*.bin"):
        path.unlink()
    assert counts_of(start_python(code, opencl_device, own)) == [0, built, 0, 1]
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_processes_at_once_on_one_cache(opencl_device: Device, tmp_path: Path) -> None:
    own = own_cache(tmp_path / "own", with_programs=True)
    code = _CHECK.format(folder=str(tmp_path)) + _TELL
    first = [start_python(code, opencl_device, own) for _ in range(3)]
    counts = [counts_of(started) for started in first]
    assert any(saved for _, _, saved, _ in counts)
    second = [start_python(code, opencl_device, own) for _ in range(3)]
    assert [counts_of(started)[2:] for started in second] == [[0, 1]] * 3


def test_folders_that_cannot_be_written(opencl_device: Device, tmp_path: Path) -> None:
    own = own_cache(tmp_path / "own", with_programs=True)
    folder = tmp_path / "kept"
    folder.mkdir()
    check(fresh(opencl_device), folder)
    for path in folder.iterdir():
        path.chmod(0o400)
    folder.chmod(0o500)
    try:
        *_, saved, found = counts_of(start_python(_CHECK.format(folder=str(folder)) + _TELL, opencl_device, own))
        assert (saved, found) == (0, int(os.geteuid() == 0))  # the administrator writes everywhere
    finally:
        folder.chmod(0o700)
    missing = str(tmp_path / "own" / "programs" / "missing")
    status, out, err = ended(start_python(_CHECK.format(folder=missing) + _TELL, opencl_device, own))
    assert (status, out.split()[2:]) == (0, ["0", "0"])
    assert "no compilation cache" in err


def test_a_driver_in_a_process_of_its_own(
    opencl_device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = own_cache(tmp_path / "own", with_programs=False)
    monkeypatch.setenv("NNRT_DRIVER_HOST", "process")
    code = _CHECK.format(folder=str(tmp_path)) + _TELL + "assert type(device).__name__ == 'RemoteDevice'"
    built, _, *models = counts_of(start_python(code, opencl_device, own), warns=True)
    assert built
    assert models == [1, 0]
    assert counts_of(start_python(code, opencl_device, own)) == [0, built, 0, 1]


# Damage, in another process, so that a crash is seen

_DAMAGE = """
import random
from pathlib import Path
generator = random.Random({seed})
for at in range({trials}):
    device = Device(device._found, 0)  # a new context, so that binaries are made into programs again
    path = generator.choice(sorted(path for path in Path({folder!r}).iterdir()))
    path.write_bytes(damaged(path.read_bytes(), generator))
    check(device, {folder!r})
    counts = device.statistics()
    assert (counts["models_saved"], counts["models_from_cache"]) == (1, 0), (at, counts)
    if at % 10 == 0:
        device = Device(device._found, 0)
        check(device, {folder!r})
        counts = device.statistics()
        assert (counts["models_saved"], counts["models_from_cache"]) == (0, 1), (at, counts)
"""
_FORGERY = """
import random
from pathlib import Path
generator = random.Random({seed})
path = max(Path({folder!r}).iterdir(), key=lambda path: path.name[-2:] == "10")
whole = path.read_bytes()
for at in range({trials}):
    device = Device(device._found, 0)
    path.write_bytes(forged(whole, generator))
    survives(device, {folder!r})
"""


def trials(is_long: bool) -> list[int]:
    """Return how many trials each process makes."""
    if not is_long:
        return [SHORT_TRIALS]
    return [TRIALS_PER_PROCESS] * (LONG_TRIALS // TRIALS_PER_PROCESS)


@pytest.mark.parametrize("code", [_DAMAGE, _FORGERY], ids=["damage", "forgery"])
def test_no_damage_crashes_and_none_gives_a_wrong_result(
    opencl_device: Device, tmp_path: Path, is_long: bool, code: str
) -> None:
    own = own_cache(tmp_path / "own", with_programs=True)
    kept = tmp_path / "kept"
    kept.mkdir()
    for seed, count in enumerate(trials(is_long)):
        filling = _CHECK.format(folder=str(kept))
        script = filling + code.format(folder=str(kept), seed=seed, trials=count)
        status, _, err = ended(start_python(script, opencl_device, own))
        assert (status, err) == (0, ""), f"seed {seed}"


# The files themselves


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    """A file that is open for reading and writing, and not at its beginning."""
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT, 0o600)
    os.write(fd, b"content")
    yield fd
    os.close(fd)


def test_anything_but_what_was_sealed_is_foreign() -> None:
    sealed = cache_files.seal(b"a payload")
    assert cache_files.unseal(sealed) == b"a payload"
    assert cache_files.unseal(cache_files.seal(b"")) == b""
    for at in range(len(sealed)):
        assert cache_files.unseal(sealed[:at]) is None
        assert cache_files.unseal(sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :]) is None
    assert cache_files.unseal(sealed + b"\0") is None


@needs_descriptors
def test_no_descriptor_of_a_file_that_was_read_is_kept(tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_bytes(b"content")
    bad.touch()
    bad.chmod(0o666)
    before = open_descriptors()
    for path, wanted in 5 * ((good, b"content"), (bad, None), (tmp_path / "missing", None), (tmp_path, None)):
        assert cache_files.read_trusted(path) == wanted
    assert open_descriptors() <= before


def test_the_log_tells_of_files_that_are_there_and_are_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, cache_files.__name__)
    assert cache_files.read_trusted(tmp_path / "missing") is None
    assert not caplog.records
    assert cache_files.read_trusted(tmp_path) is None
    assert [record.getMessage() for record in caplog.records] == [f"{tmp_path} is not used: it is no regular file"]


def test_only_the_user_and_the_administrator_may_write(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    for mode, is_trusted in ((0o644, True), (0o620, False), (0o602, False), (0o600, True)):
        path.chmod(mode)
        assert (cache_files.read_trusted(path) == b"content") is is_trusted


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs to give files away")
def test_files_of_the_user_and_of_the_administrator_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    for owner, user, is_trusted in ((0, 7, True), (7, 7, True), (8, 7, False), (7, 0, False), (0, 0, True)):
        os.chown(path, owner, -1)
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        assert (cache_files.read_trusted(path) == b"content") is is_trusted


def test_a_file_without_a_name_may_have_any_mode(file: int, tmp_path: Path) -> None:
    """As those in memory have."""
    os.fchmod(file, 0o666)
    with pytest.raises(cache_files.Unusable, match=r"others may write to it \(mode 666\)"):
        cache_files.read_descriptor(file)
    (tmp_path / "file").unlink()
    assert cache_files.read_descriptor(file) == b"content"


def test_a_file_may_be_as_large_as_the_limit(file: int) -> None:
    assert cache_files.read_descriptor(file, 7) == b"content"
    with pytest.raises(cache_files.Unusable, match="it has 7 bytes, more than 6"):
        cache_files.read_descriptor(file, 6)


def test_systems_that_read_and_write_less_than_they_are_told(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux stops at 2 GiB."""
    read, write = os.read, os.write
    monkeypatch.setattr(os, "read", lambda fd, count: read(fd, min(count, 3)))
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:3]))
    assert cache_files.read_descriptor(file) == b"content"
    cache_files.rewrite_descriptor(file, b"other content")
    assert cache_files.read_descriptor(file) == b"other content"


def test_a_file_that_is_cut_while_it_is_read(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    read = os.read

    def cutting(fd: int, count: int) -> bytes:
        os.ftruncate(fd, 4)
        return read(fd, count)

    monkeypatch.setattr(os, "read", cutting)
    assert cache_files.read_descriptor(file) == b"cont"


def test_a_disk_that_is_full_in_the_middle_leaves_an_empty_file(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    write, room = os.write, iter([3, 2])

    def filling(fd: int, data: bytes) -> int:
        count = next(room, 0)
        if not count:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, data[:count])

    monkeypatch.setattr(os, "write", filling)
    with pytest.raises(OSError, match="No space left"):
        cache_files.rewrite_descriptor(file, b"other content")
    assert cache_files.read_descriptor(file) == b""


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    assert cache_files.try_write(tmp_path / "file", b"content")
    assert not cache_files.try_write(tmp_path / "file" / "below", b"content")
    assert (tmp_path / "file").read_bytes() == b"content"


def test_many_may_read_a_file_at_once(file: int, tmp_path: Path) -> None:
    other = os.open(tmp_path / "file", os.O_RDWR)
    try:
        with cache_files.locked(file, exclusive=False, wait_seconds=0.0) as mine:
            with cache_files.locked(other, exclusive=False, wait_seconds=0.0) as others:
                assert (mine, others) == (True, True)
            with cache_files.locked(other, exclusive=True, wait_seconds=0.0) as others:
                assert not others
        with cache_files.locked(other, exclusive=True, wait_seconds=0.0) as others:
            assert others
    finally:
        os.close(other)


def test_who_reads_waits_for_who_writes(file: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = os.open(tmp_path / "file", os.O_RDWR)
    writing = contextlib.ExitStack()
    monkeypatch.setattr(
        cache_files, "time", SimpleNamespace(monotonic=time.monotonic, sleep=lambda _seconds: writing.close())
    )
    try:
        assert writing.enter_context(cache_files.locked(other, exclusive=True, wait_seconds=0.0))
        with cache_files.locked(file, exclusive=False, wait_seconds=60.0) as is_quiet:
            assert is_quiet
    finally:
        os.close(other)


def test_file_systems_without_locks_have_none(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(fd: int, wanted: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(cache_files.fcntl, "flock", failing)
    with cache_files.locked(file, exclusive=True, wait_seconds=0.0) as got:
        assert got


_FORKING = """
import os, sys
from gpu_driver.cache_files import folder_of_process
folder = folder_of_process("nnrt-test-")
if os.fork() == 0:
    sys.exit()
os.wait()
print(folder, os.path.isdir(folder), oct(os.stat(folder).st_mode & 0o777))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_a_folder_of_a_process_goes_with_it_alone() -> None:
    """Not with a child."""
    done = subprocess.run([sys.executable, "-c", _FORKING], stdout=subprocess.PIPE, text=True, check=True)
    folder, *told = done.stdout.split()
    assert told == ["True", "0o700"]
    assert not Path(folder).exists()


# What a file is for

_CODE = b"no code, a test's bytes"


@pytest.fixture
def kept(files: Files) -> Files:
    """Files with a model and bytes in the place of a program, written for CPU_PROFILE; needs no device."""
    model = CpuDevice().prepare_model(doubling(2), BEST, Priority.MEDIUM, None, None).model
    assert save(files.request(), CPU_PROFILE, Compiled(model, Preparation(priority=Priority.HIGH), {"key": _CODE}))
    return files


def test_what_was_saved_comes_back(kept: Files) -> None:
    found = load(kept.request(), CPU_PROFILE)
    assert found.how.priority == Priority.HIGH
    assert found.binaries == {"key": _CODE}
    prepared = CpuDevice().prepare_model(found.model, BEST, Priority.MEDIUM, None, None)
    source, result = np.arange(32, dtype=np.float32).reshape(2, 16), np.zeros((2, 16), np.float32)
    prepared.execute_synchronously(request([source], [result]), False, None, None)
    np.testing.assert_array_equal(result, 2 * source)


@pytest.mark.parametrize("what", ["name", "identity", "device_version", "driver_version"])
def test_another_device_driver_or_platform_is_refused(kept: Files, what: str) -> None:
    with pytest.raises(HalError, match="is for another"):
        load(kept.request(), replace(CPU_PROFILE, **{what: "another"}))


def test_another_version_of_the_package_is_refused(kept: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation_cache, "_package_version", lambda: "99")
    with pytest.raises(HalError, match="is for another package"):
        load(kept.request(), CPU_PROFILE)


def test_the_preference_comes_back(files: Files) -> None:
    how = Preparation(ExecutionPreference.LOW_POWER, Priority.MEDIUM)
    assert save(files.request(), CPU_PROFILE, Compiled(transposing(), how, {}))
    assert load(files.request(), CPU_PROFILE).how == how


def rewritten(path: Path, change: Callable[[dict[str, Any]], object], more: bytes = b"") -> None:
    """Change the header of a file, as the driver that wrote it could have, and add bytes at its end."""
    content = cache_files.unseal(path.read_bytes())
    assert content is not None
    (length,) = struct.unpack_from("<I", content)
    header = json.loads(content[4 : 4 + length])
    change(header)
    text = json.dumps(header).encode().ljust(length)
    path.write_bytes(cache_files.seal(struct.pack("<I", len(text)) + text + content[4 + length :] + more))


@pytest.mark.parametrize(
    ("change", "more", "message"),
    [
        (lambda header: header.update(priority="0"), b"", "its header has no priority"),
        (lambda header: header.update(priority=True), b"", "its header has no priority"),
        (lambda header: header.pop("preference"), b"", "its header has no preference"),
        (lambda header: header.update(programs={}), b"", "does not name the programs"),
        (lambda header: header.update(programs=None), b"", "does not name the programs"),
        (lambda header: header["programs"].clear(), b"", "does not name the programs"),
        (lambda header: header["programs"][0].reverse(), b"", "not the one that its header names"),
        (lambda header: header["programs"][0].append(0), b"", "not the one that its header names"),
        (lambda header: header["programs"][0].pop(), b"", "not the one that its header names"),
        (lambda header: header.update(programs=[7]), b"", "not the one that its header names"),
        (lambda header: header.update(lengths=[-1]), b"", "outside of the file"),
        (lambda header: header.update(lengths=[1 << 40]), b"", "outside of the file"),
        (lambda header: header.update(lengths=[]), b"", "not all of the file"),
        (lambda header: header.update(lengths=7), b"", "no cache file"),
        (lambda header: header.update(lengths=["7"]), b"", "no cache file"),
        (lambda header: header.pop("lengths"), b"", "no cache file"),
        (lambda header: None, b"x", "not all of the file"),
    ],
)
def test_a_header_that_does_not_fit_is_refused(
    kept: Files, change: Callable[[dict[str, Any]], object], more: bytes, message: str
) -> None:
    rewritten(kept.model, lambda _header: None)
    load(kept.request(), CPU_PROFILE)
    rewritten(kept.model, change, more)
    with pytest.raises(HalError, match=message):
        load(kept.request(), CPU_PROFILE)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the model file is empty"),
        (b"x" * 99, "the model file is damaged"),
        (cache_files.seal(b"123"), "no cache file"),
        (cache_files.seal(struct.pack("<I", 1 << 20) + b"[" * (1 << 20)), "no cache file"),
    ],
    ids=["empty", "damaged", "short", "deep"],
)
def test_what_has_no_header_is_refused(kept: Files, content: bytes, message: str) -> None:
    kept.model.write_bytes(content)
    with pytest.raises(HalError, match=message) as caught:
        load(kept.request(), CPU_PROFILE)
    assert caught.value.status == ErrorStatus.GENERAL_FAILURE


def test_another_format_is_refused(kept: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation_cache, "_FORMAT", compilation_cache._FORMAT + 1)
    with pytest.raises(HalError, match="is for another format"):
        load(kept.request(), CPU_PROFILE)


def test_constants_for_another_token_are_refused(kept: Files) -> None:
    """Though the model file names them."""
    rewritten(kept.data, lambda header: header.update(token="x" * 1000))
    digest = cache_files.digest_of(kept.data.read_bytes()).hex()
    rewritten(kept.model, lambda header: header.update(data=digest))
    with pytest.raises(HalError, match="the data file is for another token") as caught:
        load(kept.request(), CPU_PROFILE)
    assert len(str(caught.value)) < 200  # whatever the file says


def test_another_token_is_refused(kept: Files) -> None:
    with pytest.raises(HalError, match="is for another token"):
        load(kept.request(TOKEN[::-1]), CPU_PROFILE)


def test_exchanged_files_are_refused(kept: Files, tmp_path: Path) -> None:
    content = kept.model.read_bytes(), kept.data.read_bytes()
    kept.model.write_bytes(content[1])
    kept.data.write_bytes(content[0])
    with pytest.raises(HalError, match="another kind"):
        load(kept.request(), CPU_PROFILE)
    other = tmp_path / "other"
    other.mkdir()
    others = Files(other)
    assert save(others.request(), CPU_PROFILE, Compiled(transposing(), Preparation(priority=Priority.HIGH), {}))
    kept.model.write_bytes(content[0])
    kept.data.write_bytes(others.data.read_bytes())
    with pytest.raises(HalError, match="do not belong together"):
        load(kept.request(), CPU_PROFILE)
    others.close()


def test_a_file_that_others_may_write_is_refused(kept: Files) -> None:
    kept.model.chmod(0o622)
    with pytest.raises(HalError, match="others may write to it"):
        load(kept.request(), CPU_PROFILE)
    kept.model.chmod(0o644)
    load(kept.request(), CPU_PROFILE)
    if os.geteuid() == 0:
        os.chown(kept.data, 12345, -1)
        with pytest.raises(HalError, match="belongs to user 12345"):
            load(kept.request(), CPU_PROFILE)


def test_files_of_any_position_and_greater_size_are_rewritten(kept: Files) -> None:
    cache = kept.request()
    for fd in (*cache.model_files, *cache.data_files):
        os.lseek(fd, 0, os.SEEK_END)
        os.write(fd, bytes(1000))
    assert save(cache, CPU_PROFILE, Compiled(doubling(4), Preparation(priority=Priority.LOW), {}))
    assert load(cache, CPU_PROFILE).model.main.operands[0].dimensions == (4, 16)


@pytest.mark.parametrize("which", ["model", "data"])
def test_a_file_too_large_is_not_read(kept: Files, which: str) -> None:
    os.truncate(getattr(kept, which), 1 << 40)
    with pytest.raises(HalError, match="more than"):
        load(kept.request(), CPU_PROFILE)


def test_what_is_no_file_is_refused(kept: Files) -> None:
    reader, writer = os.pipe()
    device = os.open(os.devnull, os.O_RDWR)
    try:
        good = kept.request()
        with pytest.raises(HalError, match="no regular file"):
            load(replace(good, model_files=(device,)), CPU_PROFILE)
        with pytest.raises(HalError, match="not open for reading and writing"):
            compilation_cache.check_request(replace(good, data_files=(reader,)))
        with pytest.raises(HalError, match="Bad file descriptor"):
            load(replace(good, model_files=((1 << 31) - 1,)), CPU_PROFILE)
    finally:
        for fd in (reader, writer, device):
            os.close(fd)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_named_pipe_in_the_place_of_a_file_makes_nobody_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "program.bin", 0o600)
    assert cache_files.read_trusted(tmp_path / "program.bin") is None


def test_a_writer_keeps_others_out_for_a_while(kept: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation_cache, "_READ_WAIT_SECONDS", 0.01)
    mine, others = kept.request(), kept.request()
    with cache_files.locked(mine.model_files[0], exclusive=True, wait_seconds=0.0) as got:
        assert got
        assert not save(others, CPU_PROFILE, Compiled(doubling(4), Preparation(priority=Priority.LOW), {}))
        with pytest.raises(HalError, match="another process is writing"):
            load(others, CPU_PROFILE)
    with cache_files.locked(mine.model_files[0], exclusive=False, wait_seconds=0.0) as got:
        assert got
        assert not save(others, CPU_PROFILE, Compiled(doubling(4), Preparation(priority=Priority.LOW), {}))
        assert load(others, CPU_PROFILE).how.priority == Priority.HIGH
    assert load(others, CPU_PROFILE).how.priority == Priority.HIGH


def test_a_full_disk_leaves_no_half_file(
    kept: Files, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def write(fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    cache = kept.request()
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", write)
        assert not save(cache, CPU_PROFILE, Compiled(doubling(4), Preparation(priority=Priority.LOW), {}))
    (warned,) = caplog.messages
    assert warned == "compilation cache: not written: No space left on device"
    with pytest.raises(HalError, match=r"is empty|do not belong together"):
        load(cache, CPU_PROFILE)


# The driver


def test_the_priority_and_the_result_come_from_the_files(device: Device, files: Files) -> None:
    filled(device, files).close()
    prepared = device.prepare_model_from_cache(None, files.request())
    assert prepared.priority == Priority.LOW
    run_doubling(prepared, 3)
    assert device.statistics()["models_from_cache"] == 1


@pytest.mark.parametrize("allowed", [False, True])
def test_the_permission_to_compute_on_bytes_comes_from_the_files(device: Device, files: Files, allowed: bool) -> None:
    attributes = with_permission((), allowed)
    device.prepare_model_with_attributes(doubling(3), BEST, Priority.LOW, None, files.request(), attributes).close()
    assert load(files.request(), device.profile).how.quantizes_inputs == allowed


def test_what_was_checked_is_what_is_used(device: Device, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files change between the moment they are read and the moment they are checked."""
    filled(device, files).close()
    read = cache_files.read_descriptor

    def read_and_spoil(fd: int, limit_bytes: int | None = None) -> bytes:
        data = read(fd, limit_bytes)
        cache_files.rewrite_descriptor(fd, b"\0" * len(data))
        return data

    monkeypatch.setattr(cache_files, "read_descriptor", read_and_spoil)
    other = fresh(device)
    run_doubling(other.prepare_model_from_cache(None, files.request()), 3)
    assert other.statistics()["programs_built"] == 0
    assert "damaged" in refusal(other, files.request())


@pytest.mark.parametrize(
    "wrong",
    ["none", "two model files", "no data file", "short token", "read-only", "write-only", "closed", "-1", str(1 << 40)],
)
def test_wrong_arguments(device: Device, files: Files, wrong: str) -> None:
    good = files.request()
    read_only, write_only = os.open(files.model, os.O_RDONLY), os.open(files.model, os.O_WRONLY)
    closed = os.open(files.data, os.O_RDWR)
    os.close(closed)
    cache = {
        "none": CacheRequest((), (), TOKEN),
        "two model files": replace(good, model_files=good.model_files * 2),
        "no data file": replace(good, data_files=()),
        "short token": replace(good, token=TOKEN[1:]),
        "read-only": replace(good, model_files=(read_only,)),
        "write-only": replace(good, model_files=(write_only,)),
        "closed": replace(good, data_files=(closed,)),
        "-1": replace(good, data_files=(-1,)),
        str(1 << 40): replace(good, data_files=(1 << 40,)),
    }[wrong]
    run_doubling(device.prepare_model(doubling(3), BEST, Priority.LOW, None, cache), 3)
    assert device.statistics()["models_saved"] == 0
    with pytest.raises(HalError) as caught:
        device.prepare_model_from_cache(None, cache)
    is_access = wrong in ("read-only", "write-only", "closed", "-1", str(1 << 40))
    assert caught.value.status == (ErrorStatus.GENERAL_FAILURE if is_access else ErrorStatus.INVALID_ARGUMENT)
    os.close(read_only)
    os.close(write_only)


def test_programs_of_other_sources_are_refused(
    device: Device, files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NNRT_CACHE_DIR", str(own_cache(tmp_path / "own", with_programs=False)))
    filled(device, files).close()
    other = fresh(device)
    cache = other.context().programs
    source = cache._source
    monkeypatch.setattr(cache, "_source", lambda name: source(name) + "\n")
    assert "lacks programs" in refusal(other, files.request())


def test_a_binary_that_the_driver_refuses_is_no_program(device: Device, files: Files) -> None:
    model = doubling(3)
    prepared = filled(device, files)
    binaries = {program.key: b"rubbish" for program in prepared.programs}
    assert save(files.request(), device.profile, Compiled(model, Preparation(priority=Priority.LOW), binaries))
    other = fresh(device)
    assert "lacks programs" in refusal(other, files.request())
    run_doubling(prepare(other, model), 3)


def test_a_deadline_ends_a_preparation_from_cache(device: Device, files: Files) -> None:
    filled(device, files).close()
    with pytest.raises(HalError) as caught:
        device.prepare_model_from_cache(1, files.request())
    assert caught.value.status == ErrorStatus.MISSED_DEADLINE_PERSISTENT


def test_a_constant_is_not_taken_from_memory_that_changes_later(device: Device, files: Files) -> None:
    """What is saved is what was prepared."""
    graph = Graph()
    factor = np.full(16, 3, np.float32)
    source, output = graph.input((3, 16)), graph.output((3, 16))
    graph.operation(OperationCode.MUL, [source, graph.constant(factor), graph.integer(0)], output)
    filled(device, files, graph.model()).close()
    factor[:] = 0
    data, result = np.ones((3, 16), np.float32), np.zeros((3, 16), np.float32)
    run(device.prepare_model_from_cache(None, files.request()), request([data], [result]))
    np.testing.assert_array_equal(result, 3 * data)


class ThroughCache:
    """The device, which prepares every model from the cache that it has just written."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self.name = device.name
        self.get_supported_operations = device.get_supported_operations
        self.explain_operations = device.explain_operations

    def prepare_model(
        self,
        model: Model,
        preference: ExecutionPreference,
        priority: Priority,
        deadline_ns: int | None,
        cache: CacheRequest | None,
    ) -> PreparedModel:
        with tempfile.TemporaryDirectory() as folder:
            files = Files(Path(folder))
            try:
                self._device.prepare_model(model, preference, priority, deadline_ns, files.request()).close()
                return self._device.prepare_model_from_cache(deadline_ns, files.request())
            finally:
                files.close()


def test_random_graphs_through_the_cache(device: Device, is_long: bool) -> None:
    through = ThroughCache(device)
    for size, seed in itertools.product((Size.SINGLE, Size.SMALL), range(100 if is_long else 10)):
        graph = generate(1000 + seed, size, CpuDevice(), others=[device])
        problem = compare(graph, CpuDevice(), through)  # type: ignore[arg-type]
        assert not problem, f"{size} {seed} ({', '.join(graph.operation_names)}): {problem}"
    counts = device.statistics()
    assert counts["models_from_cache"] == counts["models_saved"] > 0


@pytest.mark.parametrize("unknown", [False, True])
def test_control_flow_and_unknown_sizes_through_the_cache(device: Device, unknown: bool) -> None:
    model = loop(7, (2, 3), (0, 3) if unknown else None)
    inputs = np.zeros(1, np.float32), np.arange(6, dtype=np.float32).reshape(2, 3)
    results = []
    for driver in (CpuDevice(), ThroughCache(device)):
        outputs = [np.full_like(array, -1) for array in inputs]
        prepared = driver.prepare_model(model, BEST, Priority.MEDIUM, None, None)
        prepared.execute_synchronously(request(inputs, outputs), False, None, None)
        results.append(outputs)
    for reference, found in zip(*results, strict=True):
        np.testing.assert_array_equal(found, reference)


@needs_descriptors
def test_no_descriptor_is_kept(device: Device, tmp_path: Path) -> None:
    check(device, tmp_path)
    before = open_descriptors()
    for _ in range(5):
        check(device, tmp_path)
    assert open_descriptors() <= before


def test_the_command_line_tells_of_a_hit(
    opencl_device: Device, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from nn_runtime import demo
    from nn_runtime.cli import main

    network = Path(demo.__file__).parent / "digits_float.tflite"
    selector = f"opencl:{opencl_device.profile.slug}"
    counts: list[dict[str, int]] = []
    for _ in range(2):
        arguments: Sequence[str] = [
            "benchmark", str(network), "--device", selector, "--json", "--runs", "1", "--warmup", "1",
            "--cache-dir", str(tmp_path / "kept"),
        ]  # fmt: skip
        assert main(arguments) == 0
        counts.append(json.loads(capsys.readouterr().out)["statistics"][opencl_device.name])
    assert counts[1]["models_from_cache"] == counts[0]["models_from_cache"] + 1
    assert counts[1]["models_saved"] == counts[0]["models_saved"]
    assert len(list((tmp_path / "kept").iterdir())) == 2


def test_damaging_damages() -> None:
    """Whatever is done to a file in these tests changes it."""
    generator = random.Random(1)
    data = bytes(range(256)) * 4
    assert all(damage(data, generator) != data for _ in range(200))
