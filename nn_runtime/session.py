# SPDX-License-Identifier: Apache-2.0
"""A compiled network: run it, see where each operation runs and what it takes."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, overload

import numpy as np

from nn_runtime.codes import DurationCode, operation_name
from nn_runtime.errors import BadData, BadState, NNError, OutputInsufficientSize
from nn_runtime.execution import Execution
from nn_runtime.operand import OperandType, dtype_of, is_tensor
from nn_runtime.temporaries import PAGE_BYTES
from nn_runtime.trial import fastest

if TYPE_CHECKING:
    import numpy.typing as npt

    from nn_runtime.compilation import Compilation
    from nn_runtime.hal.types import Operand
    from nn_runtime.interface import Interface, TensorInfo
    from nn_runtime.operand import Array, Dimensions
    from nn_runtime.plan import Plan
    from nn_runtime.step import StepProfile

Inputs: TypeAlias = "npt.ArrayLike | Sequence[npt.ArrayLike]"
"""One array for a network with one input, or a list or tuple with one array an input."""

_log = logging.getLogger("nn_runtime.compilation")

_FIRST_GUESS_BYTES = 4096
_MAX_ATTEMPTS = 4


@dataclass(frozen=True)
class Timing:
    """Times of a measured run in ns; None where the driver does not know."""

    on_device_ns: int | None
    in_driver_ns: int | None


@dataclass(frozen=True)
class StepTimes:
    """One step of a profiled run; `start_ns` counts from the start of the first step."""

    device: str
    operations: tuple[int, ...]
    start_ns: int
    duration_ns: int


@dataclass(frozen=True)
class OperationTimes:
    """One launch of a profiled run: the operations it computes (several when fused), by index in the model.

    `start_ns` counts from the start of its step.
    """

    operations: tuple[int, ...]
    device: str
    kernel: str
    start_ns: int
    duration_ns: int
    bytes_moved: int
    flops: int


@dataclass(frozen=True)
class Profile:
    """Times per step, and per launch where the drivers report them. Printable."""

    steps: tuple[StepTimes, ...]
    rows: tuple[OperationTimes, ...]

    def __str__(self) -> str:
        lines = [
            f"step {at}: {len(step.operations)} operations on {step.device}, {_milliseconds(step.duration_ns)} ms"
            for at, step in enumerate(self.steps)
        ]
        table = [("operations", "kernel", "device", "ms")]
        table += [
            (",".join(map(str, row.operations)), row.kernel, row.device, _milliseconds(row.duration_ns))
            for row in self.rows
        ]
        return "\n".join([*lines, *(_table(table) if self.rows else [])])


@dataclass(frozen=True)
class ExplainedOperation:
    """Where one operation runs and why.

    `refusals`: reasons of the devices that do not take it. `measured_ns` is of the last profiled run: the launch's time
    with the first operation that it computes, 0 with the others (`fused_into` names the first), None without a profile.
    """

    index: int
    name: str
    device: str
    step: int
    refusals: Mapping[str, str]
    estimated_ns: float | None
    measured_ns: int | None
    fused_into: int | None = None


@dataclass(frozen=True)
class Explanation:
    """Every operation of a network. Printable."""

    operations: tuple[ExplainedOperation, ...]

    def __str__(self) -> str:
        table = [("operation", "name", "step", "device", "estimated ms", "measured ms", "why")]
        table += [
            (
                str(row.index),
                row.name,
                str(row.step),
                row.device,
                _milliseconds(row.estimated_ns),
                f"with {row.fused_into}" if row.fused_into is not None else _milliseconds(row.measured_ns),
                "; ".join(f"{device}: {reason}" for device, reason in row.refusals.items()),
            )
            for row in self.operations
        ]
        return "\n".join(_table(table))


class Session:
    """A network prepared on its devices. Runs from several threads take turns."""

    def __init__(self, compilation: Compilation, interface: Interface, rivals: Sequence[Compilation] = ()) -> None:
        """Use `Network.compile`. `rivals`: other compilations of the model, for the first run to time."""
        if compilation.plan is None:
            raise BadState("session: the compilation is not finished, or its finish failed")
        self._compilation = compilation
        self._interface = interface
        self._plan: Plan = compilation.plan
        main = self._plan.model.main
        self._operands = [main.operands[i] for i in main.input_indexes]
        self._plain = [
            (info.dtype, info.shape) if info.dtype == dtype_of(operand.type) else None
            for info, operand in zip(interface.inputs, self._operands, strict=False)
        ]
        """What arrays of each input need no check, by type and shape."""
        self._lock = threading.Lock()
        self._bindings: dict[bool, _Binding] = {}
        self._states: dict[int, Array] = {}
        self._profile: Profile | None = None
        self._profiled_steps: Sequence[StepProfile] | None = None
        """What `_profile` is made of, once it is asked for."""
        self._timing: Timing | None = None
        self._closed = False
        self._rivals = [Session(rival, interface) for rival in rivals]
        self.reset_variables()

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
            self._profile = _profile(self._profiled_steps)
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
        converted; so are floats to floats, and integers to integers where all values fit. Python lists of integers go
        for floats too. Raises BadData naming the input, wanted and given; else the run's error.

        `profile` collects `self.profile`, and costs time. `measure` collects `self.timing`: by the rules of the NDK
        only for a compilation for exactly one explicit device.
        """
        given, names = self._ordered(inputs)
        with self._lock:
            if self._closed:
                raise BadState("session: it is closed")
            if self._rivals:
                self._settle(given)
            outputs = self._run(given, profile, measure)
        return outputs if names is None else dict(zip(names, outputs, strict=True))

    def explain(self) -> Explanation:
        """Return where each operation runs and why, with estimated times, and measured ones after a profiled run."""
        measured, fused = self._measured()
        rows = [
            ExplainedOperation(
                placement.operation,
                operation_name(placement.code),
                placement.device.name,
                placement.step,
                {name: answer.reason for name, answer in placement.support.items() if not answer.supported},
                placement.estimated_ns,
                measured.get(placement.operation, None if self._profiled_steps is None else 0),
                fused.get(placement.operation),
            )
            for placement in self._plan.placements
        ]
        return Explanation(tuple(sorted(rows, key=lambda row: row.index)))

    def reset_variables(self) -> None:
        """Set what the network keeps between runs (the states of recurrent layers) to zero."""
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

    def _clear_states(self) -> None:
        main = self._plan.model.main
        for state in self._interface.states:
            operand = main.operands[main.input_indexes[state.input]]
            self._states[state.input] = np.full(operand.dimensions, operand.zero_point, dtype_of(operand.type))

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

    def _ordered(
        self, inputs: Inputs | Mapping[str, npt.ArrayLike]
    ) -> tuple[Sequence[npt.ArrayLike], list[str] | None]:
        """Return one array-like an input, and the outputs' names for a dict."""
        infos = self._interface.inputs
        given: Sequence[npt.ArrayLike]
        if isinstance(inputs, (list, tuple)):
            given = inputs
        elif isinstance(inputs, Mapping):
            return self._by_name(inputs)
        else:
            given = [inputs]  # type: ignore[list-item]
        if len(given) != len(infos):
            what = "one input" if isinstance(inputs, np.ndarray) else f"a {type(given).__name__} of {len(given)}"
            raise BadData(f"run: wanted {len(infos)} input{'s' * (len(infos) != 1)} ({_names(infos)}), got {what}")
        return given, None

    def _by_name(self, inputs: Mapping[str, npt.ArrayLike]) -> tuple[Sequence[npt.ArrayLike], list[str]]:
        infos = self._interface.inputs
        given: list[npt.ArrayLike] = []
        by_signature = bool(infos)
        for info in infos:
            name = info.name if info.name in inputs else info.signature_name
            if name not in inputs:
                raise BadData(f"run: input {info.name!r} is missing, got {', '.join(map(repr, inputs)) or 'none'}")
            by_signature = by_signature and info.name not in inputs
            given.append(inputs[name])
        if len(inputs) != len(infos):
            known = {name for info in infos for name in (info.name, info.signature_name)}
            extra = next((name for name in inputs if name not in known), "one twice")
            raise BadData(f"run: no input is called {extra!r}, the inputs are {_names(infos)}")
        outputs = self._interface.outputs
        return given, [(by_signature and info.signature_name) or info.name for info in outputs]

    def _run(self, given: Sequence[npt.ArrayLike], profile: bool, measure: bool) -> list[Array]:
        arrays = [
            value if type(value) is np.ndarray and (value.dtype, value.shape) == plain else self._checked(at, value)
            for at, (plain, value) in enumerate(zip(self._plain, given, strict=True))
        ]
        for attempt in range(_MAX_ATTEMPTS):
            binding = self._binding(arrays, measure)
            try:
                return self._run_bound(binding, arrays, profile, measure)
            except OutputInsufficientSize as error:
                if attempt == _MAX_ATTEMPTS - 1:
                    raise
                binding.execution.close()
                self._bindings[measure] = _Binding(
                    self._compilation, self._interface, _shapes(arrays), measure, binding.enlarged(error.shapes)
                )
        raise BadState("session: the outputs' sizes change from run to run")

    def _checked(self, position: int, value: npt.ArrayLike) -> Array:
        return _checked(position, self._interface.inputs[position], value, self._operands[position])

    def _binding(self, arrays: Sequence[Array], measure: bool) -> _Binding:
        """Return the execution for inputs of these shapes: the last one where it fits."""
        binding = self._bindings.get(measure)
        if binding is None or (binding.is_dynamic and binding.shapes != _shapes(arrays)):
            if binding is not None:
                binding.execution.close()
            binding = _Binding(self._compilation, self._interface, _shapes(arrays), measure)
            self._bindings[measure] = binding
        return binding

    def _run_bound(self, binding: _Binding, arrays: Sequence[Array], profile: bool, measure: bool) -> list[Array]:
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

    def _measured(self) -> tuple[dict[int, int], dict[int, int]]:
        """Return the time of each operation in the last profile, and for the fused ones where their time stands."""
        times: dict[int, int] = {}
        fused: dict[int, int] = {}
        profile = self.profile
        for row in profile.rows if profile is not None else ():
            first, *others = row.operations or (-1,)
            times[first] = times.get(first, 0) + row.duration_ns
            fused.update(dict.fromkeys(others, first))
        return times, {operation: first for operation, first in fused.items() if operation not in times}


class _Binding:
    """A reusable execution with the arrays bound to it, for one set of input shapes."""

    def __init__(
        self,
        compilation: Compilation,
        interface: Interface,
        shapes: tuple[Dimensions, ...],
        measure: bool,
        sizes: Sequence[int] = (),
    ) -> None:
        """`sizes`: elements to offer for outputs whose dimensions are not known."""
        if compilation.plan is None:
            raise BadState("session: it is closed")
        main = compilation.plan.model.main
        self.shapes = shapes
        self.execution = Execution(compilation)
        self.execution.set_reusable(True)
        if measure:
            self.execution.set_measure_timing(True)
        self.inputs: list[Array] = []
        self.outputs: list[Array] = []
        self._open: set[int] = set()
        self.is_dynamic = False
        for position, operand_index in enumerate(main.input_indexes):
            operand = main.operands[operand_index]
            dims = shapes[position] if position < len(shapes) else operand.dimensions
            array = _on_pages(dims, dtype_of(operand.type))
            self.inputs.append(array)
            dynamic = _is_open(operand.type, operand.dimensions)
            self.is_dynamic |= dynamic
            self.execution.set_input(position, array, OperandType(operand.type, dims) if dynamic else None)
        known = dict(zip(interface.output_positions, interface.outputs, strict=True))
        for position, operand_index in enumerate(main.output_indexes):
            operand = main.operands[operand_index]
            dims = known[position].shape if position in known else operand.dimensions
            if _is_open(operand.type, operand.dimensions):
                self._open.add(position)
                dims = (sizes[position] if sizes else _FIRST_GUESS_BYTES // dtype_of(operand.type).itemsize,)
            array = _on_pages(dims, dtype_of(operand.type))
            self.outputs.append(array)
            self.execution.set_output(position, array)

    def result(self, position: int, info: TensorInfo) -> Array:
        """Return a copy of an output after a run, in the interface's dtype."""
        array = self.outputs[position]
        if position in self._open:
            dims = self.execution.get_output_operand_dimensions(position)
            array = array.reshape(-1)[: int(np.prod(dims, dtype=np.int64))].reshape(dims)
        return array.astype(info.dtype)

    def enlarged(self, shapes: Sequence[Dimensions]) -> list[int]:
        """Return elements to offer for each output after it was too small: what is needed, else four times as many."""
        sizes = [array.size for array in self.outputs]
        for position in self._open:
            dims = shapes[position] if position < len(shapes) else ()
            needed = int(np.prod(dims, dtype=np.int64)) if dims else 0
            sizes[position] = needed or 4 * sizes[position]
        return sizes


def _on_pages(dims: Sequence[int], dtype: np.dtype[np.generic]) -> Array:
    """Return a new array that begins on a page, which some devices can use in place; it holds zeros."""
    size_bytes = math.prod(dims) * dtype.itemsize
    room = np.zeros(size_bytes + PAGE_BYTES, np.uint8)
    start = -room.ctypes.data % PAGE_BYTES
    array: Array = room[start : start + size_bytes].view(dtype).reshape(dims)
    return array


def _is_open(code: int, dims: Dimensions) -> bool:
    return is_tensor(code) and (not dims or 0 in dims)


def _shapes(arrays: Sequence[Array]) -> tuple[Dimensions, ...]:
    return tuple(array.shape for array in arrays)


def _names(infos: Sequence[TensorInfo]) -> str:
    return ", ".join(repr(info.name) for info in infos)


def _checked(position: int, info: TensorInfo, given: npt.ArrayLike, operand: Operand) -> Array:
    """Return an input as an array that can be copied to the one bound for its operand; raises BadData."""
    any_rank = is_tensor(operand.type) and not operand.dimensions
    shape = "[...]" if any_rank else f"[{', '.join(str(size or 'any') for size in info.shape)}]"
    wanted = f"input {position} {info.name!r}: wanted {info.dtype} {shape}"
    try:
        array = np.asarray(given)
    except ValueError as error:
        raise BadData(f"{wanted}, got what is no array: {error}") from error
    is_array = isinstance(given, np.ndarray)
    got = f"got {array.dtype} {list(array.shape)}"
    if array.dtype != info.dtype and not _converts(array, info.dtype, is_array):
        raise BadData(f"{wanted}, {got}{_values_outside(array, info.dtype)}")
    if array.shape != info.shape and not any_rank and not _fits(array.shape, info.shape):
        raise BadData(f"{wanted}, {got}")
    computed = dtype_of(operand.type)
    if computed.itemsize < info.dtype.itemsize and not _converts(array, computed, is_array):
        raise BadData(f"{wanted}, computed in {computed}, {got}{_values_outside(array, computed)}")
    return array


def _values_outside(array: Array, wanted: np.dtype[np.generic]) -> str:
    """Return which integers were given where they are why an array does not go for another type, else nothing."""
    if array.dtype.kind not in "iu" or wanted.kind not in "iu":
        return ""
    info = np.iinfo(str(wanted))
    return f" with values {array.min()} to {array.max()}, {wanted} holds {info.min} to {info.max}"


def _fits(given: Dimensions, wanted: Dimensions) -> bool:
    return len(given) == len(wanted) and all(b in (0, a) for a, b in zip(given, wanted, strict=True))


def _converts(array: Array, wanted: np.dtype[np.generic], is_array: bool) -> bool:
    """Tell whether values survive: floats as floats, integers that fit, Python's integers as floats."""
    kinds = array.dtype.kind, wanted.kind
    if kinds == ("f", "f") or kinds == ("b", "b"):
        return True
    if kinds[0] in "iu" and kinds[1] == "f":
        return not is_array
    if kinds[0] in "iu" and kinds[1] in "iu":
        info = np.iinfo(str(wanted))
        return not array.size or (int(array.min()) >= info.min and int(array.max()) <= info.max)
    return False


def _profile(steps: Sequence[StepProfile]) -> Profile:
    origin = steps[0].start_ns if steps else 0
    rows = [
        OperationTimes(
            tuple(step.operations[at] for at in row.operations),
            step.device,
            row.kernel,
            row.start_ns,
            row.end_ns - row.start_ns,
            row.bytes_moved,
            row.flops,
        )
        for step in steps
        if step.rows is not None
        for row in step.rows.rows
    ]
    return Profile(
        tuple(
            StepTimes(step.device, step.operations, step.start_ns - origin, step.end_ns - step.start_ns)
            for step in steps
        ),
        tuple(rows),
    )


def _milliseconds(duration_ns: float | None) -> str:
    return "-" if duration_ns is None else f"{duration_ns / 1e6:.3f}"


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
