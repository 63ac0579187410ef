# SPDX-License-Identifier: Apache-2.0
"""PoCL where no C compiler is installed: stand-ins for the libraries that it has every kernel linked with.

PoCL ends a build as clang ends that of any shared library: `ld ... -lgcc -lgcc_s -lc`, newer ones with `-lm`. These
names come with a compiler (Debian: libgcc-<n>-dev, libc6-dev); a machine that has `ld` alone, as slim container images
do after `apt-get install binutils`, lacks them, and PoCL ends the process. Kernels need next to nothing of them, and
the shared libraries themselves are there: Python runs on one, PoCL on the other. So a temporary folder gives them these
names, by scripts of the linker, and clang looks there behind the system's folders, as LIBRARY_PATH tells it.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from pathlib import Path

from gpu_driver import cache_files

LINKER = "ld"
"""What PoCL links every kernel with; without it, it ends the process."""
COMPLAINT = "Final linking of kernel"
"""How the last words of a PoCL begin that could not link."""
_VARIABLE = "LIBRARY_PATH"
_PREFIX = "nnrt-link-"
_EMPTY_ARCHIVE = b"!<arch>\n"
_SHARED = {"libgcc_s": "libgcc_s.so.1", "libc": "libc.so.6", "libm": "libm.so.6"}


def may_help(ending: str) -> bool:
    """Whether a process that ended with these words may have lacked what is offered here, and does not have it yet."""
    return COMPLAINT in ending and sys.platform == "linux" and shutil.which(LINKER) is not None and not is_offered()


def offer() -> None:
    """Have every build of this process, and of those it starts, find the stand-ins; raises OSError."""
    if not is_offered():
        folder = cache_files.folder_of_process(_PREFIX)
        for name, content in _stand_ins().items():
            (Path(folder) / name).write_bytes(content)
        os.environ[_VARIABLE] = os.pathsep.join([*chosen(), folder])


def is_offered() -> bool:
    """Whether they are, by this process or by the one that started it."""
    return any(_is_ours(part) and Path(part).is_dir() for part in _parts())


def chosen() -> list[str]:
    """The folders that the user has clang's links look into."""
    return [part for part in _parts() if not _is_ours(part)]


def _parts() -> list[str]:
    return [part for part in os.environ.get(_VARIABLE, "").split(os.pathsep) if part]


def _is_ours(folder: str) -> bool:
    return Path(folder).name.startswith(_PREFIX)


def _stand_ins() -> dict[str, bytes]:
    """Name -> content. For what cannot be found an empty archive: the process may have what a kernel needs of it."""
    files = {"libgcc.a": _EMPTY_ARCHIVE}
    for name, soname in _SHARED.items():
        path = _path_of(soname)
        if path is None:
            files[f"{name}.a"] = _EMPTY_ARCHIVE
        else:
            files[f"{name}.so"] = f'INPUT("{path}")\n'.encode()
    return files


def _path_of(soname: str) -> str | None:
    """Where the system's loader finds a shared library, if it does."""
    try:
        ctypes.CDLL(soname)
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    paths = (line[line.index("/") :] for line in maps.splitlines() if "/" in line)
    return next((path for path in paths if Path(path).name == soname), None)
