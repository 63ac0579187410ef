# SPDX-License-Identifier: Apache-2.0
"""Runs the operations of a model in order over numpy arrays.

`Graph` is what preparation finds out about a subgraph, once; `Frame` holds the arrays of one execution, and is used
again by later ones. IF and WHILE run the frames of their subgraphs.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.operations import function_of
from nn_runtime.codes import CONTROL_FLOW, OperationCode, operand_type_name, operation_name
from nn_runtime.errors import BadData
from nn_runtime.hal.interfaces import ProfileRow
from nn_runtime.hal.interrupts import pass_interrupt
from nn_runtime.hal.types import CONSTANT_LIFETIMES, ErrorStatus, HalError, OperandLifeTime
from nn_runtime.hal.views import constant_array
from nn_runtime.operand import MAX_SIZE_BYTES, dtype_of, element_count, is_tensor
from nn_runtime.operations import OperationView, output_dimensions
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cpu_driver.operations import Function
    from nn_runtime.hal.types import Model, Operand, Subgraph
    from nn_runtime.operand import Array, ChannelQuant, Dimensions


@dataclass(frozen=True)
class Step:
    """One operation made ready: its function (None for IF and WHILE) and the operands nobody reads after it."""

    index: int
    function: Function | None
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    last_uses: tuple[int, ...]


@dataclass(frozen=True)
class Graph:
    """A subgraph made ready: constants as arrays by operand, steps in order."""

    model: Model
    subgraph: Subgraph
    constants: dict[int, Array]
    steps: tuple[Step, ...]


def prepare_graph(model: Model, subgraph: Subgraph) -> Graph:
    """Look up functions, map constants and find the last use of every temporary; raises HalError."""
    constants = {}
    for i, operand in enumerate(subgraph.operands):
        array = constant_array(model, operand) if operand.lifetime in CONSTANT_LIFETIMES else None
        if array is not None:
            constants[i] = read_only(array)
    return Graph(model, subgraph, constants, _steps(subgraph))


def read_only(array: Array) -> Array:
    """Return a view through which the data cannot be changed."""
    view: Array = array.view()
    view.flags.writeable = False
    return view


def agrees(declared: Dimensions, dims: Dimensions) -> bool:
    """Tell whether computed dimensions fit declared ones, where 0 is a size not known."""
    return len(declared) == len(dims) and all(a in (0, b) for a, b in zip(declared, dims, strict=True))


def _steps(subgraph: Subgraph) -> tuple[Step, ...]:
    steps: list[Step] = []
    read_later: set[int] = set()
    for index in reversed(range(len(subgraph.operations))):
        operation = subgraph.operations[index]
        function = function_of(operation.type)
        if function is None and operation.type not in CONTROL_FLOW:
            label = f"operation {index} {operation_name(operation.type)}"
            raise HalError(ErrorStatus.GENERAL_FAILURE, f"{label}: {missing_function(operation.type)}")
        used = {*operation.inputs, *operation.outputs}
        temporary = (i for i in used if subgraph.operands[i].lifetime == OperandLifeTime.TEMPORARY_VARIABLE)
        last_uses = tuple(sorted(set(temporary) - read_later))
        read_later |= used
        steps.append(Step(index, function, operation.inputs, operation.outputs, last_uses))
    return tuple(reversed(steps))


def missing_function(code: int) -> str:
    """Return the reason why the driver refuses an operation."""
    return f"no CPU function for {operation_name(code)} yet"


class RuntimeOperand:
    """OperandView of an operand of a running model: its array, once there is one."""

    __slots__ = ("_first_dimensions", "_left_out", "_subgraph", "array", "channel_quant", "declared",
                 "dimensions", "is_constant", "omitted", "scale", "type", "zero_point")  # fmt: skip

    def __init__(self, operand: Operand, array: Array | None, subgraph: Frame | None) -> None:
        """Start with the model's dimensions, and the array of a constant."""
        self._subgraph = subgraph
        self.type: int = operand.type
        self.scale: float = operand.scale
        self.zero_point: int = operand.zero_point
        self.channel_quant: ChannelQuant | None = operand.channel_quant
        self.is_constant = operand.lifetime in (*CONSTANT_LIFETIMES, OperandLifeTime.NO_VALUE)
        """Whether no run gives it other data: the model does, or says that it has none."""
        self.declared: Dimensions = operand.dimensions if is_tensor(operand.type) else ()
        """Dimensions in the model: () for a scalar or an unknown rank, 0 for a size not known."""
        unknown_rank = is_tensor(operand.type) and not operand.dimensions
        self._left_out = operand.lifetime == OperandLifeTime.NO_VALUE
        self._first_dimensions = None if unknown_rank else operand.dimensions
        self.dimensions: Dimensions | None = None
        self.array: Array | None = None
        self.omitted = False
        self.reset()
        if array is not None:
            self.set(array)

    def set(self, array: Array) -> None:
        """Give it its data."""
        self.array = array
        self.dimensions = array.shape

    def bind(self, argument: Array | None) -> None:
        """Give an input its data; None leaves it out."""
        if argument is None:
            self.omitted = True
        else:
            self.set(argument)

    def reset(self) -> None:
        """Forget the data of a run."""
        self.array = None
        self.omitted = self._left_out
        self.dimensions = self._first_dimensions

    def value(self) -> Array | None:
        """Return the data."""
        return self.array

    def known(self) -> Array:
        """Return the data; raises BadData if there is none."""
        if self.array is None:
            raise BadData(f"a {operand_type_name(self.type)} has no value")
        return self.array

    def subgraph(self) -> Frame | None:
        """Return the referenced model of a MODEL operand."""
        return self._subgraph

    def frame(self) -> Frame:
        """Return the referenced model; raises BadData if there is none."""
        if self._subgraph is None:
            raise BadData(f"a {operand_type_name(self.type)} refers to no model")
        return self._subgraph


@dataclass(frozen=True)
class Run:
    """What one execution carries along: its deadline and the timeout of each loop."""

    deadline_ns: int | None
    loop_timeout_ns: int

    def check_deadline(self) -> None:
        """Raise HalError(MISSED_DEADLINE_TRANSIENT) once the deadline has passed."""
        if self.deadline_ns is not None and time.monotonic_ns() >= self.deadline_ns:
            raise HalError(ErrorStatus.MISSED_DEADLINE_TRANSIENT, "the deadline passed during the execution")


class BoundStep:
    """A step with the operands of one frame."""

    def __init__(self, step: Step, code: int, operands: Sequence[RuntimeOperand]) -> None:
        """Bind the operands; constants have their arrays already."""
        self.step = step
        self.code = code
        self.inputs = [operands[i] for i in step.inputs]
        self.outputs = [operands[i] for i in step.outputs]
        self.op = OperationView(code, self.inputs, self.outputs, step.index)
        parameters = self.op.shape_inputs()
        self._parameters_are_constant = all(self.inputs[at].array is not None for at in parameters)
        self._varying = [operand for operand in self.inputs if not operand.is_constant]
        self._known: tuple[list[Dimensions | None], tuple[Dimensions, ...]] | None = None

    def execute(self, run: Run) -> None:
        """Compute the outputs; raises HalError naming the operation."""
        try:
            self._compute(run)
        except HalError:
            raise
        except BadData as error:
            raise HalError(ErrorStatus.GENERAL_FAILURE, str(error)) from error
        except MemoryError as error:
            raise HalError(ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, f"{self.op.label}: out of memory") from error
        except Exception as error:
            pass_interrupt(error)
            message = f"{self.op.label}: {type(error).__name__}: {error}"
            raise HalError(ErrorStatus.GENERAL_FAILURE, message) from error

    def profile_row(self, start_ns: int, end_ns: int) -> ProfileRow:
        """Return the row of the run just done."""
        moved = sum(operand.array.nbytes for operand in (*self.inputs, *self.outputs) if operand.array is not None)
        return ProfileRow((self.step.index,), f"numpy {operation_name(self.code).lower()}", start_ns, end_ns, moved)

    def _compute(self, run: Run) -> None:
        function = self.step.function
        if function is None:
            arrays: Sequence[Array] = _if(self, run) if self.code == OperationCode.IF else _while(self, run)
        else:
            shapes = self._output_dimensions()
            for output, dims in zip(self.outputs, shapes, strict=True):
                output.dimensions = dims
            arrays = self._call(function, shapes)
        if function is None or self.op.definition.data_dependent:
            shapes = [array.shape for array in arrays]
            self._check_shapes(shapes)
        for at, (output, array, dims) in enumerate(zip(self.outputs, arrays, shapes, strict=True)):
            output.set(_checked(self.op, at, output, array, dims))

    def _call(self, function: Function, shapes: Sequence[Dimensions]) -> Sequence[Array]:
        if not any(element_count(dims) for dims in shapes):
            return [np.empty(dims, dtype_of(output.type)) for output, dims in zip(self.outputs, shapes, strict=True)]
        return function(self.op)

    def _check_inputs(self) -> None:
        """Check for arguments left out, and for empty ones, where the operation does not allow them."""
        for at, (argument, operand) in enumerate(zip(self.op.arguments, self.inputs, strict=True)):
            if operand.omitted:
                if not argument.omittable:
                    raise BadData(f"{self.op.label}: {argument.name} (input {at}) must have a value")
            elif not self.op.definition.zero_sized_ok and operand.dimensions and 0 in operand.dimensions:
                raise BadData(f"{self.op.label}: {argument.name} (input {at}) is empty: {list(operand.dimensions)}")

    def _output_dimensions(self) -> Sequence[Dimensions]:
        """Check inputs and find the output dimensions, anew only where sizes or parameters may have changed."""
        dims = [None if operand.omitted else operand.dimensions for operand in self._varying]
        if self._known is not None and self._known[0] == dims:
            return self._known[1]
        self._check_inputs()
        shapes = output_dimensions(self.op)
        for at, (output, shape) in enumerate(zip(self.outputs, shapes, strict=True)):
            if element_count(shape) * dtype_of(output.type).itemsize > MAX_SIZE_BYTES:
                raise BadData(f"{self.op.label}: output {at} {list(shape)} needs more than 2^32-1 bytes")
        if not self.op.definition.data_dependent:
            self._check_shapes(shapes)
        if self._parameters_are_constant:
            self._known = (dims, shapes)
        return shapes

    def _check_shapes(self, shapes: Sequence[Dimensions]) -> None:
        """Check the dimensions of the outputs against the model's."""
        for at, (output, dims) in enumerate(zip(self.outputs, shapes, strict=True)):
            declared = output.declared
            if declared and not agrees(declared, dims):
                label = f"{self.op.label}: output {at}"
                raise BadData(f"{label}: the model says {list(declared)}, computed {list(dims)}")


class Frame:
    """The operands of one graph during an execution, with the frames of the models it refers to (SubgraphView)."""

    def __init__(self, graph: Graph, referenced: Mapping[int, Frame]) -> None:
        """Make operands and bind the steps; `referenced`: the frames of the models that it refers to, by number.

        Others may refer to the same ones: no model runs inside itself, so that each needs one frame in an execution.
        """
        subgraph = graph.subgraph
        self._operands = [
            RuntimeOperand(
                operand,
                graph.constants.get(i),
                referenced.get(operand.location.offset) if operand.lifetime == OperandLifeTime.SUBGRAPH else None,
            )
            for i, operand in enumerate(subgraph.operands)
        ]
        self._variable = [operand for operand in self._operands if operand.array is None]
        self._steps = [BoundStep(step, subgraph.operations[step.index].type, self._operands) for step in graph.steps]
        self.inputs = [self._operands[i] for i in subgraph.input_indexes]
        self.outputs = [self._operands[i] for i in subgraph.output_indexes]

    def execute(self, arguments: Sequence[Array | None], run: Run, rows: list[ProfileRow] | None = None) -> list[Array]:
        """Run every operation with the given inputs (None: omitted) and return the outputs.

        `rows` collects one row per operation, in `perf_counter_ns` times.
        Raises HalError: GENERAL_FAILURE naming the operation, or a missed deadline.
        """
        try:
            for operand, argument in zip(self.inputs, arguments, strict=True):
                operand.bind(argument)
            for bound in self._steps:
                run.check_deadline()
                start_ns = time.perf_counter_ns()
                bound.execute(run)
                if rows is not None:
                    rows.append(bound.profile_row(start_ns, time.perf_counter_ns()))
                for i in bound.step.last_uses:
                    self._operands[i].reset()
            return [operand.known() for operand in self.outputs]
        finally:
            for operand in self._variable:
                operand.reset()


def _checked(op: OperationView, at: int, output: RuntimeOperand, array: Array, dims: Dimensions) -> Array:
    """Return a result in its dimensions; raises BadData where it contradicts the operation's rules."""
    if array.dtype != dtype_of(output.type) or array.size != element_count(dims):
        wanted = f"{dtype_of(output.type)} {list(dims)}"
        raise BadData(
            f"{op.label}: output {at}: the function must give {wanted}, got {array.dtype} {list(array.shape)}"
        )
    return array.reshape(dims)


def _if(bound: BoundStep, run: Run) -> list[Array]:
    condition, then_model, else_model, *arguments = bound.inputs
    branch = then_model if condition.known().reshape(-1)[0] else else_model
    return branch.frame().execute([operand.array for operand in arguments], run)


def _while(bound: BoundStep, run: Run) -> list[Array]:
    condition, body, *arguments = bound.inputs
    values = [operand.array for operand in arguments]
    start_ns = time.monotonic_ns()
    while condition.frame().execute(values, run)[0].reshape(-1)[0]:
        if time.monotonic_ns() - start_ns > run.loop_timeout_ns:
            raise HalError(ErrorStatus.MISSED_DEADLINE_TRANSIENT, f"{bound.op.label}: the loop timed out")
        results = body.frame().execute(values, run)
        values[: len(results)] = results
    outputs = values[: len(bound.outputs)]
    if any(array is None for array in outputs):
        raise BadData(f"{bound.op.label}: an output has no value")
    return [array for array in outputs if array is not None]
