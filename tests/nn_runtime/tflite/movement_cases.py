# SPDX-License-Identifier: Apache-2.0
"""Movement of elements, convolutions with groups and transposed, products, pooling, lookups."""

from __future__ import annotations

import numpy as np

from nn_runtime.tflite.types import TensorType
from tests.nn_runtime.tflite.operator_cases import (
    CONV,
    POOL,
    QUANTIZED_BIAS,
    RELU,
    SAME,
    VALID,
    Case,
    bytes_of,
    channels,
    weights,
)
from tests.nn_runtime.tflite.operator_file import Tensor, boolean, constant, int8, int32, int64, real, uint8
from tests.nn_runtime.tflite.sparse_tensors import sparse, sparse_values

SPARSE, DENSE = 1, 2
TO_SPACE = ("DepthToSpaceOptions", {"BlockSize": 2})
TO_DEPTH = ("SpaceToDepthOptions", {"BlockSize": 2})
MIRROR, PACK = "MirrorPadOptions", "PackOptions"
MATMUL = "BatchMatMulOptions"

CASES = [
    # Shapes and orders
    Case("RESHAPE", [boolean(2, 6), constant([3, 4])], [boolean(3, 4)], "ReshapeOptions"),
    Case("TRANSPOSE", [int32(2, 3, 4), constant([2, 0, 1])], [int32(4, 2, 3)]),
    Case("TRANSPOSE", [boolean(2, 3), constant([1, 0])], [boolean(3, 2)]),
    Case("REVERSE_V2", [real(2, 3, 4), constant([0, 1])], [real(2, 3, 4)]),
    Case("TILE", [int32(2, 3), constant([2, 3])], [int32(4, 9)]),
    Case("TILE", [real(2, 3), constant([2, 3])], [real(4, 9)]),
    Case("TILE", [boolean(2, 3), constant([1, 2])], [boolean(2, 6)]),
    Case("BROADCAST_TO", [real(3, 1), constant([2, 3, 4])], [real(2, 3, 4)]),
    Case("FILL", [constant([2, 3]), constant(np.float32(1.5))], [real(2, 3)]),
    Case("FILL", [constant([2, 3]), int32()], [int32(2, 3)], name="of a computed value"),
    Case("ZEROS_LIKE", [real(2, 3)], [real(2, 3)]),
    *(
        Case("RANGE", [constant(np.float32(number)) for number in numbers], [real(1)], name=f"{numbers}")
        for numbers in ((0, 7, 1), (0.5, 8, 0.3), (5, -2.5, -0.7), (0, 100, 0.1))
    ),
    Case("RANK", [real(2, 3)], [int32()]),
    Case("SHAPE", [real(2, 3)], [int64(2)], "ShapeOptions", {"OutType": 4}),
    Case("DEPTH_TO_SPACE", [real(1, 2, 3, 8)], [real(1, 4, 6, 2)], *TO_SPACE),
    Case(
        "DEPTH_TO_SPACE",
        [int8(0.1, 3, 1, 2, 3, 8)],
        [int8(0.1, 3, 1, 4, 6, 2)],
        "DepthToSpaceOptions",
        {"BlockSize": 2},
    ),
    Case(
        "SPACE_TO_DEPTH",
        [uint8(0.1, 3, 1, 4, 6, 2)],
        [uint8(0.1, 3, 1, 2, 3, 8)],
        "SpaceToDepthOptions",
        {"BlockSize": 2},
    ),
    Case(
        "SPACE_TO_BATCH_ND",
        [real(1, 3, 5, 2), constant([2, 3]), constant([[1, 0], [1, 0]])],
        [real(6, 2, 2, 2)],
        "SpaceToBatchNDOptions",
    ),
    Case(
        "SPACE_TO_BATCH_ND",
        [int8(0.1, 3, 1, 5, 2), constant([2]), constant([[1, 0]])],
        [int8(0.1, 3, 2, 3, 2)],
        "SpaceToBatchNDOptions",
        name="rank 3",
    ),
    Case(
        "BATCH_TO_SPACE_ND",
        [real(6, 2, 2, 2), constant([2, 3]), constant([[1, 0], [1, 2]])],
        [real(1, 3, 3, 2)],
        "BatchToSpaceNDOptions",
        name="with crops",
    ),
    Case(
        "BATCH_TO_SPACE_ND",
        [int8(0.1, 3, 2, 3, 2), constant([2]), constant([[0, 0]])],
        [int8(0.1, 3, 1, 6, 2)],
        "BatchToSpaceNDOptions",
        name="rank 3",
    ),
    *(Case("DEPTH_TO_SPACE", [kind(2, 2, 3, 8)], [kind(2, 4, 6, 2)], *TO_SPACE) for kind in (int32, int64)),
    *(Case("SPACE_TO_DEPTH", [kind(2, 4, 6, 2)], [kind(2, 2, 3, 8)], *TO_DEPTH) for kind in (int32, int64)),
    Case(
        "SPACE_TO_BATCH_ND",
        [int32(2, 3, 5, 2), constant([2, 3]), constant([[1, 0], [1, 0]])],
        [int32(12, 2, 2, 2)],
        "SpaceToBatchNDOptions",
    ),
    Case(
        "SPACE_TO_BATCH_ND",
        [boolean(1, 5, 2), constant([2]), constant([[1, 0]])],
        [boolean(2, 3, 2)],
        "SpaceToBatchNDOptions",
    ),
    Case(
        "BATCH_TO_SPACE_ND",
        [int32(12, 2, 2, 2), constant([2, 3]), constant([[1, 0], [1, 2]])],
        [int32(2, 3, 3, 2)],
        "BatchToSpaceNDOptions",
        name="with crops",
    ),
    *(
        Case("PADV2", [kind(2, 3), constant([[1, 0], [2, 1]]), kind()], [kind(3, 6)], "PadV2Options", name="of the run")
        for kind in (real, int32, int64, boolean, lambda *shape: int8(0.1, 3, *shape))
    ),
    Case(
        "PADV2", [boolean(2, 3), constant([[1, 0], [2, 1]]), constant(np.bool_(True))], [boolean(3, 6)], "PadV2Options"
    ),
    *(
        Case(
            "RESIZE_NEAREST_NEIGHBOR",
            [kind(2, 3, 4, 2), constant(size)],
            [kind(2, *size, 2)],
            "ResizeNearestNeighborOptions",
            values,
            name=name,
        )
        for kind in (int32, boolean, lambda *shape: Tensor(TensorType.INT16, shape))
        for values, name in (({}, ""), ({"AlignCorners": True}, "aligned"), ({"HalfPixelCenters": True}, "half"))
        for size in ([5, 9], [2, 3], [1, 1])
    ),
    *(
        Case(
            "RESIZE_NEAREST_NEIGHBOR",
            [kind(2, 3, 4, 2), constant(size)],
            [kind(2, *size, 2)],
            "ResizeNearestNeighborOptions",
            {"AlignCorners": True, "HalfPixelCenters": True},
            name=f"of both flags {size}",
        )
        for kind in (real, int32, boolean, lambda *shape: uint8(0.1, 3, *shape), lambda *shape: int8(0.1, 3, *shape))
        for size in ([5, 9], [2, 3], [1, 1])
    ),
    # Joining and parts
    Case("CONCATENATION", [int32(2, 3), int32(2, 1), int32(2, 4)], [int32(2, 8)], "ConcatenationOptions", {"Axis": 1}),
    Case("CONCATENATION", [boolean(2, 3), boolean(1, 3)], [boolean(3, 3)], "ConcatenationOptions", {"Axis": 0}),
    Case("PACK", [int32(2, 3), int32(2, 3)], [int32(2, 2, 3)], PACK, {"ValuesCount": 2, "Axis": 1}),
    Case("PACK", [int32(), int32()], [int32(2)], PACK, {"ValuesCount": 2}, name="of scalars"),
    Case("PACK", [int8(0.1, 3, 4), int8(0.1, 3, 4)], [int8(0.1, 3, 2, 4)], PACK, {"ValuesCount": 2, "Axis": 0}),
    Case("UNPACK", [int32(2, 4)], [int32(4), int32(4)], "UnpackOptions", {"Num": 2, "Axis": 0}),
    Case("UNPACK", [boolean(2, 4)], [boolean(4), boolean(4)], "UnpackOptions", {"Num": 2, "Axis": 0}),
    Case("SLICE", [boolean(4, 5), constant([1, 2]), constant([2, -1])], [boolean(2, 3)], "SliceOptions"),
    Case("SLICE", [int64(4, 5), constant([1, 2]), constant([2, -1])], [int64(2, 3)], "SliceOptions"),
    Case(
        "STRIDED_SLICE",
        [int32(6, 7), constant([5, 1]), constant([0, 6]), constant([-2, 2])],
        [int32(3, 3)],
        "StridedSliceOptions",
        {"EndMask": 1},
    ),
    Case(
        "STRIDED_SLICE",
        [int32(6, 7), constant([2, 1]), constant([3, 2]), constant([1, 1])],
        [int32()],
        "StridedSliceOptions",
        {"ShrinkAxisMask": 3},
        name="one element",
    ),
    *(
        Case(
            "STRIDED_SLICE",
            [kind(4, 5, 6), *(constant([bound] * count) for bound in (1, 3, 1))],
            [kind(*shape)],
            "StridedSliceOptions",
            {"EllipsisMask": ellipsis, "NewAxisMask": new, "ShrinkAxisMask": shrink},
            name=name,
        )
        for kind in (real, int32)
        for count, ellipsis, new, shrink, shape, name in (
            (2, 1, 0, 0, (4, 5, 2), "an ellipsis before"),
            (3, 2, 0, 1, (5, 2), "an ellipsis between"),
            (3, 0, 2, 0, (2, 1, 2, 6), "a new axis"),
            (4, 4, 8, 1, (2, 6, 1), "all of it"),
            (2, 2, 1, 0, (1, 4, 5, 6), "a new axis before an ellipsis"),
        )
    ),
    *(
        Case(
            "STRIDED_SLICE",
            [kind(2, 5), constant([0, begin]), constant([2, 2]), constant([1, 1])],
            [kind(2, 2)],
            "StridedSliceOptions",
            {"Offset": True, **masks},
            name=f"ends that count from the begin, {name}",
        )
        for kind in (real, int32)
        for begin, masks, name in (
            (-2, {}, "up to the last"),
            (-1, {"BeginMask": 2}, "which is masked"),
        )
    ),
    Case("PAD", [int32(2, 3), constant([[1, 0], [2, 1]])], [int32(3, 6)], "PadOptions"),
    Case("PADV2", [int32(2, 3), constant([[1, 0], [2, 1]]), constant([-7])], [int32(3, 6)], "PadV2Options"),
    Case("MIRROR_PAD", [real(3, 4), constant([[1, 2], [3, 0]])], [real(6, 7)], MIRROR, {"Mode": 0}),
    Case(
        "MIRROR_PAD",
        [int8(0.1, 3, 3, 4), constant([[1, 2], [3, 0]])],
        [int8(0.1, 3, 6, 7)],
        "MirrorPadOptions",
        {"Mode": 1},
    ),
    Case("GATHER", [real(5, 6), constant([[3, 1], [0, 4]])], [real(2, 2, 6)], "GatherOptions"),
    Case("GATHER", [int8(0.1, 3, 5, 6), constant([3, 1])], [int8(0.1, 3, 5, 2)], "GatherOptions", {"Axis": 1}),
    Case("GATHER", [boolean(5, 6), constant([3, 1])], [boolean(2, 6)], "GatherOptions"),
    Case("GATHER", [real(5, 6), constant(np.int32(2))], [real(5)], "GatherOptions", {"Axis": 1}, name="one index"),
    Case("TOPK_V2", [real(3, 9), constant(np.int32(4))], [real(3, 4), int32(3, 4)], "TopKV2Options"),
    Case("TOPK_V2", [uint8(0.1, 3, 3, 9), constant(np.int32(4))], [uint8(0.1, 3, 3, 4), int32(3, 4)], "TopKV2Options"),
    Case(
        "TOPK_V2",
        [int32(3, 40), constant(np.int32(30))],
        [int32(3, 30), int32(3, 30)],
        "TopKV2Options",
        name="equal ones",
    ),
    # Convolutions, products, pooling
    Case(
        "CONV_2D",
        [real(1, 7, 6, 4), constant(weights(6, 3, 2, 2)), constant(weights(6))],
        [real(1, 4, 3, 6)],
        "Conv2DOptions",
        {"StrideW": 2, "StrideH": 2, "Padding": SAME, "FusedActivationFunction": RELU},
        name="in groups",
    ),
    Case(
        "CONV_2D",
        [
            int8(0.05, -20, 1, 5, 5, 6),
            constant(bytes_of(np.int8, 6, 3, 3, 2), channels(6)),
            constant(np.arange(-3, 3, dtype=np.int32) * 900, [0.05 * scale for scale in channels(6)]),
        ],
        [int8(0.4, -7, 1, 5, 5, 6)],
        "Conv2DOptions",
        CONV,
        name="in groups",
    ),
    *(
        Case(
            "CONV_2D",
            [real(1, 9, 8, 4), constant(weights(6, 3, 2, 2)), constant(weights(6))],
            [real(*shape)],
            "Conv2DOptions",
            {"StrideW": 1, "StrideH": 1, "Padding": padding, "DilationHFactor": 2, "DilationWFactor": 3},
            name=f"in dilated groups {name}",
        )
        for padding, shape, name in ((SAME, (1, 9, 8, 6), "SAME"), (VALID, (1, 5, 5, 6), "VALID"))
    ),
    Case(
        "CONV_2D",
        [uint8(0.05, 120, 1, 5, 5, 6), constant(bytes_of(np.uint8, 6, 3, 3, 2), 0.02, 131), QUANTIZED_BIAS],
        [uint8(0.4, 120, 1, 5, 5, 6)],
        "Conv2DOptions",
        {**CONV, "DilationHFactor": 2},
        name="in dilated groups",
    ),
    Case(
        "TRANSPOSE_CONV",
        [constant([1, 7, 6, 2]), constant(weights(2, 3, 3, 4)), real(1, 4, 3, 4)],
        [real(1, 7, 6, 2)],
        "TransposeConvOptions",
        {"StrideW": 2, "StrideH": 2, "Padding": SAME},
    ),
    Case(
        "TRANSPOSE_CONV",
        [constant([1, 9, 7, 2]), constant(weights(2, 3, 3, 4)), real(1, 4, 3, 4)],
        [real(1, 9, 7, 2)],
        "TransposeConvOptions",
        {"StrideW": 2, "StrideH": 2, "Padding": VALID},
        name="VALID",
    ),
    *(
        Case(
            "TRANSPOSE_CONV",
            [constant([1, *size, 2]), constant(weights(2, 3, 3, 4)), real(1, 4, 3, 4)],
            [real(1, *size, 2)],
            "TransposeConvOptions",
            {"StrideW": 2, "StrideH": 3, "Padding": VALID},
            name=f"VALID of {size}",
        )
        for size in ((12, 7), (14, 8))
    ),
    Case(
        "TRANSPOSE_CONV",
        [
            *(constant([1, 8, 6, 2]), constant(weights(2, 3, 3, 4)), real(1, 4, 3, 4)),
            constant(np.float32([0.5, -2]).reshape(1, 1, 1, 2)),
        ],
        [real(1, 8, 6, 2)],
        "TransposeConvOptions",
        {"StrideW": 2, "StrideH": 2, "Padding": SAME},
        name="a bias of four dimensions",
    ),
    Case(
        "TRANSPOSE_CONV",
        [
            constant([1, 8, 6, 2]),
            constant(bytes_of(np.int8, 2, 3, 3, 4), channels(2)),
            int8(0.05, -20, 1, 4, 3, 4),
        ],
        [int8(0.4, -7, 1, 8, 6, 2)],
        "TransposeConvOptions",
        {"StrideW": 2, "StrideH": 2, "Padding": SAME},
    ),
    Case("BATCH_MATMUL", [real(2, 3, 4), real(2, 4, 5)], [real(2, 3, 5)], MATMUL),
    Case("BATCH_MATMUL", [real(2, 2, 3, 4), real(1, 2, 5, 4)], [real(2, 2, 3, 5)], MATMUL, {"AdjY": True}),
    Case(
        "BATCH_MATMUL",
        [int8(0.05, 3, 2, 3, 4), int8(0.04, -9, 2, 4, 5)],
        [int8(0.2, 1, 2, 3, 5)],
        MATMUL,
        steps=1,
    ),
    Case("L2_POOL_2D", [real(1, 7, 6, 3)], [real(1, 4, 3, 3)], "Pool2DOptions", POOL),
    # Sparse constants
    Case("DENSIFY", [sparse(sparse_values(np.float32, 4, 6), [1])], [real(4, 6)]),
    Case("DENSIFY", [sparse(sparse_values(np.int8, 4, 6), [1], blocks={1: 2}, scale=0.1)], [int8(0.1, 0, 4, 6)]),
    # Lookups
    Case("EMBEDDING_LOOKUP", [constant([2, 0, 1]), real(3, 4, 2)], [real(3, 4, 2)]),
    Case("EMBEDDING_LOOKUP", [constant([2, 0]), constant(bytes_of(np.int8, 3, 8), 0.1)], [real(2, 8)], name="hybrid"),
    Case(
        "EMBEDDING_LOOKUP_SPARSE",
        [
            constant([1, 3, 0]),
            constant([[0, 0], [2, 0], [2, 1]]),
            constant([4, 2]),
            constant([1.0, 2.0, 0.5]),
            real(4, 3),
        ],
        [real(4, 3)],
        "EmbeddingLookupSparseOptions",
        {"Combiner": 1},
    ),
    Case(
        "HASHTABLE_LOOKUP",
        [constant([7, 2, 11]), constant([0, 7, 11]), real(3, 4)],
        [real(3, 4), Tensor(TensorType.UINT8, (3,))],
    ),
    Case(
        "LSH_PROJECTION",
        [constant(weights(3, 2)), int32(5, 2), constant(weights(5))],
        [int32(6)],
        "LSHProjectionOptions",
        {"Type": DENSE},
    ),
    Case(
        "LSH_PROJECTION",
        [constant(weights(3, 2)), int32(5, 2), constant(weights(5))],
        [int32(3)],
        "LSHProjectionOptions",
        {"Type": SPARSE},
        name="sparse",
    ),
]
