# SPDX-License-Identifier: Apache-2.0
"""`nnrt devices`: what is listed, and that a broken driver takes nothing else away."""

from __future__ import annotations

import json
import types
from typing import TYPE_CHECKING

from nn_runtime.cli import main
from tests.nn_runtime.cli.conftest import unusable_device

if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.metadata import EntryPoint

    import pytest


def test_the_cpu_is_always_there(no_drivers: dict[str, EntryPoint], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:4] == ["*", "nnapi-reference", "CPU", "usable"]
    assert lines[2] == "no OpenCL device; nnrt doctor says why"


def test_a_selector_that_takes_nothing(
    no_drivers: dict[str, EntryPoint], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NNRT_DEVICE", "opencl:nvidia")
    for option in ([], ["--json"]):
        assert main(["devices", *option]) == 2
        captured = capsys.readouterr()
        assert "nnapi-reference" in captured.out
        wanted = "nnrt devices: NNRT_DEVICE: device selector 'opencl:nvidia' matches no usable device; there is: "
        assert captured.err.startswith(wanted)
        assert captured.err.count("\n") == 1


def test_a_device_that_cannot_be_used(
    install_driver: Callable[[types.ModuleType], None], capsys: pytest.CaptureFixture[str]
) -> None:
    module = types.ModuleType("broken_driver")
    module.devices = lambda: [unusable_device("a product came out wrong")]  # type: ignore[attr-defined]
    install_driver(module)
    assert main(["devices"]) == 0
    line = capsys.readouterr().out.splitlines()[1]
    assert "opencl-broken-0  GPU   not usable  Broken GPU  a product came out wrong" in line
    assert main(["devices", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [(row["name"], row["usable"]) for row in listed["devices"]] == [
        ("opencl-broken-0", False),
        ("nnapi-reference", True),
    ]


def test_a_driver_that_cannot_be_loaded(
    install_driver: Callable[[types.ModuleType], None], capsys: pytest.CaptureFixture[str]
) -> None:
    install_driver(types.ModuleType("empty_driver"))
    assert main(["devices"]) == 0
    out = capsys.readouterr().out
    assert "nnapi-reference" in out
    assert "driver opencl could not be loaded: AttributeError" in out
