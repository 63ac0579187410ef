# SPDX-License-Identifier: Apache-2.0
"""Sessions with large inputs and results, which a device that shares the host's memory reads and writes in place."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

import numpy as np
import pytest

import nn_runtime as nn
from nn_runtime.device import Device as RuntimeDevice
from nn_runtime.execution import Execution
from nn_runtime.observe import trace
from tests.gpu_driver.running import at_once
from tests.nn_runtime.tflite.operator_file import Step, constant, int64, real, write
from tests.nn_runtime.tflite.test_variables import running_sum

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpu_driver.driver import Device
    from nn_runtime.operand import Array
    from nn_runtime.requests import OtherMemory
    from nn_runtime.session import Session

SHAPE = (300, 301)
"""More than what is copied, and no multiple of a vector."""


@pytest.fixture
def session(opencl_device: Device) -> Iterator[Session]:
    """float32 SHAPE, SHAPE -> their difference, and twice the first [3, 4] -> [3, 4] as a small third."""
    tensors = [real(*SHAPE), real(*SHAPE), real(*SHAPE), real(3, 4), real(3, 4)]
    steps = [Step("SUB", [0, 1], [2], "SubOptions"), Step("ADD", [3, 3], [4], "AddOptions")]
    file = write(tensors, steps, [0, 1, 3], [2, 4])
    with nn.load(file).compile(RuntimeDevice(opencl_device)) as session:
        yield session


def draw(seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal(SHAPE).astype(np.float32)


def placed(data: Array, offset: int) -> Array:
    """Copy data to so many bytes behind a multiple of 64."""
    room = np.zeros(data.nbytes + 128, np.uint8)
    start = -room.ctypes.data % 64 + offset
    copy: Array = room[start : start + data.nbytes].view(data.dtype).reshape(data.shape)
    copy[...] = data
    return copy


def fixed(data: Array) -> Array:
    copy = data.copy()
    copy.flags.writeable = False
    return copy


WAYS = {
    "as numpy places it": lambda data: data,
    "on a line": lambda data: placed(data, 0),
    "between lines": lambda data: placed(data, 16),
    "on no vector": lambda data: placed(data, 4),
    "on no number": lambda data: placed(data, 3),
    "read-only": fixed,
    "by columns": np.asfortranarray,
    "backwards": lambda data: data[::-1].copy()[::-1],
    "float64": lambda data: data.astype(np.float64),
    "a list": lambda data: data.tolist(),
}
SMALL = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize("first", WAYS)
def test_arrays_of_any_layout(session: Session, first: str) -> None:
    for seed in range(3):
        a, b = draw(2 * seed), draw(2 * seed + 1)
        difference, doubled = session.run([WAYS[first](a), b, SMALL])
        np.testing.assert_array_equal(difference, a - b)
        np.testing.assert_array_equal(doubled, 2 * SMALL)
        assert difference.flags.writeable


def test_results_that_are_held_stay(session: Session) -> None:
    zeros = np.zeros(SHAPE, np.float32)
    held = [session.run([draw(seed), zeros, SMALL + seed]) for seed in range(5)]
    for _ in range(3):
        session.run([zeros, zeros, SMALL])
    for seed, (difference, doubled) in enumerate(held):
        np.testing.assert_array_equal(difference, draw(seed))
        np.testing.assert_array_equal(doubled, 2 * (SMALL + seed))
    rows = [session.run([draw(seed), zeros, SMALL])[0][7] for seed in range(5)]
    for seed, row in enumerate(rows):
        np.testing.assert_array_equal(row, draw(seed)[7])


def test_results_are_the_callers(session: Session) -> None:
    """What is written to one changes no other, and one may be the next input."""
    ones = np.ones(SHAPE, np.float32)
    state = np.zeros(SHAPE, np.float32)
    for turn in range(6):
        before, state = state, session.run([state, ones, SMALL])[0]
        assert (before == -turn).all()
        assert (state == -turn - 1).all()
    state[:] = 7
    result = session.run([ones, ones, SMALL])[0]
    assert not result.any()
    assert (state == 7).all()
    np.testing.assert_array_equal(session.run([state, state, SMALL])[0], np.zeros(SHAPE))


def test_results_outlive_the_session(session: Session) -> None:
    a, b = draw(0), draw(1)
    session.run([a, b, SMALL])
    result = session.run([a, b, SMALL])[0]
    session.close()
    np.testing.assert_array_equal(result, a - b)


def test_inputs_are_neither_held_nor_changed(session: Session) -> None:
    a, b = draw(0), draw(1)
    for _ in range(3):
        session.run([a, b, SMALL])
    np.testing.assert_array_equal(a, draw(0))
    a.resize((2, 2))  # which raises an error where anything refers to it


def test_measured_and_profiled_runs(session: Session) -> None:
    a, b = draw(0), draw(1)
    for kind in ({"measure": True}, {"profile": True}, {}) * 2:
        np.testing.assert_array_equal(session.run([a, b, SMALL], **kind)[0], a - b)


def test_a_trace_changes_no_result(session: Session, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(trace, "current", trace.Tracer(tmp_path / "trace.json"))
    for seed in range(3):
        a, b = draw(seed), draw(seed + 1)
        for measure in (False, True):
            np.testing.assert_array_equal(session.run([a, b, SMALL], measure=measure)[0], a - b)


def subtracting(device: Device, tensors: int, inputs: list[int], outputs: list[int]) -> Session:
    """Return the difference of tensors 0 and 1 as the last one."""
    step = Step("SUB", [0, 1], [tensors - 1], "SubOptions")
    return nn.load(write([real(*SHAPE)] * tensors, [step], inputs, outputs)).compile(RuntimeDevice(device))


def test_an_input_that_nothing_reads(opencl_device: Device) -> None:
    with subtracting(opencl_device, 4, [0, 1, 2], [3]) as session:
        for seed in range(3):
            a, b = draw(seed), draw(seed + 1)
            np.testing.assert_array_equal(session.run([a, b, a])[0], a - b)


def test_one_tensor_as_two_outputs(opencl_device: Device) -> None:
    with subtracting(opencl_device, 3, [0, 1], [2, 2]) as session:
        for seed in range(3):
            a, b = draw(seed), draw(seed + 1)
            first, second = session.run([a, b])
            first[:] = 9
            np.testing.assert_array_equal(second, a - b)


def test_results_of_another_type(opencl_device: Device) -> None:
    """Integers of 64 bits are computed in 32."""
    file = write([int64(*SHAPE)] * 3, [Step("ADD", [0, 1], [2], "AddOptions")], [0, 1], [2])
    a, b = (np.random.default_rng(seed).integers(-1000, 1000, SHAPE) for seed in range(2))
    with nn.load(file).compile(RuntimeDevice(opencl_device)) as session:
        for turn in range(3):
            (result,) = session.run([a, b + turn])
            assert result.dtype == np.int64
            np.testing.assert_array_equal(result, a + b + turn)


def test_a_result_that_the_next_run_reads(opencl_device: Device) -> None:
    with nn.load(running_sum(constant(np.zeros(SHAPE)), real(*SHAPE))).compile(RuntimeDevice(opencl_device)) as session:
        results = [session.run(np.full(SHAPE, number, np.float32))[0] for number in (1, 2, 4, 8)]
    for result, total in zip(results, (1, 3, 7, 15), strict=True):
        assert (result == total).all()


def test_images_one_after_the_other_are_let_go(opencl_device: Device) -> None:
    """A batch whose images are launches apart."""
    depth, shape = 48, (4, 40, 40, 48)
    weights = np.random.default_rng(0).standard_normal((2, depth, 3, 3, depth)).astype(np.float32) / 20
    tensors = [real(*shape), *(constant(one) for one in weights), constant(np.zeros(depth, np.float32))]
    steps = [
        Step("CONV_2D", [0, 1, 3], [4], "Conv2DOptions", {"StrideH": 1, "StrideW": 1}),
        Step("CONV_2D", [4, 2, 3], [5], "Conv2DOptions", {"StrideH": 1, "StrideW": 1}),
    ]
    file = write([*tensors, real(*shape), real(*shape)], steps, [0], [5])
    images = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    with nn.load(file).compile("cpu") as reference:
        (wanted,) = reference.run(images)
    with nn.load(file).compile(RuntimeDevice(opencl_device)) as session:
        for _ in range(3):
            pages = mmap.mmap(-1, images.nbytes)
            given = np.frombuffer(pages, np.float32).reshape(shape)
            given[...] = images
            (result,) = session.run(given)
            np.testing.assert_allclose(result, wanted, atol=1e-4)
            del given
            pages.close()  # which raises an error where anything refers to it


def test_threads_keep_their_results(session: Session) -> None:
    def work(number: int) -> None:
        a = np.full(SHAPE, number, np.float32)
        results = [session.run([a, np.ones(SHAPE, np.float32), SMALL])[0] for _ in range(8)]
        assert all((result == number - 1).all() for result in results)

    assert at_once([lambda number=number: work(number) for number in range(4)]) == []  # type: ignore[misc]


def test_which_arrays_are_handed_to_the_driver(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[list[int], list[int]]] = []

    def compute(execution: Execution, other: OtherMemory | None = None) -> None:
        seen.append(([], []) if other is None else (list(other.inputs), list(other.outputs)))
        original(execution, other)

    original = Execution.compute
    monkeypatch.setattr(Execution, "compute", compute)
    a, b = placed(draw(0), 16), placed(draw(1), 16)
    for first, second in [(a, b), (a, b), (fixed(a), b), (placed(a, 4), placed(b, 48))]:
        session.run([first, second, SMALL])
    assert seen == [([], []), ([0, 1], [0]), ([1], [0]), ([1], [0])]
