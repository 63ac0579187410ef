# SPDX-License-Identifier: Apache-2.0
"""An operation for which there is not enough memory fails; the process lives on (AOSP TestMemoryInternal)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_STATM = Path("/proc/self/statm")

_SCRIPT = """
import resource
from pathlib import Path

import numpy as np

from nn_runtime import Compilation, Execution, Model, NNError, OperandCode, OperandType, OperationCode
from nn_runtime.devices import reference_device

QUANT8, INT32 = OperandCode.TENSOR_QUANT8_ASYMM, OperandCode.TENSOR_INT32


def constant(model, array, *, scale=0.0):
    code = QUANT8 if array.dtype == np.uint8 else INT32 if array.shape else OperandCode.INT32
    index = model.add_operand(OperandType(code, array.shape, scale))
    model.set_operand_value(index, array)
    return index


model = Model()
source = model.add_operand(OperandType(QUANT8, (12, 104, 104, 128), 0.5))
weights = constant(model, np.zeros((128, 13, 13, 128), np.uint8), scale=0.5)
bias = constant(model, np.zeros(128, np.int32), scale=0.25)
zero, one = (constant(model, np.array(value, np.int32)) for value in (0, 1))
result = model.add_operand(OperandType(QUANT8, (12, 92, 92, 128), 1.0))
model.add_operation(
    OperationCode.CONV_2D, [source, weights, bias, zero, zero, zero, zero, one, one, zero], [result]
)
model.identify_inputs_and_outputs([source], [result])
model.finish()
compilation = Compilation(model, [reference_device()])
compilation.finish()
execution = Execution(compilation)
execution.set_input(0, np.zeros((12, 104, 104, 128), np.uint8))
execution.set_output(0, np.zeros((12, 92, 92, 128), np.uint8))
np.ones((512, 512), np.float32) @ np.ones((512, 512), np.float32)  # has memory of its own from then on
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**23, used + 2**23))
try:
    execution.compute()
except NNError as error:
    print(error.code.name)
print("alive")
"""


@pytest.mark.skipif(not _STATM.exists(), reason="the size of a process is read from /proc")
def test_a_convolution_too_large_for_its_scratch_memory() -> None:
    run = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, timeout=120, check=False)
    assert run.stdout.split() == ["RESOURCE_EXHAUSTED_TRANSIENT", "alive"], run.stderr
