# SPDX-License-Identifier: Apache-2.0
"""Runs our operation cases on Oclgrind, the OpenCL interpreter that finds out-of-bounds accesses and data races.

A process of its own, since the interpreter reads its settings once. Cases run plain, on a profile of a GPU and on one
of a CPU, since launchers choose kernels by that, and with the limits beyond which work is split set to nothing; only
those that bring a (program, kernel, local size) that too few brought before. The device says that it has three compute
units, and three threads run work-groups.

    python -m tests.platforms.oclgrind --per-launch 3                  # out of bounds, races
    python -m tests.platforms.oclgrind --per-launch 1 --uninitialized  # uninitialised reads too: docs/PLATFORMS.md

It prints what was found; the exit status is 1 if that is anything, or if a kernel was not run.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import math
import os
import re
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

import kernels_cl
from gpu_driver import peaks
from gpu_driver.device_profile import PERSISTENT_EMULATED
from gpu_driver.discovery.matrix_units import EMULATED
from gpu_driver.driver import Device, devices
from gpu_driver.launch import Launch
from gpu_driver.lowering import Lowering
from nn_runtime.codes import DeviceTypeCode, OperationCode
from nn_runtime.device import Device as RuntimeDevice
from nn_runtime.hal.types import HalError
from nn_runtime.testing.conformance import HalRunner, Verdict, hal_model, run_example
from nn_runtime.testing.corpus import Kind
from tests.operations.cases import examples
from tests.platforms.chains import Chain, blocks, chains, is_order, is_race
from tests.platforms.launches import Launches, recorded
from tests.platforms.wide import FunctionOfTwoBytes, Wide, functions_of_two_bytes, operations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import TypeVar

    from nn_runtime.hal.types import Model
    from nn_runtime.testing.corpus import Example

    D = TypeVar("D")

ROOT = Path(__file__).parents[2]
NOT_REPAIRED = "this Oclgrind cannot check for uninitialised values without repairs: docs/PLATFORMS.md"
_LIBRARY = "liboclgrind-rt-icd.so"
_MAX_ITEMS = 1 << 16
"""A case with more work-items is left out: the interpreter does about a million steps of a work-item in a second."""

_MESSAGE = re.compile(r"\n(?=[^\t\n])")
"""What divides the interpreter's messages: all lines but the first are indented."""
_LONGEST_REPORT = 2000
_AT_ONCE = "3"
"""Compute units and threads: on one, nothing is cut between work-groups of CPUs."""

_CHILD = "NNRT_TEST_OCLGRIND_CHILD"
"""Set for the process that runs the cases: "uninitialized" or "plain"."""
_NO_FOLDER = f"{os.devnull}/none"
"""No programs are kept: the interpreter dies of some that it takes from a binary."""
UNITS, PERSISTENT = ("mma_emulated",), (PERSISTENT_EMULATED,)
PRODUCTS = (OperationCode.FULLY_CONNECTED, OperationCode.BATCH_MATMUL)
"""Features of a GPU with the stand-in for matrix units, and of one whose groups may wait for each other; the operations
that the former makes other launches of."""
_SPLIT_LIMIT = "gpu_driver.launchers.recurrent._MOST_WEIGHTS_OF_ONE_GROUP"

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
    "uninitialised device memory": """
        kernel void fault(global int *a, global const int *b) { a[get_global_id(0)] = b[get_global_id(0)] > 0; }""",
}
"""The same for uninitialised reads; `a` holds zeros, `b` nothing."""
_WRITTEN = """
    kernel void write(global int *b) { b[get_global_id(0)] = 1; }
    kernel void read(global int *a, global const int *b) { a[get_global_id(0)] = b[get_global_id(0)] > 0; }"""
"""Nothing uninitialised: but an interpreter without repairs says so where the host wrote a part of `b` before."""


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
        **os.environ, "PYTHONPATH": str(ROOT), "NNRT_CACHE_DIR": _NO_FOLDER, "OCL_ICD_VENDORS": str(found),
        "OCLGRIND_LOG": str(folder / "other.log"), "OCLGRIND_DATA_RACES": "1", "OCLGRIND_MAX_ERRORS": "1000000",
        "OCLGRIND_COMPUTE_UNITS": _AT_ONCE, "OCLGRIND_NUM_THREADS": _AT_ONCE,
    }  # fmt: skip
    if uninitialized:
        environment["OCLGRIND_UNINITIALIZED"] = "1"
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
    parser.add_argument("--uninitialized", action="store_true", help="look for uninitialised reads too")
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
        raise RuntimeError(NOT_REPAIRED if uninitialized else "this Oclgrind cannot run the test kernel")
    _with_own_log(device)
    cases = list(examples())
    launches = Launches()
    seen: Counter[object] = Counter()
    if uninitialized:
        _demand_repairs(device)
    with recorded(launches):
        for code, features in ((DeviceTypeCode.GPU, ()), (DeviceTypeCode.GPU, UNITS), (DeviceTypeCode.CPU, ())):
            variant = _with_type(device, code, features)
            kind = " ".join((code.name, *features))
            for limits in (contextlib.nullcontext(), mock.patch(_SPLIT_LIMIT, 0)):
                with limits:
                    for example in _chosen(cases, variant, per_launch, seen, findings):
                        name = f"{example.name} on a {kind}"
                        _observe(name, findings, functools.partial(_run_case, example, variant))
            runtime_device = RuntimeDevice(variant)
            for wide in _wide(features):
                _observe(f"{wide.name} on a {kind}", findings, functools.partial(_checked, wide.check, runtime_device))
            if code == DeviceTypeCode.CPU:
                _observe_chains(chains(), "", variant, findings)
        _observe_chains(blocks(), " by groups that stay", _with_type(device, DeviceTypeCode.GPU, PERSISTENT), findings)
        _observe("peaks.cl", findings, functools.partial(_run_peaks, device))
        _observe("peaks_units.cl", findings, functools.partial(_run_peaks_of_units, device))
    faults = {**FAULTS, **UNINITIALIZED_FAULTS} if uninitialized else FAULTS
    for name, source in faults.items():
        findings.planted[name] = _written_by(functools.partial(_run_fault, device, source))[1]
    findings.programs, findings.launches = len(launches.programs), len(launches.launches)
    findings.launched = sorted(" ".join(pair) for pair in launches.kernels)
    contained = launches.contained | {(source, "any") for source in set(kernels_cl.names()) - _sources(launches)}
    findings.contained = sorted(" ".join(pair) for pair in contained)
    findings.seconds = time.monotonic() - start
    return findings


def _observe_chains(cases: Iterable[Chain], how: str, device: Device, findings: Findings) -> None:
    """Run each as one launch, where races mean nothing, and step by step."""
    for chain in cases:
        _observe(f"{chain.name}{how}", findings, functools.partial(_checked, chain.check, device), is_race)
        by_steps = functools.partial(_checked, chain.check_by_steps, device)
        _observe(f"{chain.name}{how}, step by step", findings, by_steps, is_order)


def _wide(features: tuple[str, ...]) -> Iterator[Wide | FunctionOfTwoBytes]:
    """Yield the long operations and functions of two bytes; with features what they make other launches of."""
    if not features:
        yield from operations()
        yield from functions_of_two_bytes()
    else:
        yield from (wide for wide in operations() if wide.code in PRODUCTS)


def _with_type(device: Device, code: DeviceTypeCode, features: tuple[str, ...]) -> Device:
    """Return the device with a context of its own and a profile that says it is a GPU or a CPU with these features."""
    index = sum(10 << at for at, one in enumerate((*UNITS, *PERSISTENT)) if one in features) + int(code)
    return _with_own_log(Device(replace(device._found, type=code, features=features, index=index), 0))


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


def _observe(
    name: str, findings: Findings, run_it: Callable[[], str], is_expected: Callable[[str], bool] = lambda _: False
) -> None:
    """Run something that returns what was wrong; messages that are expected are no report."""
    problem, written = _written_by(run_it)
    report = "\n".join(message for message in _MESSAGE.split(written) if message.strip() and not is_expected(message))
    findings.examples += 1
    if problem:
        findings.failures[name] = problem
    if report:
        findings.reports[name] = report[:_LONGEST_REPORT]


def _written_by(run_it: Callable[[], str]) -> tuple[str, str]:
    """Return what something returns, and what the interpreter writes meanwhile."""
    before = {log: log.stat().st_size for log in _logs()}
    returned = run_it()
    written = []
    for log in _logs():
        with log.open("rb") as file:
            file.seek(before.get(log, 0))
            written.append(file.read().decode(errors="replace"))
    return returned, "".join(written)


def _logs() -> list[Path]:
    return sorted(Path(os.environ["OCLGRIND_LOG"]).parent.glob("*.log"))


def _with_own_log(device: Device) -> Device:
    """Open the device's context with a log of its own: contexts truncate a log that they share, and overwrite it."""
    other = os.environ["OCLGRIND_LOG"]
    os.environ["OCLGRIND_LOG"] = str(Path(other).with_name(f"{device.name}.log"))
    try:
        device.context()
    finally:
        os.environ["OCLGRIND_LOG"] = other
    return device


def _run_case(example: Example, device: Device) -> str:
    result = run_example(example, Kind.PLAIN, HalRunner(device))
    return "" if result.verdict == Verdict.PASSED else result.message


def _checked(check: Callable[[D], None], device: D) -> str:
    try:
        check(device)
    except (AssertionError, HalError) as error:
        return str(error)
    return ""


def _run_peaks(device: Device) -> str:
    """Launch the kernels of peaks.cl as gpu_driver.peaks does, for two rounds."""
    import pyopencl as cl

    context = device.context()
    local_size, items, rounds = (1,), 2, np.int32(2)
    result, source, target = (cl.Buffer(context.context, cl.mem_flags.READ_WRITE, items * 128) for _ in range(3))
    cl.enqueue_copy(context.queue, source, np.zeros(items * 32, np.float32))
    arguments: dict[str, tuple[object, ...]] = {
        "multiply_add": (result, rounds, np.float32(0.5), np.float32(1)),
        "dot_product": (result, rounds),
        "tile_product": (result, rounds),
        "copy": (source, target, np.int32(2), rounds),
    }
    launches = [(name, local_size) for name in arguments]
    program = context.programs.get(peaks.SOURCE, {"DOT4": 0}, launches=launches)
    for name, values in arguments.items():
        program.kernel(name)(context.queue, (items,), local_size, *values)
    context.queue.finish()
    return ""


def _run_peaks_of_units(device: Device) -> str:
    """Launch peaks_units.cl with the stand-in for the instruction, two groups, two rounds, both types."""
    import pyopencl as cl

    context = device.context()
    local_size, items = (64,), 128
    result = cl.Buffer(context.context, cl.mem_flags.READ_WRITE, items * 16)
    for element in ("half", "uchar"):
        defines: dict[str, str | int] = {"T": element, "FILTER_T": element, "MATRIX_UNITS": EMULATED}
        program = context.programs.get(peaks.UNITS_SOURCE, defines, launches=[("unit_product", local_size)])
        program.kernel("unit_product")(context.queue, (items,), local_size, result, np.int32(2))
    context.queue.finish()
    return ""


def _run_fault(device: Device, source: str) -> str:
    """Launch a kernel named `fault` over two groups of two work-items, on `a` of four zeros and, where taken, `b`."""
    import pyopencl as cl

    context = device.context()
    kernel = cl.Kernel(cl.Program(context.context, source).build(), "fault")
    a, b = (cl.Buffer(context.context, cl.mem_flags.READ_WRITE, 16) for _ in range(2))
    cl.enqueue_copy(context.queue, a, np.zeros(4, np.int32))
    kernel(context.queue, (4,), (2,), *(a, b)[: kernel.num_args])
    context.queue.finish()
    return ""


def _demand_repairs(device: Device) -> None:
    """Raise RuntimeError where memory that the host wrote a part of, then a kernel everything, is reported."""
    import pyopencl as cl

    context = device.context()
    program = cl.Program(context.context, _WRITTEN).build()
    a, b = (cl.Buffer(context.context, cl.mem_flags.READ_WRITE, 16) for _ in range(2))

    def launch() -> str:
        cl.enqueue_copy(context.queue, b, np.zeros(1, np.int32))
        cl.Kernel(program, "write")(context.queue, (4,), None, b)
        cl.Kernel(program, "read")(context.queue, (4,), None, a, b)
        context.queue.finish()
        return ""

    if _written_by(launch)[1]:
        raise RuntimeError(NOT_REPAIRED)


def _sources(launches: Launches) -> set[str]:
    return {source for source, _ in launches.kernels}


if __name__ == "__main__":
    main()
