# SPDX-License-Identifier: Apache-2.0
"""Devices that raise where they are asked something, or give answers that are none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from nn_runtime.codes import DeviceTypeCode, OperandCode, OperationCode
from nn_runtime.cost import cost_table
from nn_runtime.device import Device
from nn_runtime.errors import BadData, OperationFailed
from nn_runtime.hal.interfaces import DeviceDescription
from nn_runtime.hal.types import Capabilities, ErrorStatus, HalError, PerformanceInfo
from nn_runtime.testing.sample_drivers import SampleDevice, uniform_capabilities
from tests.nn_runtime.graphs import chain_model, finished

if TYPE_CHECKING:
    from collections.abc import Callable

INFO = PerformanceInfo(1.0, 1.0)
FAILURES = (ValueError("no answer"), HalError(ErrorStatus.GENERAL_FAILURE, "no answer"))


def answering(query: str, answer: object) -> SampleDevice:
    """A device whose answer to one query is replaced; an exception is raised."""

    def answered() -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    device = SampleDevice("wrong")
    setattr(device, query, answered)
    return device


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize(
    "query",
    ["get_version_string", "get_type", "get_feature_level", "get_number_of_cache_files_needed", "get_capabilities"],
)
def test_a_query_of_discovery_that_fails(query: str, failure: Exception) -> None:
    with pytest.raises(OperationFailed, match=r"device wrong: it does not answer its queries: .*no answer"):
        Device(answering(query, failure))


@pytest.mark.parametrize(
    ("query", "answer", "message"),
    [
        ("get_version_string", None, "get_version_string: wanted a str from the driver, got NoneType"),
        ("get_type", 77, "77 is not a valid DeviceTypeCode"),
        ("get_feature_level", "x", "get_feature_level: wanted an int from the driver, got 'x'"),
        ("get_number_of_cache_files_needed", 3, "wanted two values from the driver, got 3"),
        ("get_number_of_cache_files_needed", (1,), "wanted two values from the driver"),
        ("get_number_of_cache_files_needed", (1, "2"), "wanted an int from the driver, got '2'"),
        ("get_number_of_cache_files_needed", (-1, 0), "-1 and 0 cache files, at most 32 of each are allowed"),
        ("get_capabilities", 5, "get_capabilities: wanted a Capabilities from the driver, got 5"),
        ("get_capabilities", Capabilities(None, INFO, INFO, INFO, INFO), "wanted a Mapping"),  # type: ignore[arg-type]
        ("get_capabilities", Capabilities({0: 3}, INFO, INFO, INFO, INFO), "0: wanted a PerformanceInfo"),  # type: ignore[dict-item]
        ("get_capabilities", uniform_capabilities("fast", 1), "wanted a Real from the driver, got 'fast'"),  # type: ignore[arg-type]
    ],
)
def test_an_answer_of_the_wrong_kind(query: str, answer: object, message: str) -> None:
    with pytest.raises(OperationFailed) as caught:
        Device(answering(query, answer))
    assert str(caught.value).startswith("device wrong: it does not answer its queries: ")
    assert message in str(caught.value)


@pytest.mark.parametrize("name", [5, None, ""])
def test_a_device_without_a_name(name: object) -> None:
    device = SampleDevice("wrong")
    device.name = name  # type: ignore[assignment]
    with pytest.raises(OperationFailed, match="device without a name: it does not answer its queries: name: "):
        Device(device)


DESCRIBED = DeviceDescription("slug", 0, "platform", "", "", "device", "", "", "GPU")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("query", "answer", "ask", "wanted"),
    [
        ("description", None, lambda device: device.description, None),
        ("description", DESCRIBED, lambda device: device.description, None),
        ("description", ValueError("no"), lambda device: device.description, None),
        ("get_supported_extensions", 5, lambda device: device.extensions, ()),
        ("get_supported_extensions", ["com.example"], lambda device: device.extensions, ()),
        ("takes_unknown_sizes", ValueError("no"), lambda device: device.takes_unknown_sizes, False),
        ("statistics", ValueError("no"), lambda device: device.statistics(), {}),
        ("statistics", 5, lambda device: device.statistics(), {}),
        ("cost_table", ValueError("no"), cost_table, None),
        ("cost_table", 5, cost_table, None),
    ],
)
def test_what_a_device_need_not_answer_is_left_open(
    query: str, answer: object, ask: Callable[[Device], object], wanted: object, caplog: pytest.LogCaptureFixture
) -> None:
    assert ask(Device(answering(query, answer))) == wanted
    assert "wrong: " in caplog.text


@pytest.mark.parametrize("answer", [None, 5, [None], [True], ValueError("no")])
def test_operations_that_a_device_does_not_tell(answer: object) -> None:
    device = answering("operations", None)
    device.explain_operations = lambda _model: _told(answer)  # type: ignore[assignment, method-assign]
    with pytest.raises(BadData, match="wrong: the device could not be asked"):
        finished(chain_model([OperationCode.RELU]), [device])
    compilation = finished(chain_model([OperationCode.RELU]), [device], fallback=True)
    assert compilation.plan is not None
    assert [step.device.is_reference for step in compilation.plan.steps] == [True]


def _told(answer: object) -> object:
    if isinstance(answer, Exception):
        raise answer
    return answer


def test_right_answers_are_kept() -> None:
    device = Device(SampleDevice("right", version="7"))
    assert (device.name, device.version, device.type) == ("right", "7", DeviceTypeCode.OTHER)
    assert device.capabilities.operand_performance[OperandCode.TENSOR_FLOAT32] == PerformanceInfo(0.5, 0.5)
