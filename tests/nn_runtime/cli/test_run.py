# SPDX-License-Identifier: Apache-2.0
"""`nnrt run` on the digits networks and, where it is there, on a real one; and all that can go wrong with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import nn_runtime
from nn_runtime.cli import main
from nn_runtime.cli.demo import load_scans, network_input
from nn_runtime.session import Session

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from nn_runtime.device import Device

_ROOT = Path(__file__).parents[3]
_DIGITS = _ROOT / "nn_runtime" / "demo" / "digits_float.tflite"
_DIGITS_INT8 = _ROOT / "nn_runtime" / "demo" / "digits_int8.tflite"
_MODELS = Path(os.environ.get("NNRT_MODEL_DIR", _ROOT.parent / "shared" / "models"))


@pytest.fixture(scope="module")
def scans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the first two scans as the networks take them, and the digits' names."""
    folder = tmp_path_factory.mktemp("scans")
    images = load_scans().images[:2]
    for at in range(2):
        np.save(folder / f"{at}.npy", network_input(images, np.dtype("float32"))[at])
    (folder / "0.raw").write_bytes(network_input(images, np.dtype("int8"))[0].tobytes())
    (folder / "labels.txt").write_text("\n".join(f"digit {i}" for i in range(10)))
    return folder


def test_the_best_class_comes_first(scans: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = load_scans().labels
    files = [str(scans / "0.npy"), str(scans / "1.npy")]
    arguments = ["run", str(_DIGITS), "--device", "cpu", "--labels", str(scans / "labels.txt"), "--top", "2"]
    assert main([*arguments, "--input", *files]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(files[0])
    assert lines[0].endswith("s, first run)")
    assert lines[5].startswith(files[1])
    assert "first run" not in lines[5]
    assert lines[3].endswith(f"digit {labels[0]}")
    assert lines[8].endswith(f"digit {labels[1]}")
    assert lines[-1].startswith("10 operations on nnapi-reference; ready after ")


@pytest.mark.parametrize("shape", ["scan=2,8,8,1", "2, 8, 8, 1"])
def test_several_at_once(shape: str, scans: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "both.npy", np.stack([np.load(scans / f"{at}.npy") for at in range(2)]).reshape(2, 8, 8, 1))
    arguments = ["run", str(_DIGITS), "--device", "cpu", "--shape", shape, "--output", str(tmp_path / "out.npz")]
    assert main([*arguments, "--input", str(tmp_path / "both.npy")]) == 0
    with np.load(tmp_path / "out.npz") as outputs:
        (answers,) = outputs.values()
    assert list(answers.argmax(axis=1)) == list(load_scans().labels[:2])


def test_pictures_at_once(scans: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two in each run, an answer for each of them; and as rows of one array."""
    image, data = pytest.importorskip("PIL.Image"), load_scans()
    files = [str(tmp_path / f"{at}.png") for at in range(4)]
    for file, scan in zip(files, data.images, strict=False):
        image.fromarray((scan * (255 / 16)).astype(np.uint8)).save(file)
    arguments = ["run", str(_DIGITS), "--device", "cpu", "--shape", "2,8,8,1", "--normalize", "0,255", "--json"]
    assert main([*arguments, "--input", *files, "--output", str(tmp_path / "out.npz")]) == 0
    cases = json.loads(capsys.readouterr().out)["cases"]
    assert [case["input"] for case in cases] == files
    assert [case["at_once"] for case in cases] == [2] * 4
    assert [case["first_run"] for case in cases] == [True, True, False, False]
    assert [case["outputs"][0]["top"][0]["index"] for case in cases] == list(data.labels[:4])
    with np.load(tmp_path / "out.npz") as outputs:
        assert [array.shape for array in outputs.values()] == [(2, 10)] * 2
    np.save(tmp_path / "both.npy", np.stack([np.load(scans / f"{at}.npy") for at in range(2)]).reshape(2, 8, 8, 1))
    assert main([*arguments, "--input", str(tmp_path / "both.npy")]) == 0
    cases = json.loads(capsys.readouterr().out)["cases"]
    assert [case["input"] for case in cases] == [f"{tmp_path / 'both.npy'}[{at}]" for at in range(2)]
    assert [case["outputs"][0]["top"][0]["index"] for case in cases] == list(data.labels[:2])


@pytest.mark.parametrize(
    ("shapes", "status", "message"),
    [
        (["odd=2,8,8,1"], 2, "--shape: no input is called 'odd'; the inputs are 'scan'"),
        (["2,8,8,1", "2,8,8,1"], 2, "--shape: there is no input 1; the inputs are 'scan'"),
        (["scan=2,8,8,1", "scan=2,8,8,1"], 2, "--shape: input 'scan' is given twice"),
        (["scan=2,8,8,1", "3,8,8,1"], 2, "--shape: input 0 'scan' is given by 'scan' and by 0"),
    ],
)
def test_shapes_that_fit_no_input(
    shapes: list[str], status: int, message: str, scans: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [option for shape in shapes for option in ("--shape", shape)]
    assert main(["run", str(_DIGITS), "--device", "cpu", *options, "--input", str(scans / "0.npy")]) == status
    assert message in capsys.readouterr().err


def test_a_file_that_cannot_be_read_is_no_wrong_shape_whatever_it_is_called(
    tmp_path: Path, scans: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "other: shapes: 1.tflite"
    file.write_bytes(b"no model")
    assert main(["run", str(file), "--shape", "2,8,8,1", "--input", str(scans / "0.npy")]) == 1
    assert f"nnrt run: {file}: " in capsys.readouterr().err


def test_the_choice_of_a_device_is_in_no_runs_time(
    device: Device, scans: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rivals: list[int] = []
    plain = Session.run

    def counted(session: Session, *args: Any, **kwargs: Any) -> Any:
        rivals.append(len(session.rivals))
        return plain(session, *args, **kwargs)

    monkeypatch.setattr(Session, "run", counted)
    monkeypatch.setattr("nn_runtime.cost.RIVAL_FACTOR", 1e9)
    files = [str(scans / "0.npy"), str(scans / "1.npy")]
    assert main(["run", str(_DIGITS), "--device", f"{device.name},cpu", "--input", *files, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [case["outputs"][0]["top"][0]["index"] for case in report["cases"]] == list(load_scans().labels[:2])
    assert rivals[0] == (0 if device.is_reference else 1)
    assert [case["first_run"] for case in report["cases"]] == [device.is_reference, False]
    assert rivals[-2:] == [0, 0]


def test_json_and_outputs_by_name(scans: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "kept.npz"
    arguments = ["run", str(_DIGITS_INT8), "--device", "cpu", "--input", str(scans / "0.raw"), "--output", str(kept)]
    assert main([*arguments, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["devices"] == {"nnapi-reference": 10}
    output = report["cases"][0]["outputs"][0]
    assert output["top"][0]["index"] == load_scans().labels[0]
    assert 0.5 < output["top"][0]["value"] <= 1
    with np.load(kept) as arrays:
        assert arrays[output["name"]].shape == tuple(output["shape"])


def test_the_egyptian_cat(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("PIL")
    model = _MODELS / "mobilenet_v2_1.0_224_quant.tflite"
    if not model.exists():
        pytest.skip(f"no networks in {_MODELS} (NNRT_MODEL_DIR)")
    images = _MODELS / "images"
    arguments = ["run", str(model), "--device", "cpu", "--labels", str(images / "imagenet_labels.txt")]
    assert main([*arguments, "--input", str(images / "cat.bmp")]) == 0
    assert capsys.readouterr().out.splitlines()[3].endswith("286  Egyptian cat")


@pytest.mark.parametrize(
    ("content", "wanted"),
    [(b"hello", "not a .tflite file"), (b"", "not a .tflite file"), (_DIGITS.read_bytes()[:5000], "5000 bytes")],
)
def test_files_that_are_no_network(
    content: bytes, wanted: str, scans: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "bad.tflite"
    model.write_bytes(content)
    assert main(["run", str(model), "--device", "cpu", "--input", str(scans / "0.npy")]) == 1
    _one_line(capsys, str(model), wanted)


@pytest.mark.parametrize(
    ("array", "wanted"),
    [
        (np.zeros((1, 9, 8, 1), np.float32), "wanted float32 [1, 8, 8, 1], got float32 [1, 9, 8, 1]"),
        (np.zeros((1, 8, 8, 1), np.uint8), "wanted float32 [1, 8, 8, 1], got uint8 [1, 8, 8, 1]"),
    ],
)
def test_inputs_that_do_not_fit(
    array: np.ndarray, wanted: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "x.npy", array)
    assert main(["run", str(_DIGITS), "--device", "cpu", "--input", str(tmp_path / "x.npy")]) == 1
    _one_line(capsys, f"{tmp_path / 'x.npy'}: input 0 'scan': ", wanted)


def test_a_model_behind_the_inputs_is_taken_for_one(capsys: pytest.CaptureFixture[str]) -> None:
    """And the message says how it is meant."""
    with pytest.raises(SystemExit) as caught:
        main(["run", "--input", "cat.bmp", str(_DIGITS)])
    assert caught.value.code == 2
    _one_line(capsys, "required: MODEL", "usage: nnrt run MODEL [options] --input FILE [FILE ...]")


@pytest.mark.parametrize(
    ("arguments", "status", "wanted"),
    [
        (["--device", "nonsense"], 2, "there is: nnapi-reference"),
        (["--device", "cpu,"], 2, "an item is empty"),
        (["--device", "opencl"], 2, "nnapi-reference"),
        (["--device", "cpu", "--labels", "nowhere.txt"], 1, "nowhere.txt: No such file"),
        (["--device", "cpu", "--input", "nowhere.npy"], 1, "nowhere.npy: No such file"),
        (["--device", "cpu", "--output", "nowhere/x.npz"], 2, "--output nowhere/x.npz: there is no folder nowhere"),
        (["--device", "cpu", "--output", "."], 2, "--output .: is a folder"),
        (["--device", "cpu", "--output", "out.txt"], 2, "--output out.txt: outputs are kept in an .npz: wanted"),
        (["--device", "cpu", "--output", "out"], 2, "a name with that ending, as out.npz"),
        pytest.param(
            ["--device", "cpu", "--output", "/proc/x.npz"],
            2,
            "--output /proc/x.npz: cannot be written: ",
            marks=pytest.mark.skipif(not Path("/proc").is_dir(), reason="no folder that takes no file"),
        ),
    ],
)
def test_one_line_for_every_error(
    arguments: list[str],
    status: int,
    wanted: str,
    scans: Path,
    no_drivers: dict[str, EntryPoint],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["run", str(_DIGITS), "--input", str(scans / "0.npy"), *arguments]) == status
    _one_line(capsys, wanted)


def test_outputs_of_any_name(
    scans: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = nn_runtime.Model()
    row = nn_runtime.OperandType(nn_runtime.OperandCode.TENSOR_FLOAT32, (1, 8, 8, 1))
    source, *results = (model.add_operand(row) for _ in range(3))
    for result in results:
        model.add_operation(nn_runtime.OperationCode.NEG, [source], [result])
    model.identify_inputs_and_outputs([source], results)
    model.finish()
    network = nn_runtime.Network.from_model(model, ["scan"], ["file", "allow_pickle"])
    monkeypatch.setattr("nn_runtime.cli.run.loaded", lambda _: network)
    arguments = ["run", "any.tflite", "--device", "cpu", "--output", str(tmp_path / "out.npz")]
    assert main([*arguments, "--input", str(scans / "0.npy")]) == 0
    with np.load(tmp_path / "out.npz") as outputs:
        assert sorted(outputs.files) == ["allow_pickle", "file"]
        assert all(np.array_equal(array, -np.load(scans / "0.npy").reshape(1, 8, 8, 1)) for array in outputs.values())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no disk that is always full")
def test_a_full_disk_is_named(scans: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["run", str(_DIGITS), "--device", "cpu", "--input", str(scans / "0.npy"), "--output", "/dev/full"]
    assert main(arguments) == 1
    assert capsys.readouterr().err == "nnrt run: /dev/full: No space left on device\n"


def test_an_array_that_memory_cannot_hold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    huge = tmp_path / "huge.npy"
    with huge.open("wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (2**50,)}
        np.lib.format.write_array_header_1_0(file, header)
    assert main(["run", str(_DIGITS), "--device", "cpu", "--input", str(huge)]) == 1
    assert capsys.readouterr().err.startswith(f"nnrt run: {huge}: not an array in .npy form: Unable to allocate")


def test_too_few_files_is_a_usage_error(
    scans: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = nn_runtime.Model()
    float_type = nn_runtime.OperandType(nn_runtime.OperandCode.TENSOR_FLOAT32, (2,))
    operands = [model.add_operand(float_type) for _ in range(2)]
    fuse = model.add_operand(nn_runtime.OperandType(nn_runtime.OperandCode.INT32))
    model.set_operand_value(fuse, np.array(nn_runtime.FuseCode.NONE, np.int32))
    total = model.add_operand(float_type)
    model.add_operation(nn_runtime.OperationCode.ADD, [*operands, fuse], [total])
    model.identify_inputs_and_outputs(operands, [total])
    model.finish()
    monkeypatch.setattr("nn_runtime.cli.run.loaded", lambda _: nn_runtime.Network.from_model(model, ["a", "b"]))
    assert main(["run", "any.tflite", "--device", "cpu", "--input", str(scans / "0.npy")]) == 2
    _one_line(capsys, "wanted a file for each of 2 inputs ('a', 'b'), got 1")


@pytest.mark.parametrize(
    "option",
    [["--top", "0"], ["--normalize", "1"], ["--normalize", "0,0"], ["--normalize", "0,1e-99"], ["--partition", "x"]],
)
def test_wrong_options_exit_2(option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["run", str(_DIGITS), "--input", "x.npy", *option])
    assert caught.value.code == 2
    assert option[0] in capsys.readouterr().err


def test_a_process_of_its_own_and_an_unwritable_cache(scans: Path) -> None:
    environment = {**os.environ, "NNRT_CACHE_DIR": "/proc/no/such/folder", "NNRT_DEVICE": "cpu"}
    command = [sys.executable, "-m", "nn_runtime", "run", str(_DIGITS), "--input", str(scans / "0.npy")]
    done = subprocess.run(command, cwd=_ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "nnapi-reference" in done.stdout


def _one_line(capsys: pytest.CaptureFixture[str], *wanted: str) -> None:
    error = capsys.readouterr().err
    assert error.startswith("nnrt run: ")
    assert error.count("\n") == 1
    for text in wanted:
        assert text in error
