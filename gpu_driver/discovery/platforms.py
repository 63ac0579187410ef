# SPDX-License-Identifier: Apache-2.0
"""Every OpenCL device of this machine, named, ordered, and known to work or not.

Libraries are collected (icd.py), each tried once in a child process (probe.py), the sound ones loaded together in
this process, PoCL 3.0 repaired where needed (pocl_repair.py). Importing this module imports no PyOpenCL.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import struct
import sys
import threading
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_driver import cache_files
from gpu_driver.discovery import icd, link_repair, pocl_repair, probe
from gpu_driver.discovery.dot_products import usable_here
from gpu_driver.discovery.host_cpu import host_cpu
from gpu_driver.processors import usable_processors
from nn_runtime.codes import DeviceTypeCode
from nn_runtime.hal.cache_folder import NOWHERE
from nn_runtime.hal.files import why_unwritable
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyopencl as cl

_LOG = logging.getLogger(__name__)

# (slug, part of the platform's name in lower case), most specific first.
_SLUGS = (
    ("oclgrind", "oclgrind"), ("pocl", "portable computing language"), ("rusticl", "rusticl"), ("clvk", "clvk"),
    ("mesa", "clover"), ("nvidia", "nvidia"), ("amd", "amd accelerated"), ("apple", "apple"), ("intel", "intel"),
    ("arm", "arm platform"), ("qualcomm", "qualcomm"),
)  # fmt: skip
_TYPE_RANK = (DeviceTypeCode.GPU, DeviceTypeCode.ACCELERATOR, DeviceTypeCode.CPU, DeviceTypeCode.OTHER)


@dataclass(frozen=True)
class FoundDevice:
    """One OpenCL device. Strings are OpenCL's own; library: the file that implements it, where known.

    identity: hash of all that compiled code depends on. features: assembly variants seen to work.
    reason: why it is not usable. notes: what was done to make it work.
    """

    slug: str
    index: int
    platform_name: str
    platform_version: str
    library: str | None
    device_name: str
    vendor: str
    driver_version: str
    device_version: str
    type: DeviceTypeCode
    usable: bool
    reason: str | None
    features: tuple[str, ...]
    notes: tuple[str, ...]
    identity: str
    device: cl.Device = field(repr=False, compare=False)
    inline: cl.Device | None = field(default=None, repr=False, compare=False)
    """A device of the same library and processor that computes in the calling thread, if there is one."""
    process: int = field(default_factory=os.getpid, repr=False, compare=False)
    """Where it was found: OpenCL's objects belong to one process."""

    @property
    def name(self) -> str:
        """The HAL device's name, the same between runs: opencl-<slug>-<n>."""
        return f"opencl-{self.slug}-{self.index}"


@dataclass(frozen=True)
class Survey:
    """All that one search saw: devices in order of rank, the libraries offered and the verdicts on them."""

    devices: tuple[FoundDevice, ...] = ()
    entries: tuple[icd.IcdEntry, ...] = ()
    verdicts: dict[str | None, probe.LibraryVerdict] = field(default_factory=dict)
    folder_made: bool = False
    pyopencl_was_loaded: bool = False
    pyopencl_error: str | None = None


_COMPILER_BYTES, _THREAD_BYTES = 640 << 20, 64 << 20
"""Address space of the platforms with their compilers, and of a thread of each processor that may be used. With less,
PoCL hung or ended the process in nearly every run on two cores, however small the network; MobileNet V2 takes 750 MiB
there.
"""
_AFFINITY = "POCL_AFFINITY"
_THREADS = "POCL_MAX_PTHREAD_COUNT", "POCL_CPU_MAX_CU_COUNT"  # PoCL 3.0's name, and that of later ones
_OURS = " (nn_runtime)"
"""Behind values that are ours and not the user's: PoCL reads a number and looks no further."""
_DEVICES = "POCL_DEVICES"
_INLINE_NOTE = f"small models are computed in the calling thread (PoCL's device '{probe.POCL_DRIVERS[1]}')"
_lock = threading.Lock()
_first: list[Survey] = []


def _after_fork() -> None:
    """Free the lock in a child: a thread of the parent may have held it, and does not exist here."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def find_devices(meanwhile: Callable[[], object] = bool) -> list[FoundDevice]:
    """Every OpenCL device, best rank first: GPU, accelerator, CPU; then slug and n. Unusable ones say why.

    Searched once per process; empty where there is no PyOpenCL or no OpenCL. meanwhile: called while devices are tried
    in child processes, if any are. Raises OSError, MemoryError where this process may not have what OpenCL takes.
    """
    with _lock:
        if not _first:
            _first.append(_survey(meanwhile=meanwhile))
        return list(_first[0].devices)


def survey_anew() -> Survey:
    """Return what a search sees that asks for every verdict anew."""
    with _lock:
        survey = _survey(refresh=True)
        if _first:  # what was true when the loader started in this process
            survey = replace(
                survey, folder_made=_first[0].folder_made, pyopencl_was_loaded=_first[0].pyopencl_was_loaded
            )
        else:
            _first.append(survey)
        return survey


def _survey(*, refresh: bool = False, meanwhile: Callable[[], object] = bool) -> Survey:
    was_loaded = "pyopencl" in sys.modules
    if icd.pyopencl_folder() is None:
        return Survey(pyopencl_error="PyOpenCL is not installed")
    _check_address_space()
    _do_without_the_users_cache()
    _place_threads_of_pocl()
    return _survey_of(icd.offered_entries(), refresh, meanwhile, was_loaded=was_loaded)


def _check_address_space() -> None:
    """Raise MemoryError where a limit (`ulimit -v`) leaves too little for OpenCL's compilers.

    Without, they end the process, or leave locks taken for which its end then waits.
    """
    try:
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    except (ImportError, OSError):  # not on Linux
        return
    wanted = _COMPILER_BYTES + usable_processors() * _THREAD_BYTES
    if limit != resource.RLIM_INFINITY and limit - used < wanted:
        raise MemoryError(
            f"OpenCL wants {wanted >> 20} MiB of address space, this process has {max(0, limit - used) >> 20} MiB left "
            f"of {limit >> 20} MiB (ulimit -v)"
        )


def _is_there(entry: icd.IcdEntry) -> bool:
    """Whether the loader may find an entry's library: packages that are removed leave their entry behind."""
    return not entry.is_file_name or Path(entry.library).exists()


def _survey_of(
    entries: Sequence[icd.IcdEntry], refresh: bool, meanwhile: Callable[[], object], *, was_loaded: bool
) -> Survey:
    present = [entry for entry in entries if _is_there(entry)]
    asked: list[str | None] = [entry.path for entry in present] if sys.platform == "linux" else [None]
    verdicts = probe.library_verdicts(asked, refresh, meanwhile)
    if None in verdicts and not verdicts[None].loads:
        return Survey((), tuple(entries), verdicts, False, was_loaded)
    sound = [entry for entry in present if verdicts[entry.path].loads]
    # A folder of our own is needed to add a library to the loader's, or to keep one from it.
    make_folder = len(sound) < len(present) or any(entry.origin == "environment" for entry in sound)
    try:
        import pyopencl  # noqa: F401  # the loader's own entries join by a variable this import sets
    except ImportError as error:
        return Survey((), tuple(entries), verdicts, False, was_loaded, f"PyOpenCL does not load: {error}")
    with icd.vendors_offered(sound) if make_folder else contextlib.nullcontext(), _inline_device_shown(sound, verdicts):
        listed = probe.list_devices()
    twins = probe.inline_twins(listed)
    devices = [
        _with_inline(*_describe(device, place, verdicts), twins.get(device))
        for device, place in listed
        if device not in twins.values()
    ]
    return Survey(tuple(_number(devices)), tuple(entries), verdicts, make_folder, was_loaded)


def _describe(
    device: cl.Device, place: int, verdicts: dict[str | None, probe.LibraryVerdict]
) -> tuple[FoundDevice, int]:
    platform = device.platform
    library = _library_of(platform)
    verdict = _ready(device, _verdict_on(device, place, library, verdicts))
    target = pocl_repair.compiled_for(platform.version, device.version)
    notes = []
    if verdict.repaired_as is not None:
        notes.append(f"compiler target '{target}' replaced by '{verdict.repaired_as}'")
    if verdict.links_with_stand_ins:
        notes.append("kernels are linked without a C compiler's libraries: none is installed")
    type_ = _type_of(device)
    if type_ == DeviceTypeCode.CPU and usable_processors() < (os.cpu_count() or 1):
        notes.append(f"computes on {usable_processors()} of {os.cpu_count()} processors, as this process may")
    identity = [platform.name, platform.version, device.name, device.version, device.driver_version]
    identity += [_size_text(library), verdict.repaired_as or ""]
    identity += [f"{name}={os.environ[name]}" for name in probe.COMPILER_VARIABLES if name in os.environ]
    if type_ == DeviceTypeCode.CPU:
        identity.append(host_cpu().digest)
    found = FoundDevice(
        slug=slug_of(platform.name), index=0,
        platform_name=platform.name.strip(), platform_version=platform.version.strip(), library=library,
        device_name=device.name.strip(), vendor=device.vendor.strip(),
        driver_version=device.driver_version.strip(), device_version=device.version.strip(), type=type_,
        usable=verdict.usable, reason=verdict.reason, features=usable_here(verdict.features), notes=tuple(notes),
        identity=hashlib.sha256("\n".join(identity).encode()).hexdigest()[:32], device=device,
    )  # fmt: skip
    return found, place


def _verdict_on(
    device: cl.Device, place: int, library: str | None, verdicts: dict[str | None, probe.LibraryVerdict]
) -> probe.DeviceVerdict:
    """The verdict of the device's own library, else of any. Asked again where the cache knows an older driver."""
    key = probe.device_key(device, place)
    candidates = [library] if library in verdicts else list(verdicts)
    for asked_again in (False, True):
        if asked_again:
            verdicts.update(probe.library_verdicts(candidates, refresh=True))
        for candidate in candidates:
            if key in verdicts[candidate].devices:
                return verdicts[candidate].devices[key]
    return probe.probe_device(device)  # no child could be started, or it did not see the device: try here


def _ready(device: cl.Device, verdict: probe.DeviceVerdict) -> probe.DeviceVerdict:
    """The verdict after the child's repairs were repeated in this process."""
    if not verdict.usable:
        return verdict
    if verdict.links_with_stand_ins:
        try:
            link_repair.offer()
        except OSError as error:
            return replace(verdict, usable=False, reason=f"no libraries to link kernels with: {error}")
    if verdict.repaired_as is None:
        return verdict
    repair = pocl_repair.repair(device, host_cpu())
    if repair.name is None and not repair.is_vital:
        return replace(verdict, repaired_as=None)
    return verdict if repair.name == verdict.repaired_as else replace(verdict, usable=False, reason=repair.reason)


def slug_of(platform_name: str) -> str:
    """Short name of a platform; the first word of its name where it is not a known one."""
    lower = platform_name.lower()
    for slug, part in _SLUGS:
        if part in lower:
            return slug
    words = re.findall(r"[a-z0-9]+", lower)
    return words[0] if words else "unknown"


def version_numbers(text: str) -> tuple[int, ...]:
    """The numbers in a version, for comparing: "3.0-rc2" -> (3, 0, 2)."""
    return tuple(int(number) for number in re.findall(r"\d+", text))


def _number(devices: Sequence[tuple[FoundDevice, int]]) -> list[FoundDevice]:
    """Devices with their n (by version, library path, place in the platform), in order of rank."""
    counts: dict[str, int] = {}
    numbered = []
    for found, _ in sorted(
        devices, key=lambda item: (version_numbers(item[0].driver_version), str(item[0].library), item[1])
    ):
        numbered.append(replace(found, index=counts.get(found.slug, 0)))
        counts[found.slug] = numbered[-1].index + 1
    return sorted(numbered, key=lambda found: (_is_slow(found), _TYPE_RANK.index(found.type), found.slug, found.index))


def _with_inline(found: FoundDevice, place: int, inline: cl.Device | None) -> tuple[FoundDevice, int]:
    """Give a device that works its inline one, repaired alike if it needs that."""
    if inline is None or not found.usable:
        return found, place
    if pocl_repair.needs_repair(inline.platform.version, inline.version, host_cpu()):
        repair = pocl_repair.repair(inline, host_cpu())
        if repair.name is None and repair.is_vital:
            _LOG.info("%s is not used: %s", inline.name, repair.reason)
            return found, place
    return replace(found, inline=inline, notes=(*found.notes, _INLINE_NOTE)), place


def _is_slow(found: FoundDevice) -> bool:
    """The interpreter (which calls itself a GPU) and the software rasteriser: for checks, after every other device."""
    return found.slug == "oclgrind" or (found.slug == "rusticl" and found.type == DeviceTypeCode.CPU)


def _type_of(device: cl.Device) -> DeviceTypeCode:
    import pyopencl as cl

    flags = (
        (cl.device_type.GPU, DeviceTypeCode.GPU),
        (cl.device_type.ACCELERATOR, DeviceTypeCode.ACCELERATOR),
        (cl.device_type.CPU, DeviceTypeCode.CPU),
    )
    return next((code for flag, code in flags if device.type & flag), DeviceTypeCode.OTHER)


def _size_text(library: str | None) -> str:
    try:
        return str(Path(library).stat().st_size) if library else ""
    except OSError:
        return ""


def _library_of(platform: cl.Platform) -> str | None:
    """The file that implements a platform: where the first functions of its dispatch table lie. Linux only.

    Every OpenCL object that comes through a loader starts with a pointer to that table. Reading goes through
    /proc/self/mem, which refuses a wrong address instead of faulting.
    """
    if sys.platform != "linux":
        return None
    word = struct.calcsize("P")
    try:
        memory = os.open("/proc/self/mem", os.O_RDONLY)
        try:
            (table,) = struct.unpack("P", os.pread(memory, word, platform.int_ptr))
            (function,) = struct.unpack("P", os.pread(memory, word, table + word))  # clGetPlatformInfo
        finally:
            os.close(memory)
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except (OSError, OverflowError, struct.error):
        return None
    for line in maps.splitlines():
        fields = line.split(None, 5)
        first, last = (int(part, 16) for part in fields[0].split("-"))
        if first <= function < last:
            return os.path.realpath(fields[5]) if len(fields) == 6 and fields[5].startswith("/") else None
    return None


def pocl_folder() -> Path:
    """Return the folder in which PoCL keeps kernels, and cannot build any where it is missing."""
    chosen = os.environ.get("POCL_CACHE_DIR")
    return Path(chosen) if chosen else _users_pocl_folder()


def _users_pocl_folder() -> Path:
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    except RuntimeError:  # the user has no home
        cache = NOWHERE
    return cache / "pocl" / "kcache"


def _do_without_the_users_cache() -> None:
    """Where the user's cache folder cannot be written, or is full: PoCL shows no device, PyOpenCL makes no kernel.

    Then PoCL gets a temporary folder, and PyOpenCL's caches are switched off unless the user chose otherwise.
    """
    if sys.platform != "linux":
        return
    folder = _users_pocl_folder()
    reason = why_unwritable(folder)
    if reason is not None and "PYOPENCL_NO_CACHE" not in os.environ:
        os.environ["PYOPENCL_NO_CACHE"] = "1"
        if "pyopencl" in sys.modules:
            import pyopencl

            pyopencl._PYOPENCL_NO_CACHE = True  # it has read the variable, and acts on it at its first kernel
    chosen = os.environ.get("POCL_CACHE_DIR")
    if chosen:
        folder = Path(chosen)
        reason = why_unwritable(folder)
    if reason is None:
        return
    try:
        temporary = cache_files.folder_of_process("nnrt-pocl-")
    except OSError:
        return
    os.environ["POCL_CACHE_DIR"] = temporary
    level = logging.WARNING if chosen else logging.INFO
    _LOG.log(level, "%s cannot be written (%s): PoCL uses %s until this process ends", folder, reason, temporary)


def _place_threads_of_pocl() -> None:
    """Have PoCL make as many threads as the process has processors, and keep each on one of its own if it has all.

    PoCL counts the machine's processors. Where a process has fewer (processors.py), threads beyond them take turns, and
    those that wait for another's results keep it from computing them. Where it has all, Linux now and then puts two
    threads on one, where they take turns for some milliseconds: a network that is one launch then takes twice its time.
    What the user chose stays; what a process on other processors chose for this one does not.
    """
    if sys.platform != "linux":
        return
    usable, there = usable_processors(), os.cpu_count() or 1
    _choose((_AFFINITY,), 1 if usable == there else None)
    _choose(_THREADS, usable if usable < there else None)


def _choose(names: Sequence[str], number: int | None) -> None:
    """Give variables of PoCL a number, or none, unless the user gave one of them a value."""
    if any(name in os.environ and not os.environ[name].endswith(_OURS) for name in names):
        return
    for name in names:
        if number is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = f"{number}{_OURS}"


@contextlib.contextmanager
def _inline_device_shown(
    entries: Sequence[icd.IcdEntry], verdicts: dict[str | None, probe.LibraryVerdict]
) -> Iterator[None]:
    """Have PoCL show its device without threads besides the usual one, unless the user chose its devices.

    PoCL reads the variable when it first lists devices. It would hide what else a PoCL has, so each has to have shown
    the usual one alone.
    """
    shown = [list(verdicts[entry.path].devices) for entry in entries if "pocl" in Path(entry.library).name]
    names = [[probe.inline_name(probe.device_name_in(key)) for key in keys] for keys in shown]
    if _DEVICES in os.environ or not names or any(len(inline) != 1 or inline[0] is None for inline in names):
        yield
        return
    os.environ[_DEVICES] = " ".join(probe.POCL_DRIVERS)
    try:
        yield
    finally:
        del os.environ[_DEVICES]
