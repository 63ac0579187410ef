# SPDX-License-Identifier: Apache-2.0
"""Runs of a plan (SURFACE section k).

A `Run` belongs to one execution: it binds the arguments once, keeps requests and temporaries, and may be executed again
and again.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from nn_runtime.compound_run import CompoundRun
from nn_runtime.failures import error_of_hal, guarded
from nn_runtime.fallback import fall_back, fall_back_fenced
from nn_runtime.hal.interfaces import TakesOtherMemory
from nn_runtime.hal.types import ErrorStatus, HalError
from nn_runtime.outcome import FencedOutcome, Outcome, dimensions_of
from nn_runtime.requests import request_of, with_other

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.hal.interfaces import IExecution
    from nn_runtime.hal.types import ExecutionResult
    from nn_runtime.plan import Plan
    from nn_runtime.requests import Argument, OtherMemory
    from nn_runtime.step import RunOptions


class Run(Protocol):
    """A plan with bound arguments."""

    @property
    def takes_other_memory(self) -> bool:
        """Whether a run can have other memory than the arguments': known after the first."""

    def execute(self, options: RunOptions, other: OtherMemory | None = None) -> Outcome:
        """Run once; raises NNError (OutputInsufficientSize with the true shapes).

        `other`: only where `takes_other_memory`.
        """

    def execute_fenced(self, options: RunOptions, wait_for: Sequence[int], duration_ns: int | None) -> FencedOutcome:
        """Start a run after some fences, of at most `duration_ns` after them; raises NNError.

        The sizes of all temporaries and outputs are known.
        """


def bind(plan: Plan, inputs: Sequence[Argument], outputs: Sequence[Argument], *, is_reusable: bool = False) -> Run:
    """Return a run of the plan with these arguments; `is_reusable`: with the same options again and again."""
    if plan.is_simple:
        return SimpleRun(plan, inputs, outputs, is_reusable=is_reusable)
    return CompoundRun(plan, inputs, outputs)


class SimpleRun:
    """The whole model on one device."""

    def __init__(
        self, plan: Plan, inputs: Sequence[Argument], outputs: Sequence[Argument], *, is_reusable: bool
    ) -> None:
        """Make the request; a reusable one is bound by the driver at the first run."""
        self._plan = plan
        self._step = plan.steps[0]
        self._inputs = inputs
        self._outputs = outputs
        self._known = tuple(argument.dimensions for argument in outputs)
        self._request = request_of(plan.model, inputs, outputs)
        self._is_to_bind = is_reusable
        self._execution: IExecution | None = None
        self._adaptable: TakesOtherMemory | None = None
        """The same, if it is one."""
        self._latest: tuple[ExecutionResult, Outcome] | None = None

    @property
    def takes_other_memory(self) -> bool:
        """Whether what the driver has bound does."""
        return self._adaptable is not None

    def execute(self, options: RunOptions, other: OtherMemory | None = None) -> Outcome:
        """Run the driver, or the CPU device after a failure where that is allowed."""
        if self._is_to_bind:
            self._is_to_bind = False
            self._execution = self._step.bind(self._request, options)
            if isinstance(self._execution, TakesOtherMemory):
                self._adaptable = self._execution
        try:
            execution = self._execution
            if other is not None and self._adaptable is not None:
                execution = guarded(partial(self._adaptable.with_memory, *other), "with_memory")
            result = self._step.execute(self._request, options, execution)
        except HalError as error:
            where = f"execution on {self._step.device.name}"
            if error.status == ErrorStatus.OUTPUT_INSUFFICIENT_SIZE or self._step.device.is_reference:
                raise error_of_hal(error, where) from error
            inputs, outputs = self._inputs, self._outputs
            if other is not None:
                inputs, outputs = with_other(inputs, other.inputs), with_other(outputs, other.outputs)
            return fall_back(self._plan, inputs, outputs, options, error, where)
        latest = self._latest
        if latest is None or latest[0] is not result:
            latest = self._latest = result, Outcome(dimensions_of(result, self._known), result.timing)
        return latest[1]

    def execute_fenced(self, options: RunOptions, wait_for: Sequence[int], duration_ns: int | None) -> FencedOutcome:
        """Start the driver; after a failure wait for the fences and run the CPU device where that is allowed."""
        try:
            fence, callback = self._step.execute_fenced(self._request, wait_for, options, duration_ns)
        except HalError as error:
            where = f"execution on {self._step.device.name}"
            if self._step.device.is_reference:
                raise error_of_hal(error, where) from error
            return fall_back_fenced(self._plan, self._inputs, self._outputs, options, error, where, wait_for)
        return FencedOutcome(self._known, fence, callback)
