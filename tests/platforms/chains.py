# SPDX-License-Identifier: Apache-2.0
"""Networks that are one launch of chain.cl or persistent.cl with many steps: work-groups take over what others wrote.

The CPU driver says what is right. An interpreter that knows no order between work-groups sees races in such a launch;
step by step, each a launch of its own, there may be none but of the counters of tasks (`is_order`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nn_runtime.devices import find_device
from nn_runtime.hal.types import ExecutionPreference, Priority
from tests.gpu_driver.drawn import (
    FLOAT,
    QUANT8,
    SIGNED,
    attention,
    attention_of_few_rows,
    convolutions_with_work_memory,
    inverted_residuals,
)
from tests.gpu_driver.graphs import request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpu_driver.driver import Device
    from nn_runtime.codes import OperandCode
    from nn_runtime.hal.interfaces import IDevice
    from nn_runtime.operand import Array
    from tests.gpu_driver.drawn import Network

TOLERANCE = 2e-5
FEW_LAUNCHES = 2
_BOTH = 2
_RACE = re.compile(r"\w+-\w+ data race at")
_COUNTER = re.compile(r"(?:load|store) volatile|@_Z\d+atomic_")


class Chain(NamedTuple):
    """Convolutions of one type, run twice: the second run finds the first one's progress."""

    draw: Callable[[OperandCode], Network]
    code: OperandCode

    @property
    def name(self) -> str:
        """What is drawn, and the type."""
        return f"{self.draw.__name__} of {self.code.name}"

    def check(self, device: IDevice) -> None:
        """Compare with the CPU driver; raises AssertionError."""
        expected = self._run(find_device("nnapi-reference").hal, 1)
        for result in self._run(device, 2):
            self._compare(result, expected[0])

    def check_by_steps(self, device: Device) -> None:
        """Compare a run with a launch for every step with a whole one; raises AssertionError."""
        network = self.draw(self.code)
        source, model = network.data(), network.graph.model()
        prepared = device.prepare_model(model, ExecutionPreference.FAST_SINGLE_ANSWER, Priority.MEDIUM, None, None)
        result = np.empty(network.dims, source.dtype)
        _, profile = prepared.execute_profiled(request([source], [result]), None, None)
        np.testing.assert_array_less(FEW_LAUNCHES, len(profile.rows))
        self._compare(result, self._run(find_device("nnapi-reference").hal, 1)[0])

    def _compare(self, result: Array, expected: Array) -> None:
        tolerance = TOLERANCE if self.code == FLOAT else 0
        np.testing.assert_allclose(result, expected, atol=tolerance, rtol=tolerance)

    def _run(self, device: IDevice, times: int) -> list[Array]:
        network = self.draw(self.code)
        source, model = network.data(), network.graph.model()
        prepared = device.prepare_model(model, ExecutionPreference.FAST_SINGLE_ANSWER, Priority.MEDIUM, None, None)
        results = [np.empty(network.dims, source.dtype) for _ in range(times)]
        for result in results:
            prepared.execute_synchronously(request([source], [result]), False, None, None)
        return results


def chains() -> Iterator[Chain]:
    """Yield one of every type, and some of the kinds of steps that only floats have."""
    yield from blocks()
    yield from (Chain(draw, FLOAT) for draw in (convolutions_with_work_memory, attention, attention_of_few_rows))


def blocks() -> Iterator[Chain]:
    """Yield one of every type of what persistent.cl does as well."""
    for code in (FLOAT, QUANT8, SIGNED):
        yield Chain(inverted_residuals, code)


def is_race(message: str) -> bool:
    """Whether a message of the interpreter is of a race: in a launch of many steps it cannot tell."""
    return _RACE.match(message) is not None


def is_order(message: str) -> bool:
    """Whether a message is of a race between accesses of the words by which groups agree who does what, and when."""
    return is_race(message) and len(_COUNTER.findall(message)) >= _BOTH
