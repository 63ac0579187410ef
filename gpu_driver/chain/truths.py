# SPDX-License-Identifier: Apache-2.0
"""Truth values between the steps of a chain of real numbers: they are 1 and 0 of its type.

In memory that others use they are bytes (TENSOR_BOOL8). So comparisons and what reads them become steps where nothing
but steps uses the truth values, which have scratch memory then, if they need any at all.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from gpu_driver.bound import BoundOperand
from gpu_driver.kernel import Scratch
from gpu_driver.launch import Launch, Steps, memories_of
from nn_runtime.codes import OperandCode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from gpu_driver.chain.step import Memory
    from gpu_driver.kernel import Kernel
    from gpu_driver.launch import Command

_LEAST_OTHERS = 2
"""So many steps of other operations of a type are worth its chain, which comparisons alone are not."""


def with_truths(
    commands: Sequence[Command | Steps], key: Callable[[Memory], int], boundary: Collection[int]
) -> list[Command | Steps]:
    """Let comparisons, and what reads the truth values, be steps on scratch memory, or no steps at all.

    key: the same for memories that are the same; boundary: keys of memories that are used elsewhere, too.
    """
    used = [{one: key(one) for one in _truths(command)} for command in commands]
    if not any(used):
        return list(commands)
    kernels = [_kernel_of(command) for command in commands]
    others = Counter(kernel for kernel, truths in zip(kernels, used, strict=True) if not truths)
    apart = {
        at
        for at, (kernel, truths) in enumerate(zip(kernels, used, strict=True))
        if truths and (kernel is None or others[kernel] < _LEAST_OTHERS or {*truths.values()} & {*boundary})
    }
    while True:  # with a truth value, all that use it are steps of one chain, or none of them
        chains: dict[int, set[Kernel | None]] = {}
        for at, truths in enumerate(used):
            for one in truths.values():
                chains.setdefault(one, set()).add(None if at in apart else kernels[at])
        torn = {one for one, found in chains.items() if len(found) > 1}
        more = {at for at, truths in enumerate(used) if not torn.isdisjoint(truths.values())} - apart
        if not more:
            break
        apart |= more
    scratch: dict[int, Scratch] = {}
    return [
        command if not used[at] else _without_steps(command) if at in apart else _on_scratch(command, used[at], scratch)
        for at, command in enumerate(commands)
    ]


def _truths(command: Command | Steps) -> list[BoundOperand]:
    """Return the truth values that a command reads or writes, but constants."""
    return [
        one
        for one in memories_of(command)
        if isinstance(one, BoundOperand) and one.type == OperandCode.TENSOR_BOOL8 and not one.is_constant
    ]


def _kernel_of(command: Command | Steps) -> Kernel | None:
    """Return the kernel whose chains can do a command."""
    steps = command.steps if isinstance(command, Launch | Steps) else ()
    return steps[0].kernel if steps else None


def _without_steps(command: Command | Steps) -> Command | Steps:
    return replace(command, steps=()) if isinstance(command, Launch) else command


def _on_scratch(
    command: Command | Steps, truths: Mapping[BoundOperand, int], scratch: dict[int, Scratch]
) -> Command | Steps:
    """Return the steps of a command with scratch memory for truth values, which is added to that of others."""
    steps = command.steps if isinstance(command, Launch | Steps) else ()
    memories: dict[Memory, Memory] = {}
    for operand, one in truths.items():
        memories[operand] = scratch.setdefault(one, Scratch(operand.count * steps[0].element_bytes))
    return Steps(tuple(step.on(memories) for step in steps), command.operations)
