# SPDX-License-Identifier: Apache-2.0
"""Networks from files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from nn_runtime.checks import path_shown
from nn_runtime.errors import BadData, ShapesError
from nn_runtime.tflite.converter import convert
from nn_runtime.tflite.reader import read

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nn_runtime.network import Network


def load(
    source: str | os.PathLike[str] | bytes | bytearray | memoryview,
    shapes: Mapping[str | int, Sequence[int]] | None = None,
) -> Network:
    """Return the network in a .tflite file, given by path or content.

    `shapes` changes shapes of inputs, by name or position, and the network with them: sizes that the file leaves open
    are otherwise as in the file (1 from the usual exporters). Raises BadData (content, an operator that cannot be
    converted; ShapesError for shapes that go with no input), which names the file, OSError (path).
    """
    try:
        return convert(read(source), shapes)
    except BadData as error:
        if not isinstance(source, str | os.PathLike):
            raise
        file = path_shown(source)
        if isinstance(error, ShapesError):
            raise ShapesError(error.problem, file) from error
        raise type(error)(f"{file}: {error}") from error
    except OSError as error:
        if error.filename is None and isinstance(source, str | os.PathLike):
            raise OSError(error.errno, error.strerror, os.fspath(source)) from error
        raise
