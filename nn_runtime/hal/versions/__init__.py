# SPDX-License-Identifier: Apache-2.0
"""HAL 1.0 to 1.3: versioned interfaces with their callbacks, conversion between versions, adapters, slices, bursts.

    adapt(driver, name)            a driver of any version as a canonical device (nn_runtime.hal.interfaces.IDevice)
    serve(device, version)         a canonical device at the interface of a version
    compliant_with(model, version) whether a version can express a model; minimum_level(model): the least that can
    convert_to(model, version)     a model in a version's form, refused with the reason where anything would be lost
    to_canonical(model)            the way back
    slice_of(model, version)       the part of a model that a version can express
    without_default_arguments(m)   a model without trailing arguments that hold their default values

Versions are named by their feature levels, FeatureLevel.HAL_1_0 to HAL_1_3. The names are loaded at their first use:
the runtime needs few of them unless a driver is old.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nn_runtime.hal.versions.adapter import adapt
    from nn_runtime.hal.versions.compliance import compliant_with, minimum_level, request_level
    from nn_runtime.hal.versions.conversion import convert_to, to_canonical
    from nn_runtime.hal.versions.defaults import without_default_arguments
    from nn_runtime.hal.versions.server import serve
    from nn_runtime.hal.versions.slicing import slice_of

__all__ = [
    "adapt",
    "compliant_with",
    "convert_to",
    "minimum_level",
    "request_level",
    "serve",
    "slice_of",
    "to_canonical",
    "without_default_arguments",
]

_HOME_OF = {
    "adapt": "adapter",
    "compliant_with": "compliance",
    "convert_to": "conversion",
    "minimum_level": "compliance",
    "request_level": "compliance",
    "serve": "server",
    "slice_of": "slicing",
    "to_canonical": "conversion",
    "without_default_arguments": "defaults",
}


def __getattr__(name: str) -> object:
    """Load a public name from its module at its first use."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value
