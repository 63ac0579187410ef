# SPDX-License-Identifier: Apache-2.0
"""SVDF."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_driver.kernel import Kernel, Scratch, float32, int32
from gpu_driver.launch import Launch
from gpu_driver.launchers.recurrent import FLOAT_BYTES
from gpu_driver.operations import launches
from gpu_driver.splits.vectors import c_type, defines, per_item, work_sizes
from gpu_driver.splits.worksize import rows
from nn_runtime.codes import OperationCode
from nn_runtime.operations.svdf import svdf_sizes
from nn_runtime.quantization import activation_range_float

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperation
    from gpu_driver.device_profile import DeviceProfile


@launches(OperationCode.SVDF)
def svdf(op: BoundOperation, device: DeviceProfile) -> tuple[Launch, Launch]:
    """SVDF. FLOAT32, FLOAT16; kernels svdf.cl:svdf_feature, svdf_time."""
    sizes = svdf_sizes(op)
    source, features, times = op.input("input"), op.input("weights_feature"), op.input("weights_time")
    before, (after, output) = op.input("state_in"), op.outputs
    has_bias = op.optional("bias") is not None
    item_filters = per_item(sizes.num_filters, device, sizes.input_size)
    types = defines(device, T=c_type(source))
    newest = Scratch(sizes.batches * sizes.num_filters * FLOAT_BYTES)
    bounds = (float32(bound) for bound in activation_range_float(sizes.activation))
    counts = sizes.num_filters, sizes.rank, sizes.memory_size, has_bias
    return (
        Launch(
            Kernel("svdf.cl", "svdf_feature", types),
            (source, features, newest, *map(int32, (sizes.input_size, sizes.num_filters, item_filters))),
            *work_sizes(-(-sizes.num_filters // item_filters), device, sizes.batches),
            flops=2 * features.count * sizes.batches,
            bytes_moved=source.size_bytes + features.size_bytes,
        ),
        Launch(
            Kernel("svdf.cl", "svdf_time", types),
            (
                newest,
                times,
                op.input("bias") if has_bias else times,
                before,
                after,
                output,
                *map(int32, counts),
                *bounds,
            ),
            *rows(sizes.num_units, sizes.batches, device),
            flops=2 * times.count * sizes.batches,
            bytes_moved=times.size_bytes + 2 * before.size_bytes + output.size_bytes,
        ),
    )
