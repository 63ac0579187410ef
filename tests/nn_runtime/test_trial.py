# SPDX-License-Identifier: Apache-2.0
"""Trials: which of some plans is the fastest, when a first run tries them, and what it leaves behind."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import nn_runtime as nn
from nn_runtime import session, trial
from nn_runtime.codes import OperationCode, PreferenceCode
from nn_runtime.cost import RIVAL_FACTOR
from nn_runtime.device import REFERENCE_NAME, Device
from nn_runtime.devices import reference_device
from nn_runtime.errors import BadState, OperationFailed
from nn_runtime.execution import Execution
from nn_runtime.hal.types import ErrorStatus
from nn_runtime.network import Network
from nn_runtime.testing.sample_drivers import SampleDevice, SamplePreparedModel
from tests.nn_runtime.graphs import chain_model, finished, numbers
from tests.nn_runtime.test_partition import plan_of
from tests.nn_runtime.tflite.test_converter import CASES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from nn_runtime.hal.types import ExecutionResult
    from nn_runtime.session import Session

RELU, TANH = OperationCode.RELU, OperationCode.TANH
DATA = numbers(2, 3)


class Clock:
    """Time that passes only while a plan runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.runs = 0
        monkeypatch.setattr(trial.time, "perf_counter", lambda: self.now)

    def plan(self, *durations: float) -> Callable[[], None]:
        """Return a plan whose runs take these seconds in turn."""
        times = itertools.cycle(durations)

        def run() -> None:
            self.runs += 1
            self.now += next(times)

        return run


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.mark.parametrize("times", [(3e-4, 1e-4, 2e-4), (0.3, 0.1, 0.2), (1.1e-5, 1e-5, 1.2e-5)])
def test_the_fastest_of_plans_wins(clock: Clock, times: Sequence[float]) -> None:
    assert trial.fastest([clock.plan(duration) for duration in times]) == 1


def test_the_first_wins_a_tie(clock: Clock) -> None:
    assert trial.fastest([clock.plan(1e-4) for _ in range(3)]) == 0


def test_a_few_disturbed_runs_do_not_decide(clock: Clock) -> None:
    disturbed = clock.plan(*[1e-4] * 30, 0.01)
    assert trial.fastest([clock.plan(1.2e-4), disturbed]) == 1


def test_one_disturbed_run_leaves_nobody_out(clock: Clock) -> None:
    assert trial.fastest([clock.plan(1.2e-3), clock.plan(0.5, *[1e-3] * 1000)]) == 1


def test_a_trial_ends_when_it_is_decided_and_when_its_time_is_over(clock: Clock) -> None:
    trial.fastest([clock.plan(1e-3), clock.plan(2e-3)])
    decided = clock.now - 100
    assert decided < 1.2 * 2 * trial.SURE_ROUNDS * trial.SLICE_SECONDS
    trial.fastest([clock.plan(*[1e-3] * 60, *[1.3e-3] * 60) for _ in range(2)])
    equal = clock.now - 100 - decided
    assert 2 * trial.LEAST_SECONDS <= equal < 2 * trial.LEAST_SECONDS + 2 * (trial.SLICE_SECONDS + 2e-3)
    in_turn = [1e-3] * 6 + [1.3e-3] * 5
    trial.fastest([clock.plan(*in_turn), clock.plan(*in_turn[::-1])])
    undecided = clock.now - 100 - decided - equal
    assert 2 * trial.MOST_SECONDS <= undecided < 2 * trial.MOST_SECONDS + 2 * (trial.SLICE_SECONDS + 2e-3)


def test_other_work_on_the_machine_does_not_decide(clock: Clock) -> None:
    """The faster plan is slow for three slices: while no plan is the best in most rounds, there are more of them."""
    slower, faster = clock.plan(1.1e-3), clock.plan(*[2e-3] * 9, *[1e-3] * 1000)
    assert trial.fastest([slower, faster]) == 1
    assert clock.now - 100 > 2 * trial.LEAST_SECONDS + 2 * trial.SLICE_SECONDS


def test_slow_plans_run_a_few_times_alone(clock: Clock) -> None:
    trial.fastest([clock.plan(1.0), clock.plan(1.1)])
    assert clock.runs == 2 * trial.FEWEST_ROUNDS


def test_a_plan_that_is_far_slower_is_soon_left_out(clock: Clock) -> None:
    slow = clock.plan(10.0)
    assert trial.fastest([slow, clock.plan(1.1), clock.plan(1.0)]) == 2
    assert clock.runs == 2 + 2 * trial.FEWEST_ROUNDS


def failing(clock: Clock, duration: float) -> Callable[[], None]:
    """Return a plan that fails at its third run."""
    plan, left = clock.plan(duration), iter(range(2))

    def run() -> None:
        plan()
        if next(left, None) is None:
            raise OperationFailed("as told")

    return run


def test_a_plan_that_fails_is_out_of_the_race(clock: Clock) -> None:
    assert trial.fastest([clock.plan(2e-4), failing(clock, 5e-5), clock.plan(1e-4)]) == 2
    assert trial.fastest([clock.plan(1e-4), failing(clock, 5e-5)]) == 0


def test_where_all_that_race_fail_one_that_was_left_out_before_is_taken(clock: Clock) -> None:
    assert trial.fastest([clock.plan(10.0), failing(clock, 1.0), failing(clock, 1.0)]) == 0
    assert trial.fastest([clock.plan(10.0), failing(clock, 1.0), clock.plan(9.0), failing(clock, 1.0)]) == 2


def test_the_first_plan_that_fails_raises(clock: Clock) -> None:
    """It is the one that the session has: there is nothing to go on with."""
    with pytest.raises(OperationFailed, match="as told"):
        trial.fastest([failing(clock, 1e-4), clock.plan(1e-4)])


class Devices:
    """Devices whose estimates are so many times that of the first."""

    def __init__(self, *factors: float, version: str = "sample") -> None:
        codes = (RELU, TANH, OperationCode.ADD)
        self.hal = [
            SampleDevice(f"sample{at}", estimates_ns={code: round(10**6 * factor) for code in codes}, version=version)
            for at, factor in enumerate(factors)
        ]
        self.listed = [Device(hal) for hal in self.hal]

    def compile(self, codes: Sequence[OperationCode] = (RELU, TANH), **options: object) -> Session:
        network = Network.from_model(chain_model(list(codes)))
        return network.compile(self.listed, **options)  # type: ignore[arg-type]

    def executions(self) -> list[int]:
        return [len(hal.record.requests) for hal in self.hal]


def give(monkeypatch: pytest.MonkeyPatch, winner: int) -> None:
    """Make a plan the winner of trials after a run of each."""

    def fastest(runs: Sequence[Callable[[], object]]) -> int:
        for run in runs:
            run()
        return winner

    monkeypatch.setattr(session, "fastest", fastest)


@pytest.mark.parametrize("winner", [0, 1, 2])
def test_the_first_run_moves_a_network_to_the_fastest(monkeypatch: pytest.MonkeyPatch, winner: int) -> None:
    give(monkeypatch, winner)
    devices = Devices(1, 1.4, 1.2, 2 * RIVAL_FACTOR)
    with devices.compile() as compiled:
        assert compiled.devices_used == ("sample0",)
        assert compiled.rivals == ("sample2", "sample1")
        (first,) = compiled.run(DATA)
        np.testing.assert_allclose(first, np.tanh(np.maximum(DATA, 0)), rtol=1e-6)
        assert compiled.rivals == ()
        name = ("sample0", "sample2", "sample1")[winner]
        assert compiled.devices_used == (name,)
        assert {row.device for row in compiled.explain().operations} == {name}
        before = devices.executions()
        compiled.run(DATA)
        after = devices.executions()
        assert [hal.name for hal, a, b in zip(devices.hal, before, after, strict=True) if a != b] == [name]
        assert after[3] == 0


@pytest.mark.parametrize("winner", [0, 1, 2])
def test_a_trial_frees_all_but_the_winner(monkeypatch: pytest.MonkeyPatch, winner: int) -> None:
    give(monkeypatch, winner)
    with Devices(1, 1.1, 1.2).compile() as compiled:
        plans = [one.compilation.plan for one in (compiled._runner, *compiled._rivals)]
        compiled.run(DATA)
        assert [plan is not None and plan.is_closed for plan in plans] == [at != winner for at in range(3)]


@pytest.mark.parametrize("options", [{"trial": False}, {"partition": "aosp"}, {"preference": PreferenceCode.LOW_POWER}])
def test_where_nothing_is_tried(options: dict[str, object]) -> None:
    devices = Devices(1, 1)
    with devices.compile(**options) as compiled:
        assert compiled.rivals == ()
        compiled.run(DATA)
    assert sorted(devices.executions()) == [0, 1]


def test_a_rival_that_fails_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, 1)
    devices = Devices(1, 1.1, 1.2, 1.3)
    devices.hal[1].script.prepare = ErrorStatus.DEVICE_UNAVAILABLE
    with devices.compile() as compiled:
        assert compiled.rivals == ("sample2", "sample3")
        devices.hal[2].script.execute = ErrorStatus.GENERAL_FAILURE
        compiled.run(DATA)
        assert compiled.devices_used == ("sample3",)


def test_a_rival_that_takes_far_longer_runs_once_and_no_longer_than_that(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Estimates may be wrong by orders of magnitude; its driver is told when to stop."""
    give(monkeypatch, 1)
    monkeypatch.setattr(trial, "FIRST_RUN_SECONDS", 0.05)
    devices = Devices(1, 1.1, 1.2)
    whole = SamplePreparedModel.execute_synchronously

    def slow(self: SamplePreparedModel, *arguments: Any) -> ExecutionResult:
        if self.device.name == "sample1":
            time.sleep(0.4)
        return whole(self, *arguments)

    monkeypatch.setattr(SamplePreparedModel, "execute_synchronously", slow)
    with devices.compile() as compiled:
        compiled.run(DATA)
        assert compiled.devices_used == ("sample2",)
        compiled.run(DATA)
    assert devices.executions()[1] == 1
    assert not caplog.records


def test_a_rival_may_take_its_time_where_sizes_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it builds for them is built at its first run, and no measure of it."""
    give(monkeypatch, 1)
    timeouts: list[int] = []
    whole = Execution.compute

    def noted(self: Execution, *arguments: Any, timeout_ns: int = 0) -> None:
        timeouts.append(timeout_ns)
        whole(self, *arguments, timeout_ns=timeout_ns)

    monkeypatch.setattr(Execution, "compute", noted)
    for dims, is_limited in ((0, 3), False), ((2, 3), True):
        timeouts.clear()
        with Network.from_model(chain_model([RELU, TANH], dims=dims)).compile(Devices(1, 1.1).listed) as compiled:
            assert compiled.rivals == ("sample1",)
            compiled.run(DATA)
            assert compiled.devices_used == ("sample1",)
        assert any(timeouts) == is_limited


@pytest.mark.parametrize(
    ("unprepared", "left"), [(None, ["sample1", REFERENCE_NAME]), (0, ["sample1"]), (1, [REFERENCE_NAME])]
)
def test_the_cpu_device_that_takes_over_is_tried_once(unprepared: int | None, left: list[str]) -> None:
    """In place of the plan, or of a rival that cannot be prepared: there it would be timed against itself."""
    model = chain_model([RELU] * 30)
    cpu_ns = reference_device().hal.explain_operations(model.hal)[0].estimated_ns
    devices = Devices(*(share * cpu_ns * 1e-6 for share in (0.5, 0.6)))
    if unprepared is not None:
        devices.hal[unprepared].script.prepare = ErrorStatus.GENERAL_FAILURE
    compilation = finished(model, devices.hal, fallback=True, partition="cost")
    assert plan_of(compilation).rivals == ("sample1", REFERENCE_NAME)
    assert [step.device.name for rival in compilation.rivals() for step in plan_of(rival).steps] == left


def test_a_plan_that_fails_raises_and_leaves_the_choice_open(monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, 1)
    devices = Devices(1, 1.1)
    with devices.compile() as compiled:
        devices.hal[0].script.execute = ErrorStatus.GENERAL_FAILURE
        with pytest.raises(OperationFailed):
            compiled.run(DATA)
        assert compiled.rivals == ("sample1",)
        devices.hal[0].script.execute = None
        compiled.run(DATA)
        assert compiled.devices_used == ("sample1",)


def test_a_session_closed_before_its_first_run_frees_its_rivals() -> None:
    devices = Devices(1, 1.1)
    compiled = devices.compile()
    (rival,) = compiled._rivals
    compiled.close()
    with pytest.raises(BadState, match="closed"):
        rival.compilation.finished_plan("test")


@pytest.mark.parametrize("winner", [0, 1])
def test_a_trial_leaves_states_as_they_begin(monkeypatch: pytest.MonkeyPatch, winner: int) -> None:
    give(monkeypatch, winner)
    file, _ = next(case for case in CASES if case.code == "UNIDIRECTIONAL_SEQUENCE_LSTM").file()
    data = np.random.default_rng(0).uniform(-1, 1, (2, 5, 3)).astype(np.float32)
    estimates = {OperationCode.UNIDIRECTIONAL_SEQUENCE_LSTM: 10**6}
    devices = [Device(SampleDevice(name, estimates_ns=estimates)) for name in ("first", "second")]
    with nn.load(file).compile("cpu") as wanted, nn.load(file).compile(devices) as tried:
        assert tried.rivals == ("second",)
        for _ in range(3):
            np.testing.assert_array_equal(tried.run(data)[0], wanted.run(data)[0])


def test_the_cache_folder_keeps_the_winner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    give(monkeypatch, 1)
    with Devices(1, 1.1).compile(cache_dir=tmp_path) as compiled:
        compiled.run(DATA)
    with Devices(1, 1.1).compile(cache_dir=tmp_path) as compiled:
        assert (compiled.devices_used, compiled.rivals) == (("sample1",), ())
        np.testing.assert_allclose(compiled.run(DATA)[0], np.tanh(np.maximum(DATA, 0)), rtol=1e-6)
    with Devices(1, 1.1).compile(cache_dir=tmp_path, partition="aosp") as compiled:
        assert compiled.devices_used == ("sample0",)
    for other in ({"model_token": "another"}, {"preference": PreferenceCode.SUSTAINED_SPEED}):
        with Devices(1, 1.1).compile(cache_dir=tmp_path, **other) as compiled:
            assert compiled.rivals == ("sample1",)
    with Devices(1, 1.1, 1.2).compile(cache_dir=tmp_path) as compiled:
        assert compiled.rivals == ("sample1", "sample2")
    with Devices(1, 1.1, version="newer").compile(cache_dir=tmp_path) as compiled:
        assert compiled.rivals == ("sample1",)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", pytest.param(b"[" * 100_000, id="deep"), b'{"placement": "nobody"}', b"\xff\xfe"]
)
def test_a_damaged_result_is_no_result(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes) -> None:
    give(monkeypatch, 1)
    with Devices(1, 1.1).compile(cache_dir=tmp_path) as compiled:
        compiled.run(DATA)
    (file,) = tmp_path.iterdir()
    file.write_bytes(content)
    with Devices(1, 1.1).compile(cache_dir=tmp_path) as compiled:
        assert compiled.devices_used == ("sample0",)
        assert compiled.rivals == (() if b"nobody" in content else ("sample1",))


def test_a_split_that_wins_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    give(monkeypatch, 0)

    def compiled() -> Session:
        relu = Device(SampleDevice("relu", estimates_ns={RELU: 10**6, TANH: 2 * 10**6}))
        tanh = Device(SampleDevice("tanh", estimates_ns={RELU: 2 * 10**6, TANH: 10**6}))
        return Network.from_model(chain_model([RELU, TANH])).compile([relu, tanh], cache_dir=tmp_path)

    with compiled() as first:
        assert (first.devices_used, first.rivals) == (("relu", "tanh"), ("relu", "tanh"))
        first.run(DATA)
    with compiled() as second:
        assert (second.devices_used, second.rivals) == (("relu", "tanh"), ())


def test_a_folder_that_cannot_be_written_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    give(monkeypatch, 1)
    folder = tmp_path / "file"
    folder.write_bytes(b"")
    with Devices(1, 1.1).compile(cache_dir=folder) as compiled:
        compiled.run(DATA)
        assert compiled.devices_used == ("sample1",)
