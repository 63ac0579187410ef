# SPDX-License-Identifier: Apache-2.0
"""The Android Neural Networks stack on any machine with Python and OpenCL.

The public names are loaded at their first use, so that importing the package, or only a driver's contract, stays cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nn_runtime.burst import Burst
    from nn_runtime.codes import (
        DeviceTypeCode,
        DurationCode,
        FeatureLevel,
        FuseCode,
        OperandCode,
        OperationCode,
        PaddingCode,
        PreferenceCode,
        PriorityCode,
        ResultCode,
    )
    from nn_runtime.compilation import Compilation
    from nn_runtime.device import Device
    from nn_runtime.devices import devices, runtime_feature_level
    from nn_runtime.errors import (
        BadData,
        BadState,
        DeadObject,
        MissedDeadline,
        NNError,
        OperationFailed,
        OutOfMemory,
        OutputInsufficientSize,
        ResourceExhausted,
        UnavailableDevice,
        UnexpectedNull,
        Unmappable,
    )
    from nn_runtime.event import Event
    from nn_runtime.execution import Execution, default_loop_timeout, maximum_loop_timeout
    from nn_runtime.hal.memory import HardwareBuffer, HardwareBufferFormat, HardwareBufferUsage
    from nn_runtime.loading import load
    from nn_runtime.memory import Memory
    from nn_runtime.memory_desc import MemoryDesc
    from nn_runtime.model import Model
    from nn_runtime.network import Network
    from nn_runtime.operand import ChannelQuant, OperandType
    from nn_runtime.session import Session

__version__ = "0.1.0"

_HOMES = {
    "burst": ("Burst",),
    "codes": (
        "DeviceTypeCode", "DurationCode", "FeatureLevel", "FuseCode", "OperandCode", "OperationCode", "PaddingCode",
        "PreferenceCode", "PriorityCode", "ResultCode",
    ),
    "compilation": ("Compilation",),
    "device": ("Device",),
    "devices": ("devices", "runtime_feature_level"),
    "errors": (
        "BadData", "BadState", "DeadObject", "MissedDeadline", "NNError", "OperationFailed", "OutOfMemory",
        "OutputInsufficientSize", "ResourceExhausted", "UnavailableDevice", "UnexpectedNull", "Unmappable",
    ),
    "event": ("Event",),
    "execution": ("Execution", "default_loop_timeout", "maximum_loop_timeout"),
    "hal.memory": ("HardwareBuffer", "HardwareBufferFormat", "HardwareBufferUsage"),
    "loading": ("load",),
    "memory": ("Memory",),
    "memory_desc": ("MemoryDesc",),
    "model": ("Model",),
    "network": ("Network",),
    "operand": ("ChannelQuant", "OperandType"),
    "session": ("Session",),
}  # fmt: skip
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "BadData",
    "BadState",
    "Burst",
    "ChannelQuant",
    "Compilation",
    "DeadObject",
    "Device",
    "DeviceTypeCode",
    "DurationCode",
    "Event",
    "Execution",
    "FeatureLevel",
    "FuseCode",
    "HardwareBuffer",
    "HardwareBufferFormat",
    "HardwareBufferUsage",
    "Memory",
    "MemoryDesc",
    "MissedDeadline",
    "Model",
    "NNError",
    "Network",
    "OperandCode",
    "OperandType",
    "OperationCode",
    "OperationFailed",
    "OutOfMemory",
    "OutputInsufficientSize",
    "PaddingCode",
    "PreferenceCode",
    "PriorityCode",
    "ResourceExhausted",
    "ResultCode",
    "Session",
    "UnavailableDevice",
    "UnexpectedNull",
    "Unmappable",
    "default_loop_timeout",
    "devices",
    "load",
    "maximum_loop_timeout",
    "runtime_feature_level",
]


def __getattr__(name: str) -> object:
    """Load a public name from its module at its first use."""
    module = _HOME_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
