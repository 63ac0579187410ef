# SPDX-License-Identifier: Apache-2.0
"""A step of a chain, and its fields as common/chain_step.h has them."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, field, replace
from typing import TYPE_CHECKING, TypeAlias

from gpu_driver.chain.kinds import From, Function, Kind, Rescale
from gpu_driver.convolution import winograd
from gpu_driver.convolution.staging import copied_bytes
from nn_runtime.codes import FuseCode
from nn_runtime.operations.sliding_window import SlidingWindow
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpu_driver.bound import BoundOperand
    from gpu_driver.kernel import Fault, Images, Kernel, Scratch
    from nn_runtime.operand import Array

Memory: TypeAlias = "BoundOperand | Scratch | Images | Fault"

GENERAL = frozenset(kind for kind in Kind if kind >= Kind.ELEMENTWISE)
"""What convolutional networks can do without."""
CONVERSIONS = frozenset((Kind.QUANTIZE, Kind.DEQUANTIZE))
"""Between real numbers and bytes, in chains of bytes."""
PLACES = (
    *("kind", "src", "src_offset", "dst", "dst_offset", "residual", "residual_offset", "third", "third_offset"),
    *("before", "epilogue"),
)
_VECTORS = "bias", "multipliers", "shifts", "roundings", "scales", "rests", "offsets"
CONSTANTS = ("weights", *_VECTORS, "modes", "excess", "places")
GEOMETRY = (
    *("batches", "input_height", "input_width", "input_depth", "output_height", "output_width", "output_depth"),
    *("filter_height", "filter_width", "stride_height", "stride_width", "dilation_height", "dilation_width"),
    *("padding_top", "padding_left"),
)
VALUES = (
    *("chunk", "zero_in", "zero_out", "rounding_mode", "low", "high"),
    *("has_residual", "zero_residual", "left_shift"),
    *("multiplier_product", "exponent_product", "multiplier_residual", "exponent_residual"),
    *("multiplier_sum", "exponent_sum", "rounding_sum"),
    *("adds_by_floats", "factor_product", "factor_residual", "offset_sum", "low_sum", "high_sum"),
    *("tiles_at_once", "instructions", "at_once", "unit_pixels", "unit_channels"),
    *("half_weights", "level_rows", "has_softmax"),
)
ELEMENT_BYTES = {"float": 4, "half": 2, "uchar": 1, "char": 1}
STEP_FIELDS = (*PLACES, *CONSTANTS, *GEOMETRY, *VALUES)
"""Fields of `Step` in common/chain_step.h, four bytes each."""
TILE_PIXELS = 7
"""Pixels that a convolution computes at once, where nothing else is said."""


@dataclass(frozen=True)
class Reading:
    """What a step reads of a memory [rows, depth], where its geometry does not say it.

    Rows in `groups` equal parts: each belongs to the same part of the output's pixels.
    """

    rows: int
    depth: int
    groups: int = 1


@dataclass(frozen=True)
class Walk:
    """Where rows of the output find theirs in an operand: row // divide % modulo, row_stride apart; columns step apart.

    rows, depth: of the operand; out_rows: of the output. part: where rows of the output begin in the operand, which has
    longer ones; None where they are all of it.
    """

    rows: int
    depth: int
    out_rows: int
    divide: int = 1
    modulo: int = 1
    step: int = 0
    part: int | None = None

    @property
    def is_plain(self) -> bool:
        """Whether the operand has the output's elements in the same order."""
        return self.modulo == self.out_rows and self.step == 1 and self.part is None

    @property
    def is_number_of_row(self) -> bool:
        """Whether every row of the output has a number of its own of it."""
        return self.modulo == self.out_rows and self.divide == self.depth == 1

    @property
    def is_scalar(self) -> bool:
        """Whether it is one number."""
        return self.rows * self.depth == 1

    @property
    def is_same_row(self) -> bool:
        """Whether all rows of the output have the same row of it."""
        return self.modulo == 1 and self.step == 1 and self.part is None

    @property
    def reading(self) -> Reading:
        """What a step reads of it."""
        return Reading(self.rows, self.depth, self.out_rows if self.modulo == self.out_rows else 1)


@dataclass(frozen=True, eq=False)
class Instruction:
    """One of common/elementwise_step.h. constant: what From.CONSTANT, TABLE and PAIRS read; coefficients of POLYNOMIAL.

    start, target, other: numbers of the values that it begins with, that it makes, and that VALUE reads, or NARROW, a
    number for each row; alternative: of those that SELECT takes where its condition does not hold. is_narrow: it makes
    such numbers of such. exact: what it makes of codes (int64) of both operands, of 8-bit tensors.
    """

    function: Function
    operand: int = From.NOTHING
    walk: Walk | None = None
    constant: Array | None = None
    reversed: bool = False
    low: float = 0
    high: float = 0
    numbers: Mapping[str, int | float] = field(default_factory=dict)
    start: int = 0
    target: int = 0
    other: int = 0
    alternative: int = 0
    is_narrow: bool = False
    exact: Callable[[Array, Array], Array] | None = None

    @property
    def is_bounded(self) -> bool:
        """Whether there are bounds of what it makes."""
        return math.isfinite(self.low) or math.isfinite(self.high)


@dataclass(frozen=True, eq=False)
class Step:
    """One operation of a chain.

    constants: weights, bias, and for quantised ones multipliers, shifts, roundings; for WINOGRAD the filters; or none.
    values: by name of VALUES those that are not 0; float ones for float and half. before: the convolution that an
    EXPANDED step does, too: its source is the step's (and stands for its output, which is nowhere), the rest of the
    step is the depthwise one's. tile_pixels: of the kernel that does it in the end. reads, reads_residual,
    reads_third: how a step reads its memories, where its geometry does not say it. program: the instructions of
    ELEMENTWISE, or those that a MEAN would have as a part of one. writes_part: whether other steps write the rest of
    the output, or wrote all of it. epilogue: an ELEMENTWISE that every task does with what it has written.
    """

    kernel: Kernel
    kind: Kind
    source: Memory
    output: Memory
    _: KW_ONLY
    residual: Memory | None = None
    geometry: SlidingWindow
    constants: tuple[Array, ...] = ()
    values: Mapping[str, int | float] = field(default_factory=dict)
    flops: int = 0
    bytes_moved: int = 0
    operations: tuple[int, ...] = ()
    before: Step | None = None
    tile_pixels: int = TILE_PIXELS
    reads: Reading | None = None
    reads_residual: Reading | None = None
    program: tuple[Instruction, ...] = ()
    third: Memory | None = None
    reads_third: Reading | None = None
    writes_part: bool = False
    epilogue: Step | None = None

    @property
    def name(self) -> str:
        """The program and what the step does, as a profile says it."""
        return f"chain:{self.kind.name.lower()}"

    @property
    def is_general(self) -> bool:
        """Whether it takes the variant of the kernel that has more than convolutions."""
        return self.kind in GENERAL

    @property
    def writes_rows_in_order(self) -> bool:
        """Whether rows of the output lie one behind the other, as they are counted; those of a TURN are scattered."""
        return self.kind != Kind.TURN

    @property
    def is_read_by_rows(self) -> bool:
        """Whether who reads rows of the output waits for the tasks alone that write them; else for all tasks."""
        return self.writes_rows_in_order and not self.writes_part

    @property
    def by_channel(self) -> bool:
        """Whether every output channel reads its input channel only."""
        return self.kind in (Kind.DEPTHWISE, Kind.AVERAGE, Kind.GREATEST, Kind.DEPTHWISE_BYTES)

    @property
    def goes_by_images(self) -> bool:
        """Whether several images are best done one after the other: what reads windows, and products."""
        return self.by_channel or not (self.is_general or self.kind in (Kind.SOFTMAX, Kind.FLIP_SIGNS, *CONVERSIONS))

    @property
    def is_depthwise(self) -> bool:
        """Whether depthwise.h does it."""
        return self.kind == Kind.DEPTHWISE

    @property
    def has_weights_beyond_bytes(self) -> bool:
        """Whether depthwise_bytes.h does it with weights that are no signed bytes: modes number their blocks."""
        modes = CONSTANTS.index("modes")
        return self.kind == Kind.DEPTHWISE_BYTES and bool((self.constants[modes] > max(Rescale)).any())

    @property
    def is_float_product(self) -> bool:
        """Whether convolve.h does it, on real numbers."""
        return self.kind == Kind.CONVOLVE and ("QUANTIZED", 0) in self.kernel.defines

    @property
    def dot4(self) -> int:
        """Return the form of common/dot4.h that its kernel has, 0 for none."""
        return int(dict(self.kernel.defines)["DOT4"])

    @property
    def element_bytes(self) -> int:
        """Size of an element of its tensors."""
        return ELEMENT_BYTES[str(dict(self.kernel.defines)["T"])]

    @property
    def is_winograd(self) -> bool:
        """Whether winograd.h does it."""
        return self.kind == Kind.WINOGRAD

    @property
    def on_bytes(self) -> bool:
        """Whether it computes products of real numbers on bytes made of them."""
        return self.kind == Kind.MULTIPLY_BYTES

    @property
    def reads_in_place(self) -> bool:
        """Whether inputs are read where they lie, so that a task of few channels does nothing that others do, too."""
        if self.kind in (Kind.DEPTHWISE, Kind.DEPTHWISE_BYTES, Kind.MULTIPLY_BYTES) or self.is_float_product:
            return True
        g = self.geometry
        return self.kind == Kind.CONVOLVE and self.dot4 != 0 and g.is_per_pixel and g.input_depth % 4 == 0

    @property
    def memories(self) -> tuple[Memory, ...]:
        """What it reads and writes."""
        return self.source, self.output, *(one for one in (self.residual, self.third) if one is not None)

    @property
    def input_shape(self) -> tuple[int, int]:
        """Pixels and channels of the input."""
        if self.reads is not None:
            return self.reads.rows, self.reads.depth
        g = self.geometry if self.before is None else self.before.geometry
        return g.batches * g.input_height * g.input_width, g.input_depth

    @property
    def residual_shape(self) -> tuple[int, int]:
        """Pixels and channels of the residual."""
        reads = self.reads_residual
        return self.output_shape if reads is None else (reads.rows, reads.depth)

    @property
    def third_shape(self) -> tuple[int, int]:
        """Pixels and channels of the third memory."""
        reads = self.reads_third
        return self.output_shape if reads is None else (reads.rows, reads.depth)

    @property
    def output_shape(self) -> tuple[int, int]:
        """Pixels and channels of the output."""
        g = self.geometry
        return g.batches * g.output_height * g.output_width, g.output_depth

    @property
    def work_bytes(self) -> int:
        """Size of the memory that every work-group needs for itself while it does a task of this."""
        if self.is_winograd:
            return winograd.work_bytes(self.geometry.input_depth, int(self.values["tiles_at_once"]))
        is_half = ("T", "half") in self.kernel.defines
        if self.is_float_product:
            return copied_bytes(self.geometry, self.tile_pixels, is_half=is_half)
        return copied_bytes(self.before.geometry, self.tile_pixels, is_half=True) if self.before and is_half else 0

    def on(self, others: Mapping[Memory, Memory]) -> Step:
        """Return the step with other memories in the place of some."""
        residual, third = (None if one is None else others.get(one, one) for one in (self.residual, self.third))
        source, output = (others.get(one, one) for one in (self.source, self.output))
        return replace(self, source=source, output=output, residual=residual, third=third)

    def after(self, first: Step) -> Step:
        """Return one step that does this and what makes its input, which is nowhere else then."""
        return replace(
            self,
            kind=Kind.EXPANDED,
            source=first.source,
            flops=first.flops + self.flops,
            bytes_moved=first.bytes_moved + self.bytes_moved - 2 * first.output.size_bytes,
            operations=(*first.operations, *self.operations),
            before=replace(first, output=first.source),
        )


def rows_of(rows: int, depth: int, batches: int = 1) -> SlidingWindow:
    """Return the geometry of a step that makes so many rows of each image."""
    ends, filters = (rows, depth, 1, rows, depth), (1, 1, 1, 1, 1, 1, 0, 0, 0, 0)
    return SlidingWindow(batches, 1, *ends, *filters, nchw=False, activation=FuseCode.NONE)
