# SPDX-License-Identifier: Apache-2.0
"""Drivers that reply with nonsense, or not at all: a GENERAL_FAILURE, which the CPU device makes good if it may."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from nn_runtime.burst import Burst
from nn_runtime.codes import DurationCode, OperationCode
from nn_runtime.errors import BadState, OperationFailed, OutputInsufficientSize
from nn_runtime.execution import Execution
from nn_runtime.hal import fences
from nn_runtime.hal.plain import FinishedFencedExecution
from nn_runtime.hal.types import ErrorStatus, ExecutionResult, HalError, OutputShape, Timing
from nn_runtime.replies import checked_result
from nn_runtime.testing.sample_drivers import SampleDevice, SamplePreparedModel
from tests.nn_runtime.graphs import chain_model, finished, numbers, tensor
from tests.nn_runtime.hal.models import add_model, request
from tests.nn_runtime.memories import memory_between

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nn_runtime.compilation import Compilation
    from nn_runtime.operand import Array

RELU = OperationCode.RELU
DONE = FinishedFencedExecution(Timing(), Timing())


class Replying(SampleDevice):
    """A device whose prepared models reply something else to one call."""

    def __init__(self, call: str, reply: object) -> None:
        super().__init__("replying")
        self._call, self._reply = call, reply

    def prepare_model(self, *arguments: Any) -> SamplePreparedModel:
        prepared = super().prepare_model(*arguments)

        def replied(*_arguments: object) -> object:
            if isinstance(self._reply, Exception):
                raise self._reply
            return self._reply

        setattr(prepared, self._call, replied)
        return prepared


def bound(compilation: Compilation) -> tuple[Execution, Array]:
    execution, output = Execution(compilation), np.zeros((2, 3), np.float32)
    execution.set_input(0, numbers(2, 3), tensor(2, 3))
    execution.set_output(0, output)
    return execution, output


def check(device: SampleDevice, run: Callable[[Execution], object], message: str, dims: Sequence[int] = (2, 3)) -> None:
    """Check that a run fails with a message, and that the CPU device takes over where that is allowed."""
    execution, _ = bound(finished(chain_model([RELU], dims), [device]))
    with pytest.raises(OperationFailed, match=message):
        run(execution)
    execution, output = bound(finished(chain_model([RELU], dims), [device], fallback=True))
    run(execution)
    np.testing.assert_array_equal(output, np.maximum(numbers(2, 3), 0))


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (None, "execute: wanted an ExecutionResult from the driver, got NoneType"),
        ((), r"execute: wanted an ExecutionResult from the driver, got \(\)"),
        (ExecutionResult(None), "output shapes: wanted a Sequence from the driver, got NoneType"),  # type: ignore[arg-type]
        (ExecutionResult(7), "output shapes: wanted a Sequence from the driver, got 7"),  # type: ignore[arg-type]
        (ExecutionResult(((2, 3),)), "output shapes: wanted an OutputShape"),  # type: ignore[arg-type]
        (ExecutionResult((OutputShape(6),)), "output shapes: wanted a Sequence from the driver, got 6"),  # type: ignore[arg-type]
        (ExecutionResult((OutputShape(("2", 3)),)), "output shapes: wanted a SupportsIndex"),  # type: ignore[arg-type]
        (HalError(ErrorStatus.OUTPUT_INSUFFICIENT_SIZE, "no", 7), "output shapes: wanted a Sequence"),  # type: ignore[arg-type]
        (HalError(ErrorStatus.GENERAL_FAILURE, None, 7), "None"),  # type: ignore[arg-type]
    ],
)
def test_a_result_that_is_none(result: object, message: str) -> None:
    check(Replying("execute_synchronously", result), Execution.compute, message)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (ExecutionResult((OutputShape((-5, 3)),)), r"sizes must be >= 0, got \[-5, 3\]$"),
        (ExecutionResult((OutputShape((3, 3)),)), r"\[3, 3\] are 36 bytes, said to fit into a buffer of 24$"),
        (ExecutionResult((OutputShape((2**40, 3)),)), "said to fit into a buffer of 24$"),
        (
            HalError(ErrorStatus.OUTPUT_INSUFFICIENT_SIZE, "no", (OutputShape((-5, 3), False),)),
            r"sizes must be >= 0, got \[-5, 3\]$",
        ),
    ],
)
def test_a_shape_that_cannot_be(result: object, message: str) -> None:
    device = Replying("execute_synchronously", result)
    check(device, Execution.compute, f"the driver's shape of output 0: .*{message}", (0, 3))


@pytest.mark.parametrize("sufficient", [True, False])
@pytest.mark.parametrize(
    ("known", "told"),
    [((2, 3), (0, 3)), ((2, 3), (2, 0)), ((2, 3), ()), ((0, 3), (2, 0)), ((0, 3), ()), ((2, 3), (2, 3, 1))],
)
def test_a_shape_that_contradicts_what_is_known(
    sufficient: bool, known: tuple[int, ...], told: tuple[int, ...]
) -> None:
    """A 0 in a result is an empty tensor, not a size not known."""
    shapes = (OutputShape(told, sufficient),)
    insufficient = HalError(ErrorStatus.OUTPUT_INSUFFICIENT_SIZE, "no", shapes)
    device = Replying("execute_synchronously", ExecutionResult(shapes) if sufficient else insufficient)
    check(device, Execution.compute, "the driver's shape of output 0: .* contradict", known)


@pytest.mark.parametrize("dims", [[2, 3], (np.int64(2), np.int32(3))])
def test_sizes_in_another_form_are_integers(dims: Sequence[int]) -> None:
    """What is read with the dimensions of a result finds them equal."""
    device = SampleDevice("sample")
    compilation = finished(chain_model([RELU], ()), [device])
    device.script.result = ExecutionResult([OutputShape(dims)])  # type: ignore[arg-type]
    memory = memory_between(compilation)
    first, second = Execution(compilation), Execution(compilation)
    first.set_input(0, numbers(2, 3), tensor(2, 3))
    first.set_output_from_memory(0, memory)
    second.set_input_from_memory(0, memory, operand_type=tensor(2, 3))
    second.set_output(0, numbers(2, 3), tensor(2, 3))
    first.compute()
    second.compute()
    found = second.get_output_operand_dimensions(0)
    assert (found, [type(size) for size in found]) == ((2, 3), [int, int])


def test_sizes_needed_in_another_form_are_integers() -> None:
    shapes = [OutputShape([2, np.int64(3)], False)]  # type: ignore[arg-type]
    device = Replying("execute_synchronously", HalError(ErrorStatus.OUTPUT_INSUFFICIENT_SIZE, "no", shapes))  # type: ignore[arg-type]
    execution, _ = bound(finished(chain_model([RELU], (0, 3)), [device]))
    with pytest.raises(OutputInsufficientSize) as caught:
        execution.compute()
    assert caught.value.shapes == ((2, 3),)
    assert execution.get_output_operand_dimensions(0) == (2, 3)


def test_a_result_has_a_rank() -> None:
    device = Replying("execute_synchronously", ExecutionResult((OutputShape(()),)))
    check(device, Execution.compute, "a tensor without dimensions", ())


def test_the_same_reply_is_checked_for_every_request() -> None:
    """A driver may give the same object again, though the application wants another size."""
    device = SampleDevice("sample")
    compilation = finished(chain_model([RELU], (0, 3)), [device])
    device.script.result = ExecutionResult((OutputShape((2, 3)),))
    bound(compilation)[0].compute()
    execution, output = Execution(compilation), np.zeros((4, 3), np.float32)
    execution.set_input(0, numbers(4, 3), tensor(4, 3))
    execution.set_output(0, output, tensor(4, 3))
    with pytest.raises(OperationFailed, match="the driver's shape of output 0"):
        execution.compute()


@pytest.mark.parametrize("timing", [None, Timing("1", 2)])  # type: ignore[arg-type]
def test_a_time_that_is_none(timing: Timing) -> None:
    device = Replying("execute_synchronously", ExecutionResult((), timing))
    execution, _ = bound(finished(chain_model([RELU]), [device]))
    execution.set_measure_timing(True)
    with pytest.raises(OperationFailed, match="execute: "):
        execution.compute()


@pytest.mark.parametrize("reply", [None, 5, (ExecutionResult(), 5)])
def test_a_profile_that_is_none(reply: object) -> None:
    check(Replying("execute_profiled", reply), Execution.compute_profiled, "execute")


@pytest.mark.parametrize("reply", [None, 5, ValueError("no")])
def test_a_prepared_model_that_is_none(reply: object) -> None:
    device = SampleDevice("replying")

    def prepare(*_arguments: object) -> object:
        if isinstance(reply, Exception):
            raise reply
        return reply

    device.prepare_model = prepare  # type: ignore[assignment, method-assign]
    with pytest.raises(OperationFailed, match="compilation: prepare_model: "):
        finished(chain_model([RELU]), [device])
    compilation = finished(chain_model([RELU]), [device], fallback=True)
    assert compilation.plan is not None
    assert compilation.plan.steps[0].device.is_reference


@pytest.mark.parametrize("reply", [None, 5, ValueError("no")])
@pytest.mark.parametrize("call", ["configure_execution_burst", "create_reusable_execution"])
def test_what_a_driver_need_not_give_is_done_without(call: str, reply: object) -> None:
    compilation = finished(chain_model([RELU]), [Replying(call, reply)])
    execution, output = bound(compilation)
    execution.set_reusable(True)
    execution.compute()
    with Burst(compilation) as burst:
        execution.burst_compute(burst)
    np.testing.assert_array_equal(output, np.maximum(numbers(2, 3), 0))


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (None, "execute_fenced: wanted two values from the driver, got NoneType"),
        ((None,), "execute_fenced: wanted two values from the driver"),
        ((None, None), "execute_fenced: wanted an IFencedExecutionCallback from the driver, got NoneType"),
        (("3", DONE), "execute_fenced: the fence: wanted an int from the driver, got '3'"),
        ((10**6, DONE), "execute_fenced: sync fence: 1000000 is no open descriptor"),
    ],
)
def test_a_fence_that_is_none(reply: object, message: str) -> None:
    device = Replying("execute_fenced", reply)
    check(device, lambda execution: execution.start_compute_with_dependencies([]).wait(), message)


class Telling:
    """What a fenced execution replies when it is asked for its times."""

    def __init__(self, reply: object) -> None:
        self.reply = reply

    def get_execution_info(self) -> object:
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply


@pytest.mark.parametrize("reply", [None, (1, 2), ValueError("no")])
@pytest.mark.parametrize("succeeded", [True, False])
def test_times_of_a_fenced_execution_that_are_none(reply: object, succeeded: bool) -> None:
    fence = fences.Fence()
    fence.signal(succeeded)
    execution, _ = bound(
        finished(chain_model([RELU]), [Replying("execute_fenced", (fence.duplicate(), Telling(reply)))])
    )
    execution.set_measure_timing(True)
    event = execution.start_compute_with_dependencies([])
    if succeeded:
        event.wait()
        with pytest.raises(BadState, match="get_duration: get_execution_info: "):
            execution.get_duration(DurationCode.ON_HARDWARE)
    else:
        with pytest.raises(OperationFailed, match="fenced execution: get_execution_info: "):
            event.wait()


@pytest.mark.parametrize("timing", [Timing(5, 10), Timing(10, 5)])
def test_times_that_were_not_asked_for_are_dropped(timing: Timing) -> None:
    main = add_model().main
    outputs = [main.operands[i] for i in main.output_indexes]
    ones = np.ones((2, 2), np.float32)
    reply = ExecutionResult((OutputShape((2, 2)),), timing)
    checked = checked_result(outputs, reply, request([ones, ones], [ones]), measure=False)
    assert checked == ExecutionResult((OutputShape((2, 2)),), Timing())
