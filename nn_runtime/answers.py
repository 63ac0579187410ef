# SPDX-License-Identifier: Apache-2.0
"""What a device answers to the queries of discovery, checked: a wrong answer is a failure of the driver."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import TYPE_CHECKING

from nn_runtime.codes import DeviceTypeCode
from nn_runtime.failures import guarded, two_of
from nn_runtime.hal.interfaces import DeviceDescription
from nn_runtime.hal.kinds import of_kind
from nn_runtime.hal.types import MAXIMUM_CACHE_FILES, Capabilities, ErrorStatus, HalError, PerformanceInfo
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from nn_runtime.hal.interfaces import IDevice, UnusableDevice

_NO_TEXTS = {"platform_index": int, "type": DeviceTypeCode}
"""Kinds of the fields of a description that are no strings."""


@dataclass(frozen=True)
class Answers:
    """Answers that never change."""

    version: str
    type: DeviceTypeCode
    feature_level: int
    cache_files: tuple[int, int]
    capabilities: Capabilities


def name_of(hal: IDevice | UnusableDevice) -> str:
    """Return a device's name; raises HalError."""
    name = of_kind(str, guarded(lambda: hal.name, "name"), "name")
    if not name:
        raise HalError(ErrorStatus.GENERAL_FAILURE, "name: it is empty")
    return name


def answers_of(hal: IDevice) -> Answers:
    """Ask a device all that must be known of it; raises HalError."""
    return Answers(
        of_kind(str, guarded(hal.get_version_string, "get_version_string"), "get_version_string"),
        guarded(lambda: DeviceTypeCode(hal.get_type()), "get_type"),
        of_kind(int, guarded(hal.get_feature_level, "get_feature_level"), "get_feature_level"),
        _cache_files(hal),
        _capabilities(hal),
    )


def checked_description(description: DeviceDescription) -> DeviceDescription:
    """Return a description whose fields are what they must be; raises HalError."""
    found = of_kind(DeviceDescription, description, "description")
    for name, value in vars(found).items():
        of_kind(_NO_TEXTS.get(name, str), value, f"description: {name}")
    return found


def checked_unusable(item: UnusableDevice) -> UnusableDevice:
    """Return a device that cannot be used, whose fields are what they must be; raises HalError."""
    of_kind(str, item.name, "the name of an UnusableDevice")
    of_kind(str, item.reason, f"the reason of {item.name}")
    checked_description(item.description)
    return item


def _cache_files(hal: IDevice) -> tuple[int, int]:
    what = "get_number_of_cache_files_needed"
    models, data = (of_kind(int, count, what) for count in two_of(hal.get_number_of_cache_files_needed, what))
    if not (0 <= models <= MAXIMUM_CACHE_FILES and 0 <= data <= MAXIMUM_CACHE_FILES):
        message = f"{what}: {models} and {data} cache files, at most {MAXIMUM_CACHE_FILES} of each are allowed"
        raise HalError(ErrorStatus.GENERAL_FAILURE, message)
    return models, data


def _capabilities(hal: IDevice) -> Capabilities:
    what = "get_capabilities"
    table = of_kind(Capabilities, guarded(hal.get_capabilities, what), what)
    by_type = of_kind(Mapping, table.operand_performance, f"{what}: operand_performance")
    special = {name: figures for name, figures in vars(table).items() if name != "operand_performance"}
    for where, figures in (*by_type.items(), *special.items()):
        info = of_kind(PerformanceInfo, figures, f"{what}: {where}")
        for figure in (info.exec_time, info.power_usage):
            of_kind(Real, figure, f"{what}: {where}")
    return table
