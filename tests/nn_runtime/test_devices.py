# SPDX-License-Identifier: Apache-2.0
"""The list of devices, selectors, and drivers that fail to load."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING

import pytest

import nn_runtime
from nn_runtime.codes import DeviceTypeCode, FeatureLevel
from nn_runtime.device import REFERENCE_NAME, Device
from nn_runtime.devices import find_device, select, selector_in_force
from nn_runtime.errors import BadData, DeadObject, NNError, OperationFailed, SelectorError, UnavailableDevice
from nn_runtime.hal.interfaces import DeviceDescription, UnusableDevice
from nn_runtime.hal.types import DeviceStatus, ErrorStatus, HalError
from nn_runtime.network import Network
from nn_runtime.testing.sample_drivers import SampleDevice
from tests.nn_runtime.test_network import adding_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from nn_runtime.hal.interfaces import IDevice


devices_module = importlib.import_module("nn_runtime.devices")
device_module = importlib.import_module("nn_runtime.device")


def described(slug: str, platform: int, name: str, kind: DeviceTypeCode) -> DeviceDescription:
    return DeviceDescription(
        slug, platform, f"The {slug} platform", f"{slug} makers", f"OpenCL 3.0 {slug} 3.0", name, "Chips", "1.2", kind
    )


class DescribedDevice(SampleDevice):
    def __init__(self, name: str, description: DeviceDescription) -> None:
        super().__init__(name)
        self._description = description

    def get_type(self) -> DeviceTypeCode:
        return self._description.type

    def description(self) -> DeviceDescription:
        return self._description


CPU, GPU = DeviceTypeCode.CPU, DeviceTypeCode.GPU


def opencl_devices() -> list[IDevice | UnusableDevice]:
    return [
        DescribedDevice("opencl-nvidia-0", described("nvidia", 1, "Tesla", GPU)),
        DescribedDevice("opencl-pocl-0", described("pocl", 0, "Ryzen", CPU)),
        DescribedDevice("opencl-nvidia-1", described("nvidia", 1, "Quadro", GPU)),
        UnusableDevice("opencl-pocl-1", "kernels do not build", described("pocl", 2, "old Ryzen", CPU)),
        UnusableDevice("opencl-mesa-0", "the answer was wrong", described("mesa", 3, "llvmpipe", CPU)),
    ]


@dataclass
class FakeEntryPoint:
    offer: Callable[[], list[IDevice | UnusableDevice]]

    def load(self) -> Callable[[], list[IDevice | UnusableDevice]]:
        return self.offer


def broken_driver() -> list[IDevice | UnusableDevice]:
    raise ImportError("no libOpenCL.so.1")


@pytest.fixture
def drivers(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, FakeEntryPoint]]:
    """Replace the installed drivers by a fake `opencl` one; more may be added."""
    entries = {"opencl": FakeEntryPoint(opencl_devices)}
    monkeypatch.setattr(devices_module, "_entry_points", lambda: entries)
    monkeypatch.delenv("NNRT_DEVICE", raising=False)
    monkeypatch.delenv("PYOPENCL_CTX", raising=False)
    devices_module._loaded.cache_clear()
    yield entries
    devices_module._loaded.cache_clear()


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("cpu", [REFERENCE_NAME]),
        ("nnapi-reference", [REFERENCE_NAME]),
        ("opencl", ["opencl-nvidia-0"]),
        ("opencl,cpu", ["opencl-nvidia-0", REFERENCE_NAME]),
        ("cpu,opencl", [REFERENCE_NAME, "opencl-nvidia-0"]),
        ("opencl:pocl", ["opencl-pocl-0"]),
        ("opencl:PoCL 3.0", ["opencl-pocl-0"]),
        ("opencl:0", ["opencl-pocl-0"]),
        ("opencl:1::1", ["opencl-nvidia-1"]),
        ("opencl::gpu:1", ["opencl-nvidia-1"]),
        ("opencl::cpu", ["opencl-pocl-0"]),
        ("opencl:::quadro", ["opencl-nvidia-1"]),
        ("opencl:*", ["opencl-nvidia-0", "opencl-pocl-0", "opencl-nvidia-1"]),
        ("opencl:pocl,opencl:nvidia", ["opencl-pocl-0", "opencl-nvidia-0"]),
        ("opencl:nvidia,opencl::gpu", ["opencl-nvidia-0"]),
        ("opencl-nvidia-1", ["opencl-nvidia-1"]),
    ],
)
def test_selectors(drivers: dict[str, FakeEntryPoint], selector: str, names: list[str]) -> None:
    selection = select(selector)
    assert [device.name for device in selection.devices] == names
    assert selection.strict == (REFERENCE_NAME not in names)


@pytest.mark.parametrize("driver", ["acme", "my-npu"])
@pytest.mark.parametrize("name", ["acme-npu", "my-npu-0", "NPU", "Other-0"])
def test_a_device_is_found_by_its_full_name_whatever_its_driver_is_called(
    drivers: dict[str, FakeEntryPoint], driver: str, name: str
) -> None:
    drivers[driver] = FakeEntryPoint(lambda: [SampleDevice(name)])
    assert [device.name for device in select(name).devices] == [name]
    assert find_device(name).name == name
    assert [device.name for device in select(f"{driver},cpu").devices] == [name, REFERENCE_NAME]


def test_a_driver_is_loaded_once_however_many_threads_ask(drivers: dict[str, FakeEntryPoint]) -> None:
    threads = 8
    loads: list[int] = []
    all_ask = threading.Barrier(threads)

    def slow_driver() -> list[IDevice | UnusableDevice]:
        loads.append(threading.get_ident())
        time.sleep(0.05)
        return opencl_devices()

    def ask(_: int) -> Device:
        all_ask.wait()
        return select("opencl").devices[0]

    drivers["opencl"] = FakeEntryPoint(slow_driver)
    with ThreadPoolExecutor(threads) as pool:
        found = list(pool.map(ask, range(threads)))
    assert len(loads) == 1
    assert all(device is found[0] for device in found)


def test_a_selector_that_matches_nothing_lists_what_there_is(drivers: dict[str, FakeEntryPoint]) -> None:
    with pytest.raises(UnavailableDevice) as caught:
        select("opencl:amd")
    message = str(caught.value)
    assert "'opencl:amd' matches no usable device" in message
    for name in ("opencl-nvidia-0 (Tesla, GPU)", "opencl-pocl-0 (Ryzen, CPU)", REFERENCE_NAME):
        assert name in message
    for wrong in ("opencl-pocl-9", "nonsense"):
        with pytest.raises(UnavailableDevice):
            select(wrong)


@pytest.mark.parametrize("selector", ["opencl:mesa", "opencl-mesa-0", "opencl::cpu:llvm"])
def test_a_device_that_cannot_be_used_gives_its_reason(drivers: dict[str, FakeEntryPoint], selector: str) -> None:
    with pytest.raises(UnavailableDevice, match="opencl-mesa-0 cannot be used: the answer was wrong") as caught:
        select(selector)
    assert str(caught.value).endswith("; nnrt doctor says more")
    assert "do not build" not in str(caught.value)


def test_all_reasons_are_given_where_any_device_was_meant(drivers: dict[str, FakeEntryPoint]) -> None:
    drivers["opencl"].offer = lambda: opencl_devices()[3:]
    with pytest.raises(UnavailableDevice, match=r"do not build.*answer was wrong"):
        select("opencl")


def test_a_missing_item_is_passed_over_with_a_warning(
    drivers: dict[str, FakeEntryPoint], caplog: pytest.LogCaptureFixture
) -> None:
    assert select("opencl:amd,cpu").devices[0].name == REFERENCE_NAME
    assert "'opencl:amd' matches no usable device" in caplog.text
    assert caplog.text.endswith(f"; taken: {REFERENCE_NAME}\n")


@pytest.mark.parametrize(
    ("selector", "hint"),
    [
        ("pocl", "; did you mean opencl:pocl?"),
        ("Nvidia:gpu", "; did you mean opencl:Nvidia:gpu?"),
        ("opencl:gpu", "; opencl::gpu means devices of that type"),
        ("toaster", ""),
    ],
)
def test_what_was_likely_meant(drivers: dict[str, FakeEntryPoint], selector: str, hint: str) -> None:
    with pytest.raises(UnavailableDevice) as caught:
        select(selector)
    assert ("did you mean" in str(caught.value) or "opencl::" in str(caught.value)) == bool(hint)
    assert hint in str(caught.value)


@pytest.mark.parametrize("selector", ["cpu:0", "CPU:pocl"])
def test_nothing_follows_the_cpu(drivers: dict[str, FakeEntryPoint], selector: str) -> None:
    with pytest.raises(UnavailableDevice, match="nothing follows 'cpu'; there are: cpu, opencl; opencl::cpu means"):
        select(selector)


@pytest.mark.parametrize(
    ("item", "is_usual"),
    [
        ("opencl", True),
        ("OpenCL", True),
        ("gpu", False),
        ("foo", False),
        ("opencl-amd-0", False),
        ("opencl;cpu", False),
    ],
)
def test_only_a_driver_without_devices_is_passed_over_in_silence(
    drivers: dict[str, FakeEntryPoint], caplog: pytest.LogCaptureFixture, item: str, is_usual: bool
) -> None:
    drivers["opencl"].offer = list
    assert select(f"{item},cpu").devices[0].name == REFERENCE_NAME
    assert (f"device selector {item!r} matches no usable device" not in caplog.text) == is_usual


def test_an_explanation_has_what_was_passed_over(drivers: dict[str, FakeEntryPoint]) -> None:
    drivers["opencl"].offer = list
    network = Network.from_model(adding_model(2, 3))
    with network.compile() as session, network.compile("cpu") as on_cpu:
        explanation = session.explain()
        assert on_cpu.explain().passed_over == ()
    assert explanation.passed_over == ("opencl",)
    assert str(explanation).endswith("\nopencl: no device of it can be used; nnrt doctor says why")


@pytest.mark.parametrize("selector", ["opencl,,cpu", "opencl:a:toaster", "opencl:a:gpu:0:1"])
def test_bad_syntax(drivers: dict[str, FakeEntryPoint], selector: str) -> None:
    with pytest.raises(BadData, match="selector"):
        select(selector)


@pytest.mark.parametrize(
    ("argument", "variables", "source"),
    [
        ("opencl:amd", {"NNRT_DEVICE": "cpu"}, "device="),
        (None, {"NNRT_DEVICE": "opencl:amd", "PYOPENCL_CTX": "0"}, "NNRT_DEVICE"),
        ("opencl:a:toaster", {}, "device="),
        (None, {"NNRT_DEVICE": "opencl,,cpu"}, "NNRT_DEVICE"),
    ],
)
def test_errors_say_where_the_selector_came_from(
    drivers: dict[str, FakeEntryPoint],
    monkeypatch: pytest.MonkeyPatch,
    argument: str | None,
    variables: dict[str, str],
    source: str,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SelectorError) as caught:
        select(argument)
    assert caught.value.source == source
    assert str(caught.value).startswith(f"{source}: device selector ")


def test_a_warning_says_where_the_selector_came_from(
    drivers: dict[str, FakeEntryPoint], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PYOPENCL_CTX", "7:1")
    assert [device.name for device in select().devices] == [REFERENCE_NAME]
    assert "PYOPENCL_CTX=7:1: device selector 'opencl:7::1' matches no usable device" in caplog.text


def test_a_driver_that_cannot_be_loaded_is_reported_and_not_fatal(
    drivers: dict[str, FakeEntryPoint], caplog: pytest.LogCaptureFixture
) -> None:
    drivers["broken"] = FakeEntryPoint(broken_driver)
    assert devices_module.devices()[-1].name == REFERENCE_NAME
    assert "driver broken could not be loaded" in caplog.text
    caplog.clear()
    with pytest.raises(UnavailableDevice, match=r"ImportError: no libOpenCL\.so\.1"):
        select("broken")
    assert caplog.text == ""
    assert select("broken,cpu").devices[0].name == REFERENCE_NAME
    assert "driver broken could not be loaded" in caplog.text


def exiting_driver() -> list[IDevice | UnusableDevice]:
    raise SystemExit(3)


@pytest.mark.parametrize(
    ("offer", "reason"),
    [
        (exiting_driver, "SystemExit: 3"),
        (lambda: None, "TypeError: 'NoneType' object is not iterable"),
        (lambda: 5, "TypeError: 'int' object is not iterable"),
    ],
)
def test_a_driver_that_offers_no_list_is_one_that_cannot_be_loaded(
    drivers: dict[str, FakeEntryPoint], offer: Callable[[], list[IDevice | UnusableDevice]], reason: str
) -> None:
    drivers["broken"] = FakeEntryPoint(offer)
    assert devices_module.devices()[-1].name == REFERENCE_NAME
    assert devices_module.listing("broken").failure == f"driver broken could not be loaded: {reason}"
    assert select("opencl").devices[0].name == "opencl-nvidia-0"


def test_a_driver_that_exits_as_it_is_asked_what_is_wrong(
    drivers: dict[str, FakeEntryPoint], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "exiting_driver.py").write_text("import sys\nsys.exit(3)\n")
    monkeypatch.syspath_prepend(tmp_path)
    drivers["exiting"] = EntryPoint("exiting", "exiting_driver:devices", devices_module.ENTRY_POINT_GROUP)  # type: ignore[assignment]
    assert "SystemExit: 3" in devices_module.listing("exiting").failure
    assert devices_module.diagnosis("exiting") is None


class Nameless(SampleDevice):
    @property
    def name(self) -> str:
        raise KeyError("name")

    @name.setter
    def name(self, name: str) -> None:
        pass


@pytest.mark.parametrize(
    ("item", "name", "reason"),
    [
        (1, "1", "device without a name: it does not answer its queries: name: the driver failed with AttributeError"),
        (Nameless("lost"), "Nameless", "name: the driver failed with KeyError: 'name'"),
        (SampleDevice("old", feature_level="1.3"), "old", "wanted an int from the driver, got '1.3'"),  # type: ignore[arg-type]
        (UnusableDevice("odd", 5), "odd", "the reason of odd: wanted a str from the driver, got 5"),  # type: ignore[arg-type]
        (UnusableDevice("odd", "lost", None), "odd", "description: wanted a DeviceDescription"),  # type: ignore[arg-type]
        (UnusableDevice("plain", "of which nothing is known"), "plain", "of which nothing is known"),
    ],
)
def test_what_is_no_device_is_listed_as_unusable(
    drivers: dict[str, FakeEntryPoint], item: IDevice, name: str, reason: str
) -> None:
    drivers["acme"] = FakeEntryPoint(lambda: [item, SampleDevice("acme-0")])
    offered = devices_module.listing("acme")
    assert [device.name for device in offered.devices] == ["acme-0"]
    (unusable,) = offered.unusable
    assert unusable.name == name
    assert reason in unusable.reason
    assert select("acme").devices[0].name == "acme-0"
    with pytest.raises(UnavailableDevice) as caught:
        select("acme::gpu")
    assert "matches no usable device" in str(caught.value)


def test_the_default_works_without_any_driver(drivers: dict[str, FakeEntryPoint]) -> None:
    drivers.clear()
    assert [device.name for device in select().devices] == [REFERENCE_NAME]
    with pytest.raises(UnavailableDevice, match="no driver 'opencl' is installed; there are: cpu"):
        select("opencl")


def test_which_selector_is_in_force(drivers: dict[str, FakeEntryPoint], monkeypatch: pytest.MonkeyPatch) -> None:
    assert selector_in_force() == "opencl,cpu"
    monkeypatch.setenv("PYOPENCL_CTX", "0:1")
    assert selector_in_force() == "opencl:0::1,cpu"
    monkeypatch.setenv("NNRT_DEVICE", "cpu")
    assert selector_in_force() == "cpu"
    assert selector_in_force("opencl") == "opencl"


def test_the_list_has_unique_names_and_ends_with_the_cpu(drivers: dict[str, FakeEntryPoint]) -> None:
    drivers["second"] = FakeEntryPoint(lambda: [SampleDevice("twin"), SampleDevice("twin")])
    names = [device.name for device in nn_runtime.devices()]
    assert len(set(names)) == len(names)
    assert names[-1] == REFERENCE_NAME
    reference = nn_runtime.devices()[-1]
    assert reference.type == CPU
    assert reference.version
    assert reference.feature_level == nn_runtime.runtime_feature_level()
    reference.wait()
    assert not reference.extension_support("com.example.nothing")


def test_a_devices_level_is_at_most_the_runtimes() -> None:
    assert Device(SampleDevice("old", feature_level=28)).feature_level == 28
    assert Device(SampleDevice("new", feature_level=2**20)).feature_level == nn_runtime.runtime_feature_level()


@pytest.mark.parametrize(
    ("runtime", "driver"),
    [
        (FeatureLevel.LEVEL_8, FeatureLevel.HAL_1_1),
        (FeatureLevel.HAL_1_2, FeatureLevel.HAL_1_1),
        (FeatureLevel.HAL_1_1, FeatureLevel.HAL_1_1),
        (FeatureLevel.HAL_1_0, FeatureLevel.HAL_1_1),
        (FeatureLevel.LEVEL_8, FeatureLevel.HAL_1_3),
        (FeatureLevel.LEVEL_5, FeatureLevel.HAL_1_3),
        (FeatureLevel.HAL_1_3, FeatureLevel.HAL_1_3),
        (FeatureLevel.HAL_1_2, FeatureLevel.HAL_1_3),
        (FeatureLevel.HAL_1_1, FeatureLevel.HAL_1_3),
    ],
)
def test_the_level_shown_is_the_lower_one(monkeypatch: pytest.MonkeyPatch, runtime: int, driver: int) -> None:
    """AOSP WhiteboxFeatureLevelTest."""
    monkeypatch.setattr(device_module, "RUNTIME_FEATURE_LEVEL", runtime)
    assert Device(SampleDevice("sample", feature_level=driver)).feature_level == min(runtime, driver)


class WithStatus(SampleDevice):
    """A device of some status, or one that cannot tell."""

    status: DeviceStatus | None = DeviceStatus.AVAILABLE

    def get_status(self) -> DeviceStatus:
        if self.status is None:
            raise HalError(ErrorStatus.DEVICE_UNAVAILABLE, "gone")
        return self.status


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (HalError(ErrorStatus.DEAD_OBJECT, "dead"), DeadObject),
        (HalError(ErrorStatus.DEVICE_UNAVAILABLE, "gone"), OperationFailed),
        (ZeroDivisionError("foreign"), OperationFailed),
    ],
)
def test_waiting_for_a_device_that_fails(failure: Exception, error: type[NNError]) -> None:
    def fail() -> None:
        raise failure

    device = SampleDevice("sample")
    device.get_status = fail  # type: ignore[assignment, method-assign]
    with pytest.raises(error, match="device sample: "):
        Device(device).wait()


@pytest.mark.parametrize("status", [None, 77, "up"])
def test_waiting_for_a_device_of_no_status(status: object) -> None:
    device = SampleDevice("sample")
    device.get_status = lambda: status  # type: ignore[assignment, method-assign, return-value]
    with pytest.raises(OperationFailed, match="device sample: get_status: "):
        Device(device).wait()


def test_waiting_for_a_device() -> None:
    device = WithStatus("sample")
    Device(device).wait()
    for status in (DeviceStatus.OFFLINE, None):
        device.status = status
        with pytest.raises(OperationFailed, match="device sample"):
            Device(device).wait()
    reference = devices_module.reference_device()
    reference.wait()
    assert reference.version
    assert reference.type == DeviceTypeCode.CPU


@pytest.mark.skipif(os.name != "posix", reason="a script is no program here")
@pytest.mark.parametrize("is_there", [False, True])
def test_a_reference_device_whose_process_does_not_start_or_ends_at_once(
    is_there: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "python"
    if is_there:
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setenv("NNRT_DRIVER_HOST", "process")
    monkeypatch.setattr(devices_module, "_loaded_reference", devices_module._loaded_reference.__wrapped__)
    for call in (devices_module.reference_device, lambda: select("cpu")):
        with pytest.raises(UnavailableDevice, match=f"{REFERENCE_NAME}: .*process"):
            call()


IMPORT_COSTS = """
import sys
import nn_runtime.devices
assert "numpy" not in sys.modules and "pyopencl" not in sys.modules
from nn_runtime.devices import select
select("cpu")
nn_runtime.Compilation, nn_runtime.Execution, nn_runtime.Burst, nn_runtime.Memory
assert "pyopencl" not in sys.modules and "gpu_driver" not in sys.modules
assert callable(nn_runtime.devices)
"""

BARE_SYSTEM = """
import os, sys
for name in ("memfd_create", "eventfd", "EFD_CLOEXEC"):
    if hasattr(os, name):
        delattr(os, name)
sys.modules["pyopencl"] = None
import numpy as np
import nn_runtime as nn
model = nn.Model()
x, y = (model.add_operand(nn.OperandType(nn.OperandCode.TENSOR_FLOAT32, (64,))) for _ in range(2))
w = model.add_operand(nn.OperandType(nn.OperandCode.TENSOR_FLOAT32, (64,)))
f = model.add_operand(nn.OperandType(nn.OperandCode.INT32))
model.set_operand_value(w, np.ones(64, np.float32))
model.set_operand_value(f, 0)
model.add_operation(nn.OperationCode.ADD, [x, w, f], [y])
model.identify_inputs_and_outputs([x], [y])
model.finish()
compilation = nn.Compilation(model)
compilation.finish()
execution = nn.Execution(compilation)
output = np.zeros(64, np.float32)
execution.set_input_from_memory(0, nn.Memory.from_array(np.ones(64, np.float32)), 0, 256)
execution.set_output(0, output)
execution.compute()
assert (output == 2).all()
"""


def _python(script: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("NNRT_DEVICE", "PYOPENCL_CTX")}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_importing_is_cheap_and_asking_for_the_cpu_loads_no_opencl() -> None:
    _python(IMPORT_COSTS)


def test_a_system_without_opencl_and_memfd() -> None:
    _python(BARE_SYSTEM)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_forked_while_drivers_are_loaded_can_load_them() -> None:
    """The thread that held the lock does not exist in the child."""
    script = """
import os, sys, threading, warnings
warnings.simplefilter("ignore")
import nn_runtime.devices as devices
held, done = threading.Event(), threading.Event()
def hold():
    with devices._loading:
        held.set()
        done.wait()
thread = threading.Thread(target=hold)
thread.start()
held.wait()
child = os.fork()
if not child:
    os._exit(devices.reference_device().name != "nnapi-reference")
done.set()
thread.join()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
