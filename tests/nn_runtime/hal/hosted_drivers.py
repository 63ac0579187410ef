# SPDX-License-Identifier: Apache-2.0
"""Drivers that tests host in other processes; what they do is told by the model and by environment variables."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from nn_runtime.codes import DeviceTypeCode, FeatureLevel, OperationCode
from nn_runtime.hal.interfaces import (
    DeviceDescription,
    ExecutionProfile,
    OperationSupport,
    ProfileRow,
    UnusableDevice,
)
from nn_runtime.hal.plain import PlainBurst
from nn_runtime.hal.types import (
    ErrorStatus,
    ExecutionPreference,
    ExecutionResult,
    Extension,
    HalError,
    OutputShape,
    Timing,
)
from nn_runtime.operand import EXTENSION_TYPES
from nn_runtime.testing.sample_drivers import Record, SampleDevice, SamplePreparedModel, uniform_capabilities

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nn_runtime.hal.interfaces import Attributes, CacheRequest, IBuffer, IDevice, IFencedExecutionCallback
    from nn_runtime.hal.memory import SharedMemory
    from nn_runtime.hal.types import BufferDesc, BufferRole, Model, Request
    from nn_runtime.operand import Dimensions

SLOW_S = 20.0
DESCRIPTION = DeviceDescription("hosted", 0, "platform", "vendor", "1", "device", "vendor", "2", DeviceTypeCode.OTHER)
CHANGING = "NN_TEST_HOSTED_CHANGE"
"""Names what the driver says otherwise."""
BREAKING = "NN_TEST_HOSTED_BREAKS"


class PreparedModel(SamplePreparedModel):
    """TANH is slow, LOGISTIC kills the process, SIN its thread; ABS, FLOOR, NEG and EXP fail.

    It profiles and takes attributes.
    """

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
        if OperationCode.EXP in self.codes:
            raise SystemExit("enough")
        if OperationCode.SIN in self.codes:
            raise KeyboardInterrupt
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


def repeated(*asked: object) -> HalError:
    return HalError(ErrorStatus.GENERAL_FAILURE, repr(asked))


class RepeatingDevice(HostedDevice):
    """Fails with what it was asked for; counts what it was told to let go. It prepares, unless with LOW_POWER."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.counts = {"closed": 0, "freed": 0}

    def statistics(self) -> Mapping[str, int | float]:
        return self.counts

    def prepare_model(self, model: Model, *options: Any) -> PreparedModel:  # type: ignore[override]
        preference, priority, deadline_ns, cache = options
        if preference == ExecutionPreference.LOW_POWER or os.environ.get(CHANGING):
            raise repeated(preference, priority, deadline_ns, shown_cache(cache))
        return RepeatingPreparedModel(self, super().prepare_model(model, *options).inner)

    def prepare_model_with_attributes(self, *options: Any) -> PreparedModel:
        raise repeated(*options[1:4], shown_cache(options[4]), options[5])

    def prepare_model_from_cache(self, deadline_ns: int | None, cache: CacheRequest) -> PreparedModel:
        raise repeated(deadline_ns, shown_cache(cache))

    def allocate(self, desc: BufferDesc, models: object, *roles: Sequence[BufferRole]) -> tuple[IBuffer, int]:  # type: ignore[override]
        if roles[0]:
            raise repeated(desc, *map(list, roles))
        return RepeatingBuffer(self), 7


def shown_cache(cache: CacheRequest | None) -> object:
    """Return the sizes of the model and of the data files, and the token."""
    if cache is None:
        return None
    sizes = [[os.fstat(fd).st_size for fd in files] for files in (cache.model_files, cache.data_files)]
    return *sizes, cache.token


class RepeatingPreparedModel(PreparedModel):
    """Fails with what it was asked for."""

    def execute_synchronously(self, _request: Request, *how: object) -> NoReturn:
        raise repeated(*how)

    def execute_profiled(self, _request: Request, *how: object) -> NoReturn:
        raise repeated(*how)

    def execute_with_attributes(self, _request: Request, *how: object) -> NoReturn:
        raise repeated(*how)

    def execute_fenced(self, _request: Request, wait_for: Sequence[int], *how: object) -> NoReturn:
        raise repeated(len(wait_for), *how)

    def configure_execution_burst(self) -> RepeatingBurst:
        return RepeatingBurst(self)

    def close(self) -> None:
        self.device.counts["closed"] += 1  # type: ignore[attr-defined]


class RepeatingBurst(PlainBurst):
    """Fails as its prepared model does."""

    def __init__(self, prepared: RepeatingPreparedModel) -> None:
        super().__init__(prepared)
        self.counts = prepared.device.counts  # type: ignore[attr-defined]

    def free_memory(self, memory: SharedMemory) -> None:
        self.counts["freed"] += memory.size_bytes

    def close(self) -> None:
        self.counts["closed"] += 10


class RepeatingBuffer:
    """Fails with what it was asked for."""

    def __init__(self, device: RepeatingDevice) -> None:
        self.device = device

    def copy_to(self, destination: SharedMemory) -> None:
        raise repeated(destination.size_bytes)

    def copy_from(self, source: SharedMemory, dimensions: Dimensions) -> None:
        raise repeated(source.size_bytes, dimensions)

    def close(self) -> None:
        self.device.counts["closed"] += 100


def repeating() -> list[IDevice]:
    return [RepeatingDevice("repeating")]


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
    devices: list[IDevice] = [SampleDevice("first"), SampleDevice("second", {OperationCode.RELU})]
    return devices[:1] if os.environ.get(CHANGING) else devices


class Terse(SampleDevice):
    """Gives no reasons; its fenced executions end at once, and return a fence that is none."""

    explain_operations = None  # type: ignore[assignment]

    def get_supported_operations(self, model: Model) -> list[bool]:
        return [operation.type == OperationCode.RELU for operation in model.main.operations]

    def prepare_model(self, *options: Any) -> SamplePreparedModel:
        return TersePreparedModel(self, super().prepare_model(*options).inner)


class TersePreparedModel(SamplePreparedModel):
    def execute_fenced(self, *options: Any) -> tuple[int | None, IFencedExecutionCallback]:
        _, info = super().execute_fenced(*options)
        return -1, info


class Typed(SampleDevice):
    """Its reasons are the types of extensions that are known to its process."""

    def explain_operations(self, model: Model) -> list[OperationSupport]:
        known = {code: (element.is_tensor, element.dtype.itemsize) for code, element in EXTENSION_TYPES.items()}
        return [OperationSupport(False, repr(known))] * len(model.main.operations)


def typed() -> list[IDevice]:
    device = Typed("typed")
    device.script.extensions = (Extension("com.example.hosted", {0: (True, 6), 1: (False, 3), 2: (False, 5)}),)
    return [device]


def terse() -> list[IDevice]:
    return [Terse("terse")]


def silent() -> list[IDevice]:
    class Silent(SampleDevice):
        def get_version_string(self) -> str:
            raise OSError("nobody there")

    return [Silent("silent"), SampleDevice("speaking"), object()]  # type: ignore[list-item]


def talking() -> list[IDevice]:
    print("said by the driver")
    return [SampleDevice("talking", version=os.environ.get("NNRT_DRIVER_HOST", "unset"))]


def nothing() -> list[UnusableDevice]:
    return [UnusableDevice("broken", "told so", DESCRIPTION)]


def failing() -> list[IDevice]:
    raise ImportError("no such library")


def exiting() -> list[IDevice]:
    raise SystemExit(3)


def dying() -> list[IDevice]:
    os._exit(0)


def boundless() -> list[IDevice]:
    """Offer a device one of whose answers no message may bring."""

    class Boundless(SampleDevice):
        def get_version_string(self) -> str:
            return Path("1")  # type: ignore[return-value]

    return [Boundless("boundless")]


def listless() -> None:
    """Offer nothing, not even a list."""


class WrongPreparedModel(SamplePreparedModel):
    """Says that a result of [2, 2] is one of [1, 2], or nothing about the result of RELU; has no burst."""

    def execute_synchronously(self, request: Request, *options: Any) -> ExecutionResult:
        super().execute_synchronously(request, *options)
        shapes: Any = None if len(request.inputs) == 1 else (OutputShape((1, 2)),)
        return ExecutionResult(shapes)

    def execute_fenced(self, *options: Any) -> tuple[int | None, IFencedExecutionCallback]:
        return None, None  # type: ignore[return-value]

    def configure_execution_burst(self) -> Any:
        return None


class Wrong(SampleDevice):
    """Replies what is no reply; prepares none but ADD and RELU."""

    def prepare_model(self, model: Model, *options: Any) -> SamplePreparedModel:  # type: ignore[override]
        if model.main.operations[0].type not in (OperationCode.ADD, OperationCode.RELU):
            return None  # type: ignore[return-value]
        return WrongPreparedModel(self, super().prepare_model(model, *options).inner)

    def allocate(self, *_options: Any) -> tuple[IBuffer, int]:
        return object(), 1  # type: ignore[return-value]


def wrong() -> list[IDevice]:
    return [Wrong("wrong")]
