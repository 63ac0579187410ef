# SPDX-License-Identifier: Apache-2.0
"""Every case on every device under test, and the example corpus where it is there.

The devices take every operation in all forms that are found here, so that a refusal is a failure, too.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.operations import definitions
from nn_runtime.testing.conformance import Outcome, Through, Verdict, make_runner, run_example
from nn_runtime.testing.corpus import Kind, read_spec, spec_files
from tests.operations.cases import examples

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from nn_runtime.device import Device
    from nn_runtime.testing.corpus import Example

SAMPLE_STEP = 8
"""The quick suite runs one example in so many of each file."""
WAYS_SAMPLE_STEP = 40
"""The same for the other ways through the NDK level."""

CASES = [(example, kind) for example in examples() for kind in example.kinds]


@pytest.mark.parametrize(("example", "kind"), CASES, ids=[f"{example.name}-{kind.value}" for example, kind in CASES])
def test_case_gives_the_expected_result(example: Example, kind: Kind, device: Device) -> None:
    result = run_example(example, kind, make_runner(device, Through.HAL))
    assert result.verdict == Verdict.PASSED, result.message


@pytest.mark.parametrize("through", [Through.NDK, Through.HAL], ids=lambda through: through.value)
def test_corpus(through: Through, device: Device, corpus_folder: Path, is_long: bool) -> None:
    _check_corpus([through], device, corpus_folder, 1 if is_long else SAMPLE_STEP)


def test_corpus_in_other_ways(device: Device, corpus_folder: Path, is_long: bool) -> None:
    """Asynchronous, burst, fenced, reused, into buffers that are too small, and cut over three devices."""
    ways = [through for through in Through if through not in (Through.NDK, Through.HAL)]
    _check_corpus(ways, device, corpus_folder, 1 if is_long else WAYS_SAMPLE_STEP)


def _check_corpus(ways: Sequence[Through], device: Device, folder: Path, step: int) -> None:
    """Run one example in `step` of each file."""
    runners = {through: make_runner(device, through) for through in ways}
    failed: list[str] = []
    passed = 0
    for path in spec_files(folder):
        sample = [example for example in read_spec(path) if _is_defined(example)][::step]
        for example, (through, runner) in itertools.product(sample, runners.items()):
            for result in (run_example(example, kind, runner) for kind in example.kinds):
                passed += result.verdict == Verdict.PASSED
                if result.verdict != Verdict.PASSED:
                    name = f"{through.value} {result.spec} {result.example} ({result.kind.value})"
                    failed.append(f"{name}: {result.verdict.value}: {result.message}")
    assert not failed, f"{len(failed)} not passed:\n" + "\n".join(failed[:20])
    assert passed, "there is no example"


def test_wrong_results_are_not_passed() -> None:
    example = next(example for example in examples() if example.name == "relu_values_float32")
    wrong = _FixedRunner(np.zeros(1, np.float32))
    result = run_example(example, Kind.PLAIN, wrong)
    assert result.verdict == Verdict.FAILED
    assert "wanted" in result.message


def _is_defined(example: Example) -> bool:
    known = definitions()
    return all(operation.type in known for graph in example.graphs for operation in graph.operations)


class _FixedRunner:
    """A device that answers everything with the same number."""

    def __init__(self, value: np.ndarray) -> None:
        self._value = value

    def run(self, example: Example, kind: Kind) -> Iterator[list[Outcome]]:
        yield [Outcome(out.dimensions, np.resize(self._value, out.dimensions)) for out in example.outputs]
