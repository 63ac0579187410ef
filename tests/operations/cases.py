# SPDX-License-Identifier: Apache-2.0
"""Our own operation examples: each family's `<family>_cases.py` lists `Case` values in a tuple CASES.

A case is written once, in real numbers, and expanded to every data type it allows. It becomes an `Example` of the
conformance tools, so that it runs and is judged like the corpus. Expected numbers are worked out by hand or by plain
formulas, never by the code under test.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.hal.types import OperandLifeTime
from nn_runtime.operand import ELEMENT_TYPES, dtype_of
from nn_runtime.testing.corpus import Example, ExampleGraph, ExampleOperand, ExampleOperation, Expected, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nn_runtime.operand import Array, ChannelQuant, Dimensions

FLOAT32, FLOAT16 = OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_FLOAT16
QUANT8, SIGNED = OperandCode.TENSOR_QUANT8_ASYMM, OperandCode.TENSOR_QUANT8_ASYMM_SIGNED
INT32, BOOL8 = OperandCode.TENSOR_INT32, OperandCode.TENSOR_BOOL8

FLOATS = (FLOAT32, FLOAT16)
ALL = (FLOAT32, FLOAT16, QUANT8, SIGNED)
KINDS = (Kind.PLAIN, Kind.DYNAMIC_OUTPUT_SHAPE, Kind.DEVICE_MEMORY)

TOLERANCES: dict[int, tuple[float, float]] = {
    FLOAT32: (1e-5, 5 * 2.0**-23),
    FLOAT16: (5 * 2.0**-10, 5 * 2.0**-10),
    QUANT8: (1.0, 0.0),
    SIGNED: (1.0, 0.0),
}
"""Absolute and relative tolerance by type of the output; every other type is compared exactly."""


@dataclass(frozen=True)
class Argument:
    """One operand of a case. `values` are real numbers where `type` is None, meaning: the case's data type.

    `scale` and `zero_point` (of the unsigned form) hold for the quantised forms. Constants are marked so.
    """

    dimensions: Dimensions
    values: Sequence[float] | Array
    type: OperandCode | None = None
    scale: float = 0.5
    zero_point: int = 128
    constant: bool = False
    omitted: bool = False
    role: str = "data"
    channel_quant: ChannelQuant | None = None


@dataclass(frozen=True)
class Case:
    """One operation with its arguments, and what it must give: within the type's tolerance, or exactly."""

    operation: OperationCode
    name: str
    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    types: tuple[OperandCode, ...] = ALL
    kinds: tuple[Kind, ...] = KINDS
    exact: bool = False
    referenced: tuple[ExampleGraph, ...] = field(default=(), repr=False)


def tensor(dims: Dimensions, values: Sequence[float], scale: float = 0.5, zero_point: int = 128) -> Argument:
    """Return a tensor of the case's data type."""
    return Argument(dims, values, scale=scale, zero_point=zero_point)


def weights(dims: Dimensions, values: Sequence[float], scale: float = 0.5, zero_point: int = 128) -> Argument:
    """Return a constant tensor of the case's data type."""
    return Argument(dims, values, scale=scale, zero_point=zero_point, constant=True)


def stored(dims: Dimensions, codes: str, scale: float, zero_point: int) -> Argument:
    """Return a tensor of the case's data type, given by the unsigned form's codes as hexadecimal digits."""
    return tensor(dims, [scale * (code - zero_point) for code in bytes.fromhex(codes)], scale, zero_point)


def bias(values: Sequence[float], scale: float) -> Argument:
    """Return a constant bias: the data type for floats, else TENSOR_INT32 with scale input * weights."""
    return Argument((len(values),), values, scale=scale, constant=True, role="bias")


def ignored(dims: Dimensions) -> Argument:
    """Return an output of the case's data type whose content is not specified."""
    return Argument(dims, np.zeros(dims).reshape(-1), role="ignored")


def ints(values: Sequence[int], dims: Dimensions | None = None) -> Argument:
    """Return a constant TENSOR_INT32."""
    return Argument((len(values),) if dims is None else dims, values, INT32, 0.0, 0, constant=True)


def integer(value: int) -> Argument:
    """Return an INT32 scalar."""
    return Argument((), [value], OperandCode.INT32, 0.0, 0, constant=True)


def flag(value: bool) -> Argument:
    """Return a BOOL scalar."""
    return Argument((), [value], OperandCode.BOOL, 0.0, 0, constant=True)


def real(value: float) -> Argument:
    """Return a float scalar: FLOAT16 beside float16 data, else FLOAT32."""
    return Argument((), [value], constant=True, role="scalar")


def of(code: OperandCode, dims: Dimensions, values: Sequence[float], scale: float = 0.0, zero: int = 0) -> Argument:
    """Return a tensor of a fixed type, its values as stored."""
    return Argument(dims, values, code, scale, zero)


def omitted(code: OperandCode | None = None) -> Argument:
    """Return an input without a value."""
    return Argument((0,), [], code, zero_point=128 if code is None else 0, omitted=True)


@functools.cache
def all_cases() -> tuple[Case, ...]:
    """Return the cases of every family."""
    found: list[Case] = []
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if module.name.endswith("_cases"):
            found += importlib.import_module(f"tests.operations.{module.name}").CASES
    return tuple(found)


def examples() -> Iterator[Example]:
    """Yield every case in every data type it allows."""
    for case in all_cases():
        for code in case.types:
            yield example(case, code)


def example(case: Case, code: OperandCode) -> Example:
    """Return a case in one data type."""
    given = [_operand(argument, code, OperandLifeTime.SUBGRAPH_INPUT, i) for i, argument in enumerate(case.inputs)]
    results = [
        _operand(argument, code, OperandLifeTime.SUBGRAPH_OUTPUT, len(given) + i)
        for i, argument in enumerate(case.outputs)
    ]
    inputs = [i for i, operand in enumerate(given) if operand.lifetime == OperandLifeTime.SUBGRAPH_INPUT]
    count = len(given)
    operation = ExampleOperation(case.operation, tuple(range(count)), tuple(range(count, count + len(results))))
    return Example(
        name=f"{case.operation.name.lower()}_{case.name}_{code.name.removeprefix('TENSOR_').lower()}",
        spec="own",
        main_op=case.operation.name,
        relaxed=False,
        expect_failure=False,
        infinite_loop=False,
        kinds=case.kinds,
        main=ExampleGraph((*given, *results), (operation,), tuple(inputs), operation.outputs),
        referenced=case.referenced,
        inputs=tuple(_data(case.inputs[i], given[i]) for i in inputs),
        outputs=tuple(
            Expected(
                _data(argument, operand).reshape(-1),
                argument.dimensions,
                "ignored" if argument.role == "ignored" else operand.type.name,
                *((0.0, 0.0) if case.exact else TOLERANCES.get(operand.type, (0.0, 0.0))),
            )
            for argument, operand in zip(case.outputs, results, strict=True)
        ),
    )


def _operand(argument: Argument, data_type: OperandCode, boundary: OperandLifeTime, index: int) -> ExampleOperand:
    code = _type(argument, data_type)
    element = ELEMENT_TYPES.get(code)
    quantized = element is not None and element.zero_point_range is not None
    zero_point = argument.zero_point - (128 if code == SIGNED and argument.type is None else 0)
    plain = ExampleOperand(
        name=f"operand{index}",
        type=code,
        dimensions=argument.dimensions,
        scale=argument.scale if quantized or code == INT32 else 0.0,
        zero_point=zero_point if quantized else 0,
        lifetime=boundary,
        value=None,
        channel_quant=argument.channel_quant,
    )
    lifetime, value = boundary, None
    if code == OperandCode.MODEL:
        lifetime, value = OperandLifeTime.SUBGRAPH, int(argument.values[0])
    elif argument.omitted:
        lifetime = OperandLifeTime.NO_VALUE
    elif argument.constant:
        lifetime, value = OperandLifeTime.CONSTANT_COPY, _data(argument, plain)
    return ExampleOperand(
        plain.name, code, plain.dimensions, plain.scale, plain.zero_point, lifetime, value, plain.channel_quant
    )


def _type(argument: Argument, data_type: OperandCode) -> OperandCode:
    if argument.type is not None:
        return argument.type
    if argument.role == "scalar":
        return OperandCode.FLOAT16 if data_type == FLOAT16 else OperandCode.FLOAT32
    return INT32 if argument.role == "bias" and data_type in (QUANT8, SIGNED) else data_type


def _data(argument: Argument, operand: ExampleOperand) -> Array:
    values = np.asarray(argument.values, np.float64).reshape(argument.dimensions)
    if argument.type is None and operand.scale:
        info = np.iinfo(dtype_of(operand.type))
        values = np.clip(np.rint(values / operand.scale) + operand.zero_point, info.min, info.max)
    data: Array = values.astype(dtype_of(operand.type))
    return data
