# SPDX-License-Identifier: Apache-2.0
"""AVERAGE_POOL_2D, MAX_POOL_2D, L2_POOL_2D."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpu_driver import chain
from gpu_driver.kernel import Kernel, float32, int32, int_vector
from gpu_driver.launch import Launch
from gpu_driver.operations import launches
from gpu_driver.splits.groups import one_group_each, share_outputs, typed_group
from gpu_driver.splits.vectors import LANES, c_type, per_item
from gpu_driver.splits.worksize import round_up, rows
from nn_runtime.codes import OperationCode
from nn_runtime.operand import QUANT8_TYPES
from nn_runtime.operations.pooling import pooling_geometry
from nn_runtime.quantization import activation_range_float, activation_range_quantized

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperation
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.kernel import Argument, Scalar
    from gpu_driver.launch import WorkSize
    from nn_runtime.operations.sliding_window import SlidingWindow

_GROUP_CHANNELS = 32
"""Of pooling.cl:*_groups."""
_BLOCKS_AT_ONCE = 4
"""Which greatest.h and average.h take at once where there are as many."""
_NAMES = {
    OperationCode.AVERAGE_POOL_2D: "average_pool_2d",
    OperationCode.MAX_POOL_2D: "max_pool_2d",
    OperationCode.L2_POOL_2D: "l2_pool_2d",
}
_STEPS = {OperationCode.AVERAGE_POOL_2D: chain.Kind.AVERAGE, OperationCode.MAX_POOL_2D: chain.Kind.GREATEST}
"""Those that are steps of chains."""


@launches(*_NAMES)
def pooling(op: BoundOperation, device: DeviceProfile) -> Launch:
    """AVERAGE_POOL_2D, MAX_POOL_2D, L2_POOL_2D. FLOAT32, FLOAT16, QUANT8 (not L2_POOL_2D); kernels pooling.cl.

    *_rows for CPUs and depth >= 16, *_groups for few outputs of large windows on GPUs.
    """
    source, output = op.input("input"), op.outputs[0]
    window = _as_nhwc(pooling_geometry(op))
    code = OperationCode(op.code)
    name = _NAMES[code]
    types: tuple[tuple[str, str | int], ...] = (("T", c_type(output)),)
    arguments = (source, output, *_bounds(op, window), *_sizes(window))
    taps = window.filter_height * window.filter_width
    lines = window.output_height * window.batches
    moved = source.size_bytes + output.size_bytes
    if device.is_cpu and window.output_depth >= LANES:
        blocks = -(-window.output_depth // LANES)
        item_blocks = per_item(blocks * lines, device, LANES * taps * window.output_width)
        item_blocks = min(blocks, round_up(item_blocks, _BLOCKS_AT_ONCE) if item_blocks > 1 else 1)
        name, arguments = f"{name}_rows", (*arguments, int32(item_blocks))
        sizes: tuple[WorkSize, WorkSize] = (-(-blocks // item_blocks), lines), (1, 1)
    elif share_outputs(output.count, taps, device, multiple=_GROUP_CHANNELS):
        blocks = -(-window.output_depth // _GROUP_CHANNELS)
        name, types = f"{name}_groups", typed_group(output, device)
        sizes = one_group_each(blocks * window.output_width * lines, device)
    else:
        sizes = rows(window.output_width * window.output_depth, lines, device)
    launch = Launch(Kernel("pooling.cl", name, types), arguments, *sizes, flops=output.count * taps, bytes_moved=moved)
    kernel = chain.step_kernel(output, device) if code in _STEPS else None
    return launch if kernel is None else replace(launch, steps=(_chain_step(launch, op, window, kernel),))


def _chain_step(launch: Launch, op: BoundOperation, window: SlidingWindow, kernel: Kernel) -> chain.Step:
    """Return what takes the launch's place between convolutions."""
    source, output = op.input("input"), op.outputs[0]
    low, high = (bound.item() for bound in _bounds(op, window))
    return chain.Step(
        kernel,
        _STEPS[OperationCode(op.code)],
        source,
        output,
        geometry=window,
        values={"low": low, "high": high},
        flops=launch.flops,
        bytes_moved=launch.bytes_moved,
    )


def _as_nhwc(window: SlidingWindow) -> SlidingWindow:
    """Return an NCHW operation as one on batches * depth images of depth 1."""
    if not window.nchw:
        return window
    return replace(window, batches=window.batches * window.input_depth, input_depth=1, output_depth=1, nchw=False)


def _bounds(op: BoundOperation, window: SlidingWindow) -> tuple[Scalar, Scalar]:
    if op.data_type in QUANT8_TYPES:
        low, high = activation_range_quantized(window.activation, op.outputs[0])
        return int32(low), int32(high)
    real_low, real_high = activation_range_float(window.activation)
    return float32(real_low), float32(real_high)


def _sizes(window: SlidingWindow) -> tuple[Argument, ...]:
    sizes = window.input_height, window.input_width, window.input_depth, window.output_height, window.output_width
    return (
        *(int32(size) for size in sizes),
        int_vector(window.filter_height, window.filter_width),
        int_vector(window.stride_height, window.stride_width),
        int_vector(window.padding_top, window.padding_left),
    )
