# SPDX-License-Identifier: Apache-2.0
"""`nnrt doctor`: its exit status, what it prints of a driver's diagnosis, and that errors repeat it."""

from __future__ import annotations

import json
import types
from dataclasses import asdict, dataclass
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING

import pytest

from nn_runtime.cli import doctor, main
from nn_runtime.devices import select
from nn_runtime.errors import UnavailableDevice
from tests.nn_runtime.cli.conftest import unusable_device

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class _Problem:
    what: str
    remedy: str


@dataclass(frozen=True)
class _Diagnosis:
    problems: tuple[_Problem, ...] = (_Problem("there is no OpenCL library", "pip install something"),)

    def lines(self) -> list[str]:
        return [f"problem    {self.problems[0].what}", f"    mend   {self.problems[0].remedy}"]

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def _driver_without_devices(*devices: object) -> types.ModuleType:
    module = types.ModuleType("poor_driver")
    module.devices = lambda: list(devices)  # type: ignore[attr-defined]
    module.diagnose = _Diagnosis  # type: ignore[attr-defined]
    return module


def test_no_driver_at_all(no_drivers: dict[str, EntryPoint], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "package    numpy " in out
    assert "the OpenCL driver is not installed: pip install" in out
    assert "takes nnapi-reference" in out


def test_a_driver_says_what_is_wrong(
    install_driver: Callable[[types.ModuleType], None], capsys: pytest.CaptureFixture[str]
) -> None:
    install_driver(_driver_without_devices())
    assert main(["doctor"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "    mend   pip install something" in lines
    assert "no OpenCL device can be used; the CPU device works everywhere (--device cpu)" in lines
    assert main(["doctor", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["drivers"]["opencl"]["diagnosis"]["problems"][0]["remedy"] == "pip install something"
    assert report["usable_opencl_devices"] == []


def test_a_strict_selector_says_what_doctor_says(install_driver: Callable[[types.ModuleType], None]) -> None:
    install_driver(_driver_without_devices(unusable_device("a product came out wrong")))
    with pytest.raises(UnavailableDevice) as caught:
        select("opencl")
    message = str(caught.value)
    assert "opencl-broken-0 cannot be used: a product came out wrong" in message
    assert "there is no OpenCL library (mend: pip install something)" in message
    assert "nnrt doctor says more" in message
    assert "nnapi-reference" in message


def test_a_driver_that_cannot_be_loaded(
    install_driver: Callable[[types.ModuleType], None], capsys: pytest.CaptureFixture[str]
) -> None:
    install_driver(types.ModuleType("empty_driver"))
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "problem    driver opencl could not be loaded" in out
    assert "    mend   pip install --force-reinstall empty_driver" in out


class _Distribution:
    name = "acme-npu-driver"


def test_a_driver_of_others_is_mended_by_its_own_package(
    no_drivers: dict[str, EntryPoint], capsys: pytest.CaptureFixture[str]
) -> None:
    entry = EntryPoint("acme", "no_such_driver:devices", "nn_runtime.drivers")
    no_drivers["acme"] = entry._for(_Distribution())  # type: ignore[attr-defined]
    main(["doctor"])
    out = capsys.readouterr().out
    assert "problem    driver acme could not be loaded: ModuleNotFoundError" in out
    assert "    mend   pip install --force-reinstall acme-npu-driver" in out


class _Mute:
    problems = ()

    def lines(self) -> list[str]:
        raise KeyError("lines")

    def to_json(self) -> dict[str, object]:
        raise KeyError("json")


@pytest.mark.parametrize("found", [None, 5, _Mute()])
def test_a_driver_that_cannot_say_what_is_wrong(
    install_driver: Callable[[types.ModuleType], None], capsys: pytest.CaptureFixture[str], found: object
) -> None:
    module = _driver_without_devices(unusable_device("it is mute"))
    module.diagnose = lambda: found  # type: ignore[attr-defined]
    install_driver(module)
    assert main(["doctor"]) == 1
    assert "opencl-broken-0: not usable: it is mute" in capsys.readouterr().out
    assert main(["doctor", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["drivers"]["opencl"]["diagnosis"] is None


def test_variables_are_shown(
    no_drivers: dict[str, EntryPoint], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NNRT_DEVICE", "opencl:pocl")
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "variable   NNRT_DEVICE=opencl:pocl" in out
    assert "matches no usable device; there is: nnapi-reference (cpu)" in out
    assert "    mend   unset NNRT_DEVICE, or name a device of nnrt devices" in out


@pytest.mark.parametrize(
    ("variable", "value", "wanted"),
    [
        ("NNRT_DEVICE", "zzz", "matches no usable device"),
        ("NNRT_DEVICE", "cpu,", "an item is empty"),
        ("NNRT_DEVICE", "cpu,opencl:none", "matches no usable device"),
        ("PYOPENCL_CTX", "foo", "device selector 'opencl:foo::' matches no usable device"),
    ],
)
def test_a_selection_of_what_is_not_there_is_a_problem(
    variable: str,
    value: str,
    wanted: str,
    no_drivers: dict[str, EntryPoint],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(variable, value)
    assert main(["doctor", "--json"]) == 1
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert problem["what"].startswith(f"{variable}={value}: ")
    assert wanted in problem["what"]
    assert problem["remedy"].startswith(f"unset {variable}")


@pytest.mark.parametrize(
    ("system", "machine", "extras"),
    [
        ("linux", "x86_64", ["pocl-binary-distribution", "intel-opencl-rt", "pillow"]),
        ("linux", "aarch64", ["pillow"]),
        ("win32", "AMD64", ["intel-opencl-rt", "pillow"]),
        ("darwin", "x86_64", ["pillow"]),
    ],
)
def test_only_packages_that_there_are_for_a_machine_are_named(
    system: str, machine: str, extras: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor.sys, "platform", system)
    monkeypatch.setattr(doctor.platform, "machine", lambda: machine)
    assert list(doctor._packages()) == [*doctor._NEEDED, *extras]
