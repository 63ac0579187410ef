# SPDX-License-Identifier: Apache-2.0
"""Drives a device by the NDK-level API."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import CONTROL_FLOW, FeatureLevel, OperationCode
from nn_runtime.errors import OperationFailed, OutputInsufficientSize
from nn_runtime.hal.types import ErrorStatus, HalError
from nn_runtime.operand import has_unknown_dimensions
from nn_runtime.partition import query_support
from nn_runtime.testing.conformance.models import declared, ndk_model, outcome, output_types
from nn_runtime.testing.conformance.report import (
    EXECUTIONS,
    INFINITE_LOOP_TIMEOUT_NS,
    Outcome,
    Through,
    Unsupported,
    WrongShapes,
)
from nn_runtime.testing.corpus import Kind, result_buffer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nn_runtime.compilation import Compilation
    from nn_runtime.device import Device
    from nn_runtime.execution import Execution
    from nn_runtime.memory import Memory
    from nn_runtime.model import Model
    from nn_runtime.operand import Array, Dimensions
    from nn_runtime.testing.corpus import Example

_REUSES = 3
_PARTS = 3


class NdkRunner:
    """Drives a device by the NDK-level API, in one of its ways: a compilation for that device alone unless split."""

    def __init__(self, device: Device, through: Through = Through.NDK) -> None:
        """Keep the device."""
        self._device = device
        self._through = through

    def run(self, example: Example, kind: Kind) -> Iterator[list[Outcome]]:
        """Yield the outputs of each execution."""
        model = ndk_model(example)
        supported = model.supported_operations([self._device])
        if not all(supported):
            at = supported.index(False)
            reason = query_support(model.hal, self._device)[model.run_order.index(at)].reason
            raise Unsupported(f"operation {at} {example.main.operations[at].type.name}: {reason}")
        with self._compilation(model) as compilation:
            compilation.finish()
            if self._through == Through.INSUFFICIENT and kind == Kind.DYNAMIC_OUTPUT_SHAPE:
                _check_insufficient(example, compilation)
            for _ in range(EXECUTIONS):
                if kind == Kind.DEVICE_MEMORY or self._through == Through.DOMAINS:
                    yield _execute_on_memories(example, compilation, self._through)
                else:
                    yield _execute_on_arrays(example, compilation, self._through)

    def _compilation(self, model: Model) -> Compilation:
        from nn_runtime.compilation import Compilation
        from nn_runtime.device import Device
        from nn_runtime.devices import Selection, reference_device
        from nn_runtime.testing.sample_drivers import SampleDevice

        if self._through != Through.SPLIT:
            return Compilation(model, [self._device])
        codes = [code for code in OperationCode if code not in CONTROL_FLOW]
        parts = [
            SampleDevice(
                f"part-{at}", set(codes[at::_PARTS]), inner=self._device.hal, feature_level=FeatureLevel.LEVEL_8
            )
            for at in range(_PARTS)
        ]
        devices = (*map(Device, parts), reference_device())
        return Compilation.for_selection(model, Selection(devices, strict=False))


def _compute(execution: Execution, compilation: Compilation, through: Through) -> None:
    """Compute in one of the ways."""
    from nn_runtime.burst import Burst

    if through == Through.ASYNCHRONOUS:
        execution.start_compute().wait()
    elif through == Through.BURST:
        with Burst(compilation) as burst:
            execution.burst_compute(burst)
    elif through == Through.FENCED and _has_known_outputs(compilation):
        with execution.start_compute_with_dependencies([]) as event:
            event.wait()
    elif through == Through.REUSED:
        execution.set_reusable(True)
        for _ in range(_REUSES):
            execution.compute()
    else:
        execution.compute()


def _has_known_outputs(compilation: Compilation) -> bool:
    if compilation.plan is None:
        return False
    main = compilation.plan.model.main
    operands = [main.operands[i] for i in main.output_indexes]
    return not any(has_unknown_dimensions(operand.type, operand.dimensions) for operand in operands)


def _check_insufficient(example: Example, compilation: Compilation) -> None:
    """Execute with every output of several elements one too small; raises WrongShapes, or what else it fails with."""
    from nn_runtime.execution import Execution

    pairs = zip(output_types(example), example.outputs, strict=True)
    buffers = [result_buffer(code, expected.dimensions) for code, expected in pairs]
    if example.expect_failure or all(buffer.size == 1 for buffer in buffers):
        return
    with Execution(compilation) as execution:
        for i, data in enumerate(example.inputs):
            execution.set_input(i, data)
        for i, buffer in enumerate(buffers):
            execution.set_output(i, buffer[: max(1, buffer.size - 1)])
        try:
            execution.compute()
        except OutputInsufficientSize:
            shapes = _shapes(example, execution)
        else:
            raise WrongShapes("it ran into outputs that are too small")
    wanted = [expected.dimensions for expected in example.outputs]
    known = [shape for shape, buffer in zip(shapes, buffers, strict=True) if buffer.size > 1]
    if known != [dims for dims, buffer in zip(wanted, buffers, strict=True) if buffer.size > 1]:
        raise WrongShapes(f"too small outputs of {wanted} told the shapes {shapes}")


def _execute_on_arrays(example: Example, compilation: Compilation, through: Through) -> list[Outcome]:
    from nn_runtime.execution import Execution

    pairs = zip(output_types(example), example.outputs, strict=True)
    buffers = [result_buffer(code, expected.dimensions) for code, expected in pairs]
    with Execution(compilation) as execution:
        for i, data in enumerate(example.inputs):
            execution.set_input(i, data)
        for i, buffer in enumerate(buffers):
            execution.set_output(i, buffer)
        if example.infinite_loop:
            execution.set_loop_timeout(INFINITE_LOOP_TIMEOUT_NS)
        _compute(execution, compilation, through)
        shapes = _shapes(example, execution)
    return [outcome(dims, buffer) for dims, buffer in zip(shapes, buffers, strict=True)]


def _execute_on_memories(example: Example, compilation: Compilation, through: Through) -> list[Outcome]:
    from nn_runtime.execution import Execution
    from nn_runtime.memory import Memory

    with ExitStack() as closing:
        execution = closing.enter_context(Execution(compilation))
        for i, data in enumerate(example.inputs):
            if data is None:
                execution.set_input(i, None)
                continue
            memory = closing.enter_context(_device_memory(compilation, i, is_output=False))
            with Memory.from_array(data) as source:
                Memory.copy(source, memory)
            execution.set_input_from_memory(i, memory)
        outputs = [
            closing.enter_context(_device_memory(compilation, i, is_output=True)) for i in range(len(example.outputs))
        ]
        for i, memory in enumerate(outputs):
            execution.set_output_from_memory(i, memory)
        if example.infinite_loop:
            execution.set_loop_timeout(INFINITE_LOOP_TIMEOUT_NS)
        _compute(execution, compilation, through)
        triples = zip(outputs, _shapes(example, execution), example.outputs, strict=True)
        return [Outcome(dims, _copied_out(memory, dims, out.values.dtype)) for memory, dims, out in triples]


def _copied_out(memory: Memory, dimensions: Dimensions, dtype: np.dtype[np.generic]) -> Array:
    from nn_runtime.memory import Memory

    data = np.zeros(dimensions, dtype)
    if not data.size:
        return data
    with Memory.from_array(data) as target:
        Memory.copy(memory, target)
        return np.array(target.to_array(dtype, dimensions))


def _device_memory(compilation: Compilation, index: int, is_output: bool) -> Memory:
    """Return memory of the device; raises Unsupported where it gives none."""
    from nn_runtime.memory import Memory
    from nn_runtime.memory_desc import MemoryDesc

    with MemoryDesc() as desc:
        (desc.add_output_role if is_output else desc.add_input_role)(compilation, index, 1.0)
        desc.finish()
        try:
            return Memory.from_desc(desc)
        except OperationFailed as error:
            refusal = error.__cause__
            if not isinstance(refusal, HalError) or refusal.status != ErrorStatus.GENERAL_FAILURE or refusal.__cause__:
                raise  # a crash, or a device that has memory and is out of it
            raise Unsupported(f"allocate: {refusal}") from error


def _shapes(example: Example, execution: Execution) -> list[Dimensions]:
    scalars = [not operand for operand in declared(example)]
    return [
        () if scalar and execution.get_output_operand_rank(i) == 0 else execution.get_output_operand_dimensions(i)
        for i, scalar in enumerate(scalars)
    ]
