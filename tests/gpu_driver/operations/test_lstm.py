# SPDX-License-Identifier: Apache-2.0
"""Recurrent cells on the device: every variant, units around the vector width, one launch for all steps or several."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpu_driver.launchers import recurrent
from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.compilation import Compilation
from nn_runtime.devices import reference_device
from nn_runtime.execution import Execution
from nn_runtime.model import Model
from tests.gpu_driver.operations.both_drivers import LeftOut, Result, check_both
from tests.gpu_driver.operations.compare import FLOAT16, FLOAT32, Value
from tests.nn_runtime.graphs import scalar, tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nn_runtime.device import Device
    from nn_runtime.operand import Dimensions
    from tests.gpu_driver.operations.compare import Scalar

RELU, RELU6, TANH, SIGMOID = 1, 3, 4, 6
TOLERANCE = {FLOAT32: (1e-5, 1e-5), FLOAT16: (5 * 2.0**-10, 5 * 2.0**-10)}


@dataclass(frozen=True)
class Cell:
    """Sizes and variant of an LSTM."""

    units: int = 5
    outputs: int = 5
    inputs: int = 3
    batches: int = 2
    steps: int = 3
    input_gate: bool = True
    peephole: bool = False
    norm: bool = False
    projection: bool = False
    projection_bias: bool = False
    activation: int = TANH
    clips: tuple[float, float] = (0.0, 0.0)
    time_major: bool = True
    constant: bool = True


VARIANTS = [
    Cell(),
    Cell(1, 1, 1, 1, 1),
    Cell(16, 16, 20, 1, 4),
    Cell(17, 17, 3, 3, 9, time_major=False),
    Cell(33, 33, 7, 1, 2, input_gate=False, peephole=True),
    Cell(15, 15, 2, 2, 5, peephole=True, norm=True, constant=False),
    Cell(20, 7, 4, 2, 3, projection=True, clips=(0.4, 0.3)),
    Cell(20, 18, 4, 2, 3, projection=True, projection_bias=True, norm=True, input_gate=False, peephole=True),
    Cell(8, 8, activation=RELU, constant=False),
    Cell(8, 8, activation=RELU6, time_major=False),
    Cell(8, 8, activation=SIGMOID),
    Cell(8, 8, activation=0, clips=(0.2, 0.0)),
]


@pytest.fixture(params=["whole", "stepwise"])
def launches(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let one group run through all steps, or several launches make one step."""
    if request.param == "stepwise":
        monkeypatch.setattr(recurrent, "_MOST_WEIGHTS_OF_ONE_GROUP", 0)
    yield


@pytest.mark.usefixtures("launches")
@pytest.mark.parametrize("data_type", [FLOAT32, FLOAT16], ids=lambda code: code.name)
@pytest.mark.parametrize("cell", VARIANTS, ids=lambda cell: f"units{cell.units}-steps{cell.steps}-act{cell.activation}")
def test_unidirectional(opencl_device: Device, cell: Cell, data_type: OperandCode) -> None:
    draw = Draw(data_type, cell.constant)
    major = (cell.steps, cell.batches) if cell.time_major else (cell.batches, cell.steps)
    source = draw(*major, cell.inputs, constant=False)
    arguments = [source, *draw.cell(cell), *draw.states(cell), *parameters(cell), cell.time_major, *draw.norms(cell)]
    check_both(opencl_device, OperationCode.UNIDIRECTIONAL_SEQUENCE_LSTM, arguments, results(data_type, 3, 2, 2))


@pytest.mark.parametrize("cell", VARIANTS, ids=lambda cell: f"units{cell.units}-steps{cell.steps}-act{cell.activation}")
def test_one_step(opencl_device: Device, cell: Cell) -> None:
    draw = Draw(FLOAT32, cell.constant)
    source = draw(cell.batches, cell.inputs, constant=False)
    arguments = [source, *draw.cell(cell), *draw.states(cell), *parameters(cell), *draw.norms(cell)]
    check_both(opencl_device, OperationCode.LSTM, arguments, results(FLOAT32, 2, 2, 2, 2))


@pytest.mark.usefixtures("launches")
@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("linking", ["none", "parallel", "cross"])
@pytest.mark.parametrize("time_major", [False, True])
def test_bidirectional(opencl_device: Device, linking: str, merged: bool, time_major: bool) -> None:
    cell = Cell(17, 17, 3, 2, 4, time_major=time_major, peephole=True)
    backward = replace(cell, units=5, outputs=5)
    draw = Draw(FLOAT32, constant=True)
    major = (cell.steps, cell.batches) if time_major else (cell.batches, cell.steps)
    auxiliary: list[Value | LeftOut] = [LeftOut(FLOAT32)] * 9
    if linking != "none":
        auxiliary[0] = draw(*major, cell.inputs, constant=False)
    if linking == "cross":
        auxiliary[1:] = [draw(one.units, cell.inputs) for one in (cell, backward) for _ in range(4)]
    arguments = [
        draw(*major, cell.inputs, constant=False),
        *draw.cell(cell),
        *draw.cell(backward),
        *draw.states(cell),
        *draw.states(backward),
        *auxiliary,
        *parameters(cell),
        merged,
        time_major,
        *draw.norms(cell),
        *draw.norms(backward),
    ]
    outputs = results(FLOAT32, *([3] if merged else [3, 3]), 2, 2, 2, 2)
    check_both(opencl_device, OperationCode.BIDIRECTIONAL_SEQUENCE_LSTM, arguments, outputs)


@pytest.mark.usefixtures("launches")
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("time_major", [0, 1])
@pytest.mark.parametrize("units", [1, 15, 16, 17, 70])
@pytest.mark.parametrize("data_type", [FLOAT32, FLOAT16], ids=lambda code: code.name)
def test_rnn(opencl_device: Device, data_type: OperandCode, units: int, time_major: int, constant: bool) -> None:
    draw = Draw(data_type, constant)
    back = draw(units, units, most=1 / max(2, units**0.5))  # so that roundings do not grow from step to step
    weights = draw(units, 3), back, draw(units), draw(2, units, constant=False)
    major = (9, 2) if time_major else (2, 9)
    arguments = [draw(*major, 3, constant=False), *weights, FuseCode.RELU1.value, time_major]
    check_both(opencl_device, OperationCode.UNIDIRECTIONAL_SEQUENCE_RNN, arguments, results(data_type, 3, 2))


@pytest.mark.usefixtures("launches")
@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("linking", ["none", "parallel", "cross"])
def test_bidirectional_rnn(opencl_device: Device, linking: str, merged: bool) -> None:
    draw = Draw(FLOAT32, constant=True)

    def cell(units: int) -> list[Value]:
        return [draw(units, 3), draw(units, units), draw(units), draw(2, units, constant=False)]

    auxiliary: list[Value | LeftOut] = [LeftOut(FLOAT32)] * 3
    if linking != "none":
        auxiliary[0] = draw(4, 2, 3, constant=False)
    if linking == "cross":
        auxiliary[1:] = [draw(18, 3), draw(5, 3)]
    arguments = [draw(4, 2, 3, constant=False), *cell(18), *cell(5), *auxiliary, 0, True, merged]
    outputs = results(FLOAT32, *([3] if merged else [3, 3]), 2, 2)
    check_both(opencl_device, OperationCode.BIDIRECTIONAL_SEQUENCE_RNN, arguments, outputs)


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("memory", [1, 2, 10])
@pytest.mark.parametrize(("filters", "rank"), [(1, 1), (66, 2), (64, 1)])
@pytest.mark.parametrize("inputs", [1, 15, 16, 17])
@pytest.mark.parametrize("data_type", [FLOAT32, FLOAT16], ids=lambda code: code.name)
def test_svdf(
    opencl_device: Device, data_type: OperandCode, inputs: int, filters: int, rank: int, memory: int, has_bias: bool
) -> None:
    draw = Draw(data_type, constant=True)
    arguments = [
        draw(3, inputs, constant=False),
        draw(filters, inputs),
        draw(filters, memory),
        draw(filters // rank) if has_bias else draw.absent,
        draw(3, filters * memory, constant=False),
        rank,
        1,
    ]
    check_both(opencl_device, OperationCode.SVDF, arguments, results(data_type, 2, 2))


class Draw:
    """Random tensors of one type."""

    def __init__(self, data_type: OperandCode, constant: bool) -> None:
        self._rng = np.random.default_rng(7)
        self._type = data_type
        self._dtype = np.float16 if data_type == FLOAT16 else np.float32
        self._constant = constant
        self.absent = LeftOut(data_type)

    def __call__(self, *dims: int, constant: bool | None = None, most: float = 0.5) -> Value:
        data = self._rng.uniform(-most, most, dims).astype(self._dtype)
        return Value(self._type, data, constant=self._constant if constant is None else constant)

    def cell(self, cell: Cell) -> list[Value | LeftOut]:
        """Return the inputs from the weights of the input to the projection bias."""
        gates = range(4)
        absent = 0 if cell.input_gate else 1
        by_input = [self(cell.units, cell.inputs) if gate >= absent else self.absent for gate in gates]
        recurrent_weights = [self(cell.units, cell.outputs) if gate >= absent else self.absent for gate in gates]
        peepholes = [self(cell.units) if cell.peephole and gate >= absent else self.absent for gate in range(3)]
        biases = [self(cell.units) if gate >= absent else self.absent for gate in gates]
        projection = self(cell.outputs, cell.units) if cell.projection else self.absent
        projection_bias = self(cell.outputs) if cell.projection_bias else self.absent
        return [*by_input, *recurrent_weights, *peepholes, *biases, projection, projection_bias]

    def states(self, cell: Cell) -> list[Value]:
        """Return output and cell state."""
        return [self(cell.batches, cell.outputs, constant=False), self(cell.batches, cell.units, constant=False)]

    def norms(self, cell: Cell) -> list[Value | LeftOut]:
        """Return the weights of the layer norm."""
        gates = range(0 if cell.input_gate else 1, 4)
        return [self(cell.units) if cell.norm and gate in gates else self.absent for gate in range(4)]


def parameters(cell: Cell) -> list[Scalar]:
    """Return activation and clips."""
    return [cell.activation, *cell.clips]


def results(data_type: OperandCode, *ranks: int) -> list[Result]:
    """Return outputs of some ranks."""
    return [Result(data_type, rank, tolerance=TOLERANCE[data_type]) for rank in ranks]


_BATCHES, _INPUTS, _UNITS = 2, 3, 4
_OF_INPUT, _OF_STATE, _OF_UNIT = (_UNITS, _INPUTS), (_UNITS, _UNITS), (_UNITS,)
_LSTM_INPUTS: list[tuple[Dimensions, bool]] = [
    ((_BATCHES, _INPUTS), True),
    *[(_OF_INPUT, present) for present in (False, True, True, True)],
    *[(_OF_STATE, present) for present in (False, True, True, True)],
    *[(_OF_UNIT, present) for present in (False, False, False, False, True, True, True)],
    (_OF_STATE, False),
    (_OF_UNIT, False),
    *[((_BATCHES, _UNITS), True)] * 2,
]
"""Dimensions, and whether an execution gives it: no input gate, peepholes or projection."""


@pytest.mark.parametrize("scratch", [(_BATCHES, 3 * _UNITS), (0, 0)])
def test_optional_inputs_that_an_execution_leaves_out(opencl_device: Device, scratch: Dimensions) -> None:
    """The scratch buffer is for the three gates that there are then, not for four."""
    model = Model()
    arguments = [model.add_operand(tensor(*dims)) for dims, _ in _LSTM_INPUTS]
    parameters = [scalar(model, TANH), *(scalar(model, clip, OperandCode.FLOAT32) for clip in (0.0, 0.0))]
    sizes = (3 * _UNITS, _UNITS, _UNITS, _UNITS)
    outputs = [model.add_operand(tensor(*dims)) for dims in (scratch, *((_BATCHES, size) for size in sizes[1:]))]
    model.add_operation(OperationCode.LSTM, [*arguments, *parameters], outputs)
    model.identify_inputs_and_outputs(arguments, outputs)
    model.finish()
    rng = np.random.default_rng(1)
    data = [rng.uniform(-1, 1, dims).astype(np.float32) if present else None for dims, present in _LSTM_INPUTS]
    results = []
    for device in (opencl_device, reference_device()):
        with Compilation(model, [device]) as compilation:
            compilation.finish()
            with Execution(compilation) as execution:
                for at, array in enumerate(data):
                    execution.set_input(at, array)
                results.append([np.zeros((_BATCHES, size), np.float32) for size in sizes])
                for at, array in enumerate(results[-1]):
                    execution.set_output(at, array)
                execution.compute()
                assert execution.get_output_operand_dimensions(0) == (_BATCHES, 3 * _UNITS)
    for ours, wanted in zip(results[0][1:], results[1][1:], strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-5, atol=1e-6)
        assert wanted.any()
