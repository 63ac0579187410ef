# SPDX-License-Identifier: Apache-2.0
"""Checks of a decoded file's graphs: operators run in file order, every value has one source, calls end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.decoder import TfliteError
from nn_runtime.tflite.options import SUBGRAPH_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nn_runtime.tflite.types import TfliteOperator, TfliteSubgraph

MAX_CALL_DEPTH = 32


def check_dataflow(subgraph: TfliteSubgraph, where: str) -> None:
    """Require that each tensor has one source, and that operators read only what is there when they run."""
    for index in subgraph.inputs:
        if subgraph.tensors[index].data is not None:
            raise TfliteError(f"{where}: input tensor {index} must not be a constant")
    ready = {i for i, tensor in enumerate(subgraph.tensors) if tensor.data is not None or tensor.is_variable}
    written = ready.difference(i for i, tensor in enumerate(subgraph.tensors) if tensor.is_variable)
    ready.update(subgraph.inputs)
    written.update(subgraph.inputs)
    for operator in subgraph.operators:
        _check_operator(operator, ready, written, f"{where}: operator {operator.index} {operator.name}")
        ready.update(operator.outputs)
    for position, index in enumerate(subgraph.outputs):
        if index not in ready:
            raise TfliteError(f"{where}: output {position} (tensor {index}) is never written")


def _check_operator(operator: TfliteOperator, ready: set[int], written: set[int], where: str) -> None:
    """Require inputs that are ready and outputs that nothing has written; note the outputs."""
    for position, index in enumerate(operator.inputs):
        if index >= 0 and index not in ready:
            raise TfliteError(f"{where}: input {position} (tensor {index}) is read before anything writes it")
    for position, index in enumerate(operator.outputs):
        if index in written:
            raise TfliteError(
                f"{where}: output {position} (tensor {index}) is also an input, a constant or another operator's output"
            )
        written.add(index)


def check_calls(subgraphs: Sequence[TfliteSubgraph]) -> None:
    """Require that calls name existing subgraphs and nest at most MAX_CALL_DEPTH deep, so without circles."""
    callees = [
        sorted({callee for operator in subgraph.operators for callee in _callees(operator, index, len(subgraphs))})
        for index, subgraph in enumerate(subgraphs)
    ]
    depths: dict[int, int] = {}
    # Depth by relaxation from the leaves: a subgraph is settled once all that it calls are.
    for _ in range(MAX_CALL_DEPTH):
        settled = [i for i in range(len(subgraphs)) if i not in depths and all(c in depths for c in callees[i])]
        if not settled:
            break
        depths.update((i, 1 + max((depths[c] for c in callees[i]), default=0)) for i in settled)
    if len(depths) < len(subgraphs):
        index = min(set(range(len(subgraphs))) - depths.keys())
        raise TfliteError(
            f"subgraph {index}: calls must nest at most {MAX_CALL_DEPTH} deep, "
            f"got deeper or a subgraph that calls itself"
        )
    for index, subgraph in enumerate(subgraphs):
        for operator in subgraph.operators:
            if operator.code == BuiltinOperator.STABLEHLO_COMPOSITE:
                _check_composite(operator, index, subgraphs)


def _callees(operator: TfliteOperator, subgraph: int, count: int) -> Iterator[int]:
    """Return the subgraphs that an operator calls."""
    for name in SUBGRAPH_OPTIONS:
        given = operator.options.get(name, ())
        for callee in given if isinstance(given, tuple) else (given,):
            if not isinstance(callee, int) or not 0 <= callee < count:
                raise TfliteError(
                    f"subgraph {subgraph}: operator {operator.index} {operator.name}: {name} must be 0 to {count - 1}, "
                    f"got {callee}"
                )
            yield callee


def _check_composite(operator: TfliteOperator, index: int, subgraphs: Sequence[TfliteSubgraph]) -> None:
    """Require inputs and outputs like those of the subgraph that it stands for, whose shapes follow the arguments'."""
    where = f"subgraph {index}: operator {operator.index} {operator.name}"
    (number,) = _callees(operator, index, len(subgraphs))
    callee = subgraphs[number]
    for what, own, inner in (("input", operator.inputs, callee.inputs), ("output", operator.outputs, callee.outputs)):
        if len(own) != len(inner):
            raise TfliteError(f"{where}: must have {len(inner)} {what}s, as subgraph {number} has, got {len(own)}")
        for position, (at, inner_at) in enumerate(zip(own, inner, strict=True)):
            wanted = callee.tensors[inner_at].type
            if at >= 0 and subgraphs[index].tensors[at].type is not wanted:
                given = subgraphs[index].tensors[at].type.name
                raise TfliteError(f"{where}: {what} {position} must be {wanted.name}, got {given}")
