# SPDX-License-Identifier: Apache-2.0
"""The example of a driver with a vendor extension (AOSP FibonacciExtensionTest)."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.compilation import Compilation
from nn_runtime.device import REFERENCE_NAME, Device
from nn_runtime.devices import Selection, reference_device
from nn_runtime.errors import BadData, OutputInsufficientSize
from nn_runtime.execution import Execution
from nn_runtime.hal.interfaces import OperationSupport
from nn_runtime.hal.types import ExecutionResult
from nn_runtime.hal.views import argument_bytes
from nn_runtime.model import Model
from nn_runtime.operand import OperandType
from nn_runtime.testing.sample_drivers import NullDevice, SamplePreparedModel

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from nn_runtime.hal.types import Model as HalModel
    from nn_runtime.hal.types import Request
    from nn_runtime.operand import Array


class CopyingModel:
    """Copies inputs to outputs."""

    def execute_synchronously(self, request: Request, *_options: object) -> ExecutionResult:
        for source, target in zip(request.inputs, request.outputs, strict=True):
            data = argument_bytes(source.location, request.pools)
            argument_bytes(target.location, request.pools)[:] = data
        return ExecutionResult()

    def close(self) -> None:
        pass


class CopyingDevice(NullDevice):
    """Takes the operations that it is told to."""

    def explain_operations(self, model: HalModel) -> list[OperationSupport]:
        return [OperationSupport(op.type in (self.operations or ())) for op in model.main.operations]

    def prepare_model(self, *_arguments: object) -> SamplePreparedModel:  # type: ignore[override]
        return SamplePreparedModel(self, CopyingModel())  # type: ignore[arg-type]


FOLDER = Path(__file__).resolve().parents[2] / "examples" / "fibonacci_driver"
NAME = "com.example.fibonacci"
FIRST_TEN = [1, 1, 2, 3, 5, 8, 13, 21, 34, 55]


@pytest.fixture(scope="module")
def driver() -> ModuleType:
    """Load the driver as its entry point names it."""
    assert 'fibonacci = "fibonacci_driver:devices"' in (FOLDER / "pyproject.toml").read_text(encoding="utf-8")
    spec = importlib.util.spec_from_file_location("fibonacci_driver", FOLDER / "fibonacci_driver.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def device(driver: ModuleType) -> Device:
    (found,) = driver.devices()
    return Device(found)


@dataclass
class Codes:
    """The extension's codes in a model."""

    int64: int
    quant64: int
    fibonacci: int


def codes_of(model: Model, device: Device) -> Codes:
    return Codes(
        model.extension_operand_type(device, NAME, 0),
        model.extension_operand_type(device, NAME, 1),
        model.extension_operation_type(device, NAME, 0),
    )


def quant64_model(device: Device, driver: ModuleType, dims: tuple[int, ...] = (10,)) -> Model:
    """INT64 to TENSOR_QUANT64_ASYMM with scale 0.5 and zero point 7."""
    model = Model()
    codes = codes_of(model, device)
    n, result = model.add_operand(OperandType(codes.int64)), model.add_operand(OperandType(codes.quant64, dims))
    model.set_operand_extension_data(result, driver.pack_quantization(0.5, 7))
    model.add_operation(codes.fibonacci, [n], [result])
    model.identify_inputs_and_outputs([n], [result])
    model.finish()
    return model


def with_temporaries(device: Device) -> Model:
    """The extension's operation between two of the CPU: n = 2 * x, result = -fibonacci(n)."""
    model = Model()
    codes = codes_of(model, device)
    x, two, n = (model.add_operand(OperandType(OperandCode.TENSOR_FLOAT32, (1,))) for _ in range(3))
    numbers, result = (model.add_operand(OperandType(OperandCode.TENSOR_FLOAT32, (10,))) for _ in range(2))
    minus, fuse = model.add_operand(OperandType(OperandCode.TENSOR_FLOAT32, (1,))), model.add_operand(OperandType(1))
    model.set_operand_value(two, np.array([2], np.float32))
    model.set_operand_value(minus, np.array([-1], np.float32))
    model.set_operand_value(fuse, 0)
    model.add_operation(OperationCode.MUL, [x, two, fuse], [n])
    model.add_operation(codes.fibonacci, [n], [numbers])
    model.add_operation(OperationCode.MUL, [numbers, minus, fuse], [result])
    model.identify_inputs_and_outputs([x], [result])
    model.finish()
    return model


def compiled(model: Model, *devices: Device) -> Compilation:
    compilation = Compilation(model, devices)
    compilation.finish()
    return compilation


def computed(compilation: Compilation, n: Array, output: Array) -> Array:
    with Execution(compilation) as execution:
        execution.set_input(0, n)
        execution.set_output(0, output)
        execution.compute()
    return output


def test_the_device_tells_its_extension(device: Device) -> None:
    assert device.extension_support(NAME)
    assert not device.extension_support("com.example.other")
    assert not reference_device().extension_support(NAME)


def test_model_with_extension_operand_types(device: Device, driver: ModuleType) -> None:
    compilation = compiled(quant64_model(device, driver), device)
    result = computed(compilation, np.array(10, np.int64), np.zeros(10, np.int64))
    assert ((result - 7) * 0.5).tolist() == FIRST_TEN


def test_model_with_temporaries(device: Device) -> None:
    compilation = compiled(with_temporaries(device), device, reference_device())
    assert compilation.plan is not None
    assert [step.device.name for step in compilation.plan.steps] == [REFERENCE_NAME, "fibonacci", REFERENCE_NAME]
    result = computed(compilation, np.array([5], np.float32), np.zeros(10, np.float32))
    assert (-result).tolist() == FIRST_TEN


def test_extension_operands_between_two_steps(device: Device) -> None:
    """An extension's type crosses from one device of its driver to another, in memory of the right size."""
    model = Model()
    codes = codes_of(model, device)
    x, y = (model.add_operand(OperandType(codes.quant64, (4,))) for _ in range(2))
    between = model.add_operand(OperandType(codes.quant64, (4,)))
    for at, (source, target) in enumerate(((x, between), (between, y))):
        model.add_operation(model.extension_operation_type(device, NAME, 7 + at), [source], [target])
    model.identify_inputs_and_outputs([x], [y])
    model.finish()
    operations = zip("ab", model.hal.main.operations, strict=True)
    copying = [Device(CopyingDevice(name, {operation.type})) for name, operation in operations]
    values = np.arange(4, dtype=np.int64) << 40
    assert (computed(compiled(model, *copying), values, np.zeros(4, np.int64)) == values).all()


def failing(model: Model, operation: int, inputs: Sequence[OperandType], outputs: Sequence[OperandType]) -> Model:
    first = [model.add_operand(kind) for kind in inputs]
    last = [model.add_operand(kind) for kind in outputs]
    model.add_operation(operation, first, last)
    model.identify_inputs_and_outputs(first, last)
    model.finish()
    return model


FLOATS = OperandType(OperandCode.TENSOR_FLOAT32, (10,))


@pytest.mark.parametrize("wrong", ["input type", "output type", "inputs", "outputs", "operation"])
def test_what_the_driver_does_not_take_fails_at_compilation(device: Device, wrong: str) -> None:
    model = Model()
    codes = codes_of(model, device)
    n, operation = OperandType(codes.int64), codes.fibonacci
    inputs, outputs = [n], [FLOATS]
    if wrong == "input type":
        inputs = [OperandType(OperandCode.TENSOR_INT32, (1,))]
    elif wrong == "output type":
        outputs = [OperandType(OperandCode.TENSOR_INT32, (10,))]
    elif wrong == "inputs":
        inputs = [n, n]
    elif wrong == "outputs":
        outputs = [FLOATS, FLOATS]
    else:
        operation = model.extension_operation_type(device, NAME, 1)
    failing(model, operation, inputs, outputs)
    assert model.supported_operations([device, reference_device()]) == [False]
    for selection in (Selection((device, reference_device()), False), Selection((device,), True)):
        compilation = Compilation.for_selection(model, selection)
        with pytest.raises(BadData, match=r"operation 0 .*no device can run it"):
            compilation.finish()


@pytest.mark.parametrize("fallback", [False, True])
def test_a_wrong_value_fails_at_execution(device: Device, driver: ModuleType, fallback: bool) -> None:
    model = quant64_model(device, driver)
    selection = Selection((device, reference_device()), False) if fallback else Selection((device,), True)
    compilation = Compilation.for_selection(model, selection)
    compilation.finish()
    with pytest.raises(BadData, match="n must be 1 to 92, got -1"):
        computed(compilation, np.array(-1, np.int64), np.zeros(10, np.int64))


def test_supported_operations(device: Device, driver: ModuleType) -> None:
    assert quant64_model(device, driver).supported_operations([device]) == [True]
    model = with_temporaries(device)
    assert model.supported_operations([device]) == [False, True, False]
    assert model.supported_operations([reference_device()]) == [True, False, True]
    assert model.supported_operations([device, reference_device()]) == [True] * 3


def test_results_of_unknown_size(device: Device, driver: ModuleType) -> None:
    compilation = compiled(quant64_model(device, driver, (0,)), device)
    with pytest.raises(OutputInsufficientSize) as caught:
        computed(compilation, np.array(10, np.int64), np.zeros(3, np.int64))
    assert caught.value.shapes == ((10,),)
    assert computed(compilation, np.array(3, np.int64), np.zeros(10, np.int64))[:4].tolist() == [9, 9, 11, 0]
