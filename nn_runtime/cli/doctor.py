# SPDX-License-Identifier: Apache-2.0
"""Examine this machine: what was found, what is wrong, and the command that mends it.

Shows the packages, the environment variables, what every driver found (libraries, devices, cache folder), and which
devices the selector in force takes. Every OpenCL device that can be used runs a small network, and tells what it counts
of itself. The exit status is 1 if no OpenCL device can be used, or if the variable that selects devices (NNRT_DEVICE,
PYOPENCL_CTX) asks for one that is not there.

The costs are what placement goes by: shipped figures for the class of a device, or what --measure made of them on this
machine (one to four minutes for each device, programs that must be built included), stored in the cache folder.
"""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import asdict, field
from importlib import metadata, resources
from typing import TYPE_CHECKING

import numpy as np

import nn_runtime
from nn_runtime.cli import costs
from nn_runtime.cli.networks import statistics_text
from nn_runtime.cli.output import busy, print_json, print_lines, reported_here
from nn_runtime.cost import cost_table
from nn_runtime.devices import devices, distribution_of, driver_names, find_device, listing, select, selector_in_force
from nn_runtime.devices import diagnosis as diagnosis_of
from nn_runtime.errors import NNError, SelectorError
from nn_runtime.failures import answered
from nn_runtime.loading import load
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from nn_runtime.hal.interfaces import Diagnosis

OPENCL = "opencl"
_NEEDED = ("numpy", "pyopencl", "flatbuffers", "platformdirs", "filelock", "threadpoolctl")
_LINUX, _WINDOWS = ("linux", "x86_64"), ("win32", "amd64")
_EXTRAS = (
    ("pocl-binary-distribution", "pip install pocl-binary-distribution", (_LINUX,)),
    ("intel-opencl-rt", "pip install intel-opencl-rt intel-cmplr-lib-rt", (_LINUX, _WINDOWS)),
)
"""Package, the command that installs it, and the systems and machines for which PyPI has it."""
_VARIABLES = ("NNRT_DEVICE", "PYOPENCL_CTX", "NNRT_VLOG", "NNRT_TRACE", "NNRT_DRIVER_HOST")
"""Variables of the runtime; the drivers report their own."""
_SELECTORS = ("NNRT_DEVICE", "PYOPENCL_CTX")
"""Those that select devices, the first that is set."""
_NETWORK = "demo/digits_float.tflite"


@dataclass(frozen=True)
class Trial:
    """A small network run on a device: why it failed ("" if it did not), and what the device counted."""

    failure: str
    statistics: Mapping[str, int | float] = field(default_factory=dict)


@dataclass(frozen=True)
class _Problem:
    """What is wrong, and what mends it."""

    what: str
    remedy: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options and arguments."""
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--measure", action="store_true", help="measure what runs and operations cost, and store it")


def run(args: argparse.Namespace) -> int:
    """Print the report; return 1 if no OpenCL device can be used, or not what the environment selects."""
    with reported_here():
        return _examine(args)


def _examine(args: argparse.Namespace) -> int:
    diagnoses = {driver: diagnosis_of(driver) for driver in driver_names()}
    usable = [device.name for device in listing(OPENCL).devices]
    with busy("trying the devices"):
        trials = {name: _trial(name) for name in usable}
    known = devices()
    measured = costs.measure(known) if args.measure else {device.name: cost_table(device) for device in known}
    summaries = {name: costs.summary_of(table) for name, table in measured.items() if table is not None}
    problems = _selector_problems()
    if args.json:
        print_json(_as_json(diagnoses, usable, trials, summaries, problems))
    else:
        print_lines(_machine_lines())
        for driver, diagnosis in diagnoses.items():
            print_lines(["", f"driver {driver}", *_driver_lines(driver, diagnosis)])
        print_lines(["", *(_trial_line(name, trial) for name, trial in trials.items())])
        print_lines([*(costs.line(name, summary) for name, summary in summaries.items()), *_verdict_lines(usable)])
        for problem in problems:
            print_lines([f"problem    {problem.what}", f"    mend   {problem.remedy}"])
    return 0 if usable and not problems else 1


def _trial(device: str) -> Trial:
    file = resources.files("nn_runtime").joinpath(_NETWORK)
    try:
        with load(file.read_bytes()) as network, network.compile(device) as session:
            session.run([np.zeros(info.shape, info.dtype) for info in session.inputs])
    except Exception as error:
        return Trial(str(error) if isinstance(error, NNError) else f"{type(error).__name__}: {error}")
    return Trial("", find_device(device).statistics())


def _trial_line(device: str, trial: Trial) -> str:
    if trial.failure:
        return f"problem    {device} does not run a small network: {trial.failure}"
    return f"trial      {device} runs a small network: {statistics_text(trial.statistics)}".rstrip(": ")


def _machine_lines() -> list[str]:
    return [
        f"nnrt       {nn_runtime.__version__}, {_folder()}",
        f"Python     {platform.python_version()}, {sys.executable}",
        f"system     {platform.platform()}, {os.cpu_count()} processors",
        *(f"package    {name} {version or _missing(name)}" for name, version in _packages().items()),
        *(f"variable   {name}={value}" for name, value in _variables().items()),
    ]


def _folder() -> str:
    return os.fspath(nn_runtime.__path__[0])


def _packages() -> dict[str, str | None]:
    """Return the version of every package that matters, None where it is not installed."""
    return {name: _version(name) for name in (*_NEEDED, *_optional())}


def _optional() -> dict[str, str]:
    """Return the packages of the extras that there are for this machine, and the command that installs each."""
    here = sys.platform, platform.machine().lower()
    return {**{name: command for name, command, places in _EXTRAS if here in places}, "pillow": "pip install pillow"}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _missing(name: str) -> str:
    optional = _optional()
    if name in optional:
        return f"is not installed (optional: {optional[name]})"
    return f"is not installed: pip install {name}"


def _variables() -> dict[str, str]:
    return {name: os.environ[name] for name in _VARIABLES if name in os.environ}


def _driver_lines(driver: str, diagnosis: Diagnosis | None) -> list[str]:
    offered = listing(driver)
    if offered.failure:
        remedy = f"pip install --force-reinstall {distribution_of(driver)}"
        return [f"problem    {offered.failure}", f"    mend   {remedy}"]
    said = None if diagnosis is None else answered(lambda: list(diagnosis.lines()), None, f"driver {driver}: diagnosis")
    if said is not None:
        return said
    found = [f"device     {device.name} {device.version}: usable" for device in offered.devices]
    refused = [f"device     {item.name}: not usable: {item.reason}" for item in offered.unusable]
    return [*found, *refused] or ["no device"]


def _diagnosis_as_json(driver: str, diagnosis: Diagnosis | None) -> dict[str, object] | None:
    if diagnosis is None:
        return None
    return answered(lambda: dict(diagnosis.to_json()), None, f"driver {driver}: diagnosis")


def _verdict_lines(usable: list[str]) -> list[str]:
    """Say in the last lines what all of the above comes to."""
    if OPENCL not in driver_names():
        first = "the OpenCL driver is not installed: pip install . in a clone of nn-runtime-opencl"
    elif usable:
        first = f"OpenCL works: {', '.join(usable)}"
    else:
        first = "no OpenCL device can be used; the CPU device works everywhere (--device cpu)"
    return [first, _selection()]


def _selector_problems() -> list[_Problem]:
    """Return which items of the variable that selects devices match none, or that it makes no sense."""
    variable = next((name for name in _SELECTORS if os.environ.get(name)), None)
    if variable is None:
        return []
    found: list[str] = []
    for item in selector_in_force().split(","):
        try:
            select(item.strip() or ",")
        except SelectorError as error:
            found.append(error.problem)
    remedy = f"unset {variable}, or name a device of nnrt devices"
    return [_Problem(f"{variable}={os.environ[variable]}: {what}", remedy) for what in found]


def _selection() -> str:
    selector = selector_in_force()
    try:
        selection = select()
    except NNError:
        return f"selector {selector!r} takes nothing"
    names = ", ".join(device.name for device in selection.devices)
    rule = "strict, nothing else may be used" if selection.strict else "the CPU takes what the others refuse"
    return f"selector {selector!r} takes {names} ({rule})"


def _as_json(
    diagnoses: dict[str, Diagnosis | None],
    usable: list[str],
    trials: dict[str, Trial],
    summaries: dict[str, costs.CostSummary],
    problems: list[_Problem],
) -> dict[str, object]:
    return {
        "version": nn_runtime.__version__,
        "folder": _folder(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "packages": _packages(),
        "environment": _variables(),
        "drivers": {
            driver: {
                "failure": listing(driver).failure,
                "devices": [device.name for device in listing(driver).devices],
                "unusable": {item.name: item.reason for item in listing(driver).unusable},
                "diagnosis": _diagnosis_as_json(driver, diagnosis),
            }
            for driver, diagnosis in diagnoses.items()
        },
        "usable_opencl_devices": usable,
        "trials": {name: asdict(trial) for name, trial in trials.items()},
        "costs": {name: asdict(summary) for name, summary in summaries.items()},
        "selection": _selection(),
        "problems": [asdict(problem) for problem in problems],
    }
