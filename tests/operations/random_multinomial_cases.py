# SPDX-License-Identifier: Apache-2.0
"""Cases of RANDOM_MULTINOMIAL: draws that leave no choice, and others by a Philox generator of Python integers."""

from __future__ import annotations

import math

from nn_runtime.codes import OperationCode
from tests.operations.cases import FLOATS, INT32, Case, integer, ints, of, tensor


def _philox(counter: int, key: int) -> list[int]:
    """Return the four words of a block of Philox 4x32-10."""
    x = [counter >> 32 * i & 0xFFFFFFFF for i in range(4)]
    k = [key & 0xFFFFFFFF, key >> 32 & 0xFFFFFFFF]
    for _ in range(10):
        left, right = 0xD2511F53 * x[0], 0xCD9E8D57 * x[2]
        x = [right >> 32 ^ x[1] ^ k[0], right & 0xFFFFFFFF, left >> 32 ^ x[3] ^ k[1], left & 0xFFFFFFFF]
        k = [k[0] + 0x9E3779B9 & 0xFFFFFFFF, k[1] + 0xBB67AE85 & 0xFFFFFFFF]
    return x


# The generator's own known answers (Random123).
if [f"{word:08x}" for word in _philox(0, 0)] != ["6627e8d5", "e169c58d", "bc57ac4c", "9b00dbd8"]:
    raise ValueError("the Philox generator is wrong")


def _drawn(rows: list[list[float]], samples: int, seed: int, seed2: int) -> list[int]:
    words: list[int] = []
    for block in range(len(rows) * samples):
        words += _philox((seed2 % 2**64) << 64 | block, seed % 2**64)
    classes = []
    for at, row in enumerate(row for row in rows for _ in range(samples)):
        uniform = ((words[2 * at] & 0xFFFFF) << 32 | words[2 * at + 1]) / 2**52
        terms = [math.exp(logit) if math.isfinite(logit) else 0.0 for logit in row]
        target = uniform * sum(terms)
        classes.append(next(i for i in range(len(row)) if sum(terms[: i + 1]) > target))
    return classes


def _case(name: str, rows: list[list[float]], samples: int, seeds: tuple[int, int]) -> Case:
    return Case(
        OperationCode.RANDOM_MULTINOMIAL,
        name,
        (tensor((len(rows), len(rows[0])), [x for row in rows for x in row]), integer(samples), ints(seeds)),
        (of(INT32, (len(rows), samples), _drawn(rows, samples, *seeds)),),
        FLOATS,
    )


CASES = (
    _case("three_classes", [[0.5, -1, 2]], 40, (37, 42)),
    _case("two_rows", [[1, 1, 1, 1], [0, 3, 0, -4]], 25, (1, 0)),
    _case("negative_seeds", [[0, 1]], 9, (-5, -6)),
    _case("infinite_logits", [[-math.inf, 1, math.inf, 0.5]], 12, (3, 4)),
    # Whatever the numbers drawn: one class has all the weight.
    Case(
        OperationCode.RANDOM_MULTINOMIAL,
        "no_seed",
        (tensor((2, 3), [-math.inf, 0, -math.inf, 9, -math.inf, -math.inf]), integer(5), ints((0, 0))),
        (of(INT32, (2, 5), [1] * 5 + [0] * 5),),
        FLOATS,
    ),
)
