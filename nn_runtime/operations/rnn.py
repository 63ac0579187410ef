# SPDX-License-Identifier: Apache-2.0
"""RNN, UNIDIRECTIONAL_SEQUENCE_RNN and BIDIRECTIONAL_SEQUENCE_RNN."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import FeatureLevel, FuseCode, OperandCode, OperationCode
from nn_runtime.operations.rules import HAL_1_2_FLOATS
from nn_runtime.operations.sequence import (
    Linking,
    Steps,
    auxiliary_size,
    check_dimensions,
    check_directions,
    directions_dimensions,
    linking,
    sequence_steps,
)
from nn_runtime.operations.signature import (
    BOOL,
    INT32,
    Definition,
    Input,
    OperationView,
    Output,
    Variant,
    define,
)
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from nn_runtime.operand import Dimensions

_FORWARD, _BACKWARD = "fw_", "bw_"


@dataclass(frozen=True)
class RnnCell:
    """Sizes of one cell, the names of whose inputs start with `prefix`: h = act(x W' + aux A' + h R' + b).

    `auxiliary_size` is 0 without weights for an auxiliary input.
    """

    prefix: str
    batches: int
    input_size: int
    auxiliary_size: int
    num_units: int
    activation: FuseCode

    @property
    def state_dimensions(self) -> Dimensions:
        """Dimensions of the hidden state."""
        return (self.batches, self.num_units)

    @property
    def weights(self) -> str:
        """Name of the weights of the input: [num_units, input_size]."""
        return f"{self.prefix}weights"

    @property
    def auxiliary_weights(self) -> str:
        """Name of the weights of the auxiliary input: [num_units, auxiliary_size]."""
        return f"{self.prefix}aux_weights"

    @property
    def recurrent_weights(self) -> str:
        """Name of the weights of the hidden state: [num_units, num_units]."""
        return f"{self.prefix}recurrent_weights"

    @property
    def bias(self) -> str:
        """Name of the bias: [num_units]."""
        return f"{self.prefix}bias"

    @property
    def hidden_state(self) -> str:
        """Name of the hidden state: [batches, num_units]."""
        return f"{self.prefix}hidden_state_in"


@dataclass(frozen=True)
class SequenceRnn:
    """One cell over the steps of a sequence."""

    steps: Steps
    cell: RnnCell


@dataclass(frozen=True)
class BidirectionalRnn:
    """Two cells over the steps of a sequence, the backward one from the last step to the first."""

    steps: Steps
    forward: RnnCell
    backward: RnnCell
    linking: Linking
    merge_outputs: bool


def rnn_step(op: OperationView) -> RnnCell:
    """Return the sizes of an RNN; raises BadData."""
    dims = op.dimensions("input")
    if len(dims) != 2 or 0 in dims:
        op.fail("input", "must have rank 2 and no size 0", list(dims))
    return _cell(op, "", (dims[0], dims[1]))


def sequence_rnn(op: OperationView) -> SequenceRnn:
    """Return the sizes of a UNIDIRECTIONAL_SEQUENCE_RNN; raises BadData."""
    time_major = op.int_value("time_major")
    if time_major not in (0, 1):
        op.fail("time_major", "must be 0 or 1", time_major)
    steps = sequence_steps(op, bool(time_major))
    return SequenceRnn(steps, _cell(op, "", (steps.batches, steps.input_size)))


def bidirectional_rnn(op: OperationView) -> BidirectionalRnn:
    """Return sizes and linking of a BIDIRECTIONAL_SEQUENCE_RNN; raises BadData."""
    steps = sequence_steps(op, op.bool_value("time_major"))
    linked = _linking(op)
    size = auxiliary_size(op, steps)
    weighted_size = size if linked == Linking.CROSS else 0
    backward_size = size if linked == Linking.PARALLEL else steps.input_size
    return BidirectionalRnn(
        steps,
        _cell(op, _FORWARD, (steps.batches, steps.input_size), weighted_size),
        _cell(op, _BACKWARD, (steps.batches, backward_size), weighted_size),
        linked,
        op.bool_value("merge_outputs"),
    )


def _linking(op: OperationView) -> Linking:
    return linking(op, (f"{prefix}aux_weights" for prefix in (_FORWARD, _BACKWARD)))


def _cell(op: OperationView, prefix: str, sizes: tuple[int, int], auxiliary_size: int = 0) -> RnnCell:
    weights = op.dimensions(f"{prefix}weights")
    if len(weights) != 2 or 0 in weights:
        op.fail(f"{prefix}weights", "must have rank 2 and no size 0", list(weights))
    units = weights[0]
    cell = RnnCell(prefix, *sizes, auxiliary_size, units, op.fuse_code())
    wanted: dict[str, Dimensions] = {
        cell.weights: (units, cell.input_size),
        cell.auxiliary_weights: (units, auxiliary_size),
        cell.recurrent_weights: (units, units),
        cell.bias: (units,),
        cell.hidden_state: cell.state_dimensions,
    }
    check_dimensions(op, wanted)
    return cell


def _check_unidirectional(op: OperationView) -> FeatureLevel:
    return FeatureLevel.HAL_1_3 if len(op.outputs) > 1 else FeatureLevel.HAL_1_2


def _check_bidirectional(op: OperationView) -> FeatureLevel:
    level = check_directions(op)
    return FeatureLevel.HAL_1_3 if _linking(op) == Linking.PARALLEL else level


def _prepare_step(op: OperationView) -> tuple[Dimensions, ...]:
    state = rnn_step(op).state_dimensions
    return state, state


def _prepare_unidirectional(op: OperationView) -> tuple[Dimensions, ...]:
    rnn = sequence_rnn(op)
    return (rnn.steps.dimensions(rnn.cell.num_units), rnn.cell.state_dimensions)[: len(op.outputs)]


def _prepare_bidirectional(op: OperationView) -> tuple[Dimensions, ...]:
    rnn = bidirectional_rnn(op)
    sizes = (rnn.forward.num_units, rnn.backward.num_units)
    states = (rnn.forward.state_dimensions, rnn.backward.state_dimensions)
    return directions_dimensions(op, rnn.steps, sizes, states)


def _cell_inputs(prefix: str = "") -> tuple[Input, ...]:
    return (
        Input(f"{prefix}weights", rank=(2, 2)),
        Input(f"{prefix}recurrent_weights", rank=(2, 2)),
        Input(f"{prefix}bias", rank=(1, 1)),
        Input(f"{prefix}hidden_state_in", rank=(2, 2)),
    )


_ACTIVATION = Input("activation", INT32)


define(
    Definition(
        OperationCode.RNN,
        (Variant((Input("input", rank=(2, 2)), *_cell_inputs(), _ACTIVATION)),),
        (Output("hidden_state_out", rank=(2, 2)), Output("output", rank=(2, 2))),
        {**HAL_1_2_FLOATS, OperandCode.TENSOR_FLOAT32: FeatureLevel.HAL_1_0},
        _prepare_step,
    )
)

define(
    Definition(
        OperationCode.UNIDIRECTIONAL_SEQUENCE_RNN,
        (Variant((Input("input", rank=(3, 3)), *_cell_inputs(), _ACTIVATION, Input("time_major", INT32))),),
        (Output("output", rank=(3, 3)), Output("hidden_state_out", rank=(2, 2))),
        HAL_1_2_FLOATS,
        _prepare_unidirectional,
        _check_unidirectional,
        output_counts=(1, 2),
    )
)

define(
    Definition(
        OperationCode.BIDIRECTIONAL_SEQUENCE_RNN,
        (
            Variant(
                (
                    Input("input", rank=(3, 3)),
                    *_cell_inputs(_FORWARD),
                    *_cell_inputs(_BACKWARD),
                    Input("aux_input", rank=(3, 3), omittable=True),
                    *(Input(f"{prefix}aux_weights", rank=(2, 2), omittable=True) for prefix in (_FORWARD, _BACKWARD)),
                    _ACTIVATION,
                    Input("time_major", BOOL),
                    Input("merge_outputs", BOOL),
                )
            ),
        ),
        # Merged outputs are one instead of two, so that the others' ranks are the check's business.
        (
            Output("fw_output", rank=(3, 3)),
            Output("bw_output"),
            *(Output(f"{prefix}hidden_state_out") for prefix in (_FORWARD, _BACKWARD)),
        ),
        HAL_1_2_FLOATS,
        _prepare_bidirectional,
        _check_bidirectional,
        output_counts=(1, 2, 3, 4),
    )
)
