# SPDX-License-Identifier: Apache-2.0
"""What operations mean, as plain float64 formulas written from the specification, apart from drivers and runtime.

Each file has `FAMILIES`: oracles by operation, by name of family. An oracle takes a `Layer` and returns its outputs:
real numbers (float64, which the test quantises where the output is quantised), or stored codes (integers, booleans).
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nn_runtime.codes import OperationCode
    from tests.operations.oracles.layer import Oracle


def families() -> dict[str, dict[OperationCode, Oracle]]:
    """Return the oracles of every family."""
    found: dict[str, dict[OperationCode, Oracle]] = {}
    for module in pkgutil.iter_modules(__path__):
        found |= getattr(importlib.import_module(f"{__name__}.{module.name}"), "FAMILIES", {})
    return found
