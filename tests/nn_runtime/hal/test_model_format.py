# SPDX-License-Identifier: Apache-2.0
"""Models as plain data: they come back the same, constants from wherever they lay, and damage is a ValueError."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace

import numpy as np
import pytest

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.hal.memory import SharedMemory
from nn_runtime.hal.model_format import model_digest, pack_model, unpack_model
from nn_runtime.hal.types import (
    DataLocation,
    HalError,
    Model,
    Operand,
    OperandLifeTime,
    Operation,
    Subgraph,
)
from nn_runtime.hal.validation import validate_model
from nn_runtime.hal.views import constant_array
from nn_runtime.operand import ChannelQuant
from tests.gpu_driver.test_control_flow import loop

FLOAT = OperandCode.TENSOR_FLOAT32
VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)


def adding(lifetime: OperandLifeTime) -> Model:
    """Input + VALUES, which lie where `lifetime` says."""
    pool = SharedMemory.create(100)
    pool.array()[8:32] = VALUES.reshape(-1).view(np.uint8)
    location = {
        OperandLifeTime.POINTER: DataLocation(length=24, pointer=VALUES),
        OperandLifeTime.CONSTANT_COPY: DataLocation(offset=4, length=24),
        OperandLifeTime.CONSTANT_REFERENCE: DataLocation(0, 8, 24),
    }[lifetime]
    operands = (
        Operand(FLOAT, (0, 3), lifetime=OperandLifeTime.SUBGRAPH_INPUT),
        Operand(FLOAT, (2, 3), lifetime=lifetime, location=location),
        Operand(OperandCode.INT32, (), lifetime=OperandLifeTime.CONSTANT_COPY, location=DataLocation(length=4)),
        Operand(FLOAT, (), lifetime=OperandLifeTime.SUBGRAPH_OUTPUT),
    )
    graph = Subgraph(operands, (Operation(OperationCode.ADD, (0, 1, 2), (3,)),), (0,), (3,))
    return Model(graph, (), bytes(4) + VALUES.tobytes(), (pool,), True)


def through_json(model: Model) -> Model:
    document, constants = pack_model(model)
    return unpack_model(json.loads(json.dumps(document)), constants)


@pytest.mark.parametrize(
    "lifetime", [OperandLifeTime.POINTER, OperandLifeTime.CONSTANT_COPY, OperandLifeTime.CONSTANT_REFERENCE]
)
def test_constants_come_from_wherever_they_lie(lifetime: OperandLifeTime) -> None:
    model = adding(lifetime)
    found = through_json(model)
    validate_model(found)
    data = constant_array(found, found.main.operands[1])
    assert data is not None
    np.testing.assert_array_equal(data, VALUES)
    assert found.main.operations == model.main.operations
    assert [operand.dimensions for operand in found.main.operands] == [(0, 3), (2, 3), (), ()]
    assert found.relax_computation_float32_to_float16
    assert model_digest(found) == model_digest(model)


def test_every_field_comes_back() -> None:
    quant = ChannelQuant((0.1, 0.25, 3e-8), 1)
    operands = (
        Operand(OperandCode.TENSOR_QUANT8_ASYMM_SIGNED, (4,), 0.1, -128, OperandLifeTime.SUBGRAPH_INPUT),
        Operand(OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL, (2, 3), channel_quant=quant),
        Operand(0x10003, (5,), extension_data=b"\x00\xff"),
        Operand(FLOAT, (), lifetime=OperandLifeTime.NO_VALUE),
    )
    model = Model(Subgraph(operands, (), (0,), (2,)), extension_name_to_prefix={"a.b": 1})
    found = through_json(model)
    assert found == replace(model, operand_values=found.operand_values)


def test_referenced_models_come_back() -> None:
    model = loop(3, (2, 3))
    found = through_json(model)
    assert len(found.referenced) == 4
    assert validate_model(found) == validate_model(model)
    assert model_digest(found) == model_digest(model)


def test_digests_tell_models_apart() -> None:
    model = adding(OperandLifeTime.CONSTANT_COPY)
    others = [
        replace(model, relax_computation_float32_to_float16=False),
        replace(model, operand_values=model.operand_values[:-1] + b"\1"),
        replace(model, main=replace(model.main, input_indexes=())),
        loop(3, (2, 3)),
        loop(4, (2, 3)),
    ]
    assert len({model_digest(one) for one in (model, *others)}) == 1 + len(others)


def test_numbers_of_numpy() -> None:
    """A model made by hand may have them."""
    model = adding(OperandLifeTime.CONSTANT_COPY)
    (operation,) = model.main.operations
    numbered = replace(
        model.main,
        operands=tuple(replace(one, dimensions=tuple(map(np.int64, one.dimensions)), scale=np.float32(one.scale),
                               zero_point=np.int32(one.zero_point)) for one in model.main.operands),
        operations=(replace(operation, inputs=tuple(np.arange(3)), outputs=(np.int32(3),)),),
        input_indexes=(np.int64(0),),
    )  # fmt: skip
    assert model_digest(replace(model, main=numbered)) == model_digest(model)


def test_the_order_in_which_extensions_are_listed_is_no_difference() -> None:
    model = adding(OperandLifeTime.CONSTANT_COPY)
    one, other = (replace(model, extension_name_to_prefix=names) for names in ({"a": 1, "b": 2}, {"b": 2, "a": 1}))
    assert model_digest(one) == model_digest(other)


DIMENSIONS, SCALE, LIFETIME = 1, 2, 4
"""Places in the row of an operand."""


@pytest.mark.parametrize(
    ("place", "value", "wanted"),
    [
        (DIMENSIONS, [True, 3], "wanted an integer"),
        (SCALE, math.inf, "wanted a finite number"),
        (SCALE, math.nan, "wanted a finite number"),
        (SCALE, 10**400, "too large"),
        (LIFETIME, int(OperandLifeTime.POINTER), "a constant with lifetime POINTER"),
        (LIFETIME, int(OperandLifeTime.CONSTANT_REFERENCE), "a constant with lifetime CONSTANT_REFERENCE"),
    ],
)
def test_a_damaged_operand(place: int, value: object, wanted: str) -> None:
    """Also by numbers that JSON can hold and models cannot."""
    document, constants = pack_model(adding(OperandLifeTime.CONSTANT_COPY))
    broken = json.loads(json.dumps(document))
    broken["graphs"][0]["operands"][1][place] = value
    with pytest.raises(ValueError, match=rf"no model: .*{wanted}"):
        unpack_model(json.loads(json.dumps(broken)), constants)


WRONG = (None, True, -1, 1.5, 2**70, 1e999, "x", [], [[]], {}, [1] * 9)


def test_damage_is_a_value_error_or_a_model_that_validation_judges() -> None:
    generator = random.Random(5)
    document, constants = pack_model(loop(3, (2, 3)))
    text = json.dumps(document)
    refused = 0
    for _ in range(1000):
        broken = json.loads(text)
        holder, key = broken, "graphs"
        while isinstance(holder[key], dict | list) and holder[key] and generator.random() < 0.85:
            holder = holder[key]
            key = generator.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        holder[key] = generator.choice(WRONG)
        try:
            validate_model(unpack_model(broken, constants))
        except (ValueError, HalError):
            refused += 1
    assert refused > 900


@pytest.mark.parametrize("document", [*WRONG, {"graphs": []}, {"graphs": [{}], "relaxed": False, "extensions": {}}])
def test_what_is_no_model(document: object) -> None:
    with pytest.raises(ValueError, match=r"no model|not enough values|wanted"):
        unpack_model(document, b"")
