# SPDX-License-Identifier: Apache-2.0
"""benchmarks/layers.py and its cases: the files are right by LiteRT and by our importer, and what the tables say."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import nn_runtime as nn

if TYPE_CHECKING:
    from pathlib import Path

LITERT = "LiteRT XNNPACK"


@pytest.fixture(autouse=True)
def needs_litert() -> None:
    """Skip where what writes the files is missing."""
    pytest.importorskip("ai_edge_litert")


def layer(pocl: float, litert: float, *, problem: str = "", difference: str = "0 steps") -> dict[str, Any]:
    """Figures of a layer; Intel's runtime takes twice what PoCL takes, or has a problem."""
    rows = {one: {"problem": "", "median_ms": ms, "ratio": ms / litert}
            for one, ms in (("PoCL", pocl), ("Intel", 2 * pocl), (LITERT, litert))}  # fmt: skip
    if problem:
        rows["Intel"] = {"problem": problem}
    return {"measured": "2026-01-01 10:00 UTC", "difference": difference, "rows": rows}


MACHINE = {
    **{"processor": "cpu", "cores": 4, "threads": 2, "system": "os", "python": "3"},
    **{"devices": {"d": "1"}, "versions": {"numpy": "2"}},
}


def test_files_of_the_cases() -> None:
    """LiteRT computes every output's shape anew, and our importer reads the same inputs and output."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType
    from layer_cases import LAYERS

    assert {name.rpartition(" ")[2] for name in LAYERS} == {"float32", "int8"}
    for name, build in LAYERS.items():
        content, data = build()
        with nn.load(content) as network:
            ours = [[(one.shape, one.dtype) for one in ends] for ends in (network.inputs, network.outputs)]
        plain = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        interpreter = Interpreter(model_content=content, experimental_op_resolver_type=plain)
        stored = [tuple(one["shape"]) for one in interpreter.get_output_details()]
        interpreter.allocate_tensors()
        ends = interpreter.get_input_details(), interpreter.get_output_details()
        theirs = [[(tuple(one["shape"]), np.dtype(one["dtype"])) for one in details] for details in ends]
        assert ours == theirs, name
        assert [shape for shape, _ in theirs[1]] == stored, name
        assert [(one.shape, one.dtype) for one in data] == theirs[0], name


def test_a_file_computes_what_its_name_says() -> None:
    """A sum, and a PRELU with one factor."""
    from layer_cases import LAYERS, prelu
    from layer_file import LayerFile

    content, data = LAYERS["tiny ADD 16 float32"]()
    np.testing.assert_allclose(nn.load(content).compile(device="cpu").run(data)[0], data[0] + data[1], rtol=1e-6)
    file = LayerFile(quantized=False)
    content = file.write(prelu(file, file.input(1, 2, 2, 1)))
    (result,) = nn.load(content).compile(device="cpu").run(file.data)
    slopes = (result / file.data[0])[file.data[0] < 0]
    np.testing.assert_allclose(slopes, slopes[0], rtol=1e-6)
    np.testing.assert_array_equal(result[file.data[0] > 0], file.data[0][file.data[0] > 0])


def test_options_that_an_operator_does_not_have() -> None:
    from layer_file import LayerFile

    file = LayerFile(quantized=False)
    with pytest.raises(ValueError, match="SOFTMAX has no option alpha"):
        file.add("SOFTMAX", [file.input(1, 4)], (1, 4), alpha=1.0)


@pytest.mark.parametrize(
    ("outputs", "wanted", "text"),
    [
        ([np.array([1.0, 2.0], np.float32)], np.array([1.0, 4.0], np.float32), "5.0e-01"),
        ([np.array([0.0], np.float32), np.array([0.25], np.float32)], np.array([0.0], np.float32), "2.5e-01"),
        ([np.array([-128], np.int8)], np.array([127], np.int8), "255 steps"),
        ([np.zeros((1, 2), np.int8)], np.zeros((2, 1), np.int8), "shape [1, 2], [2, 1]"),
        ([], np.zeros(1, np.int8), "-"),
        ([np.zeros(1, np.int8)], np.array([]), "-"),
    ],
)
def test_largest_difference(outputs: list[np.ndarray[Any, Any]], wanted: np.ndarray[Any, Any], text: str) -> None:
    import layers

    assert layers.difference(outputs, wanted) == text


def test_document_of_all_layers() -> None:
    import layers
    from layer_cases import LAYERS

    figures = {name: layer(0.2, 0.1) for name in LAYERS}
    figures["tiny ADD 16 float32"] = layer(0.04, 0.01, difference="0.0e+00")
    figures["SOFTMAX 1024x128 int8"] = layer(0.05, 0.1, problem="RuntimeError: no kernel") | {"measured": "2026-01-02"}
    text = layers.document({"machine": MACHINE, "layers": figures})
    assert "| tiny ADD 16 float32 | 0.040 | 0.080 | 0.010 | 4.00 | 8.00 | 0.0e+00 |" in text
    assert "| SOFTMAX 1024x128 int8 | 0.050 | - | 0.100 | 0.50 | - | 0 steps |" in text
    assert "Left out: `SOFTMAX 1024x128 int8`: Intel: RuntimeError: no kernel." in text
    assert "| float32, LiteRT below 0.05 ms | 1 | 4.00 | 0 | 8.00 | 0 |" in text
    ints = sum(name.endswith("int8") for name in figures)
    mean = 2 * 0.25 ** (1 / ints)  # all are 2 but one of 0.5
    assert f"| int8, the others | {ints} | {mean:.2f} | 1 | 4.00 | 0 |" in text
    assert "40 us (PoCL), 80 us (Intel), 10 us (LiteRT XNNPACK)" in text
    assert "from 2026-01-01 10:00 UTC to 2026-01-02" in text
    assert text.count("\n| ") == len(figures) + 4 + 3  # rows, summary, headers


def test_document_is_written_when_nothing_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import layers
    from layer_cases import LAYERS

    def measured(names: list[str], _: float) -> list[tuple[str, dict[str, Any]]]:
        return [(name, layer(0.2, 0.1)) for name in names]

    monkeypatch.setattr(layers, "DOCUMENT", tmp_path / "LAYERS.md")
    monkeypatch.setattr(layers, "RESULTS", tmp_path / "layers.json")
    monkeypatch.setattr(layers, "_figures", measured)
    monkeypatch.setattr(layers, "machine", lambda: MACHINE)
    monkeypatch.setattr(sys, "argv", ["layers.py", "int8"])
    layers.main()
    assert not layers.DOCUMENT.exists()
    assert set(json.loads(layers.RESULTS.read_text())["layers"]) == {one for one in LAYERS if "int8" in one}
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["layers.py", "--rest"])
    layers.main()
    assert " int8 | " not in capsys.readouterr().out
    assert layers.DOCUMENT.read_text().startswith("# Single layers\n")
