# SPDX-License-Identifier: Apache-2.0
"""How two numbers become one, as operators of StableHLO say it: by a subgraph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.operators.places import ALL, ANY, GREATEST, LEAST, PRODUCT, SUM

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nn_runtime.tflite.operator import Operator
    from nn_runtime.tflite.operators.places import Combination

_COMBINATIONS: Mapping[int, Combination] = {
    BuiltinOperator.ADD: SUM,
    BuiltinOperator.MUL: PRODUCT,
    BuiltinOperator.MAXIMUM: GREATEST,
    BuiltinOperator.MINIMUM: LEAST,
    BuiltinOperator.LOGICAL_AND: ALL,
    BuiltinOperator.LOGICAL_OR: ANY,
    BuiltinOperator.STABLEHLO_ADD: SUM,
    BuiltinOperator.STABLEHLO_MULTIPLY: PRODUCT,
    BuiltinOperator.STABLEHLO_MAXIMUM: GREATEST,
    BuiltinOperator.STABLEHLO_MINIMUM: LEAST,
}


def combination(op: Operator, option: str) -> Combination | None:
    """Return what the subgraph that an option names does with two numbers; None if it gives the second as it is."""
    subgraph = op.subgraph(option)
    if len(subgraph.inputs) == 2 and not subgraph.operators and subgraph.outputs == subgraph.inputs[1:]:
        return None
    if len(subgraph.inputs) == 2 and len(subgraph.operators) == 1:
        (step,) = subgraph.operators
        found = _COMBINATIONS.get(step.code)
        is_of_both = sorted(step.inputs) == sorted(subgraph.inputs) and step.outputs == subgraph.outputs
        if found is not None and is_of_both and not step.options.get("fused_activation_function"):
            return found
    known = "ADD, MUL, MAXIMUM, MINIMUM, LOGICAL_AND or LOGICAL_OR"
    op.fail(f"subgraph {op.option(option)} must be one {known} of two arguments, or the second")
