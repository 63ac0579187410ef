# SPDX-License-Identifier: Apache-2.0
"""Turns of executions: a second one alone where there was no room beside others, and no slot is kept."""

from __future__ import annotations

import time
import weakref
from typing import TYPE_CHECKING, Any

import pyopencl as cl
import pytest

from gpu_driver.device.scheduler import Scheduler, Slot
from gpu_driver.execution.turns import check_deadline, in_turn
from nn_runtime.hal.types import ErrorStatus, HalError, Priority
from tests.gpu_driver.running import opencl_error

if TYPE_CHECKING:
    from gpu_driver.execution.recorded import Recorded

NO_ROOM = HalError(ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, "no room")
OTHER = HalError(ErrorStatus.GENERAL_FAILURE, "other")


class Failing:
    """Executions of which the first ones fail, the very first beside another one if it is told."""

    def __init__(self, scheduler: Scheduler, *failures: BaseException) -> None:
        self.free: list[int] = []
        self._scheduler = scheduler
        self._failures = list(failures)

    def __call__(self, beside: bool) -> str:
        self.free.append(self._scheduler._free)
        if not self._failures:
            return "done"
        failure = self._failures.pop(0)
        if beside and len(self.free) == 1:
            with self._scheduler.slot(Priority.MEDIUM):
                pass
        raise failure


def slots_free(scheduler: Scheduler) -> bool:
    with scheduler.alone(Priority.MEDIUM, time.monotonic_ns()):
        return True


@pytest.mark.parametrize("failure", [NO_ROOM, opencl_error(cl.status_code.OUT_OF_RESOURCES)])
def test_what_had_no_room_beside_others_has_every_slot_the_second_time(failure: BaseException) -> None:
    scheduler = Scheduler(3)
    execute = Failing(scheduler, failure)
    events: list[Recorded] = [None]  # type: ignore[list-item]
    assert in_turn(scheduler.slot(Priority.MEDIUM), events, execute, True) == "done"
    assert execute.free == [2, 0]
    assert events == []
    assert slots_free(scheduler)


@pytest.mark.parametrize("failures, beside", [([NO_ROOM], False), ([OTHER], True), ([NO_ROOM, NO_ROOM], True)])
def test_what_cannot_succeed_fails(failures: list[HalError], beside: bool) -> None:
    scheduler = Scheduler(3)
    execute = Failing(scheduler, *failures)
    with pytest.raises(HalError) as caught:
        in_turn(scheduler.slot(Priority.MEDIUM), None, execute, beside)
    assert caught.value is failures[-1]
    assert len(execute.free) == len(failures)
    assert slots_free(scheduler)


def test_errors_of_opencl_are_told_as_the_hals() -> None:
    scheduler = Scheduler(1)
    error = opencl_error(cl.status_code.INVALID_KERNEL_ARGS)
    with pytest.raises(HalError, match="execution: clTest failed: INVALID_KERNEL_ARGS") as caught:
        in_turn(scheduler.slot(Priority.MEDIUM), None, Failing(scheduler, error), False)
    assert caught.value.status == ErrorStatus.GENERAL_FAILURE
    assert slots_free(scheduler)


@pytest.mark.parametrize("failure", [OTHER, NO_ROOM])
@pytest.mark.parametrize("is_caused", [False, True])
def test_an_error_that_is_kept_keeps_nothing_of_what_failed(failure: HalError, is_caused: bool) -> None:
    """Neither of the first turn nor of a second, nor what the cause of the error has."""
    scheduler, kept = Scheduler(3), weakref.WeakSet[Scheduler]()

    def fail() -> None:
        memory = Scheduler(1)
        kept.add(memory)
        raise HalError(failure.status, "it fails")

    def execute() -> None:
        if scheduler._free:  # the first turn: beside another one
            with scheduler.slot(Priority.MEDIUM):
                pass
        if not is_caused:
            fail()
        try:
            fail()
        except HalError as error:
            raise HalError(error.status, "because of it") from error

    with pytest.raises(HalError) as caught:
        in_turn(scheduler.slot(Priority.MEDIUM), None, execute)
    assert list(kept) == []
    assert (caught.value.__cause__ is not None) == is_caused


def test_an_interrupt_leaves_no_slot_taken() -> None:
    scheduler = Scheduler(2)
    with pytest.raises(KeyboardInterrupt):
        in_turn(scheduler.slot(Priority.MEDIUM), None, Failing(scheduler, KeyboardInterrupt()), True)
    with pytest.raises(KeyboardInterrupt):
        in_turn(scheduler.slot(Priority.MEDIUM), None, Failing(scheduler, NO_ROOM, KeyboardInterrupt()), True)
    assert slots_free(scheduler)


@pytest.mark.parametrize("failures", [[], [NO_ROOM]])
def test_an_interrupt_of_who_leaves_costs_no_slot(monkeypatch: pytest.MonkeyPatch, failures: list[HalError]) -> None:
    """Neither that of the first turn nor, after a failure, those of the second."""
    scheduler = Scheduler(3)
    slot, execute = scheduler.slot(Priority.MEDIUM), Failing(scheduler, *failures)
    leave, lasting = Slot.__exit__, [*failures, KeyboardInterrupt()]

    def interrupted(one: Slot, *failure: Any) -> None:
        if failure[0] is None and len(execute.free) == len(lasting) and one._holder and len(lasting) < 9:
            lasting[:] = [KeyboardInterrupt()] * 9
            raise lasting[-1]
        leave(one, *failure)

    monkeypatch.setattr(Slot, "__exit__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        in_turn(slot, None, execute, True)
    monkeypatch.undo()
    assert slots_free(scheduler)


def test_a_deadline_that_has_passed() -> None:
    check_deadline(None)
    check_deadline(time.monotonic_ns() + 10**12)
    with pytest.raises(HalError) as caught:
        check_deadline(time.monotonic_ns() - 1)
    assert caught.value.status == ErrorStatus.MISSED_DEADLINE_PERSISTENT
