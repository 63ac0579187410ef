# SPDX-License-Identifier: Apache-2.0
"""A model made ready to run on some devices (SURFACE sections a and k)."""

from __future__ import annotations

import copy
import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from nn_runtime import extensions, trial
from nn_runtime.caching import CacheInfo, path_of
from nn_runtime.checks import check_kind, copied_bytes, member
from nn_runtime.codes import FeatureLevel, PreferenceCode, PriorityCode
from nn_runtime.device import checked_devices
from nn_runtime.devices import Selection, select
from nn_runtime.errors import BadData, BadState, NNError, UnexpectedNull
from nn_runtime.hal.dynamic_quantization import with_permission
from nn_runtime.hal.types import CACHE_TOKEN_BYTES, ExecutionPreference, Priority
from nn_runtime.model import Model
from nn_runtime.numeric import whole
from nn_runtime.observe import trace
from nn_runtime.plan import PartitionMode, PlanOptions, make_plan

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from nn_runtime.device import Device
    from nn_runtime.plan import Plan

_PRIORITIES = {
    PriorityCode.LOW: Priority.LOW,
    PriorityCode.MEDIUM: Priority.MEDIUM,
    PriorityCode.HIGH: Priority.HIGH,
}
_ALIGNMENT = 64
_NEVER_NS = 2**63 - 1
_SPLIT = "split"
"""In place of a device's name where a plan of several devices won a trial."""

_log = logging.getLogger("nn_runtime.compilation")


class Compilation:
    """A finished model, the devices it may use, and after `finish` the plan.

    With `devices`, only these, without CPU fallback. Without, the devices of the selector in force (NNRT_DEVICE, else
    PYOPENCL_CTX, else `opencl,cpu`): a selector with `cpu` may fall back, one without is as explicit as a list.
    """

    def __init__(self, model: Model, devices: Sequence[Device] | None = None) -> None:
        """Raises UnexpectedNull, BadState for an unfinished or invalid model, BadData for a bad list of devices."""
        check_kind("compilation: the model", model, Model)
        named = None if devices is None else checked_devices("compilation", devices)
        self._model = model.hal
        self._run_order = model.run_order
        self._selection = None if named is None else Selection(named, strict=True)
        self._options = PlanOptions()
        self._timeout_ns = 0
        self._finished = False
        self._closed = False
        self._plan: Plan | None = None
        self._rivals: tuple[str, ...] = ()

    @classmethod
    def for_selection(cls, model: Model, selection: Selection) -> Compilation:
        """Return a compilation for what `devices.select` gave, its fallback rule included."""
        compilation = cls(model)
        compilation._selection = selection
        return compilation

    def __repr__(self) -> str:
        if self._plan is None:
            return f"<Compilation {'closed' if self._closed else 'not finished'}>"
        return f"<Compilation on {', '.join(dict.fromkeys(step.device.name for step in self._plan.steps))}>"

    @property
    def plan(self) -> Plan | None:
        """The plan; None until `finish` has succeeded, and when closed."""
        return self._plan

    def finished_plan(self, call: str) -> Plan:
        """Return the plan for a call that needs one; raises BadState."""
        if self._plan is None:
            how = "is closed" if self._closed else "is not finished, or its finish failed"
            raise BadState(f"{call}: the compilation {how}")
        return self._plan

    @property
    def devices(self) -> tuple[Device, ...]:
        """Devices the compilation may use; raises UnavailableDevice if the selector in force matches none."""
        return self._selected().devices

    @property
    def is_explicit(self) -> bool:
        """Whether only the devices named may be used, without fallback."""
        return self._selected().strict

    @property
    def passed_over(self) -> tuple[str, ...]:
        """Items of the device selector that match no usable device."""
        return self._selected().passed_over

    @property
    def has_one_explicit_device(self) -> bool:
        """Whether timing and deadlines are allowed."""
        selection = self._selected()
        return selection.strict and len(selection.devices) == 1

    def set_preference(self, preference: int) -> None:
        """Set what to optimise for (PreferenceCode); raises BadState after finish, BadData."""
        self._check_open("set_preference")
        checked = member("set_preference", preference, PreferenceCode)
        self._options = replace(self._options, preference=ExecutionPreference(checked))

    def set_priority(self, priority: int) -> None:
        """Set the priority among one's compilations (PriorityCode); raises BadState after finish, BadData."""
        self._check_open("set_priority")
        checked = member("set_priority", priority, PriorityCode)
        self._options = replace(self._options, priority=_PRIORITIES[checked])

    def set_caching(self, directory: str | os.PathLike[str], token: bytes) -> None:
        """Keep what drivers prepare in files of a directory, under the application's own token of 32 bytes.

        The token must be another one whenever model, devices or options are others in a way that only the application
        knows. Raises UnexpectedNull, BadState after finish, BadData.
        """
        if directory is None or token is None:
            raise UnexpectedNull("set_caching: the directory or the token is None")
        self._check_open("set_caching")
        folder, own = path_of("set_caching", directory), copied_bytes("set_caching: the token", token)
        if len(own) != CACHE_TOKEN_BYTES:
            raise BadData(f"set_caching: the token must have {CACHE_TOKEN_BYTES} bytes, got {len(own)}")
        self._options = replace(self._options, cache=CacheInfo(folder, own))

    def add_extension_attribute(self, name: str, code: int, data: bytes) -> None:
        """Say something to a vendor's driver about how to prepare; drivers that do not know it ignore it.

        Raises UnexpectedNull; BadState after finish; BadData unless compiled for exactly one explicit device, for an
        extension that no device has, or for the same attribute twice.
        """
        check_kind("add_extension_attribute: the name", name, str)
        own = copied_bytes("add_extension_attribute: the data", data)
        self._check_open("add_extension_attribute")
        if not self.has_one_explicit_device:
            raise BadData("add_extension_attribute: the compilation must be for exactly one device, named explicitly")
        attributes = extensions.with_attribute(self._options.attributes, name, code, own)
        self._options = replace(self._options, attributes=attributes)

    def set_dynamic_quantization(self, allowed: bool) -> None:
        """Allow drivers to compute products on bytes, made in every run, where weights were bytes; else none does.

        `nn_runtime.hal.dynamic_quantization` says what that means. Raises BadState after finish, BadData.
        """
        check_kind("set_dynamic_quantization: allowed", allowed, bool)
        self._check_open("set_dynamic_quantization")
        attributes = with_permission(self._options.attributes, allowed)
        self._options = replace(self._options, attributes=attributes)

    def set_timeout(self, duration_ns: int) -> None:
        """Set how long `finish` may take, 0 for no limit; raises BadState after finish, BadData without one device."""
        self._check_open("set_timeout")
        timeout_ns = checked_duration("set_timeout", duration_ns)
        if not self.has_one_explicit_device:
            raise BadData("set_timeout: the compilation must be for exactly one device, named explicitly")
        self._timeout_ns = timeout_ns

    def set_partition(self, mode: PartitionMode | str) -> None:
        """Set how operations are placed: "aosp" (the default) or "cost"; raises BadState after finish, BadData."""
        self._check_open("set_partition")
        try:
            self._options = replace(self._options, partition=PartitionMode(mode))
        except ValueError:
            raise BadData(f"set_partition: mode must be 'aosp' or 'cost', got {mode!r}") from None

    def finish(self) -> None:
        """Partition the model and prepare every step.

        Raises BadState if called before; BadData for an operation that no device takes; else the driver's error where
        no fallback is allowed. A failed finish still counts as finished.
        """
        self._check_open("finish")
        self._finished = True
        kept = self._kept_placement()
        self._plan = self._made_plan(kept)
        self._rivals = self._plan.rivals if kept is None else ()

    def rivals(self) -> list[Compilation]:
        """Return finished compilations of the whole model for each device that by the estimates may alone be as fast.

        None in mode "aosp", or where caching has kept which plan is the fastest. One that fails is left out.
        """
        found = []
        own = () if self._plan is None else tuple(step.device.name for step in self._plan.steps)
        for name in self._rivals:
            if own == (name,):  # the plan failed, and the CPU device took over
                continue
            try:
                plan = self._made_plan(name)
            except NNError as error:
                _log.warning("%s is not tried: %s", name, error)
                continue
            if [step.device.name for step in plan.steps] != [name]:  # it failed, and the CPU device took over
                plan.close()
                continue
            rival = copy.copy(self)
            rival._plan, rival._rivals = plan, ()
            found.append(rival)
        return found

    def keep_placement(self) -> None:
        """Keep in the caching folder, if one is set, that this plan is the fastest: it then has no rivals."""
        options = self._options
        if options.cache is not None:
            names = {step.device.name for step in self.finished_plan("keep_placement").steps}
            placement = names.pop() if len(names) == 1 else _SPLIT
            trial.keep_result(options.cache, self.devices, options.preference, placement, options.attributes)

    def preferred_memory_alignment_for_input(self, index: int) -> int:
        """Return the alignment in bytes at which an input costs least; raises BadState, BadData."""
        return self._preferred(True, index)[0]

    def preferred_memory_alignment_for_output(self, index: int) -> int:
        """Return the alignment in bytes at which an output costs least; raises BadState, BadData."""
        return self._preferred(False, index)[0]

    def preferred_memory_padding_for_input(self, index: int) -> int:
        """Return the multiple of bytes to which an input's length is best padded; raises BadState, BadData."""
        return self._preferred(True, index)[1]

    def preferred_memory_padding_for_output(self, index: int) -> int:
        """Return the multiple of bytes to which an output's length is best padded; raises BadState, BadData."""
        return self._preferred(False, index)[1]

    def close(self) -> None:
        """Free the prepared models, once the executions that compute now have ended; none can begin any more."""
        plan, self._plan = self._plan, None
        self._closed = self._finished = True
        if plan is not None:
            plan.close()

    def __enter__(self) -> Compilation:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _made_plan(self, whole_on: str | None) -> Plan:
        """Return the plan, in mode "cost" with the whole model on a device if one is named; raises as `finish`."""
        selection = self._selected()
        deadline_ns = deadline_after(self._timeout_ns)
        options = replace(self._options, deadline_ns=deadline_ns, fallback=not selection.strict, whole_on=whole_on)
        started = time.perf_counter_ns()
        for pool in self._model.pools:
            pool.check_length()
        plan = make_plan(self._model, self._run_order, selection.devices, options)
        ended = time.perf_counter_ns()
        tracer = trace.current
        if tracer is not None:
            count = len(self._model.main.operations)
            tracer.add(trace.RUNTIME, "PC", "compilation", started, ended, operations=count)
        _log.debug("compilation finished in %.1f ms", (ended - started) / 1e6)
        return plan

    def _kept_placement(self) -> str | None:
        """Return the device for the whole model, or _SPLIT, that has been kept as the fastest; else None."""
        options = self._options
        if options.partition != PartitionMode.COST or options.cache is None:
            return None
        return trial.kept_result(options.cache, self.devices, options.preference, options.attributes)

    def _selected(self) -> Selection:
        if self._selection is None:
            self._selection = select()
        return self._selection

    def _check_open(self, call: str) -> None:
        if self._finished:
            raise BadState(f"{call}: the compilation is {'closed' if self._closed else 'finished'}")

    def _preferred(self, is_input: bool, index: int) -> tuple[int, int]:
        """Return (alignment, padding): the largest of the steps that use the argument; (64, 1) if none does."""
        plan = self.finished_plan("preferred memory")
        main = plan.model.main
        count = len(main.input_indexes if is_input else main.output_indexes)
        if not 0 <= whole("input" if is_input else "output", index) < count:
            raise BadData(f"{'input' if is_input else 'output'} {index} is out of range, the model has {count}")
        devices = [role.step.device for role in plan.roles_of(is_input, index)]
        padded = any(d.is_reference or d.feature_level >= FeatureLevel.LEVEL_5 for d in devices)
        return _ALIGNMENT, _ALIGNMENT if padded else 1


def checked_duration(call: str, duration_ns: int) -> int:
    """Return a duration in ns as an int; raises BadData."""
    found = whole(call, duration_ns)
    if not 0 <= found < 2**64:
        raise BadData(f"{call}: a duration must be 0 to 2^64-1 ns, got {found}")
    return found


def deadline_after(duration_ns: int) -> int | None:
    """Return the absolute `time.monotonic_ns` deadline after a duration; None for 0; saturates to "never"."""
    if duration_ns == 0:
        return None
    deadline = time.monotonic_ns() + duration_ns
    return None if deadline > _NEVER_NS else deadline
