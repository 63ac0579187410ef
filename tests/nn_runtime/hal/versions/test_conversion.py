# SPDX-License-Identifier: Apache-2.0
"""Conversion between the versions of the HAL (AOSP: HAL utils, ConversionTest and CapabilitiesTest of each version)."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest

from nn_runtime.codes import FeatureLevel, OperandCode, OperationCode
from nn_runtime.hal.capabilities import WORST, lookup, uniform
from nn_runtime.hal.types import (
    UNKNOWN_DURATION,
    ErrorStatus,
    HalError,
    Model,
    Operand,
    OperandLifeTime,
    Operation,
    PerformanceInfo,
    Subgraph,
    Timing,
)
from nn_runtime.hal.versions import compliant_with, convert_to, minimum_level, to_canonical, v1_0, v1_1, v1_2, v1_3
from nn_runtime.hal.versions.capabilities import types_of
from nn_runtime.hal.versions.conversion import (
    canonical_capabilities,
    canonical_status,
    canonical_timing,
    capabilities_to,
    status_to,
    timing_to_1_2,
    without_pointers,
)
from nn_runtime.hal.views import constant_array
from nn_runtime.operand import ChannelQuant
from tests.nn_runtime.hal.models import FLOATS, INPUT, OUTPUT, add_model

VERSIONS = (FeatureLevel.HAL_1_0, FeatureLevel.HAL_1_1, FeatureLevel.HAL_1_2, FeatureLevel.HAL_1_3)
FORMS = {
    FeatureLevel.HAL_1_0: v1_0.Model,
    FeatureLevel.HAL_1_1: v1_1.Model,
    FeatureLevel.HAL_1_2: v1_2.Model,
    FeatureLevel.HAL_1_3: v1_3.Model,
}
TEMPORARY = OperandLifeTime.TEMPORARY_VARIABLE


def unary(code: OperationCode, kind: OperandCode = FLOATS) -> Model:
    """One operation of one input and one output."""
    operands = (Operand(kind, (2,), lifetime=INPUT), Operand(kind, (2,), lifetime=OUTPUT))
    return Model(Subgraph(operands, (Operation(code, (0,), (1,)),), (0,), (1,)))


@pytest.mark.parametrize("version", VERSIONS)
def test_models_survive_the_way_there_and_back(version: FeatureLevel) -> None:
    model = without_pointers(add_model())
    converted = convert_to(model, version)
    assert type(converted) is FORMS[version]
    assert to_canonical(converted) == model


@pytest.mark.parametrize("version", VERSIONS)
def test_consumers_are_counted(version: FeatureLevel) -> None:
    converted = convert_to(add_model(), version)
    graph = converted.main if isinstance(converted, v1_3.Model) else converted
    assert [operand.number_of_consumers for operand in graph.operands] == [1, 1, 1, 1, 0]


@pytest.mark.parametrize("difference", [-1, 1])
def test_a_wrong_count_of_consumers_is_refused(difference: int) -> None:
    converted = convert_to(add_model(), FeatureLevel.HAL_1_0)
    operand = replace(converted.operands[0], number_of_consumers=1 + difference)
    with pytest.raises(HalError, match="operand 0: it says that") as caught:
        to_canonical(replace(converted, operands=(operand, *converted.operands[1:])))
    assert caught.value.status == ErrorStatus.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("model", "level"),
    [
        (unary(OperationCode.RELU), FeatureLevel.HAL_1_0),
        (unary(OperationCode.ABS), FeatureLevel.HAL_1_2),
        (unary(OperationCode.RELU, OperandCode.TENSOR_FLOAT16), FeatureLevel.HAL_1_2),
        (unary(OperationCode.HARD_SWISH), FeatureLevel.HAL_1_3),
    ],
)
def test_a_version_that_cannot_express_a_model_refuses_with_the_reason(model: Model, level: FeatureLevel) -> None:
    assert minimum_level(model) == level
    for version in VERSIONS:
        assert compliant_with(model, version) == (version >= level)
        if version >= level:
            assert to_canonical(convert_to(model, version)) == model
        else:
            with pytest.raises(HalError, match=rf"needs {level.name}, {version.name} cannot express it") as caught:
                convert_to(model, version)
            assert caught.value.status == ErrorStatus.INVALID_ARGUMENT


def test_an_invalid_model_is_refused() -> None:
    model = add_model()
    with pytest.raises(HalError, match="never written"):
        convert_to(replace(model, main=replace(model.main, operations=model.main.operations[:1])), VERSIONS[0])


def test_relaxed_float32_is_dropped_for_1_0_with_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    model = replace(without_pointers(add_model()), relax_computation_float32_to_float16=True)
    with caplog.at_level(logging.INFO, "nn_runtime.driver"):
        converted = convert_to(model, FeatureLevel.HAL_1_0)
    assert "relaxed float32" in caplog.text
    assert to_canonical(converted) == replace(model, relax_computation_float32_to_float16=False)
    for version in VERSIONS[1:]:
        assert to_canonical(convert_to(model, version)) == model


def test_extra_parameters_go_through_1_2() -> None:
    quant = ChannelQuant((0.5, 0.25), 0)
    graph = Subgraph(
        (
            Operand(OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL, (2,), lifetime=INPUT, channel_quant=quant),
            Operand(FLOATS, (2,), lifetime=OUTPUT),
        ),
        (Operation(OperationCode.DEQUANTIZE, (0,), (1,)),),
        (0,),
        (1,),
    )
    converted = convert_to(Model(graph), FeatureLevel.HAL_1_2)
    assert converted.operands[0].extra_params == quant
    assert to_canonical(converted) == Model(graph)


def test_pointers_become_a_pool() -> None:
    model = add_model()
    moved = without_pointers(model)
    assert len(moved.pools) == 1
    assert moved.main.operands[2].lifetime == OperandLifeTime.CONSTANT_REFERENCE
    np.testing.assert_array_equal(constant_array(moved, moved.main.operands[2]), np.zeros((), np.int32))
    assert without_pointers(moved) is moved


def test_capabilities_of_1_0_stand_for_the_types_that_it_has() -> None:
    floating, quantized = PerformanceInfo(0.1, 0.2), PerformanceInfo(0.3, 0.4)
    table = canonical_capabilities(v1_0.Capabilities(floating, quantized))
    for code in (OperandCode.FLOAT32, OperandCode.TENSOR_FLOAT32):
        assert lookup(table, code) == floating
    for code in (
        OperandCode.INT32,
        OperandCode.UINT32,
        OperandCode.TENSOR_INT32,
        OperandCode.TENSOR_QUANT8_ASYMM,
        OperandCode.OEM_SCALAR,
        OperandCode.TENSOR_OEM_BYTE,
    ):
        assert lookup(table, code) == quantized
    assert lookup(table, OperandCode.TENSOR_FLOAT16) == WORST
    assert table.relaxed_float32_to_float16_scalar == table.relaxed_float32_to_float16_tensor == floating
    assert table.if_performance == table.while_performance == WORST


def test_capabilities_of_1_1_have_a_relaxed_figure() -> None:
    infos = [PerformanceInfo(n / 10, n / 10) for n in range(3)]
    table = canonical_capabilities(v1_1.Capabilities(*infos))
    assert table.relaxed_float32_to_float16_scalar == table.relaxed_float32_to_float16_tensor == infos[2]
    assert lookup(table, OperandCode.TENSOR_FLOAT32) == infos[0]


@pytest.mark.parametrize("version", VERSIONS)
def test_capabilities_survive_as_far_as_a_version_knows_them(version: FeatureLevel) -> None:
    info = PerformanceInfo(0.5, 0.25)
    table = canonical_capabilities(capabilities_to(uniform(info), version))
    for code in types_of(version):
        assert lookup(table, code) == info
    assert set(table.operand_performance) <= set(types_of(version))
    assert table.if_performance == (info if version == FeatureLevel.HAL_1_3 else WORST)


def test_capability_tables_are_sorted_unique_and_without_models() -> None:
    reply = capabilities_to(uniform(PerformanceInfo(1, 1)), FeatureLevel.HAL_1_2)
    codes = [entry.type for entry in reply.operand_performance]
    assert codes == sorted(set(codes))
    assert OperandCode.MODEL not in codes
    assert OperandCode.TENSOR_QUANT8_ASYMM_SIGNED not in codes


def test_status_that_a_version_does_not_know_is_a_general_failure() -> None:
    for status in v1_3.ErrorStatus:
        assert canonical_status(status_to(ErrorStatus(status), FeatureLevel.HAL_1_3)) == ErrorStatus(status)
    for status in (ErrorStatus.MISSED_DEADLINE_TRANSIENT, ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT):
        assert status_to(status, FeatureLevel.HAL_1_2) == ErrorStatus.GENERAL_FAILURE
    assert status_to(ErrorStatus.DEAD_OBJECT, FeatureLevel.HAL_1_3) == ErrorStatus.GENERAL_FAILURE
    for unknown in (-1, 9, 77):
        assert canonical_status(unknown) == ErrorStatus.GENERAL_FAILURE


def test_times_are_microseconds_there_and_nanoseconds_here() -> None:
    assert canonical_timing(v1_2.Timing(5, 7)) == Timing(5_000, 7_000)
    assert canonical_timing(v1_2.Timing()) == Timing()
    most = canonical_timing(v1_2.Timing(2**63, v1_2.UNKNOWN_TIME))
    assert most == Timing(UNKNOWN_DURATION - 1, UNKNOWN_DURATION)
    assert timing_to_1_2(Timing(5_999, UNKNOWN_DURATION)) == v1_2.Timing(5, v1_2.UNKNOWN_TIME)
