# SPDX-License-Identifier: Apache-2.0
"""PoCL on a machine that has `ld` and no C compiler: stand-ins for what it has kernels linked with."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from gpu_driver.discovery import link_repair
from tests.gpu_driver.discovery.processes import run

# Looks into no folder but that of the stand-ins, so that there are no other libraries to link with.
_LINKER_WITHOUT_LIBRARIES = """#!/bin/sh
for argument; do
  shift
  case "$argument" in
    -L*/nnrt-link-*) set -- "$@" "$argument" ;;
    -L*) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {linker} -nostdlib "$@"
"""
_COMPUTE = """
import json, os, sys
import numpy as np, pyopencl as cl
from gpu_driver.discovery import platforms
from gpu_driver.discovery.trial import run_once
found = [device for device in platforms.find_devices() if device.slug == 'pocl']
source = 'kernel void halves(global half *h, global float *a) { for (int i = 0; i < 9; i++) vstore_half(a[i], i, h); }'
for device in found:
    values = np.full(9, 1.5, np.float32)
    run_once(cl.Context([device.device]), source, 'halves', (1,), (1,), [np.zeros(9, np.float16)], [values])
folders = os.environ.get('LIBRARY_PATH', '').split(':')
print(json.dumps([[d.usable, d.reason, any('linked without' in n for n in d.notes)] for d in found] + [folders]))
"""
_FORK = """
import json, os
from gpu_driver.discovery import link_repair
link_repair.offer()
child = os.fork()
if child == 0:
    raise SystemExit
os.waitpid(child, 0)
print(json.dumps([os.environ['LIBRARY_PATH'], link_repair.is_offered()]))
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="where PoCL links kernels by ld")


@pytest.fixture
def linker_without_libraries(tmp_path: Path) -> dict[str, str]:
    """Variables of a process whose PATH begins with it, with caches of their own."""
    linker = shutil.which("ld")
    if linker is None:
        pytest.skip("there is no ld")
    folder, kernels = tmp_path / "bin", tmp_path / "kernels"
    folder.mkdir()
    kernels.mkdir()
    script = folder / "ld"
    script.write_text(_LINKER_WITHOUT_LIBRARIES.format(linker=linker), encoding="utf-8")
    script.chmod(0o755)
    path = os.pathsep.join([str(folder), os.environ["PATH"]])
    return {"PATH": path, "POCL_CACHE_DIR": str(kernels)}


def test_kernels_are_linked_without_a_compilers_libraries(
    linker_without_libraries: dict[str, str], tmp_path: Path
) -> None:
    """In the process that finds out, in one that reads it, and where PoCL keeps kernels that were linked before."""
    cache = tmp_path / "cache"
    first, second = (list(run(_COMPUTE, cache, LIBRARY_PATH="/a:/b", **linker_without_libraries)) for _ in range(2))
    if len(first) == 1:
        pytest.skip("PoCL is not installed")
    for *devices, folders in (first, second):
        assert devices == [[True, None, True]] * len(devices)
        assert folders[:2] == ["/a", "/b"]
        assert len(folders) == 3
        assert not Path(folders[2]).exists(), "it outlives its process"
    shutil.rmtree(cache)
    (third, *_) = run(_COMPUTE, cache, **linker_without_libraries)
    assert third == [True, None, True]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no compiler is installed")
def test_a_machine_with_libraries_needs_no_others(tmp_path: Path) -> None:
    *devices, folders = run(_COMPUTE, tmp_path, LIBRARY_PATH="/a")
    assert [device for device in devices if device[0] and device[2]] == []
    assert folders == ["/a"]


def test_a_process_that_was_started_uses_its_parents(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    parents = tmp_path / "nnrt-link-parents"
    parents.mkdir()
    monkeypatch.setenv("LIBRARY_PATH", f"/a{os.pathsep}{parents}")
    link_repair.offer()
    assert os.environ["LIBRARY_PATH"] == f"/a{os.pathsep}{parents}"
    assert link_repair.chosen() == ["/a"]
    parents.rmdir()
    assert not link_repair.is_offered()


def test_a_forked_child_leaves_the_folder(tmp_path: Path) -> None:
    folder, offered = run(_FORK, tmp_path, LIBRARY_PATH="", TMPDIR=str(tmp_path))
    assert offered is True
    assert Path(str(folder)).parent == tmp_path
    assert not Path(str(folder)).exists()


def test_only_a_linker_can_be_helped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ending = "the driver ended the process with signal 6 (Final linking of kernel nnrt_probe failed.)"
    monkeypatch.delenv("LIBRARY_PATH", raising=False)
    if shutil.which("ld") is not None:
        assert link_repair.may_help(ending)
    assert not link_repair.may_help("the driver ended the process with signal 11")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not link_repair.may_help(ending)
