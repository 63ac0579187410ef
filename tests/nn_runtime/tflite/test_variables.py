# SPDX-License-Identifier: Apache-2.0
"""Variables of streaming networks, most by name: runs one after another against LiteRT, and what cannot be kept."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

import nn_runtime as nn
from nn_runtime.errors import BadData
from nn_runtime.tflite import Interpreter
from nn_runtime.tflite.types import TensorType
from tests.nn_runtime.tflite.operator_file import (
    Array,
    Graph,
    Step,
    Tensor,
    boolean,
    constant,
    int8,
    int32,
    int64,
    random_inputs,
    real,
    write_graphs,
)
from tests.nn_runtime.tflite.test_interpreter import assert_same, both
from tests.nn_runtime.tflite.tflite_file import (
    CodeSpec,
    FileSpec,
    OperatorSpec,
    SignatureSpec,
    SubgraphSpec,
    TensorSpec,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.device import Device

HANDLE = Tensor(TensorType.RESOURCE, ())
MEMORY = Tensor(TensorType.FLOAT32, (2,), is_variable=True)
CALL = Step("CALL_ONCE", [], [], "CallOnceOptions", {"InitSubgraphIndex": 1})
RUNS = 4


def handle(index: int, name: str = "state", container: str = "") -> Step:
    return Step("VAR_HANDLE", [], [index], "VarHandleOptions", {"SharedName": name, "Container": container})


def read(source: int, result: int) -> Step:
    return Step("READ_VARIABLE", [source], [result])


def assign(target: int, value: int) -> Step:
    return Step("ASSIGN_VARIABLE", [target, value], [])


def add(left: int, right: int, result: int) -> Step:
    return Step("ADD", [left, right], [result], "AddOptions")


def first_values(**values: Tensor) -> Graph:
    """Return the subgraph that assigns constants to variables."""
    tensors = [tensor for value in values.values() for tensor in (HANDLE, value)]
    steps = [step for at, name in enumerate(values) for step in (handle(2 * at, name), assign(2 * at, 2 * at + 1))]
    return Graph(tensors, steps, [], [])


def running_sum(first: Tensor, kind: Tensor) -> bytes:
    """Return a file that adds its input to a variable and returns the sum: tensor 3."""
    steps = [CALL, handle(0), read(0, 2), add(2, 1, 3), assign(0, 3)]
    return write_graphs([Graph([HANDLE, kind, kind, kind], steps, [1], [3]), first_values(state=first)])


WINDOW = [
    # A stream of rows: the last four are kept, and their mean returned.
    *(HANDLE, real(1, 1, 3), real(1, 4, 3), real(1, 5, 3)),
    *(constant([0, 1, 0]), constant([1, 5, 3]), constant([1, 1, 1])),
    *(real(1, 4, 3), constant([1]), real(1, 3)),
]
WINDOW_STEPS = [
    *(CALL, handle(0, "rows"), read(0, 2)),
    Step("CONCATENATION", [2, 1], [3], "ConcatenationOptions", {"Axis": 1}),
    Step("STRIDED_SLICE", [3, 4, 5, 6], [7], "StridedSliceOptions"),
    *(assign(0, 7), Step("MEAN", [7, 8], [9], "ReducerOptions")),
]
PAIR = [HANDLE, HANDLE, real(2), real(2), real(2), real(2)]
ROWS = np.arange(12, dtype=np.float32).reshape(1, 4, 3)
FILES = {
    "float32": running_sum(constant([[1.5, -2.0, 0.0]]), real(1, 3)),
    "int32": running_sum(constant([7, -8]), int32(2)),
    "int64": running_sum(Tensor(TensorType.INT64, (2,), data=np.array([7, -8])), int64(2)),
    "int8": running_sum(constant(np.array([3, -128], np.int8), 0.5, -100), int8(0.5, -100, 2)),
    "int8 of another scale": write_graphs(
        [
            Graph(
                [HANDLE, int8(0.5, -100, 2), int8(0.25, 3, 2), int8(0.25, 3, 2)],
                [CALL, handle(0), read(0, 1), Step("RELU", [2], [3]), assign(0, 3)],
                [2],
                [1],
            ),
            first_values(state=constant(np.array([3, -128], np.int8), 0.5, -100)),
        ]
    ),
    "scalar": running_sum(constant(np.float32(0.25)), real()),
    "window": write_graphs([Graph(WINDOW, WINDOW_STEPS, [1], [9]), first_values(rows=constant(ROWS))]),
    "exchanged": write_graphs(
        [
            # left, right = right, left + input
            Graph(
                PAIR,
                [
                    *(CALL, handle(0, "left"), handle(1, "right"), read(0, 3), read(1, 4), add(3, 2, 5)),
                    *(assign(0, 4), assign(1, 5)),
                ],
                [2],
                [3, 4],
            ),
            first_values(left=constant([1.0, 2.0]), right=constant([-1.0, 5.0])),
        ]
    ),
    "never assigned": write_graphs(
        [
            Graph([HANDLE, real(2), real(2), real(2)], [CALL, handle(0), read(0, 2), add(2, 1, 3)], [1], [3]),
            first_values(state=constant([1.0, 2.0])),
        ]
    ),
    "assigned before it is read": write_graphs(
        [Graph([HANDLE, real(2), real(2), real(2)], [handle(0), assign(0, 1), read(0, 2), add(2, 1, 3)], [1], [3])]
    ),
    "assigned twice": write_graphs(
        [
            Graph(
                [HANDLE, real(2), real(2), real(2), real(2)],
                [CALL, handle(0), read(0, 2), add(2, 1, 3), assign(0, 3), read(0, 4), assign(0, 1)],
                [1],
                [2, 4],
            ),
            first_values(state=constant([1.0, 2.0])),
        ]
    ),
    "one name in two containers": write_graphs(
        [
            Graph(
                [HANDLE, HANDLE, real(2), real(2), real(2)],
                [handle(0, container="a"), handle(1, container="b"), assign(0, 2), assign(1, 3), read(0, 4)],
                [2, 3],
                [4],
            )
        ]
    ),
    "a tensor that an operator writes": write_graphs(
        [Graph([real(2), MEMORY, real(2)], [add(0, 1, 2), Step("NEG", [2], [1])], [0], [2, 1])]
    ),
    "a tensor written before it is read": write_graphs(
        [Graph([real(2), MEMORY, real(2)], [Step("ABS", [0], [1]), add(0, 1, 2)], [0], [2, 1])]
    ),
    "raw numbers of another scale": write_graphs(
        [
            Graph(
                [HANDLE, int8(0.5, 0, 2), int8(0.25, 10, 2), int8(0.5, 0, 2), int8(0.5, 0, 2)],
                [CALL, handle(0), read(0, 3), add(3, 1, 4), assign(0, 4), read(0, 2)],
                [1],
                [2, 4],
            ),
            first_values(state=constant(np.array([3, -20], np.int8), 0.125, 5)),
        ]
    ),
}


def litert(file: bytes, inputs: Sequence[Sequence[Array]]) -> list[list[Array]]:
    """Return the outputs of a new interpreter of LiteRT's after each run."""
    module = pytest.importorskip("ai_edge_litert.interpreter")
    kernels = module.OpResolverType.BUILTIN_REF
    return run(module.Interpreter(model_content=file, experimental_op_resolver_type=kernels), inputs)


def run(interpreter: Interpreter, inputs: Sequence[Sequence[Array]]) -> list[list[Array]]:
    interpreter.allocate_tensors()
    results = []
    for arrays in inputs:
        for details, array in zip(interpreter.get_input_details(), arrays, strict=True):
            interpreter.set_tensor(int(str(details["index"])), array)
        interpreter.invoke()
        indices = [int(str(details["index"])) for details in interpreter.get_output_details()]
        results.append([interpreter.get_tensor(index) for index in indices])
    return results


def fed(network: nn.Network) -> list[list[Array]]:
    """Return inputs for several runs, small enough for sums of 8 bits."""
    kinds = [Tensor(next(k for k in TensorType if k.dtype == i.dtype), i.shape) for i in network.inputs]
    inputs = [random_inputs(kinds, seed) for seed in range(RUNS)]
    return [[(array // 4 if array.dtype.kind == "i" else array).astype(array.dtype) for array in one] for one in inputs]


@pytest.mark.parametrize("name", FILES)
def test_runs_one_after_another_and_after_a_reset(name: str, reference_device: Device) -> None:
    network = nn.load(FILES[name])
    inputs = fed(network)
    expected = litert(FILES[name], inputs)
    with network.compile(reference_device) as session:
        for _ in range(2):
            for arrays, wanted in zip(inputs, expected, strict=True):
                for result, one in zip(session.run(arrays), wanted, strict=True):
                    assert (result.dtype, result.shape) == (one.dtype, one.shape)
                    np.testing.assert_allclose(result, one, rtol=1e-6)
            session.reset_variables()


@pytest.mark.parametrize("name", FILES)
def test_the_interpreter_keeps_them(name: str) -> None:
    inputs = fed(nn.load(FILES[name]))
    expected = litert(FILES[name], inputs)
    with Interpreter(model_content=FILES[name], device="cpu") as interpreter:
        for _ in range(2):
            for results, wanted in zip(run(interpreter, inputs), expected, strict=True):
                for result, one in zip(results, wanted, strict=True):
                    np.testing.assert_allclose(result, one, rtol=1e-6)
            interpreter.reset_all_variables()


@pytest.mark.parametrize(
    "kind",
    [
        MEMORY,
        Tensor(TensorType.INT32, (2,), is_variable=True),
        Tensor(TensorType.INT8, (2,), 0.5, 10, is_variable=True),
        Tensor(TensorType.UINT8, (2,), 0.5, 100, is_variable=True),
    ],
    ids=lambda kind: kind.type.name,
)
def test_variable_tensors_begin_with_litert_s_values(kind: Tensor) -> None:
    """Real zero for signed bytes, bytes 0 for the others."""
    given = replace(kind, is_variable=False)
    file = write_graphs([Graph([kind, given, given], [add(0, 1, 2)], [1], [2])])
    number = np.full(2, 7, kind.type.dtype)
    found = []
    for interpreter in both(file):
        interpreter.allocate_tensors()
        interpreter.set_tensor(1, number)
        for again in (False, True):
            if again:
                interpreter.set_tensor(0, number)
                interpreter.reset_all_variables()
            interpreter.invoke()
            found += [interpreter.get_tensor(0), interpreter.get_tensor(2)]
    for ours, theirs in zip(found[4:], found[:4], strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(found[4], kind.zero_point if kind.type is TensorType.INT8 else 0)


def summed(first: Tensor, *state: int) -> bytes:
    """Return a file whose RNN adds its input to its state, a variable tensor that DEQUANTIZE makes of a constant."""
    identity = constant(np.eye(2, dtype=np.float32))
    cell = Step("RNN", [0, 3, 3, 4, 1], [2], "RNNOptions")
    memory = replace(MEMORY, shape=state or (1, 2))
    tensors = [real(1, 2), memory, real(1, 2), identity, constant([0.0, 0.0]), first]
    return write_graphs([Graph(tensors, [Step("DEQUANTIZE", [5], [1]), cell], [0], [2, 1])])


FIRST_STATES = {
    "float16": constant(np.array([[0.5, -0.25]], np.float16)),
    "int8": constant(np.array([[3, 7]], np.int8), 0.5, 4),
}


@pytest.mark.parametrize("name", FIRST_STATES)
def test_a_variable_tensor_made_of_a_constant_begins_with_that_and_is_kept(name: str) -> None:
    """LiteRT dequantises a constant once; after a reset the state is 0."""
    file = summed(FIRST_STATES[name])
    inputs = [[np.array([[1, 10 * (run + 1)]], np.float32)] for run in range(RUNS)]
    theirs, ours = both(file)
    for again in (False, True):
        if again:
            for interpreter in (ours, theirs):
                interpreter.reset_all_variables()
        expected, found = run(theirs, inputs), run(ours, inputs)
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(found[-1][0][0, 0] - found[0][0][0, 0], RUNS - 1)


def test_a_session_begins_anew_with_the_constant(device: Device) -> None:
    with nn.load(summed(FIRST_STATES["float16"])).compile(device) as session:
        for _ in range(2):
            for count in range(1, 4):
                (result, _) = session.run(np.array([[1, 2]], np.float32))
                np.testing.assert_array_equal(result, [[0.5 + count, -0.25 + 2 * count]])
            session.reset_variables()


def test_sums_are_those_of_numbers(reference_device: Device) -> None:
    with nn.load(FILES["float32"]).compile(reference_device) as session:
        steps = np.array([[1, 2, 3]], np.float32)
        for count in range(1, 4):
            np.testing.assert_array_equal(session.run(steps)[0], [[1.5 + count, -2 + 2 * count, 3 * count]])


def test_sessions_do_not_share_variables() -> None:
    network = nn.load(FILES["int32"])
    step = np.array([1, 1], np.int32)
    with network.compile("cpu") as one, network.compile("cpu") as other:
        one.run(step)
        np.testing.assert_array_equal(one.run(step)[0], [9, -6])
        np.testing.assert_array_equal(other.run(step)[0], [8, -7])


def test_details_of_handles_are_those_of_litert() -> None:
    module = pytest.importorskip("ai_edge_litert.interpreter")
    theirs = module.Interpreter(model_content=FILES["float32"])
    ours = Interpreter(model_content=FILES["float32"], experimental_preserve_all_tensors=True, device="cpu")
    assert_same(ours.get_tensor_details()[0], theirs.get_tensor_details()[0])


def one_graph(tensors: list[Tensor], *steps: Step, first: Tensor | Graph | None = None) -> bytes:
    """Return a file whose input is tensor 1 and whose output is the last one."""
    graphs = [Graph(tensors, steps, [1], [len(tensors) - 1])]
    if first is not None:
        graphs.append(first if isinstance(first, Graph) else first_values(state=first))
    return write_graphs(graphs)


FIRST = constant([1.0, 2.0])
SUM = [HANDLE, real(2), real(2), real(2)]
NEGATED = Step("NEG", [0], [1])
RECURSIVE = Graph([HANDLE, FIRST], [Step("CALL_ONCE", [], [], "CallOnceOptions", {"InitSubgraphIndex": 2})], [], [])
REFUSED = {
    "no first value": (
        one_graph(SUM, handle(0), read(0, 2), add(2, 1, 3)),
        "operator 1 READ_VARIABLE: variable 'state' is read before anything assigns it",
    ),
    "no first value in a container": (
        one_graph(SUM, handle(0, container="box"), read(0, 2), add(2, 1, 3)),
        "operator 1 READ_VARIABLE: variable 'box/state' is read before anything assigns it",
    ),
    "a tensor with a first value": (
        one_graph(
            SUM,
            *(CALL, handle(0), read(0, 2), add(2, 1, 3)),
            first=Graph([constant([1, 2]), Tensor(TensorType.INT32, (2,), is_variable=True)], [NEGATED], [], []),
        ),
        "operator 0 CALL_ONCE: variable tensor 1 must be assigned a constant by the initialisation subgraph",
    ),
    "no handle": (
        one_graph(SUM, read(1, 2), add(2, 1, 3)),
        r"operator 0 READ_VARIABLE: resource_id \(input 0\) must be a variable's handle",
    ),
    "no handle to assign": (
        one_graph(SUM, assign(1, 1), add(1, 1, 3)),
        r"operator 0 ASSIGN_VARIABLE: resource_id \(input 0\) must be a variable's handle",
    ),
    "handle left out": (
        one_graph(SUM, Step("READ_VARIABLE", [-1], [2]), add(2, 1, 3)),
        r"resource_id \(input 0\) must be a variable's handle",
    ),
    "handle of no tensor": (
        one_graph(SUM, Step("VAR_HANDLE", [], [], "VarHandleOptions", {"SharedName": "x"}), add(1, 1, 3)),
        "operator 0 VAR_HANDLE: must have 1 outputs, got 0",
    ),
    "handle as a number": (
        one_graph(SUM, handle(0), add(0, 1, 3)),
        "operator 1 ADD: tensor 't0': type RESOURCE is not supported",
    ),
    "another shape": (
        one_graph([*SUM, constant([1.0])], CALL, handle(0), assign(0, 4), add(1, 1, 3), first=FIRST),
        r"operator 2 ASSIGN_VARIABLE: variable 'state' must stay TENSOR_FLOAT32 \[2\], got TENSOR_FLOAT32 \[1\]",
    ),
    "another type": (
        one_graph([*SUM, constant([1, 2])], CALL, handle(0), assign(0, 4), add(1, 1, 3), first=FIRST),
        r"must stay TENSOR_FLOAT32 \[2\], got TENSOR_INT32 \[2\]",
    ),
    "read as another type": (
        one_graph([HANDLE, int32(2), int32(2), int32(2)], CALL, handle(0), read(0, 2), add(2, 1, 3), first=FIRST),
        "operator 2 READ_VARIABLE: output 0 must have the type of the input, got INT32",
    ),
    "first value that is computed": (
        one_graph(
            SUM,
            *(CALL, handle(0), read(0, 2), add(2, 1, 3)),
            first=Graph([HANDLE, FIRST, real(2)], [handle(0), add(1, 1, 2), assign(0, 2)], [], []),
        ),
        "operator 0 CALL_ONCE: variable 'state' must be assigned a constant by the initialisation subgraph",
    ),
    "constant of another shape than the state": (
        summed(constant(np.ones((2, 2), np.float16)), 2, 2),
        r"operator 1 RNN: variable tensor 1 must begin with TENSOR_FLOAT32 \[1, 2\], got TENSOR_FLOAT32 \[2, 2\]",
    ),
    "constant after the variable tensor is used": (
        one_graph(
            [constant(np.ones(2, np.float16)), real(2), MEMORY, real(2)], add(1, 2, 3), Step("DEQUANTIZE", [0], [2])
        ),
        "operator 1 DEQUANTIZE: variable tensor 2 gets its first value after it is used",
    ),
    "first value read from the variable": (
        one_graph(
            SUM,
            *(CALL, handle(0), read(0, 2), add(2, 1, 3)),
            first=Graph([HANDLE, real(2)], [handle(0), read(0, 1), assign(0, 1)], [], []),
        ),
        "operator 0 CALL_ONCE: subgraph 1: operator 1 READ_VARIABLE: variable 'state' is read before anything",
    ),
    "initialised after it is used": (
        one_graph(SUM, handle(0), assign(0, 1), CALL, read(0, 2), add(2, 1, 3), first=FIRST),
        "operator 2 CALL_ONCE: variable 'state' is initialised after it is used",
    ),
    "initialisation with an output": (
        one_graph(SUM, CALL, add(1, 1, 3), first=Graph([HANDLE, FIRST], [handle(0)], [], [1])),
        "operator 0 CALL_ONCE: subgraph 1 must have neither inputs nor outputs",
    ),
    "initialisation that calls another": (
        write_graphs([Graph(SUM, [CALL, add(1, 1, 3)], [1], [3]), RECURSIVE, first_values(state=FIRST)]),
        "operator 0 CALL_ONCE: subgraph 1: operator 0 CALL_ONCE: only the main subgraph can initialise variables",
    ),
    "first value of strings": (
        one_graph(SUM, CALL, add(1, 1, 3), first=Tensor(TensorType.STRING, (1,), data=np.zeros(8, np.uint8))),
        "operator 0 CALL_ONCE: subgraph 1: operator 1 ASSIGN_VARIABLE: tensor 't1': type STRING is not supported",
    ),
    "variable in a branch": (
        write_graphs(
            [
                Graph(
                    [boolean(), real(2), real(2)],
                    [Step("IF", [0, 1], [2], "IfOptions", {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 1})],
                    [0, 1],
                    [2],
                ),
                Graph([HANDLE, real(2)], [handle(0), assign(0, 1)], [1], [1]),
            ]
        ),
        "operator 0 IF: subgraph 1 has variables, which only the main subgraph can have",
    ),
    "handle for a branch": (
        write_graphs(
            [
                Graph(
                    [boolean(), real(2), HANDLE, real(2)],
                    [
                        handle(2),
                        Step("IF", [0, 2], [3], "IfOptions", {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 1}),
                    ],
                    [0, 1],
                    [3],
                ),
                Graph([HANDLE, real(2)], [read(0, 1)], [0], [1]),
            ]
        ),
        "operator 1 IF: tensor 't2': type RESOURCE is not supported",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_kept_is_refused(name: str) -> None:
    file, message = REFUSED[name]
    with pytest.raises(BadData, match=message):
        nn.load(file)


def test_calling_once_does_nothing_the_second_time(reference_device: Device) -> None:
    file = one_graph(SUM, CALL, handle(0), read(0, 2), add(2, 1, 3), CALL, assign(0, 3), first=FIRST)
    data = np.array([10, 20], np.float32)
    expected = litert(file, [[data]] * 2)
    with nn.load(file).compile(reference_device) as session:
        for (wanted,) in expected:
            np.testing.assert_array_equal(session.run(data)[0], wanted)


def test_signatures_that_share_a_variable_are_refused() -> None:
    """LiteRT's share it; a session for each cannot."""
    codes = ["VAR_HANDLE", "ASSIGN_VARIABLE", "READ_VARIABLE"]
    import tflite

    numbers = [getattr(tflite.BuiltinOperator, code) for code in codes]
    operators = [
        OperatorSpec(0, (), (0,), "VarHandleOptions", {"SharedName": "state"}),
        OperatorSpec(1, (0, 1), ()),
        OperatorSpec(2, (0,), (2,)),
    ]
    subgraphs = [
        SubgraphSpec(
            [TensorSpec("handle", 13, ()), TensorSpec("x", 0, (2,)), TensorSpec("y", 0, (2,))], operators, (1,), (2,)
        )
        for _ in range(2)
    ]
    signatures = [SignatureSpec(key, [("x", 1)], [("y", 2)], at) for at, key in enumerate(("one", "other"))]
    file = FileSpec([CodeSpec(127, number) for number in numbers], subgraphs, [b""], signatures=signatures).write()
    interpreter = Interpreter(model_content=file, device="cpu")
    data = np.array([1, 2], np.float32)
    np.testing.assert_array_equal(interpreter.get_signature_runner("one")(x=data)["y"], data)
    with pytest.raises(ValueError, match="subgraph 1: shares variable 'state' with subgraph 0, which is not supported"):
        interpreter.get_signature_runner("other")
