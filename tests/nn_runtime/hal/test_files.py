# SPDX-License-Identifier: Apache-2.0
"""Files that several processes share: whole or absent, whatever interrupts the writer or lies in the way."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from nn_runtime.hal.files import read_file, why_unwritable, why_unwritable_file, write_file


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
