# SPDX-License-Identifier: Apache-2.0
"""SVDF."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import FeatureLevel, FuseCode, OperandCode, OperationCode
from nn_runtime.operations.sequence import check_dimensions
from nn_runtime.operations.signature import INT32, Definition, Input, OperationView, Output, Variant, define
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from nn_runtime.operand import Dimensions


@dataclass(frozen=True)
class Svdf:
    """Sizes of one operation; a filter belongs to unit filter // rank and keeps `memory_size` activations per batch.

    The newest activation takes the last place of the memory, the weights of time reduce it, and the new state is the
    memory moved one place towards the front, with 0 in the last place (the reference's form of the state).
    """

    batches: int
    input_size: int
    num_filters: int
    num_units: int
    rank: int
    memory_size: int
    activation: FuseCode

    @property
    def state_dimensions(self) -> Dimensions:
        """Dimensions of the state."""
        return (self.batches, self.num_filters * self.memory_size)


def svdf_sizes(op: OperationView) -> Svdf:
    """Return the sizes of an SVDF; raises BadData."""
    dims, weights, rank = op.dimensions("input"), op.dimensions("weights_time"), op.int_value("rank")
    if len(dims) != 2 or 0 in dims:
        op.fail("input", "must have rank 2 and no size 0", list(dims))
    if len(weights) != 2 or 0 in weights:
        op.fail("weights_time", "must have rank 2 and no size 0", list(weights))
    num_filters, memory_size = weights
    if rank < 1 or num_filters % rank:
        op.fail("rank", f"must divide the {num_filters} filters", rank)
    svdf = Svdf(*dims, num_filters, num_filters // rank, rank, memory_size, op.fuse_code())
    wanted: dict[str, Dimensions] = {
        "weights_feature": (num_filters, svdf.input_size),
        "bias": (svdf.num_units,),
        "state_in": svdf.state_dimensions,
    }
    check_dimensions(op, wanted)
    return svdf


def _prepare(op: OperationView) -> tuple[Dimensions, ...]:
    svdf = svdf_sizes(op)
    return svdf.state_dimensions, (svdf.batches, svdf.num_units)


define(
    Definition(
        OperationCode.SVDF,
        (
            Variant(
                (
                    Input("input", rank=(2, 2)),
                    Input("weights_feature", rank=(2, 2)),
                    Input("weights_time", rank=(2, 2)),
                    Input("bias", rank=(1, 1), omittable=True),
                    Input("state_in", rank=(2, 2)),
                    Input("rank", INT32),
                    Input("activation", INT32),
                )
            ),
        ),
        (Output("state_out", rank=(2, 2)), Output("output", rank=(2, 2))),
        {
            OperandCode.TENSOR_FLOAT32: FeatureLevel.HAL_1_0,
            OperandCode.TENSOR_FLOAT16: FeatureLevel.HAL_1_2,
        },
        _prepare,
    )
)
