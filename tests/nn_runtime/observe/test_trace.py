# SPDX-License-Identifier: Apache-2.0
"""NNRT_TRACE: rows for runtime, driver and kernels on one time axis; the summary of a trace."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from nn_runtime.codes import OperationCode
from nn_runtime.compilation import Compilation
from nn_runtime.devices import reference_device
from nn_runtime.observe import trace
from nn_runtime.testing.sample_drivers import SampleDevice
from tests.nn_runtime.graphs import chain_model, finished, numbers, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RELU, TANH = OperationCode.RELU, OperationCode.TANH


@pytest.fixture
def traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Trace one inference on the CPU."""
    path = tmp_path / "trace.json"
    monkeypatch.setenv(trace.VARIABLE, str(path))
    compilation = Compilation(chain_model([RELU, TANH]), [reference_device()])
    compilation.finish()
    run(compilation, [numbers(2, 3)], [(2, 3)])
    monkeypatch.delenv(trace.VARIABLE)
    trace.read_setting()
    yield path
    trace.stop()


def test_rows_of_runtime_driver_and_kernels(traced: Path) -> None:
    assert trace.current is None
    events = json.loads(traced.read_text())["traceEvents"]
    rows = {event["tid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    assert sorted(rows.values()) == ["driver", "kernel", "runtime"]
    spans = {event["name"]: event for event in events if event["ph"] == "X"}
    assert [rows[event["tid"]] for event in spans.values()] == [event["cat"] for event in spans.values()]
    execution = spans["[NN_LR_PE]compute"]
    driver = spans["[NN_LD_PE]nnapi-reference"]
    kernel = spans["[NN_LD_PCO]numpy relu"]
    assert kernel["args"]["operations"] == [0]
    for inner, outer in ((kernel, driver), (driver, execution), (spans["[NN_LD_PC]nnapi-reference prepare"],
                                                                 spans["[NN_LR_PC]compilation"])):  # fmt: skip
        assert outer["ts"] <= inner["ts"]
        assert inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"]


def test_a_summary_by_layer_and_phase(traced: Path) -> None:
    rows = {(row.layer, row.phase): row for row in trace.summary(traced)}
    assert set(rows) == {
        ("runtime", "preparation"),
        ("runtime", "compilation"),
        ("driver", "compilation"),
        ("runtime", "execution"),
        ("driver", "execution"),
        ("kernel", "computation"),
    }
    assert rows["kernel", "computation"].count == 2
    execution, driver = rows["runtime", "execution"], rows["driver", "execution"]
    assert abs(execution.own_ns - (execution.total_ns - driver.total_ns)) <= 2
    assert abs(driver.own_ns - (driver.total_ns - rows["kernel", "computation"].total_ns)) <= 4


def test_several_steps_and_fenced_executions(tmp_path: Path) -> None:
    tracer = trace.start(tmp_path / "trace.json")
    compilation = finished(chain_model([RELU, TANH]), [SampleDevice("a", {RELU}), SampleDevice("b", {TANH})])
    run(compilation, [numbers(2, 3)], [(2, 3)])
    names = [event["name"] for event in tracer.events]
    trace.stop()
    assert "[NN_LD_PE]a" in names
    assert "[NN_LD_PE]b" in names


def test_nothing_is_traced_without_the_variable() -> None:
    chain_model([RELU])
    assert trace.current is None


def test_a_file_that_cannot_be_written_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trace.start(tmp_path / "nowhere" / "trace.json")
    trace.stop()
    assert trace.current is None
    assert "the trace cannot be written: No such file or directory" in caplog.text
