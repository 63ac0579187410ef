# SPDX-License-Identifier: Apache-2.0
"""What `nnrt doctor` says about OpenCL."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest

from gpu_driver import diagnosis
from gpu_driver.diagnosis import diagnose
from gpu_driver.discovery import icd, platforms
from gpu_driver.discovery.host_cpu import HostCpu
from tests.gpu_driver.discovery.made_up import made_up_device
from tests.gpu_driver.discovery.processes import DOCTOR, run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.skipif(sys.platform != "linux", reason="OCL_ICD_VENDORS is the Linux loader's")
def test_doctor_tells_what_an_early_pyopencl_hides(cache: Path) -> None:
    if not icd.environment_entries():
        pytest.skip("nothing here that the system's folder does not name")
    early = "import pyopencl\ntry: pyopencl.get_platforms()\nexcept pyopencl.Error: pass\n"
    report = cast("dict[str, object]", run(early + DOCTOR, cache))
    assert "PyOpenCL had started its loader before" in str(report["problems"])


def test_a_diagnosis_tells_of_instructions_that_did_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    device = made_up_device("pocl", "3.0", "libpocl.so")
    monkeypatch.setattr(diagnosis, "forms_to_try", lambda platform, cpu: ["x86_vnni", "x86_avx2"])
    told = "instructions for products of bytes did not work: x86_vnni, x86_avx2"
    assert diagnosis._device_report(device).notes[-1] == told
    assert told not in diagnosis._device_report(replace(device, features=("x86_avx2",))).notes


def test_a_diagnosis_names_the_instructions_that_were_seen_to_work() -> None:
    told = diagnose().lines()
    for device in platforms.find_devices():
        line = f"instructions seen to work: {', '.join(device.features)}"
        assert any(one.endswith(line) for one in told) == bool(device.features)


@pytest.mark.parametrize(
    ("system", "machine", "wanted"),
    [
        ("linux", "x86_64", "pip install pocl-binary-distribution"),
        ("linux", "aarch64", "apt install pocl-opencl-icd"),
        ("darwin", "arm64", "conda install -c conda-forge pocl"),
        ("win32", "AMD64", "install the OpenCL driver"),
    ],
)
def test_opencl_is_to_be_had_otherwise_elsewhere(
    system: str, machine: str, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnosis.sys, "platform", system)
    monkeypatch.setattr(diagnosis, "host_cpu", lambda: HostCpu(machine, "", frozenset()))
    monkeypatch.delenv(icd.VENDORS_VARIABLE, raising=False)
    (problem,) = diagnosis._loader_problems(platforms.Survey())
    assert wanted in problem.remedy
