# SPDX-License-Identifier: Apache-2.0
"""A model as a picture: text in the DOT language of graphviz (SURFACE section l).

Operands are nodes d0, d1, ... (inputs and outputs black), operations the boxes n0, n1, ... in run order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import OperandCode, is_extension_code, operand_type_name, operation_name
from nn_runtime.hal.types import CONSTANT_LIFETIMES, OperandLifeTime
from nn_runtime.hal.views import constant_array
from nn_runtime.operand import is_tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.hal.types import Model, Operand

_SHORT = {
    OperandCode.FLOAT32: "F32", OperandCode.FLOAT16: "F16", OperandCode.INT32: "I32", OperandCode.UINT32: "U32",
    OperandCode.BOOL: "B8", OperandCode.TENSOR_FLOAT32: "TF32", OperandCode.TENSOR_FLOAT16: "TF16",
    OperandCode.TENSOR_INT32: "TI32", OperandCode.TENSOR_QUANT8_ASYMM: "TQ8A",
    OperandCode.TENSOR_QUANT8_ASYMM_SIGNED: "TQ8AS", OperandCode.TENSOR_QUANT8_SYMM: "TQ8S",
    OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL: "TQ8SPC", OperandCode.TENSOR_QUANT16_SYMM: "TQ16S",
    OperandCode.TENSOR_QUANT16_ASYMM: "TQ16A", OperandCode.TENSOR_BOOL8: "TB8", OperandCode.MODEL: "MODEL",
    OperandCode.OEM_SCALAR: "OEM", OperandCode.TENSOR_OEM_BYTE: "TOEMB",
}  # fmt: skip

_LIFETIMES = {
    OperandLifeTime.CONSTANT_COPY: "COPY",
    OperandLifeTime.CONSTANT_REFERENCE: "REF",
    OperandLifeTime.NO_VALUE: "NO",
    OperandLifeTime.SUBGRAPH: "SUBGRAPH",
    OperandLifeTime.POINTER: "POINTER",
}


def dot(model: Model, name: str = "model") -> str:
    """Return the main graph of a model as DOT text; referenced models are left out, with a note."""
    main = model.main
    lines = [f"digraph {quoted(name)} {{"]
    if model.referenced:
        lines.append(f"  // {len(model.referenced)} referenced models are left out")
    for index, operand in enumerate(main.operands):
        lines.append(f"  d{index} [{_operand_style(model, index, operand)}]")
    for number, operation in enumerate(main.operations):
        order = [f"ordering={way}" for way, arguments in (("in", operation.inputs), ("out", operation.outputs))
                 if len(arguments) > 1]  # fmt: skip
        label = f"{number}: {operation_name(operation.type)}"
        lines.append(f"  n{number} [{' '.join(['shape=box', *order[:1], f'label={quoted(label)}'])}]")
        lines += _edges([f"d{index} -> n{number}" for index in operation.inputs])
        lines += _edges([f"n{number} -> d{index}" for index in operation.outputs])
    lines.append("}")
    return "\n".join(lines) + "\n"


def _edges(edges: Sequence[str]) -> list[str]:
    """Return edges, labelled with the argument's number where there are several."""
    if len(edges) == 1:
        return [f"  {edges[0]}"]
    return [f"  {edge} [label={at}]" for at, edge in enumerate(edges)]


def _operand_style(model: Model, index: int, operand: Operand) -> str:
    main = model.main
    for what, indexes in (("input", main.input_indexes), ("output", main.output_indexes)):
        if index in indexes:
            label = _label(model, operand, f"{index} = {what}[{indexes.index(index)}]")
            return f"style=filled fillcolor=black fontcolor=white label={quoted(label)}"
    lifetime = _LIFETIMES.get(operand.lifetime, "")
    return f"label={quoted(_label(model, operand, f'{index}: {lifetime}' if lifetime else str(index)))}"


def _label(model: Model, operand: Operand, first: str) -> str:
    """Return the lines of an operand: number and lifetime, type with a scalar's value, dimensions."""
    kind = _SHORT.get(OperandCode(operand.type), "") if operand.type in _SHORT else operand_type_name(operand.type)
    lines = [first, kind]
    if operand.lifetime in CONSTANT_LIFETIMES and not (is_extension_code(operand.type) or is_tensor(operand.type)):
        value = constant_array(model, operand)
        lines[1] += "" if value is None or value.ndim else f" = {value[()]}"
    if operand.lifetime == OperandLifeTime.SUBGRAPH:
        lines[1] += f" {operand.location.offset}"
    if operand.dimensions:
        lines.append("x".join(str(size) for size in operand.dimensions))
    return "\n".join(lines)


def quoted(text: str) -> str:
    """Return a text as DOT writes it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
