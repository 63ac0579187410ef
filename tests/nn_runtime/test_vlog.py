# SPDX-License-Identifier: Apache-2.0
"""NNRT_VLOG: tags and what they log."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

from nn_runtime import vlog
from nn_runtime.codes import OperationCode
from nn_runtime.testing.sample_drivers import SampleDevice
from tests.nn_runtime.graphs import chain_model, finished

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    yield
    monkeypatch.delenv(vlog.VARIABLE, raising=False)
    vlog.read_tags()


def enabled() -> set[str]:
    return {tag for tag in vlog.TAGS if logging.getLogger(f"nn_runtime.{tag}").level == logging.DEBUG}


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("", set()),
        ("model", {"model"}),
        ("model, execution:memory driver", {"model", "execution", "memory", "driver"}),
        ("model,1", set(vlog.TAGS)),
        ("1", set(vlog.TAGS)),
        ("all", set(vlog.TAGS)),
    ],
)
def test_tags(monkeypatch: pytest.MonkeyPatch, text: str, tags: set[str]) -> None:
    monkeypatch.setenv(vlog.VARIABLE, text)
    vlog.read_tags()
    assert enabled() == tags
    levels = {logging.getLogger(f"nn_runtime.{tag}").level for tag in set(vlog.TAGS) - tags}
    assert levels <= {logging.NOTSET}  # as the application says


def test_an_unknown_tag_is_an_error_and_skipped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(vlog.VARIABLE, "model,moodle")
    for _ in range(2):
        vlog.read_tags()
    assert enabled() == {"model"}
    assert caplog.messages == [
        "NNRT_VLOG: unknown tag 'moodle'; "
        "tags are model, compilation, execution, cpuexe, manager, driver, memory, or all"
    ]


@pytest.mark.parametrize(
    ("setting", "before", "wanted"),
    [
        ("model", "", r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} nn_runtime\.model: a line\n"),
        ("model", "logging.basicConfig(format='mine: %(message)s')", r"mine: a line\n"),
        ("", "", ""),
        (",", "", ""),
    ],
)
def test_lines_are_written_once(setting: str, before: str, wanted: str) -> None:
    """With time and tag, unless the application takes them; nothing is set up where nothing is asked for."""
    code = f"""
        import logging
        from nn_runtime import vlog
        {before}
        for _ in range(2):
            vlog.read_tags()
        logging.getLogger("nn_runtime.model").debug("a line")
        logging.getLogger("nn_runtime.memory").debug("of another tag")
        print(logging.getLogger("nn_runtime").hasHandlers())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), vlog.VARIABLE: setting},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert re.fullmatch(wanted, done.stderr)
    assert done.stdout.strip() == str(bool(wanted))


def test_every_refusal_and_placement_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(vlog.VARIABLE, "compilation")
    model = chain_model([OperationCode.RELU, OperationCode.TANH])
    finished(model, [SampleDevice("picky", {OperationCode.RELU})], fallback=True)
    assert "operation 1 TANH: picky refuses it: TANH is not on the list" in caplog.text
    assert "operation 1 TANH: step 1, nnapi-reference" in caplog.text
    assert "compound plan: 2 operations in 2 steps" in caplog.text
