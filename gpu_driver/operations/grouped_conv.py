# SPDX-License-Identifier: Apache-2.0
"""GROUPED_CONV_2D: the general convolution with several groups of channels."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from gpu_driver.operations import launches
from gpu_driver.operations.conv import Product, general
from nn_runtime.codes import OperationCode
from nn_runtime.operations.conv import Convolution
from nn_runtime.operations.grouped_conv import grouped_convolution
from nn_runtime.operations.sliding_window import SlidingWindow

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperation
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.launch import Launch


@launches(OperationCode.GROUPED_CONV_2D)
def grouped_conv_2d(op: BoundOperation, device: DeviceProfile) -> Launch:
    """GROUPED_CONV_2D. FLOAT32, FLOAT16, QUANT8; NHWC and NCHW; kernel conv_2d.cl:conv_2d."""
    window = grouped_convolution(op)
    geometry = Convolution(**{field.name: getattr(window, field.name) for field in fields(SlidingWindow)})
    filter_, bias = op.input("filter"), op.input("bias")
    product = Product(op.input("input"), filter_, bias, op.outputs[0], None, window.activation, geometry, window.groups)
    return general(product, device)
