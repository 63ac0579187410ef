# SPDX-License-Identifier: Apache-2.0
"""How a driver is told that products may be computed on bytes: an attribute of a vendor extension.

With "dynamic range quantisation", as TensorFlow Lite's converter calls it, a network has weights of 8 bits and data of
real numbers. NNAPI knows no such operations: weights become real numbers, which is exact. A driver that knows the
attribute may instead make bytes of what CONV_2D and FULLY_CONNECTED multiply with such weights, as TensorFlow Lite
does: with a scale and a zero point for every image or row, found in every run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.hal.types import Extension

if TYPE_CHECKING:
    from nn_runtime.hal.interfaces import Attributes

EXTENSION = Extension("nnrt.dynamic_quantization")
ALLOWED_CODE = 0
"""Of the attribute; its data is one byte, 1 if products may be computed on bytes, else 0."""


def with_permission(attributes: Attributes, allowed: bool) -> Attributes:
    """Return attributes of a compilation of which this one is set."""
    others = (one for one in attributes if one[:2] != (EXTENSION.name, ALLOWED_CODE))
    return tuple(sorted((*others, (EXTENSION.name, ALLOWED_CODE, bytes([allowed])))))


def is_allowed(attributes: Attributes) -> bool:
    """Tell whether products may be computed on bytes."""
    return (EXTENSION.name, ALLOWED_CODE, bytes([True])) in attributes
