# SPDX-License-Identifier: Apache-2.0
"""RESIZE_BILINEAR, RESIZE_NEAREST_NEIGHBOR."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpu_driver import chain
from gpu_driver.chain.elementwise import joinable
from gpu_driver.kernel import Kernel, Packed, int32
from gpu_driver.launch import Launch
from gpu_driver.operations import launches
from gpu_driver.splits.vectors import c_type
from gpu_driver.splits.worksize import rows
from nn_runtime.codes import OperationCode
from nn_runtime.operations.resize import Resize, resize_geometry

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperation
    from gpu_driver.device_profile import DeviceProfile
    from nn_runtime.operand import Array


@launches(OperationCode.RESIZE_BILINEAR)
def resize_bilinear(op: BoundOperation, device: DeviceProfile) -> Launch:
    """RESIZE_BILINEAR. FLOAT32, FLOAT16, QUANT8; kernels resize.cl:resize_bilinear, resize_bilinear_rows."""
    geometry = _as_nhwc(resize_geometry(op))
    tables: list[Packed] = []
    for positions in (geometry.linear_rows(), geometry.linear_columns()):
        tables += [Packed(positions.lower), Packed(positions.upper), Packed(positions.weight)]
    return _launch(op, device, geometry, "resize_bilinear", tables)


@launches(OperationCode.RESIZE_NEAREST_NEIGHBOR)
def resize_nearest_neighbor(op: BoundOperation, device: DeviceProfile) -> Launch:
    """RESIZE_NEAREST_NEIGHBOR. FLOAT32, FLOAT16, QUANT8; kernels resize.cl:resize_nearest_neighbor, *_rows."""
    geometry = _as_nhwc(resize_geometry(op))
    tables: list[Packed] = [Packed(geometry.nearest_rows()), Packed(geometry.nearest_columns())]
    return _launch(op, device, geometry, "resize_nearest_neighbor", tables)


def _as_nhwc(geometry: Resize) -> Resize:
    """Return an NCHW operation as one on batches * depth images of depth 1."""
    if not geometry.nchw:
        return geometry
    return replace(geometry, batches=geometry.batches * geometry.depth, depth=1, nchw=False)


def _launch(op: BoundOperation, device: DeviceProfile, geometry: Resize, kernel: str, tables: list[Packed]) -> Launch:
    source, output = op.input("input"), op.outputs[0]
    lines = geometry.output_height * geometry.batches
    global_size, local_size = rows(geometry.output_width * geometry.depth, lines, device)
    if device.is_cpu:  # a work-item is a loop there
        kernel, global_size, local_size = f"{kernel}_rows", (1, lines), (1, 1)
    sizes = geometry.input_height, geometry.input_width, geometry.depth, geometry.output_height, geometry.output_width
    launch = Launch(
        Kernel("resize.cl", kernel, (("T", c_type(output)),)),
        (source, output, *tables, *(int32(size) for size in sizes)),
        global_size,
        local_size,
        flops=8 * output.count if op.code == OperationCode.RESIZE_BILINEAR else 0,
        bytes_moved=source.size_bytes + output.size_bytes,
    )
    kernel_of_steps = chain.step_kernel(output, device)
    if kernel_of_steps is None:
        return launch
    return joinable(launch, _chain_step(launch, op, geometry, kernel_of_steps, [table.data for table in tables]))


def _chain_step(
    launch: Launch, op: BoundOperation, geometry: Resize, kernel: Kernel, tables: list[Array]
) -> chain.Step:
    """Return what takes the launch's place in a chain."""
    g = geometry
    pixels = g.input_height * g.input_width
    return chain.Step(
        kernel,
        chain.Kind.BILINEAR if op.code == OperationCode.RESIZE_BILINEAR else chain.Kind.NEAREST,
        op.input("input"),
        op.outputs[0],
        geometry=replace(
            chain.rows_of(g.output_width, g.depth, g.batches),
            input_height=g.input_height,
            input_width=g.input_width,
            output_height=g.output_height,
        ),
        constants=tuple(tables),
        flops=launch.flops,
        bytes_moved=launch.bytes_moved,
        reads=chain.Reading(g.batches * pixels, g.depth, g.batches),
    )
