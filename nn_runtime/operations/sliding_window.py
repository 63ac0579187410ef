# SPDX-License-Identifier: Apache-2.0
"""Geometry of operations that move a filter over height and width: convolution, pooling and their kin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import FeatureLevel, FuseCode, PaddingCode
from nn_runtime.operations.signature import BOOL, INT32, Input
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from nn_runtime.operand import Dimensions
    from nn_runtime.operations.signature import OperationView

EXPLICIT_PADDING = tuple(Input(f"padding_{side}", INT32) for side in ("left", "right", "top", "bottom"))
IMPLICIT_PADDING = (Input("padding_scheme", INT32),)
STRIDES = (Input("stride_width", INT32), Input("stride_height", INT32))
MOST_PADDING = 1 << 24
LAYOUT = Input("layout", BOOL, optional=True, since=FeatureLevel.HAL_1_2)


@dataclass(frozen=True)
class SlidingWindow:
    """Sizes of one operation, all known; the filter reaches dilation * (filter - 1) + 1 pixels.

    Input pixel of output pixel y and filter tap t: y * stride - padding + t * dilation, outside the input where padded.
    """

    batches: int
    input_height: int
    input_width: int
    input_depth: int
    output_height: int
    output_width: int
    output_depth: int
    filter_height: int
    filter_width: int
    stride_height: int
    stride_width: int
    dilation_height: int
    dilation_width: int
    padding_top: int
    padding_bottom: int
    padding_left: int
    padding_right: int
    nchw: bool
    activation: FuseCode

    @property
    def output_dimensions(self) -> Dimensions:
        """Dimensions of the output in the operation's layout."""
        height, width, depth = self.output_height, self.output_width, self.output_depth
        return (self.batches, depth, height, width) if self.nchw else (self.batches, height, width, depth)

    @property
    def padded(self) -> bool:
        """Whether a tap may fall outside the input."""
        return any((self.padding_top, self.padding_bottom, self.padding_left, self.padding_right))

    @property
    def pointwise(self) -> bool:
        """Whether each output pixel sees exactly one input pixel."""
        return self.filter_height == self.filter_width == 1 and not self.padded

    @property
    def is_per_pixel(self) -> bool:
        """Whether each output pixel sees the input pixel at its own place, and that alone."""
        strides = self.stride_height, self.stride_width
        sizes = (self.output_height, self.output_width), (self.input_height, self.input_width)
        return self.pointwise and strides == (1, 1) and sizes[0] == sizes[1]


def image_dimensions(op: OperationView) -> tuple[int, int, int, int]:
    """Return batches, height, width and depth of the input, whatever its layout; only batches may be 0."""
    dims = op.dimensions("input")
    if len(dims) != 4:
        op.fail("input", "must have rank 4", list(dims))
    if op.bool_value("layout"):
        batches, depth, height, width = dims
    else:
        batches, height, width, depth = dims
    if not (height and width and depth):
        op.fail("input", "must have height, width and depth > 0", list(dims))
    return batches, height, width, depth


def sliding_window(op: OperationView, filter_height: int, filter_width: int, output_depth: int) -> SlidingWindow:
    """Return the geometry of an operation with the usual padding, stride, dilation, layout and activation inputs.

    Raises BadData for sizes, strides, dilations or paddings that are out of range, and where no output pixel is left.
    """
    batches, height, width, depth = image_dimensions(op)
    top, bottom, stride_height, dilation_height = _axis(op, "height", ("top", "bottom"), height, filter_height)
    left, right, stride_width, dilation_width = _axis(op, "width", ("left", "right"), width, filter_width)
    reach_height, reach_width = (filter_height - 1) * dilation_height + 1, (filter_width - 1) * dilation_width + 1
    output_height = (height - reach_height + top + bottom) // stride_height + 1
    output_width = (width - reach_width + left + right) // stride_width + 1
    if output_height < 1 or output_width < 1:
        op.fail("input", f"must hold a filter of {reach_height} x {reach_width}", f"{height} x {width} before padding")
    return SlidingWindow(
        batches=batches,
        input_height=height,
        input_width=width,
        input_depth=depth,
        output_height=output_height,
        output_width=output_width,
        output_depth=output_depth,
        filter_height=filter_height,
        filter_width=filter_width,
        # A step that is never taken may be of any size up to 2^31 - 1, and kernels multiply it with a tile's places.
        stride_height=min(stride_height, height + top + bottom),
        stride_width=min(stride_width, width + left + right),
        dilation_height=step_taken(dilation_height, filter_height),
        dilation_width=step_taken(dilation_width, filter_width),
        padding_top=top,
        padding_bottom=bottom,
        padding_left=left,
        padding_right=right,
        nchw=op.bool_value("layout"),
        activation=op.fuse_code(),
    )


def step_taken(step: int, places: int) -> int:
    """Return the distance of neighbours along one axis: 1 where there is one place alone."""
    return step if places > 1 else 1


def check_padding(op: OperationView, least: int = 0, **amounts: int) -> None:
    """Check paddings by the names of their inputs: up to 2^24, so that no place in a padded picture leaves 32 bits."""
    for name, amount in amounts.items():
        if not least <= amount <= MOST_PADDING:
            op.fail(name, f"must be {least} to {MOST_PADDING}", amount)


def same_padding(size: int, filter_size: int, stride: int, dilation: int) -> tuple[int, int]:
    """Return padding before and after one axis for the scheme SAME; the odd pixel goes to the tail."""
    outputs = -(-size // stride)
    total = max((outputs - 1) * stride + (filter_size - 1) * dilation + 1 - size, 0)
    return total // 2, total - total // 2


def _axis(
    op: OperationView, axis: str, sides: tuple[str, str], size: int, filter_size: int
) -> tuple[int, int, int, int]:
    stride = _positive(op, f"stride_{axis}")
    dilation = _positive(op, f"dilation_{axis}", default=1)
    if op.optional("padding_scheme") is None:
        amounts = {f"padding_{side}": op.int_value(f"padding_{side}") for side in sides}
        check_padding(op, **amounts)
        head, tail = amounts.values()
        return head, tail, stride, dilation
    scheme = op.int_value("padding_scheme")
    if scheme == PaddingCode.SAME:
        head, tail = same_padding(size, filter_size, stride, dilation)
        if tail > MOST_PADDING:
            op.fail(f"dilation_{axis}", f"must need a padding of at most {MOST_PADDING}", dilation)
        return head, tail, stride, dilation
    if scheme != PaddingCode.VALID:
        op.fail("padding_scheme", "must be 1 (SAME) or 2 (VALID)", scheme)
    return 0, 0, stride, dilation


def _positive(op: OperationView, name: str, default: int | None = None) -> int:
    value = op.int_value(name, default)
    if value < 1:
        op.fail(name, "must be > 0", value)
    return value
