# SPDX-License-Identifier: Apache-2.0
"""Networks over hand-made models, and what `compile` makes of its arguments."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pytest

import nn_runtime as nn
from nn_runtime import FuseCode, Model, Network, OperandCode, OperandType, OperationCode
from nn_runtime.errors import BadData, BadState, UnavailableDevice
from nn_runtime.tflite import Interpreter, TfliteError
from tests.nn_runtime.tflite.operator_file import Step, real, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from nn_runtime.device import Device

FLOATS = OperandCode.TENSOR_FLOAT32


def adding_model(*shape: int) -> Model:
    """Return a finished model: output = input0 + input1, RELU."""
    model = Model()
    first, second = (model.add_operand(OperandType(FLOATS, shape)) for _ in range(2))
    activation = model.add_operand(OperandType(OperandCode.INT32))
    model.set_operand_value(activation, np.array(FuseCode.RELU, np.int32))
    output = model.add_operand(OperandType(FLOATS, shape))
    model.add_operation(OperationCode.ADD, [first, second, activation], [output])
    model.identify_inputs_and_outputs([first, second], [output])
    model.finish()
    return model


def test_network_of_a_hand_made_model(device: Device) -> None:
    network = Network.from_model(adding_model(2, 2), inputs=["left", "right"], outputs=["sum"])
    assert [str(info) for info in (*network.inputs, *network.outputs)] == [
        "left: float32 [2, 2]",
        "right: float32 [2, 2]",
        "sum: float32 [2, 2]",
    ]
    with network, network.compile(device) as session:
        results = session.run({"right": [[1, 2], [3, 4]], "left": np.full((2, 2), -2.5)})
    assert list(results) == ["sum"]
    np.testing.assert_array_equal(results["sum"], [[0, 0], [0.5, 1.5]])


def test_names_default_to_positions() -> None:
    network = Network.from_model(adding_model(3))
    assert [info.name for info in (*network.inputs, *network.outputs)] == ["input0", "input1", "output0"]
    with pytest.raises(BadData, match=r"input names: wanted 2 different ones, got \['a', 'a'\]"):
        Network.from_model(adding_model(2), inputs=["a", "a"])
    with pytest.raises(BadData, match=r"input names: wanted 2 different ones, got \['a'\]"):
        Network.from_model(adding_model(3), inputs=["a"])
    with pytest.raises(BadState):
        Network.from_model(Model())


def test_load_takes_a_path_or_bytes(tmp_path: Path) -> None:
    file = write([real(2), real(2)], [Step("RELU", [0], [1])], [0], [1])
    path = tmp_path / "relu.tflite"
    path.write_bytes(file)
    for source in (path, str(path), file, memoryview(file)):
        assert [info.name for info in nn.load(source).inputs] == ["t0"]
    with pytest.raises(FileNotFoundError):
        nn.load(tmp_path / "absent.tflite")
    with pytest.raises(BadData, match=r"not a \.tflite file"):
        nn.load(b"no network at all")


@pytest.mark.parametrize("name", ["cut.tflite", "a name\n.tflite"])
@pytest.mark.parametrize("open_file", [nn.load, Interpreter], ids=["load", "Interpreter"])
def test_errors_of_a_file_name_it(tmp_path: Path, open_file: Callable[[Path], object], name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"\0" * 100)
    shown = str(path) if name == "cut.tflite" else repr(str(path))
    with pytest.raises(TfliteError, match=f"^{re.escape(shown)}: not a .tflite file"):
        open_file(path)


def test_compile_checks_its_arguments(reference_device: Device) -> None:
    network = Network.from_model(adding_model(3))
    with pytest.raises(BadData, match="mode must be 'aosp' or 'cost', got 'fastest'"):
        network.compile("cpu", partition="fastest")
    with pytest.raises(BadData, match="list of devices is empty"):
        network.compile([])
    with pytest.raises(BadData, match="compile: the list of devices names nnapi-reference twice"):
        network.compile([reference_device, reference_device])
    with pytest.raises(BadData, match=r"compile: wanted devices such as those of nn_runtime\.devices\(\), got 3"):
        network.compile(3)  # type: ignore[arg-type]
    with pytest.raises(BadData, match="a selector of several devices is one string: 'opencl,cpu'"):
        network.compile(["opencl", "cpu"])  # type: ignore[list-item]
    with pytest.raises(BadData, match="compile: dynamic_quantization: wanted a bool, got 'yes'"):
        network.compile("cpu", dynamic_quantization="yes")  # type: ignore[arg-type]
    with pytest.raises(BadData, match="compile: trial: wanted a bool, got 'no'"):
        network.compile("cpu", trial="no")  # type: ignore[arg-type]
    with pytest.raises(UnavailableDevice, match=r"there is: .*nnapi-reference"):
        network.compile("nodriver:x")
    for device in ("cpu", reference_device, [reference_device]):
        with network.compile(device, partition="aosp", priority=nn.PriorityCode.LOW) as session:
            assert session.devices_used == ("nnapi-reference",)


@pytest.mark.parametrize("of_network", [False, True])
@pytest.mark.parametrize("of_compile", [None, False, True])
def test_products_on_bytes_are_allowed_as_the_network_or_the_caller_says(
    of_network: bool, of_compile: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(nn.Compilation, "set_dynamic_quantization", lambda _, allowed: asked.append(allowed))
    model = adding_model(3)
    interface = Network.from_model(model).interface
    with Network(model, interface, dynamic_quantization=of_network) as network:
        assert network.dynamic_quantization == of_network
        network.compile("cpu", dynamic_quantization=of_compile).close()
    assert any(asked) == (of_network if of_compile is None else of_compile)


def test_the_conversion_is_a_function_also_after_a_file_was_loaded() -> None:
    nn.load(write([real(2), real(2)], [Step("RELU", [0], [1])], [0], [1])).close()
    assert callable(nn.tflite.convert)
