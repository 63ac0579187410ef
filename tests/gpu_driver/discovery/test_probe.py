# SPDX-License-Identifier: Apache-2.0
"""Verdicts on devices: what they belong to, how long they are kept, and how PoCL's devices are told apart."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

import pyopencl as cl
import pytest

from gpu_driver.discovery import dot_products, matrix_units, pocl_repair, probe
from gpu_driver.discovery.platforms import find_devices

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import ModuleType

    from gpu_driver.discovery.platforms import FoundDevice


def test_no_driver_is_tried_here_where_limits_allow_no_child(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It would end this process for the same reason."""
    started: list[subprocess.Popen[str]] = []
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, text=True)

    def start(*_arguments: object, **_options: object) -> subprocess.Popen[str]:
        if started:
            raise OSError(errno.EMFILE, "Too many open files")
        started.append(child)
        return child

    monkeypatch.setenv("NNRT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(probe.subprocess, "Popen", start)
    with pytest.raises(OSError, match="no child process can be started to try OpenCL in: Too many open") as caught:
        probe.library_verdicts(["a", "b"])
    assert caught.value.errno == errno.EMFILE
    assert child.returncode is not None
    assert not list(tmp_path.rglob("*.json"))


def test_a_library_that_ends_on_every_device_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """After eight of them; no child is left behind."""
    children: list[subprocess.Popen[str]] = []

    def start(_library: str | None, skip: Sequence[str]) -> subprocess.Popen[str]:
        lines = [
            probe._MARK + json.dumps(message) for message in (["enumerated", 20], ["begin", f"device {len(skip)}"])
        ]
        code = f"import os; print({chr(10).join(lines)!r}, flush=True); os.abort()"
        children.append(subprocess.Popen([sys.executable, "-c", code], stdout=-1, stderr=-1, text=True))
        return children[-1]

    monkeypatch.setattr(probe, "_start_child", start)
    verdict = probe._follow_children(None, start(None, ()))
    assert list(verdict.devices) == [f"device {number}" for number in range(8)]
    assert not any(device.usable for device in verdict.devices.values())
    assert [child.returncode is not None for child in children] == [True] * 8


def test_a_child_that_is_interrupted_is_not_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    class Child(subprocess.Popen[str]):
        def communicate(self, input: str | None = None, timeout: float | None = None) -> tuple[str, str]:
            if timeout is not None:
                raise KeyboardInterrupt
            return super().communicate(input)

    child = Child([sys.executable, "-c", "input()"], stdin=-1, stdout=-1, stderr=-1, text=True)
    with pytest.raises(KeyboardInterrupt):
        probe._follow_children(None, child)
    assert child.returncode is not None


def test_verdicts_outlive_the_process_and_bad_ones_only_a_while() -> None:
    good = probe.LibraryVerdict(True, None, {"key": probe.DeviceVerdict(True, None, ("x86_vnni",), "skx")})
    assert probe.decode_verdict(probe._encode(good), time.time() + 1e9) == good
    bad = probe.LibraryVerdict(True, None, {"key": probe.DeviceVerdict(False, "it crashed")})
    assert probe.decode_verdict(probe._encode(bad), time.time()) == bad
    assert probe.decode_verdict(probe._encode(bad), time.time() + probe.BAD_VERDICT_SECONDS + 1) is None
    assert probe.decode_verdict(probe._encode(bad), time.time() - 60) is None


@pytest.mark.parametrize(
    "change",
    [
        {"format": 99}, {"devices": None}, {"devices": {"key": 1}}, {"devices": {"key": {"usable": True}}},
        {"written": "x"}, {"written": 10**400},
        {"devices": {"key": {**asdict(probe.DeviceVerdict(True)), "features": "x"}}},
    ],
)  # fmt: skip
def test_damaged_verdicts_are_asked_again(change: dict[str, object]) -> None:
    data = {**json.loads(probe._encode(probe.LibraryVerdict(True))), **change}
    assert probe.decode_verdict(json.dumps(data).encode(), time.time()) is None
    assert probe.decode_verdict(b"", 0.0) is None
    assert probe.decode_verdict(b"[]", 0.0) is None
    assert probe.decode_verdict(b"[" * 100_000, 0.0) is None


@pytest.mark.parametrize("trial", [dot_products, matrix_units], ids=["dot_products", "matrix_units"])
def test_other_trials_ask_devices_again(trial: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    before = probe._verdict_path("library.so")
    monkeypatch.setattr(trial, "_KERNEL", trial._KERNEL + " ")
    probe._trials.cache_clear()
    try:
        assert probe._verdict_path("library.so") != before
    finally:
        monkeypatch.undo()
        probe._trials.cache_clear()
    assert probe._verdict_path("library.so") == before


def test_another_repair_of_pocl_asks_devices_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A verdict with another name than this process would write makes a device unusable."""
    before = probe._verdict_path("library.so")
    monkeypatch.setattr(pocl_repair, "replacement_name", lambda _cpu: "another")
    assert probe._verdict_path("library.so") != before


@pytest.mark.parametrize(
    ("name", "inline"),
    [
        ("pthread-AMD EPYC", "basic-AMD EPYC"),
        ("cpu-skylake-avx512-AMD EPYC", "cpu-minimal-skylake-avx512-AMD EPYC"),
        ("cpu-minimal-skylake-avx512-AMD EPYC", None),
        ("basic-AMD EPYC", None),
        ("NVIDIA H100", None),
    ],
)
def test_the_name_of_pocls_inline_device(name: str, inline: str | None) -> None:
    """As PoCL 3.0, 6.0 and 7.1 name theirs."""
    assert probe.inline_name(name) == inline


@pytest.mark.parametrize("found", [one for one in find_devices() if one.usable], ids=lambda found: found.name)
def test_a_loop_ends_where_it_should(found: FoundDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    context = cl.Context([found.device])
    assert probe._wrong_loop(context) == ""
    monkeypatch.setattr(probe, "_LOOP", probe._LOOP.replace("i < count", "i < count - 1"))
    assert probe._wrong_loop(context) == "loop"
