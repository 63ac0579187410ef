# SPDX-License-Identifier: Apache-2.0
"""RANDOM_MULTINOMIAL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_driver.kernel import Kernel, RandomSeed, Scratch, int32
from gpu_driver.launch import Launch
from gpu_driver.operations import launches
from gpu_driver.splits.groups import one_group_each, typed_group
from gpu_driver.splits.worksize import linear
from nn_runtime.codes import OperationCode

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperation
    from gpu_driver.device_profile import DeviceProfile


@launches(OperationCode.RANDOM_MULTINOMIAL)
def random_multinomial(op: BoundOperation, device: DeviceProfile) -> tuple[Launch, Launch]:
    """RANDOM_MULTINOMIAL. FLOAT32, FLOAT16; kernels of random_multinomial.cl. Seeds of 0 draw anew at every run."""
    logits, samples, output = op.input("logits"), op.int_value("samples"), op.outputs[0]
    batches, classes = logits.dimensions
    defines = *typed_group(logits, device), ("REAL", "double" if device.fp64 else "float")
    sums = Scratch(logits.count * (8 if device.fp64 else 4))
    return (
        Launch(
            Kernel("random_multinomial.cl", "sum_exponentials", defines),
            (logits, sums, int32(classes)),
            *one_group_each(batches, device),
            flops=logits.count,
            bytes_moved=logits.size_bytes,
        ),
        Launch(
            Kernel("random_multinomial.cl", "random_multinomial", defines),
            (sums, op.input("seeds"), output, RandomSeed(), *map(int32, (classes, samples, output.count))),
            *linear(output.count, device),
            bytes_moved=output.size_bytes,
        ),
    )
