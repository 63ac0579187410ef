# SPDX-License-Identifier: Apache-2.0
"""Cases of BATCH_MATMUL: sums of products one output at a time; `litert_*` has the results of LiteRT's kernel."""

from __future__ import annotations

import numpy as np

from nn_runtime.codes import OperationCode
from tests.operations.cases import FLOATS, INT32, SIGNED, Case, flag, of, stored, tensor


def matrix(dims: tuple[int, ...], factor: int) -> np.ndarray:
    return ((np.arange(np.prod(dims)) * factor % 17 - 8) * 0.5).reshape(dims)


def products(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Multiply [..., rows, depth] and [..., depth, columns] by the definition."""
    result = np.zeros((*left.shape[:-1], right.shape[-1]))
    for place in np.ndindex(*result.shape):
        *batch, row, column = place
        result[place] = sum(
            float(left[(*batch, row, i)]) * float(right[(*batch, i, column)]) for i in range(left.shape[-1])
        )
    return result


def generated(name: str, leading: tuple[int, ...], sizes: tuple[int, int, int], adj_x: bool, adj_y: bool) -> Case:
    """Return a case; sizes are rows, depth and columns."""
    rows, depth, columns = sizes
    left, right = matrix((*leading, rows, depth), 5), matrix((*leading, depth, columns), 7)
    result = products(left, right)
    left, right = left.swapaxes(-1, -2) if adj_x else left, right.swapaxes(-1, -2) if adj_y else right
    scale = 1.0 if depth < 6 else 2.0
    return Case(
        OperationCode.BATCH_MATMUL,
        name,
        (
            tensor(left.shape, left.reshape(-1).tolist(), zero_point=100),
            tensor(right.shape, right.reshape(-1).tolist(), zero_point=150),
            flag(adj_x),
            flag(adj_y),
        ),
        (tensor(result.shape, result.reshape(-1).tolist(), scale, 120),),
        (*FLOATS, SIGNED),
    )


def integers(name: str, left: list[list[int]], right: list[list[int]], result: list[int], adj_y: bool = False) -> Case:
    """Return a product of two matrices of int32."""
    return Case(
        OperationCode.BATCH_MATMUL,
        name,
        (
            of(INT32, (len(left), len(left[0])), [x for row in left for x in row]),
            of(INT32, (len(right), len(right[0])), [x for row in right for x in row]),
            flag(False),
            flag(adj_y),
        ),
        (of(INT32, (len(left), len(result) // len(left)), result),),
        (INT32,),
    )


def wrapped(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


def deep_sum() -> Case:
    """Partial sums leave float32's exact range: 999 products of 255 * 127 come and go, 77 stays."""
    half = 999
    return Case(
        OperationCode.BATCH_MATMUL,
        "deep_sum",
        (
            of(SIGNED, (1, 2 * half + 1), [127] * (2 * half) + [-127], 1.0, -128),
            of(SIGNED, (2 * half + 1, 1), [127] * half + [-127] * half + [77], 1.0, 0),
            flag(False),
            flag(False),
        ),
        (of(SIGNED, (1, 1), [77], 1.0, 0),),
        (SIGNED,),
        exact=True,
    )


def litert(name: str, adj: bool, left: str, right: str, result: str) -> Case:
    left_dims, right_dims = ((2, 5, 3), (2, 4, 5)) if adj else ((2, 3, 5), (2, 5, 4))
    return Case(
        OperationCode.BATCH_MATMUL,
        f"litert_{name}",
        (stored(left_dims, left, 0.031, 117), stored(right_dims, right, 0.017, 140), flag(adj), flag(adj)),
        (stored((2, 3, 4), result, 0.35, 101),),
        (SIGNED,),
        exact=True,
    )


_BIG = 2**31 - 1

CASES = (
    *(
        generated(f"{name}{'_adj_x' if adj_x else ''}{'_adj_y' if adj_y else ''}", leading, sizes, adj_x, adj_y)
        for name, leading, sizes in (
            ("matrices", (), (3, 4, 2)),
            ("batches", (3,), (2, 5, 4)),
            ("four_axes", (2, 3), (4, 3, 5)),
        )
        for adj_x in (False, True)
        for adj_y in (False, True)
    ),
    generated("vectors", (2,), (1, 9, 1), False, False),
    generated("outer", (1, 2), (5, 1, 6), False, False),
    generated("deep", (), (2, 33, 3), True, False),
    integers("integers", [[1, -2, 3], [4, 5, -6]], [[7, 8], [9, -10], [11, 12]], [22, 64, 7, -90]),
    integers("integers_adj_y", [[1, -2, 3], [4, 5, -6]], [[7, 9, 11], [8, -10, 12]], [22, 64, 7, -90], adj_y=True),
    integers(
        "integers_wrap",
        [[_BIG, -(2**31), 65537], [3, 2**16, -1]],
        [[_BIG, 2], [-5, 2**16], [65535, -(2**31)]],
        [
            wrapped(_BIG * _BIG + 5 * 2**31 + 65537 * 65535),
            wrapped(2 * _BIG - 2**47 - 65537 * 2**31),
            wrapped(3 * _BIG - 5 * 2**16 - 65535),
            wrapped(6 + 2**32 + 2**31),
        ],
    ),
    deep_sum(),
    litert(
        "plain",
        False,
        "1b0fa9639952392661d0666193fa6497709a72a38cadf4268f705b3d0d67",
        "d31867f7f33701ab034c7fdf17a98821d8d87bf19be7f59147259031c0ed3e8d0c2e60e2f8a49591",
        "48807e6176847364416b694d717267667d7e6054756e715b",
    ),
    litert(
        "adjoint",
        True,
        "0f60fb69363db609f8e09177c28c7a5272c00e06b85fcd07e81f6af71ba8",
        "ba6d14866edfae580e9747afdd5ae78487c3cae8ff2669ee4e0193c0becfa423d86bd8d0f803dda0",
        "4e4079807963586359686570757f7b676d5c7a336752578e",
    ),
)
