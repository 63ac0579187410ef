# SPDX-License-Identifier: Apache-2.0
"""Blocks of pixels as depth or as batches, and back: the order of elements, for types that NNAPI's operations refuse.

Numbers are those of elements in row-major order, [batches, height, width, depth].
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.operand import Array
    from nn_runtime.tflite.operator import Operator

_MAX_PADDED = 1 << 20


def depth_to_space(op: Operator, numbers: Array, size: int) -> Array:
    """Return numbers with each pixel's depth as a block of pixels."""
    batches, height, width, depth = numbers.shape
    if size < 1 or depth % (size * size):
        op.fail(f"block_size must be >= 1, and its square divide {depth}, got {size}")
    parts = numbers.reshape(batches, height, width, size, size, depth // (size * size))
    turned: Array = parts.transpose(0, 1, 3, 2, 4, 5)
    return turned.reshape(batches, height * size, width * size, -1)


def space_to_depth(op: Operator, numbers: Array, size: int) -> Array:
    """Return numbers with each block of pixels as one pixel's depth."""
    batches, height, width, depth = numbers.shape
    _check_divides(op, (size, size), (height, width))
    parts = numbers.reshape(batches, height // size, size, width // size, size, depth)
    turned: Array = parts.transpose(0, 1, 3, 2, 4, 5)
    return turned.reshape(batches, height // size, width // size, -1)


def space_to_batch(op: Operator, numbers: Array, block: Sequence[int], paddings: Sequence[Sequence[int]]) -> Array:
    """Return numbers with the pixels of one place in their blocks as a batch; -1 is padding."""
    batches, *sizes, depth = numbers.shape
    height, width = (size + sum(pair) for size, pair in zip(sizes, paddings, strict=True))
    if min(map(min, paddings)) < 0 or batches * height * width * depth > _MAX_PADDED:
        op.fail(f"paddings (input 2) must be >= 0, and {_MAX_PADDED} elements the most, got {paddings}")
    _check_divides(op, block, (height, width))
    padded = np.pad(numbers, [[0, 0], *paddings, [0, 0]], constant_values=-1)
    parts = padded.reshape(batches, height // block[0], block[0], width // block[1], block[1], depth)
    turned: Array = parts.transpose(2, 4, 0, 1, 3, 5)
    return turned.reshape(-1, height // block[0], width // block[1], depth)


def batch_to_space(op: Operator, numbers: Array, block: Sequence[int]) -> Array:
    """Return numbers with batches as pixels of blocks."""
    batches, height, width, depth = numbers.shape
    if min(block) < 1 or batches % math.prod(block):
        op.fail(f"block_shape (input 1) must be >= 1, and its product divide {batches}, got {list(block)}")
    parts = numbers.reshape(*block, batches // math.prod(block), height, width, depth)
    turned: Array = parts.transpose(2, 3, 0, 4, 1, 5)
    return turned.reshape(-1, height * block[0], width * block[1], depth)


def _check_divides(op: Operator, block: Sequence[int], sizes: Sequence[int]) -> None:
    if min(block) < 1 or any(size % part for size, part in zip(sizes, block, strict=True)):
        op.fail(f"blocks must be >= 1 and divide {list(sizes)}, got {list(block)}")
