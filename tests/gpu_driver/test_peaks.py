# SPDX-License-Identifier: Apache-2.0
"""Peaks of a device: the most that was ever measured, kept on disk."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pyopencl as cl
import pytest

from gpu_driver import peaks
from nn_runtime.device import Device as RuntimeDevice
from nn_runtime.hal.peaks import Peaks
from tests.gpu_driver.operations.products import of_type_gpu

if TYPE_CHECKING:
    from pathlib import Path

    from gpu_driver.driver import Device

UNITS, NO_UNITS = ("mma_emulated",), ("none",)


def test_a_slow_moment_does_not_lower_the_roof(
    opencl_device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NNRT_CACHE_DIR", str(tmp_path))
    measured = iter([Peaks(260, 300, 1000, 180, 46), Peaks(520, 280, 900, 390, 40), *[Peaks(1, 1, 1, 1, 1)] * 3])
    monkeypatch.setattr(peaks._Measurement, "run", lambda _: next(measured))
    device = opencl_device.context()
    assert peaks.peaks_of(device) == Peaks(260, 300, 1000, 180, 46)
    assert peaks.peaks_of(device) == Peaks(520, 300, 1000, 390, 46)
    (stored,) = (tmp_path / "peaks").glob("*.json")
    assert json.loads(stored.read_text())["peaks"] == {
        **{"float32": 520, "float16": 300, "quant8": 1000, "cache": 390, "memory": 46}
    }
    for damaged in ("{damaged", "[" * 100_000, json.dumps({"peaks": {"float32": 10**400}})):
        stored.write_text(damaged)
        assert peaks.peaks_of(device) == Peaks(1, 1, 1, 1, 1)


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
    kernel = SimpleNamespace(set_args=set_args)
    measurement._items = measurement._local = 1
    assert measurement._rate(kernel, 200, lambda count: (count,)) == pytest.approx(2.0, rel=0.01)


def test_measured_peaks_are_rates(opencl_device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNRT_CACHE_DIR", str(tmp_path))
    found = opencl_device.peaks()
    assert min(found.float32, found.float16, found.quant8, found.cache, found.memory) > 0


@pytest.mark.parametrize("element", ["half", "uchar"])
def test_rates_of_matrix_units_count_what_they_multiply(
    opencl_device: Device, element: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sums of ones that one round leaves are half of the operations that are counted for it."""
    device = of_type_gpu(RuntimeDevice(opencl_device), UNITS).context()
    measurement = peaks._Measurement(device)
    sums = device.allocate(measurement._items * 64)
    sum_type = np.float32 if element == "half" else np.int32
    counted: list[int] = []

    def rate(kernel: cl.Kernel, per_round: int, arguments: object) -> float:
        counted.append(per_round)
        kernel(device.queue, (measurement._items,), (measurement._local,), sums.handle, np.int32(1))
        return 1.0

    monkeypatch.setattr(measurement, "_rate", rate)
    assert measurement._units_rate(element, sums.handle) == 1.0
    found = np.empty((measurement._items, 4), sum_type)
    cl.enqueue_copy(device.queue, found, sums.handle)
    begin = sum(range(peaks._UNITS_CHAINS))
    assert counted == [2 * int((found - begin).sum())]


def test_devices_of_matrix_units_have_peaks_of_their_own(
    opencl_device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def rate(_: peaks._Measurement, kernel: cl.Kernel, per_round: int, arguments: object) -> float:
        asked.append(kernel.function_name)
        return float(len(asked))

    monkeypatch.setattr(peaks._Measurement, "_rate", rate)
    measured = peaks._Measurement(of_type_gpu(RuntimeDevice(opencl_device), UNITS).context()).run()
    assert asked == ["multiply_add", "unit_product", "unit_product", "unit_product", "copy", "copy"]
    assert measured == Peaks(4, 2, 3, 5, 6)
    asked.clear()
    measured = peaks._Measurement(of_type_gpu(RuntimeDevice(opencl_device), NO_UNITS).context()).run()
    assert asked == ["multiply_add", "copy", "copy"]
    assert measured == Peaks(1, 1, 1, 2, 3)


def test_other_kernels_of_matrix_units_are_measured_anew(
    opencl_device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is stored is of the kernels that measured it."""
    context = of_type_gpu(RuntimeDevice(opencl_device), UNITS).context()
    before = peaks._Measurement(context).key
    assert peaks._Measurement(context).key == before
    monkeypatch.setattr(peaks.kernels_cl, "source", lambda name: f"// another {name}")
    assert peaks._Measurement(context).key != before
