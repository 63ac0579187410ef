# SPDX-License-Identifier: Apache-2.0
"""What the files of a compilation cache hold and for whom: other devices, versions, tokens; exchange and forgery."""

from __future__ import annotations

import json
import os
import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from cpu_driver.driver import Device as CpuDevice
from gpu_driver import cache_files, compilation_cache
from gpu_driver.compilation_cache import Compiled, load, save
from gpu_driver.preparation import Preparation
from nn_runtime.hal.types import ErrorStatus, ExecutionPreference, HalError, Priority
from tests.gpu_driver.cached import TOKEN, Files
from tests.gpu_driver.graphs import request
from tests.gpu_driver.profiles import CPU_PROFILE
from tests.gpu_driver.running import doubling, transposing

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BEST = ExecutionPreference.FAST_SINGLE_ANSWER
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
