# SPDX-License-Identifier: Apache-2.0
"""A launch as a value: which kernel, on which arguments, over how many work-items. Nothing here calls OpenCL."""

from __future__ import annotations

from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperand
    from gpu_driver.chain.step import Step
    from nn_runtime.operand import Array

WorkSize: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class Kernel:
    """A kernel function of one source file, built with the given defines (sorted by name by the launcher or not)."""

    source: str
    name: str
    defines: tuple[tuple[str, str | int], ...] = ()


class Packed:
    """Constant data prepared on the host (packed weights, multipliers, tables), uploaded once per device.

    Several parts are one after the other. Once the device has them, the host need not have room for them.
    """

    def __init__(self, *parts: Array) -> None:
        """Take one array, or several of one dimension."""
        self.parts = parts

    @property
    def size_bytes(self) -> int:
        """Size of all parts."""
        return sum(part.nbytes for part in self.parts)

    @property
    def data(self) -> Array:
        """All parts, contiguous or not."""
        return self.parts[0] if len(self.parts) == 1 else np.concatenate(self.parts)

    def forget(self) -> None:
        """Have no parts any more."""
        self.parts = ()


@dataclass(frozen=True, eq=False)
class Scratch:
    """A temporary of one operation. The same object in two launches of a tuple is the same memory."""

    size_bytes: int


@dataclass(frozen=True, eq=False)
class Images:
    """Each of `count` equal parts of a memory, one after the other: a launch that takes it is enqueued so often."""

    whole: BoundOperand | Scratch
    count: int

    @property
    def size_bytes(self) -> int:
        """Size of a part."""
        return self.whole.size_bytes // self.count


@dataclass(frozen=True, eq=False)
class Zeroed:
    """Memory of a launch's own that is zero when it starts; its kernel leaves it zero."""

    size_bytes: int


@dataclass(frozen=True, eq=False)
class Fault:
    """One int32, 0 before an execution: the kernel leaves `number` there for wrong values, of which `problem` tells.

    Nobody waits for it alone: the execution fails when it waits for something else.
    """

    number: int
    problem: str


@dataclass(frozen=True)
class Stage:
    """Part of a launch that can be enqueued apart, to be timed: its first two arguments are then first and last."""

    operations: tuple[int, ...]
    first: int
    last: int
    flops: int
    bytes_moved: int


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


Scalar: TypeAlias = np.generic
"""An argument by value: np.int32(3), np.float32(0.5), or an OpenCL vector as a structured numpy scalar."""


@dataclass(frozen=True, eq=False)
class RandomSeed:
    """A `ulong2` by value, other random bits at every enqueue."""


Argument: TypeAlias = "BoundOperand | Packed | Scratch | Images | Zeroed | Fault | RandomSeed | Scalar"


@dataclass(frozen=True)
class Launch:
    """One kernel enqueue. `global_size` is a multiple of `local_size`; kernels return for items beyond their data.

    Operands in `arguments` stand for their buffers (constants are uploaded as they are). `flops` and `bytes_moved`
    are what the mathematics needs, for estimates and profiles. `operations` is filled in by lowering.
    `steps`: what a launch of chain.cl does, or could do in its place; `stages`: those of several steps;
    `clock`: how they can be timed while they run as one launch. `in_place`: the second argument may have the memory of
    the first: no work-item reads an element after it, or another, has written that.
    """

    kernel: Kernel
    arguments: tuple[Argument, ...]
    global_size: WorkSize
    local_size: WorkSize
    flops: int = 0
    bytes_moved: int = 0
    operations: tuple[int, ...] = field(default=())
    steps: tuple[Step, ...] = field(default=())
    stages: tuple[Stage, ...] = field(default=())
    clock: Clock | None = None
    in_place: bool = False

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
    The last launch must use it, so that nothing else lies there. Outputs have room for the greatest dimensions.
    """

    launches: tuple[Launch | Steps, ...]
    status: Scratch
    problem: str


Command: TypeAlias = Launch | CopyBuffer
Lowered: TypeAlias = Launch | Steps | Alias | Measured | tuple["Launch | Steps | Alias", ...]
"""What a launcher returns: one launch or steps, an alias, several in order, or launches that measure their outputs."""


def int32(value: int) -> Scalar:
    """Return an `int` kernel argument."""
    argument: Scalar = np.int32(value)
    return argument


def float32(value: float) -> Scalar:
    """Return a `float` kernel argument."""
    argument: Scalar = np.float32(value)
    return argument


def int_vector(*values: int) -> Scalar:
    """Return an `int2`, `int4` or `int8` kernel argument."""
    packed = np.array(values, np.int32)
    argument: Scalar = packed.view(np.dtype((np.void, packed.nbytes)))[0]
    return argument


def float_vector(*values: float) -> Scalar:
    """Return a `float2` or `float4` kernel argument."""
    packed = np.array(values, np.float32)
    argument: Scalar = packed.view(np.dtype((np.void, packed.nbytes)))[0]
    return argument
