# SPDX-License-Identifier: Apache-2.0
"""Drivers, versions and examples for VTS."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from nn_runtime.hal.versions import minimum_level
from nn_runtime.operations import definitions
from nn_runtime.testing.conformance import hal_model
from nn_runtime.testing.corpus import read_spec, spec_files
from tests.nn_runtime.hal.vts.client import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from nn_runtime.device import Device
    from nn_runtime.testing.corpus import Example

    ExamplesOf = Callable[[int, int], Iterator[Example]]

OF_EACH_FILE = 2
"""Examples of a file that a sample takes."""


@pytest.fixture
def client_of(device: Device) -> Callable[[int], Client]:
    """Return what makes the driver under test answer as a version."""
    return lambda version: Client(device.hal, version)


@pytest.fixture
def examples_of(corpus_folder: Path, is_long: bool) -> ExamplesOf:
    """Return what draws the examples that a version can express: two of every so many files, or all."""
    known = definitions()

    def draw(version: int, step: int) -> Iterator[Example]:
        for path in spec_files(corpus_folder)[:: 1 if is_long else step]:
            found = 0
            for example in read_spec(path):
                if found == OF_EACH_FILE and not is_long:
                    break
                if any(op.type not in known for graph in example.graphs for op in graph.operations):
                    continue
                if example.expect_failure or minimum_level(hal_model(example)) <= version:
                    found += 1
                    yield example

    return draw


@pytest.fixture(scope="session")
def failing_examples(corpus_folder: Path) -> list[Example]:
    """Return all examples that must fail, endless loops among them; reads the whole corpus, once."""
    return [example for path in spec_files(corpus_folder) for example in read_spec(path) if example.expect_failure]
