# SPDX-License-Identifier: Apache-2.0
"""Files that several processes share: whole or absent, whatever interrupts the writer or lies in the way."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import threading
import time
from pathlib import Path

import pytest

from nn_runtime.hal.files import read_file, result_file, why_unwritable, why_unwritable_file, write_file


def test_a_file_is_written_with_its_folder_and_written_again(tmp_path: Path) -> None:
    path = tmp_path / "in" / "folders" / "file"
    for data in (b"first\r\n", b"", b"\x1a\xff"):
        write_file(path, data)
        assert read_file(path) == data
        assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_an_interrupted_writer_leaves_the_old_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: type[BaseException]
) -> None:
    def interrupted(_path: Path, _target: Path) -> None:
        raise error

    write_file(tmp_path / "file", b"old")
    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(error):
        write_file(tmp_path / "file", b"new")
    assert read_file(tmp_path / "file") == b"old"
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


@pytest.mark.parametrize("before", [None, b"old"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_result_that_is_not_written_whole_leaves_what_was_there(
    error: BaseException, before: bytes | None, tmp_path: Path
) -> None:
    path = tmp_path / "page.html"
    if before is not None:
        path.write_bytes(before)
    with pytest.raises(type(error)) as caught, result_file(path) as file:
        file.write(b"half")
        raise error
    assert [one.read_bytes() for one in tmp_path.iterdir()] == ([] if before is None else [before])
    if isinstance(caught.value, OSError):
        assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(path))


def test_a_result_keeps_the_permissions_of_the_file_before_and_the_link_to_it(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    with result_file(file) as stream:
        stream.write(b"first")
    plain = tmp_path / "plain"
    plain.write_bytes(b"")
    assert file.stat().st_mode == plain.stat().st_mode
    file.chmod(0o640)
    link.symlink_to(file)
    with result_file(link) as stream:
        stream.write(b"second")
    assert link.is_symlink()
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"second", 0o640)
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
def test_a_result_for_a_pipe_goes_through_it(tmp_path: Path) -> None:
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    with result_file(pipe) as stream:
        stream.write(b"all")
    reader.join()
    assert got == [b"all"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_what_killed_writers_left_is_removed(tmp_path: Path) -> None:
    """Files of the last hour may belong to a process that is still writing; other names are somebody else's."""
    a_day_ago = time.time() - 86400
    killed, foreign = tmp_path / ".nnrt-new-killed", tmp_path / ".new-foreign"
    for path in (killed, foreign):
        path.write_bytes(b"half")
        os.utime(path, (a_day_ago, a_day_ago))
    living = tmp_path / ".nnrt-new-living"
    living.write_bytes(b"half")
    write_file(tmp_path / "whole", b"whole")
    assert {path.name for path in tmp_path.iterdir()} == {"whole", living.name, foreign.name}


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "absent")
    with pytest.raises(OSError, match=r"directory|denied"):
        read_file(tmp_path)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(OSError, match="not a regular file"):
            read_file(tmp_path / "pipe")


def test_a_folder_that_cannot_be_written_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert why_unwritable(tmp_path / "new") is None
    assert (tmp_path / "new").is_dir()
    assert why_unwritable(tmp_path / "file" / "new")
    with pytest.raises(OSError, match="file"):
        write_file(tmp_path / "file" / "new", b"data")


def test_a_folder_without_room_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=300 << 10))
    assert why_unwritable(tmp_path) == "No space left on device: 300 KiB are free"


def test_a_file_that_cannot_be_written_says_why(tmp_path: Path) -> None:
    assert why_unwritable_file(tmp_path / "new") is None
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_bytes(b"kept")
    assert why_unwritable_file(tmp_path / "file") is None
    assert (tmp_path / "file").read_bytes() == b"kept"
    assert why_unwritable_file(tmp_path / "nowhere" / "new") == "No such file or directory"
    assert not (tmp_path / "nowhere").exists()
