# SPDX-License-Identifier: Apache-2.0
"""`nnrt benchmark --profile --html`: rates against peaks, and a page that loads nothing and escapes everything."""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nn_runtime.cli import main
from nn_runtime.cli.benchmark import node_type, profile_note
from nn_runtime.cli.profile_page import profile_page
from nn_runtime.cli.roofline import Rates, rates
from nn_runtime.cli.timings import Clock, Launch, Report
from nn_runtime.hal.peaks import Peaks

if TYPE_CHECKING:
    from nn_runtime.hal.peaks import Arithmetic

_DEMO = Path(__file__).parents[3] / "nn_runtime" / "demo"
_PEAKS = Peaks(float32=500.0, float16=1000.0, quant8=2000.0, cache=400.0, memory=50.0)


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


@pytest.mark.parametrize(
    ("flops", "size_bytes", "ns", "arithmetic", "of_roof", "bound"),
    [
        (1_000_000, 1000, 4000.0, "float32", 0.5, "arithmetic"),  # 250 of 500 G/s
        (1_000_000, 1000, 4000.0, "float16", 0.25, "arithmetic"),  # 250 of 1000 G/s
        (1_000_000, 1000, 4000.0, "quant8", 0.125, "arithmetic"),  # 250 of 2000 G/s
        (1000, 400_000, 2000.0, "float32", 0.5, "memory"),  # 200 of 400 GB/s
        (0, 0, 10.0, "float32", None, ""),
    ],
)
def test_part_of_the_roof(
    flops: int, size_bytes: int, ns: float, arithmetic: Arithmetic, of_roof: float | None, bound: str
) -> None:
    found = rates(flops, size_bytes, ns, _PEAKS, arithmetic)
    assert (found.of_roof, found.bound) == (of_roof, bound)
    assert found.operations_per_ns == flops / ns
    assert found.bytes_per_ns == size_bytes / ns


def test_a_device_without_peaks_has_rates_only() -> None:
    found = rates(100, 10, 5.0, None, "float32")
    assert (found.operations_per_ns, found.bytes_per_ns, found.of_roof) == (20.0, 2.0, None)


def launch(device: str, own: Rates) -> Launch:
    return Launch("ADD", "1", "kernel", device, (0,), 0.0, 0, 4000.0, 1.0, 1.0, 1000, 1, 1_000_000, "float32", own)


def test_what_is_above_the_roof_is_explained_where_it_occurs() -> None:
    half, double = (launch("a", rates(1_000_000, 1000, ns, _PEAKS, "float32")) for ns in (4000.0, 1000.0))
    assert "Above 100 %" not in profile_note([half])
    assert profile_note([half, double]).count("Above 100 %") == 1


def test_only_devices_that_join_operations_are_said_to() -> None:
    own = rates(1_000_000, 1000, 4000.0, _PEAKS, "float32")
    assert profile_note([launch("nnapi-reference", own)]) == ""
    assert profile_note([launch("a", own)]).startswith("Operations joined in one launch overlap")


def test_many_of_the_same_are_counted() -> None:
    """As where a launch does what many layers would do alike."""
    assert node_type(["ADD", "MUL", "MUL", "ADD"]) == "ADD+MUL+MUL+ADD"
    assert node_type(["MAXIMUM"] * 56) == "MAXIMUM x 56"
    assert node_type(["ADD", *["MUL"] * 3, "ADD"]) == "ADD+MUL x 3+ADD"
    assert node_type([]) == ""


def test_a_page_without_its_folder_is_refused_before_the_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page = tmp_path / "none" / "page.html"
    assert main(["benchmark", str(_DEMO / "digits_float.tflite"), "--device", "cpu", "--html", str(page)]) == 2
    assert capsys.readouterr().err == f"nnrt benchmark: --html {page}: there is no folder {page.parent}\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no disk that is always full")
def test_a_full_disk_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["benchmark", str(_DEMO / "digits_float.tflite"), "--device", "cpu", "--runs", "1"]
    assert main([*arguments, "--html", "/dev/full"]) == 1
    assert capsys.readouterr().err == "nnrt benchmark: /dev/full: No space left on device\n"


def test_operations_of_a_profile_and_its_page(
    device: object, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    name = getattr(device, "name", "")
    network = tmp_path / "a<b>&c.tflite"
    network.write_bytes((_DEMO / "digits_float.tflite").read_bytes())
    page = tmp_path / "page.html"
    arguments = [str(network), "--device", name, "--runs", "3", "--profile", "--html", str(page), "--json"]
    assert main(["benchmark", *arguments]) == 0
    report = json.loads(capsys.readouterr().out)
    for launch in report["launches"]:
        assert launch["arithmetic"] == "float32"
        assert launch["node_type"].count("+") == max(0, len(launch["operations"]) - 1)
    if report["peaks"]:
        assert set(report["peaks"]) == {name}
        assert all(value > 0 for value in report["peaks"][name].values())
        assert any(launch["rates"]["of_roof"] for launch in report["launches"])
    text = page.read_text(encoding="utf-8")
    assert "a&lt;b&gt;&amp;c.tflite" in text
    assert "a<b>" not in text
    parser = _Tags()
    parser.feed(text)
    assert not {tag for tag, _ in parser.found} & {"script", "link", "img", "iframe", "object"}
    assert not any(name in attributes for _, attributes in parser.found for name in ("src", "href"))
    rows = [tag for tag, _ in parser.found].count("tr") - 1
    assert rows == len(report["launches"]) + 1
    assert "in no launch" in text
    assert all(launch["result"] in text for launch in report["launches"])
    computing = [launch for launch in report["launches"] if launch["operations"]]  # not what reads the result
    assert computing[-1]["result"] == "1x10"
    assert any(line.startswith(f"{name}: ") and line in text for line in report["circumstances"])
    for part in text.split("<svg")[1:]:
        ElementTree.fromstring("<svg" + part.split("</svg>")[0] + "</svg>")


def page_of(names: str, ns: float, peaks: Peaks) -> str:
    """The page of a network of one launch, 50 operations a byte."""
    own = rates(1_000_000, 20_000, ns, peaks, "float32")
    one = Launch(names, "1", "kernel", "a", (0,), 0.0, 0, ns, 1.0, 1.0, 20_000, 1, 1_000_000, "float32", own)
    clock = Clock.of([10_000])
    return profile_page("x", Report({"a": 1}, 0, 0, clock, clock, None, (one,), clock, {}, {"a": peaks}, "", ()))


def test_lists_of_operations_go_on_in_the_next_line_where_they_are_long() -> None:
    text = page_of("+".join(["LOGISTIC"] * 9), 4000.0, _PEAKS)
    assert '<td class="long">LOGISTIC+<wbr>LOGISTIC+<wbr>' in text
    assert "<td>CONV_2D+DEPTHWISE_CONV_2D</td>" in page_of("CONV_2D+DEPTHWISE_CONV_2D", 4000.0, _PEAKS)
    assert "<p>1 operation on a. Median" in text
    assert "over 1 run without profiling" in text


def test_lines_of_a_narrow_roofline_lie_where_they_should() -> None:
    """From 100 G op/s up: the line of 50 GB/s begins at 2 operations a byte, that of 400 is too short for a name."""
    text = page_of("ADD", 4000.0, _PEAKS)
    x_of_1, x_of_100, bottom = 64.0, 896.0, 394.0
    begins = x_of_1 + (x_of_100 - x_of_1) * math.log10(2) / 2
    assert f'<path class="roof thin" d="M{begins:.1f},{bottom:.1f}L' in text
    assert ">memory 50 GB/s</text>" in text
    assert "caches 400 GB/s" in text
    assert "cache 400 GB/s" not in text
    numbers = {value for value in re.findall(r'text-anchor="end">(\d+)</text>', text)}
    assert {"100", "200", "500"} <= numbers
