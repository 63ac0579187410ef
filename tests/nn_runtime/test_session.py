# SPDX-License-Identifier: Apache-2.0
"""Sessions: what `run` accepts and returns, states, open shapes, explanations, profiles, threads."""

from __future__ import annotations

import itertools
import os
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

import nn_runtime as nn
from nn_runtime import Model, Network, OperandCode, OperandType, OperationCode
from nn_runtime.errors import BadData, BadState
from nn_runtime.execution import Execution
from nn_runtime.hal.types import ErrorStatus, HalError, OutputShape
from nn_runtime.reports import duration_text
from nn_runtime.testing.sample_drivers import SampleDevice, SamplePreparedModel
from nn_runtime.tflite.types import TensorType
from tests.nn_runtime.graphs import chain_model
from tests.nn_runtime.hal.remote_driver import run_script
from tests.nn_runtime.test_network import adding_model
from tests.nn_runtime.tflite.operator_file import Step, Tensor, constant, int64, real, uint8, write
from tests.nn_runtime.tflite.test_converter import CASES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nn_runtime.device import Device
    from nn_runtime.hal.types import ExecutionResult, Request
    from nn_runtime.session import Session

FLOATS = OperandCode.TENSOR_FLOAT32


def session_of(tensors: list[Tensor], step: Step, inputs: list[int], outputs: list[int]) -> Session:
    return nn.load(write(tensors, [step], inputs, outputs)).compile("cpu")


@pytest.fixture
def doubling() -> Iterator[Session]:
    """float32 [2, 3] -> input + input."""
    with session_of([real(2, 3), real(2, 3)], Step("ADD", [0, 0], [1], "AddOptions"), [0], [1]) as session:
        yield session


@pytest.fixture
def byte_session() -> Iterator[Session]:
    """uint8 [3] -> RELU, which keeps what is above the zero point 100."""
    with session_of([uint8(0.1, 100, 3), uint8(0.1, 100, 3)], Step("RELU", [0], [1]), [0], [1]) as session:
        yield session


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        (np.zeros(3, np.float32), r"; one of a batch needs the batch's dimension: array\[np.newaxis\]$"),
        (
            np.zeros((4, 3), np.float32),
            r"; nn.load\(..., shapes={'t0': \[4, 3\]}\), or nnrt's --shape, makes a network of that batch$",
        ),
        (np.zeros((1, 4), np.float32), r"got float32 \[1, 4\]$"),
        (np.zeros((0, 3), np.float32), r"got float32 \[0, 3\]$"),
    ],
    ids=["one", "batch", "other", "none"],
)
def test_shapes_that_are_nearly_right_get_a_hint(given: np.ndarray, hint: str) -> None:
    tensors = [real(1, 3), real(1, 3)]
    with session_of(tensors, Step("RELU", [0], [1]), [0], [1]) as session, pytest.raises(BadData, match=hint):
        session.run(given)


def test_real_values_of_a_quantised_input(byte_session: Session) -> None:
    with pytest.raises(BadData, match=r"got float32 \[3\]; it is quantised: .*quantize makes uint8 of real values$"):
        byte_session.run(np.zeros(3, np.float32))
    info = byte_session.inputs[0]
    assert info.quantize([np.nan, -np.inf, np.inf, 0.05]).tolist() == [0, 0, 255, 101]  # halves go away from zero
    for wrong in (None, 1j, "1"):
        with pytest.raises(BadData, match="quantize 't0': wanted real numbers, got "):
            info.quantize(wrong)  # type: ignore[arg-type]
        with pytest.raises(BadData, match="dequantize 't0': wanted numbers of uint8, got "):
            info.dequantize(wrong)  # type: ignore[arg-type]
    integers = info.quantize([-99.0, 0.26, 99.0])
    assert (integers.dtype, integers.tolist()) == (np.uint8, [0, 103, 255])
    (answer,) = byte_session.run(integers)
    np.testing.assert_allclose(byte_session.outputs[0].dequantize(answer), [0, 0.3, 15.5], rtol=1e-6)


def test_values_without_a_scale_stay_as_they_are(doubling: Session) -> None:
    given = doubling.inputs[0].quantize([[1, 2, 3], [4, 5, 6]])
    assert given.dtype == np.float32
    (answer,) = doubling.run(given)
    assert doubling.outputs[0].dequantize(answer) is answer


@pytest.mark.parametrize(
    "given",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.arange(6, dtype=np.float32).reshape(3, 2).T.copy().reshape(3, 2).reshape(2, 3)[:, ::1],
        np.arange(6, dtype=np.float64).reshape(2, 3),
        np.arange(6, dtype=np.float16).reshape(2, 3),
        np.arange(6, dtype=">f4").reshape(2, 3),
        np.arange(12, dtype=np.float32).reshape(2, 6)[:, ::2],
        np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
    ],
    ids=["float32", "copied", "float64", "float16", "big-endian", "strided", "column-major"],
)
def test_layouts_and_float_types_are_converted(doubling: Session, given: np.ndarray) -> None:
    (result,) = doubling.run(given)
    np.testing.assert_array_equal(result, 2 * given.astype(np.float32))
    assert result.dtype == np.float32


def test_forms_of_input(doubling: Session) -> None:
    array = np.ones((2, 3), np.float32)
    twos = np.full((2, 3), 2, np.float32)
    np.testing.assert_array_equal(doubling.run(array)[0], twos)
    np.testing.assert_array_equal(doubling.run([array])[0], twos)
    np.testing.assert_array_equal(doubling.run((array,))[0], twos)
    np.testing.assert_array_equal(doubling.run([[[1, 1, 1], [1, 1, 1]]])[0], twos)
    np.testing.assert_array_equal(doubling.run({"t0": array})["t1"], twos)


def test_results_are_fresh_arrays(doubling: Session) -> None:
    (first,) = doubling.run(np.ones((2, 3), np.float32))
    first[:] = 7
    (second,) = doubling.run(np.ones((2, 3), np.float32))
    assert not np.shares_memory(first, second)
    np.testing.assert_array_equal(second, 2)


def test_integers_are_accepted_where_they_fit(byte_session: Session) -> None:
    for given in (np.array([0, 100, 255]), np.array([0, 100, 255], np.uint16), [[0, 100, 255]]):
        np.testing.assert_array_equal(byte_session.run(given)[0], [100, 100, 255])
    wanted = r"input 0 't0': wanted uint8 \[3\], got int64 \[3\] with values -1 to 256, uint8 holds 0 to 255$"
    with pytest.raises(BadData, match=wanted):
        byte_session.run(np.array([-1, 0, 256]))
    with pytest.raises(BadData, match=r"input 0 't0': wanted uint8 \[3\], got uint8 \[2\]$"):
        byte_session.run(np.zeros(2, np.uint8))


def test_floats_beyond_a_smaller_type_become_infinite(doubling: Session) -> None:
    (result,) = doubling.run(np.array([[1e300, -1e300, 1e-300], [1, 2, 3]]))
    np.testing.assert_array_equal(result, [[np.inf, -np.inf, 0], [2, 4, 6]])


def test_integers_of_a_list_beyond_float16_become_infinite() -> None:
    halves = Tensor(TensorType.FLOAT16, (1, 2))
    with session_of([halves, halves], Step("RELU", [0], [1]), [0], [1]) as session:
        np.testing.assert_array_equal(session.run([[[100_000, 3]]])[0], [[np.inf, 3]])


def test_a_list_of_the_inputs_own_shape_says_what_lists_are() -> None:
    with session_of([uint8(0.5, 0, 1, 2), uint8(0.5, 0, 1, 2)], Step("RELU", [0], [1]), [0], [1]) as session:
        wanted = r"wanted uint8 \[1, 2\], got int64 \[2\]; a list given to run holds one entry for each input$"
        with pytest.raises(BadData, match=wanted):
            session.run([[1, 2]])
        np.testing.assert_array_equal(session.run([[[1, 2]]])[0], [[1, 2]])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, r"input 0 't0': wanted float32 \[2, 3\], got None$"),
        ({1.0, 2.0}, r"wanted float32 \[2, 3\], got a set$"),
        ((x for x in ()), r"wanted float32 \[2, 3\], got a generator$"),
        (np.zeros((2, 3), object), r"wanted float32 \[2, 3\], got an array of object$"),
        (np.zeros((2, 3), np.uint8), r"input 0 't0': wanted float32 \[2, 3\], got uint8 \[2, 3\]"),
        (np.zeros((2, 3), bool), r"got bool \[2, 3\]"),
        (np.zeros((2, 3), complex), r"got complex128 \[2, 3\]"),
        (np.zeros((3, 2), np.float32), r"wanted float32 \[2, 3\], got float32 \[3, 2\]"),
        (np.zeros((1, 2, 3), np.float32), r"got float32 \[1, 2, 3\]"),
        (np.float32(1), r"got float32 \[\]"),
        ("text", "got a str"),
        ([np.zeros((2, 3))] * 2, r"run: wanted 1 input \('t0'\), got a list of 2"),
        ({"t0": [[1, 2], [3]]}, r"input 0 't0': wanted float32 \[2, 3\], got what is no array: "),
        ({}, "run: input 't0' is missing, got none"),
        ({"x": 1}, "input 't0' is missing, got 'x'"),
        ({"t0": np.zeros((2, 3)), "x": 1}, "no input is called 'x', the inputs are 't0'"),
    ],
)
def test_wrong_inputs_say_what_is_wanted(doubling: Session, given: object, message: str) -> None:
    with pytest.raises(BadData, match=message):
        doubling.run(given)  # type: ignore[call-overload]


def test_names_of_a_signature(reference_device: Device) -> None:
    plain = Network.from_model(adding_model(), ["a", "b"], ["sum"])
    first, second = plain.inputs
    infos = (replace(first, signature_name="x"), replace(second, signature_name="y"))
    output = replace(plain.outputs[0], signature_name="z")
    array = np.ones((2, 3), np.float32)
    network = Network(plain.model, replace(plain.interface, inputs=infos, outputs=(output,)))
    with network.compile(reference_device) as session:
        np.testing.assert_array_equal(session.run({"x": array, "y": array})["z"], 2 * array)
        np.testing.assert_array_equal(session.run({"a": array, "y": array})["sum"], 2 * array)
        with pytest.raises(BadData, match="run: an input is given by two names, the inputs are 'a', 'b'"):
            session.run({"a": array, "b": array, "y": array})
    alike = tuple(replace(info, name="a") for info in plain.inputs)
    network = Network(plain.model, replace(plain.interface, inputs=alike))
    wanted = "run: several have one name: give a list, the inputs are 'a', 'a'"
    with network.compile(reference_device) as session, pytest.raises(BadData, match=wanted):
        session.run({"a": array})


def test_a_session_works_after_an_interrupt(doubling: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    ones = np.ones((2, 3), np.float32)
    doubling.run(ones)
    with monkeypatch.context() as patched:
        patched.setattr(Execution, "_finish_run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            doubling.run(ones)
    np.testing.assert_array_equal(doubling.run(ones)[0], 2)


def test_network_and_session_show_what_they_take_and_give(reference_device: Device) -> None:
    network = Network.from_model(adding_model(2, 3), ["a", "b"], ["sum"])
    interface = "a: float32 [2, 3], b: float32 [2, 3] -> sum: float32 [2, 3]"
    assert repr(network) == f"<Network {interface}>"
    with network.compile(reference_device) as session:
        assert repr(session) == f"<Session on nnapi-reference: {interface}>"
        with pytest.raises(BadData, match=r"wanted 2 inputs \('a', 'b'\), got one generator"):
            session.run(np.zeros((2, 3)) for _ in range(2))  # type: ignore[arg-type]
    assert repr(session) == f"<Session closed: {interface}>"


def test_wide_integers_are_cast_at_the_edge() -> None:
    """An INT64 input is computed in 32 bits."""
    with session_of([int64(2), constant([5, 6]), int64(2)], Step("CAST", [0], [2]), [0], [2]) as session:
        (result,) = session.run(np.array([-3, 2**31 - 1]))
        assert result.dtype == np.int64
        np.testing.assert_array_equal(result, [-3, 2**31 - 1])
        with pytest.raises(
            BadData, match=r"input 0 't0': wanted int64 .*, computed in int32, .* values 0 to 2147483648"
        ):
            session.run(np.array([0, 2**31]))


def test_states_are_kept_between_runs_and_reset() -> None:
    case = next(case for case in CASES if case.code == "UNIDIRECTIONAL_SEQUENCE_LSTM")
    file, _ = case.file()
    data = np.random.default_rng(0).uniform(-1, 1, (2, 5, 3)).astype(np.float32)
    with nn.load(file).compile("cpu") as session, nn.load(file).compile("cpu") as other:
        first, second = session.run(data)[0], session.run(data)[0]
        assert np.abs(first - second).max() > 1e-3
        session.reset_variables()
        np.testing.assert_array_equal(session.run(data)[0], first)
        np.testing.assert_array_equal(other.run(data)[0], first)


def test_open_shapes_follow_the_inputs(reference_device: Device) -> None:
    model = Model()
    source = model.add_operand(OperandType(FLOATS, (0, 2)))
    output = model.add_operand(OperandType(FLOATS, (0, 2)))
    model.add_operation(OperationCode.TANH, [source], [output])
    model.identify_inputs_and_outputs([source], [output])
    model.finish()
    with Network.from_model(model).compile(reference_device) as session:
        for batches in (3, 2000, 1):
            data = np.random.default_rng(0).uniform(-1, 1, (batches, 2)).astype(np.float32)
            np.testing.assert_allclose(session.run(data)[0], np.tanh(data), rtol=1e-6)
        with pytest.raises(BadData, match=r"wanted float32 \[any, 2\], got float32 \[3, 3\]"):
            session.run(np.zeros((3, 3), np.float32))
        with pytest.raises(BadData, match=r"wanted float32 \[any, 2\], got float32 \[0, 2\]; NNAPI has no"):
            session.run(np.zeros((0, 2), np.float32))


def test_refused_inputs_leave_a_session_as_it_is(reference_device: Device) -> None:
    ones = np.ones((2, 3), np.float32)
    with Network.from_model(chain_model([OperationCode.RELU], (0, 3))).compile(reference_device) as session:
        session.run(ones)
        for _ in range(2):
            with pytest.raises(BadData):
                session.run(np.ones((0, 3), np.float32))
            np.testing.assert_array_equal(session.run(ones)[0], ones)


def test_outputs_of_unknown_size_may_be_found_one_after_another() -> None:
    """Each is a step's of its own, which runs only when the one before has had room."""
    model = Model()
    values = [model.add_operand(OperandType(FLOATS, (0,))) for _ in range(6)]
    for at, ends in enumerate(itertools.pairwise(values)):
        code = OperationCode.NEG if at % 2 else OperationCode.TANH
        model.add_operation(code, [ends[0]], [ends[1]])
    model.identify_inputs_and_outputs(values[:1], values[1:])
    model.finish()
    devices = [nn.Device(SampleDevice(code.name, {code})) for code in (OperationCode.TANH, OperationCode.NEG)]
    data = np.linspace(-2, 2, 300_000, dtype=np.float32)
    with Network.from_model(model).compile(devices, partition="aosp") as session:
        wanted = data
        for at, result in enumerate(session.run(data)):
            wanted = -wanted if at % 2 else np.tanh(wanted)
            np.testing.assert_allclose(result, wanted, rtol=1e-6)


def test_an_output_of_open_rank_gets_more_room_until_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver may find it too small without knowing how large it will be."""
    lengths: list[int] = []
    execute = SamplePreparedModel.execute_synchronously

    def needs_40_kb(model: SamplePreparedModel, request: Request, *options: object) -> ExecutionResult:
        lengths.append(request.outputs[0].location.length)
        if lengths[-1] < 40_000 and len(lengths) < 10:
            raise HalError(ErrorStatus.OUTPUT_INSUFFICIENT_SIZE, "no size", (OutputShape((), False),))
        return execute(model, request, *options)  # type: ignore[arg-type]

    monkeypatch.setattr(SamplePreparedModel, "execute_synchronously", needs_40_kb)
    model = Model()
    source, output = model.add_operand(OperandType(FLOATS, (10_000,))), model.add_operand(OperandType(FLOATS))
    model.add_operation(OperationCode.RELU, [source], [output])
    model.identify_inputs_and_outputs([source], [output])
    model.finish()
    with Network.from_model(model).compile([nn.Device(SampleDevice("sample"))]) as session:
        np.testing.assert_array_equal(session.run(np.ones(10_000, np.float32))[0], np.ones(10_000))
    assert lengths == [4096, 16_384, 65_536]


def test_a_scalar_input_takes_scalars_alone() -> None:
    with session_of([real(), real(2), real(2)], Step("ADD", [0, 1], [2], "AddOptions"), [0, 1], [2]) as session:
        np.testing.assert_array_equal(session.run([2.0, np.ones(2, np.float32)])[0], [3, 3])
        with pytest.raises(BadData, match=r"input 0 't0': wanted float32 \[\], got float32 \[3\]"):
            session.run([np.ones(3, np.float32), np.ones(2, np.float32)])


def test_an_input_of_open_rank(reference_device: Device) -> None:
    model = Model()
    source, output = (model.add_operand(OperandType(FLOATS)) for _ in range(2))
    model.add_operation(OperationCode.RELU, [source], [output])
    model.identify_inputs_and_outputs([source], [output])
    model.finish()
    with Network.from_model(model).compile(reference_device) as session:
        for shape in ((3,), (2, 2), (1, 5, 1)):
            np.testing.assert_array_equal(session.run(np.full(shape, 2, np.float32))[0], np.full(shape, 2))
        for none in ((), (2, 0)):
            with pytest.raises(BadData, match="NNAPI has no tensor without dimensions or elements"):
                session.run(np.full(none, 2, np.float32))


def test_explanation_and_profile(doubling: Session) -> None:
    before = doubling.explain()
    assert doubling.profile is None
    assert [row.measured_ns for row in before.operations] == [None]
    doubling.run(np.zeros((2, 3), np.float32), profile=True)
    profile = doubling.profile
    assert profile is not None
    assert [step.device for step in profile.steps] == ["nnapi-reference"]
    explanation = doubling.explain()
    (row,) = explanation
    assert explanation[0] is row
    assert (row.index, row.name, row.device, row.step, row.refusals) == (0, "ADD", "nnapi-reference", 0, {})
    assert row.measured_ns is not None
    assert 0 < row.measured_ns <= profile.steps[0].duration_ns
    text = str(doubling.explain())
    assert text.splitlines()[0].split() == [
        "operation",
        "name",
        "step",
        "device",
        "estimated",
        "measured",
        "other",
        "devices",
    ]
    assert "nnapi-reference" in text
    assert text.endswith(duration_text(row.measured_ns))
    assert str(profile).startswith("step 0: 1 operation on nnapi-reference, ")


def test_timing_is_measured_on_one_explicit_device(device: Device) -> None:
    network = Network.from_model(adding_model(64, 64))
    data = [np.ones((64, 64), np.float32)] * 2
    with network.compile(device) as session:
        assert session.timing is None
        np.testing.assert_array_equal(session.run(data, measure=True)[0], 2)
        timing = session.timing
        assert timing is not None
        if not device.is_reference:
            assert timing.on_device_ns is not None
            assert timing.in_driver_ns is not None
            assert 0 < timing.on_device_ns <= timing.in_driver_ns
        np.testing.assert_array_equal(session.run(data)[0], 2)
        with pytest.raises(BadData, match=r"wanted profile=True or measure=True, .*, got both"):
            session.run(data, profile=True, measure=True)
    wanted = "compiled for one device without fallback, .*, got one for nnapi-reference, which tells no times"
    with network.compile("cpu") as session, pytest.raises(BadData, match=wanted):
        session.run(data, measure=True)


def test_threads_take_turns(doubling: Session) -> None:
    failures: list[int] = []

    def work(number: int) -> None:
        for _ in range(50):
            (result,) = doubling.run(np.full((2, 3), number, np.float32))
            if not (result == 2 * number).all():
                failures.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_does_not_wait_for_a_thread_that_stayed_behind() -> None:
    code = """
        import os, threading
        import numpy as np
        from nn_runtime.errors import BadState
        from tests.nn_runtime.test_session import Step, real, session_of
        session = session_of([real(2, 3), real(2, 3)], Step("ADD", [0, 0], [1], "AddOptions"), [0], [1])
        held, free = threading.Event(), threading.Event()
        def hold():
            with session._lock:
                held.set()
                free.wait()
        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        data = np.ones((2, 3), np.float32)
        child = os.fork()
        if child == 0:
            try:
                session.run(data)
            except BadState as error:
                print(error, flush=True)
            try:
                with session:
                    raise KeyError("of the block")
            except KeyError as error:
                print(error, flush=True)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        free.set()
        thread.join()
        child = os.fork()
        assert (session.run(data)[0] == 2).all()  # in both
        if child == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    """
    assert run_script(code) == "session: another thread was using it as this process was forked\n'of the block'\n"


def test_closed_session(doubling: Session) -> None:
    doubling.close()
    doubling.close()
    with pytest.raises(BadState, match="session: it is closed"):
        doubling.run(np.zeros((2, 3), np.float32))


def test_outputs_of_one_name_are_told_apart() -> None:
    tensors = [real(4), real(2), real(2), constant(np.array(0, np.int32))]
    step = Step("SPLIT", [3, 0], [1, 2], "SplitOptions", {"NumSplits": 2})
    plain = nn.load(write(tensors, [step], [0], [1, 2]))
    outputs = tuple(replace(info, name="part") for info in plain.outputs)
    with Network(plain.model, replace(plain.interface, outputs=outputs)).compile("cpu") as session:
        parts = session.run({session.inputs[0].name: np.arange(4, dtype=np.float32)})
    assert {name: part.tolist() for name, part in parts.items()} == {"part": [0, 1], "part:1": [2, 3]}
