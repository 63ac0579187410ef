# SPDX-License-Identifier: Apache-2.0
"""Convolutions, FULLY_CONNECTED and BATCH_MATMUL as products of matrices for kernels with common/matmul.h."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpu_driver.kernel import Kernel, Packed, float32, int32, int_vector
from gpu_driver.launch import Launch, PersistentKind, PersistentStep
from gpu_driver.splits.vectors import c_type
from gpu_driver.strides import image_strides
from nn_runtime.operand import FLOAT_TYPES, QUANT8_TYPES, dtype_of
from nn_runtime.quantization import convolution_multipliers
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperand
    from gpu_driver.convolution.product import Product
    from gpu_driver.kernel import Argument, Scalar
    from nn_runtime.operations.batch_matmul import BatchMatmul

SOURCE_VECTORS, FILTER_VECTORS, OUTPUT_VECTORS, SOURCE_IN_ROWS, OUTPUT_IN_ROWS = 1, 2, 4, 8, 16
SOURCE_HALVES, FILTER_HALVES, FILTER_CENTRED = 32, 64, 512
"""As in common/matmul.h."""


@dataclass(frozen=True)
class Matmul:
    """What kernels with common/matmul.h compute; strides (batch, y, x, channel), one filter for each group.

    group_strides (source, weights, output, channel), filter_strides (column, term); `image` (height, width, depth),
    `window` (filter height, width, padding top, left), `steps` (stride y, x, dilation y, x). `of_sums`: flags of
    common/channel.h.
    """

    source: BoundOperand
    weights: BoundOperand
    output: BoundOperand
    operands: tuple[Argument, ...]
    source_strides: tuple[int, int, int, int]
    output_strides: tuple[int, int, int, int]
    group_strides: tuple[int, int, int, int]
    filter_strides: tuple[int, int]
    image: tuple[int, int, int]
    out: tuple[int, int]
    batches: int
    columns: int
    terms: int
    groups: int
    window: tuple[int, int, int, int]
    steps: tuple[int, int, int, int]
    bounds: tuple[Scalar, Scalar]
    of_sums: int = 0

    @property
    def rows(self) -> int:
        """Rows of each group's product."""
        return self.batches * self.out[0] * self.out[1]

    @property
    def quantized(self) -> bool:
        """Whether sums are requantised."""
        return self.output.type in QUANT8_TYPES

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        return 2 * self.output.count * self.terms

    @property
    def bytes_moved(self) -> int:
        """Bytes of both sides and of the output."""
        return self.source.size_bytes + self.weights.size_bytes + self.output.size_bytes

    def defines(self) -> tuple[tuple[str, str | int], ...]:
        """Return the defines of common/matmul.h."""
        return ("T", c_type(self.source)), ("FILTER_T", c_type(self.weights)), ("QUANTIZED", int(self.quantized))

    def launch(self, kernel: Kernel, groups: int, items: int, vectors: int) -> Launch:
        """Return the launch of a kernel with the parameters of common/matmul.h over so many groups of work-items."""
        zeros: tuple[Scalar, ...] = ()
        if self.quantized:
            points = self.source.zero_point, self.weights.zero_point, self.output.zero_point
            zeros = (int_vector(*points, 0),)
        return Launch(
            kernel,
            (
                *(self.source, self.weights, *self.operands, self.output),
                int_vector(*self.source_strides),
                int_vector(*self.output_strides),
                int_vector(*self.group_strides),
                int_vector(*self.image, self.groups),
                int_vector(*self.out, self.columns, self.batches),
                int_vector(*self.window),
                int_vector(*self.steps),
                int_vector(*self.filter_strides, self.terms, self.flags(vectors)),
                *zeros,
                *self.bounds,
            ),
            (groups * items,),
            (items,),
            flops=self.flops,
            bytes_moved=self.bytes_moved,
        )

    def flags(self, vectors: int) -> int:
        """Return all flags of common/matmul.h, of which `vectors` says how memory is read and written."""
        centred = FILTER_CENTRED * (self.quantized and self.weights.zero_point == 0)
        return vectors | self._in_rows() | centred | self.of_sums

    def vectors(self, run: int, output_run: int) -> int:
        """Return what aligned vectors may read and write: `run` terms, `output_run` columns of the output."""
        *outer, channel = self.source_strides
        source = (*outer, self.group_strides[0], self.image[2])
        weights = self.filter_strides[0], self.group_strides[1], self.terms
        *outer_output, output_channel = self.output_strides
        output = (*outer_output, self.group_strides[2], self.columns)
        return (
            SOURCE_VECTORS * (channel == 1 and _multiples(source, run))
            | FILTER_VECTORS * (self.filter_strides[1] == 1 and _multiples(weights, run))
            | OUTPUT_VECTORS * (output_channel == 1 and _multiples(output, output_run))
        )

    def _in_rows(self) -> int:
        """Return whether rows are one pixel of the source after the other, and of the output."""
        is_pixel = self.window == (1, 1, 0, 0) and self.steps[:2] == (1, 1) and self.image[:2] == self.out
        return SOURCE_IN_ROWS * (is_pixel and self._is_dense(self.source_strides)) | OUTPUT_IN_ROWS * self._is_dense(
            self.output_strides
        )

    def _is_dense(self, strides: tuple[int, int, int, int]) -> bool:
        """Whether pixels of pictures as large as the output are as far apart as those of a line."""
        height, width = self.out
        batch, line, pixel, _ = strides
        return (height == 1 or line == width * pixel) and (self.batches == 1 or batch == height * width * pixel)

    def persistent(self, groups: int) -> PersistentStep | None:
        """Return how kernels that stay compute it by so many tiles; not where terms lie apart."""
        return PersistentStep(PersistentKind.PRODUCT, groups) if self.source_strides[3] == 1 else None

    def layout(self) -> tuple[tuple[str, int], ...]:
        """Return the defines that say what is contiguous in memory where terms are not."""
        return (
            ("ROWS_CONTIGUOUS", int(self.source_strides[3] != 1)),
            ("COLUMNS_CONTIGUOUS", int(self.filter_strides[1] != 1)),
        )


def of_product(product: Product) -> Matmul:
    """Return the product of a convolution or FULLY_CONNECTED: rows are pixels, terms are channels under taps."""
    g, groups = product.geometry, product.groups
    depth, columns = g.input_depth // groups, g.output_depth // groups
    terms = g.filter_height * g.filter_width * depth
    source_strides = image_strides(g.input_height, g.input_width, g.input_depth, g.nchw)
    output_strides = image_strides(g.output_height, g.output_width, g.output_depth, g.nchw)
    return Matmul(
        product.source,
        product.weights,
        product.output,
        (product.bias, *_scaling(product)),
        source_strides,
        output_strides,
        (depth * source_strides[3], columns * terms, columns * output_strides[3], columns),
        (terms, 1),
        (g.input_height, g.input_width, depth),
        (g.output_height, g.output_width),
        g.batches,
        columns,
        terms,
        groups,
        (g.filter_height, g.filter_width, g.padding_top, g.padding_left),
        (g.stride_height, g.stride_width, g.dilation_height, g.dilation_width),
        product.bounds(),
        product.of_sums(),
    )


def _scaling(product: Product) -> tuple[Argument, ...]:
    """Return multipliers and exponents of an 8-bit product, else the residual."""
    if product.quantized:
        return tuple(Packed(np.ascontiguousarray(values)) for values in product.multipliers())
    return (product.source if product.residual is None else product.residual,)


def of_batches(lhs: BoundOperand, rhs: BoundOperand, output: BoundOperand, sizes: BatchMatmul) -> Matmul:
    """Return products of pairs as groups of a 1x1 convolution: rows are pixels of one line, terms are channels."""
    rows, columns, depth = sizes.rows, sizes.columns, sizes.depth
    row, term = (1, rows) if sizes.adj_x else (depth, 1)
    if output.type in QUANT8_TYPES:
        scaling = [np.broadcast_to(part, columns) for part in convolution_multipliers(lhs, rhs, output)]
        operands: tuple[Argument, ...] = tuple(Packed(np.ascontiguousarray(part)) for part in scaling)
        bounds, bias = _whole_range(np.dtype(np.int8)), np.zeros(columns, np.int32)
    else:
        operands = (lhs,)
        is_float = output.type in FLOAT_TYPES
        bounds = (float32(-np.inf), float32(np.inf)) if is_float else _whole_range(np.dtype(np.int32))
        bias = np.zeros(columns, dtype_of(output.type))
    return Matmul(
        lhs,
        rhs,
        output,
        (Packed(bias), *operands),
        (0, 0, row, term),
        (0, 0, columns, 1),
        (rows * depth, depth * columns, rows * columns, 0),
        (depth, 1) if sizes.adj_y else (1, columns),
        (1, rows, depth),
        (1, rows),
        1,
        columns,
        depth,
        sizes.batches,
        (1, 1, 0, 0),
        (1, 1, 1, 1),
        bounds,
    )


def _whole_range(dtype: np.dtype[np.signedinteger]) -> tuple[Scalar, Scalar]:
    info = np.iinfo(dtype)
    return int32(int(info.min)), int32(int(info.max))


def _multiples(values: tuple[int, ...], of: int) -> bool:
    return all(value % of == 0 for value in values)
