# SPDX-License-Identifier: Apache-2.0
"""NNRT_VLOG: tags and what they log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from nn_runtime.codes import OperationCode
from nn_runtime.observe import vlog
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
        ("model, execution:memory", {"model", "execution", "memory"}),
        ("1", set(vlog.TAGS)),
        ("all", set(vlog.TAGS)),
    ],
)
def test_tags(monkeypatch: pytest.MonkeyPatch, text: str, tags: set[str]) -> None:
    monkeypatch.setenv(vlog.VARIABLE, text)
    vlog.read_tags()
    assert enabled() == tags


def test_an_unknown_tag_is_an_error_and_skipped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(vlog.VARIABLE, "model,moodle")
    vlog.read_tags()
    assert enabled() == {"model"}
    assert "unknown tag 'moodle'" in caplog.text


def test_every_refusal_and_placement_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(vlog.VARIABLE, "compilation")
    model = chain_model([OperationCode.RELU, OperationCode.TANH])
    finished(model, [SampleDevice("picky", {OperationCode.RELU})], fallback=True)
    assert "operation 1 TANH: picky refuses it: TANH is not on the list" in caplog.text
    assert "operation 1 TANH: step 1, nnapi-reference" in caplog.text
    assert "compound plan: 2 operations in 2 steps" in caplog.text
