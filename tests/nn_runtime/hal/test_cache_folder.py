# SPDX-License-Identifier: Apache-2.0
"""Where caches lie: the folder that is named, the user's, or nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import platformdirs
import pytest

from cpu_driver.driver import Device
from nn_runtime.codes import OperationCode
from nn_runtime.hal.cache_folder import NOWHERE, cache_directory
from nn_runtime.hal.costs import measured_table, table_path
from tests.nn_runtime.graphs import chain_model

if TYPE_CHECKING:
    from pathlib import Path


def test_a_named_folder_counts_before_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NNRT_CACHE_DIR", raising=False)
    monkeypatch.setattr(platformdirs, "user_cache_dir", lambda *_, **__: str(tmp_path / "users"))
    assert cache_directory() == tmp_path / "users"
    monkeypatch.setenv("NNRT_CACHE_DIR", "")
    assert cache_directory() == tmp_path / "users"
    monkeypatch.setenv("NNRT_CACHE_DIR", str(tmp_path / "named"))
    assert cache_directory() == tmp_path / "named"
    assert table_path("one").is_relative_to(tmp_path / "named")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NNRT_CACHE_DIR", "~/kept")
    assert cache_directory() == tmp_path / "kept"


@pytest.mark.parametrize("raises", [True, False], ids=["an error", "a path that begins with ~"])
def test_without_a_home_nothing_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, raises: bool) -> None:
    def user_cache_dir(name: str, appauthor: bool) -> str:
        if raises:
            raise RuntimeError("could not determine the home directory")
        return f"~/.cache/{name}"

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NNRT_CACHE_DIR", raising=False)
    monkeypatch.setattr(platformdirs, "user_cache_dir", user_cache_dir)
    assert cache_directory() == NOWHERE
    assert measured_table("one", "1") is None
    model = chain_model([OperationCode.RELU]).hal
    assert [answer.supported for answer in Device().explain_operations(model)] == [True]
    with pytest.raises(OSError):
        NOWHERE.mkdir(parents=True)
    assert list(tmp_path.iterdir()) == []
