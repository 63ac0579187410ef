# SPDX-License-Identifier: Apache-2.0
"""An application's own OpenCL program and the runtime work on one hardware buffer, each after the other's fence.

(AOSP TestGpuNnapi, where the application's program is one of Vulkan.)
"""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING

import numpy as np
import pyopencl as cl
import pytest

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.compilation import Compilation
from nn_runtime.device import Device
from nn_runtime.event import Event
from nn_runtime.execution import Execution
from nn_runtime.hal.fences import Fence
from nn_runtime.hal.memory import HardwareBuffer, HardwareBufferUsage
from nn_runtime.memory import Memory
from nn_runtime.model import Model
from nn_runtime.operand import OperandType, dtype_of

if TYPE_CHECKING:
    from gpu_driver.driver import Device as OpenclDevice

DIMS, ITERATIONS = (64, 32), 5
PROGRAM = """
kernel void fill(global TYPE *out, float start) { STORE(start + (float)(get_global_id(0) % 7), get_global_id(0), out); }
"""
WHOLE_NUMBER = "-DSTORE(v,i,p)=p[i]=(TYPE)(v)"
OPTIONS = {
    OperandCode.TENSOR_FLOAT32: ["-DTYPE=float", WHOLE_NUMBER],
    OperandCode.TENSOR_FLOAT16: ["-DTYPE=half", "-DSTORE(v,i,p)=vstore_half(v,i,p)"],
    OperandCode.TENSOR_QUANT8_ASYMM: ["-DTYPE=uchar", WHOLE_NUMBER],
    OperandCode.TENSOR_QUANT8_ASYMM_SIGNED: ["-DTYPE=char", WHOLE_NUMBER],
}


class Application:
    """A program that fills a hardware buffer with small numbers and signals a fence."""

    def __init__(self, device: cl.Device, target: HardwareBuffer, code: OperandCode) -> None:
        context = cl.Context([device])
        self._queue, self._target = cl.CommandQueue(context), target.lock()
        self._made = cl.Buffer(context, cl.mem_flags.READ_WRITE, target.size_bytes)
        self._fill = cl.Program(context, PROGRAM).build(OPTIONS[code]).fill

    def start(self, first: int) -> Fence:
        """Start to fill the buffer; the fence tells the end."""
        fence = Fence()
        self._fill(self._queue, (int(np.prod(DIMS)),), None, self._made, np.float32(first))
        copied = cl.enqueue_copy(self._queue, self._target, self._made, is_blocking=False)
        copied.set_callback(cl.command_execution_status.COMPLETE, lambda _status: fence.signal())
        self._queue.flush()
        return fence


def _plus_one(code: OperandCode, device: Device) -> Compilation:
    scale = 1.0 if dtype_of(code).itemsize == 1 else 0.0
    model = Model()
    source, result = (model.add_operand(OperandType(code, DIMS, scale)) for _ in range(2))
    one, fuse = model.add_operand(OperandType(code, (1,), scale)), model.add_operand(OperandType(OperandCode.INT32))
    model.set_operand_value(one, np.ones(1, dtype_of(code)))
    model.set_operand_value(fuse, FuseCode.NONE)
    model.add_operation(OperationCode.ADD, [source, one, fuse], [result])
    model.identify_inputs_and_outputs([source], [result])
    model.relax_computation_float32_to_float16(True)
    model.finish()
    compilation = Compilation(model, [device])
    compilation.finish()
    return compilation


@pytest.mark.filterwarnings("ignore::pyopencl.CompilerWarning")  # Intel's compiler always has something to say
@pytest.mark.parametrize("code", list(OPTIONS), ids=lambda code: code.name)
def test_a_program_of_the_application_and_the_runtime_in_turns(code: OperandCode, opencl_device: OpenclDevice) -> None:
    size_bytes = int(np.prod(DIMS)) * dtype_of(code).itemsize
    usage = HardwareBufferUsage.CPU_READ | HardwareBufferUsage.CPU_WRITE
    made = HardwareBuffer(size_bytes, usage=usage | HardwareBufferUsage.GPU_DATA_BUFFER)
    computed = HardwareBuffer(size_bytes, usage=usage)
    application = Application(opencl_device._found.device, made, code)
    compilation = _plus_one(code, Device(opencl_device))
    with Memory.from_hardware_buffer(made) as source, Memory.from_hardware_buffer(computed) as result:
        for first in range(ITERATIONS):
            execution = Execution(compilation)
            execution.set_input_from_memory(0, source, 0, size_bytes)
            execution.set_output_from_memory(0, result, 0, size_bytes)
            written = application.start(first)
            event = execution.start_compute_with_dependencies([Event.from_sync_fence_fd(written.fd)])
            fence = event.sync_fence_fd()
            ready, _, _ = select.select([fence], [], [], 60)
            assert ready
            os.close(fence)
            wanted = first + np.arange(np.prod(DIMS)) % 7 + 1
            np.testing.assert_array_equal(computed.lock().view(dtype_of(code)), wanted.astype(dtype_of(code)))
            event.wait()
            execution.close()
