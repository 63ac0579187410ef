# SPDX-License-Identifier: Apache-2.0
"""Bytes are multiplied by the best instructions that the processor has and the header was seen to work with."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING
from unittest import mock

import numpy as np
import pyopencl as cl
import pytest

from gpu_driver.discovery import dot_products
from gpu_driver.discovery.dot_products import AMX, AVX2, AVX512_VNNI, AVX_VNNI, FEATURES, VBMI, WIDE_FORMS
from gpu_driver.discovery.host_cpu import HostCpu, host_cpu
from gpu_driver.discovery.platforms import find_devices
from gpu_driver.discovery.pocl_repair import SKX_FLAGS
from gpu_driver.discovery.trial import run_once
from nn_runtime.codes import DeviceTypeCode
from tests.gpu_driver.profiles import CPU_PROFILE, has_instructions

if TYPE_CHECKING:
    from gpu_driver.discovery.platforms import FoundDevice

ON_X86 = [
    device
    for device in find_devices()
    if device.usable and device.slug in ("pocl", "intel") and device.type == DeviceTypeCode.CPU
]
POCL, INTEL = "Portable Computing Language", "Intel(R) OpenCL"
HASWELL = {"avx2", "fma"}
ALDER_LAKE = HASWELL | {"avx_vnni"}
CASCADE_LAKE = SKX_FLAGS | {"avx512_vnni"}
ICE_LAKE = CASCADE_LAKE | {"avx512vbmi"}
SAPPHIRE_RAPIDS = ICE_LAKE | {"avx_vnni", "amx_tile", "amx_int8"}


@pytest.fixture(scope="module", params=ON_X86, ids=lambda found: found.name)
def context(request: pytest.FixtureRequest) -> cl.Context:
    return cl.Context([request.param.device])


@pytest.mark.parametrize(
    ("platform", "flags", "working", "feature"),
    [
        (POCL, CASCADE_LAKE | {"avx_vnni"}, {3, 2, 1}, "x86_vnni"), (INTEL, CASCADE_LAKE, {3}, "x86_vnni"),
        (POCL, SAPPHIRE_RAPIDS, {4, 3, 2, 1}, "x86_amx"), (INTEL, SAPPHIRE_RAPIDS, {3, 2, 1}, "x86_vnni"),
        (INTEL, CASCADE_LAKE | {"avx_vnni"}, {2, 1}, "x86_avx_vnni"), (POCL, ALDER_LAKE, {2, 1}, "x86_avx_vnni"),
        (POCL, ALDER_LAKE, {1}, "x86_avx2"), (POCL, HASWELL, {3, 2, 1}, "x86_avx2"), (POCL, HASWELL, set(), None),
        (POCL, SKX_FLAGS, {3, 2, 1}, None), (POCL, {"avx2"}, {3, 2, 1}, None), (POCL, {"asimd"}, {1}, None),
        ("NVIDIA CUDA", CASCADE_LAKE, {3, 2, 1}, None), ("rusticl", HASWELL, {1}, None),
    ],
)  # fmt: skip
def test_the_best_form_that_works_is_chosen(
    platform: str, flags: set[str], working: set[int], feature: str | None
) -> None:
    device = SimpleNamespace(platform=SimpleNamespace(name=platform))
    cpu = HostCpu("x86_64", "", frozenset(flags))
    with mock.patch.object(dot_products, "works", side_effect=lambda _, form, *, vbmi: form in working and not vbmi):
        features = dot_products.features_of(device, mock.sentinel.context, cpu)  # type: ignore[arg-type]
    assert features == ((feature, "x86_vnni") if feature == "x86_amx" else (feature,) if feature else ())
    profile = replace(CPU_PROFILE, features=frozenset({*features, "cycle_counter"}))
    assert profile.dot4 == (FEATURES[feature] if feature else 0)


@pytest.mark.parametrize(
    ("flags", "features"),
    [(CASCADE_LAKE, ("x86_vnni",)), (ICE_LAKE, ("x86_vnni", VBMI)), (SAPPHIRE_RAPIDS, ("x86_amx", "x86_vnni", VBMI))],
)
def test_bytes_are_looked_up_by_vbmi_where_the_processor_has_it(flags: set[str], features: tuple[str, ...]) -> None:
    device = SimpleNamespace(platform=SimpleNamespace(name=POCL))
    with mock.patch.object(dot_products, "works", return_value=True):
        found = dot_products.features_of(device, mock.sentinel.context, HostCpu("x86_64", "", frozenset(flags)))  # type: ignore[arg-type]
    assert found == features


@pytest.mark.parametrize(
    ("form", "flags", "vbmi"),
    [
        (AVX2, HASWELL, False), (AVX_VNNI, ALDER_LAKE, False), (AVX512_VNNI, CASCADE_LAKE, False),
        (AVX512_VNNI, ICE_LAKE, True), (AMX, SAPPHIRE_RAPIDS, True),
    ],
)  # fmt: skip
def test_a_form_works_where_the_processor_has_its_instructions(
    context: cl.Context, form: int, flags: set[str], vbmi: bool
) -> None:
    if not (flags <= host_cpu().flags and has_instructions(form, host_cpu())):
        pytest.skip("the processor lacks them, or Linux refuses them, and would end this process")
    assert dot_products.works(context, form, vbmi=vbmi)


@pytest.mark.parametrize("found", ON_X86, ids=lambda found: found.name)
def test_devices_say_which_form_they_have(found: FoundDevice) -> None:
    flags = host_cpu().flags
    forms = ("x86_amx", SAPPHIRE_RAPIDS), ("x86_vnni", CASCADE_LAKE), ("x86_avx_vnni", ALDER_LAKE)
    usable = (name for name, needed in forms if needed <= flags and has_instructions(FEATURES[name], host_cpu()))
    expected = next(usable, None)
    if expected is None and flags >= HASWELL and not flags >= SKX_FLAGS:
        expected = "x86_avx2"
    wanted = {expected, "x86_vnni"} if expected == "x86_amx" else {expected}
    assert set(found.features) & set(FEATURES) == (wanted if expected else set())
    assert (VBMI in found.features) == (FEATURES.get(expected or "") in WIDE_FORMS and flags >= ICE_LAKE)


def test_a_process_that_is_refused_tiles_has_the_next_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dot_products, "may_use_tiles", lambda: False)
    assert dot_products.usable_here(("x86_amx", "x86_vnni", "mma_80")) == ("x86_vnni", "mma_80")


_REFUSED = """
import ctypes, threading
class Stack(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]
room, is_set, done = ctypes.create_string_buffer(8192), threading.Event(), threading.Event()
def other():
    stack = Stack(ctypes.addressof(room), 0, 8192)
    assert ctypes.CDLL(None).sigaltstack(ctypes.byref(stack), None) == 0
    is_set.set()
    done.wait()
threading.Thread(target=other).start()
is_set.wait()
from gpu_driver.discovery.platforms import find_devices
print(*(feature for found in find_devices() for feature in found.features))
done.set()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux grants tile registers")
def test_a_process_without_room_for_tiles_in_its_stack_for_signals_does_not_use_them() -> None:
    run = subprocess.run([sys.executable, "-c", _REFUSED], capture_output=True, text=True, check=True)
    features = [feature for found in ON_X86 for feature in found.features]
    assert run.stdout.split().count("x86_vnni") >= features.count("x86_vnni")
    assert "x86_amx" not in run.stdout.split()


@pytest.mark.parametrize("output", [0, 1, 2], ids=["sums", "rounding", "table"])
def test_wrong_answers_fail_the_trial(context: cl.Context, output: int) -> None:
    def wrong(*arguments: object) -> None:
        run_once(*arguments)  # type: ignore[arg-type]
        values = arguments[-1][output]  # type: ignore[index]
        values[7] = np.nextafter(values[7], np.float32(1e9)) if values.dtype == np.float32 else values[7] + 1

    form = next((form for form, flags in ((3, CASCADE_LAKE), (1, HASWELL)) if flags <= host_cpu().flags), None)
    if form is None:
        pytest.skip("the processor has none of the forms")
    with mock.patch.object(dot_products, "run_once", wrong):
        assert not dot_products.works(context, form)


@pytest.mark.parametrize("sign", [0, 1], ids=["unsigned", "signed"])
def test_wrong_products_of_tiles_fail_the_trial(context: cl.Context, sign: int) -> None:
    def wrong(*arguments: object) -> None:
        run_once(*arguments)  # type: ignore[arg-type]
        if sign < len(arguments[-1]) - 3:  # type: ignore[arg-type]
            arguments[-1][3 + sign][1, 15, 7] += 1  # type: ignore[index]

    if not has_instructions(AMX, host_cpu()):
        pytest.skip("the processor has no tiles, or Linux refuses them")
    with mock.patch.object(dot_products, "run_once", wrong):
        assert not dot_products.works(context, AMX)
        assert dot_products.works(context, AVX512_VNNI)


@pytest.mark.parametrize("rounds_down", [False, True])
def test_right_sums_pass_only_with_rounding_towards_zero(rounds_down: bool) -> None:
    """The numbers of the trial tell the two ways of rounding apart."""

    def computed(*arguments: object) -> None:
        (unsigned, signed, factors, table), (total, scaled, found) = arguments[-2:]  # type: ignore[misc]
        found[:] = table[16:].reshape(-1)[unsigned]
        total += (unsigned.astype(np.int32) * signed).reshape(-1, 4).sum(1)
        exact = scaled * np.float64(factors[0]) + factors[-1]
        scaled[:] = exact.astype(np.float32)
        if rounds_down:
            scaled[:] = np.where(scaled > exact, np.nextafter(scaled, np.float32(0)), scaled)

    with mock.patch.object(dot_products, "run_once", computed):
        assert dot_products.works(mock.sentinel.context, AVX2) == rounds_down
