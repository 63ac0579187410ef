# SPDX-License-Identifier: Apache-2.0
"""Clang sees no variable read before it is written in any program that our cases need (`--long`, clang)."""

from __future__ import annotations

import functools
import shutil
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import kernels_cl
from gpu_driver.device.programs import build_options
from gpu_driver.device_profile import PERSISTENT_EMULATED
from gpu_driver.discovery.dot_products import FEATURES
from gpu_driver.launch import Launch
from gpu_driver.lowering import Lowering
from nn_runtime.hal.types import HalError
from nn_runtime.testing.conformance import hal_model
from tests.gpu_driver.profiles import CPU_PROFILE, GPU_PROFILE
from tests.operations.cases import examples
from tests.platforms.chains import blocks

if TYPE_CHECKING:
    from gpu_driver.device_profile import DeviceProfile

PROFILES = (
    *(CPU_PROFILE, replace(CPU_PROFILE, registers=8), GPU_PROFILE),
    replace(GPU_PROFILE, features=frozenset({"mma_emulated"})),
    *(replace(CPU_PROFILE, features=frozenset({feature})) for feature in FEATURES),
)
PERSISTENT = replace(GPU_PROFILE, features=frozenset({PERSISTENT_EMULATED}))
COMPILERS = (*(f"clang-{version}" for version in range(30, 13, -1)), "clang")
WARNINGS = (
    *("-Wno-everything", "-Wuninitialized", "-Wsometimes-uninitialized", "-Wconditional-uninitialized"),
    *("-Wreturn-type", "-Warray-bounds", "-Wshift-overflow", "-Wshift-count-overflow", "-Wdivision-by-zero"),
    "-Wmacro-redefined",  # which others print, or count on standard error
)
FAULT = "kernel void fault(global float *a, int n) { float x; if (n > 3) x = n; a[0] = x; }"


def compiler() -> str:
    found = next(filter(None, map(shutil.which, COMPILERS)), None)
    if found is None:
        pytest.skip("clang is not installed")
    return found


@functools.cache
def programs() -> set[tuple[str, tuple[str, ...]]]:
    """Source and options of every program that our cases are lowered to."""
    cases = [(hal_model(example), profile) for profile in PROFILES for example in examples()]
    cases += [(chain.draw(chain.code).graph.model(), PERSISTENT) for chain in blocks()]
    return {
        (launch.kernel.source, build_options(dict(launch.kernel.defines)))
        for model, profile in cases
        for launch in _launches(model, profile)
    }


def _launches(model: object, profile: DeviceProfile) -> list[Launch]:
    lowering = Lowering(model, profile)  # type: ignore[arg-type]
    try:
        commands = lowering.lower(0, lowering.static_inputs()).commands
    except (HalError, NotImplementedError):
        return []
    return [command for command in commands if isinstance(command, Launch)]


def complaints(source: str, options: tuple[str, ...]) -> str:
    """Return what clang writes about a program."""
    command = [
        *(compiler(), "-x", "cl", *options, "-target", "x86_64-linux-gnu", "-mavx512f"),
        *("-Xclang", "-finclude-default-header", "-Xclang", "-cl-ext=+all", "-fsyntax-only", *WARNINGS, "-"),
    ]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    return done.stderr


def test_clang_finds_a_planted_fault() -> None:
    assert "uninitialized" in complaints(FAULT, ("-cl-std=CL1.2",))


def test_programs_have_no_warnings(is_long: bool) -> None:
    if not is_long:
        pytest.skip("takes a minute: --long")
    found = programs()
    assert {source for source, _ in found} == set(kernels_cl.names()) - {"peaks.cl", "peaks_units.cl"}
    for source, options in sorted(found):
        assert complaints(kernels_cl.source(source), options) == "", f"{source} {options}"
