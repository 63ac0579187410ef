# SPDX-License-Identifier: Apache-2.0
"""Drivers that tests host in other processes; what they do is told by the model and by environment variables."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from nn_runtime.codes import DeviceTypeCode, FeatureLevel, OperationCode
from nn_runtime.hal.interfaces import DeviceDescription, ExecutionProfile, ProfileRow, UnusableDevice
from nn_runtime.hal.types import ErrorStatus, ExecutionResult, Extension, HalError, Timing
from nn_runtime.testing.sample_drivers import Record, SampleDevice, SamplePreparedModel, uniform_capabilities

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nn_runtime.hal.interfaces import Attributes, IDevice
    from nn_runtime.hal.types import Model, Request

SLOW_S = 20.0
DESCRIPTION = DeviceDescription("hosted", 0, "platform", "vendor", "1", "device", "vendor", "2", DeviceTypeCode.OTHER)
CHANGING = "NN_TEST_HOSTED_CHANGE"
"""Names what the driver says otherwise."""
BREAKING = "NN_TEST_HOSTED_BREAKS"


class PreparedModel(SamplePreparedModel):
    """TANH is slow, LOGISTIC kills the process, ABS, FLOOR and NEG fail; it profiles and takes attributes."""

    codes: tuple[int, ...] = ()

    def execute_synchronously(
        self, request: Request, measure: bool, deadline_ns: int | None, loop_timeout_ns: int | None
    ) -> ExecutionResult:
        self.device.record = Record()  # what it keeps would count as left over
        if OperationCode.TANH in self.codes:
            time.sleep(SLOW_S)
        if OperationCode.LOGISTIC in self.codes:
            os.kill(os.getpid(), 9)
        if OperationCode.ABS in self.codes:
            raise HalError(ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, "told so by the model")
        if OperationCode.FLOOR in self.codes:
            raise KeyError("foreign")
        if OperationCode.NEG in self.codes:
            raise MemoryError("3 GiB")
        return super().execute_synchronously(request, measure, deadline_ns, loop_timeout_ns)

    def execute_profiled(
        self, request: Request, deadline_ns: int | None, loop_timeout_ns: int | None
    ) -> tuple[ExecutionResult, ExecutionProfile]:
        result = self.execute_synchronously(request, False, deadline_ns, loop_timeout_ns)
        return result, ExecutionProfile((ProfileRow((0,), "kernel", 1, 2),))

    def execute_with_attributes(
        self,
        request: Request,
        measure: bool,
        deadline_ns: int | None,
        loop_timeout_ns: int | None,
        attributes: Attributes,
    ) -> ExecutionResult:
        result = self.execute_synchronously(request, measure, deadline_ns, loop_timeout_ns)
        return ExecutionResult(result.output_shapes, Timing(len(attributes), 10))


class HostedDevice(SampleDevice):
    """With all that a driver may have."""

    kind = DeviceTypeCode.OTHER

    def get_type(self) -> DeviceTypeCode:
        return self.kind

    def description(self) -> DeviceDescription:
        return DESCRIPTION

    def statistics(self) -> Mapping[str, int | float]:
        return {"pid": os.getpid()}

    def prepare_model(self, model: Model, *options: object) -> PreparedModel:  # type: ignore[override]
        codes = tuple(operation.type for operation in model.main.operations)
        if OperationCode.RELU6 in codes:
            os.kill(os.getpid(), 9)
        made = super().prepare_model(model, *options)  # type: ignore[arg-type]
        prepared = PreparedModel(self, made.inner)
        prepared.codes = codes
        return prepared

    def prepare_model_with_attributes(self, *options: object) -> PreparedModel:
        return self.prepare_model(*options[:-1])  # type: ignore[arg-type]


def sample() -> list[IDevice | UnusableDevice]:
    change = os.environ.get(CHANGING, "")
    device = HostedDevice(
        "other" if change == "name" else "hosted",
        version="2" if change == "version" else "1",
        feature_level=FeatureLevel.HAL_1_2 if change == "feature level" else FeatureLevel.HAL_1_3,
        capabilities=uniform_capabilities(0.9, 0.9) if change == "capabilities" else None,
    )
    device.kind = DeviceTypeCode.GPU if change == "type" else DeviceTypeCode.OTHER
    if change == "extensions":
        device.script.extensions = (Extension("com.example", {}),)
    device.script.timing = Timing(5_000, 6_000)
    device.script.asynchronous_fences = True
    device.script.cache_files = (1, 1)
    if os.environ.get(BREAKING):
        raise OSError("the driver does not start any more")
    return [device, UnusableDevice("broken", "told so", DESCRIPTION)]


def plain() -> list[IDevice]:
    return [SampleDevice("first"), SampleDevice("second", {OperationCode.RELU})]


def silent() -> list[IDevice]:
    class Silent(SampleDevice):
        def get_version_string(self) -> str:
            raise OSError("nobody there")

    return [Silent("silent"), SampleDevice("speaking")]


def nothing() -> list[UnusableDevice]:
    return [UnusableDevice("broken", "told so", DESCRIPTION)]


def failing() -> list[IDevice]:
    raise ImportError("no such library")


def exiting() -> list[IDevice]:
    raise SystemExit(3)


def listless() -> None:
    """Offer nothing, not even a list."""
