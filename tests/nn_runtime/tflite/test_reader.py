# SPDX-License-Identifier: Apache-2.0
"""The .tflite reader on good files, and on one-change mutations of them."""

from __future__ import annotations

import copy
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from nn_runtime.errors import BadData
from nn_runtime.tflite import TfliteError, read
from nn_runtime.tflite.tensor_reader import quoted
from nn_runtime.tflite.types import TensorType
from tests.nn_runtime.tflite.sample_file import (
    BIAS,
    BOOL,
    CONV_2D,
    CUSTOM,
    FILTER,
    IF,
    INT8,
    INT32,
    STRING,
    UINT4,
    WHILE,
    changed,
    refused,
    sample,
    set_buffer,
    set_code,
    set_file,
    set_operator,
    set_subgraph,
    set_tensor,
)
from tests.nn_runtime.tflite.tflite_file import (
    CodeSpec,
    External,
    FileSpec,
    SignatureSpec,
    SubgraphSpec,
    TensorSpec,
)

if TYPE_CHECKING:
    from collections.abc import Callable

MODELS = Path(os.environ.get("NNRT_MODEL_DIR", Path(__file__).parents[4] / "shared" / "models"))


def test_sample_reads() -> None:
    model = read(sample().write())
    assert (model.version, model.description) == (3, "written by a test")
    (subgraph,) = model.subgraphs
    assert (subgraph.name, subgraph.inputs, subgraph.outputs) == ("main", (0,), (5,))
    first = subgraph.tensors[0]
    assert (first.name, first.type, first.shape) == ("input", TensorType.INT8, (1, 4, 4, 2))
    assert (first.shape_signature, first.data, first.is_variable) == ((-1, 4, 4, 2), None, False)
    weights = subgraph.tensors[1]
    assert weights.quantization is not None
    assert weights.quantization.scales.tolist() == [0.5, 0.25, 0.125]
    assert (weights.quantization.zero_points.tolist(), weights.quantization.quantized_dimension) == ([0, 0, 0], 0)
    assert weights.data is not None
    np.testing.assert_array_equal(weights.data, np.arange(6, dtype=np.int8).reshape(3, 1, 1, 2))
    conv, reshape = subgraph.operators
    assert (conv.index, conv.code, conv.name, conv.version) == (0, CONV_2D, "CONV_2D", 3)
    assert (conv.inputs, conv.outputs) == ((0, 1, 2), (3,))
    assert conv.options == {
        "padding": 0,
        "stride_w": 1,
        "stride_h": 1,
        "fused_activation_function": 3,
        "dilation_w_factor": 1,
        "dilation_h_factor": 1,
        "quantized_bias_type": 0,
    }
    assert reshape.options == {"new_shape": (1, 48)}
    (signature,) = model.signatures
    assert (signature.key, signature.subgraph_index) == ("serving_default", 0)
    assert (signature.inputs, signature.outputs) == ({"x": 0}, {"y": 5})
    assert bytes(model.metadata["min_runtime_version"]) == b"1.5.0"


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_bytes(kind: Callable[[bytes], bytes]) -> None:
    assert len(read(kind(sample().write())).subgraphs) == 1


def test_path(tmp_path: Path) -> None:
    path = tmp_path / "sample.tflite"
    path.write_bytes(sample().write())
    assert read(path).subgraphs[0].inputs == read(str(path)).subgraphs[0].inputs == (0,)
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "none.tflite")


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs /dev/zero")
def test_endless_file_is_refused() -> None:
    with pytest.raises(TfliteError, match="regular file"):
        read("/dev/zero")


def test_constants_are_read_only_views() -> None:
    data = sample().write()
    constant = read(data).subgraphs[0].tensors[2].data
    assert constant is not None
    assert constant.tolist() == [7, -8, 9]
    assert not constant.flags.writeable
    assert np.shares_memory(constant, np.frombuffer(data, np.uint8))


def test_missing_options_are_the_defaults() -> None:
    operator = read(changed(set_operator(0, options="NONE"))).subgraphs[0].operators[0]
    assert (operator.options["stride_w"], operator.options["dilation_w_factor"]) == (0, 1)


def test_left_out_input() -> None:
    assert read(changed(set_operator(0, inputs=(0, 1, -1)))).subgraphs[0].operators[0].inputs == (0, 1, -1)


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (CodeSpec(14, 0), "LOGISTIC"),
        (CodeSpec(0, 14), "LOGISTIC"),
        (CodeSpec(127, 150), "GELU"),
        (CodeSpec(0, 150), "GELU"),
        (CodeSpec(127, 5000), "BUILTIN_5000"),
        (CodeSpec(CUSTOM, CUSTOM, "My\nOp"), r"CUSTOM 'My\nOp'"),
    ],
)
def test_operator_code_forms(code: CodeSpec, name: str) -> None:
    def change(file: FileSpec) -> None:
        file.codes[1] = code
        set_operator(1, options="NONE")(file)

    assert read(changed(change)).subgraphs[0].operators[1].name == name


def test_names_that_are_not_utf8() -> None:
    assert read(changed(set_tensor(0, name=b"a\xffb"))).subgraphs[0].tensors[0].name == "a\ufffdb"


def test_types_without_dtype_stay_bytes() -> None:
    def change(file: FileSpec) -> None:
        file.subgraphs[0].tensors += [TensorSpec("text", STRING, (9,), 4), TensorSpec("halves", UINT4, (3, 3), 4)]

    text, halves = read(changed(change)).subgraphs[0].tensors[-2:]
    assert text.data is not None
    assert halves.data is not None
    assert bytes(text.data) == bytes(halves.data) == b"1.5.0"


def test_constant_without_elements() -> None:
    def change(file: FileSpec) -> None:
        file.subgraphs[0].tensors.append(TensorSpec("scalar shape", INT32, (0,)))
        file.subgraphs[0].operators[1].inputs = (3, 6)

    data = read(changed(change)).subgraphs[0].tensors[6].data
    assert data is not None
    assert data.shape == (0,)
    assert data.dtype == np.int32


def test_data_behind_the_tables() -> None:
    length = len(changed(set_buffer(1, External(1000, 6))))
    model = read(changed(set_buffer(1, External(length, 6))) + FILTER)
    weights = model.subgraphs[0].tensors[1].data
    assert weights is not None
    assert weights.tobytes() == FILTER


@pytest.mark.parametrize(
    ("size", "message"), [(7, "buffer 1: data must lie in bytes"), (0, r"input 1 \(tensor 1\) is read before")]
)
def test_data_behind_the_tables_of_another_size(size: int, message: str) -> None:
    length = len(changed(set_buffer(1, External(1000, size))))
    refused(changed(set_buffer(1, External(length, size))) + FILTER, message)


def test_the_first_buffer_is_none() -> None:
    """Whatever it holds: schema.fbs has it for tensors without data."""
    assert read(changed(set_buffer(0, b"data"))).subgraphs[0].tensors[0].data is None


@pytest.mark.parametrize(
    ("kind", "lowest", "highest"),
    [
        *((TensorType.UINT8, 0, 255), (TensorType.INT8, -128, 127)),
        *((TensorType.UINT16, 0, 65535), (TensorType.INT16, -32768, 32767)),
        *((TensorType.UINT4, 0, 15), (TensorType.INT4, -8, 7), (TensorType.INT2, -2, 1)),
        (TensorType.INT32, -(2**31), 2**31 - 1),
    ],
)
def test_zero_points_are_numbers_of_their_type(kind: TensorType, lowest: int, highest: int) -> None:
    for zero_point in (lowest, highest):
        quantization = read(changed(set_tensor(0, type=kind, zero_points=(zero_point,)))).subgraphs[0].tensors[0]
        assert quantization.quantization is not None
        assert quantization.quantization.zero_points.tolist() == [zero_point]
    for zero_point in (lowest - 1, highest + 1):
        refused(
            changed(set_tensor(0, type=kind, zero_points=(zero_point,))),
            f"{kind.name} zero points must be {lowest} to {highest}, got {zero_point} to {zero_point}",
        )


@pytest.mark.parametrize(
    "fields",
    [{"scales": ()}, {"type": TensorType.FLOAT32}, {"type": TensorType.BOOL}, {"type": TensorType.STRING}],
    ids=["no scale", "FLOAT32", "BOOL", "STRING"],
)
def test_quantisation_of_no_integers_is_none(fields: dict[str, Any]) -> None:
    assert read(changed(set_tensor(0, **fields))).subgraphs[0].tensors[0].quantization is None


def test_a_scalar_may_have_a_scale() -> None:
    quantization = read(changed(set_tensor(0, shape=(), signature=()))).subgraphs[0].tensors[0].quantization
    assert quantization is not None
    assert (quantization.scales.tolist(), quantization.zero_points.tolist()) == ([0.5], [-1])


def test_variable_tensor_is_ready_from_the_start() -> None:
    def change(file: FileSpec) -> None:
        file.subgraphs[0].tensors[2].is_variable = True
        file.subgraphs[0].tensors[2].buffer = 0

    assert read(changed(change)).subgraphs[0].tensors[2].is_variable


def test_control_flow_reads() -> None:
    def change(file: FileSpec) -> None:
        branch = SubgraphSpec([TensorSpec("x", INT8, (1, 4, 4, 3))], [], (0,), (0,))
        file.subgraphs += [branch, branch]
        file.codes[1] = CodeSpec(IF, IF)
        values = {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 2}
        set_operator(1, options="IfOptions", values=values)(file)

    model = read(changed(change))
    assert len(model.subgraphs) == 3
    assert model.subgraphs[0].operators[1].options == {"then_subgraph_index": 1, "else_subgraph_index": 2}


@pytest.mark.skipif(not MODELS.is_dir(), reason="needs the networks of NNRT_MODEL_DIR")
def test_real_networks() -> None:
    paths = sorted(MODELS.glob("*.tflite"))
    assert paths
    for path in paths:
        (subgraph,) = read(path).subgraphs
        assert subgraph.operators
        assert all(subgraph.tensors[i].data is None for i in (*subgraph.inputs, *subgraph.outputs))


REFUSED: dict[str, tuple[Callable[[FileSpec], object], str]] = {
    "schema version": (set_file(version=2), "schema version must be 3, got 2"),
    "no subgraph": (set_file(subgraphs=[], signatures=[]), "at least one subgraph"),
    "buffer index": (set_tensor(1, buffer=5), r"subgraph 0: tensor 1 'filter': buffer index must be below 5, got 5"),
    "buffer index to none": (set_tensor(1, buffer=0), r"operator 0 CONV_2D: input 1 \(tensor 1\) is read before"),
    "data too short": (set_buffer(1, FILTER[:5]), r"'filter': INT8 \(3, 1, 1, 2\) needs 6 bytes of data, got 5"),
    "data too long": (set_buffer(2, BIAS + b"\0"), "'bias': INT32 .* needs 12 bytes of data, got 13"),
    "data of empty shape": (
        set_tensor(1, shape=(0, 1, 1, 2), scales=(), zero_points=()),
        "needs 0 bytes of data, got 6",
    ),
    "external behind end": (set_buffer(1, External(100_000, 6)), "buffer 1: data must lie in bytes"),
    "external in header": (set_buffer(1, External(2, 6)), "buffer 1: data must lie in bytes"),
    "external at 1, which is none": (set_buffer(1, External(1, 6)), r"input 1 \(tensor 1\) is read before"),
    "external overflow": (set_buffer(1, External(2**64 - 4, 6)), "buffer 1: data must lie in bytes"),
    "external size": (set_buffer(1, External(100_000, 2**64 - 1)), "buffer 1: data must lie in bytes"),
    "metadata buffer": (set_file(metadata=[("m", 9)]), "metadata 'm': buffer index must be below 5, got 9"),
    "tensor type": (set_tensor(0, type=23), "'input': type must be 0 to 22, got 23"),
    "negative type": (set_tensor(0, type=-1), "'input': type must be 0 to 22, got -1"),
    "bool bytes": (set_tensor(1, type=BOOL, scales=(), zero_points=()), "BOOL constant must hold bytes 0 and 1, got 5"),
    "variable with data": (set_tensor(2, is_variable=True), "'bias': a variable tensor must have no data, got 12"),
    "negative dimension": (set_tensor(0, shape=(1, -4, 4, 2)), r"dimensions must be >= 0, got \(1, -4, 4, 2\)"),
    "dimension -1 of a shape": (set_tensor(0, shape=(1, -1, 4, 2)), r"dimensions must be >= 0, got \(1, -1, 4, 2\)"),
    "rank 9": (set_tensor(0, shape=(1,) * 9), "rank must be at most 8, got 9"),
    "rank 100000": (set_tensor(0, shape=(1,) * 100_000), "rank must be at most 8, got 100000"),
    "2^32 bytes": (set_tensor(0, shape=(1 << 16, 1 << 16, 1)), "must need at most 4294967295 bytes, needs 4294967296"),
    "2^62 bytes": (set_tensor(0, shape=(1 << 30, 1 << 30, 4)), "must need at most 4294967295 bytes"),
    "product over int64": (set_tensor(0, shape=(2**31 - 1,) * 8), "must need at most 4294967295 bytes"),
    "signature rank": (set_tensor(0, signature=(-1,)), "shape_signature must have 4 dimensions"),
    "signature below -1": (set_tensor(0, signature=(-2, 4, 4, 2)), "shape_signature must have 4 dimensions >= -1"),
    "scale 0": (set_tensor(0, scales=(0.0,)), "'input': scales must be positive normal numbers, got 0.0"),
    "scale < 0": (set_tensor(0, scales=(-0.5,)), "got -0.5"),
    "scale NaN": (set_tensor(0, scales=(float("nan"),)), "got nan"),
    "scale infinite": (set_tensor(0, scales=(float("inf"),)), "got inf"),
    "scale denormal": (set_tensor(0, scales=(1e-40,)), "scales must be positive normal numbers"),
    "one bad scale": (set_tensor(1, scales=(0.5, float("nan"), 0.5)), "'filter': scales must be"),
    "zero point low": (set_tensor(0, zero_points=(-129,)), "INT8 zero points must be -128 to 127, got -129"),
    "zero point high": (set_tensor(0, zero_points=(1 << 40,)), "INT8 zero points must be -128 to 127"),
    "no zero point": (set_tensor(0, zero_points=()), "one zero point for each of 1 scales, got 0"),
    "few zero points": (set_tensor(1, zero_points=(0, 0)), "one zero point for each of 3 scales, got 2"),
    "many zero points": (set_tensor(0, zero_points=(0, 0)), "one zero point for each of 1 scales, got 2"),
    "few scales": (
        set_tensor(1, scales=(0.5, 0.25), zero_points=(0, 0)),
        "needs 1 or 3 scales for dimension 0, got 2",
    ),
    "scales not channels": (set_tensor(1, quantized_dimension=3), "needs 1 or 2 scales for dimension 3, got 3"),
    "dimension 4": (set_tensor(1, quantized_dimension=4), "quantized_dimension must be 0 to 3, got 4"),
    "dimension -1": (set_tensor(1, quantized_dimension=-1), "quantized_dimension must be 0 to 3, got -1"),
    "dimension of one scale": (set_tensor(0, quantized_dimension=9), "quantized_dimension must be 0 to 3, got 9"),
    "scales of a scalar": (
        set_tensor(0, shape=(), signature=(), scales=(1.0, 1.0), zero_points=(0, 0)),
        "quantized_dimension must be",
    ),
    "quantisation details": (set_tensor(0, details_type=1), "details of type 1 are not supported"),
    "opcode index": (set_operator(1, code=2), "operator 1: opcode_index must be below 2, got 2"),
    "opcode index huge": (set_operator(1, code=2**32 - 1), "opcode_index must be below 2, got 4294967295"),
    "codes disagree": (set_code(0, builtin=4), "operator code 0: builtin_code and deprecated_builtin_code must agree"),
    "code shrinks": (set_code(1, builtin=21), "operator code 1: .* must agree, got 21 and 22"),
    "code negative": (set_code(1, builtin=-1, deprecated=0), "operator code 1: .* must agree, got -1 and 0"),
    "custom without name": (set_code(1, builtin=CUSTOM, deprecated=CUSTOM), "CUSTOM must have a custom_code"),
    "operator input": (set_operator(0, inputs=(0, 1, 6)), "CONV_2D: input 2: tensor index must be -1 to 5, got 6"),
    "operator input < -1": (set_operator(0, inputs=(0, 1, -2)), "input 2: tensor index must be -1 to 5, got -2"),
    "operator output": (set_operator(0, outputs=(6,)), "CONV_2D: output 0: tensor index must be 0 to 5, got 6"),
    "operator output -1": (set_operator(0, outputs=(-1,)), "output 0: tensor index must be 0 to 5, got -1"),
    "intermediate": (set_operator(0, intermediates=(7,)), "intermediate 0: tensor index must be -1 to 5, got 7"),
    "options of another": (
        set_operator(0, options="Pool2DOptions", values={}),
        "operator 0 CONV_2D: builtin options must be Conv2DOptions, got Pool2DOptions",
    ),
    "options tag unknown": (
        set_operator(0, tag=200),
        r"operators\[0\].builtin_options: type must be one of 0 to 126, got",
    ),
    "options without tag": (set_operator(0, tag=0), "type 0 wants none, got a table"),
    "tag without options": (set_operator(0, options="NONE", tag=1), "type 1 wants a table, got none"),
    "subgraph input": (set_subgraph(inputs=(6,)), "subgraph 0: input 0: tensor index must be 0 to 5, got 6"),
    "subgraph input -1": (set_subgraph(inputs=(-1,)), "subgraph 0: input 0: tensor index must be 0 to 5, got -1"),
    "subgraph output": (set_subgraph(outputs=(6,)), "subgraph 0: output 0: tensor index must be 0 to 5, got 6"),
    "inputs twice": (set_subgraph(inputs=(0, 0)), r"inputs must be different tensors, got \[0, 0\]"),
    "input is constant": (set_subgraph(inputs=(0, 1)), "input tensor 1 must not be a constant"),
    "cycle": (set_operator(0, inputs=(5, 1, 2)), r"operator 0 CONV_2D: input 0 \(tensor 5\) is read before"),
    "reads itself": (set_operator(0, inputs=(3, 1, 2)), r"operator 0 CONV_2D: input 0 \(tensor 3\) is read before"),
    "two writers": (set_operator(1, outputs=(3,)), r"operator 1 RESHAPE: output 0 \(tensor 3\) is also"),
    "one operator twice": (set_operator(0, outputs=(3, 3)), r"operator 0 CONV_2D: output 1 \(tensor 3\) is also"),
    "writes a constant": (set_operator(1, outputs=(4,)), r"output 0 \(tensor 4\) is also"),
    "writes an input": (set_operator(1, outputs=(0,)), r"output 0 \(tensor 0\) is also"),
    "output never written": (set_subgraph(operators=[]), r"subgraph 0: output 0 \(tensor 5\) is never written"),
    "signature subgraph": (
        set_file(signatures=[SignatureSpec("s", [], [], 1)]),
        "signature 0 's': subgraph index must be below 1, got 1",
    ),
    "signature tensor": (
        set_file(signatures=[SignatureSpec("s", [("x", 99)], [])]),
        "signature 0 's': input 'x': tensor must be one of the subgraph's, got index 99",
    ),
    "signature name twice": (
        set_file(signatures=[SignatureSpec("s", [("x", 0), ("x", 0)], [])]),
        "input 'x': names must be different",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    change, wanted = REFUSED[name]
    refused(changed(change), wanted)


def control_flow(code: int, options: str, values: dict[str, int], extra: int) -> bytes:
    """Write the sample with a control-flow operator instead of its reshape, and more copies of its subgraph."""

    def change(file: FileSpec) -> None:
        file.codes[1] = CodeSpec(min(code, 127), code)
        set_operator(1, options=options, values=values)(file)
        file.subgraphs += [copy.deepcopy(file.subgraphs[0]) for _ in range(extra)]

    return changed(change)


def test_control_flow_in_circles() -> None:
    refused(control_flow(WHILE, "WhileOptions", {}, 0), "subgraph 0: .* a subgraph that calls itself")
    body = {"CondSubgraphIndex": 1, "BodySubgraphIndex": 1}
    refused(control_flow(WHILE, "WhileOptions", body, 1), "subgraph 0: .* a subgraph that calls itself")
    out_of_range = {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 2}
    refused(control_flow(IF, "IfOptions", out_of_range, 1), "operator 1 IF: else_subgraph_index must be 0 to 1, got 2")
    negative = {"ThenSubgraphIndex": -1, "ElseSubgraphIndex": 1}
    refused(control_flow(IF, "IfOptions", negative, 1), "operator 1 IF: then_subgraph_index must be 0 to 1, got -1")


@pytest.mark.parametrize(
    ("code", "options", "field"),
    [
        (31, "CallOptions", "Subgraph"),
        (129, "CallOnceOptions", "InitSubgraphIndex"),
        (WHILE, "WhileOptions", "CondSubgraphIndex"),
        (WHILE, "WhileOptions", "BodySubgraphIndex"),
        (190, "StablehloScatterOptions", "UpdateComputationSubgraphIndex"),
        (198, "StablehloReduceWindowOptions", "BodySubgraphIndex"),
        (206, "StableHLOCompositeOptions", "DecompositionSubgraphIndex"),
    ],
)
def test_subgraphs_that_are_not_there(code: int, options: str, field: str) -> None:
    name = re.sub("(?<!^)(?=[A-Z])", "_", field).lower()
    refused(control_flow(code, options, {field: 2}, 1), f"{name} must be 0 to 1, got 2")


def test_hostile_names_stay_short_and_escaped() -> None:
    name = "\"'*/\\\n" + "A" * (1 << 20)
    data = changed(lambda file: vars(file.subgraphs[0].tensors[0]).update(name=name, type=99))
    refused(data, "type must be")
    assert read(changed(set_tensor(0, name=name))).subgraphs[0].tensors[0].name == name
    assert quoted("\x1b[31m\n") == r"'\x1b[31m\n'"
    refused(changed(set_tensor(0, name=b"\xff\xfe", type=99)), "'\ufffd\ufffd'")


def test_errors_are_the_projects_own() -> None:
    assert issubclass(TfliteError, BadData)
    assert issubclass(TfliteError, ValueError)
