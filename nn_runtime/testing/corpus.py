# SPDX-License-Identifier: Apache-2.0
"""Operation examples: reading a corpus folder, the kinds of run, and the rules by which results are judged.

A corpus folder holds `<version>/<spec>.json.gz` files (docs/DATA.md describes the fields). The rules are those of
AOSP's result checker.
"""

from __future__ import annotations

import gzip
import json
import zlib
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.errors import BadData
from nn_runtime.hal.types import OperandLifeTime
from nn_runtime.operand import ChannelQuant, dtype_of, element_count
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from nn_runtime.operand import Array, Dimensions

    Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

ZERO_POINT_SHIFT = 128


class Kind(Enum):
    """How an example is run."""

    PLAIN = "plain"
    DYNAMIC_OUTPUT_SHAPE = "dynamic_output_shape"
    QUANT8_TO_SIGNED = "quant8_to_signed"
    DEVICE_MEMORY = "device_memory"


@dataclass(frozen=True)
class ExampleOperand:
    """One operand; `value` is a constant's data [dims], or the index of a referenced model."""

    name: str
    type: OperandCode
    dimensions: Dimensions
    scale: float
    zero_point: int
    lifetime: OperandLifeTime
    value: Array | int | None
    channel_quant: ChannelQuant | None


@dataclass(frozen=True)
class ExampleOperation:
    """One operation: code, operand indices."""

    type: OperationCode
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class ExampleGraph:
    """A model, operations in run order."""

    operands: tuple[ExampleOperand, ...]
    operations: tuple[ExampleOperation, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class Expected:
    """What an output should be: `values` flat, compared by `compare` with |got - wanted| <= atol + rtol |wanted|."""

    values: Array
    dimensions: Dimensions
    compare: str
    atol: float
    rtol: float


@dataclass(frozen=True)
class Example:
    """One example: its model, inputs (None: omitted) and expected outputs."""

    name: str
    spec: str
    main_op: str
    relaxed: bool
    expect_failure: bool
    infinite_loop: bool
    kinds: tuple[Kind, ...]
    main: ExampleGraph
    referenced: tuple[ExampleGraph, ...]
    inputs: tuple[Array | None, ...]
    outputs: tuple[Expected, ...]
    multinomial_tolerance: float = 0.0

    @property
    def graphs(self) -> tuple[ExampleGraph, ...]:
        """The main model and the referenced ones."""
        return (self.main, *self.referenced)


def spec_files(folder: Path) -> list[Path]:
    """Return the files of a corpus; raises FileNotFoundError if there are none, OSError for a folder not to be read."""
    next(folder.iterdir(), None)  # glob finds nothing in what cannot be read
    files = sorted(folder.glob("*/*.json.gz")) or sorted(folder.glob("*.json.gz"))
    if not files:
        raise FileNotFoundError(f"{folder}: no <version>/<spec>.json.gz here")
    return files


def read_spec(path: Path) -> Iterator[Example]:
    """Yield the examples of one file; raises BadData naming a file that holds none, or one that makes no sense."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            spec = json.load(file)
        for example in spec["examples"]:
            yield _example(example, f"{spec['version']}/{spec['spec']}")
    except (EOFError, LookupError, TypeError, ValueError, gzip.BadGzipFile, zlib.error) as error:
        raise BadData(f"{path}: no operation examples: {type(error).__name__}: {error}") from error


def as_kind(example: Example, kind: Kind) -> Example:
    """Return the example as a kind of run wants it."""
    if kind == Kind.DYNAMIC_OUTPUT_SHAPE:
        graphs = [_map_operands(graph, _with_unknown_output) for graph in example.graphs]
        return replace(example, main=graphs[0], referenced=tuple(graphs[1:]))
    if kind == Kind.QUANT8_TO_SIGNED:
        return _signed(example)
    return example


def judge(example: Example, index: int, dimensions: Dimensions, got: Array) -> str:
    """Return what is wrong with output `index` ("" if nothing): its dimensions, then its elements."""
    expected = example.outputs[index]
    if expected.compare in ("ignored", "none"):
        return ""
    name = f"output {index} {example.main.operands[example.main.outputs[index]].name}"
    if dimensions != expected.dimensions:
        return f"{name}: wanted dimensions {list(expected.dimensions)}, got {list(dimensions)}"
    if expected.compare == "multinomial":
        return _judge_multinomial(example, name, got)
    wide, wanted = got.reshape(-1).astype(np.float64), expected.values.astype(np.float64)
    with np.errstate(invalid="ignore"):
        error = np.abs(wide - wanted)
        good = error <= expected.atol + expected.rtol * np.abs(wanted)
    if good.all():
        return ""
    # The worst element speaks for all; NaN is the worst.
    at = int(np.argmax(np.where(good, -1.0, np.nan_to_num(error, nan=np.inf, posinf=np.inf))))
    place = [int(i) for i in np.unravel_index(at, expected.dimensions or (1,))]
    return (
        f"{name}: {np.count_nonzero(~good)} of {wanted.size} elements off, worst at {place}: "
        f"wanted {wanted[at]:.9g}, got {wide[at]:.9g} (atol {expected.atol:.3g}, rtol {expected.rtol:.3g})"
    )


def _judge_multinomial(example: Example, name: str, got: Array) -> str:
    """Compare the shares of the drawn classes with the softmax of the logits, per batch row."""
    logits = example.inputs[0]
    if logits is None:
        return f"{name}: no logits to compare with"
    exponentials = np.exp(logits.astype(np.float32))
    wanted = exponentials / exponentials.sum(axis=-1, keepdims=True)
    classes, samples = logits.shape[-1], got.shape[-1]
    rows = got.reshape(-1, samples)
    shares = np.stack([np.bincount(row, minlength=classes)[:classes] / samples for row in rows])
    worst = float(np.max(np.abs(shares - wanted)))
    if worst <= example.multinomial_tolerance:
        return ""
    return f"{name}: a class's share is off by {worst:.3g}, allowed {example.multinomial_tolerance:.3g}"


def _example(data: Mapping[str, Json], spec: str) -> Example:
    main = _graph(_object(data["main"]))
    runs = _object(data["runs"])
    failing = bool(data["expect_failure"])
    tolerance = data.get("multinomial_tolerance", 0.0)
    return Example(
        name=str(data["name"]),
        spec=spec,
        main_op=str(data["main_op"]),
        relaxed=bool(data["relaxed"]),
        expect_failure=failing,
        infinite_loop=bool(data.get("infinite_loop")),
        kinds=(Kind.PLAIN,) if failing else tuple(kind for kind in Kind if runs[kind.value]),
        main=main,
        referenced=tuple(_graph(_object(graph)) for graph in _list(data["referenced"])),
        inputs=tuple(_input(main, _object(entry)) for entry in _list(data["inputs"])),
        outputs=tuple(_expected(main, _object(entry)) for entry in _list(data["outputs"])),
        multinomial_tolerance=_float(tolerance),
    )


def _graph(data: Mapping[str, Json]) -> ExampleGraph:
    return ExampleGraph(
        tuple(_operand(_object(operand)) for operand in _list(data["operands"])),
        tuple(_operation(_object(operation)) for operation in _list(data["operations"])),
        _ints(data["inputs"]),
        _ints(data["outputs"]),
    )


def _operation(data: Mapping[str, Json]) -> ExampleOperation:
    return ExampleOperation(OperationCode[str(data["type"])], _ints(data["inputs"]), _ints(data["outputs"]))


def _operand(data: Mapping[str, Json]) -> ExampleOperand:
    # The HAL calls the NDK's MODEL operands SUBGRAPH.
    code = OperandCode.MODEL if data["type"] == "SUBGRAPH" else OperandCode[str(data["type"])]
    dimensions = _ints(data["dims"])
    value = data.get("value")
    quant = data.get("channel_quant")
    return ExampleOperand(
        name=str(data["name"]),
        type=code,
        dimensions=dimensions,
        scale=_float(data["scale"]),
        zero_point=_int(data["zero_point"]),
        lifetime=OperandLifeTime[str(data["lifetime"])],
        value=_array(value, code).reshape(dimensions) if isinstance(value, list) and value else _index(value),
        channel_quant=None if quant is None else _channel_quant(_object(quant)),
    )


def _channel_quant(data: Mapping[str, Json]) -> ChannelQuant:
    return ChannelQuant(tuple(_float(scale) for scale in _list(data["scales"])), _int(data["channel_dim"]))


def _index(value: Json) -> int | None:
    return value if isinstance(value, int) else None


def _input(main: ExampleGraph, data: Mapping[str, Json]) -> Array | None:
    operand = main.operands[_int(data["operand"])]
    if data.get("omitted"):
        return None
    return _array(data["values"], operand.type).reshape(operand.dimensions)


def _expected(main: ExampleGraph, data: Mapping[str, Json]) -> Expected:
    operand = main.operands[_int(data["operand"])]
    return Expected(
        _array(data["values"], operand.type),
        operand.dimensions,
        str(data["compare"]),
        _float(data.get("atol", 0.0)),
        _float(data.get("rtol", 0.0)),
    )


def _array(values: Json, code: OperandCode) -> Array:
    return np.asarray(values, dtype_of(code)).reshape(-1)


def _map_operands(graph: ExampleGraph, change: Callable[[ExampleOperand], ExampleOperand]) -> ExampleGraph:
    return replace(graph, operands=tuple(change(operand) for operand in graph.operands))


def _with_unknown_output(operand: ExampleOperand) -> ExampleOperand:
    if operand.lifetime != OperandLifeTime.SUBGRAPH_OUTPUT:
        return operand
    return replace(operand, dimensions=(0,) * len(operand.dimensions))


def _signed(example: Example) -> Example:
    main = example.main
    codes = [
        [graph.operands[i].type for i in indexes] for graph, indexes in ((main, main.inputs), (main, main.outputs))
    ]
    graphs = [_map_operands(graph, _signed_operand) for graph in example.graphs]
    return replace(
        example,
        main=graphs[0],
        referenced=tuple(graphs[1:]),
        inputs=tuple(
            data if data is None else _shifted(data, code) for data, code in zip(example.inputs, codes[0], strict=True)
        ),
        outputs=tuple(
            replace(expected, values=_shifted(expected.values, code))
            for expected, code in zip(example.outputs, codes[1], strict=True)
        ),
    )


def _signed_operand(operand: ExampleOperand) -> ExampleOperand:
    if operand.type != OperandCode.TENSOR_QUANT8_ASYMM:
        return operand
    value = operand.value
    return replace(
        operand,
        type=OperandCode.TENSOR_QUANT8_ASYMM_SIGNED,
        zero_point=operand.zero_point - ZERO_POINT_SHIFT,
        value=value if value is None or isinstance(value, int) else _shifted(value, operand.type),
    )


def _shifted(data: Array, code: int) -> Array:
    if code != OperandCode.TENSOR_QUANT8_ASYMM:
        return data
    signed: Array = (data.astype(np.int16) - ZERO_POINT_SHIFT).astype(np.int8)
    return signed


def _object(value: Json) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise TypeError(f"wanted a JSON object, got {type(value).__name__}")
    return value


def _list(value: Json) -> list[Json]:
    if not isinstance(value, list):
        raise TypeError(f"wanted a JSON list, got {type(value).__name__}")
    return value


def _int(value: Json) -> int:
    if not isinstance(value, int):
        raise TypeError(f"wanted an integer, got {value!r}")
    return value


def _float(value: Json) -> float:
    if not isinstance(value, (int, float)):
        raise TypeError(f"wanted a number, got {value!r}")
    return float(value)


def _ints(value: Json) -> tuple[int, ...]:
    return tuple(_int(element) for element in _list(value))


def result_buffer(code: int, dimensions: Dimensions) -> Array:
    """Return a buffer for an output: a zero-sized one still gets one element."""
    return np.zeros(max(1, element_count(dimensions)), dtype_of(code))
