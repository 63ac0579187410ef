# SPDX-License-Identifier: Apache-2.0
"""Slices for older versions (AOSP TestPartitioning: SliceModel, SliceModelToEmpty; TestIntrospectionControl)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nn_runtime.codes import FeatureLevel, OperandCode, OperationCode
from nn_runtime.device import REFERENCE_NAME, Device
from nn_runtime.errors import BadData
from nn_runtime.hal.memory import HardwareBuffer
from nn_runtime.hal.types import OperandLifeTime
from nn_runtime.hal.validation import validate_model
from nn_runtime.hal.versions import minimum_level, slice_of
from nn_runtime.model import Model
from nn_runtime.testing.aosp_samples import fake
from tests.nn_runtime.graphs import add, chain_model, finished, if_model, numbers, run, tensor

RELU, TANH, ABS, HARD_SWISH = OperationCode.RELU, OperationCode.TANH, OperationCode.ABS, OperationCode.HARD_SWISH
SUB, MAXIMUM = OperationCode.SUB, OperationCode.MAXIMUM
LEVELS = (FeatureLevel.HAL_1_0, FeatureLevel.HAL_1_1, FeatureLevel.HAL_1_2, FeatureLevel.HAL_1_3)


def mixed_model() -> Model:
    """One operation of each version, in one chain; the first result is a model output too."""
    model = Model()
    x, a, b, c, d = (model.add_operand(tensor(2, 3)) for _ in range(5))
    add(model, x, x, a)
    zero = model.add_operand(tensor(2, 3))
    model.set_operand_value(zero, np.zeros((2, 3), np.float32))
    none = model.add_operand(tensor(code=OperandCode.INT32))
    model.set_operand_value(none, 0)
    model.add_operation(SUB, [a, zero, none], [b])
    model.add_operation(ABS, [b], [c])
    model.add_operation(HARD_SWISH, [c], [d])
    model.identify_inputs_and_outputs([x], [a, d])
    model.finish()
    return model


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_each_version_gets_the_operations_that_it_knows(count: int) -> None:
    model, version = mixed_model().hal, LEVELS[count - 1]
    part = slice_of(model, version)
    assert part.operations == tuple(range(count))
    assert part.model is not None
    assert validate_model(part.model) <= version
    assert minimum_level(part.model) == version
    assert (part.model is model) == (count == 4)


def test_what_is_cut_off_reads_from_outputs_and_dead_operands_go() -> None:
    part = slice_of(mixed_model().hal, FeatureLevel.HAL_1_1).model
    assert part is not None
    main = part.main
    assert len(main.operands) == 6
    assert [main.operands[i].lifetime for i in main.input_indexes] == [OperandLifeTime.SUBGRAPH_INPUT]
    assert len(main.output_indexes) == 2
    assert main.output_indexes == (main.operations[0].outputs[0], main.operations[1].outputs[0])


def test_what_an_operation_reads_from_those_cut_off_becomes_an_input() -> None:
    model = chain_model([ABS, RELU, ABS, TANH]).hal
    part = slice_of(model, FeatureLevel.HAL_1_0)
    assert part.operations == (1, 3)
    assert part.model is not None
    main = part.model.main
    assert [operation.type for operation in main.operations] == [RELU, TANH]
    assert len(main.input_indexes) == len(main.output_indexes) == 2
    assert len(main.operands) == 4


def test_a_slice_may_be_empty() -> None:
    part = slice_of(chain_model([ABS, ABS]).hal, FeatureLevel.HAL_1_1)
    assert part.model is None
    assert part.operations == ()


def test_unknown_rank_is_no_matter_for_old_versions() -> None:
    assert slice_of(chain_model([RELU, TANH], (2,), ()).hal, FeatureLevel.HAL_1_1).model is None
    assert slice_of(chain_model([RELU, TANH], (2,), (0,)).hal, FeatureLevel.HAL_1_1).operations == (0, 1)


def test_a_model_in_a_hardware_buffer_is_no_matter_for_old_versions() -> None:
    model = replace(chain_model([RELU]).hal, pools=(HardwareBuffer(16),))
    assert slice_of(model, FeatureLevel.HAL_1_1).model is None
    assert slice_of(model, FeatureLevel.HAL_1_2).model is model


def test_control_flow_is_cut_off_with_its_models() -> None:
    model = if_model(chain_model([RELU]), chain_model([TANH])).hal
    assert slice_of(model, FeatureLevel.HAL_1_2).model is None
    assert slice_of(model, FeatureLevel.HAL_1_3).model is model


@pytest.mark.parametrize("codes", [(RELU, ABS), (ABS, RELU)])
def test_supported_operations_refer_to_the_model_as_built(codes: tuple[OperationCode, OperationCode]) -> None:
    """A device of 1.1 takes what it knows, in both orders (AOSP slicing, slicing with order)."""
    device = Device(fake("old", FeatureLevel.HAL_1_1).device)
    assert chain_model(codes).supported_operations([device]) == [code == RELU for code in codes]


def test_a_fully_supported_model_is_not_sliced() -> None:
    old = fake("old", FeatureLevel.HAL_1_1)
    assert chain_model([RELU, TANH]).supported_operations([Device(old.device)]) == [True, True]


def test_operations_go_to_the_devices_whose_version_knows_them() -> None:
    model = mixed_model()
    fakes = [fake(f"v{level - 26}", level) for level in LEVELS]
    compilation = finished(model, [one.device for one in fakes], fallback=False)
    plan = compilation.plan
    assert plan is not None
    assert [placement.device.name for placement in plan.placements] == ["v1", "v2", "v3", "v4"]
    first, last = run(compilation, [numbers(2, 3)], [(2, 3), (2, 3)])
    doubled = 2 * numbers(2, 3)
    np.testing.assert_allclose(first, doubled, rtol=1e-6)
    absolute = np.abs(doubled)
    np.testing.assert_allclose(last, absolute * np.clip(absolute + 3, 0, 6) / 6, rtol=1e-6)


def test_a_device_whose_slice_is_empty_is_not_asked() -> None:
    old = fake("old", FeatureLevel.HAL_1_0)
    compilation = finished(chain_model([ABS, ABS]), [old.device], fallback=True)
    plan = compilation.plan
    assert plan is not None
    assert [placement.device.name for placement in plan.placements] == [REFERENCE_NAME] * 2
    assert plan.placements[0].support["old"].reason == "its HAL, feature level 27, cannot express it"
    assert not old.sample.record.models
    with pytest.raises(BadData, match="old: its HAL"):
        finished(chain_model([ABS]), [old.device])
