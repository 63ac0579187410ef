# SPDX-License-Identifier: Apache-2.0
"""A compiled network: run it, see where each operation runs and what it takes."""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import TYPE_CHECKING, overload

import numpy as np

from nn_runtime.binding import Binding
from nn_runtime.checks import check_kind
from nn_runtime.codes import DurationCode, operation_name
from nn_runtime.compilation import Compilation
from nn_runtime.errors import BadData, BadState, NNError, OutputInsufficientSize
from nn_runtime.interface import Interface
from nn_runtime.operand import dtype_of
from nn_runtime.reports import ExplainedOperation, Explanation, Profile, Timing, profile_of
from nn_runtime.session_inputs import SessionInputs
from nn_runtime.trial import fastest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from nn_runtime.interface import TensorInfo
    from nn_runtime.operand import Array, Dimensions
    from nn_runtime.plan import Plan
    from nn_runtime.session_inputs import Inputs
    from nn_runtime.step import StepProfile

_log = logging.getLogger("nn_runtime.compilation")

_MAX_ATTEMPTS = 4


class Session:
    """A network prepared on its devices. Runs from several threads take turns."""

    def __init__(self, compilation: Compilation, interface: Interface, rivals: Sequence[Compilation] = ()) -> None:
        """Use `Network.compile`. `rivals`: other compilations of the model, for the first run to time."""
        check_kind("session: the compilation", compilation, Compilation)
        check_kind("session: the interface", interface, Interface)
        if compilation.plan is None:
            raise BadState("session: the compilation is not finished, or its finish failed")
        self._compilation = compilation
        self._interface = interface
        self._plan: Plan = compilation.plan
        main = self._plan.model.main
        self._inputs = SessionInputs(interface, [main.operands[i] for i in main.input_indexes])
        self._lock = threading.Lock()
        self._bindings: dict[bool, Binding] = {}
        self._states: dict[int, Array] = {}
        self._profile: Profile | None = None
        self._profiled_steps: Sequence[StepProfile] | None = None
        """What `_profile` is made of, once it is asked for."""
        self._timing: Timing | None = None
        self._closed = False
        self._rivals = [Session(rival, interface) for rival in rivals]
        self.reset_variables()

    def __repr__(self) -> str:
        where = "closed" if self._closed else f"on {', '.join(self.devices_used)}"
        return f"<Session {where}: {self._interface}>"

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """What `run` takes."""
        return self._interface.inputs

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """What `run` returns."""
        return self._interface.outputs

    @property
    def devices_used(self) -> tuple[str, ...]:
        """Names of the devices that run steps, in order of first use; before the first run, see `rivals`."""
        return tuple(dict.fromkeys(step.device.name for step in self._plan.steps))

    @property
    def rivals(self) -> tuple[str, ...]:
        """Devices to which the first run may move the whole network; none after it."""
        return tuple(name for rival in self._rivals for name in rival.devices_used)

    @property
    def profile(self) -> Profile | None:
        """Times of the last `run(..., profile=True)`; None before."""
        if self._profile is None and self._profiled_steps is not None:
            self._profile = profile_of(self._profiled_steps)
        return self._profile

    @property
    def timing(self) -> Timing | None:
        """Times of the last `run(..., measure=True)`; None before."""
        return self._timing

    @overload
    def run(
        self, inputs: Mapping[str, npt.ArrayLike], *, profile: bool = ..., measure: bool = ...
    ) -> dict[str, Array]: ...

    @overload
    def run(self, inputs: Inputs, *, profile: bool = ..., measure: bool = ...) -> list[Array]: ...

    def run(
        self, inputs: Inputs | Mapping[str, npt.ArrayLike], *, profile: bool = False, measure: bool = False
    ) -> list[Array] | dict[str, Array]:
        """Run once and return new output arrays: a list, or for a dict of inputs a dict of outputs.

        `inputs`: one array (a network with one input), a list or tuple with one array for each input, or a dict by
        tensor names or signature names, which also decides the names of the outputs. Byte order and layout are
        converted; so are floats to floats (those beyond a smaller type become infinite), and integers to integers where
        all values fit. Python lists of integers go for floats too. Raises BadData naming the input, wanted and given;
        else the run's error.

        `profile` collects `self.profile`, and costs time. `measure` collects `self.timing`: by the rules of the NDK
        only for a network compiled for one device without fallback, as by `device="opencl"` or a Device.
        """
        given, names = self._inputs.ordered(inputs)
        with self._lock:
            if self._closed:
                raise BadState("session: it is closed")
            if measure:
                self._check_measurable()
            if self._rivals:
                self._settle(given)
            outputs = self._run(given, profile, measure)
        return outputs if names is None else dict(zip(names, outputs, strict=True))

    def explain(self) -> Explanation:
        """Return where each operation runs and why, with estimated times, and measured ones after a profiled run."""
        profile = self.profile
        measured, fused = ({}, {}) if profile is None else profile.times_by_operation()
        rows = [
            ExplainedOperation(
                placement.operation,
                operation_name(placement.code),
                placement.device.name,
                placement.step,
                {name: answer.reason for name, answer in placement.support.items() if not answer.supported},
                placement.estimated_ns,
                measured.get(placement.operation, None if profile is None else 0),
                fused.get(placement.operation),
            )
            for placement in self._plan.placements
        ]
        return Explanation(tuple(sorted(rows, key=lambda row: row.index)))

    def reset_variables(self) -> None:
        """Set what the network keeps between runs (states of recurrent layers, variables) to what it is at first."""
        with self._lock:
            self._clear_states()

    def close(self) -> None:
        """Free the prepared models."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._close_rivals()
                for binding in self._bindings.values():
                    binding.execution.close()
                self._bindings.clear()
                self._compilation.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _check_measurable(self) -> None:
        """Raise BadData where no time can be told: the NDK's own error names calls that the user did not make."""
        if not self._compilation.has_one_explicit_device:
            names = ", ".join(device.name for device in self._compilation.devices)
            fallback = "" if self._compilation.is_explicit else " with fallback to the CPU"
            raise BadData(
                "run: measure=True wants a network compiled for one device without fallback, as by device='opencl' or "
                f"a Device, got one for {names}{fallback}"
            )

    def _clear_states(self) -> None:
        main = self._plan.model.main
        for state in self._interface.states:
            operand = main.operands[main.input_indexes[state.input]]
            first = operand.zero_point if state.initial is None else state.initial
            self._states[state.input] = np.full(operand.dimensions, first, dtype_of(operand.type))

    def _settle(self, given: Sequence[npt.ArrayLike]) -> None:
        """Time the plan and its rivals on the first inputs, and keep the fastest.

        Raises what the plan itself does; nothing is settled then.
        """
        self._run(given, False, False)
        able: list[Session] = []
        for rival in self._rivals:
            try:
                rival.run(given)
                able.append(rival)
            except NNError as error:
                _log.warning("%s is not tried: %s", rival.devices_used[0], error)
        winner = fastest([lambda: self._run(given, False, False), *(partial(rival.run, given) for rival in able)])
        if winner:
            self._exchange(able[winner - 1])
        _log.debug("the first run gives the network to %s", "+".join(self.devices_used))
        self._compilation.keep_placement()
        self._close_rivals()
        self._clear_states()

    def _exchange(self, rival: Session) -> None:
        self._compilation, rival._compilation = rival._compilation, self._compilation
        self._plan, rival._plan = rival._plan, self._plan
        self._bindings, rival._bindings = rival._bindings, self._bindings

    def _close_rivals(self) -> None:
        for rival in self._rivals:
            rival.close()
        self._rivals = []

    def _run(self, given: Sequence[npt.ArrayLike], profile: bool, measure: bool) -> list[Array]:
        arrays = self._inputs.arrays(given)
        try:
            for _ in range(_MAX_ATTEMPTS - 1):
                binding = self._binding(arrays, measure)
                try:
                    return self._run_bound(binding, arrays, profile, measure)
                except OutputInsufficientSize as error:
                    binding.execution.close()
                    self._bindings[measure] = Binding(
                        self._compilation, self._interface, _shapes(arrays), measure, binding.enlarged(error.shapes)
                    )
            return self._run_bound(self._binding(arrays, measure), arrays, profile, measure)
        except NNError:
            raise
        except BaseException:  # an interrupt, after which an execution may count as computing for ever
            self._bindings.pop(measure, None)
            raise

    def _binding(self, arrays: Sequence[Array], measure: bool) -> Binding:
        """Return the execution for inputs of these shapes: the last one where it fits."""
        binding = self._bindings.get(measure)
        if binding is None or (binding.is_dynamic and binding.shapes != _shapes(arrays)):
            if binding is not None:
                binding.execution.close()
            binding = Binding(self._compilation, self._interface, _shapes(arrays), measure)
            self._bindings[measure] = binding
        return binding

    def _run_bound(self, binding: Binding, arrays: Sequence[Array], profile: bool, measure: bool) -> list[Array]:
        for target, array in zip(binding.inputs, arrays, strict=False):
            target[...] = array
        for position, state in self._states.items():
            np.copyto(binding.inputs[position], state)
        if profile:
            self._profile, self._profiled_steps = None, binding.execution.compute_profiled()
        else:
            binding.execution.compute()
        if measure:
            durations = (DurationCode.ON_HARDWARE, DurationCode.IN_DRIVER)
            self._timing = Timing(*(binding.execution.get_duration(code) for code in durations))
        for kept in self._interface.states:
            if kept.output is not None:
                np.copyto(self._states[kept.input], binding.outputs[kept.output])
        return [
            binding.result(position, info)
            for position, info in zip(self._interface.output_positions, self._interface.outputs, strict=True)
        ]


def _shapes(arrays: Sequence[Array]) -> tuple[Dimensions, ...]:
    return tuple(array.shape for array in arrays)
