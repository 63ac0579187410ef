# SPDX-License-Identifier: Apache-2.0
"""Small launches in a row as one persistent kernel, whose groups stay on a GPU from operation to operation.

NVIDIA's driver takes 6 to 10 us to enqueue a kernel, and an operation of a network for one picture less than that.
Groups that wait for each other between operations take 0.6 us (H200). They have to run at the same time for that: as
many are launched as the compute units have room for, and never two such launches at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpu_driver.bound import BoundOperand
from gpu_driver.device.buffers import Lifetime, plan_arenas
from gpu_driver.kernel import Kernel, Packed, Scratch, Zeroed, constant_in, int32
from gpu_driver.launch import Launch, PersistentKind, Stage, memories_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.launch import Command, PersistentStep
    from nn_runtime.operand import Array

SOURCE = "persistent.cl"
STEP_BYTES = 256
"""Of persistent.cl: a step's kind and count, and its arguments behind them."""
OUTER = 6
"""Buffers of others that a launch takes."""
LEAST_STEPS = 3
_ALIGNMENT = 256
_NUMBER_BITS = 40
_CONSTANTS, _OWN, _FIRST_OUTER = 0, 1, 2
_PROGRESS_BYTES = 8
_TYPES = "T", "FILTER_T", "QUANTIZED"
_ELEMENTS = ("float", "half", "uchar", "char")
"""Of what is convolved; T of products may be `int`, too."""


def merge(
    commands: Sequence[Command], storage: Mapping[int, int], boundary: Collection[int], device: DeviceProfile
) -> list[Command]:
    """Put neighbouring small launches together where there are kernels for it.

    storage: the operand whose memory an operand uses, where it is another; boundary: operands used elsewhere too.
    """
    if not device.has_persistent_kernels:
        return list(commands)
    users = _Users(commands, storage)
    merged: list[Command] = []
    run: list[Launch] = []
    program = _Program()
    for at, command in enumerate((*commands, None)):
        launch = command if isinstance(command, Launch) and _can_stay(command, device) else None
        if launch is not None and program.takes(launch):
            run.append(launch)
            continue
        merged += _joined(run, range(at - len(run), at), users, boundary, device)
        run, program = [], _Program()
        if launch is not None and program.takes(launch):
            run.append(launch)
        elif command is not None:
            merged.append(command)
    return merged


class _Program:
    """What the program of a run is made for: one product with its tile, one set of types."""

    def __init__(self) -> None:
        self._product: Kernel | None = None
        self._types: dict[str, str | int] = {}

    def takes(self, launch: Launch) -> bool:
        """Take a launch in, and return whether it goes together with those before."""
        types = {name: value for name, value in launch.kernel.defines if name in _TYPES}
        product = launch.kernel if _is_product(launch) else self._product
        if self._product not in (None, product) or any(self._types.get(name, of) != of for name, of in types.items()):
            return False
        self._product = product
        self._types |= types
        return True


class _Users:
    """Which commands use a memory."""

    def __init__(self, commands: Sequence[Command], storage: Mapping[int, int]) -> None:
        self._storage = storage
        self._used: dict[object, tuple[int, int]] = {}
        for at, command in enumerate(commands):
            for memory in memories_of(command):
                if constant_in(memory) is None:
                    first, _ = self._used.setdefault(self.key(memory), (at, at))
                    self._used[self.key(memory)] = first, at

    def key(self, memory: BoundOperand | Scratch | Packed) -> object:
        """Return the same for the same memory."""
        return self._storage.get(memory.index, memory.index) if isinstance(memory, BoundOperand) else memory

    def is_within(self, key: object, run: range) -> bool:
        """Whether only commands of a run use a memory."""
        first, last = self._used[key]
        return run.start <= first and last < run.stop


def _can_stay(launch: Launch, device: DeviceProfile) -> bool:
    is_small = device.suits_persistence(launch.flops, launch.bytes_moved)
    return is_small and launch.persistent is not None and dict(launch.kernel.defines).get("T") in _ELEMENTS


def _is_product(launch: Launch) -> bool:
    return launch.persistent is not None and launch.persistent.kind == PersistentKind.PRODUCT


def _joined(
    run: Sequence[Launch], places: range, users: _Users, boundary: Collection[int], device: DeviceProfile
) -> Sequence[Launch]:
    """Return one launch for a run, several where its memory is too much for one; the run if it is short."""
    product = next((launch for launch in run if _is_product(launch)), None)
    if len(run) < LEAST_STEPS or product is None:
        return run
    memories = _Memories(run, places, users, boundary)
    if not 0 < len(memories.outer) <= OUTER or max(memories.sizes_bytes) > device.max_alloc_bytes:
        middle = len(run) // 2
        parts = (run[:middle], places[:middle]), (run[middle:], places[middle:])
        return [launch for one, at in parts for launch in _joined(one, at, users, boundary, device)]
    steps = b"".join(_step(launch, launch.persistent, memories) for launch in run if launch.persistent is not None)
    padding = [memories.outer[0]] * (OUTER - len(memories.outer))
    items = product.local_size[0]
    kernel = Kernel(SOURCE, "persistent", (*product.kernel.defines, ("FENCE", int(bool(device.matrix_units)))))
    return (
        Launch(
            kernel,
            (
                *(int32(0), int32(len(run)), Zeroed(_PROGRESS_BYTES), Packed(np.frombuffer(steps, np.uint8))),
                *(memories.constants(), memories.own or memories.outer[0], *memories.outer, *padding),
            ),
            (max(items * device.compute_units, device.persistent_items),),
            (items,),
            flops=sum(launch.flops for launch in run),
            bytes_moved=sum(launch.bytes_moved for launch in run),
            operations=tuple(dict.fromkeys(operation for launch in run for operation in launch.operations)),
            is_persistent=True,
            stages=tuple(
                Stage(launch.name, launch.operations, at, at + 1, launch.flops, launch.bytes_moved)
                for at, launch in enumerate(run)
            ),
        ),
    )


class _Memories:
    """Where the memories of a run's launches are: constants one after the other, its own by lifetime, others'."""

    def __init__(self, run: Sequence[Launch], places: range, users: _Users, boundary: Collection[int]) -> None:
        self._users = users
        self._places: dict[object, int] = {}
        self._constants: list[Array] = []
        self._size = 0
        self.outer: list[BoundOperand | Scratch] = []
        inner: dict[object, Lifetime] = {}
        constant_bytes: dict[int, int] = {}
        for at, launch in enumerate(run):
            for argument in launch.arguments:
                constant = constant_in(argument)
                if constant is not None:
                    constant_bytes[id(argument)] = _aligned(constant.size_bytes)
                if constant is not None or not isinstance(argument, BoundOperand | Scratch):
                    continue
                key = users.key(argument)
                if key not in boundary and users.is_within(key, places):
                    known = inner.get(key, Lifetime(1, at, at))
                    inner[key] = Lifetime(max(known.size_bytes, argument.size_bytes), known.first, at)
                elif key not in self._places:
                    self._places[key] = (_FIRST_OUTER + len(self.outer)) << _NUMBER_BITS
                    self.outer.append(argument)
        plan = plan_arenas(list(inner.values()), _ALIGNMENT, 1 << _NUMBER_BITS)
        for key, place in zip(inner, plan.places, strict=True):
            self._places[key] = (_OWN << _NUMBER_BITS) + place.offset
        self.own = Scratch(plan.sizes_bytes[0]) if plan.sizes_bytes else None
        self.sizes_bytes = sum(constant_bytes.values()), *plan.sizes_bytes
        """Of the constants, and of its own memory."""

    def place(self, memory: BoundOperand | Scratch | Packed) -> int:
        """Return where a memory is, as persistent.cl wants it; constants are put behind those that came before."""
        constant = constant_in(memory)
        if constant is None:
            return self._places[self._users.key(memory)]
        key = id(memory)
        if key not in self._places:
            self._places[key] = (_CONSTANTS << _NUMBER_BITS) + self._size
            filled = np.zeros(_aligned(constant.size_bytes), np.uint8)
            filled[: constant.size_bytes] = np.ascontiguousarray(constant.data).reshape(-1).view(np.uint8)
            self._constants.append(filled)
            self._size += filled.nbytes
        return self._places[key]

    def constants(self) -> Packed:
        """Return all constants that were placed."""
        return Packed(*self._constants) if self._constants else Packed(np.zeros(_ALIGNMENT, np.uint8))


def _aligned(size_bytes: int) -> int:
    return -(-max(size_bytes, 1) // _ALIGNMENT) * _ALIGNMENT


def _step(launch: Launch, persistent: PersistentStep, memories: _Memories) -> bytes:
    """Return a step of persistent.cl: arguments as C lays out a structure of them."""
    step = bytearray(np.array([persistent.kind, persistent.count, 0, 0], np.int32).tobytes())
    for argument in launch.arguments[: persistent.arguments]:
        if isinstance(argument, BoundOperand | Scratch | Packed):
            data = np.int64(memories.place(argument)).tobytes()
        elif isinstance(argument, np.generic):
            data = argument.tobytes()
        else:
            raise TypeError(f"{launch.kernel.name} has an argument that persistent.cl does not take: {argument!r}")
        step += bytes(-len(step) % len(data)) + data
    if len(step) > STEP_BYTES:
        raise ValueError(f"{launch.kernel.name} has {len(step)} bytes of arguments, persistent.cl takes {STEP_BYTES}")
    return bytes(step) + bytes(STEP_BYTES - len(step))
