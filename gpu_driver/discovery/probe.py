# SPDX-License-Identifier: Apache-2.0
"""Is an OpenCL device usable? Build and run a small kernel on it, once, in a child process.

A broken driver can end the process it runs in, so the first try happens in a child. One child serves one OpenCL
library (or, where libraries cannot be told apart, all of them). Verdicts are kept in the cache folder, by library
file, processor, the kernels that devices are tried with, the processor that PoCL 3.0 is told to compile for, the linker
that PoCL runs and the compilers whose libraries it links with, and the variables that change what drivers do; a bad
verdict for ten minutes only, because what it blames may have been mended outside.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gpu_driver import cache_files
from gpu_driver.discovery import dot_products, icd, link_repair, matrix_units, pocl_repair
from gpu_driver.discovery.host_cpu import host_cpu
from gpu_driver.discovery.trial import one_line, run_once
from gpu_driver.interrupts import interrupts_held
from nn_runtime.hal.cache_folder import cache_directory
from nn_runtime.hal.files import read_file
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyopencl as cl

_LOG = logging.getLogger(__name__)
_FORMAT = 9
BAD_VERDICT_SECONDS = 600
CHILD_TIMEOUT_SECONDS = 120
_MARK = "@nnrt-probe "
_BEGIN, _ENUMERATED, _VERDICT = "begin", "enumerated", "verdict"
_MAX_CHILDREN_PER_LIBRARY = 8
_LIMITS = errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM

COMPILER_VARIABLES = "POCL_WORK_GROUP_METHOD", "CL_CONFIG_USE_VECTORIZER", "CL_CONFIG_CPU_TARGET_ARCH"
"""Those that change how a library compiles, as long as the process lives."""
# And those that change which devices a library shows; POCL_CACHE_DIR does so only when wrong.
_KEY_VARIABLES = (
    "OCL_ICD_VENDORS", "OCL_ICD_FILENAMES", "LD_LIBRARY_PATH", "PYOPENCL_BUILD_OPTIONS", "POCL_DEVICES",
    "RUSTICL_ENABLE", "CUDA_VISIBLE_DEVICES", *COMPILER_VARIABLES,
)  # fmt: skip
_COMPILERS = "lib*/gcc/*/*"  # below /usr
ENVIRONMENT_VARIABLES = (*_KEY_VARIABLES, "PYOPENCL_CTX", "PYOPENCL_NO_CACHE", "POCL_CACHE_DIR", "POCL_DEBUG")

POCL_DRIVERS = "pthread", "basic"
"""PoCL's names of its drivers of devices with threads of their own, and of those that compute in the calling thread."""
_RUSTICL = "rusticl"
# How the names of these devices begin: PoCL 3's, and what later ones call them.
_POCL_NAMES = (("pthread-", "basic-"), ("cpu-", "cpu-minimal-"))

_SOURCE = """
kernel void nnrt_probe(global const float *a, global float *b, global half *h, global int *n, int count) {
  local float shared_values[32];
  int i = get_global_id(0), l = get_local_id(0);
  shared_values[l] = a[i];
  barrier(CLK_LOCAL_MEM_FENCE);
  float4 v = vload4(0, a);
  b[i] = shared_values[31 - l] * 3.0f + sqrt(v.y + v.z) * v.x;
  vstore_half_rte(a[i], i, h);
  n[i] = i < count ? (int)mul_hi(i * 65537, 1 << 20) + clamp(i - 40, -16, 16) : -1;
}
"""
_ITEMS = 64
_COUNT = 50

_LOOP = """
kernel void nnrt_probe_loop(global const int *table, global const int *a, global int *sum, int count) {
  int added = 0;
  for (int i = 0; i < count; ++i)
    added += a[table[i]];
  sum[0] = added;
}
"""
"""Of llvmpipe in Mesa 26.1 a group of one work-item reads on where no item is left in a loop, and looks up nonsense."""
_NOWHERE = 1 << 30


@dataclass(frozen=True)
class DeviceVerdict:
    """Of one device: usable, or the reason why not; features: assembly variants that gave the right answer;
    repaired_as: the processor name written into PoCL 3.0; links_with_stand_ins: see link_repair.py.
    """

    usable: bool
    reason: str | None = None
    features: tuple[str, ...] = ()
    repaired_as: str | None = None
    links_with_stand_ins: bool = False


@dataclass(frozen=True)
class LibraryVerdict:
    """Of one OpenCL library: safe to load, or the reason why not; and its devices by `device_key`."""

    loads: bool
    reason: str | None = None
    devices: dict[str, DeviceVerdict] = field(default_factory=dict)

    @property
    def is_good(self) -> bool:
        """Whether nothing is wrong with it."""
        return self.loads and all(device.usable for device in self.devices.values())


def device_key(device: cl.Device, index: int) -> str:
    """What a verdict belongs to: platform, device and driver as they name themselves, and the place in the platform.

    PoCL's device that computes in the calling thread takes no place: it is not always shown.
    """
    platform = device.platform
    return "|".join([platform.name, platform.version, device.name, device.version, device.driver_version, str(index)])


def device_name_in(key: str) -> str:
    """The device's name in what a verdict belongs to."""
    return key.split("|")[2]


def inline_name(name: str) -> str | None:
    """What PoCL calls the device of the same processor that computes in the calling thread; None unless `name` is one
    of PoCL's with threads of its own.
    """
    for threads, inline in _POCL_NAMES:
        if name.startswith(threads) and not name.startswith(inline):
            return inline + name.removeprefix(threads)
    return None


# --- verdicts, kept on disk -----------------------------------------------------------------------------------------


def library_verdicts(
    libraries: Sequence[str | None], refresh: bool = False, meanwhile: Callable[[], object] = bool
) -> dict[str | None, LibraryVerdict]:
    """The verdict on each library (None: whatever the loader shows). Children for the unknown ones run side by side.

    refresh: ask again even where a verdict is cached. meanwhile: called while children run, if there are any.
    Raises OSError where limits of this process allow no child.
    """
    verdicts: dict[str | None, LibraryVerdict] = {}
    for library in libraries:
        cached = None if refresh else _read_verdict(library)
        if cached is not None:
            verdicts[library] = cached
    asked = [library for library in libraries if library not in verdicts]
    started: list[tuple[str | None, subprocess.Popen[str] | None]] = []
    try:
        for library in asked:
            started.append((library, _start_child(library, ())))
        if started:
            meanwhile()
        for library, child in started:
            verdicts[library] = _follow_children(library, child)
            cache_files.try_write(_verdict_path(library), _encode(verdicts[library]))
    except BaseException:
        for _, child in started:
            if child is not None:
                child.kill()
                child.communicate()
        raise
    return verdicts


def _verdict_path(library: str | None) -> Path:
    parts: list[object] = [
        _FORMAT,
        _trials(),
        pocl_repair.replacement_name(host_cpu()),
        library,
        host_cpu().digest,
        str(icd.pyopencl_folder()),
        sys.version_info[:2],
        shutil.which(link_repair.LINKER),
        sorted(map(str, Path("/usr").glob(_COMPILERS))),
        link_repair.chosen(),
    ]
    if library is not None and Path(library).is_absolute():
        try:
            state = Path(library).stat()
            parts += [state.st_size, state.st_mtime_ns]
        except OSError:
            parts.append("missing")
    parts += [os.environ.get(name) for name in _KEY_VARIABLES]
    digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]
    return cache_directory() / "devices" / f"{digest}.json"


@functools.cache
def _trials() -> str:
    """Return a digest of all kernels that devices are tried with: other ones may be answered otherwise."""
    text = _SOURCE + _LOOP + dot_products.trial_text() + matrix_units.trial_text()
    return hashlib.sha256(text.encode()).hexdigest()


def _encode(verdict: LibraryVerdict) -> bytes:
    return json.dumps({"format": _FORMAT, "written": time.time(), **asdict(verdict)}).encode()


def _read_verdict(library: str | None) -> LibraryVerdict | None:
    try:
        return decode_verdict(read_file(_verdict_path(library)), time.time())
    except OSError:
        return None


def decode_verdict(data: bytes, now: float) -> LibraryVerdict | None:
    """The verdict in a cache file's bytes; None when damaged, of another format, or bad and no longer fresh."""
    try:
        fields = json.loads(data)
        if fields["format"] != _FORMAT:
            return None
        devices = {str(key): _decode_device(value) for key, value in fields["devices"].items()}
        verdict = LibraryVerdict(bool(fields["loads"]), fields["reason"], devices)
        age = now - float(fields["written"])
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
    return verdict if verdict.is_good or 0 <= age < BAD_VERDICT_SECONDS else None


def _decode_device(fields: dict[str, object]) -> DeviceVerdict:
    features = fields["features"]
    if not isinstance(features, list):
        raise TypeError("features must be a list")
    reason, repaired_as = fields["reason"], fields["repaired_as"]
    return DeviceVerdict(
        bool(fields["usable"]),
        None if reason is None else str(reason),
        tuple(str(feature) for feature in features),
        None if repaired_as is None else str(repaired_as),
        bool(fields["links_with_stand_ins"]),
    )


# --- the parent's side of a child -----------------------------------------------------------------------------------


def _start_child(library: str | None, skip: Sequence[str]) -> subprocess.Popen[str] | None:
    if not sys.executable:
        return None
    environment = {**os.environ, "POCL_KERNEL_CACHE": "0"}  # a kernel that PoCL kept would show nothing of its linker
    if library is not None:
        environment[icd.VENDORS_VARIABLE] = library
    code = "import json,sys; sys.path[:]=json.loads(sys.argv[1]); from gpu_driver.discovery.probe import child; child()"
    arguments = [json.dumps(sys.path), json.dumps(library), json.dumps(list(skip))]
    try:
        return subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, errors="replace",
        )  # fmt: skip
    except OSError as error:
        if error.errno in _LIMITS:  # a driver would fail for the same, and end this process
            message = f"no child process can be started to try OpenCL in: {error.strerror}"
            raise OSError(error.errno, message) from error
        _LOG.warning("cannot start a child process for probing (%s): trying devices in this one", error)
        return None


def _follow_children(library: str | None, child: subprocess.Popen[str] | None) -> LibraryVerdict:
    """Collect a child's verdicts.

    After one that died on a device, a next child goes on behind that device, or tries it again with what its linker
    lacked.
    """
    devices: dict[str, DeviceVerdict] = {}
    for number in range(_MAX_CHILDREN_PER_LIBRARY):
        if number:
            child = _start_child(library, tuple(devices))
        if child is None:
            break
        output, ending = _finish(child)
        enumerated, begun, said = _read_messages(output)
        devices.update(said)
        if ending is None:
            return LibraryVerdict(True, None, devices)
        if not enumerated:
            return LibraryVerdict(False, ending)
        if begun is None:
            return LibraryVerdict(True, None, devices)
        if not (link_repair.may_help(ending) and _stand_ins_offered()):
            devices.setdefault(begun, DeviceVerdict(False, f"{ending} while running the test kernel"))
    return LibraryVerdict(True, None, devices)


def _stand_ins_offered() -> bool:
    try:
        link_repair.offer()
    except OSError as error:
        _LOG.info("no libraries can be offered to PoCL's linker: %s", error)
        return False
    return True


def _finish(child: subprocess.Popen[str]) -> tuple[str, str | None]:
    """The child's output, and how it ended if not well."""
    try:
        output, errors = child.communicate(timeout=CHILD_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        output, _ = child.communicate()
        return output, f"the driver did not come back within {CHILD_TIMEOUT_SECONDS} s"
    except BaseException:
        child.kill()
        child.communicate()
        raise
    if child.returncode == 0:
        return output, None
    last = next((line.strip() for line in reversed(errors.splitlines()) if line.strip()), "")
    said = f" ({last})" if last else ""
    if child.returncode < 0:
        return output, f"the driver ended the process with signal {-child.returncode}{said}"
    return output, f"the driver ended the process with status {child.returncode}{said}"


def _read_messages(output: str) -> tuple[bool, str | None, dict[str, DeviceVerdict]]:
    """(were the devices listed, the last device begun, the verdicts) from the child's lines; drivers print too."""
    enumerated, begun, said = False, None, {}
    for line in output.splitlines():
        if _MARK not in line:
            continue
        kind, value = json.loads(line.split(_MARK, 1)[1])
        if kind == _ENUMERATED:
            enumerated = True
        elif kind == _BEGIN:
            begun = str(value)
        elif kind == _VERDICT:
            said[value[0]] = _decode_device(value[1])
    return enumerated, begun, said


# --- inside the child -----------------------------------------------------------------------------------------------


def child() -> None:
    """Main function of the child process: argv holds the module path, the library and the device keys to skip."""
    library, skip = json.loads(sys.argv[2]), json.loads(sys.argv[3])
    if library is not None:
        _open_library(library)
    devices = list_devices()
    _say(_ENUMERATED, len(devices))
    inline = inline_twins(devices).values()
    for device, index in devices:
        key = device_key(device, index)
        if key in skip or device in inline:
            continue
        _say(_BEGIN, key)
        for verdict in _verdicts_on(device):
            _say(_VERDICT, [key, asdict(verdict)])
    os._exit(0)  # all is said, and drivers take 0.2 s to unload


def _open_library(library: str) -> None:
    """Open it once ourselves: unlike the loader, this says what is missing."""
    import ctypes

    try:
        ctypes.CDLL(library)
    except OSError as error:
        sys.exit(f"cannot open {error}")


def _say(kind: str, value: object) -> None:
    print("\n" + _MARK + json.dumps([kind, value]), flush=True)


def list_devices() -> list[tuple[cl.Device, int]]:
    """(device, place as `device_key` takes it) of all platforms, custom devices left out; one that fails has none."""
    import pyopencl as cl

    found = []
    try:
        with interrupts_held():  # the drivers' threads start processes
            platforms = cl.get_platforms()
    except cl.Error as error:  # PLATFORM_NOT_FOUND_KHR: no library, or none with a platform
        _LOG.info("no OpenCL platform: %s", error)
        return []
    for platform in platforms:
        try:
            devices = platform.get_devices(cl.device_type.ALL)
        except cl.Error as error:
            _LOG.info("%s lists no device: %s", platform.name, error)
            continue
        inline = {inline_name(device.name) for device in devices}
        place = 0
        for device in devices:
            if device.type != cl.device_type.CUSTOM:
                found.append((device, place))
            place += device.name not in inline
    return found


def inline_twins(devices: Iterable[tuple[cl.Device, int]]) -> dict[cl.Device, cl.Device]:
    """PoCL's devices with threads, each with its device that has none, which compiles alike and needs no verdict."""
    named = {(device.platform, device.name): device for device, _ in devices}
    twins = {device: named.get((platform, inline_name(name) or "")) for (platform, name), device in named.items()}
    return {device: twin for device, twin in twins.items() if twin is not None}


def probe_device(device: cl.Device) -> DeviceVerdict:
    """Build and run the test kernel, with PoCL 3.0 repaired first where it needs that."""
    return next(_verdicts_on(device))


def _verdicts_on(device: cl.Device) -> Iterator[DeviceVerdict]:
    """Yield the verdict of the test kernel, then the one with features; both in one context, where PoCL reads its
    library of built-in functions (0.4 s) once.
    """
    import pyopencl as cl

    repaired_as = None
    if pocl_repair.needs_repair(device.platform.version, device.version, host_cpu()):
        repair = pocl_repair.repair(device, host_cpu())
        if repair.name is None and repair.is_vital:
            yield DeviceVerdict(False, repair.reason)
            return
        repaired_as = repair.name
    good = DeviceVerdict(True, None, (), repaired_as, "PoCL" in device.platform.version and link_repair.is_offered())
    try:
        context = cl.Context([device])
        wrong = _wrong_answers(context)
        if not wrong and _RUSTICL in device.platform.name:
            wrong = _wrong_loop(context)
    except cl.Error as error:
        yield replace(good, usable=False, reason=f"the test kernel failed: {one_line(str(error))}")
        return
    if wrong:
        yield replace(good, usable=False, reason=f"the test kernel gave wrong answers: {wrong}")
        return
    yield good
    units = matrix_units.feature_of(device, context)
    features = dot_products.features_of(device, context, host_cpu()) if units is None else (units,)
    if features:
        yield replace(good, features=features)


def _wrong_answers(context: cl.Context) -> str:
    """Which outputs of the test kernel are not what numpy says; "" when all are right."""
    index = np.arange(_ITEMS)
    a = ((index * 37) % 64).astype(np.float32) / 4
    outputs = [np.zeros(_ITEMS, dtype) for dtype in (np.float32, np.float16, np.int32)]
    run_once(context, _SOURCE, "nnrt_probe", (_ITEMS,), (32,), [a], outputs, [np.int32(_COUNT)])
    b = a.reshape(2, 32)[:, ::-1].reshape(-1) * 3 + np.sqrt(a[1] + a[2]) * a[0]
    n = np.where(index < _COUNT, ((index * 65537) * (1 << 20) >> 32) + np.clip(index - 40, -16, 16), -1)
    right = [np.allclose(outputs[0], b, rtol=1e-6), np.array_equal(outputs[1], a.astype(np.float16)),
             np.array_equal(outputs[2], n)]  # fmt: skip
    return ", ".join(name for name, is_right in zip(("float", "half", "int"), right, strict=True) if not is_right)


def _wrong_loop(context: cl.Context) -> str:
    """What a loop that looks up numbers makes wrong, if it comes back at all; "" when it is right."""
    table = np.full(_ITEMS * _ITEMS, _NOWHERE, np.int32)
    table[:_COUNT] = np.arange(_COUNT)[::-1]
    a, total = np.arange(1, _COUNT + 1, dtype=np.int32) ** 2, np.zeros(1, np.int32)
    run_once(context, _LOOP, "nnrt_probe_loop", (1,), (1,), [table, a], [total], [np.int32(_COUNT)])
    return "" if total[0] == np.sum(a) else "loop"
