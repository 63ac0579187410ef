# SPDX-License-Identifier: Apache-2.0
"""NNRT_TRACE: rows for runtime, driver and kernels on one time axis; the summary of a trace."""

from __future__ import annotations

import json
import math
import os
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime import cli
from nn_runtime.codes import OperationCode
from nn_runtime.compilation import Compilation
from nn_runtime.devices import reference_device
from nn_runtime.hal.interfaces import ExecutionProfile, ProfileRow
from nn_runtime.observe import trace
from nn_runtime.observe.trace_summary import read_spans, summary, summary_of_kernels
from nn_runtime.testing.sample_drivers import SampleDevice
from tests.nn_runtime.graphs import chain_model, finished, numbers, run
from tests.nn_runtime.hal.remote_driver import run_script

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


def test_a_driver_may_count_by_numpy(tmp_path: Path) -> None:
    rows = ProfileRow((0,), "made up", np.int64(0), np.int64(2000), np.int64(24), np.int64(6), False)  # type: ignore[arg-type]
    tracer = trace.Tracer(tmp_path / "trace.json")
    tracer.add_execution("sample", (3,), 1000, 4000, ExecutionProfile((rows,)))
    tracer.write()
    kernel = json.loads(tracer.path.read_text())["traceEvents"][-1]
    assert kernel["args"] == {"operations": [3], "bytes": 24, "flops": 6}
    assert (kernel["ts"], kernel["dur"]) == (1.0, 2.0)


def test_rows_of_runtime_driver_and_kernels(traced: Path) -> None:
    assert trace.current is None
    events = json.loads(traced.read_text())["traceEvents"]
    rows = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
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


def test_rows_of_a_thread_stand_together(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    trace.start(path)
    compilation = finished(chain_model([RELU, TANH]), [SampleDevice("a")])
    run(compilation, [numbers(2, 3)], [(2, 3)])
    thread = threading.Thread(target=run, args=(compilation, [numbers(2, 3)], [(2, 3)]))
    thread.start()
    thread.join()
    trace.stop()
    events = json.loads(path.read_text())["traceEvents"]
    order = {event["tid"]: event["args"]["sort_index"] for event in events if event["name"] == "thread_sort_index"}
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert [names[row] for row in sorted(names, key=order.__getitem__)] == [
        "runtime", "driver", "runtime, thread 2", "driver, thread 2",
    ]  # fmt: skip


def test_a_summary_by_layer_and_phase(traced: Path) -> None:
    rows = {(row.layer, row.phase): row for row in summary(read_spans(traced))}
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
    kernels = summary_of_kernels(read_spans(traced))
    assert {(row.kernel, row.count) for row in kernels} == {("numpy relu", 1), ("numpy tanh", 1)}
    assert sum(row.total_ns for row in kernels) == pytest.approx(rows["kernel", "computation"].total_ns, abs=4)


def event(name: str, row: int, start_us: float, length_us: float, category: str) -> dict[str, object]:
    return {"ph": "X", "pid": 1, "name": name, "tid": row, "ts": start_us, "dur": length_us, "cat": category}


def written(folder: Path, content: object) -> Path:
    path = folder / "written.json"
    path.write_text(json.dumps(content))
    return path


def test_own_times_are_of_the_thread_alone(tmp_path: Path) -> None:
    """Two threads run at the same time; each driver's span counts only against the run that it is part of."""
    events = [
        event("[NN_LR_PE]compute", 10, 0, 100, "runtime"),
        event("[NN_LD_PE]a", 11, 10, 60, "driver"),
        event("[NN_LD_PCO]k", 12, 20, 5, "kernel"),
        event("[NN_LR_PE]compute", 20, 5, 90, "runtime"),
        event("[NN_LD_PE]a", 21, 15, 50, "driver"),
        {"ph": "X", "name": "another's"},
        {"ph": "M", "name": "thread_name"},
    ]
    spans = read_spans(written(tmp_path, {"traceEvents": events}))
    assert [(row.layer, row.count, row.total_ns, row.own_ns) for row in summary(spans)] == [
        ("runtime", 2, 190_000, 80_000),
        ("driver", 2, 110_000, 105_000),
        ("kernel", 1, 5_000, 5_000),
    ]


def test_rows_of_no_operation_are_transfers(tmp_path: Path) -> None:
    tracer = trace.Tracer(tmp_path / "trace.json")
    rows = ProfileRow((), "write", 10, 20, 64), ProfileRow((1, 0), "relu", 20, 50, 8, 2)
    tracer.add_execution("sample", (7, 5), 1000, 1100, ExecutionProfile(rows))
    assert [(event["name"], event["ts"], event["dur"]) for event in tracer.events] == [
        ("[NN_LD_PE]sample", 1.0, 0.1),
        ("[NN_LD_PIO]write", 1.01, 0.01),
        ("[NN_LD_PCO]relu", 1.02, 0.03),
    ]
    assert tracer.events[2]["args"] == {"operations": [5, 7], "bytes": 8, "flops": 2}


@pytest.mark.parametrize(
    "content",
    [[], {}, 1, None, {"traceEvents": 3}, {"traceEvents": [1]}, {"traceEvents": [{}]},
     {"traceEvents": [{"ph": "X", "name": "[NN_LR_PE]"}]},
     {"traceEvents": [event("[NN_LR_PE]", 1, 0, 1, "runtime") | {"ts": "1"}]},
     {"traceEvents": [event("[NN_LR_PE]", 1, 0, 1, "runtime") | {"ts": math.nan}]},
     {"traceEvents": [event("[NN_LR_PE]", 1, 0, 1, "runtime") | {"pid": math.inf}]}],
)  # fmt: skip
def test_what_is_no_trace(tmp_path: Path, content: object, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, content)
    with pytest.raises(ValueError, match="no trace"):
        read_spans(path)
    assert cli.main(["trace", str(path)]) == 1
    assert capsys.readouterr().err.startswith(f"nnrt trace: {path}: no trace in Chrome's format")


def test_the_command(traced: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["trace", str(traced)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["layer", "phase", "count", "total", "own"]
    assert any(line.split()[:3] == ["kernel", "computation", "2"] for line in lines)
    assert lines[lines.index("") + 1].split() == ["kernel", "count", "total", "average"]
    assert cli.main(["trace", str(traced), "--json", "--kernels", "1"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert {row["layer"] for row in report["phases"]} == {"runtime", "driver", "kernel"}
    assert len(report["kernels"]) == 1
    assert cli.main(["trace", str(tmp_path / "nowhere.json")]) == 1
    assert "No such file" in capsys.readouterr().err
    (tmp_path / "text").write_text("{")
    assert cli.main(["trace", str(tmp_path / "text")]) == 1


def test_several_steps_and_fenced_executions(tmp_path: Path) -> None:
    tracer = trace.start(tmp_path / "trace.json")
    compilation = finished(chain_model([RELU, TANH]), [SampleDevice("a", {RELU}), SampleDevice("b", {TANH})])
    run(compilation, [numbers(2, 3)], [(2, 3)])
    names = [event["name"] for event in tracer.events]
    trace.stop()
    assert "[NN_LD_PE]a" in names
    assert "[NN_LD_PE]b" in names


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_process_writes_what_it_did_itself_beside_its_parents_file(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    code = f"""
        import os
        from pathlib import Path
        from nn_runtime.observe import trace
        tracer = trace.start(Path({str(path)!r}))
        tracer.add(trace.RUNTIME, "PE", "of the parent", 0, 1000)
        with tracer._lock:  # a thread that is not in the child
            child = os.fork()
        if child == 0:
            tracer.add(trace.RUNTIME, "PE", "of the child", 2000, 3000)
            trace.stop()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print(child)
        idle = os.fork()
        if idle == 0:
            trace.stop()
            os._exit(0)
        assert os.waitpid(idle, 0)[1] == 0
    """
    own = tmp_path / f"trace.json.{int(run_script(code))}"
    assert set(tmp_path.iterdir()) == {path, own}
    assert {file: [span.detail for span in read_spans(file)] for file in (path, own)} == {
        path: ["of the parent"],
        own: ["of the child"],
    }


def test_nothing_is_traced_without_the_variable() -> None:
    chain_model([RELU])
    assert trace.current is None


def test_a_file_that_cannot_be_written_is_said_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "nowhere" / "trace.json"
    monkeypatch.setenv(trace.VARIABLE, str(path))
    chain_model([RELU])
    assert trace.current is None
    assert caplog.messages == [f"NNRT_TRACE: no trace, {path} cannot be written: No such file or directory"]
    chain_model([RELU])
    assert len(caplog.messages) == 1
    assert not path.parent.exists()
    monkeypatch.delenv(trace.VARIABLE)
    trace.read_setting()


def test_a_file_that_cannot_be_written_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trace.start(tmp_path / "nowhere" / "trace.json")
    trace.stop()
    assert trace.current is None
    assert "the trace cannot be written: No such file or directory" in caplog.text
