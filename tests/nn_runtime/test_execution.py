# SPDX-License-Identifier: Apache-2.0
"""Executions: arguments and states (AOSP TestValidation Execution groups)."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.burst import Burst
from nn_runtime.codes import OEM_OPERATION, FuseCode, OperandCode, OperationCode
from nn_runtime.compilation import Compilation
from nn_runtime.devices import reference_device
from nn_runtime.errors import (
    BadData,
    BadState,
    MissedDeadline,
    UnexpectedNull,
)
from nn_runtime.execution import Execution, default_loop_timeout, maximum_loop_timeout
from nn_runtime.hal.latch import Latch
from nn_runtime.hal.memory import HardwareBuffer
from nn_runtime.hal.types import ExecutionResult
from nn_runtime.memory import Memory
from nn_runtime.model import Model
from nn_runtime.operand import OperandType
from nn_runtime.testing.sample_drivers import NullDevice, SampleDevice, SamplePreparedModel
from tests.nn_runtime.computing import COMPUTES, bind_all
from tests.nn_runtime.graphs import add_model, chain_model, finished, numbers, tensor

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def compilation() -> Compilation:
    compilation = Compilation(add_model((2, 3)), [reference_device()])
    compilation.finish()
    return compilation


@pytest.fixture
def execution(compilation: Compilation) -> Execution:
    return Execution(compilation)


@pytest.mark.parametrize("kind", COMPUTES)
def test_every_way_to_compute(compilation: Compilation, kind: str) -> None:
    execution = Execution(compilation)
    output = bind_all(execution)
    COMPUTES[kind](execution, Burst(compilation))
    np.testing.assert_array_equal(output, 2 * numbers(2, 3))
    assert execution.get_output_operand_rank(0) == 2
    assert execution.get_output_operand_dimensions(0) == (2, 3)


@pytest.mark.parametrize("kind", COMPUTES)
def test_an_execution_is_used_once_unless_reusable(compilation: Compilation, kind: str) -> None:
    burst = Burst(compilation)
    execution = Execution(compilation)
    bind_all(execution)
    COMPUTES[kind](execution, burst)
    for other in COMPUTES.values():
        with pytest.raises(BadState, match="not reusable"):
            other(execution, burst)
    reusable = Execution(compilation)
    reusable.set_reusable(True)
    output = bind_all(reusable)
    for other in COMPUTES.values():
        output[:] = 0
        other(reusable, burst)
        np.testing.assert_array_equal(output, 2 * numbers(2, 3))


@pytest.mark.parametrize("reusable", [False, True])
def test_setters_are_refused_once_started(execution: Execution, reusable: bool) -> None:
    execution.set_reusable(reusable)
    bind_all(execution)
    execution.compute()
    for call in (
        lambda: execution.set_input(0, numbers(2, 3)),
        lambda: execution.set_output(0, numbers(2, 3)),
        lambda: execution.set_input_from_memory(0, Memory.from_array(numbers(2, 3)), 0, 24),
        lambda: execution.set_reusable(False),
        lambda: execution.set_loop_timeout(1),
        lambda: execution.set_timeout(1),
        lambda: execution.set_measure_timing(True),
        lambda: execution.enable_input_and_output_padding(True),
    ):
        with pytest.raises(BadState):
            call()


def test_input_errors_say_wanted_and_given(execution: Execution) -> None:
    with pytest.raises(BadData, match=r"input 0: TENSOR_FLOAT32 \[2, 3\] needs 24 bytes, got 20"):
        execution.set_input(0, np.zeros(5, np.float32))
    with pytest.raises(BadData, match="needs 24 bytes, got 28"):
        execution.set_input(0, np.zeros(7, np.float32))
    with pytest.raises(BadData, match="input 0: wanted an array of float32, got float64"):
        execution.set_input(0, np.zeros((2, 3)))
    with pytest.raises(BadData, match="wanted an array of float32, got >f4"):
        execution.set_input(0, np.zeros((2, 3), ">f4"))
    with pytest.raises(BadData, match="C-contiguous"):
        execution.set_input(0, np.zeros((3, 2), np.float32).T)
    with pytest.raises(BadData, match="wanted a numpy array, got list"):
        execution.set_input(0, [1.0])  # type: ignore[arg-type]
    with pytest.raises(BadData, match="input 2 is out of range, the model has 2 inputs"):
        execution.set_input(2, numbers(2, 3))
    with pytest.raises(BadData, match=r"\[2, 4\] contradict \[2, 3\]"):
        execution.set_input(0, numbers(2, 4), tensor(2, 4))
    with pytest.raises(BadData, match="it is a TENSOR_FLOAT32, the type given a TENSOR_INT32"):
        execution.set_input(0, numbers(2, 3), tensor(2, 3, code=OperandCode.TENSOR_INT32))
    with pytest.raises(BadData, match=r"input 0: its type: TENSOR_FLOAT32: scale must be 0, got 0\.5"):
        execution.set_input(0, numbers(2, 3), tensor(2, 3, scale=0.5))
    execution.set_input(0, numbers(2, 3), tensor(2, 3))
    with pytest.raises(BadState, match="input 0 is bound already"):
        execution.set_input(0, numbers(2, 3))


def test_output_errors(execution: Execution) -> None:
    read_only = np.zeros((2, 3), np.float32)
    read_only.flags.writeable = False
    with pytest.raises(BadData, match="output 0: the array is read-only"):
        execution.set_output(0, read_only)
    with pytest.raises(BadData, match="needs 24 bytes, got 4"):
        execution.set_output(0, np.zeros(1, np.float32))
    with pytest.raises(BadData, match="no bytes"):
        execution.set_output(0, np.zeros(0, np.float32))


def test_memory_arguments(execution: Execution) -> None:
    inputs, outputs = Memory.from_array(np.arange(12, dtype=np.float32)), Memory.from_array(np.zeros(8, np.float32))
    with pytest.raises(BadData, match="cannot be implied"):
        execution.set_input_from_memory(0, inputs)
    with pytest.raises(BadData, match="bytes 28 to 52 are outside the memory of 48"):
        execution.set_input_from_memory(0, inputs, 28, 24)
    with pytest.raises(BadData, match="needs 24 bytes, got 28"):
        execution.set_input_from_memory(0, inputs, 0, 28)
    with pytest.raises(UnexpectedNull):
        execution.set_input_from_memory(0, None)  # type: ignore[arg-type]
    execution.set_input_from_memory(0, inputs, 0, 24)
    execution.set_input_from_memory(1, inputs, 24, 24)
    execution.set_output_from_memory(0, outputs, 8, 24)
    execution.compute()
    assert outputs.to_array(np.float32, (8,)).tolist() == [0, 0, 6, 8, 10, 12, 14, 16]


@pytest.mark.parametrize("taken", ["input 0", "input 1"])
def test_an_output_over_an_input(execution: Execution, taken: str) -> None:
    shared = numbers(4, 3)
    execution.set_input(int(taken[-1]), shared[:2])
    execution.set_input(1 - int(taken[-1]), numbers(2, 3))
    execution.set_output(0, shared[1:3])
    with pytest.raises(BadData, match=f"output 0: its memory overlaps that of {taken}"):
        execution.compute()


def test_arguments_side_by_side_in_one_memory(compilation: Compilation) -> None:
    memory = Memory.from_array(np.arange(18, dtype=np.float32))
    for start, error in ((48, None), (44, "overlaps that of input 1"), (0, "overlaps that of input 0")):
        with Execution(compilation) as execution:
            execution.set_input_from_memory(0, memory, 0, 24)
            execution.set_input_from_memory(1, memory, 24, 24)
            execution.set_output_from_memory(0, memory, start, 24)
            if error is None:
                execution.compute()
                assert memory.to_array(np.float32, (3, 6))[2].tolist() == [6, 8, 10, 12, 14, 16]
                continue
            with pytest.raises(BadData, match=error):
                execution.compute()


def test_an_array_that_shows_a_memory(compilation: Compilation) -> None:
    memory = Memory.from_array(np.arange(18, dtype=np.float32))
    shown = memory.to_array(np.float32, (3, 6))
    for row, error in ((2, None), (1, "output 0: its memory overlaps that of input 1")):
        with Execution(compilation) as execution:
            execution.set_input_from_memory(0, memory, 0, 24)
            execution.set_input_from_memory(1, memory, 24, 24)
            execution.set_output(0, shown[row].reshape(2, 3))
            if error is None:
                execution.compute()
                assert shown[2].tolist() == [6, 8, 10, 12, 14, 16]
                continue
            with pytest.raises(BadData, match=error):
                execution.compute()
    with Execution(compilation) as execution:
        execution.set_input(0, shown[0].reshape(2, 3))
        execution.set_input(1, numbers(2, 3))
        execution.set_output_from_memory(0, memory, 20, 24)
        with pytest.raises(BadData, match="output 0: its memory overlaps that of input 0"):
            execution.compute()


def test_two_memories_of_one_file(compilation: Compilation, tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    path.write_bytes(np.arange(18, dtype=np.float32).tobytes())
    other = tmp_path / "others"
    other.write_bytes(bytes(72))
    with path.open("r+b") as file, other.open("r+b") as another:
        inputs = Memory.from_fd(44, 3, file.fileno(), 4)
        for start, error in ((48, None), (44, "overlaps that of input 1"), (0, "overlaps that of input 0")):
            outputs = Memory.from_fd(72 - start, 3, file.fileno(), start)
            for memory, expected in ((outputs, error), (Memory.from_fd(72, 3, another.fileno(), 0), None)):
                with Execution(compilation) as execution:
                    execution.set_input_from_memory(0, inputs, 0, 24)
                    execution.set_input_from_memory(1, inputs, 20, 24)
                    execution.set_output_from_memory(0, memory, 0, 24)
                    with nullcontext() if expected is None else pytest.raises(BadData, match=expected):
                        execution.compute()


def test_arrays_of_subclasses(compilation: Compilation, tmp_path: Path) -> None:
    """A matrix keeps its two dimensions whatever is done with it, and a file's array is one of numpy's own, too."""
    mapped = np.memmap(tmp_path / "numbers", np.float32, "w+", shape=(2, 3))
    mapped[...] = numbers(2, 3)
    matrix, result = numbers(2, 3).view(np.matrix), np.zeros((2, 3), np.float32).view(np.matrix)
    with Execution(compilation) as execution:
        execution.set_input(0, mapped)
        execution.set_input(1, matrix)
        execution.set_output(0, result)
        execution.compute()
        np.testing.assert_array_equal(np.asarray(result), 2 * numbers(2, 3))
        assert execution.get_output_operand_rank(_Index(0)) == 2


class _Index:
    """A number of which Python knows only that it counts."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


def test_two_inputs_of_the_same_bytes(execution: Execution) -> None:
    shared, output = numbers(2, 3), numbers(2, 3)
    execution.set_input(0, shared)
    execution.set_input(1, shared)
    execution.set_output(0, output)
    execution.compute()
    assert np.array_equal(output, 2 * shared)


def test_outputs_over_each_other_and_over_constants() -> None:
    pair = OperandType(OperandCode.TENSOR_FLOAT32, (2,))
    memory = Memory.from_array(np.arange(8, dtype=np.float32))
    model = Model()
    source, weights, total, product = (model.add_operand(pair) for _ in range(4))
    none = model.add_operand(OperandType(OperandCode.INT32))
    model.set_operand_value(none, np.array(FuseCode.NONE, np.int32))
    model.set_operand_value_from_memory(weights, memory, 16, 8)
    model.add_operation(OperationCode.ADD, [source, weights, none], [total])
    model.add_operation(OperationCode.MUL, [source, weights, none], [product])
    model.identify_inputs_and_outputs([source], [total, product])
    model.finish()
    compilation = finished(model, [SampleDevice("sample")])
    for places, error in (
        ((0, 4), "output 1: its memory overlaps that of output 0"),
        ((0, 20), "output 1: its memory overlaps that of a constant operand"),
        ((0, 8), None),
    ):
        with Execution(compilation) as execution:
            execution.set_input(0, np.ones(2, np.float32))
            for at, place in enumerate(places):
                execution.set_output_from_memory(at, memory, place, 8)
            if error is None:
                execution.compute()
                assert memory.to_array(np.float32, (8,))[:4].tolist() == [5, 6, 4, 5]
                continue
            with pytest.raises(BadData, match=error):
                execution.compute()


def test_an_oem_scalar_has_the_length_that_is_given() -> None:
    model = Model()
    source, result = model.add_operand(OperandType(OperandCode.OEM_SCALAR)), model.add_operand(tensor(2))
    model.add_operation(OEM_OPERATION, [source], [result])
    model.identify_inputs_and_outputs([source], [result])
    model.finish()
    device = NullDevice("oem")
    execution = Execution(finished(model, [device]))
    execution.set_input(0, np.arange(24, dtype=np.uint8))
    execution.set_output(0, np.zeros(2, np.float32))
    execution.compute()
    (location,) = (argument.location for argument in device.record.requests[-1].inputs)
    assert location.length == 24


def test_padding(compilation: Compilation) -> None:
    execution = Execution(compilation)
    execution.enable_input_and_output_padding(True)
    output = np.full(8, -1, np.float32)
    execution.set_input(0, np.ones(16, np.float32))
    execution.set_input_from_memory(1, Memory.from_array(np.ones(16, np.float32)), 0, 64)
    execution.set_output(0, output)
    execution.compute()
    assert output.tolist() == [2] * 6 + [-1, -1]
    late = Execution(compilation)
    late.set_input(0, numbers(2, 3))
    with pytest.raises(BadState, match="bound already"):
        late.enable_input_and_output_padding(True)


def test_an_argument_that_is_not_bound(execution: Execution) -> None:
    execution.set_input(0, numbers(2, 3))
    execution.set_output(0, numbers(2, 3))
    with pytest.raises(BadData, match="input 1 is not bound"):
        execution.compute()
    with pytest.raises(BadState):
        execution.compute()


def test_one_of_two_threads_computes() -> None:
    gate = threading.Event()
    device = SampleDevice("slow")
    compilation = finished(add_model(), [device])
    execution = Execution(compilation)
    bind_all(execution)
    prepared = compilation.plan.steps[0].prepared if compilation.plan else None
    assert prepared is not None
    inner = prepared.execute_synchronously

    def slowly(*arguments: object) -> ExecutionResult:
        gate.wait()
        return inner(*arguments)  # type: ignore[arg-type]

    prepared.execute_synchronously = slowly  # type: ignore[method-assign]
    event = execution.start_compute()
    with pytest.raises(BadState, match="is computing"):
        execution.compute()
    with pytest.raises(BadState):
        execution.get_output_operand_rank(0)
    with pytest.raises(MissedDeadline):
        event.wait(0.01)
    gate.set()
    event.wait()
    event.wait()
    with pytest.raises(BadData, match="no sync fence"):
        event.sync_fence_fd()


def test_bursts(compilation: Compilation, execution: Execution) -> None:
    bind_all(execution)
    other = Compilation(add_model(), [reference_device()])
    other.finish()
    with pytest.raises(UnexpectedNull):
        execution.burst_compute(None)  # type: ignore[arg-type]
    with pytest.raises(BadData, match="another compilation"):
        execution.burst_compute(Burst(other))
    burst = Burst(compilation)
    burst.begin(call := Latch())
    with pytest.raises(BadState, match="burst"):
        execution.burst_compute(burst)
    burst.end(call)
    execution.burst_compute(burst)


def test_loop_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver is told what was set, or the longest (15 s) in place of more; it knows the default."""
    assert default_loop_timeout() == 2 * 10**9 < maximum_loop_timeout() == 15 * 10**9
    told: list[int | None] = []

    def execute_synchronously(*arguments: object) -> ExecutionResult:
        told.append(arguments[-1])  # type: ignore[arg-type]
        return ExecutionResult()

    monkeypatch.setattr(SamplePreparedModel, "execute_synchronously", execute_synchronously)
    compilation = finished(add_model(), [SampleDevice("sample")])
    for duration_ns in (None, 10**9, 2**64 - 1):
        execution = Execution(compilation)
        if duration_ns is not None:
            execution.set_loop_timeout(duration_ns)
        bind_all(execution)
        execution.compute()
    assert told == [None, 10**9, 15 * 10**9]


def test_unknown_dimensions_are_completed_by_the_arguments() -> None:
    compilation = Compilation(chain_model([OperationCode.RELU], (0, 3)), [reference_device()])
    compilation.finish()
    execution = Execution(compilation)
    with pytest.raises(BadData, match=r"dimensions \[0, 3\] must be known"):
        execution.set_input(0, numbers(2, 3))
    with pytest.raises(BadData, match="contradict"):
        execution.set_input(0, numbers(2, 3), tensor(3, 2))
    with pytest.raises(BadData, match="2\\^32"):
        execution.set_input(0, numbers(2, 3), tensor(2**31, 3))
    with pytest.raises(BadData, match="2\\^32"):
        execution.set_output(0, numbers(2, 3), tensor(2**31, 3))
    output = np.zeros(20, np.float32)
    execution.set_input(0, numbers(2, 3), tensor(2, 3))
    execution.set_output(0, output)
    execution.compute()
    assert execution.get_output_operand_dimensions(0) == (2, 3)
    np.testing.assert_array_equal(output[:6].reshape(2, 3), np.maximum(numbers(2, 3), 0))


def test_a_reused_execution_reuses_its_request() -> None:
    device = NullDevice("null")
    execution = Execution(finished(add_model(), [device]))
    execution.set_reusable(True)
    bind_all(execution)
    execution.compute()
    execution.compute()
    first, second = device.record.requests
    assert first is second


def _compute_at_once(execution: Execution, ready: threading.Barrier, results: list[str]) -> None:
    ready.wait()
    try:
        execution.compute()
    except BadState:
        results.append("refused")
    else:
        results.append("done")


@pytest.mark.parametrize("reusable", [False, True])
def test_two_threads_at_one_execution(reusable: bool) -> None:
    """Exactly one of those that start while it computes wins (AOSP Reusable- and NonReusableExecutionConcurrent)."""
    compilation = finished(add_model(), [SampleDevice("sample")])
    for _ in range(20):
        execution = Execution(compilation)
        execution.set_reusable(reusable)
        bind_all(execution)
        results: list[str] = []
        ready = threading.Barrier(2)

        threads = [threading.Thread(target=_compute_at_once, args=(execution, ready, results)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(results) == ["done", "refused"] or (reusable and results == ["done", "done"])
        if reusable:
            execution.compute()
        else:
            with pytest.raises(BadState):
                execution.compute()


@pytest.mark.parametrize("hardware", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_lengths_of_memory_arguments(hardware: bool, padded: bool) -> None:
    """AOSP Set{Input,Output}From{Memory,AHardwareBufferBlob}, each with and without padding."""
    compilation = finished(add_model((2, 3)), [SampleDevice("sample")])
    memory = Memory.from_hardware_buffer(HardwareBuffer(96)) if hardware else Memory.from_array(np.zeros(96, np.uint8))
    for setter in ("set_input_from_memory", "set_output_from_memory"):
        execution = Execution(compilation)
        execution.enable_input_and_output_padding(padded)
        bind = getattr(execution, setter)
        for index, where in ((0, (0, 23)), (0, (80, 24)), (0, (0, 0)), (9, (0, 24)), (0, (-4, 24)), (0, (0, 97))):
            with pytest.raises(BadData):
                bind(index, memory, *where)
        with pytest.raises(BadData):
            bind(0, memory, 0, 24, tensor(2, 4))
        if not padded:
            with pytest.raises(BadData, match="needs 24 bytes, got 28"):
                bind(0, memory, 0, 28)
        bind(0, memory, 0, 28 if padded else 24)
        with pytest.raises(BadState, match="bound already"):
            bind(0, memory, 0, 24)
