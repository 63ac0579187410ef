# SPDX-License-Identifier: Apache-2.0
"""The line for a device: order, deadlines, interruptions, and the end of the interpreter."""

from __future__ import annotations

import heapq
import sys
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from gpu_driver.device import scheduler as module
from gpu_driver.device.scheduler import Scheduler
from nn_runtime.hal.types import ErrorStatus, HalError, Priority
from tests.gpu_driver.running import at_once, until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

LOW, MEDIUM, HIGH = Priority


def order_of_service(scheduler: Scheduler, arrivals: Sequence[tuple[str, Priority]]) -> list[str]:
    """Let threads arrive one after the other at a scheduler of one slot that is taken; return who was served when."""
    served: list[str] = []

    def body(name: str, priority: Priority) -> None:
        with scheduler.slot(priority):
            served.append(name)

    threads = [threading.Thread(target=body, args=arrival, daemon=True) for arrival in arrivals]
    with scheduler.slot(LOW):
        for place, thread in enumerate(threads):
            thread.start()
            until(lambda place=place: scheduler.waiting == place + 1)  # type: ignore[misc]
        assert served == []
    for thread in threads:
        thread.join(60)
    return served


def free_slots(scheduler: Scheduler) -> int:
    taken = []
    try:
        while True:
            slot = scheduler.slot(LOW, time.monotonic_ns())
            slot.__enter__()
            taken.append(slot)
    except HalError:
        for slot in taken:
            slot.__exit__(None, None, None)
    return len(taken)


def test_a_deadline_in_the_far_future_is_waited_for() -> None:
    """No thread can be told to wait for so many centuries."""
    scheduler, failures = Scheduler(1), list[BaseException]()
    with scheduler.slot(LOW):

        def body() -> None:
            try:
                with scheduler.slot(LOW, 2**64 - 1):
                    pass
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=body, daemon=True)
        thread.start()
        until(lambda: scheduler.waiting == 1 or not thread.is_alive())
    thread.join(60)
    assert not thread.is_alive()
    assert failures == []


def test_only_the_thread_that_holds_a_slot_gives_it_up() -> None:
    scheduler = Scheduler(1)
    slot = scheduler.slot(LOW)
    with slot:
        other = threading.Thread(target=slot.abandon)
        other.start()
        other.join(60)
        assert free_slots(scheduler) == 0
    assert free_slots(scheduler) == 1


def test_priority_goes_before_arrival() -> None:
    arrivals = [("a", LOW), ("b", MEDIUM), ("c", HIGH), ("d", LOW), ("e", HIGH), ("f", MEDIUM)]
    assert "".join(order_of_service(Scheduler(1), arrivals)) == "cebfad"


def test_a_deadline_ends_the_waiting_and_costs_no_slot() -> None:
    scheduler = Scheduler(2)
    with scheduler.slot(HIGH), scheduler.slot(HIGH):
        with pytest.raises(HalError) as caught, scheduler.slot(HIGH, time.monotonic_ns() + 1_000_000):
            pass
        assert caught.value.status == ErrorStatus.MISSED_DEADLINE_TRANSIENT
        assert scheduler.waiting == 0
    assert free_slots(scheduler) == 2


def test_who_is_alone_waits_for_all_and_all_for_it() -> None:
    scheduler, inside = Scheduler(3), list[str]()

    def body(name: str) -> None:
        for _ in range(50):
            with scheduler.alone(MEDIUM) if name == "alone" else scheduler.slot(MEDIUM):
                inside.append(name)
                assert "alone" not in inside or inside == ["alone"]
                inside.remove(name)

    assert at_once([partial(body, name) for name in ("alone", "alone", "a", "b", "c")]) == []
    assert free_slots(scheduler) == 3


def test_a_deadline_ends_the_waiting_for_all_slots_and_costs_none() -> None:
    scheduler = Scheduler(2)
    with scheduler.slot(HIGH):
        with pytest.raises(HalError) as caught, scheduler.alone(HIGH, time.monotonic_ns() + 1_000_000):
            pass
        assert caught.value.status == ErrorStatus.MISSED_DEADLINE_TRANSIENT
        assert free_slots(scheduler) == 1
    with scheduler.alone(HIGH):
        assert free_slots(scheduler) == 0
    assert free_slots(scheduler) == 2


def test_one_slot_is_never_shared() -> None:
    """As on the device without threads; who is alone there takes the slot once."""
    scheduler = Scheduler(1)
    slot = scheduler.slot(LOW)
    with pytest.raises(ZeroDivisionError), slot:
        scheduler._left += 1  # as if it had waited for the one before
        raise ZeroDivisionError
    assert not slot.was_shared
    with scheduler.alone(LOW, time.monotonic_ns()):
        assert free_slots(scheduler) == 0
    assert free_slots(scheduler) == 1


def test_what_failed_knows_whether_it_was_alone() -> None:
    scheduler = Scheduler(2)
    slot, beside = scheduler.slot(LOW), scheduler.slot(LOW)

    def fail(*during: Callable[[], object]) -> bool:
        with pytest.raises(ZeroDivisionError), slot:
            for call in during:
                call()
            raise ZeroDivisionError
        return slot.was_shared

    def left() -> None:
        beside.__exit__(None, None, None)

    assert not fail()
    assert fail(beside.__enter__)
    assert fail(left)
    assert fail(beside.__enter__, left)
    assert not fail()


@pytest.mark.parametrize("in_time", [False, True])
def test_an_interruption_while_waiting_costs_no_slot(monkeypatch: pytest.MonkeyPatch, in_time: bool) -> None:
    """Interrupted before the turn came, and after."""
    scheduler = Scheduler(1)
    held = scheduler.slot(LOW)
    held.__enter__()

    def interrupted(turn: object, deadline_ns: int | None) -> NoReturn:
        if in_time:
            held.__exit__(None, None, None)
        raise KeyboardInterrupt

    monkeypatch.setattr(module._Turn, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt), scheduler.slot(LOW):
        pass
    monkeypatch.undo()
    if not in_time:
        held.__exit__(None, None, None)
    assert scheduler.waiting == 0
    assert free_slots(scheduler) == 1


@pytest.mark.parametrize("before", [False, True])
def test_an_interruption_of_who_leaves_reaches_nobody_else(monkeypatch: pytest.MonkeyPatch, before: bool) -> None:
    """Interrupted before whoever waits is let in, and after."""
    scheduler, served, interrupts = Scheduler(1), list[bool](), [KeyboardInterrupt()]
    come = module._Turn.come

    def interrupted(turn: module._Turn) -> None:
        if not before:
            come(turn)
        if interrupts:
            raise interrupts.pop()
        come(turn)

    def body() -> None:
        with scheduler.slot(LOW):
            served.append(True)

    monkeypatch.setattr(module._Turn, "come", interrupted)
    waiting = threading.Thread(target=body, daemon=True)
    slot = scheduler.slot(LOW)
    try:
        with slot:
            waiting.start()
            until(lambda: scheduler.waiting == 1)
    except KeyboardInterrupt:
        slot.abandon()
    waiting.join(60)
    assert served == [True]
    assert not interrupts
    assert free_slots(scheduler) == 1


def test_an_interruption_as_the_line_is_joined_costs_no_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = Scheduler(1)
    push = heapq.heappush

    def interrupted(heap: list[module._Turn], turn: module._Turn) -> None:
        push(heap, turn)
        raise KeyboardInterrupt

    with scheduler.slot(LOW):
        monkeypatch.setattr(heapq, "heappush", interrupted)
        with pytest.raises(KeyboardInterrupt), scheduler.slot(LOW):
            pass
        monkeypatch.undo()
        assert scheduler.waiting == 0
    assert free_slots(scheduler) == 1


def test_an_interruption_of_who_was_alone_costs_no_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler, interrupts = Scheduler(3), [KeyboardInterrupt()]
    leave = module.Slot.__exit__

    def interrupted(slot: module.Slot, *failure: object) -> None:
        if interrupts and scheduler._free == 1:
            raise interrupts.pop()
        leave(slot, None, None, None)

    monkeypatch.setattr(module.Slot, "__exit__", interrupted)
    alone = scheduler.alone(LOW)
    try:
        with alone:
            pass
    except KeyboardInterrupt:
        alone.abandon()
    assert not interrupts
    assert free_slots(scheduler) == 3
    with scheduler.alone(LOW, time.monotonic_ns()):
        pass


def test_leaving_the_line_keeps_its_order() -> None:
    scheduler = Scheduler(1)
    turns = [module._Turn(LOW, arrival) for arrival in (0, 2, 1, 3)]
    scheduler._waiting = list(turns)
    scheduler._withdraw(turns[0])
    served = []
    while scheduler.waiting:
        served.append(scheduler._waiting[0]._order[1])
        scheduler.slot(LOW).__exit__(None, None, None)
    assert served == [1, 2, 3]


def test_never_more_than_the_slots_and_none_is_lost() -> None:
    scheduler = Scheduler(3)
    lock = threading.Lock()
    inside = 0
    most = 0

    def body(seed: int) -> None:
        nonlocal inside, most
        for at in range(100):
            deadline_ns = time.monotonic_ns() + (seed * 7 + at) % 50 * 10_000 if seed % 2 else None
            try:
                with scheduler.slot(Priority((seed + at) % 3), deadline_ns):
                    with lock:
                        inside += 1
                        most = max(most, inside)
                    with lock:
                        inside -= 1
            except HalError as error:
                assert deadline_ns is not None and error.status == ErrorStatus.MISSED_DEADLINE_TRANSIENT

    assert at_once([lambda seed=seed: body(seed) for seed in range(12)]) == []  # type: ignore[misc]
    assert inside == 0
    assert 1 <= most <= 3
    assert free_slots(scheduler) == 3


def test_the_end_waits_for_those_inside_and_lets_nobody_in() -> None:
    scheduler = Scheduler(2)
    inside, leave = threading.Event(), threading.Event()
    ended: list[str] = []

    def working() -> None:
        with scheduler.slot(LOW):
            inside.set()
            assert leave.wait(60)
            ended.append("work")

    def closing() -> None:
        assert scheduler.close(60)
        ended.append("close")

    def late() -> None:
        with scheduler.slot(HIGH):
            ended.append("late")

    worker, closer = threading.Thread(target=working), threading.Thread(target=closing)
    latecomer = threading.Thread(target=late, daemon=True)
    worker.start()
    assert inside.wait(60)
    closer.start()
    until(lambda: scheduler.waiting == 1)
    latecomer.start()
    until(lambda: scheduler.waiting == 2)
    with pytest.raises(HalError) as caught, scheduler.slot(HIGH):
        pass
    assert caught.value.status == ErrorStatus.DEVICE_UNAVAILABLE
    leave.set()
    worker.join(60)
    closer.join(60)
    assert ended == ["work", "close"]
    assert scheduler.waiting == 1


def test_the_end_does_not_wait_for_ever() -> None:
    scheduler = Scheduler(1)
    with scheduler.slot(LOW):
        assert not scheduler.close(0.01)


@pytest.mark.parametrize(("event", "function"), [("return", "__enter__"), ("call", "__exit__")])
def test_an_interrupt_on_the_way_in_or_out_loses_no_slot(event: str, function: str) -> None:
    def interrupt(frame: FrameType, what: str, _: object) -> Any:
        if frame.f_code.co_filename == module.__file__ and (what, frame.f_code.co_name) == (event, function):
            sys.settrace(None)
            raise KeyboardInterrupt
        return interrupt

    scheduler = Scheduler(1)
    slot = scheduler.slot(MEDIUM)
    before = sys.gettrace()
    try:
        sys.settrace(interrupt)
        with slot:
            pass
        pytest.fail("there was no interrupt")
    except KeyboardInterrupt:
        slot.abandon()
    finally:
        sys.settrace(before)
    slot.abandon()  # not held: nothing happens
    assert scheduler.close(0.0), "every slot is free"


def test_a_slot_that_was_waited_for_can_be_abandoned() -> None:
    scheduler = Scheduler(1)
    held = scheduler.slot(MEDIUM)

    def work() -> None:
        slot = scheduler.slot(MEDIUM)
        slot.__enter__()
        slot.abandon()

    thread = threading.Thread(target=work, daemon=True)
    with held:
        thread.start()
        until(lambda: scheduler.waiting == 1)
    thread.join(60)
    with scheduler.slot(MEDIUM, time.monotonic_ns()):
        pass


def test_who_wants_all_slots_waits_until_the_deadline() -> None:
    scheduler = Scheduler(2)
    slot, held = scheduler.slot(MEDIUM, time.monotonic_ns()), scheduler.slot(MEDIUM)
    held.__enter__()
    release = threading.Timer(5, held.__exit__, (None, None, None))  # it comes too late
    release.start()
    with pytest.raises(HalError) as caught, slot.alone():
        pass
    release.cancel()
    assert caught.value.status == ErrorStatus.MISSED_DEADLINE_TRANSIENT
