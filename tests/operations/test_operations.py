# SPDX-License-Identifier: Apache-2.0
"""Every case on every device under test, and the example corpus where it is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.operations import definitions
from nn_runtime.testing.conformance import Outcome, Through, Verdict, make_runner, run_example
from nn_runtime.testing.corpus import Kind, read_spec, spec_files
from tests.operations.cases import examples

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from nn_runtime.devices import Device
    from nn_runtime.testing.conformance import Result
    from nn_runtime.testing.corpus import Example

SAMPLE_STEP = 8
"""The quick suite runs one example in so many of each file."""
WAYS_SAMPLE_STEP = 40
"""The same for the other ways through the NDK level."""

CASES = [(example, kind) for example in examples() for kind in example.kinds]


@pytest.mark.parametrize(("example", "kind"), CASES, ids=[f"{example.name}-{kind.value}" for example, kind in CASES])
def test_case_gives_the_expected_result(example: Example, kind: Kind, device: Device) -> None:
    result = run_example(example, kind, make_runner(device, Through.HAL))
    if result.verdict == Verdict.UNSUPPORTED and not device.is_reference:
        pytest.skip(result.message)
    assert result.verdict == Verdict.PASSED, result.message


@pytest.mark.parametrize("through", list(Through), ids=lambda through: through.value)
def test_corpus(through: Through, device: Device, corpus_folder: Path, is_long: bool) -> None:
    step = 1 if is_long else SAMPLE_STEP if through in (Through.NDK, Through.HAL) else WAYS_SAMPLE_STEP
    runner = make_runner(device, through)
    failed: list[Result] = []
    passed = 0
    for path in spec_files(corpus_folder):
        sample = [example for example in read_spec(path) if _is_defined(example)][::step]
        for example in sample:
            results = [run_example(example, kind, runner) for kind in example.kinds]
            failed += [result for result in results if result.verdict == Verdict.FAILED]
            passed += sum(result.verdict == Verdict.PASSED for result in results)
    lines = [f"{result.spec} {result.example} ({result.kind.value}): {result.message}" for result in failed]
    assert not failed, f"{len(failed)} failed:\n" + "\n".join(lines[:20])
    assert passed, "no example was supported"


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
