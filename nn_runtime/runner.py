# SPDX-License-Identifier: Apache-2.0
"""A compilation with its bound executions: what a session runs, and each of the rivals that it times."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from nn_runtime.binding import Binding
from nn_runtime.errors import BadState, NNError, OutputInsufficientSize

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nn_runtime.compilation import Compilation
    from nn_runtime.execution import Execution
    from nn_runtime.interface import Interface
    from nn_runtime.operand import Array, Dimensions
    from nn_runtime.plan import Plan
    from nn_runtime.requests import OtherMemory

Compute: TypeAlias = "Callable[[Execution, OtherMemory | None], object]"

_MAX_GUESSES = 3
"""How often outputs of unknown size are enlarged, and once more for each of them: a run may find one after another."""


class Runner:
    """Runs a compilation on arrays of any shapes that it takes, keeping the latest execution."""

    def __init__(self, compilation: Compilation, interface: Interface, states: Mapping[int, Array]) -> None:
        """Raises BadState for a compilation that is not finished.

        `states`: by position of input what is kept between runs; every run reads it, and brings it up to date.
        """
        if compilation.plan is None:
            raise BadState("session: the compilation is not finished, or its finish failed")
        self.compilation = compilation
        self.plan: Plan = compilation.plan
        self._interface = interface
        self._states = states
        self._bindings: dict[bool, Binding] = {}
        """By whether times are measured."""

    @property
    def devices_used(self) -> tuple[str, ...]:
        """Names of the devices that run steps, in order of first use."""
        return tuple(dict.fromkeys(step.device.name for step in self.plan.steps))

    def run(self, arrays: Sequence[Array], compute: Compute, *, measure: bool = False) -> list[Array]:
        """Compute by way of `compute` on the inputs in order and return new output arrays; raises the run's error."""
        try:
            binding = self._binding(arrays, measure)
            guesses = 0
            while True:
                try:
                    return self._run_bound(binding, arrays, compute)
                except OutputInsufficientSize as error:
                    guesses += 1
                    if guesses > _MAX_GUESSES + binding.guesses:
                        raise
                    binding = self._exchanged(binding, arrays, measure, binding.enlarged(error.shapes))
        except NNError:
            raise
        except BaseException:  # an interrupt, after which an execution may count as computing for ever
            self._bindings.pop(measure, None)
            raise

    def close(self) -> None:
        """Free the prepared models."""
        for binding in self._bindings.values():
            binding.execution.close()
        self._bindings.clear()
        self.compilation.close()

    def _binding(self, arrays: Sequence[Array], measure: bool) -> Binding:
        """Return the execution for inputs of these shapes: the last one where it fits."""
        binding = self._bindings.get(measure)
        if binding is None or (binding.is_dynamic and binding.shapes != _shapes(arrays)):
            binding = self._exchanged(binding, arrays, measure)
        return binding

    def _exchanged(
        self, before: Binding | None, arrays: Sequence[Array], measure: bool, sizes: Sequence[int] = ()
    ) -> Binding:
        """Return a new binding in the place of the one before, which stays where inputs of these shapes are refused."""
        binding = Binding(self.compilation, self._interface, _shapes(arrays), self._states, measure, sizes)
        if before is not None:
            before.execution.close()
        self._bindings[measure] = binding
        return binding

    def _run_bound(self, binding: Binding, arrays: Sequence[Array], compute: Compute) -> list[Array]:
        other = binding.other_memory(arrays)
        binding.take(arrays, other)
        compute(binding.execution, other)
        binding.keep_states()
        return binding.results(other)


def _shapes(arrays: Sequence[Array]) -> tuple[Dimensions, ...]:
    return tuple(array.shape for array in arrays)
