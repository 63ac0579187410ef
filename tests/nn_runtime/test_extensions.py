# SPDX-License-Identifier: Apache-2.0
"""Vendor extensions in models (AOSP TestValidation ModelExtensions groups, TestExtensions)."""

from __future__ import annotations

import gc
import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from nn_runtime import extensions
from nn_runtime.codes import FeatureLevel, OperandCode, is_extension_code
from nn_runtime.compilation import Compilation
from nn_runtime.device import REFERENCE_NAME, Device
from nn_runtime.devices import reference_device
from nn_runtime.errors import BadData, BadState, OperationFailed, UnexpectedNull
from nn_runtime.hal.interfaces import OperationSupport
from nn_runtime.hal.types import ErrorStatus, Extension
from nn_runtime.model import Model
from nn_runtime.operand import ChannelQuant, OperandType
from nn_runtime.testing.aosp_samples import fake
from nn_runtime.testing.sample_drivers import SampleDevice, SamplePreparedModel
from tests.nn_runtime.graphs import chain_model, finished, if_model, numbers, run, tensor, unary_model
from tests.nn_runtime.test_control_flow import RELU, TANH, run_if
from tests.nn_runtime.test_partition import plan_of

if TYPE_CHECKING:
    from nn_runtime.hal import types as hal

_names = (f"com.example.test{number}" for number in itertools.count())
SCALAR, TENSOR = 0, 1


def device_with(*extensions: Extension, name: str = "vendor") -> Device:
    device = SampleDevice(name)
    device.script.extensions = extensions
    return Device(device)


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return next(_names)


@pytest.fixture
def device(name: str) -> Device:
    return device_with(Extension(name, {SCALAR: (False, 3), TENSOR: (True, 6)}))


def test_null_and_unknown(device: Device, name: str) -> None:
    model = Model()
    for call in (model.extension_operand_type, model.extension_operation_type):
        with pytest.raises(UnexpectedNull):
            call(None, name, 0)  # type: ignore[arg-type]
        with pytest.raises(UnexpectedNull):
            call(device, None, 0)  # type: ignore[arg-type]
        with pytest.raises(BadData, match=r"vendor has no extension 'com\.example\.unknown'"):
            call(device, "com.example.unknown", 0)
    with pytest.raises(BadData, match="has no operand type 2"):
        model.extension_operand_type(device, name, 2)
    half: Any = 0.0
    for call in (model.extension_operand_type, model.extension_operation_type):
        with pytest.raises(BadData, match="wanted a whole number"):
            call(device, name, half)
    for code in (-1, 65536):
        with pytest.raises(BadData, match=f"an operation is 0 to 65535, got {code}"):
            model.extension_operation_type(device, name, code)
    for code in (0, 65535):
        assert model.extension_operation_type(device, name, code) & 0xFFFF == code


def test_codes_have_one_prefix_for_a_name(device: Device, name: str) -> None:
    first, second = Model(), Model()
    scalar, other = (first.extension_operand_type(device, name, code) for code in (SCALAR, TENSOR))
    assert (scalar & 0xFFFF, other & 0xFFFF) == (SCALAR, TENSOR)
    assert scalar >> 16 == other >> 16 > 0
    assert second.extension_operand_type(device, name, SCALAR) == scalar
    assert second.extension_operation_type(device, name, 5) == (scalar >> 16 << 16) + 5
    small: Any = np.uint8(5)  # a prefix above it does not fit
    assert second.extension_operation_type(device, name, small) == (scalar >> 16 << 16) + 5
    again = next(_names)
    elsewhere = device_with(Extension(again, {SCALAR: (False, 1)}))
    assert Model().extension_operand_type(elsewhere, again, SCALAR) >> 16 != scalar >> 16


def test_operands_of_extensions(device: Device, name: str) -> None:
    model = Model()
    scalar, other = (model.extension_operand_type(device, name, code) for code in (SCALAR, TENSOR))
    for bad in (
        OperandType(scalar, (1,)),
        OperandType(other, (1,), 1.0),
        OperandType(other, (1,), 0.0, 1),
        OperandType(other, (2**31, 2)),
        OperandType(other, (-1,)),
        OperandType(0x7FFF0000, ()),
    ):
        with pytest.raises(BadData):
            model.add_operand(bad)
    index = model.add_operand(OperandType(other, (2,)))
    with pytest.raises(BadData):
        model.set_operand_symm_per_channel_quant_params(index, ChannelQuant((1.0, 1.0), 0))


def test_extension_data(device: Device, name: str) -> None:
    model = Model()
    code = model.extension_operand_type(device, name, TENSOR)
    plain, x, y = (
        model.add_operand(tensor(2)),
        model.add_operand(OperandType(code)),
        model.add_operand(OperandType(code)),
    )
    with pytest.raises(BadData, match="only an operand of an extension's type"):
        model.set_operand_extension_data(plain, b"1")
    with pytest.raises(BadData, match="out of range"):
        model.set_operand_extension_data(9, b"1")
    model.set_operand_extension_data(x, b"first")
    model.set_operand_extension_data(x, b"second")
    model.set_operand_extension_data(y, b"first")
    model.set_operand_extension_data(y, b"")
    model.add_operation(model.extension_operation_type(device, name, 0), [x, plain], [y])
    model.identify_inputs_and_outputs([x, plain], [y])
    model.finish()
    operands = model.hal.main.operands
    assert [operand.extension_data for operand in operands] == [None, b"second", None]
    assert model.hal.extension_name_to_prefix == {name: code >> 16}
    with pytest.raises(BadState):
        model.set_operand_extension_data(x, b"")


def test_values_of_extension_operands(device: Device, name: str) -> None:
    model = Model()
    scalar, other = (model.extension_operand_type(device, name, code) for code in (SCALAR, TENSOR))
    one, several = model.add_operand(OperandType(scalar)), model.add_operand(OperandType(other, (2,)))
    with pytest.raises(BadData, match="3 bytes is wanted, got 4"):
        model.set_operand_value(one, np.zeros(4, np.uint8))
    with pytest.raises(BadData, match="wanted an array"):
        model.set_operand_value(one, 1)
    model.set_operand_value(one, np.zeros(3, np.uint8))
    model.set_operand_value(several, np.zeros(3, np.float32))
    for dims in ((), (0,), (2, 0)):
        index = model.add_operand(OperandType(other, dims))
        with pytest.raises(BadData, match="known dimensions"):
            model.set_operand_value(index, np.zeros(12, np.uint8))


def test_operations_of_extensions_check_only_their_operands_numbers(device: Device, name: str) -> None:
    model = Model()
    x = model.add_operand(tensor(2))
    code = model.extension_operation_type(device, name, 0)
    with pytest.raises(BadData, match="operand 7"):
        model.add_operation(code, [7], [x])
    with pytest.raises(BadData, match="not registered"):
        model.add_operation(0x7FFE0000, [x], [x])
    model.add_operation(code, [x, x, x], [])


def test_a_model_lists_only_the_extensions_it_uses(device: Device, name: str) -> None:
    Model().extension_operand_type(device, name, SCALAR)
    assert chain_model([RELU]).hal.extension_name_to_prefix == {}


class Vendor(SampleDevice):
    """A device for operations of extensions alone, all of which compute TANH."""

    def explain_operations(self, model: hal.Model) -> list[OperationSupport]:
        return [OperationSupport(is_extension_code(operation.type)) for operation in model.main.operations]

    def prepare_model(self, model: hal.Model, *arguments: Any) -> SamplePreparedModel:
        return super().prepare_model(unary_model(TANH).hal, *arguments)


def vendor_of(name: str) -> Vendor:
    vendor = Vendor("vendor")
    vendor.script.extensions = (Extension(name),)
    return vendor


def vendor_model(vendor: Vendor, name: str) -> Model:
    """One operation of the extension."""
    model = Model()
    x, y = (model.add_operand(tensor(2, 3)) for _ in range(2))
    model.add_operation(model.extension_operation_type(Device(vendor), name, 0), [x], [y])
    model.identify_inputs_and_outputs([x], [y])
    model.finish()
    return model


@pytest.mark.parametrize("partition", ["aosp", "cost"])
def test_control_flow_around_operations_of_extensions_is_interpreted(partition: str, name: str) -> None:
    """No device takes the IF whole: neither the CPU with its operation, nor the vendor's with the RELU."""
    vendor = vendor_of(name)
    model = if_model(unary_model(RELU, (2, 3)), vendor_model(vendor, name), (2, 3))
    compilation = Compilation(model, [Device(vendor), reference_device()])
    compilation.set_partition(partition)
    compilation.finish()
    assert [step.device.name for step in plan_of(compilation).steps] == [REFERENCE_NAME, "vendor"]
    for condition, expected in ((True, np.maximum(numbers(2, 3), 0)), (False, np.tanh(numbers(2, 3)))):
        np.testing.assert_allclose(run_if(compilation, condition, numbers(2, 3)), expected, rtol=1e-6)


def test_the_cpu_never_takes_over_from_a_vendor_in_a_branch(name: str, caplog: pytest.LogCaptureFixture) -> None:
    vendor = vendor_of(name)
    model = if_model(unary_model(RELU, (2, 3)), vendor_model(vendor, name), (2, 3))
    compilation = finished(model, [vendor], fallback=True)
    vendor.script.execute = ErrorStatus.GENERAL_FAILURE
    with pytest.raises(OperationFailed, match="vendor: told to fail at execute"):
        run_if(compilation, False, numbers(2, 3))
    assert "goes to" not in caplog.text


def test_nobody_for_an_operation_of_an_extension_in_a_branch(name: str) -> None:
    model = if_model(unary_model(RELU, (2, 3)), vendor_model(vendor_of(name), name), (2, 3))
    with pytest.raises(BadData, match=r"operation 0, the model of its input 2: operation 0 .*: no device can run it"):
        finished(model, [], fallback=True)


@pytest.mark.parametrize("version", [FeatureLevel.HAL_1_0, FeatureLevel.HAL_1_1, FeatureLevel.HAL_1_2])
def test_operations_of_extensions_elsewhere_in_a_model_are_nothing_to_an_older_driver(
    version: FeatureLevel, name: str
) -> None:
    """Drivers before HAL 1.2 know no extensions, and take models without them alone."""
    vendor = vendor_of(name)
    model = Model()
    x, between, y = (model.add_operand(tensor(2, 3)) for _ in range(3))
    model.add_operation(RELU, [x], [between])
    model.add_operation(model.extension_operation_type(Device(vendor), name, 0), [between], [y])
    model.identify_inputs_and_outputs([x], [y])
    model.finish()
    old = fake("old", version, {RELU})
    compilation = finished(model, [old.device, vendor])
    assert [step.device.name for step in plan_of(compilation).steps] == ["old", "vendor"]
    (result,) = run(compilation, [numbers(2, 3)], [(2, 3)])
    np.testing.assert_allclose(result, np.tanh(np.maximum(numbers(2, 3), 0)), rtol=1e-6)


def test_conflicting_records_disable_an_extension_for_all(device: Device, name: str) -> None:
    same = device_with(Extension(name, {SCALAR: (False, 3), TENSOR: (True, 6)}), name="same")
    Model().extension_operand_type(same, name, SCALAR)
    other = device_with(Extension(name, {SCALAR: (False, 4)}), name="other")
    for found in (device, same, other):
        with pytest.raises(BadData, match=f"extension {name} is disabled: {found.name} and .* define it differently"):
            Model().extension_operand_type(found, name, SCALAR)
    del other, found
    gc.collect()
    Model().extension_operand_type(device, name, SCALAR)


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([Extension("nodots")], "extension name 'nodots': wanted"),
        ([Extension("com.Example")], "wanted"),
        ([Extension("com.example-1")], "wanted"),
        ([Extension("")], "wanted"),
        ([Extension("com.example.size", {0: (True, 0)})], "and a size > 0, got 0 of 0 bytes"),
        ([Extension("com.example.code", {-1: (True, 4)})], "wanted a code of 0 to 65535 and a size > 0, got -1 of 4"),
        ([Extension("com.example.code", {65536: (True, 4)})], "com.example.code: wanted a code of 0 to 65535"),
        ([Extension(f"com.example.{what}") for what in ("once", "twice", "twice")], "com.example.twice: it is listed"),
    ],
)
def test_bad_records_are_ignored(records: list[Extension], reason: str, caplog: pytest.LogCaptureFixture) -> None:
    assert device_with(*records).extensions == ()
    assert "its extensions are ignored" in caplog.text
    assert reason in caplog.text


def test_the_least_and_the_greatest_operand_type(name: str) -> None:
    device = device_with(Extension(name, {0: (True, 4), 65535: (True, 4)}))
    codes = [Model().extension_operand_type(device, name, code) & 0xFFFF for code in (0, 65535)]
    assert codes == [0, 65535]


def test_attributes_have_a_name_and_a_code(name: str) -> None:
    another = next(_names)
    device, attributes = device_with(Extension(name), Extension(another)), ()
    for owner, code in ((another, 65535), (name, 65535), (name, 0), (another, 0)):
        attributes = extensions.with_attribute(attributes, owner, code, b"data")
    owners = [(owner, code) for owner, code, _ in attributes]
    assert owners == sorted((owner, code) for owner in (name, another) for code in (0, 65535))
    with pytest.raises(BadData, match=f"extension attribute {name} 0: it is there already"):
        extensions.with_attribute(attributes, name, 0, b"other data")
    half: Any = 0.5
    with pytest.raises(BadData, match="wanted a whole number"):
        extensions.with_attribute(attributes, name, half, b"data")
    assert device.extension_support(another)


def test_no_prefix_is_given_twice(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extensions, "_numbers", itertools.count(65535))
    for table in ("_prefixes", "_names"):
        monkeypatch.setattr(extensions, table, dict(getattr(extensions, table)))
    another = next(_names)
    device = device_with(Extension(name), Extension(another))
    assert Model().extension_operation_type(device, name, 1) == 0xFFFF0001
    with pytest.raises(BadData, match=f"extension {another}: all 65535 prefixes are taken"):
        Model().extension_operation_type(device, another, 1)
    assert Model().extension_operation_type(device, name, 2) == 0xFFFF0002


def test_extension_support(device: Device, name: str) -> None:
    assert device.extension_support(name)
    assert not device.extension_support(next(_names))
    with pytest.raises(UnexpectedNull, match="the name is None"):
        device.extension_support(None)  # type: ignore[arg-type]


def test_standard_codes_are_not_touched() -> None:
    assert Model().add_operand(OperandType(OperandCode.TENSOR_FLOAT32, (1,))) == 0
