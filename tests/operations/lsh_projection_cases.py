# SPDX-License-Identifier: Apache-2.0
"""Cases of LSH_PROJECTION with the results of LiteRT's kernel; rows of every length class of the fingerprint."""

from __future__ import annotations

from nn_runtime.codes import OperationCode
from tests.operations.cases import FLOAT32, INT32, QUANT8, Argument, Case, integer, of, omitted

_SEEDS = of(FLOAT32, (3, 2), [0.123, 0.456, -0.321, 1.234, 5.678, -4.321])
_LOOKUP = of(INT32, (5,), [12345, 54321, 67890, 9876, -12345678])
_TABLE = of(
    INT32,
    (5, 2, 2),
    [
        *(1234, 2345, 3456, 1234, 4567, 5678, 6789, 4567, 7891, 8912),
        *(9123, 7890, -987, -876, -765, -987, -543, -432, -321, -543),
    ],
)
_WEIGHTS = of(FLOAT32, (5,), [0.12, 0.34, 0.56, 0.67, 0.78])
_SPARSE_DEPRECATED, _DENSE, _SPARSE = 1, 2, 3

_BITS_OF_BYTES = {
    1: [0, 1, 1, 1, 1, 0],
    2: [0, 1, 0, 1, 0, 1],
    5: [0, 0, 1, 1, 1, 0],
    13: [0, 1, 1, 0, 1, 1],
    17: [0, 0, 1, 1, 0, 0],
    34: [0, 1, 0, 1, 1, 0],
}
_BITS_OF_INTEGERS = {15: [1, 0, 0, 0, 1, 0], 16: [0, 0, 1, 1, 0, 1], 31: [0, 0, 0, 1, 0, 0], 50: [0, 1, 1, 1, 0, 0]}


def case(name: str, values: Argument, weights: Argument, kind: int, result: list[int]) -> Case:
    inputs = (_SEEDS, values, weights, integer(kind))
    return Case(
        OperationCode.LSH_PROJECTION, name, inputs, (of(INT32, (len(result),), result),), (FLOAT32,), exact=True
    )


CASES = (
    case("dense", _LOOKUP, of(FLOAT32, (5,), [1] * 5), _DENSE, [0, 0, 0, 1, 0, 0]),
    case("dense_of_tables", _TABLE, _WEIGHTS, _DENSE, [1, 0, 0, 1, 0, 1]),
    case("sparse_unweighted", _LOOKUP, omitted(FLOAT32), _SPARSE, [0, 4 + 1, 8 + 0]),
    case("sparse_of_tables", _TABLE, _WEIGHTS, _SPARSE, [2, 4 + 1, 8 + 1]),
    case("sparse_deprecated", _TABLE, _WEIGHTS, _SPARSE_DEPRECATED, [2, 1, 1]),
    *(
        case(
            f"rows_of_{size}_bytes",
            of(QUANT8, (5, size), [i * 37 % 251 for i in range(5 * size)], 0.5),
            _WEIGHTS,
            _DENSE,
            bits,
        )
        for size, bits in _BITS_OF_BYTES.items()
    ),
    *(
        case(
            f"rows_of_{size}_integers",
            of(INT32, (5, size), [i * 3701 % 2511 for i in range(5 * size)]),
            _WEIGHTS,
            _DENSE,
            bits,
        )
        for size, bits in _BITS_OF_INTEGERS.items()
    ),
)
