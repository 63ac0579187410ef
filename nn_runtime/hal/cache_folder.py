# SPDX-License-Identifier: Apache-2.0
"""The folder on disk in which runtime and drivers keep what can be made again."""

from __future__ import annotations

import os
from pathlib import Path

NOWHERE = Path(os.devnull) / "nnrt"
"""In place of the folder of a user who has no home: nothing is found there, and nothing can be written."""


def cache_directory() -> Path:
    """Return the folder of every cache: NNRT_CACHE_DIR, else the user's cache folder of this system, else NOWHERE."""
    chosen = os.environ.get("NNRT_CACHE_DIR")
    try:
        if chosen:
            return Path(chosen).expanduser()  # where no shell does, as in a Dockerfile
        import platformdirs  # 16 ms to import; not needed with the variable set

        folder = Path(platformdirs.user_cache_dir("nnrt", appauthor=False))
    except RuntimeError:
        return NOWHERE
    return folder if folder.is_absolute() else NOWHERE  # older versions return "~/.cache/nnrt"
