# SPDX-License-Identifier: Apache-2.0
"""What operations over sequences share: time and batches, how two directions are linked, the outputs of both."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from nn_runtime.codes import FeatureLevel
from nn_runtime.errors import BadData
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nn_runtime.operand import Dimensions
    from nn_runtime.operations.signature import OperationView


class Linking(Enum):
    """What the auxiliary input of a bidirectional operation is for."""

    NONE = "there is none"
    PARALLEL = "it is the backward cell's only input"
    CROSS = "both cells get it besides the input, with weights of its own"


@dataclass(frozen=True)
class Steps:
    """Sizes of a sequence input [max_time, batches, input_size], or [batches, max_time, input_size]."""

    batches: int
    max_time: int
    input_size: int
    time_major: bool

    def dimensions(self, size: int) -> Dimensions:
        """Return the dimensions of a sequence of `size` elements per step in the operation's layout."""
        leading = (self.max_time, self.batches) if self.time_major else (self.batches, self.max_time)
        return (*leading, size)


def sequence_steps(op: OperationView, time_major: bool) -> Steps:
    """Return the sizes of the input; raises BadData for a wrong rank or an empty input."""
    dims = op.dimensions("input")
    if len(dims) != 3 or 0 in dims:
        op.fail("input", "must have rank 3 and no size 0", list(dims))
    batches, max_time = (dims[1], dims[0]) if time_major else dims[:2]
    return Steps(batches, max_time, dims[2], time_major)


def all_or_none(op: OperationView, names: Iterable[str]) -> bool:
    """Tell whether the named inputs have values; raises BadData if only some have."""
    names = list(names)
    given = [name for name in names if op.optional(name) is not None]
    if given and len(given) < len(names):
        missing = next(name for name in names if name not in given)
        op.fail(missing, f"must be given as {given[0]} is", "no value")
    return bool(given)


def linking(op: OperationView, auxiliary_weights: Iterable[str]) -> Linking:
    """Return how the directions are linked, by the auxiliary input and its weights being there; raises BadData."""
    weighted = all_or_none(op, auxiliary_weights)
    if op.optional("aux_input") is not None:
        return Linking.CROSS if weighted else Linking.PARALLEL
    if weighted:
        op.fail("aux_input", "must have a value as its weights have", "no value")
    return Linking.NONE


def auxiliary_size(op: OperationView, steps: Steps) -> int:
    """Return the elements per step of the auxiliary input, 0 if there is none; raises BadData for wrong dimensions."""
    if op.optional("aux_input") is None:
        return 0
    dims = op.dimensions("aux_input")
    if len(dims) != 3 or dims[2] == 0 or dims != steps.dimensions(dims[2]):
        op.fail(
            "aux_input", f"must have batches and steps of the input {list(steps.dimensions(steps.input_size))}", dims
        )
    return dims[2]


def check_dimensions(op: OperationView, wanted: dict[str, Dimensions]) -> None:
    """Check the dimensions of inputs by name, where they have values; raises BadData."""
    for name, dims in wanted.items():
        operand = op.optional(name)
        if operand is not None and operand.dimensions != dims:
            op.fail(name, f"must have dimensions {list(dims)}", list(operand.dimensions or ()))


def check_directions(op: OperationView) -> FeatureLevel:
    """Check ranks and number of the outputs of both directions, and return the feature level they need.

    Merged sequences are one output, else two; the states follow all together or not at all, so that an odd number
    means merged. Raises BadData.
    """
    sequences = 1 if len(op.outputs) % 2 else 2
    for at, output in enumerate(op.outputs):
        rank = 3 if at < sequences else 2
        if output.dimensions and len(output.dimensions) != rank:
            raise BadData(f"{op.label}: output {at} must have rank {rank}, got {list(output.dimensions)}")
    merged = op.input("merge_outputs").value()
    if merged is not None and bool(merged.reshape(-1)[0]) != (sequences == 1):
        op.fail("merge_outputs", f"must agree with {len(op.outputs)} outputs", bool(merged.reshape(-1)[0]))
    return FeatureLevel.HAL_1_3 if len(op.outputs) > 2 else FeatureLevel.HAL_1_2


def directions_dimensions(
    op: OperationView, steps: Steps, sizes: tuple[int, int], states: tuple[Dimensions, ...]
) -> tuple[Dimensions, ...]:
    """Return the dimensions of the outputs of both directions; raises BadData if merging disagrees with their number.

    `sizes`: elements per step of the forward and of the backward output.
    """
    sequences = (sum(sizes),) if op.bool_value("merge_outputs") else sizes
    found = (*(steps.dimensions(size) for size in sequences), *states)
    if len(op.outputs) not in (len(sequences), len(found)):
        op.fail("merge_outputs", f"must agree with {len(op.outputs)} outputs", op.bool_value("merge_outputs"))
    return found[: len(op.outputs)]
