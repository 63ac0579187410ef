# SPDX-License-Identifier: Apache-2.0
"""A reusable execution with arrays of its own, which a session fills and reads at each run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.errors import BadState
from nn_runtime.execution import Execution
from nn_runtime.hal.memory import OTHER_MEMORY_ALIGNMENT, pages_of_zeros
from nn_runtime.operand import OperandType, dtype_of, has_unknown_dimensions
from nn_runtime.quantization import quantize
from nn_runtime.requests import OtherMemory
from nn_runtime.result_memory import ResultMemory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nn_runtime.compilation import Compilation
    from nn_runtime.hal.types import Subgraph
    from nn_runtime.interface import Interface, TensorInfo
    from nn_runtime.operand import Array, Dimensions

_FIRST_GUESS_BYTES = 4096
_COPIED_BYTES = 262144
"""What is no larger is copied: that takes less time than to hand its memory over."""


class Binding:
    """A reusable execution with the arrays bound to it, for one set of input shapes."""

    def __init__(
        self,
        compilation: Compilation,
        interface: Interface,
        shapes: tuple[Dimensions, ...],
        states: Mapping[int, Array],
        measure: bool,
        sizes: Sequence[int] = (),
    ) -> None:
        """Bind arrays of these shapes, and behind them `states` themselves, by position of input.

        `sizes`: elements to offer for outputs whose dimensions are not known.
        """
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
        self.is_dynamic = False
        self._open: set[int] = set()
        """Outputs whose dimensions a run tells."""
        known = dict(zip(interface.output_positions, interface.outputs, strict=True))
        self._bind_inputs(main, shapes, states)
        self._bind_outputs(main, known, sizes)
        self._results = [
            (position, info, info.is_real_inside(self.outputs[position].dtype))
            for position, info in zip(interface.output_positions, interface.outputs, strict=True)
        ]
        """What callers get: an output's place, what it is to them, and whether they get codes of its real numbers."""
        self._kept = [
            (self.inputs[one.input], self.outputs[one.output]) for one in interface.states if one.output is not None
        ]
        """States, and the outputs that they are after a run."""
        self._large_inputs = [i for i, array in enumerate(self.inputs) if array.nbytes > _COPIED_BYTES]
        self._large_outputs = {
            position: ResultMemory(info.shape, info.dtype)
            for position, info in known.items()
            if self._may_be_handed_over(position, info, interface)
        }

    def _bind_inputs(self, main: Subgraph, shapes: Sequence[Dimensions], states: Mapping[int, Array]) -> None:
        for position, operand_index in enumerate(main.input_indexes):
            operand = main.operands[operand_index]
            dims = shapes[position] if position < len(shapes) else operand.dimensions
            array = states[position] if position in states else on_pages(dims, dtype_of(operand.type))
            self.inputs.append(array)
            dynamic = has_unknown_dimensions(operand.type, operand.dimensions)
            self.is_dynamic |= dynamic
            self.execution.set_input(position, array, OperandType(operand.type, dims) if dynamic else None)

    def _bind_outputs(self, main: Subgraph, known: Mapping[int, TensorInfo], sizes: Sequence[int]) -> None:
        for position, operand_index in enumerate(main.output_indexes):
            operand = main.operands[operand_index]
            dims = known[position].shape if position in known else operand.dimensions
            if has_unknown_dimensions(operand.type, operand.dimensions):
                self._open.add(position)
                dims = (sizes[position] if sizes else _FIRST_GUESS_BYTES // dtype_of(operand.type).itemsize,)
            array = on_pages(dims, dtype_of(operand.type))
            self.outputs.append(array)
            self.execution.set_output(position, array)

    def _may_be_handed_over(self, position: int, info: TensorInfo, interface: Interface) -> bool:
        """Tell whether callers may get an output's own memory in place of a copy."""
        array = self.outputs[position]
        is_worth_it = array.nbytes > _COPIED_BYTES
        is_what_callers_get = array.dtype == info.dtype and position not in self._open
        is_kept_for_the_next_run = any(state.output == position for state in interface.states)
        is_one_result = interface.output_positions.count(position) == 1
        return is_worth_it and is_what_callers_get and is_one_result and not is_kept_for_the_next_run

    def other_memory(self, arrays: Sequence[Array]) -> OtherMemory | None:
        """Return which of the given inputs are read where they lie, and new arrays for results; None for neither."""
        if not (self._large_inputs or self._large_outputs) or not self.execution.takes_other_memory:
            return None
        inputs = {i: arrays[i] for i in self._large_inputs if i < len(arrays) and _is_like(arrays[i], self.inputs[i])}
        return OtherMemory(inputs, {i: memory.new_array() for i, memory in self._large_outputs.items()})

    def take(self, arrays: Sequence[Array], other: OtherMemory | None) -> None:
        """Copy the inputs of a run that are not read where they lie."""
        if other is None:
            for bound, array in zip(self.inputs, arrays):  # noqa: B905  # states follow
                bound[...] = array
            return
        for position, array in enumerate(arrays):
            if position not in other.inputs:
                self.inputs[position][...] = array

    def keep_states(self) -> None:
        """Bring the states up to date after a run."""
        for state, output in self._kept:
            state[...] = output

    @property
    def guesses(self) -> int:
        """How many outputs there are whose size is not known."""
        return len(self._open)

    def results(self, other: OtherMemory | None) -> list[Array]:
        """Return new arrays of what callers get after a run: of other memory itself, else copies."""
        taken = {} if other is None else other.outputs
        return [
            taken[position] if position in taken else self._copied(position, info, is_real)
            for position, info, is_real in self._results
        ]

    def _copied(self, position: int, info: TensorInfo, is_real: bool) -> Array:
        array = self.outputs[position]
        if position in self._open:
            dims = self.execution.get_output_operand_dimensions(position)
            array = array.reshape(-1)[: int(np.prod(dims, dtype=np.int64))].reshape(dims)
        return quantize(array, info.quantization) if is_real else array.astype(info.dtype)

    def enlarged(self, shapes: Sequence[Dimensions]) -> list[int]:
        """Return elements to offer for each output after it was too small: what is needed, else four times as many."""
        sizes = [array.size for array in self.outputs]
        for position in self._open:
            dims = shapes[position] if position < len(shapes) else ()
            needed = int(np.prod(dims, dtype=np.int64)) if dims else 0  # 0 stands for what is not known, too
            sizes[position] = needed or 4 * sizes[position]
        return sizes


def _is_like(array: Array, bound: Array) -> bool:
    """Tell whether an array can be read in place of the one bound."""
    return (
        array.dtype == bound.dtype
        and array.shape == bound.shape
        and array.flags.c_contiguous
        and array.flags.writeable
        and array.ctypes.data % OTHER_MEMORY_ALIGNMENT == 0
    )


def on_pages(dims: Sequence[int], dtype: np.dtype[np.generic]) -> Array:
    """Return a new array that begins on a page, which some devices can use in place; it holds zeros."""
    array: Array = pages_of_zeros(math.prod(dims) * dtype.itemsize).view(dtype).reshape(dims)
    return array
