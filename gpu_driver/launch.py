# SPDX-License-Identifier: Apache-2.0
"""A launch as a value: which kernel, on which arguments, over how many work-items; and what else a device does."""

from __future__ import annotations

from dataclasses import KW_ONLY, field
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from gpu_driver.bound import BoundOperand
from gpu_driver.kernel import Images, Scratch
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpu_driver.chain.step import Step
    from gpu_driver.kernel import Argument, Kernel
    from nn_runtime.operand import Array

WorkSize: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class Stage:
    """Part of a launch that can be enqueued apart, to be timed: its first two arguments are then first and last.

    on_bytes: it computes products of real numbers on bytes made of them.
    """

    name: str
    """What a profile says of it: the program, and what that does."""
    operations: tuple[int, ...]
    first: int
    last: int
    flops: int
    bytes_moved: int
    on_bytes: bool = False


@dataclass(frozen=True)
class Clock:
    """Where a launch leaves when its tasks began and ended, in cycles of the processor, and whose stage each task is.

    Its Zeroed memory has lines of so many words; that of the first task is `first_line`, words 2 to 5 are two ulong.
    """

    line_words: int
    first_line: int
    stages: tuple[int, ...]

    def stamps(self, memory: Array) -> Array:
        """Return [tasks, 2], when each began and ended: a view of the launch's Zeroed memory, given as bytes."""
        lines = memory.view(np.uint64).reshape(-1, self.line_words // 2)
        return lines[self.first_line :][: len(self.stages), 1:3]


class PersistentKind(IntEnum):
    """How a step of persistent.cl is done: STEP_* there."""

    PRODUCT = 0
    DEPTHWISE_STRIPS = 1
    DEPTHWISE_PIXELS = 2
    COMBINATION = 3


@dataclass(frozen=True)
class PersistentStep:
    """How persistent.cl does a launch: so many tiles, work-items or elements.

    arguments: how many of the launch's it takes, from the first on; None for all.
    """

    kind: PersistentKind
    count: int
    arguments: int | None = None


@dataclass(frozen=True)
class Launch:
    """One kernel enqueue. `global_size` is a multiple of `local_size`; kernels return for items beyond their data.

    Operands in `arguments` stand for their buffers (constants are uploaded as they are). `flops` and `bytes_moved`
    are what the mathematics needs, for estimates and profiles. `operations` is filled in by lowering.
    `steps`: what a launch of chain.cl does, or could do in its place; `stages`: what parts that has;
    `clock`: how they can be timed while they run as one launch. `in_place`: the second argument may have the memory of
    the first, which is as large: no work-item reads an element after it, or another, has written that.
    `is_persistent`: its groups stay and wait for each other, so that no other such launch may run at the same time.
    `on_bytes`: as of a Stage. `persistent`: how such a launch can do it, None if none can.
    """

    kernel: Kernel
    arguments: tuple[Argument, ...]
    global_size: WorkSize
    local_size: WorkSize
    _: KW_ONLY
    flops: int = 0
    bytes_moved: int = 0
    operations: tuple[int, ...] = field(default=())
    steps: tuple[Step, ...] = field(default=())
    stages: tuple[Stage, ...] = field(default=())
    clock: Clock | None = None
    in_place: bool = False
    on_bytes: bool = False
    is_persistent: bool = False
    persistent: PersistentStep | None = None

    @cached_property
    def name(self) -> str:
        """The program and its function as a profile says it, or the only stage."""
        return self.stages[0].name if len(self.stages) == 1 else self.kernel.title

    @cached_property
    def repeats(self) -> int:
        """How often it is enqueued: for each image."""
        return max((one.count for one in self.arguments if isinstance(one, Images)), default=1)


@dataclass(frozen=True)
class Steps:
    """What chain.cl does one step after the other: `chain.merge` makes launches of it, with what stands beside it."""

    steps: tuple[Step, ...]
    operations: tuple[int, ...] = field(default=())


@dataclass(frozen=True)
class CopyBuffer:
    """A device-to-device copy of a whole operand of the same size (RESHAPE that cannot be an alias)."""

    source: BoundOperand
    destination: BoundOperand
    operations: tuple[int, ...] = field(default=())


@dataclass(frozen=True)
class Alias:
    """No work: `destination` has the same bytes as `source`. Becomes a CopyBuffer where both need own memory."""

    source: BoundOperand
    destination: BoundOperand


@dataclass(frozen=True)
class Measured:
    """The launches of an operation whose outputs have a first dimension that the device finds out.

    `status` is memory of two int32 that they leave: that size, and not 0 where the inputs are wrong, namely `problem`.
    Outputs have room for the greatest dimensions.
    """

    launches: tuple[Launch | Steps, ...]
    status: Scratch
    problem: str


Command: TypeAlias = Launch | CopyBuffer
Lowered: TypeAlias = Launch | Steps | Alias | Measured | tuple["Launch | Steps | Alias", ...]
"""What a launcher returns: one launch or steps, an alias, several in order, or launches that measure their outputs."""


def memories_of(command: Command | Steps | Alias) -> list[BoundOperand | Scratch]:
    """Return the memories that a command names, constants among them; whole ones where it takes images of them."""
    named: Iterable[object]
    if isinstance(command, Steps):
        named = (memory for step in command.steps for memory in step.memories)
    elif isinstance(command, Launch):
        named = command.arguments
    else:
        named = command.source, command.destination
    wholes = (one.whole if isinstance(one, Images) else one for one in named)
    return [whole for whole in wholes if isinstance(whole, BoundOperand | Scratch)]


def arguments_of(command: Command) -> tuple[Argument, ...]:
    """Return what a command is given, or copies from and to."""
    return command.arguments if isinstance(command, Launch) else (command.source, command.destination)
