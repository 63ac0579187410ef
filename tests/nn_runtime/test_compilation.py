# SPDX-License-Identifier: Apache-2.0
"""Compilations: setters, states, explicit devices (AOSP TestValidation, Compilation groups)."""

from __future__ import annotations

import pytest

from nn_runtime.burst import Burst
from nn_runtime.codes import FeatureLevel, OperationCode, PreferenceCode, PriorityCode
from nn_runtime.compilation import Compilation
from nn_runtime.device import Device
from nn_runtime.devices import Selection, reference_device
from nn_runtime.errors import BadData, BadState, MissedDeadline, UnexpectedNull
from nn_runtime.execution import Execution
from nn_runtime.hal.types import ErrorStatus, ExecutionPreference, Priority
from nn_runtime.memory_desc import MemoryDesc
from nn_runtime.model import Model
from nn_runtime.testing.sample_drivers import SampleDevice
from tests.nn_runtime.graphs import add_model, finished


def test_the_model_must_be_finished() -> None:
    with pytest.raises(BadState):
        Compilation(Model(), [reference_device()])
    with pytest.raises(UnexpectedNull):
        Compilation(None)  # type: ignore[arg-type]


def test_the_list_of_devices() -> None:
    model, device = add_model(), reference_device()
    with pytest.raises(BadData, match="empty"):
        Compilation(model, [])
    with pytest.raises(BadData, match="twice"):
        Compilation(model, [device, device])
    with pytest.raises(UnexpectedNull):
        Compilation(model, [None])  # type: ignore[list-item]


def test_setters_check_their_values_and_refuse_after_finish() -> None:
    compilation = Compilation(add_model(), [reference_device()])
    for bad in (-1, 3):
        with pytest.raises(BadData, match=f"got {bad}"):
            compilation.set_preference(bad)
    with pytest.raises(BadData, match=r"LOW \(90\), MEDIUM \(100\), HIGH \(110\), got 0"):
        compilation.set_priority(0)
    with pytest.raises(BadData):
        compilation.set_partition("fastest")
    with pytest.raises(BadData, match="set_dynamic_quantization: allowed: wanted a bool, got 1"):
        compilation.set_dynamic_quantization(1)  # type: ignore[arg-type]
    compilation.set_timeout(2**64 - 1)
    compilation.finish()
    for call in (
        lambda: compilation.set_preference(PreferenceCode.LOW_POWER),
        lambda: compilation.set_priority(PriorityCode.HIGH),
        lambda: compilation.set_timeout(0),
        lambda: compilation.set_partition("cost"),
        lambda: compilation.set_dynamic_quantization(True),
        compilation.finish,
    ):
        with pytest.raises(BadState, match="finished"):
            call()


def test_preference_priority_and_deadline_reach_the_driver() -> None:
    device = SampleDevice("sample")
    compilation = Compilation(add_model(), [Device(device)])
    compilation.set_preference(PreferenceCode.SUSTAINED_SPEED)
    compilation.set_priority(PriorityCode.HIGH)
    compilation.set_timeout(10**12)
    compilation.finish()
    assert device.record.preferences == [(ExecutionPreference.SUSTAINED_SPEED, Priority.HIGH)]
    assert device.record.deadlines_ns[0] is not None


def test_a_timeout_needs_exactly_one_explicit_device() -> None:
    model, device = add_model(), Device(SampleDevice("sample"))
    loose = Compilation.for_selection(model, Selection((device, reference_device()), False))
    for compilation in (loose, Compilation(model, [device, reference_device()])):
        with pytest.raises(BadData, match="exactly one device"):
            compilation.set_timeout(1000)


def test_a_missed_deadline_at_finish() -> None:
    device = SampleDevice("sample")
    device.script.prepare = ErrorStatus.MISSED_DEADLINE_PERSISTENT
    compilation = Compilation(add_model(), [Device(device)])
    compilation.set_timeout(1)
    with pytest.raises(MissedDeadline):
        compilation.finish()


def test_nothing_can_be_made_of_an_unfinished_or_failed_compilation() -> None:
    device = SampleDevice("sample")
    device.script.prepare = ErrorStatus.GENERAL_FAILURE
    failed = Compilation(add_model(), [Device(device)])
    with pytest.raises(RuntimeError, match="told to fail"):
        failed.finish()
    for compilation in (failed, Compilation(add_model(), [reference_device()])):
        with pytest.raises(BadState):
            Execution(compilation)
        with pytest.raises(BadState):
            Burst(compilation)
        with pytest.raises(BadState):
            compilation.preferred_memory_alignment_for_input(0)
        with pytest.raises(BadData):
            MemoryDesc().add_input_role(compilation, 0, 1.0)


def test_preferred_alignment_and_padding() -> None:
    compilation = finished(add_model(), [SampleDevice("sample")])
    assert compilation.preferred_memory_alignment_for_input(0) == 64
    assert compilation.preferred_memory_alignment_for_output(0) == 64
    assert compilation.preferred_memory_padding_for_output(0) == 1
    with pytest.raises(BadData, match="output 1 is out of range, the model has 1"):
        compilation.preferred_memory_alignment_for_output(1)
    newer = finished(add_model(), [SampleDevice("sample", feature_level=FeatureLevel.LEVEL_5)])
    assert newer.preferred_memory_padding_for_input(1) == 64
    with pytest.raises(BadData, match="input 2 is out of range, the model has 2"):
        compilation.preferred_memory_padding_for_input(2)


def test_the_selector_in_force_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNRT_DEVICE", "cpu")
    with Compilation(add_model()) as compilation:
        assert [device.name for device in compilation.devices] == ["nnapi-reference"]
        assert not compilation.is_explicit
        compilation.finish()


def test_an_operation_that_no_device_takes_is_named_with_every_reason() -> None:
    compilation = Compilation(add_model(), [Device(SampleDevice("picky", {OperationCode.MUL}))])
    with pytest.raises(BadData, match=r"operation 0 ADD: no device can run it \(picky: ADD is not on the list\)"):
        compilation.finish()


def test_devices_may_come_from_a_generator() -> None:
    model = add_model()
    compilation = Compilation(model, (device for device in [Device(SampleDevice("sample"))]))  # type: ignore[arg-type]
    compilation.finish()
    assert compilation.plan is not None
    assert [step.device.name for step in compilation.plan.steps] == ["sample"]
    assert model.supported_operations(device for device in [Device(SampleDevice("sample"))]) == [True]  # type: ignore[arg-type]
    with pytest.raises(BadData, match="the list of devices is empty"):
        Compilation(model, (device for device in ()))  # type: ignore[arg-type]


def test_a_compilation_says_where_it_runs() -> None:
    compilation = Compilation(add_model(), [Device(SampleDevice("sample")), reference_device()])
    assert repr(compilation) == "<Compilation not finished>"
    compilation.finish()
    assert repr(compilation) == "<Compilation on sample>"
    compilation.close()
    assert repr(compilation) == "<Compilation closed>"
