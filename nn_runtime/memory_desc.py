# SPDX-License-Identifier: Apache-2.0
"""What device memory will be used for, and how it is had: from the device of its roles, else shared (SURFACE e)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from nn_runtime.checks import check_kind
from nn_runtime.compilation import Compilation
from nn_runtime.errors import BadData, BadState, OperationFailed, UnexpectedNull
from nn_runtime.failures import two_of
from nn_runtime.hal.interfaces import IBuffer
from nn_runtime.hal.kinds import of_kind
from nn_runtime.hal.memory import SharedMemory
from nn_runtime.hal.types import BufferDesc, BufferRole, ErrorStatus, HalError
from nn_runtime.memory import Memory
from nn_runtime.memory_domain import MEANING, Domain, Role
from nn_runtime.numeric import float32, whole, whole_numbers
from nn_runtime.operand import (
    MAX_SIZE_BYTES,
    has_unknown_dimensions,
    is_tensor,
    merge_dimensions,
    size_bytes,
)
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.device import Device
    from nn_runtime.hal.interfaces import IPreparedModel
    from nn_runtime.hal.types import Operand
    from nn_runtime.operand import Dimensions
    from nn_runtime.plan import StepRole

_log = logging.getLogger("nn_runtime.memory")


@dataclass(frozen=True)
class _Use:
    """How often executions of a compilation will use the memory in a role, of 1.0 in all."""

    compilation: Compilation
    frequency: float


class MemoryDesc:
    """What device memory will be used for: roles in finished compilations, and dimensions."""

    def __init__(self) -> None:
        self._roles: dict[Role, _Use] = {}
        self._operand: Operand | None = None
        self._dimensions: Dimensions = ()
        self._finished = False
        self._closed = False

    def add_input_role(self, compilation: Compilation, index: int, frequency: float) -> None:
        """Say that the memory will be input `index` of executions of a compilation, `frequency` in (0, 1]."""
        self._add_role(compilation, True, index, frequency)

    def add_output_role(self, compilation: Compilation, index: int, frequency: float) -> None:
        """Say that the memory will be output `index` of executions of a compilation."""
        self._add_role(compilation, False, index, frequency)

    def set_dimensions(self, dims: Sequence[int]) -> None:
        """Say the dimensions (0 for unknown), merged with those of the roles; raises BadState, BadData."""
        if dims is None:
            raise UnexpectedNull("memory desc: the dimensions are None")
        self._check_open()
        given = whole_numbers("memory desc: dimensions", dims)
        if any(size < 0 for size in given):
            raise BadData(f"memory desc: dimensions must be >= 0, 0 for unknown, got {list(given)}")
        if self._operand is not None and given and not is_tensor(self._operand.type):
            raise BadData(f"memory desc: the roles are scalars and have no dimensions, got {list(given)}")
        try:
            self._dimensions = merge_dimensions(self._dimensions, given)
        except BadData as error:
            raise BadData(f"memory desc: {error}") from error

    def finish(self) -> None:
        """End the description; raises BadData without any role, or for more than 2^32-1 bytes."""
        self._check_open()
        if self._operand is None:
            raise BadData("memory desc: it needs at least one role")
        if size_bytes(self._operand.type, self._dimensions) > MAX_SIZE_BYTES:
            raise BadData(f"memory desc: {list(self._dimensions)} needs more than 2^32-1 bytes")
        self._finished = True

    def close(self) -> None:
        """Forget the roles: nothing can be made of it any more."""
        self._closed = self._finished = True
        self._roles.clear()

    def __enter__(self) -> MemoryDesc:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._finished:
            raise BadState(f"memory desc: it is {'closed' if self._closed else 'finished'}")

    def _add_role(self, compilation: Compilation, is_input: bool, index: int, frequency: float) -> None:
        check_kind("memory desc: the compilation", compilation, Compilation)
        self._check_open()
        index = whole("memory desc: index of a role", index)
        plan = compilation.plan
        if plan is None:
            what = f"{'input' if is_input else 'output'} {index}"
            raise BadData(f"memory desc: the compilation of {what} is not finished, is closed, or its finish failed")
        role = Role(plan, is_input, index)
        graph = plan.model.main
        indexes = graph.input_indexes if role.is_input else graph.output_indexes
        if not 0 <= role.index < len(indexes):
            raise BadData(f"memory desc: {role} is out of range, the model has {len(indexes)}")
        if not 0 < float32(f"memory desc: frequency of {role}", frequency) <= 1:
            raise BadData(f"memory desc: frequency of {role} must be > 0 and <= 1, got {frequency}")
        if role in self._roles:
            raise BadData(f"memory desc: {role} is there already")
        operand = graph.operands[indexes[role.index]]
        dimensions = self._merged(role, operand)
        self._roles[role] = _Use(compilation, frequency)
        self._operand = operand
        self._dimensions = dimensions

    def _merged(self, role: Role, operand: Operand) -> Dimensions:
        first = self._operand
        if first is not None:
            for what in MEANING:
                wanted, got = getattr(first, what), getattr(operand, what)
                if wanted != got:
                    raise BadData(f"memory desc: {what} of {role} is {got}, of the roles before {wanted}")
        if not is_tensor(operand.type) and self._dimensions:
            raise BadData(f"memory desc: {role} is a scalar and has no dimensions, got {list(self._dimensions)}")
        try:
            return merge_dimensions(self._dimensions, operand.dimensions)
        except BadData as error:
            raise BadData(f"memory desc: {role}: {error}") from error

    def allocate(self) -> Memory:
        """Return the memory; see `Memory.from_desc`."""
        if not self._finished or self._closed or self._operand is None:
            raise BadState(f"memory from desc: the descriptor is {'closed' if self._closed else 'not finished'}")
        domain = Domain(frozenset(self._roles), self._operand, self._dimensions)
        used = self._step_roles()
        used_devices = {role.step.device.name: role.step.device for role, _ in used}
        failure: HalError | None = None
        if len(used_devices) == 1:
            device = next(iter(used_devices.values()))
            try:
                buffer, token = _allocate_on(device, self._dimensions, used)
            except HalError as error:
                failure = error
                _log.debug("device memory on %s: %s; falling back", device.name, error)
            else:
                _log.debug("device memory %s on %s", list(self._dimensions), device.name)
                return Memory(None, buffer, token, domain)
        return self._allocate_shared(domain, failure, bool(used_devices))

    def _step_roles(self) -> list[tuple[StepRole, float]]:
        """Expand every role to the uses of the same operand by the steps of its plan."""
        found = []
        for role, use in self._roles.items():
            if use.compilation.plan is not None:  # it is still open
                found += [(step_role, use.frequency) for step_role in role.plan.roles_of(role.is_input, role.index)]
        return found

    def _allocate_shared(self, domain: Domain, failure: HalError | None, on_devices: bool) -> Memory:
        """Return shared memory instead; what no device uses, but only interpreted control flow, always is."""
        code = domain.operand.type
        reason = f": {failure}" if failure else ""
        if on_devices and any(use.compilation.is_explicit for use in self._roles.values()):
            raise OperationFailed(f"device memory: not possible on the devices of the compilation{reason}") from failure
        if has_unknown_dimensions(code, domain.initial):
            raise OperationFailed(
                f"device memory: shared memory needs known dimensions, got {list(domain.initial)}{reason}"
            ) from failure
        return Memory(SharedMemory.create(size_bytes(code, domain.initial)), domain=domain)


def _allocate_on(device: Device, dimensions: Dimensions, used: Sequence[tuple[StepRole, float]]) -> tuple[IBuffer, int]:
    prepared: list[IPreparedModel] = []
    roles: tuple[list[BufferRole], list[BufferRole]] = ([], [])
    for use, frequency in used:
        model = use.step.prepared
        if not any(model is other for other in prepared):
            prepared.append(model)
        at = next(i for i, other in enumerate(prepared) if other is model)
        roles[0 if use.is_input else 1].append(BufferRole(at, use.index, frequency))
    desc = BufferDesc(dimensions)
    buffer, token = two_of(lambda: device.hal.allocate(desc, prepared, roles[0], roles[1]), "allocate")
    of_kind(IBuffer, buffer, "allocate")
    if of_kind(int, token, "allocate: the token") <= 0:
        raise HalError(ErrorStatus.GENERAL_FAILURE, f"allocate: wanted a token > 0, got {token}")
    return buffer, token
