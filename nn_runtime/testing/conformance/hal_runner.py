# SPDX-License-Identifier: Apache-2.0
"""Drives a device by its HAL methods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.hal.types import (
    BufferDesc,
    BufferRole,
    BufferToken,
    DataLocation,
    ErrorStatus,
    ExecutionPreference,
    HalError,
    Priority,
    Request,
    RequestArgument,
)
from nn_runtime.testing.conformance.models import declared, hal_model, outcome, output_types, shared_copy
from nn_runtime.testing.conformance.report import (
    EXECUTIONS,
    INFINITE_LOOP_TIMEOUT_NS,
    Outcome,
    Unsupported,
)
from nn_runtime.testing.corpus import Kind, result_buffer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nn_runtime.hal.interfaces import IBuffer, IDevice, IPreparedModel
    from nn_runtime.hal.types import Model as HalModel
    from nn_runtime.testing.corpus import Example


class HalRunner:
    """Drives a device by its HAL methods."""

    def __init__(self, device: IDevice) -> None:
        """Keep the device."""
        self._device = device

    def run(self, example: Example, kind: Kind) -> Iterator[list[Outcome]]:
        """Yield the outputs of each execution."""
        model = hal_model(example)
        supported = self._device.get_supported_operations(model)
        if not all(supported):
            at = list(supported).index(False)
            raise Unsupported(f"operation {at} {example.main.operations[at].type.name}: {self._reason(model, at)}")
        prepared = self._device.prepare_model(
            model, ExecutionPreference.FAST_SINGLE_ANSWER, Priority.MEDIUM, None, None
        )
        try:
            for _ in range(EXECUTIONS):
                if kind == Kind.DEVICE_MEMORY:
                    yield self._execute_on_buffers(example, prepared)
                else:
                    yield _execute_on_arrays(example, prepared)
        finally:
            prepared.close()

    def _reason(self, model: HalModel, at: int) -> str:
        from nn_runtime.hal.interfaces import ExplainsOperations

        if isinstance(self._device, ExplainsOperations):
            return self._device.explain_operations(model)[at].reason
        return "not supported"

    def _execute_on_buffers(self, example: Example, prepared: IPreparedModel) -> list[Outcome]:
        buffers: list[IBuffer] = []
        pools: list[BufferToken] = []

        def allocate(role: BufferRole, is_output: bool) -> IBuffer:
            inputs, outputs = ((), (role,)) if is_output else ((role,), ())
            buffer, token = _allocated(self._device, prepared, inputs, outputs)
            buffers.append(buffer)
            pools.append(BufferToken(token))
            return buffer

        arguments: list[RequestArgument] = []
        for i, data in enumerate(example.inputs):
            if data is None:
                arguments.append(RequestArgument(has_no_value=True))
                continue
            buffer = allocate(BufferRole(0, i, 1.0), False)
            buffer.copy_from(shared_copy(data), ())
            arguments.append(RequestArgument(location=DataLocation(pool_index=len(pools) - 1)))
        outputs = [allocate(BufferRole(0, i, 1.0), True) for i in range(len(example.outputs))]
        first = len(pools) - len(outputs)
        results = tuple(
            RequestArgument(location=DataLocation(pool_index=first + i)) for i in range(len(example.outputs))
        )
        try:
            result = prepared.execute_synchronously(Request(tuple(arguments), results, tuple(pools)), False, None, None)
            shapes = [shape.dimensions for shape in result.output_shapes] or declared(example)
            data_out = []
            for buffer, expected, code in zip(outputs, example.outputs, output_types(example), strict=True):
                destination = shared_copy(result_buffer(code, expected.dimensions))
                buffer.copy_to(destination)
                data_out.append(destination.array().view(expected.values.dtype))
        finally:
            for buffer in buffers:
                buffer.close()
        return [Outcome(dims, data) for dims, data in zip(shapes, data_out, strict=True)]


def _allocated(
    device: IDevice, prepared: IPreparedModel, inputs: Sequence[BufferRole], outputs: Sequence[BufferRole]
) -> tuple[IBuffer, int]:
    try:
        return device.allocate(BufferDesc(), [prepared], inputs, outputs)
    except HalError as error:
        if error.status != ErrorStatus.GENERAL_FAILURE:
            raise
        raise Unsupported(f"allocate: {error}") from error


def _execute_on_arrays(example: Example, prepared: IPreparedModel) -> list[Outcome]:
    inputs = tuple(
        RequestArgument(has_no_value=True)
        if data is None
        else RequestArgument(location=DataLocation(length=data.nbytes, pointer=data))
        for data in example.inputs
    )
    pairs = zip(output_types(example), example.outputs, strict=True)
    buffers = [result_buffer(code, expected.dimensions) for code, expected in pairs]
    outputs = tuple(RequestArgument(location=DataLocation(length=b.nbytes, pointer=b)) for b in buffers)
    loop_timeout_ns = INFINITE_LOOP_TIMEOUT_NS if example.infinite_loop else None
    result = prepared.execute_synchronously(Request(inputs, outputs), False, None, loop_timeout_ns)
    shapes = [shape.dimensions for shape in result.output_shapes] or declared(example)
    return [outcome(dims, buffer) for dims, buffer in zip(shapes, buffers, strict=True)]
