# SPDX-License-Identifier: Apache-2.0
"""Graphs of models: nodes, labels, edges, the log of vlog's tag model, the command."""

from __future__ import annotations

import json
import logging
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime import cli
from nn_runtime.codes import OEM_OPERATION, OperandCode, OperationCode
from nn_runtime.hal.types import DataLocation, Operand, OperandLifeTime, Operation, Subgraph
from nn_runtime.hal.types import Model as HalModel
from nn_runtime.observe.graph_dump import dot
from nn_runtime.observe.picture import picture
from tests.nn_runtime.graphs import add_model, if_model, unary_model
from tests.nn_runtime.test_control_flow import RELU, TANH

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    monkeypatch.setenv("PATH", str(tmp_path))
    status, _, error = drawn(capsys, "--output", str(tmp_path / "graph.svg"))
    assert status == 1
    assert "graphviz" in error
    assert not (tmp_path / "graph.svg").exists()


STAND_IN = """#!/bin/sh
test "$1" = -Tpng || { echo "Format: not recognized" >&2; exit 1; }
exec /bin/cat
"""


@pytest.mark.skipif(os.name == "nt", reason="a shell script stands in for graphviz")
def test_a_picture_by_a_stand_in_for_graphviz(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "dot"
    program.write_text(STAND_IN)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    file = tmp_path / "graph.png"
    assert drawn(capsys, "--output", str(file))[0] == 0
    assert "filter FLOAT32" in file.read_text()
    assert drawn(capsys, "--output", str(file), "--full")[0] == 0
    assert "style=filled fillcolor=black" in file.read_text()
    assert "filter" not in file.read_text()
    status, _, error = drawn(capsys, "--output", str(tmp_path / "graph.odd"))
    assert (status, "dot failed: Format: not recognized" in error) == (1, True)
    assert not (tmp_path / "graph.odd").exists()


@pytest.mark.skipif(shutil.which("dot") is None, reason="graphviz is not installed")
@pytest.mark.parametrize(("ending", "begin"), [("png", b"\x89PNG\r\n"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_pictures_by_graphviz(tmp_path: Path, capsys: pytest.CaptureFixture[str], ending: str, begin: bytes) -> None:
    for network in Path(NETWORK).parent.glob("*.tflite"):
        file = tmp_path / f"{network.stem}.{ending}"
        assert cli.main(["graph", str(network), "-o", str(file)]) == 0
        assert file.read_bytes().startswith(begin)
        assert capsys.readouterr().err == ""


def test_a_picture_shows_what_flows() -> None:
    """Constants stand in their operation's box under the specification's names; tensors are arrows."""
    lines = picture(add_model((2, 0)).hal, 'two "x"').splitlines()
    assert lines[0] == 'digraph "two \\"x\\"" {'
    assert '  mn0 [label="0: ADD\\nactivation = NONE"]' in lines
    assert '  mi0 -> mn0 [label="input0: 2x?"]' in lines
    assert '  mi1 -> mn0 [label="input1: 2x?"]' in lines
    assert '  mo0 [shape=oval style=filled fillcolor=black fontcolor=white label="output 0\\nFLOAT32 2x?"]' in lines
    assert "  mn0 -> mo0" in lines
    assert sum("->" in line for line in lines) == 3


def test_a_picture_numbers_inputs_of_one_name() -> None:
    ends = [Operand(OperandCode.TENSOR_FLOAT32, (1, 2), lifetime=OperandLifeTime.SUBGRAPH_INPUT) for _ in range(2)]
    result = Operand(OperandCode.TENSOR_FLOAT32, (1, 4), lifetime=OperandLifeTime.SUBGRAPH_OUTPUT)
    axis = Operand(OperandCode.INT32, lifetime=OperandLifeTime.CONSTANT_COPY, location=DataLocation(0, 0, 4))
    joined = Operation(OperationCode.CONCATENATION, (0, 1, 3), (2,))
    model = HalModel(Subgraph((*ends, result, axis), (joined,), (0, 1), (2,)), operand_values=b"\1\0\0\0")
    lines = picture(model).splitlines()
    assert '  mi1 -> mn0 [label="input 1: 1x2"]' in lines
    assert '  mn0 [label="0: CONCATENATION\\naxis = 1"]' in lines


@pytest.mark.parametrize(
    ("padding", "activation", "words"),
    [(1, 1, "SAME RELU"), (2, 3, "VALID RELU6"), (3, 9, "3 9")],
)
def test_a_picture_says_codes_in_words(padding: int, activation: int, words: str) -> None:
    """The words are those of the NDK's PaddingCode and FuseCode; other numbers stay."""
    scalars = [Operand(OperandCode.INT32, lifetime=OperandLifeTime.CONSTANT_COPY, location=DataLocation(0, 4 * at, 4))
               for at in range(6)]  # fmt: skip
    ends = [Operand(OperandCode.TENSOR_FLOAT32, (1, 4, 4, 1), lifetime=end)
            for end in (OperandLifeTime.SUBGRAPH_INPUT, OperandLifeTime.SUBGRAPH_OUTPUT)]  # fmt: skip
    pool = Operation(OperationCode.MAX_POOL_2D, (0, *range(2, 8)), (1,))
    values = np.array([padding, 1, 1, 2, 2, activation], np.int32).tobytes()
    text = picture(HalModel(Subgraph((*ends, *scalars), (pool,), (0,), (1,)), operand_values=values))
    first, second = words.split()
    assert f"padding_scheme = {first}," in text
    assert f"activation = {second}" in text


def test_a_picture_draws_referenced_models_in_frames() -> None:
    text = picture(if_model(unary_model(RELU), unary_model(TANH)).hal)
    assert text.count("subgraph cluster_") == 2
    assert "referenced model 1" in text
    for name in ("0: IF", "0: RELU", "0: TANH"):
        assert text.count(f'"{name}') == 1


def test_a_picture_of_what_only_a_vendor_knows() -> None:
    def model_with(code: int) -> HalModel:
        ends = (OperandLifeTime.SUBGRAPH_INPUT, OperandLifeTime.SUBGRAPH_OUTPUT)
        operands = (
            *(Operand(OperandCode.TENSOR_OEM_BYTE, (4,), lifetime=end) for end in ends),
            Operand(code, lifetime=OperandLifeTime.CONSTANT_COPY, location=DataLocation(0, 0, 3)),
        )
        operation = Operation(OEM_OPERATION, (0, 2), (1,))
        return HalModel(Subgraph(operands, (operation,), (0,), (1,)), operand_values=b"\1\2\3")

    model, of_an_extension = model_with(OperandCode.OEM_SCALAR), model_with(1 << 16)
    assert '  mn0 [label="0: OEM_OPERATION\\n1 = [1, 2, 3]"]' in picture(model).splitlines()
    assert '  mn0 [label="0: OEM_OPERATION\\n1 extension operand type 1:0"]' in picture(of_an_extension).splitlines()
    assert '  d2 [label="2: COPY\\nOEM"]' in dot(model).splitlines()
    assert '  d2 [label="2: COPY\\nextension operand type 1:0"]' in dot(of_an_extension).splitlines()
