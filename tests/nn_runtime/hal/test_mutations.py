# SPDX-License-Identifier: Apache-2.0
"""Models made invalid in one place are refused: every kind of mutation, of our cases and of the corpus."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from nn_runtime.hal.types import ErrorStatus, HalError
from nn_runtime.operations import definitions
from nn_runtime.testing.conformance import hal_model
from nn_runtime.testing.corpus import read_spec, spec_files
from nn_runtime.testing.mutations import drawn_mutations, mutations, refusal_problem
from tests.nn_runtime.hal.models import add_model
from tests.operations.cases import examples

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from nn_runtime.device import Device
    from nn_runtime.hal.types import Model
    from nn_runtime.testing.corpus import Example
    from nn_runtime.testing.mutations import Mutation

MUTATIONS_OF_EACH = 40
SAMPLE_STEP = 50
"""The quick suite takes one example in so many."""
KINDS = {
    "argument type",
    "boundary",
    "execution order",
    "operand index",
    "operand lifetime",
    "operand rank",
    "operand removed",
    "operand scale",
    "operand type",
    "operand zero point",
    "operation input added",
    "operation input removed",
    "operation output added",
    "operation output removed",
    "operation removed",
    "operation type",
    "preference",
    "priority",
    "second writer",
    "writer removed",
}


def test_mutations_of_our_cases_are_refused(device: Device, is_long: bool) -> None:
    chosen = [example for example in examples() if not example.expect_failure]
    _check_all(chosen[:: 1 if is_long else SAMPLE_STEP], device)


def test_mutations_of_the_corpus_are_refused(device: Device, corpus_folder: Path, is_long: bool) -> None:
    chosen = [example for path in spec_files(corpus_folder) for example in _valid_examples(path)]
    _check_all(chosen[:: 1 if is_long else SAMPLE_STEP], device)


def test_every_kind_is_drawn() -> None:
    drawn = drawn_mutations(add_model(), seed=0)
    assert {mutation.kind for mutation in drawn} == KINDS
    assert len(drawn) == MUTATIONS_OF_EACH


def test_the_same_seed_draws_the_same() -> None:
    first, second, other = (
        [(mutation.kind, mutation.what) for mutation in drawn_mutations(add_model(), seed)] for seed in (3, 3, 4)
    )
    assert first == second
    assert first != other


def test_mutations_are_all_found_invalid_and_differ(reference_device: Device) -> None:
    found = mutations(add_model())
    assert len({(mutation.kind, mutation.what) for mutation in found}) > len(found) // 2
    assert not [problem for mutation in found if (problem := refusal_problem(reference_device.hal, mutation))]


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        (None, "accepted it"),
        (HalError(ErrorStatus.GENERAL_FAILURE, "no"), "gave GENERAL_FAILURE: no"),
        (KeyError("x"), "crashed: KeyError"),
        (HalError(ErrorStatus.INVALID_ARGUMENT, "no"), ""),
    ],
    ids=["accepts", "other status", "crashes", "refuses"],
)
def test_only_invalid_argument_is_a_refusal(answer: Exception | None, wanted: str) -> None:
    device = _AnsweringDevice(answer)
    problem = refusal_problem(device, drawn_mutations(add_model(), 0, 1)[0])  # type: ignore[arg-type]
    assert wanted in problem
    assert bool(problem) == bool(wanted)


class _AnsweringDevice:
    """Answers every call with the same error, or with success."""

    def __init__(self, answer: Exception | None) -> None:
        self._answer = answer

    def get_supported_operations(self, model: Model) -> list[bool]:
        if self._answer is not None:
            raise self._answer
        return [True] * len(model.main.operations)

    def prepare_model(self, *_arguments: object) -> None:
        if self._answer is not None:
            raise self._answer


def _valid_examples(path: Path) -> Iterator[Example]:
    known = definitions()
    for example in read_spec(path):
        if not example.expect_failure and all(op.type in known for graph in example.graphs for op in graph.operations):
            yield example


def _check_all(chosen: Iterable[Example], device: Device) -> None:
    problems = [
        f"{example.spec}/{example.name}, {problem}"
        for seed, example in enumerate(chosen)
        for problem in _problems(drawn_mutations(hal_model(example), seed, MUTATIONS_OF_EACH), device)
    ]
    assert not problems, f"{len(problems)} not refused:\n" + "\n".join(problems[:20])


def _problems(drawn: Iterable[Mutation], device: Device) -> Iterator[str]:
    return (problem for mutation in drawn if (problem := refusal_problem(device.hal, mutation)))
