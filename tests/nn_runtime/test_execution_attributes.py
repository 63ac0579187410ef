# SPDX-License-Identifier: Apache-2.0
"""Attributes that an application hands to the driver of a vendor's extension."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from nn_runtime.burst import Burst
from nn_runtime.compilation import Compilation
from nn_runtime.device import Device
from nn_runtime.errors import (
    BadData,
    BadState,
    MissedDeadline,
    UnexpectedNull,
)
from nn_runtime.event import Event
from nn_runtime.execution import Execution
from nn_runtime.hal import dynamic_quantization
from nn_runtime.hal.fences import Fence
from nn_runtime.hal.types import ErrorStatus, Extension
from nn_runtime.testing.sample_drivers import SampleDevice
from tests.nn_runtime.computing import bind_all
from tests.nn_runtime.graphs import add_model, finished

if TYPE_CHECKING:
    from collections.abc import Callable


class Attributed(SampleDevice):
    """A device that takes attributes of its extension."""

    def __init__(self) -> None:
        super().__init__("attributed")
        self.script.extensions = (Extension("com.example.attributes"),)
        self.prepared_with: list[object] = []

    def prepare_model_with_attributes(self, *arguments: object) -> object:
        self.prepared_with.append(arguments[-1])
        prepared = self.prepare_model(*arguments[:-1])  # type: ignore[arg-type]
        prepared.execute_with_attributes = self.execute_with(prepared)  # type: ignore[attr-defined]
        return prepared

    def execute_with(self, prepared: object) -> Callable[..., object]:
        def execute(*arguments: object) -> object:
            self.prepared_with.append(arguments[-1])
            return prepared.execute_synchronously(*arguments[:-1])  # type: ignore[attr-defined]

        return execute


NAME = "com.example.attributes"


def test_extension_attributes_reach_the_driver() -> None:
    """AOSP AddExtensionAttribute, ExecutionAddExtensionAttribute for one device."""
    device = Attributed()
    compilation = Compilation(add_model(), [Device(device)])
    for call in (
        lambda: compilation.add_extension_attribute(None, 0, b""),  # type: ignore[arg-type]
        lambda: compilation.add_extension_attribute(NAME, 0, None),
    ):  # type: ignore[arg-type]
        with pytest.raises(UnexpectedNull):
            call()
    compilation.add_extension_attribute(NAME, 2, b"second")
    compilation.add_extension_attribute(NAME, 1, b"first")
    with pytest.raises(BadData, match="there already"):
        compilation.add_extension_attribute(NAME, 1, b"again")
    with pytest.raises(BadData, match="no device has an extension"):
        compilation.add_extension_attribute("com.example.unknown", 1, b"")
    for code in (-1, 65536):
        with pytest.raises(BadData, match=f"a code is 0 to 65535, got {code}"):
            compilation.add_extension_attribute(NAME, code, b"")
    compilation.finish()
    with pytest.raises(BadState):
        compilation.add_extension_attribute(NAME, 3, b"")
    execution = Execution(compilation)
    with pytest.raises(UnexpectedNull):
        execution.add_extension_attribute(NAME, 0, None)  # type: ignore[arg-type]
    execution.add_extension_attribute(NAME, 7, b"run")
    with pytest.raises(BadData, match="there already"):
        execution.add_extension_attribute(NAME, 7, b"run")
    bind_all(execution)
    execution.compute()
    with pytest.raises(BadState):
        execution.add_extension_attribute(NAME, 8, b"")
    assert device.prepared_with == [((NAME, 1, b"first"), (NAME, 2, b"second")), ((NAME, 7, b"run"),)]


@pytest.mark.parametrize("count", [0, 2])
def test_extension_attributes_need_one_explicit_device(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNRT_DEVICE", "cpu")
    devices = [Device(Attributed()), Device(SampleDevice("other"))][:count]
    compilation = Compilation(add_model(), devices or None)
    with pytest.raises(BadData, match="exactly one device"):
        compilation.add_extension_attribute(NAME, 0, b"")
    compilation.finish()
    with pytest.raises(BadState, match="finished"):
        compilation.add_extension_attribute(NAME, 0, b"")
    with pytest.raises(BadData, match="exactly one device"):
        Execution(compilation).add_extension_attribute(NAME, 0, b"")


@pytest.mark.parametrize("way", ["compute", "asynchronous", "burst", "fenced"])
def test_extension_attributes_go_every_way(way: str) -> None:
    device = Attributed()
    compilation = Compilation(add_model(), [Device(device)])
    compilation.add_extension_attribute(NAME, 1, b"compilation")
    compilation.finish()
    execution = Execution(compilation)
    execution.add_extension_attribute(NAME, 7, b"run")
    output = bind_all(execution)
    device.prepared_with.clear()
    if way == "burst":
        with Burst(compilation) as burst:
            execution.burst_compute(burst)
    elif way == "fenced":
        gate = Fence()
        event = execution.start_compute_with_dependencies([Event.from_sync_fence_fd(gate.fd)])
        assert not device.prepared_with
        gate.signal()
        event.wait()
        assert not device.record.fenced
    elif way == "asynchronous":
        execution.start_compute().wait()
    else:
        execution.compute()
    assert device.prepared_with == [((NAME, 7, b"run"),)]
    assert output.any()


@pytest.mark.parametrize("way", ["reusable", "profiled"])
def test_extension_attributes_come_before_what_knows_none(way: str) -> None:
    """A driver that also binds requests and reports profiles is executed with the attributes all the same."""
    device = Attributed()
    compilation = Compilation(add_model(), [Device(device)])
    compilation.add_extension_attribute(NAME, 1, b"compilation")
    compilation.finish()
    assert compilation.plan is not None
    prepared = compilation.plan.steps[0].prepared

    def without(*arguments: object) -> None:
        pytest.fail(f"executed without attributes: {arguments}")

    prepared.create_reusable_execution = without  # type: ignore[attr-defined]
    prepared.execute_profiled = without  # type: ignore[attr-defined]
    execution = Execution(compilation)
    execution.set_reusable(way == "reusable")
    execution.add_extension_attribute(NAME, 7, b"run")
    bind_all(execution)
    device.prepared_with.clear()
    execution.compute_profiled() if way == "profiled" else execution.compute()
    assert device.prepared_with == [((NAME, 7, b"run"),)]


def test_a_fenced_execution_with_attributes_fails_as_others_do() -> None:
    device = Attributed()
    compilation = Compilation(add_model(), [Device(device)])
    compilation.add_extension_attribute(NAME, 1, b"compilation")
    compilation.finish()
    execution = Execution(compilation)
    execution.add_extension_attribute(NAME, 7, b"run")
    bind_all(execution)
    device.script.execute = ErrorStatus.MISSED_DEADLINE_TRANSIENT
    with pytest.raises(MissedDeadline, match="told to fail"):
        execution.start_compute_with_dependencies([]).wait()


@pytest.mark.parametrize("asked", [[True], [False], [False, True], [True, False]])
def test_drivers_are_told_whether_they_may_compute_on_bytes(asked: list[bool]) -> None:
    device = Attributed()
    compilation = Compilation(add_model(), [Device(device)])
    for allowed in asked:
        compilation.set_dynamic_quantization(allowed)
    compilation.finish()
    (attributes,) = device.prepared_with
    assert attributes == ((dynamic_quantization.EXTENSION.name, dynamic_quantization.ALLOWED_CODE, bytes([asked[-1]])),)
    assert dynamic_quantization.is_allowed(attributes) == asked[-1]  # type: ignore[arg-type]


def test_drivers_that_take_no_attributes_ignore_them() -> None:
    device = SampleDevice("plain")
    device.script.extensions = (Extension(NAME),)
    compilation = finished(add_model(), [device])
    execution = Execution(compilation)
    execution.add_extension_attribute(NAME, 7, b"run")
    output = bind_all(execution)
    execution.start_compute_with_dependencies([]).wait()
    assert len(device.record.fenced) == 1
    assert output.any()
