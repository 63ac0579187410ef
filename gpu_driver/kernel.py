# SPDX-License-Identifier: Apache-2.0
"""A kernel, and the arguments that it takes. Nothing here calls OpenCL."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from gpu_driver.bound import BoundOperand
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from nn_runtime.operand import Array


@dataclass(frozen=True)
class Kernel:
    """A kernel function of one source file, built with the given defines (sorted by name by the launcher or not)."""

    source: str
    name: str
    defines: tuple[tuple[str, str | int], ...] = ()

    @property
    def title(self) -> str:
        """The program and the function: program:function."""
        return f"{self.source.removesuffix('.cl')}:{self.name}"


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
    """Memory of a launch's own that is zero before its first run, and keeps what its kernel leaves there."""

    size_bytes: int


@dataclass(frozen=True, eq=False)
class Fault:
    """One int32, 0 before an execution: the kernel leaves `number` there for wrong values, of which `problem` tells.

    Nobody waits for it alone: the execution fails when it waits for something else.
    """

    number: int
    problem: str

    @property
    def size_bytes(self) -> int:
        """Size of that int32."""
        return 4


Scalar: TypeAlias = np.generic
"""An argument by value: np.int32(3), np.float32(0.5), or an OpenCL vector as a structured numpy scalar."""


@dataclass(frozen=True, eq=False)
class RandomSeed:
    """A `ulong2` by value, other random bits at every enqueue."""


Argument: TypeAlias = BoundOperand | Packed | Scratch | Images | Zeroed | Fault | RandomSeed | Scalar


def memory_bytes(*arguments: Argument) -> int:
    """Return the sizes of the memories among arguments, each once."""
    memories = {id(one): one for one in arguments if isinstance(one, BoundOperand | Packed | Scratch)}
    return sum(one.size_bytes for one in memories.values())


def constant_in(argument: Argument) -> Packed | None:
    """Return what is to be uploaded for an argument, None where nothing is."""
    if isinstance(argument, BoundOperand):
        return None if argument.constant is None else Packed(argument.constant)
    return argument if isinstance(argument, Packed) else None


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
