# SPDX-License-Identifier: Apache-2.0
"""Operands and operations as launchers see them: every dimension known, parameter values on the host."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from nn_runtime import operand as operand_types
from nn_runtime.operations import OperationView
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.codes import FuseCode
    from nn_runtime.operand import Array, ChannelQuant, Dimensions


@dataclass(frozen=True, eq=False)
class BoundOperand:
    """OperandView of an operand at run time. As a launch argument it stands for its buffer.

    `constant` is the data of a model constant; `known` is the value of a parameter that this run brought.
    """

    index: int
    type: int
    dimensions: Dimensions
    scale: float = 0.0
    zero_point: int = 0
    channel_quant: ChannelQuant | None = None
    omitted: bool = False
    constant: Array | None = None
    known: Array | None = None

    def value(self) -> Array | None:
        """Return the data where the host knows it."""
        return self.constant if self.constant is not None else self.known

    def subgraph(self) -> None:
        """Return None: control flow is no operation that is lowered."""
        return

    @property
    def is_constant(self) -> bool:
        """Whether the model holds the data, so that it may be packed."""
        return self.constant is not None

    @property
    def data(self) -> Array:
        """The data of a constant; raises ValueError for another operand."""
        if self.constant is None:
            raise ValueError(f"operand {self.index} is not constant")
        return self.constant

    @property
    def count(self) -> int:
        """Number of elements."""
        return operand_types.element_count(self.dimensions)

    @property
    def size_bytes(self) -> int:
        """Size of the dense data in bytes."""
        return self.count * operand_types.dtype_of(self.type).itemsize


@dataclass(frozen=True)
class Fusion:
    """What was folded into an operation. Launchers of convolutions honour every field but the last four.

    activation: replaces the operation's own. residual: a tensor of the output's shape to add, before the
    activation. product: the operation's own result, before a residual is added. bounds: of real results, after all
    this. table: the codes that a DEQUANTIZE [256] or MAXIMUM [256, 256] makes of codes instead. from_end: a GATHER
    or EMBEDDING_LOOKUP counts negative indices from the end. is_sum: a MEAN from 8 bits to real numbers is not
    divided. behind: what a GATHER's source goes on with on the axis.
    """

    activation: FuseCode | None = None
    residual: BoundOperand | None = None
    product: BoundOperand | None = None
    bounds: tuple[float, float] = (-math.inf, math.inf)
    table: Array | None = None
    from_end: bool = False
    is_sum: bool = False
    behind: BoundOperand | None = None


class BoundOperation(OperationView):
    """An OperationView whose operands are bound, with what was fused into it."""

    inputs: Sequence[BoundOperand]
    outputs: Sequence[BoundOperand]

    def __init__(
        self,
        code: int,
        inputs: Sequence[BoundOperand],
        outputs: Sequence[BoundOperand],
        index: int | None = None,
        fusion: Fusion | None = None,
    ) -> None:
        """Keep operands and fusion."""
        super().__init__(code, inputs, outputs, index)
        self.fusion = fusion or Fusion()

    def input(self, name: str) -> BoundOperand:
        """Return the input called `name`; raises BadData if it is absent or omitted."""
        found = super().input(name)
        if not isinstance(found, BoundOperand):
            raise TypeError(f"{self.label}: input {name} is not bound")
        return found

    def all_inputs(self, name: str) -> list[BoundOperand]:
        """Return every input called `name`."""
        pairs = zip(self.arguments, self.inputs, strict=True)
        return [operand for argument, operand in pairs if argument.name == name]
