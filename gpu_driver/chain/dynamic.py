# SPDX-License-Identifier: Apache-2.0
"""Products of real numbers on bytes made of them in every run (convolution/dynamic.py), as steps of a chain."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gpu_driver.chain.kinds import Kind
from gpu_driver.chain.step import Reading, Step, rows_of
from gpu_driver.convolution import dynamic, packing
from gpu_driver.kernel import Scratch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpu_driver.convolution.dynamic import BytesOfFloats
    from gpu_driver.convolution.product import Product
    from gpu_driver.kernel import Kernel
    from nn_runtime.operand import Array

_RANGE_BYTES = 8


def dynamic_steps(
    kernel: Kernel, product: Product, weights: BytesOfFloats, values: Mapping[str, int | float]
) -> tuple[Step, ...]:
    """Return three steps, ranges of the images, bytes of them, products; or one that does this row by row.

    weights: [depth_out, filter_height, filter_width, depth_in]. values: of the product's end.
    """
    g = product.geometry
    if dynamic.goes_by_rows(g):
        return (_by_rows(kernel, product, weights, values),)
    parts = dynamic.parts_of(g)
    ranges = Scratch(_RANGE_BYTES * g.batches * parts)
    pixels = g.batches * g.input_height * g.input_width
    find = Step(
        kernel,
        Kind.RANGES,
        product.source,
        ranges,
        None,
        replace(rows_of(parts, 2, g.batches), input_depth=product.source.count // (g.batches * parts)),
        (np.zeros(1, np.int32),),
        {},
        product.source.count,
        product.source.size_bytes,
        reads=Reading(pixels, g.input_depth, g.batches * parts),
    )
    data = Scratch(dynamic.bytes_of(g))
    make = Step(
        kernel,
        Kind.TO_BYTES,
        product.source,
        data,
        ranges,
        dynamic.padded(g),
        (np.zeros(1, np.int32),),
        {"level_rows": parts},
        product.source.count,
        product.source.size_bytes + data.size_bytes,
        reads=Reading(pixels, g.input_depth, g.batches),
        reads_residual=Reading(g.batches * parts, 2, g.batches),
    )
    multiply = replace(
        _by_rows(kernel, product, weights, {**values, "level_rows": parts}),
        source=data,
        geometry=dynamic.of_products(g),
        third=ranges,
        reads_third=Reading(g.batches * parts, 2, g.batches),
    )
    return find, make, multiply


def _by_rows(kernel: Kernel, product: Product, weights: BytesOfFloats, values: Mapping[str, int | float]) -> Step:
    """Return the step that makes bytes of its rows itself."""
    g = product.geometry
    return Step(
        kernel,
        Kind.MULTIPLY_BYTES,
        product.source,
        product.output,
        product.residual,
        replace(g, batches=1, input_width=g.batches * g.input_width, output_width=g.batches * g.output_width),
        _constants(product, weights),
        values,
        product.flops,
        product.bytes_moved - product.weights.size_bytes + weights.weights.nbytes,
    )


def _constants(product: Product, weights: BytesOfFloats) -> tuple[Array, ...]:
    """Return weights, bias, sums of weights and scales by channel."""
    sums = weights.weights.reshape(len(weights.weights), -1).sum(axis=1, dtype=np.int32)
    return (
        dynamic.pack_weights(weights.weights),
        packing.pack_channels(product.bias.data, np.float32),
        packing.pack_channels(sums, np.int32),
        packing.pack_channels(weights.scales, np.float32),
    )
