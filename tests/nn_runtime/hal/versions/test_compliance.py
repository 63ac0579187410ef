# SPDX-License-Identifier: Apache-2.0
"""The least version of models and requests (AOSP TestCompliance), also of every example of the corpus."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import FeatureLevel, OperandCode, OperationCode
from nn_runtime.hal.memory import HardwareBuffer
from nn_runtime.hal.types import (
    BufferToken,
    DataLocation,
    HalError,
    Model,
    Operand,
    OperandLifeTime,
    Operation,
    Request,
    RequestArgument,
    Subgraph,
)
from nn_runtime.hal.versions import compliant_with, convert_to, minimum_level, request_level, to_canonical
from nn_runtime.hal.versions.compliance import without_dead_operands
from nn_runtime.hal.versions.conversion import without_pointers
from nn_runtime.testing.conformance import hal_model
from nn_runtime.testing.corpus import read_spec, spec_files
from tests.nn_runtime.hal.models import FLOATS, INPUT, OUTPUT, add_model, request

if TYPE_CHECKING:
    from pathlib import Path

    from nn_runtime.operand import Dimensions

LEVELS = (FeatureLevel.HAL_1_0, FeatureLevel.HAL_1_1, FeatureLevel.HAL_1_2, FeatureLevel.HAL_1_3)
FOLDERS = {
    "V1_0": FeatureLevel.HAL_1_0,
    "V1_1": FeatureLevel.HAL_1_1,
    "V1_2": FeatureLevel.HAL_1_2,
    "V1_3": FeatureLevel.HAL_1_3,
    "V1_3_cts_only": FeatureLevel.HAL_1_3,
}
QUICK_SHARE = 25


def chain(input_dims: Dimensions, temporary_dims: Dimensions, output_dims: Dimensions) -> Model:
    operands = (
        Operand(FLOATS, input_dims, lifetime=INPUT),
        Operand(FLOATS, temporary_dims),
        Operand(FLOATS, output_dims, lifetime=OUTPUT),
    )
    operations = (Operation(OperationCode.FLOOR, (0,), (1,)), Operation(OperationCode.FLOOR, (1,), (2,)))
    return Model(Subgraph(operands, operations, (0,), (2,)))


@pytest.mark.parametrize(
    ("model", "level"),
    [
        (chain((), (2,), (2,)), FeatureLevel.HAL_1_2),
        (chain((2,), (2,), ()), FeatureLevel.HAL_1_2),
        (chain((2,), (), (2,)), FeatureLevel.HAL_1_2),
        (chain((2,), (0,), (2,)), FeatureLevel.HAL_1_0),
        (chain((0,), (0,), (0,)), FeatureLevel.HAL_1_0),
    ],
    ids=["rank of input", "rank of output", "rank of temporary", "size of temporary", "all sizes"],
)
def test_unknown_ranks_need_1_2(model: Model, level: FeatureLevel) -> None:
    assert minimum_level(model) == level
    assert [compliant_with(model, version) for version in LEVELS] == [version >= level for version in LEVELS]


def test_hardware_buffers_need_1_2() -> None:
    model = replace(add_model(), pools=(HardwareBuffer(64),))
    assert minimum_level(model) == FeatureLevel.HAL_1_2
    plain = chain((2,), (2,), (2,))
    argument = RequestArgument(location=DataLocation(0, 0, 8))
    other = RequestArgument(location=DataLocation(0, 8, 8))
    assert request_level(plain, Request((argument,), (other,), (HardwareBuffer(64),))) == FeatureLevel.HAL_1_2


def test_device_memory_needs_1_3() -> None:
    whole = RequestArgument(location=DataLocation(0))
    out = RequestArgument(location=DataLocation(1))
    level = request_level(chain((2,), (2,), (2,)), Request((whole,), (out,), (BufferToken(1), BufferToken(2))))
    assert level == FeatureLevel.HAL_1_3


def test_outputs_of_unknown_size_need_1_2() -> None:
    x = np.zeros(2, np.float32)
    assert request_level(chain((2,), (2,), (0,)), request([x], [x.copy()])) == FeatureLevel.HAL_1_2
    assert request_level(chain((2,), (2,), (2,)), request([x], [x.copy()])) == FeatureLevel.HAL_1_0


def test_an_invalid_request_has_no_level() -> None:
    with pytest.raises(HalError):
        request_level(chain((2,), (2,), (2,)), Request((), ()))


def test_operands_that_nothing_names_do_not_count() -> None:
    model = without_pointers(add_model())
    dead = Operand(OperandCode.BOOL, lifetime=OperandLifeTime.CONSTANT_COPY, location=DataLocation(0, 0, 1))
    bigger = replace(model, main=replace(model.main, operands=(dead, *model.main.operands)), operand_values=b"\0")
    shifted = replace(
        bigger,
        main=replace(
            bigger.main,
            operations=tuple(
                Operation(o.type, tuple(i + 1 for i in o.inputs), tuple(i + 1 for i in o.outputs))
                for o in model.main.operations
            ),
            input_indexes=(1, 2),
            output_indexes=(5,),
        ),
    )
    assert minimum_level(shifted) == FeatureLevel.HAL_1_0
    assert without_dead_operands(shifted).main == model.main
    assert to_canonical(convert_to(shifted, FeatureLevel.HAL_1_0)).main == model.main


def test_every_example_needs_what_its_folder_says_at_most(corpus_folder: Path, is_long: bool) -> None:
    """Each converts to its least version and back, and the version below refuses it."""
    checked = 0
    for path in spec_files(corpus_folder)[:: 1 if is_long else QUICK_SHARE]:
        wanted = next((level for name, level in FOLDERS.items() if name in path.parts), None)
        if wanted is None:
            continue
        for example in read_spec(path):
            model = hal_model(example)
            try:
                level = minimum_level(model)
            except HalError:
                assert example.expect_failure, example.name
                continue
            assert level <= wanted, example.name
            converted = without_dead_operands(model)
            assert to_canonical(convert_to(model, level)) == (
                replace(converted, relax_computation_float32_to_float16=False)
                if level == FeatureLevel.HAL_1_0
                else converted
            ), example.name
            for below in LEVELS[: LEVELS.index(level)]:
                with pytest.raises(HalError, match="cannot express it"):
                    convert_to(model, below)
            checked += 1
    assert checked
