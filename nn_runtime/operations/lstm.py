# SPDX-License-Identifier: Apache-2.0
"""UNIDIRECTIONAL_SEQUENCE_LSTM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nn_runtime.codes import FeatureLevel, OperandCode, OperationCode
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

if TYPE_CHECKING:
    from nn_runtime.operand import Dimensions

ACTIVATION_NONE, ACTIVATION_RELU, ACTIVATION_RELU6, ACTIVATION_TANH, ACTIVATION_SIGMOID = 0, 1, 3, 4, 6

_GATES = ("input", "forget", "cell", "output")


@dataclass(frozen=True)
class SequenceLstm:
    """Sizes and variant of one operation. Without `input_gate` (CIFG) it is 1 - forget gate."""

    batches: int
    max_time: int
    input_size: int
    num_units: int
    output_size: int
    time_major: bool
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
        return _GATES if self.input_gate else _GATES[1:]

    @property
    def output_dimensions(self) -> tuple[Dimensions, Dimensions, Dimensions]:
        """Dimensions of the output, of the output state and of the cell state."""
        leading = (self.max_time, self.batches) if self.time_major else (self.batches, self.max_time)
        return (*leading, self.output_size), (self.batches, self.output_size), (self.batches, self.num_units)


def bias_name(gate: str) -> str:
    """Return the name of a gate's bias input."""
    return "cell_bias" if gate == "cell" else f"{gate}_gate_bias"


def sequence_lstm(op: OperationView) -> SequenceLstm:
    """Return sizes and variant; raises BadData where dimensions or the set of optional inputs contradict each other."""
    dims = op.dimensions("input")
    weights, recurrent = op.dimensions("input_to_output_weights"), op.dimensions("recurrent_to_output_weights")
    if len(dims) != 3 or len(weights) != 2 or len(recurrent) != 2 or 0 in dims + weights + recurrent:
        op.fail("input", "must have rank 3 and no size 0, its weights rank 2", [dims, weights, recurrent])
    time_major = op.bool_value("time_major")
    cifg = _all_or_none(op, "input_to_input_weights", "recurrent_to_input_weights", "input_gate_bias") is False
    gates = _GATES[1:] if cifg else _GATES
    # The cell itself is not seen by a peephole.
    peepholes = [f"cell_to_{gate}_weights" for gate in gates if gate != "cell"]
    found = SequenceLstm(
        batches=dims[1] if time_major else dims[0],
        max_time=dims[0] if time_major else dims[1],
        input_size=dims[2],
        num_units=weights[0],
        output_size=recurrent[1],
        time_major=time_major,
        input_gate=not cifg,
        peephole=_all_or_none(op, *peepholes),
        layer_norm=_all_or_none(op, *(f"{gate}_layer_norm_weights" for gate in gates)),
        projection=op.optional("projection_weights") is not None,
        activation=op.int_value("activation"),
        cell_clip=op.float_value("cell_clip"),
        proj_clip=op.float_value("proj_clip"),
    )
    _check_values(op, found)
    _check_dimensions(op, found)
    return found


def _all_or_none(op: OperationView, *names: str) -> bool:
    given = [name for name in names if op.optional(name) is not None]
    if given and len(given) < len(names):
        missing = next(name for name in names if name not in given)
        op.fail(missing, f"must be given as {given[0]} is", "no value")
    return bool(given)


def _check_values(op: OperationView, lstm: SequenceLstm) -> None:
    known = (ACTIVATION_NONE, ACTIVATION_RELU, ACTIVATION_RELU6, ACTIVATION_TANH, ACTIVATION_SIGMOID)
    if lstm.activation not in known:
        op.fail("activation", f"must be one of {list(known)}", lstm.activation)
    for name in ("cell_clip", "proj_clip"):
        if not op.float_value(name) >= 0:
            op.fail(name, "must be >= 0", op.float_value(name))
    if not lstm.projection and op.optional("projection_bias") is not None:
        op.fail("projection_bias", "must have no value without projection_weights", "a value")
    if not lstm.projection and lstm.output_size != lstm.num_units:
        op.fail("recurrent_to_output_weights", f"must have width {lstm.num_units} without projection", lstm.output_size)


def _check_dimensions(op: OperationView, lstm: SequenceLstm) -> None:
    units = (lstm.num_units,)
    wanted: dict[str, Dimensions] = {
        "projection_weights": (lstm.output_size, lstm.num_units),
        "projection_bias": (lstm.output_size,),
        "output_state_in": (lstm.batches, lstm.output_size),
        "cell_state_in": (lstm.batches, lstm.num_units),
    }
    for gate in lstm.gates:
        wanted[f"input_to_{gate}_weights"] = (lstm.num_units, lstm.input_size)
        wanted[f"recurrent_to_{gate}_weights"] = (lstm.num_units, lstm.output_size)
        wanted[bias_name(gate)] = wanted[f"cell_to_{gate}_weights"] = wanted[f"{gate}_layer_norm_weights"] = units
    for name, dims in wanted.items():
        operand = op.optional(name)
        if operand is not None and operand.dimensions != dims:
            op.fail(name, f"must have dimensions {list(dims)}", list(operand.dimensions or ()))


def _check(op: OperationView) -> FeatureLevel:
    return FeatureLevel.HAL_1_3 if len(op.outputs) > 1 else FeatureLevel.HAL_1_2


def _prepare(op: OperationView) -> tuple[Dimensions, ...]:
    return sequence_lstm(op).output_dimensions[: len(op.outputs)]


def _matrix(name: str, omittable: bool = False) -> Input:
    return Input(name, rank=(2, 2), omittable=omittable)


def _vector(name: str, omittable: bool = False) -> Input:
    return Input(name, rank=(1, 1), omittable=omittable)


define(
    Definition(
        OperationCode.UNIDIRECTIONAL_SEQUENCE_LSTM,
        (
            Variant(
                (
                    Input("input", rank=(3, 3)),
                    *(_matrix(f"input_to_{gate}_weights", omittable=gate == "input") for gate in _GATES),
                    *(_matrix(f"recurrent_to_{gate}_weights", omittable=gate == "input") for gate in _GATES),
                    *(_vector(f"cell_to_{gate}_weights", omittable=True) for gate in _GATES if gate != "cell"),
                    *(_vector(bias_name(gate), omittable=gate == "input") for gate in _GATES),
                    _matrix("projection_weights", omittable=True),
                    _vector("projection_bias", omittable=True),
                    _matrix("output_state_in"),
                    _matrix("cell_state_in"),
                    Input("activation", INT32),
                    Input("cell_clip", float_scalar),
                    Input("proj_clip", float_scalar),
                    Input("time_major", BOOL),
                    *(_vector(f"{gate}_layer_norm_weights", omittable=True) for gate in _GATES),
                )
            ),
        ),
        (Output("output", rank=(3, 3)), Output("output_state_out", rank=(2, 2)), Output("cell_state_out", rank=(2, 2))),
        {
            OperandCode.TENSOR_FLOAT32: FeatureLevel.HAL_1_2,
            OperandCode.TENSOR_FLOAT16: FeatureLevel.HAL_1_2,
        },
        _prepare,
        _check,
        output_counts=(1, 3),
    )
)
