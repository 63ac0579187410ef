# SPDX-License-Identifier: Apache-2.0
"""Vendor extensions in models (AOSP TestValidation ModelExtensions groups, TestExtensions)."""

from __future__ import annotations

import gc
import itertools

import numpy as np
import pytest

from nn_runtime.codes import OperandCode
from nn_runtime.device import Device
from nn_runtime.errors import BadData, BadState, UnexpectedNull
from nn_runtime.hal.types import Extension
from nn_runtime.model import Model
from nn_runtime.operand import ChannelQuant, OperandType
from nn_runtime.testing.sample_drivers import SampleDevice
from tests.nn_runtime.graphs import chain_model, tensor
from tests.nn_runtime.test_control_flow import RELU

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
    with pytest.raises(BadData, match="0 to 65535"):
        model.extension_operation_type(device, name, 65536)


def test_codes_have_one_prefix_for_a_name(device: Device, name: str) -> None:
    first, second = Model(), Model()
    scalar, other = (first.extension_operand_type(device, name, code) for code in (SCALAR, TENSOR))
    assert (scalar & 0xFFFF, other & 0xFFFF) == (SCALAR, TENSOR)
    assert scalar >> 16 == other >> 16 > 0
    assert second.extension_operand_type(device, name, SCALAR) == scalar
    assert second.extension_operation_type(device, name, 5) == (scalar >> 16 << 16) + 5
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


def test_conflicting_records_disable_an_extension_for_all(device: Device, name: str) -> None:
    same = device_with(Extension(name, {SCALAR: (False, 3), TENSOR: (True, 6)}), name="same")
    Model().extension_operand_type(same, name, SCALAR)
    other = device_with(Extension(name, {SCALAR: (False, 4)}), name="other")
    for found in (device, same, other):
        with pytest.raises(BadData, match="disabled"):
            Model().extension_operand_type(found, name, SCALAR)
    del other, found
    gc.collect()
    Model().extension_operand_type(device, name, SCALAR)


@pytest.mark.parametrize(
    "records",
    [
        [Extension("nodots")],
        [Extension("com.Example")],
        [Extension("com.example-1")],
        [Extension("")],
        [Extension("com.example.size", {0: (True, 0)})],
        [Extension("com.example.twice"), Extension("com.example.twice")],
    ],
)
def test_bad_records_are_ignored(records: list[Extension], caplog: pytest.LogCaptureFixture) -> None:
    assert device_with(*records).extensions == ()
    assert "its extensions are ignored" in caplog.text


def test_extension_support(device: Device, name: str) -> None:
    assert device.extension_support(name)
    assert not device.extension_support(next(_names))


def test_standard_codes_are_not_touched() -> None:
    assert Model().add_operand(OperandType(OperandCode.TENSOR_FLOAT32, (1,))) == 0
