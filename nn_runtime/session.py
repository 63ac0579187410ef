# SPDX-License-Identifier: Apache-2.0
"""A compiled network: run it, see where each operation runs and what it takes."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from functools import partial
from typing import TYPE_CHECKING, overload

import numpy as np

from nn_runtime.binding import on_pages
from nn_runtime.checks import check_kind
from nn_runtime.codes import DurationCode, operation_name
from nn_runtime.compilation import Compilation
from nn_runtime.errors import BadData, BadState, MissedDeadline, NNError
from nn_runtime.execution import Execution
from nn_runtime.interface import Interface
from nn_runtime.operand import dtype_of, has_unknown_dimensions
from nn_runtime.reports import ExplainedOperation, Explanation, Profile, Timing, profile_of
from nn_runtime.runner import Runner
from nn_runtime.session_inputs import SessionInputs
from nn_runtime.trial import fastest, patience

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from nn_runtime.interface import TensorInfo
    from nn_runtime.operand import Array
    from nn_runtime.requests import OtherMemory
    from nn_runtime.session_inputs import Inputs
    from nn_runtime.step import StepProfile

_log = logging.getLogger("nn_runtime.compilation")


class Session:
    """A network prepared on its devices. Runs from several threads take turns."""

    def __init__(self, compilation: Compilation, interface: Interface, rivals: Sequence[Compilation] = ()) -> None:
        """Use `Network.compile`. `rivals`: other compilations of the model, for the first run to time."""
        check_kind("session: the compilation", compilation, Compilation)
        check_kind("session: the interface", interface, Interface)
        self._states: dict[int, Array] = {}
        """By position of input what is kept between runs: memory that is bound to executions."""
        self._runner = Runner(compilation, interface, self._states)
        self._rivals = [Runner(rival, interface, self._states) for rival in rivals]
        self._interface = interface
        main = self._runner.plan.model.main
        self._inputs = SessionInputs(interface, [main.operands[i] for i in main.input_indexes])
        self._lock: threading.Lock | _LeftBehind = threading.Lock()
        _sessions.add(self)
        self._profile: Profile | None = None
        self._profiled_steps: Sequence[StepProfile] | None = None
        """What `_profile` is made of, once it is asked for."""
        self._timing: Timing | None = None
        self._closed = False
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
        return self._runner.devices_used

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
    def run(self, inputs: Inputs, *, profile: bool = ..., measure: bool = ...) -> list[Array]: ...

    @overload
    def run(
        self, inputs: Mapping[str, npt.ArrayLike], *, profile: bool = ..., measure: bool = ...
    ) -> dict[str, Array]: ...

    def run(
        self, inputs: Inputs | Mapping[str, npt.ArrayLike], *, profile: bool = False, measure: bool = False
    ) -> list[Array] | dict[str, Array]:
        """Run once and return new output arrays: a list, or for a dict of inputs a dict of outputs.

        `inputs`: one array (a network with one input), a list or tuple with one array for each input, or a dict by
        tensor names or signature names, which also decides the names of the outputs. Byte order and layout are
        converted; so are floats to floats (those beyond a smaller type become infinite), and integers to integers where
        all values fit. Python lists of integers go for floats too. Arrays must not change before this returns: large
        ones may be read where they lie. Raises BadData naming the input, wanted and given; else the run's error.

        `profile` collects `self.profile`, and costs time. `measure` collects `self.timing`: by the rules of the NDK
        only for a network compiled for one device without fallback, as by `device="opencl"` or a Device. Not both at
        once: a profile lengthens what is measured.
        """
        given, names = self._inputs.ordered(inputs)
        with self._lock:
            if self._closed:
                raise BadState("session: it is closed")
            if measure:
                self._check_measurable(profile)
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
                placement.elsewhere_ns,
            )
            for placement in self._runner.plan.placements
        ]
        return Explanation(tuple(sorted(rows, key=lambda row: row.index)), self._runner.compilation.passed_over)

    def reset_variables(self) -> None:
        """Set what the network keeps between runs (states of recurrent layers, variables) to what it is at first."""
        with self._lock:
            self._clear_states()

    @property
    def variables(self) -> Mapping[int, Array]:
        """What the variable tensors of the file hold for the next run, by their indices in it.

        They may be changed in place between runs, as to go on from a state that was kept.
        """
        return {state.tensor: self._states[state.input] for state in self._interface.states if state.tensor >= 0}

    def close(self) -> None:
        """Free the prepared models; a forked process leaves those that a thread of its parent was using."""
        if isinstance(self._lock, _LeftBehind):
            return
        with self._lock:
            if not self._closed:
                self._closed = True
                for runner in (self._runner, *self._rivals):
                    runner.close()
                self._rivals = []

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _check_measurable(self, profile: bool) -> None:
        """Raise BadData where no time can be told: the NDK's own error names calls that the user did not make."""
        if profile:
            raise BadData("run: wanted profile=True or measure=True, as a profile lengthens what is measured, got both")
        compilation = self._runner.compilation
        if not compilation.has_one_explicit_device:
            names = ", ".join(device.name for device in compilation.devices)
            fallback = "" if compilation.is_explicit else " with fallback to the CPU"
            if all(device.is_reference for device in compilation.devices):
                fallback = ", which tells no times"
            raise BadData(
                "run: measure=True wants a network compiled for one device without fallback, as by device='opencl' or "
                f"a Device, got one for {names}{fallback}"
            )

    def _clear_states(self) -> None:
        main = self._runner.plan.model.main
        for state in self._interface.states:
            operand = main.operands[main.input_indexes[state.input]]
            first = operand.zero_point if state.initial is None else state.initial
            if state.input not in self._states:
                self._states[state.input] = on_pages(operand.dimensions, dtype_of(operand.type))
            self._states[state.input][...] = first

    def _settle(self, given: Sequence[npt.ArrayLike]) -> None:
        """Time the plan and its rivals on the first inputs, and keep the fastest; what is kept between runs stays.

        Raises what the plan itself does; nothing is settled then.
        """
        arrays = self._inputs.arrays(given)
        before = {at: state.copy() for at, state in self._states.items()}
        try:
            winner = self._fastest(arrays)
        finally:
            for at, state in before.items():
                np.copyto(self._states[at], state)
        losers = [one for one in (self._runner, *self._rivals) if one is not winner]
        self._runner, self._rivals = winner, []
        for loser in losers:
            loser.close()
        _log.debug("the first run gives the network to %s", "+".join(self.devices_used))
        winner.compilation.keep_placement()

    def _fastest(self, arrays: Sequence[Array]) -> Runner:
        """Return whatever runs these inputs fastest; rivals that fail or take too long are left out."""
        runs = [partial(self._runner.run, arrays, Execution.compute)]
        runs[0]()
        able = [self._runner]
        operands = self._runner.plan.model.main.operands
        builds_at_first_run = any(has_unknown_dimensions(one.type, one.dimensions) for one in operands)
        limit_ns = 0 if builds_at_first_run else int(1e9 * patience(runs[0]))
        in_time = partial(Execution.compute, timeout_ns=limit_ns)
        for rival in self._rivals:
            try:
                rival.run(arrays, in_time)
            except MissedDeadline:
                _log.info("%s is not tried: its first run takes too long", rival.devices_used[0])
                continue
            except NNError as error:
                _log.warning("%s is not tried: %s", rival.devices_used[0], error)
                continue
            runs.append(partial(rival.run, arrays, Execution.compute))
            able.append(rival)
        return able[fastest(runs)]

    def _run(self, given: Sequence[npt.ArrayLike], profile: bool, measure: bool) -> list[Array]:
        def compute(execution: Execution, other: OtherMemory | None) -> None:
            if profile:
                self._profile, self._profiled_steps = None, execution.compute_profiled(other)
            else:
                execution.compute(other)
            if measure:
                durations = (DurationCode.ON_HARDWARE, DurationCode.IN_DRIVER)
                self._timing = Timing(*(execution.get_duration(code) for code in durations))

        return self._runner.run(self._inputs.arrays(given), compute, measure=measure)


class _LeftBehind:
    """In the place of a lock that a thread holds which this process was forked without."""

    def __enter__(self) -> None:
        raise BadState("session: another thread was using it as this process was forked")

    def __exit__(self, *exc_info: object) -> None:
        """Nobody comes here."""


_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


def _after_fork() -> None:
    for session in list(_sessions):
        if isinstance(session._lock, _LeftBehind) or session._lock.locked():
            session._lock = _LeftBehind()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
