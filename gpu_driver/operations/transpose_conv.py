# SPDX-License-Identifier: Apache-2.0
"""TRANSPOSE_CONV_2D."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpu_driver.launch import Kernel, Launch, Packed, float32, int32, int_vector
from gpu_driver.operations import launches
from gpu_driver.operations.conv import ELEMENT_NAMES
from gpu_driver.strided import image_strides
from gpu_driver.worksize import linear
from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.operand import QUANT8_TYPES
from nn_runtime.operations.transpose_conv import transpose_convolution
from nn_runtime.quantization import activation_range_float, activation_range_quantized, convolution_multipliers

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperation
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.launch import Argument


@launches(OperationCode.TRANSPOSE_CONV_2D)
def transpose_conv_2d(op: BoundOperation, device: DeviceProfile) -> Launch:
    """TRANSPOSE_CONV_2D. FLOAT32, FLOAT16, QUANT8; NHWC and NCHW; kernel transpose_conv_2d.cl:transpose_conv_2d."""
    g = transpose_convolution(op)
    source, weights, bias, output = op.input("input"), op.input("filter"), op.input("bias"), op.outputs[0]
    multipliers: tuple[Argument, ...] = ()
    zeros: tuple[Argument, ...] = ()
    low, high = (float32(bound) for bound in activation_range_float(g.activation))
    if source.type in QUANT8_TYPES:
        pairs = convolution_multipliers(source, weights, output)
        multipliers = tuple(Packed(np.ascontiguousarray(np.broadcast_to(pair, g.output_depth))) for pair in pairs)
        zeros = tuple(int32(one.zero_point) for one in (source, weights, output))
        low, high = (int32(bound) for bound in activation_range_quantized(g.activation, output))
    global_size, local_size = linear(output.count, device)
    return Launch(
        Kernel(
            "transpose_conv_2d.cl",
            "transpose_conv_2d",
            (
                ("T", ELEMENT_NAMES[OperandCode(source.type)]),
                ("FILTER_T", ELEMENT_NAMES[OperandCode(weights.type)]),
                ("QUANTIZED", int(source.type in QUANT8_TYPES)),
            ),
        ),
        (
            *(source, weights, bias, *multipliers, output),
            int_vector(*image_strides(g.input_height, g.input_width, g.input_depth, g.nchw)),
            int_vector(*image_strides(g.output_height, g.output_width, g.output_depth, g.nchw)),
            int_vector(g.input_height, g.input_width, g.input_depth, g.batches),
            int_vector(g.output_height, g.output_width, g.output_depth, 0),
            int_vector(g.filter_height, g.filter_width, g.padding_top, g.padding_left),
            int_vector(g.stride_height, g.stride_width),
            *zeros,
            *(low, high),
        ),
        global_size,
        local_size,
        2 * source.count * (weights.count // g.input_depth),
        source.size_bytes + weights.size_bytes + output.size_bytes,
    )
