# SPDX-License-Identifier: Apache-2.0
"""How many inputs an operator may have and which versions of it are known; LiteRT says what is right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import nn_runtime as nn
from nn_runtime.errors import BadData
from nn_runtime.tflite import supported_operators
from nn_runtime.tflite.builtin_operator import OPERATOR_NAMES
from nn_runtime.tflite.folding import FOLDED_KINDS
from nn_runtime.tflite.operators import kind_of
from tests.nn_runtime.tflite.operator_cases import TANH, Case, weights
from tests.nn_runtime.tflite.operator_file import Graph, Step, constant, real, write, write_graphs
from tests.nn_runtime.tflite.test_converter import CASES

KINDS = {OPERATOR_NAMES[code]: kind_of(code) or FOLDED_KINDS[code] for code in (*supported_operators(), *FOLDED_KINDS)}
COUNTED = [case for case in CASES if KINDS[case.code].inputs is not None]
EXTRA = constant(np.float32(1))
REFUSED_BY_LITERT = {case.code for case in COUNTED} - {"MIRROR_PAD", "STABLEHLO_PAD"}
"""LiteRT's MIRROR_PAD and STABLEHLO_PAD do not count their inputs."""
OUTPUTS_NOT_COUNTED_BY_LITERT = {"CONCATENATION", "MIRROR_PAD", "SIGN", "STABLEHLO_PAD"}
UNKNOWN_TO_LITERT = {"STABLEHLO_CBRT"}
"""In the schema, and without a kernel."""
_CALLS = {
    "CALL_ONCE": ("CallOnceOptions", {"InitSubgraphIndex": 1}),
    "STABLEHLO_COMPOSITE": ("StableHLOCompositeOptions", {"DecompositionSubgraphIndex": 1}),
    "STABLEHLO_REDUCE_WINDOW": ("StablehloReduceWindowOptions", {"BodySubgraphIndex": 1}),
    "STABLEHLO_SCATTER": ("StablehloScatterOptions", {"UpdateComputationSubgraphIndex": 1}),
    "IF": ("IfOptions", {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 1}),
    "WHILE": ("WhileOptions", {"CondSubgraphIndex": 1, "BodySubgraphIndex": 1}),
}


def _file_of(name: str, version: int) -> bytes:
    """Return a file with one operator of a version, and a second subgraph for those that call one."""
    options, values = _CALLS.get(name, ("NONE", {}))
    step = Step(name, [0], [1], options, values, version=version)
    called = Graph([real(3), real(3)], [Step("RELU", [0], [1])], [0], [1])
    return write_graphs([Graph([real(3), real(3)], [step], [0], [1]), called])


def _filled(case: Case) -> Case:
    """Return a case that lists every input that its operator may have, those that it lacks as left out."""
    most = KINDS[case.code].inputs or 0
    return replace(case, inputs=[*case.inputs, *[None] * (most - len(case.inputs))])


@pytest.mark.parametrize("case", COUNTED, ids=str)
def test_no_operator_ignores_an_input(case: Case) -> None:
    filled = _filled(case)
    most = len(filled.inputs)
    file = replace(filled, inputs=[*filled.inputs, EXTRA]).file()[0]
    with pytest.raises(BadData, match=f"operator 0 {case.code}: must have at most {most} inputs, got {most + 1}"):
        nn.load(file)
    if case.code in REFUSED_BY_LITERT:
        litert = pytest.importorskip("ai_edge_litert.interpreter")
        own_kernels = litert.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        with pytest.raises((ValueError, RuntimeError)):
            litert.Interpreter(model_content=file, experimental_op_resolver_type=own_kernels).allocate_tensors()


@pytest.mark.parametrize("case", COUNTED, ids=str)
def test_inputs_left_out_at_the_end_do_not_count(case: Case) -> None:
    filled = _filled(case)
    nn.load(replace(filled, inputs=[*filled.inputs, None, None]).file()[0])


@pytest.mark.parametrize("case", {case.code: case for case in CASES}.values(), ids=str)
@pytest.mark.parametrize("outputs", ["more", "fewer", "none"])
def test_no_operator_has_another_number_of_outputs(case: Case, outputs: str) -> None:
    given = {"more": [*case.outputs, case.outputs[0]], "fewer": case.outputs[:-1], "none": []}[outputs]
    file = replace(case, outputs=given, unread=len(given)).file()[0]
    with pytest.raises(BadData, match=f"operator 0 {case.code}: .* (outputs|sizes)"):
        nn.load(file)
    if case.code not in OUTPUTS_NOT_COUNTED_BY_LITERT | UNKNOWN_TO_LITERT:
        litert = pytest.importorskip("ai_edge_litert.interpreter")
        own_kernels = litert.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        with pytest.raises((ValueError, RuntimeError)):
            litert.Interpreter(model_content=file, experimental_op_resolver_type=own_kernels).allocate_tensors()


def test_the_basic_lstm_has_fewer_inputs_than_the_full_one() -> None:
    inputs = [real(2, 3), real(2, 4), constant(weights(16, 7)), constant(weights(16)), real(2, 4), EXTRA]
    options = {"FusedActivationFunction": TANH, "KernelType": 1}
    with pytest.raises(BadData, match="operator 0 LSTM: must have at most 5 inputs, got 6"):
        nn.load(Case("LSTM", inputs, [real(2, 4)] * 4, "LSTMOptions", options).file()[0])


@pytest.mark.parametrize("name", [name for name in KINDS if name not in UNKNOWN_TO_LITERT])
def test_litert_knows_the_newest_version_of_an_operator(name: str) -> None:
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    try:
        litert.Interpreter(model_content=_file_of(name, KINDS[name].version))
    except ValueError as error:
        assert "Didn't find op" not in str(error)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("beyond", ["older", "newer"])
def test_versions_that_are_not_known_are_refused(name: str, beyond: str) -> None:
    newest = KINDS[name].version
    version = 0 if beyond == "older" else newest + 1
    with pytest.raises(BadData, match=f"operator 0 {name}: version must be 1 to {newest}, got {version}"):
        nn.load(_file_of(name, version))


def test_only_the_first_version_of_a_custom_operator_is_known() -> None:
    step = Step("TFLite_Detection_PostProcess", [0], [1], version=2)
    with pytest.raises(BadData, match=r"TFLite_Detection_PostProcess.*: version must be 1 to 1, got 2"):
        nn.load(write([real(3), real(3)], [step], [0], [1]))
