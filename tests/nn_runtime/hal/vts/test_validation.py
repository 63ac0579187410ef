# SPDX-License-Identifier: Apache-2.0
"""Models, requests and burst packets made invalid in one place (VTS ValidateModel, ValidateRequest, ValidateBurst)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from nn_runtime.codes import FeatureLevel
from nn_runtime.hal.types import DataLocation, ErrorStatus, Request, RequestArgument
from nn_runtime.hal.versions import v1_3
from nn_runtime.hal.versions.packets import serialize_request
from nn_runtime.hal.versions.served_model import ServedPreparedModel13
from nn_runtime.testing.conformance import hal_model
from nn_runtime.testing.mutations import drawn_mutations
from tests.nn_runtime.hal.vts.arguments import Arguments
from tests.nn_runtime.hal.vts.client import NO_TIMING, VERSIONS, BurstEnd, Way, execute, form, outcome_of, ways_of
from tests.nn_runtime.hal.vts.test_generated import prepared_examples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from nn_runtime.hal.versions.conversion import VersionedModel
    from nn_runtime.hal.versions.served_model import ServedPreparedModel10
    from nn_runtime.testing.corpus import Example
    from tests.nn_runtime.hal.vts.client import Client
    from tests.nn_runtime.hal.vts.conftest import ExamplesOf

    ClientOf = Callable[[int], Client]

STEP = 23
MUTATIONS = 40
MANY = 1000
"""More mutations than any model of the long run has of each kind."""
SMALL_CHANNEL = 8
BAD_NUMBERS = (-1, 3)


def is_validated(example: Example) -> bool:
    return not any(part in example.name for part in ("inputs_as_internal", "all_tensors_as_inputs"))


def refusal(client: Client, model: VersionedModel, preference: int, priority: int, ask: bool) -> str:
    """Return how a driver fails to refuse a model ("" if it does), in its query and in its preparation."""
    if ask and client.supported(model)[0] != ErrorStatus.INVALID_ARGUMENT:
        return f"supported operations: {client.supported(model)}"
    found = client.prepare(model, preference, priority)
    wanted = ErrorStatus.INVALID_ARGUMENT
    return "" if (found.launch, found.status, found.prepared) == (wanted, wanted, None) else f"prepare: {found}"


@pytest.mark.parametrize("version", VERSIONS)
def test_invalid_models(client_of: ClientOf, examples_of: ExamplesOf, is_long: bool, version: int) -> None:
    client = client_of(version)
    problems = []
    for seed, example in enumerate(filter(is_validated, examples_of(version, STEP))):
        model = hal_model(example)
        for mutation in drawn_mutations(model, seed, MANY if is_long else MUTATIONS):
            if mutation.changes_model or version >= _level_of(mutation.kind):
                changed = form(mutation.make(), version)
                problem = refusal(client, changed, mutation.preference, mutation.priority, mutation.changes_model)
                if problem:
                    problems.append(f"{example.spec}/{example.name}, {mutation.kind}: {mutation.what}: {problem}")
    assert not problems, f"{len(problems)} not refused:\n" + "\n".join(problems[:20])


def _level_of(kind: str) -> FeatureLevel:
    """Return the version that brought an argument beside the model."""
    return FeatureLevel.HAL_1_1 if kind == "preference" else FeatureLevel.HAL_1_3


@pytest.mark.parametrize("version", VERSIONS)
def test_wrong_numbers_of_consumers(client_of: ClientOf, examples_of: ExamplesOf, version: int) -> None:
    client = client_of(version)
    for example in filter(is_validated, examples_of(version, STEP)):
        for changed in miscounted(form(hal_model(example), version)):
            assert not refusal(client, changed, 1, 1, ask=True), example.name


def miscounted(model: VersionedModel) -> Iterator[VersionedModel]:
    """Yield the model with one operand's number of consumers off by one."""
    operands = model.main.operands if isinstance(model, v1_3.Model) else model.operands
    for i, operand in enumerate(operands):
        for count in (operand.number_of_consumers - 1, operand.number_of_consumers + 1):
            changed = (*operands[:i], replace(operand, number_of_consumers=count), *operands[i + 1 :])
            if isinstance(model, v1_3.Model):
                yield replace(model, main=replace(model.main, operands=changed))
            elif count >= 0:
                yield replace(model, operands=changed)


def check_refused(prepared: ServedPreparedModel10, request: Request, way: Way, measure: bool) -> None:
    outcome = execute(prepared, request, way, measure)
    assert outcome.status == ErrorStatus.INVALID_ARGUMENT
    assert outcome.shapes == ()
    assert outcome.timing == NO_TIMING


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_that_lack_an_argument(client_of: ClientOf, examples_of: ExamplesOf, version: int) -> None:
    for example, prepared in prepared_examples(client_of(version), examples_of(version, STEP)):
        request = Arguments(example).request
        inputs, outputs = request.inputs, request.outputs
        lacking = [replace(request, inputs=inputs[:i] + inputs[i + 1 :]) for i in range(len(inputs))]
        lacking += [replace(request, outputs=outputs[:i] + outputs[i + 1 :]) for i in range(len(outputs))]
        for n, changed in enumerate(lacking):
            for way in ways_of(version):
                check_refused(prepared, changed, way, bool(n % 2))


@pytest.mark.parametrize("version", VERSIONS)
def test_the_launch_of_an_invalid_request_fails_at_once(
    client_of: ClientOf, examples_of: ExamplesOf, version: int
) -> None:
    """Status of the launch and by callback are the same."""
    notified: list[int] = []

    class Callback:
        def notify(self, status: int, *_rest: object) -> None:
            notified.append(status)

        notify_1_2 = notify_1_3 = notify

    for example, prepared in prepared_examples(client_of(version), examples_of(version, 4 * STEP)):
        request = Arguments(example).request
        notified.clear()
        wrong = replace(request, outputs=())
        assert prepared.execute(wrong, Callback()) == ErrorStatus.INVALID_ARGUMENT
        assert notified == [ErrorStatus.INVALID_ARGUMENT]


@pytest.mark.parametrize("version", VERSIONS)
def test_examples_that_must_fail(client_of: ClientOf, failing_examples: list[Example], version: int) -> None:
    client = client_of(version)
    count = 0
    for example in failing_examples:
        if example.infinite_loop:
            continue
        count += 1
        given = form(hal_model(example), version)
        found = client.prepare(given)
        if found.prepared is None:
            assert found.status != ErrorStatus.NONE
            continue
        for way in ways_of(version):
            assert execute(found.prepared, Arguments(example).request, way).status != ErrorStatus.NONE, example.name
    assert version < FeatureLevel.HAL_1_2 or count


def test_an_empty_fence_is_refused(client_of: ClientOf, examples_of: ExamplesOf) -> None:
    last = FeatureLevel.HAL_1_3
    for example, prepared in prepared_examples(client_of(last), examples_of(last, STEP)):
        assert isinstance(prepared, ServedPreparedModel13)
        request = Arguments(example).request
        status, fence, callback = prepared.execute_fenced(request, [-1], 0, None, None, None)  # type: ignore[arg-type]
        assert (status, fence, callback) == (ErrorStatus.INVALID_ARGUMENT, None, None)


def bad_records() -> list[bytes]:
    """Return a record of each kind that fits no packet."""
    argument = RequestArgument(location=DataLocation(), dimensions=(0,) * 10)
    packet = serialize_request(Request((argument,) * 10, (argument,) * 10, ()), True, [2**31 - 1])
    kinds = {record[:1]: record for record in packet}
    return list(kinds.values())


def mutated_packets(packet: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Yield the packet with a record removed, a bad one added, or one replaced by a bad one, at each place."""
    bad = bad_records()
    assert len(bad) == 7
    for at, record in enumerate(packet):
        yield [*packet[:at], *packet[at + 1 :]]
        for other in bad:
            is_size = record[:1] == other[:1] and record[0] in (2, 4)
            if record != other and not is_size:
                yield [*packet[:at], other, *packet[at + 1 :]]
    for at in range(len(packet) + 1):
        yield from ([*packet[:at], other, *packet[at:]] for other in bad)


@pytest.mark.parametrize("version", VERSIONS[2:])
def test_bad_burst_packets(client_of: ClientOf, examples_of: ExamplesOf, version: int) -> None:
    for example, prepared in prepared_examples(client_of(version), examples_of(version, 2 * STEP)):
        arguments = Arguments(example)
        with BurstEnd(prepared, arguments.pools) as burst:
            for packet in mutated_packets(burst.packet(arguments.request, measure=True)):
                if not packet:
                    continue
                outcome = outcome_of(burst.answer(packet))
                assert outcome.status != ErrorStatus.NONE
                assert (outcome.shapes, outcome.timing) == ((), NO_TIMING)


@pytest.mark.parametrize("version", VERSIONS[2:])
def test_results_that_do_not_fit_their_channel(client_of: ClientOf, examples_of: ExamplesOf, version: int) -> None:
    count = 0
    for example, prepared in prepared_examples(client_of(version), examples_of(version, STEP)):
        arguments = Arguments(example)
        with BurstEnd(prepared, arguments.pools) as burst:
            packet = burst.answer(burst.packet(arguments.request, measure=False))
        assert outcome_of(packet).status == ErrorStatus.NONE
        for length in {SMALL_CHANNEL, len(packet) - 1}:
            if len(packet) <= length:
                continue
            count += 1
            with BurstEnd(prepared, arguments.pools, results=length) as burst:
                outcome = burst.execute(arguments.request, measure=False)
            assert outcome.status != ErrorStatus.NONE
            assert (outcome.shapes, outcome.timing) == ((), NO_TIMING)
    assert count


@pytest.mark.parametrize("version", VERSIONS[2:])
def test_bytes_of_results_that_mean_nothing_are_zero(
    client_of: ClientOf, examples_of: ExamplesOf, version: int
) -> None:
    """Of a record about an operand: kind, flag and number of sizes at bytes 0, 8 and 12 carry all there is."""
    for example, prepared in prepared_examples(client_of(version), examples_of(version, STEP)):
        arguments = Arguments(example)
        with BurstEnd(prepared, arguments.pools) as burst:
            packet = burst.answer(burst.packet(arguments.request, measure=True))
        for record in packet:
            if record[0] == 1:
                assert not any(record[1:8])
                assert record[8] in (0, 1)
                assert not any(record[9:12])
                assert not any(record[16:])
