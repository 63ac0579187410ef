# SPDX-License-Identifier: Apache-2.0
"""Tuned values: which file counts, what is refused, and that they change speed only."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import nn_runtime as nn
from gpu_driver import tuning
from gpu_driver.tuning_values import Tuning
from nn_runtime.devices import find_device
from tests.gpu_driver.profiles import CPU_PROFILE, GPU_PROFILE

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from gpu_driver.driver import Device

PROFILE = replace(CPU_PROFILE, device_name="pthread-Some CPU @ 2 GHz")
DEMO = Path(nn.__file__).parent / "demo"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NNRT_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv(tuning.VARIABLE, raising=False)
    return tmp_path / "tuning"


def test_the_file_says_what_it_is_for(folder: Path) -> None:
    path = tuning.store(PROFILE, {"elementwise_local": 128}, {"rounds": 3})
    assert path == folder / "tuning-pocl-3.0-pthread-some-cpu-2-ghz-2cu.json"
    document = json.loads(path.read_text())
    assert document == {
        "format": 1,
        "platform": "pocl",
        "device": "pthread-Some CPU @ 2 GHz",
        "driver_version": "3.0",
        "compute_units": 2,
        "values": {"elementwise_local": 128},
        "measured": {"rounds": 3},
    }
    assert tuning.tuning_for(PROFILE) == replace(Tuning(), elementwise_local=128)


def test_without_a_file_and_switched_off_there_are_defaults(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert tuning.tuning_for(PROFILE) == Tuning()
    tuning.store(PROFILE, {"elementwise_local": 128}, {})
    monkeypatch.setenv(tuning.VARIABLE, "off")
    assert tuning.tuning_for(PROFILE) == Tuning()
    assert not caplog.text


@pytest.mark.parametrize(
    "change",
    [
        {"driver_version": "3.1"},
        {"device": "another"},
        {"compute_units": 4},
        {"format": 2},
        {"values": {"elementwise_local": 63}},
        {"values": {"elementwise_local": 64.0}},
        {"values": {"elementwise_local": True}},
        {"values": {"__class__": 1}},
        {"values": [1]},
        {"values": None},
    ],
)
def test_other_devices_and_damaged_files_do_not_count(
    change: Mapping[str, object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = tuning.store(PROFILE, {"elementwise_local": 128}, {})
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert tuning.tuning_for(PROFILE) == Tuning()
    named = tmp_path / "named.json"
    path.rename(named)
    monkeypatch.setenv(tuning.VARIABLE, str(named))
    assert tuning.tuning_for(PROFILE) == Tuning()
    assert f"{tuning.VARIABLE}={named} is not used" in caplog.text


def test_a_named_file_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(tuning.VARIABLE, str(tmp_path / "none.json"))
    assert tuning.tuning_for(PROFILE) == Tuning()
    assert tuning.tuning_for(GPU_PROFILE) == Tuning()
    assert caplog.text.count("are: No such file") == 1


def test_a_named_file_that_no_device_can_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tuning.problem_of_named_file() is None
    path = tuning.store(PROFILE, {"elementwise_local": 128}, {}, tmp_path / "named.json")
    monkeypatch.setenv(tuning.VARIABLE, str(path))
    assert tuning.problem_of_named_file() is None
    for content, wanted in (("x", "not JSON: Expecting value"), ("{}", "it has no 'format'"), ("[]", "list indices")):
        path.write_text(content)
        problem = tuning.problem_of_named_file()
        assert problem is not None
        assert problem.startswith(f"NNRT_TUNING={path}: tuning: not a file of nnrt tune: {wanted}")
    monkeypatch.setenv(tuning.VARIABLE, "off")
    assert tuning.problem_of_named_file() is None


@pytest.mark.parametrize("text", ["", "{", "[]", pytest.param("[" * 100_000, id="deep"), "null", "\x00"])
def test_what_is_no_json_object_does_not_count(text: str) -> None:
    path = tuning.store(PROFILE, {}, {})
    path.write_text(text)
    assert tuning.tuning_for(PROFILE) == Tuning()


def test_a_gpu_has_no_parameters_of_cpus() -> None:
    of_cpu, of_gpu = tuning.parameters(PROFILE), tuning.parameters(GPU_PROFILE)
    assert {one.name for one in of_cpu} == {
        "chain_steps", "bands", "bands_of_large_steps", "least_task_flops", "few_pixels",
    }  # fmt: skip
    assert {one.name for one in of_gpu} == {
        "elementwise_local", "middle_tile", "small_tile", "turn_cycles", "unit_sums", "narrow_rows", "shared_outputs",
    }  # fmt: skip
    for one in (*of_cpu, *of_gpu):
        assert one.default in one.candidates
        assert one.meaning


def test_shipped_files_fit_their_names() -> None:
    folder = Path(tuning.__file__).parent / "profiles"
    paths = list(folder.glob("tuning-*.json"))
    assert {path.name.split("-")[1] for path in paths} >= {"pocl", "intel"}
    for path in paths:
        document: dict[str, Any] = json.loads(path.read_text())
        profile = replace(
            PROFILE,
            slug=document["platform"],
            device_name=document["device"],
            driver_version=document["driver_version"],
            compute_units=document["compute_units"],
        )
        assert tuning.file_name(profile) == path.name
        assert asdict(tuning.tuning_for(profile)) == {**asdict(Tuning()), **document["values"]}


def test_a_shipped_file_counts_unless_the_user_has_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profiles = tmp_path / "gpu_driver" / "profiles"
    profiles.mkdir(parents=True)
    monkeypatch.setattr("importlib.resources.files", tmp_path.joinpath)
    path = tuning.store(PROFILE, {"bands": 3}, {}, profiles)
    assert path == profiles / tuning.file_name(PROFILE)
    assert tuning.tuning_for(PROFILE) == replace(Tuning(), bands=3)
    assert tuning.tuning_for(replace(PROFILE, driver_version="3.1")) == Tuning()
    users = tuning.store(PROFILE, {}, {})
    assert tuning.tuning_for(PROFILE) == Tuning()
    users.write_text("{")
    assert tuning.tuning_for(PROFILE) == replace(Tuning(), bands=3)


def test_no_value_changes_an_answer(opencl_device: Device) -> None:
    """Each value of each parameter, one at a time, on 8-bit data: the same bits, run after run."""
    with np.load(DEMO / "digits_test.npz") as arrays:
        scan = next(iter(arrays.values()))[0]
    wanted = _answers(opencl_device, scan)
    in_force = opencl_device.tuning()
    try:
        for parameter in opencl_device.tuning_parameters():
            for value in parameter.candidates:
                opencl_device.set_tuning({parameter.name: value})
                assert opencl_device.tuning()[parameter.name] == value
                np.testing.assert_array_equal(_answers(opencl_device, scan), wanted, f"{parameter.name}={value}")
    finally:
        opencl_device.set_tuning(in_force)
    with pytest.raises(ValueError, match="nothing is called 'speed'"):
        opencl_device.set_tuning({"speed": 11})


def _answers(device: Device, scan: npt.NDArray[Any]) -> npt.NDArray[Any]:
    found = find_device(device.name)
    assert found.hal is device
    with nn.load(DEMO / "digits_int8.tflite") as network, network.compile(found) as session:
        (info,) = session.inputs
        data = np.resize(scan, info.shape).astype(info.dtype)
        return np.stack([session.run([data])[0], session.run([data])[0]])
