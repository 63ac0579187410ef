# SPDX-License-Identifier: Apache-2.0
"""A step of a chain, and its fields as common/chain_step.h has them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpu_driver.bound import BoundOperand
    from gpu_driver.launch import Images, Kernel, Scratch
    from nn_runtime.operand import Array
    from nn_runtime.operations.sliding_window import SlidingWindow

Memory: TypeAlias = "BoundOperand | Scratch | Images"

CONVOLVE, DEPTHWISE, FLIP_SIGNS, AVERAGE, DEPTHWISE_VNNI, EXPANDED, SOFTMAX = 0, 1, 2, 3, 4, 5, 6
BY_INTEGERS, BY_FLOATS, CENTRED = 0, 1, 2
ROUND_TWICE, ROUND_TWICE_AT_ONCE, ROUND_ONCE, ROUND_POSITIVE = 0, 1, 2, 3

PLACES = ("kind", "src", "src_offset", "dst", "dst_offset", "residual", "residual_offset", "before")
CONSTANTS = ("weights", "bias", "multipliers", "shifts", "roundings", "scales", "offsets", "modes")
GEOMETRY = (
    *("batches", "input_height", "input_width", "input_depth", "output_height", "output_width", "output_depth"),
    *("filter_height", "filter_width", "stride_height", "stride_width", "dilation_height", "dilation_width"),
    *("padding_top", "padding_left"),
)
VALUES = (
    *("chunk", "weight_offset", "zero_in", "zero_out", "rounding_mode", "low", "high"),
    *("has_residual", "zero_residual", "left_shift"),
    *("multiplier_product", "exponent_product", "multiplier_residual", "exponent_residual"),
    *("multiplier_sum", "exponent_sum", "rounding_sum"),
    *("adds_by_floats", "factor_product", "factor_residual", "offset_sum", "low_sum", "high_sum"),
)
STEP_FIELDS = (*PLACES, *CONSTANTS, *GEOMETRY, *VALUES)
"""Fields of `Step` in common/chain_step.h, four bytes each."""


@dataclass(frozen=True, eq=False)
class Step:
    """One operation of a chain.

    constants: weights, bias, and for quantised ones multipliers, shifts, roundings. values: by name of VALUES those
    that are not 0; float ones for float and half. before: the convolution that an EXPANDED step does, too: its source
    is the step's, the rest of the step is the depthwise one's.
    """

    kernel: Kernel
    kind: int
    source: Memory
    output: Memory
    residual: Memory | None
    geometry: SlidingWindow
    constants: tuple[Array, ...]
    values: Mapping[str, int | float]
    flops: int
    bytes_moved: int
    operations: tuple[int, ...] = ()
    before: Step | None = None

    @property
    def by_channel(self) -> bool:
        """Whether every output channel reads its input channel only."""
        return self.kind in (DEPTHWISE, AVERAGE, DEPTHWISE_VNNI)

    @property
    def is_depthwise(self) -> bool:
        """Whether depthwise.h does it."""
        return self.kind == DEPTHWISE

    @property
    def is_float_product(self) -> bool:
        """Whether convolve.h does it, on float32."""
        return self.kind == CONVOLVE and ("T", "float") in self.kernel.defines

    @property
    def memories(self) -> tuple[Memory, ...]:
        """What it reads and writes."""
        return (self.source, self.output) if self.residual is None else (self.source, self.output, self.residual)

    @property
    def input_shape(self) -> tuple[int, int]:
        """Pixels and channels of the input."""
        g = self.geometry if self.before is None else self.before.geometry
        return g.batches * g.input_height * g.input_width, g.input_depth

    @property
    def output_shape(self) -> tuple[int, int]:
        """Pixels and channels of the output."""
        g = self.geometry
        return g.batches * g.output_height * g.output_width, g.output_depth

    def after(self, first: Step) -> Step:
        """Return one step that does this and what makes its input, which is nowhere else then."""
        return replace(
            self,
            kind=EXPANDED,
            source=first.source,
            flops=first.flops + self.flops,
            bytes_moved=first.bytes_moved + self.bytes_moved - 2 * first.output.size_bytes,
            operations=(*first.operations, *self.operations),
            before=replace(first, output=first.source),
        )
