# SPDX-License-Identifier: Apache-2.0
"""benchmarks/: agreement of answers, states of a round, the report's tables and picture, sizes of networks."""

from __future__ import annotations

import contextlib
import xml.etree.ElementTree as ElementTree
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from pathlib import Path


def row(ratio: float, median: float, **more: Any) -> dict[str, Any]:
    figures = {"best_ms": median, "median_ms": median, "p99_ms": 2 * median, "runs": 10, "ratio": ratio}
    quartiles = {"ratio_quartiles": [ratio, ratio], "ratio_near": ratio, "ratio_far": None}
    return {"problem": "", "agrees": True, "difference": "1e-6", **figures, **quartiles, **more}


def results() -> dict[str, Any]:
    stamp = {"measured": "today", "load": 0.1}
    rows = {
        "PoCL": row(0.5, 1.5),
        "LiteRT XNNPACK": row(1.0, 3.0, agrees=False),
        "OpenVINO": {"problem": "ModuleNotFoundError: no <openvino>"},
    }
    name = "mobilenet_v2_1.0_224_float"
    scaled = [
        {"batches": b, "size": 224, "ms": ms, "picoseconds": ms, "over_best": ms / 2, "problem": ""}
        for b, ms in ((1, 2.0), (8, 3.0))
    ]
    machine = {
        **{"processor": "cpu", "cores": 2, "threads": 2, "system": "os", "python": "3"},
        **{"devices": {"d": "1"}, "versions": {"numpy": "2"}},
    }
    return {
        "machine": machine,
        name: {**stamp, "rounds": 3, "rounds_near": 2, "rounds_far": 1, "rows": rows},
        f"sizes-{name}": {**stamp, "rounds": 3, "rows": {"PoCL": scaled}},
        "steadiness": {
            **stamp,
            "rows": {name: {"PoCL": {"p99": 1.25, "range": [1.125, 2.0], "rounds": 3, "runs": 2013}}},
        },
        "start": {
            **stamp,
            "rows": [
                {"network": name, "engine": "PoCL", "filled_seconds": 0.5, "empty_seconds": 3.25},
                {"network": name, "engine": "LiteRT XNNPACK", "filled_seconds": 0.125},
            ],
        },
    }


def test_networks_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import networks

    monkeypatch.setattr(networks, "MODELS", tmp_path)
    monkeypatch.setattr(networks, "TITLES", {"one": "", "two": ""})
    (tmp_path / "golden").mkdir()
    for name in ("one.tflite", "golden/one.npz", "golden/two.npz"):
        (tmp_path / name).touch()
    assert networks.missing() == ["two.tflite"]


@pytest.mark.parametrize(
    ("processor", "name"),
    [
        ("Xeon (family 6, model 207; AVX-512, VNNI)", "xeon-family-6-model-207-avx-512-vnni"),
        ("Xeon (family 6, model 207; AVX-512, VNNI, AMX)", "xeon-family-6-model-207-avx-512-vnni-amx"),
        ("aarch64 (family ?, model ?; no AVX-512)", "aarch64-family-model-no-avx-512"),
    ],
)
def test_every_kind_of_processor_has_a_file(processor: str, name: str) -> None:
    import peers

    assert peers._file_name(processor) == name


def test_tables_replace_only_what_lies_between_the_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import report

    document = tmp_path / "P.md"
    monkeypatch.setattr(report, "DOCUMENT", document)
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    document.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    for _ in range(2):
        report.write_report({"one": results(), "two": results()})
        text = document.read_text()
        assert text.startswith(f"before\n{report.BEGIN}\n")
        assert text.endswith(f"{report.END}\nafter\n")
        assert "old" not in text
    lines = text.splitlines()
    ours, _ = (line for line in lines if line.startswith("| PoCL | 1.500"))
    assert "| **0.50** (0.50-0.50) | 0.50 | - | <= 1.00 |" in ours
    assert "| 2.00 |" in ours  # 99th percentile over median
    assert any("**disagrees**" in line for line in lines)
    assert "Left out: OpenVINO (ModuleNotFoundError: no <openvino>)" in text
    assert "| 8 x 224 x 224 | 3.00 ms, 3.00 ps, 1.50 |" in text
    assert "| MobileNet V2 float32 | 1.25 (1.12-2.00) | 2013 | 3 |" in lines
    assert "| MobileNet V2 float32 | 3.25 | 0.50 | - | - | 0.12 |" in lines
    assert lines.count("## cpu") == 2
    for name in ("one", "two"):
        assert f"({tmp_path.name}/{name}.svg)" in text
        assert ElementTree.parse(tmp_path / f"{name}.svg").getroot().tag.endswith("svg")


@pytest.mark.parametrize(
    ("output", "wanted", "agrees"),
    [
        (np.array([0.1, 0.90001], np.float32), np.array([0.1, 0.9], np.float32), True),
        (np.array([0.1, 0.91], np.float32), np.array([0.1, 0.9], np.float32), False),
        (np.array([0.1, 0.905], np.float16), np.array([0.1, 0.9], np.float32), True),
        (np.array([0.1, 0.92], np.float16), np.array([0.1, 0.9], np.float32), False),
        (np.array([3, 9], np.uint8), np.array([8, 9], np.uint8), True),
        (np.array([9, 8], np.uint8), np.array([8, 9], np.uint8), False),
        (np.zeros((1, 3), np.uint8), np.zeros((1, 2), np.uint8), False),
        (np.zeros((1, 10, 10)), np.pad([[[5]]], ((0, 0), (0, 9), (0, 9))).astype(np.uint8), True),
    ],
)
def test_agreement(output: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any], agrees: bool) -> None:
    import measure

    assert measure.agreement(output, wanted)["agrees"] is agrees


@pytest.mark.parametrize(
    ("distances", "near"), [([40.0, 50.0], True), ([170.0, 180.0], False), ([40.0, 170.0], None), ([40.0, None], None)]
)
def test_state_of_a_round(distances: list[float | None], near: bool | None) -> None:
    import measure

    assert measure._is_near(distances) is near


def test_tensors_alive_at_once_and_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Input 0 -> CONV -> 1 -> CONV -> 2; 1 and 2 -> ADD -> output 3: tensors 1 and 2 live together."""
    import networks

    shapes = [(1, 4, 4, 3), (1, 4, 4, 8), (1, 4, 4, 8), (1, 4, 4, 8), (8, 1, 1, 3), (8, 3, 3, 8)]
    tensors = [SimpleNamespace(shape=shape, type=0) for shape in shapes]  # 0: float32
    steps = [("CONV_2D", [0, 4], [1]), ("CONV_2D", [1, 5], [2]), ("ADD", [1, 2], [3])]
    operators = [SimpleNamespace(kind=kind, inputs=inputs, outputs=outputs) for kind, inputs, outputs in steps]
    graph = SimpleNamespace(tensors=tensors, operators=operators, inputs=[0], outputs=[3])
    monkeypatch.setattr(networks, "parse", lambda _: SimpleNamespace(subgraphs=[graph]))
    monkeypatch.setattr(networks, "operator_name", lambda _, operator: operator.kind)
    assert networks.largest_live_bytes(b"") == 2 * 4 * 4 * 8 * 4
    assert networks.multiply_adds(b"") == 16 * 8 * 3 + 16 * 8 * 9 * 8


def test_steadiness_is_of_enough_runs_in_enough_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that takes 2 ms a run, each fiftieth time 5 or 7 ms; later slices have fewer runs."""
    import measure

    slices: list[float] = []

    def slice_of(seconds: float) -> list[float]:
        slices.append(seconds)
        slow = 5.0 if len(slices) % 2 else 7.0
        return [slow if at % 50 == 0 else 2.0 for at in range(2200 - 50 * len(slices))]

    worker = SimpleNamespace(problem="", slice=slice_of)
    absent = SimpleNamespace(problem="not installed")
    monkeypatch.setattr(measure.networks, "golden", lambda _name: (np.zeros(1), np.zeros(1)))
    monkeypatch.setattr(measure.networks, "model_bytes", lambda _name: b"")
    monkeypatch.setattr(
        measure, "_worker", lambda _stack, name, *_: contextlib.nullcontext(worker if name == "PoCL" else absent)
    )
    found = measure.steadiness("network", ["PoCL", "other"], 0, 2200)
    assert found == {"PoCL": {"p99": 3.5, "range": [2.5, 3.5], "rounds": 3, "runs": 2000}}
    assert slices == pytest.approx([measure.SLICE_SECONDS, 4.4, 4.4, 4.4])
