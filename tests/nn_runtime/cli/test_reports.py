# SPDX-License-Identifier: Apache-2.0
"""`nnrt explain`, `nnrt benchmark`, `nnrt demo`: what they print, and that their figures fit together."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.cli import main, output
from nn_runtime.cli.demo import load_scans, pictures
from nn_runtime.cli.networks import random_input
from nn_runtime.cli.roofline import Rates
from nn_runtime.cli.timings import Clock, Launch, Report
from nn_runtime.interface import TensorInfo
from nn_runtime.reports import duration_text

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from nn_runtime.device import Device

_DIGITS = str(Path(__file__).parents[3] / "nn_runtime" / "demo" / "digits_float.tflite")


def test_explain_lists_every_operation(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", _DIGITS, "--device", "cpu"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:4] == ["0", "CONV_2D", "nnapi-reference", "0"]
    assert lines[-1] == "10 operations on nnapi-reference"
    assert main(["explain", _DIGITS, "--device", "cpu", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [row["index"] for row in report["operations"]] == list(range(10))
    assert report["devices"] == [{"device": "nnapi-reference", "operations": 10, "steps": 1}]


def test_benchmark_prints_the_known_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["benchmark", _DIGITS, "--device", "cpu", "--runs", "4", "--warmup", "2", "--profile"]) == 0
    out = capsys.readouterr().out
    known = (
        r"Inference timings in us: Init: \d+, First inference: \d+, Warmup \(avg\): [\d.]+, Inference \(avg\): [\d.]+"
    )
    assert re.search(f"^{known}$", out, re.MULTILINE)
    for section in ("Run Order", "Top by Computation Time", "Summary by node type"):
        assert f"\n{section}\n" in out
    assert re.search(r"^not in launches: [\d.]+ of [\d.]+ ms", out, re.MULTILINE)
    assert "Timings (microseconds): count=4 first=" in out
    tables = re.findall(r"^\[node type\] +\[start\].*\n((?:[A-Z].*\n)+)", out, re.MULTILINE)
    assert len(tables) == 2
    for lines in tables:  # each cumulated in its own order
        shares, cumulated = zip(*(re.findall(r"([\d.]+)%", line)[:2] for line in lines.splitlines()), strict=True)
        np.testing.assert_allclose(np.cumsum([float(one) for one in shares]), [float(one) for one in cumulated], atol=1)


def test_figures_of_a_benchmark(device: Device, capsys: pytest.CaptureFixture[str]) -> None:
    name = device.name
    assert main(["benchmark", _DIGITS, "--device", name, "--runs", "5", "--profile", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["devices"] == {name: 10}
    assert report["inference"]["count"] == 5
    assert report["inference"]["minimum"] <= report["inference"]["p50"] <= report["inference"]["maximum"]
    timed = report["timed"]
    if timed["on_device"] is not None:
        assert timed["on_device"]["p50"] <= timed["in_driver"]["p50"] <= timed["wall"]["p50"]
    if report["launches"]:
        assert sum(launch["share"] for launch in report["launches"]) == pytest.approx(1)
        assert report["launches"][-1]["cumulated_share"] == pytest.approx(1)
    for launch in report["launches"]:
        assert launch["rates"]["operations_per_ns"] == pytest.approx(launch["flops"] / max(launch["median"], 1.0))


@pytest.mark.parametrize(
    ("plain", "profiled", "wanted"),
    [
        ([100, 102, 104, 106], [200, 202, 204, 206], "+97.1%"),
        ([100, 102, 104, 106], [101, 103, 105, 107], "within noise"),
        ([100, 102, 104, 106], [50, 52, 54, 56], "within noise"),
        ([100, 100, 110, 900, 900], [110, 110, 600, 900, 900], "within noise"),
    ],
)
def test_what_profiling_costs_beside_the_noise(plain: list[int], profiled: list[int], wanted: str) -> None:
    clock = Clock.of(profiled)
    launch = Launch(
        "ADD", "2x3", "add", "cpu", (0,), 0.0, 30, 30.0, 1.0, 1.0, 0, 4, 0, False, Rates(0.0, 0.0, None, "")
    )
    report = Report({}, 0, 0, clock, Clock.of(plain), None, (launch,), clock, {}, {}, "", ())
    assert report.profiling_cost(clock) == wanted
    assert report.outside_launches(clock) == clock.p50 - 30


@pytest.mark.parametrize("arguments", [["benchmark", "--runs", "0", _DIGITS], ["explain"], ["demo", "--devise", "cpu"]])
def test_wrong_usage_exits_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2


def test_the_demo_is_right_and_fits_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--device", "cpu"]) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert captured.err == ""
    assert max(map(len, lines)) <= 100
    assert lines[0].startswith("360 scans")
    assert any("10 operations on nnapi-reference" in line for line in lines)
    assert "https://doi.org" in captured.out
    assert "nnrt doctor" not in captured.out


def test_figures_of_the_demo(device: Device, capsys: pytest.CaptureFixture[str]) -> None:
    name = device.name
    assert main(["demo", "--device", name, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [network["name"] for network in report["networks"]] == ["float", "8-bit"]
    for network in report["networks"]:
        assert network["accuracy"] > 0.97
        assert Counter(row["device"] for row in network["operations"]) == {name: 10}


@pytest.mark.parametrize("command", [["demo"], ["explain", _DIGITS], ["benchmark", _DIGITS, "--runs", "1"]])
def test_commands_say_when_opencl_is_missing(
    command: list[str], no_drivers: dict[str, EntryPoint], capsys: pytest.CaptureFixture[str]
) -> None:
    missing = "no OpenCL device could be used, numpy computes all; nnrt doctor says why"
    assert main(command) == 0
    assert missing in capsys.readouterr().out
    assert main([*command, "--device", "cpu"]) == 0
    assert missing not in capsys.readouterr().out


def test_opencl_is_not_missing_where_the_cpu_is_preferred(device: Device, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", _DIGITS, "--device", f"cpu,{device.name}"]) == 0
    assert "no OpenCL device" not in capsys.readouterr().out


def test_a_wrong_answer_shows_what_was_right() -> None:
    scans = load_scans()
    answers = scans.labels.astype(np.int64)
    answers[1] += 1
    lines = pictures(scans, answers)
    assert lines[-1].split("   ")[0].strip() == f"answer {scans.labels[0]}"
    assert f"answer {answers[1]}, is {scans.labels[1]}" in lines[-1]


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8", "int8", "int32", "int64", "bool"])
def test_random_inputs(dtype: str) -> None:
    array = random_input(TensorInfo("x", np.dtype(dtype), (1, 0, 3)), np.random.default_rng(0))
    assert array.shape == (1, 1, 3)
    assert array.dtype == dtype


def test_durations() -> None:
    texts = [duration_text(ns) for ns in (None, 1500, 812e3, 3.214e6, 1.53e9)]
    assert texts == ["-", "1.5 us", "812 us", "3.21 ms", "1.53 s"]


def test_json_has_no_nan(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_json({"a": (float("nan"), 1.0), 2: float("-inf")})
    assert json.loads(capsys.readouterr().out) == {"a": ["nan", 1.0], "2": "-inf"}


class _Terminal:
    """Standard error as a terminal."""

    def __init__(self) -> None:
        self.text = ""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        """Nothing is kept back."""


def test_a_bar_comes_after_a_second_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _Terminal()
    monkeypatch.setattr(output.sys, "stderr", terminal)
    assert list(output.progress("fast", 10)) == list(range(10))
    with output.busy("fast"):
        pass
    assert terminal.text == ""
    monkeypatch.setattr(output, "_SILENT_SECONDS", 0.0)
    monkeypatch.setattr(output, "_REDRAW_SECONDS", 0.0)
    assert list(output.progress("slow", 10)) == list(range(10))
    assert "slow [###############               ] 5/10" in terminal.text
    assert terminal.text.endswith("\r\x1b[K")


def test_a_bar_is_not_drawn_for_every_run(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _Terminal()
    monkeypatch.setattr(output.sys, "stderr", terminal)
    monkeypatch.setattr(output, "_SILENT_SECONDS", 0.0)
    monkeypatch.setattr(output, "_REDRAW_SECONDS", 100.0)
    assert list(output.progress("slow", 1000)) == list(range(1000))
    assert terminal.text.count("slow") == 1
