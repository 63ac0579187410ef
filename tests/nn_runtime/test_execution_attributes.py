# SPDX-License-Identifier: Apache-2.0
"""Attributes that an application hands to the driver of a vendor's extension."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from nn_runtime.compilation import Compilation
from nn_runtime.device import Device
from nn_runtime.errors import (
    BadData,
    BadState,
    UnexpectedNull,
)
from nn_runtime.execution import Execution
from nn_runtime.hal.types import Extension
from nn_runtime.testing.sample_drivers import SampleDevice
from tests.nn_runtime.computing import bind_all
from tests.nn_runtime.graphs import add_model

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
    with pytest.raises(BadData, match="0 to 65535"):
        compilation.add_extension_attribute(NAME, 65536, b"")
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
    with pytest.raises(BadData, match="exactly one device"):
        Execution(compilation).add_extension_attribute(NAME, 0, b"")
