# SPDX-License-Identifier: Apache-2.0
"""The .tflite importer: a bounds-checked reader. Names are resolved on first use, so importing the package is cheap."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nn_runtime.tflite.reader import read
    from nn_runtime.tflite.verifier import TfliteError

__all__ = ["TfliteError", "read"]

_HOME = {"TfliteError": "verifier", "read": "reader"}


def __getattr__(name: str) -> object:
    """Import the module that defines a public name (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
