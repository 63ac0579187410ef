# SPDX-License-Identifier: Apache-2.0
"""What each operation accepts and what shape it gives: one file per family, which `nn_runtime.families` lists.

`definition(code)` is the way in; `validate` and `output_dimensions` apply it to an operation.
"""

from __future__ import annotations

from nn_runtime.operations.signature import (
    Definition,
    OperationView,
    definition,
    definitions,
    output_dimensions,
    validate,
)

__all__ = ["Definition", "OperationView", "definition", "definitions", "output_dimensions", "validate"]
