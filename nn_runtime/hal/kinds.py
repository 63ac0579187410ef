# SPDX-License-Identifier: Apache-2.0
"""What drivers reply, as it must be."""

from __future__ import annotations

from typing import TypeVar

from nn_runtime.checks import shown, with_article
from nn_runtime.hal.types import ErrorStatus, HalError

R = TypeVar("R")


def of_kind(kind: type, reply: R, what: str) -> R:
    """Return what a driver replied to `what`; raises HalError(GENERAL_FAILURE) where it is of another kind."""
    if not isinstance(reply, kind):
        wanted = with_article(kind.__name__)
        raise HalError(ErrorStatus.GENERAL_FAILURE, f"{what}: wanted {wanted} from the driver, got {shown(reply)}")
    return reply
