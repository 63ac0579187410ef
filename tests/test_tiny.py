# SPDX-License-Identifier: Apache-2.0
"""The smallest model on each device under test: the first thing to run after a change."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np

import nn_runtime as nn

if TYPE_CHECKING:
    from nn_runtime.device import Device

PROGRAM = """
import os, sys
sys.modules["pyopencl"] = None  # as if it were not installed
for name in ("memfd_create", "eventfd"):
    if hasattr(os, name):
        delattr(os, name)
import numpy as np
import nn_runtime as nn
from tests.test_tiny import softmax
print(nn.devices()[-1].name)
model, expected = softmax()
with nn.Compilation(model) as compilation:
    compilation.finish()
    result = np.empty(4, np.float32)
    with nn.Execution(compilation) as execution:
        execution.set_input(0, np.array([[1, 2, 3, 4]], np.float32))
        execution.set_output(0, result)
        execution.compute()
assert np.allclose(result, expected), result
memory = nn.Memory.from_array(np.arange(5))
assert np.array_equal(memory.to_array(np.int64, (5,)), np.arange(5))
"""


def softmax() -> tuple[nn.Model, list[float]]:
    """SOFTMAX of four numbers, with its values for 1, 2, 3, 4."""
    model = nn.Model()
    source = model.add_operand(nn.OperandType(nn.OperandCode.TENSOR_FLOAT32, (1, 4)))
    beta = model.add_operand(nn.OperandType(nn.OperandCode.FLOAT32))
    output = model.add_operand(nn.OperandType(nn.OperandCode.TENSOR_FLOAT32, (1, 4)))
    model.set_operand_value(beta, np.float32(1.0))
    model.add_operation(nn.OperationCode.SOFTMAX, [source, beta], [output])
    model.identify_inputs_and_outputs([source], [output])
    model.finish()
    exponentials = [np.e**value for value in (1, 2, 3, 4)]
    return model, [value / sum(exponentials) for value in exponentials]


def test_one_operation(device: Device) -> None:
    model, expected = softmax()
    result = np.empty(4, np.float32)
    with nn.Compilation(model, [device]) as compilation:
        compilation.finish()
        with nn.Execution(compilation) as execution:
            execution.set_input(0, np.array([[1, 2, 3, 4]], np.float32))
            execution.set_output(0, result)
            execution.compute()
            assert execution.get_output_operand_dimensions(0) == (1, 4)
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_without_opencl_and_linux_descriptors() -> None:
    """A machine without PyOpenCL, memfd and eventfd: everything runs on the CPU driver."""
    environment = {key: value for key, value in os.environ.items() if key not in ("NNRT_DEVICE", "PYOPENCL_CTX")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "nnapi-reference"


def test_import_is_light() -> None:
    """Importing the package loads neither PyOpenCL nor a driver."""
    code = "import sys, nn_runtime; print([m for m in ('pyopencl', 'gpu_driver', 'cpu_driver') if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True, timeout=60).strip() == "[]"
