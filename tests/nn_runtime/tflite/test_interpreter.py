# SPDX-License-Identifier: Apache-2.0
"""The drop-in interpreter beside LiteRT's: the same dictionaries, results and kinds of errors."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import nn_runtime as nn
from nn_runtime.devices import reference_device
from nn_runtime.errors import BadData
from nn_runtime.tflite import Interpreter
from tests.nn_runtime.tflite.operator_file import Step, constant, int8, int64, real, write
from tests.nn_runtime.tflite.test_converter import CASES
from tests.nn_runtime.tflite.tflite_file import (
    CodeSpec,
    FileSpec,
    OperatorSpec,
    SignatureSpec,
    SubgraphSpec,
    TensorSpec,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from nn_runtime.device import Device

FLOAT32, ADD, CONV_2D, RELU = 0, 0, 3, 19


def signed_file() -> bytes:
    """Two inputs [-1, 3], sum [-1, 3] and its RELU, with a signature."""
    tensors = [
        TensorSpec(f"main_{name}:0", FLOAT32, (1, 3), signature=(-1, 3)) for name in ("a", "b", "sum", "positive")
    ]
    operators = [OperatorSpec(0, (0, 1), (2,), "AddOptions"), OperatorSpec(1, (2,), (3,))]
    return FileSpec(
        [CodeSpec(ADD, ADD), CodeSpec(RELU, RELU)],
        [SubgraphSpec(tensors, operators, (0, 1), (2, 3))],
        [b""],
        signatures=[SignatureSpec("run", [("left", 0), ("right", 1)], [("sum", 2), ("positive", 3)])],
    ).write()


def both(file: bytes) -> tuple[Any, Interpreter]:
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    theirs = litert.Interpreter(model_content=file, experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF)
    return theirs, Interpreter(model_content=file, device="cpu")


def assert_same(ours: object, theirs: object) -> None:
    if isinstance(theirs, dict):
        assert isinstance(ours, dict)
        assert list(ours) == list(theirs)
        for key, value in theirs.items():
            assert_same(ours[key], value)
    elif isinstance(theirs, list):
        assert isinstance(ours, list)
        for one, other in zip(ours, theirs, strict=True):
            assert_same(one, other)
    elif isinstance(theirs, np.ndarray):
        assert isinstance(ours, np.ndarray)
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)
    else:
        assert ours == theirs


FILES = {
    "signed": signed_file(),
    "per channel": next(case for case in CASES if case.name == "per channel").file()[0],
    "int64": write(
        [int8(0.5, -3, 2, 4), constant([1]), int64(2)],
        [Step("ARG_MAX", [0, 1], [2], "ArgMaxOptions", {"OutputType": 4})],
        [0],
        [2],
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_details_are_those_of_litert(name: str) -> None:
    theirs, ours = both(FILES[name])
    for _ in range(2):
        assert_same(ours.get_input_details(), theirs.get_input_details())
        assert_same(ours.get_output_details(), theirs.get_output_details())
        assert_same(ours.get_signature_list(), theirs.get_signature_list())
        assert ours.num_subgraphs() == theirs.num_subgraphs()
        assert_same(ours.get_tensor_details(), theirs.get_tensor_details()[: len(ours.get_tensor_details())])
        theirs.allocate_tensors()
        ours.allocate_tensors()


def test_set_invoke_get() -> None:
    data = [np.arange(-3, 0, dtype=np.float32).reshape(1, 3), np.arange(2, 5, dtype=np.float32).reshape(1, 3)]
    for interpreter in both(signed_file()):
        interpreter.allocate_tensors()
        for details, array in zip(interpreter.get_input_details(), data, strict=True):
            interpreter.set_tensor(details["index"], array)
        interpreter.invoke()
        np.testing.assert_array_equal(interpreter.get_tensor(2), data[0] + data[1])
        np.testing.assert_array_equal(interpreter.get_tensor(0), data[0])
        view = interpreter.tensor(3)
        np.testing.assert_array_equal(view(), np.maximum(data[0] + data[1], 0))
        interpreter.tensor(0)().fill(5)
        interpreter.invoke()
        np.testing.assert_array_equal(view(), data[1] + 5)


def test_numbers_of_the_other_byte_order_are_converted() -> None:
    """LiteRT takes their bytes for those of other numbers."""
    data = np.arange(-3, 0, dtype=np.float32).reshape(1, 3)
    interpreter = Interpreter(model_content=signed_file(), device="cpu")
    interpreter.allocate_tensors()
    interpreter.set_tensor(0, data.astype(data.dtype.newbyteorder()))
    np.testing.assert_array_equal(interpreter.get_tensor(0), data)


def test_resizing() -> None:
    data = np.ones((4, 3), np.float32)
    for interpreter in both(signed_file()):
        for index in (0, 1):
            interpreter.resize_tensor_input(index, [4, 3], strict=True)
        assert interpreter.get_input_details()[0]["shape"].tolist() == [4, 3]
        with pytest.raises(RuntimeError):
            interpreter.invoke()
        interpreter.allocate_tensors()
        assert interpreter.get_output_details()[1]["shape"].tolist() == [4, 3]
        assert interpreter.get_output_details()[1]["shape_signature"].tolist() == [-1, 3]
        for index in (0, 1):
            interpreter.set_tensor(index, data)
        interpreter.invoke()
        np.testing.assert_array_equal(interpreter.get_tensor(3), 2 * data)
        with pytest.raises(RuntimeError):
            interpreter.resize_tensor_input(0, [4, 2], strict=True)
        with pytest.raises(RuntimeError):
            interpreter.resize_tensor_input(0, [-4, 3])
        with pytest.raises(ValueError):
            interpreter.resize_tensor_input(0, 7)  # type: ignore[arg-type]
        for wrong in ("0", 0.9):
            with pytest.raises(TypeError):
                interpreter.set_tensor(wrong, data)  # type: ignore[arg-type]
        interpreter.resize_tensor_input(0, [2, 5])
        with pytest.raises(RuntimeError):
            interpreter.allocate_tensors()


@pytest.mark.parametrize("signature", [(), (-1, 3), (1, 3), (-1, -1)], ids=str)
@pytest.mark.parametrize("first", [(1, 3), (2, 3), (2, 5), (1, 3, 1), (3,)], ids=str)
def test_strict_resizing_after_any_other(signature: tuple[int, ...], first: tuple[int, ...]) -> None:
    """Without a signature the present sizes must stay, with one the sizes that it names; the rank always."""
    tensors = [TensorSpec(name, FLOAT32, (1, 3), signature=signature) for name in ("x", "y")]
    file = FileSpec(
        [CodeSpec(RELU, RELU)], [SubgraphSpec(tensors, [OperatorSpec(0, [0], [1])], [0], [1])], [b""]
    ).write()
    for shape in ((1, 3), (2, 3), (2, 5), (3, 5)):
        taken = []
        for interpreter in both(file):
            interpreter.resize_tensor_input(0, first)
            try:
                interpreter.resize_tensor_input(0, shape, strict=True)
                taken.append(True)
            except RuntimeError:
                taken.append(False)
        assert taken[0] == taken[1], shape


def test_a_file_whose_own_sizes_do_not_suit_it() -> None:
    """Exporters write 1 for what they leave open: here a row shorter than the filter."""
    tensors = [
        TensorSpec("row", FLOAT32, (1, 1, 1, 1), signature=(1, 1, -1, 1)),
        TensorSpec("filter", FLOAT32, (1, 1, 4, 1), 1),
        TensorSpec("sums", FLOAT32, (1, 1, 1, 1), signature=(1, 1, -1, 1)),
        TensorSpec("bias", FLOAT32, (1,), 2),
    ]
    options = {"Padding": 1, "StrideW": 1, "StrideH": 1, "DilationWFactor": 1, "DilationHFactor": 1}
    operators = [OperatorSpec(0, (0, 1, 3), (2,), "Conv2DOptions", options)]
    buffers = [b"", np.ones(4, np.float32).tobytes(), bytes(4)]
    file = FileSpec([CodeSpec(CONV_2D, CONV_2D)], [SubgraphSpec(tensors, operators, (0,), (2,))], buffers).write()
    data = np.arange(6, dtype=np.float32).reshape(1, 1, 6, 1)
    for interpreter in both(file):
        assert interpreter.get_input_details()[0]["shape"].tolist() == [1, 1, 1, 1]
        with pytest.raises(RuntimeError):
            interpreter.allocate_tensors()
        interpreter.resize_tensor_input(0, [1, 1, 6, 1], strict=True)
        interpreter.allocate_tensors()
        interpreter.set_tensor(0, data)
        interpreter.invoke()
        np.testing.assert_array_equal(interpreter.get_tensor(2).reshape(-1), [6, 10, 14])
    with pytest.raises(
        BadData, match=r"must hold a filter of 1 x 4.*resize_tensor_input` give: \[1, 1, -1, 1\] of 'row'"
    ):
        nn.load(file)


def test_signature_runner() -> None:
    data = np.ones((2, 3), np.float32)
    for interpreter in both(signed_file()):
        runner = interpreter.get_signature_runner()
        results = runner(left=data, right=-3 * data)
        assert sorted(results) == ["positive", "sum"]
        np.testing.assert_array_equal(results["sum"], -2 * data)
        np.testing.assert_array_equal(results["positive"], 0 * data)
        assert runner.get_input_details()["left"]["shape"].tolist() == [2, 3]
        assert runner.get_output_details()["positive"]["name"] == "main_positive:0"
        for bad in ({"left": data}, {"left": data, "x": data}, {"left": data, "right": data.astype(np.float64)}):
            with pytest.raises(ValueError):
                runner(**bad)
        with pytest.raises(ValueError):
            interpreter.get_signature_runner("other")


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda interpreter: interpreter.set_tensor(0, np.zeros((1, 3), np.float64)), ValueError),
        (lambda interpreter: interpreter.set_tensor(0, np.zeros((1, 2), np.float32)), ValueError),
        (lambda interpreter: interpreter.set_tensor(0, np.zeros(3, np.float32)), ValueError),
        (lambda interpreter: interpreter.set_tensor(0, [[1, 2, 3]]), ValueError),
        (lambda interpreter: interpreter.get_tensor(99), ValueError),
        (lambda interpreter: interpreter.get_tensor(-1), ValueError),
        (lambda interpreter: interpreter.tensor(99)(), ValueError),
        (lambda interpreter: interpreter.get_tensor_details(1), ValueError),
    ],
)
def test_errors_are_of_litert_s_types(call: Callable[[Any], object], error: type[Exception]) -> None:
    for interpreter in both(signed_file()):
        interpreter.allocate_tensors()
        with pytest.raises(error):
            call(interpreter)


def test_tensors_for_which_there_was_no_memory_are_allocated_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    interpreter = Interpreter(model_content=signed_file(), device="cpu")

    def refused(*_arguments: object) -> None:
        raise MemoryError("made up")

    with monkeypatch.context() as patched, pytest.raises(MemoryError, match="made up"):
        patched.setattr("nn_runtime.tflite.interpreter.np", SimpleNamespace(zeros=refused))
        interpreter.allocate_tensors()
    with pytest.raises(ValueError, match="call allocate_tensors"):
        interpreter.set_tensor(0, np.zeros((1, 3), np.float32))
    interpreter.allocate_tensors()
    interpreter.set_tensor(0, np.zeros((1, 3), np.float32))


def test_nothing_can_be_done_before_allocation() -> None:
    for interpreter in both(signed_file()):
        with pytest.raises(RuntimeError):
            interpreter.invoke()
        with pytest.raises(ValueError):
            interpreter.get_tensor(0)
        with pytest.raises(ValueError):
            interpreter.set_tensor(0, np.zeros((1, 3), np.float32))


def test_constructor_errors_are_of_litert_s_types(tmp_path: Path) -> None:
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    file = signed_file()
    path = tmp_path / "network.tflite"
    path.write_bytes(file)
    for kind in (litert.Interpreter, Interpreter):
        kind(str(path))
        kind(str(path).encode())
        kind(model_path=path, num_threads=2)
        for bad in (
            {},
            {"model_path": str(path), "model_content": file},
            {"model_path": str(tmp_path / "absent")},
            {"model_content": b"no network at all"},
            {"model_content": file, "num_threads": 0},
            {"model_content": file, "num_threads": "2"},
        ):
            with pytest.raises(ValueError):
                kind(**bad)
    with pytest.raises(ValueError, match="delegates are not supported, choose a device by device="):
        Interpreter(model_content=file, experimental_delegates=[object()])
    with pytest.raises(ValueError, match=r"model_content: wanted bytes, got 'network\.tflite'"):
        Interpreter(model_content="network.tflite")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="model_content: wanted bytes, got ndarray"):
        Interpreter(model_content=np.frombuffer(file, np.uint8))  # type: ignore[arg-type]


def test_signatures_of_other_subgraphs() -> None:
    """Two subgraphs over one code: ADD with itself, and with the double."""
    once = SubgraphSpec(
        [TensorSpec(name, FLOAT32, (2,)) for name in ("x", "y")],
        [OperatorSpec(0, (0, 0), (1,), "AddOptions")],
        (0,),
        (1,),
        "once",
    )
    twice = SubgraphSpec(
        [TensorSpec(name, FLOAT32, (2,)) for name in ("x", "y", "z")],
        [OperatorSpec(0, (0, 0), (1,), "AddOptions"), OperatorSpec(0, (1, 0), (2,), "AddOptions")],
        (0,),
        (2,),
        "twice",
    )
    signatures = [
        SignatureSpec("double", [("x", 0)], [("result", 1)], 0),
        SignatureSpec("triple", [("x", 0)], [("result", 2)], 1),
    ]
    file = FileSpec([CodeSpec(ADD, ADD)], [once, twice], [b""], signatures=signatures).write()
    data = np.array([1, -2], np.float32)
    theirs, ours = both(file)
    assert_same(ours.get_signature_list(), theirs.get_signature_list())
    for interpreter in (theirs, ours):
        np.testing.assert_array_equal(interpreter.get_signature_runner("double")(x=data)["result"], 2 * data)
        np.testing.assert_array_equal(interpreter.get_signature_runner("triple")(x=data)["result"], 3 * data)
        with pytest.raises(ValueError):
            interpreter.get_signature_runner()


def test_values_between_operators_can_be_kept() -> None:
    file = write([real(2), real(2), real(2)], [Step("RELU", [0], [1]), Step("TANH", [1], [2])], [0], [2])
    data = np.array([-1, 2], np.float32)
    keeping = Interpreter(model_content=file, experimental_preserve_all_tensors=True, device="cpu")
    plain = Interpreter(model_content=file, device="cpu")
    for interpreter in (keeping, plain):
        interpreter.allocate_tensors()
        interpreter.set_tensor(0, data)
        interpreter.invoke()
        np.testing.assert_allclose(interpreter.get_tensor(2), np.tanh([0, 2]), rtol=1e-6)
    np.testing.assert_array_equal(keeping.get_tensor(1), [0, 2])
    with pytest.raises(ValueError, match="only with experimental_preserve_all_tensors"):
        plain.get_tensor(1)
    keeping.close()


def test_variables_are_reset() -> None:
    file, _ = next(case for case in CASES if case.code == "UNIDIRECTIONAL_SEQUENCE_LSTM").file()
    data = np.random.default_rng(0).uniform(-1, 1, (2, 5, 3)).astype(np.float32)
    outputs = []
    for interpreter in both(file):
        interpreter.allocate_tensors()
        index = interpreter.get_output_details()[0]["index"]
        for reset in (False, False, True):
            if reset:
                interpreter.reset_all_variables()
            interpreter.set_tensor(0, data)
            interpreter.invoke()
            outputs.append(interpreter.get_tensor(index))
    theirs, ours = outputs[:3], outputs[3:]
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(ours[0], ours[2])


def stateful_file(reads_state: bool) -> bytes:
    """An RNN of 3 inputs and 2 units, whose state is tensor 4; or its sum with the state of before the run, too."""
    weights = [constant(np.linspace(-1, 1, math.prod(shape)).astype(np.float32).reshape(shape)) for shape in SHAPES]
    tensors = [real(1, 3), *weights, replace(real(1, 2), is_variable=True), real(1, 2), real(1, 2)]
    steps = [Step("RNN", [0, 1, 2, 3, 4], [5], "RNNOptions", {"FusedActivationFunction": 4})]
    if reads_state:
        steps.insert(0, Step("MUL", [4, 4], [6], "MulOptions"))
    return write(tensors, steps, [0], [5, 6] if reads_state else [5])


SHAPES = ((2, 3), (2, 2), (2,))


@pytest.mark.parametrize("reads_state", [False, True])
def test_a_stream_begins_at_a_state_that_is_set(reads_state: bool) -> None:
    theirs, ours = both(stateful_file(reads_state))
    state = np.array([[0.5, -0.25]], np.float32)
    for interpreter in (theirs, ours):
        interpreter.allocate_tensors()
        interpreter.set_tensor(4, state)
    for at in range(3):
        for interpreter in (theirs, ours):
            interpreter.set_tensor(0, np.full((1, 3), at / 4, np.float32))
            interpreter.invoke()
        for index in (4, 5, 6) if reads_state else (4, 5):
            np.testing.assert_allclose(ours.get_tensor(index), theirs.get_tensor(index), rtol=1e-5, atol=1e-6)
    ours.reset_all_variables()
    assert not ours.get_tensor(4).any()


def test_the_first_runs_of_rivals_leave_a_state_as_it_was(device: Device) -> None:
    """A session with several devices tries them on the first inputs."""
    interpreter = Interpreter(model_content=stateful_file(False), device="cpu")
    rivals = {one.name: one for one in (device, reference_device())}
    with nn.load(stateful_file(False)).compile(list(rivals.values())) as session:
        state, source = np.array([[0.5, -0.25]], np.float32), np.ones((1, 3), np.float32)
        interpreter.allocate_tensors()
        interpreter.set_tensor(4, state)
        interpreter.set_tensor(0, source)
        kept = session.variables[4]
        assert kept is not None
        assert list(session.variables) == [4]
        np.copyto(kept, state)
        interpreter.invoke()
        (result,) = session.run([source])
        np.testing.assert_allclose(result, interpreter.get_tensor(5), rtol=1e-5)
        np.testing.assert_allclose(kept, interpreter.get_tensor(4), rtol=1e-5)


def test_what_changes_nothing_keeps_what_is_set() -> None:
    """Tensors allocated twice, an input resized to the shape that it has."""
    data = np.array([[1, 2, 3]], np.float32)
    for interpreter in both(signed_file()):
        interpreter.allocate_tensors()
        interpreter.set_tensor(0, data)
        interpreter.allocate_tensors()
        interpreter.resize_tensor_input(0, [1, 3])
        interpreter.set_tensor(1, data)
        interpreter.invoke()
        np.testing.assert_array_equal(interpreter.get_tensor(2), 2 * data)


def test_shapes_that_cannot_be_are_refused() -> None:
    for interpreter in both(signed_file()):
        for shape, strict in (([1, 3, 1], True), ([3], True), ([-1, 3], False)):
            with pytest.raises(RuntimeError):
                interpreter.resize_tensor_input(0, shape, strict=strict)
                interpreter.allocate_tensors()  # where LiteRT finds sizes below 0


def test_details_follow_a_resized_input() -> None:
    """Also the signature of its shape, where the file has none."""
    theirs, ours = both(write([real(1, 3), real(1, 3)], [Step("NEG", [0], [1])], [0], [1]))
    for interpreter in (theirs, ours):
        interpreter.resize_tensor_input(0, [4, 3])
        interpreter.allocate_tensors()
    assert_same(ours.get_input_details(), theirs.get_input_details())
    assert_same(ours.get_output_details(), theirs.get_output_details())


def test_signatures_are_listed_like_litert_s() -> None:
    """In the order of the file, the names of each sorted."""
    tensors = [TensorSpec(f"t{at}", FLOAT32, (1, 3)) for at in range(4)]
    names = [SignatureSpec(key, [("z", 0), ("x", 1)], [("y", 2), ("b", 3)]) for key in ("second", "third", "first")]
    operators = [OperatorSpec(0, (at,), (at + 2,)) for at in range(2)]
    subgraph = SubgraphSpec(tensors, operators, (0, 1), (2, 3))
    theirs, ours = both(FileSpec([CodeSpec(RELU, RELU)], [subgraph], [b""], signatures=names).write())
    assert_same(ours.get_signature_list(), theirs.get_signature_list())
    assert list(ours.get_signature_list()) == ["second", "third", "first"]


def test_signatures_go_by_name() -> None:
    file = signed_file().replace(b"positive", b"aositive")  # before "sum"
    theirs, ours = both(file)
    runners = [one.get_signature_runner("run") for one in (theirs, ours)]
    values = {name: np.ones((1, 3), np.float32) for name in ("left", "right")}
    found = [
        (list(runner(**values)), list(runner.get_input_details()), list(runner.get_output_details()))
        for runner in runners
    ]
    assert found[0] == found[1]
    assert found[1][0] == ["aositive", "sum"]


def test_a_tensor_that_is_not_there_cannot_be_resized() -> None:
    for interpreter in both(signed_file()):
        with pytest.raises(RuntimeError):
            interpreter.resize_tensor_input(9, [1])
        assert interpreter.experimental_compress_quantization_zero_points is False
