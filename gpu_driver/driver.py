# SPDX-License-Identifier: Apache-2.0
"""The OpenCL driver's devices: what they are, which operations they take and why not, preparing and allocating."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from gpu_driver import compilation_cache, tuning
from gpu_driver.device.buffers import readable_bytes
from gpu_driver.device.inline import is_small
from gpu_driver.device_profile import capabilities_of
from gpu_driver.device_query import profile_of
from gpu_driver.discovery.platforms import find_devices
from gpu_driver.estimate import cost_table_of
from gpu_driver.lowering import MAX_ELEMENTS
from gpu_driver.operations import launcher_of, load_families, refusal_of
from gpu_driver.preparation import Preparation
from gpu_driver.tuning_values import Tuning
from nn_runtime.codes import FeatureLevel, is_extension_code, operation_name
from nn_runtime.hal import dynamic_quantization
from nn_runtime.hal.buffers import BufferRegistry
from nn_runtime.hal.costs import operation_estimates
from nn_runtime.hal.interfaces import DeviceDescription, OperationSupport, UnusableDevice
from nn_runtime.hal.references import refusals_of
from nn_runtime.hal.types import DeviceStatus, ErrorStatus, HalError
from nn_runtime.hal.validation import validate_model, validate_preference, validate_priority
from nn_runtime.hal.views import operation_view
from nn_runtime.operand import element_count, has_unknown_dimensions, size_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from gpu_driver.device.context import DeviceContext
    from gpu_driver.device.storage import DeviceStorage
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.discovery.platforms import FoundDevice
    from gpu_driver.prepared_model import PreparedModel
    from nn_runtime.codes import DeviceTypeCode
    from nn_runtime.hal.costs import CostTable
    from nn_runtime.hal.interfaces import Attributes, CacheRequest, Diagnosis, IBuffer, IDevice, IPreparedModel
    from nn_runtime.hal.peaks import Peaks
    from nn_runtime.hal.tuning import TuningParameter
    from nn_runtime.hal.types import (
        BufferDesc,
        BufferRole,
        Capabilities,
        ExecutionPreference,
        Extension,
        Model,
        Operand,
        Operation,
        Priority,
        Subgraph,
    )

_LOG = logging.getLogger(__name__)

__all__ = ["Device", "describe", "devices", "diagnose"]

VERSION = "1"


class Device:
    """One OpenCL device (IDevice, ExplainsOperations, TakesUnknownSizes, DescribesDevice, ReportsStatistics).

    Its context is opened at the first model.
    """

    def __init__(self, found: FoundDevice, platform_index: int) -> None:
        """Read the profile; no context is opened."""
        self._found = found
        self._platform_index = platform_index
        self.profile: DeviceProfile = profile_of(found)
        self.name = found.name
        self._lock = threading.Lock()
        self._context: DeviceContext | None = None
        self._costs: CostTable | None = None
        self._buffers: BufferRegistry[DeviceStorage] = BufferRegistry(self._model_of)
        self._counts = {"models_from_cache": 0, "models_saved": 0}

    def get_capabilities(self) -> Capabilities:
        """Return the figures shipped for this class of device."""
        return capabilities_of(self.profile)

    def get_version_string(self) -> str:
        """Return the versions of this driver, of OpenCL and of the device's own driver."""
        return f"{VERSION} ({self.profile.device_version}, driver {self.profile.driver_version})"

    def get_type(self) -> DeviceTypeCode:
        """Return what OpenCL says the device is."""
        return self.profile.type

    def get_feature_level(self) -> int:
        """Return the newest level: models of every version are understood."""
        return FeatureLevel.LEVEL_8

    def get_status(self) -> DeviceStatus:
        """Return AVAILABLE."""
        return DeviceStatus.AVAILABLE

    def get_supported_extensions(self) -> Sequence[Extension]:
        """Return the one that has no operations, but an attribute."""
        return (dynamic_quantization.EXTENSION,)

    def get_number_of_cache_files_needed(self) -> tuple[int, int]:
        """Return one and one: model and programs, and constants."""
        return compilation_cache.FILES

    def description(self) -> DeviceDescription:
        """Return OpenCL's own strings."""
        return describe(self._found, self._platform_index)

    def explain_operations(self, model: Model) -> Sequence[OperationSupport]:
        """Return support of each operation of the main model, with its estimated time or the reason of a refusal."""
        validate_model(model)
        estimates = operation_estimates(model, self.cost_table())
        return [
            OperationSupport(not reason, reason, None if reason else round(estimate))
            for reason, estimate in zip(self._refusals(model), estimates, strict=True)
        ]

    def cost_table(self) -> CostTable:
        """Return what runs and operations cost: measured on this machine, else as shipped for this class of device."""
        if self._costs is None:
            self._costs = cost_table_of(self.profile, self.get_version_string())
        return self._costs

    def get_supported_operations(self, model: Model) -> Sequence[bool]:
        """Return one bool per operation of the main model."""
        return [support.supported for support in self.explain_operations(model)]

    def takes_unknown_sizes(self) -> bool:
        """Return True: shapes are found out as IF and WHILE run."""
        return True

    def prepare_model(
        self,
        model: Model,
        preference: ExecutionPreference,
        priority: Priority,
        deadline_ns: int | None,
        cache: CacheRequest | None,
    ) -> PreparedModel:
        """Lower the model, pack its constants, build and warm its programs; save what was done in the cache files."""
        return self.prepare_model_with_attributes(model, preference, priority, deadline_ns, cache, ())

    def prepare_model_with_attributes(
        self,
        model: Model,
        preference: ExecutionPreference,
        priority: Priority,
        deadline_ns: int | None,
        cache: CacheRequest | None,
        attributes: Attributes,
    ) -> PreparedModel:
        """Prepare as `prepare_model`; products may be computed on bytes if an attribute says so."""
        validate_preference(preference)
        validate_priority(priority)
        how = Preparation(preference, priority, dynamic_quantization.is_allowed(attributes))
        prepared = self._prepare(model, how, deadline_ns, {})
        if cache is not None and self._save(prepared, cache):
            self._count("models_saved")
        return prepared

    def prepare_model_from_cache(self, deadline_ns: int | None, cache: CacheRequest) -> PreparedModel:
        """Prepare what `prepare_model` saved in the files: no program is built.

        Raises HalError: INVALID_ARGUMENT for a wrong number of files, GENERAL_FAILURE for ones that are not open for
        reading and writing, or not as they were written, by this version on this device for this token.
        """
        compilation_cache.check_request(cache)
        kept = compilation_cache.load(cache, self.profile)
        binaries = dict(kept.binaries)
        try:
            prepared = self._prepare(kept.model, kept.how, deadline_ns, binaries)
        except HalError as error:
            if error.status != ErrorStatus.INVALID_ARGUMENT:
                raise
            raise HalError(ErrorStatus.GENERAL_FAILURE, f"{self.name}: compilation cache: {error}") from error
        if not {program.key for program in prepared.programs} <= binaries.keys():
            prepared.close()
            raise HalError(ErrorStatus.GENERAL_FAILURE, f"{self.name}: the compilation cache lacks programs")
        self._count("models_from_cache")
        return prepared

    def allocate(
        self,
        desc: BufferDesc,
        prepared_models: Sequence[IPreparedModel],
        input_roles: Sequence[BufferRole],
        output_roles: Sequence[BufferRole],
    ) -> tuple[IBuffer, int]:
        """Allocate a buffer in device memory for the given roles."""
        return self._buffers.allocate(desc, prepared_models, input_roles, output_roles, self._storage)

    def close(self) -> None:
        """Forget the context; it goes with its last prepared model and buffer."""
        with self._lock:
            self._context = None

    def context(self) -> DeviceContext:
        """Return the device's context in this process, opened at the first call."""
        context = self._context
        if context is None:
            with self._lock:
                context = self._context
                if context is None:
                    from gpu_driver.device.context import DeviceContext, check_process

                    found = self._found
                    check_process(self.name, found.process)
                    context = self._context = DeviceContext(found.device, self.profile, inline=found.inline)
        context.check_process()
        return context

    def statistics(self) -> Mapping[str, int | float]:
        """Return counts of programs and bytes since the context was opened: CacheStats and MemoryStats say what of.

        `in_place_peak_bytes`: of host memory that the device used where it lies, at most so far.
        """
        context = self._context
        if context is None:
            return {}
        programs, memory = context.program_stats, context.accounts.stats
        return {
            "programs_built": programs.builds,
            "programs_loaded": programs.loads,
            "programs_shared": programs.shared,
            "programs_stored": programs.stores,
            "build_seconds": programs.build_seconds,
            "load_seconds": programs.load_seconds,
            **self._counts,
            **asdict(memory),
            "in_place_peak_bytes": context.host_accounts.stats.peak_bytes,
        }

    def _prepare(
        self,
        model: Model,
        how: Preparation,
        deadline_ns: int | None,
        binaries: dict[str, bytes],
    ) -> PreparedModel:
        """Prepare; programs are made of `binaries` where they are there (see ProgramCache.offered)."""
        from gpu_driver.prepared_model import PreparedModel

        validate_model(model)
        for i, reason in enumerate(self._refusals(model)):
            if reason:
                name = operation_name(model.main.operations[i].type)
                raise HalError(ErrorStatus.GENERAL_FAILURE, f"operation {i} {name}: {reason}")
        if deadline_ns is not None and time.monotonic_ns() >= deadline_ns:
            raise HalError(ErrorStatus.MISSED_DEADLINE_PERSISTENT, "the deadline passed before the preparation")
        context = self._context_for(model, how)

        def prepare() -> PreparedModel:
            with context.programs.offered(binaries):
                return PreparedModel(context, model, self._buffers, how)

        return context.preparations.slot(how.priority, deadline_ns).during(prepare)

    def _context_for(self, model: Model, how: Preparation) -> DeviceContext:
        """Return the context of the device, or of its inline one for a small model."""
        context = self.context()
        threads = context.profile.compute_units
        if not context.has_inline or not is_small(model, threads, quantizes_inputs=how.quantizes_inputs):
            return context
        return context.inline or context

    def _save(self, prepared: PreparedModel, cache: CacheRequest) -> bool:
        """Write a prepared model to cache files; whether that was possible."""
        import pyopencl as cl

        context = prepared.device
        try:
            binaries = context.preparations.slot(prepared.priority).during(
                lambda: {program.key: context.programs.binary(program) for program in prepared.programs}
            )
        except (HalError, cl.Error) as error:
            _LOG.info("compilation cache: not written: %s", error)
            return False
        compiled = compilation_cache.Compiled(prepared.model, prepared.how, binaries)
        return compilation_cache.save(cache, self.profile, compiled)

    def _count(self, what: str) -> None:
        with self._lock:
            self._counts[what] += 1

    def peaks(self) -> Peaks | None:
        """Return the measured peaks; the first call on a machine measures them. None where commands have no times."""
        from gpu_driver.peaks import peaks_of

        return peaks_of(self.context()) if self.profile.tells_times else None

    def tuning_parameters(self) -> Sequence[TuningParameter]:
        """Return what can be tuned on a device of this class."""
        return tuning.parameters(self.profile)

    def tuning(self) -> Mapping[str, int]:
        """Return the values in force."""
        values = asdict(self.profile.tuning)
        return {parameter.name: values[parameter.name] for parameter in self.tuning_parameters()}

    def set_tuning(self, values: Mapping[str, int]) -> None:
        """Use these values for models prepared from now on; raises ValueError."""
        profile = replace(self.profile, tuning=Tuning.of(values))
        with self._lock:
            self.profile = profile
            if self._context is not None:
                self._context.set_profile(profile)

    def store_tuning(self, values: Mapping[str, int], measured: Mapping[str, object], path: Path | None = None) -> Path:
        """Store values for this device and driver version and return the file; raises ValueError, OSError."""
        return tuning.store(self.profile, values, measured, path)

    def _refusals(self, model: Model) -> list[str]:
        """Return why each operation of the main model is refused, "" where it is not."""
        return refusals_of(model, lambda graph, operation, at: self._refusal(model, graph, operation, at))

    def _refusal(self, model: Model, subgraph: Subgraph, operation: Operation, index: int) -> str:
        if is_extension_code(operation.type):
            return "the driver has no vendor extensions"
        if launcher_of(operation.type) is None:
            return f"{operation_name(operation.type)} has no OpenCL kernel in this version"
        for i in (*operation.inputs, *operation.outputs):
            needed = _needed_bytes(subgraph.operands[i])
            if element_count(subgraph.operands[i].dimensions) > MAX_ELEMENTS:
                return f"operand {i} has more than 2^30 elements, which kernels cannot index"
            if needed > self.profile.max_alloc_bytes:
                allowed = readable_bytes(self.profile.max_alloc_bytes)
                return f"operand {i} needs {readable_bytes(needed)}, the device allows {allowed} for one buffer"
        return refusal_of(operation_view(model, subgraph, operation, index), self.profile)

    def _storage(self, operand: Operand) -> DeviceStorage:
        from gpu_driver.device.storage import DeviceStorage

        return DeviceStorage(self.context(), _needed_bytes(operand))

    def _model_of(self, prepared: IPreparedModel) -> Model | None:
        from gpu_driver.prepared_model import PreparedModel

        return prepared.model if isinstance(prepared, PreparedModel) else None


def diagnose() -> Diagnosis:
    """Return what was found, what is wrong and the command that mends it, with every verdict asked anew."""
    from gpu_driver import diagnosis  # of no use to a plain run

    return diagnosis.diagnose()


def devices() -> list[IDevice | UnusableDevice]:
    """Return every OpenCL device, best first; those that do not work with their reason."""
    found = find_devices(meanwhile=_import_what_models_need)
    if not found:
        return []
    import pyopencl as cl

    platforms = cl.get_platforms()  # in the order by which PYOPENCL_CTX counts them
    result: list[IDevice | UnusableDevice] = []
    for one in found:
        platform = platforms.index(one.device.platform)
        if one.usable:
            result.append(Device(one, platform))
        else:
            result.append(UnusableDevice(one.name, one.reason or "not usable", describe(one, platform)))
    return result


def _import_what_models_need() -> None:
    """Do what the first model would otherwise wait for; no function of OpenCL is called."""
    with contextlib.suppress(ImportError):
        import gpu_driver.prepared_model  # noqa: F401

        load_families()


def describe(found: FoundDevice, platform_index: int) -> DeviceDescription:
    """Return what a selector is matched against."""
    return DeviceDescription(
        slug=found.slug,
        platform_index=platform_index,
        platform_name=found.platform_name,
        platform_vendor=found.device.platform.vendor,
        platform_version=found.platform_version,
        device_name=found.device_name,
        device_vendor=found.vendor,
        device_version=f"{found.device_version} {found.driver_version}",
        type=found.type,
    )


def _needed_bytes(operand: Operand) -> int:
    unknown = has_unknown_dimensions(operand.type, operand.dimensions)
    return 0 if unknown else size_bytes(operand.type, operand.dimensions)
