# SPDX-License-Identifier: Apache-2.0
"""Arguments of a wrong kind or beyond all bounds: an error of ours that names them, not one of Python's depths.

Expected codes: what the NDK answers where it can be given such a thing at all (BAD_DATA; UNMAPPABLE and OUT_OF_MEMORY
for memory that cannot be had), BAD_DATA for what only Python can hand over.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import nn_runtime as nn
from nn_runtime.codes import OperandCode, OperationCode, ResultCode
from nn_runtime.devices import reference_device
from nn_runtime.errors import NNError
from nn_runtime.hal.memory import HardwareBuffer, HardwareBufferFormat, SharedMemory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KIND = nn.OperandType(OperandCode.TENSOR_FLOAT32, (1, 4))
VALUES = np.zeros((1, 4), np.float32)
HUGE = 2**70
NOT_A_NUMBER: Any = "1"
NOT_WHOLE: Any = 1.5


def _unfinished() -> nn.Model:
    model = nn.Model()
    for kind in (KIND, nn.OperandType(OperandCode.FLOAT32), KIND):
        model.add_operand(kind)
    return model


def _model() -> nn.Model:
    model = _unfinished()
    model.set_operand_value(1, 1.0)
    model.add_operation(OperationCode.SOFTMAX, [0, 1], [2])
    model.identify_inputs_and_outputs([0], [2])
    model.finish()
    return model


def _compilation() -> nn.Compilation:
    compilation = nn.Compilation(_model(), [reference_device()])
    compilation.finish()
    return compilation


def _execution() -> nn.Execution:
    return nn.Execution(_compilation())


def _input_from_memory(memory: Any, offset: Any, length: Any) -> None:
    _execution().set_input_from_memory(0, memory, offset, length)


def _open_desc() -> nn.MemoryDesc:
    desc = nn.MemoryDesc()
    desc.add_input_role(_compilation(), 0, 1.0)
    return desc


def _described(dims: Any, index: Any = 0, frequency: Any = 1.0) -> nn.Memory:
    model = nn.Model()
    for _ in range(2):
        model.add_operand(nn.OperandType(OperandCode.TENSOR_FLOAT32, (0, 0)))
    model.add_operation(OperationCode.RELU, [0], [1])
    model.identify_inputs_and_outputs([0], [1])
    model.finish()
    compilation = nn.Compilation(model, [reference_device()])
    compilation.finish()
    desc = nn.MemoryDesc()
    desc.add_input_role(compilation, index, frequency)
    desc.set_dimensions(dims)
    desc.finish()
    return nn.Memory.from_desc(desc)


def _with_int_scalar(value: float) -> None:
    model = nn.Model()
    model.add_operand(nn.OperandType(OperandCode.INT32))
    model.set_operand_value(0, value)


def _wait_before_now_for_a_fence() -> None:
    reader, writer = os.pipe()  # readable never: a wait without end
    try:
        with nn.Event.from_sync_fence_fd(reader) as event:
            try:
                event.wait(-1)
            finally:
                os.close(writer)
    finally:
        os.close(reader)


def _any(value: object) -> Any:
    return value


BAD: dict[str, tuple[Callable[[], object], ResultCode, str]] = {
    "operand of no type": (lambda: nn.Model().add_operand(_any(3)), ResultCode.BAD_DATA, "OperandType, got 3"),
    "scales of no type": (
        lambda: nn.OperandType(OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL, (2,), 0.0, 0, _any("x")),
        ResultCode.BAD_DATA,
        "ChannelQuant, got 'x'",
    ),
    "operand index": (lambda: _unfinished().set_operand_value(NOT_A_NUMBER, 1.0), ResultCode.BAD_DATA, "got '1'"),
    "operand index, not whole": (
        lambda: _unfinished().set_operand_value(NOT_WHOLE, 1.0),
        ResultCode.BAD_DATA,
        "got 1.5",
    ),
    "operation code": (
        lambda: _unfinished().add_operation(_any("SOFTMAX"), [0, 1], [2]),
        ResultCode.BAD_DATA,
        "got 'SOFTMAX'",
    ),
    "constant's offset": (
        lambda: _unfinished().set_operand_value_from_memory(0, nn.Memory.from_array(VALUES), _any("0"), 16),
        ResultCode.BAD_DATA,
        "offset: wanted a whole number",
    ),
    "a device for a list": (
        lambda: nn.Compilation(_model(), _any(reference_device())),
        ResultCode.BAD_DATA,
        "wanted a list of devices",
    ),
    "a name for a list": (lambda: nn.Compilation(_model(), _any("cpu")), ResultCode.BAD_DATA, "wanted a list"),
    "a number for a list": (lambda: _model().supported_operations(_any(5)), ResultCode.BAD_DATA, "wanted a list"),
    "an array for a memory": (lambda: _input_from_memory(VALUES, 0, 16), ResultCode.BAD_DATA, "a Memory, got ndarray"),
    "input's offset": (
        lambda: _input_from_memory(nn.Memory.from_array(VALUES), 0.0, 16),
        ResultCode.BAD_DATA,
        "offset: wanted a whole number, got 0.0",
    ),
    "input's length": (
        lambda: _input_from_memory(nn.Memory.from_array(VALUES), 0, 16.0),
        ResultCode.BAD_DATA,
        "length: wanted a whole number, got 16.0",
    ),
    "input's index": (lambda: _execution().set_input(NOT_A_NUMBER, VALUES), ResultCode.BAD_DATA, "got '1'"),
    "output's index": (
        lambda: _compilation().preferred_memory_alignment_for_output(NOT_WHOLE),
        ResultCode.BAD_DATA,
        "output: wanted a whole number, got 1.5",
    ),
    "preference": (
        lambda: nn.Compilation(_model()).set_preference(3),
        ResultCode.BAD_DATA,
        r"SUSTAINED_SPEED \(2\), got 3",
    ),
    "a fraction for a whole number": (
        lambda: _with_int_scalar(1.5),
        ResultCode.BAD_DATA,
        "wanted a whole number, got 1.5",
    ),
    "too large a number for a scalar": (
        lambda: _with_int_scalar(np.int64(2**40)),
        ResultCode.BAD_DATA,
        "1099511627776 is no int32",
    ),
    "no number for a scalar": (
        lambda: _with_int_scalar(np.float64("nan")),
        ResultCode.BAD_DATA,
        "is no int32",
    ),
    "a constant behind the end of its memory": (
        lambda: _unfinished().set_operand_value_from_memory(
            0, nn.Memory.from_array(np.zeros(250, np.uint8)), _any(np.uint8(240)), _any(np.uint8(16))
        ),
        ResultCode.BAD_DATA,
        "bytes 240 to 256 are outside the memory of 250",
    ),
    "timeout before now": (lambda: nn.Event().wait(-1), ResultCode.BAD_DATA, "got -1"),
    "timeout of no number": (lambda: nn.Event().wait(float("nan")), ResultCode.BAD_DATA, "got nan"),
    "timeout of a fence": (_wait_before_now_for_a_fence, ResultCode.BAD_DATA, "got -1"),
    "caching token": (
        lambda: nn.Compilation(_model()).set_caching(".", _any("x" * 32)),
        ResultCode.BAD_DATA,
        "the token: wanted bytes, got 'x",
    ),
    "caching folder": (
        lambda: nn.Compilation(_model()).set_caching(_any(5), bytes(32)),
        ResultCode.BAD_DATA,
        "wanted a path, got 5",
    ),
    "caching folder of numbers": (
        lambda: nn.Compilation(_model()).set_caching(_any(np.zeros(2)), bytes(32)),
        ResultCode.BAD_DATA,
        "wanted a path, got ndarray",
    ),
    "caching folder without a name": (
        lambda: nn.Compilation(_model()).set_caching("", bytes(32)),
        ResultCode.BAD_DATA,
        "the path is empty",
    ),
    "caching folder of null characters": (
        lambda: nn.Compilation(_model()).set_caching("a\0b", bytes(32)),
        ResultCode.BAD_DATA,
        "no null characters, got 'a.+b'",
    ),
    "file of null characters": (
        lambda: nn.load("a\0b"),
        ResultCode.BAD_DATA,
        "'a.+b': a path has no null characters",
    ),
    "input of no type": (
        lambda: _execution().set_input(0, VALUES, _any(5)),
        ResultCode.BAD_DATA,
        "wanted an OperandType, got 5",
    ),
    "mapping too large": (
        lambda: SharedMemory.from_fd(HUGE, 1, 0, 0).array(),
        ResultCode.UNMAPPABLE,
        "cannot be mapped",
    ),
    "descriptor too large": (lambda: nn.Memory.from_fd(4, 3, HUGE, 0), ResultCode.UNMAPPABLE, "cannot be duplicated"),
    "descriptor": (lambda: nn.Memory.from_fd(4, 3, NOT_A_NUMBER, 0), ResultCode.BAD_DATA, "descriptor: wanted"),
    "no bytes of a file": (lambda: nn.Memory.from_fd(0, 3, 0, 0), ResultCode.BAD_DATA, "size must be > 0"),
    "size": (lambda: nn.Memory.from_fd(NOT_A_NUMBER, 3, 0, 0), ResultCode.BAD_DATA, "size: wanted"),
    "pool too large": (lambda: SharedMemory.create(HUGE), ResultCode.OUT_OF_MEMORY, f"{HUGE} bytes cannot be had"),
    "hardware buffer too large": (lambda: HardwareBuffer(HUGE), ResultCode.OUT_OF_MEMORY, "cannot be had"),
    "hardware buffer's format": (
        lambda: HardwareBuffer(16, format=_any(99)),
        ResultCode.BAD_DATA,
        "99 is no known format",
    ),
    "hardware buffer's width": (lambda: HardwareBuffer(NOT_WHOLE), ResultCode.BAD_DATA, "size: wanted a whole number"),
    "bytes as objects": (
        lambda: nn.Memory.from_array(VALUES).to_array(np.object_, (1,)),
        ResultCode.BAD_DATA,
        "cannot be shown as object",
    ),
    "bytes as nothing": (
        lambda: nn.Memory.from_array(VALUES).to_array("S0", (1,)),
        ResultCode.BAD_DATA,
        "cannot be shown as",
    ),
    "role's index": (lambda: _described((1, 2), NOT_A_NUMBER), ResultCode.BAD_DATA, "index of a role: wanted"),
    "role's frequency": (lambda: _described((1, 2), 0, NOT_A_NUMBER), ResultCode.BAD_DATA, "frequency of input 0"),
    "described memory too large": (
        lambda: _described((2**16, 2**14)),
        ResultCode.BAD_DATA,
        r"\[65536, 16384\] needs more than 2\^32-1 bytes",
    ),
    "fence too large": (lambda: nn.Event.from_sync_fence_fd(HUGE), ResultCode.BAD_DATA, "no open descriptor"),
    "fence": (lambda: nn.Event.from_sync_fence_fd(NOT_A_NUMBER), ResultCode.BAD_DATA, "descriptor: wanted a whole"),
    "masked constant": (
        lambda: _unfinished().set_operand_value(0, np.ma.array(VALUES)),
        ResultCode.BAD_DATA,
        "wanted a plain array, got a masked one",
    ),
    "masked input": (
        lambda: _execution().set_input(0, np.ma.array(VALUES)),
        ResultCode.BAD_DATA,
        "input 0: wanted a plain array, got a masked one",
    ),
    "masked output": (
        lambda: _execution().set_output(0, np.ma.array(VALUES)),
        ResultCode.BAD_DATA,
        "output 0: wanted a plain array, got a masked one",
    ),
    "devices": (
        lambda: _model().supported_operations(_any(np.array(None))),
        ResultCode.BAD_DATA,
        "supported_operations: wanted a list of devices",
    ),
    "described dimensions": (
        lambda: _open_desc().set_dimensions((2, 3)),
        ResultCode.BAD_DATA,
        r"memory desc: dimensions \[2, 3\] contradict",
    ),
}


NEITHER: Any = np.zeros(2)
FLAGS: dict[str, Callable[[], object]] = {
    "set_reusable": lambda: _execution().set_reusable(NEITHER),
    "set_measure_timing": lambda: _execution().set_measure_timing(NEITHER),
    "enable_input_and_output_padding": lambda: _execution().enable_input_and_output_padding(NEITHER),
    "relax_computation_float32_to_float16": lambda: _unfinished().relax_computation_float32_to_float16(NEITHER),
}


@pytest.mark.parametrize("call", FLAGS)
def test_what_is_neither_true_nor_false(call: str) -> None:
    with pytest.raises(nn.BadData, match=f"{call}: wanted True or False, got ndarray"):
        FLAGS[call]()


WRONG = "x"
OF_A_KIND: dict[str, tuple[Callable[[Any], object], str]] = {
    "a compilation's model": (nn.Compilation, "a Model"),
    "an execution's compilation": (nn.Execution, "a Compilation"),
    "a burst's compilation": (nn.Burst, "a Compilation"),
    "a role's compilation": (lambda wrong: nn.MemoryDesc().add_input_role(wrong, 0, 1.0), "a Compilation"),
    "a descriptor": (nn.Memory.from_desc, "a MemoryDesc"),
    "a hardware buffer": (nn.Memory.from_hardware_buffer, "a HardwareBuffer"),
    "an array's memory": (nn.Memory.from_array, "a numpy array of numbers"),
    "a copy's source": (lambda wrong: nn.Memory.copy(wrong, nn.Memory.from_array(VALUES)), "a Memory"),
    "a copy's destination": (lambda wrong: nn.Memory.copy(nn.Memory.from_array(VALUES), wrong), "a Memory"),
    "a constant's memory": (lambda wrong: _unfinished().set_operand_value_from_memory(0, wrong, 0, 16), "a Memory"),
    "a referenced model": (lambda wrong: _unfinished().set_operand_value_from_model(0, wrong), "a Model"),
    "an extension's device": (lambda wrong: nn.Model().extension_operand_type(wrong, "name", 0), "a Device"),
    "an event": (lambda wrong: _execution().start_compute_with_dependencies([wrong]), "an Event"),
    "events": (lambda wrong: _execution().start_compute_with_dependencies(wrong), "a list"),
    "an execution's burst": (lambda wrong: _execution().burst_compute(wrong), "a Burst"),
    "an execution's other memory": (lambda wrong: _execution().compute(wrong), "an OtherMemory"),
    "a profiled execution's": (lambda wrong: _execution().compute_profiled(wrong), "an OtherMemory"),
    "an attribute's data": (
        lambda wrong: nn.Compilation(_model(), [reference_device()]).add_extension_attribute("name", 0, wrong),
        "bytes",
    ),
    "a preference": (
        lambda wrong: nn.Compilation(_model()).set_preference(wrong),
        r"one of PreferenceCode: LOW_POWER \(0\), FAST_SINGLE_ANSWER \(1\), SUSTAINED_SPEED \(2\)",
    ),
    "a priority": (
        lambda wrong: nn.Compilation(_model()).set_priority(wrong),
        r"one of PriorityCode: LOW \(90\), MEDIUM \(100\), HIGH \(110\)",
    ),
    "a timeout": (lambda wrong: nn.Event().wait(wrong), "a timeout >= 0 s, or None"),
    "a network's model": (nn.Network.from_model, "a Model"),
    "a session's compilation": (lambda wrong: nn.Session(wrong, wrong), "a Compilation"),
    "names": (lambda wrong: nn.Network.from_model(_model(), wrong), "a list"),
    "a hardware buffer's usage": (lambda wrong: HardwareBuffer(4, usage=wrong), "a whole number"),
}


def _computed() -> nn.Execution:
    execution = _execution()
    execution.set_input(0, VALUES)
    execution.set_output(0, np.zeros_like(VALUES))
    execution.compute()
    return execution


def _finished_desc() -> nn.MemoryDesc:
    desc = _open_desc()
    desc.finish()
    return desc


NULL: Any = None
NULL_IN_A_WRONG_STATE: dict[str, Callable[[], object]] = {
    "an operand's type": lambda: _model().add_operand(NULL),
    "an operation's inputs": lambda: _model().add_operation(OperationCode.RELU, NULL, [0]),
    "an operation's outputs": lambda: _model().add_operation(OperationCode.RELU, [0], NULL),
    "a model's inputs": lambda: _model().identify_inputs_and_outputs(NULL, [0]),
    "a model's outputs": lambda: _model().identify_inputs_and_outputs([0], NULL),
    "a constant's memory": lambda: _model().set_operand_value_from_memory(0, NULL, 0, 0),
    "a referenced model": lambda: _model().set_operand_value_from_model(0, NULL),
    "scales": lambda: _model().set_operand_symm_per_channel_quant_params(0, NULL),
    "a caching folder": lambda: _compilation().set_caching(NULL, bytes(32)),
    "an input's memory": lambda: _computed().set_input_from_memory(0, NULL),
    "an output's memory": lambda: _computed().set_output_from_memory(0, NULL),
    "a burst": lambda: _computed().burst_compute(NULL),
    "events": lambda: _computed().start_compute_with_dependencies(NULL),
    "an input role's compilation": lambda: _finished_desc().add_input_role(NULL, 0, 1.0),
    "an output role's compilation": lambda: _finished_desc().add_output_role(NULL, 0, 1.0),
    "a described memory's dimensions": lambda: _finished_desc().set_dimensions(NULL),
}


@pytest.mark.parametrize("name", NULL_IN_A_WRONG_STATE)
def test_null_comes_before_the_state(name: str) -> None:
    """As the NDK has it: UNEXPECTED_NULL even where the call is not allowed any more."""
    with pytest.raises(nn.UnexpectedNull):
        NULL_IN_A_WRONG_STATE[name]()


@pytest.mark.parametrize("name", OF_A_KIND)
def test_objects_of_another_kind_are_errors_of_ours(name: str) -> None:
    call, wanted = OF_A_KIND[name]
    with pytest.raises(nn.BadData, match=f"wanted {wanted}, got ('x'|str)"):
        call(WRONG)


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments_are_errors_of_ours(name: str) -> None:
    call, code, words = BAD[name]
    with pytest.raises(NNError, match=words) as caught:
        call()
    assert caught.value.code == code


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int64])
def test_durations_are_whole_numbers_of_any_type(kind: Callable[[int], Any]) -> None:
    """A sum with the clock would overflow in numpy's small types."""
    calls: list[Callable[[nn.Execution], object]] = [
        lambda execution: execution.compute(timeout_ns=kind(1)),
        lambda execution: (execution.set_timeout(kind(1)), execution.compute()),
        lambda execution: execution.start_compute_with_dependencies([], kind(1)).wait(),
    ]
    for call in calls:
        execution = _execution()
        execution.set_loop_timeout(kind(1))
        execution.set_input(0, VALUES)
        execution.set_output(0, np.zeros_like(VALUES))
        with pytest.raises(nn.MissedDeadline):
            call(execution)
    compilation = nn.Compilation(_model(), [reference_device()])
    compilation.set_timeout(kind(1))
    with pytest.raises(nn.MissedDeadline):
        compilation.finish()


def test_sizes_are_whole_numbers_of_any_type(tmp_path: Path) -> None:
    small: Any = np.uint8(200)
    file = tmp_path / "bytes"
    file.write_bytes(bytes(200) + bytes([7]) * 200)
    with file.open("rb") as opened, nn.Memory.from_fd(small, 1, opened.fileno(), small) as memory:
        assert (memory.to_array(np.uint8, (small,)) == 7).all()
    with HardwareBuffer(small, small, format=HardwareBufferFormat.R8G8B8A8_UNORM) as buffer:
        assert buffer.size_bytes == 200 * 200 * 4


def test_a_long_timeout_is_no_overflow() -> None:
    for timeout in (1e300, float("inf")):
        event = nn.Event()
        threading.Timer(0.02, event.signal, [None]).start()
        event.wait(timeout)
        event.wait(0)


def test_an_execution_without_a_thread_can_be_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    execution = _execution()
    execution.set_reusable(True)
    execution.set_input(0, VALUES)
    execution.set_output(0, np.zeros_like(VALUES))
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(NNError, match="no thread can be started: can't start") as caught:
            execution.start_compute()
    assert caught.value.code == ResultCode.RESOURCE_EXHAUSTED_TRANSIENT
    execution.compute()


def test_a_closed_memory_holds_no_constant() -> None:
    memory = nn.Memory.from_array(VALUES)
    memory.close()
    with pytest.raises(NNError, match="the memory is closed") as caught:
        _unfinished().set_operand_value_from_memory(0, memory, 0, 16)
    assert caught.value.code == ResultCode.BAD_STATE


def test_a_network_is_no_descriptor_and_no_pipe(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(TypeError, match="PathLike"):
        nn.load(_any(descriptor))
    os.close(descriptor)  # still open
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(NNError, match="must be a regular file"):
            nn.load(tmp_path / "pipe")
