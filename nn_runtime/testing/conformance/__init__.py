# SPDX-License-Identifier: Apache-2.0
"""Runs a corpus of operation examples on one device and judges the results.

The device is driven through its HAL methods or through the NDK-level API (strictly that one device). Every example is
executed twice, so that what a driver keeps between executions is judged too.
"""

from __future__ import annotations

from nn_runtime.testing.conformance.corpus_run import make_runner, run_corpus, run_example
from nn_runtime.testing.conformance.hal_runner import HalRunner
from nn_runtime.testing.conformance.models import hal_model, ndk_model
from nn_runtime.testing.conformance.ndk_runner import NdkRunner
from nn_runtime.testing.conformance.report import (
    Filter,
    FinishRefused,
    Outcome,
    Report,
    Result,
    Runner,
    Through,
    Unsupported,
    Verdict,
    WrongShapes,
)

__all__ = [
    "Filter",
    "FinishRefused",
    "HalRunner",
    "NdkRunner",
    "Outcome",
    "Report",
    "Result",
    "Runner",
    "Through",
    "Unsupported",
    "Verdict",
    "WrongShapes",
    "hal_model",
    "make_runner",
    "ndk_model",
    "run_corpus",
    "run_example",
]
