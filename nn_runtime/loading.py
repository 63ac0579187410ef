# SPDX-License-Identifier: Apache-2.0
"""Networks from files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.tflite.converter import convert
from nn_runtime.tflite.reader import read

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from nn_runtime.network import Network


def load(
    source: str | os.PathLike[str] | bytes | bytearray | memoryview,
    shapes: Mapping[str | int, Sequence[int]] | None = None,
) -> Network:
    """Return the network in a .tflite file, given by path or content.

    `shapes` changes shapes of inputs, by name or position, and the network with them: sizes that the file leaves open
    are otherwise as in the file (1 from the usual exporters). Raises BadData (content, an operator that cannot be
    converted), OSError (path).
    """
    return convert(read(source), shapes)
