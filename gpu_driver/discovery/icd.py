# SPDX-License-Identifier: Apache-2.0
"""Which OpenCL libraries ("installable client drivers") the loader is offered.

The loader reads a folder of .icd files, each naming one library: /etc/OpenCL/vendors, or what OCL_ICD_VENDORS says.
Intel's runtime from PyPI is in no such folder (its own .icd file holds a placeholder), so for the moment in which
the loader starts we give it a folder with the system's entries and that library. PoCL from PyPI joins by itself:
its file lies beside PyOpenCL's own loader.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

VENDORS_VARIABLE = "OCL_ICD_VENDORS"
SYSTEM_VENDORS = Path("/etc/OpenCL/vendors")
_INTEL_LIBRARY = "libintelocl.so"


@dataclass(frozen=True)
class IcdEntry:
    """One library the loader may open. file: the .icd file that names it, if any; origin: system, environment
    (this Python environment), pyopencl (beside its loader) or user (OCL_ICD_VENDORS).
    """

    library: str
    origin: str
    file: str | None = None

    @property
    def is_file_name(self) -> bool:
        """Whether the library is named with its folder, not left to the system's search."""
        return Path(self.library).is_absolute()

    @property
    def path(self) -> str:
        """The library, with links resolved where it is a file name."""
        return os.path.realpath(self.library) if self.is_file_name else self.library


def read_vendors(folder: Path, origin: str) -> list[IcdEntry]:
    """Entries of a folder of .icd files, in the order of their names; unreadable and empty files are left out."""
    entries = []
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix == ".icd")
    except OSError:
        return []
    for path in files:
        with contextlib.suppress(OSError):
            lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
            if lines[0].strip():
                entries.append(IcdEntry(lines[0].strip(), origin, str(path)))
    return entries


def pyopencl_folder() -> Path | None:
    """Where PyOpenCL is installed, without importing it; None when it is not."""
    try:
        spec = importlib.util.find_spec("pyopencl")
    except (ImportError, ValueError):
        return None
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def offered_entries() -> list[IcdEntry]:
    """Every library the loader should see here: the user's choice if made, else system, environment and PyOpenCL's.

    Empty where drivers are not found by .icd files (macOS, Windows).
    """
    if sys.platform != "linux":
        return []
    user = os.environ.get(VENDORS_VARIABLE)
    if user:
        found = read_vendors(Path(user), "user") if Path(user).is_dir() else [IcdEntry(user, "user")]
    else:
        found = [*read_vendors(SYSTEM_VENDORS, "system"), *environment_entries()]
    if not user or Path(user).is_dir():
        found += _joining_entries()
    return list({entry.path: entry for entry in reversed(found)}.values())[::-1]


def environment_entries() -> list[IcdEntry]:
    """Libraries of this Python environment that no system folder names."""
    import site

    prefixes = dict.fromkeys([sys.prefix, sys.base_prefix, site.getuserbase()])
    entries = [IcdEntry(str(Path(prefix) / "lib" / _INTEL_LIBRARY), "environment") for prefix in prefixes]
    for prefix in prefixes:
        entries += read_vendors(Path(prefix) / "etc" / "OpenCL" / "vendors", "environment")
    return [entry for entry in entries if Path(entry.library).is_file()]  # Intel's own .icd names no real file


def _joining_entries() -> list[IcdEntry]:
    """What PyOpenCL's own loader adds to every folder: the .icd files in its .libs, relative to it."""
    folder = pyopencl_folder()
    if folder is None:
        return []
    libs = folder / ".libs"
    return [
        IcdEntry(str(libs / entry.library), "pyopencl", entry.file)
        for entry in read_vendors(libs, "pyopencl")
        if (libs / entry.library).is_file()
    ]


@contextlib.contextmanager
def vendors_offered(entries: Iterable[IcdEntry]) -> Iterator[str | None]:
    """Have the loader see these entries and no others while the block runs; yields the folder that lists them.

    The loader reads it once, at its first call, so neither variables nor folder outlive the block, and processes
    cannot disturb each other. Yields None, with nothing changed, where no folder can be made. PyOpenCL must be
    imported before: it sets PYOPENCL_HOME, by which its own entries join.
    """
    try:
        folder = tempfile.mkdtemp(prefix="nnrt-icd-")
    except OSError:
        yield None
        return
    try:
        for number, entry in enumerate(entries):
            (Path(folder) / f"{number:03d}.icd").write_text(entry.library + "\n", encoding="utf-8")
        with _environment({VENDORS_VARIABLE: folder, "PYOPENCL_HOME": folder}):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _environment(changes: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
