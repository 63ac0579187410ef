# SPDX-License-Identifier: Apache-2.0
"""Runs our operation cases on Oclgrind, the OpenCL interpreter that finds out-of-bounds accesses and data races.

A process of its own, since the interpreter reads its settings once. Cases run plain, on a profile of a GPU and on one
of a CPU, since launchers choose kernels by that, and with the limits beyond which work is split set to nothing; only
those that bring a (program, kernel, local size) that too few brought before.

    python -m tests.platforms.oclgrind --per-launch 3                  # out of bounds, races
    python -m tests.platforms.oclgrind --per-launch 1 --uninitialized  # uninitialised reads: docs/PLATFORMS.md

It prints what was found; the exit status is 1 if that is anything.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import numpy as np

from gpu_driver.driver import Device, devices
from gpu_driver.launch import Launch
from gpu_driver.lowering import Lowering
from nn_runtime.codes import DeviceTypeCode
from nn_runtime.devices import Device as RuntimeDevice
from nn_runtime.hal.types import HalError
from nn_runtime.testing.conformance import HalRunner, Verdict, hal_model, run_example
from nn_runtime.testing.corpus import Kind
from tests.operations.cases import examples
from tests.platforms.launches import Launches, recorded
from tests.platforms.wide import operations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from nn_runtime.hal.types import Model
    from nn_runtime.testing.corpus import Example
    from tests.platforms.wide import Wide

ROOT = Path(__file__).parents[2]
_LIBRARY = "liboclgrind-rt-icd.so"
_MAX_ITEMS = 1 << 16
"""A case with more work-items is left out: the interpreter does about a million steps of a work-item in a second."""

_CHILD = "NNRT_TEST_OCLGRIND_CHILD"
"""Set for the process that runs the cases: "uninitialized" or "plain"."""
_SPLIT_LIMIT = "gpu_driver.recurrent._MOST_WEIGHTS_OF_ONE_GROUP"

FAULTS = {
    "read out of bounds": "kernel void fault(global int *a) { a[get_global_id(0)] = a[get_global_id(0) + 1]; }",
    "write out of bounds": "kernel void fault(global int *a) { a[get_global_id(0) + 1] = 0; }",
    "race of groups": "kernel void fault(global int *a) { a[0] += get_global_id(0); }",
    "race in a group": """
        kernel void fault(global int *a) {
            local int shared[2];
            shared[get_local_id(0)] = get_global_id(0);
            a[get_global_id(0)] = shared[1 - get_local_id(0)];
        }""",
}
"""Kernels that the interpreter must complain of, or its silence means nothing."""
UNINITIALIZED_FAULTS = {
    "uninitialised private memory": """
        kernel void fault(global int *a) {
            int x[4];
            for (int i = 0; i < a[0]; ++i)
                x[i & 3] = i;
            a[get_global_id(0)] = x[(a[0] + 1) & 3];
        }""",
    "uninitialised local memory": """
        kernel void fault(global int *a) {
            local int shared[4];
            shared[get_local_id(0)] = get_global_id(0);
            barrier(CLK_LOCAL_MEM_FENCE);
            a[get_global_id(0)] = shared[3 - get_local_id(0)];
        }""",
}
"""The same for uninitialised reads; the buffer holds zeros."""


@dataclass
class Findings:
    """What the interpreter said.

    `reports` and `failures` (wrong results): by example. `refused`: examples that the device does not take.
    `launched`, `contained`: "source kernel". `planted`: what it said of kernels with a fault.
    """

    examples: int = 0
    programs: int = 0
    launches: int = 0
    seconds: float = 0.0
    reports: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    launched: list[str] = field(default_factory=list)
    contained: list[str] = field(default_factory=list)
    planted: dict[str, str] = field(default_factory=dict)


def library() -> Path | None:
    """Return the interpreter's OpenCL library, or None where Oclgrind is not installed."""
    program = shutil.which("oclgrind")
    if program is None:
        return None
    prefix = Path(program).resolve().parent.parent
    return next(iter(sorted(prefix.glob(f"lib*/**/{_LIBRARY}"))), None)


def run(folder: Path, per_launch: int, uninitialized: bool = False) -> Findings:
    """Run the cases in a process of their own with `folder` for its files; raises RuntimeError where that fails."""
    found = library()
    if found is None:
        raise RuntimeError("Oclgrind is not installed")
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "NNRT_CACHE_DIR": str(folder), "OCL_ICD_VENDORS": str(found),
        "OCLGRIND_LOG": str(folder / "log.txt"), "OCLGRIND_DATA_RACES": "1", "OCLGRIND_MAX_ERRORS": "1000000",
    }  # fmt: skip
    if uninitialized:
        environment.update({"OCLGRIND_UNINITIALIZED": "1", "OCLGRIND_NUM_THREADS": "1"})
    environment[_CHILD] = "uninitialized" if uninitialized else "plain"
    command = [sys.executable, "-m", "tests.platforms.oclgrind", "--per-launch", str(per_launch)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"status {done.returncode}: {done.stderr[-4000:]}")
    return Findings(**json.loads(done.stdout))


def main() -> None:
    """Start the process that runs the cases, and print what it found; or be that process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--per-launch", type=int, default=1, help="cases per (program, kernel, local size)")
    parser.add_argument("--uninitialized", action="store_true", help="look for uninitialised reads instead")
    arguments = parser.parse_args()
    if _CHILD in os.environ:
        print(json.dumps(asdict(_findings(arguments.per_launch, os.environ[_CHILD] == "uninitialized"))))
        return
    with tempfile.TemporaryDirectory() as folder:
        findings = run(Path(folder), arguments.per_launch, arguments.uninitialized)
    for title, found in (("report", findings.reports), ("wrong result", findings.failures)):
        for name, text in found.items():
            print(f"{title}: {name}: {text.strip()}\n")
    silent = [name for name, report in findings.planted.items() if not report]
    missing = sorted(set(findings.contained) - set(findings.launched))
    print(f"{findings.examples} runs, {findings.programs} programs, {findings.launches} launches")
    print(f"{len(findings.contained)} kernels, not run: {missing}; planted faults not found: {silent}")
    print(f"{len(findings.reports)} reports, {len(findings.failures)} wrong results")
    sys.exit(bool(findings.reports or findings.failures or missing or silent))


def _findings(per_launch: int, uninitialized: bool) -> Findings:
    start = time.monotonic()
    findings = Findings()
    device = next((device for device in devices() if isinstance(device, Device)), None)
    if device is None:
        raise RuntimeError("this Oclgrind cannot run the test kernel with these checks")
    cases = list(examples())
    launches = Launches()
    seen: Counter[object] = Counter()
    with recorded(launches), _for_uninitialized() if uninitialized else contextlib.nullcontext():
        for code in (DeviceTypeCode.GPU, DeviceTypeCode.CPU):
            variant = _with_type(device, code)
            for limits in (contextlib.nullcontext(), mock.patch(_SPLIT_LIMIT, 0)):
                with limits:
                    for example in _chosen(cases, variant, per_launch, seen, findings):
                        name = f"{example.name} on a {code.name}"
                        _observe(name, findings, functools.partial(_run_case, example, variant))
            runtime_device = RuntimeDevice(variant)
            for wide in operations():
                _observe(f"{wide.name} on a {code.name}", findings, functools.partial(_run_wide, wide, runtime_device))
    faults = UNINITIALIZED_FAULTS if uninitialized else FAULTS
    for name, source in faults.items():
        findings.planted[name] = _written_by(functools.partial(_run_fault, device, source))[1]
    findings.programs, findings.launches = len(launches.programs), len(launches.launches)
    findings.launched = sorted(" ".join(pair) for pair in launches.kernels)
    findings.contained = sorted(" ".join(pair) for pair in launches.contained)
    findings.seconds = time.monotonic() - start
    return findings


@contextlib.contextmanager
def _for_uninitialized() -> Iterator[None]:
    """Suit the check for uninitialised values, which takes fills for no writes, and loses writes while the host works.

    So buffers are filled by copies, every command is waited for, and nothing is warmed up.
    """
    import pyopencl as cl

    launch, copy = cl.enqueue_nd_range_kernel, cl.enqueue_copy

    def fill(queue: cl.CommandQueue, buffer: cl.Buffer, pattern: np.uint8, offset: int, size: int) -> cl.Event:
        return copy(queue, buffer, np.full(size, pattern), dst_offset=offset)

    def waited_for(function: Callable[..., cl.Event]) -> Callable[..., cl.Event]:
        def call(*arguments: object, **options: object) -> cl.Event:
            event = function(*arguments, **options)
            event.wait()
            return event

        return call

    with (
        mock.patch.object(cl, "enqueue_fill_buffer", fill),
        mock.patch.object(cl, "enqueue_nd_range_kernel", waited_for(launch)),
        mock.patch.object(cl, "enqueue_copy", waited_for(copy)),
        mock.patch("gpu_driver.compiled_graph.warm_up"),
    ):
        yield


def _with_type(device: Device, code: DeviceTypeCode) -> Device:
    """Return the device with a context of its own and a profile that says it is a GPU or a CPU."""
    return Device(replace(device._found, type=code, index=int(code)), 0)


def _chosen(
    cases: Sequence[Example], device: Device, per_launch: int, seen: Counter[object], findings: Findings
) -> Iterator[Example]:
    """Yield cases, smaller ones first, that bring a launch which `per_launch` cases before did not."""
    sized = []
    for example in cases:
        model = hal_model(example)
        refusals = [support.reason for support in device.explain_operations(model) if not support.supported]
        if refusals:
            findings.refused[example.name] = refusals[0]
            continue
        commands = _commands(model, device)
        items = sum(math.prod(command.global_size) for command in commands)
        if items <= _MAX_ITEMS:
            launched: set[object] = {(command.kernel, command.local_size) for command in commands}
            sized.append((items, example, launched or {example.main_op}))
    for _, example, launched in sorted(sized, key=lambda item: item[0]):
        if any(seen[launch] < per_launch for launch in launched):
            seen.update(launched)
            yield example


def _commands(model: Model, device: Device) -> list[Launch]:
    """Return the launches that are known before a run."""
    lowering = Lowering(model, device.profile)
    try:
        commands = lowering.lower(0, lowering.static_inputs()).commands
    except HalError:
        return []
    return [command for command in commands if isinstance(command, Launch)]


def _observe(name: str, findings: Findings, run_it: Callable[[], str]) -> None:
    """Run something that returns what was wrong."""
    problem, report = _written_by(run_it)
    findings.examples += 1
    if problem:
        findings.failures[name] = problem
    if report:
        findings.reports[name] = report


def _written_by(run_it: Callable[[], str]) -> tuple[str, str]:
    """Return what something returns, and the beginning of what the interpreter writes meanwhile."""
    log = Path(os.environ["OCLGRIND_LOG"])
    before = log.stat().st_size if log.exists() else 0
    returned = run_it()
    return returned, log.read_text(encoding="utf-8", errors="replace")[before:][:2000] if log.exists() else ""


def _run_case(example: Example, device: Device) -> str:
    result = run_example(example, Kind.PLAIN, HalRunner(device))
    return "" if result.verdict == Verdict.PASSED else result.message


def _run_wide(wide: Wide, device: RuntimeDevice) -> str:
    try:
        wide.check(device)
    except (AssertionError, HalError) as error:
        return str(error)
    return ""


def _run_fault(device: Device, source: str) -> str:
    """Launch a kernel named `fault` over two groups of two work-items, on a buffer of four numbers."""
    import pyopencl as cl

    context = device.context()
    kernel = cl.Kernel(cl.Program(context.context, source).build(), "fault")
    buffer = cl.Buffer(context.context, cl.mem_flags.READ_WRITE, 16)
    cl.enqueue_copy(context.queue, buffer, np.zeros(4, np.int32))
    kernel(context.queue, (4,), (2,), buffer)
    context.queue.finish()
    return ""


if __name__ == "__main__":
    main()
