# SPDX-License-Identifier: Apache-2.0
"""Peaks of a device: the most that was ever measured, kept on disk."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from gpu_driver import peaks
from nn_runtime.hal.peaks import Peaks

if TYPE_CHECKING:
    from pathlib import Path

    from gpu_driver.driver import Device


def test_a_slow_moment_does_not_lower_the_roof(
    opencl_device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NNRT_CACHE_DIR", str(tmp_path))
    measured = iter(
        [Peaks(260, 1000, 180, 46), Peaks(520, 900, 390, 40), Peaks(1, 1, 1, 1), Peaks(1, 1, 1, 1), Peaks(1, 1, 1, 1)]
    )
    monkeypatch.setattr(peaks._Measurement, "run", lambda _: next(measured))
    device = opencl_device.context()
    assert peaks.peaks_of(device) == Peaks(260, 1000, 180, 46)
    assert peaks.peaks_of(device) == Peaks(520, 1000, 390, 46)
    (stored,) = (tmp_path / "peaks").glob("*.json")
    assert json.loads(stored.read_text())["peaks"] == {"float32": 520, "quant8": 1000, "cache": 390, "memory": 46}
    for damaged in ("{damaged", "[" * 100_000, json.dumps({"peaks": {"float32": 10**400}})):
        stored.write_text(damaged)
        assert peaks.peaks_of(device) == Peaks(1, 1, 1, 1)


@pytest.mark.parametrize("disturbed", [{0}, {1, 2}, {8}, set(range(6))])
def test_disturbed_launches_do_not_end_the_calibration(disturbed: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    launched: list[int] = []
    rounds = 0

    def set_args(count: int) -> None:
        nonlocal rounds
        rounds = int(count)

    def enqueue(*_: object) -> SimpleNamespace:
        duration = 2_000 + 100 * rounds + 3_000_000 * (len(launched) in disturbed)
        launched.append(rounds)
        return SimpleNamespace(wait=lambda: None, profile=SimpleNamespace(start=5, end=5 + duration))

    monkeypatch.setattr(peaks.cl, "enqueue_nd_range_kernel", enqueue)
    measurement = object.__new__(peaks._Measurement)
    measurement._device = SimpleNamespace(profiling_queue=None)  # type: ignore[assignment]
    measurement._program = SimpleNamespace(kernel=lambda _: SimpleNamespace(set_args=set_args))  # type: ignore[assignment]
    measurement._items = measurement._local = 1
    assert measurement._rate("copy", 200, lambda count: (count,)) == pytest.approx(2.0, rel=0.01)


def test_measured_peaks_are_rates(opencl_device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNRT_CACHE_DIR", str(tmp_path))
    found = opencl_device.peaks()
    assert min(found.float32, found.quant8, found.cache, found.memory) > 0
