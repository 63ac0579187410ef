# SPDX-License-Identifier: Apache-2.0
"""A driver of any version behind its adapter, and ways in which it fails."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import FeatureLevel
from nn_runtime.hal.types import (
    ErrorStatus,
    ExecutionPreference,
    HalError,
    Priority,
)
from nn_runtime.hal.versions import adapt, serve
from nn_runtime.hal.versions.callbacks import ServiceDied
from nn_runtime.testing.sample_drivers import SampleDevice, uniform_capabilities
from tests.nn_runtime.hal.models import add_model

if TYPE_CHECKING:
    from collections.abc import Callable

    from nn_runtime.hal.versions.adapted_model import AdaptedPreparedModel

V10, V11, V12, V13 = (FeatureLevel.HAL_1_0, FeatureLevel.HAL_1_1, FeatureLevel.HAL_1_2, FeatureLevel.HAL_1_3)
VERSIONS = (V10, V11, V12, V13)
SUFFIX = {V10: "", V11: "_1_1", V12: "_1_2", V13: "_1_3"}
MINE = (ExecutionPreference.LOW_POWER, Priority.HIGH)
FAILURES = (
    ErrorStatus.GENERAL_FAILURE,
    ErrorStatus.DEVICE_UNAVAILABLE,
    ErrorStatus.INVALID_ARGUMENT,
    ErrorStatus.OUTPUT_INSUFFICIENT_SIZE,
)


class Driver:
    """A driver of a version behind its adapter; methods of `served` are replaced by tests."""

    def __init__(self, version: FeatureLevel) -> None:
        self.version = version
        self.sample = SampleDevice("old", capabilities=uniform_capabilities(0.3, 0.4), version="7")
        self.served = serve(self.sample, version)
        self.device = adapt(self.served, "old")

    def replace(self, name: str, method: Callable[..., object], target: object | None = None) -> None:
        setattr(self.served if target is None else target, name, method)

    def prepare(self, dims: tuple[int, ...] = (2, 2)) -> AdaptedPreparedModel:
        return self.device.prepare_model(add_model((2, 2), dims), *MINE, None, None)

    def prepared_method(self) -> str:
        return "prepare_model" + SUFFIX[self.version]


def raising(error: Exception) -> Callable[..., object]:
    def call(*_arguments: object) -> object:
        raise error

    return call


def arrays() -> tuple[list[np.ndarray], np.ndarray]:
    a = np.arange(4, dtype=np.float32).reshape(2, 2)
    return [a, a + 1], np.zeros((2, 2), np.float32)


def status_of(call: Callable[[], object]) -> ErrorStatus:
    with pytest.raises(HalError) as caught:
        call()
    return caught.value.status


TRANSPORT = ((OSError("the transport broke"), ErrorStatus.GENERAL_FAILURE), (ServiceDied(), ErrorStatus.DEAD_OBJECT))


class Mortal(Driver):
    """A driver whose service may die while something is awaited."""

    def __init__(self, version: FeatureLevel) -> None:
        super().__init__(version)
        self.recipients: list[Callable[[], None]] = []
        self.served.link_to_death = self.recipients.append  # type: ignore[attr-defined]
        self.served.unlink_to_death = self.recipients.remove  # type: ignore[attr-defined]
        self.device = adapt(self.served, "old")

    def die_soon(self, *_arguments: object) -> int:
        threading.Timer(0.05, lambda: [recipient() for recipient in self.recipients]).start()
        return 0
