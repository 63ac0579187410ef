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
    from collections.abc import Mapping, Sequence

    from gpu_driver.bound import BoundOperand
    from gpu_driver.chain.memory import Memories
    from gpu_driver.chain.step import Memory
    from gpu_driver.convolution.dynamic import BytesOfFloats
    from gpu_driver.convolution.product import Product
    from gpu_driver.kernel import Kernel
    from nn_runtime.operand import Array
    from nn_runtime.operations.sliding_window import SlidingWindow

_RANGE_BYTES = 8
_OF_BYTES = (Kind.RANGES, Kind.TO_BYTES, Kind.BYTES_OF_ROWS)


def dynamic_steps(
    kernel: Kernel, product: Product, weights: BytesOfFloats, values: Mapping[str, int | float]
) -> tuple[Step, ...]:
    """Return the steps that make bytes of what a product reads, and the product, which adds its residual if it has one.

    weights: [depth_out, filter_height, filter_width, depth_in]. values: of the product's end. Pixels have scales of
    their own where the product reads but one, and is no part of one that reads more.
    """
    multiply = Step(
        kernel,
        Kind.MULTIPLY_BYTES,
        product.source,
        product.output,
        residual=product.residual,
        geometry=product.geometry,
        constants=_constants(product, weights),
        values=values,
        flops=product.flops,
        bytes_moved=product.bytes_moved - product.weights.size_bytes + weights.weights.nbytes,
    )
    by_rows = product.geometry.is_per_pixel and product.part_of is None
    return _of_rows(multiply, product.source) if by_rows else _of_images(multiply, product.source)


def made_once(steps: Sequence[Step], memories: Memories) -> tuple[Step, ...]:
    """Let products that read the same find its ranges and make its bytes once."""
    made: dict[tuple[object, ...], Memory] = {}
    same: dict[Memory, Memory] = {}
    result = []
    for each in steps:
        step = each.on(same)
        if step.kind in _OF_BYTES:
            what = memories.key(step.source), step.residual, step.kind, step.geometry, tuple(step.values.items())
            if what in made:
                same[step.output] = made[what]
                continue
            made[what] = step.output
        result.append(step)
        written = memories.key(step.output)
        made = {what: output for what, output in made.items() if what[0] != written}
    return tuple(result)


def _of_rows(multiply: Step, source: BoundOperand) -> tuple[Step, ...]:
    """Return two steps: every pixel has a scale of its own."""
    g, kernel = multiply.geometry, multiply.kernel
    pixels = g.batches * g.output_height * g.output_width
    data = Scratch(dynamic.bytes_of_rows(pixels, g.input_depth))
    row = replace(g, batches=1, input_height=1, output_height=1, input_width=pixels, output_width=pixels)
    make = _first_step(kernel, source, Kind.BYTES_OF_ROWS, data, rows_of(pixels, g.input_depth))
    return make, replace(multiply, source=data, geometry=row)


def _of_images(multiply: Step, source: BoundOperand) -> tuple[Step, ...]:
    """Return three steps: every image has a scale of its own, which all its parts must be known for."""
    g, kernel = multiply.geometry, multiply.kernel
    parts = dynamic.parts_of(g)
    pixels = g.batches * g.input_height * g.input_width
    of_ranges = Reading(g.batches * parts, 2, g.batches)
    ranges, data = Scratch(_RANGE_BYTES * g.batches * parts), Scratch(dynamic.bytes_of(g))
    row = replace(rows_of(parts, 2, g.batches), input_depth=source.count // (g.batches * parts))
    find = replace(
        _first_step(kernel, source, Kind.RANGES, ranges, row), reads=Reading(pixels, g.input_depth, g.batches * parts)
    )
    make = replace(
        _first_step(kernel, source, Kind.TO_BYTES, data, dynamic.padded(g)),
        residual=ranges,
        values={"level_rows": parts},
        reads=Reading(pixels, g.input_depth, g.batches),
        reads_residual=of_ranges,
    )
    return (
        find,
        make,
        replace(
            multiply,
            source=data,
            geometry=dynamic.of_products(g),
            values={**multiply.values, "level_rows": parts},
            third=ranges,
            reads_third=of_ranges,
        ),
    )


def _first_step(kernel: Kernel, source: BoundOperand, kind: Kind, output: Scratch, geometry: SlidingWindow) -> Step:
    """Return a step that reads what a product reads, and has no constants."""
    moved = source.size_bytes + output.size_bytes
    return Step(kernel, kind, source, output, geometry=geometry, flops=source.count, bytes_moved=moved)


def _constants(product: Product, weights: BytesOfFloats) -> tuple[Array, ...]:
    """Return weights, bias, sums of weights and scales by channel."""
    sums = weights.weights.reshape(len(weights.weights), -1).sum(axis=1, dtype=np.int32)
    return (
        dynamic.pack_weights(weights.weights, by_taps=product.geometry.dilation_width > 1),
        packing.pack_channels(product.bias.data, np.float32),
        packing.pack_channels(sums, np.int32),
        packing.pack_channels(weights.scales, np.float32),
    )
