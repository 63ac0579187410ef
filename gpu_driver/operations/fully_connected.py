# SPDX-License-Identifier: Apache-2.0
"""FULLY_CONNECTED: a 1x1 convolution over rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpu_driver import chain
from gpu_driver.chain.multiplying import with_bias
from gpu_driver.convolution.product import Product
from gpu_driver.launch import Steps
from gpu_driver.operations import launches
from gpu_driver.operations.conv import fits_packed, general, packed_product
from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.operations.batch_matmul import BatchMatmul
from nn_runtime.operations.conv import Convolution
from nn_runtime.operations.fully_connected import fully_connected_sizes
from nn_runtime.quantization import activation_range_float

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperation
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.launch import Launch
    from nn_runtime.operations.fully_connected import FullyConnected


@launches(OperationCode.FULLY_CONNECTED)
def fully_connected(op: BoundOperation, device: DeviceProfile) -> Launch | Steps:
    """FULLY_CONNECTED. FLOAT32, FLOAT16, QUANT8."""
    sizes = fully_connected_sizes(op)
    weights = op.input("weights")
    product = Product(
        op.input("input"),
        replace(weights, dimensions=(sizes.units, 1, 1, sizes.input_size)),
        op.input("bias"),
        op.outputs[0],
        None,
        sizes.activation,
        _as_convolution(sizes),
        rounds_once=True,
    )
    if fits_packed(product, device):
        return packed_product(product, device)
    return _by_computed_weights(op, sizes, device) or general(product, device)


def _by_computed_weights(op: BoundOperation, sizes: FullyConnected, device: DeviceProfile) -> Steps | None:
    """Return steps that pack weights in every run; None where they have none."""
    weights, output = op.input("weights"), op.outputs[0]
    kernel = chain.step_kernel(output, device)
    if kernel is None or output.type != OperandCode.TENSOR_FLOAT32 or weights.is_constant:
        return None
    product = BatchMatmul((), sizes.batches, sizes.units, sizes.input_size, adj_x=False, adj_y=True)
    bounds = activation_range_float(sizes.activation)
    steps = with_bias(kernel, op.input("input"), weights, op.input("bias"), output, product, bounds)
    return None if steps is None else Steps(steps)


def _as_convolution(sizes: FullyConnected) -> Convolution:
    return Convolution(
        batches=1,
        input_height=1,
        input_width=sizes.batches,
        input_depth=sizes.input_size,
        output_height=1,
        output_width=sizes.batches,
        output_depth=sizes.units,
        filter_height=1,
        filter_width=1,
        stride_height=1,
        stride_width=1,
        dilation_height=1,
        dilation_width=1,
        padding_top=0,
        padding_bottom=0,
        padding_left=0,
        padding_right=0,
        nchw=False,
        activation=sizes.activation,
    )
