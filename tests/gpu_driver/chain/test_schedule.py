# SPDX-License-Identifier: Apache-2.0
"""What tasks wait for is enough: they may be done in any order that it allows, with the CPU driver's results."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from cpu_driver.driver import Device as Reference
from gpu_driver.chain import launches
from gpu_driver.chain.schedule import Schedule
from nn_runtime.codes import FuseCode, OperandCode, OperationCode, PaddingCode
from nn_runtime.hal.types import ExecutionPreference, Priority
from nn_runtime.operand import dtype_of
from tests.gpu_driver.chain.running import simulate_groups
from tests.gpu_driver.graphs import Graph, request
from tests.gpu_driver.running import run

if TYPE_CHECKING:
    from gpu_driver.driver import Device
    from nn_runtime.operand import Array, Dimensions

FLOAT, QUANT8 = OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_QUANT8_ASYMM
OPERATIONS = 24
SIDE, DEPTH = 14, 24
ORDERS = ["late steps first", "last tasks first", "any"]


class Drawn:
    """Operations on pictures of one size, which read what was made last, mostly, and beside it anything."""

    def __init__(self, code: OperandCode, batches: int, seed: int) -> None:
        self.graph, self.rng, self.code = Graph(), np.random.default_rng(seed), code
        self.scale = 0.0 if code == FLOAT else float(np.float32(0.05))
        self.zero = 0 if code == FLOAT else 120
        self.dims = (batches, SIDE, SIDE, DEPTH)
        self.tensors = [self.graph.input(self.dims, code, self.scale, self.zero)]
        draw = [self.convolve, self.convolve, self.depthwise, self.pair, self.pair, self.bend, self.join]
        draw += [self.turn, self.weigh, self.greatest, self.resize]
        for _ in range(OPERATIONS):
            draw[self.rng.integers(len(draw))](self.recent())
        for _ in range(2):
            made = self.graph.output(self.dims, code, self.scale, self.zero)
            self.graph.operation(OperationCode.ADD, [self.tensors.pop(), self.recent(), self.number(0)], made)

    def recent(self) -> int:
        return self.tensors[-1 - min(int(self.rng.geometric(0.4)) - 1, len(self.tensors) - 1)]

    def number(self, value: int) -> int:
        return self.graph.integer(value)

    def values(self, dims: Dimensions) -> Array:
        if self.code == FLOAT:
            return self.rng.uniform(-1, 1, dims).astype(np.float32)
        return self.rng.integers(0, 256, dims).astype(dtype_of(self.code))

    def made(self, dims: Dimensions) -> int:
        return self.graph.temporary(dims, self.code, self.scale, self.zero)

    def add(self, code: OperationCode, inputs: list[int], dims: Dimensions | None = None) -> int:
        """Add an operation; return what it makes, which others read if it has the size of all."""
        output = self.made(dims or self.dims)
        self.graph.operation(code, inputs, output)
        if dims in (None, self.dims):
            self.tensors.append(output)
        return output

    def constants(self, dims: Dimensions, depth: int) -> list[int]:
        """Weights and bias that leave values about as large as they are."""
        spread = float(np.sqrt(np.prod(dims) / depth))
        if self.code == FLOAT:
            weights, bias = self.values(dims) / np.float32(spread), self.values((depth,))
            return [self.graph.constant(weights.astype(np.float32)), self.graph.constant(bias)]
        scale = float(np.float32(0.01 / spread))
        whole = self.rng.integers(-500, 500, depth).astype(np.int32)
        sums = float(np.float32(scale) * np.float32(self.scale))
        weights = self.graph.constant(self.values(dims), self.code, scale, 128)
        return [weights, self.graph.constant(whole, OperandCode.TENSOR_INT32, sums)]

    def convolve(self, source: int, depth_in: int = DEPTH) -> None:
        taps = int(self.rng.choice([1, 1, 3, 5]))
        weights = self.constants((DEPTH, taps, taps, depth_in), DEPTH)
        numbers = [PaddingCode.SAME, 1, 1, FuseCode.NONE]
        self.add(OperationCode.CONV_2D, [source, *weights, *map(self.number, numbers)])

    def depthwise(self, source: int) -> None:
        numbers = [PaddingCode.SAME, 1, 1, 1, FuseCode.RELU]
        weights = self.constants((1, 3, 3, DEPTH), DEPTH)
        self.add(OperationCode.DEPTHWISE_CONV_2D, [source, *weights, *map(self.number, numbers)])

    def pair(self, source: int) -> None:
        code = [OperationCode.ADD, OperationCode.SUB][self.rng.integers(2)]
        self.add(code, [source, self.recent(), self.number(FuseCode.RELU6)])

    def bend(self, source: int) -> None:
        code = [OperationCode.HARD_SWISH, OperationCode.RELU1][self.rng.integers(2)]
        self.add(code, [source])

    def join(self, source: int) -> None:
        batches, *_ = self.dims
        parts = [source, self.recent(), self.recent()]
        joined = self.add(
            OperationCode.CONCATENATION, [*parts, self.number(3)], (batches, SIDE, SIDE, len(parts) * DEPTH)
        )
        self.convolve(joined, len(parts) * DEPTH)

    def turn(self, source: int) -> None:
        self.add(OperationCode.TRANSPOSE, [source, self.graph.constant(np.array([0, 2, 1, 3], np.int32))])

    def weigh(self, source: int) -> None:
        """Multiply channels by numbers made of their means."""
        axes = self.graph.constant(np.array([1, 2], np.int32))
        means = self.add(OperationCode.MEAN, [source, axes, self.number(1)], (self.dims[0], 1, 1, DEPTH))
        self.add(OperationCode.ADD, [source, means, self.number(FuseCode.NONE)])

    def greatest(self, source: int) -> None:
        numbers = [PaddingCode.SAME, 1, 1, 3, 3, FuseCode.NONE]
        self.add(OperationCode.MAX_POOL_2D, [source, *map(self.number, numbers)])

    def resize(self, source: int) -> None:
        """Make a picture larger, and take a part of it."""
        larger = (self.dims[0], 2 * SIDE, 2 * SIDE, DEPTH)
        sizes = [self.number(2 * SIDE), self.number(2 * SIDE)]
        made = self.add(OperationCode.RESIZE_NEAREST_NEIGHBOR, [source, *sizes, self.graph.flag(False)], larger)
        begin, size = (self.graph.constant(np.array(one, np.int32)) for one in ((0, 3, 5, 0), self.dims))
        self.add(OperationCode.SLICE, [made, begin, size])


def in_order(made: Schedule, order: str) -> Schedule:
    """Return a schedule of one queue that has tasks in another order in which each comes after those it waits for."""
    rng, count = np.random.default_rng(1), len(made.rows)
    firsts, lasts = made.rows[:, 7], made.rows[:, 8]
    waited = [set(made.waits[first:last].tolist()) for first, last in zip(firsts, lasts, strict=True)]
    rank = {
        ORDERS[0]: [(-int(row[0]), at) for at, row in enumerate(made.rows)],
        ORDERS[1]: [(int(row[0]), -at) for at, row in enumerate(made.rows)],
        ORDERS[2]: [(int(one), 0) for one in rng.permutation(count)],
    }[order]
    missing = [len(others) for others in waited]
    ready = [(*rank[at], at) for at in range(count) if not missing[at]]
    heapq.heapify(ready)
    places: dict[int, int] = {}
    while ready:
        *_, done = heapq.heappop(ready)
        places[done] = len(places)
        for at in range(count):
            if done in waited[at]:
                missing[at] -= 1
                if not missing[at]:
                    heapq.heappush(ready, (*rank[at], at))
    rows, waits = [], list[int]()
    for at in places:
        row = made.rows[at].copy()
        row[7:9] = len(waits), len(waits) + len(waited[at])
        waits += [places[other] for other in waited[at]]
        rows.append(row)
    starts = np.full_like(made.starts, count)
    starts[0, 0] = 0
    return Schedule(np.array(rows), starts, np.array(waits or [0], np.int32))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("seed", range(10))
def test_any_order_gives_the_results_of_the_cpu_driver(
    opencl_device: Device, monkeypatch: pytest.MonkeyPatch, seed: int, order: str
) -> None:
    """One group does all tasks in that order, so that what is not waited for is not there, or is written over."""
    schedule, counts = launches.schedule, list[tuple[int, int]]()

    def ordered(steps: Any, *others: Any) -> Schedule:
        made = schedule(steps, *others)
        counts.append((len(steps), len(made.rows)))
        return in_order(made, order)

    simulate_groups(monkeypatch, 1, 3)
    monkeypatch.setattr(launches, "schedule", ordered)
    drawn = Drawn((FLOAT, QUANT8)[seed % 2], 1 + seed % 5 // 4, seed)
    data, results = drawn.values(drawn.dims), []
    for driver in (Reference(), opencl_device):
        prepared = driver.prepare_model(
            drawn.graph.model(), ExecutionPreference.FAST_SINGLE_ANSWER, Priority.MEDIUM, None, None
        )
        outputs = [np.zeros(drawn.dims, dtype_of(drawn.code)) for _ in range(2)]
        run(prepared, request([data], outputs))
        results.append(outputs)
    tolerance = 1e-4 if drawn.code == FLOAT else 0
    for wanted, got in zip(*results, strict=True):
        np.testing.assert_allclose(got, wanted, tolerance, tolerance)
    if opencl_device.profile.builds_chains:
        steps, tasks = max(counts)
        assert tasks > steps > OPERATIONS // 5
