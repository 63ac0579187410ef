# SPDX-License-Identifier: Apache-2.0
"""What `nnrt doctor` says about OpenCL: what was found, what is wrong, and the command that mends it."""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_driver import tuning
from gpu_driver.discovery import icd, link_repair, platforms, probe
from gpu_driver.discovery.dot_products import best_form, forms_to_try
from gpu_driver.discovery.host_cpu import host_cpu
from nn_runtime.hal.cache_folder import cache_directory
from nn_runtime.hal.files import why_unwritable
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from gpu_driver.discovery.platforms import FoundDevice, Survey

_INSTALL_PYOPENCL = "pip install pyopencl"
_INSTALL_POCL = "pip install pocl-binary-distribution"
_INSTALL_INTEL = "pip install intel-opencl-rt intel-cmplr-lib-rt"
_INSTALL_LINKER = f"install {link_repair.LINKER} (binutils)"

# (part of a reason, command): the first that fits.
_REMEDIES = (
    (("libimf", "libsvml", "libirng", "libintlc"), "pip install intel-cmplr-lib-rt"),
    (("libtbb", "libhwloc"), "pip install tbb"),
    ((link_repair.COMPLAINT,), f"{_INSTALL_LINKER}, or {_INSTALL_INTEL}" if host_cpu().is_x86 else _INSTALL_LINKER),
    (("unknown target CPU 'generic'", "does not know this processor"), _INSTALL_INTEL),
)

_VARIABLES = ("NNRT_CACHE_DIR", tuning.VARIABLE)


@dataclass(frozen=True)
class Problem:
    """What is wrong, and the command (or setting) that mends it."""

    what: str
    remedy: str


@dataclass(frozen=True)
class LibraryReport:
    """One OpenCL library: who names it (file), and whether it loads."""

    library: str
    origin: str
    file: str | None
    loads: bool
    reason: str | None


@dataclass(frozen=True)
class DeviceReport:
    """One device as `find_devices` names it."""

    name: str
    type: str
    platform: str
    device: str
    driver_version: str
    library: str | None
    usable: bool
    reason: str | None
    notes: tuple[str, ...]
    features: tuple[str, ...]


@dataclass(frozen=True)
class Diagnosis:
    """The state of OpenCL here. loader: libOpenCL in use; vendors: where it looks for libraries."""

    pyopencl: str | None
    loader: str | None
    vendors: str
    environment: dict[str, str | None]
    cache_directory: str
    cache_writable: bool
    libraries: tuple[LibraryReport, ...]
    devices: tuple[DeviceReport, ...]
    problems: tuple[Problem, ...]

    def to_json(self) -> dict[str, object]:
        """Plain lists and dicts, for `--json`."""
        return asdict(self)

    def lines(self) -> list[str]:
        """The report for people."""
        writable = "" if self.cache_writable else " (cannot be written: everything is rebuilt at each start)"
        text = [
            f"PyOpenCL   {self.pyopencl or 'not installed'}",
            f"loader     {self.loader or 'not loaded'}",
            f"vendors    {self.vendors}",
            f"cache      {self.cache_directory}{writable}",
            *(f"variable   {name}={value}" for name, value in self.environment.items() if value is not None),
        ]
        for library in self.libraries:
            state = "loads" if library.loads else f"does not load: {library.reason}"
            text.append(f"library    {library.library} ({library.origin}) {state}")
        for device in self.devices:
            state = "usable" if device.usable else f"not usable: {device.reason}"
            text.append(f"device     {device.name} {state}")
            text.append(f"           {device.type}, {device.device}, {device.platform}")
            if device.features:
                text.append(f"           instructions seen to work: {', '.join(device.features)}")
            text += [f"           {note}" for note in device.notes]
        for problem in self.problems:
            text += [f"problem    {problem.what}", f"    mend   {problem.remedy}"]
        return text if self.problems else [*text, "no problem found"]


def diagnose() -> Diagnosis:
    """Return what was found, what is wrong and the command that mends it, with every verdict asked anew."""
    return diagnosis_of(platforms.survey_anew())


def diagnosis_of(survey: Survey) -> Diagnosis:
    """The report on a search for devices."""
    directory = cache_directory()
    libraries = tuple(_library_report(entry, survey) for entry in survey.entries)
    devices = tuple(_device_report(device) for device in survey.devices)
    unwritable = why_unwritable(directory)
    problems = [
        *_folder_problems(), *_loader_problems(survey), *_library_problems(libraries), *_device_problems(devices),
        *_hidden(survey), *_gpu_problems(survey),
    ]  # fmt: skip
    tuning_problem = tuning.problem_of_named_file()
    if tuning_problem is not None:
        problems.append(Problem(tuning_problem, f"unset {tuning.VARIABLE}"))
    if unwritable is not None:
        what = f"the cache folder {directory} cannot be written: {unwritable}"
        problems.append(Problem(what, "export NNRT_CACHE_DIR=<folder>"))
    return Diagnosis(
        pyopencl=_pyopencl_version(), loader=_loader_in_use(), vendors=_vendors(survey),
        environment={name: os.environ.get(name) for name in (*probe.ENVIRONMENT_VARIABLES, *_VARIABLES)},
        cache_directory=str(directory), cache_writable=unwritable is None,
        libraries=libraries, devices=devices, problems=tuple(problems),
    )  # fmt: skip


def _library_report(entry: icd.IcdEntry, survey: Survey) -> LibraryReport:
    verdict = survey.verdicts.get(entry.path)
    if verdict is None:
        return LibraryReport(entry.library, entry.origin, entry.file, False, "there is no such file")
    return LibraryReport(entry.library, entry.origin, entry.file, verdict.loads, verdict.reason)


def _device_report(device: FoundDevice) -> DeviceReport:
    promised = [] if best_form(device.features) or not device.usable else forms_to_try(device.platform_name, host_cpu())
    failed = [f"instructions for products of bytes did not work: {', '.join(promised)}"] if promised else []
    return DeviceReport(
        name=device.name, type=device.type.name, platform=f"{device.platform_name} {device.platform_version}",
        device=device.device_name, driver_version=device.driver_version, library=device.library,
        usable=device.usable, reason=device.reason, notes=(*device.notes, *failed), features=device.features,
    )  # fmt: skip


def _folder_problems() -> list[Problem]:
    """No folder for temporary files, as where all of a container can only be read: PoCL builds kernels in one."""
    try:
        tempfile.gettempdir()
    except OSError as error:
        lost = "so that libraries are not seen and kernels not built"
        return [Problem(f"no temporary folder can be written, {lost}: {error.strerror}", "export TMPDIR=<folder>")]
    return []


def _loader_problems(survey: Survey) -> list[Problem]:
    if survey.pyopencl_error is not None:
        return [Problem(survey.pyopencl_error, _INSTALL_PYOPENCL)]
    if survey.devices:
        return []
    whole = survey.verdicts.get(None)
    if whole is not None and not whole.loads:
        return [Problem(f"the OpenCL loader cannot be used: {whole.reason}", "update the OpenCL driver")]
    if os.environ.get(icd.VENDORS_VARIABLE):
        return [Problem("none of the chosen OpenCL libraries shows a device", f"unset {icd.VENDORS_VARIABLE}")]
    if survey.entries:
        return [Problem("none of the OpenCL libraries shows a device", _how_to_install())]
    return [Problem("there is no OpenCL library on this machine", _how_to_install())]


def _how_to_install() -> str:
    """Return how this machine gets OpenCL for its processor: PyPI has PoCL for Linux on x86-64 alone."""
    if sys.platform == "linux":
        return _INSTALL_POCL if host_cpu().is_x86 else "apt install pocl-opencl-icd, or the distribution's name for it"
    install = "install the OpenCL driver of the GPU or processor"
    return f"{install}, or PoCL: conda install -c conda-forge pocl" if sys.platform == "darwin" else install


def _library_problems(libraries: tuple[LibraryReport, ...]) -> list[Problem]:
    problems = []
    for library in libraries:
        if library.loads:
            continue
        if library.origin == "user":
            where = f"unset {icd.VENDORS_VARIABLE}"
        else:
            where = f"rm {library.file}" if library.file else f"ldd {library.library}"
        problems.append(Problem(f"{library.library}: {library.reason}", _remedy(library.reason or "", where)))
    return problems


def _device_problems(devices: tuple[DeviceReport, ...]) -> list[Problem]:
    return [
        Problem(f"{device.name} ({device.device}): {device.reason}", _remedy(device.reason or "", "update its driver"))
        for device in devices
        if not device.usable
    ]


def _remedy(reason: str, otherwise: str) -> str:
    return next((command for parts, command in _REMEDIES if any(part in reason for part in parts)), otherwise)


def _hidden(survey: Survey) -> list[Problem]:
    """Libraries that load but show nothing in this process, and Intel's where the user's choice leaves it out."""
    problems = []
    seen = {device.library for device in survey.devices}
    for entry in survey.entries:
        verdict = survey.verdicts.get(entry.path)
        if verdict is None or not verdict.loads or entry.path in seen or not entry.is_file_name:
            continue
        if verdict.devices and survey.pyopencl_was_loaded:
            what = f"{entry.library} is missing here: PyOpenCL had started its loader before"
            problems.append(Problem(what, "import nn_runtime and list its devices before using pyopencl"))
        elif not verdict.devices and "pocl" in entry.library:
            what = f"{entry.library} shows no device; PoCL does so where its cache folder cannot be written"
            problems.append(Problem(what, "export POCL_CACHE_DIR=<folder>"))
        elif not verdict.devices:
            problems.append(Problem(f"{entry.library} shows no device", "update its driver"))
    chosen = os.environ.get(icd.VENDORS_VARIABLE)
    offered = {entry.path for entry in survey.entries}
    if chosen:
        left_out = [entry.library for entry in icd.environment_entries() if entry.path not in offered]
        problems += [
            Problem(f"{icd.VENDORS_VARIABLE}={chosen} leaves out {library}", f"unset {icd.VENDORS_VARIABLE}")
            for library in left_out
        ]
    return problems


def _gpu_problems(survey: Survey) -> list[Problem]:
    """A GPU the kernel knows and OpenCL does not."""
    if Path("/proc/driver/nvidia/version").exists() and all(device.slug != "nvidia" for device in survey.devices):
        remedy = f"mkdir -p {icd.SYSTEM_VENDORS} && echo libnvidia-opencl.so.1 > {icd.SYSTEM_VENDORS}/nvidia.icd"
        return [Problem("an NVIDIA GPU is here, but no NVIDIA OpenCL platform", remedy)]
    return []


def _pyopencl_version() -> str | None:
    from importlib import metadata

    try:
        return metadata.version("pyopencl")
    except metadata.PackageNotFoundError:
        return None


def _loader_in_use() -> str | None:
    """The libOpenCL this process has open; Linux only."""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return next((line.split(None, 5)[5] for line in maps.splitlines() if "libOpenCL" in line), None)


def _vendors(survey: Survey) -> str:
    chosen = os.environ.get(icd.VENDORS_VARIABLE)
    if survey.folder_made:
        kept = f", {icd.VENDORS_VARIABLE}={chosen}" if chosen else ""
        return f"the libraries below, in a temporary folder while the loader started{kept}"
    if chosen:
        return f"{icd.VENDORS_VARIABLE}={chosen}"
    return str(icd.SYSTEM_VENDORS) if sys.platform == "linux" else "the system's own"
