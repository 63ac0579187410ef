# SPDX-License-Identifier: Apache-2.0
"""The device of the OpenCL driver as other processes and the end of the interpreter see it; its cache of programs."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import numpy as np
import pyopencl as cl
import pytest

from gpu_driver import cache_files
from gpu_driver.driver import Device, devices
from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.hal.interfaces import ReportsStatistics
from nn_runtime.hal.types import ErrorStatus, ExecutionPreference, HalError, Priority
from tests.gpu_driver.graphs import Graph
from tests.gpu_driver.running import MISSED, doubling, ended, fresh, prepare, run_doubling, start_python

if TYPE_CHECKING:
    from pathlib import Path


def test_nothing_is_opened_before_the_first_model(opencl_device: Device) -> None:
    device = fresh(opencl_device)
    assert isinstance(device, ReportsStatistics)
    supported = device.explain_operations(doubling(2))
    assert [(one.supported, one.reason) for one in supported] == [(True, "")] * 2
    assert device.get_capabilities() == opencl_device.get_capabilities()
    assert device.statistics() == {}


def test_platforms_are_counted_as_pyopencl_does() -> None:
    listed = cl.get_platforms()
    found = [one.description() if isinstance(one, Device) else one.description for one in devices()]
    assert found
    for one in found:
        platform = listed[one.platform_index]
        assert (platform.name.strip(), platform.version.strip()) == (one.platform_name, one.platform_version)
        assert one.device_name in [device.name.strip() for device in platform.get_devices()]


@pytest.mark.parametrize(("preference", "priority"), [(3, 1), (1, 3), (-1, 1), (1, -1)])
def test_unknown_preferences_and_priorities_are_refused(opencl_device: Device, preference: int, priority: int) -> None:
    with pytest.raises(HalError) as caught:
        opencl_device.prepare_model(doubling(2), preference, priority, None, None)  # type: ignore[arg-type]
    assert caught.value.status == ErrorStatus.INVALID_ARGUMENT


def test_a_deadline_ends_a_preparation(opencl_device: Device) -> None:
    best = ExecutionPreference.FAST_SINGLE_ANSWER
    with pytest.raises(HalError) as caught:
        opencl_device.prepare_model(doubling(2), best, Priority.LOW, time.monotonic_ns(), None)
    assert caught.value.status == ErrorStatus.MISSED_DEADLINE_PERSISTENT
    with opencl_device.context().preparations.slot(Priority.LOW), pytest.raises(HalError) as caught:
        opencl_device.prepare_model(doubling(2), best, Priority.HIGH, time.monotonic_ns() + 5_000_000, None)
    assert caught.value.status in MISSED
    run_doubling(prepare(opencl_device, doubling(2)), 2)


def test_an_operand_that_kernels_cannot_index_is_named(opencl_device: Device) -> None:
    graph = Graph()
    large = (2**16, 2**15), OperandCode.TENSOR_QUANT8_ASYMM, 1.0
    graph.operation(OperationCode.RELU, [graph.input(*large)], graph.output(*large))
    reason = opencl_device.explain_operations(graph.model())[0].reason
    assert reason == "operand 0 has more than 2^30 elements, which kernels cannot index"


def test_a_closed_device_opens_again(opencl_device: Device) -> None:
    device = fresh(opencl_device)
    before = prepare(device, doubling(3))
    device.close()
    assert device.statistics() == {}
    run_doubling(prepare(device, doubling(3)), 3)
    run_doubling(before, 3)


# Other processes

_RUN = """
run_doubling(prepare(device, doubling(5)), 5)
source = np.arange(6, dtype=np.float32).reshape(2, 3)
result = np.empty((3, 2), np.float32)
run(prepare(device, transposing()), request([source], [result]))
assert np.array_equal(result, source.T)
"""
_TELL = """
statistics = device.statistics()
print(*(statistics[f"programs_{name}"] for name in ("built", "loaded", "stored")))
"""


def _stored_at_once(device: Device, count: int) -> int:
    """Return how many of so many programs are stored before the process ends: reading a binary makes PoCL compile."""
    return 0 if device.profile.slug == "pocl" else count


def test_processes_fill_one_cache_at_once(opencl_device: Device, tmp_path: Path) -> None:
    started = [start_python(_RUN + _TELL, opencl_device, tmp_path) for _ in range(4)]
    for process in started:
        status, out, err = ended(process)
        assert (status, err) == (0, "")
        built, loaded, stored = map(int, out.split())
        assert built + loaded == 2
        assert stored == _stored_at_once(opencl_device, built)
    files = {path.suffix for path in (tmp_path / "programs").iterdir() if path.name != ".lock"}
    assert files == {".bin"}
    assert ended(start_python(_RUN + _TELL, opencl_device, tmp_path)) == (0, "0 2 0\n", "")


_DAMAGED = """
import random
from pathlib import Path
from nn_runtime.hal.cache_folder import cache_directory
generator = random.Random({seed})
path = sorted((cache_directory() / "programs").glob("*.bin"))[{seed} % 2]
whole = path.read_bytes()
for at in range(8):
    data = bytearray(whole)
    position = generator.randrange(len(data))
    if at % 2:
        del data[position:]
    else:
        data[position] ^= 1 << generator.randrange(8)
    path.write_bytes(data)
    device = Device(device._found, 0)
    {run}
    device.context().programs.store_kept()
    assert device.statistics()["programs_built"] == device.statistics()["programs_stored"] == 1
    assert device.statistics()["programs_loaded"] == 1
"""


@pytest.mark.parametrize("seed", range(2))
def test_damage_at_any_place_means_a_new_build(opencl_device: Device, tmp_path: Path, seed: int) -> None:
    assert ended(start_python(_RUN, opencl_device, tmp_path)) == (0, "", "")
    code = _DAMAGED.format(seed=seed, run=_RUN.strip().replace("\n", "\n    "))
    assert ended(start_python(code, opencl_device, tmp_path)) == (0, "", "")


def test_other_files_of_the_cache_may_be_damaged(opencl_device: Device, tmp_path: Path) -> None:
    """Verdicts of the probe too, and names that are folders."""
    assert ended(start_python(_RUN, opencl_device, tmp_path)) == (0, "", "")
    generator = random.Random(7)
    for path in sorted(tmp_path.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            path.write_bytes(data[: generator.randrange(len(data) + 1)])
    program = next((tmp_path / "programs").glob("*.bin"))
    program.unlink()
    program.mkdir()
    assert ended(start_python(_RUN, opencl_device, tmp_path)) == (0, "", "")


def test_sealed_rubbish_is_refused_by_the_driver_or_built_again(opencl_device: Device, tmp_path: Path) -> None:
    """A whole file whose contents are no program: an error of OpenCL, and a build."""
    assert ended(start_python(_RUN, opencl_device, tmp_path)) == (0, "", "")
    for path in (tmp_path / "programs").glob("*.bin"):
        path.write_bytes(cache_files.seal(b"rubbish"))
    status, out, _ = ended(start_python(_RUN + _TELL, opencl_device, tmp_path))
    assert (status, out) == (0, f"2 0 {_stored_at_once(opencl_device, 2)}\n")
    assert ended(start_python(_RUN + _TELL, opencl_device, tmp_path)) == (0, "0 2 0\n", "")


@pytest.mark.parametrize("folder", ["/dev/null/cache", "/proc/nowhere"])
def test_a_cache_that_cannot_be_written(opencl_device: Device, folder: str) -> None:
    status, out, said = ended(start_python(_RUN + _TELL, opencl_device, folder))
    assert (status, out) == (0, "2 0 0\n")
    assert said.count("\n") == 1
    assert said.startswith(f"programs cannot be kept in {folder}/programs (")


_FORKED = """
import os
prepared = prepare(device, doubling(5))
run_doubling(prepared, 5)
buffer, _ = device.allocate(BufferDesc(), [prepared], [BufferRole(0, 0, 1.0)], [])
memory = filled(np.ones((5, 16), np.float32))
buffer.copy_from(memory, ())
asked = request([np.ones((5, 16), np.float32)], [np.empty((5, 16), np.float32)])
bound = prepared.create_reusable_execution(asked, False, None)
bound.execute_synchronously(None)
def refused(call):
    try:
        call()
    except HalError as error:
        assert error.status == ErrorStatus.DEVICE_UNAVAILABLE, error
        assert "OpenCL was started before this process was forked" in str(error), error
    else:
        raise AssertionError("not refused")
child = os.fork()
if child == 0:
    refused(lambda: run_doubling(prepared, 5))
    refused(lambda: prepared.execute_profiled(asked, None, None))
    refused(lambda: prepared.execute_fenced(asked, (), False, None, None, None))
    refused(lambda: bound.execute_synchronously(None))
    refused(lambda: bound.execute_profiled(None))
    refused(lambda: prepare(device, doubling(5)))
    refused(lambda: buffer.copy_to(memory))
    refused(lambda: buffer.copy_from(memory, ()))
    refused(lambda: device.allocate(BufferDesc(), [prepared], [BufferRole(0, 0, 1.0)], []))
    {end}
else:
    assert os.waitpid(child, 0)[1] == 0
    run_doubling(prepared, 5)
"""
_IMPORTS = "from nn_runtime.hal.types import BufferDesc, BufferRole, ErrorStatus, HalError\n"


@pytest.mark.parametrize("end", ["sys.exit(0)", "os._exit(0)", "del prepared, device, buffer; sys.exit(0)"])
def test_a_forked_child_is_refused_and_ends_well(opencl_device: Device, end: str) -> None:
    assert ended(start_python(_IMPORTS + _FORKED.format(end=end), opencl_device)) == (0, "", "")


def test_a_child_forked_after_the_search_for_devices_is_refused(opencl_device: Device) -> None:
    """PoCL's threads are not there any more: it would wait for them for ever."""
    code = """
import os
child = os.fork()
if child == 0:
    try:
        prepare(device, doubling(5))
    except HalError as error:
        assert "OpenCL was started before this process was forked" in str(error), error
        sys.exit(0)
    sys.exit(1)
assert os.waitpid(child, 0)[1] == 0
run_doubling(prepare(device, doubling(5)), 5)
"""
    assert ended(start_python(_IMPORTS + code, opencl_device)) == (0, "", "")


# The end of the interpreter

_ENDINGS = {
    "models alive": """
kept = [prepare(device, doubling(rows)) for rows in range(1, 4)]
for rows, prepared in enumerate(kept, 1):
    run_doubling(prepared, rows)
""",
    "models in a cycle": """
prepared = prepare(device, doubling(5))
run_doubling(prepared, 5)
cycle = [prepared, device.context()]
cycle.append(cycle)
del prepared
""",
    "threads that run": """
import threading, time
prepared = prepare(device, doubling(4096))
started = threading.Barrier(7)
def work():
    run_doubling(prepared, 4096)
    started.wait()
    while True:
        run_doubling(prepared, 4096)
for _ in range(6):
    threading.Thread(target=work, daemon=True).start()
started.wait()
time.sleep(0.05)
""",
    "threads that prepare": """
import threading, time
def work(rows):
    while True:
        run_doubling(prepare(Device(device._found, 0), doubling(rows)), rows)
run_doubling(prepare(device, doubling(4)), 4)
for rows in range(1, 4):
    threading.Thread(target=work, args=(rows,), daemon=True).start()
time.sleep(0.2)
""",
    "threads that copy": """
import threading, time
from nn_runtime.hal.types import BufferDesc, BufferRole
prepared = prepare(device, doubling(4096))
buffer, _ = device.allocate(BufferDesc(), [prepared], [BufferRole(0, 0, 1.0)], [])
memory = filled(np.ones((4096, 16), np.float32))
def work():
    while True:
        buffer.copy_from(memory, ())
        buffer.copy_to(memory)
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.1)
""",
    "a thread that finishes": """
import threading, time
prepared = prepare(device, doubling(4096))
def work():
    for _ in range(50):
        run_doubling(prepared, 4096)
threading.Thread(target=work).start()
""",
    "a late callback": """
import atexit, gpu_driver.driver
from nn_runtime.hal.types import HalError
prepared = None
def late():
    try:
        run_doubling(prepared, 5)
    except HalError as error:
        assert str(error) == "the interpreter is ending", error
    else:
        raise AssertionError("it ran")
atexit._clear()
atexit.register(late)
prepared = prepare(device, doubling(5))
run_doubling(prepared, 5)
""",
}


@pytest.mark.parametrize("ending", _ENDINGS)
def test_the_interpreter_ends_well(opencl_device: Device, ending: str) -> None:
    assert ended(start_python(_ENDINGS[ending], opencl_device)) == (0, "", "")


def test_an_interrupted_program_ends_by_the_interruption_alone(opencl_device: Device) -> None:
    code = _ENDINGS["threads that run"] + "raise KeyboardInterrupt"
    _, _, err = ended(start_python(code, opencl_device))
    assert err.splitlines()[-1] == "KeyboardInterrupt"
    assert "terminate" not in err


def test_numbers_of_running_models_do_not_matter_to_the_end(opencl_device: Device) -> None:
    """As above, on purpose at different moments of the runs."""
    for delay in (0.0, 0.003, 0.011):
        code = _ENDINGS["threads that run"].replace("time.sleep(0.05)", f"time.sleep({delay})")
        assert ended(start_python(code, opencl_device)) == (0, "", "")


def test_results_do_not_depend_on_the_process(opencl_device: Device) -> None:
    code = """
source = np.random.default_rng(1).standard_normal((5, 16)).astype(np.float32)
result = np.empty((5, 16), np.float32)
run(prepare(device, doubling(5)), request([source], [result]))
print(result.tobytes().hex())
"""
    status, out, err = ended(start_python(code, opencl_device))
    expected = 2 * np.random.default_rng(1).standard_normal((5, 16)).astype(np.float32)
    assert (status, err) == (0, "")
    assert bytes.fromhex(out) == expected.tobytes()
