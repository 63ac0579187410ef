# SPDX-License-Identifier: Apache-2.0
"""Source and defines -> a built program: shared in memory per context, kept on disk per device and driver.

PoCL compiles a kernel's machine code at the first enqueue of each (kernel, local size), and a program's binary holds
what existed when it was first read, for ever. So a program is stored in two steps: `get` builds it, the caller
enqueues each of the announced launches once, `store` reads the binary. A program that came from disk is never stored
again; other launches on it work, compiled at their first enqueue. When PoCL's binary is first read it compiles once
more, for any local size, which takes as long as the first enqueue: `keep` leaves that to `store_kept`, when the process
ends.

NNAPI compilation caching brings binaries of its own (`offered`): they are looked at before the folder, which may be
missing. A binary is used under its key alone: source text with all that it includes, options, device, driver and
platform versions, CPU.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import math
import os
import re
import threading
import time
import warnings
from contextlib import contextmanager, suppress
from dataclasses import astuple, replace
from pathlib import Path
from typing import TYPE_CHECKING

import kernels_cl
from gpu_driver import cache_files
from gpu_driver.discovery.dot_products import WIDE_FORMS
from gpu_driver.discovery.host_cpu import host_cpu
from gpu_driver.discovery.platforms import pocl_folder
from gpu_driver.interrupts import interrupts_held
from nn_runtime.hal.cache_folder import cache_directory
from nn_runtime.hal.files import why_unwritable
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import pyopencl as cl

    from gpu_driver.device_profile import DeviceProfile

    Launched = tuple[str, tuple[int, ...] | None]
    """A kernel's name and the local size it is enqueued with."""

_LOG = logging.getLogger(__name__)
_FORMAT = 2
MAX_FOLDER_BYTES = 512 << 20
_LOCK_SECONDS = 5.0
_DENORMALS_ARE_ZERO = "-cl-denorms-are-zero"  # what a masked SOFTMAX or a fading state makes costs 100 cycles
_LLVM = re.compile(r"\bLLVM (\d+)")
_LLVM_KEEPS_DENORMALS_APART = 17
"""From this version on LLVM inlines no function that was compiled without that option into one that was."""
_DEFINE_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_DEFINE_VALUE = re.compile(r"[\w.+\-*/()<>,]*", re.ASCII)  # no blanks, quotes or backslashes: one word of the options
_build_lock = threading.Lock()  # parallel builds gain nothing, and catching warnings is a matter of the whole process
_kernel_lock = threading.Lock()  # PyOpenCL without its cache warns where two threads generate the code of a kernel


class ProgramBuildError(RuntimeError):
    """A program did not build. summary: one line with the first error; log: the compiler's words."""

    def __init__(self, source_name: str, options: tuple[str, ...], device_name: str, log: str) -> None:
        errors = [line.strip() for line in log.splitlines() if "error" in line]
        self.summary = f"{source_name} does not build for {device_name}: {errors[0] if errors else 'no error message'}"
        super().__init__(f"{self.summary}\noptions: {' '.join(options)}\n{log}")
        self.source_name = source_name
        self.options = options
        self.device_name = device_name
        self.log = log


@dataclass(frozen=True, eq=False)
class Program:
    """A built program. options: all it was built with; key: hash of all that its binary depends on; path: its file.

    from_disk: it was made from a binary, of that file or offered.
    """

    source_name: str
    options: tuple[str, ...]
    key: str
    path: Path
    from_disk: bool
    cl_program: cl.Program

    def kernel(self, name: str) -> cl.Kernel:
        """A new kernel object: arguments belong to it, so one per call site."""
        import pyopencl as cl

        with _kernel_lock:
            return cl.Kernel(self.cl_program, name)


@dataclass(frozen=True)
class CacheStats:
    """Counts since the cache was made: built from source, loaded from disk, found in memory, written to disk."""

    builds: int = 0
    loads: int = 0
    shared: int = 0
    stores: int = 0
    build_seconds: float = 0.0
    load_seconds: float = 0.0

    def plus(self, other: CacheStats) -> CacheStats:
        """Return the sums."""
        return CacheStats(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


class ProgramCache:
    """The programs of one device of a context. Safe for threads; its folder is safe for processes.

    directory: where binaries lie (default: `programs` in the driver's cache folder); a folder that cannot be read or
    written, or a damaged file, costs a build and nothing else. source: name -> text. device: default, the first.
    """

    def __init__(
        self,
        context: cl.Context,
        profile: DeviceProfile,
        directory: Path | None = None,
        source: Callable[[str], str] = kernels_cl.source,
        device: cl.Device | None = None,
    ) -> None:
        self._context = context
        self._device = context.devices[0] if device is None else device
        self._profile = profile
        self._denormals = denormal_options(profile)
        self._directory = cache_directory() / "programs" if directory is None else directory
        self._source = source
        self._lock = threading.Lock()
        self._programs: dict[tuple[str, tuple[str, ...]], Program] = {}
        self._marks = threading.Lock()
        """Guards the next two, and is held for a moment only: `_lock` is for as long as something is built."""
        self._stored: set[Path] = set()
        self._kept: dict[Path, Program] = {}
        self._offered: dict[str, bytes] = {}
        self._stats = CacheStats()

    @property
    def stats(self) -> CacheStats:
        """The counts so far."""
        return self._stats

    def get(
        self,
        source_name: str,
        defines: Mapping[str, str | int],
        launches: Iterable[Launched] = (),
    ) -> Program:
        """The program of a source with these defines: from memory, from disk, or built.

        launches: every (kernel, local size) the caller will have enqueued before `store`. Raises ProgramBuildError.
        """
        words = build_options(defines, self._ways(source_name, defines), self._denormals)
        with self._lock:
            program = self._programs.get((source_name, words))
            if program is not None:
                self._stats = replace(self._stats, shared=self._stats.shared + 1)
                return program
            text = self._source(source_name)
            key = self._key(text, words)
            path = self._path(source_name, key, launches)
            program = (
                self._take(source_name, words, key, path)
                or self._load(source_name, words, key, path)
                or self._build(source_name, text, words, key, path)
            )
            self._programs[source_name, words] = program
            return program

    @contextmanager
    def offered(self, binaries: dict[str, bytes]) -> Iterator[None]:
        """Take binaries by `Program.key` before any other; those that the driver refuses are removed from the dict.

        They must be such as `binary` returned on this machine: what they hold is run.
        """
        with self._lock:
            self._offered = binaries
        try:
            yield
        finally:
            with self._lock:
                self._offered = {}

    def binary(self, program: Program) -> bytes:
        """The binary of a program, after its launches were enqueued; empty where the driver has none."""
        with self._lock:
            return self._binary(program)

    def is_new(self, program: Program) -> bool:
        """Whether a program was built in this process and neither stored nor kept: its launches are to be warmed."""
        with self._marks:
            return not (program.from_disk or program.path in self._stored or program.path in self._kept)

    def keep(self, program: Program) -> None:
        """Store a program whose launches were enqueued: at once, or with `store_kept` where reading it compiles."""
        if self._profile.slug != "pocl":
            self.store(program)
        elif not program.from_disk:
            with self._marks:
                self._kept[program.path] = program

    def store_kept(self, limit_seconds: float = math.inf) -> None:
        """Store what `keep` left, while there is time: PoCL's own cache holds the compiled kernels of the others."""
        with self._marks:
            are_kept = bool(self._kept)
        if not are_kept or why_unwritable(self._directory) is not None:
            return
        end = time.monotonic() + limit_seconds
        while time.monotonic() < end:
            with self._marks:
                if not self._kept:
                    return
                path, program = self._kept.popitem()
                is_stored = path in self._stored
                self._stored.add(path)
            if not is_stored:
                self._write(program)

    def store(self, program: Program) -> bool:
        """Write a program's binary to disk, once, after its launches were enqueued. Whether a file was written."""
        with self._marks:
            if program.from_disk or program.path in self._stored:
                return False
            self._stored.add(program.path)
        return self._write(program)

    def _write(self, program: Program) -> bool:
        import pyopencl as cl

        with self._lock:
            try:
                binary = self._binary(program)
            except cl.Error as error:
                _LOG.info("cannot store %s: the driver gives no binary (%s)", program.path, error)
                return False
            if not binary or not _write_locked(program.path, cache_files.seal(binary)):
                return False
            self._stats = replace(self._stats, stores=self._stats.stores + 1)
            return True

    def _binary(self, program: Program) -> bytes:
        with interrupts_held():  # PoCL compiles here, too
            binaries = program.cl_program.binaries
        # PoCL leaves out the devices for which it was not built.
        at = program.cl_program.devices.index(self._device) if len(binaries) > 1 else 0
        return binaries[at]

    def _ways(self, source_name: str, defines: Mapping[str, str | int]) -> tuple[str, ...]:
        """Return the options for what headers in common do in the way of a device: by assembly where that works."""
        profile = self._profile
        may_assemble = profile.takes_assembly(source_name)
        has_wide_halves = profile.slug == "pocl" and profile.x86_avx512 and may_assemble
        of_halves = has_wide_halves and defines.get("T") in ("half", "float")
        of_tables = profile.x86_vbmi and may_assemble and defines.get("DOT4") in WIDE_FORMS
        of_pointers = profile.dot4 and defines.get("TILE_VECTORS") == 1
        words = {"HALF_BY_ASSEMBLY": of_halves, "VBMI": of_tables, "POINTERS_BY_ASSEMBLY": of_pointers}
        words["VECTORS_BY_ALIGNMENT"] = not profile.is_cpu
        words["SIGN_APART"] = profile.slug == "rusticl" and defines.get("T") == "half"
        return tuple(f"-D{word}=1" for word, works in words.items() if works)

    def _key(self, text: str, words: tuple[str, ...]) -> str:
        added = os.environ.get("PYOPENCL_BUILD_OPTIONS")  # PyOpenCL adds these itself
        parts = json.dumps([_FORMAT, self._profile.identity, text, words, added])
        return hashlib.sha256(parts.encode()).hexdigest()

    def _path(self, source_name: str, key: str, launches: Iterable[Launched]) -> Path:
        if self._profile.slug == "pocl":  # elsewhere a binary is complete whatever was launched
            launched = json.dumps([key, sorted({json.dumps(launch) for launch in launches})])
            key = hashlib.sha256(launched.encode()).hexdigest()
        return self._directory / f"{Path(source_name).stem}-{key}.bin"

    def _take(self, source_name: str, words: tuple[str, ...], key: str, path: Path) -> Program | None:
        """Return the program of an offered binary, if there is one that the driver takes."""
        binary = self._offered.get(key)
        if binary is None:
            return None
        program = self._loaded(source_name, words, key, path, binary)
        if program is None:
            del self._offered[key]
        return program

    def _load(self, source_name: str, words: tuple[str, ...], key: str, path: Path) -> Program | None:
        """Return the program of a file, if it is there and whole, and the driver takes it."""
        data = cache_files.read_trusted(path)
        if data is None:
            return None
        binary = cache_files.unseal(data)
        if binary is None:
            _LOG.info("%s is damaged: building again", path)
            return None
        program = self._loaded(source_name, words, key, path, binary)
        if program is not None:
            with suppress(OSError):
                path.touch()  # the oldest go first when the folder is full
        return program

    def _loaded(self, source_name: str, words: tuple[str, ...], key: str, path: Path, binary: bytes) -> Program | None:
        import pyopencl as cl

        start = time.perf_counter()
        try:
            built = self._built(cl.Program(self._context, [self._device], [binary]), words)
        except cl.Error as error:
            _LOG.info("a kept binary of %s is refused by the driver (%s): building again", source_name, error)
            return None
        seconds = time.perf_counter() - start
        self._stats = replace(self._stats, loads=self._stats.loads + 1, load_seconds=self._stats.load_seconds + seconds)
        return Program(source_name, words, key, path, True, built)

    def _build(self, source_name: str, text: str, words: tuple[str, ...], key: str, path: Path) -> Program:
        import pyopencl as cl

        from gpu_driver.device.errors import is_exhausted

        start = time.perf_counter()
        try:
            built = self._built(cl.Program(self._context, text), words)
        except cl.Error as error:
            if is_exhausted(error):  # of which the program is not the cause
                raise
            log = str(error).split("\n\n", 1)[-1]  # without the status, which is said three times
            raise ProgramBuildError(source_name, words, self._profile.name, log) from error
        seconds = time.perf_counter() - start
        self._stats = replace(
            self._stats, builds=self._stats.builds + 1, build_seconds=self._stats.build_seconds + seconds
        )
        _LOG.debug("built %s %s in %.3f s", source_name, " ".join(words), seconds)
        _warn_where_nothing_is_kept(self._directory)
        return Program(source_name, words, key, path, False, built)

    def _built(self, program: cl.Program, words: tuple[str, ...]) -> cl.Program:
        """Build without PyOpenCL's own disk cache, its compiler warnings sent to the log."""
        import pyopencl as cl

        if self._profile.slug == "pocl":
            with suppress(OSError):  # who cleans up may have removed it since PoCL began
                pocl_folder().mkdir(parents=True, exist_ok=True)
        with _build_lock, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            program.int_ptr  # noqa: B018  # makes the program object now, which takes PyOpenCL's cache out of the way
            try:
                with interrupts_held():
                    program.build(list(words), devices=[self._device])
            except MemoryError:
                _keep_for_ever(program)  # PoCL's compiler has left its lock taken: giving it back would wait for that
                raise
        for warning in caught:
            if issubclass(warning.category, cl.CompilerWarning):
                _LOG.debug("%s", warning.message)
        return program


def _keep_for_ever(value: object) -> None:
    """Have an object outlive even the end of the interpreter."""
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))


def denormal_options(profile: DeviceProfile) -> tuple[str, ...]:
    """Options by which numbers below the least normal one are zeros, or may be.

    Newer PoCLs are not told: none of their built-in functions, `fma` among them, would be inlined. On x86 the kernels
    where such numbers are many see to it themselves; other processors compute with them as fast.
    """
    found = _LLVM.search(profile.platform_version) if profile.slug == "pocl" and profile.is_cpu else None
    if found is None or int(found[1]) < _LLVM_KEEPS_DENORMALS_APART:
        return (_DENORMALS_ARE_ZERO,)
    return ("-DFLUSH_BY_HAND=1",) if host_cpu().is_x86 else ()


def build_options(
    defines: Mapping[str, str | int], options: Iterable[str] = (), denormals: Iterable[str] = (_DENORMALS_ARE_ZERO,)
) -> tuple[str, ...]:
    """The compiler's options in one order for equal defines. ValueError for what is not one plain word each."""
    words = ["-cl-std=CL1.2", *denormals, *options]
    for name, value in sorted(defines.items()):
        text = str(int(value)) if isinstance(value, int) else value
        if not _DEFINE_NAME.fullmatch(name) or not _DEFINE_VALUE.fullmatch(text):
            raise ValueError(f"not a define: {name!r}={value!r}")
        words.append(f"-D{name}={text}")
    return tuple(words)


@functools.cache
def _warn_where_nothing_is_kept(directory: Path) -> None:
    """Say once in a process that what it builds cannot be kept, and why."""
    reason = why_unwritable(directory)
    if reason is not None:
        _LOG.warning(
            "programs cannot be kept in %s (%s): every process will build them; NNRT_CACHE_DIR names another folder",
            directory, reason,
        )  # fmt: skip


def _write_locked(path: Path, data: bytes) -> bool:
    """Write a file and keep the folder within its size, one process at a time; False where that cannot be."""
    import filelock  # 30 ms to import, and only needed where something was built

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(path.parent / ".lock", timeout=_LOCK_SECONDS):
            written = cache_files.try_write(path, data)
            _prune(path.parent)
            return written
    except (OSError, NotImplementedError) as error:  # the former where others hold the lock for long, too
        _LOG.info("cannot store %s: %s", path, error)
        return False


def _prune(folder: Path, limit_bytes: int = MAX_FOLDER_BYTES) -> None:
    """Remove the files longest unused until three quarters of the limit are left, once it is passed."""
    files = []
    for file in folder.glob("*.bin"):
        with suppress(OSError):
            state = file.stat()
            files.append((state.st_mtime_ns, state.st_size, file))
    total = sum(size for _, size, _ in files)
    if total <= limit_bytes:
        return
    for _, size, file in sorted(files, key=lambda item: item[0]):
        if total <= limit_bytes * 3 // 4:
            return
        with suppress(OSError):
            file.unlink()
            total -= size
