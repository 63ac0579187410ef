# SPDX-License-Identifier: Apache-2.0
"""Elements found by their numbers, put at places, replaced; and what of that is refused."""

from __future__ import annotations

import numpy as np

from nn_runtime.tflite.types import TensorType
from tests.nn_runtime.tflite.operator_cases import Case
from tests.nn_runtime.tflite.operator_file import Tensor, boolean, constant, int8, int32, int64, real, uint8

GATHER, BY_BATCH = "GatherOptions", {"Axis": 1, "BatchDims": 1}
GATHER_ND, SCATTER_ND = "GatherNdOptions", "ScatterNdOptions"
TO_DENSE, REVERSE = "SparseToDenseOptions", "ReverseSequenceOptions"
UPDATE = "DynamicUpdateSliceOptions"


def int8s(*shape: int) -> Tensor:
    return int8(0.1, 3, *shape)


def wide(values: list[list[int]] | list[int]) -> Tensor:
    """Return an INT64 constant."""
    array = np.array(values, np.int64)
    return Tensor(TensorType.INT64, array.shape, data=array)


CASES = [
    # GATHER with batches, GATHER_ND
    Case("GATHER", [real(2, 3), constant([[1], [0]])], [real(2, 1)], GATHER, BY_BATCH, name="by batch"),
    Case("GATHER", [int8s(2, 3, 5), constant([[2, 1], [0, 0]])], [int8s(2, 2, 5)], GATHER, BY_BATCH, name="by batch"),
    Case("GATHER", [boolean(2, 3, 5), wide([[2], [0]])], [boolean(2, 1, 5)], GATHER, BY_BATCH, name="by batch"),
    Case(
        "GATHER",
        [int32(2, 3, 4, 5), constant([[[3, 1], [0, 2]], [[1, 1], [3, 0]]])],
        [int32(2, 3, 2, 2, 5)],
        GATHER,
        {"Axis": 2, "BatchDims": 1},
        name="by batch, an axis between",
    ),
    Case(
        "GATHER",
        [real(2, 3, 4), constant([[3, 1, 1], [0, 2, 2]])],
        [real(2, 3)],
        GATHER,
        {"Axis": -1, "BatchDims": 2},
        name="one of each row",
    ),
    Case("GATHER_ND", [real(4, 5), constant([[3, 1], [0, 4], [2, 2]])], [real(3)], GATHER_ND, name="elements"),
    Case("GATHER_ND", [real(4, 5, 2), constant([[[3], [1]], [[0], [0]]])], [real(2, 2, 5, 2)], GATHER_ND, name="rows"),
    Case("GATHER_ND", [real(2, 3, 4), constant([1, 2, 3])], [real()], GATHER_ND, name="one element"),
    Case(
        "GATHER_ND", [real(2, 2, 3, 2, 4), constant([[1, 0, 2], [0, 1, 1]])], [real(2, 2, 4)], GATHER_ND, name="rank 5"
    ),
    Case("GATHER_ND", [int8s(4, 5, 3), wide([[3, 1], [0, 4]])], [int8s(2, 3)], GATHER_ND, name="INT64"),
    Case("GATHER_ND", [int32(4, 5), constant([[3, 1], [0, 4]])], [int32(2)], GATHER_ND),
    Case("GATHER_ND", [boolean(4, 5), constant([[3], [1]])], [boolean(2, 5)], GATHER_ND),
    Case("GATHER_ND", [real(4, 5), constant(np.array([[3, 1], [0, 4]], np.int16))], [real(2)], GATHER_ND, name="INT16"),
    # Order by length
    Case(
        "REVERSE_SEQUENCE",
        [real(3, 5, 2), constant([5, 0, 3])],
        [real(3, 5, 2)],
        REVERSE,
        {"SeqDim": 1, "BatchDim": 0},
    ),
    Case(
        "REVERSE_SEQUENCE",
        [int32(5, 2, 3), wide([2, 1, 4])],
        [int32(5, 2, 3)],
        REVERSE,
        {"SeqDim": 0, "BatchDim": 2},
        name="time first",
    ),
    Case(
        "REVERSE_SEQUENCE",
        [uint8(0.1, 3, 2, 2, 5, 3), constant([4, 2])],
        [uint8(0.1, 3, 2, 2, 5, 3)],
        REVERSE,
        {"SeqDim": 2, "BatchDim": 1},
        name="in the middle",
    ),
    # Places
    Case(
        "SPARSE_TO_DENSE",
        [constant([[0, 1], [2, 3]]), constant([3, 4]), real(2), constant(np.float32(-1.5))],
        [real(3, 4)],
        TO_DENSE,
    ),
    Case("SPARSE_TO_DENSE", [constant([4, 1]), constant([6]), int32(2), int32()], [int32(6)], TO_DENSE, name="a row"),
    Case(
        "SPARSE_TO_DENSE",
        [wide([[1, 1, 0], [0, 0, 1]]), wide([2, 2, 2]), int8s(), int8s()],
        [int8s(2, 2, 2)],
        TO_DENSE,
        name="one value",
    ),
    Case("SPARSE_TO_DENSE", [constant(np.int32(2)), constant([5]), real(1), real()], [real(5)], TO_DENSE, name="one"),
    Case("SCATTER_ND", [constant([[4], [1], [0]]), real(3), constant([6])], [real(6)], SCATTER_ND),
    Case(
        "SCATTER_ND",
        [constant([[1], [3], [1], [1], [0], [1]]), real(6, 5), constant([5, 5])],
        [real(5, 5)],
        SCATTER_ND,
        name="several to one place",
    ),
    Case(
        "SCATTER_ND",
        [constant([[[1, 2], [0, 0]], [[1, 2], [1, 1]]]), int32(2, 2, 3), constant([2, 3, 3])],
        [int32(2, 3, 3)],
        SCATTER_ND,
        name="several to one place",
    ),
    Case("SCATTER_ND", [constant([[2, 1]]), int8s(1, 4), constant([3, 2, 4])], [int8s(3, 2, 4)], SCATTER_ND),
    Case("SCATTER_ND", [constant([[1], [0], [1]]), int8s(3, 40), constant([3, 40])], [int8s(3, 40)], SCATTER_ND),
    Case("SCATTER_ND", [constant([[2], [0]]), boolean(2, 4), constant([3, 4])], [boolean(3, 4)], SCATTER_ND),
    Case("SEGMENT_SUM", [real(8, 3), constant([0, 0, 0, 1, 2, 2, 3, 3])], [real(4, 3)]),
    Case("SEGMENT_SUM", [int32(5), constant([0, 0, 0, 0, 0])], [int32(1)]),
    Case("SEGMENT_SUM", [real(3, 2, 2), constant([0, 1, 2])], [real(3, 2, 2)], name="of one each"),
    *(
        Case(f"UNSORTED_SEGMENT_{name}", [kind(8, 3), constant([3, 0, 3, -1, 0, 3, 5, -7]), constant(6)], [kind(6, 3)])
        for name in ("SUM", "PROD", "MAX", "MIN")
        for kind in (real, int32)
    ),
    *(
        Case(
            f"UNSORTED_SEGMENT_{name}",
            [real(2, 3, 4, 2, 2), constant([[2, 0, 1], [-1, 4, 3]]), constant([7])],
            [real(7, 4, 2, 2)],
            name="of one each",
        )
        for name in ("SUM", "MAX")
    ),
    Case("UNSORTED_SEGMENT_MIN", [int32(3), constant([-1, -1, -2]), constant(2)], [int32(2)], name="all dropped"),
    Case("UNSORTED_SEGMENT_PROD", [real(3), constant(1), constant(2)], [real(2, 3)], name="one id"),
    # Diagonals
    Case("MATRIX_DIAG", [real(2, 3)], [real(2, 3, 3)]),
    Case("MATRIX_DIAG", [int32(4)], [int32(4, 4)]),
    Case("MATRIX_DIAG", [int8s(2, 2, 3)], [int8s(2, 2, 3, 3)]),
    Case("MATRIX_DIAG", [real(1, 2, 2, 3)], [real(1, 2, 2, 3, 3)], name="rank 5"),
    Case("MATRIX_SET_DIAG", [real(2, 3, 4), real(2, 3)], [real(2, 3, 4)]),
    Case("MATRIX_SET_DIAG", [int32(4, 2), int32(2)], [int32(4, 2)]),
    Case("MATRIX_SET_DIAG", [int8s(2, 2, 3, 3), int8s(2, 2, 3)], [int8s(2, 2, 3, 3)]),
    # Parts replaced
    Case("DYNAMIC_UPDATE_SLICE", [real(4, 5), real(2, 3), constant([1, 2])], [real(4, 5)], UPDATE),
    Case("DYNAMIC_UPDATE_SLICE", [real(4, 5), real(1, 5), wide([9, 0])], [real(4, 5)], UPDATE, name="moved back"),
    Case("DYNAMIC_UPDATE_SLICE", [int32(4, 5), int32(2, 1), constant([-1, 4])], [int32(4, 5)], UPDATE),
    Case("DYNAMIC_UPDATE_SLICE", [boolean(4, 5), boolean(2, 3), constant([0, 1])], [boolean(4, 5)], UPDATE),
    Case("DYNAMIC_UPDATE_SLICE", [int8s(2, 3, 4), int8s(1, 3, 2), constant([0, 0, 1])], [int8s(2, 3, 4)], UPDATE),
    Case("DYNAMIC_UPDATE_SLICE", [real(2, 3), real(2, 3), constant([0, 0])], [real(2, 3)], UPDATE, name="all"),
    Case(
        "DYNAMIC_UPDATE_SLICE",
        [real(1, 2, 3, 2, 4), real(1, 1, 2, 2, 3), constant([0, 1, 1, 0, 1])],
        [real(1, 2, 3, 2, 4)],
        UPDATE,
        name="rank 5",
    ),
]

REFUSALS = {
    "batches that differ": (
        Case("GATHER", [real(3, 3), constant([[1], [0]])], [real(2, 1)], GATHER, BY_BATCH),
        r"operator 0 GATHER: batch_dims must be dimensions before axis 1 that \[3, 3\] and \[2, 1\] share, got 1",
    ),
    "index of a batch that is not there": (
        Case("GATHER", [real(2, 3), constant([[1], [3]])], [real(2, 1)], GATHER, BY_BATCH),
        r"operator 0 GATHER: indices \(input 1\) must be in \[0, 3\)",
    ),
    "index that is not there": (
        Case("GATHER_ND", [real(4, 5), constant([[3, 5]])], [real(1)], GATHER_ND),
        r"operator 0 GATHER_ND: indices must be within \[4, 5\]",
    ),
    "too many columns": (
        Case("GATHER_ND", [real(4), constant([[3, 5]])], [real(1)], GATHER_ND),
        r"operator 0 GATHER_ND: indices \(input 1\) must have 1 to 1 columns, got \[1, 2\]",
    ),
    "lengths of fewer batches": (
        Case("REVERSE_SEQUENCE", [real(3, 5), int32(2)], [real(3, 5)], REVERSE, {"SeqDim": 1}),
        r"operator 0 REVERSE_SEQUENCE: seq_lengths \(input 1\) must be 3 integers, got \[2\]",
    ),
    "length beyond the sequence": (
        Case("REVERSE_SEQUENCE", [real(2, 5), constant([6, 1])], [real(2, 5)], REVERSE, {"SeqDim": 1}),
        r"operator 0 REVERSE_SEQUENCE: seq_lengths \(input 1\) must be numbers of 0 to 5, got \[6, 1\]",
    ),
    "places computed at run time": (
        Case("SPARSE_TO_DENSE", [int32(2), constant([6]), real(2), real()], [real(6)], TO_DENSE),
        r"operator 0 SPARSE_TO_DENSE: indices \(input 0\) must be a constant",
    ),
    "dense tensor that is huge": (
        Case("SPARSE_TO_DENSE", [constant([[0, 1]]), constant([9999, 9999]), real(1), real()], [real(1)], TO_DENSE),
        "operator 0 SPARSE_TO_DENSE: more than 67108864 elements",
    ),
    "updates of another shape": (
        Case("SCATTER_ND", [constant([[1], [2]]), real(2, 3), constant([3, 4])], [real(3, 4)], SCATTER_ND),
        r"operator 0 SCATTER_ND: updates \(input 1\) must be \[2, 4\], got \[2, 3\]",
    ),
    "no places": (
        Case("SCATTER_ND", [constant(np.zeros((0, 1), np.int32)), constant(np.zeros(0)), constant([3])], [real(3)]),
        r"operator 0 SCATTER_ND: indices \(input 0\) must be rows of 1 to 1 columns, got \[0, 1\]",
    ),
    "integers beside none": (
        Case("DYNAMIC_UPDATE_SLICE", [int32(4), constant(np.zeros(0, np.int32)), constant([1])], [int32(4)], UPDATE),
        r"operator 0 DYNAMIC_UPDATE_SLICE: an input without elements is not supported beside others",
    ),
    "sequence without steps": (
        Case("REVERSE_SEQUENCE", [constant(np.zeros((2, 0))), constant([0, 0])], [real(2)], REVERSE, {"SeqDim": 1}),
        r"operator 0 REVERSE_SEQUENCE: seq_dim and batch_dim must be two dimensions of \[2, 0\] > 0, got 1 and 0",
    ),
    "segments in no order": (
        Case("SEGMENT_SUM", [real(3), constant([0, 2, 1])], [real(3)]),
        r"operator 0 SEGMENT_SUM: segment_ids \(input 1\) must be 3 numbers from 0 that rise by 0 or 1",
    ),
    "segment that is left out": (
        Case("SEGMENT_SUM", [real(2), constant([0, 2**31 - 1])], [real(1)]),
        r"operator 0 SEGMENT_SUM: segment_ids \(input 1\) must be 2 numbers from 0",
    ),
    "segment beyond the last": (
        Case("UNSORTED_SEGMENT_SUM", [real(3), constant([0, 4, 1]), constant(4)], [real(4)]),
        r"operator 0 UNSORTED_SEGMENT_SUM: segment_ids \(input 1\) must be < 4, got 4",
    ),
    "segments of another shape": (
        Case("UNSORTED_SEGMENT_MAX", [real(3, 4), int32(4), constant(4)], [real(4, 4)]),
        r"operator 0 UNSORTED_SEGMENT_MAX: segment_ids \(input 1\) must be integers for first dimensions of \[3, 4\], "
        r"got \[4\]",
    ),
    "no segments": (
        Case("UNSORTED_SEGMENT_MAX", [real(3), int32(3), constant(0)], [real(0)]),
        r"operator 0 UNSORTED_SEGMENT_MAX: num_segments \(input 2\) must be > 0, got 0",
    ),
    "segments of bytes": (
        Case("UNSORTED_SEGMENT_MIN", [int8s(3), int32(3), constant(2)], [int8s(2)]),
        "operator 0 UNSORTED_SEGMENT_MIN: several rows at one place are supported for FLOAT32 and INT32, got TENSOR_Q",
    ),
    "diagonal of another length": (
        Case("MATRIX_SET_DIAG", [real(3, 4), real(4)], [real(3, 4)]),
        r"operator 0 MATRIX_SET_DIAG: diagonal \(input 1\) must be that of \[3, 4\], got \[4\]",
    ),
    "update that is too large": (
        Case("DYNAMIC_UPDATE_SLICE", [real(4, 5), real(2, 6), int32(2)], [real(4, 5)], UPDATE),
        r"operator 0 DYNAMIC_UPDATE_SLICE: update \(input 1\) must be of the input's type in \[4, 5\], got \[2, 6\]",
    ),
    "start of another rank": (
        Case("DYNAMIC_UPDATE_SLICE", [real(4), real(2), int32(2)], [real(4)], UPDATE),
        r"operator 0 DYNAMIC_UPDATE_SLICE: start_indices \(input 2\) must be 1 integers, got \[2\]",
    ),
    "boundaries that fall": (
        Case("BUCKETIZE", [real(2)], [int32(2)], "BucketizeOptions", {"Boundaries": [3.0, 1.0]}),
        r"operator 0 BUCKETIZE: boundaries must be numbers that do not fall, got \[3.0, 1.0\]",
    ),
    "no boundaries": (
        Case("BUCKETIZE", [real(2)], [int32(2)], "BucketizeOptions"),
        r"operator 0 BUCKETIZE: boundaries must be numbers that do not fall, got \[\]",
    ),
    "bytes between boundaries": (
        Case("BUCKETIZE", [int8s(2)], [int32(2)], "BucketizeOptions", {"Boundaries": [1.0]}),
        r"operator 0 BUCKETIZE: input \(input 0\) must be FLOAT32, INT32 or INT64, got TENSOR_QUANT8_ASYMM_SIGNED",
    ),
    "shapes of a run": (
        Case("BROADCAST_ARGS", [int32(2), int64(2)], [int64(2)]),
        "operator 0 BROADCAST_ARGS: no NNAPI operation",
    ),
    "shapes that do not go together, as arguments": (
        Case("BROADCAST_ARGS", [constant([2, 3]), constant([3, 3])], [int32(2)]),
        r"operator 0 BROADCAST_ARGS: the shapes must go together, got \[2, 3\] and \[3, 3\]",
    ),
}
