# SPDX-License-Identifier: Apache-2.0
"""What a driver says of itself, in every version (VTS BasicTests, TestAssertions)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from nn_runtime.codes import DeviceTypeCode, FeatureLevel, OperandCode, OperationCode
from nn_runtime.devices import devices
from nn_runtime.hal.types import (
    MAXIMUM_CACHE_FILES,
    DeviceStatus,
    ErrorStatus,
    ExecutionPreference,
    OperandLifeTime,
    PerformanceInfo,
    Priority,
)
from nn_runtime.hal.versions import v1_0, v1_3
from nn_runtime.hal.versions.server import Served11, Served12, Served13
from tests.nn_runtime.hal.vts.client import VERSIONS, form
from tests.nn_runtime.hal.vts.models import circular_references, cycle_model

if TYPE_CHECKING:
    from collections.abc import Callable

    from nn_runtime.device import Device
    from nn_runtime.hal.types import Model
    from tests.nn_runtime.hal.vts.client import Client

    ClientOf = Callable[[int], Client]


def is_positive(info: PerformanceInfo) -> bool:
    return info.exec_time > 0 and info.power_usage > 0


@pytest.mark.parametrize("version", VERSIONS)
def test_a_driver_is_there_and_available(client_of: ClientOf, version: int) -> None:
    assert client_of(version).driver.get_status() == DeviceStatus.AVAILABLE


def test_capabilities_of_1_0(client_of: ClientOf) -> None:
    status, table = client_of(FeatureLevel.HAL_1_0).driver.get_capabilities()
    assert status == ErrorStatus.NONE
    assert is_positive(table.float32_performance)
    assert is_positive(table.quantized8_performance)


def test_capabilities_of_1_1(client_of: ClientOf) -> None:
    driver = client_of(FeatureLevel.HAL_1_1).driver
    assert isinstance(driver, Served11)
    status, table = driver.get_capabilities_1_1()
    assert status == ErrorStatus.NONE
    assert is_positive(table.float32_performance)
    assert is_positive(table.quantized8_performance)
    assert is_positive(table.relaxed_float32_to_float16_performance)


@pytest.mark.parametrize("version", VERSIONS[2:])
def test_capabilities_are_positive_sorted_and_unique(client_of: ClientOf, version: int) -> None:
    driver = client_of(version).driver
    assert isinstance(driver, Served12)
    status, table = driver.get_capabilities_1_3() if isinstance(driver, Served13) else driver.get_capabilities_1_2()
    assert status == ErrorStatus.NONE
    assert is_positive(table.relaxed_float32_to_float16_performance_scalar)
    assert is_positive(table.relaxed_float32_to_float16_performance_tensor)
    codes = [entry.type for entry in table.operand_performance]
    assert codes == sorted(set(codes))
    assert OperandCode.MODEL not in codes
    assert all(is_positive(entry.info) for entry in table.operand_performance)
    if isinstance(table, v1_3.Capabilities):
        assert is_positive(table.if_performance)
        assert is_positive(table.while_performance)


@pytest.mark.parametrize("version", VERSIONS[2:])
def test_version_type_extensions_and_cache_files(client_of: ClientOf, version: int) -> None:
    driver = client_of(version).driver
    assert isinstance(driver, Served12)
    status, text = driver.get_version_string()
    assert status == ErrorStatus.NONE
    assert text
    status, kind = driver.get_type()
    assert status == ErrorStatus.NONE
    assert kind in (DeviceTypeCode.OTHER, DeviceTypeCode.CPU, DeviceTypeCode.GPU, DeviceTypeCode.ACCELERATOR)
    status, extensions = driver.get_supported_extensions()
    assert status == ErrorStatus.NONE
    assert all(re.fullmatch(r"[a-z0-9_]*(\.[a-z0-9_]*)+", extension.name) for extension in extensions)
    status, *counts = driver.get_number_of_cache_files_needed()
    assert status == ErrorStatus.NONE
    assert all(0 <= count <= MAXIMUM_CACHE_FILES for count in counts)


def test_names_have_a_part_before_and_after_a_separator(device: Device) -> None:
    """VTS wants one separator, which names of OpenCL devices have more of (opencl-<platform>-<number>)."""
    assert re.fullmatch(r"[^-]+(-[^-]+)+", device.name)
    names = [one.name for one in devices()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("version", "model"),
    [(version, cycle_model()) for version in VERSIONS] + [(FeatureLevel.HAL_1_3, circular_references())],
)
def test_cycles_are_refused(client_of: ClientOf, version: int, model: Model) -> None:
    client = client_of(version)
    given = form(model, version)
    status, _ = client.supported(given)
    assert status == ErrorStatus.INVALID_ARGUMENT
    found = client.prepare(given)
    assert ErrorStatus.NONE not in (found.launch, found.status)
    assert found.prepared is None


def test_numbers_of_the_interface_are_the_definitions() -> None:
    """The static assertions of VTS: numbers that cross the interface."""
    assert [status.value for status in v1_0.ErrorStatus] == [0, 1, 2, 3, 4]
    assert {status.name: status.value for status in v1_3.ErrorStatus} == {
        "NONE": 0,
        "DEVICE_UNAVAILABLE": 1,
        "GENERAL_FAILURE": 2,
        "OUTPUT_INSUFFICIENT_SIZE": 3,
        "INVALID_ARGUMENT": 4,
        "MISSED_DEADLINE_TRANSIENT": 5,
        "MISSED_DEADLINE_PERSISTENT": 6,
        "RESOURCE_EXHAUSTED_TRANSIENT": 7,
        "RESOURCE_EXHAUSTED_PERSISTENT": 8,
    }
    assert (OperandCode.FLOAT32, OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_QUANT8_ASYMM) == (0, 3, 5)
    assert (OperandCode.TENSOR_QUANT8_ASYMM_SIGNED, OperandCode.MODEL) == (14, 15)
    assert (OperationCode.ADD, OperationCode.TRANSPOSE, OperationCode.RESIZE_NEAREST_NEIGHBOR) == (0, 37, 94)
    assert (OperationCode.QUANTIZED_LSTM, OperationCode.IF, OperationCode.WHILE, OperationCode.RANK) == (
        95,
        96,
        97,
        101,
    )
    assert [lifetime.value for lifetime in OperandLifeTime][:7] == [0, 1, 2, 3, 4, 5, 6]
    assert [preference.value for preference in ExecutionPreference] == [0, 1, 2]
    assert [priority.name for priority in Priority] == ["LOW", "MEDIUM", "HIGH"]
    assert [kind.value for kind in DeviceTypeCode] == [0, 1, 2, 3, 4]
    assert [status.name for status in DeviceStatus] == ["AVAILABLE", "BUSY", "OFFLINE", "UNKNOWN"]
