# SPDX-License-Identifier: Apache-2.0
"""Peaks of a device: the most that was ever measured, kept on disk."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from gpu_driver import peaks
from nn_runtime.hal.peaks import Peaks

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

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


def test_measured_peaks_are_rates(opencl_device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNRT_CACHE_DIR", str(tmp_path))
    found = opencl_device.peaks()
    assert min(found.float32, found.quant8, found.cache, found.memory) > 0
