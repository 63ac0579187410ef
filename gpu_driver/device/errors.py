# SPDX-License-Identifier: Apache-2.0
"""OpenCL's errors as the HAL's."""

from __future__ import annotations

import pyopencl as cl

from nn_runtime.hal.types import ErrorStatus, HalError

_EXHAUSTED = (
    cl.status_code.MEM_OBJECT_ALLOCATION_FAILURE,
    cl.status_code.OUT_OF_RESOURCES,
    cl.status_code.OUT_OF_HOST_MEMORY,
)


def is_exhausted(error: cl.Error) -> bool:
    """Whether resources of the device or the host were missing."""
    return error.code in _EXHAUSTED


def hal_error(error: cl.Error, doing: str) -> HalError:
    """Return the HalError for an OpenCL error: exhausted resources apart from general failures."""
    status = ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT if is_exhausted(error) else ErrorStatus.GENERAL_FAILURE
    return HalError(status, f"{doing}: {error}")


def lacks_room(error: BaseException) -> bool:
    """Whether what failed may succeed where nobody else uses the device."""
    if isinstance(error, cl.Error):
        return is_exhausted(error)
    return isinstance(error, HalError) and error.status == ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
