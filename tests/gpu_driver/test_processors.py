# SPDX-License-Identifier: Apache-2.0
"""Processors that a process may use, by masks and by control groups as Linux writes them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_driver.processors import processor_times

_ROOT = Path(__file__).parents[2]
_COUNT = "from gpu_driver.processors import usable_processors; print(usable_processors())"


def _made(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="ascii")
    return folder


@pytest.mark.parametrize(
    ("own", "files", "times"),
    [
        ("0::/a/b\n", {"a/b/cpu.max": "150000 100000\n", "a/cpu.max": "max 100000\n"}, [1.5]),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "25000 50000\n", "cpu.max": "8 2\n"}, [0.5, 4]),
        ("0::/the/hosts/path\n", {"cpu.max": "200000 100000\n"}, [2]),
        ("0::/\n", {"cpu.max": "max 100000\n"}, []),
        ("0::/\n", {"cpu.max": "100000\n"}, []),
        ("0::/\n", {"cpu.max": "nonsense\n"}, []),
        ("0::/\n", {}, []),
        (
            "3:cpuset:/x\n1:cpu,cpuacct:/docker/1\n0::/\n",
            {"cpu,cpuacct/docker/1/cpu.cfs_quota_us": "300000", "cpu,cpuacct/docker/1/cpu.cfs_period_us": "100000",
             "cpu,cpuacct/cpu.cfs_quota_us": "-1", "cpu,cpuacct/cpu.cfs_period_us": "100000",
             "cpuset/x/cpu.cfs_quota_us": "1", "cpuset/x/cpu.cfs_period_us": "1"},
            [3],
        ),
        ("1:cpu:/docker/1\n", {"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"}, [0.5]),
        ("1:name=systemd:/\n", {"cpu.max": "1 1"}, []),
        ("", {"cpu.max": "1 1"}, []),
        ("no groups\n", {}, []),
    ],
)  # fmt: skip
def test_limits_of_time_are_read(own: str, files: dict[str, str], times: list[float], tmp_path: Path) -> None:
    (tmp_path / "own").write_text(own, encoding="ascii")
    assert processor_times(_made(tmp_path / "tree", files), tmp_path / "own") == times


def test_other_systems_have_no_groups(tmp_path: Path) -> None:
    assert processor_times(tmp_path, tmp_path / "absent") == []


@pytest.mark.skipif(sys.platform != "linux", reason="masks of processors are Linux's")
def test_a_mask_counts() -> None:
    code = f"import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])\n{_COUNT}"
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    counts = [
        int(subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, check=True).stdout)
        for text in (_COUNT, code)
    ]
    assert 1 <= counts[0] <= (os.cpu_count() or 1)
    assert counts[1] == 1
