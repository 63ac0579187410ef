# SPDX-License-Identifier: Apache-2.0
"""Values and shapes that an operation does not allow are refused by name (operations of HAL 1.2 and later, mostly)."""

from __future__ import annotations

import numpy as np
import pytest

from nn_runtime.codes import OperandCode, OperationCode
from tests.nn_runtime.operations.operands import FakeOperand, integer, integers, scalar, tensor
from tests.nn_runtime.operations.test_refusals import QUANT8, flag, quant8, refuse

INT32 = OperandCode.TENSOR_INT32
ONE = scalar(OperandCode.FLOAT32, 1.0)


def table(values: list[list[int]]) -> FakeOperand:
    array = np.array(values, np.int32)
    return FakeOperand(INT32, array.shape, array)


def test_lookups_refuse() -> None:
    hits = quant8(2, scale=1.0)
    keys, values = tensor(3, code=INT32), tensor(4, 2)
    lookups = tensor(2, code=INT32)
    refuse(r"keys .* dimensions \[4\]", OperationCode.HASHTABLE_LOOKUP, [lookups, keys, values], tensor(2, 2), hits)
    refuse("output 1 must have scale 1.0", OperationCode.HASHTABLE_LOOKUP, [lookups, keys, values], values, quant8(2))
    refuse(r"axis .* must be in \[-2, 2\), got 2", OperationCode.GATHER, [tensor(2, 2), integer(2), lookups])


def test_select_refuses_other_shapes_than_the_condition() -> None:
    condition = tensor(2, 1, code=OperandCode.TENSOR_BOOL8)
    refuse(r"input_false .* \[2, 1\], got \[1, 1\]", OperationCode.SELECT, [condition, tensor(2, 1), tensor(1, 1)])


def test_stacking_and_repeating_refuse() -> None:
    pair = [tensor(2, 3), tensor(2, 3)]
    refuse(r"axis .* must be in \[0, 3\), got -1", OperationCode.PACK, [integer(-1), *pair], tensor(2, 2, 3))
    refuse(
        r"must have dimensions \[2, 3\]", OperationCode.PACK, [integer(0), tensor(2, 3), tensor(3, 2)], tensor(2, 2, 3)
    )
    refuse("scale 0.5", OperationCode.PACK, [integer(0), quant8(2), quant8(2)], quant8(2, 2, scale=0.25))
    refuse(r"axis .* must be in \[-3, 3\)", OperationCode.EXPAND_DIMS, [tensor(2, 3), integer(3)])
    refuse("multiples .* 2 numbers >= 0", OperationCode.TILE, [tensor(2, 3), integers([1])])
    refuse(r"axis .* \[0, 2\), got \[-1\]", OperationCode.REVERSE, [tensor(2, 3), integers([-1])], tensor(2, 3))
    refuse("num_groups .* must divide .* 4", OperationCode.CHANNEL_SHUFFLE, [tensor(2, 4), integer(3), integer(1)])
    refuse(r"k .* must be in 1..3, got 4", OperationCode.TOPK_V2, [tensor(2, 3), integer(4)],
           tensor(2, 4), tensor(2, 4, code=INT32))  # fmt: skip


@pytest.mark.parametrize(("mode", "limit"), [(0, 2), (1, 3)])
def test_mirror_pad_refuses_paddings_beyond_the_image(mode: int, limit: int) -> None:
    code, image = OperationCode.MIRROR_PAD, tensor(3)
    refuse(f"paddings .* at most {limit} for an axis of size 3", code, [image, table([[0, limit + 1]]), integer(mode)])
    refuse("mode .* must be 0 .* or 1", code, [image, table([[0, 1]]), integer(2)])


def test_blocks_refuse() -> None:
    image = output = tensor(3, 4, 6, 8)
    refuse("block_size .* must be >= 1, got 0", OperationCode.SPACE_TO_DEPTH, [image, integer(0)], output)
    refuse("block_size .* divide height 4 and width 6", OperationCode.SPACE_TO_DEPTH, [image, integer(4)], output)
    refuse("squared must divide the depth 8", OperationCode.DEPTH_TO_SPACE, [image, integer(4)], output)
    refuse("must divide the 3 batches", OperationCode.BATCH_TO_SPACE_ND, [image, integers([1, 2])], output)
    paddings = table([[0, 0], [1, 0]])
    refuse("padded size 4 x 7", OperationCode.SPACE_TO_BATCH_ND, [image, integers([2, 2]), paddings], output)


def test_normalisations_and_reductions_refuse() -> None:
    refuse("scale 0.0078125 and zero point 128", OperationCode.L2_NORMALIZATION, [quant8(2)], quant8(2))
    scalars = [integer(-1), ONE, ONE, ONE]
    refuse("radius .* must be >= 0", OperationCode.LOCAL_RESPONSE_NORMALIZATION, [tensor(2), *scalars])
    refuse(r"axis .* \[-1, 1\)", OperationCode.LOG_SOFTMAX, [tensor(2), ONE, integer(1)])
    refuse(r"axes .* \[-1, 1\)", OperationCode.REDUCE_SUM, [tensor(2), integers([1]), flag(False)])


def test_products_refuse() -> None:
    flags = [flag(False), flag(False)]
    code = OperationCode.BATCH_MATMUL
    refuse("rhs .* must have depth 3", code, [tensor(2, 3), tensor(4, 2), *flags], tensor(2, 2))
    refuse("rhs .* rank and batches of lhs", code, [tensor(1, 2, 3), tensor(2, 3, 2), *flags], tensor(1, 2, 2))
    refuse("lhs .* must have rank 2 to 4", code, [tensor(3), tensor(3), *flags], tensor(1, 1))
    refuse("lhs .* must be one of", code, [quant8(2, 2), quant8(2, 2), *flags], quant8(2, 2))


def test_convolutions_refuse() -> None:
    image, output = tensor(1, 4, 4, 6), tensor(1, 4, 4, 6)
    weights, bias = tensor(6, 2, 2, 3), tensor(6)
    zero, one = integer(0), integer(1)
    grouped = [integer(2), zero, flag(False)]
    tail = [one, one, *grouped]
    code = OperationCode.GROUPED_CONV_2D
    refuse(
        "filter .* wider than paddings 2, 0", code, [image, weights, bias, integer(2), zero, zero, zero, *tail], output
    )
    thirds = [one, one, one, integer(4), zero, flag(False)]
    refuse("num_groups .* must divide", code, [image, weights, bias, *thirds], output)
    code = OperationCode.TRANSPOSE_CONV_2D
    shape = integers([1, 4, 4])
    refuse("filter .* must have depth 6", code, [image, weights, bias, shape, one, one, one, zero, flag(False)], output)
    full = tensor(6, 2, 2, 6)
    refuse("output_shape .* 4 sizes", code, [image, full, bias, shape, one, one, one, zero, flag(False)], output)


def test_heatmap_refuses() -> None:
    code = OperationCode.HEATMAP_MAX_KEYPOINT
    results = (tensor(1, 3), tensor(1, 3, 2))
    refuse("square and at least 2 x 2", code, [tensor(1, 2, 4, 3), tensor(1, 4), flag(False)], *results)
    refuse(r"boxes .* \[1, 4\]", code, [tensor(1, 2, 2, 3), tensor(1, 5), flag(False)], *results)
    coarse = tensor(1, 4, code=OperandCode.TENSOR_QUANT16_ASYMM, scale=0.25)
    wanted = tensor(1, 3, 2, code=OperandCode.TENSOR_QUANT16_ASYMM, scale=0.125)
    refuse("boxes .* scale 0.125", code, [quant8(1, 2, 2, 3), coarse, flag(False)], quant8(1, 3), wanted)


def test_lsh_projection_and_fill_refuse() -> None:
    seeds, rows, output = tensor(2, 3), tensor(5, code=QUANT8, scale=1.0), tensor(6, code=INT32)
    code = OperationCode.LSH_PROJECTION
    refuse(r"weight .* \[5\], got \[4\]", code, [seeds, rows, tensor(4), integer(2)], output)
    refuse("type .* must be 1", code, [seeds, rows, tensor(5), integer(0)], output)
    refuse("output 0 must be TENSOR_INT32", OperationCode.FILL, [integers([2]), integer(1)], tensor(2))
    refuse("dims .* must be >= 0", OperationCode.FILL, [integers([2, -1]), ONE], tensor(2, 1))
