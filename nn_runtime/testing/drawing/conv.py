# SPDX-License-Identifier: Apache-2.0
"""CONV_2D, DEPTHWISE_CONV_2D, GROUPED_CONV_2D, TRANSPOSE_CONV_2D, pooling, FULLY_CONNECTED, BATCH_MATMUL."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.operand import ChannelQuant, element_count
from nn_runtime.testing.drawing import Drawn, Result, Value, draws
from nn_runtime.testing.tolerances import CONVOLUTION, RELAXED

if TYPE_CHECKING:
    from nn_runtime.operand import Dimensions
    from nn_runtime.testing.drawing import Argument, Drawing

_GREATEST_DEPTH = 64
_PER_CHANNEL = OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL
_SAME, _VALID = 1, 2


def _image(d: Drawing) -> tuple[Value, bool]:
    """Return an image of moderate depth and whether its layout is NCHW."""
    image = d.tensor((4, 4), where=lambda value: min(value.dimensions[1], value.dimensions[3]) <= _GREATEST_DEPTH)
    nchw = image.dimensions[1] <= _GREATEST_DEPTH and (image.dimensions[3] > _GREATEST_DEPTH or d.chance(0.3))
    return image, nchw


def _sizes(image: Value, nchw: bool) -> tuple[int, int, int]:
    """Return height, width and depth."""
    _batches, *sizes = image.dimensions
    height, width, depth = (sizes[1], sizes[2], sizes[0]) if nchw else (sizes[0], sizes[1], sizes[2])
    return height, width, depth


def _weights(d: Drawing, dims: Dimensions, channel_dim: int, depth: int) -> Value:
    """Return a filter whose sums over `depth` products stay small; 8-bit ones often have a scale per channel."""
    reach = 1.5 / math.sqrt(depth)
    if not d.quantized or d.chance():
        return d.new(dims, (-reach, reach))
    scales = tuple(reach / 127 * d.number(0.5, 1.5) for _ in range(dims[channel_dim]))
    data = d.rng.integers(-127, 128, dims, dtype=np.int8)
    return Value(_PER_CHANNEL, dims, channel_quant=ChannelQuant(scales, channel_dim), array=data, constant=True)


def _bias(d: Drawing, source: Value, weights: Value, count: int) -> Value:
    if not d.quantized:
        return d.new((count,), (-1.0, 1.0))
    scale = 0.0 if weights.channel_quant else float(np.float32(source.scale * weights.scale))
    step = source.scale * (min(weights.channel_quant.scales) if weights.channel_quant else weights.scale)
    reach = max(1, min(int(1.0 / step), 2**24))
    data = d.rng.integers(-reach, reach, count, dtype=np.int32, endpoint=True)
    return Value(OperandCode.TENSOR_INT32, (count,), scale, array=data, constant=d.chance(0.7))


def _result(d: Drawing, source: Value) -> Result:
    reach = max(1.0, *map(abs, source.span))
    return d.scaled(-1.5 * reach, 1.5 * reach)


def _padding(d: Drawing, height: int, width: int) -> dict[str, Argument]:
    """Return an implicit scheme, or explicit paddings below the filter's sizes."""
    if d.chance():
        return {"padding_scheme": d.choice((_SAME, _VALID))}
    return {
        f"padding_{side}": d.integer(0, min(size - 1, 3))
        for side, size in (("left", width), ("right", width), ("top", height), ("bottom", height))
    }


def _strides(d: Drawing) -> dict[str, Argument]:
    return {"stride_width": d.integer(1, 3), "stride_height": d.integer(1, 3)}


def _tail(d: Drawing, nchw: bool, dilations: tuple[int, int] | None = None) -> dict[str, Argument]:
    """Return the optional arguments, left out where they would be the default (now and then)."""
    if dilations and (dilations != (1, 1) or d.chance(0.3)):
        return {"layout": nchw, "dilation_width": dilations[0], "dilation_height": dilations[1]}
    return {"layout": nchw} if nchw or d.chance(0.3) else {}


def _filter_sizes(d: Drawing, height: int, width: int) -> tuple[int, int]:
    return d.integer(1, min(height, 5)), d.integer(1, min(width, 5))


def _dilations(d: Drawing, sizes: tuple[int, int], taps: tuple[int, int]) -> tuple[int, int]:
    """Return dilations for width and height that keep the filter inside the image."""
    most = [3 if tap == 1 else min(3, (size - 1) // (tap - 1)) for size, tap in zip(sizes, taps, strict=True)]
    return d.integer(1, max(1, most[1])), d.integer(1, max(1, most[0]))


@draws(OperationCode.CONV_2D, OperationCode.DEPTHWISE_CONV_2D, criterion=CONVOLUTION)
def _conv(d: Drawing) -> Drawn:
    image, nchw = _image(d)
    height, width, depth = _sizes(image, nchw)
    taps = _filter_sizes(d, height, width)
    arguments: dict[str, Argument] = {"input": image}
    if d.code == OperationCode.CONV_2D:
        units = d.integer(1, 40)
        weights = _weights(d, (units, *taps, depth), 0, taps[0] * taps[1] * depth)
    else:
        multiplier = d.integer(1, 3)
        units = depth * multiplier
        weights = _weights(d, (1, *taps, units), 3, taps[0] * taps[1])
        arguments["depth_multiplier"] = multiplier
    arguments |= {"filter": weights, "bias": _bias(d, image, weights, units), "activation": d.activation()}
    arguments |= _padding(d, *taps) | _strides(d) | _tail(d, nchw, _dilations(d, (height, width), taps))
    return Drawn(arguments, (_result(d, image),))


@draws(OperationCode.GROUPED_CONV_2D, criterion=CONVOLUTION)
def _grouped(d: Drawing) -> Drawn:
    image, nchw = _image(d)
    height, width, depth = _sizes(image, nchw)
    taps = _filter_sizes(d, height, width)
    groups = d.choice([count for count in range(1, depth + 1) if depth % count == 0])
    units = groups * d.integer(1, 4)
    weights = _weights(d, (units, *taps, depth // groups), 0, taps[0] * taps[1] * depth // groups)
    arguments: dict[str, Argument] = {
        "input": image,
        "filter": weights,
        "bias": _bias(d, image, weights, units),
        "num_groups": groups,
        "activation": d.activation(),
        "layout": nchw,
    }
    return Drawn(arguments | _padding(d, *taps) | _strides(d), (_result(d, image),))


@draws(OperationCode.TRANSPOSE_CONV_2D, criterion=CONVOLUTION)
def _transposed(d: Drawing) -> Drawn:
    image, nchw = _image(d)
    height, width, depth = _sizes(image, nchw)
    taps = (d.integer(1, 5), d.integer(1, 5))
    strides = (d.integer(1, 3), d.integer(1, 3))
    units = d.integer(1, 16)
    weights = _weights(d, (units, *taps, depth), 0, taps[0] * taps[1] * depth)
    arguments: dict[str, Argument] = {
        "input": image,
        "filter": weights,
        "bias": _bias(d, image, weights, units),
        "stride_height": strides[0],
        "stride_width": strides[1],
        "activation": d.activation(),
        "layout": nchw,
    }
    whole = [(size - 1) * stride + tap for size, stride, tap in zip((height, width), strides, taps, strict=True)]
    if d.chance():
        for (before, after), tap, size in zip((("top", "bottom"), ("left", "right")), taps, whole, strict=True):
            head, tail = d.integer(0, tap - 1), d.integer(-2, tap - 1)  # a tail may lie beyond what the filter reaches
            if size <= head + tail:
                head = tail = 0
            arguments |= {f"padding_{before}": head, f"padding_{after}": tail}
        return Drawn(arguments, (_result(d, image),))
    scheme = d.choice((_SAME, _VALID))
    sizes = whole if scheme == _VALID else [height * strides[0], width * strides[1]]
    batches = image.dimensions[0]
    shape = (batches, units, *sizes) if nchw else (batches, *sizes, units)
    arguments |= {"padding_scheme": scheme, "output_shape": d.constant(shape)}
    return Drawn(arguments, (_result(d, image),))


@draws(OperationCode.AVERAGE_POOL_2D, OperationCode.MAX_POOL_2D, OperationCode.L2_POOL_2D, criterion=RELAXED)
def _pool(d: Drawing) -> Drawn:
    image, nchw = _image(d)
    height, width, _depth = _sizes(image, nchw)
    taps = _filter_sizes(d, height, width)
    arguments: dict[str, Argument] = {
        "input": image,
        "filter_height": taps[0],
        "filter_width": taps[1],
        "activation": d.activation(),
    }
    arguments |= _padding(d, *taps) | _strides(d) | _tail(d, nchw)
    return Drawn(arguments, (d.same(image),))


@draws(OperationCode.FULLY_CONNECTED, criterion=CONVOLUTION)
def _fully_connected(d: Drawing) -> Drawn:
    source = d.tensor((2, 4))
    units, depth = d.integer(1, 64), source.dimensions[-1]
    reach = 1.5 / math.sqrt(depth)
    weights = d.new((units, depth), (-reach, reach))
    arguments: dict[str, Argument] = {
        "input": source,
        "weights": weights,
        "bias": _bias(d, source, weights, units),
        "activation": d.activation(),
    }
    return Drawn(arguments, (_result(d, source),))


@draws(OperationCode.BATCH_MATMUL, criterion=CONVOLUTION)
def _batch_matmul(d: Drawing) -> Drawn:
    left = d.tensor((2, 4), span=(-9.0, 9.0) if d.data_type == OperandCode.TENSOR_INT32 else (-2.0, 2.0))
    adjoint_left, adjoint_right = d.chance(0.3), d.chance(0.3)
    *batches, rows, columns = left.dimensions
    depth, units = (rows if adjoint_left else columns), d.integer(1, 32)
    dims = (*batches, units, depth) if adjoint_right else (*batches, depth, units)
    if element_count(dims) > d.limit.elements:
        d.reject()
    right = d.new(dims, (-9.0, 9.0) if d.data_type == OperandCode.TENSOR_INT32 else (-1.0, 1.0))
    return Drawn({"lhs": left, "rhs": right, "adj_x": adjoint_left, "adj_y": adjoint_right}, (_result(d, left),))
