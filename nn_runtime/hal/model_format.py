# SPDX-License-Identifier: Apache-2.0
"""A model as plain data: a document for JSON and the bytes of all constants. Reading it runs no code.

For files that may have been damaged or exchanged. What comes back is a model like any other that reaches a driver: its
numbers have the right kinds, whether it makes sense is for `validation.validate_model` to say.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from nn_runtime.errors import BadData
from nn_runtime.hal.types import (
    CONSTANT_LIFETIMES,
    DataLocation,
    Model,
    Operand,
    OperandLifeTime,
    Operation,
    Subgraph,
)
from nn_runtime.hal.views import constant_bytes
from nn_runtime.operand import ChannelQuant

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nn_runtime.operand import Array

Document: TypeAlias = dict[str, object]

ALIGNMENT = 64
"""Of each constant in their bytes."""


def pack_model(model: Model) -> tuple[Document, bytes]:
    """Return a model's document and the bytes of its constants, wherever they lie now; raises Unmappable."""
    document, constants = _packed(model)
    return document, b"".join(part.tobytes() for part in constants.parts)


def model_digest(model: Model) -> bytes:
    """Return the SHA-256 of all that a model says, which is the same in every process; raises Unmappable."""
    document, constants = _packed(model)
    hashed = hashlib.sha256(json.dumps(document, sort_keys=True).encode())
    for part in constants.parts:
        hashed.update(np.ascontiguousarray(part).data)
    return hashed.digest()


def unpack_model(document: object, constants: bytes) -> Model:
    """Return the model of `pack_model`, its constants not copied; raises ValueError for anything else."""
    try:
        return _model(document, constants)
    except (TypeError, KeyError, OverflowError, BadData) as error:
        raise ValueError(f"no model: {type(error).__name__}: {error}") from error


class _Constants:
    """The bytes of constants one after the other, each at ALIGNMENT."""

    def __init__(self) -> None:
        self.parts: list[Array] = []
        self._end = 0

    def add(self, data: Array) -> int:
        """Return the offset of the data."""
        offset = self._end
        self.parts += [data, np.zeros(-data.size % ALIGNMENT, np.uint8)]
        self._end += data.size + self.parts[-1].size
        return offset


def _packed(model: Model) -> tuple[Document, _Constants]:
    constants = _Constants()
    graphs = [_graph_rows(model, graph, constants) for graph in (model.main, *model.referenced)]
    document: Document = {
        "graphs": graphs,
        "relaxed": model.relax_computation_float32_to_float16,
        "extensions": dict(model.extension_name_to_prefix),
    }
    return document, constants


def _graph_rows(model: Model, graph: Subgraph, constants: _Constants) -> Document:
    return {
        "operands": [_operand_row(model, operand, constants) for operand in graph.operands],
        "operations": [[int(one.type), _plain(one.inputs), _plain(one.outputs)] for one in graph.operations],
        "inputs": _plain(graph.input_indexes),
        "outputs": _plain(graph.output_indexes),
    }


def _operand_row(model: Model, operand: Operand, constants: _Constants) -> list[object]:
    data = constant_bytes(model, operand)
    lifetime, offset, length = operand.lifetime, operand.location.offset, 0
    if data is not None:
        lifetime, offset, length = OperandLifeTime.CONSTANT_COPY, constants.add(data), data.size
    quant, extension = operand.channel_quant, operand.extension_data
    return [
        int(operand.type),
        _plain(operand.dimensions),
        float(operand.scale),
        int(operand.zero_point),
        int(lifetime),
        offset,
        length,
        None if quant is None else [[float(scale) for scale in quant.scales], int(quant.channel_dim)],
        None if extension is None else extension.hex(),
    ]


def _plain(numbers: Iterable[int]) -> list[int]:
    """Return numbers as JSON takes them: numpy's own kinds are not among those."""
    return [int(number) for number in numbers]


def _model(document: object, constants: bytes) -> Model:
    fields = _fields(document)
    main, *referenced = (_graph(graph) for graph in _list(fields["graphs"]))
    extensions = {name: _integer(prefix) for name, prefix in _fields(fields["extensions"]).items()}
    return Model(
        main,
        tuple(referenced),
        constants,
        relax_computation_float32_to_float16=fields["relaxed"] is True,
        extension_name_to_prefix=extensions,
    )


def _graph(document: object) -> Subgraph:
    fields = _fields(document)
    return Subgraph(
        tuple(_operand(row) for row in _list(fields["operands"])),
        tuple(_operation(row) for row in _list(fields["operations"])),
        _integers(fields["inputs"]),
        _integers(fields["outputs"]),
    )


def _operation(row: object) -> Operation:
    code, inputs, outputs = _list(row)
    return Operation(_integer(code), _integers(inputs), _integers(outputs))


def _operand(row: object) -> Operand:
    code, dims, scale, zero_point, lifetime_code, offset, length, quant, extension = _list(row)
    lifetime = OperandLifeTime(_integer(lifetime_code))
    if lifetime in CONSTANT_LIFETIMES and lifetime != OperandLifeTime.CONSTANT_COPY:
        raise ValueError(f"no model: a constant with lifetime {lifetime.name}")
    channel_quant = None
    if quant is not None:
        scales, channel_dim = _list(quant)
        channel_quant = ChannelQuant(tuple(_number(one) for one in _list(scales)), _integer(channel_dim))
    return Operand(
        _integer(code),
        _integers(dims),
        _number(scale),
        _integer(zero_point, -(2**31)),
        lifetime,
        DataLocation(offset=_integer(offset), length=_integer(length)),
        channel_quant,
        None if extension is None else bytes.fromhex(_text(extension)),
    )


def _fields(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise TypeError("wanted an object")
    return value


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError("wanted a list")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("wanted text")
    return value


def _integer(value: object, least: int = 0) -> int:
    if type(value) is not int or not least <= value < 2**63:
        raise ValueError(f"no model: wanted an integer >= {least}")
    return value


def _integers(value: object) -> tuple[int, ...]:
    return tuple(_integer(one) for one in _list(value))


def _number(value: object) -> float:
    if type(value) not in (int, float) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("no model: wanted a finite number")
    return float(value)
