# SPDX-License-Identifier: Apache-2.0
"""LSTM, UNIDIRECTIONAL_SEQUENCE_LSTM and BIDIRECTIONAL_SEQUENCE_LSTM."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import FeatureLevel, OperandCode, OperationCode
from nn_runtime.operations.rules import HAL_1_2_FLOATS
from nn_runtime.operations.sequence import (
    Linking,
    Steps,
    all_or_none,
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
    float_scalar,
)
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from nn_runtime.operand import Dimensions

ACTIVATION_NONE, ACTIVATION_RELU, ACTIVATION_RELU6, ACTIVATION_TANH, ACTIVATION_SIGMOID = 0, 1, 3, 4, 6

GATES = ("input", "forget", "cell", "output")
"""Names of the gates in the order of the operations' inputs."""

_FORWARD, _BACKWARD = "fw_", "bw_"


@dataclass(frozen=True)
class LstmCell:
    """Sizes and variant of one cell. Without `input_gate` (CIFG) it is 1 - forget gate.

    The names of the cell's inputs start with `prefix`. `auxiliary_size` is 0 without weights for an auxiliary input.
    """

    prefix: str
    state_names: tuple[str, str]
    batches: int
    input_size: int
    auxiliary_size: int
    num_units: int
    output_size: int
    input_gate: bool
    peephole: bool
    layer_norm: bool
    projection: bool
    activation: int
    cell_clip: float
    proj_clip: float

    @property
    def gates(self) -> tuple[str, ...]:
        """Names of the gates that have weights, in the order of the operation's inputs."""
        return GATES if self.input_gate else GATES[1:]

    @property
    def peephole_gates(self) -> tuple[str, ...]:
        """Names of the gates that see the cell state."""
        return tuple(gate for gate in self.gates if gate != "cell") if self.peephole else ()

    @property
    def state_dimensions(self) -> tuple[Dimensions, Dimensions]:
        """Dimensions of the output state and of the cell state."""
        return (self.batches, self.output_size), (self.batches, self.num_units)

    def input_weights(self, gate: str) -> str:
        """Return the name of a gate's weights of the input: [num_units, input_size]."""
        return f"{self.prefix}input_to_{gate}_weights"

    def auxiliary_weights(self, gate: str) -> str:
        """Return the name of a gate's weights of the auxiliary input: [num_units, auxiliary_size]."""
        return f"{self.prefix}aux_input_to_{gate}_weights"

    def recurrent_weights(self, gate: str) -> str:
        """Return the name of a gate's weights of the output state: [num_units, output_size]."""
        return f"{self.prefix}recurrent_to_{gate}_weights"

    def peephole_weights(self, gate: str) -> str:
        """Return the name of a gate's weights of the cell state: [num_units]."""
        return f"{self.prefix}cell_to_{gate}_weights"

    def layer_norm_weights(self, gate: str) -> str:
        """Return the name of a gate's layer norm weights: [num_units]."""
        return f"{self.prefix}{gate}_layer_norm_weights"

    def bias(self, gate: str) -> str:
        """Return the name of a gate's bias: [num_units]."""
        return bias_name(gate, self.prefix)

    @property
    def projection_weights(self) -> str:
        """Name of the projection weights: [output_size, num_units]."""
        return f"{self.prefix}projection_weights"

    @property
    def projection_bias(self) -> str:
        """Name of the projection bias: [output_size]."""
        return f"{self.prefix}projection_bias"


@dataclass(frozen=True)
class SequenceLstm:
    """One cell over the steps of a sequence."""

    steps: Steps
    cell: LstmCell

    @property
    def output_dimensions(self) -> tuple[Dimensions, Dimensions, Dimensions]:
        """Dimensions of the output, of the output state and of the cell state."""
        return (self.steps.dimensions(self.cell.output_size), *self.cell.state_dimensions)


@dataclass(frozen=True)
class BidirectionalLstm:
    """Two cells over the steps of a sequence, the backward one from the last step to the first."""

    steps: Steps
    forward: LstmCell
    backward: LstmCell
    linking: Linking
    merge_outputs: bool


def bias_name(gate: str, prefix: str = "") -> str:
    """Return the name of a gate's bias input."""
    return f"{prefix}cell_bias" if gate == "cell" else f"{prefix}{gate}_gate_bias"


def lstm_cell(
    op: OperationView,
    sizes: tuple[int, int],
    state_names: tuple[str, str] = ("output_state_in", "cell_state_in"),
    prefix: str = "",
    auxiliary_size: int = 0,
) -> LstmCell:
    """Return sizes and variant of a cell whose input is [batches, input_size] = `sizes`.

    Raises BadData where dimensions or the set of optional inputs contradict each other.
    """
    weights = op.dimensions(f"{prefix}input_to_output_weights")
    recurrent = op.dimensions(f"{prefix}recurrent_to_output_weights")
    if len(weights) != 2 or len(recurrent) != 2 or 0 in weights + recurrent:
        op.fail(f"{prefix}input_to_output_weights", "must have rank 2 and no size 0", [weights, recurrent])
    input_gate = all_or_none(
        op, (f"{prefix}input_to_input_weights", f"{prefix}recurrent_to_input_weights", bias_name("input", prefix))
    )
    gates = GATES if input_gate else GATES[1:]
    cell = LstmCell(
        prefix,
        state_names,
        *sizes,
        auxiliary_size=auxiliary_size,
        num_units=weights[0],
        output_size=recurrent[1],
        input_gate=input_gate,
        # The cell itself is not seen by a peephole.
        peephole=all_or_none(op, (f"{prefix}cell_to_{gate}_weights" for gate in gates if gate != "cell")),
        layer_norm=all_or_none(op, (f"{prefix}{gate}_layer_norm_weights" for gate in gates)),
        projection=op.optional(f"{prefix}projection_weights") is not None,
        activation=op.int_value("activation", ACTIVATION_TANH),
        cell_clip=op.float_value("cell_clip", 0.0),
        proj_clip=op.float_value("proj_clip", 0.0),
    )
    _check_values(op, cell)
    _check_dimensions(op, cell)
    return cell


def lstm_step(op: OperationView) -> LstmCell:
    """Return sizes and variant of an LSTM; raises BadData."""
    dims = op.dimensions("input")
    if len(dims) != 2 or 0 in dims:
        op.fail("input", "must have rank 2 and no size 0", list(dims))
    return lstm_cell(op, (dims[0], dims[1]))


def sequence_lstm(op: OperationView) -> SequenceLstm:
    """Return sizes and variant of a UNIDIRECTIONAL_SEQUENCE_LSTM; raises BadData."""
    steps = sequence_steps(op, op.bool_value("time_major"))
    return SequenceLstm(steps, lstm_cell(op, (steps.batches, steps.input_size)))


def bidirectional_lstm(op: OperationView) -> BidirectionalLstm:
    """Return sizes, variants and linking of a BIDIRECTIONAL_SEQUENCE_LSTM; raises BadData."""
    steps = sequence_steps(op, op.bool_value("time_major"))
    linked = linking(op, _auxiliary_weights(op))
    size = auxiliary_size(op, steps)
    weighted_size = size if linked == Linking.CROSS else 0

    def cell(prefix: str, input_size: int) -> LstmCell:
        states = (f"{prefix}activation_state_in", f"{prefix}cell_state_in")
        return lstm_cell(op, (steps.batches, input_size), states, prefix, weighted_size)

    forward = cell(_FORWARD, steps.input_size)
    backward = cell(_BACKWARD, size if linked == Linking.PARALLEL else steps.input_size)
    return BidirectionalLstm(steps, forward, backward, linked, op.bool_value("merge_outputs"))


def _auxiliary_weights(op: OperationView) -> list[str]:
    """Return the names of the auxiliary weights that must come together: those of an input gate only if it is there."""
    return [
        f"{prefix}aux_input_to_{gate}_weights"
        for prefix in (_FORWARD, _BACKWARD)
        for gate in GATES
        if gate != "input" or op.optional(f"{prefix}input_to_input_weights") is not None
    ]


def _check_values(op: OperationView, cell: LstmCell) -> None:
    known = (ACTIVATION_NONE, ACTIVATION_RELU, ACTIVATION_RELU6, ACTIVATION_TANH, ACTIVATION_SIGMOID)
    if cell.activation not in known:
        op.fail("activation", f"must be one of {list(known)}", cell.activation)
    for name, clip in (("cell_clip", cell.cell_clip), ("proj_clip", cell.proj_clip)):
        if not clip >= 0:
            op.fail(name, "must be >= 0", clip)
    if cell.projection:
        return
    if op.optional(cell.projection_bias) is not None:
        op.fail(cell.projection_bias, "must have no value without projection weights", "a value")
    if cell.output_size != cell.num_units:
        name = cell.recurrent_weights("output")
        op.fail(name, f"must have width {cell.num_units} without projection", cell.output_size)


def _check_dimensions(op: OperationView, cell: LstmCell) -> None:
    units: Dimensions = (cell.num_units,)
    output_state, cell_state = cell.state_names
    wanted: dict[str, Dimensions] = {
        cell.projection_weights: (cell.output_size, cell.num_units),
        cell.projection_bias: (cell.output_size,),
        output_state: (cell.batches, cell.output_size),
        cell_state: (cell.batches, cell.num_units),
    }
    for gate in cell.gates:
        wanted[cell.input_weights(gate)] = (cell.num_units, cell.input_size)
        wanted[cell.auxiliary_weights(gate)] = (cell.num_units, cell.auxiliary_size)
        wanted[cell.recurrent_weights(gate)] = (cell.num_units, cell.output_size)
        wanted[cell.bias(gate)] = wanted[cell.peephole_weights(gate)] = wanted[cell.layer_norm_weights(gate)] = units
    check_dimensions(op, wanted)


def _check_unidirectional(op: OperationView) -> FeatureLevel:
    return FeatureLevel.HAL_1_3 if len(op.outputs) > 1 else FeatureLevel.HAL_1_2


def _check_bidirectional(op: OperationView) -> FeatureLevel:
    level = check_directions(op)
    parallel = linking(op, _auxiliary_weights(op)) == Linking.PARALLEL
    return FeatureLevel.HAL_1_3 if parallel else level


def _prepare_step(op: OperationView) -> tuple[Dimensions, ...]:
    cell = lstm_step(op)
    states = cell.state_dimensions
    return (cell.batches, len(cell.gates) * cell.num_units), *states, states[0]


def _prepare_unidirectional(op: OperationView) -> tuple[Dimensions, ...]:
    return sequence_lstm(op).output_dimensions[: len(op.outputs)]


def _prepare_bidirectional(op: OperationView) -> tuple[Dimensions, ...]:
    lstm = bidirectional_lstm(op)
    sizes = (lstm.forward.output_size, lstm.backward.output_size)
    states = (*lstm.forward.state_dimensions, *lstm.backward.state_dimensions)
    return directions_dimensions(op, lstm.steps, sizes, states)


def _matrix(name: str, omittable: bool = False) -> Input:
    return Input(name, rank=(2, 2), omittable=omittable)


def _vector(name: str, omittable: bool = False) -> Input:
    return Input(name, rank=(1, 1), omittable=omittable)


def _cell_inputs(prefix: str = "") -> tuple[Input, ...]:
    return (
        *(_matrix(f"{prefix}input_to_{gate}_weights", gate == "input") for gate in GATES),
        *(_matrix(f"{prefix}recurrent_to_{gate}_weights", gate == "input") for gate in GATES),
        *(_vector(f"{prefix}cell_to_{gate}_weights", True) for gate in GATES if gate != "cell"),
        *(_vector(bias_name(gate, prefix), gate == "input") for gate in GATES),
        _matrix(f"{prefix}projection_weights", True),
        _vector(f"{prefix}projection_bias", True),
    )


def _layer_norms(prefix: str = "", since: FeatureLevel = FeatureLevel.HAL_1_0) -> tuple[Input, ...]:
    names = (f"{prefix}{gate}_layer_norm_weights" for gate in GATES)
    return tuple(Input(name, rank=(1, 1), optional=True, omittable=True, since=since) for name in names)


def _auxiliaries(prefix: str) -> tuple[Input, ...]:
    return tuple(_matrix(f"{prefix}aux_input_to_{gate}_weights", True) for gate in GATES)


_PARAMETERS = (Input("activation", INT32), Input("cell_clip", float_scalar), Input("proj_clip", float_scalar))
_STATES = (_matrix("output_state_in"), _matrix("cell_state_in"))


define(
    Definition(
        OperationCode.LSTM,
        (
            Variant(
                (
                    _matrix("input"),
                    *_cell_inputs(),
                    *_STATES,
                    *_PARAMETERS,
                    *_layer_norms(since=FeatureLevel.HAL_1_2),
                ),
                counts=(23, 27),
            ),
        ),
        tuple(Output(name, rank=(2, 2)) for name in ("scratch", "output_state_out", "cell_state_out", "output")),
        {**HAL_1_2_FLOATS, OperandCode.TENSOR_FLOAT32: FeatureLevel.HAL_1_0},
        _prepare_step,
    )
)

define(
    Definition(
        OperationCode.UNIDIRECTIONAL_SEQUENCE_LSTM,
        (
            Variant(
                (
                    Input("input", rank=(3, 3)),
                    *_cell_inputs(),
                    *_STATES,
                    *_PARAMETERS,
                    Input("time_major", BOOL),
                    *_layer_norms(),
                ),
                counts=(28,),
            ),
        ),
        (Output("output", rank=(3, 3)), Output("output_state_out", rank=(2, 2)), Output("cell_state_out", rank=(2, 2))),
        HAL_1_2_FLOATS,
        _prepare_unidirectional,
        _check_unidirectional,
        output_counts=(1, 3),
    )
)

define(
    Definition(
        OperationCode.BIDIRECTIONAL_SEQUENCE_LSTM,
        (
            Variant(
                (
                    Input("input", rank=(3, 3)),
                    *_cell_inputs(_FORWARD),
                    *_cell_inputs(_BACKWARD),
                    *(
                        _matrix(f"{prefix}{state}_state_in")
                        for prefix in (_FORWARD, _BACKWARD)
                        for state in ("activation", "cell")
                    ),
                    Input("aux_input", rank=(3, 3), omittable=True),
                    *_auxiliaries(_FORWARD),
                    *_auxiliaries(_BACKWARD),
                    *_PARAMETERS,
                    Input("merge_outputs", BOOL),
                    Input("time_major", BOOL),
                    *_layer_norms(_FORWARD),
                    *_layer_norms(_BACKWARD),
                ),
                counts=(61,),
            ),
        ),
        # Merged outputs are one instead of two, so that the others' ranks are the check's business.
        (
            Output("fw_output", rank=(3, 3)),
            Output("bw_output"),
            *(
                Output(f"{prefix}{state}_state_out")
                for prefix in (_FORWARD, _BACKWARD)
                for state in ("activation", "cell")
            ),
        ),
        HAL_1_2_FLOATS,
        _prepare_bidirectional,
        _check_bidirectional,
        output_counts=(1, 2, 5, 6),
    )
)
