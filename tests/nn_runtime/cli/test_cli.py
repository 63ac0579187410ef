# SPDX-License-Identifier: Apache-2.0
"""The command line as a whole: commands and their files, errors, exit statuses."""

from __future__ import annotations

import errno
import gzip
import importlib
import io
import json
import logging
import os
import pkgutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import numpy as np
import pytest

import nn_runtime
from nn_runtime import cli
from nn_runtime.cli.output import busy, print_lines, progress, show_warnings
from nn_runtime.devices import _loaded_reference

_DIGITS = str(Path(nn_runtime.__file__).parent / "demo" / "digits_float.tflite")


def test_the_table_of_commands_is_the_folder() -> None:
    public = {module.name for module in pkgutil.iter_modules(cli.__path__) if _is_command(module.name)}
    assert public == set(cli.COMMANDS)


@pytest.mark.parametrize("name", list(cli.COMMANDS))
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main([name, "--help"])
    assert caught.value.code == 0
    assert f"nnrt {name}" in capsys.readouterr().out


def test_usage_errors_are_one_line_and_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    conformance = ["conformance", "."]
    for arguments in (
        [], ["nonsense"], ["conformance"], [*conformance, "--kinds", "odd"], [*conformance, "--operations", "ADD,ODD"],
    ):  # fmt: skip
        with pytest.raises(SystemExit) as caught:
            cli.main(arguments)
        assert caught.value.code == 2
        error = capsys.readouterr().err
        assert error.startswith("nnrt")
        assert error.count("\n") == 1


@pytest.mark.parametrize("command", [["devices"], ["graph", "x.tflite"], ["conformance", "."]])
def test_an_unknown_option_is_an_error_of_the_command(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main([*command, "--odd"])
    assert caught.value.code == 2
    assert capsys.readouterr().err.startswith(f"nnrt {command[0]}: unrecognized arguments: --odd (nnrt {command[0]} ")


@pytest.mark.parametrize(("command", "option"), [("run", "--output"), ("graph", "--output"), ("benchmark", "--html")])
@pytest.mark.parametrize("name", ["", "absent/"])
def test_names_of_new_files(command: str, option: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main([command, "x.tflite", option, name])
    assert caught.value.code == 2
    assert f"{option}: wanted a file, got {name!r}" in capsys.readouterr().err


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"nnrt {nn_runtime.__version__}\n"


def test_a_filter_that_no_example_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["conformance", str(_corpus(tmp_path, 1.0)), "--device", "cpu", "--only", "nothing"]
    assert cli.main(arguments) == 2
    assert "no example in" in capsys.readouterr().err


def test_failures_are_one_line_and_exit_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["conformance", str(tmp_path), "--device", "cpu"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("nnrt conformance: ")
    assert captured.err.count("\n") == 1


def test_names_cannot_command_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", str(tmp_path / "a\x1b[31m\nb.tflite"), "--device", "cpu"]) == 1
    wanted = f"nnrt explain: {tmp_path}/a\\x1b[31m\\nb.tflite: No such file or directory\n"
    assert capsys.readouterr().err == wanted
    print_lines(["label\x07\u202e", "Zo\u00eb\u200d\u3000\u732b"])
    assert capsys.readouterr().out == "label\\x07\\u202e\nZo\u00eb\u200d\u3000\u732b\n"


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--max-secs", "inf"], "wanted a number of seconds > 0, got 'inf'"),
        (["--max-secs", "-1"], "wanted a number of seconds > 0, got '-1'"),
        (["--runs", "1.5"], "wanted a whole number from 1 to 10^9 - 1, got '1.5'"),
        (["--runs", "9" * 5000], "wanted a whole number from 1 to 10^9 - 1, got '999"),
    ],
)
def test_numbers_of_a_benchmark(option: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["benchmark", "x.tflite", *option])
    err = capsys.readouterr().err
    assert message in err
    assert len(err) < 300


@pytest.mark.parametrize("sizes", ["8,0", "8,,8", "", "scan=", "8,x", "8x8", "2147483648,8"])
def test_a_shape_that_is_none(sizes: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["benchmark", "x.tflite", "--shape", sizes])
    assert "--shape: wanted [NAME=]N,N,... with sizes from 1 to 10^" in capsys.readouterr().err


def test_a_folder_that_cannot_be_read_is_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_bytes(b"")
    for path, wanted in ((tmp_path / "none", "No such file or directory"), (tmp_path / "file", "Not a directory")):
        assert cli.main(["conformance", str(path), "--device", "cpu"]) == 1
        assert capsys.readouterr().err == f"nnrt conformance: {path}: {wanted}\n"


@pytest.mark.parametrize("at", ["_command", "_parser"])
def test_an_interrupt_is_one_line_and_130(
    at: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_name: str) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, at, interrupted)
    assert cli.main(["devices"]) == 130
    assert capsys.readouterr().err == "nnrt devices: interrupted\n"


def test_an_interrupt_is_an_exception_once_the_command_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[object] = []

    def run(_args: object) -> int:
        found.append(signal.getsignal(signal.SIGINT))
        return 0

    command = SimpleNamespace(__doc__="", add_arguments=lambda _: None, run=run)
    monkeypatch.setattr(cli, "_command", lambda _: command)
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        assert cli.main(["devices"]) == 0
    finally:
        signal.signal(signal.SIGINT, before)
    assert found == [signal.default_int_handler]


def test_warnings_are_lines_of_the_command_and_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    show_warnings()
    handler = logging.lastResort
    assert handler is not None
    for text in ("no cache", "no cache", "another"):
        handler.handle(logging.LogRecord("nn_runtime", logging.WARNING, "", 0, "%s", (text,), None))
    assert capsys.readouterr().err == "nnrt: no cache\nnnrt: another\n"


def test_a_device_that_is_not_there_is_a_usage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["conformance", str(_corpus(tmp_path, 1.0))]
    assert cli.main([*command, "--device", "nowhere"]) == 2
    assert capsys.readouterr().err.startswith("nnrt conformance: --device: device selector 'nowhere' matches no usable")
    monkeypatch.setenv("NNRT_DEVICE", "cpu,")
    assert cli.main(command) == 2
    assert capsys.readouterr().err.startswith("nnrt conformance: NNRT_DEVICE: device selector 'cpu,': an item is empty")
    assert cli.main([*command, "--device", f"opencl:{'9' * 5000}"]) == 2
    assert "matches no usable device" in capsys.readouterr().err


def test_a_wrong_setting_of_the_driver_host_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _loaded_reference.cache_clear()
    monkeypatch.setenv("NNRT_DRIVER_HOST", "thread")
    try:
        assert cli.main(["demo", "--device", "cpu"]) == 2
    finally:
        _loaded_reference.cache_clear()
    assert capsys.readouterr().err == (
        "nnrt demo: NNRT_DRIVER_HOST: wanted 'process', or nothing for drivers in this process, got 'thread'\n"
    )


@pytest.mark.parametrize(
    "content",
    [b"no gzip", gzip.compress(b"{}"), gzip.compress(b"[1]"), gzip.compress(b"{}")[:9]],
    ids=["no gzip", "no fields", "a list", "cut"],
)
def test_a_damaged_file_of_examples_is_named(
    tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _corpus(tmp_path, 1.0)
    (file,) = folder.glob("*/*.json.gz")
    file.write_bytes(content)
    assert cli.main(["conformance", str(folder), "--device", "cpu"]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"nnrt conformance: {file}: no operation examples: ")
    assert error.count("\n") == 1


def test_help_keeps_to_the_width_of_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    with pytest.raises(SystemExit):
        cli.main(["run", "--help"])
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) < 60
    assert "answers.\n\nAn input is a picture" in text


def test_a_list_that_begins_with_a_minus_is_a_value(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["explain", "network.tflite", "--shape", "-1,8,8,1"])
    assert "got '-1,8,8,1'" in capsys.readouterr().err


def test_without_standard_error_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    assert list(progress("waiting", 2)) == [0, 1]
    with busy("waiting"):
        pass


class _Unwritable(io.StringIO):
    """Standard output on a full disk, or into a pipe that nobody reads."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def write(self, _text: str) -> int:
        raise OSError(self._number, os.strerror(self._number))


@pytest.mark.parametrize(("number", "status"), [(errno.ENOSPC, 1), (errno.EPIPE, 141)])
@pytest.mark.parametrize("option", [[], ["--json"]])
@pytest.mark.parametrize("command", [name for name in cli.COMMANDS if name != "tune"])
def test_standard_output_that_cannot_be_written(
    command: str, option: list[str], number: int, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """A full disk is said; the reader of a pipe has seen enough, as after SIGPIPE."""
    np.save(tmp_path / "scan.npy", np.zeros((1, 8, 8, 1), np.float32))
    (tmp_path / "trace.json").write_text('{"traceEvents": []}')
    cpu = ["--device", "cpu"]
    arguments = {
        "demo": cpu,
        "run": [_DIGITS, *cpu, "--input", str(tmp_path / "scan.npy"), "--output", str(tmp_path / "out.npz")],
        "benchmark": [_DIGITS, *cpu, "--runs", "1"],
        "explain": [_DIGITS, *cpu],
        "graph": [_DIGITS],
        "trace": [str(tmp_path / "trace.json")],
        "conformance": [str(_corpus(tmp_path, 2.0)), *cpu],
    }
    monkeypatch.setenv("NNRT_DEVICE", "cpu")
    monkeypatch.setattr(sys, "stdout", _Unwritable(number))
    assert cli.main([command, *arguments.get(command, []), *option]) == status
    said = f"nnrt {command}: standard output: {os.strerror(number)}\n" if number == errno.ENOSPC else ""
    assert capsys.readouterr().err == said
    assert command != "run" or (tmp_path / "out.npz").exists()


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["explain", "--help"]])
def test_help_that_cannot_be_written(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", _Unwritable(errno.ENOSPC))
    assert cli.main(arguments) == 1
    assert capsys.readouterr().err.endswith(f": standard output: {os.strerror(errno.ENOSPC)}\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full disk here")
def test_what_is_left_to_be_written_at_the_end_of_the_process() -> None:
    run = [sys.executable, "-m", "nn_runtime", "--version"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONUNBUFFERED": ""}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(run, env=environment, stdout=full, stderr=subprocess.PIPE, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (1, b"nnrt: standard output: No space left on device\n")
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe:
        done = subprocess.run(run, env=environment, stdout=pipe, stderr=subprocess.PIPE, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (141, b"")


def test_an_error_nobody_can_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", _Unwritable(errno.ENOSPC))
    assert cli.main(["explain", "/absent", "--device", "cpu"]) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["trace", ""],
        ["conformance", ""],
        ["explain", "x.tflite", "--cache-dir", ""],
        ["run", "x.tflite", "--input", "x.npy", "--labels", ""],
        ["tune", "x.tflite", "--output", ""],
    ],
)
def test_an_empty_path_is_not_the_current_folder(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
    assert "wanted a path, got ''" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="streams are closed by descriptors")
@pytest.mark.parametrize("closed", ["2", "012"])
def test_no_file_takes_the_place_of_a_closed_stream(closed: str) -> None:
    """What drivers print would go there."""
    close = """
        import os, sys
        for number in sys.argv[2]:
            os.close(int(number))
        os.execv(sys.executable, [sys.executable, "-c", sys.argv[1]])
    """
    explain = """
        import os
        from nn_runtime.cli import main
        status = main(["explain", "/absent"])
        with open(os.devnull) as file:
            os._exit(status if file.fileno() > 2 else 99)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(close), textwrap.dedent(explain), closed],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, b"")


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are text elsewhere")
def test_names_of_files_that_are_no_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network = tmp_path / os.fsdecode(b"a\xff\n.tflite")
    network.write_bytes((Path(nn_runtime.__file__).parent / "demo" / "digits_float.tflite").read_bytes())
    drawn, page = tmp_path / os.fsdecode(b"\xfe.dot"), tmp_path / os.fsdecode(b"\xfe.html")
    assert cli.main(["graph", str(network), "-o", str(drawn)]) == 0
    assert cli.main(["benchmark", str(network), "--device", "cpu", "--runs", "1", "--html", str(page)]) == 0
    assert "a\\udcff" in drawn.read_text(encoding="utf-8")
    assert "a\\udcff" in page.read_text(encoding="utf-8")
    assert capsys.readouterr().err == ""


def _corpus(folder: Path, wanted: float) -> Path:
    operand = {"type": "TENSOR_FLOAT32", "dims": [2], "scale": 0.0, "zero_point": 0}
    example = {
        "name": "relu_two",
        "main_op": "RELU",
        "variations": [],
        "relaxed": False,
        "expect_failure": False,
        "min_hal": "1.0",
        "runs": {"plain": True, "dynamic_output_shape": True, "quant8_to_signed": False, "device_memory": True},
        "main": {
            "operands": [
                {"name": "in", "lifetime": "SUBGRAPH_INPUT", **operand},
                {"name": "out", "lifetime": "SUBGRAPH_OUTPUT", **operand},
            ],
            "operations": [{"type": "RELU", "inputs": [0], "outputs": [1]}],
            "inputs": [0],
            "outputs": [1],
        },
        "referenced": [],
        "inputs": [{"operand": 0, "values": [-1.0, 2.0]}],
        "outputs": [{"operand": 1, "values": [0.0, wanted], "compare": "float32", "atol": 1e-5, "rtol": 6e-7}],
    }
    path = folder / "V1_0" / "relu.json.gz"
    path.parent.mkdir()
    with gzip.open(path, "wt") as file:
        json.dump({"spec": "relu", "version": "V1_0", "examples": [example]}, file)
    return folder


@pytest.mark.parametrize("through", ["hal", "ndk", "domains"])
def test_conformance_passes(tmp_path: Path, through: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = _corpus(tmp_path, 2.0)
    assert cli.main(["conformance", str(folder), "--device", "cpu", "--through", through]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "3 passed, 0 failed, 0 unsupported"


def test_conformance_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = _corpus(tmp_path, 2.5)
    assert cli.main(["conformance", str(folder), "--device", "cpu", "--kinds", "plain", "--through", "hal"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "0 passed, 1 failed, 0 unsupported"
    assert "output 0 out" in lines[-2]
    assert "wanted 2.5, got 2 " in lines[-2]


def test_conformance_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = _corpus(tmp_path, 2.0)
    assert cli.main(["conformance", str(folder), "--device", "cpu", "--through", "hal", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["counts"] == {"passed": 3, "failed": 0, "unsupported": 0}
    assert report["device"] == "nnapi-reference"
    assert [result["kind"] for result in report["results"]] == ["device_memory", "dynamic_output_shape", "plain"]


def _is_command(name: str) -> bool:
    return hasattr(importlib.import_module(f"{cli.__name__}.{name}"), "add_arguments")
