# SPDX-License-Identifier: Apache-2.0
"""Layers of networks in wide use, and a few blocks of them: what `layers.py` measures.

`f` is the file that a layer is added to; names give sizes as height x width x depth, then what comes out.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from layer_file import SCALE, ZERO_POINT, LayerFile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from networks import Array

Build: TypeAlias = "Callable[[LayerFile], int]"
"""Adds a layer to a file and returns its output."""

SAME, VALID = schema.Padding.SAME, schema.Padding.VALID
RELU, RELU6 = schema.ActivationFunctionType.RELU, schema.ActivationFunctionType.RELU6
NONE = schema.ActivationFunctionType.NONE


def conv(f: LayerFile, x: int, depth: int, size: int = 1, stride: int = 1, dilation: int = 1, groups: int = 1,
         act: int = NONE) -> int:  # fmt: skip
    """CONV_2D, padding SAME."""
    b, h, w, c = f.shape(x)
    weights = f.weights(depth, size, size, c // groups, axis=0, products=size * size * c // groups)
    return f.add("CONV_2D", [x, weights, f.bias(depth, weights)], (b, -(-h // stride), -(-w // stride), depth),
                 padding=SAME, strideH=stride, strideW=stride, dilationHFactor=dilation, dilationWFactor=dilation,
                 fusedActivationFunction=act)  # fmt: skip


def depthwise(f: LayerFile, x: int, size: int = 3, stride: int = 1, act: int = NONE) -> int:
    """DEPTHWISE_CONV_2D, padding SAME."""
    b, h, w, c = f.shape(x)
    weights = f.weights(1, size, size, c, axis=3, products=size * size)
    return f.add("DEPTHWISE_CONV_2D", [x, weights, f.bias(c, weights)], (b, -(-h // stride), -(-w // stride), c),
                 padding=SAME, strideH=stride, strideW=stride, dilationHFactor=1, dilationWFactor=1, depthMultiplier=1,
                 fusedActivationFunction=act)  # fmt: skip


def dense(f: LayerFile, x: int, units: int, act: int = NONE) -> int:
    """FULLY_CONNECTED over the last axis."""
    *outer, depth = f.shape(x)
    weights = f.weights(units, depth, axis=None, products=depth)
    bias = f.bias(units, weights)
    return f.add("FULLY_CONNECTED", [x, weights, bias], (*outer, units), keepNumDims=len(outer) > 1,
                 fusedActivationFunction=act)  # fmt: skip


def unary(name: str, f: LayerFile, x: int, scale: float = SCALE, zero_point: int = ZERO_POINT) -> int:
    """Add an operator of one tensor."""
    return f.add(name, [x], f.shape(x), scale, zero_point)


def logistic(f: LayerFile, x: int) -> int:
    """LOGISTIC; quantised as TFLite wants it."""
    return unary("LOGISTIC", f, x, 1 / 256, -128)


def pair(name: str, f: LayerFile, a: int, b: int, act: int = NONE) -> int:
    """Add an operator of two broadcast tensors."""
    shape = np.broadcast_shapes(f.shape(a), f.shape(b))
    if name in ("ADD", "SUB", "MUL", "DIV"):
        return f.add(name, [a, b], shape, fusedActivationFunction=act)
    return f.add(name, [a, b], shape)


def pool(name: str, f: LayerFile, x: int, size: int, stride: int, padding: int = SAME) -> int:
    """AVERAGE_POOL_2D or MAX_POOL_2D."""
    b, h, w, c = f.shape(x)
    cut = 0 if padding == SAME else size - 1
    return f.add(name, [x], (b, -(-(h - cut) // stride), -(-(w - cut) // stride), c), padding=padding, strideH=stride,
                 strideW=stride, filterHeight=size, filterWidth=size)  # fmt: skip


def reduce(name: str, f: LayerFile, x: int, axes: Sequence[int]) -> int:
    """Add a reduction that keeps dimensions."""
    shape = [1 if i in axes else n for i, n in enumerate(f.shape(x))]
    return f.add(name, [x, f.integers(list(axes))], shape, keepDims=True)


def matmul(f: LayerFile, a: int, b: int, adj_y: bool = False) -> int:
    """BATCH_MATMUL."""
    shape = (*f.shape(a)[:-1], f.shape(b)[-2 if adj_y else -1])
    return f.add("BATCH_MATMUL", [a, b], shape, adjY=adj_y)


def softmax(f: LayerFile, x: int) -> int:
    """SOFTMAX over the last axis; quantised as TFLite wants it."""
    return f.add("SOFTMAX", [x], f.shape(x), 1 / 256, -128, beta=1.0)


def resize(name: str, f: LayerFile, x: int, height: int, width: int, *, corners: bool = False,
           centers: bool = False) -> int:  # fmt: skip
    """RESIZE_BILINEAR or RESIZE_NEAREST_NEIGHBOR, with aligned corners, half pixel centers or neither."""
    b, _, _, c = f.shape(x)
    return f.add(name, [x, f.integers([height, width])], (b, height, width, c), alignCorners=corners,
                 halfPixelCenters=centers)  # fmt: skip


def transpose(f: LayerFile, x: int, *order: int) -> int:
    """TRANSPOSE."""
    return f.add("TRANSPOSE", [x, f.integers(order)], [f.shape(x)[i] for i in order])


def reshape(f: LayerFile, x: int, *shape: int) -> int:
    """RESHAPE."""
    return f.add("RESHAPE", [x, f.integers(shape)], shape, newShape=list(shape))


def concatenation(f: LayerFile, parts: Sequence[int], axis: int) -> int:
    """CONCATENATION."""
    shape = list(f.shape(parts[0]))
    shape[axis] = sum(f.shape(part)[axis] for part in parts)
    return f.add("CONCATENATION", parts, shape, axis=axis, fusedActivationFunction=NONE)


def pad(f: LayerFile, x: int, *amounts: tuple[int, int]) -> int:
    """PAD."""
    shape = [n + sum(amount) for n, amount in zip(f.shape(x), amounts, strict=True)]
    return f.add("PAD", [x, f.integers(amounts)], shape)


def transpose_conv(f: LayerFile, x: int, depth: int, size: int, stride: int) -> int:
    """TRANSPOSE_CONV, padding SAME."""
    b, h, w, c = f.shape(x)
    weights = f.weights(depth, size, size, c, axis=0, products=size * size * c // stride**2)
    shape = b, h * stride, w * stride, depth
    return f.add("TRANSPOSE_CONV", [f.integers(shape), weights, x, f.bias(depth, weights)], shape, padding=SAME,
                 strideH=stride, strideW=stride)  # fmt: skip


def slice_(f: LayerFile, x: int, begin: Sequence[int], size: Sequence[int]) -> int:
    """SLICE."""
    return f.add("SLICE", [x, f.integers(begin), f.integers(size)], size)


def strided_slice(f: LayerFile, x: int, begin: Sequence[int], end: Sequence[int], step: Sequence[int]) -> int:
    """STRIDED_SLICE."""
    shape = [-(-(e - b) // s) for b, e, s in zip(begin, end, step, strict=True)]
    return f.add("STRIDED_SLICE", [x, *(f.integers(v) for v in (begin, end, step))], shape)


def prelu(f: LayerFile, x: int) -> int:
    """PRELU with one factor for each channel."""
    return f.add("PRELU", [x, f.constant(1, 1, f.shape(x)[-1], spread=0.25)], f.shape(x))


def layer_norm(f: LayerFile, x: int) -> int:
    """Normalisation of rows as converters write it."""
    depth, last = f.shape(x)[-1], len(f.shape(x)) - 1
    mean = reduce("MEAN", f, x, [last])
    square = f.add("SQUARED_DIFFERENCE", [x, mean], f.shape(x))
    variance = reduce("MEAN", f, square, [last])
    epsilon = f.constant(1, spread=1e-6)
    scale = f.add("RSQRT", [pair("ADD", f, variance, pair("MUL", f, epsilon, epsilon))], f.shape(variance))
    weighted = pair("MUL", f, scale, f.constant(depth))
    shift = pair("SUB", f, f.constant(depth), pair("MUL", f, mean, weighted))
    return pair("ADD", f, pair("MUL", f, x, weighted), shift)


def gelu(f: LayerFile, x: int) -> int:
    """GELU in the form with tanh."""
    return f.add("GELU", [x], f.shape(x), approximate=True)


def attention(f: LayerFile, x: int, heads: int) -> int:
    """Self-attention [rows, depth] -> [rows, depth]."""
    rows, depth = f.shape(x)
    size = depth // heads
    parts = [reshape(f, dense(f, x, depth), 1, rows, heads, size) for _ in range(3)]
    q, k, v = (transpose(f, part, 0, 2, 1, 3) for part in parts)
    weights = softmax(f, pair("MUL", f, matmul(f, q, k, adj_y=True), f.constant(1)))
    mixed = transpose(f, matmul(f, weights, v), 0, 2, 1, 3)
    return dense(f, reshape(f, mixed, rows, depth), depth)


def transformer(f: LayerFile, x: int) -> int:
    """Add a block of a small BERT."""
    x = layer_norm(f, pair("ADD", f, x, attention(f, x, 4)))
    wide = dense(f, x, f.shape(x)[-1] * 4)
    gate = gelu(f, wide)
    return layer_norm(f, pair("ADD", f, x, dense(f, gate, f.shape(x)[-1])))


def updated(f: LayerFile, cache: int, new: int) -> int:
    """A cache [1, heads, rows, size] whose row has other numbers, of a place that a run brings."""
    return f.add("DYNAMIC_UPDATE_SLICE", [cache, new, f.places(0, 0, f.shape(cache)[2] // 2, 0)], f.shape(cache))


def decoder(f: LayerFile, x: int, heads: int, rows: int) -> int:
    """Add a block of a language model for one word [1, depth], whose caches have so many rows."""
    _, depth = f.shape(x)
    size = depth // heads
    normal = layer_norm(f, x)
    q, k, v = (reshape(f, dense(f, normal, depth), 1, heads, 1, size) for _ in range(3))
    keys, values = (updated(f, f.input(1, heads, rows, size), new) for new in (k, v))
    scores = pair("ADD", f, pair("MUL", f, matmul(f, q, keys, adj_y=True), f.constant(1)), f.input(1, 1, 1, rows))
    mixed = reshape(f, matmul(f, softmax(f, scores), values), 1, depth)
    x = pair("ADD", f, x, dense(f, mixed, depth))
    normal = layer_norm(f, x)
    gate = pair("MUL", f, swish(f, dense(f, normal, 3 * depth)), dense(f, normal, 3 * depth))
    return pair("ADD", f, x, dense(f, gate, depth))


def greatest(f: LayerFile, x: int, count: int) -> int:
    """TOPK_V2, whose places nobody reads."""
    *outer, _ = f.shape(x)
    shape = *outer, count
    return f.add("TOPK_V2", [x, f.integers([count])], shape, others=[(shape, np.int32)])


def squeeze_excite(f: LayerFile, x: int, squeezed: int) -> int:
    """Channels scaled by what their means say."""
    depth = f.shape(x)[-1]
    narrow = conv(f, reduce("MEAN", f, x, [1, 2]), squeezed, act=RELU)
    return pair("MUL", f, x, logistic(f, conv(f, narrow, depth)))


def v3_block(f: LayerFile, x: int, wide: int, squeezed: int) -> int:
    """Block of MobileNet V3 large, 5x5."""
    depth = f.shape(x)[-1]
    y = unary("HARD_SWISH", f, conv(f, x, wide))
    y = unary("HARD_SWISH", f, depthwise(f, y, 5))
    return pair("ADD", f, x, conv(f, squeeze_excite(f, y, squeezed), depth))


def swish(f: LayerFile, x: int) -> int:
    """Multiply by the sigmoid of the same."""
    return pair("MUL", f, x, logistic(f, x))


def efficient_block(f: LayerFile, x: int, wide: int, squeezed: int) -> int:
    """Block of EfficientNet."""
    depth = f.shape(x)[-1]
    y = swish(f, depthwise(f, swish(f, conv(f, x, wide)), 3))
    return pair("ADD", f, x, conv(f, squeeze_excite(f, y, squeezed), depth))


def residual_block(f: LayerFile, x: int) -> int:
    """Basic block of ResNet."""
    depth = f.shape(x)[-1]
    return pair("ADD", f, x, conv(f, conv(f, x, depth, 3, act=RELU), depth, 3), RELU)


def detection_head(f: LayerFile, sizes: Sequence[tuple[int, int]]) -> int:
    """Class scores of SSD over feature maps of (size, depth), 6 anchors of 91 classes."""
    parts = []
    for size, depth in sizes:
        scores = conv(f, f.input(1, size, size, depth), 6 * 91)
        parts.append(reshape(f, scores, 1, size * size * 6, 91))
    return logistic(f, concatenation(f, parts, 1))


def up_block(f: LayerFile, x: int, skip: int) -> int:
    """Step up of a U-Net."""
    _, h, w, depth = f.shape(skip)
    y = concatenation(f, [resize("RESIZE_BILINEAR", f, x, h, w, centers=True), skip], 3)
    return conv(f, y, depth, 3, act=RELU)


def channel_shuffle(f: LayerFile, x: int, groups: int) -> int:
    """Groups of channels, mixed as by ShuffleNet."""
    b, h, w, c = f.shape(x)
    return reshape(f, transpose(f, reshape(f, x, b, h, w, groups, c // groups), 0, 1, 2, 4, 3), b, h, w, c)


_BOTH: dict[str, Build] = {
    "tiny ADD 16": lambda f: pair("ADD", f, f.input(1, 16), f.input(1, 16)),
    "CONV 1x1 28x28x256-256": lambda f: conv(f, f.input(1, 28, 28, 256), 256),
    "CONV 3x3 56x56x64-64": lambda f: conv(f, f.input(1, 56, 56, 64), 64, 3, act=RELU),
    "CONV 3x3 s2 56x56x128-128": lambda f: conv(f, f.input(1, 56, 56, 128), 128, 3, 2),
    "CONV 7x7 s2 224x224x3-64": lambda f: conv(f, f.input(1, 224, 224, 3), 64, 7, 2, act=RELU),
    "CONV 3x3 d2 33x33x128-128": lambda f: conv(f, f.input(1, 33, 33, 128), 128, 3, dilation=2),
    "CONV 3x3 g32 28x28x128-128": lambda f: conv(f, f.input(1, 28, 28, 128), 128, 3, groups=32),
    "CONV 3x3 96x96x1-32": lambda f: conv(f, f.input(1, 96, 96, 1), 32, 3, act=RELU),
    "CONV 3x3 128x128x64-3": lambda f: conv(f, f.input(1, 128, 128, 64), 3, 3),
    "CONV 9x9 64x64x64-3": lambda f: conv(f, f.input(1, 64, 64, 64), 3, 9),
    "DW 5x5 28x28x120": lambda f: depthwise(f, f.input(1, 28, 28, 120), 5),
    "DW 3x3 s2 112x112x64": lambda f: depthwise(f, f.input(1, 112, 112, 64), 3, 2),
    "DW 3x3 112x112x16": lambda f: depthwise(f, f.input(1, 112, 112, 16)),
    "DW 7x7 56x56x96": lambda f: depthwise(f, f.input(1, 56, 56, 96), 7),
    "FC 1x1280-1000": lambda f: dense(f, f.input(1, 1280), 1000),
    "FC 8x1024-1024": lambda f: dense(f, f.input(8, 1024), 1024),
    "FC 128x512-512": lambda f: dense(f, f.input(128, 512), 512),
    "FC 128x512-2048": lambda f: dense(f, f.input(128, 512), 2048),
    "BMM 8x128x64x128": lambda f: matmul(f, f.input(1, 8, 128, 64), f.input(1, 8, 64, 128)),
    "BMM adj_y 8x128x64x128": lambda f: matmul(f, f.input(1, 8, 128, 64), f.input(1, 8, 128, 64), True),
    "BMM 8x128x128x64": lambda f: matmul(f, f.input(1, 8, 128, 128), f.input(1, 8, 128, 64)),
    "BMM adj_y 8x1x64x512": lambda f: matmul(f, f.input(1, 8, 1, 64), f.input(1, 8, 512, 64), True),
    "SOFTMAX 1024x128": lambda f: softmax(f, f.input(1024, 128)),
    "SOFTMAX 12x128x128": lambda f: softmax(f, f.input(1, 12, 128, 128)),
    "SOFTMAX 1x1000": lambda f: softmax(f, f.input(1, 1000)),
    "MAX_POOL 3x3 s2 112x112x64": lambda f: pool("MAX_POOL_2D", f, f.input(1, 112, 112, 64), 3, 2),
    "MAX_POOL 2x2 s2 64x64x64": lambda f: pool("MAX_POOL_2D", f, f.input(1, 64, 64, 64), 2, 2),
    "MAX_POOL 5x5 s1 20x20x256": lambda f: pool("MAX_POOL_2D", f, f.input(1, 20, 20, 256), 5, 1),
    "AVG_POOL 3x3 s1 35x35x192": lambda f: pool("AVERAGE_POOL_2D", f, f.input(1, 35, 35, 192), 3, 1),
    "AVG_POOL 7x7 7x7x1280": lambda f: pool("AVERAGE_POOL_2D", f, f.input(1, 7, 7, 1280), 7, 7, VALID),
    "MEAN h,w 14x14x480": lambda f: reduce("MEAN", f, f.input(1, 14, 14, 480), [1, 2]),
    "MEAN h,w 56x56x72": lambda f: reduce("MEAN", f, f.input(1, 56, 56, 72), [1, 2]),
    "MEAN last 128x512": lambda f: reduce("MEAN", f, f.input(128, 512), [1]),
    "SUM last 128x512": lambda f: reduce("SUM", f, f.input(128, 512), [1]),
    "SUM middle 64x64x64": lambda f: reduce("SUM", f, f.input(64, 64, 64), [1]),
    "REDUCE_MAX last 128x512": lambda f: reduce("REDUCE_MAX", f, f.input(128, 512), [1]),
    "ADD same 56x56x64": lambda f: pair("ADD", f, f.input(1, 56, 56, 64), f.input(1, 56, 56, 64)),
    "ADD vector 128x2048": lambda f: pair("ADD", f, f.input(128, 2048), f.constant(2048)),
    "ADD vector 224x224x3": lambda f: pair("ADD", f, f.input(1, 224, 224, 3), f.constant(3)),
    "MUL channels 14x14x480": lambda f: pair("MUL", f, f.input(1, 14, 14, 480), f.input(1, 1, 1, 480)),
    "MUL scalar 56x56x64": lambda f: pair("MUL", f, f.input(1, 56, 56, 64), f.constant(1)),
    "SUB rows 128x512": lambda f: pair("SUB", f, f.input(128, 512), f.input(128, 1)),
    "SQUARED_DIFFERENCE 128x512": lambda f: f.add(
        "SQUARED_DIFFERENCE", [f.input(128, 512), f.input(128, 1)], (128, 512)),
    "MAXIMUM scalar 56x56x64": lambda f: pair("MAXIMUM", f, f.input(1, 56, 56, 64), f.constant(1)),
    "MINIMUM same 56x56x64": lambda f: pair("MINIMUM", f, f.input(1, 56, 56, 64), f.input(1, 56, 56, 64)),
    "PRELU 56x56x64": lambda f: prelu(f, f.input(1, 56, 56, 64)),
    "HARD_SWISH 56x56x72": lambda f: unary("HARD_SWISH", f, f.input(1, 56, 56, 72)),
    "LOGISTIC 1917x91": lambda f: logistic(f, f.input(1, 1917, 91)),
    "TANH 128x2048": lambda f: unary("TANH", f, f.input(128, 2048), 1 / 128, 0),
    "GELU 128x2048": lambda f: gelu(f, f.input(128, 2048)),
    "LEAKY_RELU 56x56x64": lambda f: f.add("LEAKY_RELU", [f.input(1, 56, 56, 64)], (1, 56, 56, 64), alpha=0.1),
    "RELU 56x56x64": lambda f: unary("RELU", f, f.input(1, 56, 56, 64)),
    "RESIZE_BILINEAR 32x32x128-64x64": lambda f: resize(
        "RESIZE_BILINEAR", f, f.input(1, 32, 32, 128), 64, 64, centers=True),
    "RESIZE_BILINEAR 33x33x21-257x257": lambda f: resize(
        "RESIZE_BILINEAR", f, f.input(1, 33, 33, 21), 257, 257, corners=True),
    "RESIZE_BILINEAR 224x224x3-320x320": lambda f: resize(
        "RESIZE_BILINEAR", f, f.input(1, 224, 224, 3), 320, 320, centers=True),
    "RESIZE_BILINEAR 480x640x3-224x224": lambda f: resize("RESIZE_BILINEAR", f, f.input(1, 480, 640, 3), 224, 224),
    "RESIZE_NEAREST 26x26x128-52x52": lambda f: resize("RESIZE_NEAREST_NEIGHBOR", f, f.input(1, 26, 26, 128), 52, 52),
    "TRANSPOSE_CONV 2x2 s2 32x32x128-64": lambda f: transpose_conv(f, f.input(1, 32, 32, 128), 64, 2, 2),
    "TRANSPOSE_CONV 4x4 s2 32x32x128-64": lambda f: transpose_conv(f, f.input(1, 32, 32, 128), 64, 4, 2),
    "TRANSPOSE_CONV 4x4 s2 128x128x32-3": lambda f: transpose_conv(f, f.input(1, 128, 128, 32), 3, 4, 2),
    "CONCAT channels 64x64x(64+64)": lambda f: concatenation(f, [f.input(1, 64, 64, 64), f.input(1, 64, 64, 64)], 3),
    "CONCAT outer 1083,600x91": lambda f: concatenation(f, [f.input(1, 1083, 91), f.input(1, 600, 91)], 1),
    "PAD 112x112x32": lambda f: pad(f, f.input(1, 112, 112, 32), (0, 0), (1, 1), (1, 1), (0, 0)),
    "PAD 224x224x3": lambda f: pad(f, f.input(1, 224, 224, 3), (0, 0), (3, 3), (3, 3), (0, 0)),
    "TRANSPOSE heads 128x8x64": lambda f: transpose(f, f.input(1, 128, 8, 64), 0, 2, 1, 3),
    "TRANSPOSE nhwc-nchw 56x56x64": lambda f: transpose(f, f.input(1, 56, 56, 64), 0, 3, 1, 2),
    "TRANSPOSE nhwc-nchw 224x224x3": lambda f: transpose(f, f.input(1, 224, 224, 3), 0, 3, 1, 2),
    "TRANSPOSE 512x512": lambda f: transpose(f, f.input(512, 512), 1, 0),
    "SLICE channels 56x56x64-32": lambda f: slice_(f, f.input(1, 56, 56, 64), (0, 0, 0, 16), (1, 56, 56, 32)),
    "STRIDED_SLICE s2 112x112x32": lambda f: strided_slice(
        f, f.input(1, 112, 112, 32), (0, 0, 0, 0), (1, 112, 112, 32), (1, 2, 2, 1)),
    "ARG_MAX 257x257x21": lambda f: f.add(
        "ARG_MAX", [f.input(1, 257, 257, 21), f.integers(3)], (1, 257, 257), dtype=np.int32,
        outputType=schema.TensorType.INT32),
    "DEPTH_TO_SPACE 64x64x64": lambda f: f.add(
        "DEPTH_TO_SPACE", [f.input(1, 64, 64, 64)], (1, 128, 128, 16), blockSize=2),
    "SPACE_TO_DEPTH 128x128x16": lambda f: f.add(
        "SPACE_TO_DEPTH", [f.input(1, 128, 128, 16)], (1, 64, 64, 64), blockSize=2),
    "SPACE_TO_BATCH 64x64x64": lambda f: f.add(
        "SPACE_TO_BATCH_ND", [f.input(1, 64, 64, 64), f.integers([2, 2]), f.integers([[0, 0], [0, 0]])],
        (4, 32, 32, 64)),
    "BATCH_TO_SPACE 4x32x32x64": lambda f: f.add(
        "BATCH_TO_SPACE_ND", [f.input(4, 32, 32, 64), f.integers([2, 2]), f.integers([[0, 0], [0, 0]])],
        (1, 64, 64, 64)),
    "GATHER 5000x256 by 128": lambda f: f.add(
        "GATHER", [f.constant(5000, 256), f.indices(128, below=5000)], (128, 256), axis=0),
    "block: squeeze-excite 28x28x120": lambda f: squeeze_excite(f, f.input(1, 28, 28, 120), 32),
    "block: MobileNet V3 14x14x112": lambda f: v3_block(f, f.input(1, 14, 14, 112), 672, 168),
    "block: EfficientNet 28x28x40": lambda f: efficient_block(f, f.input(1, 28, 28, 40), 240, 10),
    "block: ResNet 28x28x128": lambda f: residual_block(f, f.input(1, 28, 28, 128)),
    "block: SSD head": lambda f: detection_head(f, ((19, 512), (10, 512), (5, 256), (3, 256))),
    "block: U-Net up 64x64x64": lambda f: up_block(f, f.input(1, 32, 32, 64), f.input(1, 64, 64, 64)),
    "block: channel shuffle 28x28x240": lambda f: channel_shuffle(f, f.input(1, 28, 28, 240), 8),
}  # fmt: skip
"""Layers of float32 and int8."""

_FLOAT: dict[str, Build] = {
    "DIV rows 1024x128": lambda f: pair("DIV", f, f.input(1024, 128), f.positive_input(1024, 1)),
    "EXP 1024x128": lambda f: unary("EXP", f, f.input(1024, 128)),
    "ABS 56x56x64": lambda f: unary("ABS", f, f.input(1, 56, 56, 64)),
    "SQRT 128x512": lambda f: unary("SQRT", f, f.positive_input(128, 512)),
    "ELU 56x56x64": lambda f: unary("ELU", f, f.input(1, 56, 56, 64)),
    "POW 128x512": lambda f: pair("POW", f, f.positive_input(128, 512), f.constant(1)),
    "block: layer norm 128x512": lambda f: layer_norm(f, f.input(128, 512)),
    "TOPK 500 of 1000": lambda f: greatest(f, f.input(1, 1000), 500),
    "UPDATE row of 8x1024x64": lambda f: updated(f, f.input(1, 8, 1024, 64), f.input(1, 8, 1, 64)),
    "block: transformer 128x256": lambda f: transformer(f, f.input(128, 256)),
    "block: decoder 512, 1024 words": lambda f: decoder(f, f.input(1, 512), 8, 1024),
}
"""Layers of float32 alone."""


def _built(build: Build, quantized: bool) -> tuple[bytes, list[Array]]:
    file = LayerFile(quantized=quantized)
    output = build(file)
    return file.write(output), file.data


LAYERS: Mapping[str, Callable[[], tuple[bytes, list[Array]]]] = {
    **{f"{name} float32": partial(_built, build, False) for name, build in {**_BOTH, **_FLOAT}.items()},
    **{f"{name} int8": partial(_built, build, True) for name, build in _BOTH.items()},
}
"""What returns the file and values for its inputs, by the layer's name."""
