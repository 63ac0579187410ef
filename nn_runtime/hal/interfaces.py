# SPDX-License-Identifier: Apache-2.0
"""What a driver implements: IDevice, IPreparedModel, IBuffer, and the optional parts that HAL 1.3 cannot carry.

Methods return values and raise `HalError(ErrorStatus, message)`. Deadlines are absolute `time.monotonic_ns()` times,
None for "no deadline". A plain driver implements IDevice and IPreparedModel only; the optional Protocols
(those that begin with "Optional" here, `HasCosts`, `Tunable`) are looked for with `isinstance`.

A driver package offers a callable `devices() -> list[IDevice | UnusableDevice]`, best device first, as an entry point
of the group `nn_runtime.drivers`; the entry point's name is the driver's name in device selectors. The module of that
callable may also offer `diagnose() -> Diagnosis` (the Protocol `DiagnosingModule`), which `nnrt doctor` prints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from nn_runtime.codes import DeviceTypeCode
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nn_runtime.hal.memory import SharedMemory
    from nn_runtime.hal.types import (
        BufferDesc,
        BufferRole,
        Capabilities,
        DeviceStatus,
        ExecutionPreference,
        ExecutionResult,
        Extension,
        Model,
        Priority,
        Request,
        Timing,
    )
    from nn_runtime.operand import Array, Dimensions


@dataclass(frozen=True)
class OperationSupport:
    """Whether a device takes one operation; `reason` says why not; `estimated_ns` its guess of the time."""

    supported: bool
    reason: str = ""
    estimated_ns: int | None = None


@dataclass(frozen=True)
class DeviceDescription:
    """What a device selector is matched against: the strings of the vendor, for platform and device."""

    slug: str
    platform_index: int
    platform_name: str
    platform_vendor: str
    platform_version: str
    device_name: str
    device_vendor: str
    device_version: str
    type: DeviceTypeCode


_NOT_DESCRIBED = DeviceDescription("", -1, "", "", "", "", "", "", DeviceTypeCode.OTHER)
"""Of a device of which nothing but its name is known."""


@dataclass(frozen=True)
class UnusableDevice:
    """A device that is there but cannot be used: stands in a driver's list in place of an IDevice."""

    name: str
    reason: str
    description: DeviceDescription = _NOT_DESCRIBED


@dataclass(frozen=True)
class CacheRequest:
    """Open files for compilation caching (SURFACE section h) and the 32-byte token they belong to."""

    model_files: tuple[int, ...]
    data_files: tuple[int, ...]
    token: bytes


@dataclass(frozen=True)
class ProfileRow:
    """One launch or operation of the last execution. Times in ns from the start of the execution.

    `operations` are the indices (main subgraph) of the operations it computes: several when fused. `on_bytes`: products
    of real numbers are computed on bytes made of them (hal/dynamic_quantization).
    """

    operations: tuple[int, ...]
    kernel: str
    start_ns: int
    end_ns: int
    bytes_moved: int = 0
    flops: int = 0
    on_bytes: bool = False


@dataclass(frozen=True)
class ExecutionProfile:
    """Rows in order of start; operations with no row cost nothing (removed or folded)."""

    rows: tuple[ProfileRow, ...]


@runtime_checkable
class IBuffer(Protocol):
    """A driver-managed buffer (memory domain)."""

    def copy_to(self, destination: SharedMemory) -> None:
        """Copy the whole buffer out; sizes must be equal (INVALID_ARGUMENT), buffer initialised (GENERAL_FAILURE)."""

    def copy_from(self, source: SharedMemory, dimensions: Dimensions) -> None:
        """Fill the whole buffer; `dimensions` () keeps the initial ones. Success makes it initialised."""

    def close(self) -> None:
        """Free the buffer; its token may be given out again."""


@runtime_checkable
class IFencedExecutionCallback(Protocol):
    """Asked for the times of a fenced execution."""

    def get_execution_info(self) -> tuple[Timing, Timing]:
        """Return timing since launch and timing since the waited fences signalled."""


@runtime_checkable
class IBurstContext(Protocol):
    """An execution channel of one prepared model that may keep resources between requests."""

    def execute(
        self, request: Request, measure: bool, deadline_ns: int | None, loop_timeout_ns: int | None
    ) -> ExecutionResult:
        """Execute one request, as `IPreparedModel.execute_synchronously` does."""

    def free_memory(self, memory: SharedMemory) -> None:
        """Forget what was kept for a memory."""

    def close(self) -> None:
        """End the channel."""


@runtime_checkable
class IPreparedModel(Protocol):
    """A model made ready on a device. Concurrent executions must work."""

    def execute_synchronously(
        self, request: Request, measure: bool, deadline_ns: int | None, loop_timeout_ns: int | None
    ) -> ExecutionResult:
        """Execute and return shapes and timing; timing is unknown unless `measure`."""

    def execute_fenced(
        self,
        request: Request,
        wait_for: Sequence[int],
        measure: bool,
        deadline_ns: int | None,
        loop_timeout_ns: int | None,
        duration_after_fence_ns: int | None,
    ) -> tuple[int | None, IFencedExecutionCallback]:
        """Execute after the sync fences `wait_for`; return a fence (None when already done) and the callback.

        The fences stay the caller's: what is waited for after the return must be duplicated. The one returned is given
        away; it signals an error where the execution fails (`hal.fences`).
        """

    def configure_execution_burst(self) -> IBurstContext:
        """Return a burst channel."""

    def close(self) -> None:
        """Free what the prepared model holds on the device.

        Executions that run end as usual; later ones, which the runtime never asks for, raise INVALID_ARGUMENT.
        """


class IDevice(Protocol):
    """One device of a driver. Answers to the queries never change between two starts."""

    @property
    def name(self) -> str:
        """Unique name, the same between runs."""

    def get_capabilities(self) -> Capabilities:
        """Return the performance table: every operand type listed."""

    def get_version_string(self) -> str:
        """Return the driver's version, never empty."""

    def get_type(self) -> DeviceTypeCode:
        """Return the kind of the device."""

    def get_feature_level(self) -> int:
        """Return the highest FeatureLevel whose models the driver understands."""

    def get_status(self) -> DeviceStatus:
        """Return whether the device can take work."""

    def get_supported_extensions(self) -> Sequence[Extension]:
        """Return the vendor extensions."""

    def get_number_of_cache_files_needed(self) -> tuple[int, int]:
        """Return the number of model and of data cache files, each at most 32."""

    def get_supported_operations(self, model: Model) -> Sequence[bool]:
        """Return one bool per operation of the main subgraph; INVALID_ARGUMENT for an invalid model."""

    def prepare_model(
        self,
        model: Model,
        preference: ExecutionPreference,
        priority: Priority,
        deadline_ns: int | None,
        cache: CacheRequest | None,
    ) -> IPreparedModel:
        """Prepare a model; failure to save to the cache is silent."""

    def prepare_model_from_cache(self, deadline_ns: int | None, cache: CacheRequest) -> IPreparedModel:
        """Prepare from cache files alone; GENERAL_FAILURE where that is not possible."""

    def allocate(
        self,
        desc: BufferDesc,
        prepared_models: Sequence[IPreparedModel],
        input_roles: Sequence[BufferRole],
        output_roles: Sequence[BufferRole],
    ) -> tuple[IBuffer, int]:
        """Allocate a driver-managed buffer; return it and its token (> 0)."""

    def close(self) -> None:
        """Free what the device holds."""


@runtime_checkable
class ExplainsOperations(Protocol):
    """Optional: a device that says why it refuses an operation."""

    def explain_operations(self, model: Model) -> Sequence[OperationSupport]:
        """Return one OperationSupport per operation of the main subgraph."""


@runtime_checkable
class IExecution(Protocol):
    """A request bound to a prepared model, to be executed again and again, by one thread at a time."""

    def execute_synchronously(self, deadline_ns: int | None) -> ExecutionResult:
        """Execute as `IPreparedModel.execute_synchronously` does; the arguments' memory is read and written anew."""

    def execute_profiled(self, deadline_ns: int | None) -> tuple[ExecutionResult, ExecutionProfile]:
        """Execute as `ReportsProfile.execute_profiled` does."""


@runtime_checkable
class CreatesReusableExecutions(Protocol):
    """Optional: a prepared model that does what is the same in every execution of a request only once."""

    def create_reusable_execution(
        self, request: Request, measure: bool, loop_timeout_ns: int | None
    ) -> IExecution | None:
        """Return the request bound, None where that gains nothing; errors of the request may show at execution."""


@runtime_checkable
class TakesOtherMemory(Protocol):
    """Optional: a bound request (IExecution) that can be executed with other memory for some of its arguments."""

    def with_memory(self, inputs: Mapping[int, Array], outputs: Mapping[int, Array]) -> IExecution:
        """Return the request with these arrays in place of the arguments of those numbers; raises HalError.

        They have the argument's type and shape, are C-contiguous and writable, and begin at a multiple of
        OTHER_MEMORY_ALIGNMENT bytes (hal/memory.py); those of outputs share no byte with another argument. Nothing but
        what is returned, which is executed once, refers to them.
        """


@runtime_checkable
class ReportsProfile(Protocol):
    """Optional: a prepared model that reports times per operation when asked."""

    def execute_profiled(
        self, request: Request, deadline_ns: int | None, loop_timeout_ns: int | None
    ) -> tuple[ExecutionResult, ExecutionProfile]:
        """Execute once with profiling on; return what `execute_synchronously` would, and the rows."""


Attributes: TypeAlias = "tuple[tuple[str, int, bytes], ...]"
"""What an application says to a vendor's driver alone: (extension name, attribute code, data), sorted."""


@runtime_checkable
class TakesCompilationAttributes(Protocol):
    """Optional: a device with extensions whose attributes change how a model is prepared; others ignore them."""

    def prepare_model_with_attributes(
        self,
        model: Model,
        preference: ExecutionPreference,
        priority: Priority,
        deadline_ns: int | None,
        cache: CacheRequest | None,
        attributes: Attributes,
    ) -> IPreparedModel:
        """Prepare as `prepare_model`, with attributes of the device's extensions."""


@runtime_checkable
class TakesExecutionAttributes(Protocol):
    """Optional: a prepared model with extensions whose attributes change how it is executed; others ignore them."""

    def execute_with_attributes(
        self,
        request: Request,
        measure: bool,
        deadline_ns: int | None,
        loop_timeout_ns: int | None,
        attributes: Attributes,
    ) -> ExecutionResult:
        """Execute as `execute_synchronously`, with attributes of the device's extensions."""


@runtime_checkable
class PreparesAgain(Protocol):
    """Optional: a prepared model from cache files that may be lost with its driver, and the driver be started anew."""

    def prepare_again_by(self, prepare: Callable[[], IPreparedModel]) -> None:
        """Keep what has the same device prepare the model, for when it is lost."""


@runtime_checkable
class ReportsStatistics(Protocol):
    """Optional: a device that counts what it does, for `nnrt benchmark` and `nnrt doctor`."""

    def statistics(self) -> Mapping[str, int | float]:
        """Return counts in this process by name, in the order to print; names end in their unit: _bytes, _seconds."""


@runtime_checkable
class TakesUnknownSizes(Protocol):
    """Optional: a device for IF and WHILE with operands of unknown size, which else only the CPU device gets."""

    def takes_unknown_sizes(self) -> bool:
        """Return whether it takes them where it supports the operation."""


@runtime_checkable
class DescribesDevice(Protocol):
    """Optional: a device that selectors can find by platform, vendor, kind and version."""

    def description(self) -> DeviceDescription:
        """Return the strings a selector is matched against."""


class Problem(Protocol):
    """Something that keeps a driver from working as it could."""

    @property
    def what(self) -> str:
        """What is wrong, in one line."""

    @property
    def remedy(self) -> str:
        """The command or setting that mends it."""


@runtime_checkable
class Diagnosis(Protocol):
    """What a driver found on this machine: libraries, devices, and what is wrong."""

    @property
    def problems(self) -> Sequence[Problem]:
        """What is wrong; empty where all is well."""

    def lines(self) -> Sequence[str]:
        """Return the report for people, problems included."""

    def to_json(self) -> Mapping[str, object]:
        """Return the report as plain lists and dicts."""


@runtime_checkable
class DiagnosingModule(Protocol):
    """Optional: a driver whose module, the one its entry point names, can examine the machine."""

    def diagnose(self) -> Diagnosis:
        """Examine the machine anew; raises nothing that a missing library or device could cause."""
