# SPDX-License-Identifier: Apache-2.0
"""Operands without a model, for tests of single operations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode
from nn_runtime.operand import dtype_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.operand import Array, ChannelQuant, Dimensions


@dataclass(frozen=True)
class FakeOperand:
    """An OperandView whose fields are given."""

    type: int
    dimensions: Dimensions | None = ()
    data: Array | None = None
    scale: float = 0.0
    zero_point: int = 0
    channel_quant: ChannelQuant | None = None
    omitted: bool = False

    def value(self) -> Array | None:
        return self.data

    def subgraph(self) -> None:
        return None


def tensor(*dims: int, code: int = OperandCode.TENSOR_FLOAT32, scale: float = 0.0, zero_point: int = 0) -> FakeOperand:
    """Return a tensor without a value."""
    return FakeOperand(code, dims, None, scale, zero_point)


def scalar(code: int, value: float) -> FakeOperand:
    """Return a scalar with a value."""
    return FakeOperand(code, (), np.array(value, dtype_of(code)))


def integer(value: int) -> FakeOperand:
    """Return an INT32 scalar."""
    return scalar(OperandCode.INT32, value)


def integers(values: Sequence[int]) -> FakeOperand:
    """Return a TENSOR_INT32 with values."""
    return FakeOperand(OperandCode.TENSOR_INT32, (len(values),), np.array(values, np.int32))


def omitted(code: int = OperandCode.TENSOR_FLOAT32) -> FakeOperand:
    """Return an optional tensor without a value."""
    return FakeOperand(code, (0,), omitted=True)
