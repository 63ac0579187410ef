# SPDX-License-Identifier: Apache-2.0
"""Graphs of models: nodes, labels, edges, the log of vlog's tag model, the command."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from nn_runtime import cli
from nn_runtime.observe.graph_dump import dot
from tests.nn_runtime.graphs import add_model, if_model, unary_model
from tests.nn_runtime.test_control_flow import RELU, TANH

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

NETWORK = str(Path(cli.__file__).parents[1] / "demo" / "digits_float.tflite")


def test_nodes_and_edges() -> None:
    text = dot(add_model((2, 0)).hal, 'two "x"')
    assert text.splitlines() == [
        'digraph "two \\"x\\"" {',
        '  d0 [style=filled fillcolor=black fontcolor=white label="0 = input[0]\\nTF32\\n2x0"]',
        '  d1 [style=filled fillcolor=black fontcolor=white label="1 = input[1]\\nTF32\\n2x0"]',
        '  d2 [style=filled fillcolor=black fontcolor=white label="2 = output[0]\\nTF32\\n2x0"]',
        '  d3 [label="3: COPY\\nI32 = 0"]',
        '  n0 [shape=box ordering=in label="0: ADD"]',
        "  d0 -> n0 [label=0]",
        "  d1 -> n0 [label=1]",
        "  d3 -> n0 [label=2]",
        "  n0 -> d2",
        "}",
    ]


def test_referenced_models_are_noted() -> None:
    text = dot(if_model(unary_model(RELU), unary_model(TANH)).hal)
    assert "// 2 referenced models are left out" in text
    assert 'SUBGRAPH\\nMODEL 1"' in text
    assert text.count("shape=box") == 1


def test_the_graph_of_a_finished_model_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "nn_runtime.model"):
        add_model()
    assert any(message.startswith("digraph") for message in caplog.messages)


def drawn(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Sequence[str], str]:
    status = cli.main(["graph", NETWORK, *arguments])
    captured = capsys.readouterr()
    return status, captured.out.splitlines(), captured.err


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    status, lines, _ = drawn(capsys)
    assert (status, lines[0], lines[-1]) == (0, 'digraph "digits_float.tflite" {', "}")
    file = tmp_path / "graph.dot"
    assert drawn(capsys, "-o", str(file))[0] == 0
    assert file.read_text().splitlines() == lines
    status, found, _ = drawn(capsys, "--json", "--output", str(file))
    assert json.loads("".join(found))["output"] == str(file)
    assert drawn(capsys, "--output", str(tmp_path / "graph"))[0] == 2
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    status, _, error = drawn(capsys, "--output", str(tmp_path / "graph.svg"))
    assert status == 1
    assert "graphviz" in error
