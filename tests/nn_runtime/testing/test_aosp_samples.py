# SPDX-License-Identifier: Apache-2.0
"""The family of sample devices: what each takes, and who wins with which preference."""

from __future__ import annotations

import numpy as np
import pytest

from nn_runtime.codes import DeviceTypeCode, FeatureLevel, FuseCode, OperandCode, OperationCode, PreferenceCode
from nn_runtime.compilation import Compilation
from nn_runtime.device import REFERENCE_NAME, Device
from nn_runtime.devices import Selection, reference_device
from nn_runtime.errors import OperationFailed, ResourceExhausted
from nn_runtime.hal.remote import hosted
from nn_runtime.hal.types import ErrorStatus
from nn_runtime.model import Model
from nn_runtime.testing import aosp_samples
from nn_runtime.testing.aosp_samples import FLOATS, QUANTIZED, accelerator, fake, family
from nn_runtime.testing.sample_drivers import uniform_capabilities
from tests.nn_runtime.graphs import add, add_model, chain_model, finished, numbers, run, scalar, tensor

Q8 = OperandCode.TENSOR_QUANT8_ASYMM
VERSIONS = (FeatureLevel.HAL_1_0, FeatureLevel.HAL_1_1, FeatureLevel.HAL_1_2, FeatureLevel.HAL_1_3)
NAMES = ["all", "float_fast", "float_slow", "float_xs", "quant", "minimal", "dsp"]


def quantized_add(code: OperandCode = Q8) -> Model:
    model = Model()
    zero = 0 if code == OperandCode.TENSOR_QUANT8_ASYMM_SIGNED else 128
    a, b, result = (model.add_operand(tensor(2, 3, code=code, scale=0.5, zero_point=zero)) for _ in range(3))
    add(model, a, b, result)
    model.identify_inputs_and_outputs([a, b], [result])
    model.finish()
    return model


def takers(model: Model) -> set[str]:
    devices = [Device(one) for one in family()]
    taking = {one.name for one in devices if all(model.supported_operations([one]))}
    return {name.removeprefix("nnapi-sample_") for name in taking}


def test_names_versions_and_figures() -> None:
    devices = [Device(one) for one in family()]
    assert [one.name for one in devices] == [f"nnapi-sample_{name}" for name in NAMES]
    for one in devices:
        assert one.version
        table = one.capabilities
        assert OperandCode.MODEL not in table.operand_performance or one.name == "nnapi-sample_all"
        assert all(info.exec_time > 0 and info.power_usage > 0 for info in table.operand_performance.values())
    assert devices[-1].type == DeviceTypeCode.ACCELERATOR


def test_who_takes_what() -> None:
    floats = {"all", "float_fast", "float_slow", "float_xs", "minimal"}
    assert takers(add_model()) == floats
    assert takers(add_model((2000,))) == floats - {"float_xs"}
    assert takers(chain_model([OperationCode.TANH])) == floats - {"minimal"}
    assert takers(quantized_add()) == {"all", "quant", "dsp"}
    assert takers(quantized_add(OperandCode.TENSOR_QUANT8_ASYMM_SIGNED)) == {"all", "quant", "dsp"}


def test_preferences_choose() -> None:
    devices = [Device(one) for one in family() if one.name.startswith("nnapi-sample_float")]
    large = add_model((2000,))
    for model, preference, wanted in (
        (large, PreferenceCode.FAST_SINGLE_ANSWER, "nnapi-sample_float_fast"),
        (large, PreferenceCode.LOW_POWER, "nnapi-sample_float_slow"),
        (add_model(), PreferenceCode.FAST_SINGLE_ANSWER, "nnapi-sample_float_xs"),
        (quantized_add(), PreferenceCode.FAST_SINGLE_ANSWER, REFERENCE_NAME),
    ):
        compilation = Compilation.for_selection(model, Selection((*devices, reference_device()), False))
        compilation.set_preference(preference)
        compilation.finish()
        assert compilation.plan is not None
        assert [step.device.name for step in compilation.plan.steps] == [wanted]


def test_the_accelerator_takes_8_bit_data_alone() -> None:
    device = accelerator()
    table = device.get_capabilities()
    assert table.operand_performance[OperandCode.TENSOR_FLOAT32].exec_time == 30.0
    assert table.operand_performance[Q8].exec_time < 1
    assert QUANTIZED.isdisjoint(FLOATS)
    model = Model()
    x = model.add_operand(tensor(2, 3))
    a, b = (model.add_operand(tensor(2, 3, code=Q8, scale=0.5, zero_point=128)) for _ in range(2))
    y, z = (model.add_operand(tensor(2, 3)) for _ in range(2))
    model.add_operation(OperationCode.QUANTIZE, [x], [a])
    model.add_operation(OperationCode.ADD, [a, a, scalar(model, FuseCode.NONE)], [b])
    model.add_operation(OperationCode.DEQUANTIZE, [b], [y])
    model.add_operation(OperationCode.TANH, [y], [z])
    model.identify_inputs_and_outputs([x], [z])
    model.finish()
    answers = model.supported_operations([Device(device)])
    assert answers == [True, True, True, False]
    compilation = finished(model, [device], fallback=True)
    assert compilation.plan is not None
    placed = [placement.device.name for placement in compilation.plan.placements]
    # QUANTIZE reads float, for which the CPU is 30 times better.
    assert placed == [REFERENCE_NAME, device.name, device.name, REFERENCE_NAME]
    (result,) = run(compilation, [numbers(2, 3)], [(2, 3)])
    np.testing.assert_allclose(result, np.tanh(2 * np.round(numbers(2, 3) / 0.5) * 0.5), atol=0.05)


@pytest.mark.parametrize("version", VERSIONS)
def test_fakes_of_any_version_capabilities_and_failure(version: FeatureLevel) -> None:
    one = fake("fake", version, {OperationCode.ADD}, uniform_capabilities(0.25, 0.75))
    device = Device(one.device)
    assert device.feature_level == version
    assert device.capabilities.operand_performance[OperandCode.TENSOR_FLOAT32].power_usage == 0.75
    compilation = finished(add_model(), [one.device])
    (result,) = run(compilation, [numbers(2, 3), numbers(2, 3)], [(2, 3)])
    np.testing.assert_allclose(result, 2 * numbers(2, 3))
    assert len(one.sample.record.requests) == 1
    one.sample.script.execute = ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
    wanted = ResourceExhausted if version >= FeatureLevel.HAL_1_3 else OperationFailed
    with pytest.raises(wanted):
        run(compilation, [numbers(2, 3), numbers(2, 3)], [(2, 3)])
    one.sample.script.prepare = ErrorStatus.GENERAL_FAILURE
    with pytest.raises(OperationFailed):
        finished(add_model(), [one.device])


def test_the_family_in_a_process_of_its_own() -> None:
    devices = hosted("nn_runtime.testing.aosp_samples:devices")
    assert [one.name for one in devices] == [one.name for one in aosp_samples.devices()]
    compilation = finished(add_model(), [devices[1]])  # type: ignore[list-item]
    (result,) = run(compilation, [numbers(2, 3), numbers(2, 3)], [(2, 3)])
    np.testing.assert_allclose(result, 2 * numbers(2, 3))
    compilation.close()
    for one in devices:
        one.close()  # type: ignore[union-attr]
