# SPDX-License-Identifier: Apache-2.0
"""`nnrt tune`: finds what a device with a known best value likes, stores only what is better, refuses wrong answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.cli import main, tune
from nn_runtime.device import Device
from nn_runtime.devices import Selection, find_device
from nn_runtime.hal.tuning import TuningParameter
from nn_runtime.testing.sample_drivers import SampleDevice

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nn_runtime.hal.interfaces import IPreparedModel

_DIGITS = str(Path(__file__).parents[3] / "nn_runtime" / "demo" / "digits_float.tflite")
_CPU = "nnapi-reference"


class _Clock:
    """Time as the search sees it: it passes when a model runs, and at no other moment."""

    def __init__(self) -> None:
        self._now_ns = 0

    def perf_counter_ns(self) -> int:
        return self._now_ns

    def perf_counter(self) -> float:
        return self._now_ns / 1e9

    def advance(self, milliseconds: int) -> None:
        self._now_ns += milliseconds * 1_000_000


class _Slow:
    """A prepared model that takes so long by the clock, or answers wrongly."""

    def __init__(self, inner: IPreparedModel, clock: _Clock, milliseconds: int, wrong: bool) -> None:
        self._inner = inner
        self._clock = clock
        self._milliseconds = milliseconds
        self._wrong = wrong

        self.execute_fenced = inner.execute_fenced
        self.configure_execution_burst = inner.configure_execution_burst
        self.close = inner.close

    def execute_synchronously(self, request: object, *arguments: object) -> object:
        self._clock.advance(self._milliseconds)
        result = self._inner.execute_synchronously(request, *arguments)  # type: ignore[arg-type]
        if self._wrong:
            (output,) = request.outputs  # type: ignore[attr-defined]
            np.asarray(output.location.pointer).view(np.uint8).reshape(-1)[:4] ^= 0xFF
        return result


class _Tunable:
    """The CPU driver, with a time of every run that two parameters decide: 3 is best, 4 is fast and wrong."""

    def __init__(self, stored: list[dict[str, int]], *, best_by_default: bool = False) -> None:
        self._inner = find_device(_CPU).hal
        self._values = {"speed": 3 if best_by_default else 1, "colour": 0}
        self._default = dict(self._values)
        self.stored = stored
        self.clock = _Clock()

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def tuning_parameters(self) -> Sequence[TuningParameter]:
        return (
            TuningParameter("speed", self._default["speed"], (1, 2, 3, 4), "less waiting"),
            TuningParameter("colour", 0, (0, 1), "nothing at all"),
        )

    def tuning(self) -> Mapping[str, int]:
        return dict(self._values)

    def set_tuning(self, values: Mapping[str, int]) -> None:
        self._values = dict(values)

    def store_tuning(self, values: Mapping[str, int], measured: Mapping[str, object], path: Path | None = None) -> Path:
        assert measured["gains"]
        assert measured["trials"]
        self.stored.append(dict(values))
        return path or Path("tuned.json")

    def prepare_model(self, *arguments: object) -> _Slow:
        speed = self._values["speed"]
        milliseconds = {1: 7, 2: 4, 3: 1, 4: 1}[speed]
        prepared = self._inner.prepare_model(*arguments)  # type: ignore[arg-type]
        return _Slow(prepared, self.clock, milliseconds, wrong=speed == 4)


def _tunes(monkeypatch: pytest.MonkeyPatch, hal: _Tunable, *options: str) -> int:
    monkeypatch.setattr(tune, "select", lambda _: Selection((Device(hal),), strict=True))  # type: ignore[arg-type]
    monkeypatch.setattr(tune, "time", hal.clock)
    return main(["tune", _DIGITS, "--rounds", "3", *options])


def test_the_best_right_value_is_found_and_stored(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stored: list[dict[str, int]] = []
    hal = _Tunable(stored)
    assert _tunes(monkeypatch, hal, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["values"]["speed"] == 3
    assert [values["speed"] for values in stored] == [3]
    wrong = [trial for trial in report["trials"] if trial["value"] == 4]
    assert wrong[0]["refusal"].startswith("output 0 differs")
    assert report["gains"][0]["ratio"] == 0.1429  # 1 ms to 7
    assert hal.tuning()["speed"] == 1, "what was in force before is in force again"


def test_a_dry_run_stores_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    stored: list[dict[str, int]] = []
    assert _tunes(monkeypatch, _Tunable(stored), "--dry-run") == 0
    assert stored == []
    out = capsys.readouterr().out
    assert "nothing stored: a dry run" in out
    assert "speed" in out
    assert "less waiting" in out


@pytest.mark.parametrize(
    ("ratios", "uppers", "refusal", "wanted"),
    [
        ((0.9, 0.98), (0.95, 0.99), "", True),
        ((0.9, 1.0), (0.95, 1.02), "", True),
        ((0.9, 0.9), (0.99, 0.99), "", False),  # not by more than 1 %
        ((0.5, 1.02), (0.6, 1.03), "", False),  # one network is slower
        ((), (), "output 0 differs", False),
    ],
)
def test_what_counts_as_faster(
    ratios: tuple[float, ...], uppers: tuple[float, ...], refusal: str, wanted: bool
) -> None:
    assert tune._Comparison(ratios, uppers, refusal).is_faster == wanted


def test_where_defaults_are_best_nothing_is_stored_but_where_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    stored: list[dict[str, int]] = []
    hal = _Tunable(stored, best_by_default=True)
    assert _tunes(monkeypatch, hal) == 0
    assert stored == []
    assert "as good; nothing stored: they are in force" in capsys.readouterr().out
    assert _tunes(monkeypatch, hal, "-o", str(tmp_path)) == 0
    assert stored == [{"speed": 3, "colour": 0}]
    assert f"the values without tuning are as good; those are stored in {tmp_path}" in capsys.readouterr().out


def test_where_nothing_was_found_noise_makes_it_no_faster(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tune._Search, "gains", lambda *_: [tune.Gain("digits", 1000, 980, 0.98, 0.99)])
    stored: list[dict[str, int]] = []
    assert _tunes(monkeypatch, _Tunable(stored, best_by_default=True)) == 0
    assert "the values without tuning are as good; nothing stored: they are in force" in capsys.readouterr().out
    assert stored == []


def test_values_in_force_that_are_worse_than_defaults_are_replaced(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stored: list[dict[str, int]] = []
    hal = _Tunable(stored, best_by_default=True)
    hal.set_tuning({"speed": 1, "colour": 0})
    assert _tunes(monkeypatch, hal) == 0
    assert stored == [{"speed": 3, "colour": 0}]
    assert "in force from the next process on" in capsys.readouterr().out


def test_an_output_that_cannot_be_made_is_said_before_the_search(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", _DIGITS, "-o", "/nowhere/tuned.json"]) == 2
    assert "there is no folder /nowhere" in capsys.readouterr().err
    assert main(["tune", _DIGITS, "-o", "tuned.json", "--dry-run"]) == 2


def test_a_device_with_nothing_to_tune_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", _DIGITS, "--device", "cpu"]) == 2
    assert "nnapi-reference has nothing to tune; --device takes another" in capsys.readouterr().err


def test_what_hides_the_numbers_of_a_device_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A device in another process has the methods of a device, and none of its driver's own."""
    hal = SampleDevice("opencl-far-0")
    monkeypatch.setattr(tune, "select", lambda _: Selection((Device(hal),), strict=True))
    monkeypatch.setenv("NNRT_DRIVER_HOST", "process")
    assert main(["tune", _DIGITS]) == 2
    assert capsys.readouterr().err == (
        "nnrt tune: opencl-far-0 has nothing to tune; a driver in a process of its own cannot be tuned: "
        "unset NNRT_DRIVER_HOST\n"
    )
