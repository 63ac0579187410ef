# SPDX-License-Identifier: Apache-2.0
"""Steps that go row by row: cut as what they read was cut, so that cores do not wait for each other."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpu_driver import chain
from gpu_driver.kernel import Packed
from gpu_driver.launch import Launch
from gpu_driver.lowering import Lowering
from gpu_driver.tuning_values import Tuning
from nn_runtime.codes import FuseCode, OperationCode
from tests.gpu_driver.chain.running import simulate_groups
from tests.gpu_driver.graphs import Graph, request
from tests.gpu_driver.profiles import CPU_PROFILE
from tests.gpu_driver.running import prepare, run

if TYPE_CHECKING:
    from gpu_driver.driver import Device
    from nn_runtime.operand import Array, Dimensions

SMALL = Tuning(least_task_flops=1 << 40)
"""No step is large enough for two cores."""


class Rows:
    """FULLY_CONNECTED over rows, then SOFTMAX in some shape and FULLY_CONNECTED some times; with results in float64."""

    def __init__(self, rows: int, shape: Dimensions = (), repeats: int = 1) -> None:
        self.graph, self.rng = Graph(), np.random.default_rng(3)
        self.data = self.rng.standard_normal((rows, 96)).astype(np.float32)
        now, self.expected = self.graph.input((rows, 96)), self.data.astype(np.float64)
        now = self._product(now, 128, self.graph.temporary((rows, 128)))
        for left in reversed(range(repeats)):
            dims = shape or (rows, 128)
            shares = self.graph.temporary(dims)
            self.graph.operation(OperationCode.SOFTMAX, [self._reshaped(now, shape), self.graph.real(0.25)], shares)
            powers = np.exp(0.25 * self.expected.reshape(dims))
            self.expected = (powers / powers.sum(axis=-1, keepdims=True)).reshape(rows, 128)
            units = 128 if left else 64
            made = self.graph.temporary((rows, units)) if left else self.graph.output((rows, units))
            now = self._product(self._reshaped(shares, (rows, 128) if shape else ()), units, made)

    def _product(self, source: int, units: int, made: int) -> int:
        weights = self.rng.standard_normal((units, self.expected.shape[1])).astype(np.float32)
        bias = self.rng.standard_normal(units).astype(np.float32)
        constants = map(self.graph.constant, (weights, bias))
        self.graph.operation(
            OperationCode.FULLY_CONNECTED, [source, *constants, self.graph.integer(FuseCode.NONE)], made
        )
        self.expected = self.expected @ weights.T + bias
        return made

    def _reshaped(self, source: int, dims: Dimensions) -> int:
        if not dims:
            return source
        result = self.graph.temporary(dims)
        target = self.graph.constant(np.array(dims, np.int32))
        self.graph.operation(OperationCode.RESHAPE, [source, target], result)
        return result

    def launch(self, cores: int, tuning: Tuning | None = None) -> Launch:
        profile = replace(CPU_PROFILE, compute_units=cores, tuning=tuning or CPU_PROFILE.tuning)
        lowering = Lowering(self.graph.model(), profile)
        (launch,) = lowering.lower(0, lowering.static_inputs()).commands
        assert isinstance(launch, Launch)
        return launch


def waits_of(launch: Launch) -> list[list[tuple[int, int, int]]]:
    """Return for every step what its tasks wait for in other queues: own queue, that queue, the step there."""
    _, rows, starts, waits, *_ = (argument.data for argument in launch.arguments if isinstance(argument, Packed))
    queues = np.searchsorted(starts[:, 0], np.arange(len(rows)), side="right") - 1
    found: list[list[tuple[int, int, int]]] = [[] for _ in launch.steps]
    for at, row in enumerate(rows):
        others = [other for other in waits[row[7] : row[8]] if queues[other] != queues[at]]
        found[row[0]] += [(int(queues[at]), int(queues[other]), int(rows[other][0])) for other in others]
    return found


@pytest.mark.parametrize("cores", [2, 4])
def test_cores_do_not_wait_for_each_other_for_rows_of_their_own(cores: int) -> None:
    launch = Rows(28 * cores).launch(cores)
    assert [step.kind for step in launch.steps] == [chain.Kind.CONVOLVE, chain.Kind.SOFTMAX, chain.Kind.CONVOLVE]
    assert waits_of(launch) == [[], [], []]


def test_a_small_step_is_cut_like_what_it_reads() -> None:
    first, softmax, _ = Rows(64).launch(2).steps
    made = chain.tasks_of(first, 2)
    assert len({task.queue for task in made}) == 2
    assert [task.queue for task in chain.tasks_of(softmax, 2, SMALL)] == [0]
    followed = chain.tasks_of(softmax, 2, SMALL, made)
    edge = max(task.pixels[1] for task in made if task.queue == 0)
    assert [(task.queue, task.x, task.pixels) for task in followed] == [
        (0, (0, edge), (0, edge)),
        (1, (edge, 64), (edge, 64)),
    ]


def test_rows_are_cut_after_tiles_and_end_with_the_step() -> None:
    """Where there are more parts to make than rows, every task has one."""
    first, softmax, _ = Rows(64).launch(2).steps
    assert [task.x for task in chain.tasks_of(softmax, 2, Tuning(bands=1))] == [(0, 35), (35, 64)]
    few = Rows(3).launch(1).steps[1]
    made = [replace(chain.tasks_of(first, 1, SMALL)[0], x=(0, 3), pixels=(0, 3))]
    many = Tuning(least_task_flops=1, bands=4)
    assert [task.x for task in chain.tasks_of(few, 1, many, made)] == [(0, 1), (1, 2), (2, 3)]


def test_what_is_cut_by_channels_or_for_fewer_cores_is_not_followed() -> None:
    first, softmax, _ = Rows(64).launch(2).steps
    alone, by_channels = chain.tasks_of(first, 1), chain.tasks_of(Rows(8).launch(2).steps[0], 2)
    assert len({task.channels for task in by_channels}) > 1
    own = chain.tasks_of(softmax, 2)
    for made in (alone, by_channels, chain.tasks_of(Rows(63).launch(2).steps[0], 2)):
        assert chain.tasks_of(softmax, 2, made=made) == own


def test_rows_of_another_shape_wait_for_the_rows_in_which_they_lie() -> None:
    launch = Rows(56, (4 * 56, 32)).launch(2)
    assert [step.output_shape for step in launch.steps] == [(56, 128), (224, 32), (56, 64)]
    assert waits_of(launch) == [[], [], []]
    uneven = waits_of(Rows(64, (4 * 64, 32)).launch(2))  # 126 of 256 rows are less than 35 of 64
    assert {(own, other) for own, other, _ in uneven[1]} == {(1, 0)}


@pytest.mark.parametrize(("rows", "shape"), [(64, ()), (61, ()), (64, (256, 32)), (30, (10, 384))])
def test_results_are_those_of_float64(opencl_device: Device, rows: int, shape: Dimensions) -> None:
    network = Rows(rows, shape)
    result: Array = np.empty(network.expected.shape, np.float32)
    run(prepare(opencl_device, network.graph.model()), request([network.data], [result]))
    np.testing.assert_allclose(result, network.expected, 1e-4, 1e-5)


@pytest.mark.parametrize(("groups", "queues"), [(1, 3), (2, 5), (6, 4)])
def test_any_number_of_groups_and_queues(
    opencl_device: Device, monkeypatch: pytest.MonkeyPatch, groups: int, queues: int
) -> None:
    simulate_groups(monkeypatch, groups, queues)
    for rows, shape in ((64, (256, 32)), (61, ()), (30, (10, 384))):
        network = Rows(rows, shape, 5)
        prepared = prepare(opencl_device, network.graph.model())
        for _ in range(20):
            result: Array = np.empty(network.expected.shape, np.float32)
            run(prepared, request([network.data], [result]))
            np.testing.assert_allclose(result, network.expected, 1e-4, 1e-5)
