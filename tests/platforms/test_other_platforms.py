# SPDX-License-Identifier: Apache-2.0
"""The whole corpus on the OpenCL devices that NNRT_DEVICE does not name: Debian's PoCL, rusticl, a GPU (`--long`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from nn_runtime.devices import select
from nn_runtime.errors import NNError
from nn_runtime.testing.conformance import Through, Verdict, run_corpus
from tests.conftest import device_selectors

if TYPE_CHECKING:
    from pathlib import Path

MAX_UNSUPPORTED = 0.01
INTERPRETER = "opencl-oclgrind"


def test_corpus(corpus_folder: Path, is_long: bool) -> None:
    if not is_long:
        pytest.skip("takes minutes for each device: --long")
    named = {select(selector).devices[0].name for selector in device_selectors()}
    try:
        found = [device.name for device in select("opencl:*").devices]
    except NNError as error:
        pytest.skip(f"no OpenCL device: {error}")
    others = [name for name in found if name not in named and not name.startswith(INTERPRETER)]
    if not others:
        pytest.skip("no OpenCL device but those of NNRT_DEVICE")
    for name in others:
        report = run_corpus(corpus_folder, name, through=Through.HAL)
        failed = [f"{r.example} ({r.kind.value}): {r.message}" for r in report.results if r.verdict == Verdict.FAILED]
        assert not failed, f"{name}: {len(failed)} failed:\n" + "\n".join(failed[:20])
        assert report.counts()[Verdict.UNSUPPORTED] <= MAX_UNSUPPORTED * len(report.results), name
