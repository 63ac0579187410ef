# SPDX-License-Identifier: Apache-2.0
"""Verbose logging by tags: NNRT_VLOG=model,execution or 1 or all (SURFACE section l).

Each tag is the logger `nn_runtime.<tag>`; verbose lines are logged at DEBUG.
"""

from __future__ import annotations

import logging
import os
import re

TAGS = ("model", "compilation", "execution", "cpuexe", "manager", "driver", "memory")
VARIABLE = "NNRT_VLOG"

_ROOT = logging.getLogger("nn_runtime")
_read = ""


def read_tags() -> None:
    """Set the loggers as NNRT_VLOG says now; called when a model is created and when drivers are loaded."""
    global _read
    text = os.environ.get(VARIABLE, "")
    if text == _read:
        return
    _read = text
    wanted = set(re.split(r"[\s,:]+", text.strip())) - {""}
    if wanted & {"1", "all"}:
        wanted = set(TAGS)
    for unknown in sorted(wanted - set(TAGS)):
        _ROOT.error("%s: unknown tag %r; tags are %s, or all", VARIABLE, unknown, ", ".join(TAGS))
    for tag in TAGS:
        logging.getLogger(f"nn_runtime.{tag}").setLevel(logging.DEBUG if tag in wanted else logging.NOTSET)
    if wanted and not _ROOT.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
        _ROOT.addHandler(handler)
