# SPDX-License-Identifier: Apache-2.0
"""What a run over a corpus is made of: the way, the choice of examples, verdicts, outcomes."""

from __future__ import annotations

from collections import Counter
from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from nn_runtime.testing.corpus import Kind
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from nn_runtime.operand import Array, Dimensions
    from nn_runtime.testing.corpus import Example

EXECUTIONS = 2
INFINITE_LOOP_TIMEOUT_NS = 1_000_000


class Verdict(Enum):
    """How one run of an example ended."""

    PASSED = "passed"
    FAILED = "failed"
    UNSUPPORTED = "unsupported"


class Through(Enum):
    """The interface by which the device is driven; all but HAL are ways through the NDK level."""

    NDK = "ndk"
    HAL = "hal"
    ASYNCHRONOUS = "async"
    BURST = "burst"
    FENCED = "fenced"
    """Where all output dimensions are known; else synchronous."""
    REUSED = "reused"
    """One execution, computed three times."""
    INSUFFICIENT = "insufficient"
    """First with outputs of unknown size one element too small, which must tell the true shapes."""
    SPLIT = "split"
    """Cut over three devices with disjoint operations, which all compute by the device, and the CPU."""
    DOMAINS = "domains"
    """Every input and output in device memory of its own, filled and read by `Memory.copy`."""


@dataclass(frozen=True)
class Result:
    """One run of one example; `message` says why it failed, or what is not supported."""

    example: str
    spec: str
    operation: str
    kind: Kind
    verdict: Verdict
    message: str = ""


@dataclass
class Report:
    """All results of a corpus on a device."""

    device: str
    results: list[Result] = field(default_factory=list)

    def counts(self) -> Counter[Verdict]:
        """Return how many runs ended how."""
        return Counter(result.verdict for result in self.results)

    def by_operation(self) -> dict[str, Counter[Verdict]]:
        """Return the counts per main operation, sorted by name."""
        table: dict[str, Counter[Verdict]] = {}
        for result in sorted(self.results, key=lambda result: result.operation):
            table.setdefault(result.operation, Counter())[result.verdict] += 1
        return table


@dataclass(frozen=True)
class Filter:
    """Which examples are run: `only` and `exclude` are parts of names, `operations` main operations (() for all)."""

    kinds: Collection[Kind] = tuple(Kind)
    only: str = ""
    exclude: str = ""
    operations: Collection[str] = ()

    def accepts(self, example: Example) -> bool:
        """Tell whether an example is run."""
        name = f"{example.spec}/{example.name}"
        wanted = self.only in name and not (self.exclude and self.exclude in name)
        return wanted and (not self.operations or example.main_op in self.operations)


class Unsupported(Exception):
    """The device does not take the example."""


class WrongShapes(Exception):
    """An execution into buffers that are too small did not tell the true shapes."""


class FinishRefused(Exception):
    """The model would not finish though all its parts were accepted: wrong even where a failure is expected."""


@dataclass(frozen=True)
class Outcome:
    """Dimensions and data of one output."""

    dimensions: Dimensions
    data: Array


class Runner(Protocol):
    """Builds and executes examples on one device."""

    def run(self, example: Example, kind: Kind) -> Iterator[list[Outcome]]:
        """Yield the outputs of each execution; raises Unsupported, NNError or HalError."""
