# SPDX-License-Identifier: Apache-2.0
"""The changes that the tests of validation try are the ones they say (AOSP TensorRankConstraint, TensorRankMutator)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nn_runtime.codes import OperationCode
from tests.nn_runtime.validation.signatures import Operand, RankRule, parse, with_rank, with_ranks

_OPERATION = parse(OperationCode.SELECT, "i32[2,2,2] i32[1] i32[2,2,2] -> i32[2]", {})
"""The operation does not matter here."""


@pytest.mark.parametrize(
    ("lowest", "highest", "good", "bad"),
    [
        (3, 3, [3], [2, 4]),
        (1, None, [1, 2], []),
        (2, None, [2, 3], [1]),
        (1, 3, [1, 3], [4]),
        (2, 4, [2, 4], [1, 5]),
        (1, 4, [1, 4], [5]),
    ],
)
def test_ranks_at_and_beside_the_edges(lowest: int, highest: int | None, good: list[int], bad: list[int]) -> None:
    rule = RankRule((0,), lowest, highest)
    assert rule.good() == good
    assert rule.bad() == bad


@pytest.mark.parametrize(
    ("rank", "dims"), [(1, (2,)), (2, (2, 3)), (3, (2, 3, 4)), (4, (2, 3, 4, 1)), (5, (2, 3, 4, 1, 1))]
)
def test_a_rank_is_cut_or_padded_with_ones(rank: int, dims: tuple[int, ...]) -> None:
    operand = parse(OperationCode.CAST, "q8[2,3,4]@0.5,7 -> q8[1]", {}).inputs[0]
    changed = with_rank(operand, rank)
    assert changed.kind == replace(operand.kind, dims=dims)


def test_an_operation_that_breaks_the_rule_to_begin_with() -> None:
    with pytest.raises(ValueError, match="input 1 has rank 1"):
        with_ranks(_OPERATION, RankRule((0, 1), 3, 3), 3)


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_a_rule_changes_its_inputs_together_and_no_others(rank: int) -> None:
    changed = with_ranks(_OPERATION, RankRule((0, 2), 2, 4), rank)
    first, untouched, last = changed.inputs
    assert len(first.kind.dims) == len(last.kind.dims) == rank
    assert untouched == _OPERATION.inputs[1]
    assert changed.outputs == _OPERATION.outputs


def test_the_notation() -> None:
    names = {"T": "q8", "W": "q8pc", "S": "f32"}
    read = parse(OperationCode.CONV_2D, "T[2,3]@0.5,7 W[2,2]/1 S*2 f32[] -> T[4]; 0:1-4; 0,1:2-", names)
    data, weights, scalar, same, unknown = read.inputs
    assert (data.kind.dims, data.kind.scale, data.kind.zero_point) == ((2, 3), 0.5, 7)
    assert weights.kind.channel_quant is not None and weights.kind.channel_quant.channel_dim == 1
    assert isinstance(scalar, Operand) and scalar == same and scalar.kind.dims == () == unknown.kind.dims
    assert read.ranks == (RankRule((0,), 1, 4), RankRule((0, 1), 2, None))
    with pytest.raises(ValueError, match="no operand"):
        parse(OperationCode.CONV_2D, "f32[a] ->", {})
