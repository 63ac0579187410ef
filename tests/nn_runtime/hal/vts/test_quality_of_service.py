# SPDX-License-Identifier: Apache-2.0
"""Priorities and deadlines of examples (VTS QualityOfServiceTests of 1.3)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from nn_runtime.codes import FeatureLevel
from nn_runtime.hal.types import ErrorStatus, Priority
from nn_runtime.testing.conformance import hal_model
from tests.nn_runtime.hal.vts.arguments import Arguments
from tests.nn_runtime.hal.vts.client import Way, execute, form
from tests.nn_runtime.hal.vts.test_generated import prepared_examples

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.nn_runtime.hal.vts.client import Client
    from tests.nn_runtime.hal.vts.conftest import ExamplesOf

    ClientOf = Callable[[int], Client]

STEP = 15
LAST = FeatureLevel.HAL_1_3
SHORT_NS = 5_000_000
UNLIMITED_NS = 2**63 - 1
MISSED = (ErrorStatus.MISSED_DEADLINE_TRANSIENT, ErrorStatus.MISSED_DEADLINE_PERSISTENT)
BOUNDS: dict[str, Callable[[], int]] = {
    "now": time.monotonic_ns,
    "short": lambda: time.monotonic_ns() + SHORT_NS,
    "unlimited": lambda: UNLIMITED_NS,
}


def allowed(bound: str) -> tuple[ErrorStatus, ...]:
    return (ErrorStatus.NONE,) if bound == "unlimited" else (ErrorStatus.NONE, *MISSED)


@pytest.mark.parametrize("priority", [Priority.LOW, Priority.HIGH])
def test_priorities(client_of: ClientOf, examples_of: ExamplesOf, priority: Priority) -> None:
    client = client_of(LAST)
    for example in examples_of(LAST, STEP):
        if example.expect_failure:
            continue
        model = form(hal_model(example), LAST)
        _, answers = client.supported(model)
        found = client.prepare(model, priority=priority)
        assert found.launch == ErrorStatus.NONE
        assert found.status == ErrorStatus.NONE or not all(answers)


@pytest.mark.parametrize("bound", BOUNDS)
def test_deadlines_of_preparations(client_of: ClientOf, examples_of: ExamplesOf, bound: str) -> None:
    client = client_of(LAST)
    for example in examples_of(LAST, STEP):
        if example.expect_failure:
            continue
        model = form(hal_model(example), LAST)
        _, answers = client.supported(model)
        found = client.prepare(model, deadline_ns=BOUNDS[bound]())
        assert found.launch == ErrorStatus.NONE
        assert found.status in allowed(bound) or not all(answers), example.name


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("way", [Way.ASYNCHRONOUS, Way.SYNCHRONOUS], ids=lambda way: way.value)
def test_deadlines_of_executions(client_of: ClientOf, examples_of: ExamplesOf, way: Way, bound: str) -> None:
    count = 0
    for example, prepared in prepared_examples(client_of(LAST), examples_of(LAST, STEP)):
        arguments = Arguments(example)
        outcome = execute(prepared, arguments.request, way, deadline_ns=BOUNDS[bound]())
        assert outcome.status in allowed(bound), example.name
        if outcome.status == ErrorStatus.NONE:
            count += 1
            assert not (problem := arguments.problem(outcome)), f"{example.name}: {problem}"
    assert (count == 0) == (bound == "now")
