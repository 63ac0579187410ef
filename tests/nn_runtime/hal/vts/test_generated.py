# SPDX-License-Identifier: Apache-2.0
"""Operation examples through every version, way to execute and kind of memory (VTS GeneratedTestHarness)."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import pytest

from nn_runtime.codes import FeatureLevel
from nn_runtime.hal.types import ErrorStatus
from nn_runtime.operand import has_unknown_dimensions
from nn_runtime.testing.conformance import hal_model
from nn_runtime.testing.corpus import Kind, as_kind
from tests.nn_runtime.hal.vts.arguments import Arguments, Storage
from tests.nn_runtime.hal.vts.client import VERSIONS, Way, execute, ways_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nn_runtime.hal.versions.served_model import ServedPreparedModel10
    from nn_runtime.testing.corpus import Example
    from tests.nn_runtime.hal.vts.client import Client
    from tests.nn_runtime.hal.vts.conftest import ExamplesOf

    ClientOf = Callable[[int], Client]

STEP = 8
LOOP_TIMEOUT_NS = 1_000_000
MISSED = (ErrorStatus.MISSED_DEADLINE_TRANSIENT, ErrorStatus.MISSED_DEADLINE_PERSISTENT)
LAST = FeatureLevel.HAL_1_3


def prepared_examples(
    client: Client, examples: Iterator[Example], kind: Kind = Kind.PLAIN
) -> Iterator[tuple[Example, ServedPreparedModel10]]:
    """Yield the examples of a kind that the driver takes, each prepared."""
    for example in examples:
        if kind in example.kinds and not example.expect_failure:
            changed = as_kind(example, kind)
            prepared = client.prepared(hal_model(changed))
            if prepared is not None:
                yield changed, prepared
                prepared.inner.close()


def has_known_outputs(example: Example) -> bool:
    """Tell whether the model gives all sizes: zero-sized results count as unknown."""
    operands = (example.main.operands[i] for i in example.main.outputs)
    return not any(has_unknown_dimensions(operand.type, operand.dimensions) for operand in operands)


def check(prepared: ServedPreparedModel10, example: Example, arguments: Arguments, way: Way, measure: bool) -> None:
    """Execute an example and judge it; fenced it needs outputs of known size."""
    arguments.clear()
    outcome = execute(prepared, arguments.request, way, measure)
    label = f"{example.spec}/{example.name} {way.value}"
    if way == Way.FENCED and not has_known_outputs(example):
        assert outcome.status == ErrorStatus.INVALID_ARGUMENT, label
        return
    assert outcome.status == ErrorStatus.NONE, label
    assert not (problem := arguments.problem(outcome)), f"{label}: {problem}"


@pytest.mark.parametrize("version", VERSIONS)
def test_examples(client_of: ClientOf, examples_of: ExamplesOf, version: int) -> None:
    count = 0
    for example, prepared in prepared_examples(client_of(version), examples_of(version, STEP)):
        arguments = Arguments(example)
        for way, measure in product(ways_of(version), (False, True)):
            if way != Way.FENCED:
                check(prepared, example, arguments, way, measure)
        count += 1
    assert count > 3


@pytest.mark.parametrize("version", VERSIONS[2:])
def test_outputs_of_unknown_size(client_of: ClientOf, examples_of: ExamplesOf, version: int) -> None:
    examples = examples_of(version, 2 * STEP)
    count = 0
    for example, prepared in prepared_examples(client_of(version), examples, Kind.DYNAMIC_OUTPUT_SHAPE):
        arguments = Arguments(example)
        short = arguments.shortened()
        for way, measure in product(ways_of(version), (False, True)):
            check(prepared, example, arguments, way, measure)
            if short is None:
                continue
            outcome = execute(prepared, short, way, measure)
            if way == Way.FENCED:
                assert outcome.status == ErrorStatus.INVALID_ARGUMENT
                continue
            assert outcome.status == ErrorStatus.OUTPUT_INSUFFICIENT_SIZE, example.name
            assert [shape.is_sufficient for shape in outcome.shapes] == [i != 0 for i in range(len(example.outputs))]
            for shape, expected in zip(outcome.shapes, example.outputs, strict=True):
                assert len(shape.dimensions) == len(expected.dimensions)
                assert all(got in (0, size) for got, size in zip(shape.dimensions, expected.dimensions, strict=True))
        count += 1
    assert count > 3


@pytest.mark.parametrize("storage", [Storage.BLOB, Storage.DEVICE])
def test_arguments_in_other_memory(client_of: ClientOf, examples_of: ExamplesOf, storage: Storage) -> None:
    client = client_of(LAST)
    count = 0
    for example, prepared in prepared_examples(client, examples_of(LAST, 2 * STEP)):
        arguments = Arguments(example, storage, client.driver, prepared)
        if storage == Storage.DEVICE and not arguments.buffers:
            continue
        for way in (Way.ASYNCHRONOUS, Way.SYNCHRONOUS, Way.FENCED):
            check(prepared, example, arguments, way, measure=False)
        count += 1
    assert count > 3


def test_fenced_executions(client_of: ClientOf, examples_of: ExamplesOf) -> None:
    count = 0
    for example, prepared in prepared_examples(client_of(LAST), examples_of(LAST, STEP)):
        for measure in (False, True):
            check(prepared, example, Arguments(example), Way.FENCED, measure)
        count += 1
    assert count > 3


def test_signed_for_unsigned_8_bit(client_of: ClientOf, examples_of: ExamplesOf) -> None:
    """Either both are taken, or neither."""
    client = client_of(LAST)
    count = 0
    for example in examples_of(LAST, STEP // 2):
        if Kind.QUANT8_TO_SIGNED not in example.kinds:
            continue
        pair = (example, as_kind(example, Kind.QUANT8_TO_SIGNED))
        unsigned, signed = (client.prepared(hal_model(one)) for one in pair)
        assert (unsigned is None) == (signed is None), example.name
        for one, prepared in zip(pair, (unsigned, signed), strict=True):
            if prepared is not None:
                for way, measure in product(Way, (False, True)):
                    check(prepared, one, Arguments(one), way, measure)
        count += 1
    assert count > 3


def test_endless_loops_end(client_of: ClientOf, failing_examples: list[Example]) -> None:
    client = client_of(LAST)
    count = 0
    for example in failing_examples:
        if not example.infinite_loop:
            continue
        prepared = client.prepared(hal_model(example))
        if prepared is None:
            continue
        for way, measure in product((Way.ASYNCHRONOUS, Way.SYNCHRONOUS, Way.FENCED), (False, True)):
            request = Arguments(example).request
            outcome = execute(prepared, request, way, measure, loop_timeout_ns=LOOP_TIMEOUT_NS)
            wanted = MISSED if way != Way.FENCED or has_known_outputs(example) else (ErrorStatus.INVALID_ARGUMENT,)
            assert outcome.status in wanted, example.name
        count += 1
    assert count
