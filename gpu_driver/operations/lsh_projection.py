# SPDX-License-Identifier: Apache-2.0
"""LSH_PROJECTION."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_driver.kernel import Kernel, int32
from gpu_driver.launch import Launch
from gpu_driver.operations import launches
from gpu_driver.splits.vectors import c_type
from gpu_driver.splits.worksize import linear
from nn_runtime.codes import OperationCode
from nn_runtime.operations.lsh_projection import DENSE, SPARSE, projection_type

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperand, BoundOperation
    from gpu_driver.device_profile import DeviceProfile


@launches(OperationCode.LSH_PROJECTION)
def lsh_projection(op: BoundOperation, device: DeviceProfile) -> Launch:
    """LSH_PROJECTION. FLOAT32, FLOAT16 seeds, rows of any type; kernel lsh_projection.cl:lsh_projection."""
    seeds, rows, output = op.input("hash"), op.input("input"), op.outputs[0]
    has_weights = op.optional("weight") is not None
    weights: BoundOperand = op.input("weight") if has_weights else seeds
    kind, width = projection_type(op), seeds.dimensions[1]
    bits = 1 if kind == DENSE else width
    offset = 1 << width if kind == SPARSE and width < 32 else 0
    offset -= offset >> 31 << 32
    row_count = rows.dimensions[0]
    global_size, local_size = linear(output.count, device)
    sizes = has_weights, row_count, rows.size_bytes // row_count, bits, offset, output.count
    return Launch(
        Kernel("lsh_projection.cl", "lsh_projection", (("T", c_type(seeds)),)),
        (seeds, rows, weights, output, *(int32(size) for size in sizes)),
        global_size,
        local_size,
        bytes_moved=seeds.size_bytes + rows.size_bytes + output.size_bytes,
    )
