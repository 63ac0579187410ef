# SPDX-License-Identifier: Apache-2.0
"""Arguments as executions bind them, and the requests that drivers get."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from nn_runtime.hal.types import BufferToken, DataLocation, Request, RequestArgument
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nn_runtime.hal.interfaces import IBuffer
    from nn_runtime.hal.memory import SharedMemory
    from nn_runtime.hal.types import Model, Operand
    from nn_runtime.operand import Array, Dimensions


@dataclass(frozen=True)
class Argument:
    """A model's input or output as an execution binds it.

    `dimensions`: what model and caller know, 0 and () for what is not known. The bytes are `length` ones of `pointer`,
    or of `pool` from `offset`. Neither: omitted. `buffer` is the driver's object behind a token in place of a pool.
    """

    dimensions: Dimensions = ()
    pointer: Array | None = None
    pool: SharedMemory | BufferToken | None = None
    offset: int = 0
    length: int = 0
    padding: int = 0
    buffer: IBuffer | None = None

    @property
    def omitted(self) -> bool:
        """Whether the argument has no value."""
        return self.pointer is None and self.pool is None


class OtherMemory(NamedTuple):
    """Arrays for a single run in the place of those bound, by the numbers of inputs and of outputs."""

    inputs: Mapping[int, Array]
    outputs: Mapping[int, Array]


def with_other(arguments: Sequence[Argument], arrays: Mapping[int, Array]) -> list[Argument]:
    """Return the arguments with other arrays for some of them."""
    return [replace(one, pointer=arrays[i]) if i in arrays else one for i, one in enumerate(arguments)]


def request_of(model: Model, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> Request:
    """Return the request that binds arguments to the inputs and outputs of a model; equal pools are listed once."""
    pools: list[SharedMemory | BufferToken] = []
    main = model.main
    return Request(
        tuple(_request_argument(main.operands[i], a, pools) for i, a in zip(main.input_indexes, inputs, strict=True)),
        tuple(_request_argument(main.operands[i], a, pools) for i, a in zip(main.output_indexes, outputs, strict=True)),
        tuple(pools),
    )


def _request_argument(operand: Operand, argument: Argument, pools: list[SharedMemory | BufferToken]) -> RequestArgument:
    if argument.omitted:
        return RequestArgument(has_no_value=True)
    dimensions = () if argument.dimensions == operand.dimensions else argument.dimensions
    if argument.pointer is not None:
        location = DataLocation(length=argument.length, padding=argument.padding, pointer=argument.pointer)
        return RequestArgument(False, location, dimensions)
    pool = argument.pool
    at = next((i for i, other in enumerate(pools) if other is pool or (_is_token(pool) and other == pool)), -1)
    if at < 0 and pool is not None:
        at = len(pools)
        pools.append(pool)
    return RequestArgument(False, DataLocation(at, argument.offset, argument.length, argument.padding), dimensions)


def _is_token(pool: SharedMemory | BufferToken | None) -> bool:
    return isinstance(pool, BufferToken)
