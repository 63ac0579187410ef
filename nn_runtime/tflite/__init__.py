# SPDX-License-Identifier: Apache-2.0
"""The .tflite importer: a bounds-checked reader, the conversion to a Network, and a drop-in for LiteRT's interpreter.

Names are resolved on first use, so importing the package is cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nn_runtime.tflite.converter import convert, supported_operators
    from nn_runtime.tflite.decoder import TfliteError
    from nn_runtime.tflite.interpreter import Interpreter, OpResolverType, SignatureRunner, load_delegate
    from nn_runtime.tflite.reader import read

__all__ = [
    "Interpreter",
    "OpResolverType",
    "SignatureRunner",
    "TfliteError",
    "convert",
    "load_delegate",
    "read",
    "supported_operators",
]

_HOME = {
    "Interpreter": "interpreter",
    "OpResolverType": "interpreter",
    "SignatureRunner": "interpreter",
    "TfliteError": "decoder",
    "convert": "converter",
    "load_delegate": "interpreter",
    "read": "reader",
    "supported_operators": "converter",
}


def __getattr__(name: str) -> object:
    """Import the module that defines a public name (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
