# SPDX-License-Identifier: Apache-2.0
"""Files of caches: seals, who may have written one, limits, locks, full disks."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from gpu_driver import cache_files
from tests.nn_runtime.descriptors import needs_descriptors, open_descriptors

if TYPE_CHECKING:
    from collections.abc import Iterator


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


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_named_pipe_in_the_place_of_a_file_makes_nobody_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "program.bin", 0o600)
    assert cache_files.read_trusted(tmp_path / "program.bin") is None
