# SPDX-License-Identifier: Apache-2.0
"""Compilation caching of the OpenCL driver: other processes, damage, forgery, what comes from the files."""

from __future__ import annotations

import itertools
import json
import os
import random
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from cpu_driver.driver import Device as CpuDevice
from gpu_driver import cache_files
from gpu_driver.compilation_cache import Compiled, load, save
from gpu_driver.preparation import Preparation
from nn_runtime.codes import OperationCode
from nn_runtime.hal.dynamic_quantization import with_permission
from nn_runtime.hal.interfaces import CacheRequest
from nn_runtime.hal.types import ErrorStatus, ExecutionPreference, HalError, Priority
from nn_runtime.testing.random_graph import Size, compare, generate
from tests.gpu_driver.cached import TOKEN, Files, check
from tests.gpu_driver.cached import damaged as damage
from tests.gpu_driver.graphs import Graph, request
from tests.gpu_driver.running import doubling, ended, fresh, prepare, run, run_doubling, start_python
from tests.gpu_driver.test_control_flow import loop
from tests.nn_runtime.descriptors import needs_descriptors, open_descriptors

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence

    from gpu_driver.driver import Device
    from gpu_driver.prepared_model import PreparedModel
    from nn_runtime.hal.types import Model

BEST = ExecutionPreference.FAST_SINGLE_ANSWER
SHORT_TRIALS, LONG_TRIALS = 50, 1000
TRIALS_PER_PROCESS = 250


@pytest.fixture
def device(opencl_device: Device) -> Device:
    """The device under test, with a context and counts of its own."""
    return fresh(opencl_device)


def filled(device: Device, files: Files, model: Model | None = None) -> PreparedModel:
    model = model or doubling(3)
    prepared = device.prepare_model(model, BEST, Priority.LOW, None, files.request())
    assert device.statistics()["models_saved"] == 1
    return prepared


def refusal(device: Device, cache: CacheRequest) -> str:
    with pytest.raises(HalError) as caught:
        device.prepare_model_from_cache(None, cache)
    assert caught.value.status == ErrorStatus.GENERAL_FAILURE
    return str(caught.value)


# Other processes

_CHECK = "from tests.gpu_driver.cached import *\ncheck(device, {folder!r})\n"
_TELL = """
names = "programs_built", "programs_loaded", "models_saved", "models_from_cache"
print(*(device.statistics()[name] for name in names))
"""


def counts_of(started: subprocess.Popen[str], *, warns: bool = False) -> list[int]:
    """Return what a process counted; `warns`: it has built programs that it could not keep, and said so once."""
    status, out, err = ended(started)
    assert (status, err.count("\n")) == (0, int(warns)), err
    assert ("programs cannot be kept in" in err) == warns
    return [int(word) for word in out.split()]


def own_cache(folder: Path, *, with_programs: bool) -> Path:
    """Return a folder for the driver's own cache, which takes no programs where a file is in their place."""
    folder.mkdir()
    if not with_programs:
        (folder / "programs").touch()
    return folder


@pytest.fixture(params=[True, False], ids=["with program cache", "without"])
def own(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return own_cache(tmp_path / "own", with_programs=request.param)


def test_another_process_prepares_without_building(
    opencl_device: Device, tmp_path: Path, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "kept"
    folder.mkdir()
    code = _CHECK.format(folder=str(folder)) + _TELL
    monkeypatch.setenv("POCL_CACHE_DIR", str(tmp_path / "pocl1"))
    built, _, *models = counts_of(start_python(code, opencl_device, own), warns=(own / "programs").is_file())
    assert built
    assert models == [1, 0]
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert len(before) == 2
    monkeypatch.setenv("POCL_CACHE_DIR", str(tmp_path / "pocl2"))
    for path in own.glob("programs/*.bin"):
        path.unlink()
    assert counts_of(start_python(code, opencl_device, own)) == [0, built, 0, 1]
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_processes_at_once_on_one_cache(opencl_device: Device, tmp_path: Path) -> None:
    own = own_cache(tmp_path / "own", with_programs=True)
    code = _CHECK.format(folder=str(tmp_path)) + _TELL
    first = [start_python(code, opencl_device, own) for _ in range(3)]
    counts = [counts_of(started) for started in first]
    assert any(saved for _, _, saved, _ in counts)
    second = [start_python(code, opencl_device, own) for _ in range(3)]
    assert [counts_of(started)[2:] for started in second] == [[0, 1]] * 3


def test_folders_that_cannot_be_written(opencl_device: Device, tmp_path: Path) -> None:
    own = own_cache(tmp_path / "own", with_programs=True)
    folder = tmp_path / "kept"
    folder.mkdir()
    check(fresh(opencl_device), folder)
    for path in folder.iterdir():
        path.chmod(0o400)
    folder.chmod(0o500)
    try:
        *_, saved, found = counts_of(start_python(_CHECK.format(folder=str(folder)) + _TELL, opencl_device, own))
        assert (saved, found) == (0, int(os.geteuid() == 0))  # the administrator writes everywhere
    finally:
        folder.chmod(0o700)
    missing = str(tmp_path / "own" / "programs" / "missing")
    status, out, err = ended(start_python(_CHECK.format(folder=missing) + _TELL, opencl_device, own))
    assert (status, out.split()[2:]) == (0, ["0", "0"])
    assert "no compilation cache" in err


def test_a_driver_in_a_process_of_its_own(
    opencl_device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = own_cache(tmp_path / "own", with_programs=False)
    monkeypatch.setenv("NNRT_DRIVER_HOST", "process")
    code = _CHECK.format(folder=str(tmp_path)) + _TELL + "assert type(device).__name__ == 'RemoteDevice'"
    built, _, *models = counts_of(start_python(code, opencl_device, own), warns=True)
    assert built
    assert models == [1, 0]
    assert counts_of(start_python(code, opencl_device, own)) == [0, built, 0, 1]


# Damage, in another process, so that a crash is seen

_DAMAGE = """
import random
from pathlib import Path
generator = random.Random({seed})
for at in range({trials}):
    device = Device(device._found, 0)  # a new context, so that binaries are made into programs again
    path = generator.choice(sorted(path for path in Path({folder!r}).iterdir()))
    path.write_bytes(damaged(path.read_bytes(), generator))
    check(device, {folder!r})
    counts = device.statistics()
    assert (counts["models_saved"], counts["models_from_cache"]) == (1, 0), (at, counts)
    if at % 10 == 0:
        device = Device(device._found, 0)
        check(device, {folder!r})
        counts = device.statistics()
        assert (counts["models_saved"], counts["models_from_cache"]) == (0, 1), (at, counts)
"""
_FORGERY = """
import random
from pathlib import Path
generator = random.Random({seed})
path = max(Path({folder!r}).iterdir(), key=lambda path: path.name[-2:] == "10")
whole = path.read_bytes()
for at in range({trials}):
    device = Device(device._found, 0)
    path.write_bytes(forged(whole, generator))
    survives(device, {folder!r})
"""


def trials(is_long: bool) -> list[int]:
    """Return how many trials each process makes."""
    if not is_long:
        return [SHORT_TRIALS]
    return [TRIALS_PER_PROCESS] * (LONG_TRIALS // TRIALS_PER_PROCESS)


@pytest.mark.parametrize("code", [_DAMAGE, _FORGERY], ids=["damage", "forgery"])
def test_no_damage_crashes_and_none_gives_a_wrong_result(
    opencl_device: Device, tmp_path: Path, is_long: bool, code: str
) -> None:
    own = own_cache(tmp_path / "own", with_programs=True)
    kept = tmp_path / "kept"
    kept.mkdir()
    for seed, count in enumerate(trials(is_long)):
        filling = _CHECK.format(folder=str(kept))
        script = filling + code.format(folder=str(kept), seed=seed, trials=count)
        status, _, err = ended(start_python(script, opencl_device, own))
        assert (status, err) == (0, ""), f"seed {seed}"


# The driver


def test_the_priority_and_the_result_come_from_the_files(device: Device, files: Files) -> None:
    filled(device, files).close()
    prepared = device.prepare_model_from_cache(None, files.request())
    assert prepared.priority == Priority.LOW
    run_doubling(prepared, 3)
    assert device.statistics()["models_from_cache"] == 1


@pytest.mark.parametrize("allowed", [False, True])
def test_the_permission_to_compute_on_bytes_comes_from_the_files(device: Device, files: Files, allowed: bool) -> None:
    attributes = with_permission((), allowed)
    device.prepare_model_with_attributes(doubling(3), BEST, Priority.LOW, None, files.request(), attributes).close()
    assert load(files.request(), device.profile).how.quantizes_inputs == allowed


def test_what_was_checked_is_what_is_used(device: Device, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files change between the moment they are read and the moment they are checked."""
    filled(device, files).close()
    read = cache_files.read_descriptor

    def read_and_spoil(fd: int, limit_bytes: int | None = None) -> bytes:
        data = read(fd, limit_bytes)
        cache_files.rewrite_descriptor(fd, b"\0" * len(data))
        return data

    monkeypatch.setattr(cache_files, "read_descriptor", read_and_spoil)
    other = fresh(device)
    run_doubling(other.prepare_model_from_cache(None, files.request()), 3)
    assert other.statistics()["programs_built"] == 0
    assert "damaged" in refusal(other, files.request())


@pytest.mark.parametrize(
    "wrong",
    ["none", "two model files", "no data file", "short token", "read-only", "write-only", "closed", "-1", str(1 << 40)],
)
def test_wrong_arguments(device: Device, files: Files, wrong: str) -> None:
    good = files.request()
    read_only, write_only = os.open(files.model, os.O_RDONLY), os.open(files.model, os.O_WRONLY)
    closed = os.open(files.data, os.O_RDWR)
    os.close(closed)
    cache = {
        "none": CacheRequest((), (), TOKEN),
        "two model files": replace(good, model_files=good.model_files * 2),
        "no data file": replace(good, data_files=()),
        "short token": replace(good, token=TOKEN[1:]),
        "read-only": replace(good, model_files=(read_only,)),
        "write-only": replace(good, model_files=(write_only,)),
        "closed": replace(good, data_files=(closed,)),
        "-1": replace(good, data_files=(-1,)),
        str(1 << 40): replace(good, data_files=(1 << 40,)),
    }[wrong]
    run_doubling(device.prepare_model(doubling(3), BEST, Priority.LOW, None, cache), 3)
    assert device.statistics()["models_saved"] == 0
    with pytest.raises(HalError) as caught:
        device.prepare_model_from_cache(None, cache)
    is_access = wrong in ("read-only", "write-only", "closed", "-1", str(1 << 40))
    assert caught.value.status == (ErrorStatus.GENERAL_FAILURE if is_access else ErrorStatus.INVALID_ARGUMENT)
    os.close(read_only)
    os.close(write_only)


def test_programs_of_other_sources_are_refused(
    device: Device, files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NNRT_CACHE_DIR", str(own_cache(tmp_path / "own", with_programs=False)))
    filled(device, files).close()
    other = fresh(device)
    cache = other.context().programs
    source = cache._source
    monkeypatch.setattr(cache, "_source", lambda name: source(name) + "\n")
    assert "lacks programs" in refusal(other, files.request())


def test_a_binary_that_the_driver_refuses_is_no_program(device: Device, files: Files) -> None:
    model = doubling(3)
    prepared = filled(device, files)
    binaries = {program.key: b"rubbish" for program in prepared.programs}
    assert save(files.request(), device.profile, Compiled(model, Preparation(priority=Priority.LOW), binaries))
    other = fresh(device)
    assert "lacks programs" in refusal(other, files.request())
    run_doubling(prepare(other, model), 3)


def test_a_deadline_ends_a_preparation_from_cache(device: Device, files: Files) -> None:
    filled(device, files).close()
    with pytest.raises(HalError) as caught:
        device.prepare_model_from_cache(1, files.request())
    assert caught.value.status == ErrorStatus.MISSED_DEADLINE_PERSISTENT


def test_a_constant_is_not_taken_from_memory_that_changes_later(device: Device, files: Files) -> None:
    """What is saved is what was prepared."""
    graph = Graph()
    factor = np.full(16, 3, np.float32)
    source, output = graph.input((3, 16)), graph.output((3, 16))
    graph.operation(OperationCode.MUL, [source, graph.constant(factor), graph.integer(0)], output)
    filled(device, files, graph.model()).close()
    factor[:] = 0
    data, result = np.ones((3, 16), np.float32), np.zeros((3, 16), np.float32)
    run(device.prepare_model_from_cache(None, files.request()), request([data], [result]))
    np.testing.assert_array_equal(result, 3 * data)


class ThroughCache:
    """The device, which prepares every model from the cache that it has just written."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self.name = device.name
        self.get_supported_operations = device.get_supported_operations
        self.explain_operations = device.explain_operations

    def prepare_model(
        self,
        model: Model,
        preference: ExecutionPreference,
        priority: Priority,
        deadline_ns: int | None,
        cache: CacheRequest | None,
    ) -> PreparedModel:
        with tempfile.TemporaryDirectory() as folder:
            files = Files(Path(folder))
            try:
                self._device.prepare_model(model, preference, priority, deadline_ns, files.request()).close()
                return self._device.prepare_model_from_cache(deadline_ns, files.request())
            finally:
                files.close()


def test_random_graphs_through_the_cache(device: Device, is_long: bool) -> None:
    through = ThroughCache(device)
    for size, seed in itertools.product((Size.SINGLE, Size.SMALL), range(100 if is_long else 10)):
        graph = generate(1000 + seed, size, CpuDevice(), others=[device])
        problem = compare(graph, CpuDevice(), through)  # type: ignore[arg-type]
        assert not problem, f"{size} {seed} ({', '.join(graph.operation_names)}): {problem}"
    counts = device.statistics()
    assert counts["models_from_cache"] == counts["models_saved"] > 0


@pytest.mark.parametrize("unknown", [False, True])
def test_control_flow_and_unknown_sizes_through_the_cache(device: Device, unknown: bool) -> None:
    model = loop(7, (2, 3), (0, 3) if unknown else None)
    inputs = np.zeros(1, np.float32), np.arange(6, dtype=np.float32).reshape(2, 3)
    results = []
    for driver in (CpuDevice(), ThroughCache(device)):
        outputs = [np.full_like(array, -1) for array in inputs]
        prepared = driver.prepare_model(model, BEST, Priority.MEDIUM, None, None)
        prepared.execute_synchronously(request(inputs, outputs), False, None, None)
        results.append(outputs)
    for reference, found in zip(*results, strict=True):
        np.testing.assert_array_equal(found, reference)


@needs_descriptors
def test_no_descriptor_is_kept(device: Device, tmp_path: Path) -> None:
    check(device, tmp_path)
    before = open_descriptors()
    for _ in range(5):
        check(device, tmp_path)
    assert open_descriptors() <= before


def test_the_command_line_tells_of_a_hit(
    opencl_device: Device, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from nn_runtime import demo
    from nn_runtime.cli import main

    network = Path(demo.__file__).parent / "digits_float.tflite"
    selector = f"opencl:{opencl_device.profile.slug}"
    counts: list[dict[str, int]] = []
    for _ in range(2):
        arguments: Sequence[str] = [
            "benchmark", str(network), "--device", selector, "--json", "--runs", "1", "--warmup", "1",
            "--cache-dir", str(tmp_path / "kept"),
        ]  # fmt: skip
        assert main(arguments) == 0
        counts.append(json.loads(capsys.readouterr().out)["statistics"][opencl_device.name])
    assert counts[1]["models_from_cache"] == counts[0]["models_from_cache"] + 1
    assert counts[1]["models_saved"] == counts[0]["models_saved"]
    assert len(list((tmp_path / "kept").iterdir())) == 2


def test_damaging_damages() -> None:
    """Whatever is done to a file in these tests changes it."""
    generator = random.Random(1)
    data = bytes(range(256)) * 4
    assert all(damage(data, generator) != data for _ in range(200))
