# SPDX-License-Identifier: Apache-2.0
"""Each rule of the model and request checklists, broken one at a time in a model that is otherwise good."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from nn_runtime.codes import FeatureLevel, OperandCode, OperationCode
from nn_runtime.hal.memory import SharedMemory
from nn_runtime.hal.types import (
    BufferToken,
    DataLocation,
    ErrorStatus,
    HalError,
    Model,
    Operand,
    OperandLifeTime,
    Operation,
    Request,
    RequestArgument,
    Subgraph,
)
from nn_runtime.hal.validation import validate_model, validate_preference, validate_priority, validate_request
from nn_runtime.operand import ChannelQuant
from tests.nn_runtime.hal.models import FLOATS, add_model, constant, pointer, request

Change = Callable[[Model], Model]
_EXTENSION = 1 << 16


def _operand(index: int, **fields: object) -> Change:
    def change(model: Model) -> Model:
        operands = list(model.main.operands)
        operands[index] = replace(operands[index], **fields)  # type: ignore[arg-type]
        return replace(model, main=replace(model.main, operands=tuple(operands)))

    return change


def _main(**fields: object) -> Change:
    return lambda model: replace(model, main=replace(model.main, **fields))  # type: ignore[arg-type]


def _added(*operands: Operand) -> Change:
    return lambda model: replace(model, main=replace(model.main, operands=model.main.operands + operands))


def _referring(*targets: int | None) -> Change:
    """Add referenced models, each of which refers to the one given by index, and one reference to the first."""

    def graph(target: int | None) -> Subgraph:
        main = add_model().main
        return main if target is None else replace(main, operands=(*main.operands, _model_operand(target)))

    def change(model: Model) -> Model:
        return replace(_added(_model_operand(0))(model), referenced=tuple(graph(target) for target in targets))

    return change


def _model_operand(index: int) -> Operand:
    return Operand(OperandCode.MODEL, lifetime=OperandLifeTime.SUBGRAPH, location=DataLocation(offset=index))


def _constant_copy(length: int, offset: int = 0, size: int = 16) -> Change:
    location = DataLocation(offset=offset, length=length)
    extra = Operand(FLOATS, (2, 2), lifetime=OperandLifeTime.CONSTANT_COPY, location=location)
    return lambda model: replace(_added(extra)(model), operand_values=bytes(size))


_ADD, _RELU = add_model().main.operations
_PER_CHANNEL = OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL

BROKEN: dict[str, tuple[Change, str]] = {
    "no operations": (_main(operations=()), "at least one operand and one operation"),
    "unknown type": (_operand(0, type=99), "operand 0"),
    "scalar with dimensions": (_operand(2, dimensions=(1,)), "operand 2: INT32 is a scalar"),
    "scale on a float": (_operand(0, scale=0.5), "operand 0: TENSOR_FLOAT32: scale"),
    "zero point on a float": (_operand(0, zero_point=1), "zero point"),
    "quantised without scale": (_operand(0, type=OperandCode.TENSOR_QUANT8_ASYMM), "scale must be > 0"),
    "zero point out of range": (
        _operand(0, type=OperandCode.TENSOR_QUANT8_ASYMM, scale=1.0, zero_point=256),
        "zero point must be in 0..255",
    ),
    "per-channel without scales": (_operand(0, type=_PER_CHANNEL), "per-channel"),
    "per-channel of wrong count": (
        _operand(0, type=_PER_CHANNEL, channel_quant=ChannelQuant((1.0,), 0)),
        "one scale for each of 2",
    ),
    "per-channel on another type": (_operand(0, channel_quant=ChannelQuant((1.0, 1.0), 0)), "belong to"),
    "extension data on a standard type": (_operand(0, extension_data=b"x"), "extension data"),
    "extension not listed": (_operand(0, type=_EXTENSION), "no extension"),
    "per-channel scales on an extension": (
        lambda model: replace(
            _operand(0, type=_EXTENSION, channel_quant=ChannelQuant((1.0, 1.0), 0))(model),
            extension_name_to_prefix={"com.example": 1},
        ),
        "per-channel scales must be 0",
    ),
    "model type without its lifetime": (_added(Operand(OperandCode.MODEL)), "lifetime SUBGRAPH"),
    "lifetime of a model on a tensor": (_operand(0, lifetime=OperandLifeTime.SUBGRAPH), "lifetime SUBGRAPH"),
    "location of a temporary": (_operand(3, location=DataLocation(length=4)), "operand 3"),
    "constant too short": (_constant_copy(12), "has 16 bytes, got 12"),
    "constant outside": (_constant_copy(16, 8), "outside"),
    "constant of unknown size": (_operand(2, type=FLOATS, dimensions=(0,)), "needs all its dimensions"),
    "constant in no pool": (
        _added(Operand(FLOATS, (1,), lifetime=OperandLifeTime.CONSTANT_REFERENCE, location=DataLocation(length=4))),
        "0 pools",
    ),
    "pointer to nothing": (_added(Operand(FLOATS, (1,), lifetime=OperandLifeTime.POINTER)), "needs an array"),
    "pointer with an offset": (
        _operand(2, location=DataLocation(offset=4, length=4, pointer=np.zeros((), np.int32))),
        "in pool 0 at offset 0",
    ),
    "negative offset": (_constant_copy(16, -4), "negative"),
    "no such referenced model": (_added(_model_operand(0)), "0 referenced models"),
    "referenced model in a pool": (
        lambda model: _operand(5, location=DataLocation(pool_index=1))(_referring(None)(model)),
        "its index alone",
    ),
    "reference to itself": (_referring(0), "cycle"),
    "cycle among unreferenced models": (_referring(None, 2, 1), "cycle"),
    "unknown operation": (_main(operations=(replace(_ADD, type=9999), _RELU)), "operation"),
    "wrong count of inputs": (_main(operations=(replace(_ADD, inputs=(0, 1)), _RELU)), "operation 0 ADD"),
    "operand does not exist": (_main(operations=(_ADD, replace(_RELU, inputs=(9,)))), "operand 9 does not exist"),
    "read before written": (_main(operations=(_RELU, _ADD)), "reads operand 3 before"),
    "written twice": (_main(operations=(_ADD, _ADD, _RELU)), "written before"),
    "writes an input": (_main(operations=(_ADD, replace(_RELU, outputs=(0,)))), "writes operand 0"),
    "writes a constant": (_main(operations=(replace(_ADD, outputs=(2,)), _RELU)), "writes operand 2"),
    "never written": (_main(operations=(_ADD,)), "operand 4 is never written"),
    "temporary never written": (_added(Operand(FLOATS, (1,))), "operand 5 is never written"),
    "input not listed": (_main(input_indexes=(0,)), "operand 1"),
    "input listed twice": (_main(input_indexes=(0, 1, 1)), "twice"),
    "input out of range": (_main(input_indexes=(0, 1, 7)), "operand 7 does not exist"),
    "output that is a temporary": (_main(output_indexes=(4, 3)), "operand 3"),
    "extension name": (lambda model: replace(model, extension_name_to_prefix={"Bad": 1}), "extension name"),
    "extension prefix": (lambda model: replace(model, extension_name_to_prefix={"a.b": 0}), "prefix must be"),
    "extension prefixes equal": (
        lambda model: replace(model, extension_name_to_prefix={"a.b": 1, "a.c": 1}),
        "must differ",
    ),
}


def test_a_good_model_is_accepted() -> None:
    assert validate_model(add_model()) == FeatureLevel.HAL_1_0


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_model_is_refused(name: str) -> None:
    change, message = BROKEN[name]
    with pytest.raises(HalError) as caught:
        validate_model(change(add_model()))
    assert caught.value.status == ErrorStatus.INVALID_ARGUMENT
    assert message in str(caught.value)


def test_a_fault_in_a_referenced_model_names_it() -> None:
    model = _referring(None, None)(add_model())
    broken = replace(model.referenced[1], output_indexes=())
    with pytest.raises(HalError, match="referenced model 1: outputs"):
        validate_model(replace(model, referenced=(model.referenced[0], broken)))


@pytest.mark.parametrize(
    ("change", "level"),
    [
        (lambda model: replace(model, relax_computation_float32_to_float16=True), FeatureLevel.HAL_1_0),
        (_operand(4, dimensions=()), FeatureLevel.HAL_1_2),
        (_referring(None), FeatureLevel.HAL_1_3),
        (
            lambda model: replace(
                _main(operations=(_ADD, _RELU, Operation(_EXTENSION, (0,), (5,))))(
                    _added(Operand(FLOATS, (1,)))(model)
                ),
                extension_name_to_prefix={"com.example": 1},
            ),
            FeatureLevel.HAL_1_2,
        ),
    ],
    ids=["relaxed", "unknown rank", "referenced model", "extension"],
)
def test_feature_level(change: Change, level: FeatureLevel) -> None:
    assert validate_model(change(add_model())) == level


def test_constants_may_lie_inline_in_pools_and_behind_pointers() -> None:
    pool = SharedMemory.create(64)
    reference = OperandLifeTime.CONSTANT_REFERENCE
    extra = (
        Operand(FLOATS, (2,), lifetime=OperandLifeTime.CONSTANT_COPY, location=DataLocation(offset=8, length=8)),
        Operand(FLOATS, (2,), lifetime=reference, location=DataLocation(offset=56, length=8)),
        constant(FLOATS, np.zeros((2,), np.float32), (2,)),
    )
    validate_model(replace(_added(*extra)(add_model()), operand_values=bytes(16), pools=(pool,)))


def _argument(**location: int) -> RequestArgument:
    return RequestArgument(location=DataLocation(**location))


_GOOD = np.zeros((2, 2), np.float32)
_SHORT = np.zeros((3,), np.float32)


def _with_first_input(argument: RequestArgument, pools: tuple[SharedMemory | BufferToken, ...] = ()) -> Request:
    return Request((argument, pointer(_GOOD)), (pointer(_GOOD),), pools)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (Request((pointer(_GOOD),), (pointer(_GOOD),)), "needs 2 inputs, got 1"),
        (Request((pointer(_GOOD),) * 2, ()), "needs 1 outputs, got 0"),
        (_with_first_input(pointer(_SHORT)), "input 0: TENSOR_FLOAT32 [2, 2] has 16 bytes, got 12"),
        (_with_first_input(pointer(_GOOD, (4, 1))), "contradict"),
        (_with_first_input(pointer(_GOOD, (2, 2, 1))), "contradict"),
        (_with_first_input(pointer(_GOOD, (0, 2))), "input 0: dimensions [0, 2] contradict [2, 2]"),
        (Request((pointer(_GOOD),) * 2, (pointer(_GOOD, (2, 0)),)), "output 0: dimensions [2, 0] contradict [2, 2]"),
        (_with_first_input(RequestArgument(True, DataLocation(length=4))), "without value"),
        (_with_first_input(RequestArgument(True, dimensions=(2, 2))), "without value"),
        (_with_first_input(_argument(length=16)), "0 pools"),
        (_with_first_input(_argument(), (BufferToken(0),)), "token must be > 0"),
        (_with_first_input(_argument(length=4), (BufferToken(1),)), "used whole"),
        (_with_first_input(_argument(padding=4), (BufferToken(1),)), "used whole"),
        (
            _with_first_input(RequestArgument(location=DataLocation(length=16, padding=4, pointer=_GOOD))),
            "16 bytes and 4 of padding do not fit 16",
        ),
        (_with_first_input(_argument(offset=-1, length=16)), "negative"),
        (_with_first_input(pointer(np.zeros((4, 4), np.float32)[::2, ::2])), "C-contiguous"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_broken_request_is_refused(broken: Request, message: str) -> None:
    with pytest.raises(HalError) as caught:
        validate_request(add_model(), broken)
    assert caught.value.status == ErrorStatus.INVALID_ARGUMENT
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("location", "message"),
    [({"offset": 8, "length": 16}, "outside"), ({}, "length must be > 0"), ({"length": 16, "padding": 5}, "outside")],
)
def test_request_range_in_a_pool(location: dict[str, int], message: str) -> None:
    pool = SharedMemory.create(20)
    with pytest.raises(HalError, match=message):
        validate_request(add_model(), _with_first_input(_argument(**location), (pool,)))
    validate_request(add_model(), _with_first_input(_argument(offset=4, length=16), (pool,)))


def test_unknown_dimensions_of_inputs_must_be_given() -> None:
    model = add_model((0, 2))
    with pytest.raises(HalError, match="input 0: all dimensions must be known"):
        validate_request(model, request([_GOOD, _GOOD], [_GOOD]))
    validate_request(model, Request((pointer(_GOOD, (2, 2)),) * 2, (pointer(_GOOD),)))


def test_negative_dimensions_of_a_buffer_are_refused() -> None:
    """Where there is no length to compare with."""
    argument = RequestArgument(dimensions=(-2, 2))
    with pytest.raises(HalError, match="input 0: dimensions must not be negative"):
        validate_request(add_model((0, 2)), _with_first_input(argument, (BufferToken(1),)))


def test_unknown_dimensions_of_outputs_may_stay_unless_fenced() -> None:
    model = add_model(output_dims=(0, 2))
    validate_request(model, request([_GOOD, _GOOD], [_SHORT]))
    with pytest.raises(HalError, match="output 0: all dimensions must be known"):
        validate_request(model, request([_GOOD, _GOOD], [_GOOD]), allow_unspecified_output=False)


def test_preference_and_priority() -> None:
    validate_preference(2)
    validate_priority(0)
    for check, value in ((validate_preference, 3), (validate_preference, -1), (validate_priority, 3)):
        with pytest.raises(HalError) as caught:
            check(value)
        assert caught.value.status == ErrorStatus.INVALID_ARGUMENT


def test_an_unknown_operation_code_is_named() -> None:
    model = add_model()
    operations = (Operation(OperationCode.QUANTIZED_16BIT_LSTM, (0, 1, 2), (3,)), model.main.operations[1])
    with pytest.raises(HalError, match="QUANTIZED_16BIT_LSTM"):
        validate_model(replace(model, main=replace(model.main, operations=operations)))
